//! WebSocket: one message per text frame.
//!
//! No revision of the protocol specifies this transport. Servers agree on the subprotocol `mcp`, some not even on that.
//! Invariant: reading and writing are separate tasks, and a connection without any traffic for three pings is closed.

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
use super::{OpenError, RemoteOptions, redacted_url, redirect_error, retry_after, root_cause, tls};
use crate::link::{Link, LinkCommand, LinkError, LinkEvent, OutgoingRequest, QUEUE_CAPACITY};
use crate::network::BlockedAddress;
use crate::scan::ScanLimits;

/// Ping interval.
pub const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Number of unanswered pings after which the connection is closed.
const MAX_LOST_PINGS: u32 = 3;
/// Time for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const EXCERPT_BYTES: usize = 256;

/// TCP or TLS stream.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

pub(crate) type Socket = WebSocketStream<Box<dyn ByteStream>>;

/// Connects within `connect_timeout`. `ping` is [`PING_INTERVAL`] outside of tests.
pub async fn open(options: RemoteOptions, ping: Duration, limits: ScanLimits) -> Result<Link, OpenError> {
    let socket = timeout(options.connect_timeout, connect(&options, limits)).await.map_err(|_| {
        LinkError::Io(format!(
            "cannot connect to `{}` within {:?}",
            redacted_url(&options.url),
            options.connect_timeout
        ))
    })??;
    Ok(spawn_link(socket, ping, limits))
}

/// Server side: opens a link over a connection whose upgrade was answered.
pub async fn accept(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    limits: ScanLimits,
) -> Link {
    let stream: Box<dyn ByteStream> = Box::new(stream);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config(limits))).await;
    spawn_link(socket, PING_INTERVAL, limits)
}

/// Computes `Sec-WebSocket-Accept` from the client's key.
pub fn accept_key(sent: &[u8]) -> String {
    derive_accept_key(sent)
}

/// Starts the tasks for an open socket.
pub(crate) fn spawn_link(socket: Socket, ping: Duration, limits: ScanLimits) -> Link {
    let (sink, stream) = socket.split();
    let (outbox, outgoing) = mpsc::channel(QUEUE_CAPACITY);
    let (incoming, inbox) = mpsc::channel(QUEUE_CAPACITY);
    let (closing, closed) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(write(sink, outgoing, closing, ping));
    tasks.spawn(async move {
        let end = read(stream, &incoming, closed, ping * MAX_LOST_PINGS, limits).await;
        let _ = incoming.send(LinkEvent::Closed(end)).await;
    });
    Link::new(outbox, inbox, tasks)
}

/// Limits messages and frames to the message size.
pub(crate) fn config(limits: ScanLimits) -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(limits.size)).max_frame_size(Some(limits.size))
}

async fn connect(options: &RemoteOptions, limits: ScanLimits) -> Result<Socket, OpenError> {
    let mut request = request(options)?;
    if let Some(socket) = upgrade(options, request.clone(), limits).await? {
        return Ok(socket);
    }
    request.headers_mut().remove(SEC_WEBSOCKET_PROTOCOL);
    let socket = upgrade(options, request, limits).await?;
    socket.ok_or_else(|| {
        LinkError::Io("the server rejects the connection with and without the subprotocol `mcp`".to_owned())
            .into()
    })
}

fn request(options: &RemoteOptions) -> Result<Request, OpenError> {
    let mut url = options.url.clone();
    let address =
        || OpenError::UnsupportedUrl { url: redacted_url(&options.url), schemes: "`ws://` or `wss://`" };
    if !matches!(url.scheme(), "ws" | "wss") || url.host().is_none() {
        return Err(address());
    }
    let credentials = (!url.username().is_empty()).then(|| {
        let credentials =
            STANDARD.encode(format!("{}:{}", url.username(), url.password().unwrap_or_default()));
        HeaderValue::try_from(format!("Basic {credentials}")).expect("base64 is a valid header value")
    });
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let mut request = url.as_str().into_client_request().map_err(|_| address())?;
    let headers = request.headers_mut();
    headers.extend(credentials.map(|credentials| (AUTHORIZATION, credentials)));
    for (name, value) in header_pairs(options)? {
        headers.insert(name, value);
    }
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mcp"));
    Ok(request)
}

/// Connects and upgrades. Returns `None` if the server ignores the offered subprotocol: the specification requires the
/// client to fail then, so the caller retries without an offer.
async fn upgrade(
    options: &RemoteOptions,
    request: Request,
    limits: ScanLimits,
) -> Result<Option<Socket>, OpenError> {
    let stream = connect_stream(options).await?;
    match client_async_with_config(request, stream, Some(config(limits))).await {
        Ok((socket, _)) => Ok(Some(socket)),
        Err(Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
            SubProtocolError::NoSubProtocol,
        ))) => Ok(None),
        Err(Error::Http(response)) => Err(rejection(&options.url, &response).into()),
        Err(error) => {
            let shown = redacted_url(&options.url);
            let other = || LinkError::Io(format!("`{shown}` does not speak WebSocket: {error}"));
            Err(tls::tls_error(&error, &shown).unwrap_or_else(other).into())
        }
    }
}

