//! Keeps the catalog true while it is used: servers tell of changes, come back, or are approved.
//!
//! A server that tells of changes without end is asked at most once a second, and less and less
//! often where nothing has changed. Invariant: the last change is never lost, and one server's
//! storm is no other's.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use toolgate_upstream::{State, spread};

use super::{Live, Runtime};

/// The shortest time between two looks at one server, and the longest.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// How often the file with the pins is looked at, for what another process has written.
const PINS_EVERY: Duration = Duration::from_secs(1);

impl Runtime {
    /// Runs until it is dropped. Without it the catalog stays as it was discovered.
    pub async fn keep(&self) -> Infallible {
        let (never, ()) = join(self.keep_servers(), self.keep_pins()).await;
        never
    }

    /// Waits until the catalog has what servers that are there have told to have changed, for so long at most. Whoever
    /// asks once a turn is no storm, so nobody's pace is kept for it.
    pub async fn catch_up(&self, most: Duration) {
        let given = self.given.load_full();
        let one = async |live: &Arc<Live>| {
            if !matches!(live.server.state(), State::Ready(_)) {
                return;
            }
            if live.server.has_stale() {
                live.hurry.notify_one();
                live.server.is_taken().await;
            }
            // Who looks at it holds this.
            drop(live.looking.lock().await);
        };
        let _ = timeout(most, join_all(given.servers.iter().map(one))).await;
    }

    /// Every server as long as it is there.
    async fn keep_servers(&self) -> Infallible {
        let mut replaced = self.replaced.subscribe();
        let (mut kept, mut tasks): (Vec<Arc<Live>>, _) = (Vec::new(), FuturesUnordered::new());
        let mut later = false;
        loop {
            let servers = self.given.load_full().servers.clone();
            let is_new = |live: &&Arc<Live>| !kept.iter().any(|known| Arc::ptr_eq(known, live));
            for live in servers.iter().filter(is_new) {
                tasks.push(self.keep_one(Arc::clone(live), later));
            }
            (kept, later) = (servers, true);
            tokio::select! {
                _ = replaced.changed() => {}
                Some(()) = tasks.next() => {}
            }
        }
    }

    async fn keep_one(&self, live: Arc<Live>, new: bool) {
        let keep = async {
            if new {
                // At the start everybody is asked; so is who comes later. What comes of it is told by its state.
                let _ = live.server.connection().await;
            }
            self.keep_server(&live, new).await
        };
        tokio::select! {
            // Until the server is stopped.
            () = self.tell_states(&live) => {}
            () = self.tell_updates(&live) => {}
            () = keep => {}
        }
    }

    /// A server that goes or comes back is a change, too.
    async fn tell_states(&self, live: &Live) {
        let mut states = live.server.states();
        while states.changed().await.is_ok() {
            self.version.send_modify(|version| *version += 1);
        }
    }

    async fn keep_server(&self, live: &Live, new: bool) {
        let mut at_once = new;
        // Of all that are kept from one moment on, each has its own time for the first look.
        let mut last = Instant::now() - SHORTEST.mul_f64(fastrand::f64());
        let mut pace = Pace::default();
        loop {
            live.server.is_stale().await;
            // One that is down is looked at when it is back, and not brought back to be looked at.
            let _ = live.server.states().wait_for(|state| matches!(state, State::Ready(_))).await;
            // Somebody waits for one that has just come.
            if !std::mem::take(&mut at_once) {
                tokio::select! {
                    () = sleep_until(last + pace.wait(last.elapsed())) => {}
                    () = live.hurry.notified() => {}
                }
            }
            let _looking = live.looking.lock().await;
            last = Instant::now();
            let told = live.server.take_stale();
            let outcome = live.refresh(told).await;
            pace.looked(outcome.as_ref().is_ok_and(|changed| !changed.is_empty()));
            match outcome {
                Ok(changed) => {
                    if changed.tools {
                        self.rebuild_now().await;
                    }
                    if changed.prompts || changed.resources {
                        self.version.send_modify(|version| *version += 1);
                    }
                    live.shown.send_replace(true);
                    let _ = self.heard.send(told);
                }
                Err(error) => tracing::warn!("what changed cannot be told: {error}"),
            }
        }
    }

    async fn keep_pins(&self) {
        let Some(lock) = &self.lock else { return };
        let mut seen = lock.stamp();
        loop {
            sleep(PINS_EVERY).await;
            let stamp = lock.stamp();
            if stamp == seen {
                continue;
            }
            seen = stamp;
            match lock.read() {
                Ok(pins) => {
                    *self.pins() = pins;
                    self.rebuild_now().await;
                }
                Err(error) => tracing::error!("the pins stay as they were: {error}"),
            }
        }
    }
}

/// How often one server is looked at.
#[derive(Default)]
struct Pace {
    /// Looks in a row that found nothing new.
    fruitless: u32,
}

impl Pace {
    /// The time from one look to the next, for this server among many: long pauses do not end together. The shortest
    /// one is nobody's to lengthen, since it is what a client waits for a change at most.
    fn wait(&mut self, since: Duration) -> Duration {
        let pause = self.pause(since);
        if pause > SHORTEST { spread(pause) } else { pause }
    }

    /// The time from one look to the next. A server that was quiet for long starts afresh.
    fn pause(&mut self, since: Duration) -> Duration {
        let pause = SHORTEST.saturating_mul(1 << self.fruitless.saturating_sub(1).min(10)).min(LONGEST);
        if since >= LONGEST.max(pause * 2) {
            self.fruitless = 0;
            return SHORTEST;
        }
        pause
    }

    fn looked(&mut self, found: bool) {
        self.fruitless = if found { 0 } else { self.fruitless + 1 };
    }
}

#[test]
fn a_storm_is_asked_less_and_less_often() {
    let mut pace = Pace::default();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        pauses.push(pace.pause(Duration::ZERO).as_secs());
        pace.looked(false);
    }
    // Two looks a second apart: a burst, and what came behind it.
    assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 32, 60, 60]);
    pace.looked(true);
    assert_eq!(pace.pause(Duration::ZERO).as_secs(), 1);
    assert_eq!(pace.wait(Duration::ZERO), SHORTEST, "what a client waits for");
    pace.fruitless = 7;
    assert!(
        (0..20).map(|_| pace.wait(Duration::ZERO)).any(|wait| wait > LONGEST),
        "and long ones are spread"
    );
    assert_eq!(pace.pause(Duration::from_secs(120)).as_secs(), 1);
}
