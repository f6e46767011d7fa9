//! Connects to a server: from its specification to an MCP session.
//!
//! Invariant: every error names the server, and includes the last stderr lines of its process.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use toolgate_mcp::network::AddressPolicy;
use toolgate_mcp::oauth::{BrowserLogin, LoginError, MAX_LOGINS};
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::transport::{OpenError, RemoteOptions, http, lines, sse, websocket};
use toolgate_mcp::{Handler, HandshakeError, Link, LinkError, PeerInfo, ProtocolMode, RequestError, Session};
use toolgate_redact::mask;
use toolgate_redact::sanitize::sanitize;
use toolgate_types::server::{FallbackCommand, RemoteTransport, StdioTransport, Transport};
use toolgate_types::{Caller, CallerId, ConfigString, Secret, ServerSpec};
use url::Url;

use crate::credentials::{ConnectionCredential, LoginOptions, NoCredential, ServerCredentials};
use crate::process::{Child, ChildExit, ChildSpec, PROJECTS_VARIABLE, SpawnError, nesting};
use crate::questions::{Question, QuestionKind, Responder};
use crate::server::RootsRelay;

/// Characters of a command line in an error.
const MAX_COMMAND_CHARS: usize = 160;
/// Lines of stderr in an error.
const STDERR_LINES: usize = 8;
/// The time to wait for the exit status of a process that closed its connection.
const EXIT_WAIT: Duration = Duration::from_millis(200);
/// The time a process has to exit by itself when its connection is closed.
const STOP_GRACE: Duration = Duration::from_millis(1_500);
/// A changed credential counts after this long.
const CREDENTIAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for a person to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);

/// An MCP session, and the child process behind it, if there is one.
pub struct Connection {
    pub session: Session,
    /// The server's own description of itself.
    pub peer: PeerInfo,
    child: Option<Child>,
    owner: Arc<OwnerCell>,
    roots: Arc<RootsRelay>,
    credential: ConnectionCredential,
    /// Time of the last comparison with the stored credential.
    credential_checked: Mutex<Instant>,
}

/// The caller, or the session of a caller, that a connection belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOwner {
    pub caller: CallerId,
    /// The session, if each session of a caller has its own connection.
    pub session: Option<Arc<str>>,
}

impl ConnectionOwner {
    /// The owner of the machine.
    pub(crate) fn machine_owner() -> Self {
        Self { caller: Caller::OWNER.parse().expect("a valid id"), session: None }
    }
}

/// The owner of a connection. Set once: a connection has seen the state of its owner, so no other gets it.
pub type OwnerCell = OnceLock<ConnectionOwner>;

impl Connection {
    /// The owner; `None` for the connection that lists are read from, until a caller uses it.
    pub fn owner(&self) -> &OwnerCell {
        &self.owner
    }

    pub(crate) fn roots(&self) -> &RootsRelay {
        &self.roots
    }

    /// The last lines that the server's process wrote to stderr.
    pub fn stderr_tail(&self) -> Vec<String> {
        self.stderr_lines(STDERR_LINES)
    }

    /// The same, for a number of lines. A child process has a bounded buffer for them.
    pub(crate) fn stderr_lines(&self, lines: usize) -> Vec<String> {
        let lines = self.child.as_ref().map(|child| child.stderr_tail(lines)).unwrap_or_default();
        lines.iter().map(|line| mask(line, &self.credential.secrets())).collect()
    }

    /// Describes a broken connection: the exit status of the process, which explains more than the transport error, and
    /// its last stderr lines. Waits briefly for the process to exit.
    pub async fn describe_disconnect(&self, why: &LinkError) -> String {
        let exit = match &self.child {
            Some(child) => timeout(EXIT_WAIT, child.exit()).await.ok(),
            None => None,
        };
        let what = exit.map_or_else(|| why.to_string(), |exit| format!("its process {exit}"));
        let stderr = self.stderr_tail();
        let wrote = if stderr.is_empty() { "" } else { "; it wrote: " };
        mask(&format!("{what}{wrote}{}", stderr.join(" | ")), &self.credential.secrets())
    }

    /// Returns true if the credential has to be compared with the stored one: at most once per second.
    pub(crate) fn is_credential_check_due(&self, stored: &ServerCredentials) -> bool {
        if !matches!(self.credential, ConnectionCredential::Static(..)) && !stored.is_per_caller() {
            return false;
        }
        let mut checked = self.credential_checked.lock();
        let is_due = checked.elapsed() >= CREDENTIAL_CHECK_INTERVAL;
        if is_due {
            *checked = Instant::now();
        }
        is_due
    }

