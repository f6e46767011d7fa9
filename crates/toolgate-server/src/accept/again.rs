//! What wakes itself while it is polled is polled again at once.
//!
//! A connection hands its parts to itself: the body of a request to whoever answers it, the answer of a server to
//! whoever asked. Each time the part that waits is woken by the task that is running. The runtime would put such a task
//! at the end of its queue and wake another thread to take it over, which costs more than most calls do. Invariant: no
//! wake is lost, and what never stops waking itself leaves its thread to others after a few turns.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Turns in a row.
const MOST: usize = 4;

/// Nobody polls: whoever wakes, wakes the task.
const IDLE: u8 = 0;
/// It is being polled.
const POLLED: u8 = 1;
/// It is being polled, and has to be polled again.
const WOKEN: u8 = 2;

/// Runs a future to its end, several turns at a time where it wakes itself.
pub(super) async fn again<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell { state: AtomicU8::new(IDLE), task: Mutex::new(Waker::noop().clone()) });
    let waker = Waker::from(Arc::clone(&bell));
    poll_fn(|cx| {
        bell.rings(cx.waker());
        let mut own = Context::from_waker(&waker);
        for _ in 0..MOST {
            bell.state.store(POLLED, Ordering::SeqCst);
            if let Poll::Ready(end) = future.as_mut().poll(&mut own) {
                return Poll::Ready(end);
            }
            if bell.state.swap(IDLE, Ordering::SeqCst) == POLLED {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Who is to be woken, and whether that is needed.
struct Bell {
    state: AtomicU8,
    task: Mutex<Waker>,
}

impl Bell {
    /// From now on it wakes this task.
    fn rings(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.will_wake(waker) {
            task.clone_from(waker);
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = self.state.compare_exchange(POLLED, WOKEN, Ordering::SeqCst, Ordering::SeqCst);
        if noted.is_err_and(|state| state == IDLE) {
            self.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
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

    /// Polls once something that wakes itself so often before it ends; how often it was polled, and the task woken.
    fn polled(wakes: usize) -> (bool, usize, usize) {
        let (count, turns) = (Arc::<Count>::default(), std::cell::Cell::new(0));
        let waker = Waker::from(Arc::clone(&count));
        let mut future = pin!(again(poll_fn(|cx| {
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
    fn what_wakes_itself_is_polled_again_but_not_for_ever() {
        assert_eq!(polled(0), (true, 1, 0));
        assert_eq!(polled(3), (true, 4, 0));
        assert_eq!(polled(usize::MAX), (false, MOST, 1));
    }

    #[test]
    fn what_waits_is_woken() {
        let (count, kept) = (Arc::<Count>::default(), Mutex::new(None));
        let waker = Waker::from(Arc::clone(&count));
        let mut future = pin!(again(poll_fn(|cx| {
            *kept.lock().unwrap() = Some(cx.waker().clone());
            Poll::<()>::Pending
        })));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        kept.lock().unwrap().as_ref().unwrap().wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    /// Two threads wake each other; a wake that is lost would end this for good.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_is_lost() {
        let ((to, mut from_one), (back, mut from_other)) = (mpsc::channel(1), mpsc::channel(1));
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(again(async move {
            while let Some(number) = from_one.recv().await {
                back.send(number).await.unwrap();
            }
        }));
        tasks.spawn(again(async move {
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
