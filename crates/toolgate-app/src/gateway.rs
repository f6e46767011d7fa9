//! The gateway on top of an app: over HTTP for many callers, or over a pair of pipes for one.
//!
//! It listens before discovery is complete, so that health checks see that it is starting. Calls are accepted once the
//! catalog is complete.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolgate_agent::{Agent, Executor};
use toolgate_config::ClusterConfig;
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::server::SessionKeys;
use toolgate_mcp::transport::lines;
use toolgate_runtime::questions::{QuestionQueue, Responder};
use toolgate_runtime::runtime::{DiscoveryGrace, StartError};
use toolgate_runtime::{ClientFeatures, Runtime};
use toolgate_server::project::ProjectService;
use toolgate_server::runs::RunService;
use toolgate_server::{CallerDirectory, Gateway, GatewayError, GatewayParts};
use toolgate_store::registry::Registry;
use toolgate_types::builtins::BuiltinConfig;
use toolgate_types::profile::ProfileName;
use toolgate_types::server::OutputEncoding;
use toolgate_types::{BrowserUrl, Caller, Secret, ServeConfig};

use crate::admin::ProjectAdmin;
use crate::agent::{AgentParts, AgentService};
use crate::app::{App, AppBuilder, AppError, StartFailure};
use crate::callers::GatewayCallers;
use crate::check::missing_sandbox_layer;
use crate::cluster::{Cluster, ClusterError};
use crate::event::AppEvent;
use crate::project::ProjectFiles;
use crate::registry::OpenRegistry;
use crate::session_keys;
use crate::socket::{self, CommandSocket, SocketListeners};

/// Longest wait for running calls at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time at startup for servers and lists that are not required. Calls are accepted without them after it.
const DISCOVERY_GRACE: DiscoveryGrace =
    DiscoveryGrace { usual: Duration::from_secs(2), downloads: Duration::from_secs(2) };
/// Longest wait for servers to stop when the gateway is forced to.
const FORCED_STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Commands that run in the gateway at the same time. Others wait for their turn.
const MAX_COMMANDS: usize = 64;
/// Delay after a connection that could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Interval of the checks for old session keys.
const ROTATION_CHECK: Duration = Duration::from_secs(3_600);
/// Nesting depth of a message on a pipe.
const MAX_DEPTH: usize = 64;

/// A gateway ended because of an error.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Start(#[from] StartFailure),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Normal end of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeEnd {
    /// Running calls ended, or the wait for them did.
    Drained,
    /// Stopped without waiting for running calls.
    Forced,
}

/// Control of an HTTP gateway by the program around it.
pub struct ServeControl<O, R, S> {
    /// Called with the URL once calls are accepted. An error stops the gateway.
    pub on_open: O,
    /// Waits for the next request to reload the files and to reconnect failed servers.
    pub reload: R,
    /// Waits for the next request to stop: the first one drains, the second one stops at once.
    pub stop: S,
    /// Runs commands of the project in the gateway. Without it, each command starts its own servers.
    pub commands: Option<CommandHandler>,
}

/// Runs the command at the other end of a connection of the same user. Its future is dropped when the gateway stops.
pub type CommandHandler = Arc<dyn Fn(Arc<App>, UnixStream) -> BoxFuture<'static, ()> + Send + Sync>;

/// A gateway with its app, before it is open.
struct GatewayAssembly {
    app: Arc<App>,
    gateway: Arc<Gateway>,
    registry: Option<OpenRegistry>,
}

impl GatewayAssembly {
    /// Opens the registry and creates the gateway. Stops the app if that fails.
    async fn new(
        app: App,
        serve_config: ServeConfig,
        callers: CallerDirectory,
        agent: Option<Arc<dyn RunService>>,
        session_keys: SessionKeys,
    ) -> Result<Self, GatewayError> {
        let registry = app.open_registry_or_report().await;
        let parts = GatewayParts {
            registry: registry.as_ref().map(|registry| registry.registry().clone()),
            questions: app.questions.clone(),
            runs: agent,
            project: registry.as_ref().map(|opened| {
                let admin = ProjectAdmin::new(app.files.clone(), opened.registry().clone());
                Arc::new(admin) as Arc<dyn ProjectService>
            }),
            session_keys,
            cluster: app.files.cluster.as_ref().map(Cluster::stores),
            ..GatewayParts::new(Arc::clone(&app.runtime), serve_config, callers, app.project_log.clone())
        };
        let gateway = match Gateway::new(parts) {
            Ok(gateway) => gateway,
            Err(error) => {
                app.runtime.stop().await;
                return Err(error);
            }
        };
        Ok(Self { app: Arc::new(app), gateway, registry })
    }
}

