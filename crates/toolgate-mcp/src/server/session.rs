//! Sessions of the revisions that have them: a signed session id, and a little state for the sessions that need it.
//!
//! The id itself holds caller, revision and capabilities, with a signature that cannot be forged. So there is no
//! session store, and an idle session costs nothing. Invariant: an id is valid only for the caller it was issued to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use super::exchange::PendingQuestions;
use super::{Subscription, hmac};
use crate::message::RequestId;
use crate::revision::Revision;

/// Longest session id; clients that declare more capabilities than fit are rejected.
const MAX_ID_BYTES: usize = 4 << 10;
/// Sessions with state.
const MAX_SESSIONS: usize = 16_384;
/// Ended sessions that are remembered.
const MAX_ENDED: usize = 65_536;
/// Subscriptions per session.
pub(super) const MAX_SUBSCRIPTIONS: usize = 1_000;
/// Notification of a client that its roots have changed.
pub(super) const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
/// Client capabilities that the gateway evaluates.
const KNOWN_CAPABILITIES: [&str; 5] = ["sampling", "elicitation", "roots", "tasks", "extensions"];

/// Returns random bytes of the operating system. The generator of aws-lc needs 40 ms for its first number, because it
/// measures the jitter of the CPU.
pub(super) fn random_bytes<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// Returns a random 128-bit id, base64url-encoded.
pub fn random_id() -> String {
    BASE64.encode(random_bytes::<16>())
}

/// Content of a session id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SessionTicket {
    /// Random id, unique per session.
    #[serde(rename = "n")]
    pub(super) id: Box<str>,
    #[serde(rename = "g")]
    caller: Box<str>,
    #[serde(rename = "r")]
    revision: Box<str>,
    #[serde(rename = "c")]
    pub(super) capabilities: Value,
}

impl SessionTicket {
    pub(super) fn new(caller: &str, revision: Revision, declared: Option<Value>) -> Self {
        let mut capabilities = serde_json::Map::new();
        if let Some(Value::Object(mut declared)) = declared {
            capabilities.extend(KNOWN_CAPABILITIES.iter().filter_map(|name| declared.remove_entry(*name)));
        }
        let revision = revision.name().into();
        Self { id: random_id().into(), caller: caller.into(), revision, capabilities: capabilities.into() }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision.parse().unwrap_or(Revision::NEWEST_WITH_HANDSHAKE)
    }

    /// Client id: requests of one session have the same one.
    pub(super) fn identity(&self) -> u64 {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(self.id.bytes()) {
            *to = from;
        }
        u64::from_le_bytes(bytes)
    }
}

/// A session id that was verified.
pub(super) struct VerifiedTicket {
    pub(super) id: Box<str>,
    caller: Box<str>,
    pub(super) revision: Revision,
    pub(super) identity: u64,
    pub(super) capabilities: Arc<Value>,
}

impl From<SessionTicket> for VerifiedTicket {
    fn from(ticket: SessionTicket) -> Self {
        let (revision, identity) = (ticket.revision(), ticket.identity());
        let SessionTicket { id, caller, capabilities, .. } = ticket;
        Self { id, caller, revision, identity, capabilities: Arc::new(capabilities) }
    }
}

/// Verified session ids that are remembered, and the longest of them: about 6 MiB at most.
const MAX_VERIFIED: usize = 4_096;
const MAX_VERIFIED_BYTES: usize = 512;

/// Signs and verifies session ids.
pub(super) struct TicketSigner {
    key: hmac::Key,
    /// Ids that were verified before. A signature is checked once, not for every request of a session.
    verified: Mutex<HashMap<Box<str>, Arc<VerifiedTicket>>>,
}

impl TicketSigner {
    /// Creates a signer with a random key: after a restart old ids are invalid and clients start a new session.
    pub(super) fn new() -> Self {
        let key = hmac::Key::new(&random_bytes::<32>());
        Self { key, verified: Mutex::default() }
    }

    /// Returns the session id; `None` if it would be too long.
    pub(super) fn sign(&self, ticket: &SessionTicket) -> Option<String> {
        let content = BASE64.encode(serde_json::to_vec(ticket).ok()?);
        let signature = BASE64.encode(hmac::sign(&self.key, content.as_bytes()));
        let id = format!("{content}.{signature}");
        (id.len() <= MAX_ID_BYTES).then_some(id)
    }

    /// Decodes a session id if it is ours and was issued to this caller.
    pub(super) fn verify(&self, id: &str, caller: &str) -> Option<Arc<VerifiedTicket>> {
        let known = self.verified.lock().get(id).cloned();
        let ticket = known.or_else(|| self.verify_signature(id))?;
        (&*ticket.caller == caller).then_some(ticket)
    }

    fn verify_signature(&self, id: &str) -> Option<Arc<VerifiedTicket>> {
        let (content, signature) = id.split_once('.').filter(|_| id.len() <= MAX_ID_BYTES)?;
        hmac::verify(&self.key, content.as_bytes(), &BASE64.decode(signature).ok()?).ok()?;
        let ticket: SessionTicket = serde_json::from_slice(&BASE64.decode(content).ok()?).ok()?;
        let ticket = Arc::new(VerifiedTicket::from(ticket));
        if id.len() <= MAX_VERIFIED_BYTES {
            let mut verified = self.verified.lock();
            // Sessions that are in use come back with their next request.
            if verified.len() >= MAX_VERIFIED {
                verified.clear();
            }
            verified.insert(id.into(), Arc::clone(&ticket));
        }
        Some(ticket)
    }
}

