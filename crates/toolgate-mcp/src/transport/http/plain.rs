//! HTTP without TLS, for servers on this machine or beside it: connections that whoever asks moves himself.
//!
//! No task stands between a request and its connection. Whoever sends also polls the connection until his answer is
//! read, and puts it back for the next. What nobody uses is not watched: that the server closed it is found out with
//! the next request, which then gets another one. Invariant: a request that may have been sent is never sent again
//! from here, and a connection whose answer was not read to its end is never used again.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::http::uri::InvalidUri;
use hyper_util::rt::TokioIo;
use reqwest::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Method, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use url::{Host, Position, Url};

use super::super::root;
use super::AT_ONCE;
use super::client::AGENT;

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(60);
/// The longest head of an answer.
const HEAD_BYTES: usize = 64 << 10;
/// How often the system asks a silent connection whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection could be made, for this reason: nothing was sent.
    Unreachable(String),
    /// None was made in time.
    Late,
    /// It broke.
    Broken(hyper::Error),
}

/// A server, and the connections to it that wait for work.
pub(super) struct Plain {
    host: Host,
    port: u16,
    authority: HeaderValue,
    /// Where requests go mostly, and that as they say it.
    home: (Url, Uri),
    connect_timeout: Duration,
    idle: Mutex<Idle>,
}

/// Connections that wait for work, in the order in which they were put back.
#[derive(Default)]
struct Idle {
    connections: Vec<(Instant, Connection)>,
    /// Whether somebody closes those that wait for too long.
    is_swept: bool,
    /// Who does.
    sweeper: JoinSet<()>,
}

/// A connection, with what sends on it.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Driver,
}

/// What moves a connection, until it has ended. It is dropped then: what it still holds, such as a request that was not
/// sent, hears of the end only by that.
struct Driver(Option<Pin<Box<Moves>>>);

type Moves = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

impl Driver {
    /// Moves what is to be moved.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
            self.0 = None;
        }
    }
}

/// An answer whose body is still to be read.
pub(in crate::transport) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    connection: Option<Connection>,
    pool: Arc<Plain>,
}

