//! Follows the store of callers and keys, and stores the last uses of keys.
//!
//! Invariant: changes made by this process count at once, changes by another process within a second. A broken store
//! changes nothing. No request waits for the store, except for the first use of the owner's first key.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval};
use toolgate_types::KeyHash;

use super::Authenticator;
use crate::Gateway;

/// Interval of checks for changes by other processes.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval for storing the uses of keys.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

impl Authenticator {
    /// Reads the store again.
    pub(super) fn reload_store(&self) {
        let Some(store) = &self.store else { return };
        let mut records = self.records.lock();
        let stamp = store.stamp();
        match store.read() {
            Ok(read) => {
                *records = (stamp, read);
                self.rebuild(None, &records.1);
            }
            Err(error) => tracing::warn!("stored callers stay unchanged: {}", error.with_cause()),
        }
    }

    /// Reads the store again if another process changed it.
    fn refresh_store(&self) {
        let Some(store) = &self.store else { return };
        let (stamp, known) = (store.stamp(), self.records.lock().0.clone());
        if stamp != known {
            self.reload_store();
        }
    }

    /// Stores when keys were last used.
    pub(crate) fn save_uses(&self) {
        let Some(store) = &self.store else { return };
        let uses = self.state.load().table.unsaved_uses();
        if uses.is_empty() {
            return;
        }
        if let Err(error) = store.record_uses(&uses) {
            tracing::warn!("the times of use of keys are not stored: {}", error.with_cause());
        }
        self.reload_store();
    }

    /// Stores the first use of a key.
    pub(super) async fn save_first_use(&self, key: KeyHash, time: Timestamp) {
        let Some(store) = self.store.clone() else { return };
        let save = move || store.record_uses(&[(key, time)]);
        match tokio::task::spawn_blocking(save).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("the use of a key is not stored: {}", error.with_cause()),
            Err(error) => tracing::error!("the use of a key is not stored: {error}"),
        }
    }
}

/// Follows the store until it is dropped.
pub(crate) async fn follow_store(gateway: &Arc<Gateway>) -> Infallible {
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut saved = Instant::now();
    loop {
        ticks.tick().await;
        let is_due = saved.elapsed() >= SAVE_INTERVAL;
        if is_due {
            saved = Instant::now();
        }
        let gateway = Arc::clone(gateway);
        let follow = move || {
            gateway.authenticator.refresh_store();
            if is_due {
                gateway.authenticator.save_uses();
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(follow).await {
            tracing::error!("cannot follow the stored callers: {error}");
        }
    }
}
