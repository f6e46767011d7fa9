//! Keeps the catalog current: refreshes lists that servers report as changed, and reloads the pins.
//!
//! Change notifications are debounced per server and kind: at most one refresh per second, with exponential backoff once
//! several refreshes in a row have found nothing new. A pause of the notifications ends the backoff. Invariants: the last
//! change is never lost and is refreshed within seconds after a burst, and a flood of notifications from one server, or a
//! list that it does not answer, delays no other.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join3};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until};
use toolgate_upstream::offer::OfferKinds;
use toolgate_upstream::{ServerState, with_jitter};

use super::{ManagedServer, Runtime};
use crate::date;

/// A pause this long ends a burst of notifications.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// Bounds of the interval between two refreshes of one server.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Refreshes in a row that find nothing new before the backoff starts. A server may announce a change that is undone
/// before the refresh, several times within seconds, and clients wait for each of these notifications.
const PROMPT_REFRESHES: u32 = 8;
/// The shortest pause that ends the backoff.
const RESET_PERIOD: Duration = Duration::from_secs(10);
/// Interval between two checks of removal dates. Calls check the date themselves.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(600);

impl Runtime {
    /// Watches servers and pins until dropped. Without it, the catalog stays as it was discovered.
    pub async fn watch_servers(&self) -> Infallible {
        let pins = self.pins.watch(async || self.rebuild_while_running().await);
        let watch = async {
            let (never, (), ()) = join3(self.watch_all(), pins, self.load_late_apis()).await;
            never
        };
        tokio::select! {
            never = watch => never,
            never = self.watch_removal_dates() => never,
        }
    }

    /// Removes deprecated tools from the listings after their last day of service.
    async fn watch_removal_dates(&self) -> Infallible {
        loop {
            sleep(REMOVAL_CHECK_INTERVAL).await;
            if self.catalog().has_expired(&date::today()) {
                self.rebuild_while_running().await;
            }
        }
    }

    /// Waits, up to a timeout, until the catalog contains all changes that connected servers have reported. Skips the
    /// backoff: clients ask for this at most once per turn.
    pub async fn wait_for_refresh(&self, max_wait: Duration) {
        self.sources.wait_for_refresh(max_wait).await;
    }

    /// Watches every configured server, including those added later.
    fn watch_all(&self) -> BoxFuture<'_, Infallible> {
        Box::pin(async move {
            let mut replacements = self.sources.replacements();
            let (mut watched, mut tasks): (Vec<Arc<ManagedServer>>, _) =
                (Vec::new(), FuturesUnordered::new());
            let mut at_run_time = false;
            loop {
                let servers = self.sources.load_full().servers.clone();
                let is_new =
                    |managed: &&Arc<ManagedServer>| !watched.iter().any(|known| Arc::ptr_eq(known, managed));
                for managed in servers.iter().filter(is_new) {
                    tasks.push(self.watch_one(Arc::clone(managed), at_run_time));
                }
                (watched, at_run_time) = (servers, true);
                tokio::select! {
                    _ = replacements.changed() => {}
                    Some(()) = tasks.next() => {}
                }
            }
        })
    }

    async fn watch_one(&self, managed: Arc<ManagedServer>, added_at_run_time: bool) {
        let refresh = async {
            if added_at_run_time {
                // Connects servers that were added at run time. A failure shows in the server's state.
                let _ = managed.server.connection().await;
            }
            // Each kind on its own: a list that the server does not answer delays no other.
            tokio::join!(
                self.refresh_when_stale(&managed, OfferKinds::TOOLS, added_at_run_time),
                self.refresh_when_stale(&managed, OfferKinds::PROMPTS, added_at_run_time),
                self.refresh_when_stale(&managed, OfferKinds::RESOURCES, added_at_run_time),
            );
        };
        tokio::select! {
            // All of them end when the server is stopped.
            () = self.publish_state_changes(&managed) => {}
            () = self.sources.publish_notifications(&managed) => {}
            () = refresh => {}
        }
    }

    /// Counts every state change of a server, and of its number of connections, as a change of the runtime.
    async fn publish_state_changes(&self, managed: &ManagedServer) {
        let (mut states, mut connections) =
            (managed.server.watch_state(), managed.server.watch_connections());
        loop {
            let changed = tokio::select! {
                changed = states.changed() => changed,
                changed = connections.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            self.catalog.mark_changed();
        }
    }

    async fn refresh_when_stale(&self, managed: &ManagedServer, kinds: OfferKinds, added_at_run_time: bool) {
        let mut skip_delay = added_at_run_time;
        // A random start, so that servers watched since the same moment are not refreshed at the same moment.
        let mut last = Instant::now() - MIN_INTERVAL.mul_f64(fastrand::f64());
        let (mut backoff, mut failed) = (RefreshBackoff::default(), false);
        loop {
            managed.server.wait_stale(kinds).await;
            // A server that is down is refreshed after it reconnects; refreshing must not reconnect it.
            let _ =
                managed.server.watch_state().wait_for(|state| matches!(state, ServerState::Ready(_))).await;
            // Callers wait for the tools of a new server, so its first refresh is not delayed.
            if !std::mem::take(&mut skip_delay) {
                let latest = last + backoff.wait_with_jitter(last.elapsed());
                tokio::select! {
                    () = wait_for_quiet(managed, last + MIN_INTERVAL, latest, failed) => {}
                    () = managed.refresh_now.notified(), if kinds.tools => {}
                }
            }
            let refreshing = if kinds.tools { Some(managed.refreshing.lock().await) } else { None };
            last = Instant::now();
            let reported = managed.server.take_stale(kinds);
            let outcome = managed.refresh(reported).await;
            failed = outcome.is_err();
            backoff.record(outcome.as_ref().is_ok_and(|changed| !changed.is_empty()));
            match outcome {
                Ok(changed) => {
                    if changed.tools {
                        self.rebuild_while_running().await;
                    }
                    if changed.prompts || changed.resources {
                        self.catalog.mark_changed();
                    }
                    if kinds.tools {
                        managed.is_listed.send_replace(true);
                    }
                    let _ = self.sources.list_changes.send((None, reported));
                }
                Err(error) => tracing::warn!("a changed list could not be refreshed: {error}"),
            }
            drop(refreshing);
        }
    }
}

