//! Egress: blocks arguments that contain secrets.
//!
//! Models can see secrets by accident and can be tricked into sending them. Arguments for a server are searched for
//! canaries (strings planted by the operator) and for credentials. Invariants: linear time, and the error never repeats
//! the secret.

use serde_json::Value;
use toolgate_redact::secret_ranges;
use toolgate_types::egress::EgressConfig;

/// An argument contains a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("argument `{path}` contains {what}, which must not be sent")]
pub(crate) struct EgressBlocked {
    pub(crate) path: String,
    pub(crate) what: &'static str,
}

/// Checks all strings in the arguments.
pub(crate) fn admit(rules: &EgressConfig, arguments: &Value) -> Result<(), EgressBlocked> {
    check_value(rules, "", arguments)
}

fn check_value(rules: &EgressConfig, path: &str, value: &Value) -> Result<(), EgressBlocked> {
    let step = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::String(found) => check_text(rules, path, found),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| check_value(rules, &step(&at.to_string()), item)),
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            check_text(rules, &step("(name)"), name)?;
            check_value(rules, &step(name), member)
        }),
        _ => Ok(()),
    }
}

fn check_text(rules: &EgressConfig, path: &str, text: &str) -> Result<(), EgressBlocked> {
    let blocked = |what| Err(EgressBlocked { path: path.to_owned(), what });
    if rules.canaries.iter().any(|canary| text.contains(canary.expose())) {
        return blocked("a canary");
    }
    if rules.secrets && !secret_ranges(text, &rules.known).is_empty() {
        return blocked("a likely credential");
    }
    Ok(())
}

#[test]
fn blocks_canaries_and_credentials() {
    use toolgate_types::Secret;
    let rules = EgressConfig {
        canaries: vec![Secret::new("CNRY-7f3a9")],
        secrets: true,
        known: vec![Secret::new("hunter2-hunter2")],
    };
    let message_for =
        |value: Value| admit(&rules, &value).err().map(|blocked| blocked.to_string()).unwrap_or_default();
    use serde_json::json;
    assert_eq!(message_for(json!({ "text": "nothing to see", "n": [1, { "a": null }] })), "");
    assert_eq!(
        message_for(json!({ "a": [{ "b": "x CNRY-7f3a9 y" }] })),
        "argument `a.0.b` contains a canary, which must not be sent"
    );
    let key = message_for(json!({ "body": "key AKIAIOSFODNN7EXAMPLE" }));
    assert_eq!(key, "argument `body` contains a likely credential, which must not be sent");
    assert!(!key.contains("AKIA"));
    assert_ne!(message_for(json!({ "body": "my hunter2-hunter2" })), "");
}
