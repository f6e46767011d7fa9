//! MCP over HTTP: `/mcp` (Streamable HTTP), `/sse` (the transport of the first revision), and `/ws` (WebSocket).

pub(crate) mod sse;
pub(crate) mod ws;

use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use toolgate_mcp::Link;
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::server::{
    GetRequest, HttpExchange, HttpReply, LinkRequest, McpEndpoint, PostRequest, ReplyBody, RequestHead,
    TraceSource, respond_batch,
};
use toolgate_runtime::Runtime;

use crate::auth::{Authenticated, HttpError};
use crate::lifecycle::Lifecycle;
use crate::mcp_service::{McpCaller, McpService};
use crate::route::profile_name;
use crate::{Gateway, body};
use sse::SseSessions;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// MCP sessions over WebSockets open at the same time.
const MAX_WEBSOCKETS: usize = 4_096;

/// The MCP endpoint, and the sessions that outlive the request that opened them.
pub(crate) struct McpFrontEnd {
    /// Decodes requests and encodes responses.
    endpoint: Arc<McpEndpoint>,
    /// Answers the decoded requests.
    pub(crate) service: McpService,
    pub(crate) message_limits: ScanLimits,
    pub(crate) sse_sessions: SseSessions,
    /// Tasks of WebSocket sessions.
    websockets: Mutex<JoinSet<()>>,
    lifecycle: Arc<Lifecycle>,
}

impl McpFrontEnd {
    pub(crate) fn new(runtime: &Arc<Runtime>, lifecycle: &Arc<Lifecycle>, max_body: usize) -> Self {
        let message_limits = ScanLimits { size: max_body, depth: body::MAX_DEPTH };
        Self {
            endpoint: McpEndpoint::new(message_limits),
            service: McpService::new(runtime, lifecycle),
            message_limits,
            sse_sessions: SseSessions::default(),
            websockets: Mutex::default(),
            lifecycle: Arc::clone(lifecycle),
        }
    }

    async fn post(&self, mcp_caller: &McpCaller, head: &RequestHead<'_>, body: &Bytes) -> HttpReply {
        let (endpoint, service, id) = (&self.endpoint, &self.service, mcp_caller.id());
        match endpoint.decode_post(id, head, body) {
            PostRequest::Reply(reply) => reply,
            PostRequest::Initialize(request) => {
                endpoint.initialize(&request, service.info(mcp_caller, request.revision()))
            }
            PostRequest::Listen(request) => {
                let source = service.clone().change_source(mcp_caller.clone(), request.uris().to_vec());
                request.reply(source.await)
            }
            PostRequest::ToolCall(call) => {
                let mirrors = service.mirrors(mcp_caller, call.tool());
                match endpoint.check_mirrors(id, head, call, &mirrors) {
                    Ok(exchange) => self.respond(mcp_caller, exchange).await,
                    Err(reply) => reply,
                }
            }
            PostRequest::Exchange(exchange) => self.respond(mcp_caller, exchange).await,
            PostRequest::Batch(mut batch) => {
                batch.iter_mut().for_each(|exchange| service.answer(mcp_caller, exchange));
                respond_batch(batch).await
            }
        }
    }

    async fn respond(&self, mcp_caller: &McpCaller, mut exchange: HttpExchange) -> HttpReply {
        self.service.answer(mcp_caller, &mut exchange.exchange);
        self.endpoint.respond(exchange).await
    }

    /// Serves one client over a link until it disconnects.
    pub(crate) async fn serve_link(&self, mcp_caller: McpCaller, link: Link) {
        let service = &self.service;
        let mut session = self.endpoint.open_link(mcp_caller.id(), link);
        while let Some(request) = session.next().await {
            match request {
                LinkRequest::Initialize(request) => {
                    let info = service.info(&mcp_caller, request.revision());
                    session.initialize(request, info, service.changes(&mcp_caller)).await;
                }
                LinkRequest::Listen(request) => {
                    let source = service.clone().change_source(mcp_caller.clone(), request.uris().to_vec());
                    session.listen(request, source);
                }
                LinkRequest::Exchange(mut exchange) => {
                    service.answer(&mcp_caller, &mut exchange);
                    session.respond(exchange);
                }
            }
        }
        session.end().await;
    }

