//! Accepts connections, within limits of number and time.
//!
//! HTTP/1.1 only, with TLS if a certificate is configured; a reverse proxy may speak more. Invariant: idle connections
//! end, no write stalls forever, and no client can take all connections.

pub(crate) mod tls;
mod write_timeout;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use tokio::task::JoinSet;
use toolgate_http::server::ServerOptions;
use toolgate_types::ServeConfig;

use crate::Gateway;
use crate::auth::TrustedProxies;
use crate::handler::RequestHandler;
use tls::{PeerCertificate, TlsContext, TlsError};
use write_timeout::WriteTimeout;

/// Time to send the head of a request, and maximum idle time between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Jitter of the timeout for the first head, as a fraction.
const HEAD_JITTER: f64 = 0.4;
/// Bytes per request head.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// Pause after a failed accept, such as when file descriptors run out.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Listen backlog; the system may allow less. A client that finds it full retries after one second, then after two
/// more. With the usual 128, good clients among many bad ones would hit that.
const BACKLOG: u32 = 4_096;
/// Connections to the Unix socket in the project directory. More wait in the backlog.
const MAX_SOCKET_CONNECTIONS: usize = 64;
/// Response for connections over the limit.
const RESPONSE_FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// Addresses of both ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionEnds {
    pub(crate) peer: IpAddr,
    /// The client: the peer, or the address that a trusted proxy reports for one request.
    pub(crate) client: IpAddr,
    pub(crate) local: IpAddr,
    /// True for TLS connections.
    pub(crate) secure: bool,
}

/// Origin of a connection.
#[derive(Debug, Clone)]
pub(crate) enum ConnectionSource {
    /// The Unix socket in the project directory.
    LocalSocket,
    /// The network, with the verified client certificate, if any.
    Network(ConnectionEnds, Option<Arc<PeerCertificate>>),
}

/// Connection limits, and the TLS context if a certificate is configured.
pub(crate) struct ListenerState {
    limits: Arc<ConnectionLimits>,
    tls: Option<TlsContext>,
}

impl ListenerState {
    pub(crate) fn new(config: &ServeConfig) -> Result<Self, TlsError> {
        let tls = config.tls.clone().map(|tls| TlsContext::open(tls, tokio::time::Instant::now()));
        Ok(Self { limits: Arc::new(ConnectionLimits::new(config)), tls: tls.transpose()? })
    }

    /// Takes over changed limits. Connections over them stay open.
    pub(crate) fn replace(&self, config: &ServeConfig) {
        self.limits.bounds.store(Arc::new(ConnectionBounds::new(config)));
    }
}

/// Binds the listening socket.
///
/// # Errors
/// Fails if the address is in use, or not an address of this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Without this, a restart fails while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

