//! What goes on at the door: whether calls are let in, how many run, how many connections there are.
//!
//! Invariant: a call that was let in is waited for; what is counted is a guard, so nothing is counted for
//! longer than it lasts.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// How long connections may take to send what is left of their last answers.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Whether calls are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Not yet.
    Starting,
    /// They are.
    Open,
    /// No more.
    Draining,
    /// And connections are to end.
    Closing,
}

/// What goes on.
pub(crate) struct Running {
    phase: watch::Sender<Phase>,
    calls: Count,
    connections: Count,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Starting),
            calls: Count::default(),
            connections: Count::default(),
        }
    }
}

impl Running {
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

    /// Lets a call in, for as long as the guard lives; or says why not.
    pub(crate) fn call(&self) -> Result<Counted<'_>, Phase> {
        // Counted first: whoever drains either sees it or is seen by it.
        let counted = Counted::new(&self.calls);
        match self.phase() {
            Phase::Open => Ok(counted),
            other => Err(other),
        }
    }

    pub(crate) fn connection(&self) -> Counted<'_> {
        Counted::new(&self.connections)
    }

    /// One more that is waited for at the end, and lives on its own.
    pub(crate) fn last_words(self: &Arc<Self>) -> LastWords {
        std::mem::forget(self.connection());
        LastWords(Arc::clone(self))
    }

    /// Resolves when connections are to end.
    pub(crate) async fn closing(&self) {
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Closing).await;
    }

    pub(crate) async fn drain(&self, limit: Duration) -> bool {
        let go = |to: Phase| self.phase.send_modify(|phase| *phase = (*phase).max(to));
        go(Phase::Draining);
        let ended = timeout(limit, self.calls.none()).await.is_ok();
        go(Phase::Closing);
        let _ = timeout(LAST_WORDS, self.connections.none()).await;
        ended
    }
}

/// A call that was let in, until it is dropped.
pub(crate) struct Entered(Arc<Running>);

impl Running {
    /// Lets a call in that lives on its own. One that comes while all is starting waits.
    pub(crate) async fn enter_open(self: &Arc<Self>) -> Result<Entered, Phase> {
        if self.phase() == Phase::Starting {
            let _ = self.phase.subscribe().wait_for(|phase| *phase > Phase::Starting).await;
        }
        self.enter()
    }

    fn enter(self: &Arc<Self>) -> Result<Entered, Phase> {
        std::mem::forget(self.call()?);
        Ok(Entered(Arc::clone(self)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.calls.less();
    }
}

/// How many there are.
#[derive(Default)]
struct Count {
    number: AtomicUsize,
    /// Told each time that none is left.
    none: Notify,
}

impl Count {
    fn get(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    fn less(&self) {
        if self.number.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none.notify_waiters();
        }
    }

    async fn none(&self) {
        loop {
            let mut none = pin!(self.none.notified());
            // From here on nothing is missed, whatever the number is.
            none.as_mut().enable();
            if self.get() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// What has something to say at the end, until it is dropped.
pub(crate) struct LastWords(Arc<Running>);

impl Drop for LastWords {
    fn drop(&mut self) {
        self.0.connections.less();
    }
}

/// One more, until it is dropped.
pub(crate) struct Counted<'a>(&'a Count);

impl<'a> Counted<'a> {
    fn new(count: &'a Count) -> Self {
        count.number.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.less();
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_let_in_is_waited_for() {
    let running = Running::default();
    assert_eq!(running.call().err(), Some(Phase::Starting));
    running.open();
    let call = running.call().ok().unwrap();
    let end = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(running.call().err(), Some(Phase::Draining));
        drop(call);
    };
    let (ended, ()) = tokio::join!(running.drain(Duration::from_secs(30)), end);
    assert!(ended);
    running.open();
    assert_eq!(running.phase(), Phase::Closing, "what was closed is not opened again");
}

#[tokio::test(start_paused = true)]
async fn not_for_ever() {
    let running = Running::default();
    running.open();
    let _call = running.call();
    assert!(!running.drain(Duration::from_secs(30)).await);
}