    /// Runs a WebSocket session in the background until it ends or the gateway closes.
    fn spawn_websocket(&self, session: impl Future<Output = ()> + Send + 'static) -> Result<(), HttpError> {
        let mut tasks = self.websockets.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= MAX_WEBSOCKETS {
            return Err(HttpError::unavailable("too many WebSocket sessions are open"));
        }
        let lifecycle = Arc::clone(&self.lifecycle);
        tasks.spawn(async move {
            let _connection = lifecycle.track_connection();
            tokio::select! {
                () = session => {}
                () = lifecycle.closing() => {}
            }
        });
        Ok(())
    }
}

/// Handles a request of Streamable HTTP.
pub(crate) async fn handle(
    gateway: &Arc<Gateway>,
    auth: &Authenticated,
    parts: &Parts,
    profile: Option<&str>,
    body: Bytes,
) -> Result<Response, HttpError> {
    let headers = &parts.headers;
    let mcp_caller = if gateway.authenticator.is_limited_by_scopes(&auth.caller, auth.lifetime) {
        McpCaller::limited_by_scopes(&auth.caller)
    } else {
        McpCaller::new(&auth.caller)
    };
    let mcp_caller = mcp_caller.with_profile(profile_name(profile, parts)?);
    let request_head = request_head(auth, headers);
    let reply = match parts.method {
        Method::GET => match gateway.mcp.endpoint.decode_get(mcp_caller.id(), &request_head) {
            GetRequest::Reply(reply) => reply,
            GetRequest::Changes(request) => request.reply(gateway.mcp.service.changes(&mcp_caller)),
        },
        Method::DELETE => gateway.mcp.endpoint.delete(mcp_caller.id(), &request_head),
        _ => gateway.mcp.post(&mcp_caller, &request_head, &body).await,
    };
    // Only for a single response: of a batch, other calls have run, and a stream has started.
    match mcp_caller.missing_permissions() {
        Some(missing) if is_single_response(&reply) && gateway.authenticator.has_scope_for(missing) => {
            Err(HttpError::missing_permissions(missing))
        }
        _ => Ok(respond(gateway, auth, reply)),
    }
}

/// Returns true if the reply is a single JSON response, not a batch or a stream.
fn is_single_response(reply: &HttpReply) -> bool {
    matches!(&reply.body, ReplyBody::Json(parts) if parts.first().is_some_and(|part| part.starts_with(b"{")))
}

fn request_head<'a>(auth: &Authenticated, headers: &'a HeaderMap) -> RequestHead<'a> {
    let trace = auth.trace.clone();
    // Without ids in the headers, those in `_meta` may be used.
    let trace = if auth.has_correlation_id || auth.has_traceparent {
        TraceSource::To(trace)
    } else {
        TraceSource::Fallback(trace)
    };
    RequestHead { headers, trace }
}

fn respond(gateway: &Arc<Gateway>, auth: &Authenticated, reply: HttpReply) -> Response {
    let (kind, body) = match reply.body {
        ReplyBody::Empty => (None, HttpBody::empty()),
        ReplyBody::Json(mut parts) => {
            let body = match parts.as_mut_slice() {
                [only] => HttpBody::from(std::mem::take(only)),
                _ => HttpBody::new(PartsBody::new(parts)),
            };
            (Some("application/json"), body)
        }
        ReplyBody::Events(events) => (Some("text/event-stream"), stream_body(gateway, auth, events)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(kind) = kind {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if reply.status == 405 {
        headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    if let Some(session) = reply.session.and_then(|session| HeaderValue::from_str(&session).ok()) {
        headers.insert(SESSION_ID, session);
    }
    response
}

/// Turns events into a response body. The stream ends with the gateway, and with the credential that opened it.
fn stream_body(
    gateway: &Arc<Gateway>,
    auth: &Authenticated,
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> HttpBody {
    let (gateway, lifetime) = (Arc::clone(gateway), auth.lifetime);
    let end = async move {
        tokio::select! {
            () = gateway.lifecycle.closing() => {}
            () = gateway.authenticator.wait_for_expiry(lifetime) => {}
        }
    };
    HttpBody::from_stream(events.take_until(Box::pin(end)).map(Ok::<_, std::convert::Infallible>))
}

/// Body of several parts, sent in order with their total length.
struct PartsBody {
    parts: std::vec::IntoIter<Bytes>,
    remaining: u64,
}

impl PartsBody {
    fn new(parts: Vec<Bytes>) -> Self {
        let remaining = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts: parts.into_iter(), remaining }
    }
}

impl hyper::body::Body for PartsBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        let part = self.parts.next();
        if let Some(part) = &part {
            self.remaining -= part.len() as u64;
        }
        std::task::Poll::Ready(part.map(|part| Ok(hyper::body::Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.as_slice().is_empty()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.remaining)
    }
}
