//! Client session with one server: our requests and their responses, its requests and notifications.
//!
//! Request ids are never reused, so a late response cannot reach another request. Invariant: the reading task never
//! blocks, and notifications reach the handler in order.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::list_size::{MAX_LIST_BYTES, PendingList, PendingLists, is_list};
use super::url_elicitation;
use crate::RawJson;
use crate::downstream::{DownstreamClient, Forwarded};
use crate::handshake::PeerInfo;
use crate::input_required::InputRequired;
use crate::link::{Link, LinkCommand, LinkError, LinkEvent, OutgoingRequest};
use crate::message::{Message, MessageError, RequestId, RpcError, method_name};
use crate::oauth::{MAX_LOGINS, TokenSource};
use crate::params::Params;
use crate::scan::ScanLimits;
use crate::transport::http::{ChannelFailure, ChannelReply, HttpChannel};

/// Limits on server requests in progress: their number and their total size. A session may serve many clients, each
/// with questions that wait for a person; the limit per client is applied where the client is asked.
const MAX_SERVER_REQUESTS: usize = 1_024;
const MAX_SERVER_REQUEST_BYTES: usize = 16 << 20;
/// Time to wait for the transport to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// `input_required` rounds before a request fails.
const MAX_INPUT_ROUNDS: usize = 8;
/// Limits of one list: pages and items. The bytes in total are limited by `MAX_LIST_BYTES`.
const MAX_PAGES: usize = 1_000;
const MAX_LIST_ITEMS: usize = 10_000;

/// Receives a server's notifications and requests.
pub trait Handler: Send + Sync + 'static {
    /// Handles a notification. Called in order; must not block.
    fn notification(&self, method: &str, params: Option<&RawJson>);

    /// Handles a server request: sampling, elicitation, roots.
    fn request(&self, method: &str, params: Option<RawJson>)
    -> BoxFuture<'static, Result<RawJson, RpcError>>;

    /// Capabilities declared to the server.
    fn capabilities(&self) -> serde_json::Value {
        serde_json::json!({})
    }

    /// Called for every server request, also when a downstream client answers it. Returns the client that answers if the
    /// request belongs to no request of a client, where the handler knows one.
    fn request_received(&self, _method: &str) -> Option<Arc<dyn DownstreamClient>> {
        None
    }

    /// Called after a server request was answered.
    fn request_answered(&self, _method: &str) {}

    /// Called when the server violates the protocol or sends something that is not a message.
    fn violation(&self, what: &str);
}

/// Failure of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The server returned an error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The connection, or this request on it, failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The server sent an input request that was not answered.
    #[error("the server asked for input, and it was not answered: {0}")]
    Unanswered(RpcError),
    /// The response is not valid JSON-RPC, or ambiguous JSON.
    #[error("the response is invalid: {0}")]
    InvalidResponse(MessageError),
    /// The result does not have the shape that the protocol defines.
    #[error("the response to `{method}` is invalid: {reason}")]
    Malformed { method: String, reason: String },
}

type RequestResult = Result<RawJson, RequestError>;

/// Session with one server. Dropping the last clone closes the connection.
#[derive(Clone)]
pub struct Session(Arc<SessionOwner>);

struct SessionOwner {
    inner: Arc<SessionInner>,
    /// Tasks of the transport and of the session; they end with the session.
    _tasks: JoinSet<()>,
}

/// Request that waits for its response.
struct PendingRequest {
    response: oneshot::Sender<RequestResult>,
    client: Option<Arc<dyn DownstreamClient>>,
    is_list: bool,
}

/// State shared by the reading task and the requests.
struct SessionInner {
    outbox: mpsc::Sender<LinkCommand>,
    /// HTTP only: requests bypass the outbox.
    channel: Option<Arc<HttpChannel>>,
    next_id: AtomicI64,
    pending_requests: Mutex<HashMap<i64, PendingRequest>>,
    end: OnceLock<LinkError>,
    ended: watch::Sender<bool>,
    peer: OnceLock<PeerInfo>,
    tokens: OnceLock<Arc<TokenSource>>,
    over_http: bool,
    violations: AtomicU64,
    handler: Arc<dyn Handler>,
    limits: ScanLimits,
    lists: Arc<PendingLists>,
}

