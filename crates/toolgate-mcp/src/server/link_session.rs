//! Endpoint on a link: lines, WebSocket, or HTTP+SSE.
//!
//! One link is one client; its requests end with it. A client may use the handshake, or the newest revision request by
//! request. Invariant: the read loop never waits for a request.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::changes::{ChangeSource, ListenRequest, SessionChanges};
use super::exchange::{ExchangeEvent, RequestExchange};
use super::http::TraceSource;
use super::incoming::{
    ClientSession, IncomingRequest, InitializeRequest, SessionState, check_meta, next_client_id,
};
use super::session::{ListKind, SessionData};
use super::{McpEndpoint, ServiceChange, ServiceInfo};
use crate::link::{Link, LinkCommand, LinkEvent};
use crate::message::{Message, RequestId, RpcError, cancelled_request_id};
use crate::revision::Revision;

/// Concurrent requests of one client.
const MAX_CONCURRENT_REQUESTS: usize = 256;
/// Time to finish open requests after the client closed its side: `echo … | server` closes the pipe right after its
/// request. Shorter than the time child processes get to exit.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A decoded request of a client on a link.
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are exchanges, so a box would cost more than it saves"
)]
pub enum LinkRequest {
    /// Continue with [`LinkSession::initialize`].
    Initialize(InitializeRequest),
    /// Continue with [`LinkSession::listen`].
    Listen(ListenRequest),
    /// Answer its call, then continue with [`LinkSession::respond`].
    Exchange(RequestExchange),
    /// Nothing is left to do: a notification, a response, or a message that was rejected.
    Handled,
}

/// The session of one client on a link.
pub struct LinkSession {
    endpoint: Arc<McpEndpoint>,
    /// Id of the caller.
    caller: Arc<str>,
    inbox: mpsc::Receiver<LinkEvent>,
    /// Tasks of the transport.
    transport: JoinSet<()>,
    /// Messages of a batch that are not handled yet.
    unread: VecDeque<Message>,
    /// True if the last message was not the first of its batch.
    in_batch: bool,
    out: mpsc::Sender<LinkCommand>,
    data: Arc<SessionData>,
    client_session: Option<ClientSession>,
    running: HashMap<RequestId, AbortHandle>,
    tasks: JoinSet<RequestId>,
    /// Requests for lists that are not answered yet, if the client has a session.
    lists: HashMap<RequestId, ListKind>,
    /// Tasks of `subscriptions/listen`; they end only with the client.
    subscription_tasks: Vec<AbortHandle>,
    /// Task that forwards notifications that belong to no request.
    change_tasks: JoinSet<()>,
}

impl McpEndpoint {
    /// Opens the session of a client on a link.
    pub fn open_link(self: &Arc<Self>, caller: &Arc<str>, link: Link) -> LinkSession {
        let Link { outbox, inbox, tasks: transport, .. } = link;
        LinkSession {
            endpoint: Arc::clone(self),
            caller: Arc::clone(caller),
            inbox,
            transport,
            unread: VecDeque::new(),
            in_batch: false,
            out: outbox,
            data: Arc::default(),
            client_session: None,
            running: HashMap::new(),
            tasks: JoinSet::new(),
            lists: HashMap::new(),
            subscription_tasks: Vec::new(),
            change_tasks: JoinSet::new(),
        }
    }
}

