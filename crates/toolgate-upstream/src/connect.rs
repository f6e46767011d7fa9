//! From the description of a server to a conversation with it.
//!
//! Invariant: every error names the server's place, and what its process last wrote.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolgate_mcp::oauth::{LOGINS, LoginError, Logins, TokenSource};
use toolgate_mcp::scan::Limits;
use toolgate_mcp::transport::{OpenError, RemoteOptions, http, lines, sse, websocket};
use toolgate_mcp::{Handler, HandshakeError, Link, LinkError, Peer, ProtocolMode, RequestError, Session};
use toolgate_types::clean::clean;
use toolgate_types::redact::mask;
use toolgate_types::server::{Fallback, Remote, Stdio, Transport};
use toolgate_types::{Secret, ServerSpec, Text};
use url::Url;

use crate::process::{Child, ChildSpec, Exit, SpawnError};

/// Lines of a process's stderr that belong to an error.
const STDERR_LINES: usize = 8;
/// How long is waited for what a process has to say about its end.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long a process may take to end by itself when we are done with it.
const GRACE: Duration = Duration::from_millis(1_500);

/// A conversation, and the process behind it where there is one.
pub struct Connection {
    /// The conversation.
    pub session: Session,
    /// Who the server is.
    pub peer: Peer,
    child: Option<Child>,
}

impl Connection {
    /// The last lines that the server's process wrote to stderr.
    pub fn stderr_tail(&self) -> Vec<String> {
        self.child.as_ref().map(|child| child.stderr_tail(STDERR_LINES)).unwrap_or_default()
    }

    /// What is to be said about a conversation that broke: how the process ended, which says more
    /// than what that did to the conversation, and what it last wrote. Its end is waited for a little.
    pub async fn obituary(&self, why: &LinkError) -> String {
        let exit = match &self.child {
            Some(child) => timeout(LAST_WORDS, child.exit()).await.ok(),
            None => None,
        };
        let what = exit.map_or_else(|| why.to_string(), |exit| format!("its process {exit}"));
        let stderr = self.stderr_tail();
        let wrote = if stderr.is_empty() { "" } else { "; it wrote: " };
        mask(&format!("{what}{wrote}{}", stderr.join(" | ")), &[])
    }

    /// Ends the conversation and the process, and waits for both.
    pub async fn close(self) {
        let Self { session, child, .. } = self;
        session.close().await;
        drop(session);
        if let Some(mut child) = child {
            child.stop(GRACE).await;
        }
    }
}

/// Why there is no conversation.
#[derive(Debug)]
pub struct ConnectError {
    /// What went wrong.
    pub cause: Cause,
    /// How the process ended, if it did.
    pub exit: Option<Exit>,
    /// What it last wrote to stderr.
    pub stderr: Vec<String>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The process could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The address could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The server did not introduce itself.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// It wanted a login, which came to nothing.
    #[error("the login failed")]
    Login(#[source] Arc<LoginError>),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Some(exit) => write!(f, "its process {exit}")?,
            None => write!(f, "{}", self.cause)?,
        }
        if !self.stderr.is_empty() {
            write!(f, "; it wrote: {}", self.stderr.join(" | "))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // How a process ended says more than what that did to the conversation.
        if self.exit.is_some() { None } else { std::error::Error::source(&self.cause) }
    }
}

impl From<Cause> for ConnectError {
    fn from(cause: Cause) -> Self {
        Self { cause, exit: None, stderr: Vec::new() }
    }
}

impl ConnectError {
    /// What happened to the connection, where it was that.
    fn link(&self) -> Option<&LinkError> {
        match &self.cause {
            Cause::Open(OpenError::Link(error)) => Some(error),
            Cause::Handshake(HandshakeError::Request(RequestError::Link(error))) => Some(error),
            _ => None,
        }
    }

    /// Whether it takes a person to go on.
    pub fn wants_login(&self) -> bool {
        let login = matches!(self.link(), Some(LinkError::Login(_) | LinkError::LoginFailed(_)));
        login || matches!(self.cause, Cause::Login(_))
    }

    /// Whether another attempt in a second would only fail in the same way.
    pub fn is_final(&self) -> bool {
        use HandshakeError::{NoCommonRevision, Request};
        use toolgate_mcp::RequestError::TimedOut;
        match &self.cause {
            _ if self.wants_login() => true,
            // A program that is not there will not be there in a second, nor will another certificate.
            Cause::Spawn(_) | Cause::Login(_) => true,
            _ if matches!(
                self.link(),
                Some(LinkError::Tls { .. } | LinkError::Redirect(_) | LinkError::Encoding(_))
            ) =>
            {
                true
            }
            Cause::Open(error) => !matches!(error, OpenError::Link(_)),
            // One that was silent for all of its time would only double the wait.
            Cause::Handshake(error) => matches!(error, NoCommonRevision(_) | Request(TimedOut(_))),
        }
    }

    /// The way out, where there is one to name.
    pub fn hint(&self) -> Option<String> {
        match self.link() {
            Some(LinkError::Tls { hint, .. }) => return hint.map(str::to_owned),
            Some(LinkError::Redirect(Some(_))) => {
                return Some("put that address in `url`, if you trust it".to_owned());
            }
            _ => {}
        }
        match &self.cause {
            Cause::Spawn(error) => error.hint(),
            Cause::Handshake(_) if self.exit.is_some() => {
                Some("run the command by hand to see why it ends".to_owned())
            }
            Cause::Handshake(HandshakeError::Request(toolgate_mcp::RequestError::TimedOut(_))) => {
                Some("a larger `timeout` may help a server that is slow to start".to_owned())
            }
            _ => None,
        }
    }
}

