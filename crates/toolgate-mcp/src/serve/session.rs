//! Sessions of the revisions that have them: an id that says all there is to say, and the little that some need
//! beside.
//!
//! The id is sealed: who it is for, what was agreed, and our mark that nobody can forge. So there is no store of
//! sessions, and one that does nothing costs nothing. Invariant: an id is good for the guest that it was made for,
//! and for no other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Subscription;
use super::exchange::Pending;
use crate::message::Id;
use crate::revision::Revision;

/// The longest id that is made; a client that declares more than fits declares too much.
const LONGEST: usize = 4 << 10;
/// Sessions that keep something here.
const MOST: usize = 16_384;
/// Ended sessions that are remembered.
const MOST_ENDED: usize = 65_536;
/// Resources that one session is told of.
pub(super) const MOST_SUBSCRIPTIONS: usize = 1_000;
/// What of a client's capabilities decides something here.
const KNOWN: [&str; 5] = ["sampling", "elicitation", "roots", "tasks", "extensions"];

/// A text that nobody guesses.
pub fn unguessable() -> String {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    BASE64.encode(bytes)
}

/// What an id says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ticket {
    /// What tells it from others.
    #[serde(rename = "n")]
    pub(super) number: Box<str>,
    /// The guest.
    #[serde(rename = "g")]
    guest: Box<str>,
    /// The revision that was agreed on.
    #[serde(rename = "r")]
    revision: Box<str>,
    /// What the client declared.
    #[serde(rename = "c")]
    pub(super) capabilities: Value,
}

impl Ticket {
    pub(super) fn new(guest: &str, revision: Revision, declared: Option<Value>) -> Self {
        let mut capabilities = serde_json::Map::new();
        if let Some(Value::Object(mut declared)) = declared {
            capabilities.extend(KNOWN.iter().filter_map(|name| declared.remove_entry(*name)));
        }
        let revision = revision.name().into();
        Self {
            number: unguessable().into(),
            guest: guest.into(),
            revision,
            capabilities: capabilities.into(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision.parse().unwrap_or(Revision::NEWEST_WITH_HANDSHAKE)
    }

    /// A number by which requests of one session are known to be of one client.
    pub(super) fn identity(&self) -> u64 {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(self.number.bytes()) {
            *to = from;
        }
        u64::from_le_bytes(bytes)
    }
}

/// Makes ids, and knows its own.
pub(super) struct Sealer(hmac::Key);

impl Sealer {
    /// With a new key: ids of another process are not known here, and clients begin anew.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).expect("the system has randomness");
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// `None` where the client declares more than an id holds.
    pub(super) fn seal(&self, ticket: &Ticket) -> Option<String> {
        let said = BASE64.encode(serde_json::to_vec(ticket).ok()?);
        let mark = BASE64.encode(hmac::sign(&self.0, said.as_bytes()));
        let id = format!("{said}.{mark}");
        (id.len() <= LONGEST).then_some(id)
    }

    /// What an id says, where it is ours and this guest's.
    pub(super) fn open(&self, id: &str, guest: &str) -> Option<Ticket> {
        let (said, mark) = id.split_once('.').filter(|_| id.len() <= LONGEST)?;
        hmac::verify(&self.0, said.as_bytes(), &BASE64.decode(mark).ok()?).ok()?;
        let ticket: Ticket = serde_json::from_slice(&BASE64.decode(said).ok()?).ok()?;
        (&*ticket.guest == guest).then_some(ticket)
    }
}

/// What a session keeps beside its id, where it needs something.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) log_level: Mutex<Option<Box<str>>>,
    pub(super) pending: Arc<Pending>,
    pub(super) subscriptions: Mutex<HashMap<Box<str>, Subscription>>,
}

impl Kept {
    pub(super) fn level(&self) -> Option<Box<str>> {
        self.log_level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_level(&self, level: &str) {
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level.into());
    }

