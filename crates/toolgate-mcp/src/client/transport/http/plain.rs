//! HTTP/1.1 without TLS, for servers on this machine or network: the requesting task drives the connection itself.
//!
//! There is no task between a request and its connection. The sender polls the connection until the response is read,
//! then returns it to the pool. Idle connections are not watched: a connection that the server closed is detected by
//! the next request, which then opens a new one. Invariant: a request that may have been sent is never sent again
//! from here, and a connection whose response was not read to the end is never reused.

use std::io::Write as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING, USER_AGENT};
use reqwest::{Method, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use toolgate_http::client::{ClientConnection, ClientError, ResponseHead};
use url::{Host, Position, Url};

use super::super::{RemoteOptions, root_cause};
use super::client::{RequestHeaders, TOOLGATE_AGENT};
use crate::network::{AddressPolicy, BlockedAddress};

/// Idle connections are closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Usual size of a request head.
const HEAD_CAPACITY: usize = 512;
/// TCP keep-alive interval.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Failure of a request.
#[derive(Debug)]
pub(super) enum PlainError {
    /// No connection was made, so nothing was sent.
    Unreachable(String),
    /// The address is not allowed.
    Blocked(BlockedAddress),
    /// Connecting timed out.
    ConnectTimeout,
    /// The connection broke, or the response is invalid.
    Broken(ClientError),
}

/// Connection pool for one server.
pub(super) struct PlainPool {
    host: Host,
    port: u16,
    /// End of the request line and the headers that every request has.
    fixed_head: String,
    connect_timeout: Duration,
    /// Idle connections that are kept.
    max_idle: usize,
    addresses: AddressPolicy,
    idle: Mutex<IdleConnections>,
}

type PlainConnection = ClientConnection<TcpStream>;

/// Idle connections, least recently used first.
#[derive(Default)]
struct IdleConnections {
    connections: Vec<(Instant, PlainConnection)>,
    /// True while a sweeper task runs.
    is_swept: bool,
    /// Task that closes connections after [`IDLE_TIMEOUT`].
    sweeper: JoinSet<()>,
}

/// Response whose body is still to be read.
pub(in crate::client::transport) struct PlainResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// `None` after the body was read.
    connection: Option<PlainConnection>,
    pool: Arc<PlainPool>,
}

impl PlainPool {
    /// Creates a pool; `None` for URLs with TLS or credentials, which this client does not support.
    pub(super) fn new(options: &RemoteOptions) -> Option<Arc<Self>> {
        let RemoteOptions { url, connect_timeout, max_concurrent, addresses, .. } = options;
        if url.scheme() != "http" || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        let fixed_head = format!(" HTTP/1.1\r\nhost: {authority}\r\n");
        Some(Arc::new(Self {
            host: url.host()?.to_owned(),
            port: url.port_or_known_default()?,
            fixed_head,
            connect_timeout: *connect_timeout,
            max_idle: *max_concurrent,
            addresses: addresses.clone(),
            idle: Mutex::default(),
        }))
    }

