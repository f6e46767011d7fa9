//! The app: a runtime with its log, history, telemetry and question queue, and the builder that puts them together.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use toolgate_agent::model::ModelError;
use toolgate_agent::server_requests::client_capabilities;
use toolgate_agent::{Agent, Executor, RunPerson};
use toolgate_audit::redact::Redactor;
use toolgate_audit::spans::{ExporterError, SpanExporter};
use toolgate_audit::{LogEvent, ProjectLog, ToolHistory};
use toolgate_config::{Config, CredentialKey};
use toolgate_policy::Policy;
use toolgate_runtime::catalog::SEPARATOR;
use toolgate_runtime::pins::LockFile;
use toolgate_runtime::questions::{NoResponder, QuestionQueue, Responder};
use toolgate_runtime::results::ResultStore;
use toolgate_runtime::runtime::{DiscoveryGrace, RuntimeSetup, StartError};
use toolgate_runtime::{CallOutcome, Operation, RawJson, Runtime};
use toolgate_server::GatewayError;
use toolgate_store::callers::KeyError;
use toolgate_store::registry::{OpenError, RegistryState};
use toolgate_types::server::Transport;
use toolgate_types::{Caller, CallerId, Profile, ServerName, ServerSpec};
use toolgate_upstream::LoginOptions;
use toolgate_upstream::process::nesting::{self, NestedProject};

use crate::agent::{self, AgentParts, QUESTION_TIMEOUT};
use crate::callers;
use crate::cluster::{Cluster, ClusterError};
use crate::credentials::{CredentialsError, NoCredentials, ProjectCredentials, uses_store};
use crate::event::{AppEvent, EventHandler};
use crate::log::{LogError, LogMode, LogSetup};
use crate::project::{Project, ProjectFiles};
use crate::registry::{self, CheckedProject, OpenRegistry};
use crate::reload::ReloadTarget;

/// Delay before a message about servers that are still starting.
const SLOW_START: Duration = Duration::from_secs(2);

/// An app cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot export traces")]
    Telemetry(#[source] ExporterError),
    /// The model of the agent cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The key of the owner cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The stored credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The cluster cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// This process was started by a server of the same project.
    #[error(transparent)]
    Nested(#[from] NestedProject),
}

impl AppError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Log(_) | Self::Telemetry(_) => None,
            Self::Model(error) => error.hint.clone(),
            Self::Keys(error) => Some(error.hint()),
            Self::Gateway(error) => Some(error.hint().to_owned()),
            Self::Credentials(error) => error.hint(),
            Self::Cluster(error) => Some(error.hint().to_owned()),
            Self::Nested(error) => Some(error.hint()),
        }
    }

    /// Returns true if the configuration has to change.
    pub fn is_invalid_config(&self) -> bool {
        matches!(self, Self::Cluster(error) if error.is_invalid_config())
            || matches!(self, Self::Keys(_) | Self::Gateway(_) | Self::Credentials(_) | Self::Nested(_))
    }
}

/// The app cannot run: servers that it needs failed, or there is no catalog.
#[derive(Debug, thiserror::Error)]
pub struct StartFailure(pub Vec<StartError>);

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl StartFailure {
    /// Returns true if the configuration or the lock file has to change. Otherwise only servers failed.
    pub fn is_invalid_config(&self) -> bool {
        self.0.iter().any(|error| matches!(error, StartError::Catalog(_) | StartError::Lock(_)))
    }
}

/// A caller or profile that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no {kind} `{name}`")]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    /// Suggested fix.
    pub hint: String,
}

/// Collects the choices of a front end. The methods that build need a tokio runtime.
#[must_use = "a builder does nothing until it builds"]
pub struct AppBuilder<'a> {
    pub(crate) project: Project,
    pub(crate) responder: Arc<dyn Responder>,
    /// Client capabilities to declare to servers if the clients of calls answer them.
    pub(crate) forwarded_features: Option<Value>,
    pub(crate) events: EventHandler,
    user_state: Option<PathBuf>,
    log: LogMode,
    servers: Box<dyn Fn(&str) -> bool + 'a>,
}

