//! One MCP server: its connection, its health, and the callers that wait for it.
//!
//! Connecting is single-flight: one task connects, so a hundred callers of a dead server cause one attempt. An outage
//! gets at most four attempts, with exponential backoff and jitter between them. After that the circuit breaker is
//! open: one caller per second may probe, and all others fail fast. Invariant: no caller waits longer than the attempts
//! of one outage take.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolgate_mcp::{
    DownstreamClient, Forwarded, LinkError, Params, ProtocolMode, RequestError, Revision, RpcError,
    with_jitter,
};
use toolgate_policy::Input;
use toolgate_redact::mask;
use toolgate_types::server::{ProtocolRevision, StartupMode, Transport};
use toolgate_types::{Caller, CallerId, ServerSpec};

use crate::builtin::BuiltinError;
use crate::connect::{
    ConnectCause, ConnectError, Connection, ConnectionLimits, ConnectionOwner, OutageKind, OwnerCell, connect,
};
use crate::credentials::{LoginOptions, ServerCredentials};
use crate::invoke::InvokeError;
use crate::offer::{OfferKinds, ServerOffer, discover};

mod features;
mod history;
mod log_limit;
mod notifications;
mod pool;
mod roots;

pub use features::ClientFeatures;
use history::HistoryRecorder;
pub use history::{ServerHistory, ServerOutage};
pub use log_limit::LogLimit;
use notifications::NotificationHandler;
pub use notifications::{ResourceUpdate, log_server_message};
pub use pool::{ClientConnection, Requester};
use pool::{ConnectionPool, SubscribedResources};
pub use roots::RootsRelay;

/// Reconnect backoff: the pauses between the attempts of one outage. Jitter adds up to half of it.
const BACKOFF: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Once the backoff is used up, the circuit breaker lets one probe through per interval.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of background reconnects to a server that starts eagerly, before jitter.
const BACKGROUND_INTERVAL: Duration = Duration::from_secs(30);
/// Longest wait of the start of a gateway for a server that it does not require. Clients give up after thirty seconds.
pub const MAX_EAGER_WAIT: Duration = Duration::from_secs(20);
/// Interval of the health checks of a server over HTTP, before jitter, and the time it has to answer one.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Backoff between requests for the change stream, from the first to the longest.
const LISTEN_BACKOFF_MIN: Duration = Duration::from_secs(1);
const LISTEN_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Notifications buffered for each receiver.
const NOTIFICATION_BACKLOG: usize = 256;
/// Timeout of `resources/unsubscribe`.
const UNSUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection state of a server.
#[derive(Clone)]
pub enum ServerState {
    /// Not started yet; it starts on first use.
    Idle,
    Connecting,
    Ready(Arc<Connection>),
    /// Disconnected. The circuit breaker is open until `next_try`.
    Down {
        reason: Arc<str>,
        /// The suggested fix.
        hint: Option<Arc<str>>,
        /// The earliest time of the next probe.
        next_try: Instant,
        kind: OutageKind,
        /// True if a person has to log in.
        login: bool,
    },
}

impl ServerState {
    /// The name in listings.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Ready(_) => "ready",
            Self::Down { login: true, .. } => "login needed",
            Self::Down { .. } => "unavailable",
        }
    }
}

/// The server cannot be used now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("MCP server `{server}` is not available: {reason}")]
pub struct ServerUnavailable {
    pub server: String,
    pub reason: Arc<str>,
    /// The suggested fix.
    pub hint: Option<Arc<str>>,
    pub kind: OutageKind,
}

