//! Values of the execution log: behaviour on a full disk.

use std::str::FromStr;

use serde::Serialize;

use crate::ByteSize;
use crate::size::SizeError;

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
