//! Sessions of the revisions that have them: a signed session id, and a little state for the sessions that need it.
//!
//! The id itself holds caller, revision and capabilities, with a signature that cannot be forged. So there is no
//! session store, and an idle session costs nothing. Invariant: an id is valid only for the caller it was issued to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

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

/// Marks the sessions that this process began.
static RUN: LazyLock<String> = LazyLock::new(random_id);

/// Returns true if a session began in an earlier run of the gateway: its state is lost.
pub fn is_of_earlier_run(session: &str) -> bool {
    session.split_once('.').is_some_and(|(run, _)| run != *RUN)
}

/// Content of a session id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SessionTicket {
    /// Id of its run of the gateway, and a random id, unique per session.
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
        let id = format!("{}.{}", *RUN, random_id()).into();
        Self { id, caller: caller.into(), revision, capabilities: capabilities.into() }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision.parse().unwrap_or(Revision::NEWEST_WITH_HANDSHAKE)
    }

    /// Client id: requests of one session have the same one.
    pub(super) fn identity(&self) -> u64 {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(self.id.bytes().rev()) {
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

/// Keys that sign session ids. A gateway that keeps them accepts the sessions of its last run.
#[derive(Clone)]
pub struct SessionKeys {
    /// Signs new ids.
    pub current: [u8; SessionKeys::BYTES],
    /// Verifies ids from before the last rotation.
    pub previous: Option<[u8; SessionKeys::BYTES]>,
}

impl SessionKeys {
    /// Length of a key.
    pub const BYTES: usize = 32;

    /// Creates a random key. Ids of other keys are invalid.
    pub fn random() -> Self {
        Self { current: random_bytes(), previous: None }
    }

    /// Returns the keys after a rotation: a new current one, and the one before.
    #[must_use]
    pub fn rotated(&self) -> Self {
        Self { current: random_bytes(), previous: Some(self.current) }
    }
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKeys")
    }
}

/// Signs and verifies session ids.
pub(super) struct TicketSigner {
    /// The current key first.
    keys: Mutex<Arc<[hmac::Key]>>,
    /// Ids that were verified before. A signature is checked once, not for every request of a session.
    verified: Mutex<HashMap<Box<str>, Arc<VerifiedTicket>>>,
}

impl TicketSigner {
    pub(super) fn new(keys: &SessionKeys) -> Self {
        Self { keys: Mutex::new(signing_keys(keys)), verified: Mutex::default() }
    }

    /// Replaces the keys. Ids that only a removed key signed are invalid from now on.
    pub(super) fn set_keys(&self, keys: &SessionKeys) {
        *self.keys.lock() = signing_keys(keys);
        self.verified.lock().clear();
    }

    fn keys(&self) -> Arc<[hmac::Key]> {
        Arc::clone(&self.keys.lock())
    }

    /// Returns the session id; `None` if it would be too long.
    pub(super) fn sign(&self, ticket: &SessionTicket) -> Option<String> {
        let content = BASE64.encode(serde_json::to_vec(ticket).ok()?);
        let signature = BASE64.encode(hmac::sign(&self.keys()[0], content.as_bytes()));
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
        let signature = BASE64.decode(signature).ok()?;
        let is_signed = |key: &hmac::Key| hmac::verify(key, content.as_bytes(), &signature).is_ok();
        self.keys().iter().any(is_signed).then_some(())?;
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

fn signing_keys(keys: &SessionKeys) -> Arc<[hmac::Key]> {
    let keys = std::iter::once(&keys.current).chain(&keys.previous);
    keys.map(hmac::Key::new).collect()
}

/// A list that clients request, with notifications of its changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Tools = 1,
    Prompts = 2,
    Resources = 4,
}

impl ListKind {
    /// The list that a method returns.
    pub(super) fn of_method(method: &str) -> Option<Self> {
        match method {
            "tools/list" => Some(Self::Tools),
            "prompts/list" => Some(Self::Prompts),
            "resources/list" | "resources/templates/list" => Some(Self::Resources),
            _ => None,
        }
    }
}

/// Holds change notifications back until the client has got its first list of their kind: before it, a change means
/// nothing, and some clients ignore the list that comes after it.
#[derive(Debug, Default)]
pub(super) struct ListGate(Mutex<ListGateState>);

#[derive(Debug, Default)]
struct ListGateState {
    /// Kinds with an answered first list.
    answered: u8,
    /// Kinds that changed since their first list was requested.
    held: u8,
}

impl ListGate {
    /// Returns true if the change may be sent. Otherwise it is held.
    pub(super) fn admit(&self, kind: ListKind) -> bool {
        let mut state = self.0.lock();
        let is_answered = state.answered & kind as u8 != 0;
        if !is_answered {
            state.held |= kind as u8;
        }
        is_answered
    }

    /// Notes the request for a list. Changes before it are in the list.
    pub(super) fn begin(&self, kind: ListKind) {
        self.0.lock().held &= !(kind as u8);
    }

    /// Notes that a list was answered. Returns true if a change of it was held meanwhile.
    pub(super) fn finish(&self, kind: ListKind) -> bool {
        let mut state = self.0.lock();
        state.answered |= kind as u8;
        let is_held = state.held & kind as u8 != 0;
        state.held &= !(kind as u8);
        is_held
    }
}

#[test]
fn changes_wait_for_the_first_list() {
    let gate = ListGate::default();
    assert!(!gate.admit(ListKind::Tools), "nothing was listed yet");
    gate.begin(ListKind::Tools);
    assert!(!gate.finish(ListKind::Tools), "the change was before the list");
    assert!(gate.admit(ListKind::Tools) && !gate.admit(ListKind::Prompts));
    gate.begin(ListKind::Prompts);
    assert!(!gate.admit(ListKind::Prompts));
    assert!(gate.finish(ListKind::Prompts), "the change was after the request");
    assert!(!gate.finish(ListKind::Prompts), "it is reported once");
}

/// Mutable state of a session; created on first use.
#[derive(Default)]
pub(super) struct SessionData {
    pub(super) log_level: Mutex<Option<Box<str>>>,
    /// Number of times that the client reported a change of its roots.
    roots_version: AtomicU64,
    pub(super) pending: Arc<PendingQuestions>,
    pub(super) subscriptions: Mutex<HashMap<Box<str>, Subscription>>,
    /// Used by sessions on a connection of their own.
    pub(super) lists: ListGate,
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
    /// New sessions, with the kinds that they have listed. Those with all kinds, and those of earlier runs, are absent.
    unlisted: HashMap<Box<str>, u8>,
    unlisted_order: VecDeque<Box<str>>,
}

impl SessionRegistry {
    fn lock(&self) -> parking_lot::MutexGuard<'_, RegistryState> {
        self.0.lock()
    }

    /// Adds a new session without any list yet. At the limit the oldest is forgotten.
    pub(super) fn begin_lists(&self, id: &str) {
        let mut state = self.lock();
        if state.unlisted_order.len() >= MAX_SESSIONS
            && let Some(oldest) = state.unlisted_order.pop_front()
        {
            state.unlisted.remove(&oldest);
        }
        state.unlisted.insert(id.into(), 0);
        state.unlisted_order.push_back(id.into());
    }

    /// Notes that a session requests a list.
    pub(super) fn note_list(&self, id: &str, kind: ListKind) {
        if let Some(listed) = self.lock().unlisted.get_mut(id) {
            *listed |= kind as u8;
        }
    }

    /// Returns true if a session may be told of a change: it has requested the list, or began before this run.
    pub(super) fn may_notify(&self, id: &str, kind: ListKind) -> bool {
        self.lock().unlisted.get(id).is_none_or(|listed| listed & kind as u8 != 0)
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
    let signer = TicketSigner::new(&SessionKeys::random());
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
    assert!(TicketSigner::new(&SessionKeys::random()).verify(&id, "ann").is_none(), "another key");
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

#[test]
fn session_ids_survive_one_rotation_of_the_keys() {
    let first = SessionKeys::random();
    let signer = TicketSigner::new(&first);
    let id = signer.sign(&SessionTicket::new("ann", Revision::V2025_06_18, None)).unwrap();
    assert!(TicketSigner::new(&first).verify(&id, "ann").is_some(), "a restart with the same keys");
    let second = first.rotated();
    signer.set_keys(&second);
    assert!(signer.verify(&id, "ann").is_some());
    let newer = signer.sign(&SessionTicket::new("ann", Revision::V2025_06_18, None)).unwrap();
    signer.set_keys(&second.rotated());
    assert!(signer.verify(&id, "ann").is_none(), "two rotations");
    assert!(signer.verify(&newer, "ann").is_some());
}
