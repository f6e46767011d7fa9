//! Slots: limits concurrent calls, per tool and in total.
//!
//! Calls without a free slot queue until their deadline. The queue is limited per caller, so one caller cannot starve
//! the others. Invariant: a slot is released when its permit is dropped.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use toolgate_types::CallerId;

/// Queued calls per caller and tool.
const MAX_QUEUED: usize = 64;

/// No slot is available.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSlot {
    #[error("{MAX_QUEUED} calls of this caller are already queued for the tool")]
    QueueFull,
    /// The deadline passed while queued.
    #[error("no slot became free in time")]
    TimedOut,
}

/// The slots of one tool.
#[derive(Debug)]
pub(crate) struct ToolSlots {
    own: Arc<Semaphore>,
    /// Slots shared by all tools.
    all: Arc<Semaphore>,
    queued: Mutex<HashMap<CallerId, usize>>,
}

/// A slot, released on drop.
#[derive(Debug)]
pub(crate) struct SlotPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl ToolSlots {
    pub(crate) fn new(own: NonZeroU32, all: &Arc<Semaphore>) -> Self {
        let own = usize::try_from(own.get()).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { own: Arc::new(Semaphore::new(own)), all: Arc::clone(all), queued: Mutex::default() }
    }

    /// Acquires a slot, or queues for one until the deadline.
    pub(crate) async fn acquire(&self, caller: &CallerId, deadline: Instant) -> Result<SlotPermit, NoSlot> {
        let free = |slots: &Arc<Semaphore>| Arc::clone(slots).try_acquire_owned().ok();
        if let Some(own) = free(&self.own)
            && let Some(all) = free(&self.all)
        {
            return Ok(SlotPermit { _own: own, _all: all });
        }
        let _place = self.enqueue(caller)?;
        // Both semaphores are FIFO. The tool's own comes first: waiting for it must not hold a shared slot.
        let queued_permit = async {
            let own = Arc::clone(&self.own).acquire_owned().await.expect("the slots are never closed");
            let all = Arc::clone(&self.all).acquire_owned().await.expect("the slots are never closed");
            SlotPermit { _own: own, _all: all }
        };
        timeout_at(deadline, queued_permit).await.map_err(|_| NoSlot::TimedOut)
    }

    fn enqueue(&self, caller: &CallerId) -> Result<QueueTicket<'_>, NoSlot> {
        let mut waiting = self.queued.lock();
        let own = waiting.entry(caller.clone()).or_default();
        if *own >= MAX_QUEUED {
            return Err(NoSlot::QueueFull);
        }
        *own += 1;
        Ok(QueueTicket { waiting: &self.queued, caller: caller.clone() })
    }
}

/// A place in the queue, released on drop.
struct QueueTicket<'a> {
    waiting: &'a Mutex<HashMap<CallerId, usize>>,
    caller: CallerId,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
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

    fn slots(own: u32, all: usize) -> Arc<ToolSlots> {
        Arc::new(ToolSlots::new(NonZeroU32::new(own).unwrap(), &Arc::new(Semaphore::new(all))))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn limits_concurrent_calls() {
        let slots = slots(2, 10);
        let ann = "ann".parse().unwrap();
        let first = slots.acquire(&ann, soon()).await.unwrap();
        let _second = slots.acquire(&ann, soon()).await.unwrap();
        assert_eq!(slots.acquire(&ann, soon()).await.unwrap_err(), NoSlot::TimedOut);
        drop(first);
        slots.acquire(&ann, soon()).await.unwrap();
        assert!(slots.queued.lock().is_empty(), "the queue is empty again");
    }

    #[tokio::test(start_paused = true)]
    async fn limits_the_queue_per_caller() {
        let slots = slots(1, 10);
        let (ann, bob) = ("ann".parse::<CallerId>().unwrap(), "bob".parse::<CallerId>().unwrap());
        let held = slots.acquire(&ann, soon()).await.unwrap();
        let wait = |caller: &CallerId| {
            let (slots, caller) = (Arc::clone(&slots), caller.clone());
            async move { slots.acquire(&caller, soon()).await.map(drop) }
        };
        let queue: Vec<_> = (0..MAX_QUEUED).map(|_| Box::pin(wait(&ann))).collect();
        let mut queue = futures_util::future::join_all(queue);
        assert!(futures_util::poll!(&mut queue).is_pending());
        assert_eq!(wait(&ann).await, Err(NoSlot::QueueFull));
        let mut other = Box::pin(wait(&bob));
        assert!(futures_util::poll!(&mut other).is_pending(), "another caller has a place");
        drop(held);
        assert!(queue.await.iter().all(Result::is_ok));
        assert_eq!(other.await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn tools_share_the_global_slots() {
        let all = Arc::new(Semaphore::new(1));
        let (one, two) = (ToolSlots::new(NonZeroU32::MIN, &all), ToolSlots::new(NonZeroU32::MIN, &all));
        let ann = "ann".parse().unwrap();
        let held = one.acquire(&ann, soon()).await.unwrap();
        assert_eq!(two.acquire(&ann, soon()).await.unwrap_err(), NoSlot::TimedOut);
        drop(held);
        two.acquire(&ann, soon()).await.unwrap();
    }
}