async fn connect_stream(options: &RemoteOptions) -> Result<Box<dyn ByteStream>, OpenError> {
    let shown = redacted_url(&options.url);
    let failed = |error: std::io::Error| {
        if let Some(blocked) = BlockedAddress::find(&error) {
            return LinkError::Blocked { url: shown.clone(), blocked: blocked.clone() };
        }
        let read_error = || LinkError::Io(format!("cannot connect to `{shown}`: {}", root_cause(&error)));
        tls::tls_error(&error, &shown).unwrap_or_else(read_error)
    };
    let host = options.url.host().ok_or_else(|| failed(std::io::Error::other("the URL has no host")))?;
    let port = options.url.port_or_known_default().unwrap_or(80);
    let addresses = options.addresses.resolve(host, port).await.map_err(failed)?;
    let tcp = TcpStream::connect(&*addresses).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    if options.url.scheme() == "ws" {
        return Ok(Box::new(tcp));
    }
    let host = options.url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).map_err(|error| OpenError::Tls(error.into()))?;
    // Loaded for every connection, so that renewed certificates are used.
    let connector = TlsConnector::from(tls::load(&options.tls)?);
    Ok(Box::new(connector.connect(name, tcp).await.map_err(failed)?))
}

fn rejection(url: &Url, response: &Response) -> LinkError {
    let status = response.status().as_u16();
    if matches!(status, 301 | 302 | 303 | 307 | 308) {
        return redirect_error(url, response.headers().get(LOCATION).map(HeaderValue::as_bytes));
    }
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let readable =
        text(CONTENT_TYPE).is_none_or(|kind| kind.starts_with("text/plain") || kind.contains("json"));
    let body =
        response.body().as_deref().filter(|_| readable).map(|body| excerpt(&body[..body.len().min(2 << 10)]));
    let challenge = text(WWW_AUTHENTICATE).map(str::to_owned);
    let retry_after = retry_after(response.headers());
    LinkError::Status { status, body: body.filter(|body| !body.is_empty()), challenge, retry_after }
}

async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut outgoing: mpsc::Receiver<LinkCommand>,
    closing: watch::Sender<bool>,
    ping: Duration,
) {
    let mut pings = interval_at(Instant::now() + ping, ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            _ = pings.tick() => Message::Ping(Bytes::new()),
            next = outgoing.recv() => match next {
                Some(LinkCommand::Request(OutgoingRequest { bytes, .. }) | LinkCommand::Message(bytes)) => match Utf8Bytes::try_from(bytes) {
                    Ok(text) => Message::Text(text),
                    Err(_) => continue,
                },
                Some(LinkCommand::Cancel(_) | LinkCommand::Revision(_)) => continue,
                Some(LinkCommand::Close) | None => break,
            },
        };
        // The reader fails too and reports the reason.
        if sink.send(message).await.is_err() {
            return;
        }
    }
    let _ = closing.send(true);
    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("") };
    let _ = timeout(CLOSE_TIMEOUT, sink.send(Message::Close(Some(normal)))).await;
}

async fn read(
    mut stream: SplitStream<Socket>,
    incoming: &mpsc::Sender<LinkEvent>,
    mut closing: watch::Receiver<bool>,
    idle_timeout: Duration,
    limits: ScanLimits,
) -> LinkError {
    loop {
        let next = tokio::select! {
            next = timeout(idle_timeout, stream.next()) => next,
            // We are closing: wait only briefly for the peer's close frame.
            Ok(()) = closing.changed() => {
                let _ = timeout(CLOSE_TIMEOUT, async { while let Some(Ok(_)) = stream.next().await {} }).await;
                return LinkError::Closed;
            }
        };
        let message = match next {
            Err(_) => return LinkError::IdleTimeout,
            Ok(None) => return LinkError::Closed,
            Ok(Some(message)) => message,
        };
        let bytes: Bytes = match message {
            Ok(Message::Text(text)) => text.into(),
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => continue,
            Ok(Message::Close(frame)) => {
                // Reading on sends our close frame.
                let _ =
                    timeout(CLOSE_TIMEOUT, async { while let Some(Ok(_)) = stream.next().await {} }).await;
                return close_error(frame);
            }
            Err(error) => return read_error(error, limits),
        };
        let bytes = bytes.slice_ref(bytes.trim_ascii());
        let next = match bytes.first() {
            None => continue,
            Some(b'{' | b'[') => LinkEvent::Message(bytes),
            Some(_) => LinkEvent::Noise(Bytes::copy_from_slice(&bytes[..bytes.len().min(EXCERPT_BYTES)])),
        };
        if incoming.send(next).await.is_err() {
            return LinkError::Closed;
        }
    }
}

fn close_error(frame: Option<CloseFrame>) -> LinkError {
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

fn read_error(error: Error, limits: ScanLimits) -> LinkError {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => LinkError::TooLarge(limits.size),
        Error::ConnectionClosed | Error::AlreadyClosed => LinkError::Closed,
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => LinkError::Closed,
        error => LinkError::Io(format!("the connection broke: {}", root_cause(&error))),
    }
}

#[cfg(test)]
mod tests;
