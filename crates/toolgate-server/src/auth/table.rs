//! All callers and keys: those of the configuration together with those of the store.
//!
//! Built anew when either changes, and replaced as a whole. Invariant: a caller of the configuration takes precedence
//! over a stored one with its id, a stored key belongs to the one that exists, and a key of the configuration
//! takes precedence over a stored one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use toolgate_store::callers::{CallerRecords, KeyRecord, StoredCaller};
use toolgate_types::{Caller, CallerId, KeyHash};

use super::AuthRules;

/// Removed callers whose creators are remembered.
const MAX_FORMER: usize = 10_000;

/// The time of the last use of a key, in seconds. Zero if it was never used.
#[derive(Debug, Default)]
pub(crate) struct KeyUse(AtomicI64);

impl KeyUse {
    fn new(last_used: Option<Timestamp>) -> Self {
        Self(AtomicI64::new(last_used.map_or(0, Timestamp::as_second)))
    }

    /// Sets the time of use. Writes only if it differs, so that threads do not contend for it.
    pub(crate) fn record(&self, now: i64) {
        if self.0.load(Ordering::Relaxed) != now {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        Some(self.0.load(Ordering::Relaxed))
            .filter(|time| *time > 0)
            .and_then(|time| Timestamp::from_second(time).ok())
    }
}

/// A key that authenticates a caller.
#[derive(Debug)]
pub(crate) struct ActiveKey {
    /// The caller, with this key as its credential.
    pub(crate) caller: Arc<Caller>,
    /// Second of its expiry.
    pub(crate) expires: Option<i64>,
    /// Time of the last use, for stored keys.
    pub(crate) usage: Option<Arc<KeyUse>>,
    /// The stored time of the last use.
    stored_use: Option<Timestamp>,
}

impl ActiveKey {
    /// Returns true for a stored key before its first use.
    pub(crate) fn is_first_use(&self) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.last_used().is_none())
    }
}

/// All callers, and all keys by their hash.
#[derive(Debug, Default)]
pub(crate) struct CallerTable {
    /// Stored callers that are in use.
    pub(crate) stored: Vec<(StoredCaller, Arc<Caller>)>,
    /// Stored keys, of all callers.
    pub(crate) stored_keys: Vec<KeyRecord>,
    keys: HashMap<KeyHash, ActiveKey>,
    /// Creators of callers that were removed while this process runs: their calls may still wait for approval.
    former: HashMap<String, Vec<String>>,
}

impl CallerTable {
    pub(super) fn new(rules: &AuthRules, records: CallerRecords, before: &Self) -> Self {
        let is_active = |stored: &StoredCaller| {
            let is_configured = rules.callers.contains_key(&stored.id);
            if is_configured {
                tracing::warn!(id = %stored.id, "a stored caller is also defined in toolgate.yaml; its entry is ignored");
            }
            !is_configured
        };
        let stored: Vec<_> = records.callers.into_iter().filter(is_active).collect();
        let stored: Vec<_> = stored
            .into_iter()
            .map(|stored| {
                let mut caller = Caller::new(stored.id.clone(), stored.permissions.clone());
                rules.add_groups(&mut caller, &stored.groups);
                (stored, Arc::new(caller))
            })
            .collect();
        let mut keys = HashMap::new();
        for key in &records.keys {
            let known = stored.iter().find(|(stored, _)| stored.id == key.caller).map(|(_, caller)| caller);
            let Some(caller) = rules.callers.get(&key.caller).or(known) else { continue };
            let credential = format!("key/{}", key.name);
            let caller = Arc::new(Caller { credential: Some(credential.into()), ..Caller::clone(caller) });
            // Uses that are not stored yet are kept.
            let usage = before.keys.get(&key.sha256).and_then(|key| key.usage.clone());
            let usage = usage.unwrap_or_else(|| Arc::new(KeyUse::new(key.last_used)));
            let expires = key.expires.map(Timestamp::as_second);
            let active = ActiveKey { caller, expires, usage: Some(usage), stored_use: key.last_used };
            keys.insert(key.sha256, active);
        }
        for (hash, caller) in &rules.keys {
            let caller = Arc::clone(caller);
            keys.insert(*hash, ActiveKey { caller, expires: None, usage: None, stored_use: None });
        }
        let former = before.former_callers(&stored);
        Self { stored, stored_keys: records.keys, keys, former }
    }

    /// Looks a key up. The table has a secret hash function and compares in constant time, so the time of a lookup does
    /// not reveal the similarity of a wrong key to a right one.
    pub(crate) fn find_by_key(&self, key: &KeyHash) -> Option<&ActiveKey> {
        self.keys.get(key)
    }

    pub(crate) fn find(&self, id: &str) -> Option<&(StoredCaller, Arc<Caller>)> {
        self.stored.iter().find(|(stored, _)| stored.id.as_str() == id)
    }

    /// Returns true if a caller has a key, stored or configured.
    pub(crate) fn has_key(&self, id: &CallerId) -> bool {
        self.keys.values().any(|key| key.caller.id == *id)
    }

    /// Time of the last use of a stored key.
    pub(crate) fn last_used(&self, key: &KeyRecord) -> Option<Timestamp> {
        let usage = self.keys.get(&key.sha256).and_then(|active| active.usage.as_ref());
        usage.and_then(|usage| usage.last_used()).or(key.last_used)
    }

    /// Uses of keys that are newer than the stored ones.
    pub(crate) fn unsaved_uses(&self) -> Vec<(KeyHash, Timestamp)> {
        let unsaved = |(hash, key): (&KeyHash, &ActiveKey)| {
            let used = key.usage.as_ref()?.last_used()?;
            key.stored_use.is_none_or(|stored| stored < used).then_some((*hash, used))
        };
        self.keys.iter().filter_map(unsaved).collect()
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
    fn former_callers(&self, current: &[(StoredCaller, Arc<Caller>)]) -> HashMap<String, Vec<String>> {
        let current: HashSet<&str> = current.iter().map(|(stored, _)| stored.id.as_str()).collect();
        let known = self.former.iter().map(|(id, creators)| (id.clone(), creators.clone()));
        let listed = self
            .stored
            .iter()
            .map(|(stored, _)| (stored.id.to_string(), stored.lineage().map(str::to_owned).collect()));
        listed.chain(known).filter(|(id, _)| !current.contains(id.as_str())).take(MAX_FORMER).collect()
    }
}
