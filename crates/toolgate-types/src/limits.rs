//! Limits over all tools.

use std::num::NonZeroU32;

use serde::Serialize;

use crate::{ByteSize, HumanDuration};

/// Limits over all tools.
#[derive(Debug, Clone, Serialize)]
pub struct Limits {
    /// Calls that may run at the same time.
    pub max_concurrent: NonZeroU32,
    /// How long a call may take where nothing else is said.
    pub default_timeout: HumanDuration,
    /// The largest result of one call.
    pub max_output: ByteSize,
    /// Who gets a name that two tools want.
    pub on_collision: OnCollision,
}

/// What happens to results that are too large to be given whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResultLimits {
    /// The largest that is given whole.
    pub max_inline: ByteSize,
    /// How long others are kept.
    pub keep: HumanDuration,
    /// What all of them may take on the disk.
    pub max_disk: ByteSize,
}

/// Who gets a name that two tools want.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCollision {
    /// Own tools, then servers in their order; later ones are qualified.
    Qualify,
    /// The last one.
    LastWins,
    /// Nobody: the start fails.
    Error,
}
