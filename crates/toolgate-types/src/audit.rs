//! How the execution log is kept.

use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::redact::Pattern;
use crate::size::SizeError;
use crate::{ByteSize, HumanDuration};

/// `audit` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRules {
    /// Where it is, seen from the project folder.
    pub folder: PathBuf,
    /// What of arguments and of output is written down in full, each.
    pub max_body: ByteSize,
    /// How old the last record of a file gets before the file is removed.
    pub keep: HumanDuration,
    /// Whether calls that may be repeated go on when the disk is full.
    pub on_full: OnFull,
    /// Room on the disk that is kept for the ends of calls.
    pub reserve: Reserve,
    /// Shapes of secrets beside those that everybody's have.
    pub redact: Vec<Pattern>,
}

impl Default for AuditRules {
    fn default() -> Self {
        Self {
            folder: ".toolgate/log".into(),
            max_body: ByteSize::from_mib(1),
            keep: HumanDuration::from_secs(30 * 24 * 60 * 60),
            on_full: OnFull::Deny,
            reserve: Reserve(Some(ByteSize::from_mib(64))),
            redact: Vec::new(),
        }
    }
}

impl AuditRules {
    /// Whether nothing else was said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What becomes of calls that may be repeated when the disk is full. Others are refused whatever it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// They are refused.
    #[default]
    Deny,
    /// They are made, and written down when there is room again.
    Allow,
}

/// Room on the disk, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Reserve(pub Option<ByteSize>);

impl FromStr for Reserve {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if text.trim() == "none" { Ok(Self(None)) } else { text.parse().map(|size| Self(Some(size))) }
    }
}

#[test]
fn room_or_none() {
    assert_eq!("none".parse(), Ok(Reserve(None)));
    assert_eq!("2MiB".parse(), Ok(Reserve(Some(ByteSize::from_mib(2)))));
    assert_eq!("0".parse::<Reserve>(), Err(SizeError::NotPositive));
}
