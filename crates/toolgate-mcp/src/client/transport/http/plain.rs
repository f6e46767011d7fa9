//! HTTP/1.1 without TLS, for servers on this machine or network: the requesting task drives the connection itself.
//!
//! There is no task between a request and its connection. The sender polls the connection until the response is read,
//! then returns it to the pool. Idle connections are not watched: a connection that the server closed is detected by
//! the next request, which then opens a new one. Invariant: a request that may have been sent is never sent again
//! from here, and a connection whose response was not read to the end is never reused.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::http::uri::InvalidUri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use reqwest::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Method, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use url::{Host, Position, Url};

use super::super::root_cause;
use super::MAX_CONCURRENT;
use super::client::TOOLGATE_AGENT;

/// Idle connections are closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// TCP keep-alive interval.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Failure of a request.
#[derive(Debug)]
pub(super) enum PlainError {
    /// No connection was made, so nothing was sent.
    Unreachable(String),
    /// Connecting timed out.
    ConnectTimeout,
    /// The connection broke.
    Broken(hyper::Error),
}

/// Connection pool for one server.
pub(super) struct PlainPool {
    host: Host,
    port: u16,
    authority: HeaderValue,
    /// Usual URL of requests, with its parsed form, so that it is not parsed for each one.
    usual_target: (Url, Uri),
    connect_timeout: Duration,
    idle: Mutex<IdleConnections>,
}

/// Idle connections, least recently used first.
#[derive(Default)]
struct IdleConnections {
    connections: Vec<(Instant, PlainConnection)>,
    /// True while a sweeper task runs.
    is_swept: bool,
    /// Task that closes connections after [`IDLE_TIMEOUT`].
    sweeper: JoinSet<()>,
}

struct PlainConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: ConnectionDriver,
}

/// Future that drives a connection. It is dropped as soon as it ends: a request that it still holds learns of the end
/// only by that.
struct ConnectionDriver(Option<Pin<Box<HyperConnection>>>);

type HyperConnection = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

impl ConnectionDriver {
    /// Polls the connection.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
            self.0 = None;
        }
    }
}

/// Response whose body is still to be read.
pub(in crate::client::transport) struct PlainResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    connection: Option<PlainConnection>,
    pool: Arc<PlainPool>,
}

impl PlainPool {
    /// Creates a pool; `None` for URLs with TLS or credentials, which this client does not support.
    pub(super) fn new(url: &Url, connect_timeout: Duration) -> Option<Arc<Self>> {
        if url.scheme() != "http" || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        Some(Arc::new(Self {
            host: url.host()?.to_owned(),
            port: url.port_or_known_default()?,
            authority: HeaderValue::from_str(authority).ok()?,
            usual_target: (url.clone(), target(url).ok()?),
            connect_timeout,
            idle: Mutex::default(),
        }))
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        self: &Arc<Self>,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<PlainResponse, PlainError> {
        headers.insert(HOST, self.authority.clone());
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(TOOLGATE_AGENT));
        let mut request = hyper::Request::new(Full::new(body.unwrap_or_default()));
        *request.uri_mut() = if *url == self.usual_target.0 {
            self.usual_target.1.clone()
        } else {
            target(url).map_err(|_| PlainError::Unreachable("it has no path".to_owned()))?
        };
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        loop {
            let (mut connection, is_new) = match self.take() {
                Some(connection) => (connection, false),
                None => (self.connect().await?, true),
            };
            match connection.send(request).await {
                Ok(response) => {
                    let (parts, body) = response.into_parts();
                    let mut response = PlainResponse {
                        status: parts.status,
                        headers: parts.headers,
                        body,
                        connection: Some(connection),
                        pool: Arc::clone(self),
                    };
                    if response.body.is_end_stream() {
                        response.release();
                    }
                    return Ok(response);
                }
                // Not sent: the server had closed the idle connection. Use another one.
                Err((Some(unsent), _)) if !is_new => request = unsent,
                Err((_, error)) => return Err(PlainError::Broken(error)),
            }
        }
    }

    async fn connect(&self) -> Result<PlainConnection, PlainError> {
        let unreachable = |error: std::io::Error| PlainError::Unreachable(root_cause(&error));
        let connecting = async {
            match &self.host {
                Host::Domain(name) => TcpStream::connect((name.as_str(), self.port)).await,
                Host::Ipv4(address) => TcpStream::connect((*address, self.port)).await,
                Host::Ipv6(address) => TcpStream::connect((*address, self.port)).await,
            }
        };
        let stream = timeout(self.connect_timeout, connecting)
            .await
            .map_err(|_| PlainError::ConnectTimeout)?
            .map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(unreachable)?;
        let handshake =
            http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await;
        let (sender, driver) = handshake.map_err(PlainError::Broken)?;
        Ok(PlainConnection { sender, driver: ConnectionDriver(Some(Box::pin(driver))) })
    }

