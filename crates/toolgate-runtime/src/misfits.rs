//! Recorded calls that a changed definition of their tool would reject.
//!
//! Invariant: nothing is called. A call with missing or redacted arguments is counted as uncertain.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde_json::Value as Json;
use toolgate_audit::LoggedCall;
use toolgate_policy::{SchemaValidator, schema};
use toolgate_types::ServerName;
use toolgate_types::secret::MASK;

use crate::runtime::PendingApproval;

/// Calls that are named.
const MAX_CALLS: usize = 10;
/// Callers that are named; calls of others are in `count`.
const MAX_CALLERS: usize = 100;

/// The recorded calls of one tool against its new input schema.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Misfits {
    /// Calls that were compared.
    pub checked: u64,
    /// Calls that would not fit.
    pub count: u64,
    /// Calls with missing or redacted arguments in the record.
    pub uncertain: u64,
    pub callers: Vec<CallerMisfits>,
    /// Ids of the newest ones.
    pub calls: Vec<String>,
}

/// The calls of one caller that would not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallerMisfits {
    pub caller: String,
    pub count: u64,
}

/// Compares recorded calls, newest first, with waiting definitions. The result has one entry per definition.
///
/// # Errors
/// If a record cannot be read.
pub fn find_misfits(
    pending: &[PendingApproval],
    calls: impl Iterator<Item = io::Result<LoggedCall>>,
) -> io::Result<Vec<Misfits>> {
    let validator = |one: &PendingApproval| {
        let (schema, _) = schema::checkable(&one.new_definition["inputSchema"]);
        SchemaValidator::new(&schema).ok()
    };
    let validators: Vec<_> = pending.iter().map(validator).collect();
    // A tool that is held back has lost its bare name; earlier calls were made by it.
    let mut by_name: BTreeMap<(Option<&str>, String), usize> = BTreeMap::new();
    for (at, one) in pending.iter().enumerate() {
        let server = one.tool.server.as_ref().map(ServerName::as_str);
        let names = one.tool.names().into_iter().chain([one.tool.bare_name().into_owned()]);
        by_name.extend(names.map(|name| ((server, name), at)));
    }
    let mut found = vec![Misfits::default(); pending.len()];
    for call in calls {
        let call = call?;
        let Some(begin) = call.begin.as_ref().filter(|begin| begin.operation == "tool") else { continue };
        let Some(at) = by_name.get(&(begin.server.as_deref(), begin.tool.clone())) else { continue };
        let Some(validator) = &validators[*at] else { continue };
        found[*at].add(&begin.call, &begin.caller, begin.arguments.as_ref().map(|it| it.get()), validator);
    }
    Ok(found)
}

impl Misfits {
    fn add(&mut self, call: &str, caller: &str, arguments: Option<&str>, validator: &SchemaValidator) {
        let arguments = arguments.filter(|arguments| !arguments.contains(MASK));
        let Some(arguments) = arguments.and_then(|arguments| serde_json::from_str::<Json>(arguments).ok())
        else {
            self.uncertain += 1;
            return;
        };
        self.checked += 1;
        if validator.check(&arguments).is_ok() {
            return;
        }
        self.count += 1;
        if self.calls.len() < MAX_CALLS {
            self.calls.push(call.to_owned());
        }
        if let Some(known) = self.callers.iter_mut().find(|known| known.caller == caller) {
            known.count += 1;
        } else if self.callers.len() < MAX_CALLERS {
            self.callers.push(CallerMisfits { caller: caller.to_owned(), count: 1 });
        }
    }
}

#[test]
fn counts_calls_that_do_not_fit() {
    let schema = serde_json::json!({ "type": "object", "required": ["id"] });
    let validator = SchemaValidator::new(&schema).unwrap();
    let mut misfits = Misfits::default();
    for (call, caller, arguments) in [
        ("c1", "ann", Some(r#"{"id":1}"#)),
        ("c2", "ann", Some(r#"{"name":"x"}"#)),
        ("c3", "bob", Some("{}")),
        ("c4", "bob", Some(r#"{"token":"***"}"#)),
        ("c5", "bob", None),
    ] {
        misfits.add(call, caller, arguments, &validator);
    }
    let one = |caller: &str| CallerMisfits { caller: caller.to_owned(), count: 1 };
    let expected = Misfits {
        checked: 3,
        count: 2,
        uncertain: 2,
        callers: vec![one("ann"), one("bob")],
        calls: vec!["c2".to_owned(), "c3".to_owned()],
    };
    assert_eq!(misfits, expected);
}