impl<'a> AppBuilder<'a> {
    /// Sets the responder that asks a person: for approvals, for answers to tools and servers, for logins. By default
    /// no person can be asked. In a gateway it is one of the responders of the question queue.
    pub fn responder(mut self, responder: Arc<dyn Responder>) -> Self {
        self.responder = responder;
        self
    }

    /// Sets the receiver of events. Without it, they are dropped.
    pub fn on_event(mut self, handler: impl Fn(AppEvent<'_>) + Send + Sync + 'static) -> Self {
        self.events = Arc::new(handler);
        self
    }

    /// Sets the state folder of the user, with the key of stored credentials. By default they are kept in memory, unless
    /// the configuration names a key.
    pub fn user_state(mut self, folder: Option<PathBuf>) -> Self {
        self.user_state = folder;
        self
    }

    /// Sets the recording of calls. By default many concurrent calls are recorded.
    pub fn log(mut self, mode: LogMode) -> Self {
        self.log = mode;
        self
    }

    /// Leaves out servers and APIs whose name the filter rejects.
    pub fn servers(mut self, filter: impl Fn(&str) -> bool + 'a) -> Self {
        self.servers = Box::new(filter);
        self
    }

    /// Builds an app for calls of this process. Its servers begin to connect.
    ///
    /// # Errors
    /// If the log cannot be written, or traces cannot be exported.
    pub fn build(self) -> Result<App, AppError> {
        if self.project.config.cluster.is_some() {
            return Err(ClusterError::NoGateway.into());
        }
        let human_input = self.project.config.builtins.human_input;
        let responders = vec![Arc::clone(&self.responder)];
        let questions =
            human_input.map(|human_input| QuestionQueue::new(human_input.timeout, false, responders));
        self.assemble(questions)
    }

    /// Builds an app and its agent. The agent may always ask a person, stores results that its model cannot take, and
    /// answers requests of servers itself. `record` is a file for a recording of the run.
    ///
    /// # Errors
    /// If the model cannot be used, or like [`build`](Self::build).
    pub fn build_agent(mut self, record: Option<PathBuf>) -> Result<(App, Agent), AppError> {
        let parts = AgentParts::new(&self.project.config);
        let skills = parts.read_skills(&self.events);
        let model = parts.build_model()?;
        agent::enable_questions_and_results(&mut self.project.config, model.max_result_bytes());
        self.forwarded_features = Some(client_capabilities(parts.config()));
        let app = self.build()?;
        let agent = parts.into_agent(Executor::Runtime(Arc::clone(&app.runtime)), model, skills);
        let agent = Agent { responder: app.agent_responder(), record, ..agent };
        Ok((app, agent))
    }

    /// Opens the log, reads the history, starts the telemetry, and creates the runtime.
    pub(crate) fn assemble(self, questions: Option<Arc<QuestionQueue>>) -> Result<App, AppError> {
        let Self { project, responder, forwarded_features, events, user_state, log, servers } = self;
        let Project { config, files, sources } = project;
        nesting::enter(&config.project)?;
        let checked = files.checked_project(&config, sources);
        files.exposed.iter().for_each(|path| events(AppEvent::Exposed(path)));
        toolgate_state::remove_orphans(files.state_folder().path());
        let lock = match &files.cluster {
            Some(cluster) => LockFile::in_cluster(cluster.documents()),
            None => LockFile::in_project(&config.project),
        };
        lock.remove_orphans();
        let cluster = files.cluster.as_ref().map(Cluster::stores);
        let callers = callers::known_callers(config.callers.clone(), &config.groups, &*files.caller_store());
        let is_used = |spec: &ServerSpec| servers(spec.name.as_str()) && uses_store(spec);
        let logins = if cluster.is_some() {
            // A login at one replica would be unknown at the others.
            LoginOptions { store: Some(Arc::new(NoCredentials)), ..LoginOptions::default() }
        } else {
            open_logins(&config, user_state.as_deref(), config.servers.iter().any(is_used))?
        };
        let log_setup = LogSetup::new(&config)?;
        let history = if log == LogMode::Off { ToolHistory::default() } else { log_setup.history() };
        let execution_log = log_setup.open(log)?;
        let spans = config.telemetry.clone().map(SpanExporter::start).transpose();
        let spans = spans.map_err(AppError::Telemetry)?;
        let downloading = downloading_servers(&config);
        let agent_parts = AgentParts::new(&config);
        let reload = Arc::new(ReloadTarget::new(files.clone()));
        let runtime = Runtime::new(RuntimeSetup {
            logins,
            cluster,
            callers,
            lock: Some(lock),
            responder,
            forwarded_features,
            log: execution_log,
            history,
            spans,
            ..runtime_setup(config, questions.as_ref(), servers)
        });
        let project_log = log_setup.project_log();
        let checked = Mutex::new(Some(checked));
        let runtime = Arc::new(runtime);
        Ok(App { runtime, files, reload, checked, project_log, questions, agent_parts, downloading, events })
    }
}

/// Opens the stored credentials. If no server uses them yet, a store that cannot be opened is left alone, and no program
/// is run for its key.
fn open_logins(
    config: &Config,
    user_state: Option<&Path>,
    is_used: bool,
) -> Result<LoginOptions, CredentialsError> {
    if !is_used && matches!(config.credential_key, CredentialKey::KeyCommand(_)) {
        return Ok(LoginOptions::default());
    }
    match ProjectCredentials::open(config, user_state) {
        Ok(credentials) => Ok(credentials.login_options()),
        Err(error) if is_used => Err(error),
        Err(_) => Ok(LoginOptions::default()),
    }
}

/// Turns the configuration into the parts of a runtime, with the servers that pass the filter.
fn runtime_setup(
    config: Config,
    questions: Option<&Arc<QuestionQueue>>,
    servers: impl Fn(&str) -> bool,
) -> RuntimeSetup {
    let results = config.results.map(|limits| {
        let redactor = Redactor::new(config.secrets.clone(), config.audit.redact.clone());
        ResultStore::in_project(&config.project, limits, redactor)
    });
    let builtins =
        toolgate_runtime::builtins::enabled(config.builtins, &config.project, questions, results.as_ref());
    RuntimeSetup {
        builtins,
        own: config.tools,
        settings: config.tool_settings,
        servers: config.servers.into_iter().filter(|server| servers(server.name.as_str())).collect(),
        apis: config.apis.into_iter().filter(|api| servers(api.name.as_str())).collect(),
        read_document: toolgate_config::parse_document,
        limits: config.limits,
        secrets: config.secrets,
        policy: Policy::new(config.policy.map(|policy| policy.rules)),
        egress: config.egress,
        results,
        profiles: config.profiles,
        ..RuntimeSetup::default()
    }
}

/// Returns the servers whose first start may download a package.
fn downloading_servers(config: &Config) -> Vec<String> {
    let may_download =
        |server: &&ServerSpec| matches!(&server.transport, Transport::Stdio(stdio) if stdio.may_download());
    config.servers.iter().filter(may_download).map(|server| server.name.to_string()).collect()
}

/// Returns a filter for the servers that may have a tool: `{server}__{tool}` needs only that server; a bare name needs
/// servers that had the tool before, or were never seen.
pub fn servers_with_tool<'a>(tool: &'a str, project: &Path) -> impl Fn(&str) -> bool + use<'a> {
    // Errors of the lock file are reported when the servers start.
    let pins = LockFile::in_project(project).read().unwrap_or_default();
    move |server| match tool.split_once(SEPARATOR) {
        Some((prefix, _)) => server.parse().is_ok_and(|name: ServerName| name.prefix() == prefix),
        None => !pins.rules_out(server, tool),
    }
}

