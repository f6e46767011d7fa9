//! Connections: taken one by one, within limits of number and time.
//!
//! A loop of our own, as `axum::serve` sets no timer and a client that sends half of a header would stay for
//! ever. HTTP/1.1 alone, with TLS where there is a certificate: what is in front of it may speak more. Invariant: a connection that does nothing ends,
//! and nobody has all of them.

mod again;
mod lines;
mod pace;
pub(crate) mod tls;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use tokio::task::JoinSet;
use toolgate_types::DoorRules;

use crate::entry::Entry;
use crate::{Door, rest};
use again::again;
use pace::{Begun, Paced};
use tls::Shown;

/// How long a client may take to send the head of a request, and how long it may say nothing between two.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The part of it that the first head may have to do without.
const HEAD_SPREAD: f64 = 0.4;
/// Headers of a request.
const MOST_HEADERS: usize = 64;
/// Bytes of them.
const HEAD_BYTES: usize = 32 << 10;
/// How long to wait where the system has no more room for a connection.
const NO_ROOM: Duration = Duration::from_millis(100);
/// Connections that may wait to be taken; the system may allow fewer. Whoever comes when all wait tries again only after
/// a second, and then after two more: with the 128 that is the custom, a good client among many bad ones would.
const WAITING: u32 = 4_096;
/// Connections to the socket in the project's folder; more wait.
const MOST_AT_MACHINE: usize = 64;
/// What is said to whoever finds no place.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// What is said to whoever sends a head that two readers could understand differently.
const UNCLEAR: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 92\r\nconnection: close\r\n\r\n\
    where a line or a body ends is not clear: end each line with CR LF, and say one length once\n";

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
    /// Whether nobody between could listen.
    pub(crate) secure: bool,
}

/// Where the requests of a connection come from.
#[derive(Debug, Clone)]
pub(crate) enum Whence {
    /// The socket in the project's folder.
    Machine,
    /// The network, with the certificate that was shown.
    Network(Ends, Option<Arc<Shown>>),
}

/// A place to take connections at, before there is a door.
///
/// # Errors
/// When the address is taken, or not ours.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Or who starts again soon would find the address taken by the connections that were.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

