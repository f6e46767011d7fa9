//! Request quotas per client address and per caller.
//!
//! Checked before anything else, so that rejected requests stay cheap. Invariant: memory is bounded. When the table is
//! full, new keys must wait, so a limit cannot be evaded with many addresses.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolgate_types::tool::RateLimit;

/// Entries in the table.
const MAX_ENTRIES: usize = 100_000;

/// Quota per key (generic cell rate algorithm).
pub(super) struct RequestQuota<K> {
    limit: RateLimit,
    /// Time at which the quota of a key is full again.
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Eq + Hash> RequestQuota<K> {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, full_at: Mutex::default() }
    }

    /// Takes one request from the quota. Returns the time to wait if it is used up.
    pub(super) fn take(&self, key: K, now: Instant) -> Result<(), Duration> {
        let (most, cost) = (self.limit.max_calls.get(), self.limit.window.get() / self.limit.max_calls.get());
        let mut full_at = self.full_at.lock();
        if full_at.len() >= MAX_ENTRIES && !full_at.contains_key(&key) {
            full_at.retain(|_, at| *at > now);
            if full_at.len() >= MAX_ENTRIES {
                return Err(cost);
            }
        }
        let spent = full_at.get(&key).map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let wait = (spent + cost).saturating_sub(cost * most);
        if !wait.is_zero() {
            return Err(wait);
        }
        full_at.insert(key, now + spent + cost);
        Ok(())
    }
}

#[test]
fn allows_a_burst_then_asks_to_wait() {
    let window = toolgate_types::HumanDuration::from_secs(60);
    let quota = RequestQuota::new(RateLimit { max_calls: 2.try_into().unwrap(), window });
    let start = Instant::now();
    let at = |key: u8, second: u64| quota.take(key, start + Duration::from_secs(second));
    assert_eq!((at(1, 0), at(1, 0), at(1, 0)), (Ok(()), Ok(()), Err(Duration::from_secs(30))));
    assert_eq!((at(2, 0), at(1, 30), at(1, 31)), (Ok(()), Ok(()), Err(Duration::from_secs(29))));
}
