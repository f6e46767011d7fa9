//! How many requests one address, or one caller, may make.
//!
//! Before anything is looked at, so that who is over it costs little. Invariant: bounded in memory; whoever finds no
//! room is told to wait, so nobody gets around a limit by being many.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use toolgate_types::tool::RateLimit;

/// How many are remembered.
const MOST: usize = 100_000;

/// What each has left.
pub(super) struct Allowance<K> {
    limit: RateLimit,
    /// When it is full again.
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Eq + Hash> Allowance<K> {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, full_at: Mutex::default() }
    }

    /// Spends one, or says how long to wait for the next.
    pub(super) fn spend(&self, who: K, now: Instant) -> Result<(), Duration> {
        let (most, cost) = (self.limit.max_calls.get(), self.limit.window.get() / self.limit.max_calls.get());
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= MOST && !full_at.contains_key(&who) {
            full_at.retain(|_, at| *at > now);
            if full_at.len() >= MOST {
                return Err(cost);
            }
        }
        let spent = full_at.get(&who).map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let over = (spent + cost).saturating_sub(cost * most);
        if !over.is_zero() {
            return Err(over);
        }
        full_at.insert(who, now + spent + cost);
        Ok(())
    }
}

#[test]
fn a_burst_then_a_wait() {
    let window = toolgate_types::HumanDuration::from_secs(60);
    let allowance = Allowance::new(RateLimit { max_calls: 2.try_into().unwrap(), window });
    let start = Instant::now();
    let at = |who: u8, second: u64| allowance.spend(who, start + Duration::from_secs(second));
    assert_eq!((at(1, 0), at(1, 0), at(1, 0)), (Ok(()), Ok(()), Err(Duration::from_secs(30))));
    assert_eq!((at(2, 0), at(1, 30), at(1, 31)), (Ok(()), Ok(()), Err(Duration::from_secs(29))));
}