pub(crate) async fn serve(door: &Arc<Door>, listener: TcpListener) {
    let router = rest::router(door);
    let mut connections = JoinSet::new();
    let mut closing = pin!(door.running.closing());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let peer = peer.ip().to_canonical();
                    match Places::take(&door.places, peer) {
                        Some(place) => {
                            let (door, router) = (Arc::clone(door), router.clone());
                            connections.spawn(async move {
                                converse(door, router, stream, peer).await;
                                drop(place);
                            });
                        }
                        None => {
                            tracing::warn!(%peer, "a connection is refused: there are too many");
                            let _ = stream.try_write(FULL);
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!("a connection could not be taken: {error}");
                    tokio::time::sleep(NO_ROOM).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!("a connection ended badly: {error}");
                }
            }
            () = &mut closing => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The same for the socket in the project's folder. Only who runs us may speak there, and its system's superuser.
pub(crate) async fn serve_socket(door: &Arc<Door>, listener: UnixListener) {
    let router = rest::router(door);
    let mut connections = JoinSet::new();
    let mut closing = pin!(door.running.closing());
    let own = rustix::process::geteuid().as_raw();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_AT_MACHINE => match accepted {
                Ok((stream, _)) if stream.peer_cred().is_ok_and(|peer| [own, 0].contains(&peer.uid())) => {
                    let (door, router) = (Arc::clone(door), router.clone());
                    connections.spawn(async move { talk(door, router, stream, Whence::Machine).await });
                }
                Ok(_) => tracing::warn!("somebody else came to the socket"),
                Err(error) => {
                    tracing::warn!("a connection could not be taken: {error}");
                    tokio::time::sleep(NO_ROOM).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = &mut closing => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// One connection, until its end.
async fn converse(door: Arc<Door>, router: Router, stream: TcpStream, peer: IpAddr) {
    let Ok(local) = stream.local_addr() else { return };
    // Answers are written whole; waiting for more of them helps nobody.
    let _ = stream.set_nodelay(true);
    let ends = Ends { peer, local: local.ip().to_canonical(), secure: door.tls.is_some() };
    if door.tls.is_some() {
        // Apart, or every connection without TLS would hold the place of one that has it.
        Box::pin(secure(door, router, stream, ends)).await;
    } else {
        talk(door, router, stream, Whence::Network(ends, None)).await;
    }
}

/// One connection with TLS, until its end.
async fn secure(door: Arc<Door>, router: Router, stream: TcpStream, ends: Ends) {
    let Some(tls) = &door.tls else { return };
    let agreed = tokio::select! {
        agreed = tls.accept(stream) => agreed,
        () = door.running.closing() => return,
    };
    match agreed {
        Ok((stream, shown)) => {
            talk(Arc::clone(&door), router, stream, Whence::Network(ends, shown.map(Arc::new))).await;
        }
        Err(error) => tracing::debug!(peer = %ends.peer, "there is no TLS with a client: {error}"),
    }
}

/// Requests and answers.
async fn talk<S>(door: Arc<Door>, router: Router, stream: S, whence: Whence)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _counted = door.running.connection();
    let mut closing = pin!(door.running.closing());
    let mut stream = Paced::new(stream);
    tokio::select! {
        begun = stream.begun(HEAD_BYTES, first_head_time()) => match begun {
            Begun::Yes => {}
            Begun::No => return,
            Begun::Unclear => {
                let _ = stream.write_all(UNCLEAR).await;
                return;
            }
        },
        () = &mut closing => return,
    }
    let entry = Arc::new(Entry::new(Arc::clone(&door), router, whence));
    let answering = Arc::clone(&entry);
    // In a box: what waits for its next request holds no room for an answer.
    let service = service_fn(move |request| {
        let entry = Arc::clone(&answering);
        Box::pin(async move { Ok::<_, Infallible>(entry.answer(request).await) })
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        // A WebSocket begins as a request.
        .with_upgrades();
    let mut connection = pin!(connection);
    let outcome = again(async {
        tokio::select! {
            outcome = &mut connection => outcome,
            () = &mut closing => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    })
    .await;
    if let Err(error) = outcome {
        tracing::debug!(whence = ?entry.whence, "a connection ended early: {error}");
    }
}

/// How long this client may take. Those who came in one moment are not all closed in one moment, and so do not all come
/// again in one, which everybody else would have to wait for.
fn first_head_time() -> Duration {
    HEAD_TIME.mul_f64(1.0 - HEAD_SPREAD * fastrand::f64())
}

/// Who is counted together: one address, or the network that one subscriber has of the newer kind.
pub(crate) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// Places for connections, in all and by address.
pub(crate) struct Places {
    most: usize,
    most_each: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    each: HashMap<IpAddr, usize>,
}

impl Places {
    pub(crate) fn new(rules: &DoorRules) -> Self {
        let number = |number: std::num::NonZeroU32| usize::try_from(number.get()).unwrap_or(usize::MAX);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        // Servers, their processes and the log need files too, and one address must leave some for others.
        let part = |of: usize| of / 4 * 3;
        let most = number(rules.max_connections).min(part(files)).max(1);
        let each = number(rules.max_connections_per_address);
        let most_each = if each < most { each } else { part(most).max(1) };
        Self { most, most_each, taken: Mutex::default() }
    }

    /// A place, as long as it is held.
    pub(crate) fn take(places: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = neighbourhood(address);
        let mut taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let each = taken.each.get(&address).copied().unwrap_or(0);
        if taken.all >= places.most || each >= places.most_each {
            return None;
        }
        taken.all += 1;
        taken.each.insert(address, each + 1);
        Some(Place { places: Arc::clone(places), address })
    }
}

/// A place, given back by whoever drops it.
pub(crate) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        match taken.each.get_mut(&self.address) {
            Some(1) | None => drop(taken.each.remove(&self.address)),
            Some(each) => *each -= 1,
        }
    }
}

/// What a connection holds beside the buffers of its reader and writer, as long as it is open.
#[test]
fn a_connection_is_small() {
    fn size<A, B, C, D, F>(_: impl Fn(A, B, C, D) -> F) -> usize {
        std::mem::size_of::<F>()
    }
    let plain = size(converse);
    assert!(plain <= 2 << 10, "{plain} bytes");
}

#[test]
fn nobody_has_all_the_places() {
    let rules = DoorRules {
        max_connections: 4.try_into().unwrap(),
        max_connections_per_address: 100.try_into().unwrap(),
        ..DoorRules::default()
    };
    let places = Arc::new(Places::new(&rules));
    let take = |address: &str| Places::take(&places, address.parse().unwrap());
    let held: Vec<_> = (0..4).filter_map(|_| take("10.0.0.1")).collect();
    assert_eq!(held.len(), 3, "three quarters are for one");
    let other = take("::ffff:10.0.0.2");
    assert!(other.is_some() && take("10.0.0.3").is_none(), "four in all");
    drop(held);
    assert!(take("10.0.0.1").is_some());
    assert_eq!(places.taken.lock().unwrap().each.len(), 1, "who left is not counted");
}

#[test]
fn what_is_said_without_a_reader_is_http() {
    for said in [FULL, UNCLEAR] {
        let (head, body) = std::str::from_utf8(said).unwrap().split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}: {}", body.len());
    }
}

#[test]
fn clients_that_drip_are_not_closed_in_one_moment() {
    let times: Vec<_> = (0..100).map(|_| first_head_time()).collect();
    assert!(times.iter().all(|time| (HEAD_TIME / 2..=HEAD_TIME).contains(time)), "{times:?}");
    assert!(times.iter().max().unwrap().saturating_sub(*times.iter().min().unwrap()) > HEAD_TIME / 5);
}

#[test]
fn neighbours_of_the_newer_kind_count_together() {
    let of = |address: &str| neighbourhood(address.parse().unwrap()).to_string();
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(of("::ffff:10.0.0.2"), "10.0.0.2");
}
