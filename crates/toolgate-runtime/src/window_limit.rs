//! Sliding window: the number of admissions per key and window of time.
//!
//! Used for requests of callers and addresses, and for calls of tools. A token bucket would admit almost twice the limit:
//! a full bucket at once, and another one while it refills. Invariants: no window of the configured length has more
//! admissions than the limit, wherever it starts; memory per key is constant; no I/O and no clock, the time is an
//! argument. When the table is full, new keys must wait, so a limit cannot be evaded with many keys.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolgate_types::tool::RateLimit;

/// Slices of a window. Admissions within one slice expire together, at most this fraction of a window late.
const SLICES: u32 = 16;
/// Minimum time between two searches for expired keys. Each visits the whole table.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// Admissions of many keys.
#[derive(Debug)]
pub struct WindowLimit<K> {
    limit: RateLimit,
    max_keys: usize,
    table: Mutex<KeyTable<K>>,
}

#[derive(Debug)]
struct KeyTable<K> {
    keys: HashMap<K, Admissions>,
    pruned_at: Option<Instant>,
}

/// Admissions of one key within the last window.
#[derive(Debug, Default)]
struct Admissions {
    /// Oldest first.
    slices: VecDeque<Slice>,
    total: u32,
}

#[derive(Debug)]
struct Slice {
    first: Instant,
    last: Instant,
    count: u32,
}

impl<K: Eq + Hash> WindowLimit<K> {
    /// Creates a limit that tracks at most `max_keys` keys.
    pub fn new(limit: RateLimit, max_keys: usize) -> Self {
        Self { limit, max_keys, table: Mutex::new(KeyTable { keys: HashMap::new(), pruned_at: None }) }
    }

    pub fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Admits `count` at once, or none.
    ///
    /// # Errors
    /// The time to wait.
    pub fn take(&self, key: K, count: u32, now: Instant) -> Result<(), Duration> {
        self.take_within(key, count, self.limit.max_calls.get(), now)
    }

    /// The same with another limit for this admission.
    ///
    /// # Errors
    /// The time to wait.
    pub fn take_within(&self, key: K, count: u32, most: u32, now: Instant) -> Result<(), Duration> {
        let window = self.limit.window.get();
        let mut table = self.table.lock();
        if table.keys.len() >= self.max_keys && !table.keys.contains_key(&key) {
            table.prune(window, now);
            if table.keys.len() >= self.max_keys {
                return Err(window / most.max(1));
            }
        }
        table.keys.entry(key).or_default().take(count, most, window, now)
    }
}

impl<K: Eq + Hash> KeyTable<K> {
    fn prune(&mut self, window: Duration, now: Instant) {
        if self.pruned_at.is_some_and(|at| now.saturating_duration_since(at) < PRUNE_INTERVAL) {
            return;
        }
        self.pruned_at = Some(now);
        self.keys
            .retain(|_, admissions| admissions.slices.back().is_some_and(|last| last.last + window > now));
    }
}

