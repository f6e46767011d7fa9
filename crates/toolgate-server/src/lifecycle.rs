//! Lifecycle of the gateway: its phase, and the number of active calls and connections.
//!
//! Invariant: shutdown waits for every call that was accepted. Counts are held by guards, so nothing is counted longer
//! than it lasts.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Time for connections to send the rest of their last responses at shutdown.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// Phase of the gateway. Phases only advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Calls are not accepted yet.
    Starting,
    /// Calls are accepted.
    Open,
    /// New calls are rejected; active calls finish.
    Draining,
    /// Connections are closed as well.
    Closing,
}

/// Current phase, with the counts that shutdown waits for.
pub(crate) struct Lifecycle {
    phase: watch::Sender<Phase>,
    calls: ActiveCount,
    connections: ActiveCount,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Starting),
            calls: ActiveCount::default(),
            connections: ActiveCount::default(),
        }
    }
}

impl Lifecycle {
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.get()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.get()
    }

    pub(crate) fn open(&self) {
        self.phase.send_modify(|phase| *phase = (*phase).max(Phase::Open));
    }

    /// Waits until the start is over: the gateway is open, or stops.
    pub(crate) async fn wait_until_open(&self) {
        if self.phase() == Phase::Starting {
            let _ = self.phase.subscribe().wait_for(|phase| *phase > Phase::Starting).await;
        }
    }

    /// Counts a call for as long as the guard lives. Returns the phase if calls are not accepted.
    pub(crate) fn begin_call(&self) -> Result<CountGuard<'_>, Phase> {
        // Count first, then read the phase: either `drain` sees the call, or the call sees the draining phase.
        let guard = CountGuard::new(&self.calls);
        match self.phase() {
            Phase::Open => Ok(guard),
            other => Err(other),
        }
    }

    pub(crate) fn track_connection(&self) -> CountGuard<'_> {
        CountGuard::new(&self.connections)
    }

    /// Counts as a connection at shutdown, without a borrow of the lifecycle.
    pub(crate) fn delay_shutdown(self: &Arc<Self>) -> ShutdownGuard {
        std::mem::forget(self.track_connection());
        ShutdownGuard(Arc::clone(self))
    }

    /// Resolves when connections must close.
    pub(crate) async fn closing(&self) {
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Closing).await;
    }

    pub(crate) async fn drain(&self, limit: Duration) -> bool {
        let advance = |to: Phase| self.phase.send_modify(|phase| *phase = (*phase).max(to));
        advance(Phase::Draining);
        let ended = timeout(limit, self.calls.wait_for_zero()).await.is_ok();
        advance(Phase::Closing);
        let _ = timeout(CLOSE_GRACE, self.connections.wait_for_zero()).await;
        ended
    }
}

/// An accepted call that counts until dropped.
pub struct CallPermit(Arc<Lifecycle>);

impl Lifecycle {
    /// Counts a call without a borrow of the lifecycle. During startup it waits for the gateway to open.
    pub(crate) async fn begin_call_when_open(self: &Arc<Self>) -> Result<CallPermit, Phase> {
        self.wait_until_open().await;
        self.begin_owned_call()
    }

    /// The same, or the phase if calls are not accepted now.
    pub(crate) fn begin_owned_call(self: &Arc<Self>) -> Result<CallPermit, Phase> {
        std::mem::forget(self.begin_call()?);
        Ok(CallPermit(Arc::clone(self)))
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.0.calls.decrement();
    }
}

/// A number that can be waited on to become zero.
#[derive(Default)]
struct ActiveCount {
    number: AtomicUsize,
    /// Notified each time the number reaches zero.
    zero: Notify,
}

impl ActiveCount {
    fn get(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    fn decrement(&self) {
        if self.number.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.zero.notify_waiters();
        }
    }

    async fn wait_for_zero(&self) {
        loop {
            let mut zero = pin!(self.zero.notified());
            // Registers before the number is read, so a notification in between is not lost.
            zero.as_mut().enable();
            if self.get() == 0 {
                return;
            }
            zero.await;
        }
    }
}

/// Delays the end of the shutdown until dropped.
pub(crate) struct ShutdownGuard(Arc<Lifecycle>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        self.0.connections.decrement();
    }
}

/// Increments a count until dropped.
pub(crate) struct CountGuard<'a>(&'a ActiveCount);

impl<'a> CountGuard<'a> {
    fn new(count: &'a ActiveCount) -> Self {
        count.number.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.decrement();
    }
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_running_calls() {
    let lifecycle = Lifecycle::default();
    assert_eq!(lifecycle.begin_call().err(), Some(Phase::Starting));
    lifecycle.open();
    let call = lifecycle.begin_call().ok().unwrap();
    let end = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(lifecycle.begin_call().err(), Some(Phase::Draining));
        drop(call);
    };
    let (ended, ()) = tokio::join!(lifecycle.drain(Duration::from_secs(30)), end);
    assert!(ended);
    lifecycle.open();
    assert_eq!(lifecycle.phase(), Phase::Closing, "a closing gateway does not open again");
}

#[tokio::test(start_paused = true)]
async fn drain_gives_up_after_its_limit() {
    let lifecycle = Lifecycle::default();
    lifecycle.open();
    let _call = lifecycle.begin_call();
    assert!(!lifecycle.drain(Duration::from_secs(30)).await);
}