/// An MCP server with its connection.
pub struct Server {
    spec: Arc<ServerSpec>,
    state: watch::Receiver<ServerState>,
    stale: Arc<watch::Sender<OfferKinds>>,
    /// Subscribed resources, with the number of subscribers.
    subscriptions: Arc<SubscribedResources>,
    resource_updates: broadcast::Sender<ResourceUpdate>,
    list_changes: broadcast::Sender<(Option<CallerId>, OfferKinds)>,
    pool: Arc<ConnectionPool>,
    credentials: Arc<ServerCredentials>,
    log_limit: Arc<LogLimit>,
    /// Changes of lists that the server announced on connections of the pool.
    client_list_changes: Arc<AtomicU64>,
    history: Arc<HistoryRecorder>,
    change_interest: Arc<Notify>,
    wake: Arc<Notify>,
    suspect: Arc<Notify>,
    stop: Arc<Notify>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl Server {
    /// Creates the server. Connects at once, or on first use if its startup mode is lazy.
    pub fn new(
        spec: ServerSpec,
        limits: ConnectionLimits,
        logins: &LoginOptions,
        features: ClientFeatures,
    ) -> Self {
        let spec = Arc::new(spec);
        let credentials = Arc::new(ServerCredentials::new(Arc::clone(&spec), logins.clone()));
        let (state_sender, state) = watch::channel(ServerState::Idle);
        let (wake, suspect, stop) =
            (Arc::new(Notify::new()), Arc::<Notify>::default(), Arc::<Notify>::default());
        if spec.startup != StartupMode::Lazy {
            wake.notify_one();
        }
        let stale = Arc::new(watch::Sender::new(OfferKinds::default()));
        let change_interest = Arc::new(Notify::new());
        let subscriptions = Arc::new(watch::Sender::new(BTreeMap::new()));
        let (resource_updates, list_changes) =
            (broadcast::Sender::new(NOTIFICATION_BACKLOG), broadcast::Sender::new(NOTIFICATION_BACKLOG));
        let notifications = NotificationHandler {
            server: spec.name.to_string(),
            features,
            stale: Arc::clone(&stale),
            is_pooled: false,
            owner: Arc::default(),
            list_changes: list_changes.clone(),
            resource_updates: resource_updates.clone(),
            server_asks: Arc::default(),
            log_limit: Arc::default(),
            client_list_changes: Arc::default(),
            roots: Arc::default(),
        };
        let log_limit = Arc::clone(&notifications.log_limit);
        let client_list_changes = Arc::clone(&notifications.client_list_changes);
        let connect_options = ConnectOptions {
            mode: protocol_mode(&spec),
            spec: Arc::clone(&spec),
            limits,
            credentials: Arc::clone(&credentials),
            notifications,
            // With credentials of callers, this connection has those of the owner, so no other caller gets it.
            owner: credentials.is_per_caller().then(ConnectionOwner::machine_owner),
            opener: None,
        };
        let pool = ConnectionPool::new(connect_options.clone());
        let history = Arc::new(HistoryRecorder::new());
        let connector = Connector {
            spec: Arc::clone(&spec),
            connect_options,
            history: Arc::clone(&history),
            state_sender,
            stale: Arc::clone(&stale),
            subscriptions: Arc::clone(&subscriptions),
            change_interest: Arc::clone(&change_interest),
            wake: Arc::clone(&wake),
            suspect: Arc::clone(&suspect),
        };
        let mut tasks = JoinSet::new();
        let stopped = Arc::clone(&stop);
        tasks.spawn(async move { connector.run(&stopped).await });
        let tasks = tokio::sync::Mutex::new(tasks);
        Self {
            spec,
            state,
            stale,
            subscriptions,
            resource_updates,
            list_changes,
            pool,
            credentials,
            log_limit,
            client_list_changes,
            history,
            change_interest,
            wake,
            suspect,
            stop,
            tasks,
        }
    }

    pub fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Credentials of callers for the server.
    pub fn credentials(&self) -> &Arc<ServerCredentials> {
        &self.credentials
    }

    /// The rate limit for log lines that the server causes.
    pub fn log_limit(&self) -> &Arc<LogLimit> {
        &self.log_limit
    }

    pub fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    /// Its states and errors so far.
    pub fn history(&self) -> ServerHistory {
        self.history.get()
    }

    /// The last lines that the process of the main connection wrote to stderr.
    pub fn live_stderr(&self, lines: usize) -> Vec<String> {
        let connection = self.ready_connection();
        connection.map(|connection| connection.stderr_lines(lines)).unwrap_or_default()
    }

    /// Returns the current connection, or waits for the one being made. Fails fast while the circuit breaker is open.
    pub async fn connection(&self) -> Result<Arc<Connection>, ServerUnavailable> {
        let mut state = self.state.clone();
        let now = match &*state.borrow_and_update() {
            ServerState::Ready(connection) if connection.session.close_reason().is_none() => {
                return Ok(Arc::clone(connection));
            }
            ServerState::Down { reason, hint, next_try, kind, .. } if *next_try > Instant::now() => {
                return Err(self.unavailable(reason, hint.as_ref(), *kind));
            }
            _ => Instant::now(),
        };
        self.wake.notify_one();
        loop {
            if state.changed().await.is_err() {
                return Err(self.unavailable(&"it is being stopped".into(), None, OutageKind::Unreachable));
            }
            match &*state.borrow_and_update() {
                ServerState::Ready(connection) if connection.session.close_reason().is_none() => {
                    return Ok(Arc::clone(connection));
                }
                ServerState::Down { reason, hint, next_try, kind, .. } if *next_try > now => {
                    return Err(self.unavailable(reason, hint.as_ref(), *kind));
                }
                _ => {}
            }
        }
    }

    /// Checks the health of the server now, because a request did not reach it.
    pub(crate) fn check_health(&self) {
        self.suspect.notify_one();
    }

    /// Watches the connection state.
    pub fn watch_state(&self) -> watch::Receiver<ServerState> {
        self.state.clone()
    }

    /// Waits until lists of these kinds may have changed, or the server was reconnected. Change notifications are only
    /// requested from the server once this has been called.
    pub async fn wait_stale(&self, kinds: OfferKinds) {
        self.change_interest.notify_one();
        let _ = self.stale.subscribe().wait_for(|stale| !stale.intersection(kinds).is_empty()).await;
    }

    /// Takes those of the kinds that may have changed. The caller has to refresh them.
    pub fn take_stale(&self, kinds: OfferKinds) -> OfferKinds {
        let mut taken = OfferKinds::default();
        self.stale.send_modify(|stale| {
            taken = stale.intersection(kinds);
            *stale = stale.without(kinds);
        });
        taken
    }

    /// The kinds that may have changed. Each notification of the server counts as a change of the value.
    pub fn watch_stale(&self) -> watch::Receiver<OfferKinds> {
        self.stale.subscribe()
    }

    /// Waits until all changes of tools were taken.
    pub async fn wait_until_tools_taken(&self) {
        let _ = self.stale.subscribe().wait_for(|kinds| !kinds.tools).await;
    }

    /// Marks kinds as changed again, after a failed refresh.
    pub fn mark_stale(&self, kinds: OfferKinds) {
        mark_stale(&self.stale, kinds);
    }

    /// Updates of subscribed resources.
    pub fn resource_updates(&self) -> broadcast::Receiver<ResourceUpdate> {
        self.resource_updates.subscribe()
    }

    /// List changes that the server announced on connections of the pool, which the catalog is not built from, with the
    /// caller that they concern, if not all.
    pub fn list_changes(&self) -> broadcast::Receiver<(Option<CallerId>, OfferKinds)> {
        self.list_changes.subscribe()
    }

    /// Subscribes to changes of the resource in the argument `uri`, until the returned value is dropped. Subscribes again
    /// after an outage.
    ///
    /// # Errors
    /// If the server is not available, or rejects the subscription.
    pub async fn subscribe_resource(
        self: &Arc<Self>,
        input: &Input,
        session: Option<&str>,
        client: Option<&Arc<dyn DownstreamClient>>,
    ) -> Result<ResourceSubscription, InvokeError> {
        #[derive(Deserialize)]
        struct SubscribeArguments {
            uri: String,
        }
        let arguments: Result<SubscribeArguments, _> = input.arguments().parse();
        let uri = arguments.map_err(|error| BuiltinError::from(error.to_string()))?.uri;
        let requester = Requester { caller: input.caller(), session, client };
        let client_connection = self.client_connection(requester).await?;
        let (connection, pooled) = (&client_connection.connection, client_connection.pooled());
        let subscriptions = self.subscriptions_on(pooled).map(|(subscriptions, _)| subscriptions);
        let subscriptions = subscriptions.ok_or_else(|| InvokeError::Ended("it was closed".to_owned()))?;
        let first = !subscriptions.borrow().contains_key(&uri);
        if first && connection.peer.revision.has_handshake() {
            let params = Params::none().with("uri", &uri);
            connection
                .session
                .request("resources/subscribe", params, self.spec.request_timeout.get())
                .await?;
        }
        subscriptions.send_modify(|all| *all.entry(uri.clone()).or_default() += 1);
        // Servers of the newest revision take subscriptions on the change stream.
        self.change_interest.notify_one();
        Ok(ResourceSubscription { server: Arc::downgrade(self), uri, pooled })
    }

    /// The subscriptions of the main connection or one of the pool, and the connection if it is open.
    fn subscriptions_on(
        &self,
        pooled: Option<u64>,
    ) -> Option<(Arc<SubscribedResources>, Option<Arc<Connection>>)> {
        match pooled {
            Some(entry) => self.pool.subscriptions(entry),
            None => Some((Arc::clone(&self.subscriptions), self.ready_connection())),
        }
    }

    /// Removes one subscriber. Unsubscribes from the server after the last one.
    fn unsubscribe_resource(&self, uri: &str, pooled: Option<u64>) {
        let Some((subscriptions, connection)) = self.subscriptions_on(pooled) else { return };
        let mut last = false;
        subscriptions.send_modify(|all| {
            last = all.get(uri).is_some_and(|count| *count <= 1);
            if last {
                all.remove(uri);
            } else if let Some(count) = all.get_mut(uri) {
                *count -= 1;
            }
        });
        let Some(connection) = connection else { return };
        if last
            && connection.peer.revision.has_handshake()
            && let Ok(tokio) = tokio::runtime::Handle::try_current()
        {
            let params = Params::none().with("uri", &uri);
            tokio.spawn(async move {
                let _ =
                    connection.session.request("resources/unsubscribe", params, UNSUBSCRIBE_TIMEOUT).await;
            });
        }
    }

    fn unavailable(&self, reason: &Arc<str>, hint: Option<&Arc<str>>, kind: OutageKind) -> ServerUnavailable {
        let server = self.spec.name.to_string();
        ServerUnavailable { server, reason: Arc::clone(reason), hint: hint.cloned(), kind }
    }

    /// The main connection, if it is open.
    pub(crate) fn ready_connection(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            ServerState::Ready(connection) if connection.session.close_reason().is_none() => {
                Some(Arc::clone(connection))
            }
            _ => None,
        }
    }

