//! Rate limit: how many calls of one tool a caller may start per window.
//!
//! Runs after validation, so a malformed call costs nothing; before the cache, so a hit counts:
//! this is the caller's allowance. Protecting the upstream is the job of [`slots`](super::slots).
//! Invariant: no I/O, no `.await`, no clock. Time comes in as an argument.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use toolgate_types::CallerId;
use toolgate_types::tool::RateLimit as Allowance;

/// Callers whose allowance is remembered. They come from the configuration, which has fewer.
const MOST_CALLERS: usize = 10_000;

/// The caller has used its allowance.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {} calls per {} is reached", allowance.max_calls, allowance.window)]
pub(crate) struct RateLimited {
    pub(crate) allowance: Allowance,
    pub(crate) retry_after: Duration,
}

/// What every caller of one tool has left.
#[derive(Debug)]
pub(crate) struct RateLimit {
    allowance: Allowance,
    /// When the allowance is full again.
    full_at: Mutex<HashMap<CallerId, Instant>>,
}

impl RateLimit {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, full_at: Mutex::default() }
    }

    /// Spends one call, or says how long to wait for the next.
    pub(crate) fn admit(&self, caller: &CallerId, now: Instant) -> Result<(), RateLimited> {
        let Allowance { max_calls, window } = self.allowance;
        let (calls, cost) = (max_calls.get(), window.get() / max_calls.get());
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= MOST_CALLERS && !full_at.contains_key(caller) {
            full_at.retain(|_, at| *at > now);
        }
        let refused = |retry_after| Err(RateLimited { allowance: self.allowance, retry_after });
        if full_at.len() >= MOST_CALLERS && !full_at.contains_key(caller) {
            // Nobody gets around a limit by being many.
            return refused(cost);
        }
        let spent = full_at.get(caller).map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let over = (spent + cost).saturating_sub(cost * calls);
        if !over.is_zero() {
            return refused(over);
        }
        full_at.insert(caller.clone(), now + spent + cost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use toolgate_types::HumanDuration;

    use super::*;

    fn limit(calls: u32, seconds: u64) -> RateLimit {
        let max_calls = NonZeroU32::new(calls).unwrap();
        RateLimit::new(Allowance { max_calls, window: HumanDuration::from_secs(seconds) })
    }

    /// Called at second …, told to wait ….
    fn check(calls: u32, seconds: u64, at: &[u64], waits: &[u64]) {
        let (limit, start, ann) = (limit(calls, seconds), Instant::now(), "ann".parse().unwrap());
        let wait = |second: &u64| match limit.admit(&ann, start + Duration::from_secs(*second)) {
            Ok(()) => 0,
            Err(RateLimited { retry_after, .. }) => retry_after.as_secs(),
        };
        assert_eq!(at.iter().map(wait).collect::<Vec<_>>(), waits);
    }

    #[test]
    fn a_burst_then_a_wait() {
        check(2, 60, &[0, 0, 0, 30], &[0, 0, 30, 0]);
    }

    #[test]
    fn callers_do_not_share() {
        let (limit, now) = (limit(1, 60), Instant::now());
        assert!(limit.admit(&"ann".parse().unwrap(), now).is_ok());
        assert!(limit.admit(&"bob".parse().unwrap(), now).is_ok());
        assert!(limit.admit(&"ann".parse().unwrap(), now).is_err());
    }

    proptest! {
        /// In no window do more calls start than twice the allowance, and in the long run not more
        /// than the allowance.
        #[test]
        fn never_more_than_allowed(calls in 1u32..20, gaps in prop::collection::vec(0u64..5_000, 1..200)) {
            let (limit, start, ann) = (limit(calls, 10), Instant::now(), "ann".parse().unwrap());
            let (mut at, mut admitted) = (0, Vec::new());
            for gap in gaps {
                at += gap;
                if limit.admit(&ann, start + Duration::from_millis(at)).is_ok() {
                    admitted.push(at);
                }
            }
            let total = u64::try_from(admitted.len()).unwrap();
            prop_assert!(total <= u64::from(calls) + at * u64::from(calls) / 10_000 + 1);
        }
    }
}
