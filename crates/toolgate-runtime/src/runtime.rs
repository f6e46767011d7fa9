//! The servers and the catalog together: connect, discover, call.
//!
//! What keeps the catalog true while it is used is in `keep`. Invariant: the catalog is made by one
//! function, `Runtime::rebuild`, under one lock that no call waits for.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use toolgate_types::server::Startup;
use toolgate_types::{HumanDuration, Limits, ServerName, ServerSpec, ToolDefinition, ToolSettings};
use toolgate_upstream::offer::{Kinds, Offer, canonical, discover};
use toolgate_upstream::scan::Limits as WireLimits;
use toolgate_upstream::{
    LinkError, Logins, Params, Questions, Raw, RequestError, Server, State, Trace, Unavailable, mirror,
};

use crate::catalog::{Built, Catalog, CatalogError, CatalogTool, Level, Parts, ToolState, Why};
use crate::pins::{LockError, LockFile, NewPin, Pin, Pins};

mod keep;

/// Levels of nesting in a message.
const DEPTH: usize = 64;

/// What a runtime is made of.
pub struct Setup {
    /// Own tools.
    pub own: Vec<ToolDefinition>,
    /// What the operator says about single tools.
    pub settings: Vec<ToolSettings>,
    /// MCP servers.
    pub servers: Vec<ServerSpec>,
    /// Limits over all tools.
    pub limits: Limits,
    /// Who logs in to servers that want it, and where tokens are kept.
    pub logins: Logins,
    /// Who answers what servers ask for.
    pub questions: Arc<dyn Questions>,
    /// Where definitions are remembered; without it, as long as the runtime lives.
    pub lock: Option<LockFile>,
}

/// The servers and the catalog.
pub struct Runtime {
    own: Vec<ToolDefinition>,
    settings: Vec<ToolSettings>,
    limits: Limits,
    servers: Vec<Live>,
    catalog: ArcSwap<Catalog>,
    lock: Option<LockFile>,
    pins: Mutex<Pins>,
    /// How often something has changed: what callers see, or the state of a server.
    version: watch::Sender<u64>,
}

/// A server with what it offers, once that is known.
struct Live {
    server: Server,
    offer: ArcSwap<Option<Offer>>,
}

/// Why the start fails.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A server that must be there is not.
    #[error(
        "Failed to connect to MCP server '{server}' at {place}\nError: {reason}\n\n\
         The application cannot start without connecting to all configured MCP servers."
    )]
    Server {
        /// The server.
        server: String,
        /// Where it is.
        place: String,
        /// Why.
        reason: Arc<str>,
        /// The way out, where there is one to name.
        hint: Option<Arc<str>>,
    },
    /// The tools do not go together.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The pins cannot be read.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// A definition that waits for a person's word.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The tool, as it is listed.
    pub tool: Arc<CatalogTool>,
    /// Its definition as it was approved or first seen.
    pub was: Option<serde_json::Value>,
    /// Its definition as it is.
    pub is: serde_json::Value,
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no such tool.
    #[error("there is no tool `{0}`")]
    NotFound(String),
    /// It may not be called.
    #[error("tool `{name}` is held back: {reason}")]
    Quarantined {
        /// The tool.
        name: String,
        /// Why.
        reason: String,
    },
    /// It is a script, and nothing here runs scripts.
    #[error("tool `{0}` is a script, and this version calls tools of MCP servers only")]
    Script(String),
    /// Its server waits for approval.
    #[error(
        "MCP server `{0}` is not approved; `toolgate servers approve {0}` shows what it offers and lets it through"
    )]
    NotApproved(String),
    /// Its server is not there.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The server ended in the middle of it.
    #[error("MCP server `{server}` ended before it answered: {how}")]
    Ended {
        /// The server.
        server: String,
        /// How its process ended and what it last wrote, where it has one.
        how: String,
    },
    /// The server did not do it.
    #[error("MCP server `{server}`: {source}")]
    Request {
        /// The server.
        server: String,
        /// Why.
        source: RequestError,
    },
}

/// A server in listings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub transport: &'static str,
    /// What it is doing.
    pub state: &'static str,
    /// Why it is not ready, where it is not.
    pub reason: Option<String>,
    /// In how many milliseconds it may be tried again, where it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u128>,
    /// The revision it speaks.
    pub protocol_version: Option<&'static str>,
    /// How many tools it offers.
    pub tools: usize,
    /// How many of them are held back.
    pub held_back: usize,
    /// Its name for itself, and its version.
    pub implementation: Option<String>,
    /// What its process last wrote to stderr.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
}

