//! The runtime: connects to servers, discovers their tools, and owns the catalog.
//!
//! The `refresh` module keeps the catalog current. Invariant: only `Runtime::rebuild` builds the catalog, under one lock
//! that no call waits for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolgate_audit::spans::SpanExporter;
use toolgate_audit::{ExecutionLog, LogEvent as AuditEvent, Metrics, ToolHistory, ToolTotals};
use toolgate_policy::Policy;
use toolgate_types::egress::EgressConfig;
use toolgate_types::server::StartupMode;
use toolgate_types::{
    ApiSpec, CallLimits, Caller, CallerId, Profiles, Secret, ServerName, ServerSpec, ToolDefinition,
    ToolLimits, ToolSettings,
};
use toolgate_upstream::connect::login_options;
use toolgate_upstream::offer::{OfferKinds, ServerOffer, canonical_definition, discover};
use toolgate_upstream::openapi::{HttpApi, TextParser};
use toolgate_upstream::scan::ScanLimits as WireLimits;
use toolgate_upstream::{
    BuiltinTool, ClientFeatures, Forwarded, LoginOptions, NoResponder, Params, RawJson, RequestError,
    Responder, ScriptRunner, Server, ServerState, ServerUnavailable, TraceContext,
};

use crate::catalog::{
    Catalog, CatalogBuild, CatalogError, CatalogInputs, CatalogTool, DefinitionChange, EventLevel,
    QuarantineCause, ToolState,
};
use crate::pins::{LockError, LockFile, NewPin, Pin, PinQueue, PinSet};
use crate::results::ResultStore;
use crate::search::SearchIndex;
use crate::stage::cache::ResultCache;
use crate::stage::rate_limit::RateLimit;
use crate::stage::slots::ToolSlots;
use crate::tool_stats::{NextToolStats, SharedToolState, TaintedSessions, ToolStats};

mod apis;
mod forward;
mod inputs;
mod refresh;

use apis::api_status;
use inputs::Inputs;

/// Notifications buffered for each subscriber. A slower subscriber misses the oldest ones.
const NOTIFICATION_BACKLOG: usize = 256;
/// Maximum nesting depth of a JSON message.
const MAX_JSON_DEPTH: usize = 64;

/// Everything needed to create a [`Runtime`]. The default has no tools and no servers, and records nothing.
pub struct RuntimeSetup {
    pub builtins: Vec<BuiltinTool>,
    /// Tools defined in this project.
    pub own: Vec<ToolDefinition>,
    /// The operator's settings for individual tools.
    pub settings: Vec<ToolSettings>,
    pub servers: Vec<ServerSpec>,
    pub apis: Vec<ApiSpec>,
    /// Parses the text of an OpenAPI document.
    pub read_document: TextParser,
    /// Limits shared by all tools.
    pub limits: CallLimits,
    /// The folder that holds the OAuth tokens for servers. Without it, tokens last as long as the runtime.
    pub token_folder: Option<PathBuf>,
    /// Asks a person: for approval of calls, for answers to servers, for logins.
    pub responder: Arc<dyn Responder>,
    /// Client capabilities to declare to servers if the clients of calls answer their requests. Without them, the
    /// responder does.
    pub forwarded_features: Option<Value>,
    /// The lock file with the pins. Without it, pins last as long as the runtime.
    pub lock: Option<LockFile>,
    /// Values that are redacted from all output.
    pub secrets: Vec<Secret>,
    /// Configured callers and their permissions.
    pub callers: Vec<Caller>,
    pub policy: Policy,
    /// Rules for secrets in outgoing arguments.
    pub egress: EgressConfig,
    /// Store for results that are too large to return inline. Without it, results are never truncated.
    pub results: Option<Arc<ResultStore>>,
    /// Named subsets of the tools, as shown by the front ends.
    pub profiles: Arc<Profiles>,
    /// The execution log. Without it, calls are not recorded.
    pub log: Option<ExecutionLog>,
    /// Statistics of earlier processes, from the log.
    pub history: ToolHistory,
    /// Exporter of the spans of calls.
    pub spans: Option<SpanExporter>,
}

