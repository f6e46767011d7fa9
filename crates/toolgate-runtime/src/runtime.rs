//! The runtime: connects to servers, discovers their tools, and owns the catalog.
//!
//! Each field of [`Runtime`] is a part with a file of its own; the call pipeline uses the parts directly. The `refresh`
//! module keeps the catalog current. Invariant: only `Runtime::rebuild` builds the catalog, under one lock
//! that no call waits for.

use std::sync::Arc;

use futures_util::future::join_all;
use toolgate_types::CallLimits;
use toolgate_types::server::StartupMode;
use toolgate_upstream::connect::login_options;
use toolgate_upstream::offer::ServerOffer;
use toolgate_upstream::scan::ScanLimits as WireLimits;
use toolgate_upstream::{BuiltinTool, ClientFeatures, ScriptRunner};

use crate::catalog::{Catalog, CatalogBuild, CatalogError, CatalogInputs, EventLevel};
use crate::pins::{LockError, NewPin, PinStore};
use crate::results::ResultStore;
use crate::stage::cache::ResultCache;

mod access;
mod apis;
mod approvals;
mod forward;
mod inputs;
mod live_catalog;
mod managed_server;
mod recorder;
mod refresh;
mod secret_rules;
mod setup;
mod sources;
mod tool_states;

use access::AccessControl;
use apis::api_status;
pub use approvals::PendingApproval;
pub use forward::{RequestKind, ServerRequestError};
use inputs::Inputs;
use live_catalog::LiveCatalog;
use managed_server::ManagedServer;
pub use managed_server::ServerStatus;
use recorder::CallRecorder;
use secret_rules::SecretRules;
pub use setup::RuntimeSetup;
use sources::{ServerOptions, ToolSources};
use tool_states::ToolStates;

/// Maximum nesting depth of a JSON message.
const MAX_JSON_DEPTH: usize = 64;

/// The runtime: the sources of tools, the catalog built from them, and the state that calls share.
///
/// The parts are plain fields, so that a call reaches each of them without another pointer or lock.
pub struct Runtime {
    /// Servers, APIs and own tools.
    pub(crate) sources: ToolSources,
    builtins: Vec<Arc<BuiltinTool>>,
    pub(crate) scripts: ScriptRunner,
    pub(crate) catalog: LiveCatalog,
    pins: PinStore,
    pub(crate) access: AccessControl,
    pub(crate) secrets: SecretRules,
    pub(crate) limits: CallLimits,
    /// Slots, rate limits and statistics.
    pub(crate) tool_states: ToolStates,
    pub(crate) cache: ResultCache,
    pub(crate) results: Option<Arc<ResultStore>>,
    /// Log, spans and metrics.
    pub(crate) recorder: CallRecorder,
}

