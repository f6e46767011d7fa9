//! Re-polls a future that woke itself, instead of rescheduling its task.
//!
//! The parts of a connection wake each other within one task: the request body wakes its handler, the response of a
//! server wakes the waiting call. The runtime would move such a task to the end of its queue and wake another thread
//! for it, which costs more than most calls. Invariant: no wakeup is lost, and a future that keeps waking itself yields
//! its thread after a few polls.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// Polls in a row.
const MAX_POLLS: usize = 4;

/// Not being polled: a wakeup goes to the task.
const IDLE: u8 = 0;
/// Being polled.
const POLLED: u8 = 1;
/// Being polled, and woken meanwhile.
const WOKEN: u8 = 2;

/// Runs a future to completion, and re-polls it a few times when it wakes itself.
pub(super) async fn repoll<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let repoll_waker =
        Arc::new(RepollWaker { state: AtomicU8::new(IDLE), task: Mutex::new(Waker::noop().clone()) });
    let waker = Waker::from(Arc::clone(&repoll_waker));
    poll_fn(|cx| {
        repoll_waker.set_task(cx.waker());
        let mut own = Context::from_waker(&waker);
        for _ in 0..MAX_POLLS {
            repoll_waker.state.store(POLLED, Ordering::SeqCst);
            if let Poll::Ready(end) = future.as_mut().poll(&mut own) {
                return Poll::Ready(end);
            }
            if repoll_waker.state.swap(IDLE, Ordering::SeqCst) == POLLED {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Waker that records wakeups during a poll, and forwards all others to the task.
struct RepollWaker {
    state: AtomicU8,
    task: Mutex<Waker>,
}

impl RepollWaker {
    /// Sets the task to wake.
    fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.will_wake(waker) {
            task.clone_from(waker);
        }
    }
}

impl Wake for RepollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let transition = self.state.compare_exchange(POLLED, WOKEN, Ordering::SeqCst, Ordering::SeqCst);
        if transition.is_err_and(|state| state == IDLE) {
            self.task.lock().wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::mpsc;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Polls a future that wakes itself `wakes` times. Returns its completion, the polls, and the wakeups of the task.
    fn poll_once(wakes: usize) -> (bool, usize, usize) {
        let (count, turns) = (Arc::<Count>::default(), std::cell::Cell::new(0));
        let waker = Waker::from(Arc::clone(&count));
        let mut future = pin!(repoll(poll_fn(|cx| {
            turns.set(turns.get() + 1);
            if turns.get() > wakes {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        (ended, turns.get(), count.0.load(Ordering::SeqCst))
    }

    #[test]
    fn repolls_a_future_that_woke_itself_up_to_a_limit() {
        assert_eq!(poll_once(0), (true, 1, 0));
        assert_eq!(poll_once(3), (true, 4, 0));
        assert_eq!(poll_once(usize::MAX), (false, MAX_POLLS, 1));
    }

    #[test]
    fn wakes_an_idle_task() {
        let (count, kept) = (Arc::<Count>::default(), Mutex::new(None));
        let waker = Waker::from(Arc::clone(&count));
        let mut future = pin!(repoll(poll_fn(|cx| {
            *kept.lock() = Some(cx.waker().clone());
            Poll::<()>::Pending
        })));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        kept.lock().as_ref().unwrap().wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    /// Two tasks wake each other across threads; a lost wakeup would hang the test.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_is_lost() {
        let ((to, mut from_one), (back, mut from_other)) = (mpsc::channel(1), mpsc::channel(1));
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(repoll(async move {
            while let Some(number) = from_one.recv().await {
                back.send(number).await.unwrap();
            }
        }));
        tasks.spawn(repoll(async move {
            for number in 0..50_000 {
                to.send(number).await.unwrap();
                assert_eq!(from_other.recv().await, Some(number));
            }
        }));
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    }
}