/// Discovers, puts the files to use, opens the gateway, and follows changes until it is dropped. `once_open` runs
/// beside that.
async fn open_and_follow(
    app: &App,
    gateway: &Gateway,
    registry: Option<OpenRegistry>,
    on_open: impl FnOnce() -> io::Result<()>,
    once_open: impl Future<Output = Infallible>,
) -> Result<Infallible, ServeError> {
    let errors = app.discover_within(DISCOVERY_GRACE).await?;
    let (fatal, others): (Vec<_>, Vec<_>) = errors.into_iter().partition(StartError::is_fatal);
    if !fatal.is_empty() {
        return Err(StartFailure(fatal).into());
    }
    others.iter().for_each(|error| (app.events)(AppEvent::StartedWithout(error)));
    if let Some(registry) = &registry {
        registry.publish().await;
    }
    gateway.open();
    on_open()?;
    let states = registry.as_ref().map(|registry| registry.registry().watch());
    let follow_files = async {
        if let Some(registry) = registry {
            registry.run().await;
        }
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        never = app.runtime.watch_servers() => match never {},
        never = follow_files => match never {},
        never = app.report_rejections(states) => match never {},
        never = once_open => match never {},
    }
}

impl AppBuilder<'_> {
    /// Builds the HTTP gateway. Its clients answer requests of servers; people answer all other questions through the
    /// gateway. The key of the owner comes from `TOOLGATE_API_KEY` of the environment, or is created.
    ///
    /// # Errors
    /// If a key or a TLS file cannot be used, or like [`build`](Self::build).
    pub async fn build_gateway(mut self) -> Result<GatewayApp, AppError> {
        if let Some(cluster) = self.project.config.cluster.clone() {
            self.join_cluster(&cluster).await?;
        }
        let GatewayCallers { directory, new_owner_key } =
            GatewayCallers::load(&mut self.project.config, &self.project.files)?;
        let config = &self.project.config;
        let serve_config = config.serve.clone();
        let agent_parts = AgentParts::new(config);
        // The agent may pass questions of servers to people even without the built-in tool.
        let question_timeout = config.builtins.human_input.map(|human_input| human_input.timeout);
        let question_timeout = question_timeout.or(agent_parts.question_timeout());
        // People answer over HTTP. The given responder shows the URLs of logins.
        let responders = vec![Arc::clone(&self.responder)];
        // A person could answer only at the replica that asks.
        let question_timeout = question_timeout.filter(|_| self.project.files.cluster.is_none());
        let questions = question_timeout.map(|timeout| QuestionQueue::new(timeout, true, responders));
        if let Some(questions) = &questions {
            self.responder = Arc::clone(questions) as Arc<dyn Responder>;
        }
        self.forwarded_features = Some(ClientFeatures::all_capabilities());
        let builtins = self.project.config.builtins.clone();
        let store = self.project.files.caller_store();
        let app = self.assemble(questions)?;
        if let Err(error) = store.read() {
            (app.events)(AppEvent::KeysUnusable(&error));
        }
        report_sandbox(&app, builtins).await;
        let agent = if app.files.cluster.is_some() {
            (app.events)(AppEvent::NoClusterRuns);
            None
        } else {
            agent_service(agent_parts, &app)
        };
        let (uses_tls, public_url) = (serve_config.tls.is_some(), serve_config.url.clone());
        let session_keys = load_session_keys(&app);
        let parts = GatewayAssembly::new(app, serve_config, directory, agent, session_keys).await?;
        parts.app.reload.set_gateway(&parts.gateway);
        Ok(GatewayApp { parts, new_owner_key, uses_tls, public_url })
    }

    /// Builds the gateway for one caller at the other end of a pair of pipes. The caller answers requests of servers.
    ///
    /// # Errors
    /// Like [`build`](Self::build).
    pub async fn build_pipe(mut self) -> Result<PipeApp, AppError> {
        // The process that holds the pipes is the caller: no TLS and no tokens are needed.
        let serve = self.project.config.serve.clone();
        let serve_config = ServeConfig { tls: None, jwt: Vec::new(), ..serve };
        self.forwarded_features = Some(ClientFeatures::all_capabilities());
        let builtins = self.project.config.builtins.clone();
        let app = self.build()?;
        report_sandbox(&app, builtins).await;
        let max_message = usize::try_from(serve_config.max_body.bytes()).unwrap_or(usize::MAX);
        let (callers, session_keys) = (CallerDirectory::default(), SessionKeys::random());
        let parts = GatewayAssembly::new(app, serve_config, callers, None, session_keys).await?;
        Ok(PipeApp { parts, max_message })
    }
}

