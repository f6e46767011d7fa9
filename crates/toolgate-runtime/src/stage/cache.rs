//! Cache: serves the result of an earlier call of the same caller.
//!
//! Only tools with a `cache_ttl` get here, and never mutations. The key consists of the tool, its definition, the
//! canonical arguments and the caller, so callers never share results. Concurrent identical calls are single-flight:
//! they join the flight of the first and share its result, or its failure, so that a failing upstream is not called
//! once per waiting call. If the first call is dropped, one of the others takes over. Invariants: total size is
//! bounded, only the calls that joined a flight see its failure, and time is monotonic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use toolgate_types::{CallError, CallerId};
use toolgate_upstream::{RawJson, RpcError};

use super::content::ToolReply;
use super::hints::SchemaFit;

/// Total size of all cached results and their keys.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Larger results are not cached.
const MAX_RESULT_BYTES: usize = 1 << 20;
/// Assumed size of an entry without its strings, so that many small entries are bounded, too.
const ENTRY_BYTES: usize = 256;

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

    fn bytes(&self) -> usize {
        self.tool.len() + self.definition.len() + self.arguments.len() + self.caller.as_str().len()
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

/// Failure of a call, as every call of its flight reports it.
#[derive(Debug, Clone)]
pub(crate) struct FlightFailure {
    pub(crate) error: CallError,
    /// The server's reply, if it reported the error in one.
    pub(crate) reply: Option<RawJson>,
    /// The server's JSON-RPC error, in place of a reply.
    pub(crate) rpc_error: Option<RpcError>,
    /// True if the call was sent, so that the error may contain text of the server.
    pub(crate) was_sent: bool,
}

type FlightCell = OnceCell<Result<CachedReply, FlightFailure>>;

#[derive(Debug)]
struct CacheEntry {
    cell: Arc<FlightCell>,
    /// Calls that wait for the cell.
    joined: usize,
    /// `None` until there is a result.
    expires_at: Option<Instant>,
    bytes: usize,
}

/// Cached results of all tools.
#[derive(Debug, Default)]
pub(crate) struct ResultCache {
    entries: Mutex<HashMap<CacheKey, CacheEntry>>,
}

impl ResultCache {
    /// Joins the flight of an identical call, or starts a new one. `ttl` applies to its result.
    pub(crate) fn join(&self, key: CacheKey, ttl: Duration, now: Instant) -> Flight<'_> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&key).filter(|entry| entry.expires_at.is_none_or(|at| at > now))
        {
            let waits = !entry.cell.initialized();
            entry.joined += usize::from(waits);
            return Flight { cache: self, cell: Arc::clone(&entry.cell), key, ttl, waits };
        }
        let cell = Arc::default();
        let entry = CacheEntry { cell: Arc::clone(&cell), joined: 1, expires_at: None, bytes: 0 };
        entries.insert(key.clone(), entry);
        Flight { cache: self, cell, key, ttl, waits: true }
    }

    /// Updates the entry of a flight before its calls get the result: sets its size and expiry, or removes it if the
    /// call failed or the result is too large.
    fn finish(&self, flight: &Flight<'_>, cached: Option<&CachedReply>) {
        let Flight { cell, key, ttl, .. } = flight;
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key).filter(|entry| Arc::ptr_eq(&entry.cell, cell)) else { return };
        let Some(cached) = cached.filter(|cached| cached.is_cacheable()) else {
            entries.remove(key);
            return;
        };
        entry.bytes = cached.reply.raw.bytes().len() + key.bytes() + ENTRY_BYTES;
        // The server's TTL applies if it is shorter. Its visibility is ignored: results stay private to the caller,
        // even if the server marks them as public.
        let ttl = cached.reply.ttl.map_or(*ttl, |server_ttl| server_ttl.min(*ttl));
        entry.expires_at = Some(cached.cached_at + ttl);
        let mut total: usize = entries.values().map(|entry| entry.bytes).sum();
        if total > MAX_TOTAL_BYTES {
            // Evicts the entries that expire first. This is rare, and the number of entries is bounded.
            let mut by_end: Vec<_> = entries
                .iter()
                .filter_map(|(key, entry)| Some((entry.expires_at?, entry.bytes, key.clone())))
                .collect();
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

/// A call that waits for a result together with identical calls.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    cache: &'a ResultCache,
    cell: Arc<FlightCell>,
    key: CacheKey,
    ttl: Duration,
    /// True if there was no result yet when the call joined.
    waits: bool,
}

impl Flight<'_> {
    /// Returns the result if it is cached already.
    pub(crate) fn cached(&self) -> Option<&CachedReply> {
        self.cell.get()?.as_ref().ok()
    }

    /// Waits for the outcome of the flight. One call at a time runs `invoke`: the first one, and if that is dropped,
    /// the next.
    pub(crate) async fn outcome<F, Invocation>(&self, invoke: F) -> &Result<CachedReply, FlightFailure>
    where
        F: FnOnce() -> Invocation,
        Invocation: Future<Output = Result<CachedReply, FlightFailure>>,
    {
        let fill = || async {
            let outcome = invoke().await;
            self.cache.finish(self, outcome.as_ref().ok());
            outcome
        };
        self.cell.get_or_init(fill).await
    }
}

