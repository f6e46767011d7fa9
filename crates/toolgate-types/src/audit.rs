//! Settings of the execution log.

use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::secret_pattern::SecretPattern;
use crate::size::SizeError;
use crate::{ByteSize, HumanDuration};

/// `audit` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditConfig {
    /// Folder of the log, relative to the project folder.
    pub folder: PathBuf,
    /// Bytes of arguments, and of output, kept per call. Longer bodies are truncated.
    pub max_body: ByteSize,
    /// Retention: a file is removed once its last record is older than this.
    pub keep: HumanDuration,
    /// Handling of idempotent calls while the disk is full.
    pub on_full: OnFull,
    /// Disk space reserved for the end records of calls that already started.
    pub reserve: DiskReserve,
    /// Additional patterns of secrets to redact, besides the built-in ones.
    pub redact: Vec<SecretPattern>,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            folder: ".toolgate/log".into(),
            max_body: ByteSize::from_mib(1),
            keep: HumanDuration::from_secs(30 * 24 * 60 * 60),
            on_full: OnFull::Deny,
            reserve: DiskReserve(Some(ByteSize::from_mib(64))),
            redact: Vec::new(),
        }
    }
}

impl AuditConfig {
    /// True if every setting has its default value.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Handling of idempotent calls while the disk is full. Other calls are always denied then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// Deny them.
    #[default]
    Deny,
    /// Execute them, and write their records once there is space again.
    Allow,
}

/// Reserved disk space. `None` reserves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct DiskReserve(pub Option<ByteSize>);

impl FromStr for DiskReserve {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if text.trim() == "none" { Ok(Self(None)) } else { text.parse().map(|size| Self(Some(size))) }
    }
}

#[test]
fn parses_size_or_none() {
    assert_eq!("none".parse(), Ok(DiskReserve(None)));
    assert_eq!("2MiB".parse(), Ok(DiskReserve(Some(ByteSize::from_mib(2)))));
    assert_eq!("0".parse::<DiskReserve>(), Err(SizeError::NotPositive));
}
