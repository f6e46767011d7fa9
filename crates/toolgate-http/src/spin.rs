//! Spinning: a connection that expects its next event soon polls for it, instead of letting its thread sleep.
//!
//! Putting a thread to sleep and waking it costs more than a short wait, most of all on a virtual machine. A wait that is
//! polled must end within [`MAX_SPIN`]; where waits take longer, fewer and fewer of them are polled. Between two polls,
//! the tasks and threads that are ready run first. Invariant: one connection polls at a time, so a busy gateway hardly
//! ever does, and an idle one sleeps.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// Longest wait that is polled.
const MAX_SPIN: Duration = Duration::from_micros(100);
/// Most waits in a row that are not polled, after others took too long.
const MAX_SKIPPED: u16 = 1_023;

/// Lets one of the connections of a listener poll at a time.
#[derive(Debug, Default)]
pub struct SpinSlot {
    is_taken: AtomicBool,
}

/// The waits of one kind of a connection.
#[derive(Debug, Default)]
pub(crate) struct SpinWait {
    /// Waits that are not polled before the next one that is.
    to_skip: u16,
    /// Waits that were skipped after the last wait that took too long.
    skipped: u16,
    /// True if the wait of now is polled.
    is_polled: bool,
}

impl SpinWait {
    /// Runs a future. While it waits for a short time, it is polled again and again.
    pub(crate) async fn run<F: Future>(
        &mut self,
        slot: Option<&SpinSlot>,
        mut future: Pin<&mut F>,
    ) -> F::Output {
        let Some(slot) = slot else { return future.await };
        let mut spin: Option<ActiveSpin<'_>> = None;
        let output = poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            let spin = spin.get_or_insert_with(|| ActiveSpin::start(slot, self.begin()));
            if spin.may_continue() {
                // The task is polled again after events were fetched and other tasks ran.
                thread::yield_now();
                let _ = pin!(yield_now()).poll(cx);
            }
            Poll::Pending
        })
        .await;
        if let Some(spin) = spin {
            let took = spin.started.elapsed();
            drop(spin);
            self.end(took);
        }
        output
    }

    /// Returns true if the wait that begins is polled.
    fn begin(&mut self) -> bool {
        self.is_polled = self.to_skip == 0;
        self.to_skip = self.to_skip.saturating_sub(1);
        self.is_polled
    }

    fn end(&mut self, took: Duration) {
        if took <= MAX_SPIN {
            self.skipped /= 2;
            self.to_skip = self.to_skip.min(self.skipped);
        } else if self.is_polled {
            self.skipped = (self.skipped * 2 + 1).min(MAX_SKIPPED);
            self.to_skip = self.skipped;
        }
    }
}

/// A wait. Holds the slot while it is polled.
struct ActiveSpin<'a> {
    slot: &'a SpinSlot,
    started: Instant,
    is_polled: bool,
}

impl<'a> ActiveSpin<'a> {
    #[expect(clippy::disallowed_methods, reason = "a paused clock would never end the wait")]
    fn start(slot: &'a SpinSlot, is_polled: bool) -> Self {
        let is_polled = is_polled && !slot.is_taken.swap(true, Ordering::Relaxed);
        Self { slot, started: Instant::now(), is_polled }
    }

    fn may_continue(&mut self) -> bool {
        if self.is_polled && self.started.elapsed() >= MAX_SPIN {
            self.release();
        }
        self.is_polled
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_polled) {
            self.slot.is_taken.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for ActiveSpin<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Context;

    use super::*;

    /// Becomes ready after a number of polls, and does not wake its task.
    struct AfterPolls<'a>(&'a Cell<u32>);

    impl Future for AfterPolls<'_> {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            let left = self.0.get().saturating_sub(1);
            self.0.set(left);
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[tokio::test]
    async fn a_short_wait_is_polled() {
        let (slot, left) = (SpinSlot::default(), Cell::new(2));
        SpinWait::default().run(Some(&slot), pin!(AfterPolls(&left))).await;
        assert!(!slot.is_taken.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_long_wait_sleeps_and_releases_the_slot() {
        let (slot, left) = (SpinSlot::default(), Cell::new(u32::MAX));
        let mut wait = SpinWait::default();
        let waiting = pin!(AfterPolls(&left));
        let polled = tokio::time::timeout(MAX_SPIN * 100, wait.run(Some(&slot), waiting)).await;
        assert!(polled.is_err() && left.get() < u32::MAX - 1);
        assert!(!slot.is_taken.load(Ordering::Relaxed), "the slot is free");
    }

    #[test]
    fn waits_that_took_long_are_skipped() {
        let mut wait = SpinWait::default();
        let long = MAX_SPIN * 2;
        let mut polled = Vec::new();
        for number in 0..20 {
            if wait.begin() {
                polled.push(number);
            }
            wait.end(long);
        }
        assert_eq!(polled, [0, 2, 6, 14]);
        for _ in 0..4 {
            wait.begin();
            wait.end(Duration::ZERO);
        }
        assert!(wait.begin(), "short waits are polled again");
    }
}
