//! The runtime: connects to servers, discovers their tools, and owns the catalog.
//!
//! Each field of [`Runtime`] is a part with a file of its own; the call pipeline uses the parts directly. The `refresh`
//! module keeps the catalog current. Invariant: only `Runtime::rebuild` builds the catalog, under one lock
//! that no call waits for.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout;
use toolgate_redact::printable;
use toolgate_types::server::{ServerSpec, StartupMode, Transport};
use toolgate_types::tool::RateLimit;
use toolgate_types::{ByteSize, CallLimits, HumanDuration};
use toolgate_upstream::connect::with_browser;
use toolgate_upstream::offer::{OfferKinds, ServerOffer};
use toolgate_upstream::scan::ScanLimits as WireLimits;
use toolgate_upstream::{
    BuiltinTool, ClientFeatures, LogLimit, MAX_EAGER_WAIT, ScriptRunner, Server, ServerState,
};

use crate::catalog::{Catalog, CatalogBuild, CatalogError, CatalogInputs, CatalogTool, EventLevel};
use crate::date;
use crate::pins::{LockError, NewPin, PinStore};
use crate::results::ResultStore;
use crate::stage::cache::ResultCache;
use crate::taint::TaintTracker;
use crate::tasks::TaskRegistry;

mod access;
mod apis;
mod approvals;
mod client_lists;
mod credentials;
mod inputs;
mod live_catalog;
mod managed_server;
mod masked_entry;
mod recorder;
mod refresh;
mod secret_rules;
mod server_events;
mod server_test;
mod setup;
mod sources;
mod tool_states;

use access::AccessControl;
pub use access::AccessRules;
use apis::api_status;
pub use approvals::PendingApproval;
pub use client_lists::{ListFilter, ListViewer};
use inputs::Inputs;
use live_catalog::LiveCatalog;
use managed_server::ManagedServer;
pub use managed_server::{LoginStatus, ServerError, ServerStatus};
pub use masked_entry::MaskedValue;
use recorder::CallRecorder;
use secret_rules::SecretRules;
pub use server_test::ServerTest;
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
    pub(crate) pins: PinStore,
    pub(crate) access: AccessControl,
    pub(crate) secrets: SecretRules,
    /// Limits over all tools. Some of them can be replaced while calls run.
    pub(crate) limits: ArcSwap<CallLimits>,
    /// Slots, rate limits and statistics.
    pub(crate) tool_states: ToolStates,
    pub(crate) cache: ResultCache,
    pub(crate) results: Option<Arc<ResultStore>>,
    pub(crate) tasks: TaskRegistry,
    /// Log, spans and metrics.
    pub(crate) recorder: CallRecorder,
}

/// The limits of a tool, with the defaults of its server and of the project applied.
#[derive(Debug, Clone, Copy)]
pub struct LimitsInForce {
    pub timeout: HumanDuration,
    /// Calls that may run at the same time.
    pub max_instances: NonZeroU32,
    pub max_output: ByteSize,
    pub rate_limit: Option<RateLimit>,
    /// Time that results are cached.
    pub cache_ttl: Option<HumanDuration>,
}

/// Reasons why startup fails.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A server with `startup: required` or `eager` is unavailable. The start fails without a required one.
    #[error(
        "Failed to connect to MCP server '{server}' at {}\nError: {}{}",
        printable(location),
        printable(reason),
        if *is_required {
            "\n\nThe application cannot start without connecting to all configured MCP servers."
        } else {
            ""
        }
    )]
    Server {
        server: String,
        /// URL or command line.
        location: String,
        reason: Arc<str>,
        hint: Option<Arc<str>>,
        is_required: bool,
    },
    /// The catalog cannot be built.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The lock file cannot be read.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// Longest wait of [`Runtime::discover_within`] for what is not required.
#[derive(Debug, Clone, Copy)]
pub struct DiscoveryGrace {
    pub usual: Duration,
    /// For servers whose first start may download a package. A process that ends early loses the download.
    pub downloads: Duration,
}

