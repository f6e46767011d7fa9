//! Cache: serves the result of an earlier call of the same caller.
//!
//! Only tools with a `cache_ttl` get here, and never mutations. The key consists of the tool, its definition, the
//! canonical arguments and the caller, so callers never share results. Concurrent identical calls are single-flight:
//! they wait for the first. Invariants: total size is bounded, errors are not cached, and time is monotonic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use toolgate_types::CallerId;

use super::content::ToolReply;
use super::hints::SchemaFit;

/// Total size of all cached results.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Larger results are not cached.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// Identity of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    tool: Box<str>,
    definition: Box<str>,
    arguments: Box<str>,
    caller: CallerId,
}

impl CacheKey {
    pub(crate) fn new(tool: &str, definition: &str, arguments: &Value, caller: &CallerId) -> Self {
        Self {
            tool: tool.into(),
            definition: definition.into(),
            arguments: canonical(arguments).into(),
            caller: caller.clone(),
        }
    }
}

/// Serializes a value with sorted keys, so that equal values give equal strings.
pub(crate) fn canonical(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

#[derive(Debug, Clone)]
pub(crate) struct CachedReply {
    pub(crate) reply: ToolReply,
    pub(crate) schema_fit: SchemaFit,
    pub(crate) cached_at: Instant,
}

impl CachedReply {
    fn is_cacheable(&self) -> bool {
        self.reply.raw.bytes().len() <= MAX_RESULT_BYTES && self.reply.ttl != Some(Duration::ZERO)
    }
}

#[derive(Debug)]
struct CacheEntry {
    cell: Arc<OnceCell<CachedReply>>,
    expires_at: Instant,
    bytes: usize,
}

/// Cached results of all tools.
#[derive(Debug, Default)]
pub(crate) struct ResultCache {
    entries: Mutex<HashMap<CacheKey, CacheEntry>>,
}

impl ResultCache {
    /// The cell for a result: filled, being filled by another call, or empty.
    pub(crate) fn cell(&self, key: &CacheKey, ttl: Duration, now: Instant) -> Arc<OnceCell<CachedReply>> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(key).filter(|entry| entry.expires_at > now) {
            return Arc::clone(&entry.cell);
        }
        let cell = Arc::new(OnceCell::new());
        entries.insert(key.clone(), CacheEntry { cell: Arc::clone(&cell), expires_at: now + ttl, bytes: 0 });
        cell
    }

    /// Updates the entry after a call: sets its size and expiry, or removes it if the call failed or the result is too
    /// large.
    pub(crate) fn finish(&self, key: &CacheKey, cached: Option<&CachedReply>, ttl: Duration) {
        let mut entries = self.entries.lock();
        match (cached, entries.get_mut(key)) {
            (Some(cached), Some(entry)) if cached.is_cacheable() => {
                entry.bytes = cached.reply.raw.bytes().len();
                // The server's TTL applies if it is shorter. Its visibility is ignored: results stay private to the
                // caller, even if the server marks them as public.
                entry.expires_at =
                    cached.cached_at + cached.reply.ttl.map_or(ttl, |server_ttl| server_ttl.min(ttl));
            }
            (_, Some(_)) => drop(entries.remove(key)),
            (_, None) => {}
        }
        let mut total: usize = entries.values().map(|entry| entry.bytes).sum();
        if total > MAX_TOTAL_BYTES {
            // Evicts the entries that expire first. This is rare, and the number of entries is bounded.
            let mut by_end: Vec<_> =
                entries.iter().map(|(key, entry)| (entry.expires_at, entry.bytes, key.clone())).collect();
            by_end.sort_by_key(|(until, ..)| *until);
            for (_, bytes, key) in by_end {
                if total <= MAX_TOTAL_BYTES {
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
    use toolgate_upstream::RawJson;

    use super::*;

    fn key(arguments: Value, caller: &str) -> CacheKey {
        CacheKey::new("t", "h", &arguments, &caller.parse().unwrap())
    }

    fn cached(bytes: usize) -> CachedReply {
        let raw = RawJson::from_value(&json!({ "content": ["x".repeat(bytes)] }));
        CachedReply {
            reply: ToolReply::convert(raw).unwrap(),
            schema_fit: SchemaFit::NoSchema,
            cached_at: Instant::now(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn caches_per_caller_until_the_ttl() {
        let (cache, ttl) = (ResultCache::default(), Duration::from_secs(1));
        let fill = async |key: &CacheKey| {
            let cell = cache.cell(key, ttl, Instant::now());
            let fresh = !cell.initialized();
            let cached = cell.get_or_init(async || cached(1)).await;
            cache.finish(key, Some(cached), ttl);
            fresh
        };
        let (ann, bob) = (key(json!({ "a": 1, "b": 2 }), "ann"), key(json!({ "a": 1, "b": 2 }), "bob"));
        assert!(fill(&ann).await && !fill(&ann).await);
        assert!(!fill(&key(json!({ "b": 2, "a": 1 }), "ann")).await, "key order does not matter");
        assert!(fill(&bob).await, "callers do not share results");
        assert!(fill(&key(json!({ "a": 1.0, "b": 2 }), "ann")).await);
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert!(fill(&ann).await, "the entry has expired");
    }

    #[tokio::test]
    async fn does_not_cache_errors_or_large_results() {
        let (cache, ttl) = (ResultCache::default(), Duration::from_secs(60));
        let key = key(json!({}), "ann");
        cache.cell(&key, ttl, Instant::now());
        cache.finish(&key, None, ttl);
        assert!(cache.entries.lock().is_empty());
        cache.cell(&key, ttl, Instant::now());
        cache.finish(&key, Some(&cached(MAX_RESULT_BYTES + 1)), ttl);
        assert!(cache.entries.lock().is_empty());
    }

    /// A server can shorten the TTL that the operator allows, down to zero.
    #[tokio::test(start_paused = true)]
    async fn server_ttl_shortens_the_ttl() {
        let (cache, ttl, key) = (ResultCache::default(), Duration::from_secs(60), key(json!({}), "ann"));
        for (server_ttl, at_once, later) in
            [(json!(0), false, false), (json!(1_000), true, false), (json!(90_000), true, true)]
        {
            let reply =
                ToolReply::convert(RawJson::from_value(&json!({ "content": [], "ttlMs": server_ttl })))
                    .unwrap();
            let cached = CachedReply { reply, schema_fit: SchemaFit::NoSchema, cached_at: Instant::now() };
            let cell = cache.cell(&key, ttl, Instant::now());
            cache.finish(&key, Some(cell.get_or_init(async || cached).await), ttl);
            let known = || cache.cell(&key, ttl, Instant::now()).initialized();
            assert_eq!(known(), at_once, "{server_ttl}");
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(known(), later, "{server_ttl}");
            tokio::time::advance(ttl).await;
        }
    }

    proptest! {
        /// Equal values have equal strings, and different values have different strings.
        #[test]
        fn canonical_ignores_key_order(members in prop::collection::btree_map("[a-c]{1,2}", 0i64..3, 0..5)) {
            let forward: serde_json::Map<_, _> = members.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
            let backward: serde_json::Map<_, _> = members.iter().rev().map(|(k, v)| (k.clone(), json!(v))).collect();
            prop_assert_eq!(canonical(&json!(forward)), canonical(&json!(backward)));
            let mut other = forward.clone();
            other.insert("z".to_owned(), json!(1));
            prop_assert_ne!(canonical(&json!(forward)), canonical(&json!(other)));
        }
    }
}
