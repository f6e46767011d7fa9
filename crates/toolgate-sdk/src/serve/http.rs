//! Tools over HTTP, at `/mcp`.
//!
//! Invariant: what comes from outside has a limit in size, time and number; a page of another origin is refused; and
//! without a token nobody outside of this machine gets in.

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
use toolgate_mcp::serve::{Belongs, Body, Endpoint, Head, Reply};
use toolgate_types::Secret;

use super::{Anyone, Served, TOKEN, endpoint};
use crate::tools::Tools;

/// Connections at once.
const MOST_CONNECTIONS: usize = 256;
/// The largest message.
const LARGEST_BODY: usize = 4 << 20;
/// How long a request may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// After an accept that failed, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be had.
    #[error("`{address}` cannot be listened on")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It could be reached from outside, by anyone.
    #[error("`{0}` can be reached from other machines\nhint: set `{TOKEN}`, or listen on 127.0.0.1")]
    Open(SocketAddr),
}

/// Tools that are served over HTTP.
pub struct Http {
    door: Arc<Door>,
    listener: TcpListener,
    address: SocketAddr,
}

struct Door {
    endpoint: Arc<Endpoint<Served>>,
    token: Option<Secret>,
    /// Whether only this machine can reach it, so that requests have to name it.
    local: bool,
}

impl Http {
    /// Listens on an address; port 0 is any that is free. Where a token is given, clients send it as
    /// `Authorization: Bearer …`.
    ///
    /// # Errors
    /// When the address cannot be had, or can be reached from other machines and there is no token.
    pub async fn bind(tools: Tools, address: SocketAddr, token: Option<String>) -> Result<Self, HttpError> {
        let token = token.filter(|token| !token.is_empty());
        let local = address.ip().is_loopback();
        if !local && token.is_none() {
            return Err(HttpError::Open(address));
        }
        let failed = |source| HttpError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let door = Door { endpoint: endpoint(tools), token: token.map(Secret::new), local };
        Ok(Self { door: Arc::new(door), listener, address })
    }

    /// The address, with the port that was free.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is dropped, and everything it began with it.
    pub async fn run(self) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let door = Arc::clone(&self.door);
                    connections.spawn(async move {
                        connection(door, stream).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn connection(door: Arc<Door>, stream: TcpStream) {
    // Small answers are to leave at once.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { Ok::<_, Infallible>(door.answer(request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(ARRIVAL);
    server.http2().timer(TokioTimer::new());
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection broke");
    }
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if let Err(status) = self.admit(request.headers(), request.uri().authority().map(|host| host.host()))
        {
            return plain(status);
        }
        if request.uri().path() != "/mcp" {
            return plain(StatusCode::NOT_FOUND);
        }
        let (parts, body) = request.into_parts();
        let head = Head { headers: &parts.headers, trace: Belongs::Unknown };
        match parts.method {
            Method::POST => {
                let read = timeout(ARRIVAL, Limited::new(body, LARGEST_BODY).collect()).await;
                match read {
                    Ok(Ok(body)) => sent(self.endpoint.post(&Anyone, head, body.to_bytes()).await),
                    Ok(Err(_)) => plain(StatusCode::PAYLOAD_TOO_LARGE),
                    Err(_) => plain(StatusCode::REQUEST_TIMEOUT),
                }
            }
            Method::GET => sent(self.endpoint.get(&Anyone, &head)),
            Method::DELETE => sent(self.endpoint.delete(&Anyone, &head)),
            _ => plain(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// Whether a request may come in. A name that leads to this machine by way of somebody else's name server is
    /// how pages reach what listens here, so the name has to be one of this machine.
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
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if is_same(given.as_bytes(), token.expose().as_bytes()) {
            Ok(())
        } else {
            Err(StatusCode::UNAUTHORIZED)
        }
    }
}

/// Compares without telling by its time how far two texts are the same.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Whether a host, with or without its port, is this machine.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // An address of version 6 without a port has no brackets, and colons of its own.
        _ if host.parse::<IpAddr>().is_ok() => host,
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn plain(status: StatusCode) -> Answer {
    let text = status.canonical_reason().unwrap_or_default();
    let mut answer = Response::new(Full::from(text).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

fn sent(reply: Reply) -> Answer {
    let Reply { status, session, body } = reply;
    let (kind, body) = match body {
        Body::Empty => (None, Full::default().boxed_unsync()),
        Body::Json(parts) => (Some("application/json"), Full::from(parts.concat()).boxed_unsync()),
        Body::Events(events) => {
            let frames = events.map(|event| Ok(Frame::data(event)));
            (Some("text/event-stream"), StreamBody::new(frames).boxed_unsync())
        }
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.extend(kind.map(|kind| (header::CONTENT_TYPE, HeaderValue::from_static(kind))));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(session) = session.and_then(|session| HeaderValue::try_from(session).ok()) {
        headers.insert("mcp-session-id", session);
    }
    answer
}

#[test]
fn whose_name_a_host_is() {
    for local in ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:7400", "[::1]:7400", "::1"] {
        assert!(is_local(local), "{local}");
    }
    for other in ["", "example.com", "localhost.example.com", "127.0.0.1.example.com:80", "10.0.0.1"] {
        assert!(!is_local(other), "{other}");
    }
}