    /// Returns true if the stored credential is another one than that of the connection.
    pub(crate) async fn has_stale_credential(&self, stored: &ServerCredentials) -> bool {
        let is_static = matches!(self.credential, ConnectionCredential::Static(..));
        let owner = self.owner.get().map(|owner| &owner.caller);
        // A store that cannot be read says nothing.
        match stored.for_connection(owner).await {
            Ok(current) => !current.is_same(&self.credential),
            Err(NoCredential::Missing { .. }) => is_static,
            Err(NoCredential::Store(_)) => false,
        }
    }

    /// Closes the session, stops the process, and waits for both.
    pub async fn close(self) {
        let Self { session, child, .. } = self;
        session.close().await;
        drop(session);
        if let Some(mut child) = child {
            child.stop(STOP_GRACE).await;
        }
    }
}

/// A failed connection attempt.
#[derive(Debug)]
pub struct ConnectError {
    pub cause: ConnectCause,
    /// The command line of the process, with secrets hidden, if there is one.
    pub command: Option<Box<str>>,
    /// The exit status of the process, if it has exited.
    pub exit: Option<ChildExit>,
    /// The last lines of its stderr.
    pub stderr: Box<[String]>,
}

/// The step that failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectCause {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The URL could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The MCP handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The login that the server requires failed.
    #[error("the login failed")]
    Login(#[source] Arc<LoginError>),
    /// There is no credential for the connection.
    #[error(transparent)]
    Credential(#[from] NoCredential),
}

/// The kind of an outage, as far as callers have to react differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageKind {
    /// The server does not answer, or not with MCP.
    Unreachable,
    /// The server rejects our credential, or requires a login.
    Unauthorized,
    /// The server limits our request rate. It may say how long.
    RateLimited(Option<Duration>),
    /// All connections of other callers are in use.
    Busy,
}

impl From<&LinkError> for OutageKind {
    fn from(error: &LinkError) -> Self {
        match error {
            LinkError::Status { status: 401 | 403, .. }
            | LinkError::LoginRequired(_)
            | LinkError::LoginFailed(_) => Self::Unauthorized,
            LinkError::Status { status: 429, retry_after, .. } => Self::RateLimited(*retry_after),
            _ => Self::Unreachable,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.command, self.exit) {
            (Some(command), Some(exit)) => write!(f, "`{command}` {exit}")?,
            (None, Some(exit)) => write!(f, "its process {exit}")?,
            (Some(command), None) => write!(f, "`{command}` runs, but {}", self.cause)?,
            (None, None) => write!(f, "{}", self.cause)?,
        }
        if !self.stderr.is_empty() {
            write!(f, "; it wrote: {}", self.stderr.join(" | "))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The exit status of the process explains more than the transport error it caused.
        if self.exit.is_some() { None } else { std::error::Error::source(&self.cause) }
    }
}

impl From<ConnectCause> for ConnectError {
    fn from(cause: ConnectCause) -> Self {
        Self { cause, command: None, exit: None, stderr: Box::default() }
    }
}

impl ConnectError {
    /// Masks secrets in the output of the process.
    fn without_secrets(mut self, secrets: &[Secret]) -> Self {
        self.stderr.iter_mut().for_each(|line| *line = mask(line, secrets));
        self
    }

    /// The transport error, if that was the cause.
    fn link_error(&self) -> Option<&LinkError> {
        match &self.cause {
            ConnectCause::Open(OpenError::Link(error)) => Some(error),
            ConnectCause::Handshake(HandshakeError::Request(RequestError::Link(error))) => Some(error),
            _ => None,
        }
    }

    /// Returns the same server with HTTP+SSE, if its configuration leaves the transport open and it refused the POST of
    /// Streamable HTTP as a server of the first protocol revision does.
    fn older_transport(&self, spec: &ServerSpec) -> Option<ServerSpec> {
        match (&spec.transport, self.link_error()) {
            (Transport::Http(remote), Some(LinkError::Status { status: 400 | 404 | 405, .. }))
                if remote.may_be_sse =>
            {
                let transport = Transport::Sse(remote.clone());
                Some(ServerSpec { transport, ..spec.clone() })
            }
            _ => None,
        }
    }

    /// Returns the kind of outage.
    pub fn kind(&self) -> OutageKind {
        match self.link_error() {
            _ if self.needs_login() => OutageKind::Unauthorized,
            Some(error) => OutageKind::from(error),
            None => OutageKind::Unreachable,
        }
    }

