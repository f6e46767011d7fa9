//! Egress: blocks arguments that contain secrets.
//!
//! Models can see secrets by accident and can be tricked into sending them. Arguments for a server are searched for
//! canaries (strings planted by the operator) and for credentials, also encoded. A refused call costs more than a masked
//! word in a log, so a credential must be one beyond doubt. Invariants: linear time, and the error never repeats the
//! secret.

use serde_json::Value;
use toolgate_redact::{KnownSecrets, contains_credential};
use toolgate_types::Secret;
use toolgate_types::egress::EgressConfig;

/// An argument contains a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("argument `{path}` contains {what}, which must not be sent")]
pub(crate) struct EgressBlocked {
    pub(crate) path: String,
    pub(crate) what: &'static str,
}

/// The strings that no argument may contain, prepared for searching.
#[derive(Debug, Clone)]
pub(crate) struct EgressFilter {
    canaries: KnownSecrets,
    /// Known secrets, if arguments are checked for credentials.
    secrets: Option<KnownSecrets>,
}

impl EgressFilter {
    pub(crate) fn new(config: &EgressConfig) -> Self {
        Self {
            canaries: KnownSecrets::new(&config.canaries),
            secrets: config.secrets.then(|| KnownSecrets::new(&config.known)),
        }
    }

    /// Returns the filter with more secrets to block. `None` if it would block the same.
    pub(crate) fn with(&self, secrets: &[Secret]) -> Option<Self> {
        let known = self.secrets.as_ref()?.with(secrets)?;
        Some(Self { canaries: self.canaries.clone(), secrets: Some(known) })
    }

    /// Returns true if nothing is checked.
    pub(crate) fn is_off(&self) -> bool {
        self.canaries.is_empty() && self.secrets.is_none()
    }

    /// Checks all strings in the arguments.
    pub(crate) fn admit(&self, arguments: &Value) -> Result<(), EgressBlocked> {
        check_value(self, "", arguments)
    }
}

fn check_value(rules: &EgressFilter, path: &str, value: &Value) -> Result<(), EgressBlocked> {
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

fn check_text(rules: &EgressFilter, path: &str, text: &str) -> Result<(), EgressBlocked> {
    let blocked = |what| Err(EgressBlocked { path: path.to_owned(), what });
    if rules.canaries.is_in(text) {
        return blocked("a canary");
    }
    if rules.secrets.as_ref().is_some_and(|known| contains_credential(text, known)) {
        return blocked("a likely credential");
    }
    Ok(())
}

#[test]
fn blocks_canaries_and_credentials() {
    let rules = EgressConfig {
        canaries: vec![Secret::new("CNRY-7f3a9")],
        secrets: true,
        known: vec![Secret::new("hunter2-hunter2")],
    };
    let filter = EgressFilter::new(&rules);
    let message_for =
        |value: Value| filter.admit(&value).err().map(|blocked| blocked.to_string()).unwrap_or_default();
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
    // Encoded: base64, hexadecimal, percent-encoding.
    for encoded in ["Q05SWS03ZjNhOQ==", "434e52592d3766336139", "CNRY%2D7f3a9"] {
        assert_eq!(message_for(json!([encoded])), "argument `0` contains a canary, which must not be sent");
    }
    for encoded in ["aHVudGVyMi1odW50ZXIy", "68756e746572322d68756e74657232", "hunter2%2dhunter2"] {
        assert_ne!(message_for(json!([encoded])), "", "{encoded}");
    }
    for prose in [
        "a basic understanding of physics",
        "cookie: chocolate chip",
        "pwd: /some/folder",
        "password: string",
    ] {
        assert_eq!(message_for(json!([prose])), "");
    }
    assert!(EgressFilter::new(&EgressConfig::default()).is_off());
    assert!(
        filter
            .with(&[Secret::new("another-secret")])
            .is_some_and(|more| more.admit(&json!("another-secret")).is_err())
    );
    assert!(filter.with(&[Secret::new("hunter2-hunter2")]).is_none());
}