    /// The resources it is told of.
    pub(super) fn followed(&self) -> Vec<Box<str>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    pub(super) fn is_told_of(&self, uri: &str) -> bool {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).contains_key(uri)
    }
}

/// What sessions keep, and which of them have ended.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Books>);

#[derive(Default)]
struct Books {
    kept: HashMap<Box<str>, Arc<Kept>>,
    order: VecDeque<Box<str>>,
    /// Requests that run, with what ends them.
    running: HashMap<(Box<str>, Id), oneshot::Sender<()>>,
    ended: HashSet<Box<str>>,
    ended_order: VecDeque<Box<str>>,
}

impl Sessions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a session was ended by its client.
    pub(super) fn has_ended(&self, number: &str) -> bool {
        self.lock().ended.contains(number)
    }

    /// What a session keeps, if anything.
    pub(super) fn find(&self, number: &str) -> Option<Arc<Kept>> {
        self.lock().kept.get(number).cloned()
    }

    /// What a session keeps, from now on. The oldest makes room where there is none.
    pub(super) fn keep(&self, number: &str) -> Arc<Kept> {
        let mut books = self.lock();
        if let Some(kept) = books.kept.get(number) {
            return Arc::clone(kept);
        }
        let mut gone = None;
        if books.kept.len() >= MOST
            && let Some(oldest) = books.order.pop_front()
        {
            gone = books.kept.remove(&oldest);
        }
        let kept = Arc::new(Kept::default());
        books.kept.insert(number.into(), Arc::clone(&kept));
        books.order.push_back(number.into());
        drop(books);
        drop(gone);
        kept
    }

    /// Has a request end when its client says so, as long as the guard lives.
    pub(super) fn may_cancel(
        self: &Arc<Self>,
        number: &str,
        id: &Id,
    ) -> (Guard, impl Future<Output = ()> + use<>) {
        let (cancel, cancelled) = oneshot::channel::<()>();
        let key = (Box::<str>::from(number), id.clone());
        self.lock().running.insert(key.clone(), cancel);
        let left = async move {
            if cancelled.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        (Guard { sessions: Arc::clone(self), key }, left)
    }

    pub(super) fn cancel(&self, number: &str, id: &Id) {
        let found = self.lock().running.remove(&(number.into(), id.clone()));
        if let Some(cancel) = found {
            let _ = cancel.send(());
        }
    }

    pub(super) fn end(&self, number: &str) {
        let mut books = self.lock();
        let gone = books.kept.remove(number);
        books.order.retain(|other| &**other != number);
        if books.ended.insert(number.into()) {
            books.ended_order.push_back(number.into());
        }
        if books.ended.len() > MOST_ENDED
            && let Some(oldest) = books.ended_order.pop_front()
        {
            books.ended.remove(&oldest);
        }
        drop(books);
        drop(gone);
    }
}

/// A request that can be cancelled, as long as it lives.
pub(super) struct Guard {
    sessions: Arc<Sessions>,
    key: (Box<str>, Id),
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.sessions.lock().running.remove(&self.key);
    }
}

#[test]
fn an_id_is_good_for_its_guest_alone() {
    let sealer = Sealer::new();
    let ticket =
        Ticket::new("ann", Revision::V2025_06_18, Some(serde_json::json!({ "sampling": {}, "other": 1 })));
    let id = sealer.seal(&ticket).unwrap();
    let open = sealer.open(&id, "ann").unwrap();
    assert_eq!(
        (open.revision(), &open.capabilities),
        (Revision::V2025_06_18, &serde_json::json!({ "sampling": {} }))
    );
    assert!(sealer.open(&id, "bob").is_none(), "another guest");
    assert!(Sealer::new().open(&id, "ann").is_none(), "another key");
    for at in 0..id.len() {
        let mut forged = id.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert!(forged == id || sealer.open(&forged, "ann").is_none(), "{at}");
    }
    let large =
        Ticket::new("ann", Revision::V2025_06_18, Some(serde_json::json!({ "sampling": "x".repeat(5_000) })));
    assert!(sealer.seal(&large).is_none());
}