    /// Returns true if the server may list other items to a requester than on the main connection: because it has
    /// its own credential, or because its client has fewer capabilities. Where a server is known to depend on neither, its
    /// lists are the same, and no connection is opened for them.
    pub fn lists_apart(&self, requester: Requester<'_>) -> bool {
        let has_own_credential =
            self.credentials.is_per_caller() && requester.caller.as_str() != Caller::OWNER;
        let depends_on = |client: &Arc<dyn DownstreamClient>| {
            self.ready_connection().is_some_and(|main| self.pool.lists_apart(&main, &**client))
        };
        has_own_credential || requester.client.is_some_and(depends_on)
    }

    /// The capabilities that are declared for a client, as JSON.
    pub fn declared_capabilities(&self, client: Option<&Arc<dyn DownstreamClient>>) -> String {
        client.map(|client| pool::askable_capabilities(&**client).to_string()).unwrap_or_default()
    }

    /// Number of changes of lists that the server announced on connections of the pool.
    pub fn client_list_changes(&self) -> u64 {
        self.client_list_changes.load(Ordering::Relaxed)
    }

    /// Lists the items of these kinds on a connection of the requester.
    ///
    /// # Errors
    /// If the requester has no login, or the lists cannot be read.
    pub async fn list_for(
        self: &Arc<Self>,
        requester: Requester<'_>,
        kinds: OfferKinds,
    ) -> Result<ServerOffer, ListError> {
        let found = self.pool.acquire_for_list(self, requester).await.map_err(|error| match error.kind {
            OutageKind::Unauthorized => ListError::LoginNeeded,
            _ => ListError::Unavailable(error),
        })?;
        let along = Forwarded { client: requester.client.cloned(), ..Forwarded::default() };
        let listed = discover(&found.connection, kinds, &along, self.spec.request_timeout.get()).await;
        listed.map_err(|error| match error {
            RequestError::Link(LinkError::LoginRequired(_) | LinkError::LoginFailed(_)) => {
                ListError::LoginNeeded
            }
            error => ListError::Request(error),
        })
    }