impl Session {
    /// Time limit of requests whose caller drops the future at its own deadline. Saves a timer.
    pub const NO_TIMEOUT: Duration = Duration::MAX;

    /// Starts reading from a link. With `over_http`, closing a request's stream cancels the request.
    pub fn start(link: Link, over_http: bool, limits: ScanLimits, handler: Arc<dyn Handler>) -> Self {
        let Link { outbox, inbox, channel, lists, mut tasks } = link;
        let inner = Arc::new(SessionInner {
            outbox,
            channel,
            next_id: AtomicI64::new(1),
            pending_requests: Mutex::default(),
            end: OnceLock::new(),
            ended: watch::Sender::new(false),
            peer: OnceLock::new(),
            tokens: OnceLock::new(),
            over_http,
            violations: AtomicU64::new(0),
            handler,
            limits,
            lists,
        });
        tasks.spawn(read(Arc::clone(&inner), inbox));
        Self(Arc::new(SessionOwner { inner, _tasks: tasks }))
    }

    /// Server info; set by the handshake.
    pub fn peer(&self) -> Option<&PeerInfo> {
        self.0.inner.peer.get()
    }

    pub(crate) fn set_peer(&self, peer: PeerInfo) {
        // Requests that bypass the queue need the revision at once.
        self.0.inner.channel.iter().for_each(|channel| channel.set_revision(peer.revision));
        let _ = self.0.inner.outbox.try_send(LinkCommand::Revision(peer.revision));
        let _ = self.0.inner.peer.set(peer);
    }

    pub(crate) fn over_http(&self) -> bool {
        self.0.inner.over_http
    }

    /// Reason why the connection closed, if it did.
    pub fn close_reason(&self) -> Option<&LinkError> {
        self.0.inner.end.get()
    }

    /// Waits until the connection closes and returns the reason.
    pub async fn closed(&self) -> LinkError {
        let mut ended = self.0.inner.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await;
        self.0.inner.end_reason()
    }

    /// True if every forwarded request in progress belongs to this client.
    pub fn serves_only_client(&self, client: u64) -> bool {
        let pending_requests = self.0.inner.lock();
        pending_requests
            .values()
            .filter_map(|pending| pending.client.as_ref())
            .all(|other| other.identity() == client)
    }

    /// Number of protocol violations by the server.
    pub fn violations(&self) -> u64 {
        self.0.inner.violations.load(Ordering::Relaxed)
    }

    /// Enables logins when the server requires one during the session.
    pub fn set_token_source(&self, tokens: Arc<TokenSource>) {
        let _ = self.0.inner.tokens.set(tokens);
    }

    /// Sends a request and waits for its response, at most `within` plus the time of a login. Dropping the future
    /// cancels the request.
    pub async fn request(&self, method: &str, params: Params, within: Duration) -> RequestResult {
        let tokens = self.0.inner.tokens.get().filter(|tokens| tokens.can_login());
        // During the handshake the caller handles logins, because the handshake has its own deadline.
        match tokens.filter(|_| self.peer().is_some()) {
            None => self.exchange(method, params, within).await,
            Some(tokens) => Box::pin(self.exchange_with_login(tokens, method, params, within)).await,
        }
    }

