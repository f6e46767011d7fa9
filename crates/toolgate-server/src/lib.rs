//! Front ends of the gateway: the MCP endpoint and the REST API over HTTP, and authentication for both.
//!
//! A front end turns its wire format into a caller and a request, passes them to the runtime, and turns the result
//! back. It decides nothing else. Every front end finds the caller in one place, [`auth`]. Invariant: no part of a
//! request body is read before the caller is authenticated, nothing is parsed before it was scanned, and all input has
//! a limit.

pub mod auth;
mod body;
mod handler;
mod health;
pub mod keys;
mod lifecycle;
mod listener;
mod mcp;
mod mcp_service;
pub mod profile;
mod response;
mod rest;
mod route;
mod routes;
pub mod runs;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use toolgate_audit::ProjectLog;
use toolgate_mcp::Link;
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::serve::McpEndpoint;
use toolgate_runtime::Runtime;
use toolgate_runtime::questions::QuestionQueue;
use toolgate_store::registry::Registry;
use toolgate_types::Caller;
use toolgate_types::ServeConfig;
use toolgate_types::profile::ProfileName;

use crate::auth::{Authenticator, HttpError};
pub use crate::auth::{CallerDirectory, JwksError};
use crate::lifecycle::Lifecycle;
use crate::listener::ConnectionLimits;
pub use crate::listener::bind;
use crate::listener::tls::TlsContext;
pub use crate::listener::tls::TlsError;
use crate::mcp::sse::SseSessions;
use crate::mcp_service::{McpCaller, McpService};
use crate::rest::AllowList;
use crate::runs::{ActiveRuns, RunService};

/// Queries to the execution log that run at the same time. Each reads files.
const MAX_LOG_READERS: usize = 4;
/// Execution streams open at the same time. Each polls the log several times a second.
const MAX_LOG_STREAMS: usize = 32;

/// MCP sessions over WebSockets open at the same time.
const MAX_WEBSOCKETS: usize = 4_096;

/// Errors that prevent the gateway from starting.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Keys(#[from] JwksError),
}

impl GatewayError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Tls(error) => error.hint(),
            Self::Keys(error) => error.hint(),
        }
    }
}

/// The running gateway: the HTTP front ends and everything they need.
pub struct Gateway {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) authenticator: Authenticator,
    pub(crate) log: ProjectLog,
    pub(crate) log_readers: Semaphore,
    pub(crate) log_streams: Arc<Semaphore>,
    /// Agent runs. They outlive the request that started them.
    pub(crate) active_runs: ActiveRuns,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) connection_limits: Arc<ConnectionLimits>,
    pub(crate) tls: Option<TlsContext>,
    pub(crate) max_body: usize,
    pub(crate) mcp: Arc<McpEndpoint<McpService>>,
    pub(crate) message_limits: ScanLimits,
    pub(crate) sse_sessions: SseSessions,
    /// Tasks of WebSocket sessions. They outlive the request that opened them.
    websockets: Mutex<JoinSet<()>>,
    pub(crate) allowed: AllowList,
    registry: OnceLock<Registry>,
    questions: OnceLock<Arc<QuestionQueue>>,
    runs: OnceLock<Arc<dyn RunService>>,
}