    /// Returns a connection for a request. It belongs to the requester's owner as the `isolation` of the server says, and
    /// opens if the owner has none. A server that sends requests of its own, and does not say which client request they
    /// belong to, gets a connection exclusive to that client while its requests run.
    ///
    /// # Errors
    /// If the server is not available, or all connections stay in use.
    pub async fn client_connection(
        self: &Arc<Self>,
        requester: Requester<'_>,
    ) -> Result<ClientConnection, ServerUnavailable> {
        let found = self.pool.acquire(self, requester).await?;
        if !found.connection.is_credential_check_due(&self.credentials) {
            return Ok(found);
        }
        // Boxed, because this is rare: otherwise its size would be part of every call's future.
        Box::pin(async move {
            if !found.connection.has_stale_credential(&self.credentials).await {
                return Ok(found);
            }
            // Another credential was stored, or it was removed.
            found.connection.session.close().await;
            drop(found);
            self.pool.acquire(self, requester).await
        })
        .await
    }

    /// Lets a caller connect again at once, because it has logged in, and notifies its clients of changed lists.
    pub(crate) fn note_login(&self, caller: &CallerId) {
        self.pool.forget_failure(caller);
        self.announce_lists(Some(caller.clone()));
    }

    /// Notifies the clients of a caller, or of all callers, that the lists of the server may have changed for them.
    pub fn announce_lists(&self, caller: Option<CallerId>) {
        let _ = self.list_changes.send((caller, OfferKinds::ALL));
    }