impl Drop for Flight<'_> {
    /// Removes the entry when the last call leaves a flight without an outcome.
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        let mut entries = self.cache.entries.lock();
        let Some(entry) = entries.get_mut(&self.key).filter(|entry| Arc::ptr_eq(&entry.cell, &self.cell))
        else {
            return;
        };
        entry.joined -= 1;
        if entry.joined == 0 && !self.cell.initialized() {
            entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;
    use serde_json::json;
    use toolgate_types::{ErrorCode, Stage};

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

    fn failure(message: &str) -> FlightFailure {
        let error = CallError::new(ErrorCode::ProviderFailure, Stage::Invoke, message);
        FlightFailure { error, reply: None, rpc_error: None, was_sent: true }
    }

    #[tokio::test(start_paused = true)]
    async fn caches_per_caller_until_the_ttl() {
        let (cache, ttl) = (ResultCache::default(), Duration::from_secs(1));
        let fill = async |key: &CacheKey| {
            let flight = cache.join(key.clone(), ttl, Instant::now());
            let fresh = flight.cached().is_none();
            flight.outcome(async || Ok(cached(1))).await.as_ref().unwrap();
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
        for outcome in [Err(failure("down")), Ok(cached(MAX_RESULT_BYTES + 1))] {
            let flight = cache.join(key(json!({}), "ann"), ttl, Instant::now());
            let is_error = outcome.is_err();
            assert_eq!(flight.outcome(async || outcome).await.is_err(), is_error);
            assert!(cache.entries.lock().is_empty());
        }
    }

    /// The calls of a flight share its failure. A call that starts afterwards is a new flight.
    #[tokio::test]
    async fn waiting_calls_share_a_failure() {
        let (cache, ttl) = (ResultCache::default(), Duration::from_secs(60));
        let join = || cache.join(key(json!({}), "ann"), ttl, Instant::now());
        let flights = [join(), join(), join()];
        let invocations = AtomicUsize::new(0);
        let invoke = async || {
            let number = invocations.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Err(failure(&format!("failed {number}")))
        };
        let wait =
            async |flight: &Flight<'_>| flight.outcome(invoke).await.as_ref().unwrap_err().error.to_string();
        let (one, two, three) = tokio::join!(wait(&flights[0]), wait(&flights[1]), wait(&flights[2]));
        assert_eq!([one, two, three], ["failed 0"; 3]);
        assert_eq!(wait(&join()).await, "failed 1");
    }

    /// If the first call is dropped, a waiting one takes over; the last one leaves no entry behind.
    #[tokio::test]
    async fn dropped_call_is_replaced() {
        let (cache, ttl) = (ResultCache::default(), Duration::from_secs(60));
        let join = || cache.join(key(json!({}), "ann"), ttl, Instant::now());
        let (first, second) = (join(), join());
        let mut never = Box::pin(first.outcome(std::future::pending));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(never.as_mut().poll(&mut context).is_pending());
        let mut waiting = Box::pin(second.outcome(async || Ok(cached(1))));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(never);
        drop(first);
        assert!(waiting.await.is_ok());
        drop(second);
        assert!(join().cached().is_some());
        cache.entries.lock().clear();
        drop((join(), join()));
        assert!(cache.entries.lock().is_empty());
    }

    /// Large arguments with small results count, too.
    #[tokio::test(start_paused = true)]
    async fn size_is_bounded() {
        let (cache, ttl) = (ResultCache::default(), Duration::from_secs(60));
        for index in 0..(MAX_TOTAL_BYTES >> 20) + 5 {
            let key = key(json!({ "text": "x".repeat(1 << 20), "index": index }), "ann");
            let flight = cache.join(key, ttl, Instant::now());
            flight.outcome(async || Ok(cached(1))).await.as_ref().unwrap();
        }
        assert!(cache.entries.lock().len() < MAX_TOTAL_BYTES >> 20);
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
            let join = || cache.join(key.clone(), ttl, Instant::now());
            join().outcome(async || Ok(cached)).await.as_ref().unwrap();
            let known = || join().cached().is_some();
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