    async fn exchange_with_login(
        &self,
        tokens: &TokenSource,
        method: &str,
        params: Params,
        within: Duration,
    ) -> RequestResult {
        let mut logins = 0;
        loop {
            match self.exchange(method, params.clone(), within).await {
                Err(RequestError::Link(LinkError::LoginRequired(demand))) if logins < MAX_LOGINS => {
                    let login = tokens.login(Some(&demand)).await;
                    login.map_err(|error| LinkError::LoginFailed(Arc::new(error)))?;
                    logins += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn exchange(&self, method: &str, mut params: Params, within: Duration) -> RequestResult {
        let inner = &self.0.inner;
        let client = params.client().cloned();
        if let Some(peer) = inner.peer.get() {
            match &client {
                Some(client) => peer.describe_client(&mut params, &**client),
                None => peer.describe_us(&mut params, &inner.handler.capabilities()),
            }
        }
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        if client.as_ref().is_some_and(|client| client.wants_progress()) {
            params.add_meta("progressToken", &id);
        }
        let (sender, response) = oneshot::channel();
        let is_list = is_list(method);
        inner.lock().insert(id, PendingRequest { response: sender, client, is_list });
        let _pending_list = is_list.then(|| PendingList::new(&inner.lists));
        let cancelled = AtomicBool::new(true);
        let _guard = PendingGuard { inner, id, method, cancelled: &cancelled };
        if let Some(end) = inner.end.get() {
            let end = match inner.channel {
                // Nothing is sent on a connection that has ended.
                Some(_) => LinkError::Unreachable(end.to_string()),
                None => end.clone(),
            };
            return Err(end.into());
        }
        let trace = params.include_trace();
        let bytes = params.to_request(id, method).into();
        let name = params
            .string_member("name")
            .or_else(|| params.string_member("uri"))
            .or_else(|| params.string_member("taskId"));
        let mirror_headers = std::mem::take(&mut params.mirror_headers);
        let request = OutgoingRequest { id, method: method_name(method), name, mirror_headers, trace, bytes };
        let exchange = async {
            match &inner.channel {
                Some(channel) => {
                    if let Some(response) = inner.send_direct(channel, request).await? {
                        return response;
                    }
                }
                None => {
                    let sent = inner.outbox.send(LinkCommand::Request(request)).await;
                    sent.map_err(|_| inner.end_reason())?;
                }
            }
            response.await.unwrap_or_else(|_| Err(inner.end_reason().into()))
        };
        let exchange = pin!(exchange);
        let outcome = if within == Self::NO_TIMEOUT {
            exchange.await
        } else {
            match tokio::time::timeout(within, exchange).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(RequestError::TimedOut(within)),
            }
        };
        cancelled.store(false, Ordering::Relaxed);
        match outcome {
            Err(RequestError::Rpc(error)) => Err(url_elicitation::check_error(error).into()),
            outcome => outcome,
        }
    }

    /// Closes the session and waits briefly for the transport to finish.
    pub async fn close(&self) {
        if self.close_reason().is_none() && self.0.inner.outbox.try_send(LinkCommand::Close).is_ok() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.closed()).await;
        }
    }

    /// Sends a request and answers the server's input requests. In the newest revision a result may ask for input
    /// first. `within` applies to each round.
    pub async fn request_with_input(&self, method: &str, params: Params, within: Duration) -> RequestResult {
        if params.client().is_some_and(|client| client.accepts_input_requests()) {
            let result = self.request(method, params, within).await?;
            url_elicitation::check_result(&result).map_err(RequestError::Unanswered)?;
            return Ok(result);
        }
        let mut next = params.clone();
        for _ in 0..MAX_INPUT_ROUNDS {
            let result = self.request(method, next, within).await?;
            // Substring check first: it is cheap, and few results ask for input.
            if !result.contains_short("input_required") {
                return Ok(result);
            }
            let Some(question) =
                result.parse_borrowed::<InputRequired<'_>>().ok().filter(InputRequired::is_input_required)
            else {
                return Ok(result);
            };
            let input_responses = self.input_responses(&result, &question, params.client()).await?;
            next = params.clone().with_raw("inputResponses", input_responses);
            if let Some(state) = question.request_state {
                next = next.with_raw("requestState", result.slice(state.get()));
            }
        }
        let reason = format!("it asked for input {MAX_INPUT_ROUNDS} times in a row");
        Err(RequestError::Malformed { method: method.to_owned(), reason })
    }

    async fn input_responses(
        &self,
        result: &RawJson,
        question: &InputRequired<'_>,
        client: Option<&Arc<dyn DownstreamClient>>,
    ) -> RequestResult {
        let mut input_responses = serde_json::Map::new();
        for (key, asked) in question.input_requests.iter().flatten() {
            let params = asked.params.map(|params| result.slice(params.get()));
            url_elicitation::check_request(&asked.method, params.as_ref())
                .map_err(RequestError::Unanswered)?;
            let outcome = match client {
                Some(client) => client.ask(&asked.method, params).await,
                None => self.0.inner.handler.request(&asked.method, params).await,
            };
            let respond = outcome.map_err(RequestError::Unanswered)?;
            input_responses.insert((*key).to_owned(), respond.parse().unwrap_or_default());
        }
        Ok(RawJson::from_value(&input_responses))
    }

    pub(crate) fn client_capabilities(&self) -> serde_json::Value {
        self.0.inner.handler.capabilities()
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Params) -> Result<(), RequestError> {
        let bytes = Message::Notification { method: method.into(), params: params.to_raw() }.to_bytes();
        let inner = &self.0.inner;
        inner.channel.iter().for_each(|channel| channel.expect_notification());
        inner.outbox.send(LinkCommand::Message(bytes)).await.map_err(|_| inner.end_reason().into())
    }

    /// Fetches all pages of a list; for `tools/list`, `key` is `tools`.
    /// The list is that for a client, if there is one: a server may list less to a client with fewer capabilities.
    pub async fn list_all(
        &self,
        method: &str,
        key: &str,
        along: &Forwarded,
        within: Duration,
    ) -> Result<Vec<RawJson>, RequestError> {
        let malformed = |what: String| RequestError::Malformed { method: method.to_owned(), reason: what };
        let mut items = Vec::new();
        let mut cursor: Option<RawJson> = None;
        let mut seen: Vec<RawJson> = Vec::new();
        let mut bytes = 0;
        for _ in 0..MAX_PAGES {
            let params =
                cursor.take().map_or_else(Params::none, |cursor| Params::none().with_raw("cursor", cursor));
            let page = self.request(method, params.with_forwarded(along), within).await?;
            let members: HashMap<&str, &RawValue> =
                page.parse_borrowed().map_err(|_| malformed("it is not an object".to_owned()))?;
            let list = members.get(key).ok_or_else(|| malformed(format!("`{key}` is missing")))?;
            let list: Vec<&RawValue> =
                Deserialize::deserialize(*list).map_err(|_| malformed(format!("`{key}` is not a list")))?;
            items.extend(list.into_iter().map(|item| page.slice(item.get())));
            bytes += page.as_str().len();
            if bytes > MAX_LIST_BYTES {
                return Err(malformed(format!("it has more than {MAX_LIST_BYTES} bytes")));
            }
            if items.len() >= MAX_LIST_ITEMS {
                items.truncate(MAX_LIST_ITEMS);
                return Ok(items);
            }
            match members.get("nextCursor").filter(|cursor| cursor.get() != "null") {
                None => return Ok(items),
                Some(next) => {
                    let next = page.slice(next.get());
                    // A repeated cursor would make us fetch the same page forever.
                    if seen.contains(&next) {
                        return Err(malformed("its cursors repeat".to_owned()));
                    }
                    seen.push(next.clone());
                    cursor = Some(next);
                }
            }
        }
        Err(malformed(format!("it has more than {MAX_PAGES} pages")))
    }
}

/// Removes a request from the pending map on drop, and cancels it on the server if it is not complete.
struct PendingGuard<'a> {
    inner: &'a SessionInner,
    id: i64,
    method: &'a str,
    cancelled: &'a AtomicBool,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.inner.lock().remove(&self.id);
        // The protocol does not allow cancelling `initialize`; the connection is closed instead.
        if !self.cancelled.load(Ordering::Relaxed) || self.method == "initialize" {
            return;
        }
        let handshake = self.inner.peer.get().is_some_and(|peer| peer.revision.has_handshake());
        if handshake || !self.inner.over_http {
            let params = Params::none()
                .with("requestId", &self.id)
                .with("reason", &"the caller no longer waits for the response");
            let method = "notifications/cancelled".into();
            let bytes = Message::Notification { method, params: params.to_raw() }.to_bytes();
            let _ = self.inner.outbox.try_send(LinkCommand::Message(bytes));
        }
        let _ = self.inner.outbox.try_send(LinkCommand::Cancel(self.id));
    }
}

