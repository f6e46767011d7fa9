//! The Unix sockets of a running gateway, used by other commands of the project.
//!
//! `.toolgate/socket` speaks HTTP, for changes and questions; at `.toolgate/commands` the gateway runs whole commands.
//! Both are accessible to their owner only. A process that can open them can also write the project files, so no key is
//! required. The gateway holds a lock while it listens. Invariant: a change that may have been sent is not applied in
//! another way as well.

use std::error::Error as StdError;
use std::fs::TryLockError;
use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use toolgate_state::{FileAccess, StateDir};
use toolgate_store::document::{EntryAction, EntryKind, EntryOp};
use toolgate_store::registry::{CommittedChange, RegistryChange};

pub use hyper::{Method, StatusCode};

use crate::project::StateFolder;
use crate::registry::RejectedChange;

/// Names in the state folder.
const SOCKET: &str = "socket";
const COMMANDS: &str = "commands";
const SERVE_LOCK: &str = "serve.lock";
/// Timeout of a response. Covers a slow disk, and a server that has to connect first.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest head of a response that is read by hand, and the longest body of an error.
const MAX_HEAD: usize = 16 << 10;
const MAX_ERROR_BODY: u64 = 64 << 10;
/// Bytes of messages that are copied at once.
const RELAY_CHUNK: usize = 64 << 10;

/// The running gateway gave no usable response.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("the running gateway does not respond")]
    NoResponse,
    /// The gateway does not respond to a change. The change may have been made.
    #[error("the running gateway does not respond")]
    UnknownOutcome,
    /// Something else is in place of the socket.
    #[error("the socket of the gateway is not used")]
    Refused(#[source] io::Error),
    #[error("the gateway at the socket of this project runs as another user")]
    OtherUser,
    #[error("the running gateway sent no revision")]
    NoRevision(#[source] Box<dyn StdError + Send + Sync>),
    /// The request cannot be built.
    #[error(transparent)]
    Request(#[from] hyper::http::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl SocketError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownOutcome => {
                Some("the change may have been made: check the file, or stop the gateway, then retry")
            }
            _ => None,
        }
    }
}

/// The listening sockets, removed when dropped.
pub(crate) struct CommandSocket {
    folder: StateDir,
    listeners: Option<SocketListeners>,
    _lock: fs_err::File,
}

/// The listeners of a gateway for commands of its project.
pub(crate) struct SocketListeners {
    /// HTTP requests of commands.
    pub(crate) requests: UnixListener,
    /// Commands that run in the gateway.
    pub(crate) commands: UnixListener,
}

impl CommandSocket {
    /// Listens for commands of a project; `None` if another gateway already does. Replaces a stale socket.
    pub(crate) fn listen(state: &StateFolder) -> io::Result<Option<Self>> {
        let folder = StateDir::create(state.path())?;
        let lock = folder.open_file(SERVE_LOCK, FileAccess::Create)?;
        match lock.file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let requests = bind_private(&folder, SOCKET)?;
        let commands = bind_private(&folder, COMMANDS)?;
        Ok(Some(Self { folder, listeners: Some(SocketListeners { requests, commands }), _lock: lock }))
    }

    /// Returns the listeners, the first time.
    pub(crate) fn take_listeners(&mut self) -> Option<SocketListeners> {
        self.listeners.take()
    }
}

impl Drop for CommandSocket {
    fn drop(&mut self) {
        for name in [SOCKET, COMMANDS] {
            let _ = self.folder.remove(name);
        }
    }
}

/// Binds a socket in a private folder, and renames it once its mode is set, so that no one can connect earlier.
fn bind_private(folder: &StateDir, name: &str) -> io::Result<UnixListener> {
    let temporary = folder.temporary_folder()?;
    let private_path = folder.path().join(&temporary).join("s");
    let bound = UnixListener::bind(&private_path).and_then(|listener| {
        toolgate_state::make_private(&private_path)?;
        folder.rename(&format!("{temporary}/s"), name)?;
        Ok(listener)
    });
    if bound.is_err() {
        let _ = folder.remove(&format!("{temporary}/s"));
    }
    folder.remove_folder(&temporary)?;
    bound
}