    /// Returns true if a person has to log in first.
    pub fn needs_login(&self) -> bool {
        let login =
            matches!(self.link_error(), Some(LinkError::LoginRequired(_) | LinkError::LoginFailed(_)));
        login || matches!(self.cause, ConnectCause::Login(_) | ConnectCause::Credential(_))
    }

    /// Returns true if a retry would fail in the same way. Permanent errors skip the reconnect backoff.
    pub fn is_permanent(&self) -> bool {
        use HandshakeError::{NoCommonRevision, OwnGateway, Request};
        use toolgate_mcp::RequestError::TimedOut;
        match &self.cause {
            _ if self.needs_login() => true,
            // A missing program or a bad certificate does not change within seconds.
            ConnectCause::Spawn(_) | ConnectCause::Login(_) | ConnectCause::Credential(_) => true,
            // The credential must be corrected first; a rate limit must not be tested.
            _ if self.kind() != OutageKind::Unreachable => true,
            _ if matches!(
                self.link_error(),
                Some(
                    LinkError::Tls { .. }
                        | LinkError::Redirect(_)
                        | LinkError::Encoding(_)
                        | LinkError::Blocked { .. }
                )
            ) =>
            {
                true
            }
            ConnectCause::Open(error) => !matches!(error, OpenError::Link(_)),
            // A server that used up its whole timeout would only double the wait.
            ConnectCause::Handshake(error) => {
                matches!(error, NoCommonRevision(_) | OwnGateway | Request(TimedOut(_)))
            }
        }
    }

    /// Returns true if the server rejected the protocol revision.
    pub fn is_revision_refused(&self) -> bool {
        match &self.cause {
            ConnectCause::Handshake(HandshakeError::NoCommonRevision(_)) => true,
            ConnectCause::Handshake(HandshakeError::Request(RequestError::Rpc(_))) => true,
            _ => matches!(self.link_error(), Some(LinkError::Status { status: 400 | 405 | 406, .. })),
        }
    }

    /// The suggested fix.
    pub fn hint(&self) -> Option<String> {
        match self.link_error() {
            Some(LinkError::Blocked { .. }) => {
                return Some("add its network to `allow_networks` of the server, if you trust it".to_owned());
            }
            Some(LinkError::Tls { hint, .. }) => return hint.map(str::to_owned),
            Some(LinkError::Redirect(Some(_))) => {
                return Some("set `url` to that URL, if you trust it".to_owned());
            }
            Some(LinkError::Status { status: 401 | 403, .. }) => {
                return Some("check `headers` of the server: it rejects the credential".to_owned());
            }
            _ => {}
        }
        match &self.cause {
            ConnectCause::Handshake(HandshakeError::NoCommonRevision(_)) => {
                Some("set `protocol` of the server to a revision that it supports, or to `auto`".to_owned())
            }
            ConnectCause::Handshake(HandshakeError::OwnGateway) => Some(
                "remove it: clients connect to the gateway, the gateway does not connect to itself"
                    .to_owned(),
            ),
            ConnectCause::Spawn(error) => error.hint(),
            ConnectCause::Credential(error) => error.hint(),
            ConnectCause::Handshake(_) if self.exit.is_some() => {
                Some("run the command by hand to see why it exits".to_owned())
            }
            ConnectCause::Handshake(HandshakeError::Request(toolgate_mcp::RequestError::TimedOut(_))) => {
                Some("a larger `timeout` may help a server that is slow to start".to_owned())
            }
            _ => None,
        }
    }
}

/// Limits of the connections to a server.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub messages: ScanLimits,
    /// Concurrent requests over HTTP: as many as calls may run at all, so that they do not wait here.
    pub max_requests: usize,
}

/// Requests that a server gets at once even if fewer calls may run: lists and checks must not wait for a call.
const MIN_REQUESTS: usize = 16;

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { messages: ScanLimits::default(), max_requests: 64 }
    }
}