/// Connects to a server. One that ends when it is asked for the newest revision is started again
/// without being asked.
///
/// One that wants a login gets it where a person is there; that takes its own time.
pub async fn connect(
    spec: &ServerSpec,
    limits: Limits,
    tokens: Option<&Arc<TokenSource>>,
    handler: Arc<dyn Handler>,
) -> Result<Connection, ConnectError> {
    let (mut mode, mut logins) = (ProtocolMode::Auto, 0);
    loop {
        let error = match attempt(spec, limits, tokens.cloned(), Arc::clone(&handler), mode).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        let tokens = tokens.filter(|tokens| tokens.has_person() && logins < LOGINS);
        match (error.link(), tokens) {
            _ if matches!(error.cause, Cause::Handshake(HandshakeError::EndedOnProbe))
                && mode == ProtocolMode::Auto =>
            {
                mode = ProtocolMode::Legacy;
            }
            (Some(LinkError::Login(demand)), Some(tokens)) => {
                tokens.login(Some(demand)).await.map_err(|error| Cause::Login(Arc::new(error)))?;
                logins += 1;
            }
            _ => return Err(error),
        }
    }
}

/// The tokens for a server, where it is one that may want some: one that is reached over HTTP, and
/// for which the configuration holds no token of its own.
pub fn tokens(spec: &ServerSpec, logins: &Logins) -> Option<TokenSource> {
    let (Transport::Http(remote) | Transport::Sse(remote)) = &spec.transport else { return None };
    let own = remote.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
    if own && remote.oauth.is_none() {
        return None;
    }
    let url = Url::parse(remote.url.expose()).ok()?;
    let (options, tls) = (remote.oauth.clone().unwrap_or_default(), remote.tls.clone());
    Some(TokenSource::new(spec.name.as_str(), url, options, tls, logins))
}

async fn attempt(
    spec: &ServerSpec,
    limits: Limits,
    tokens: Option<Arc<TokenSource>>,
    handler: Arc<dyn Handler>,
    mode: ProtocolMode,
) -> Result<Connection, ConnectError> {
    let within = spec.timeout.get();
    let (link, child, over_http) = match &spec.transport {
        Transport::Stdio(stdio) => {
            let (link, child) = start(spec, stdio, limits)?;
            (link, Some(child), false)
        }
        Transport::Http(remote) => {
            (http::open(options(remote, tokens.clone(), within)?, limits).map_err(Cause::from)?, None, true)
        }
        Transport::Sse(remote) => (
            sse::open(options(remote, tokens.clone(), within)?, limits).await.map_err(Cause::from)?,
            None,
            false,
        ),
        Transport::Websocket(remote) => (
            websocket::open(options(remote, None, within)?, websocket::PING, limits)
                .await
                .map_err(Cause::from)?,
            None,
            false,
        ),
    };
    let session = Session::start(link, over_http, limits, handler);
    if let Some(tokens) = tokens {
        session.set_tokens(tokens);
    }
    match session.introduce(mode, within).await {
        Ok(peer) => Ok(Connection { session, peer, child }),
        Err(error) => Err(failure(session, child, error).await),
    }
}

fn start(spec: &ServerSpec, stdio: &Stdio, limits: Limits) -> Result<(Link, Child), ConnectError> {
    let mut child = ChildSpec::from(stdio);
    if let Some(config) = &spec.config {
        child.env.insert("MCP_CONFIG".to_owned(), Some(Text::hidden(config.expose())));
    }
    let mut child = spawn(child, stdio.fallback.as_ref()).map_err(Cause::from)?;
    let stdin = child.stdin.take().expect("a new child has its stdin");
    let stdout = child.stdout.take().expect("a new child has its stdout");
    Ok((lines::open(stdout, stdin, stdio.encoding, limits), child))
}

/// Starts a program, or the other one that does the same where the first is not there.
fn spawn(mut child: ChildSpec, fallback: Option<&Fallback>) -> Result<Child, SpawnError> {
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

fn options(
    remote: &Remote,
    tokens: Option<Arc<TokenSource>>,
    connect_timeout: Duration,
) -> Result<RemoteOptions, ConnectError> {
    let url = Url::parse(remote.url.expose()).map_err(|_| {
        Cause::Open(OpenError::Address { url: remote.url.shown().to_owned(), takes: "a whole address" })
    })?;
    let headers =
        remote.headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.expose()))).collect();
    Ok(RemoteOptions {
        headers,
        connect_timeout,
        sse_read_timeout: remote.sse_read_timeout.get(),
        terminate_on_close: remote.terminate_on_close,
        tls: remote.tls.clone(),
        tokens,
        ..RemoteOptions::new(url)
    })
}

/// What the process has to say about its end is worth waiting for, a little.
async fn failure(session: Session, child: Option<Child>, error: HandshakeError) -> ConnectError {
    let Some(mut child) = child else { return Cause::from(error).into() };
    let ended = timeout(LAST_WORDS, child.exit()).await.ok();
    drop(session);
    child.stop(if ended.is_some() { Duration::ZERO } else { GRACE }).await;
    let stderr = child.stderr_tail(STDERR_LINES).iter().map(|line| clean(line).into_owned()).collect();
    // A server that ended by itself, and not because we closed its stdin, says so with its status.
    ConnectError { cause: error.into(), exit: ended, stderr }
}
