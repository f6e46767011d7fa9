//! Entry point of the fuzz target: arbitrary arguments as the input of a policy.

use std::sync::LazyLock;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;
use toolgate_json::scan::ScanLimits;
use toolgate_json::{CallArguments, RawJson};
use toolgate_types::Caller;
use toolgate_types::tool::{RiskLevel, ToolContract};

use crate::decide::PolicyRequest;
use crate::schema::{SchemaValidator, check};
use crate::{Decision, Policy, RuleSet, ToolAttributes};

/// Paths that the rules look at, each with the value that they forbid.
const FORBIDDEN: [(&str, &str); 3] = [("path", "x"), ("to.0.name", "x"), (".path", "x")];

/// The same rules twice: with the paths as literals, and with computed ones. The latter need all arguments.
static POLICIES: LazyLock<Vec<[Policy; 2]>> = LazyLock::new(|| {
    let policy = |tag: &str, value: &str| {
        let rule = format!(
            "forbid(principal, action == Action::\"call\", resource) when {{ \
             context.arguments.hasTag({tag}) && context.arguments.getTag({tag}) == \"{value}\" }};"
        );
        Policy::new(Some(RuleSet::new(&rule).expect("the rule is valid")))
    };
    let both = |(path, value): (&str, &str)| {
        let literal = format!("\"{path}\"");
        let computed = format!("if resource.trusted then {literal} else {literal}");
        [policy(&literal, value), policy(&computed, value)]
    };
    FORBIDDEN.into_iter().map(both).collect()
});

/// Decides a call with arbitrary arguments. The two ways to prepare arguments agree, and a forbidden value is never
/// allowed. The input is also used as a schema: one that passes the check validates any value in bounded time.
///
/// # Panics
/// If the invariant does not hold.
pub fn arguments(bytes: &[u8]) {
    let limits = ScanLimits { size: 4 << 20, depth: 64 };
    let Ok(raw) = RawJson::new(Bytes::copy_from_slice(bytes), limits) else { return };
    let arguments = CallArguments::from(raw);
    let caller = Caller::new("ann".parse().expect("a valid id"), Vec::new());
    let tool = ToolAttributes {
        kind: Default::default(),
        name: "pay".to_owned(),
        original: "pay".to_owned(),
        server: None,
        permissions: Vec::new(),
        contract: ToolContract {
            version: String::new(),
            risk: RiskLevel::Low,
            idempotent: true,
            cacheable: false,
        },
        category: None,
        tags: Vec::new(),
        trusted: true,
        definition: None,
    };
    let now = SystemTime::UNIX_EPOCH;
    let request = PolicyRequest { caller: &caller, tool: &tool, arguments: &arguments, tainted: false, now };
    let value = arguments.value();
    for ((path, forbidden), [literal, computed]) in FORBIDDEN.into_iter().zip(POLICIES.iter()) {
        let is_forbidden = value.and_then(|value| leaf(value, path)).is_some_and(|leaf| leaf == forbidden);
        let allows = [literal, computed].map(|policy| match policy.decide(&request) {
            Decision::Allow(_) => Some(true),
            // Too many arguments to prepare all of them.
            Decision::Deny(denied) if denied.failed.is_some() => None,
            Decision::Deny(_) | Decision::Ask(_) => Some(false),
        });
        assert!(allows.iter().all(|allows| *allows != Some(is_forbidden)), "`{path}` {allows:?}");
    }
    if let Some(value) = value
        && check(value).is_ok()
        && let Ok(schema) = SchemaValidator::new(value)
    {
        let _ = schema.check(value);
    }
}

/// The string at a path of plain names, without the code of the policy.
fn leaf<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    let step = |at: &'a Value, name: &str| match at {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        at => at.get(name),
    };
    path.split('.').try_fold(value, step)?.as_str()
}