/// Connects to a server. A server that exits on the probe for the newest protocol revision is restarted and gets the
/// legacy handshake. The owner is the caller that the connection is for, if it is known.
///
/// If the server requires a login and a person is present, runs the login. It has its own timeout.
pub fn connect<'a>(
    spec: &'a ServerSpec,
    limits: ConnectionLimits,
    credential: &'a ConnectionCredential,
    handler: Arc<dyn Handler>,
    (owner, roots): (Arc<OwnerCell>, Arc<RootsRelay>),
    mut mode: ProtocolMode,
) -> BoxFuture<'a, Result<Connection, ConnectError>> {
    Box::pin(async move {
        let mut logins = 0;
        loop {
            let error = match attempt(spec, limits, credential, Arc::clone(&handler), &owner, mode).await {
                Ok((session, peer, child)) => {
                    let (credential, checked) = (credential.clone(), Mutex::new(Instant::now()));
                    return Ok(Connection {
                        session,
                        peer,
                        child,
                        owner,
                        roots,
                        credential,
                        credential_checked: checked,
                    });
                }
                Err(error) => error.without_secrets(&credential.secrets()),
            };
            if let Some(older) = error.older_transport(spec)
                && let Ok((session, peer, child)) =
                    attempt(&older, limits, credential, Arc::clone(&handler), &owner, ProtocolMode::Legacy)
                        .await
            {
                let (credential, credential_checked) = (credential.clone(), Mutex::new(Instant::now()));
                return Ok(Connection { session, peer, child, owner, roots, credential, credential_checked });
            }
            let tokens = credential.tokens().filter(|tokens| tokens.can_login() && logins < MAX_LOGINS);
            match (error.link_error(), tokens) {
                _ if matches!(error.cause, ConnectCause::Handshake(HandshakeError::ClosedOnProbe))
                    && mode == ProtocolMode::Auto =>
                {
                    mode = ProtocolMode::Legacy;
                }
                (Some(LinkError::LoginRequired(demand)), Some(tokens)) => {
                    tokens.login(Some(demand)).await.map_err(|error| ConnectCause::Login(Arc::new(error)))?;
                    logins += 1;
                }
                _ => return Err(error),
            }
        }
    })
}

/// Adds logins in a browser to the options, if the responder can show a URL to a person.
pub fn with_browser(logins: LoginOptions, responder: &Arc<dyn Responder>) -> LoginOptions {
    let responder = Arc::clone(responder);
    let browser = responder.can_ask(QuestionKind::Login).then(|| BrowserLogin {
        open: Arc::new(move |page| {
            let responder = Arc::clone(&responder);
            Box::pin(async move { drop(responder.ask(Arc::new(Question::Login(page))).await) })
        }),
        timeout: LOGIN_TIMEOUT,
    });
    LoginOptions { browser, ..logins }
}

async fn attempt(
    spec: &ServerSpec,
    limits: ConnectionLimits,
    credential: &ConnectionCredential,
    handler: Arc<dyn Handler>,
    owner: &OwnerCell,
    mode: ProtocolMode,
) -> Result<(Session, PeerInfo, Option<Child>), ConnectError> {
    let connect_timeout = spec.timeout.get();
    let (link, child, over_http) = match &spec.transport {
        Transport::Stdio(stdio) => {
            let (link, child) = start_child(spec, stdio, credential, limits.messages, owner.get())?;
            (link, Some(child), false)
        }
        Transport::Http(remote) => (
            http::open(remote_options(remote, credential, connect_timeout, limits)?, limits.messages)
                .map_err(ConnectCause::from)?,
            None,
            true,
        ),
        Transport::Sse(remote) => (
            sse::open(remote_options(remote, credential, connect_timeout, limits)?, limits.messages)
                .await
                .map_err(ConnectCause::from)?,
            None,
            false,
        ),
        Transport::Websocket(remote) => (
            websocket::open(
                remote_options(remote, credential, connect_timeout, limits)?,
                websocket::PING_INTERVAL,
                limits.messages,
            )
            .await
            .map_err(ConnectCause::from)?,
            None,
            false,
        ),
    };
    let session = Session::start(link, over_http, limits.messages, handler);
    if let Some(tokens) = credential.tokens() {
        session.set_token_source(Arc::clone(tokens));
    }
    match session.handshake(mode, connect_timeout).await {
        Ok(peer) => Ok((session, peer, child)),
        Err(error) => Err(handshake_error(session, child.map(|child| (child, &spec.transport)), error).await),
    }
}

