//! Callers created at runtime, loaded from the key file.
//!
//! Invariant: changes made here count at once, changes by another process within a second. A broken file changes
//! nothing.

use std::collections::{HashMap, HashSet};
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
    /// Creators of callers that were removed while this process runs: their calls may still wait for approval.
    former: HashMap<String, Vec<String>>,
    /// Index into `all`.
    by_key: HashMap<KeyHash, usize>,
}

/// Removed callers whose creators are remembered.
const MAX_FORMER: usize = 10_000;

impl CallerTable {
    fn new(all: Vec<(ManagedCaller, Arc<Caller>)>) -> Self {
        let by_key = all.iter().enumerate().map(|(at, (stored, _))| (stored.sha256, at)).collect();
        Self { all, by_key, former: HashMap::new() }
    }

    pub(crate) fn find_by_key(&self, key: &KeyHash) -> Option<&Arc<Caller>> {
        self.by_key.get(key).map(|at| &self.all[*at].1)
    }

    pub(crate) fn find(&self, id: &str) -> Option<&(ManagedCaller, Arc<Caller>)> {
        self.all.iter().find(|(stored, _)| stored.id.as_str() == id)
    }

    /// The callers that created a caller, directly and indirectly.
    fn lineage(&self, id: &str) -> Vec<&str> {
        let former = || self.former.get(id).into_iter().flatten().map(String::as_str).collect();
        self.find(id).map_or_else(former, |(stored, _)| stored.lineage().collect())
    }

    /// Returns true if two callers count as one: they are the same, one created the other, or the same caller created
    /// both. Callers that the owner created are independent of one another.
    pub(crate) fn have_same_origin(&self, one: &CallerId, other: &CallerId) -> bool {
        let lineage =
            |id: &CallerId| self.lineage(id.as_str()).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let (of_one, of_other) = (lineage(one), lineage(other));
        let is_in = |id: &CallerId, lineage: &[String]| lineage.iter().any(|known| known == id.as_str());
        let shared = |id: &&String| id.as_str() != Caller::OWNER && of_other.contains(id);
        one == other || is_in(one, &of_other) || is_in(other, &of_one) || of_one.iter().any(|id| shared(&id))
    }

    /// The creators of all callers that this table knows and `current` does not have.
    fn former_callers(&self, current: &[(ManagedCaller, Arc<Caller>)]) -> HashMap<String, Vec<String>> {
        let current: HashSet<&str> = current.iter().map(|(stored, _)| stored.id.as_str()).collect();
        let known = self.former.iter().map(|(id, creators)| (id.clone(), creators.clone()));
        let listed = self
            .all
            .iter()
            .map(|(stored, _)| (stored.id.to_string(), stored.lineage().map(str::to_owned).collect()));
        listed.chain(known).filter(|(id, _)| !current.contains(id.as_str())).take(MAX_FORMER).collect()
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
            if table.find_by_key(key).is_none() || changes.changed().await.is_err() {
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
                let all: Vec<_> = callers.map(|stored| (stored.clone(), Arc::new(stored.caller()))).collect();
                let former = self.table.former_callers(&all);
                self.table = Arc::new(CallerTable { former, ..CallerTable::new(all) });
                self.stamp = stamp;
            }
            Err(error) => {
                tracing::warn!("stored callers stay unchanged: {}", error.with_cause());
            }
        }
    }
}
