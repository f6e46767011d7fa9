//! The servers and the catalog together: connect, discover, call.
//!
//! What keeps the catalog true while it is used is in `keep`. Invariant: the catalog is made by one
//! function, `Runtime::rebuild`, under one lock that no call waits for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolgate_audit::spans::Exporter;
use toolgate_audit::{Event as AuditEvent, History, Log, Metrics, ToolRecord};
use toolgate_policy::Policy;
use toolgate_types::egress::EgressRules;
use toolgate_types::server::Startup;
use toolgate_types::{
    ApiSpec, Caller, CallerId, Limits, Profiles, Secret, ServerName, ServerSpec, ToolDefinition, ToolLimits,
    ToolSettings,
};
use toolgate_upstream::offer::{Kinds, Offer, canonical, discover};
use toolgate_upstream::openapi::{Api, ReadText};
use toolgate_upstream::scan::Limits as WireLimits;
use toolgate_upstream::{
    Along, Builtin, Logins, Params, Questions, Raw, RequestError, Scripts, Server, State, Trace, Unavailable,
};

use crate::catalog::{Built, Catalog, CatalogError, CatalogTool, Changed, Level, Parts, ToolState, Why};
use crate::pins::{LockError, LockFile, NewPin, Pin, Pins, Queue};
use crate::results::Results;
use crate::road::Approver;
use crate::search::Searching;
use crate::stage::cache::Cache;
use crate::stage::rate_limit::RateLimit;
use crate::stage::slots::Slots;
use crate::tally::{Followers, Guard, Taints, Tally};

mod apis;
mod given;
mod keep;
mod pass;

use apis::api_status;
use given::Given;

/// Things that happened and wait for whoever reads them.
const QUEUE: usize = 256;
/// Levels of nesting in a message.
const DEPTH: usize = 64;

/// What a runtime is made of.
pub struct Setup {
    /// Functions of ours.
    pub builtins: Vec<Builtin>,
    /// Own tools.
    pub own: Vec<ToolDefinition>,
    /// What the operator says about single tools.
    pub settings: Vec<ToolSettings>,
    /// MCP servers.
    pub servers: Vec<ServerSpec>,
    /// HTTP APIs.
    pub apis: Vec<ApiSpec>,
    /// What reads the text of a document that describes an API.
    pub read_document: ReadText,
    /// Limits over all tools.
    pub limits: Limits,
    /// Who logs in to servers that want it, and where tokens are kept.
    pub logins: Logins,
    /// Who answers what servers ask for.
    pub questions: Arc<dyn Questions>,
    /// Where definitions are remembered; without it, as long as the runtime lives.
    pub lock: Option<LockFile>,
    /// What must not be shown.
    pub secrets: Vec<Secret>,
    /// Who may call, and what each was given.
    pub callers: Vec<Caller>,
    /// Who may do what.
    pub policy: Policy,
    /// Who answers when the policy asks.
    pub approver: Arc<dyn Approver>,
    /// What must not leave in arguments.
    pub egress: EgressRules,
    /// Where results are kept that are too large to be given whole; without it none is.
    pub results: Option<Arc<Results>>,
    /// Views of what there is, which doors show.
    pub profiles: Arc<Profiles>,
}

/// Calls of a server's tool that run at once where nothing else is said.
const INSTANCES: NonZeroU32 = NonZeroU32::new(5).expect("it is not zero");

/// The servers and the catalog.
pub struct Runtime {
    builtins: Vec<Arc<Builtin>>,
    pub(crate) scripts: Scripts,
    /// What may be replaced while it is used.
    given: ArcSwap<Given>,
    /// How often it was.
    replaced: watch::Sender<u64>,
    /// Servers on their way out.
    leaving: tokio::sync::Mutex<JoinSet<()>>,
    wire: WireLimits,
    read_document: ReadText,
    logins: Logins,
    questions: Arc<dyn Questions>,
    pub(crate) limits: Limits,
    catalog: ArcSwap<Catalog>,
    pub(crate) searching: Searching,
    secrets: ArcSwap<Vec<Secret>>,
    pub(crate) log: OnceLock<Log>,
    pub(crate) spans: OnceLock<Exporter>,
    /// Definitions that changed: those written down, and those that wait for a log.
    changed: Mutex<(HashSet<Changed>, Vec<Changed>)>,
    callers: Vec<Caller>,
    pub(crate) policy: Policy,
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) egress: ArcSwap<EgressRules>,
    pub(crate) results: Option<Arc<Results>>,
    profiles: ArcSwap<Profiles>,
    slots: Arc<Semaphore>,
    guards: Mutex<HashMap<GuardKey, Arc<Guard>>>,
    pub(crate) cache: Cache,
    pub(crate) followers: Followers,
    /// How tools did before this process, by their names.
    before: OnceLock<BTreeMap<String, ToolRecord>>,
    pub(crate) taints: Taints,
    pub(crate) metrics: Metrics,
    lock: Option<LockFile>,
    pins: Mutex<Pins>,
    /// What is to be remembered beyond this process.
    unwritten: Queue,
    /// How often something has changed: what callers see, or the state of a server.
    version: watch::Sender<u64>,
    /// What servers tell of resources that are followed.
    /// Nothing is said of what was missed.
    updates: broadcast::Sender<(ServerName, Option<Raw>)>,
    /// What servers said has changed, once it was looked at.
    heard: broadcast::Sender<Kinds>,
}

