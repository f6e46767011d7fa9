//! Failed authentication attempts per client address.
//!
//! The sixth wrong key within a minute, and every further one, is answered with a wait. A right key is never counted and
//! never waits: many callers may share an address, and one of them must not lock the others out. Invariant: memory is
//! bounded; if the table is full, failures of new addresses must wait. A flood from many addresses never causes a scan
//! of the table.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolgate_types::HumanDuration;
use toolgate_types::tool::RateLimit;

use crate::listener::client_key;

/// Wrong keys per address and window that are answered with 401.
const MAX_FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses in the table.
const MAX_ADDRESSES: usize = 10_000;

/// Returns the limit of wrong keys, for all replicas of a cluster together.
pub(super) fn limit() -> RateLimit {
    let max_calls = NonZeroU32::new(u32::try_from(MAX_FAILURES).expect("small")).expect("not zero");
    RateLimit { max_calls, window: HumanDuration::from_secs(WINDOW.as_secs()) }
}

/// Table of failed attempts.
#[derive(Debug, Default)]
pub(super) struct KeyFailures(Mutex<FailureTable>);

#[derive(Debug, Default)]
struct FailureTable {
    addresses: HashMap<IpAddr, AddressFailures>,
    /// The same addresses in order of the end of their window. All windows have the same length.
    order: VecDeque<IpAddr>,
    /// Latest time seen. Concurrent requests may arrive out of order.
    now: Option<Instant>,
}

#[derive(Debug)]
struct AddressFailures {
    since: Instant,
    count: usize,
}

impl AddressFailures {
    fn remaining(&self, now: Instant) -> Duration {
        WINDOW.saturating_sub(now.saturating_duration_since(self.since))
    }
}

impl FailureTable {
    /// Removes expired entries. Returns the number of entries examined: each expired one, plus one.
    fn prune(&mut self, now: Instant) -> usize {
        let mut examined = 1;
        while let Some(oldest) = self.order.front()
            && self.addresses.get(oldest).is_none_or(|failures| failures.remaining(now).is_zero())
        {
            self.addresses.remove(oldest);
            self.order.pop_front();
            examined += 1;
        }
        examined
    }
}

impl KeyFailures {
    /// Records a failure. Returns the time to wait if there were too many.
    pub(super) fn record(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let address = client_key(address);
        let mut all = self.0.lock();
        let all = &mut *all;
        let now = *all.now.insert(all.now.map_or(now, |latest| latest.max(now)));
        all.prune(now);
        if !all.addresses.contains_key(&address) {
            if all.order.len() >= MAX_ADDRESSES {
                return Some(WINDOW);
            }
            all.order.push_back(address);
        }
        let new = || AddressFailures { since: now, count: 0 };
        let failures = all.addresses.entry(address).or_insert_with(new);
        failures.count += 1;
        (failures.count > MAX_FAILURES).then(|| failures.remaining(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn sixth_failure_within_a_minute_must_wait() {
        let (failures, now) = (KeyFailures::default(), Instant::now());
        let ann = address("10.0.0.1");
        for _ in 0..5 {
            assert_eq!(failures.record(ann, now), None);
        }
        let later = now + Duration::from_secs(20);
        assert_eq!(failures.record(ann, later), Some(Duration::from_secs(40)));
        assert_eq!(failures.record(address("10.0.0.2"), later), None);
        assert_eq!(failures.record(ann, now + WINDOW), None, "a new minute");
    }

    #[test]
    fn a_64_prefix_counts_as_one_address() {
        let (failures, now) = (KeyFailures::default(), Instant::now());
        for number in 0..5 {
            assert_eq!(failures.record(address(&format!("2001:db8::{number}")), now), None);
        }
        assert_eq!(failures.record(address("2001:db8::7"), now), Some(WINDOW));
    }

    fn numbered(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn memory_is_bounded() {
        let (failures, now) = (KeyFailures::default(), Instant::now());
        for number in 0..20_000 {
            failures.record(numbered(number), now);
        }
        let count = || {
            let all = failures.0.lock();
            (all.addresses.len(), all.order.len())
        };
        assert_eq!(count(), (MAX_ADDRESSES, MAX_ADDRESSES));
        assert_eq!(failures.record(address("99.0.0.1"), now), Some(WINDOW));
        assert_eq!(failures.record(address("99.0.0.1"), now + WINDOW), None);
        assert_eq!(count(), (1, 1), "expired entries are removed");
    }

    #[test]
    fn a_slot_frees_when_the_oldest_window_ends() {
        let (failures, now) = (KeyFailures::default(), Instant::now());
        let full = u32::try_from(MAX_ADDRESSES).unwrap();
        for number in 0..full {
            // Records may arrive out of order.
            let at = if number == 0 { 2 } else { number / 2 };
            failures.record(numbered(number), now + Duration::from_millis(at.into()));
        }
        let eve = numbered(full);
        assert_eq!(failures.record(eve, now + WINDOW), Some(WINDOW));
        assert_eq!(failures.record(eve, now + WINDOW + Duration::from_millis(2)), None);
        assert_eq!(failures.record(numbered(full - 1), now + WINDOW), None, "a known address keeps its slot");
    }

    /// A flood from many addresses with a full table costs constant time per request.
    #[test]
    fn a_flood_from_many_addresses_costs_constant_time() {
        let (failures, start) = (KeyFailures::default(), Instant::now());
        let mut examined = 0;
        for number in 0..200_000_u32 {
            let now = start + Duration::from_millis(number.into());
            examined += failures.0.lock().prune(now);
            failures.record(numbered(number), now);
        }
        assert!(examined <= 400_000, "{examined}");
    }
}