    /// Number of open connections, with the main one.
    pub fn open_connections(&self) -> usize {
        usize::from(self.ready_connection().is_some()) + *self.pool.watch_open().borrow()
    }

    /// Watches the number of open connections, without the main one.
    pub fn watch_connections(&self) -> watch::Receiver<usize> {
        self.pool.watch_open()
    }

    /// Sets the level of log messages on the connections of a requester's owner.
    pub async fn set_log_level(&self, requester: Requester<'_>, level: &str) {
        let main = self.ready_connection().filter(|main| self.pool.owns_main(main, &requester));
        for connection in main.into_iter().chain(self.pool.connections_of(&requester)) {
            if !connection.peer.revision.has_handshake() || !connection.peer.has_capability("logging") {
                continue;
            }
            let params = Params::none().with("level", &level);
            let timeout = self.spec.request_timeout.get();
            if let Err(error) = connection.session.request("logging/setLevel", params, timeout).await {
                tracing::debug!("MCP server '{}' rejected the log level: {error}", self.spec.name);
            }
        }
    }

    /// Closes the connections of a session that has ended, if each session has its own.
    pub fn end_session(&self, caller: &CallerId, session: &str) {
        self.pool.end_session(caller, session);
    }

    /// Closes all connections, stops their processes, and waits for both.
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.stop.notify_one();
            let main = async { while self.tasks.lock().await.join_next().await.is_some() {} };
            futures_util::future::join(self.pool.close(), main).await;
        })
    }
}

/// The lists of a server cannot be read for a client.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("the caller has to log in")]
    LoginNeeded,
    #[error(transparent)]
    Unavailable(ServerUnavailable),
    #[error(transparent)]
    Request(RequestError),
}

/// A subscription to a resource. Dropping it unsubscribes.
#[derive(Debug)]
pub struct ResourceSubscription {
    server: Weak<Server>,
    uri: String,
    /// The connection of the pool; `None` for the main one.
    pooled: Option<u64>,
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade() {
            server.unsubscribe_resource(&self.uri, self.pooled);
        }
    }
}

/// Everything needed to open a connection.
#[derive(Clone)]
struct ConnectOptions {
    spec: Arc<ServerSpec>,
    limits: ConnectionLimits,
    credentials: Arc<ServerCredentials>,
    notifications: NotificationHandler,
    /// The caller that the connection is opened for; `None` for the main connection.
    owner: Option<ConnectionOwner>,
    /// The client that the connection is opened for.
    opener: Option<Arc<dyn DownstreamClient>>,
    mode: ProtocolMode,
}

/// A failed attempt to connect, as callers see it.
struct ConnectOutage {
    unavailable: ServerUnavailable,
    login: bool,
    /// Time until the next probe.
    pause: Duration,
}

impl From<ConnectOutage> for ServerUnavailable {
    fn from(outage: ConnectOutage) -> Self {
        outage.unavailable
    }
}

impl ConnectOptions {
    /// The same, for a connection of the pool: with its owner, and the capabilities that its client declared, if there is
    /// one. In the older era, the newest revision is not tried.
    fn for_pool(
        &self,
        owner: Option<ConnectionOwner>,
        opener: Option<Arc<dyn DownstreamClient>>,
        capabilities: Option<serde_json::Value>,
        in_older_era: bool,
    ) -> Self {
        let mut other = self.clone();
        (other.owner, other.opener) = (owner, opener);
        other.notifications.is_pooled = true;
        if let Some(capabilities) = capabilities {
            other.notifications.features = ClientFeatures::Forwarded(capabilities);
        }
        if in_older_era {
            other.mode = ProtocolMode::Legacy;
        }
        other
    }