impl SessionInner {
    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<i64, PendingRequest>> {
        self.pending_requests.lock()
    }

    fn end_reason(&self) -> LinkError {
        self.end.get().cloned().unwrap_or(LinkError::Closed)
    }

    /// Sends a request over the HTTP channel. Returns `None` if the response arrives through the queue.
    async fn send_direct(
        &self,
        channel: &Arc<HttpChannel>,
        request: OutgoingRequest,
    ) -> Result<Option<RequestResult>, LinkError> {
        let (id, limits) = (request.id, self.size_limits(is_list(&request.method)));
        let bytes = match channel.send_request(request).await {
            Ok(ChannelReply::Whole(bytes)) => bytes,
            Ok(ChannelReply::Queued) => return Ok(None),
            Err(ChannelFailure::Request(error)) => return Err(error),
            Err(ChannelFailure::Session(error)) => {
                self.close(error.clone());
                return Err(error);
            }
        };
        let parsed = Message::read(&bytes, limits).map(<[Message; 1]>::try_from);
        match parsed {
            Ok(Ok([Message::Response { id: RequestId::Number(to), outcome }])) if to == id => {
                Ok(Some(outcome.map_err(Into::into)))
            }
            _ => channel.enqueue_response(id, bytes).await.map(|()| None),
        }
    }