/// A tool, with what its guard depends on.
type GuardKey = (Option<ServerName>, String, ToolLimits, Option<toolgate_types::tool::RateLimit>);

/// A server with what it offers, once that is known.
struct Live {
    server: Arc<Server>,
    offer: ArcSwap<Option<Offer>>,
    /// Whether what it offers has come into the catalog.
    shown: watch::Sender<bool>,
    /// Somebody waits for what has changed.
    hurry: Notify,
    /// Held while what has changed is looked at.
    looking: tokio::sync::Mutex<()>,
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

/// Why a server was asked in vain.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no such server.
    #[error("there is no MCP server `{0}`")]
    NoServer(String),
    /// It waits for approval.
    #[error(
        "MCP server `{0}` is not approved; `toolgate servers approve {0}` shows what it offers and lets it through"
    )]
    NotApproved(String),
    /// It is not there.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It does not want to.
    #[error("MCP server `{server}`: {why}")]
    Refused {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
    /// It did not do it.
    #[error("MCP server `{server}`: {why}")]
    Request {
        /// The server.
        server: String,
        /// Why.
        why: RequestError,
    },
}

/// What a server can be asked for beside its tools, to which there is no way but [`Runtime::call`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A prompt.
    Prompt,
    /// The content of a resource.
    Resource,
    /// What could stand in an argument.
    Completion,
    /// From which level on the server logs.
    LogLevel,
    /// How a task is doing.
    TaskGet,
    /// What came of a task.
    TaskResult,
    /// Something for a task.
    TaskUpdate,
    /// The end of a task.
    TaskCancel,
}