/// Returns true if the process at the other end of a socket runs as the same user.
pub(crate) fn is_own_process(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

/// Connects to the running gateway of a project, to run a command there. `None` if none is running.
///
/// # Errors
/// If something else is in place of the socket, or the gateway runs as another user.
pub async fn connect_command(state: &StateFolder) -> Result<Option<UnixStream>, SocketError> {
    connect(state, COMMANDS).await
}

/// Sends a change to the running gateway of a project. `None` if none is running or it accepts no changes now; the
/// change was not applied in that case.
pub(crate) async fn submit_change(
    state: &StateFolder,
    change: &RegistryChange,
) -> Result<Option<Result<CommittedChange, RejectedChange>>, SocketError> {
    let Some(request) = change_request(change)? else { return Ok(None) };
    let Some(stream) = connect(state, SOCKET).await? else { return Ok(None) };
    let (status, tag, body) =
        round_trip(stream, request).await.map_err(|NoResponse| SocketError::UnknownOutcome)?;
    let document: Json = serde_json::from_slice(&body).unwrap_or_default();
    let problems = |value: &Json| serde_json::from_value(value.clone()).unwrap_or_default();
    if status.is_success() {
        let rev = tag.parse().map_err(|error| SocketError::NoRevision(Box::new(error)))?;
        return Ok(Some(Ok(CommittedChange { rev, notes: problems(&document["notes"]) })));
    }
    let error = &document["error"];
    let text = |key: &str| error[key].as_str().map(ToOwned::to_owned);
    let code = text("code").unwrap_or_else(|| status.as_str().to_owned());
    if code == "service_unavailable" {
        // The gateway is starting or stopping.
        return Ok(None);
    }
    let message = text("message").unwrap_or_else(|| format!("the gateway responded with {status}"));
    let (problems, revision) = (problems(&error["problems"]), text("revision"));
    Ok(Some(Err(RejectedChange { code, message, problems, revision })))
}

/// Sends a request to the running gateway of a project; returns status and body, or `None` if none is running.
///
/// # Errors
/// If the gateway does not respond.
pub fn send_request<'a>(
    state: &'a StateFolder,
    method: Method,
    path: &'a str,
    body: Option<&'a Json>,
) -> BoxFuture<'a, Result<Option<(StatusCode, Json)>, SocketError>> {
    Box::pin(async move {
        let Some(stream) = connect(state, SOCKET).await? else { return Ok(None) };
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))?;
        let (status, _, body) =
            round_trip(stream, request).await.map_err(|NoResponse| SocketError::NoResponse)?;
        Ok(Some((status, serde_json::from_slice(&body).unwrap_or_default())))
    })
}

/// A session of `toolgate stdio` in the running gateway of a project.
pub struct JoinedSession(UnixStream);

/// The running gateway refuses a session.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// There is no such caller or profile.
    #[error("{message}")]
    Refused {
        message: String,
        /// The suggested fix.
        hint: Option<String>,
    },
}

/// Opens a session in the running gateway, so that its servers are not started again. `None` if no gateway is running,
/// or if it has no such sessions.
///
/// # Errors
/// If the gateway does not respond, or refuses the caller or the profile.
pub fn join<'a>(
    state: &'a StateFolder,
    caller: &'a str,
    profile: Option<&'a str>,
) -> BoxFuture<'a, Result<Option<JoinedSession>, JoinError>> {
    Box::pin(async move {
        let Some(mut stream) = connect(state, SOCKET).await? else { return Ok(None) };
        let profile = profile.map(|name| format!("&profile={}", encode_segment(name))).unwrap_or_default();
        let request = format!(
            "GET /stdio?caller={}{profile} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
         Upgrade: mcp-lines\r\n\r\n",
            encode_segment(caller)
        );
        let exchange = async {
            stream.write_all(request.as_bytes()).await?;
            read_head(&mut stream).await
        };
        let head = match timeout(RESPONSE_TIMEOUT, exchange).await {
            Ok(Ok(head)) => head,
            Ok(Err(_)) | Err(_) => return Err(SocketError::NoResponse.into()),
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or_default();
        if status == 101 {
            return Ok(Some(JoinedSession(stream)));
        }
        let mut body = Vec::new();
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut error = (&mut stream).take(length.unwrap_or(0).min(MAX_ERROR_BODY));
        let _ = timeout(RESPONSE_TIMEOUT, error.read_to_end(&mut body)).await;
        let document: Json = serde_json::from_slice(&body).unwrap_or_default();
        let text = |key: &str| document["error"][key].as_str().map(ToOwned::to_owned);
        match text("message") {
            // Not a refusal of this session: the gateway is of another version, or is stopping.
            Some(message) if status == 404 && !message.starts_with("no such endpoint") => {
                Err(JoinError::Refused { message, hint: text("hint") })
            }
            _ => Ok(None),
        }
    })
}

