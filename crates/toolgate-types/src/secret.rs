//! Values that must not be seen: tokens, passwords, everything that came out of a variable.
//!
//! Invariant: `Debug`, `Display` and `Serialize` never show the value. Whoever needs it says
//! [`Secret::expose`], which is easy to search for.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};

/// What is shown in the place of a secret.
pub const MASK: &str = "***";

/// A text that is wiped from memory when dropped and shown as `***`.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Wraps a text, at the moment it is read.
    pub fn new(value: impl Into<String>) -> Self {
        Self(SecretString::from(value.into()))
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// For telling whether a configuration has changed. What somebody presents as a secret is not compared so: it takes
/// longer the more of it is right.
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

/// A text of a configuration: what it means, and what may be shown of it.
///
/// The two differ where the text came out of a variable (`--token=${TOKEN}` is shown as it was
/// written) or stands where secrets stand (the value of a header is shown as `***`).
#[derive(Clone, PartialEq)]
pub struct Text {
    value: Secret,
    shown: Box<str>,
}

impl Text {
    /// A text and what may be shown of it.
    pub fn new(value: impl Into<String>, shown: impl Into<Box<str>>) -> Self {
        Self { value: Secret::new(value), shown: shown.into() }
    }

    /// A text that holds nothing to hide.
    pub fn plain(value: impl Into<String>) -> Self {
        let value = value.into();
        Self { shown: value.as_str().into(), value: Secret::new(value) }
    }

    /// A text of which nothing may be shown.
    pub fn hidden(value: impl Into<String>) -> Self {
        Self::new(value, MASK)
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.value.expose()
    }

    /// What may be shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shown, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shows_a_secret() {
        let secret = Secret::new("s3cret");
        let text = Text::new("Bearer s3cret", "Bearer ${TOKEN}");
        let shown =
            format!("{secret} {secret:?} {text} {text:?} {:?}", serde_json::to_string(&(&secret, &text)));
        assert!(!shown.contains("s3cret"), "{shown}");
        assert_eq!((secret.expose(), text.expose()), ("s3cret", "Bearer s3cret"));
    }
}