impl Default for RuntimeSetup {
    fn default() -> Self {
        Self {
            builtins: Vec::new(),
            own: Vec::new(),
            settings: Vec::new(),
            servers: Vec::new(),
            apis: Vec::new(),
            read_document: |_| Err("no parser for OpenAPI documents is set up".to_owned()),
            limits: CallLimits::default(),
            token_folder: None,
            responder: Arc::new(NoResponder),
            forwarded_features: None,
            lock: None,
            secrets: Vec::new(),
            callers: Vec::new(),
            policy: Policy::default(),
            egress: EgressConfig::default(),
            results: None,
            profiles: Arc::default(),
            log: None,
            history: ToolHistory::default(),
            spans: None,
        }
    }
}

/// Concurrent calls of one server tool if its settings give no limit.
const DEFAULT_INSTANCES: NonZeroU32 = NonZeroU32::new(5).expect("not zero");

/// Servers, own tools and APIs, and the catalog built from them.
pub struct Runtime {
    builtins: Vec<Arc<BuiltinTool>>,
    pub(crate) scripts: ScriptRunner,
    /// The parts of the configuration that [`Runtime::replace`] can exchange while calls run.
    inputs: ArcSwap<Inputs>,
    /// Number of replacements so far.
    replacements: watch::Sender<u64>,
    /// Servers that are shutting down.
    stopping: tokio::sync::Mutex<JoinSet<()>>,
    message_limits: WireLimits,
    read_document: TextParser,
    logins: LoginOptions,
    features: ClientFeatures,
    pub(crate) limits: CallLimits,
    catalog: ArcSwap<Catalog>,
    pub(crate) search_index: SearchIndex,
    secrets: ArcSwap<Vec<Secret>>,
    pub(crate) log: Option<ExecutionLog>,
    pub(crate) spans: Option<SpanExporter>,
    /// Changed definitions that are in the log.
    recorded_changes: Mutex<HashSet<DefinitionChange>>,
    callers: Vec<Caller>,
    pub(crate) policy: Policy,
    pub(crate) responder: Arc<dyn Responder>,
    pub(crate) egress: ArcSwap<EgressConfig>,
    pub(crate) results: Option<Arc<ResultStore>>,
    profiles: ArcSwap<Profiles>,
    slots: Arc<Semaphore>,
    tool_states: Mutex<HashMap<ToolStateKey, Arc<SharedToolState>>>,
    pub(crate) cache: ResultCache,
    pub(crate) next_tools: NextToolStats,
    /// Call statistics from before this process, by tool name.
    history: BTreeMap<String, ToolTotals>,
    pub(crate) tainted_sessions: TaintedSessions,
    pub(crate) metrics: Metrics,
    lock: Option<LockFile>,
    pins: Mutex<PinSet>,
    /// Pins waiting to be written to the lock file.
    pin_queue: PinQueue,
    /// Incremented when the catalog or the state of a server changes.
    version: watch::Sender<u64>,
    /// Updates of subscribed resources. `None` if updates were missed.
    updates: broadcast::Sender<(ServerName, Option<RawJson>)>,
    /// Lists that servers reported as changed, sent after they were refreshed.
    list_changes: broadcast::Sender<OfferKinds>,
}

/// Identity of a tool together with the limits that its shared state depends on.
type ToolStateKey = (Option<ServerName>, String, ToolLimits, Option<toolgate_types::tool::RateLimit>);

/// A server with its offer, once that is known.
struct ManagedServer {
    server: Arc<Server>,
    offer: ArcSwap<Option<ServerOffer>>,
    /// True once its offer is in the catalog.
    is_listed: watch::Sender<bool>,
    /// Notified when a caller waits for a refresh, to skip the backoff.
    refresh_now: Notify,
    /// Held during a refresh.
    refreshing: tokio::sync::Mutex<()>,
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

/// A definition that needs a person's approval.
#[derive(Debug, Clone)]
pub struct PendingApproval {
    pub tool: Arc<CatalogTool>,
    /// The pinned definition; `None` if the tool was never pinned.
    pub old_definition: Option<serde_json::Value>,
    /// The definition the server offers now.
    pub new_definition: serde_json::Value,
}

/// Reasons why a request to a server fails.
#[derive(Debug, thiserror::Error)]
pub enum ServerRequestError {
    #[error("there is no MCP server `{0}`")]
    NoServer(String),
    #[error("MCP server `{0}` is not approved; run `toolgate servers approve {0}` to review and approve it")]
    NotApproved(String),
    #[error(transparent)]
    Unavailable(#[from] ServerUnavailable),
    /// The server rejected a subscription.
    #[error("MCP server `{server}`: {why}")]
    Refused { server: String, why: String },
    #[error("MCP server `{server}`: {why}")]
    Request { server: String, why: RequestError },
}

/// Requests that [`Runtime::forward`] can send to a server. Tool calls are absent: [`Runtime::call`] is the only path
/// to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Prompt,
    Resource,
    Completion,
    LogLevel,
    TaskGet,
    TaskResult,
    TaskUpdate,
    TaskCancel,
}

impl RequestKind {
    fn method(self) -> &'static str {
        match self {
            Self::Prompt => "prompts/get",
            Self::Resource => "resources/read",
            Self::Completion => "completion/complete",
            Self::LogLevel => "logging/setLevel",
            Self::TaskGet => "tasks/get",
            Self::TaskResult => "tasks/result",
            Self::TaskUpdate => "tasks/update",
            Self::TaskCancel => "tasks/cancel",
        }
    }
}