    async fn connect(&self) -> Result<Connection, ConnectError> {
        let owner = Arc::new(self.owner.clone().map_or_else(OwnerCell::new, OwnerCell::from));
        let roots = Arc::new(self.notifications.roots.for_connection(self.opener.clone()));
        let mut notifications = self.notifications.clone();
        (notifications.owner, notifications.roots) = (Arc::clone(&owner), Arc::clone(&roots));
        let caller = self.owner.as_ref().filter(|_| notifications.is_pooled).map(|owner| &owner.caller);
        let credential = self.credentials.for_connection(caller).await.map_err(ConnectCause::from)?;
        let handler = Arc::new(notifications);
        connect(&self.spec, self.limits, &credential, handler, (owner, roots), self.mode).await
    }

    /// Tries to connect, with backoff and jitter.
    async fn connect_with_backoff(&self, attempts: usize) -> Result<Connection, ConnectError> {
        let (mut backoff, mut attempt) = (BACKOFF.iter(), 1);
        loop {
            let error = match self.connect().await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            let reason = mask_secrets(&self.spec, &error_chain(&error));
            tracing::debug!(server = %self.spec.name, attempt, %reason, "connecting failed");
            match backoff.next().filter(|_| attempt < attempts && !error.is_permanent()) {
                Some(pause) => tokio::time::sleep(with_jitter(*pause)).await,
                None => return Err(error),
            }
            attempt += 1;
        }
    }

    /// Describes a failed attempt to connect.
    fn outage(&self, error: &ConnectError) -> ConnectOutage {
        let kind = error.kind();
        let pause = match kind {
            OutageKind::RateLimited(Some(pause)) => pause.max(PROBE_INTERVAL),
            _ => PROBE_INTERVAL,
        };
        let unavailable = ServerUnavailable {
            server: self.spec.name.to_string(),
            reason: mask_secrets(&self.spec, &error_chain(error)).into(),
            hint: error.hint().map(Into::into),
            kind,
        };
        ConnectOutage { unavailable, login: error.needs_login(), pause }
    }
}

/// The revisions to try, as the configuration of a server says.
fn protocol_mode(spec: &ServerSpec) -> ProtocolMode {
    let revision = match spec.connections.protocol {
        None => return ProtocolMode::Auto,
        Some(ProtocolRevision::V2024_11_05) => Revision::V2024_11_05,
        Some(ProtocolRevision::V2025_03_26) => Revision::V2025_03_26,
        Some(ProtocolRevision::V2025_06_18) => Revision::V2025_06_18,
        Some(ProtocolRevision::V2025_11_25) => Revision::V2025_11_25,
        Some(ProtocolRevision::V2026_07_28) => Revision::V2026_07_28,
    };
    ProtocolMode::Fixed(revision)
}

struct Connector {
    spec: Arc<ServerSpec>,
    connect_options: ConnectOptions,
    history: Arc<HistoryRecorder>,
    state_sender: watch::Sender<ServerState>,
    stale: Arc<watch::Sender<OfferKinds>>,
    subscriptions: Arc<SubscribedResources>,
    change_interest: Arc<Notify>,
    wake: Arc<Notify>,
    suspect: Arc<Notify>,
}

impl Connector {
    fn set_state(&self, state: ServerState) {
        self.history.record(&state);
        self.state_sender.send_replace(state);
    }

    async fn run(self, stop: &Notify) {
        let mut attempts = BACKOFF.len() + 1;
        let (mut was_connected, mut is_reported, began) = (false, false, Instant::now());
        loop {
            tokio::select! {
                () = stop.notified() => return,
                () = self.wait_for_demand() => {}
            }
            let connected = tokio::select! {
                () = stop.notified() => return,
                connected = self.connect_with_backoff(attempts) => connected,
            };
            // After a whole failed outage, probe once instead of running the full backoff again.
            attempts = if connected.is_some() { BACKOFF.len() + 1 } else { 1 };
            let Some(connection) = connected else {
                self.report_failed_start(began, std::mem::replace(&mut is_reported, true));
                continue;
            };
            is_reported = true;
            if std::mem::replace(&mut was_connected, true) {
                tracing::info!("MCP server '{}' is available again", self.spec.name);
            }
            let connected_at = Instant::now();
            let ended = tokio::select! {
                () = stop.notified() => None,
                ended = self.wait_for_disconnect(&connection) => Some(ended),
                ended = self.watch_health(&connection) => Some(ended),
                never = self.listen_for_changes(&connection) => match never {},
                never = self.report_suppressed() => match never {},
            };
            match ended {
                Some(reason) => {
                    tracing::warn!("MCP server '{}' is not available: {reason}", self.spec.name);
                    // In the past, so that the next caller reconnects at once, and so does one that waits already.
                    let (next_try, kind) = (connected_at, OutageKind::Unreachable);
                    self.history.record_stderr(connection.stderr_lines(usize::MAX));
                    self.set_state(ServerState::Down { reason, hint: None, next_try, kind, login: false });
                    close(connection).await;
                }
                None => {
                    self.set_state(ServerState::Idle);
                    return close(connection).await;
                }
            }
        }
    }

