//! Secrets: tokens, passwords, every value read from a variable.
//!
//! Invariant: `Debug`, `Display` and `Serialize` never show the value. Code that needs it calls [`Secret::expose`],
//! which is easy to search for.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// Replacement for a secret in output.
pub const MASK: &str = "***";

/// String that is wiped from memory when dropped and displayed as `***`.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Wraps a string as soon as it is read.
    pub fn new(value: impl Into<String>) -> Self {
        Self(SecretString::from(value.into()))
    }

    /// Returns the secret, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Only for detecting changes of the configuration. Do not compare credentials this way: the time taken reveals how
/// many leading bytes are right.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// String of a configuration: its value, and a redacted form for display.
///
/// The two differ if the string contains a variable (`--token=${TOKEN}` is displayed as written) or stands at a place
/// for secrets (the value of a header is displayed as `***`).
#[derive(Clone, PartialEq)]
pub struct ConfigString {
    value: Secret,
    redacted: Box<str>,
}

impl ConfigString {
    /// Creates a string with a separate form for display.
    pub fn new(value: impl Into<String>, redacted: impl Into<Box<str>>) -> Self {
        Self { value: Secret::new(value), redacted: redacted.into() }
    }

    /// Creates a string that contains no secret.
    pub fn plain(value: impl Into<String>) -> Self {
        let value = value.into();
        Self { redacted: value.as_str().into(), value: Secret::new(value) }
    }

    /// Creates a string that is displayed as `***`.
    pub fn hidden(value: impl Into<String>) -> Self {
        Self::new(value, MASK)
    }

    /// Returns the value, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.value.expose()
    }

    /// Returns the form for display.
    pub fn redacted(&self) -> &str {
        &self.redacted
    }
}

impl fmt::Debug for ConfigString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.redacted, f)
    }
}

impl fmt::Display for ConfigString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted)
    }
}

impl Serialize for ConfigString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.redacted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_displayed() {
        let secret = Secret::new("s3cret");
        let text = ConfigString::new("Bearer s3cret", "Bearer ${TOKEN}");
        let shown =
            format!("{secret} {secret:?} {text} {text:?} {:?}", serde_json::to_string(&(&secret, &text)));
        assert!(!shown.contains("s3cret"), "{shown}");
        assert_eq!((secret.expose(), text.expose()), ("s3cret", "Bearer s3cret"));
    }
}
