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

    /// Number of times that the client reported a change of its roots.
    fn roots_version(&self) -> u64 {
        0
    }

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

/// Most time that the answers of a client may add to the deadline of its request.
const MAX_USER_WAIT: Duration = Duration::from_secs(3600);

impl Forwarded {
    /// The forwarded parameters and `_meta` members as one object; `None` if there are none.
    pub fn extra_members(&self) -> Option<RawJson> {
        if self.extra_params.is_empty() && self.extra_meta.is_empty() {
            return None;
        }
        let meta = object_of(self.extra_meta.iter().map(|(name, value)| (&**name, value.as_str())));
        let params = self.extra_params.iter().map(|(name, value)| (&**name, value.as_str()));
        let meta = (!self.extra_meta.is_empty()).then_some(("_meta", meta.as_str()));
        Some(RawJson::from_trusted(object_of(params.chain(meta))))
    }

    /// Time the client has spent answering questions, at most an hour.
    pub fn user_wait(&self) -> Duration {
        self.client.as_ref().map(|client| client.user_wait().min(MAX_USER_WAIT)).unwrap_or_default()
    }
}

/// Writes an object of members that were scanned.
fn object_of<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (name, value) in members {
        if out.len() > 1 {
            out.push(',');
        }
        toolgate_json::quote(name, &mut out);
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
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

#[test]
fn extra_members_are_one_object() {
    let raw = |text: &str| RawJson::from_trusted(text.to_owned());
    let mut forwarded = Forwarded::default();
    assert!(forwarded.extra_members().is_none());
    forwarded.extra_meta.push(("m".into(), raw("1.0")));
    assert_eq!(forwarded.extra_members().unwrap().as_str(), r#"{"_meta":{"m":1.0}}"#);
    forwarded.extra_params = vec![("a\"".into(), raw("[]")), ("b".into(), raw("{}"))];
    assert_eq!(forwarded.extra_members().unwrap().as_str(), r#"{"a\"":[],"b":{},"_meta":{"m":1.0}}"#);
}