/// Reads the head of a response, byte by byte: the bytes after it belong to the session.
async fn read_head(stream: &mut UnixStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

impl JoinedSession {
    /// Copies messages in both directions until the gateway has answered all of the input, or until `stop` resolves.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub async fn relay(
        self,
        mut input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let (mut from_gateway, mut to_gateway) = self.0.into_split();
        let requests = async {
            // At the end of its input the gateway still answers the requests before it.
            let _ = tokio::io::copy(&mut input, &mut to_gateway).await;
            let _ = to_gateway.shutdown().await;
            std::future::pending::<std::convert::Infallible>().await
        };
        let responses = async {
            let mut chunk = vec![0; RELAY_CHUNK];
            loop {
                match from_gateway.read(&mut chunk).await {
                    Ok(0) | Err(_) => return output.flush().await,
                    Ok(length) => {
                        output.write_all(&chunk[..length]).await?;
                        output.flush().await?;
                    }
                }
            }
        };
        tokio::select! {
            never = requests => match never {},
            ended = responses => ended,
            () = stop => Ok(()),
        }
    }
}

/// Connects to the running gateway; `None` if none is running.
async fn connect(state: &StateFolder, name: &str) -> Result<Option<UnixStream>, SocketError> {
    let has_socket = match StateDir::open(state.path()).and_then(|folder| folder.has_socket(name)) {
        Ok(has_socket) => has_socket,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(SocketError::Refused(error)),
    };
    if !has_socket {
        return Ok(None);
    }
    let Ok(stream) = UnixStream::connect(state.path().join(name)).await else { return Ok(None) };
    // The process behind the socket gets changes, and its answers are believed.
    if is_own_process(&stream) { Ok(Some(stream)) } else { Err(SocketError::OtherUser) }
}

/// Builds the request for a change; `None` if it cannot be expressed (it is invalid anyway).
fn change_request(
    RegistryChange { expect, op, .. }: &RegistryChange,
) -> Result<Option<Request<Full<Bytes>>>, SocketError> {
    let EntryOp { kind, name, action } = op;
    let list = match kind {
        EntryKind::Tool => "/v1/tools",
        EntryKind::Server => "/v1/servers",
    };
    let one = format!("{list}/{}", encode_segment(name));
    let (method, path, body) = match action {
        EntryAction::Add(entry) => {
            let mut entry = entry.clone();
            let own = entry.insert("name".to_owned(), json!(name));
            if own.is_some_and(|own| own != name.as_str()) {
                return Ok(None);
            }
            (Method::POST, list.to_owned(), serde_json::to_vec(&entry)?)
        }
        EntryAction::Replace(entry) => (Method::PUT, one, serde_json::to_vec(entry)?),
        EntryAction::Patch(patch) => (Method::PATCH, one, serde_json::to_vec(patch)?),
        EntryAction::Remove => (Method::DELETE, one, Vec::new()),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(rev) = expect {
        request = request.header(header::IF_MATCH, format!("\"{rev}\""));
    }
    Ok(Some(request.body(Full::new(body.into()))?))
}

/// The connection broke, or the response came too late.
struct NoResponse;

/// Sends one request; returns status, ETag and body.
async fn round_trip(
    stream: UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, String, Bytes), NoResponse> {
    let exchange = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let response = async {
            let (parts, body) = sender.send_request(request).await?.into_parts();
            let tag = parts.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
            let body = body.collect().await?.to_bytes();
            Ok((parts.status, tag.trim_matches('"').to_owned(), body))
        };
        tokio::pin!(response);
        tokio::select! {
            response = &mut response => response,
            // The connection ended: the response has been read, or never arrives.
            _ = connection => response.await,
        }
    };
    match timeout(RESPONSE_TIMEOUT, exchange).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err::<_, hyper::Error>(_)) | Err(_) => Err(NoResponse),
    }
}

/// Percent-encodes a name as one path segment.
pub fn encode_segment(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(byte).collect()
}