/// Mutable state of a session; created on first use.
#[derive(Default)]
pub(super) struct SessionData {
    pub(super) log_level: Mutex<Option<Box<str>>>,
    /// Number of times that the client reported a change of its roots.
    roots_version: AtomicU64,
    pub(super) pending: Arc<PendingQuestions>,
    pub(super) subscriptions: Mutex<HashMap<Box<str>, Subscription>>,
}

impl SessionData {
    pub(super) fn log_level(&self) -> Option<Box<str>> {
        self.log_level.lock().clone()
    }

    pub(super) fn set_log_level(&self, level: &str) {
        *self.log_level.lock() = Some(level.into());
    }

    pub(super) fn roots_version(&self) -> u64 {
        self.roots_version.load(Ordering::Relaxed)
    }

    /// Handles a notification of the client.
    pub(super) fn receive_notification(&self, method: &str) {
        if method == ROOTS_CHANGED {
            self.roots_version.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn subscribed_uris(&self) -> Vec<Box<str>> {
        self.subscriptions.lock().keys().cloned().collect()
    }

    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        self.subscriptions.lock().contains_key(uri)
    }
}

/// State of the sessions that have any, and the ids of ended sessions.
#[derive(Default)]
pub(super) struct SessionRegistry(Mutex<RegistryState>);

#[derive(Default)]
struct RegistryState {
    sessions: HashMap<Box<str>, Arc<SessionData>>,
    order: VecDeque<Box<str>>,
    /// Cancellation senders of running requests.
    running: HashMap<(Box<str>, RequestId), oneshot::Sender<()>>,
    ended: HashSet<Box<str>>,
    ended_order: VecDeque<Box<str>>,
}

impl SessionRegistry {
    fn lock(&self) -> parking_lot::MutexGuard<'_, RegistryState> {
        self.0.lock()
    }

    /// True if the client ended the session.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        self.lock().ended.contains(id)
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<SessionData>> {
        self.lock().sessions.get(id).cloned()
    }

    /// Returns the state of a session, creating it if needed. At the limit the oldest is evicted.
    pub(super) fn get_or_create(&self, id: &str) -> Arc<SessionData> {
        let mut state = self.lock();
        if let Some(data) = state.sessions.get(id) {
            return Arc::clone(data);
        }
        let mut evicted = None;
        if state.sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = state.order.pop_front()
        {
            evicted = state.sessions.remove(&oldest);
        }
        let data = Arc::new(SessionData::default());
        state.sessions.insert(id.into(), Arc::clone(&data));
        state.order.push_back(id.into());
        drop(state);
        drop(evicted);
        data
    }

    /// Makes a request cancellable by its client until the guard is dropped.
    pub(super) fn register_cancel(
        self: &Arc<Self>,
        session: &str,
        request: &RequestId,
    ) -> (CancelGuard, impl Future<Output = ()> + use<>) {
        let (cancel, cancelled) = oneshot::channel::<()>();
        let key = (Box::<str>::from(session), request.clone());
        self.lock().running.insert(key.clone(), cancel);
        let cancelled = async move {
            if cancelled.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        (CancelGuard { sessions: Arc::clone(self), key }, cancelled)
    }

    pub(super) fn cancel(&self, session: &str, request: &RequestId) {
        let found = self.lock().running.remove(&(session.into(), request.clone()));
        if let Some(cancel) = found {
            let _ = cancel.send(());
        }
    }

    pub(super) fn end(&self, id: &str) {
        let mut state = self.lock();
        let removed = state.sessions.remove(id);
        state.order.retain(|other| &**other != id);
        if state.ended.insert(id.into()) {
            state.ended_order.push_back(id.into());
        }
        if state.ended.len() > MAX_ENDED
            && let Some(oldest) = state.ended_order.pop_front()
        {
            state.ended.remove(&oldest);
        }
        drop(state);
        drop(removed);
    }
}

/// Unregisters a cancellable request on drop.
pub(super) struct CancelGuard {
    sessions: Arc<SessionRegistry>,
    key: (Box<str>, RequestId),
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.sessions.lock().running.remove(&self.key);
    }
}

#[test]
fn session_id_is_valid_only_for_its_caller() {
    let signer = TicketSigner::new();
    let ticket = SessionTicket::new(
        "ann",
        Revision::V2025_06_18,
        Some(serde_json::json!({ "sampling": {}, "other": 1 })),
    );
    let id = signer.sign(&ticket).unwrap();
    let ticket = signer.verify(&id, "ann").unwrap();
    assert_eq!(
        (ticket.revision, &*ticket.capabilities),
        (Revision::V2025_06_18, &serde_json::json!({ "sampling": {} }))
    );
    assert!(signer.verify(&id, "bob").is_none(), "another caller");
    assert!(TicketSigner::new().verify(&id, "ann").is_none(), "another key");
    for at in 0..id.len() {
        let mut forged = id.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert!(forged == id || signer.verify(&forged, "ann").is_none(), "{at}");
    }
    let large = SessionTicket::new(
        "ann",
        Revision::V2025_06_18,
        Some(serde_json::json!({ "sampling": "x".repeat(5_000) })),
    );
    assert!(signer.sign(&large).is_none());
    // The known ids are bounded, and a forgotten one is verified again.
    for _ in 0..MAX_VERIFIED {
        let ticket = SessionTicket::new("ann", Revision::V2025_06_18, None);
        assert!(signer.verify(&signer.sign(&ticket).unwrap(), "ann").is_some());
    }
    assert!(signer.verified.lock().len() <= MAX_VERIFIED);
    assert!(signer.verify(&id, "ann").is_some() && signer.verify(&id, "bob").is_none());
}