impl Plain {
    /// For addresses without TLS and without a user in them; others are not for us.
    pub(super) fn new(url: &Url, connect_timeout: Duration) -> Option<Arc<Self>> {
        if url.scheme() != "http" || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        Some(Arc::new(Self {
            host: url.host()?.to_owned(),
            port: url.port_or_known_default()?,
            authority: HeaderValue::from_str(authority).ok()?,
            home: (url.clone(), target(url).ok()?),
            connect_timeout,
            idle: Mutex::default(),
        }))
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        self: &Arc<Self>,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Answer, Failure> {
        headers.insert(HOST, self.authority.clone());
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        let mut request = hyper::Request::new(Full::new(body.unwrap_or_default()));
        *request.uri_mut() = if *url == self.home.0 {
            self.home.1.clone()
        } else {
            target(url).map_err(|_| Failure::Unreachable("it has no path".to_owned()))?
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
                    let mut answer = Answer {
                        status: parts.status,
                        headers: parts.headers,
                        body,
                        connection: Some(connection),
                        pool: Arc::clone(self),
                    };
                    if answer.body.is_end_stream() {
                        answer.done();
                    }
                    return Ok(answer);
                }
                // It came back unsent: the server closed what we had kept.
                Err((Some(unsent), _)) if !is_new => request = unsent,
                Err((_, error)) => return Err(Failure::Broken(error)),
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let unreachable = |error: std::io::Error| Failure::Unreachable(root(&error));
        let connecting = async {
            match &self.host {
                Host::Domain(name) => TcpStream::connect((name.as_str(), self.port)).await,
                Host::Ipv4(address) => TcpStream::connect((*address, self.port)).await,
                Host::Ipv6(address) => TcpStream::connect((*address, self.port)).await,
            }
        };
        let stream = timeout(self.connect_timeout, connecting)
            .await
            .map_err(|_| Failure::Late)?
            .map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(unreachable)?;
        let made = http1::Builder::new().max_buf_size(HEAD_BYTES).handshake(TokioIo::new(stream)).await;
        let (sender, driver) = made.map_err(Failure::Broken)?;
        Ok(Connection { sender, driver: Driver(Some(Box::pin(driver))) })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was used last, which is the least likely to be closed.
    fn take(&self) -> Option<Connection> {
        self.idle().connections.pop().map(|(_, connection)| connection)
    }

    fn put(self: &Arc<Self>, connection: Connection) {
        let mut idle = self.idle();
        if idle.connections.len() < AT_ONCE {
            idle.connections.push((Instant::now(), connection));
        }
        if !std::mem::replace(&mut idle.is_swept, true) {
            while idle.sweeper.try_join_next().is_some() {}
            idle.sweeper.spawn(sweep(Arc::downgrade(self)));
        }
    }
}

/// What a request says of where it goes.
fn target(url: &Url) -> Result<Uri, InvalidUri> {
    url[Position::BeforePath..Position::AfterQuery].parse()
}

/// Closes what nobody uses, as long as there is something.
async fn sweep(pool: Weak<Plain>) {
    loop {
        sleep(IDLE).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let mut idle = pool.idle();
        let stale = idle.connections.iter().take_while(|(since, _)| now - *since >= IDLE).count();
        let gone: Vec<_> = idle.connections.drain(..stale).collect();
        idle.is_swept = !idle.connections.is_empty();
        let is_over = !idle.is_swept;
        drop(idle);
        drop(gone);
        if is_over {
            return;
        }
    }
}

impl Connection {
    async fn send(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, (Option<hyper::Request<Full<Bytes>>>, hyper::Error)> {
        let mut sending = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let sent = poll_fn(|cx| {
            if let Poll::Ready(answer) = sending.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            driver.drive(cx);
            sending.as_mut().poll(cx)
        });
        sent.await.map_err(|mut failed| (failed.take_message(), failed.into_error()))
    }
}

impl Answer {
    /// The next part of the body.
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
                    self.done();
                    return Ok(None);
                }
                Some(frame) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if self.body.is_end_stream() {
                        self.done();
                    }
                    return Ok(Some(data));
                }
            }
        }
    }

    /// The body was read: its connection is free.
    fn done(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        // What is left is to notice that the answer is over.
        connection.driver.drive(&mut Context::from_waker(std::task::Waker::noop()));
        if connection.driver.0.is_some() && connection.sender.is_ready() {
            self.pool.put(connection);
        }
    }
}

/// A connection that the server closes at once says so, also to a task that has done all that it may at a time: then a
/// queue looks empty that is not.
#[tokio::test]
async fn a_connection_that_ends_at_once_says_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let plain = Plain::new(&url, IDLE).unwrap();
    for spent in 0..128 {
        let mut connection = plain.connect().await.unwrap();
        drop(listener.accept().await.unwrap());
        tokio::task::yield_now().await;
        for _ in 0..spent {
            tokio::task::coop::consume_budget().await;
        }
        let sent = timeout(IDLE / 10, connection.send(hyper::Request::new(Full::default()))).await;
        assert!(sent.is_ok_and(|sent| sent.is_err()), "{spent}");
    }
}

/// What was kept and has been closed since is no way any more; the request takes another.
#[tokio::test]
async fn what_was_closed_meanwhile_is_not_used() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let plain = Plain::new(&url, IDLE).unwrap();
    for _ in 0..3 {
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1 << 10]).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            stream
        };
        let asked = async {
            let mut answer = plain.send(Method::GET, &url, HeaderMap::new(), None).await.unwrap();
            assert_eq!(answer.chunk().await.unwrap().as_deref(), Some(&b"{}"[..]));
        };
        let (stream, ()) = timeout(IDLE / 10, async { tokio::join!(served, asked) }).await.unwrap();
        assert_eq!(plain.idle().connections.len(), 1, "it is kept");
        drop(stream);
        tokio::task::yield_now().await;
    }
}