impl AppBuilder<'_> {
    /// Joins the cluster, and loads the project again with the tools and servers of the cluster.
    async fn join_cluster(&mut self, config: &ClusterConfig) -> Result<(), AppError> {
        let files = &self.project.files;
        let cluster = Cluster::start(&self.project.config, config, &files.state_folder())?;
        let texts = cluster.share_registry(&files.registries).await?;
        self.project = self.project.load_with(texts).map_err(ClusterError::Registry)?;
        self.project.files.cluster = Some(cluster);
        Ok(())
    }
}

/// Waits until the cluster asks this replica to drain.
async fn requested_drain(requests: Option<watch::Receiver<bool>>) {
    if let Some(mut requests) = requests
        && requests.wait_for(|requested| *requested).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Reports changes of the cluster: replicas that disagree, a name that is used twice, an unavailable database.
async fn report_cluster(app: &App, gateway: &Gateway) -> Infallible {
    let Some(cluster) = &app.files.cluster else { return std::future::pending().await };
    let mut changes = cluster.database.changes();
    let mut reported: (Vec<String>, bool, bool) = Default::default();
    loop {
        let status = cluster.database.status();
        let names: Vec<String> = status.disagreeing().into_iter().map(str::to_owned).collect();
        let now = (names, status.name_taken, status.away_for.is_some());
        if now.0 != reported.0 {
            (app.events)(AppEvent::Disagreement(&now.0));
        }
        if now.1 && !reported.1 {
            (app.events)(AppEvent::ReplicaNameTaken(&status.name));
        }
        match (now.2, reported.2) {
            (true, false) => {
                (app.events)(AppEvent::DatabaseAway(status.reason.as_deref().unwrap_or_default()))
            }
            (false, true) => {
                (app.events)(AppEvent::DatabaseBack);
                // Another replica may have rotated them meanwhile.
                if let Ok(keys) = cluster.session_keys(Timestamp::now()) {
                    gateway.set_session_keys(&keys);
                }
            }
            _ => {}
        }
        reported = now;
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Reports a layer of the sandbox that this machine does not have.
async fn report_sandbox(app: &App, builtins: BuiltinConfig) {
    let missing = tokio::task::spawn_blocking(move || missing_sandbox_layer(&builtins)).await;
    if let Ok(Some(missing)) = missing {
        (app.events)(AppEvent::SandboxIncomplete(&missing));
    }
}

/// Reads the keys of sessions: those of the cluster, else those in the folder.
fn read_session_keys(files: &ProjectFiles) -> io::Result<SessionKeys> {
    match &files.cluster {
        Some(cluster) => cluster.session_keys(Timestamp::now()),
        None => session_keys::load(&files.state_folder(), Timestamp::now()),
    }
}

/// Returns the keys of MCP sessions: those of the last run, so that its sessions go on.
fn load_session_keys(app: &App) -> SessionKeys {
    read_session_keys(&app.files).unwrap_or_else(|error| {
        (app.events)(AppEvent::SessionsNotKept(&error));
        SessionKeys::random()
    })
}

/// Replaces the keys of MCP sessions when they are old, or when another gateway of the project has replaced them.
async fn rotate_session_keys(app: &App, gateway: &Gateway) -> Infallible {
    loop {
        tokio::time::sleep(ROTATION_CHECK).await;
        let files = app.files.clone();
        let loaded = tokio::task::spawn_blocking(move || read_session_keys(&files)).await;
        if let Ok(Ok(keys)) = loaded {
            gateway.set_session_keys(&keys);
        }
    }
}

/// Builds the agent of a gateway, for all callers. If its model cannot be used, reports that and returns `None`.
fn agent_service(parts: AgentParts, app: &App) -> Option<Arc<dyn RunService>> {
    let skills = parts.read_skills(&app.events);
    let model = parts.build_model().inspect_err(|error| (app.events)(AppEvent::NoAgent(error))).ok()?;
    let agent = parts.into_agent(Executor::Runtime(Arc::clone(&app.runtime)), model, skills);
    let agent = Agent { responder: app.agent_responder(), ..agent };
    Some(Arc::new(AgentService(Arc::new(agent))))
}

/// An HTTP gateway, before it serves.
pub struct GatewayApp {
    parts: GatewayAssembly,
    new_owner_key: Option<Secret>,
    uses_tls: bool,
    /// `serve.url`.
    public_url: Option<String>,
}

impl GatewayApp {
    /// Returns the key of the owner if it was created just now. It cannot be shown again.
    pub fn new_owner_key(&self) -> Option<&Secret> {
        self.new_owner_key.as_ref()
    }

    /// Serves MCP and REST on a listener, and commands of the project on its socket, until a request to stop. Then
    /// stops everything that was started.
    ///
    /// # Errors
    /// If a required server fails, or there is no catalog.
    pub async fn serve(
        self,
        listener: TcpListener,
        control: ServeControl<impl FnOnce(&str) -> io::Result<()>, impl AsyncFnMut(), impl AsyncFnMut()>,
    ) -> Result<ServeEnd, ServeError> {
        let GatewayAssembly { app, gateway, registry } = self.parts;
        let url = listener.local_addr().map(|address| {
            let scheme = if self.uses_tls { "https" } else { "http" };
            format!("{scheme}://{address}")
        });
        let ended = match url {
            Ok(url) => {
                // Callers get links to it only if a browser may open it: over https, or on this machine.
                let base_url = self.public_url.as_deref().unwrap_or(&url);
                if base_url.parse::<BrowserUrl>().is_ok() {
                    app.runtime.login_tickets().set_base_url(base_url);
                }
                let ServeControl { on_open, reload, stop, commands } = control;
                let control = ServeControl { on_open: || on_open(&url), reload, stop, commands };
                serve_until_stopped(&app, &gateway, registry, listener, control).await
            }
            Err(error) => Err(error.into()),
        };
        if let Some(cluster) = &app.files.cluster {
            cluster.database.leave().await;
        }
        match ended {
            Ok(ServeEnd::Forced) => drop(timeout(FORCED_STOP_TIMEOUT, app.runtime.stop()).await),
            _ => app.runtime.stop().await,
        }
        ended
    }
}

async fn serve_until_stopped(
    app: &Arc<App>,
    gateway: &Arc<Gateway>,
    registry: Option<OpenRegistry>,
    listener: TcpListener,
    control: ServeControl<impl FnOnce() -> io::Result<()>, impl AsyncFnMut(), impl AsyncFnMut()>,
) -> Result<ServeEnd, ServeError> {
    let ServeControl { on_open, reload, mut stop, commands } = control;
    let drains = app.files.cluster.as_ref().map(|cluster| cluster.database.drain_requests());
    let handle = registry.as_ref().map(|registry| registry.registry().clone());
    let once_open = async {
        tokio::select! {
            never = prepare_lists(&app.runtime, gateway) => never,
            never = reload_on_request(app, handle, reload) => never,
            never = rotate_session_keys(app, gateway) => never,
            never = report_cluster(app, gateway) => never,
        }
    };
    let work = open_and_follow(app, gateway, registry, on_open, once_open);
    let stopping = async {
        tokio::select! {
            () = stop() => {}
            () = requested_drain(drains) => {}
        }
        (app.events)(AppEvent::Draining(gateway.active_calls()));
        tokio::select! {
            ended = gateway.drain(DRAIN_TIMEOUT) => {
                if !ended {
                    (app.events)(AppEvent::DrainTimedOut(gateway.active_calls()));
                }
                ServeEnd::Drained
            }
            () = stop() => {
                (app.events)(AppEvent::ForcedStop);
                ServeEnd::Forced
            }
        }
    };
    let mut socket = open_socket(app);
    let listeners = socket.as_mut().and_then(CommandSocket::take_listeners);
    let serving = async {
        let serve_local = async {
            if let Some(SocketListeners { requests, commands: listener }) = listeners {
                // Commands count as calls, and `stopping` waits for calls.
                let running = serve_commands(app, gateway, listener, commands);
                tokio::select! {
                    () = gateway.serve_socket(requests) => {}
                    never = running => match never {},
                }
            }
        };
        tokio::join!(gateway.serve(listener), serve_local);
        // Drained: `stopping` returns the end.
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        failed = work => failed.map(|never| match never {}),
        ended = stopping => Ok(ended),
        never = serving => match never {},
    }
}

/// Runs commands of the project that connect to the socket.
async fn serve_commands(
    app: &Arc<App>,
    gateway: &Arc<Gateway>,
    listener: UnixListener,
    handler: Option<CommandHandler>,
) -> Infallible {
    let Some(handler) = handler else { return std::future::pending().await };
    // Dropped with this future. That cancels the commands.
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if running.len() < MAX_COMMANDS => match accepted {
                Ok((stream, _)) if socket::is_own_process(&stream) => {
                    let (app, gateway, handler) = (Arc::clone(app), Arc::clone(gateway), Arc::clone(&handler));
                    running.spawn(async move {
                        if let Some(_permit) = gateway.begin_command().await {
                            handler(app, stream).await;
                        }
                    });
                }
                Ok(_) => tracing::warn!("refused a command of another user"),
                Err(error) => {
                    tracing::warn!("cannot accept a command: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(_) = running.join_next() => {}
        }
    }
}

/// Opens the sockets for commands. Without it, commands change the files, and the gateway sees the edits.
fn open_socket(app: &App) -> Option<CommandSocket> {
    match CommandSocket::listen(&app.files.state_folder()) {
        Ok(Some(socket)) => Some(socket),
        Ok(None) => {
            (app.events)(AppEvent::OtherGateway);
            None
        }
        Err(error) => {
            (app.events)(AppEvent::NoSocket(&error));
            None
        }
    }
}

/// Reloads the files on request, and reconnects failed servers at once.
async fn reload_on_request(
    app: &App,
    registry: Option<Registry>,
    mut next_request: impl AsyncFnMut(),
) -> Infallible {
    loop {
        next_request().await;
        let Some(registry) = &registry else {
            (app.events)(AppEvent::NotReloadable);
            continue;
        };
        let state = registry.reload().await;
        // Problems are reported like those of an edit.
        if state.rejection.is_none() {
            (app.events)(AppEvent::Reloaded(state.rev));
        }
        for server in app.runtime.servers().iter().filter(|server| server.retry_in_ms.is_some()) {
            app.runtime.reconnect(&server.name).await;
        }
    }
}

/// Prepares profiles and the search index ahead of the next request, after each change of the catalog.
async fn prepare_lists(runtime: &Arc<Runtime>, gateway: &Arc<Gateway>) -> Infallible {
    let mut changes = runtime.changes();
    loop {
        let (runtime, gateway) = (Arc::clone(runtime), Arc::clone(gateway));
        let prepare = move || {
            runtime.prepare_search();
            gateway.prepare();
        };
        if let Err(error) = tokio::task::spawn_blocking(prepare).await {
            tracing::error!("cannot prepare the lists: {error}");
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// A gateway on a pair of pipes, before it serves.
pub struct PipeApp {
    parts: GatewayAssembly,
    max_message: usize,
}

impl PipeApp {
    pub fn app(&self) -> &App {
        &self.parts.app
    }

    /// Serves MCP to one caller, one message per line, until the input ends or `stop` resolves. Then stops everything
    /// that was started. Requests that arrive before discovery is complete wait for it.
    ///
    /// # Errors
    /// If a required server fails, or there is no catalog.
    pub async fn serve(
        self,
        (caller, profile): (Caller, Option<ProfileName>),
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let GatewayAssembly { app, gateway, registry } = self.parts;
        let limits = ScanLimits { size: self.max_message, depth: MAX_DEPTH };
        let link = lines::open(input, output, OutputEncoding::Utf8, limits);
        let work = open_and_follow(&app, &gateway, registry, || Ok(()), std::future::pending());
        // Polled together with the link: it sends the last responses meanwhile.
        let stopping = async {
            stop.await;
            gateway.drain(DRAIN_TIMEOUT).await;
        };
        let ended = tokio::select! {
            failed = work => failed.map(|never| match never {}),
            () = gateway.serve_link(caller, profile, link) => Ok(()),
            () = stopping => Ok(()),
        };
        app.runtime.stop().await;
        ended
    }
}
