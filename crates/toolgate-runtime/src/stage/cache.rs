//! Cache: the result of a call that was made before, for the same caller.
//!
//! Only tools whose results may be kept get here, which a tool that changes something never is. The key is
//! the tool, its definition, the arguments in one canonical spelling, and the caller: nobody gets what
//! another was given. While a call is on its way, the same call waits for it. Invariant: what is kept is
//! bounded in bytes, errors are not kept, and time is monotonic.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use toolgate_types::CallerId;

use super::content::Reply;
use super::hints::Fit;

/// All that is kept, in bytes of results.
const MOST_BYTES: usize = 64 << 20;
/// One result that is worth keeping.
const LARGEST: usize = 1 << 20;

/// What tells one call from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    tool: Box<str>,
    definition: Box<str>,
    arguments: Box<str>,
    caller: CallerId,
}

impl Key {
    pub(crate) fn new(tool: &str, definition: &str, arguments: &Value, caller: &CallerId) -> Self {
        Self {
            tool: tool.into(),
            definition: definition.into(),
            arguments: canonical(arguments).into(),
            caller: caller.clone(),
        }
    }
}

/// A value in the one spelling that equal values share.
pub(crate) fn canonical(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

/// A result that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) reply: Reply,
    /// How it fits its schema.
    pub(crate) fit: Fit,
    pub(crate) at: Instant,
}

impl Kept {
    fn may_stay(&self) -> bool {
        self.reply.raw.bytes().len() <= LARGEST && self.reply.ttl != Some(Duration::ZERO)
    }
}

#[derive(Debug)]
struct Entry {
    cell: Arc<OnceCell<Kept>>,
    until: Instant,
    bytes: usize,
}

/// The results of all tools.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: Mutex<HashMap<Key, Entry>>,
}

impl Cache {
    /// The place for a result: filled, being filled by another call, or empty.
    pub(crate) fn cell(&self, key: &Key, ttl: Duration, now: Instant) -> Arc<OnceCell<Kept>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(key).filter(|entry| entry.until > now) {
            return Arc::clone(&entry.cell);
        }
        let cell = Arc::new(OnceCell::new());
        entries.insert(key.clone(), Entry { cell: Arc::clone(&cell), until: now + ttl, bytes: 0 });
        cell
    }

    /// Settles the books after a call: what came is counted, what failed or is too large is not kept.
    pub(crate) fn settle(&self, key: &Key, kept: Option<&Kept>, ttl: Duration) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        match (kept, entries.get_mut(key)) {
            (Some(kept), Some(entry)) if kept.may_stay() => {
                entry.bytes = kept.reply.raw.bytes().len();
                // What the server says counts where it is less; who may see it does not: a result is the
                // caller's alone, also where the server calls it public.
                entry.until = kept.at + kept.reply.ttl.map_or(ttl, |own| own.min(ttl));
            }
            (_, Some(_)) => drop(entries.remove(key)),
            (_, None) => {}
        }
        let mut total: usize = entries.values().map(|entry| entry.bytes).sum();
        if total > MOST_BYTES {
            // The ones that end first go first; it is rare, and bounded by what is kept.
            let mut by_end: Vec<_> =
                entries.iter().map(|(key, entry)| (entry.until, entry.bytes, key.clone())).collect();
            by_end.sort_by_key(|(until, ..)| *until);
            for (_, bytes, key) in by_end {
                if total <= MOST_BYTES {
                    break;
                }
                entries.remove(&key);
                total -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use toolgate_upstream::Raw;

    use super::*;

    fn key(arguments: Value, caller: &str) -> Key {
        Key::new("t", "h", &arguments, &caller.parse().unwrap())
    }

    fn kept(bytes: usize) -> Kept {
        let raw = Raw::of(&json!({ "content": ["x".repeat(bytes)] }));
        Kept { reply: Reply::convert(raw).unwrap(), fit: Fit::Unchecked, at: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn kept_for_its_time_and_its_caller() {
        let (cache, ttl) = (Cache::default(), Duration::from_secs(1));
        let fill = async |key: &Key| {
            let cell = cache.cell(key, ttl, Instant::now());
            let fresh = !cell.initialized();
            let kept = cell.get_or_init(async || kept(1)).await;
            cache.settle(key, Some(kept), ttl);
            fresh
        };
        let (ann, bob) = (key(json!({ "a": 1, "b": 2 }), "ann"), key(json!({ "a": 1, "b": 2 }), "bob"));
        assert!(fill(&ann).await && !fill(&ann).await);
        assert!(!fill(&key(json!({ "b": 2, "a": 1 }), "ann")).await, "the order of keys is no difference");
        assert!(fill(&bob).await, "nobody gets what another was given");
        assert!(fill(&key(json!({ "a": 1.0, "b": 2 }), "ann")).await);
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert!(fill(&ann).await, "its time is over");
    }

    #[tokio::test]
    async fn what_failed_or_is_too_large_is_not_kept() {
        let (cache, ttl) = (Cache::default(), Duration::from_secs(60));
        let key = key(json!({}), "ann");
        cache.cell(&key, ttl, Instant::now());
        cache.settle(&key, None, ttl);
        assert!(cache.entries.lock().unwrap().is_empty());
        cache.cell(&key, ttl, Instant::now());
        cache.settle(&key, Some(&kept(LARGEST + 1)), ttl);
        assert!(cache.entries.lock().unwrap().is_empty());
    }

    /// A server may say that a result holds for less time than the operator allows, or for none.
    #[tokio::test(start_paused = true)]
    async fn what_the_server_says_of_its_time() {
        let (cache, ttl, key) = (Cache::default(), Duration::from_secs(60), key(json!({}), "ann"));
        for (own, at_once, later) in
            [(json!(0), false, false), (json!(1_000), true, false), (json!(90_000), true, true)]
        {
            let reply = Reply::convert(Raw::of(&json!({ "content": [], "ttlMs": own }))).unwrap();
            let kept = Kept { reply, fit: Fit::Unchecked, at: Instant::now() };
            let cell = cache.cell(&key, ttl, Instant::now());
            cache.settle(&key, Some(cell.get_or_init(async || kept).await), ttl);
            let known = || cache.cell(&key, ttl, Instant::now()).initialized();
            assert_eq!(known(), at_once, "{own}");
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(known(), later, "{own}");
            tokio::time::advance(ttl).await;
        }
    }

    proptest! {
        /// Equal values have one spelling, and others have others.
        #[test]
        fn one_spelling(members in prop::collection::btree_map("[a-c]{1,2}", 0i64..3, 0..5)) {
            let forward: serde_json::Map<_, _> = members.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
            let backward: serde_json::Map<_, _> = members.iter().rev().map(|(k, v)| (k.clone(), json!(v))).collect();
            prop_assert_eq!(canonical(&json!(forward)), canonical(&json!(backward)));
            let mut other = forward.clone();
            other.insert("z".to_owned(), json!(1));
            prop_assert_ne!(canonical(&json!(forward)), canonical(&json!(other)));
        }
    }
}