/// A server in listings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    pub name: String,
    pub transport: &'static str,
    /// `idle`, `connecting`, `ready` or `down`.
    pub state: &'static str,
    /// Reason for its state, if it is not ready.
    pub reason: Option<String>,
    /// Milliseconds until the next connection attempt, if it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u128>,
    /// Negotiated MCP revision.
    pub protocol_version: Option<&'static str>,
    /// Number of tools offered.
    pub tools: usize,
    /// Number of quarantined tools.
    pub held_back: usize,
    /// Name and version that the server reports.
    pub implementation: Option<String>,
    /// Last lines that its process wrote to stderr.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
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
        let managed = |spec| Arc::new(ManagedServer::new(spec, message_limits, &logins, &features));
        let api = |spec| Arc::new(HttpApi::new(spec, message_limits, setup.read_document));
        let inputs = Inputs::new(
            setup.own.into_iter().map(Arc::new).collect(),
            setup.settings,
            setup.servers.into_iter().map(managed).collect(),
            setup.apis.into_iter().map(api).collect(),
        );
        let max_concurrent =
            usize::try_from(setup.limits.max_concurrent.get()).unwrap_or(Semaphore::MAX_PERMITS);
        let reader = setup.results.as_ref().map(ResultStore::read_tool);
        Self {
            builtins: setup.builtins.into_iter().chain(reader).map(Arc::new).collect(),
            scripts: ScriptRunner::new(message_limits),
            inputs: ArcSwap::from_pointee(inputs),
            replacements: watch::Sender::new(0),
            stopping: tokio::sync::Mutex::default(),
            message_limits,
            read_document: setup.read_document,
            logins,
            features,
            secrets: ArcSwap::from_pointee(setup.secrets),
            log: setup.log,
            spans: setup.spans,
            recorded_changes: Mutex::default(),
            callers: setup.callers,
            policy: setup.policy,
            responder: setup.responder,
            egress: ArcSwap::from_pointee(setup.egress),
            results: setup.results,
            profiles: ArcSwap::new(setup.profiles),
            slots: Arc::new(Semaphore::new(max_concurrent.min(Semaphore::MAX_PERMITS))),
            tool_states: Mutex::default(),
            cache: ResultCache::default(),
            next_tools: NextToolStats::from_history(&setup.history),
            history: setup.history.tools,
            tainted_sessions: TaintedSessions::default(),
            metrics: Metrics::default(),
            limits: setup.limits,
            catalog: ArcSwap::default(),
            search_index: SearchIndex::default(),
            lock: setup.lock,
            pins: Mutex::default(),
            pin_queue: PinQueue::default(),
            version: watch::Sender::new(0),
            updates: broadcast::Sender::new(NOTIFICATION_BACKLOG),
            list_changes: broadcast::Sender::new(NOTIFICATION_BACKLOG),
        }
    }

    /// Connects to all servers concurrently, requests their lists, and builds the catalog. Calls `tell` for each
    /// server as soon as it is done, so a slow server delays no other.
    ///
    /// # Errors
    /// If a required server is unavailable, the catalog cannot be built, or the lock file cannot be read.
    pub async fn discover(&self, report: impl Fn(&ServerStatus)) -> Result<(), Vec<StartError>> {
        if let Some(lock) = &self.lock {
            *self.pins() = lock.read().map_err(|error| vec![error.into()])?;
        }
        let report = &report;
        let inputs = self.inputs.load_full();
        let discover_server = async |managed: &Arc<ManagedServer>| {
            let outcome = self.discover_one(managed).await;
            report(&status(managed, &self.catalog.load()));
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
        if !new.is_empty() {
            let write = async |new: Vec<NewPin>| {
                if let Some(Err(error)) = self.change_pins(move |pins| pins.add(new)).await {
                    tracing::warn!("new tool definitions could not be pinned: {error}");
                }
            };
            self.pin_queue.write(new, write).await;
        }
        Ok(())
    }

    /// Builds and swaps the catalog without awaiting anything. Returns the pins to write to the lock file.
    fn swap_catalog(&self, phase: BuildPhase) -> Result<Vec<NewPin>, Vec<CatalogError>> {
        // Taken before the inputs are read, so that the last of several concurrent builds sees the newest inputs.
        let mut pins = self.pins();
        let inputs = self.inputs.load_full();
        let offers: Vec<_> =
            inputs.servers.iter().map(|managed| (managed, managed.offer.load_full())).collect();
        let servers: Vec<_> =
            offers.iter().map(|(managed, offer)| (managed.server.spec(), offer.as_ref().as_ref())).collect();
        let apis: Vec<_> = inputs.apis.iter().map(|api| (api.spec(), api.loaded())).collect();
        let before = self.catalog.load_full();
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
        self.record_changes(changed);
        let differs = catalog.differs_from(&before);
        pins.add(new.iter().cloned());
        self.catalog.store(Arc::new(catalog));
        if differs {
            self.version.send_modify(|version| *version += 1);
        }
        Ok(new)
    }

    /// Updates the lock file and reloads the pins from it. `None` if there is no lock file.
    async fn change_pins(
        &self,
        change: impl FnOnce(&mut PinSet) + Send + 'static,
    ) -> Option<Result<(), LockError>> {
        let lock = self.lock.clone()?;
        let changed = tokio::task::spawn_blocking(move || lock.update(change)).await;
        Some(
            changed
                .unwrap_or_else(|panic| Err(std::io::Error::other(panic).into()))
                .map(|pins| *self.pins() = pins),
        )
    }

    fn pins(&self) -> parking_lot::MutexGuard<'_, PinSet> {
        self.pins.lock()
    }

    /// Definitions of a server that need approval.
    pub fn pending_approvals(&self, server: &str) -> Vec<PendingApproval> {
        let pins = self.pins();
        let is_pending = |tool: &&Arc<CatalogTool>| {
            let approvable = matches!(
                tool.state,
                ToolState::Quarantined { cause: QuarantineCause::NotApproved | QuarantineCause::Changed, .. }
            );
            approvable && tool.server.as_ref().is_some_and(|name| name.as_str() == server)
        };
        let pending = |tool: &Arc<CatalogTool>| {
            let new_definition = canonical_definition(tool.definition.as_ref()?);
            let old_definition =
                pins.get(tool.server.as_ref()?, &tool.original).map(|pin| pin.definition.clone());
            Some(PendingApproval { tool: Arc::clone(tool), old_definition, new_definition })
        };
        self.catalog.load().tools().filter(is_pending).filter_map(pending).collect()
    }

    /// Returns true if the server as a whole is approved.
    pub fn is_approved(&self, server: &str) -> bool {
        if self.has_api(server) {
            return true;
        }
        let server = self.server(server);
        let spec = server.as_ref().map(|server| server.spec());
        spec.is_some_and(|spec| spec.approved || self.pins().is_approved(&spec.name))
    }

    /// Approves the server as a whole, and these definitions.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub async fn approve(&self, server: &ServerName, approved: &[PendingApproval]) -> Result<(), LockError> {
        let pin = |pending: &PendingApproval| {
            let hash = pending.tool.hash.clone()?;
            Some((pending.tool.original.clone(), Pin { hash, definition: pending.new_definition.clone() }))
        };
        let tools: Vec<_> = approved.iter().filter_map(pin).collect();
        self.pins().approve(server, tools.clone());
        let name = server.clone();
        if let Some(outcome) = self.change_pins(move |pins| pins.approve(&name, tools)).await {
            outcome?;
        }
        self.rebuild_while_running().await;
        Ok(())
    }

    /// Rebuilds the catalog at run time. An error keeps the old catalog, so no server can stop the process.
    async fn rebuild_while_running(&self) {
        for error in self.rebuild(BuildPhase::Running).await.err().unwrap_or_default() {
            tracing::error!("the catalog was not updated: {error}");
        }
    }

    /// Notifies of changes to the catalog or to the state of a server. Requires [`Runtime::watch_servers`] to run.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The current catalog. The returned snapshot never changes.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Status of all servers and APIs.
    pub fn servers(&self) -> Vec<ServerStatus> {
        let catalog = self.catalog();
        let inputs = self.inputs.load();
        let servers = inputs.servers.iter().map(|managed| status(managed, &catalog));
        servers.chain(inputs.apis.iter().map(|api| api_status(api, &catalog))).collect()
    }

    /// Offers of the approved servers, by server name.
    pub fn offers(&self) -> Vec<(String, ServerOffer)> {
        let pins = self.pins();
        let offer = |managed: &Arc<ManagedServer>| {
            let spec = managed.server.spec();
            let offer = managed.offer.load_full().as_ref().clone()?;
            (spec.approved || pins.is_approved(&spec.name)).then(|| (spec.name.to_string(), offer))
        };
        self.inputs.load().servers.iter().filter_map(offer).collect()
    }

    /// Sends a request to a server, within its request timeout.
    ///
    /// # Errors
    /// If the server is unknown, unavailable, not approved, or does not answer in time.
    pub async fn request(
        &self,
        server: &str,
        kind: RequestKind,
        params: Params,
    ) -> Result<RawJson, ServerRequestError> {
        self.forward(server, kind, params, (&Forwarded::default(), &TraceContext::generate())).await
    }

    /// The stored results, if results are stored.
    pub fn results(&self) -> Option<&Arc<ResultStore>> {
        self.results.as_ref()
    }

    /// Values that are redacted from all output.
    pub fn secrets(&self) -> Arc<Vec<Secret>> {
        self.secrets.load_full()
    }

    /// Adds secrets to redact from output, logs and stored results, and to block in outgoing arguments.
    pub fn add_secrets(&self, secrets: &[Secret]) {
        let with = |known: &[Secret]| -> Vec<Secret> {
            let is_new = |new: &&Secret| !known.iter().any(|known| known.expose() == new.expose());
            known.iter().chain(secrets.iter().filter(is_new)).cloned().collect()
        };
        self.secrets.rcu(|known| with(known));
        self.egress.rcu(|rules| EgressConfig { known: with(&rules.known), ..EgressConfig::clone(rules) });
        if let Some(log) = &self.log {
            log.add_secrets(secrets);
        }
        if let Some(results) = &self.results {
            results.add_secrets(secrets);
        }
    }

    /// Records changed definitions, each once.
    fn record_changes(&self, changes: Vec<DefinitionChange>) {
        let Some(log) = &self.log else { return };
        let mut recorded = self.recorded_changes.lock();
        for change in changes {
            if !recorded.insert(change.clone()) {
                continue;
            }
            let DefinitionChange { server, tool, old_hash, new_hash, class, quarantined } = change;
            // The returned future is only for durability, which no caller needs here.
            drop(log.record_event(&AuditEvent::DefinitionChanged {
                server: server.as_str(),
                tool: &tool,
                was: &old_hash,
                is: &new_hash,
                class: class.label(),
                held_back: quarantined,
            }));
        }
    }

    /// Returns true if untrusted content has reached the session. Policies see this as `context.tainted`.
    pub fn is_tainted(&self, caller: &CallerId, session: &str) -> bool {
        self.tainted_sessions.contains(caller, Some(session))
    }

    /// Marks a session as tainted by something other than a call of this process.
    pub fn taint(&self, caller: &CallerId, session: &str) {
        self.tainted_sessions.insert(caller, Some(session));
    }

    /// Returns true if the operator trusts the server.
    pub fn is_trusted(&self, server: &str) -> bool {
        self.server(server).is_some_and(|server| server.spec().trusted)
    }

    pub fn caller(&self, id: &str) -> Option<&Caller> {
        self.callers.iter().find(|caller| caller.id.as_str() == id)
    }

    pub(crate) fn server(&self, name: &str) -> Option<Arc<Server>> {
        self.inputs.load().server(name).map(|managed| Arc::clone(&managed.server))
    }

    /// Slots, rate limit and statistics of a tool. They survive a rebuild of the catalog as long as the tool's limits
    /// stay the same.
    pub(crate) fn shared_state<'a>(&self, tool: &'a CatalogTool) -> &'a SharedToolState {
        tool.shared_state.get_or_init(|| self.find_shared_state(tool))
    }

    fn find_shared_state(&self, tool: &CatalogTool) -> Arc<SharedToolState> {
        let key = (tool.server.clone(), tool.original.clone(), tool.limits, tool.rate_limit);
        let mut tool_states = self.tool_states.lock();
        let make = || {
            let ToolLimits { max_instances, parallel_capable, .. } = tool.limits;
            // A script runs one call at a time unless it allows more; a server handles calls in parallel.
            let parallel = parallel_capable.unwrap_or(tool.server.is_some());
            let instances =
                if parallel { max_instances.unwrap_or(DEFAULT_INSTANCES) } else { NonZeroU32::MIN };
            Arc::new(SharedToolState {
                slots: ToolSlots::new(instances, &self.slots),
                rate_limit: tool.rate_limit.map(RateLimit::new),
                stats: self
                    .history
                    .get(&tool.name)
                    .map_or_else(ToolStats::default, |record| ToolStats::from_record(*record)),
                metrics: self.metrics.tool(&tool.name),
            })
        };
        Arc::clone(tool_states.entry(key).or_insert_with(make))
    }

    /// Stops all servers, scripts and built-in tools, and waits for them to end.
    pub async fn stop(&self) {
        let inputs = self.inputs.load_full();
        let servers = join_all(inputs.servers.iter().map(|managed| managed.server.stop()));
        let builtins = self.builtins.iter().filter_map(|tool| tool.stop.as_ref()).map(|stop| stop());
        futures_util::future::join3(servers, self.scripts.stop(), join_all(builtins)).await;
        while self.stopping.lock().await.join_next().await.is_some() {}
        if let Some(spans) = &self.spans {
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

impl ManagedServer {
    fn new(
        spec: ServerSpec,
        message_limits: WireLimits,
        logins: &LoginOptions,
        features: &ClientFeatures,
    ) -> Self {
        let server = Arc::new(Server::new(spec, message_limits, logins, features.clone()));
        Self {
            server,
            offer: ArcSwap::from_pointee(None),
            is_listed: watch::Sender::new(false),
            refresh_now: Notify::new(),
            refreshing: tokio::sync::Mutex::default(),
        }
    }

    /// Requests the lists that may have changed. Returns those that did.
    async fn refresh(&self, kinds: OfferKinds) -> Result<OfferKinds, ServerRequestError> {
        let spec = self.server.spec();
        let kinds = OfferKinds {
            tools: kinds.tools && spec.load_tools,
            prompts: kinds.prompts && spec.load_prompts,
            resources: kinds.resources,
        };
        let connection = self.server.connection().await?;
        let before = self.offer.load_full();
        let discovered =
            discover(&connection, kinds, before.as_ref().as_ref(), spec.request_timeout.get()).await;
        let mut offer = discovered
            .map_err(|why| ServerRequestError::Request { server: spec.name.to_string(), why })
            .inspect_err(|_| self.server.mark_stale(kinds))?;
        if let Some(allowed) = &spec.prompts {
            offer.prompts =
                offer.prompts.iter().filter(|prompt| allowed.contains(&prompt.id)).cloned().collect();
        }
        let changed = before.as_ref().as_ref().map_or(OfferKinds::ALL, |before| offer.changes_since(before));
        self.offer.store(Arc::new(Some(offer)));
        Ok(changed)
    }
}

fn status(managed: &ManagedServer, catalog: &Catalog) -> ServerStatus {
    let spec = managed.server.spec();
    let state = managed.server.state();
    let label = state.label();
    let (reason, next_try, connection) = match state {
        ServerState::Down { reason, hint, next_try, .. } => {
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            (Some(format!("{reason}{hint}")), Some(next_try), None)
        }
        ServerState::Ready(connection) => (None, None, Some(connection)),
        ServerState::Idle | ServerState::Connecting => (None, None, None),
    };
    let wait = |next: Instant| next.saturating_duration_since(Instant::now()).as_millis();
    let is_quarantined =
        |tool: &&Arc<CatalogTool>| tool.server.as_ref() == Some(&spec.name) && tool.state != ToolState::Ready;
    let peer = connection.as_ref().map(|connection| &connection.peer);
    ServerStatus {
        name: spec.name.to_string(),
        transport: spec.transport.label(),
        state: label,
        reason,
        retry_in_ms: next_try.map(wait),
        protocol_version: peer.map(|peer| peer.revision.name()),
        tools: managed.offer.load().as_ref().as_ref().map_or(0, |offer| offer.tools.len()),
        held_back: catalog.tools().filter(is_quarantined).count(),
        implementation: peer.map(|peer| format!("{} {}", peer.name, peer.version).trim().to_owned()),
        stderr: connection.as_ref().map(|connection| connection.stderr_tail()).unwrap_or_default(),
    }
}
