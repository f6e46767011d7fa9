//! Limits of all calls and of their results.

use std::num::NonZeroU32;

use serde::Serialize;

use crate::{ByteSize, HumanDuration};

/// Limits of all calls.
#[derive(Debug, Clone, Serialize)]
pub struct CallLimits {
    /// Concurrent calls over all tools.
    pub max_concurrent: NonZeroU32,
    /// Deadline of a call whose tool sets none.
    pub default_timeout: HumanDuration,
    /// Largest result of one call.
    pub max_output: ByteSize,
    /// Resolution of name collisions between tools.
    pub on_collision: OnCollision,
    /// Time that untrusted content taints a caller that has no session.
    pub taint_window: HumanDuration,
}

impl Default for CallLimits {
    /// Returns the limits of a project that configures none.
    fn default() -> Self {
        Self {
            max_concurrent: const { NonZeroU32::new(64).expect("not zero") },
            default_timeout: HumanDuration::from_secs(30),
            max_output: ByteSize::from_mib(4),
            on_collision: OnCollision::Qualify,
            taint_window: HumanDuration::from_secs(3_600),
        }
    }
}

/// Handling of results too large to be returned inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResultLimits {
    /// Largest result returned inline. Larger ones are stored.
    pub max_inline: ByteSize,
    /// Retention of stored results.
    pub keep: HumanDuration,
    /// Disk space of all stored results.
    pub max_disk: ByteSize,
}

/// Resolution of a name that two tools share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCollision {
    /// The first tool keeps the name: own tools first, then servers in the order of the configuration. Later ones are
    /// renamed to `{server}__{tool}`.
    Qualify,
    /// The last tool wins.
    LastWins,
    /// The gateway does not start.
    Error,
}