impl Ask {
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
        let size = setup.limits.max_output.as_usize();
        let wire = WireLimits { size, depth: DEPTH };
        let live = |spec| Arc::new(Live::new(spec, wire, &setup.logins, &setup.questions));
        let api = |spec| Arc::new(Api::new(spec, wire, setup.read_document));
        let given = Given::new(
            setup.own.into_iter().map(Arc::new).collect(),
            setup.settings,
            setup.servers.into_iter().map(live).collect(),
            setup.apis.into_iter().map(api).collect(),
        );
        let most = usize::try_from(setup.limits.max_concurrent.get()).unwrap_or(Semaphore::MAX_PERMITS);
        let reader = setup.results.as_ref().map(Results::tool);
        Self {
            builtins: setup.builtins.into_iter().chain(reader).map(Arc::new).collect(),
            scripts: Scripts::new(wire),
            given: ArcSwap::from_pointee(given),
            replaced: watch::Sender::new(0),
            leaving: tokio::sync::Mutex::default(),
            wire,
            read_document: setup.read_document,
            logins: setup.logins,
            questions: setup.questions,
            secrets: ArcSwap::from_pointee(setup.secrets),
            log: OnceLock::new(),
            spans: OnceLock::new(),
            changed: Mutex::default(),
            callers: setup.callers,
            policy: setup.policy,
            approver: setup.approver,
            egress: ArcSwap::from_pointee(setup.egress),
            results: setup.results,
            profiles: ArcSwap::new(setup.profiles),
            slots: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            guards: Mutex::default(),
            cache: Cache::default(),
            followers: Followers::default(),
            before: OnceLock::new(),
            taints: Taints::default(),
            metrics: Metrics::default(),
            limits: setup.limits,
            catalog: ArcSwap::default(),
            searching: Searching::default(),
            lock: setup.lock,
            pins: Mutex::default(),
            unwritten: Queue::default(),
            version: watch::Sender::new(0),
            updates: broadcast::Sender::new(QUEUE),
            heard: broadcast::Sender::new(QUEUE),
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
        let given = self.given.load_full();
        let ask = async |live: &Arc<Live>| {
            let outcome = self.discover_one(live).await;
            tell(&status(live, &self.catalog.load()));
            outcome
        };
        let servers = join_all(given.servers.iter().map(ask));
        let (outcomes, ()) = futures_util::future::join(servers, self.load_apis(&given.apis, tell)).await;
        let mut errors: Vec<StartError> = outcomes.into_iter().filter_map(Result::err).collect();
        if let Err(found) = self.rebuild(Moment::Start).await {
            errors.extend(found.into_iter().map(StartError::from));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    async fn discover_one(&self, live: &Live) -> Result<(), StartError> {
        let spec = live.server.spec();
        let (reason, hint) = match live.server.connection().await {
            Ok(_) => match live.refresh(live.server.take_stale()).await {
                Ok(_) => {
                    live.shown.send_replace(true);
                    return Ok(());
                }
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
        if !new.is_empty() {
            let write = async |new: Vec<NewPin>| {
                if let Some(Err(error)) = self.change_pins(move |pins| pins.remember(new)).await {
                    tracing::warn!("what servers say of their tools is not remembered: {error}");
                }
            };
            self.unwritten.write(new, write).await;
        }
        Ok(())
    }

    /// The part of it that waits for nothing. Returns what is to be remembered beyond this process.
    fn swap(&self, moment: Moment) -> Result<Vec<NewPin>, Vec<CatalogError>> {
        // Whoever comes later knows more: what there is is looked at when it is our turn.
        let mut pins = self.pins();
        let given = self.given.load_full();
        let offers: Vec<_> = given.servers.iter().map(|live| (live, live.offer.load_full())).collect();
        let servers: Vec<_> =
            offers.iter().map(|(live, offer)| (live.server.spec(), offer.as_ref().as_ref())).collect();
        let apis: Vec<_> = given.apis.iter().map(|api| (api.spec(), api.found())).collect();
        let before = self.catalog.load_full();
        let Built { catalog, events, pins: new, changed } = Catalog::build(&Parts {
            builtins: &self.builtins,
            own: &given.own,
            settings: &given.settings,
            servers: &servers,
            apis: &apis,
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
        self.note_changes(changed);
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

    /// Whether nothing of a server waits for its approval as a whole.
    pub fn is_approved(&self, server: &str) -> bool {
        if self.has_api(server) {
            return true;
        }
        let server = self.server(server);
        let spec = server.as_ref().map(|server| server.spec());
        spec.is_some_and(|spec| spec.approved || self.pins().approves(&spec.name))
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
        let given = self.given.load();
        let servers = given.servers.iter().map(|live| status(live, &catalog));
        servers.chain(given.apis.iter().map(|api| api_status(api, &catalog))).collect()
    }

    /// What the servers offer beside tools, by their names; nothing of a server that waits for
    /// approval.
    pub fn offers(&self) -> Vec<(String, Offer)> {
        let pins = self.pins();
        let offer = |live: &Arc<Live>| {
            let spec = live.server.spec();
            let offer = live.offer.load_full().as_ref().clone()?;
            (spec.approved || pins.approves(&spec.name)).then(|| (spec.name.to_string(), offer))
        };
        self.given.load().servers.iter().filter_map(offer).collect()
    }

    /// Asks a server for something, within the time its description gives.
    ///
    /// # Errors
    /// When the server is not there, not approved, or does not answer in time.
    pub async fn ask(&self, server: &str, what: Ask, params: Params) -> Result<Raw, AskError> {
        self.pass(server, what, params, (&Along::default(), &Trace::fresh())).await
    }

    /// The results that are kept, where any are.
    pub fn results(&self) -> Option<&Arc<Results>> {
        self.results.as_ref()
    }

    /// What must not be shown.
    pub fn secrets(&self) -> Arc<Vec<Secret>> {
        self.secrets.load_full()
    }

    /// Shows, keeps and lets out none of these, from now on.
    pub fn learn(&self, secrets: &[Secret]) {
        let with = |known: &[Secret]| -> Vec<Secret> {
            let is_new = |new: &&Secret| !known.iter().any(|known| known.expose() == new.expose());
            known.iter().chain(secrets.iter().filter(is_new)).cloned().collect()
        };
        self.secrets.rcu(|known| with(known));
        self.egress.rcu(|rules| EgressRules { known: with(&rules.known), ..EgressRules::clone(rules) });
        if let Some(log) = self.log.get() {
            log.learn(secrets);
        }
        if let Some(results) = &self.results {
            results.learn(secrets);
        }
    }

    /// Takes over what a log says of the time before this process. The first time counts, before any call.
    pub fn remember(&self, history: History) {
        self.followers.remember(&history);
        let _ = self.before.set(history.tools);
    }

    /// Writes calls down from now on. The first log stays.
    pub fn log_to(&self, log: Log) {
        let _ = self.log.set(log);
        self.note_changes(Vec::new());
    }

    /// Writes definitions that changed down, each once, as soon as there is a log.
    fn note_changes(&self, new: Vec<Changed>) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, waiting) = &mut *changed;
        waiting.extend(new.into_iter().filter(|one| seen.insert(one.clone())));
        let Some(log) = self.log.get() else { return };
        for Changed { server, tool, was, is, class, held_back } in waiting.drain(..) {
            // It is handed over at once; nobody has to wait for it.
            drop(log.note(&AuditEvent::DefinitionChanged {
                server: server.as_str(),
                tool: &tool,
                was: &was,
                is: &is,
                class: class.label(),
                held_back,
            }));
        }
    }

    /// Sends spans of calls from now on. The first collector stays.
    pub fn trace_to(&self, spans: Exporter) {
        let _ = self.spans.set(spans);
    }

    /// Whether something untrusted was read before in a session, as rules are told it.
    pub fn is_tainted(&self, caller: &CallerId, session: &str) -> bool {
        self.taints.has(caller, Some(session))
    }

    /// Something untrusted was read in a session, in another way than by a call, or before this process.
    pub fn taint(&self, caller: &CallerId, session: &str) {
        self.taints.note(caller, Some(session));
    }

    /// Whether what a server says of itself counts.
    pub fn trusts(&self, server: &str) -> bool {
        self.server(server).is_some_and(|server| server.spec().trusted)
    }

    /// A caller by its id.
    pub fn caller(&self, id: &str) -> Option<&Caller> {
        self.callers.iter().find(|caller| caller.id.as_str() == id)
    }

    /// A server by its name.
    pub(crate) fn server(&self, name: &str) -> Option<Arc<Server>> {
        self.given.load().server(name).map(|live| Arc::clone(&live.server))
    }

    /// What stands before a tool. It outlives the catalog that the tool is in, as long as its limits are
    /// the same.
    pub(crate) fn guard<'a>(&self, tool: &'a CatalogTool) -> &'a Guard {
        tool.guard.get_or_init(|| self.find_guard(tool))
    }

    fn find_guard(&self, tool: &CatalogTool) -> Arc<Guard> {
        let key = (tool.server.clone(), tool.original.clone(), tool.limits, tool.rate_limit);
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let ToolLimits { max_instances, parallel_capable, .. } = tool.limits;
            // A script runs once at a time unless it says otherwise, a server's tool as often as it may.
            let parallel = parallel_capable.unwrap_or(tool.server.is_some());
            let instances = if parallel { max_instances.unwrap_or(INSTANCES) } else { NonZeroU32::MIN };
            Arc::new(Guard {
                slots: Slots::new(instances, &self.slots),
                rate_limit: tool.rate_limit.map(RateLimit::new),
                tally: self
                    .before
                    .get()
                    .and_then(|before| before.get(&tool.name))
                    .map_or_else(Tally::default, |record| Tally::since(*record)),
                metrics: self.metrics.tool(&tool.name),
            })
        };
        Arc::clone(guards.entry(key).or_insert_with(make))
    }

    /// Ends every connection and every process, and waits for them.
    pub async fn stop(&self) {
        let given = self.given.load_full();
        let servers = join_all(given.servers.iter().map(|live| live.server.stop()));
        let builtins = self.builtins.iter().filter_map(|tool| tool.stop.as_ref()).map(|stop| stop());
        futures_util::future::join3(servers, self.scripts.stop(), join_all(builtins)).await;
        while self.leaving.lock().await.join_next().await.is_some() {}
        if let Some(spans) = self.spans.get() {
            spans.close().await;
        }
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
    fn new(spec: ServerSpec, wire: WireLimits, logins: &Logins, questions: &Arc<dyn Questions>) -> Self {
        let server = Arc::new(Server::new(spec, wire, logins, Arc::clone(questions)));
        Self {
            server,
            offer: ArcSwap::from_pointee(None),
            shown: watch::Sender::new(false),
            hurry: Notify::new(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// Asks for what may have changed; says what has.
    async fn refresh(&self, kinds: Kinds) -> Result<Kinds, AskError> {
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
            .map_err(|why| AskError::Request { server: spec.name.to_string(), why })
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