/// The time that an eager server needs beyond its `timeout`, to list its tools or to make all attempts to connect.
const EAGER_SLACK: Duration = Duration::from_secs(6);

impl StartError {
    /// Returns true if a gateway cannot start because of it.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Server { is_required: false, .. })
    }
}

impl DiscoveryGrace {
    pub const UNLIMITED: Self = Self { usual: Duration::MAX, downloads: Duration::MAX };

    fn of(self, spec: &ServerSpec) -> Duration {
        match &spec.transport {
            _ if spec.startup == StartupMode::Required => Duration::MAX,
            _ if spec.startup == StartupMode::Eager => {
                self.usual.max(spec.timeout.get().saturating_add(EAGER_SLACK).min(MAX_EAGER_WAIT))
            }
            Transport::Stdio(stdio) if stdio.may_download() => self.downloads,
            _ => self.usual,
        }
    }
}

impl Runtime {
    /// Creates the runtime. Servers that start eagerly begin to connect.
    pub fn new(setup: RuntimeSetup) -> Self {
        let size = setup.limits.max_output.as_usize();
        let message_limits = WireLimits { size, depth: MAX_JSON_DEPTH };
        let logins = with_browser(setup.logins, &setup.responder);
        let features = match setup.forwarded_features {
            Some(capabilities) => ClientFeatures::Forwarded(capabilities),
            None => ClientFeatures::Responder(Arc::clone(&setup.responder)),
        };
        let max_requests = usize::try_from(setup.limits.max_concurrent.get()).unwrap_or(usize::MAX);
        let options = ServerOptions { message_limits, max_requests, logins, features };
        let sources = ToolSources::new(options, setup.read_document);
        sources.store(Inputs::new(
            setup.own,
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
            access: AccessControl::new(
                AccessRules { callers: setup.callers, policy: setup.policy },
                setup.profiles,
                setup.responder,
                TaintTracker::new(
                    setup.limits.taint_window.get(),
                    setup.cluster.as_ref().map(|cluster| Arc::clone(&cluster.taint)),
                ),
            ),
            tasks: TaskRegistry::default(),
            secrets: SecretRules::new(setup.secrets, &setup.egress),
            tool_states: ToolStates::new(
                setup.limits.max_concurrent,
                setup.history,
                setup.cluster.map(|cluster| cluster.limits),
            ),
            limits: ArcSwap::from_pointee(setup.limits),
            cache: ResultCache::default(),
            results: setup.results,
            recorder: CallRecorder::new(setup.log, setup.spans),
        }
    }

    /// Takes over changed limits: the default timeout, the rule for collisions of names, and the time that a caller
    /// without a session stays tainted. Slots and sizes of messages stay as they are. The caller rebuilds the catalog.
    pub fn set_limits(&self, limits: CallLimits) {
        self.access.taint.set_window(limits.taint_window.get());
        let CallLimits { max_concurrent, max_output, .. } = **self.limits.load();
        self.limits.store(Arc::new(CallLimits { max_concurrent, max_output, ..limits }));
    }

    /// Connects to all servers concurrently, requests their lists, and builds the catalog. Calls `report` for each
    /// server as soon as it is done, so a slow server delays no other.
    ///
    /// # Errors
    /// If a required server is unavailable, the catalog cannot be built, or the lock file cannot be read.
    pub async fn discover(&self, report: impl Fn(&ServerStatus)) -> Result<(), Vec<StartError>> {
        self.discover_within(DiscoveryGrace::UNLIMITED, report).await
    }

    /// The same, but waits at most `grace` for everything that is not required: servers that are not, APIs, and lists of
    /// prompts and resources. The catalog gets the rest later, if [`Runtime::watch_servers`] runs, or with
    /// [`Runtime::discover_late`].
    ///
    /// # Errors
    /// Like [`Runtime::discover`].
    pub async fn discover_within(
        &self,
        grace: DiscoveryGrace,
        report: impl Fn(&ServerStatus),
    ) -> Result<(), Vec<StartError>> {
        self.pins.load().map_err(|error| vec![error.into()])?;
        let report = &report;
        let inputs = self.sources.load_full();
        let discover_server = async |managed: &Arc<ManagedServer>| {
            let discovery = self.discover_one(managed, grace.usual);
            let outcome = timeout(grace.of(managed.server.spec()), discovery).await.unwrap_or(Ok(()));
            report(&managed.status(&self.catalog.load()));
            outcome
        };
        let servers = join_all(inputs.servers.iter().map(discover_server));
        let apis = self.load_apis(&inputs.apis, grace.usual, report);
        let (outcomes, ()) = futures_util::future::join(servers, apis).await;
        let mut errors: Vec<StartError> = outcomes.into_iter().filter_map(Result::err).collect();
        if let Err(found) = self.rebuild(BuildPhase::Startup).await {
            errors.extend(found.into_iter().map(StartError::from));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Waits for the servers and APIs that had not answered within the grace, and adds them to the catalog.
    ///
    /// # Errors
    /// If the catalog cannot be built.
    pub async fn discover_late(&self, report: impl Fn(&ServerStatus)) -> Result<(), Vec<StartError>> {
        let inputs = self.sources.load_full();
        let discover_server = async |managed: &Arc<ManagedServer>| {
            let outcome = self.discover_one(managed, Duration::MAX).await;
            report(&managed.status(&self.catalog.load()));
            outcome
        };
        let late = inputs.servers.iter().filter(|managed| managed.is_awaited());
        let (outcomes, ()) =
            futures_util::future::join(join_all(late.map(discover_server)), self.load_late_apis()).await;
        let mut errors: Vec<StartError> = outcomes.into_iter().filter_map(Result::err).collect();
        if let Err(found) = self.rebuild(BuildPhase::Startup).await {
            errors.extend(found.into_iter().map(StartError::from));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Returns the servers and APIs that are connecting, or have not listed their tools yet.
    pub fn awaited_servers(&self) -> Vec<String> {
        let inputs = self.sources.load_full();
        let servers = inputs.servers.iter().filter(|managed| managed.is_awaited());
        let servers = servers.map(|managed| managed.server.spec().name.to_string());
        let apis =
            self.sources.late_apis.lock().iter().map(|api| api.spec().name.to_string()).collect::<Vec<_>>();
        servers.chain(apis).collect()
    }

    /// Returns an error for each server that is down now, that the start waits for, and that the filter accepts.
    pub fn required_outages(&self, filter: impl Fn(&str) -> bool) -> Vec<StartError> {
        let inputs = self.sources.load();
        let outage = |managed: &Arc<ManagedServer>| {
            let spec = managed.server.spec();
            let ServerState::Down { reason, hint, .. } = managed.server.state() else { return None };
            let is_needed = matches!(spec.startup, StartupMode::Required | StartupMode::Eager);
            let (server, location) = (spec.name.to_string(), spec.transport.location());
            let is_required = spec.startup == StartupMode::Required;
            let error = StartError::Server { server, location, reason, hint, is_required };
            (is_needed && filter(spec.name.as_str())).then_some(error)
        };
        inputs.servers.iter().filter_map(outage).collect()
    }

    fn discover_one<'a>(
        &'a self,
        managed: &'a ManagedServer,
        grace: Duration,
    ) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(async move {
            let spec = managed.server.spec();
            // A lazy server is not started for tools that are known already.
            if spec.startup == StartupMode::Lazy && grace < Duration::MAX && self.restore_offer(managed) {
                return Ok(());
            }
            let is_needed = matches!(spec.startup, StartupMode::Required | StartupMode::Eager);
            let (reason, hint) = match managed.server.connection().await {
                Ok(_) => {
                    let refresh = |kinds| managed.refresh(managed.server.take_stale(kinds));
                    // Prompts and resources are optional: a failing list of them does not cost the tools.
                    let refresh_others = async |kinds| {
                        if let Ok(Err(error)) = timeout(grace, refresh(kinds)).await {
                            tracing::warn!("a list could not be requested: {error}");
                        }
                    };
                    let (tools, (), ()) = futures_util::future::join3(
                        refresh(OfferKinds::TOOLS),
                        refresh_others(OfferKinds::PROMPTS),
                        refresh_others(OfferKinds::RESOURCES),
                    )
                    .await;
                    match tools {
                        Ok(_) => {
                            managed.is_listed.send_replace(true);
                            return Ok(());
                        }
                        Err(error) if is_needed => (error.to_string().into(), None),
                        Err(error) => {
                            tracing::warn!("MCP server '{}' is not available: {error}", spec.name);
                            return Ok(());
                        }
                    }
                }
                Err(unavailable) => (unavailable.reason, unavailable.hint),
            };
            if is_needed {
                let (server, location) = (spec.name.to_string(), spec.transport.location());
                let is_required = spec.startup == StartupMode::Required;
                let hint = match hint {
                    hint if !is_required => hint,
                    Some(hint) => Some(format!("{hint}; or set `startup: eager` to start without it").into()),
                    None => Some("set `startup: eager` to start without it".into()),
                };
                return Err(StartError::Server { server, location, reason, hint, is_required });
            }
            Ok(())
        })
    }

    /// Gives a server the tools that are pinned from its last connection. Returns false if there are none.
    fn restore_offer(&self, managed: &ManagedServer) -> bool {
        let pins = self.pins.get();
        let definitions: Vec<_> = pins.definitions(&managed.server.spec().name).collect();
        drop(pins);
        if definitions.is_empty() {
            return false;
        }
        managed.restore(ServerOffer::from_definitions(definitions));
        true
    }

    /// Builds the catalog from the current inputs and swaps it in, then writes new pins.
    fn rebuild(&self, phase: BuildPhase) -> BoxFuture<'_, Result<(), Vec<CatalogError>>> {
        Box::pin(async move {
            if !self.pins.is_shared() {
                let new = self.swap_catalog(phase, NewPins::Use)?;
                self.pins.write(new).await;
                return Ok(());
            }
            // The first sight at any replica is the one that counts, so pins are written before they are used.
            for _ in 0..MAX_PIN_ROUNDS {
                let new = self.swap_catalog(phase, NewPins::Store)?;
                if new.is_empty() {
                    return Ok(());
                }
                if let Err(error) = self.pins.update_file(move |pins| pins.add(new.iter().cloned())).await {
                    tracing::warn!("new tool definitions are held back: {error}");
                    break;
                }
            }
            self.pins.set_held();
            self.swap_catalog(phase, NewPins::Hold)?;
            Ok(())
        })
    }

    /// Builds and swaps the catalog without awaiting anything. Returns the pins to write to the lock file. If they have
    /// to be stored first, the catalog stays.
    fn swap_catalog(&self, phase: BuildPhase, new_pins: NewPins) -> Result<Vec<NewPin>, Vec<CatalogError>> {
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
            holds_new: new_pins == NewPins::Hold,
            on_collision: self.limits.load().on_collision,
            today: &date::today(),
            previous: (phase == BuildPhase::Running).then_some(&*before),
        })?;
        if new_pins == NewPins::Store && !new.is_empty() {
            return Ok(new);
        }
        // Each change is logged once, not again by every later build.
        for event in events.into_iter().filter(|event| !before.has_reported(event)) {
            // While the process runs, a server can cause changes without end.
            let limit = event.server.as_ref().filter(|_| phase == BuildPhase::Running);
            let limit = limit.and_then(|server| inputs.server(server.as_str()));
            let is_limited = matches!(event.level, EventLevel::Error | EventLevel::Warning);
            if is_limited && limit.is_some_and(|managed| !managed.server.log_limit().admit()) {
                continue;
            }
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

    /// Returns the limits that apply to calls of a tool, with all defaults.
    pub fn limits_in_force(&self, tool: &CatalogTool) -> LimitsInForce {
        LimitsInForce {
            timeout: tool.limits.timeout.unwrap_or_else(|| self.default_timeout(tool)),
            max_instances: tool_states::max_instances(tool).min(self.limits.load().max_concurrent),
            max_output: self.limits.load().max_output,
            rate_limit: tool.rate_limit,
            cache_ttl: tool.cache_ttl.filter(|_| tool.contract.cacheable),
        }
    }

    /// Status of all servers and APIs.
    pub fn servers(&self) -> Vec<ServerStatus> {
        let catalog = self.catalog();
        let inputs = self.sources.load();
        let servers = inputs.servers.iter().map(|managed| managed.status(&catalog));
        servers.chain(inputs.apis.iter().map(|api| api_status(api, &catalog))).collect()
    }

    /// The last lines that the process of a server wrote to stderr, with secrets masked, and true if it is running. `None`
    /// if there is no such server.
    pub fn server_stderr(&self, name: &str, limit: usize) -> Option<(bool, Vec<String>)> {
        if self.sources.api(name).is_some() {
            return Some((false, Vec::new()));
        }
        let server = self.sources.server(name)?;
        let live = server.live_stderr(limit);
        let is_running = matches!(server.state(), ServerState::Ready(_));
        let mut lines = if is_running { live } else { server.history().stderr };
        lines.drain(..lines.len().saturating_sub(limit));
        Some((is_running, lines.iter().map(|line| self.redact(line)).collect()))
    }

    /// Approved servers with their offers, in configuration order.
    pub(crate) fn approved_offers(&self) -> Vec<(Arc<Server>, ServerOffer)> {
        let pins = self.pins.get();
        let offer = |managed: &Arc<ManagedServer>| {
            let spec = managed.server.spec();
            let offer = managed.offer.load_full().as_ref().clone()?;
            (spec.approved || pins.is_approved(&spec.name)).then(|| (Arc::clone(&managed.server), offer))
        };
        self.sources.load().servers.iter().filter_map(offer).collect()
    }

    /// Offers of the approved servers, by server name. For the operator: callers see [`Runtime::visible_prompts`],
    /// [`Runtime::visible_resources`] and [`Runtime::visible_templates`].
    pub fn offers(&self) -> Vec<(String, ServerOffer)> {
        let offers = self.approved_offers().into_iter();
        offers.map(|(server, offer)| (server.spec().name.to_string(), offer)).collect()
    }

    /// The stored results, if results are stored.
    pub fn results(&self) -> Option<&Arc<ResultStore>> {
        self.results.as_ref()
    }

    /// The rate limit for log lines that a server causes.
    pub fn log_limit(&self, server: &str) -> Arc<LogLimit> {
        self.sources.server(server).map(|server| Arc::clone(server.log_limit())).unwrap_or_default()
    }

    /// Stops all servers, scripts and built-in tools, and waits for them to end.
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let builtins = self.builtins.iter().filter_map(|tool| tool.stop.as_ref()).map(|stop| stop());
            futures_util::future::join3(self.sources.stop(), self.scripts.stop(), join_all(builtins)).await;
            self.sources.join_stopping().await;
            if let Some(spans) = &self.recorder.spans {
                spans.close().await;
            }
        })
    }
}

/// Rounds of storing new pins, if other replicas store theirs at the same time.
const MAX_PIN_ROUNDS: usize = 8;

/// Handling of definitions that are not pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewPins {
    /// Uses them, and writes their pins afterwards.
    Use,
    /// Keeps the old catalog until their pins are stored.
    Store,
    /// Holds them back.
    Hold,
}

/// The phase in which a catalog is built. It decides how errors are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuildPhase {
    /// The first build: errors stop the process.
    Startup,
    /// A later build: errors keep the old catalog.
    Running,
}