pub(crate) async fn serve(gateway: &Arc<Gateway>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let mut closing = pin!(gateway.lifecycle.closing());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let peer = peer.ip().to_canonical();
                    match ConnectionLimits::acquire(&gateway.listener.limits, peer) {
                        Some(permit) => {
                            let gateway = Arc::clone(gateway);
                            connections.spawn(async move {
                                handle_connection(gateway, stream, peer).await;
                                drop(permit);
                            });
                        }
                        None => {
                            tracing::warn!(%peer, "connection refused: too many connections");
                            let _ = stream.try_write(RESPONSE_FULL);
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!("a connection task failed: {error}");
                }
            }
            () = &mut closing => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves the Unix socket. Accepts only the user that runs the gateway, and root.
pub(crate) async fn serve_socket(gateway: &Arc<Gateway>, listener: UnixListener) {
    let mut connections = JoinSet::new();
    let mut closing = pin!(gateway.lifecycle.closing());
    let own = rustix::process::geteuid().as_raw();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_SOCKET_CONNECTIONS => match accepted {
                Ok((stream, _)) if stream.peer_cred().is_ok_and(|peer| [own, 0].contains(&peer.uid())) => {
                    let gateway = Arc::clone(gateway);
                    connections.spawn(async move { serve_http(gateway, stream, ConnectionSource::LocalSocket).await });
                }
                Ok(_) => tracing::warn!("refused a connection of another user to the socket"),
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = &mut closing => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn handle_connection(gateway: Arc<Gateway>, stream: TcpStream, peer: IpAddr) {
    let Ok(local) = stream.local_addr() else { return };
    // Responses are written whole, so Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let (local, secure) = (local.ip().to_canonical(), gateway.listener.tls.is_some());
    let ends = ConnectionEnds { peer, client: peer, local, secure };
    if gateway.listener.tls.is_some() {
        // Boxed, so that plain connections do not reserve space for the TLS future.
        Box::pin(serve_tls(gateway, stream, ends)).await;
    } else {
        serve_http(gateway, stream, ConnectionSource::Network(ends, None)).await;
    }
}

async fn serve_tls(gateway: Arc<Gateway>, stream: TcpStream, ends: ConnectionEnds) {
    let Some(tls) = &gateway.listener.tls else { return };
    let handshake = tokio::select! {
        handshake = tls.accept(stream) => handshake,
        () = gateway.lifecycle.closing() => return,
    };
    match handshake {
        Ok((stream, certificate)) => {
            serve_http(
                Arc::clone(&gateway),
                stream,
                ConnectionSource::Network(ends, certificate.map(Arc::new)),
            )
            .await;
        }
        Err(error) => tracing::debug!(peer = %ends.peer, "TLS handshake failed: {error}"),
    }
}

/// Serves HTTP on a connection until it ends.
async fn serve_http<S>(gateway: Arc<Gateway>, stream: S, source: ConnectionSource)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _connection = gateway.lifecycle.track_connection();
    let options = ServerOptions {
        max_head_bytes: MAX_HEAD_BYTES,
        first_head_timeout: first_head_timeout(),
        head_timeout: HEAD_TIMEOUT,
    };
    let handler = Arc::new(RequestHandler::new(Arc::clone(&gateway), source));
    let serving = toolgate_http::server::serve(
        WriteTimeout::new(stream),
        options,
        // Boxed, so that idle connections hold no space for a response future.
        |request| {
            let handler = Arc::clone(&handler);
            Box::pin(async move { handler.handle(request).await })
        },
        gateway.lifecycle.closing(),
    );
    if let Err(error) = serving.await {
        tracing::debug!(source = ?handler.source, "a connection ended early: {error}");
    }
}

/// Timeout for the first head, with jitter: clients that connected at the same moment do not all time out and reconnect
/// at the same moment.
fn first_head_timeout() -> Duration {
    HEAD_TIMEOUT.mul_f64(1.0 - HEAD_JITTER * fastrand::f64())
}

/// Groups client addresses: IPv4 by address, IPv6 by /64 prefix, which one subscriber usually owns.
pub(crate) fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// Connection limits, in total and per client address.
struct ConnectionLimits {
    bounds: ArcSwap<ConnectionBounds>,
    counts: Mutex<ConnectionCounts>,
}

/// Numbers of connections, from the configuration.
struct ConnectionBounds {
    max_total: usize,
    max_per_address: usize,
    /// These connect for many clients, so only the total limits them.
    proxies: TrustedProxies,
}

#[derive(Default)]
struct ConnectionCounts {
    all: usize,
    per_address: HashMap<IpAddr, usize>,
}

impl ConnectionBounds {
    fn new(config: &ServeConfig) -> Self {
        let number = |number: std::num::NonZeroU32| usize::try_from(number.get()).unwrap_or(usize::MAX);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        // Servers, child processes and the log need file descriptors too, and one address must leave room for others.
        let part = |of: usize| of / 4 * 3;
        let max_total = number(config.max_connections).min(part(files)).max(1);
        let per_address = number(config.max_connections_per_address);
        let max_per_address = if per_address < max_total { per_address } else { part(max_total).max(1) };
        let proxies = TrustedProxies::new(&config.trusted_proxies);
        Self { max_total, max_per_address, proxies }
    }
}

impl ConnectionLimits {
    fn new(config: &ServeConfig) -> Self {
        Self { bounds: ArcSwap::from_pointee(ConnectionBounds::new(config)), counts: Mutex::default() }
    }

    /// Acquires a connection permit, unless a limit is reached.
    fn acquire(connection_limits: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let bounds = connection_limits.bounds.load();
        let is_proxy = bounds.proxies.contains(address);
        let address = client_key(address);
        let mut counts = connection_limits.counts.lock();
        let per_address = counts.per_address.get(&address).copied().unwrap_or(0);
        let is_full = per_address >= bounds.max_per_address && !is_proxy;
        if counts.all >= bounds.max_total || is_full {
            return None;
        }
        counts.all += 1;
        counts.per_address.insert(address, per_address + 1);
        Some(ConnectionPermit { connection_limits: Arc::clone(connection_limits), address })
    }
}

/// Counts as a connection until dropped.
struct ConnectionPermit {
    connection_limits: Arc<ConnectionLimits>,
    address: IpAddr,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.connection_limits.counts.lock();
        counts.all -= 1;
        match counts.per_address.get_mut(&self.address) {
            Some(1) | None => drop(counts.per_address.remove(&self.address)),
            Some(per_address) => *per_address -= 1,
        }
    }
}

/// Memory of an open connection besides its read and write buffers.
#[test]
fn connection_future_is_small() {
    fn size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        std::mem::size_of::<F>()
    }
    let plain = size(handle_connection);
    assert!(plain <= 2 << 10, "{plain} bytes");
}