    /// Limits of one message.
    fn size_limits(&self, is_list: bool) -> ScanLimits {
        let size = if is_list { self.limits.size.max(MAX_LIST_BYTES) } else { self.limits.size };
        ScanLimits { size, ..self.limits }
    }

    /// Returns true if the message is the response to a list request.
    fn is_list_response(&self, message: &Message) -> bool {
        matches!(message, Message::Response { id: RequestId::Number(id), .. }
            if self.lock().get(id).is_some_and(|pending| pending.is_list))
    }

    fn violation(&self, what: &str) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        self.handler.violation(what);
    }

    fn deliver(&self, id: i64, response: RequestResult) {
        let pending = self.lock().remove(&id);
        match pending {
            Some(pending) => drop(pending.response.send(response)),
            None => self.violation("a response with an unknown id"),
        }
    }

    /// Returns the client a message concerns: the client of the request on whose stream it came, otherwise the only
    /// client.
    fn related_client(&self, stream_request: Option<i64>) -> Option<Arc<dyn DownstreamClient>> {
        let pending_requests = self.lock();
        if let Some(id) = stream_request {
            return pending_requests.get(&id)?.client.clone();
        }
        // Requests of our own are ignored here: they do not cause server requests.
        let mut clients = pending_requests.values().filter_map(|pending| pending.client.as_ref());
        let first = clients.next()?;
        clients.all(|other| other.identity() == first.identity()).then(|| Arc::clone(first))
    }

    /// Returns the request that a damaged message must belong to: that of its stream, or the only one.
    fn only_request(&self, stream_request: Option<i64>) -> Option<i64> {
        let pending_requests = self.lock();
        let only = || pending_requests.keys().next().copied().filter(|_| pending_requests.len() == 1);
        stream_request.filter(|id| pending_requests.contains_key(id)).or_else(only)
    }

    fn client_of(&self, id: i64) -> Option<Arc<dyn DownstreamClient>> {
        self.lock().get(&id)?.client.clone()
    }

    fn has_clients(&self) -> bool {
        self.lock().values().any(|pending| pending.client.is_some())
    }

    /// Fails all pending requests.
    fn close(&self, reason: LinkError) {
        let reason = match reason {
            // Only the request that the server rejected was certainly not executed.
            LinkError::SessionLost { .. } => LinkError::Io(reason.to_string()),
            reason => reason,
        };
        let _ = self.end.set(reason.clone());
        self.ended.send_replace(true);
        let pending_requests = std::mem::take(&mut *self.lock());
        for pending in pending_requests.into_values() {
            let _ = pending.response.send(Err(reason.clone().into()));
        }
    }
}