impl Gateway {
    /// Creates a gateway for a runtime. It rejects calls until [`open`](Self::open). `directory` holds the callers and
    /// their credentials; `log` is the execution log of the project.
    ///
    /// # Errors
    /// Fails if a TLS file, or a file with the keys of a token issuer, is unusable.
    pub fn new(
        runtime: Arc<Runtime>,
        config: &ServeConfig,
        directory: CallerDirectory,
        log: ProjectLog,
    ) -> Result<Arc<Self>, GatewayError> {
        let authenticator = Authenticator::new(config, directory)?;
        let tls =
            config.tls.clone().map(|tls| TlsContext::open(tls, tokio::time::Instant::now())).transpose()?;
        let lifecycle = Arc::new(Lifecycle::default());
        let max_body = usize::try_from(config.max_body.bytes()).unwrap_or(usize::MAX);
        let service = McpService::new(&runtime, &lifecycle);
        let limits = ScanLimits { size: max_body, depth: body::MAX_DEPTH };
        Ok(Arc::new(Self {
            authenticator,
            tls,
            runtime,
            log,
            log_readers: Semaphore::new(MAX_LOG_READERS),
            log_streams: Arc::new(Semaphore::new(MAX_LOG_STREAMS)),
            active_runs: ActiveRuns::default(),
            lifecycle,
            connection_limits: Arc::new(ConnectionLimits::new(config)),
            max_body,
            mcp: McpEndpoint::new(Arc::new(service), limits),
            message_limits: limits,
            sse_sessions: SseSessions::default(),
            websockets: Mutex::default(),
            allowed: AllowList {
                networks: config.allow_networks.clone(),
                commands: config.allow_commands.clone(),
            },
            registry: OnceLock::new(),
            questions: OnceLock::new(),
            runs: OnceLock::new(),
        }))
    }

    /// Serves connections until the future is dropped or the gateway drains.
    pub async fn serve(self: &Arc<Self>, listener: TcpListener) {
        listener::serve(self, listener).await;
    }

    /// Serves the local user over a Unix socket. Only the user that runs the gateway can open it.
    pub async fn serve_socket(self: &Arc<Self>, listener: UnixListener) {
        listener::serve_socket(self, listener).await;
    }

    /// Serves one caller over a message link, limited to a profile if one is given, until the caller leaves or the
    /// gateway closes.
    pub async fn serve_link(&self, caller: Caller, profile: Option<ProfileName>, link: Link) {
        let mcp_caller = McpCaller::new(&Arc::new(caller)).with_profile(profile);
        tokio::select! {
            () = self.mcp.serve_link(mcp_caller, link) => {}
            () = self.lifecycle.closing() => {}
        }
    }

    /// Runs a WebSocket session in the background until it ends or the gateway closes.
    pub(crate) fn spawn_websocket(
        self: &Arc<Self>,
        session: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), HttpError> {
        let mut tasks = self.websockets.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= MAX_WEBSOCKETS {
            return Err(HttpError::unavailable("too many WebSocket sessions are open"));
        }
        let lifecycle = Arc::clone(&self.lifecycle);
        tasks.spawn(async move {
            let _connection = lifecycle.track_connection();
            tokio::select! {
                () = session => {}
                () = lifecycle.closing() => {}
            }
        });
        Ok(())
    }

    /// Enables changes to tools and servers. Only the first registry counts.
    pub fn set_registry(&self, registry: Registry) {
        let _ = self.registry.set(registry);
    }

    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.registry.get()
    }

    /// Enables answers to the questions in this queue. Only the first queue counts.
    pub fn set_questions(&self, questions: Arc<QuestionQueue>) {
        let _ = self.questions.set(questions);
    }

    pub(crate) fn questions(&self) -> Option<&Arc<QuestionQueue>> {
        self.questions.get()
    }

    /// Builds the profile views and search indexes ahead of the first request. May take long.
    pub fn prepare(&self) {
        self.mcp.service().prepare();
    }

    /// Enables agent runs. Only the first agent counts.
    pub fn set_agent(&self, runs: Arc<dyn RunService>) {
        let _ = self.runs.set(runs);
    }

    pub(crate) fn runs(&self) -> Option<&Arc<dyn RunService>> {
        self.runs.get()
    }

    /// Starts to accept calls.
    pub fn open(&self) {
        self.lifecycle.open();
    }

    /// Rejects new calls, waits for active calls up to `limit`, then closes every connection. Returns true if all calls
    /// ended in time.
    pub async fn drain(&self, limit: Duration) -> bool {
        if let Some(questions) = self.questions() {
            // A person who has not answered yet must not delay the shutdown.
            questions.close();
        }
        self.lifecycle.drain(limit).await
    }

    pub fn active_calls(&self) -> usize {
        self.lifecycle.calls()
    }
}
