//! Front ends of the gateway: the MCP endpoint and the REST API over HTTP, and authentication for both.
//!
//! A front end turns its wire format into a caller and a request, passes them to the runtime, and turns the result
//! back. It decides nothing else. Every front end finds the caller in one place, [`auth`]. Invariant: no part of a
//! request body is read before the caller is authenticated, nothing is parsed before it was scanned, and all input has
//! a limit.

// The future of a connection nests those of HTTP, MCP and the pipeline; the compiler checks each layer for `Send`.
#![recursion_limit = "256"]

pub mod auth;
mod body;
mod console;
mod handler;
mod health;
mod lifecycle;
mod listener;
mod log_work;
mod login;
mod mcp;
mod mcp_service;
pub mod profile;
pub mod project;
pub mod reference;
mod response;
mod rest;
mod route;
mod routes;
pub mod runs;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use toolgate_audit::ProjectLog;
use toolgate_mcp::Link;
use toolgate_mcp::server::SessionKeys;
use toolgate_runtime::Runtime;
use toolgate_runtime::questions::QuestionQueue;
use toolgate_store::cluster::ClusterStores;
use toolgate_store::registry::Registry;
use toolgate_types::Caller;
use toolgate_types::ServeConfig;
use toolgate_types::profile::ProfileName;

use crate::auth::Authenticator;
pub use crate::auth::{CallerDirectory, JwksError, check_issuers};
use crate::console::Console;
pub use crate::lifecycle::CallPermit;
use crate::lifecycle::Lifecycle;
use crate::listener::ListenerState;
pub use crate::listener::bind;
pub use crate::listener::tls::TlsError;
use crate::mcp::McpFrontEnd;
use crate::mcp_service::McpCaller;
use crate::project::ProjectService;
use crate::rest::AllowList;
use crate::rest::events::EventHub;
use crate::rest::executions::LogQueries;
use crate::runs::{AgentRuns, RunService};
use crate::streams::StreamLimits;

/// Uses of the files of the project at the same time.
const MAX_PROJECT_USES: usize = 2;
/// Tests of servers at the same time.
const MAX_SERVER_TESTS: usize = 4;

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

/// Inputs of a [`Gateway`]. Endpoints that need an absent part respond with an error.
pub struct GatewayParts {
    pub runtime: Arc<Runtime>,
    pub config: ServeConfig,
    /// Callers and their credentials.
    pub callers: CallerDirectory,
    /// Execution log of the project.
    pub log: ProjectLog,
    /// Enables changes to tools and servers.
    pub registry: Option<Registry>,
    /// Enables answers to the questions in this queue.
    pub questions: Option<Arc<QuestionQueue>>,
    /// Enables agent runs.
    pub runs: Option<Arc<dyn RunService>>,
    /// Enables reading and changing the files of the project.
    pub project: Option<Arc<dyn ProjectService>>,
    /// Keys that sign the ids of MCP sessions.
    pub session_keys: SessionKeys,
    /// State that the replicas of a cluster share.
    pub cluster: Option<ClusterStores>,
}

impl GatewayParts {
    /// Creates the inputs that every gateway needs, without the optional parts.
    pub fn new(
        runtime: Arc<Runtime>,
        config: ServeConfig,
        callers: CallerDirectory,
        log: ProjectLog,
    ) -> Self {
        let session_keys = SessionKeys::random();
        Self {
            runtime,
            config,
            callers,
            log,
            registry: None,
            questions: None,
            runs: None,
            project: None,
            session_keys,
            cluster: None,
        }
    }
}

/// The running gateway: the HTTP front ends and everything they need.
pub struct Gateway {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) authenticator: Authenticator,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// Largest request body, in bytes.
    pub(crate) max_body: usize,
    pub(crate) listener: ListenerState,
    pub(crate) mcp: McpFrontEnd,
    pub(crate) console: Console,
    pub(crate) streams: StreamLimits,
    pub(crate) log: LogQueries,
    pub(crate) events: EventHub,
    pub(crate) runs: AgentRuns,
    pub(crate) questions: Option<Arc<QuestionQueue>>,
    pub(crate) registry: Option<Registry>,
    pub(crate) project: Option<Arc<dyn ProjectService>>,
    /// Uses of the files of the project at the same time: each may load all of them.
    pub(crate) project_uses: Semaphore,
    /// Tests of servers at the same time: each starts a program or a connection.
    pub(crate) server_tests: Semaphore,
    /// Limits of registry entries that arrive over the network.
    pub(crate) allowed: ArcSwap<AllowList>,
    /// Changed sections of the configuration that wait for a restart.
    pub(crate) pending_restart: ArcSwap<Vec<String>>,
    /// State that the replicas of a cluster share.
    pub(crate) cluster: Option<ClusterStores>,
}

