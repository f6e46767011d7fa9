//! Rate limit: calls of one tool that a caller may start per window.
//!
//! Runs after validation, so malformed calls are free, and before the cache, so hits count: the limit is the caller's
//! allowance. [`slots`](super::slots) protects the upstream.
//! Invariant: no clock; the time is an argument. Without a cluster, no I/O and no `.await`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolgate_store::cluster::TokenLeases;
use toolgate_types::CallerId;
use toolgate_types::tool::RateLimit as Allowance;

use crate::shared_limit::SharedLimit;
use crate::window_limit::WindowLimit;

/// Callers tracked per tool. The configuration usually has fewer.
const MAX_CALLERS: usize = 10_000;

/// The caller is over its limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {} calls per {} is reached", allowance.max_calls, allowance.window)]
pub(crate) struct RateLimited {
    pub(crate) allowance: Allowance,
    pub(crate) retry_after: Duration,
}

/// Remaining allowance of every caller of one tool.
#[derive(Debug)]
pub(crate) enum RateLimit {
    Own(OwnLimit),
    /// One allowance for all replicas of a cluster.
    Shared(SharedLimit),
}

/// The allowances of a single gateway.
#[derive(Debug)]
pub(crate) struct OwnLimit(WindowLimit<CallerId>);

impl RateLimit {
    /// Creates the limit of a tool.
    pub(crate) fn new(allowance: Allowance, tool: &str, leases: Option<&Arc<dyn TokenLeases>>) -> Self {
        match leases {
            None => Self::Own(OwnLimit::new(allowance)),
            Some(leases) => {
                Self::Shared(SharedLimit::new(Arc::clone(leases), format!("tool/{tool}"), allowance))
            }
        }
    }

    /// Takes one call from the allowance at all replicas, or returns the time until the next call is allowed.
    pub(crate) async fn admit_shared(
        limit: &SharedLimit,
        caller: &CallerId,
        now: Instant,
    ) -> Result<(), RateLimited> {
        let limited = |retry_after| RateLimited { allowance: limit.limit(), retry_after };
        limit.take(caller.as_str(), now).await.map_err(limited)
    }
}

impl OwnLimit {
    fn new(allowance: Allowance) -> Self {
        Self(WindowLimit::new(allowance, MAX_CALLERS))
    }

    /// Takes one call from the allowance, or returns the time until the next call is allowed.
    pub(crate) fn admit(&self, caller: &CallerId, now: Instant) -> Result<(), RateLimited> {
        let limited = |retry_after| RateLimited { allowance: self.0.limit(), retry_after };
        self.0.take(caller.clone(), 1, now).map_err(limited)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use toolgate_types::HumanDuration;

    use super::*;

    fn limit(calls: u32, seconds: u64) -> OwnLimit {
        let max_calls = NonZeroU32::new(calls).unwrap();
        OwnLimit::new(Allowance { max_calls, window: HumanDuration::from_secs(seconds) })
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
        check(2, 60, &[0, 0, 0, 30, 60], &[0, 0, 60, 30, 0]);
    }

    #[test]
    fn callers_have_separate_allowances() {
        let (limit, now) = (limit(1, 60), Instant::now());
        assert!(limit.admit(&"ann".parse().unwrap(), now).is_ok());
        assert!(limit.admit(&"bob".parse().unwrap(), now).is_ok());
        assert!(limit.admit(&"ann".parse().unwrap(), now).is_err());
    }
}
