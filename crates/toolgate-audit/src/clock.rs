//! The time: a wall clock for the stamps, a monotonic one for everything that is measured.
//!
//! Invariant: nothing else in this crate asks the system for the time. The wall clock may jump either way;
//! what it says is written down and orders nothing.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Where the log gets the time from.
pub trait Clock: Send + Sync + 'static {
    /// What the wall clock shows.
    fn now(&self) -> Timestamp;

    /// How long this clock has been running; never less than before.
    fn running(&self) -> Duration;
}

/// The clocks of the system.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock that starts to run now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take as an argument")]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn running(&self) -> Duration {
        self.0.elapsed()
    }
}
