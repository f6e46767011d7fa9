//! Wrong keys, by the address they came from.
//!
//! The sixth of a minute is answered with a wait. Whoever tried that many different ones is guessing, and
//! gets nothing but waits then; whoever repeats one is out of date, and is in nobody's way who shares its
//! address. Invariant: bounded in memory; where there is no room for a new address its failures are told to wait, and
//! who comes from many addresses makes nobody look through all of them.

use std::collections::{HashMap, VecDeque};
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
pub(super) struct Failures(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    tries: HashMap<IpAddr, Tries>,
    /// The same addresses, the one whose window ends first in front: all windows are equally long.
    order: VecDeque<IpAddr>,
    /// The latest time that was told. Two who come at once may be here in either order.
    now: Option<Instant>,
}

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

impl All {
    /// Forgets whose window is over. Each is looked at once, and one more for the end; says how many that were.
    fn forget(&mut self, now: Instant) -> usize {
        let mut looked = 1;
        while let Some(oldest) = self.order.front()
            && self.tries.get(oldest).is_none_or(|tries| tries.left(now).is_zero())
        {
            self.tries.remove(oldest);
            self.order.pop_front();
            looked += 1;
        }
        looked
    }
}

impl Failures {
    /// How long an address must wait that is guessing.
    pub(super) fn guesses(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tries = all.tries.get(&neighbourhood(address))?;
        (tries.marks.len() > MOST).then(|| tries.left(now)).filter(|left| !left.is_zero())
    }

    /// One more; says how long to wait where there were too many.
    pub(super) fn note(&self, address: IpAddr, mark: u64, now: Instant) -> Option<Duration> {
        let address = neighbourhood(address);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = &mut *all;
        let now = *all.now.insert(all.now.map_or(now, |latest| latest.max(now)));
        all.forget(now);
        if !all.tries.contains_key(&address) {
            if all.order.len() >= MOST_ADDRESSES {
                return Some(WINDOW);
            }
            all.order.push_back(address);
        }
        let tries =
            all.tries.entry(address).or_insert_with(|| Tries { since: now, count: 0, marks: Vec::new() });
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

    fn numbered(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn memory_is_bounded() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..20_000 {
            failures.note(numbered(number), 1, now);
        }
        let count = || {
            let all = failures.0.lock().unwrap();
            (all.tries.len(), all.order.len())
        };
        assert_eq!(count(), (MOST_ADDRESSES, MOST_ADDRESSES));
        assert_eq!(failures.note(address("99.0.0.1"), 1, now), Some(WINDOW));
        assert_eq!(failures.note(address("99.0.0.1"), 1, now + WINDOW), None);
        assert_eq!(count(), (1, 1), "the others are forgotten");
    }

    #[test]
    fn a_place_is_free_as_soon_as_the_oldest_is_over() {
        let (failures, now) = (Failures::default(), Instant::now());
        let full = u32::try_from(MOST_ADDRESSES).unwrap();
        for number in 0..full {
            // A later one may be told of first.
            let at = if number == 0 { 2 } else { number / 2 };
            failures.note(numbered(number), 1, now + Duration::from_millis(at.into()));
        }
        let eve = numbered(full);
        assert_eq!(failures.note(eve, 1, now + WINDOW), Some(WINDOW));
        assert_eq!(failures.note(eve, 1, now + WINDOW + Duration::from_millis(2)), None);
        assert_eq!(
            failures.note(numbered(full - 1), 1, now + WINDOW),
            None,
            "one that is known has its place"
        );
    }

    /// Whoever has many addresses and a full table before it costs as much as anybody.
    #[test]
    fn a_flood_from_everywhere_is_not_looked_through() {
        let (failures, start) = (Failures::default(), Instant::now());
        let mut looked = 0;
        for number in 0..200_000_u32 {
            let now = start + Duration::from_millis(number.into());
            looked += failures.0.lock().unwrap().forget(now);
            failures.note(numbered(number), 1, now);
        }
        assert!(looked <= 400_000, "{looked}");
    }
}
