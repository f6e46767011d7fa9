//! User-defined patterns of secrets.
//!
//! Invariant: a pattern is bounded in length and compiled size, and never matches the empty string.

use std::ops::Range;
use std::str::FromStr;

use regex::{Regex, RegexBuilder};
use serde::{Serialize, Serializer};

/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_LENGTH: usize = 1_000;
/// Maximum size of one compiled pattern, in bytes.
const MAX_COMPILED_SIZE: usize = 1 << 20;

/// Reason why a string is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretPatternError {
    #[error("a pattern has at most {MAX_PATTERN_LENGTH} bytes")]
    TooLong,
    /// Matches everywhere.
    #[error("the pattern matches the empty string; it must match at least one character")]
    Empty,
    /// Invalid regular expression, or too large when compiled.
    #[error("{0}")]
    Malformed(String),
}

/// User-defined pattern of secrets: a regular expression, matched in linear time.
#[derive(Debug, Clone)]
pub struct SecretPattern(Regex);

impl FromStr for SecretPattern {
    type Err = SecretPatternError;

    fn from_str(text: &str) -> Result<Self, SecretPatternError> {
        if text.len() > MAX_PATTERN_LENGTH {
            return Err(SecretPatternError::TooLong);
        }
        let built =
            RegexBuilder::new(text).size_limit(MAX_COMPILED_SIZE).dfa_size_limit(MAX_COMPILED_SIZE).build();
        // The last line states the problem; the ones before point at it, over several lines.
        let malformed = |error: regex::Error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            SecretPatternError::Malformed(last.strip_prefix("error: ").unwrap_or(last).to_owned())
        };
        let regex = built.map_err(malformed)?;
        if regex.is_match("") { Err(SecretPatternError::Empty) } else { Ok(Self(regex)) }
    }
}

impl SecretPattern {
    /// Returns true if the pattern matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Byte ranges of all matches.
    pub fn find_in<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        self.0.find_iter(text).map(|found| found.range())
    }
}

impl PartialEq for SecretPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for SecretPattern {}

impl Serialize for SecretPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

#[test]
fn rejects_invalid_patterns() {
    let error = |text: &str| text.parse::<SecretPattern>().unwrap_err().to_string();
    assert_eq!(error("a("), "unclosed group");
    assert_eq!(error("a*"), SecretPatternError::Empty.to_string());
    assert_eq!(error(""), SecretPatternError::Empty.to_string());
    assert_eq!(error(&"a".repeat(1_001)), SecretPatternError::TooLong.to_string());
    assert!(error(r"(\w+)\1").contains("backreferences are not supported"));
    assert!(error("a{1000}{1000}").contains("size limit"), "{}", error("a{1000}{1000}"));
}
