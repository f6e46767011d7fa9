//! Failed authentication attempts per client address.
//!
//! The sixth wrong key within a minute is answered with a wait. More than five different wrong keys count as guessing:
//! then all requests with a key must wait. A repeated wrong key is an outdated client and does not lock out others
//! behind the same address. Invariant: memory is bounded; if the table is full, failures of new addresses must wait. A
//! flood from many addresses never causes a scan of the table.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::listener::client_key;

/// Wrong keys per address and window that are answered with 401.
const MAX_FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses in the table.
const MAX_ADDRESSES: usize = 10_000;

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
    /// Fingerprints of different keys, at most one more than allowed.
    fingerprints: Vec<u64>,
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
    /// Returns the time to wait for an address that guesses keys.
    pub(super) fn lockout(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let failures = all.addresses.get(&client_key(address))?;
        (failures.fingerprints.len() > MAX_FAILURES)
            .then(|| failures.remaining(now))
            .filter(|remaining| !remaining.is_zero())
    }

    /// Records a failure. Returns the time to wait if there were too many.
    pub(super) fn record(&self, address: IpAddr, fingerprint: u64, now: Instant) -> Option<Duration> {
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
        let failures = all.addresses.entry(address).or_insert_with(|| AddressFailures {
            since: now,
            count: 0,
            fingerprints: Vec::new(),
        });
        failures.count += 1;
        if failures.fingerprints.len() <= MAX_FAILURES && !failures.fingerprints.contains(&fingerprint) {
            failures.fingerprints.push(fingerprint);
        }
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
            assert_eq!(failures.record(ann, 1, now), None);
        }
        let later = now + Duration::from_secs(20);
        assert_eq!(failures.record(ann, 1, later), Some(Duration::from_secs(40)));
        assert_eq!(failures.lockout(ann, later), None, "the same wrong key is not a guess");
        assert_eq!(failures.record(address("10.0.0.2"), 1, later), None);
        assert_eq!(failures.record(ann, 1, now + WINDOW), None, "a new minute");
    }

    #[test]
    fn different_wrong_keys_lock_the_network_out() {
        let (failures, now) = (KeyFailures::default(), Instant::now());
        let eve = address("2001:db8::1");
        for fingerprint in 0..6 {
            assert_eq!(failures.lockout(eve, now), None);
            failures.record(eve, fingerprint, now);
        }
        assert_eq!(failures.lockout(address("2001:db8::2"), now), Some(WINDOW), "its whole /64 prefix");
        assert_eq!(failures.lockout(eve, now + WINDOW), None);
    }

    fn numbered(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn memory_is_bounded() {
        let (failures, now) = (KeyFailures::default(), Instant::now());
        for number in 0..20_000 {
            failures.record(numbered(number), 1, now);
        }
        let count = || {
            let all = failures.0.lock();
            (all.addresses.len(), all.order.len())
        };
        assert_eq!(count(), (MAX_ADDRESSES, MAX_ADDRESSES));
        assert_eq!(failures.record(address("99.0.0.1"), 1, now), Some(WINDOW));
        assert_eq!(failures.record(address("99.0.0.1"), 1, now + WINDOW), None);
        assert_eq!(count(), (1, 1), "expired entries are removed");
    }

    #[test]
    fn a_slot_frees_when_the_oldest_window_ends() {
        let (failures, now) = (KeyFailures::default(), Instant::now());
        let full = u32::try_from(MAX_ADDRESSES).unwrap();
        for number in 0..full {
            // Records may arrive out of order.
            let at = if number == 0 { 2 } else { number / 2 };
            failures.record(numbered(number), 1, now + Duration::from_millis(at.into()));
        }
        let eve = numbered(full);
        assert_eq!(failures.record(eve, 1, now + WINDOW), Some(WINDOW));
        assert_eq!(failures.record(eve, 1, now + WINDOW + Duration::from_millis(2)), None);
        assert_eq!(
            failures.record(numbered(full - 1), 1, now + WINDOW),
            None,
            "a known address keeps its slot"
        );
    }

    /// A flood from many addresses with a full table costs constant time per request.
    #[test]
    fn a_flood_from_many_addresses_costs_constant_time() {
        let (failures, start) = (KeyFailures::default(), Instant::now());
        let mut examined = 0;
        for number in 0..200_000_u32 {
            let now = start + Duration::from_millis(number.into());
            examined += failures.0.lock().prune(now);
            failures.record(numbered(number), 1, now);
        }
        assert!(examined <= 400_000, "{examined}");
    }
}