    fn idle(&self) -> parking_lot::MutexGuard<'_, IdleConnections> {
        self.idle.lock()
    }

    /// Takes the most recently used connection, which is the least likely to be closed.
    fn take(&self) -> Option<PlainConnection> {
        self.idle().connections.pop().map(|(_, connection)| connection)
    }

    fn put_back(self: &Arc<Self>, connection: PlainConnection) {
        let mut idle = self.idle();
        if idle.connections.len() < MAX_CONCURRENT {
            idle.connections.push((Instant::now(), connection));
        }
        if !std::mem::replace(&mut idle.is_swept, true) {
            while idle.sweeper.try_join_next().is_some() {}
            idle.sweeper.spawn(sweep(Arc::downgrade(self)));
        }
    }
}

/// Request target: path and query.
fn target(url: &Url) -> Result<Uri, InvalidUri> {
    url[Position::BeforePath..Position::AfterQuery].parse()
}

/// Closes connections that were idle for too long. Ends when there are none left.
async fn sweep(pool: Weak<PlainPool>) {
    loop {
        sleep(IDLE_TIMEOUT).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let mut idle = pool.idle();
        let stale = idle.connections.iter().take_while(|(since, _)| now - *since >= IDLE_TIMEOUT).count();
        let closed: Vec<_> = idle.connections.drain(..stale).collect();
        idle.is_swept = !idle.connections.is_empty();
        let is_over = !idle.is_swept;
        drop(idle);
        drop(closed);
        if is_over {
            return;
        }
    }
}

impl PlainConnection {
    async fn send(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, (Option<hyper::Request<Full<Bytes>>>, hyper::Error)> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let sent = poll_fn(|cx| {
            if let Poll::Ready(response) = sending.as_mut().poll(cx) {
                return Poll::Ready(response);
            }
            driver.drive(cx);
            sending.as_mut().poll(cx)
        });
        sent.await.map_err(|mut failed| (failed.take_message(), failed.into_error()))
    }
}

impl PlainResponse {
    /// Reads the next chunk of the body.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            let frame = poll_fn(|cx| {
                let polled = Pin::new(&mut self.body).poll_frame(cx);
                let (Poll::Pending, Some(connection)) = (&polled, &mut self.connection) else {
                    return polled;
                };
                connection.driver.drive(cx);
                Pin::new(&mut self.body).poll_frame(cx)
            })
            .await;
            match frame.transpose()? {
                None => {
                    self.release();
                    return Ok(None);
                }
                Some(frame) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if self.body.is_end_stream() {
                        self.release();
                    }
                    return Ok(Some(data));
                }
            }
        }
    }

    /// Returns the connection to the pool after the body was read.
    fn release(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        // Lets hyper notice that the response is complete.
        connection.driver.drive(&mut Context::from_waker(std::task::Waker::noop()));
        if connection.driver.0.is_some() && connection.sender.is_ready() {
            self.pool.put_back(connection);
        }
    }
}

/// Closing is detected even by a task that has used up its cooperative budget, for which a non-empty queue looks empty.
#[tokio::test]
async fn closed_connection_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let pool = PlainPool::new(&url, IDLE_TIMEOUT).unwrap();
    for spent in 0..128 {
        let mut connection = pool.connect().await.unwrap();
        drop(listener.accept().await.unwrap());
        tokio::task::yield_now().await;
        for _ in 0..spent {
            tokio::task::coop::consume_budget().await;
        }
        let sent = timeout(IDLE_TIMEOUT / 10, connection.send(hyper::Request::new(Full::default()))).await;
        assert!(sent.is_ok_and(|sent| sent.is_err()), "{spent}");
    }
}

/// A pooled connection that was closed meanwhile is replaced.
#[tokio::test]
async fn closed_pooled_connection_is_replaced() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let pool = PlainPool::new(&url, IDLE_TIMEOUT).unwrap();
    for _ in 0..3 {
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1 << 10]).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            stream
        };
        let requested = async {
            let mut response = pool.send(Method::GET, &url, HeaderMap::new(), None).await.unwrap();
            assert_eq!(response.chunk().await.unwrap().as_deref(), Some(&b"{}"[..]));
        };
        let (stream, ()) =
            timeout(IDLE_TIMEOUT / 10, async { tokio::join!(served, requested) }).await.unwrap();
        assert_eq!(pool.idle().connections.len(), 1, "it is pooled");
        drop(stream);
        tokio::task::yield_now().await;
    }
}