    /// Logs the number of suppressed log lines after each window with any.
    async fn report_suppressed(&self) -> std::convert::Infallible {
        loop {
            let suppressed = self.connect_options.notifications.log_limit.wait_for_suppressed().await;
            tracing::warn!("{suppressed} log lines of MCP server '{}' were suppressed", self.spec.name);
        }
    }

    /// Logs that a server that the start did not wait for cannot be reached. The others are reported by the start.
    fn report_failed_start(&self, began: Instant, is_reported: bool) {
        if let ServerState::Down { reason, .. } = &*self.state_sender.borrow()
            && match self.spec.startup {
                StartupMode::Optional | StartupMode::Lazy => true,
                StartupMode::Eager => began.elapsed() > MAX_EAGER_WAIT,
                StartupMode::Required => false,
            }
            && !is_reported
        {
            tracing::warn!("MCP server '{}' is not available: {reason}", self.spec.name);
        }
    }

    /// Waits for a caller. A server that starts eagerly is also retried in the background, with jitter.
    async fn wait_for_demand(&self) {
        let down = matches!(&*self.state_sender.borrow(), ServerState::Down { .. });
        if down && self.spec.startup != StartupMode::Lazy {
            let _ = tokio::time::timeout(with_jitter(BACKGROUND_INTERVAL), self.wake.notified()).await;
        } else {
            self.wake.notified().await;
        }
    }

    /// Checks the health of a server over HTTP. HTTP has no lasting connection: without a check, its end would show
    /// only in the next call. Returns the reason once the server is gone. An answer of any other kind means that it is
    /// there, and so does silence, because it may be busy with a long call.
    async fn watch_health(&self, connection: &Connection) -> Arc<str> {
        if !matches!(self.spec.transport, Transport::Http(_)) {
            return std::future::pending().await;
        }
        let method = if connection.peer.revision.has_handshake() { "ping" } else { "server/discover" };
        loop {
            tokio::select! {
                () = tokio::time::sleep(with_jitter(HEALTH_INTERVAL)) => {}
                () = self.suspect.notified() => {}
            }
            let answer = connection.session.request(method, Params::none(), HEALTH_TIMEOUT).await;
            if let Err(RequestError::Link(
                error @ (LinkError::Unreachable(_)
                | LinkError::Tls { .. }
                | LinkError::Status { status: 502..=504, .. }),
            )) = answer
            {
                return mask_secrets(&self.spec, &error.to_string()).into();
            }
        }
    }

    /// Tries to connect, with backoff and jitter. Opens the circuit breaker and returns `None` if all attempts fail.
    async fn connect_with_backoff(&self, attempts: usize) -> Option<Arc<Connection>> {
        self.set_state(ServerState::Connecting);
        match self.connect_options.connect_with_backoff(attempts).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                mark_stale(&self.stale, OfferKinds::ALL);
                self.set_state(ServerState::Ready(Arc::clone(&connection)));
                Some(connection)
            }
            Err(error) => {
                let ConnectOutage { unavailable, login, pause } = self.connect_options.outage(&error);
                let ServerUnavailable { reason, hint, kind, .. } = unavailable;
                let next_try = Instant::now() + pause;
                let secrets = self.spec.transport.secrets();
                self.history.record_stderr(error.stderr.iter().map(|line| mask(line, &secrets)).collect());
                self.set_state(ServerState::Down { reason, hint, next_try, kind, login });
                // Callers that waited get this result; their wake-up must not trigger another probe.
                let _ = self.wake.notified().now_or_never();
                None
            }
        }
    }

    /// Keeps a change stream open to a server of the newest revision; older servers send changes unasked. Changes that
    /// happened while no stream was open are not lost: the acknowledgement of a new stream, which the
    /// [`NotificationHandler`] receives, marks everything as stale.
    async fn listen_for_changes(&self, connection: &Connection) -> std::convert::Infallible {
        let announces = |capability| connection.peer.notifies_list_changed(capability);
        let requested = OfferKinds {
            tools: self.spec.load_tools && announces("tools"),
            prompts: self.spec.load_prompts && announces("prompts"),
            resources: announces("resources"),
        };
        if connection.peer.revision.has_handshake() {
            resubscribe(&self.spec, connection, &self.subscriptions).await;
            return std::future::pending().await;
        }
        if requested.is_empty() && !connection.peer.has_capability("resources") {
            return std::future::pending().await;
        }
        self.change_interest.notified().await;
        // Once there is interest, it lasts beyond the next outage.
        self.change_interest.notify_one();
        listen_for_changes(&self.spec, connection, requested, &self.subscriptions).await
    }

    /// Waits until the session ends. Returns the reason.
    async fn wait_for_disconnect(&self, connection: &Arc<Connection>) -> Arc<str> {
        let why = connection.session.closed().await;
        mask_secrets(&self.spec, &connection.describe_disconnect(&why).await).into()
    }
}