/// Waits until the notifications of a server pause, so that the last change of a burst is refreshed soon after it. Waits
/// at least until `earliest` and at most until `latest`. After a failed refresh only a new notification can end the
/// wait early.
async fn wait_for_quiet(managed: &ManagedServer, earliest: Instant, latest: Instant, failed: bool) {
    let mut notifications = managed.server.watch_stale();
    let mut quiet = if failed { latest } else { Instant::now() + QUIET_PERIOD };
    loop {
        tokio::select! {
            () = sleep_until(quiet.max(earliest).min(latest)) => return,
            Ok(()) = notifications.changed() => quiet = Instant::now() + QUIET_PERIOD,
        }
    }
}

/// Exponential backoff between refreshes of one server.
#[derive(Default)]
struct RefreshBackoff {
    /// Consecutive refreshes that found no change.
    unchanged: u32,
}

impl RefreshBackoff {
    /// The delay until the next refresh, with jitter. The shortest delay has no jitter: it bounds how long clients wait
    /// for a change.
    fn wait_with_jitter(&mut self, since: Duration) -> Duration {
        let delay = self.delay(since);
        if delay > MIN_INTERVAL { with_jitter(delay) } else { delay }
    }

    /// The delay until the next refresh. Resets after a time without notifications.
    fn delay(&mut self, since: Duration) -> Duration {
        let doublings = self.unchanged.saturating_sub(PROMPT_REFRESHES).min(10);
        let delay = MIN_INTERVAL.saturating_mul(1 << doublings).min(MAX_INTERVAL);
        if since >= RESET_PERIOD.max(delay * 2) {
            self.unchanged = 0;
            return MIN_INTERVAL;
        }
        delay
    }

    fn record(&mut self, changed: bool) {
        self.unchanged = if changed { 0 } else { self.unchanged + 1 };
    }
}

#[test]
fn backs_off_while_nothing_changes() {
    let mut backoff = RefreshBackoff::default();
    let mut delays = Vec::new();
    for _ in 0..16 {
        delays.push(backoff.delay(Duration::ZERO).as_secs());
        backoff.record(false);
    }
    assert_eq!(delays, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 16, 32, 60, 60]);
    backoff.record(true);
    assert_eq!(backoff.delay(Duration::ZERO).as_secs(), 1);
    assert_eq!(backoff.wait_with_jitter(Duration::ZERO), MIN_INTERVAL, "the shortest delay has no jitter");
    backoff.unchanged = 14;
    assert!(
        (0..20).map(|_| backoff.wait_with_jitter(Duration::ZERO)).any(|wait| wait > MAX_INTERVAL),
        "longer delays have jitter"
    );
    // A steady flood comes within the delay with its jitter and does not end the backoff.
    assert_eq!(backoff.delay(Duration::from_secs(90)).as_secs(), 60);
    assert_eq!(backoff.delay(Duration::from_secs(120)).as_secs(), 1);
    backoff.unchanged = PROMPT_REFRESHES + 1;
    assert_eq!(backoff.delay(Duration::from_secs(9)).as_secs(), 2);
    assert_eq!(backoff.delay(Duration::from_secs(10)).as_secs(), 1);
}
