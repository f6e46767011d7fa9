//! The doors: how requests from outside become calls, and who gets in.
//!
//! A door turns its wire form into a caller and a request, hands them to the runtime, and turns the result
//! back; it decides nothing else. Who calls is found in one place, [`admit`], for every door there is.
//! Invariant: nothing of a request's body is read before its caller is known, nothing is parsed before it was
//! scanned, and whatever comes from outside has a limit.

mod accept;
pub mod admit;
mod answer;
mod body;
mod entry;
mod gateway;
mod health;
pub mod keys;
mod mcp;
pub mod profile;
mod rest;
mod running;
pub mod runs;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use toolgate_audit::ProjectLog;
use toolgate_mcp::Link;
use toolgate_mcp::scan::Limits;
use toolgate_mcp::serve::Endpoint;
use toolgate_runtime::Runtime;
use toolgate_runtime::desk::Desk;
use toolgate_store::registry::Registry;
use toolgate_types::Caller;
use toolgate_types::DoorRules;
use toolgate_types::profile::ProfileName;

use crate::accept::Places;
pub use crate::accept::bind;
use crate::accept::tls::Tls;
pub use crate::accept::tls::TlsError;
use crate::admit::{Gate, Refusal};
pub use crate::admit::{KeysError, Known};
use crate::gateway::{Gateway, Visitor};
use crate::mcp::sse::Streams;
use crate::rest::Allowed;
use crate::running::Running;
use crate::runs::{Going, Runs};

/// Questions to the log that are answered at the same time: each reads files.
const LOG_READERS: usize = 4;
/// Streams of calls that are open at the same time: each looks at the log several times a second.
const LOG_STREAMS: usize = 32;

/// Conversations over WebSockets.
const MOST_CONVERSATIONS: usize = 4_096;

/// Why there is no door.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Nobody's tokens can be checked.
    #[error(transparent)]
    Keys(#[from] KeysError),
}

impl DoorError {
    /// The way out.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Tls(error) => error.hint(),
            Self::Keys(error) => error.hint(),
        }
    }
}

/// The door, and what is behind it.
pub struct Door {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) gate: Gate,
    pub(crate) log: ProjectLog,
    pub(crate) log_readers: Semaphore,
    pub(crate) log_streams: Arc<Semaphore>,
    /// Runs of the agent, which outlive the request they began with.
    pub(crate) going: Going,
    pub(crate) running: Arc<Running>,
    pub(crate) places: Arc<Places>,
    pub(crate) tls: Option<Tls>,
    pub(crate) max_body: usize,
    pub(crate) mcp: Arc<Endpoint<Gateway>>,
    pub(crate) wire: Limits,
    pub(crate) streams: Streams,
    /// Conversations that outlive the request they began with.
    conversations: Mutex<JoinSet<()>>,
    pub(crate) allowed: Allowed,
    registry: OnceLock<Registry>,
    desk: OnceLock<Arc<Desk>>,
    runs: OnceLock<Arc<dyn Runs>>,
}

impl Door {
    /// A door to a runtime, closed to calls until it is [opened](Self::open). `known` is by what callers
    /// are known; the log is that of the project.
    ///
    /// # Errors
    /// When a file for TLS, or with keys of an issuer, cannot be used.
    pub fn new(
        runtime: Arc<Runtime>,
        rules: &DoorRules,
        known: Known,
        log: ProjectLog,
    ) -> Result<Arc<Self>, DoorError> {
        let gate = Gate::new(rules, known)?;
        let tls = rules.tls.clone().map(|tls| Tls::open(tls, tokio::time::Instant::now())).transpose()?;
        let running = Arc::new(Running::default());
        let max_body = usize::try_from(rules.max_body.bytes()).unwrap_or(usize::MAX);
        let gateway = Gateway::new(&runtime, &running);
        let limits = Limits { size: max_body, depth: body::DEPTH };
        Ok(Arc::new(Self {
            gate,
            tls,
            runtime,
            log,
            log_readers: Semaphore::new(LOG_READERS),
            log_streams: Arc::new(Semaphore::new(LOG_STREAMS)),
            going: Going::default(),
            running,
            places: Arc::new(Places::new(rules)),
            max_body,
            mcp: Endpoint::new(Arc::new(gateway), limits),
            wire: limits,
            streams: Streams::default(),
            conversations: Mutex::default(),
            allowed: Allowed {
                networks: rules.allow_networks.clone(),
                commands: rules.allow_commands.clone(),
            },
            registry: OnceLock::new(),
            desk: OnceLock::new(),
            runs: OnceLock::new(),
        }))
    }

    /// Serves until it is dropped, or drained.
    pub async fn serve(self: &Arc<Self>, listener: TcpListener) {
        accept::serve(self, listener).await;
    }

    /// Serves the person at the machine, by a socket that nobody else can open.
    pub async fn serve_socket(self: &Arc<Self>, listener: UnixListener) {
        accept::serve_socket(self, listener).await;
    }

    /// Serves one caller over a link, by a profile where one is named, until it leaves or we are done.
    pub async fn converse(&self, caller: Caller, profile: Option<ProfileName>, link: Link) {
        let visitor = Visitor::new(&Arc::new(caller)).seeing(profile);
        tokio::select! {
            () = self.mcp.converse(visitor, link) => {}
            () = self.running.closing() => {}
        }
    }

    /// Has a conversation go on by itself, until its end or ours.
    pub(crate) fn converse_aside(
        self: &Arc<Self>,
        conversation: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Refusal> {
        let mut all = self.conversations.lock().unwrap_or_else(PoisonError::into_inner);
        while all.try_join_next().is_some() {}
        if all.len() >= MOST_CONVERSATIONS {
            return Err(Refusal::unavailable("too many conversations are open"));
        }
        let running = Arc::clone(&self.running);
        all.spawn(async move {
            let _counted = running.connection();
            tokio::select! {
                () = conversation => {}
                () = running.closing() => {}
            }
        });
        Ok(())
    }

    /// Takes changes of tools and servers, from now on. The first registry stays.
    pub fn manage(&self, registry: Registry) {
        let _ = self.registry.set(registry);
    }

    /// The way to change tools and servers, once there is one.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.registry.get()
    }

    /// Lets people answer the questions at this desk. The first desk stays.
    pub fn answer_at(&self, desk: Arc<Desk>) {
        let _ = self.desk.set(desk);
    }

    /// Where questions to people wait, where there is such a place.
    pub(crate) fn desk(&self) -> Option<&Arc<Desk>> {
        self.desk.get()
    }

    /// Makes ready what a first request of each profile would have to wait for. It takes its time.
    pub fn prepare(&self) {
        self.mcp.service().prepare();
    }

    /// Gives tasks to this agent. The first stays.
    pub fn employ(&self, runs: Arc<dyn Runs>) {
        let _ = self.runs.set(runs);
    }

    /// The agent, where there is one.
    pub(crate) fn runs(&self) -> Option<&Arc<dyn Runs>> {
        self.runs.get()
    }

    /// Lets calls in.
    pub fn open(&self) {
        self.running.open();
    }

    /// Lets no new call in, waits for those that run, up to a limit, and closes every connection. Says
    /// whether all of them came to their end.
    pub async fn drain(&self, limit: Duration) -> bool {
        if let Some(desk) = self.desk() {
            // Nobody is kept from stopping by a person who thinks.
            desk.close();
        }
        self.running.drain(limit).await
    }

    /// How many calls run.
    pub fn calls(&self) -> usize {
        self.running.calls()
    }
}