fn start_child(
    spec: &ServerSpec,
    stdio: &StdioTransport,
    credential: &ConnectionCredential,
    limits: ScanLimits,
    owner: Option<&ConnectionOwner>,
) -> Result<(Link, Child), ConnectError> {
    let mut child = ChildSpec::from(stdio);
    if stdio.is_per_caller() {
        let caller =
            owner.map_or_else(|| NO_CALLER.to_owned(), |owner| percent_encode(owner.caller.as_str()));
        for value in child.env.values_mut().flatten() {
            let filled = |text: &str| text.replace(StdioTransport::CALLER, &caller);
            *value = ConfigString::new(filled(value.expose()), filled(value.redacted()));
        }
    }
    if let Some(config) = &spec.config {
        child.env.insert("MCP_CONFIG".to_owned(), Some(ConfigString::hidden(config.expose())));
    }
    if let Some((name, value)) = credential.variable() {
        child.env.insert(name, Some(value));
    }
    if let Some(projects) = nesting::projects_for_children() {
        child.env.insert(PROJECTS_VARIABLE.to_owned(), Some(ConfigString::plain(projects)));
    }
    let mut child = spawn_with_fallback(child, stdio.fallback.as_ref()).map_err(ConnectCause::from)?;
    let stdin = child.stdin.take().expect("a new child has its stdin");
    let stdout = child.stdout.take().expect("a new child has its stdout");
    Ok((lines::open(stdout, stdin, stdio.encoding, limits), child))
}

/// The placeholder for the caller, in the process that lists are read from. No encoded ID is equal to it.
const NO_CALLER: &str = "%";

/// Encodes an ID so that it is a file name without a special meaning. Different IDs stay different.
fn percent_encode(id: &str) -> String {
    let mut encoded = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[test]
fn encoded_ids_are_file_names() {
    for (id, encoded) in
        [("ann-1_x", "ann-1_x"), ("../a", "%2E%2E%2Fa"), ("a@b.org", "a%40b%2Eorg"), ("%", "%25")]
    {
        assert_eq!(percent_encode(id), encoded);
    }
}

/// Starts a program, or its fallback if the program is not found.
fn spawn_with_fallback(
    mut child: ChildSpec,
    fallback: Option<&FallbackCommand>,
) -> Result<Child, SpawnError> {
    let (error, fallback) = match (Child::spawn(&child), fallback) {
        (Err(error @ SpawnError::NotFound { .. }), Some(fallback)) => (error, fallback),
        (outcome, _) => return outcome,
    };
    child.program = fallback.command.clone();
    child.args.clone_from(&fallback.args);
    match (Child::spawn(&child), error) {
        (
            Err(SpawnError::NotFound { program: other, .. }),
            SpawnError::NotFound { program, path: Some(path) },
        ) => Err(SpawnError::NoRunner { program, other, path }),
        (outcome, _) => outcome,
    }
}

fn remote_options(
    remote: &RemoteTransport,
    credential: &ConnectionCredential,
    connect_timeout: Duration,
    limits: ConnectionLimits,
) -> Result<RemoteOptions, ConnectError> {
    let url = Url::parse(remote.url.expose()).map_err(|_| {
        ConnectCause::Open(OpenError::UnsupportedUrl {
            url: remote.url.redacted().to_owned(),
            schemes: "an absolute URL",
        })
    })?;
    let configured = remote.headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.expose())));
    let header = credential.header();
    let is_replaced = |name: &String| header.as_ref().is_some_and(|(own, _)| own.eq_ignore_ascii_case(name));
    let headers = configured.filter(|(name, _)| !is_replaced(name)).chain(header.clone()).collect();
    Ok(RemoteOptions {
        headers,
        connect_timeout,
        max_concurrent: limits.max_requests.max(MIN_REQUESTS),
        sse_read_timeout: remote.sse_read_timeout.get(),
        terminate_on_close: remote.terminate_on_close,
        tls: remote.tls.clone(),
        addresses: AddressPolicy::of_server(&url, remote.allow_networks.as_deref()),
        tokens: credential.tokens().cloned(),
        ..RemoteOptions::new(url)
    })
}

/// Builds the error of a failed handshake. Waits briefly for the process to exit, to report its status and stderr.
async fn handshake_error(
    session: Session,
    child: Option<(Child, &Transport)>,
    error: HandshakeError,
) -> ConnectError {
    let Some((mut child, transport)) = child else { return ConnectCause::from(error).into() };
    let ended = timeout(EXIT_WAIT, child.exit()).await.ok();
    drop(session);
    child.stop(if ended.is_some() { Duration::ZERO } else { STOP_GRACE }).await;
    let stderr = child.stderr_tail(STDERR_LINES).iter().map(|line| sanitize(line).into_owned()).collect();
    // The status is only reported if the process exited by itself, not because its stdin was closed.
    ConnectError { cause: error.into(), command: Some(shown_command(transport).into()), exit: ended, stderr }
}

/// The command line of a server, with secrets hidden and shortened.
fn shown_command(transport: &Transport) -> String {
    let command = transport.location();
    match command.char_indices().nth(MAX_COMMAND_CHARS) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command,
    }
}
