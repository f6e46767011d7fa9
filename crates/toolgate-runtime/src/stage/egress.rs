//! Egress: arguments that must not leave.
//!
//! Secrets reach a model by accident, and a model can be talked into passing them on. Arguments for a
//! server are searched for canaries (texts that the operator planted) and for what has the shape of a
//! credential. Invariant: linear in the arguments, and what was found is not repeated in the error.

use serde_json::Value;
use toolgate_types::egress::EgressRules;
use toolgate_types::redact::secret_ranges;

/// Something that must not leave.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("argument `{way}` holds {what}, which must not leave")]
pub(crate) struct Kept {
    pub(crate) way: String,
    pub(crate) what: &'static str,
}

/// Looks at every text of the arguments.
pub(crate) fn admit(rules: &EgressRules, arguments: &Value) -> Result<(), Kept> {
    search(rules, "", arguments)
}

fn search(rules: &EgressRules, way: &str, value: &Value) -> Result<(), Kept> {
    let step = |name: &str| if way.is_empty() { name.to_owned() } else { format!("{way}.{name}") };
    match value {
        Value::String(found) => text(rules, way, found),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(at, item)| search(rules, &step(&at.to_string()), item))
        }
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            text(rules, &step("(name)"), name)?;
            search(rules, &step(name), member)
        }),
        _ => Ok(()),
    }
}

fn text(rules: &EgressRules, way: &str, text: &str) -> Result<(), Kept> {
    let kept = |what| Err(Kept { way: way.to_owned(), what });
    if rules.canaries.iter().any(|canary| text.contains(canary.expose())) {
        return kept("a canary");
    }
    if rules.secrets && !secret_ranges(text, &rules.known).is_empty() {
        return kept("what looks like a credential");
    }
    Ok(())
}

#[test]
fn canaries_and_credentials_stay() {
    use toolgate_types::Secret;
    let rules = EgressRules {
        canaries: vec![Secret::new("CNRY-7f3a9")],
        secrets: true,
        known: vec![Secret::new("hunter2-hunter2")],
    };
    let told = |value: Value| admit(&rules, &value).err().map(|kept| kept.to_string()).unwrap_or_default();
    use serde_json::json;
    assert_eq!(told(json!({ "text": "nothing to see", "n": [1, { "a": null }] })), "");
    assert_eq!(
        told(json!({ "a": [{ "b": "x CNRY-7f3a9 y" }] })),
        "argument `a.0.b` holds a canary, which must not leave"
    );
    let key = told(json!({ "body": "key AKIAIOSFODNN7EXAMPLE" }));
    assert_eq!(key, "argument `body` holds what looks like a credential, which must not leave");
    assert!(!key.contains("AKIA"));
    assert_ne!(told(json!({ "body": "my hunter2-hunter2" })), "");
}