/// A running app. [`run`](Self::run) stops everything it started.
pub struct App {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) files: ProjectFiles,
    /// The configuration in use.
    pub(crate) reload: Arc<ReloadTarget>,
    /// The project as it was loaded, until the registry is opened.
    checked: Mutex<Option<CheckedProject>>,
    pub(crate) project_log: ProjectLog,
    pub(crate) questions: Option<Arc<QuestionQueue>>,
    /// Builds an agent for a command that runs in this app.
    agent_parts: AgentParts,
    /// Servers whose first start may download a package.
    downloading: Vec<String>,
    pub(crate) events: EventHandler,
}

impl App {
    /// Starts to build an app for a project. Nothing is opened or started yet.
    pub fn builder<'a>(project: Project) -> AppBuilder<'a> {
        AppBuilder {
            project,
            responder: Arc::new(NoResponder),
            forwarded_features: None,
            events: Arc::new(|_| {}),
            user_state: None,
            log: LogMode::ManyCalls,
            servers: Box::new(|_| true),
        }
    }

    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    pub fn files(&self) -> &ProjectFiles {
        &self.files
    }

    /// Builds an agent for a run that a person starts and follows. The person approves calls and answers questions.
    ///
    /// # Errors
    /// If the model cannot be used.
    pub fn build_run_agent(
        &self,
        person: Arc<dyn Responder>,
        record: Option<PathBuf>,
    ) -> Result<Agent, AppError> {
        let parts = self.agent_parts.clone();
        let skills = parts.read_skills(&self.events);
        let model = parts.build_model()?;
        let timeout = self.questions.as_ref().map_or(QUESTION_TIMEOUT, |queue| queue.timeout());
        let person = RunPerson::new(person, timeout);
        let agent = parts.into_agent(Executor::Runtime(Arc::clone(&self.runtime)), model, skills);
        Ok(Agent { responder: person.responder(), person: Some(person), record, ..agent })
    }