/// Server requests in progress.
#[derive(Default)]
struct ServerRequests {
    tasks: JoinSet<()>,
    by_id: HashMap<RequestId, (AbortHandle, Arc<PendingAnswer>)>,
    bytes: Arc<AtomicUsize>,
}

/// The future that answers a server request. Dropping it withdraws the question.
struct PendingAnswer(Mutex<Option<BoxFuture<'static, Result<RawJson, RpcError>>>>);

impl PendingAnswer {
    /// Waits for the answer. `None` if the request was cancelled.
    async fn wait(&self) -> Option<Result<RawJson, RpcError>> {
        poll_fn(|cx| {
            let mut answer = self.0.lock();
            let Some(future) = &mut *answer else { return Poll::Ready(None) };
            let outcome = ready!(future.as_mut().poll(cx));
            *answer = None;
            Poll::Ready(Some(outcome))
        })
        .await
    }
}

/// Bytes counted against [`MAX_SERVER_REQUEST_BYTES`] while a server request is open.
struct ReservedBytes {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

impl ServerRequests {
    /// Reserves room for a server request, or returns `None` if the limit is reached.
    fn reserve(&self, params: Option<&RawJson>) -> Option<ReservedBytes> {
        let own = params.map_or(0, |params| params.as_str().len());
        let fits = self.bytes.load(Ordering::Relaxed) + own <= MAX_SERVER_REQUEST_BYTES;
        if self.tasks.len() >= MAX_SERVER_REQUESTS || !fits {
            return None;
        }
        self.bytes.fetch_add(own, Ordering::Relaxed);
        Some(ReservedBytes { all: Arc::clone(&self.bytes), own })
    }

    fn reap_finished(&mut self) {
        let mut any_finished = false;
        while self.tasks.try_join_next().is_some() {
            any_finished = true;
        }
        if any_finished {
            self.by_id.retain(|_, (task, _)| !task.is_finished());
        }
    }

    /// Aborts a request that the server cancelled.
    fn cancel(&mut self, params: Option<&RawJson>) {
        let id = params.and_then(crate::message::cancelled_request_id);
        if let Some((task, answer)) = id.and_then(|id| self.by_id.remove(&id)) {
            // Dropped here, not by the aborted task: the client learns of it before the next message of the server.
            drop(answer.0.lock().take());
            task.abort();
        }
    }
}

/// Reads until the link closes.
async fn read(inner: Arc<SessionInner>, mut inbox: mpsc::Receiver<LinkEvent>) {
    let mut requests = ServerRequests::default();
    let end = loop {
        match inbox.recv().await {
            Some(LinkEvent::Message(bytes)) => dispatch_all(&inner, &bytes, None, &mut requests),
            Some(LinkEvent::StreamMessage(id, bytes)) => {
                dispatch_all(&inner, &bytes, Some(id), &mut requests)
            }
            Some(LinkEvent::Noise(start)) => {
                inner.violation(&format!("not a message: {}", start.escape_ascii()))
            }
            Some(LinkEvent::Failed(id, error)) => inner.deliver(id, Err(error.into())),
            Some(LinkEvent::Closed(error)) => break error,
            None => break LinkError::Closed,
        }
        requests.reap_finished();
    };
    inner.close(end);
}

fn dispatch_all(
    inner: &Arc<SessionInner>,
    bytes: &Bytes,
    stream_request: Option<i64>,
    requests: &mut ServerRequests,
) {
    let is_large = bytes.len() > inner.limits.size;
    match Message::read(bytes, inner.size_limits(*inner.lists.borrow() > 0)) {
        Ok(messages) => {
            for message in messages {
                match message {
                    message if !is_large || inner.is_list_response(&message) => {
                        dispatch(inner, message, stream_request, requests);
                    }
                    Message::Response { id: RequestId::Number(id), .. } => {
                        inner.deliver(id, Err(LinkError::TooLarge(inner.limits.size).into()));
                    }
                    _ => inner.violation("a message over the size limit"),
                }
            }
        }
        Err(error) => {
            inner.violation(&error.to_string());
            let id = Message::rejected_response_id(bytes)
                .or_else(|| inner.only_request(stream_request).filter(|_| Message::may_be_response(bytes)));
            if let Some(id) = id {
                inner.deliver(id, Err(RequestError::InvalidResponse(error)));
            }
        }
    }
}

fn dispatch(
    inner: &Arc<SessionInner>,
    message: Message,
    stream_request: Option<i64>,
    requests: &mut ServerRequests,
) {
    match message {
        Message::Response { id: RequestId::Number(id), outcome } => {
            inner.deliver(id, outcome.map_err(Into::into))
        }
        Message::Response { id: RequestId::String(_), .. } => {
            inner.violation("a response with an id that was never used")
        }
        Message::Notification { method, params } if &*method == "notifications/cancelled" => {
            requests.cancel(params.as_ref());
        }
        Message::Notification { method, params } => {
            let client = match &*method {
                "notifications/progress" => {
                    params.as_ref().and_then(progress_request_id).and_then(|id| inner.client_of(id))
                }
                "notifications/message" | "notifications/elicitation/complete" => {
                    inner.related_client(stream_request)
                }
                _ => None,
            };
            match client {
                Some(client) => client.notify(&method, params.as_ref()),
                None => inner.handler.notification(&method, params.as_ref()),
            }
        }
        Message::Request { id, method, params } => {
            if &*method == "ping" {
                return respond(inner, id, Ok(RawJson::from_value(&serde_json::json!({}))));
            }
            if let Err(refused) = url_elicitation::check_request(&method, params.as_ref()) {
                return respond(inner, id, Err(refused));
            }
            let Some(reserved) = requests.reserve(params.as_ref()) else {
                let busy = Err(RpcError::new(-32603, "too many concurrent requests"));
                return respond(inner, id, busy);
            };
            let client = inner.handler.request_received(&method).filter(|_| stream_request.is_none());
            let client = client.or_else(|| inner.related_client(stream_request));
            if client.is_none() && inner.has_clients() {
                let ambiguous = "several clients have running requests, and this request does not say which one it belongs to";
                return respond(inner, id, Err(RpcError::new(-32603, ambiguous)));
            }
            let (inner, request_id) = (Arc::clone(inner), id.clone());
            let answer = match client {
                Some(client) => client.ask(&method, params),
                None => inner.handler.request(&method, params),
            };
            let answer = Arc::new(PendingAnswer(Mutex::new(Some(answer))));
            let pending = Arc::clone(&answer);
            let task = requests.tasks.spawn(async move {
                let _reserved = reserved;
                if let Some(outcome) = pending.wait().await {
                    respond(&inner, id, outcome);
                    inner.handler.request_answered(&method);
                }
            });
            requests.by_id.insert(request_id, (task, answer));
        }
    }
}

/// Extracts the request id from a progress notification.
fn progress_request_id(params: &RawJson) -> Option<i64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: i64,
    }
    params.parse::<Progress>().ok().map(|progress| progress.progress_token)
}

/// Sends a response to the server. Dropped if the server does not read.
fn respond(inner: &SessionInner, id: RequestId, outcome: Result<RawJson, RpcError>) {
    let _ = inner.outbox.try_send(LinkCommand::Message(Message::Response { id, outcome }.to_bytes()));
}

#[cfg(test)]
mod tests;
