//! Rate limit: calls of one tool that a caller may start per window.
//!
//! Runs after validation, so malformed calls are free, and before the cache, so hits count: the limit is the caller's
//! allowance. [`slots`](super::slots) protects the upstream.
//! Invariant: no I/O, no `.await`, no clock. The time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolgate_types::CallerId;
use toolgate_types::tool::RateLimit as Allowance;

/// Callers tracked per tool. The configuration usually has fewer.
const MAX_CALLERS: usize = 10_000;

/// The caller is over its limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {} calls per {} is reached", allowance.max_calls, allowance.window)]
pub(crate) struct RateLimited {
    pub(crate) allowance: Allowance,
    pub(crate) retry_after: Duration,
}

/// Remaining allowance of every caller of one tool, as a GCRA (leaky bucket).
#[derive(Debug)]
pub(crate) struct RateLimit {
    allowance: Allowance,
    /// Time at which the allowance is full again.
    full_at: Mutex<HashMap<CallerId, Instant>>,
}

impl RateLimit {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, full_at: Mutex::default() }
    }

    /// Takes one call from the allowance, or returns the time until the next call is allowed.
    pub(crate) fn admit(&self, caller: &CallerId, now: Instant) -> Result<(), RateLimited> {
        let Allowance { max_calls, window } = self.allowance;
        let (calls, cost) = (max_calls.get(), window.get() / max_calls.get());
        let mut full_at = self.full_at.lock();
        if full_at.len() >= MAX_CALLERS && !full_at.contains_key(caller) {
            full_at.retain(|_, at| *at > now);
        }
        let refused = |retry_after| Err(RateLimited { allowance: self.allowance, retry_after });
        if full_at.len() >= MAX_CALLERS && !full_at.contains_key(caller) {
            // Fails closed: the limit cannot be bypassed by using many caller ids.
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

    /// Calls at the given seconds, and the expected waits.
    fn check(calls: u32, seconds: u64, at: &[u64], waits: &[u64]) {
        let (limit, start, ann) = (limit(calls, seconds), Instant::now(), "ann".parse().unwrap());
        let wait = |second: &u64| match limit.admit(&ann, start + Duration::from_secs(*second)) {
            Ok(()) => 0,
            Err(RateLimited { retry_after, .. }) => retry_after.as_secs(),
        };
        assert_eq!(at.iter().map(wait).collect::<Vec<_>>(), waits);
    }

    #[test]
    fn allows_a_burst_then_delays() {
        check(2, 60, &[0, 0, 0, 30], &[0, 0, 30, 0]);
    }

    #[test]
    fn callers_have_separate_allowances() {
        let (limit, now) = (limit(1, 60), Instant::now());
        assert!(limit.admit(&"ann".parse().unwrap(), now).is_ok());
        assert!(limit.admit(&"bob".parse().unwrap(), now).is_ok());
        assert!(limit.admit(&"ann".parse().unwrap(), now).is_err());
    }

    proptest! {
        /// The number of admitted calls never exceeds one burst plus the average rate.
        #[test]
        fn never_admits_more_than_allowed(calls in 1u32..20, gaps in prop::collection::vec(0u64..5_000, 1..200)) {
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