    /// Returns the responder for questions of servers in a run: the queue, so that people can answer over HTTP, too.
    pub(crate) fn agent_responder(&self) -> Arc<dyn Responder> {
        match &self.questions {
            Some(queue) => Arc::clone(queue) as Arc<dyn Responder>,
            None => Arc::new(NoResponder),
        }
    }

    /// Returns the caller with this id. `owner` exists even if it is not configured: a local user owns the files of
    /// the project anyway.
    ///
    /// # Errors
    /// If there is no such caller.
    pub fn caller(&self, id: &str) -> Result<Caller, UnknownName> {
        match self.runtime.caller(id) {
            Some(caller) => Ok(caller),
            None if id == Caller::OWNER => Ok(Caller::owner()),
            None => {
                let hint = "callers are defined in `callers` of toolgate.yaml".to_owned();
                Err(UnknownName { kind: "caller", name: id.to_owned(), hint })
            }
        }
    }

    /// Returns the profile with this name, if the caller may use it.
    ///
    /// # Errors
    /// If there is no such profile for the caller.
    pub fn profile(&self, caller: &CallerId, name: &str) -> Result<Arc<Profile>, UnknownName> {
        let profiles = self.runtime.profiles();
        if let Ok(Some(profile)) = profiles.resolve(caller, Some(name)) {
            return Ok(Arc::clone(profile));
        }
        let usable = |profile: &&Arc<Profile>| profiles.resolve(caller, Some(profile.name.as_str())).is_ok();
        let names: Vec<_> =
            profiles.all.iter().filter(usable).map(|profile| format!("`{}`", profile.name)).collect();
        let hint = match names.as_slice() {
            [] => "define profiles in `profiles` of toolgate.yaml; see docs/profiles.md".to_owned(),
            names => format!("available: {}", names.join(", ")),
        };
        Err(UnknownName { kind: "profile", name: name.to_owned(), hint })
    }

    /// Connects to the servers and builds the catalog. Returns the errors of required servers, for the front end to
    /// judge.
    ///
    /// # Errors
    /// If there is no catalog, or the lock file cannot be read. The failure includes the errors of servers.
    pub async fn discover(&self) -> Result<Vec<StartError>, StartFailure> {
        self.discover_within(DiscoveryGrace::UNLIMITED).await
    }