#[test]
fn one_address_cannot_take_every_connection() {
    let config = ServeConfig {
        max_connections: 4.try_into().unwrap(),
        max_connections_per_address: 100.try_into().unwrap(),
        ..ServeConfig::default()
    };
    let connection_limits = Arc::new(ConnectionLimits::new(&config));
    let acquire = |address: &str| ConnectionLimits::acquire(&connection_limits, address.parse().unwrap());
    let held: Vec<_> = (0..4).filter_map(|_| acquire("10.0.0.1")).collect();
    assert_eq!(held.len(), 3, "one address gets three quarters");
    let other = acquire("::ffff:10.0.0.2");
    assert!(other.is_some() && acquire("10.0.0.3").is_none(), "four in all");
    drop(held);
    assert!(acquire("10.0.0.1").is_some());
    let trusted_proxies = vec!["10.0.0.9".parse().unwrap()];
    let behind_proxy = Arc::new(ConnectionLimits::new(&ServeConfig { trusted_proxies, ..config.clone() }));
    let held: Vec<_> =
        (0..5).filter_map(|_| ConnectionLimits::acquire(&behind_proxy, [10, 0, 0, 9].into())).collect();
    assert_eq!(held.len(), 4, "a trusted proxy may use all of them");
    assert_eq!(connection_limits.counts.lock().per_address.len(), 1, "closed connections are not counted");
}

#[test]
fn the_canned_response_is_valid_http() {
    let (head, body) = std::str::from_utf8(RESPONSE_FULL).unwrap().split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}: {}", body.len());
}

#[test]
fn first_head_timeouts_are_jittered() {
    let times: Vec<_> = (0..100).map(|_| first_head_timeout()).collect();
    assert!(times.iter().all(|time| (HEAD_TIMEOUT / 2..=HEAD_TIMEOUT).contains(time)), "{times:?}");
    assert!(times.iter().max().unwrap().saturating_sub(*times.iter().min().unwrap()) > HEAD_TIMEOUT / 5);
}

#[test]
fn ipv6_addresses_share_a_key_per_64_prefix() {
    let of = |address: &str| client_key(address.parse().unwrap()).to_string();
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(of("::ffff:10.0.0.2"), "10.0.0.2");
}
