//! Serves tools over Streamable HTTP, at `/mcp`.
//!
//! Invariant: requests are limited in size, time and number; requests from pages of another origin are rejected; and
//! without a token only this machine can connect.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toolgate_mcp::mirror::{HeaderMirror, find_mirrors};
use toolgate_mcp::server::{
    GetRequest, HttpReply, PostRequest, ReplyBody, RequestHead, TraceSource, respond_batch,
};
use toolgate_types::Secret;

use super::{ANYONE, TOKEN_VARIABLE, ToolServer, no_changes};
use crate::tools::Tools;

/// Maximum concurrent connections.
const MAX_CONNECTIONS: usize = 256;
/// Largest request body, in bytes.
const MAX_BODY: usize = 4 << 20;
/// Deadline for receiving a request.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, for example when file descriptors are exhausted.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

type HttpResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Reason why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is in use or not allowed.
    #[error("cannot listen on `{address}`")]
    Bind {
        /// Address to listen on.
        address: SocketAddr,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Other machines could connect, and no token is set.
    #[error("`{0}` can be reached from other machines\nhint: set `{TOKEN_VARIABLE}`, or listen on 127.0.0.1")]
    TokenRequired(SocketAddr),
}

/// HTTP server for tools.
pub struct HttpServer {
    handler: Arc<HttpHandler>,
    listener: TcpListener,
    address: SocketAddr,
}

struct HttpHandler {
    server: ToolServer,
    token: Option<Secret>,
    /// True if only this machine can connect. Requests must then name it in `Host`, against DNS rebinding.
    local: bool,
}

impl HttpServer {
    /// Listens on an address; port 0 picks a free one. If a token is given, clients must send it as
    /// `Authorization: Bearer …`.
    ///
    /// # Errors
    /// If the address cannot be bound, or is reachable from other machines and there is no token.
    pub async fn bind(tools: Tools, address: SocketAddr, token: Option<String>) -> Result<Self, HttpError> {
        let token = token.filter(|token| !token.is_empty());
        let local = address.ip().is_loopback();
        if !local && token.is_none() {
            return Err(HttpError::TokenRequired(address));
        }
        let failed = |source| HttpError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let handler = HttpHandler { server: ToolServer::new(tools), token: token.map(Secret::new), local };
        Ok(Self { handler: Arc::new(handler), listener, address })
    }

    /// Returns the address with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the future is dropped, which also ends every connection.
    pub async fn run(self) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let handler = Arc::clone(&self.handler);
                    connections.spawn(async move {
                        serve_connection(handler, stream).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }
}

async fn serve_connection(handler: Arc<HttpHandler>, stream: TcpStream) {
    // Send small responses without delay.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.respond(request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    server.http2().timer(TokioTimer::new());
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection failed");
    }
}

impl HttpHandler {
    async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
        if let Err(status) = self.admit(request.headers(), request.uri().authority().map(|host| host.host()))
        {
            return status_response(status);
        }
        if request.uri().path() != "/mcp" {
            return status_response(StatusCode::NOT_FOUND);
        }
        let (parts, body) = request.into_parts();
        let head = RequestHead { headers: &parts.headers, trace: TraceSource::Unknown };
        match parts.method {
            Method::POST => {
                let read = timeout(READ_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
                match read {
                    Ok(Ok(body)) => mcp_response(self.server.post(&head, &body.to_bytes()).await),
                    Ok(Err(_)) => status_response(StatusCode::PAYLOAD_TOO_LARGE),
                    Err(_) => status_response(StatusCode::REQUEST_TIMEOUT),
                }
            }
            Method::GET => mcp_response(self.server.get(&head)),
            Method::DELETE => mcp_response(self.server.delete(&head)),
            _ => status_response(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// Checks host, origin and token of a request. The host must be a name of this machine: DNS rebinding lets a web
    /// page reach local servers under a foreign name.
    fn admit(&self, headers: &HeaderMap, host: Option<&str>) -> Result<(), StatusCode> {
        let own = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or(own).unwrap_or_default();
        if self.local && !is_local(host) {
            return Err(StatusCode::FORBIDDEN);
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            let is_own = origin.is_some_and(|(_, of)| is_local(of) || of == host);
            if !is_own {
                return Err(StatusCode::FORBIDDEN);
            }
        }
        let Some(token) = &self.token else { return Ok(()) };
        let presented = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let presented = presented.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if constant_time_eq(presented.as_bytes(), token.expose().as_bytes()) {
            Ok(())
        } else {
            Err(StatusCode::UNAUTHORIZED)
        }
    }
}

/// Compares in a time that does not reveal the number of equal bytes.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Returns true if a host, with or without port, is this machine.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // An IPv6 address without a port has colons of its own and no brackets.
        _ if host.parse::<IpAddr>().is_ok() => host,
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn status_response(status: StatusCode) -> HttpResponse {
    let text = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn mcp_response(reply: HttpReply) -> HttpResponse {
    let HttpReply { status, session, body } = reply;
    let (kind, body) = match body {
        ReplyBody::Empty => (None, Full::default().boxed_unsync()),
        ReplyBody::Json(parts) => (Some("application/json"), Full::from(parts.concat()).boxed_unsync()),
        ReplyBody::Events(events) => {
            let frames = events.map(|event| Ok(Frame::data(event)));
            (Some("text/event-stream"), StreamBody::new(frames).boxed_unsync())
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.extend(kind.map(|kind| (header::CONTENT_TYPE, HeaderValue::from_static(kind))));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(session) = session.and_then(|session| HeaderValue::try_from(session).ok()) {
        headers.insert("mcp-session-id", session);
    }
    response
}

impl ToolServer {
    async fn post(&self, head: &RequestHead<'_>, body: &Bytes) -> HttpReply {
        let exchange = match self.endpoint.decode_post(&ANYONE, head, body) {
            PostRequest::Reply(reply) => return reply,
            PostRequest::Initialize(request) => return self.endpoint.initialize(&request, self.describe()),
            PostRequest::Listen(request) => return request.reply(no_changes()),
            PostRequest::ToolCall(call) => {
                let mirrors = self.mirrors(call.tool());
                self.endpoint.check_mirrors(&ANYONE, head, call, &mirrors)
            }
            PostRequest::Exchange(exchange) => Ok(exchange),
            PostRequest::Batch(mut batch) => {
                batch.iter_mut().for_each(|exchange| self.answer(exchange));
                return respond_batch(batch).await;
            }
        };
        match exchange {
            Ok(mut exchange) => {
                self.answer(&mut exchange.exchange);
                self.endpoint.respond(exchange).await
            }
            Err(reply) => reply,
        }
    }

    fn get(&self, head: &RequestHead<'_>) -> HttpReply {
        match self.endpoint.decode_get(&ANYONE, head) {
            GetRequest::Reply(reply) => reply,
            GetRequest::Changes(request) => request.reply(no_changes().changes),
        }
    }

    fn delete(&self, head: &RequestHead<'_>) -> HttpReply {
        self.endpoint.delete(&ANYONE, head).0
    }

    fn mirrors(&self, tool: &str) -> Vec<HeaderMirror> {
        let schema = self.tools.get(tool).map(|tool| &tool.definition().input_schema);
        schema.and_then(|schema| find_mirrors(schema).ok()).unwrap_or_default()
    }
}

#[test]
fn recognizes_local_hosts() {
    for local in ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:7400", "[::1]:7400", "::1"] {
        assert!(is_local(local), "{local}");
    }
    for other in ["", "example.com", "localhost.example.com", "127.0.0.1.example.com:80", "10.0.0.1"] {
        assert!(!is_local(other), "{other}");
    }
}