impl LinkSession {
    /// Returns the next message; `None` once the client has disconnected. A message that does not need the service is
    /// handled here. [`end`](Self::end) the session afterwards.
    pub async fn next(&mut self) -> Option<LinkRequest> {
        self.in_batch = true;
        loop {
            if let Some(message) = self.unread.pop_front() {
                return Some(self.receive(message).await);
            }
            self.in_batch = false;
            let incoming = tokio::select! {
                incoming = self.inbox.recv() => incoming,
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(id) = ended {
                        self.running.remove(&id);
                    }
                    continue;
                }
            };
            match incoming {
                Some(LinkEvent::Message(bytes) | LinkEvent::StreamMessage(_, bytes)) => {
                    if !self.read(&bytes).await {
                        return Some(LinkRequest::Handled);
                    }
                }
                Some(LinkEvent::Noise(start)) => {
                    let error = format!("not a message: {}", start.escape_ascii());
                    self.send_error(-32700, &error).await;
                    return Some(LinkRequest::Handled);
                }
                Some(LinkEvent::Failed(..)) => {}
                Some(LinkEvent::Closed(_)) | None => return None,
            }
        }
    }

    /// Returns true if the last message belongs to the same batch as the one before.
    pub fn is_in_batch(&self) -> bool {
        self.in_batch
    }

    /// Rejects a request that was not answered yet.
    pub async fn refuse(&mut self, request: LinkRequest, error: RpcError) {
        let id = match request {
            LinkRequest::Initialize(request) => request.id,
            LinkRequest::Listen(request) => request.id,
            LinkRequest::Exchange(exchange) => exchange.id,
            LinkRequest::Handled => return,
        };
        self.lists.remove(&id);
        self.reject(id, error).await;
    }

    /// Reads the messages of a frame. Returns false if it was rejected.
    async fn read(&mut self, bytes: &Bytes) -> bool {
        match Message::read_from_client(bytes, self.endpoint.limits) {
            Ok(messages) => {
                self.unread.extend(messages);
                true
            }
            Err(error) => {
                let rejection = RpcError::new(error.code(), error.to_string());
                match error.request_id(bytes) {
                    Some(id) => self.reject(id, rejection).await,
                    None => self.send_error(rejection.code, &rejection.message).await,
                }
                false
            }
        }
    }

    async fn receive(&mut self, message: Message) -> LinkRequest {
        match message {
            Message::Request { id, method, params } => {
                let request = IncomingRequest::new(id, method, params, &TraceSource::Unknown);
                return match self.decode(request) {
                    Ok(request) => request,
                    Err((id, error)) => {
                        self.reject(id, error).await;
                        LinkRequest::Handled
                    }
                };
            }
            Message::Response { id, outcome } => self.data.pending.resolve(&id, outcome),
            Message::Notification { method, params } if &*method == "notifications/cancelled" => {
                let id = params.as_ref().and_then(cancelled_request_id);
                if let Some(running) = id.and_then(|id| self.running.remove(&id)) {
                    running.abort();
                }
            }
            Message::Notification { method, .. } => self.data.receive_notification(&method),
        }
        LinkRequest::Handled
    }

    fn decode(&mut self, request: IncomingRequest) -> Result<LinkRequest, (RequestId, RpcError)> {
        let newest = request.meta.version.is_some();
        if &*request.method == "initialize" && !newest {
            let request = InitializeRequest::read(request.id, &self.caller, request.params.as_ref())?;
            return Ok(LinkRequest::Initialize(request));
        }
        let rejection = if self.running.len() >= MAX_CONCURRENT_REQUESTS {
            Some(RpcError::new(-32603, "too many concurrent requests"))
        } else if self.running.contains_key(&request.id) {
            Some(RpcError::new(-32600, "a request with this id is already running"))
        } else if !newest && self.client_session.is_none() && &*request.method != "ping" {
            let error = check_meta(&request.meta).err();
            error.filter(|_| request.meta.is_present || &*request.method == "server/discover").or_else(|| {
                Some(RpcError::new(
                    -32600,
                    "start with `initialize`, or set the protocol revision in `_meta`",
                ))
            })
        } else {
            None
        };
        if let Some(error) = rejection {
            return Err((request.id, error));
        }
        if newest && &*request.method == "subscriptions/listen" {
            return ListenRequest::read(request).map(LinkRequest::Listen);
        }
        Ok(LinkRequest::Exchange(if newest {
            self.endpoint.start_stateless(&self.caller, request)
        } else {
            if let Some(kind) = ListKind::of_method(&request.method) {
                self.data.lists.begin(kind);
                self.lists.insert(request.id.clone(), kind);
            }
            let client_session = self.client_session.clone().unwrap_or_else(|| self.anonymous_session());
            self.endpoint.start_in_session(&client_session, request)
        }))
    }

    /// Responds with the description of the service, and starts to forward its changes.
    pub async fn initialize(
        &mut self,
        request: InitializeRequest,
        info: ServiceInfo,
        changes: impl Stream<Item = ServiceChange> + Send + 'static,
    ) {
        let result = request.response(info);
        let InitializeRequest { revision, ticket, .. } = request;
        let client_session = ClientSession {
            revision,
            identity: ticket.identity(),
            id: Some(ticket.id),
            capabilities: Arc::new(ticket.capabilities),
            state: SessionState::Connection(Arc::clone(&self.data)),
        };
        self.send(&result).await;
        let session_changes = SessionChanges(client_session.state.clone()).messages(changes);
        self.client_session = Some(client_session);
        self.change_tasks.shutdown().await;
        let out = self.out.clone();
        self.change_tasks.spawn(async move { forward_all(session_changes, &out).await });
    }

    /// Sends the changes that a client listens to, in the background.
    pub fn listen(
        &mut self,
        request: ListenRequest,
        source: impl Future<Output = ChangeSource> + Send + 'static,
    ) {
        let (id, out) = (request.id.clone(), self.out.clone());
        let task = self.tasks.spawn(async move {
            let id = request.id.clone();
            forward_all(request.messages(source.await), &out).await;
            id
        });
        self.subscription_tasks.retain(|task| !task.is_finished());
        self.subscription_tasks.push(task.clone());
        self.running.insert(id, task);
    }

    /// Drives an exchange to its response, in the background.
    pub fn respond(&mut self, exchange: RequestExchange) {
        let (id, out) = (exchange.id.clone(), self.out.clone());
        let list = self.lists.remove(&id).map(|kind| (kind, Arc::clone(&self.data)));
        let task = self.tasks.spawn(async move {
            let id = run(exchange, out.clone()).await;
            // A change during the first list is sent after it.
            if let Some((kind, data)) = list
                && data.lists.finish(kind)
            {
                for message in ServiceChange::of_list(kind).messages(&[]) {
                    send(&out, &message).await;
                }
            }
            id
        });
        self.running.insert(id, task);
    }

    /// Session of a client without a handshake; only `ping` gets this far.
    fn anonymous_session(&self) -> ClientSession {
        ClientSession {
            revision: Revision::NEWEST_WITH_HANDSHAKE,
            capabilities: Arc::new(serde_json::json!({})),
            identity: next_client_id(),
            id: None,
            state: SessionState::Connection(Arc::clone(&self.data)),
        }
    }

    /// Id of the session, once the client has completed the handshake.
    pub fn id(&self) -> Option<&str> {
        self.client_session.as_ref()?.id.as_deref()
    }

    /// Ends the session of a client that disconnected.
    pub async fn end(self) {
        self.end_within(DRAIN_TIMEOUT).await;
    }

    /// Waits up to `limit` for open requests to finish and for their responses to be written, then aborts the rest.
    pub async fn end_within(mut self, limit: Duration) {
        self.subscription_tasks.iter().for_each(AbortHandle::abort);
        self.change_tasks.shutdown().await;
        let drain = async {
            while self.tasks.join_next().await.is_some() {}
            let _ = self.out.send(LinkCommand::Close).await;
            // The writer drops its queue once everything is written. The reader ends with the inbox, or waits for the
            // client to close its side as well, to prevent a connection reset.
            self.out.closed().await;
            self.inbox.close();
            while self.transport.join_next().await.is_some() {}
        };
        let _ = timeout(limit, drain).await;
        self.tasks.shutdown().await;
    }

    async fn reject(&self, id: RequestId, error: RpcError) {
        self.send(&Message::Response { id, outcome: Err(error) }).await;
    }

    async fn send(&self, message: &Message) {
        send(&self.out, message).await;
    }

    async fn send_error(&self, code: i64, message: &str) {
        let error = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
        let _ = self.out.send(LinkCommand::Message(error.to_string().into())).await;
    }
}

async fn send(out: &mpsc::Sender<LinkCommand>, message: &Message) {
    let _ = out.send(LinkCommand::Message(message.to_bytes())).await;
}

async fn forward_all(
    mut messages: futures_util::stream::BoxStream<'static, Message>,
    out: &mpsc::Sender<LinkCommand>,
) {
    while let Some(message) = messages.next().await {
        if out.send(LinkCommand::Message(message.to_bytes())).await.is_err() {
            return;
        }
    }
}

async fn run(mut exchange: RequestExchange, out: mpsc::Sender<LinkCommand>) -> RequestId {
    loop {
        match exchange.next().await {
            ExchangeEvent::Message(message) => send(&out, &message).await,
            ExchangeEvent::End(message, _) => {
                send(&out, &message).await;
                return exchange.id;
            }
        }
    }
}