impl Admissions {
    fn take(&mut self, count: u32, most: u32, window: Duration, now: Instant) -> Result<(), Duration> {
        // Concurrent requests may arrive out of order.
        let now = self.slices.back().map_or(now, |last| last.last.max(now));
        while let Some(oldest) = self.slices.pop_front_if(|oldest| oldest.last + window <= now) {
            self.total -= oldest.count;
        }
        let wanted = self.total.saturating_add(count);
        if wanted > most {
            // Wait until enough of the oldest have expired.
            let mut over = wanted - most;
            let expires = self.slices.iter().find_map(|slice| {
                over = over.saturating_sub(slice.count);
                (over == 0).then(|| slice.last + window - now)
            });
            return Err(expires.unwrap_or(window));
        }
        self.total = wanted;
        match self.slices.back_mut() {
            Some(slice) if now - slice.first < window / SLICES => {
                slice.last = now;
                slice.count += count;
            }
            _ => self.slices.push_back(Slice { first: now, last: now, count }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use toolgate_types::HumanDuration;

    use super::*;

    fn limit(most: u32, seconds: u64) -> WindowLimit<u32> {
        let max_calls = NonZeroU32::new(most).unwrap();
        WindowLimit::new(RateLimit { max_calls, window: HumanDuration::from_secs(seconds) }, 100)
    }

    /// The window of the report: 100 per 10 s, with a request every 10 ms. A token bucket admits 199 in the first ten
    /// seconds.
    #[test]
    fn a_hundred_per_window_are_a_hundred() {
        let (limit, start) = (limit(100, 10), Instant::now());
        let admitted = |from: u64, to: u64| {
            let take = |at: &u64| limit.take(1, 1, start + Duration::from_millis(*at)).is_ok();
            (from..to).step_by(10).filter(take).count()
        };
        assert_eq!(admitted(0, 10_000), 100);
        assert_eq!(admitted(10_000, 20_000), 100, "the next window has as many");
    }

    #[test]
    fn the_wait_is_long_enough_and_no_longer() {
        let (limit, start) = (limit(3, 60), Instant::now());
        let at = |second: u64, count: u32| limit.take(1, count, start + Duration::from_secs(second));
        assert_eq!((at(0, 1), at(20, 2)), (Ok(()), Ok(())));
        assert_eq!(at(30, 1), Err(Duration::from_secs(30)));
        assert_eq!(at(30, 2), Err(Duration::from_secs(50)), "two need the second slice");
        assert_eq!(at(30, 4), Err(Duration::from_secs(60)), "more than the limit never pass");
        assert_eq!((at(59, 1).is_err(), at(60, 1), at(60, 1).is_err()), (true, Ok(()), true));
    }

    #[test]
    fn the_table_is_bounded_and_fails_closed() {
        let (limit, start) = (limit(1, 60), Instant::now());
        let take = |key: u32, second: u64| limit.take(key, 1, start + Duration::from_secs(second)).is_ok();
        assert!((0..100).all(|key| take(key, 0)));
        assert!(!take(100, 1) && !take(100, 59));
        assert!(take(100, 60), "expired keys are removed");
        assert_eq!(limit.table.lock().keys.len(), 1);
    }

    proptest! {
        /// No window has more admissions than the limit, wherever it starts; and a window that was empty admits all.
        #[test]
        fn no_window_has_more_than_the_limit(
            most in 1_u32..50,
            requests in prop::collection::vec((0_u64..2_000, 1_u32..4), 1..400),
        ) {
            let (limit, start) = (limit(most, 10), Instant::now());
            let (mut at, mut admitted) = (0, Vec::new());
            for (gap, count) in requests {
                at += gap;
                let is_idle = admitted.last().is_none_or(|(last, _)| at - last >= 10_000);
                match limit.take(1, count, start + Duration::from_millis(at)) {
                    Ok(()) => admitted.push((at, count)),
                    Err(wait) => {
                        prop_assert!(!is_idle || count > most);
                        prop_assert!(wait <= Duration::from_secs(10));
                    }
                }
            }
            for (first, (begin, _)) in admitted.iter().enumerate() {
                let within = admitted[first..].iter().take_while(|(at, _)| at - begin < 10_000);
                prop_assert!(within.map(|(_, count)| count).sum::<u32>() <= most);
            }
            let slices = limit.table.lock().keys.get(&1).map_or(0, |admissions| admissions.slices.len());
            prop_assert!(slices <= SLICES as usize + 2);
        }

        /// A request is admitted after the returned wait.
        #[test]
        fn a_request_that_waited_is_admitted(
            most in 1_u32..20,
            gaps in prop::collection::vec(0_u64..3_000, 1..200),
        ) {
            let (limit, mut now) = (limit(most, 10), Instant::now());
            for gap in gaps {
                now += Duration::from_millis(gap);
                if let Err(wait) = limit.take(1, 1, now) {
                    now += wait;
                    prop_assert_eq!(limit.take(1, 1, now), Ok(()));
                }
            }
        }
    }
}
