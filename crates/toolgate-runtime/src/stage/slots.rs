//! Slots: how many calls run at once, of one tool and of all.
//!
//! Who finds no slot waits in line, up to its deadline; a line has an end, and one caller has but a part
//! of it, so that nobody is kept out by another's flood. Invariant: a slot is given back when its guard
//! is dropped, whatever happened.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use toolgate_types::CallerId;

/// Calls of one caller that wait for one tool.
const MOST_WAITING: usize = 64;

/// There is no room.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSlot {
    /// The line is full.
    #[error("{MOST_WAITING} calls of this caller wait for the tool already")]
    Full,
    /// The deadline came first.
    #[error("no slot became free in time")]
    TimedOut,
}

/// The slots of one tool.
#[derive(Debug)]
pub(crate) struct Slots {
    own: Arc<Semaphore>,
    /// Those of all tools.
    all: Arc<Semaphore>,
    waiting: Mutex<HashMap<CallerId, usize>>,
}

/// A slot, as long as it is held.
#[derive(Debug)]
pub(crate) struct Slot {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(own: NonZeroU32, all: &Arc<Semaphore>) -> Self {
        let own = usize::try_from(own.get()).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { own: Arc::new(Semaphore::new(own)), all: Arc::clone(all), waiting: Mutex::default() }
    }

    /// A slot, at once or in turn.
    pub(crate) async fn acquire(&self, caller: &CallerId, deadline: Instant) -> Result<Slot, NoSlot> {
        let free = |slots: &Arc<Semaphore>| Arc::clone(slots).try_acquire_owned().ok();
        if let Some(own) = free(&self.own)
            && let Some(all) = free(&self.all)
        {
            return Ok(Slot { _own: own, _all: all });
        }
        let _place = self.line_up(caller)?;
        // Both lines are first come, first served. Its own first: who waits for that holds up nobody else.
        let in_turn = async {
            let own = Arc::clone(&self.own).acquire_owned().await.expect("the slots are never closed");
            let all = Arc::clone(&self.all).acquire_owned().await.expect("the slots are never closed");
            Slot { _own: own, _all: all }
        };
        timeout_at(deadline, in_turn).await.map_err(|_| NoSlot::TimedOut)
    }

    fn line_up(&self, caller: &CallerId) -> Result<Place<'_>, NoSlot> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let own = waiting.entry(caller.clone()).or_default();
        if *own >= MOST_WAITING {
            return Err(NoSlot::Full);
        }
        *own += 1;
        Ok(Place { waiting: &self.waiting, caller: caller.clone() })
    }
}

/// A place in the line, given up by whoever leaves it.
struct Place<'a> {
    waiting: &'a Mutex<HashMap<CallerId, usize>>,
    caller: CallerId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.get_mut(&self.caller) {
            Some(1) | None => drop(waiting.remove(&self.caller)),
            Some(own) => *own -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn slots(own: u32, all: usize) -> Arc<Slots> {
        Arc::new(Slots::new(NonZeroU32::new(own).unwrap(), &Arc::new(Semaphore::new(all))))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_as_there_are() {
        let slots = slots(2, 10);
        let ann = "ann".parse().unwrap();
        let first = slots.acquire(&ann, soon()).await.unwrap();
        let _second = slots.acquire(&ann, soon()).await.unwrap();
        assert_eq!(slots.acquire(&ann, soon()).await.unwrap_err(), NoSlot::TimedOut);
        drop(first);
        slots.acquire(&ann, soon()).await.unwrap();
        assert!(slots.waiting.lock().unwrap().is_empty(), "who left the line is not in it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_has_an_end_for_each_caller() {
        let slots = slots(1, 10);
        let (ann, bob) = ("ann".parse::<CallerId>().unwrap(), "bob".parse::<CallerId>().unwrap());
        let held = slots.acquire(&ann, soon()).await.unwrap();
        let wait = |caller: &CallerId| {
            let (slots, caller) = (Arc::clone(&slots), caller.clone());
            async move { slots.acquire(&caller, soon()).await.map(drop) }
        };
        let line: Vec<_> = (0..MOST_WAITING).map(|_| Box::pin(wait(&ann))).collect();
        let mut line = futures_util::future::join_all(line);
        assert!(futures_util::poll!(&mut line).is_pending());
        assert_eq!(wait(&ann).await, Err(NoSlot::Full));
        let mut other = Box::pin(wait(&bob));
        assert!(futures_util::poll!(&mut other).is_pending(), "another caller has a place");
        drop(held);
        assert!(line.await.iter().all(Result::is_ok));
        assert_eq!(other.await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn tools_share_what_there_is_for_all() {
        let all = Arc::new(Semaphore::new(1));
        let (one, two) = (Slots::new(NonZeroU32::MIN, &all), Slots::new(NonZeroU32::MIN, &all));
        let ann = "ann".parse().unwrap();
        let held = one.acquire(&ann, soon()).await.unwrap();
        assert_eq!(two.acquire(&ann, soon()).await.unwrap_err(), NoSlot::TimedOut);
        drop(held);
        two.acquire(&ann, soon()).await.unwrap();
    }
}
