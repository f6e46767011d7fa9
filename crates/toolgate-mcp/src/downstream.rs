//! The downstream client of a forwarded request: the parameters it sent, notifications to it, requests to it.
//!
//! Requests of the gateway itself have no downstream client. Invariant: a server's notifications and requests
//! reach only the client of the request they belong to; if that client cannot be determined, they reach none.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::RawJson;
use crate::message::RpcError;

/// Client whose request is forwarded to a server.
///
/// This describes the client, and is not a way to ask a person: `ask` passes an MCP request on as it is, and the client
/// answers it by a person, a model or a program. Questions of the gateway itself go to its `Responder`, one of whose
/// implementations asks the client by elicitation.
pub trait DownstreamClient: Send + Sync + 'static {
    /// Id of the client. Requests of the same client return the same number.
    fn identity(&self) -> u64;

    /// Capabilities as the client declared them.
    fn capabilities(&self) -> &Value;

    /// True if the client sent a progress token.
    fn wants_progress(&self) -> bool;

    /// Minimum level of log messages that the client asked for.
    fn log_level(&self) -> Option<Box<str>>;

    /// Delivers a notification about the request. Called in order; must not block.
    fn notify(&self, method: &str, params: Option<&RawJson>);

    /// Sends the client a request: sampling, elicitation, roots.
    fn ask(&self, method: &str, params: Option<RawJson>) -> BoxFuture<'static, Result<RawJson, RpcError>>;

    /// True if `input_required` results are passed to the client unchanged, as in the newest revision.
    fn accepts_input_requests(&self) -> bool;

    /// Time the client has spent answering questions during this request. It does not count as server time.
    fn user_wait(&self) -> Duration;
}

/// Stopwatch for the time a client spends answering questions.
#[derive(Default)]
pub struct UserWait(Mutex<UserWaitState>);

#[derive(Default)]
struct UserWaitState {
    finished: Duration,
    open: usize,
    started: Option<Instant>,
}

impl UserWait {
    /// Starts the stopwatch; it runs until the last guard is dropped.
    pub fn start(self: &Arc<Self>) -> WaitGuard {
        let mut state = self.0.lock();
        state.open += 1;
        state.started.get_or_insert_with(Instant::now);
        WaitGuard(Arc::clone(self))
    }

    pub fn total(&self) -> Duration {
        let state = self.0.lock();
        state.finished + state.started.map(|started| started.elapsed()).unwrap_or_default()
    }
}

/// Keeps the [`UserWait`] stopwatch running.
pub struct WaitGuard(Arc<UserWait>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.open -= 1;
        if state.open == 0
            && let Some(started) = state.started.take()
        {
            state.finished += started.elapsed();
        }
    }
}

/// Parts of a client's request that are forwarded unchanged.
#[derive(Clone, Default)]
pub struct Forwarded {
    /// Parameters the gateway does not handle itself.
    pub extra_params: Vec<(Box<str>, RawJson)>,
    /// `_meta` members the gateway does not set itself.
    pub extra_meta: Vec<(Box<str>, RawJson)>,
    pub client: Option<Arc<dyn DownstreamClient>>,
}

/// Extra time for a request whose client may be asked questions. The caller of the request applies its own,
/// shorter limit.
const MAX_USER_WAIT: Duration = Duration::from_secs(3600);

impl Forwarded {
    /// Adds the time the client may spend on questions to `time`.
    pub fn extend_timeout(&self, time: Duration) -> Duration {
        if self.client.is_some() { time.saturating_add(MAX_USER_WAIT) } else { time }
    }

    /// Time the client has spent answering questions.
    pub fn user_wait(&self) -> Duration {
        self.client.as_ref().map(|client| client.user_wait()).unwrap_or_default()
    }
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client.as_ref().map(|client| client.identity());
        f.debug_struct("Forwarded")
            .field("extra_params", &self.extra_params)
            .field("extra_meta", &self.extra_meta)
            .field("client", &client)
            .finish()
    }
}
