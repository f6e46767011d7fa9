//! The client behind a request that is passed on: what it brings along, what it hears, what it can be asked.
//!
//! A request of our own has none. Invariant: what a server says during a request reaches the client of that
//! request and no other; where it cannot be told whose request is meant, it reaches none.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use crate::Raw;
use crate::message::RpcError;

/// The client behind a request.
pub trait Behind: Send + Sync + 'static {
    /// Which client it is: two requests of one client have the same number.
    fn identity(&self) -> u64;

    /// What it can be asked for, as it declared it.
    fn capabilities(&self) -> &Value;

    /// Whether it wants to hear how far its request has come.
    fn wants_progress(&self) -> bool;

    /// The level from which on it wants to read what servers log, where it does.
    fn log_level(&self) -> Option<Box<str>>;

    /// Hears something about its request. Called in order; must not block.
    fn hear(&self, method: &str, params: Option<&Raw>);

    /// Is asked for something: sampling, elicitation, roots.
    fn ask(&self, method: &str, params: Option<Raw>) -> BoxFuture<'static, Result<Raw, RpcError>>;

    /// Whether a result that is a question is given to it as it is, as in the newest revision.
    fn takes_questions(&self) -> bool;

    /// How long it has thought about questions during this request. That is no time of the server's.
    fn thought(&self) -> Duration;
}

/// How long a client has thought.
#[derive(Default)]
pub struct Thought(Mutex<Thinking>);

#[derive(Default)]
struct Thinking {
    past: Duration,
    open: usize,
    since: Option<Instant>,
}

impl Thought {
    /// A question is open, as long as this is kept.
    pub fn begin(self: &Arc<Self>) -> Open {
        let mut thinking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        thinking.open += 1;
        thinking.since.get_or_insert_with(Instant::now);
        Open(Arc::clone(self))
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        let thinking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        thinking.past + thinking.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// A question that is open.
pub struct Open(Arc<Thought>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut thinking = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        thinking.open -= 1;
        if thinking.open == 0
            && let Some(since) = thinking.since.take()
        {
            thinking.past += since.elapsed();
        }
    }
}

/// What a client's request brings along when it is passed on.
#[derive(Clone, Default)]
pub struct Along {
    /// Parameters beside those that we know.
    pub members: Vec<(Box<str>, Raw)>,
    /// Members of `_meta` beside those that we give ourselves.
    pub meta: Vec<(Box<str>, Raw)>,
    /// Who made it.
    pub client: Option<Arc<dyn Behind>>,
}

/// A client may think for so long about what the server asks, beyond the time of its request; whoever waits for the
/// request says when it is enough.
const THINKING: Duration = Duration::from_secs(3600);

impl Along {
    /// The time of a request, with what its client may think.
    pub fn within(&self, time: Duration) -> Duration {
        if self.client.is_some() { time.saturating_add(THINKING) } else { time }
    }

    /// How long the client has thought about questions.
    pub fn thought(&self) -> Duration {
        self.client.as_ref().map(|client| client.thought()).unwrap_or_default()
    }
}

impl fmt::Debug for Along {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client.as_ref().map(|client| client.identity());
        f.debug_struct("Along")
            .field("members", &self.members)
            .field("meta", &self.meta)
            .field("client", &client)
            .finish()
    }
}