    /// Writes the head of a request.
    fn head(
        &self,
        method: &Method,
        url: &Url,
        headers: &RequestHeaders<'_>,
        length: Option<usize>,
    ) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD_CAPACITY);
        head.extend_from_slice(method.as_str().as_bytes());
        head.push(b' ');
        head.extend_from_slice(url[Position::BeforePath..Position::AfterQuery].as_bytes());
        head.extend_from_slice(self.fixed_head.as_bytes());
        let mut has_agent = false;
        for (name, value) in headers.all() {
            // The framing and the host are set here alone.
            if ![HOST, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
                has_agent |= *name == USER_AGENT;
                add_header(&mut head, name.as_str(), value);
            }
        }
        if !has_agent {
            add_header(&mut head, USER_AGENT.as_str(), TOOLGATE_AGENT.as_bytes());
        }
        if let Some(length) = length {
            // Writing to memory does not fail.
            let _ = write!(head, "{CONTENT_LENGTH}: {length}\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        self: &Arc<Self>,
        method: Method,
        url: &Url,
        headers: &RequestHeaders<'_>,
        body: Option<&Bytes>,
    ) -> Result<PlainResponse, PlainError> {
        let head = self.head(&method, url, headers, body.map(Bytes::len));
        let body = body.map_or(&[][..], |body| body);
        loop {
            let (mut connection, is_new) = match self.take() {
                Some(connection) => (connection, false),
                None => (self.connect().await?, true),
            };
            match connection.send(&method, &head, body).await {
                Ok(ResponseHead { status, headers, .. }) => {
                    let mut response = PlainResponse {
                        status,
                        headers,
                        connection: Some(connection),
                        pool: Arc::clone(self),
                    };
                    response.release_if_complete();
                    return Ok(response);
                }
                // The server had closed the idle connection. Use another one.
                Err(ClientError::Unsent(_)) if !is_new => {}
                Err(error) => return Err(PlainError::Broken(error)),
            }
        }
    }

    async fn connect(&self) -> Result<PlainConnection, PlainError> {
        let unreachable = |error: std::io::Error| match BlockedAddress::find(&error) {
            Some(blocked) => PlainError::Blocked(blocked.clone()),
            None => PlainError::Unreachable(root_cause(&error)),
        };
        let connecting = async {
            let addresses = self.addresses.resolve(self.host.clone(), self.port).await?;
            TcpStream::connect(&*addresses).await
        };
        let stream = timeout(self.connect_timeout, connecting)
            .await
            .map_err(|_| PlainError::ConnectTimeout)?
            .map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(unreachable)?;
        Ok(ClientConnection::new(stream))
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
        if idle.connections.len() < self.max_idle {
            idle.connections.push((Instant::now(), connection));
        }
        if !std::mem::replace(&mut idle.is_swept, true) {
            while idle.sweeper.try_join_next().is_some() {}
            idle.sweeper.spawn(sweep(Arc::downgrade(self)));
        }
    }
}

fn add_header(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
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

impl PlainResponse {
    /// Reads the next chunk of the body.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let chunk = connection.chunk().await?;
        self.release_if_complete();
        Ok(chunk)
    }

    /// The bytes of the body that are still to be read, if their number is known.
    pub(super) fn body_length(&self) -> Option<u64> {
        self.connection.as_ref()?.body_length()
    }

    /// Reads more of a body of known length. Returns the body when it is complete.
    pub(super) async fn buffer_body(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Some(connection) = &mut self.connection else { return Ok(Some(Bytes::new())) };
        let body = connection.buffer_body().await?;
        self.release_if_complete();
        Ok(body)
    }

    /// Returns the connection to the pool after the body was read.
    fn release_if_complete(&mut self) {
        let Some(connection) = self.connection.take_if(|connection| connection.is_complete()) else { return };
        if connection.is_reusable() {
            self.pool.put_back(connection);
        }
    }
}

/// Closing is detected even by a task that has used up its cooperative budget, for which a non-empty queue looks empty.
#[tokio::test]
async fn closed_connection_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let pool =
        PlainPool::new(&RemoteOptions { connect_timeout: IDLE_TIMEOUT, ..RemoteOptions::new(url.clone()) })
            .unwrap();
    for spent in 0..128 {
        let mut connection = pool.connect().await.unwrap();
        drop(listener.accept().await.unwrap());
        tokio::task::yield_now().await;
        for _ in 0..spent {
            tokio::task::coop::consume_budget().await;
        }
        let sent = connection.send(&Method::GET, b"GET / HTTP/1.1\r\n\r\n", b"");
        assert!(timeout(IDLE_TIMEOUT / 10, sent).await.is_ok_and(|sent| sent.is_err()), "{spent}");
    }
}

/// A pooled connection that was closed meanwhile is replaced.
#[tokio::test]
async fn closed_pooled_connection_is_replaced() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let pool =
        PlainPool::new(&RemoteOptions { connect_timeout: IDLE_TIMEOUT, ..RemoteOptions::new(url.clone()) })
            .unwrap();
    for _ in 0..3 {
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1 << 10]).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            stream
        };
        let requested = async {
            let mut response = pool.send(Method::GET, &url, &RequestHeaders::default(), None).await.unwrap();
            assert_eq!(response.chunk().await.unwrap().as_deref(), Some(&b"{}"[..]));
        };
        let (stream, ()) =
            timeout(IDLE_TIMEOUT / 10, async { tokio::join!(served, requested) }).await.unwrap();
        assert_eq!(pool.idle().connections.len(), 1, "it is pooled");
        drop(stream);
        tokio::task::yield_now().await;
    }
}