impl Runtime {
    /// Gets the servers going; those to be there from the start begin to connect.
    pub fn new(setup: Setup) -> Self {
        let size = usize::try_from(setup.limits.max_output.bytes()).unwrap_or(usize::MAX);
        let wire = WireLimits { size, depth: DEPTH };
        let live = |spec| Live {
            server: Server::new(spec, wire, &setup.logins, Arc::clone(&setup.questions)),
            offer: ArcSwap::from_pointee(None),
        };
        Self {
            own: setup.own,
            settings: setup.settings,
            limits: setup.limits,
            servers: setup.servers.into_iter().map(live).collect(),
            catalog: ArcSwap::default(),
            lock: setup.lock,
            pins: Mutex::default(),
            version: watch::Sender::new(0),
        }
    }

    /// Connects to every server at the same time, asks each what it offers, and makes the catalog.
    /// `tell` hears of each server when it is done. One that is slow delays no other.
    ///
    /// # Errors
    /// When a server that must be there is not, the tools do not go together, or the pins of the
    /// project cannot be read.
    pub async fn discover(&self, tell: impl Fn(&ServerStatus)) -> Result<(), Vec<StartError>> {
        if let Some(lock) = &self.lock {
            *self.pins() = lock.read().map_err(|error| vec![error.into()])?;
        }
        let tell = &tell;
        let ask = async |live| {
            let outcome = self.ask(live).await;
            tell(&status(live, &self.catalog.load()));
            outcome
        };
        let outcomes = join_all(self.servers.iter().map(ask)).await;
        let mut errors: Vec<StartError> = outcomes.into_iter().filter_map(Result::err).collect();
        if let Err(found) = self.rebuild(Moment::Start).await {
            errors.extend(found.into_iter().map(StartError::from));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    async fn ask(&self, live: &Live) -> Result<(), StartError> {
        let spec = live.server.spec();
        let (reason, hint) = match live.server.connection().await {
            Ok(_) => match live.refresh(live.server.take_stale()).await {
                Ok(_) => return Ok(()),
                Err(error) => (error.to_string().into(), None),
            },
            Err(unavailable) => (unavailable.reason, unavailable.hint),
        };
        if spec.startup == Startup::Required {
            let (server, place) = (spec.name.to_string(), spec.transport.place());
            return Err(StartError::Server { server, place, reason, hint });
        }
        tracing::warn!("MCP server '{}' is not available: {reason}", spec.name);
        Ok(())
    }

    /// Makes the catalog from what is known now, and puts it in place in one step.
    async fn rebuild(&self, moment: Moment) -> Result<(), Vec<CatalogError>> {
        let new = self.swap(moment)?;
        if !new.is_empty()
            && let Some(Err(error)) = self.change_pins(move |pins| pins.remember(new)).await
        {
            tracing::warn!("what servers say of their tools is not remembered: {error}");
        }
        Ok(())
    }

    /// The part of it that waits for nothing. Returns what is to be remembered beyond this process.
    fn swap(&self, moment: Moment) -> Result<Vec<NewPin>, Vec<CatalogError>> {
        let offers: Vec<_> = self.servers.iter().map(|live| (live, live.offer.load_full())).collect();
        let servers: Vec<_> =
            offers.iter().map(|(live, offer)| (live.server.spec(), offer.as_ref().as_ref())).collect();
        let mut pins = self.pins();
        let before = self.catalog.load_full();
        let Built { catalog, events, pins: new } = Catalog::build(&Parts {
            own: &self.own,
            settings: &self.settings,
            servers: &servers,
            pins: &pins,
            on_collision: self.limits.on_collision,
            previous: (moment == Moment::Later).then_some(&*before),
        })?;
        for event in events {
            match event.level {
                Level::Error => tracing::error!("{}", event.message),
                Level::Warning => tracing::warn!("{}", event.message),
                Level::Info => tracing::info!("{}", event.message),
                Level::Debug => tracing::debug!("{}", event.message),
            }
        }
        let differs = catalog.differs_from(&before);
        pins.remember(new.iter().cloned());
        self.catalog.store(Arc::new(catalog));
        if differs {
            self.version.send_modify(|version| *version += 1);
        }
        Ok(new)
    }

    /// Changes the pins in the file, and takes what is there then. `None` where there is no file.
    async fn change_pins(
        &self,
        change: impl FnOnce(&mut Pins) + Send + 'static,
    ) -> Option<Result<(), LockError>> {
        let lock = self.lock.clone()?;
        let changed = tokio::task::spawn_blocking(move || lock.change(change)).await;
        Some(
            changed
                .unwrap_or_else(|panic| Err(std::io::Error::other(panic).into()))
                .map(|pins| *self.pins() = pins),
        )
    }

    fn pins(&self) -> std::sync::MutexGuard<'_, Pins> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The definitions of a server that wait for a person's word.
    pub fn waiting(&self, server: &str) -> Vec<Waiting> {
        let pins = self.pins();
        let waits = |tool: &&Arc<CatalogTool>| {
            let approvable =
                matches!(tool.state, ToolState::Quarantined { why: Why::NotApproved | Why::Changed, .. });
            approvable && tool.server.as_ref().is_some_and(|name| name.as_str() == server)
        };
        let waiting = |tool: &Arc<CatalogTool>| {
            let is = canonical(tool.definition.as_ref()?);
            let was = pins.get(tool.server.as_ref()?, &tool.original).map(|pin| pin.definition.clone());
            Some(Waiting { tool: Arc::clone(tool), was, is })
        };
        self.catalog.load().tools().filter(waits).filter_map(waiting).collect()
    }

    /// Lets these definitions through, and the server as a whole, from now on.
    ///
    /// # Errors
    /// When that cannot be remembered.
    pub async fn approve(&self, server: &ServerName, approved: &[Waiting]) -> Result<(), LockError> {
        let pin = |waiting: &Waiting| {
            let hash = waiting.tool.hash.clone()?;
            Some((waiting.tool.original.clone(), Pin { hash, definition: waiting.is.clone() }))
        };
        let tools: Vec<_> = approved.iter().filter_map(pin).collect();
        self.pins().approve(server, tools.clone());
        let name = server.clone();
        if let Some(outcome) = self.change_pins(move |pins| pins.approve(&name, tools)).await {
            outcome?;
        }
        self.rebuild_now().await;
        Ok(())
    }

    /// Makes the catalog while it is used. Nothing that comes from a server ends that.
    async fn rebuild_now(&self) {
        for error in self.rebuild(Moment::Later).await.err().unwrap_or_default() {
            tracing::error!("the catalog stays as it was: {error}");
        }
    }

    /// Tells when something has changed: what callers see, or the state of a server. Only
    /// [`Runtime::keep`] makes it so.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The catalog as it is now. Whoever holds it keeps it as it was.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// The servers and what they are doing.
    pub fn servers(&self) -> Vec<ServerStatus> {
        let catalog = self.catalog();
        self.servers.iter().map(|live| status(live, &catalog)).collect()
    }

    /// What the servers offer beside tools, by their names; nothing of a server that waits for
    /// approval.
    pub fn offers(&self) -> Vec<(String, Offer)> {
        let pins = self.pins();
        let offer = |live: &Live| {
            let spec = live.server.spec();
            let offer = live.offer.load_full().as_ref().clone()?;
            (spec.approved || pins.approves(&spec.name)).then(|| (spec.name.to_string(), offer))
        };
        self.servers.iter().filter_map(offer).collect()
    }

    /// Calls a tool on its server, with arguments as they are. The server is told of the trace.
    ///
    /// # Errors
    /// When there is no such tool, its server is not there, or the server does not answer in time.
    pub async fn call(&self, name: &str, arguments: Raw, trace: &Trace) -> Result<Raw, CallError> {
        let catalog = self.catalog();
        let tool: &Arc<CatalogTool> =
            catalog.resolve(name).ok_or_else(|| CallError::NotFound(name.to_owned()))?;
        if let ToolState::Quarantined { reason, .. } = &tool.state {
            return Err(CallError::Quarantined { name: name.to_owned(), reason: reason.clone() });
        }
        let Some(server) = &tool.server else { return Err(CallError::Script(name.to_owned())) };
        let within = tool.limits.timeout;
        let mirrored = match tool.mirrors.as_slice() {
            [] => Vec::new(),
            mirrors => mirror::headers(mirrors, &arguments.parse().unwrap_or_default()),
        };
        let params = Params::none()
            .with("name", &tool.original)
            .with_raw("arguments", arguments)
            .mirroring(mirrored)
            .traced(trace);
        self.request(server.as_str(), "tools/call", params, within).await
    }

    /// Asks a server for something, within the time its description gives, or less.
    ///
    /// # Errors
    /// When the server is not there or does not answer in time.
    pub async fn request(
        &self,
        server: &str,
        method: &str,
        params: Params,
        within: Option<HumanDuration>,
    ) -> Result<Raw, CallError> {
        let live = self.servers.iter().find(|live| live.server.spec().name.as_str() == server);
        let live = live.ok_or_else(|| CallError::NotFound(server.to_owned()))?;
        let spec = live.server.spec();
        if !spec.approved && !self.pins().approves(&spec.name) {
            return Err(CallError::NotApproved(server.to_owned()));
        }
        let within = within.unwrap_or(spec.request_timeout).get();
        let connection = live.server.connection().await?;
        let outcome = connection.session.ask(method, params, within).await;
        let server = server.to_owned();
        match outcome {
            Ok(answer) => Ok(answer),
            Err(RequestError::Link(why @ LinkError::Closed)) => {
                Err(CallError::Ended { server, how: connection.obituary(&why).await })
            }
            Err(source) => Err(CallError::Request { server, source }),
        }
    }

    /// Ends every connection and every process, and waits for them.
    pub async fn stop(&self) {
        join_all(self.servers.iter().map(|live| live.server.stop())).await;
    }
}

/// Whether a catalog may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// It is the first.
    Start,
    /// Others were there before, and whatever comes, the process goes on.
    Later,
}

impl Live {
    /// Asks for what may have changed; says what has.
    async fn refresh(&self, kinds: Kinds) -> Result<Kinds, CallError> {
        let spec = self.server.spec();
        let kinds = Kinds {
            tools: kinds.tools && spec.load_tools,
            prompts: kinds.prompts && spec.load_prompts,
            resources: kinds.resources,
        };
        let connection = self.server.connection().await?;
        let before = self.offer.load_full();
        let asked = discover(&connection, kinds, before.as_ref().as_ref(), spec.request_timeout.get()).await;
        let mut offer = asked
            .map_err(|source| CallError::Request { server: spec.name.to_string(), source })
            .inspect_err(|_| self.server.put_stale(kinds))?;
        if let Some(allowed) = &spec.prompts {
            offer.prompts =
                offer.prompts.iter().filter(|prompt| allowed.contains(&prompt.id)).cloned().collect();
        }
        let changed = before.as_ref().as_ref().map_or(Kinds::ALL, |before| offer.changes_since(before));
        self.offer.store(Arc::new(Some(offer)));
        Ok(changed)
    }
}

fn status(live: &Live, catalog: &Catalog) -> ServerStatus {
    let spec = live.server.spec();
    let state = live.server.state();
    let label = state.label();
    let (reason, next_try, connection) = match state {
        State::Down { reason, hint, next_try, .. } => {
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            (Some(format!("{reason}{hint}")), Some(next_try), None)
        }
        State::Ready(connection) => (None, None, Some(connection)),
        State::Idle | State::Connecting => (None, None, None),
    };
    let wait = |next: Instant| next.saturating_duration_since(Instant::now()).as_millis();
    let held =
        |tool: &&Arc<CatalogTool>| tool.server.as_ref() == Some(&spec.name) && tool.state != ToolState::Ready;
    let peer = connection.as_ref().map(|connection| &connection.peer);
    ServerStatus {
        name: spec.name.to_string(),
        transport: spec.transport.label(),
        state: label,
        reason,
        retry_in_ms: next_try.map(wait),
        protocol_version: peer.map(|peer| peer.revision.name()),
        tools: live.offer.load().as_ref().as_ref().map_or(0, |offer| offer.tools.len()),
        held_back: catalog.tools().filter(held).count(),
        implementation: peer.map(|peer| format!("{} {}", peer.name, peer.version).trim().to_owned()),
        stderr: connection.as_ref().map(|connection| connection.stderr_tail()).unwrap_or_default(),
    }
}
