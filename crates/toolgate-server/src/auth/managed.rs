//! Callers created at runtime, loaded from the key file.
//!
//! Invariant: changes made here count at once, changes by another process within a second. A broken file changes
//! nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use toolgate_types::{Caller, CallerId, KeyHash};

use crate::keys::{FileStamp, KeyStore, ManagedCaller};

/// Minimum time between two checks of the file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The active callers.
#[derive(Default)]
pub(crate) struct CallerTable {
    pub(crate) all: Vec<(ManagedCaller, Arc<Caller>)>,
}

impl CallerTable {
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&KeyHash, &Arc<Caller>)> {
        self.all.iter().map(|(stored, caller)| (&stored.sha256, caller))
    }

    pub(crate) fn find(&self, id: &str) -> Option<&(ManagedCaller, Arc<Caller>)> {
        self.all.iter().find(|(stored, _)| stored.id.as_str() == id)
    }
}

/// The key file, with its cached content.
pub(crate) struct ManagedCallers {
    pub(crate) store: KeyStore,
    state: Mutex<TableState>,
    /// Notifies waiters when the table changes.
    changed: watch::Sender<()>,
}

struct TableState {
    table: Arc<CallerTable>,
    stamp: FileStamp,
    checked_at: Option<Instant>,
}

impl ManagedCallers {
    pub(crate) fn new(store: KeyStore) -> Self {
        let state = TableState { table: Arc::default(), stamp: None, checked_at: None };
        Self { store, state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    /// Returns the active callers. Configured callers take precedence: their entries in the file are ignored.
    pub(crate) fn table(
        &self,
        configured: &HashMap<CallerId, Arc<Caller>>,
        now: Instant,
    ) -> Arc<CallerTable> {
        let mut state = self.state.lock();
        if state
            .checked_at
            .is_none_or(|checked_at| now.saturating_duration_since(checked_at) >= CHECK_INTERVAL)
        {
            state.checked_at = Some(now);
            let stamp = self.store.stamp();
            if stamp != state.stamp {
                state.read(&self.store, stamp, configured);
                self.changed.send_replace(());
            }
        }
        Arc::clone(&state.table)
    }

    /// Reads the file again, regardless of the check interval.
    pub(crate) fn reload(&self, configured: &HashMap<CallerId, Arc<Caller>>) {
        let mut state = self.state.lock();
        let stamp = self.store.stamp();
        state.read(&self.store, stamp, configured);
        self.changed.send_replace(());
    }

    /// Resolves when a key is no longer active.
    pub(crate) async fn wait_for_revocation(&self, key: &KeyHash) {
        let mut changes = self.changed.subscribe();
        loop {
            let table = Arc::clone(&self.state.lock().table);
            if table.keys().all(|(known, _)| known != key) || changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl TableState {
    fn read(&mut self, store: &KeyStore, stamp: FileStamp, configured: &HashMap<CallerId, Arc<Caller>>) {
        match store.callers() {
            Ok(callers) => {
                let is_active = |stored: &ManagedCaller| {
                    let is_configured = configured.contains_key(&stored.id);
                    if is_configured {
                        tracing::warn!(id = %stored.id, "a stored caller is also defined in toolgate.yaml; its stored key is ignored");
                    }
                    !is_configured
                };
                let callers = callers.into_iter().filter(is_active);
                let all = callers.map(|stored| (stored.clone(), Arc::new(stored.caller()))).collect();
                self.table = Arc::new(CallerTable { all });
                self.stamp = stamp;
            }
            Err(error) => tracing::warn!("cannot read the key file, stored callers stay unchanged: {error}"),
        }
    }
}
