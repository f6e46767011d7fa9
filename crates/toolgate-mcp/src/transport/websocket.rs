//! WebSocket: one message per text frame.
//!
//! No revision of the protocol describes this transport; what servers agree on is the subprotocol
//! `mcp`, and some know not even that. Invariant: reading and writing are two tasks, and a
//! connection on which nothing comes back for three pings is given up.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::handshake::client::{Request, Response};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::http::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, SEC_WEBSOCKET_PROTOCOL, WWW_AUTHENTICATE,
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use super::http::client::{excerpt, header_pairs};
use super::{OpenError, RemoteOptions, redirect, root, shown, tls};
use crate::link::{Incoming, Link, LinkError, Outgoing, QUEUE, Request as Ours};
use crate::scan::Limits;

/// How often we ask whether the server is still there.
pub const PING: Duration = Duration::from_secs(20);
/// Silence of so many pings is the end.
const PINGS_LOST: u32 = 3;
/// How long the other side may take to say goodbye.
const FAREWELL_TIME: Duration = Duration::from_secs(2);
const EXCERPT: usize = 256;

/// Either kind of connection.
pub(crate) trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

pub(crate) type Socket = WebSocketStream<Box<dyn Pipe>>;

/// Connects, within `connect_timeout`. `ping` is [`PING`] outside of tests.
pub async fn open(options: RemoteOptions, ping: Duration, limits: Limits) -> Result<Link, OpenError> {
    let socket = timeout(options.connect_timeout, connect(&options, limits)).await.map_err(|_| {
        LinkError::Io(format!(
            "cannot connect to `{}` within {:?}",
            shown(&options.url),
            options.connect_timeout
        ))
    })??;
    Ok(speak(socket, ping, limits))
}

/// The server's side: speaks over a connection whose handshake was answered.
pub async fn accept(pipe: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, limits: Limits) -> Link {
    let pipe: Box<dyn Pipe> = Box::new(pipe);
    let socket = WebSocketStream::from_raw_socket(pipe, Role::Server, Some(config(limits))).await;
    speak(socket, PING, limits)
}

/// What the handshake is answered with, by what the client sent.
pub fn accept_key(sent: &[u8]) -> String {
    derive_accept_key(sent)
}

/// Speaks over a connection that stands.
pub(crate) fn speak(socket: Socket, ping: Duration, limits: Limits) -> Link {
    let (sink, stream) = socket.split();
    let (outbox, outgoing) = mpsc::channel(QUEUE);
    let (incoming, inbox) = mpsc::channel(QUEUE);
    let (closing, closed) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(write(sink, outgoing, closing, ping));
    tasks.spawn(async move {
        let end = read(stream, &incoming, closed, ping * PINGS_LOST, limits).await;
        let _ = incoming.send(Incoming::Closed(end)).await;
    });
    Link::new(outbox, inbox, tasks)
}

/// No more is held than one message may have.
pub(crate) fn config(limits: Limits) -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(limits.size)).max_frame_size(Some(limits.size))
}

async fn connect(options: &RemoteOptions, limits: Limits) -> Result<Socket, OpenError> {
    let mut request = request(options)?;
    if let Some(socket) = shake_hands(options, request.clone(), limits).await? {
        return Ok(socket);
    }
    request.headers_mut().remove(SEC_WEBSOCKET_PROTOCOL);
    let socket = shake_hands(options, request, limits).await?;
    socket.ok_or_else(|| LinkError::Io("the server does not keep to one subprotocol".to_owned()).into())
}

fn request(options: &RemoteOptions) -> Result<Request, OpenError> {
    let mut url = options.url.clone();
    let address = || OpenError::Address { url: shown(&options.url), takes: "`ws://` and `wss://`" };
    if !matches!(url.scheme(), "ws" | "wss") || url.host().is_none() {
        return Err(address());
    }
    let login = (!url.username().is_empty()).then(|| {
        let login = STANDARD.encode(format!("{}:{}", url.username(), url.password().unwrap_or_default()));
        HeaderValue::try_from(format!("Basic {login}")).expect("base64 is a header value")
    });
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let mut request = url.as_str().into_client_request().map_err(|_| address())?;
    let headers = request.headers_mut();
    headers.extend(login.map(|login| (AUTHORIZATION, login)));
    for (name, value) in header_pairs(options)? {
        headers.insert(name, value);
    }
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mcp"));
    Ok(request)
}

/// One connection; `None` where the server says nothing about the subprotocol that it was offered.
/// By the rules that ends the connection, and it is asked again without an offer.
async fn shake_hands(
    options: &RemoteOptions,
    request: Request,
    limits: Limits,
) -> Result<Option<Socket>, OpenError> {
    let pipe = reach(options).await?;
    match client_async_with_config(request, pipe, Some(config(limits))).await {
        Ok((socket, _)) => Ok(Some(socket)),
        Err(Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
            SubProtocolError::NoSubProtocol,
        ))) => Ok(None),
        Err(Error::Http(response)) => Err(refusal(&options.url, &response).into()),
        Err(error) => {
            let shown = shown(&options.url);
            let other = || LinkError::Io(format!("`{shown}` does not speak WebSocket: {error}"));
            Err(tls::failure(&error, &shown).unwrap_or_else(other).into())
        }
    }
}

