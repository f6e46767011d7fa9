//! Wrong keys, by the address they came from.
//!
//! The sixth of a minute is answered with a wait. Whoever tried that many different ones is guessing, and
//! gets nothing but waits then; whoever repeats one is out of date, and is in nobody's way who shares its
//! address. Invariant: bounded in memory; where there is no room for a new address its failures are told to wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::accept::neighbourhood;

/// Wrong keys of one address that are answered as such, in a window.
const MOST: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const MOST_ADDRESSES: usize = 10_000;

/// What came wrong.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, Tries>>);

#[derive(Debug)]
struct Tries {
    since: Instant,
    count: usize,
    /// Those that differ, up to one more than are allowed.
    marks: Vec<u64>,
}

impl Tries {
    fn left(&self, now: Instant) -> Duration {
        WINDOW.saturating_sub(now.saturating_duration_since(self.since))
    }
}

impl Failures {
    /// How long an address must wait that is guessing.
    pub(super) fn guesses(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tries = all.get(&neighbourhood(address))?;
        (tries.marks.len() > MOST).then(|| tries.left(now)).filter(|left| !left.is_zero())
    }

    /// One more; says how long to wait where there were too many.
    pub(super) fn note(&self, address: IpAddr, mark: u64, now: Instant) -> Option<Duration> {
        let address = neighbourhood(address);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_ADDRESSES && !all.contains_key(&address) {
            all.retain(|_, tries| !tries.left(now).is_zero());
            if all.len() >= MOST_ADDRESSES {
                return Some(WINDOW);
            }
        }
        let fresh = || Tries { since: now, count: 0, marks: Vec::new() };
        let tries = all.entry(address).or_insert_with(fresh);
        if tries.left(now).is_zero() {
            *tries = fresh();
        }
        tries.count += 1;
        if tries.marks.len() <= MOST && !tries.marks.contains(&mark) {
            tries.marks.push(mark);
        }
        (tries.count > MOST).then(|| tries.left(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_sixth_of_a_minute_waits() {
        let (failures, now) = (Failures::default(), Instant::now());
        let ann = address("10.0.0.1");
        for _ in 0..5 {
            assert_eq!(failures.note(ann, 1, now), None);
        }
        let later = now + Duration::from_secs(20);
        assert_eq!(failures.note(ann, 1, later), Some(Duration::from_secs(40)));
        assert_eq!(failures.guesses(ann, later), None, "the same wrong key is no guess");
        assert_eq!(failures.note(address("10.0.0.2"), 1, later), None);
        assert_eq!(failures.note(ann, 1, now + WINDOW), None, "a new minute");
    }

    #[test]
    fn who_guesses_gets_nothing_but_waits() {
        let (failures, now) = (Failures::default(), Instant::now());
        let eve = address("2001:db8::1");
        for mark in 0..6 {
            assert_eq!(failures.guesses(eve, now), None);
            failures.note(eve, mark, now);
        }
        assert_eq!(failures.guesses(address("2001:db8::2"), now), Some(WINDOW), "its whole network");
        assert_eq!(failures.guesses(eve, now + WINDOW), None);
    }

    #[test]
    fn memory_is_bounded() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..20_000_u32 {
            failures.note(std::net::Ipv4Addr::from_bits(number).into(), 1, now);
        }
        assert_eq!(failures.0.lock().unwrap().len(), MOST_ADDRESSES);
        assert_eq!(failures.note(address("99.0.0.1"), 1, now), Some(WINDOW));
        assert_eq!(failures.note(address("99.0.0.1"), 1, now + WINDOW), None);
    }
}
