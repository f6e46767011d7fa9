//! Time sources: a wall clock for timestamps and a monotonic clock for all durations.
//!
//! Invariant: nothing else in this crate reads the system time. The wall clock may jump in either direction; its
//! time is recorded but never used for ordering.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The time source of the log.
pub trait Clock: Send + Sync + 'static {
    /// Returns the wall-clock time.
    fn now(&self) -> Timestamp;

    /// Returns the time since this clock was created. Never decreases.
    fn elapsed(&self) -> Duration;
}

/// The system's wall clock and monotonic clock.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
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

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