    /// The same, but waits at most `grace` for everything that is not required. [`Runtime::awaited_servers`] names the
    /// rest, and [`Self::discover_late`] waits for it.
    ///
    /// # Errors
    /// Like [`Self::discover`].
    pub fn discover_within(
        &self,
        grace: DiscoveryGrace,
    ) -> BoxFuture<'_, Result<Vec<StartError>, StartFailure>> {
        Box::pin(async move {
            let report = |status: &_| (self.events)(AppEvent::Server(status));
            self.finish_discovery(self.runtime.discover_within(grace, report)).await
        })
    }

    /// Waits for the servers that had not answered within the grace.
    ///
    /// # Errors
    /// Like [`Self::discover`].
    pub fn discover_late(&self) -> BoxFuture<'_, Result<Vec<StartError>, StartFailure>> {
        Box::pin(async move {
            let report = |status: &_| (self.events)(AppEvent::Server(status));
            self.finish_discovery(self.runtime.discover_late(report)).await
        })
    }

    async fn finish_discovery(
        &self,
        discovery: impl Future<Output = Result<(), Vec<StartError>>>,
    ) -> Result<Vec<StartError>, StartFailure> {
        tokio::pin!(discovery);
        let outcome = match timeout(SLOW_START, &mut discovery).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.report_slow_starts();
                discovery.await
            }
        };
        let failure = StartFailure(outcome.err().unwrap_or_default());
        if failure.is_invalid_config() { Err(failure) } else { Ok(failure.0) }
    }

    /// Names the servers that are slow to start, and those that may be downloading a package.
    fn report_slow_starts(&self) {
        for status in self.runtime.servers().iter().filter(|status| status.state == "connecting") {
            let name = &status.name;
            let is_downloading = self.downloading.contains(name);
            (self.events)(if is_downloading { AppEvent::SlowStart(name) } else { AppEvent::Waiting(name) });
        }
    }

    /// Calls a tool through the pipeline, as part of a new trace. Returns the whole result, however large it is.
    pub async fn call(&self, caller: &Caller, tool: &str, arguments: &impl Serialize) -> CallOutcome {
        let operation = Operation::tool(tool, RawJson::from_value(arguments));
        self.runtime.execute_boxed(caller, Operation { full_result: true, ..operation }).await
    }

    /// Opens the registry, for changes of tools and servers and for edits of the files.
    ///
    /// # Errors
    /// If the files cannot be read or are invalid.
    pub fn open_registry(&self) -> BoxFuture<'_, Result<OpenRegistry, OpenError>> {
        Box::pin(async move {
            let publish = registry::publish_to(&self.runtime, &self.reload, &self.events);
            let checked = self.checked.lock().take();
            OpenRegistry::open(self.files.clone(), checked, publish).await
        })
    }

    /// Opens the registry. On failure, reports that edits of the files are ignored.
    pub(crate) async fn open_registry_or_report(&self) -> Option<OpenRegistry> {
        let opened = self.open_registry().await;
        opened.inspect_err(|error| (self.events)(AppEvent::ChangesIgnored(error))).ok()
    }

    /// Reports changed files that are invalid, as an event and in the execution log.
    pub(crate) async fn report_rejections(
        &self,
        states: Option<watch::Receiver<Arc<RegistryState>>>,
    ) -> Infallible {
        if let Some(mut states) = states {
            while states.changed().await.is_ok() {
                let Some(problems) = states.borrow_and_update().rejection.clone() else { continue };
                (self.events)(AppEvent::ReloadRejected(&problems));
                if let Some(log) = self.runtime.log() {
                    let reason = problems.to_string();
                    drop(log.record_event(&LogEvent::ReloadRejected { reason: &reason }));
                }
            }
        }
        std::future::pending().await
    }

    /// Does work while the catalog follows changes of servers and files. The work does not wait until the files are
    /// read again.
    pub async fn keep_current<T>(&self, work: impl Future<Output = T>) -> T {
        let follow_files = async {
            if let Some(registry) = self.open_registry_or_report().await {
                registry.publish().await;
                let states = registry.registry().watch();
                tokio::select! {
                    () = registry.run() => {}
                    never = self.report_rejections(Some(states)) => match never {},
                }
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            outcome = work => outcome,
            never = self.runtime.watch_servers() => match never {},
            never = follow_files => match never {},
        }
    }

    /// Does work, then stops everything that the app started.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> T {
        let outcome = work(&self).await;
        self.runtime.stop().await;
        outcome
    }
}