/// Reasons why startup fails.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A server with `startup: required` is unavailable.
    #[error(
        "Failed to connect to MCP server '{server}' at {location}\nError: {reason}\n\n\
         The application cannot start without connecting to all configured MCP servers."
    )]
    Server {
        server: String,
        /// URL or command line.
        location: String,
        reason: Arc<str>,
        hint: Option<Arc<str>>,
    },
    /// The catalog cannot be built.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The lock file cannot be read.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl Runtime {
    /// Creates the runtime. Servers that start eagerly begin to connect.
    pub fn new(setup: RuntimeSetup) -> Self {
        let size = setup.limits.max_output.as_usize();
        let message_limits = WireLimits { size, depth: MAX_JSON_DEPTH };
        let logins = login_options(setup.token_folder, &setup.responder);
        let features = match setup.forwarded_features {
            Some(capabilities) => ClientFeatures::Forwarded(capabilities),
            None => ClientFeatures::Responder(Arc::clone(&setup.responder)),
        };
        let sources =
            ToolSources::new(ServerOptions { message_limits, logins, features }, setup.read_document);
        sources.store(Inputs::new(
            setup.own.into_iter().map(Arc::new).collect(),
            setup.settings,
            setup.servers.into_iter().map(|spec| sources.new_server(spec)).collect(),
            setup.apis.into_iter().map(|spec| sources.new_api(spec)).collect(),
        ));
        let reader = setup.results.as_ref().map(ResultStore::read_tool);
        Self {
            sources,
            builtins: setup.builtins.into_iter().chain(reader).map(Arc::new).collect(),
            scripts: ScriptRunner::new(message_limits),
            catalog: LiveCatalog::default(),
            pins: PinStore::new(setup.lock),
            access: AccessControl::new(setup.callers, setup.policy, setup.profiles, setup.responder),
            secrets: SecretRules::new(setup.secrets, &setup.egress),
            tool_states: ToolStates::new(setup.limits.max_concurrent, setup.history),
            limits: setup.limits,
            cache: ResultCache::default(),
            results: setup.results,
            recorder: CallRecorder::new(setup.log, setup.spans),
        }
    }

    /// Connects to all servers concurrently, requests their lists, and builds the catalog. Calls `report` for each
    /// server as soon as it is done, so a slow server delays no other.
    ///
    /// # Errors
    /// If a required server is unavailable, the catalog cannot be built, or the lock file cannot be read.
    pub async fn discover(&self, report: impl Fn(&ServerStatus)) -> Result<(), Vec<StartError>> {
        self.pins.load().map_err(|error| vec![error.into()])?;
        let report = &report;
        let inputs = self.sources.load_full();
        let discover_server = async |managed: &Arc<ManagedServer>| {
            let outcome = self.discover_one(managed).await;
            report(&managed.status(&self.catalog.load()));
            outcome
        };
        let servers = join_all(inputs.servers.iter().map(discover_server));
        let (outcomes, ()) = futures_util::future::join(servers, self.load_apis(&inputs.apis, report)).await;
        let mut errors: Vec<StartError> = outcomes.into_iter().filter_map(Result::err).collect();
        if let Err(found) = self.rebuild(BuildPhase::Startup).await {
            errors.extend(found.into_iter().map(StartError::from));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    async fn discover_one(&self, managed: &ManagedServer) -> Result<(), StartError> {
        let spec = managed.server.spec();
        let (reason, hint) = match managed.server.connection().await {
            Ok(_) => match managed.refresh(managed.server.take_stale()).await {
                Ok(_) => {
                    managed.is_listed.send_replace(true);
                    return Ok(());
                }
                Err(error) => (error.to_string().into(), None),
            },
            Err(unavailable) => (unavailable.reason, unavailable.hint),
        };
        if spec.startup == StartupMode::Required {
            let (server, location) = (spec.name.to_string(), spec.transport.location());
            return Err(StartError::Server { server, location, reason, hint });
        }
        tracing::warn!("MCP server '{}' is not available: {reason}", spec.name);
        Ok(())
    }

    /// Builds the catalog from the current inputs and swaps it in, then writes new pins.
    async fn rebuild(&self, phase: BuildPhase) -> Result<(), Vec<CatalogError>> {
        let new = self.swap_catalog(phase)?;
        self.pins.write(new).await;
        Ok(())
    }

    /// Builds and swaps the catalog without awaiting anything. Returns the pins to write to the lock file.
    fn swap_catalog(&self, phase: BuildPhase) -> Result<Vec<NewPin>, Vec<CatalogError>> {
        // Taken before the inputs are read, so that the last of several concurrent builds sees the newest inputs.
        let mut pins = self.pins.get();
        let inputs = self.sources.load_full();
        let offers: Vec<_> =
            inputs.servers.iter().map(|managed| (managed, managed.offer.load_full())).collect();
        let servers: Vec<_> =
            offers.iter().map(|(managed, offer)| (managed.server.spec(), offer.as_ref().as_ref())).collect();
        let apis: Vec<_> = inputs.apis.iter().map(|api| (api.spec(), api.loaded())).collect();
        let before = self.catalog.load();
        let CatalogBuild { catalog, events, pins: new, changes: changed } = Catalog::build(&CatalogInputs {
            builtins: &self.builtins,
            own: &inputs.own,
            settings: &inputs.settings,
            servers: &servers,
            apis: &apis,
            pins: &pins,
            on_collision: self.limits.on_collision,
            previous: (phase == BuildPhase::Running).then_some(&*before),
        })?;
        for event in events {
            match event.level {
                EventLevel::Error => tracing::error!("{}", event.message),
                EventLevel::Warning => tracing::warn!("{}", event.message),
                EventLevel::Info => tracing::info!("{}", event.message),
                EventLevel::Debug => tracing::debug!("{}", event.message),
            }
        }
        self.recorder.record_changes(changed);
        let differs = catalog.differs_from(&before);
        pins.add(new.iter().cloned());
        self.catalog.store(catalog, differs);
        Ok(new)
    }

    /// Rebuilds the catalog at run time. An error keeps the old catalog, so no server can stop the process.
    async fn rebuild_while_running(&self) {
        for error in self.rebuild(BuildPhase::Running).await.err().unwrap_or_default() {
            tracing::error!("the catalog was not updated: {error}");
        }
    }

    /// Status of all servers and APIs.
    pub fn servers(&self) -> Vec<ServerStatus> {
        let catalog = self.catalog();
        let inputs = self.sources.load();
        let servers = inputs.servers.iter().map(|managed| managed.status(&catalog));
        servers.chain(inputs.apis.iter().map(|api| api_status(api, &catalog))).collect()
    }

    /// Offers of the approved servers, by server name.
    pub fn offers(&self) -> Vec<(String, ServerOffer)> {
        let pins = self.pins.get();
        let offer = |managed: &Arc<ManagedServer>| {
            let spec = managed.server.spec();
            let offer = managed.offer.load_full().as_ref().clone()?;
            (spec.approved || pins.is_approved(&spec.name)).then(|| (spec.name.to_string(), offer))
        };
        self.sources.load().servers.iter().filter_map(offer).collect()
    }

    /// The stored results, if results are stored.
    pub fn results(&self) -> Option<&Arc<ResultStore>> {
        self.results.as_ref()
    }

    /// Returns true if the operator trusts the server.
    pub fn is_trusted(&self, server: &str) -> bool {
        self.sources.server(server).is_some_and(|server| server.spec().trusted)
    }

    /// Stops all servers, scripts and built-in tools, and waits for them to end.
    pub async fn stop(&self) {
        let builtins = self.builtins.iter().filter_map(|tool| tool.stop.as_ref()).map(|stop| stop());
        futures_util::future::join3(self.sources.stop(), self.scripts.stop(), join_all(builtins)).await;
        self.sources.join_stopping().await;
        if let Some(spans) = &self.recorder.spans {
            spans.close().await;
        }
    }
}

/// The phase in which a catalog is built. It decides how errors are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuildPhase {
    /// The first build: errors stop the process.
    Startup,
    /// A later build: errors keep the old catalog.
    Running,
}