/// Receives changes of these lists and of the subscribed resources from a server of the newest revision.
async fn listen_for_changes(
    spec: &ServerSpec,
    connection: &Connection,
    requested: OfferKinds,
    subscriptions: &SubscribedResources,
) -> std::convert::Infallible {
    let mut pause = LISTEN_BACKOFF_MIN;
    let mut subscriptions = subscriptions.subscribe();
    loop {
        let started = Instant::now();
        let resources: Vec<String> = subscriptions.borrow_and_update().keys().cloned().collect();
        if requested.is_empty() && resources.is_empty() {
            let _ = subscriptions.changed().await;
            continue;
        }
        let mut filter = serde_json::json!({
            "toolsListChanged": requested.tools,
            "promptsListChanged": requested.prompts,
            "resourcesListChanged": requested.resources,
        });
        if !resources.is_empty() {
            filter["resourceSubscriptions"] = resources.into();
        }
        let params = Params::none().with("notifications", &filter);
        let listening = connection.session.request("subscriptions/listen", params, Duration::MAX);
        let outcome = tokio::select! {
            outcome = listening => outcome,
            // The subscriptions have changed, so the stream is requested again.
            Ok(()) = subscriptions.changed() => continue,
        };
        tracing::debug!(server = %spec.name, ?outcome, "the change stream ended");
        if let Err(RequestError::Rpc(RpcError { code: RpcError::METHOD_NOT_FOUND, .. })) = outcome {
            return std::future::pending().await;
        }
        // Exponential backoff, for a server that ends every stream at once.
        pause = if started.elapsed() > LISTEN_BACKOFF_MAX {
            LISTEN_BACKOFF_MIN
        } else {
            (pause * 2).min(LISTEN_BACKOFF_MAX)
        };
        tokio::time::sleep(with_jitter(pause)).await;
    }
}

/// Renews the subscriptions after a reconnect.
async fn resubscribe(spec: &ServerSpec, connection: &Connection, subscriptions: &SubscribedResources) {
    let resources: Vec<String> = subscriptions.borrow().keys().cloned().collect();
    for uri in resources {
        let params = Params::none().with("uri", &uri);
        let request = connection.session.request("resources/subscribe", params, spec.request_timeout.get());
        if let Err(error) = request.await {
            tracing::debug!(server = %spec.name, uri, %error, "cannot renew a resource subscription");
        }
    }
}

/// Adds kinds to those that may have changed. Several changes before a refresh are merged into one.
fn mark_stale(stale: &watch::Sender<OfferKinds>, kinds: OfferKinds) {
    stale.send_modify(|all| {
        all.tools |= kinds.tools;
        all.prompts |= kinds.prompts;
        all.resources |= kinds.resources;
    });
}

/// Closes a connection. If callers still hold it, the last of them drops it soon, since it has ended.
async fn close(connection: Arc<Connection>) {
    if let Some(connection) = Arc::into_inner(connection) {
        connection.close().await;
    }
}

/// Masks secrets in a message about a server: callers see it, and a server may print its own settings.
pub(crate) fn mask_secrets(spec: &ServerSpec, text: &str) -> String {
    mask(text, &spec.transport.secrets())
}

/// An error with its sources, on one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}
