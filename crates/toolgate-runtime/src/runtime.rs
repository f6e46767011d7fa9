//! The servers and the catalog together: connect, discover, call.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use serde::Serialize;
use toolgate_types::server::Startup;
use toolgate_types::{HumanDuration, Limits, ServerSpec, ToolDefinition, ToolSettings};
use toolgate_upstream::offer::{Offer, Wanted, discover};
use toolgate_upstream::scan::Limits as WireLimits;
use toolgate_upstream::{Logins, Params, Questions, Raw, RequestError, Server, State, Unavailable, mirror};

use crate::catalog::{Catalog, CatalogError, CatalogTool, Level, Parts, ToolState};

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
}

/// The servers and the catalog.
pub struct Runtime {
    own: Vec<ToolDefinition>,
    settings: Vec<ToolSettings>,
    limits: Limits,
    servers: Vec<Live>,
    catalog: ArcSwap<Catalog>,
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
    /// Its server is not there.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
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
    /// The revision it speaks.
    pub protocol_version: Option<&'static str>,
    /// How many tools it offers.
    pub tools: usize,
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
        }
    }

    /// Connects to every server at the same time, asks each what it offers, and makes the catalog.
    /// `tell` hears of each server when it is done. One that is slow delays no other.
    ///
    /// # Errors
    /// When a server that must be there is not, or the tools do not go together.
    pub async fn discover(&self, tell: impl Fn(&ServerStatus)) -> Result<(), Vec<StartError>> {
        let tell = &tell;
        let ask = async |live| {
            let outcome = self.ask(live).await;
            tell(&status(live));
            outcome
        };
        let outcomes = join_all(self.servers.iter().map(ask)).await;
        let mut errors: Vec<StartError> = outcomes.into_iter().filter_map(Result::err).collect();
        let offers: Vec<_> = self.servers.iter().map(|live| (live, live.offer.load_full())).collect();
        let servers: Vec<_> = offers
            .iter()
            .filter_map(|(live, offer)| Some((live.server.spec(), offer.as_ref().as_ref()?)))
            .collect();
        let parts = Parts {
            own: &self.own,
            settings: &self.settings,
            servers: &servers,
            on_collision: self.limits.on_collision,
            previous: None,
        };
        match Catalog::build(&parts) {
            Ok((catalog, events)) => {
                for event in events {
                    match event.level {
                        Level::Error => tracing::error!("{}", event.message),
                        Level::Warning => tracing::warn!("{}", event.message),
                        Level::Info => tracing::info!("{}", event.message),
                        Level::Debug => tracing::debug!("{}", event.message),
                    }
                }
                self.catalog.store(Arc::new(catalog));
            }
            Err(found) => errors.extend(found.into_iter().map(StartError::from)),
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    async fn ask(&self, live: &Live) -> Result<(), StartError> {
        let spec = live.server.spec();
        let reason = match live.server.connection().await {
            Ok(connection) => {
                let wanted = Wanted { tools: spec.load_tools, prompts: spec.load_prompts };
                match discover(&connection.session, wanted, spec.request_timeout.get()).await {
                    Ok(offer) => {
                        live.offer.store(Arc::new(Some(offer)));
                        return Ok(());
                    }
                    Err(error) => (error.to_string().into(), None),
                }
            }
            Err(unavailable) => (unavailable.reason, unavailable.hint),
        };
        let (reason, hint) = reason;
        if spec.startup == Startup::Required {
            let (server, place) = (spec.name.to_string(), spec.transport.place());
            return Err(StartError::Server { server, place, reason, hint });
        }
        tracing::warn!("MCP server '{}' is not available: {reason}", spec.name);
        Ok(())
    }

    /// The catalog as it is now. Whoever holds it keeps it as it was.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// The servers and what they are doing.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.servers.iter().map(status).collect()
    }

    /// What a server offers, by its name.
    pub fn offers(&self) -> Vec<(String, Arc<Option<Offer>>)> {
        self.servers
            .iter()
            .map(|live| (live.server.spec().name.to_string(), live.offer.load_full()))
            .collect()
    }

    /// Calls a tool on its server, with arguments as they are.
    ///
    /// # Errors
    /// When there is no such tool, its server is not there, or the server does not answer in time.
    pub async fn call(&self, name: &str, arguments: Raw) -> Result<Raw, CallError> {
        let catalog = self.catalog();
        let tool: &Arc<CatalogTool> =
            catalog.resolve(name).ok_or_else(|| CallError::NotFound(name.to_owned()))?;
        if let ToolState::Quarantined(reason) = &tool.state {
            return Err(CallError::Quarantined { name: name.to_owned(), reason: reason.clone() });
        }
        let Some(server) = &tool.server else { return Err(CallError::Script(name.to_owned())) };
        let within = tool.limits.timeout;
        let mirrored = match tool.mirrors.as_slice() {
            [] => Vec::new(),
            mirrors => mirror::headers(mirrors, &arguments.parse().unwrap_or_default()),
        };
        let params =
            Params::none().with("name", &tool.original).with_raw("arguments", arguments).mirroring(mirrored);
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
        let within = within.unwrap_or(live.server.spec().request_timeout).get();
        let connection = live.server.connection().await?;
        let outcome = connection.session.ask(method, params, within).await;
        outcome.map_err(|source| CallError::Request { server: server.to_owned(), source })
    }

    /// Ends every connection and every process, and waits for them.
    pub async fn stop(&self) {
        join_all(self.servers.iter().map(|live| live.server.stop())).await;
    }
}

fn status(live: &Live) -> ServerStatus {
    let spec = live.server.spec();
    let state = live.server.state();
    let label = state.label();
    let (reason, connection) = match state {
        State::Down { reason, hint, .. } => {
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            (Some(format!("{reason}{hint}")), None)
        }
        State::Ready(connection) => (None, Some(connection)),
        State::Idle | State::Connecting => (None, None),
    };
    let peer = connection.as_ref().map(|connection| &connection.peer);
    ServerStatus {
        name: spec.name.to_string(),
        transport: spec.transport.label(),
        state: label,
        reason,
        protocol_version: peer.map(|peer| peer.revision.name()),
        tools: live.offer.load().as_ref().as_ref().map_or(0, |offer| offer.tools.len()),
        implementation: peer.map(|peer| format!("{} {}", peer.name, peer.version).trim().to_owned()),
        stderr: connection.as_ref().map(|connection| connection.stderr_tail()).unwrap_or_default(),
    }
}