impl Gateway {
    /// Creates a gateway. It rejects calls until [`open`](Self::open).
    ///
    /// # Errors
    /// Fails if a TLS file, or a file with the keys of a token issuer, is unusable.
    pub fn new(parts: GatewayParts) -> Result<Arc<Self>, GatewayError> {
        let GatewayParts {
            runtime,
            config,
            callers,
            log,
            registry,
            questions,
            runs,
            project,
            session_keys,
            cluster,
        } = parts;
        let lifecycle = Arc::new(Lifecycle::default());
        let max_body = usize::try_from(config.max_body.bytes()).unwrap_or(usize::MAX);
        Ok(Arc::new(Self {
            authenticator: Authenticator::new(&config, callers)?
                .with_subjects(runtime.subject_tokens())
                .with_cluster(cluster.as_ref()),
            listener: ListenerState::new(&config)?,
            streams: StreamLimits::new(&config),
            console: Console::new(&session_keys, cluster.as_ref()),
            mcp: McpFrontEnd::new(&runtime, &lifecycle, max_body, &session_keys),
            log: LogQueries::new(&runtime, log),
            events: EventHub::default(),
            runs: AgentRuns::new(runs),
            questions,
            registry,
            project,
            project_uses: Semaphore::new(MAX_PROJECT_USES),
            server_tests: Semaphore::new(MAX_SERVER_TESTS),
            allowed: ArcSwap::from_pointee(AllowList::new(&config)),
            pending_restart: ArcSwap::default(),
            cluster,
            runtime,
            lifecycle,
            max_body,
        }))
    }

    /// Takes over a changed configuration: callers and their credentials, hosts, proxies, token issuers and limits. The
    /// listener, its certificate and the size of bodies stay as they are.
    ///
    /// # Errors
    /// If a file with the keys of a token issuer is unusable. Nothing changes then.
    pub fn replace(&self, config: &ServeConfig, callers: CallerDirectory) -> Result<(), GatewayError> {
        self.authenticator.replace(config, callers)?;
        self.streams.replace(config);
        self.listener.replace(config);
        self.allowed.store(Arc::new(AllowList::new(config)));
        Ok(())
    }

    /// Sets the changed sections of the configuration that wait for a restart.
    pub fn set_pending_restart(&self, sections: Vec<String>) {
        self.pending_restart.store(Arc::new(sections));
    }

    /// Serves connections until the future is dropped or the gateway drains. Follows the stored callers meanwhile.
    pub fn serve(self: &Arc<Self>, listener: TcpListener) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            tokio::select! {
                () = listener::serve(self, listener) => {}
                never = auth::follow_store(self) => match never {},
            }
        })
    }

    /// Serves the local user over a Unix socket. Only the user that runs the gateway can open it.
    pub fn serve_socket(self: &Arc<Self>, listener: UnixListener) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            listener::serve_socket(self, listener).await;
        })
    }

    /// Serves one caller over a message link, limited to a profile if one is given, until the caller leaves or the
    /// gateway closes. The person at the client may approve calls.
    pub fn serve_link(&self, caller: Caller, profile: Option<ProfileName>, link: Link) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mcp_caller = McpCaller::new(&Arc::new(caller)).with_profile(profile).with_client_approvals();
            let _connection = self.lifecycle.track_connection();
            self.mcp.serve_link(mcp_caller, link, None).await;
        })
    }

    /// Counts a command of the local user as a call, which shutdown waits for. Waits until the gateway is open; `None` if
    /// it stops.
    pub async fn begin_command(&self) -> Option<CallPermit> {
        self.lifecycle.begin_call_when_open().await.ok()
    }

    /// Replaces the keys that sign the ids of MCP sessions and seal the sessions of the console.
    pub fn set_session_keys(&self, keys: &SessionKeys) {
        self.mcp.set_session_keys(keys);
        self.console.set_keys(keys);
    }

    /// Builds the profile views and search indexes ahead of the first request. May take long.
    pub fn prepare(&self) {
        self.mcp.service.prepare();
    }

    /// Starts to accept calls.
    pub fn open(&self) {
        self.lifecycle.open();
    }

    /// Rejects new calls, waits for active calls up to `limit`, then closes every connection. Returns true if all calls
    /// ended in time.
    pub async fn drain(&self, limit: Duration) -> bool {
        if let Some(questions) = &self.questions {
            // A person who has not answered yet must not delay the shutdown.
            questions.close();
        }
        let ended = self.lifecycle.drain(limit).await;
        self.authenticator.save_uses();
        ended
    }

    pub fn active_calls(&self) -> usize {
        self.lifecycle.calls()
    }
}
