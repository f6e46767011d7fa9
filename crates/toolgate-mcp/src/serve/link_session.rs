//! Endpoint on a link: lines, WebSocket, or HTTP+SSE.
//!
//! One link is one client; its requests end with it. A client may use the handshake, or the newest revision request by
//! request. Invariant: the read loop never waits for a request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::exchange::{ExchangeEvent, RequestExchange};
use super::http::{TraceSource, cancelled_request_id};
use super::incoming::{
    ClientSession, IncomingRequest, InitializeParams, SessionState, check_meta, next_client_id,
};
use super::session::{SessionData, SessionTicket};
use super::{CallerIdentity as _, McpEndpoint, Service, negotiate};
use crate::link::{Link, LinkCommand, LinkEvent};
use crate::message::{Message, RequestId, RpcError};
use crate::revision::Revision;

/// Concurrent requests of one client.
const MAX_CONCURRENT_REQUESTS: usize = 256;
/// Time to finish open requests after the client closed its side: `echo … | server` closes the pipe right after its
/// request. Shorter than the time child processes get to exit.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// State of one link.
struct LinkSession {
    out: mpsc::Sender<LinkCommand>,
    data: Arc<SessionData>,
    client_session: Option<ClientSession>,
    running: HashMap<RequestId, AbortHandle>,
    tasks: JoinSet<RequestId>,
    /// Tasks of `subscriptions/listen`; they end only with the client.
    subscription_tasks: Vec<AbortHandle>,
    /// Task that forwards notifications that belong to no request.
    change_tasks: JoinSet<()>,
}

impl<S: Service> McpEndpoint<S> {
    /// Serves one client until it disconnects. Requests that are still running shortly after are cancelled.
    pub async fn serve_link(self: &Arc<Self>, caller: S::Caller, link: Link) {
        let Link { outbox, mut inbox, tasks: transport, .. } = link;
        let mut link_session = LinkSession {
            out: outbox,
            data: Arc::default(),
            client_session: None,
            running: HashMap::new(),
            tasks: JoinSet::new(),
            subscription_tasks: Vec::new(),
            change_tasks: JoinSet::new(),
        };
        loop {
            let incoming = tokio::select! {
                incoming = inbox.recv() => incoming,
                Some(ended) = link_session.tasks.join_next() => {
                    if let Ok(id) = ended {
                        link_session.running.remove(&id);
                    }
                    continue;
                }
            };
            match incoming {
                Some(LinkEvent::Message(bytes) | LinkEvent::StreamMessage(_, bytes)) => {
                    self.receive(&caller, &mut link_session, &bytes).await;
                }
                Some(LinkEvent::Noise(start)) => {
                    let error = format!("not a message: {}", start.escape_ascii());
                    link_session.send_error(-32700, &error).await;
                }
                Some(LinkEvent::Failed(..)) => {}
                Some(LinkEvent::Closed(_)) | None => break,
            }
        }
        link_session.end(transport).await;
    }

    async fn receive(self: &Arc<Self>, caller: &S::Caller, link_session: &mut LinkSession, bytes: &Bytes) {
        let messages = match Message::read_from_client(bytes, self.limits) {
            Ok(messages) => messages,
            Err(error) => {
                let rejection = RpcError::new(error.code(), error.to_string());
                return match error.request_id(bytes) {
                    Some(id) => link_session.send(&Message::Response { id, outcome: Err(rejection) }).await,
                    None => link_session.send_error(rejection.code, &rejection.message).await,
                };
            }
        };
        for message in messages {
            match message {
                Message::Request { id, method, params } => {
                    let request = IncomingRequest::new(id, method, params, &TraceSource::Unknown);
                    self.request(caller, link_session, request).await;
                }
                Message::Response { id, outcome } => link_session.data.pending.resolve(&id, outcome),
                Message::Notification { method, params } if &*method == "notifications/cancelled" => {
                    if let Some(running) = params
                        .as_ref()
                        .and_then(cancelled_request_id)
                        .and_then(|id| link_session.running.remove(&id))
                    {
                        running.abort();
                    }
                }
                Message::Notification { .. } => {}
            }
        }
    }

