//! Callers that were made while it runs, as the file of keys has them.
//!
//! Invariant: what was made or taken away here counts at once; what another process wrote, a second later at most; a
//! file that is broken at that moment changes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use toolgate_types::{Caller, CallerId, KeyHash};

use crate::keys::{KeptCaller, KeyStore, Stamp};

/// How often the file is looked at, at most.
const LOOK: Duration = Duration::from_secs(1);

/// Those that count.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) all: Vec<(KeptCaller, Arc<Caller>)>,
}

impl Table {
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&KeyHash, &Arc<Caller>)> {
        self.all.iter().map(|(kept, caller)| (&kept.sha256, caller))
    }

    pub(crate) fn find(&self, id: &str) -> Option<&(KeptCaller, Arc<Caller>)> {
        self.all.iter().find(|(kept, _)| kept.id.as_str() == id)
    }
}

/// The file, and what was read from it.
pub(crate) struct KeptCallers {
    pub(crate) store: KeyStore,
    state: Mutex<State>,
    /// Tells when others count.
    changed: watch::Sender<()>,
}

struct State {
    table: Arc<Table>,
    stamp: Stamp,
    looked: Option<Instant>,
}

impl KeptCallers {
    pub(crate) fn new(store: KeyStore) -> Self {
        let state = State { table: Arc::default(), stamp: None, looked: None };
        Self { store, state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    /// Who counts now. Whoever the configuration names is what it says there, and no key of the file is its.
    pub(crate) fn table(&self, configured: &HashMap<CallerId, Arc<Caller>>, now: Instant) -> Arc<Table> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK) {
            state.looked = Some(now);
            let stamp = self.store.stamp();
            if stamp != state.stamp {
                state.read(&self.store, stamp, configured);
                self.changed.send_replace(());
            }
        }
        Arc::clone(&state.table)
    }

    /// Looks again, whatever the time.
    pub(crate) fn renew(&self, configured: &HashMap<CallerId, Arc<Caller>>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.store.stamp();
        state.read(&self.store, stamp, configured);
        self.changed.send_replace(());
    }

    /// Resolves when a key counts no more.
    pub(crate) async fn gone(&self, key: &KeyHash) {
        let mut changes = self.changed.subscribe();
        loop {
            let table = Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner).table);
            if table.keys().all(|(known, _)| known != key) || changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl State {
    fn read(&mut self, store: &KeyStore, stamp: Stamp, configured: &HashMap<CallerId, Arc<Caller>>) {
        match store.callers() {
            Ok(callers) => {
                let counts = |kept: &KeptCaller| {
                    let named = configured.contains_key(&kept.id);
                    if named {
                        tracing::warn!(id = %kept.id, "a caller that was made is in toolgate.yaml, too: its key does not count");
                    }
                    !named
                };
                let callers = callers.into_iter().filter(counts);
                let all = callers.map(|kept| (kept.clone(), Arc::new(kept.caller()))).collect();
                self.table = Arc::new(Table { all });
                self.stamp = stamp;
            }
            Err(error) => tracing::warn!("callers that were made stay as they were: {error}"),
        }
    }
}