async fn reach(options: &RemoteOptions) -> Result<Box<dyn Pipe>, OpenError> {
    let shown = shown(&options.url);
    let failed = |error: std::io::Error| {
        let broken = || LinkError::Io(format!("cannot connect to `{shown}`: {}", root(&error)));
        tls::failure(&error, &shown).unwrap_or_else(broken)
    };
    let addresses = addresses(&options.url).await.map_err(failed)?;
    let tcp = TcpStream::connect(&*addresses).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    if options.url.scheme() == "ws" {
        return Ok(Box::new(tcp));
    }
    let host = options.url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).map_err(|error| OpenError::Tls(error.into()))?;
    // Read with every connection, so that renewed certificates are used.
    let connector = TlsConnector::from(tls::load(&options.tls)?);
    Ok(Box::new(connector.connect(name, tcp).await.map_err(failed)?))
}

async fn addresses(url: &Url) -> std::io::Result<Vec<std::net::SocketAddr>> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    Ok(tokio::net::lookup_host((host, url.port_or_known_default().unwrap_or(80))).await?.collect())
}

fn refusal(url: &Url, response: &Response) -> LinkError {
    let status = response.status().as_u16();
    if matches!(status, 301 | 302 | 303 | 307 | 308) {
        return redirect(url, response.headers().get(LOCATION).map(HeaderValue::as_bytes));
    }
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let readable =
        text(CONTENT_TYPE).is_none_or(|kind| kind.starts_with("text/plain") || kind.contains("json"));
    let body =
        response.body().as_deref().filter(|_| readable).map(|body| excerpt(&body[..body.len().min(2 << 10)]));
    let challenge = text(WWW_AUTHENTICATE).map(str::to_owned);
    LinkError::Status { status, body: body.filter(|body| !body.is_empty()), challenge }
}

async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut outgoing: mpsc::Receiver<Outgoing>,
    closing: watch::Sender<bool>,
    ping: Duration,
) {
    let mut pings = interval_at(Instant::now() + ping, ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            _ = pings.tick() => Message::Ping(Bytes::new()),
            next = outgoing.recv() => match next {
                Some(Outgoing::Request(Ours { bytes, .. }) | Outgoing::Other(bytes)) => match Utf8Bytes::try_from(bytes) {
                    Ok(text) => Message::Text(text),
                    Err(_) => continue,
                },
                Some(Outgoing::Cancel(_) | Outgoing::Revision(_)) => continue,
                Some(Outgoing::Close) | None => break,
            },
        };
        // A connection that does not take this ends the reader as well, which says why.
        if sink.send(message).await.is_err() {
            return;
        }
    }
    let _ = closing.send(true);
    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("") };
    let _ = timeout(FAREWELL_TIME, sink.send(Message::Close(Some(normal)))).await;
}

async fn read(
    mut stream: SplitStream<Socket>,
    incoming: &mpsc::Sender<Incoming>,
    mut closing: watch::Receiver<bool>,
    patience: Duration,
    limits: Limits,
) -> LinkError {
    loop {
        let next = tokio::select! {
            next = timeout(patience, stream.next()) => next,
            // We are leaving: what still comes is not awaited for long.
            Ok(()) = closing.changed() => {
                let _ = timeout(FAREWELL_TIME, async { while let Some(Ok(_)) = stream.next().await {} }).await;
                return LinkError::Closed;
            }
        };
        let message = match next {
            Err(_) => return LinkError::Silent,
            Ok(None) => return LinkError::Closed,
            Ok(Some(message)) => message,
        };
        let bytes: Bytes = match message {
            Ok(Message::Text(text)) => text.into(),
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => continue,
            Ok(Message::Close(frame)) => {
                // Our half of the farewell is sent by reading on.
                let _ =
                    timeout(FAREWELL_TIME, async { while let Some(Ok(_)) = stream.next().await {} }).await;
                return farewell(frame);
            }
            Err(error) => return broken(error, limits),
        };
        let bytes = bytes.slice_ref(bytes.trim_ascii());
        let next = match bytes.first() {
            None => continue,
            Some(b'{' | b'[') => Incoming::Message(bytes),
            Some(_) => Incoming::Noise(Bytes::copy_from_slice(&bytes[..bytes.len().min(EXCERPT)])),
        };
        if incoming.send(next).await.is_err() {
            return LinkError::Closed;
        }
    }
}

fn farewell(frame: Option<CloseFrame>) -> LinkError {
    match frame {
        Some(CloseFrame { code, reason }) if !matches!(code, CloseCode::Normal | CloseCode::Away) => {
            let reason = excerpt(reason.as_bytes());
            let colon = if reason.is_empty() { "" } else { ": " };
            LinkError::Io(format!(
                "the server closed the connection with code {}{colon}{reason}",
                u16::from(code)
            ))
        }
        _ => LinkError::Closed,
    }
}

fn broken(error: Error, limits: Limits) -> LinkError {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => LinkError::TooLarge(limits.size),
        Error::ConnectionClosed | Error::AlreadyClosed => LinkError::Closed,
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => LinkError::Closed,
        error => LinkError::Io(format!("the connection broke: {}", root(&error))),
    }
}

#[cfg(test)]
mod tests;