    async fn request(
        self: &Arc<Self>,
        caller: &S::Caller,
        link_session: &mut LinkSession,
        request: IncomingRequest,
    ) {
        let newest = request.meta.version.is_some();
        if &*request.method == "initialize" && !newest {
            return self.initialize(caller, link_session, request).await;
        }
        let rejection = if link_session.running.len() >= MAX_CONCURRENT_REQUESTS {
            Some(RpcError::new(-32603, "too many concurrent requests"))
        } else if link_session.running.contains_key(&request.id) {
            Some(RpcError::new(-32600, "a request with this id is already running"))
        } else if !newest && link_session.client_session.is_none() && &*request.method != "ping" {
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
            return link_session.send(&Message::Response { id: request.id, outcome: Err(error) }).await;
        }
        let (id, out) = (request.id.clone(), link_session.out.clone());
        let listens = newest && &*request.method == "subscriptions/listen";
        let task = if listens {
            let (endpoint, caller) = (Arc::clone(self), caller.clone());
            link_session.tasks.spawn(async move {
                match endpoint.listen(&caller, &request.id, request.params.as_ref()).await {
                    Ok(messages) => forward_all(messages, &out).await,
                    Err(error) => {
                        send(&out, &Message::Response { id: request.id.clone(), outcome: Err(error) }).await
                    }
                }
                request.id
            })
        } else {
            let exchange = if newest {
                self.start_stateless(caller, request)
            } else {
                let client_session =
                    link_session.client_session.clone().unwrap_or_else(|| link_session.anonymous_session());
                self.start_in_session(caller, &client_session, request)
            };
            link_session.tasks.spawn(run(exchange, out))
        };
        if listens {
            link_session.subscription_tasks.retain(|task| !task.is_finished());
            link_session.subscription_tasks.push(task.clone());
        }
        link_session.running.insert(id, task);
    }

    /// Handles `initialize` and starts to forward changes.
    async fn initialize(
        self: &Arc<Self>,
        caller: &S::Caller,
        link_session: &mut LinkSession,
        request: IncomingRequest,
    ) {
        let initialize = match InitializeParams::read(request.params.as_ref()) {
            Ok(initialize) => initialize,
            Err(error) => {
                return link_session.send(&Message::Response { id: request.id, outcome: Err(error) }).await;
            }
        };
        let revision = negotiate(initialize.protocol_version.as_deref());
        let ticket = SessionTicket::new(caller.id(), revision, initialize.capabilities);
        let client_session = ClientSession {
            revision,
            identity: ticket.identity(),
            id: Some(ticket.id),
            capabilities: ticket.capabilities,
            state: SessionState::Connection(Arc::clone(&link_session.data)),
        };
        let result =
            Message::Response { id: request.id, outcome: Ok(self.initialize_result(caller, revision)) };
        link_session.send(&result).await;
        let session_changes = self.session_changes(caller, client_session.state.clone());
        link_session.client_session = Some(client_session);
        link_session.change_tasks.shutdown().await;
        let out = link_session.out.clone();
        link_session.change_tasks.spawn(async move { forward_all(session_changes, &out).await });
    }
}

impl LinkSession {
    /// Session of a client without a handshake; only `ping` gets this far.
    fn anonymous_session(&self) -> ClientSession {
        ClientSession {
            revision: Revision::NEWEST_WITH_HANDSHAKE,
            capabilities: serde_json::json!({}),
            identity: next_client_id(),
            id: None,
            state: SessionState::Connection(Arc::clone(&self.data)),
        }
    }

    /// Waits for open requests to finish, then aborts the rest.
    async fn end(mut self, mut transport: JoinSet<()>) {
        self.subscription_tasks.iter().for_each(AbortHandle::abort);
        self.change_tasks.shutdown().await;
        let drain = async {
            while self.tasks.join_next().await.is_some() {}
            let _ = self.out.send(LinkCommand::Close).await;
            // The writer task ends once everything is written.
            while transport.join_next().await.is_some() {}
        };
        let _ = timeout(DRAIN_TIMEOUT, drain).await;
        self.tasks.shutdown().await;
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
