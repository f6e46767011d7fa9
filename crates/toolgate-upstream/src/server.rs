//! One server: its connection, its health, and who waits for it.
//!
//! A single task connects, so that a hundred callers of a dead server make one attempt. An outage
//! gets at most four attempts with growing pauses; after that a caller may cause one probe a second
//! and everyone else is told at once. Invariant: nobody waits for a server longer than it says.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolgate_mcp::oauth::{Logins, TokenSource};
use toolgate_mcp::scan::Limits;
use toolgate_mcp::{Behind, Params, Raw, RequestError, RpcError, spread};
use toolgate_types::ServerSpec;
use toolgate_types::clean::clean;
use toolgate_types::redact::mask;
use toolgate_types::server::Startup;

use crate::connect::{ConnectError, Connection, connect, tokens};
use crate::invoke::InvokeError;
use crate::offer::Kinds;

mod ear;
mod lanes;

use ear::Ear;
pub use ear::log;
pub use lanes::Lane;
use lanes::Lanes;

/// Pauses between the attempts of one outage, each with up to half of it more or less.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// After an outage has used its attempts, one probe in this time.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often an optional server is tried in the background, at most.
const BACKGROUND_EVERY: Duration = Duration::from_secs(30);
/// The pause before a server is asked again to tell of changes, and the longest one.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
const LISTEN_SELDOM: Duration = Duration::from_secs(60);

/// Notifications about resources that wait for whoever reads them.
const UPDATES: usize = 256;
/// How long a server may take to hear that nobody follows a resource any more.
const UNFOLLOW: Duration = Duration::from_secs(10);

/// What a server is doing.
#[derive(Clone)]
pub enum State {
    /// Nothing yet: it is started on first use.
    Idle,
    /// Being connected.
    Connecting,
    /// Ready.
    Ready(Arc<Connection>),
    /// Not to be had.
    Down {
        /// Why.
        reason: Arc<str>,
        /// The way out, where there is one to name.
        hint: Option<Arc<str>>,
        /// When it may be tried again.
        next_try: Instant,
        /// Whether it waits for a person to log in.
        login: bool,
    },
}

impl State {
    /// Its name in listings.
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

/// A server that cannot be used now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("MCP server `{server}` is not available: {reason}")]
pub struct Unavailable {
    /// The server.
    pub server: String,
    /// Why.
    pub reason: Arc<str>,
    /// The way out, where there is one to name.
    pub hint: Option<Arc<str>>,
}

/// Who answers what a server asks for on its own: elicitation, sampling, roots. Every door has its
/// own way to a person or a model.
pub trait Questions: Send + Sync + 'static {
    /// What may be asked: the capabilities that are declared to servers.
    fn capabilities(&self) -> serde_json::Value;

    /// The answer to one question, or why there is none.
    fn answer(
        &self,
        server: &str,
        method: &str,
        params: Option<Raw>,
    ) -> BoxFuture<'static, Result<Raw, RpcError>>;
}

/// Nobody is there to answer; every question is refused politely.
pub struct Nobody;

impl Questions for Nobody {
    fn capabilities(&self) -> serde_json::Value {
        serde_json::json!({})
    }

    fn answer(
        &self,
        _server: &str,
        method: &str,
        _params: Option<Raw>,
    ) -> BoxFuture<'static, Result<Raw, RpcError>> {
        let error =
            RpcError::new(RpcError::METHOD_NOT_FOUND, format!("`{}` is not offered here", clean(method)));
        Box::pin(async { Err(error) })
    }
}

/// Nobody of our own is there to answer, but clients may be: whatever is asked during a request of theirs reaches
/// them. Where they are not known yet, everything may be asked for.
pub struct Clients {
    /// What they declared.
    pub capabilities: serde_json::Value,
}

impl Default for Clients {
    fn default() -> Self {
        let capabilities = serde_json::json!({
            "sampling": { "tools": {}, "context": {} },
            "elicitation": { "form": {}, "url": {} },
            "roots": {},
        });
        Self { capabilities }
    }
}

impl Questions for Clients {
    fn capabilities(&self) -> serde_json::Value {
        self.capabilities.clone()
    }

    fn answer(
        &self,
        server: &str,
        method: &str,
        params: Option<Raw>,
    ) -> BoxFuture<'static, Result<Raw, RpcError>> {
        Nobody.answer(server, method, params)
    }
}

/// One server.
pub struct Server {
    spec: Arc<ServerSpec>,
    state: watch::Receiver<State>,
    stale: Arc<watch::Sender<Kinds>>,
    /// Resources whose changes somebody wants to hear of, and how many do.
    followed: Arc<watch::Sender<BTreeMap<String, usize>>>,
    updates: broadcast::Sender<Raw>,
    told: broadcast::Sender<Kinds>,
    lanes: Lanes,
    interest: Arc<Notify>,
    wake: Arc<Notify>,
    stop: Arc<Notify>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl Server {
    /// Gets ready to connect. Nothing happens before somebody wants the server, unless it is to be
    /// there from the start.
    pub fn new(spec: ServerSpec, limits: Limits, logins: &Logins, questions: Arc<dyn Questions>) -> Self {
        let tokens = tokens(&spec, logins).map(Arc::new);
        let spec = Arc::new(spec);
        let (tell, state) = watch::channel(State::Idle);
        let (wake, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        if spec.startup != Startup::Lazy {
            wake.notify_one();
        }
        let stale = Arc::new(watch::Sender::new(Kinds::default()));
        let interest = Arc::new(Notify::new());
        let followed = Arc::new(watch::Sender::new(BTreeMap::new()));
        let (updates, told) = (broadcast::Sender::new(UPDATES), broadcast::Sender::new(UPDATES));
        let ear = Ear {
            server: spec.name.to_string(),
            questions,
            stale: Arc::clone(&stale),
            aside: false,
            told: told.clone(),
            updates: updates.clone(),
            asks: Arc::default(),
        };
        let opening = Opening { spec: Arc::clone(&spec), limits, tokens, ear };
        let lanes = Lanes::new(opening.clone());
        let connector = Connector {
            spec: Arc::clone(&spec),
            opening,
            tell,
            stale: Arc::clone(&stale),
            followed: Arc::clone(&followed),
            interest: Arc::clone(&interest),
            wake: Arc::clone(&wake),
        };
        let mut tasks = JoinSet::new();
        let stopped = Arc::clone(&stop);
        tasks.spawn(async move { connector.run(&stopped).await });
        let tasks = tokio::sync::Mutex::new(tasks);
        Self { spec, state, stale, followed, updates, told, lanes, interest, wake, stop, tasks }
    }

    /// Its description.
    pub fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// A connection: the one there is, or the one that is being made. A server that is down is
    /// tried again when it may be.
    pub async fn connection(&self) -> Result<Arc<Connection>, Unavailable> {
        let mut state = self.state.clone();
        let now = match &*state.borrow_and_update() {
            State::Ready(connection) if connection.session.ended().is_none() => {
                return Ok(Arc::clone(connection));
            }
            State::Down { reason, hint, next_try, .. } if *next_try > Instant::now() => {
                return Err(self.unavailable(reason, hint.as_ref()));
            }
            _ => Instant::now(),
        };
        self.wake.notify_one();
        loop {
            if state.changed().await.is_err() {
                return Err(self.unavailable(&"it is being stopped".into(), None));
            }
            match &*state.borrow_and_update() {
                State::Ready(connection) if connection.session.ended().is_none() => {
                    return Ok(Arc::clone(connection));
                }
                State::Down { reason, hint, next_try, .. } if *next_try > now => {
                    return Err(self.unavailable(reason, hint.as_ref()));
                }
                _ => {}
            }
        }
    }

    /// Waits for a change of state.
    pub fn states(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Waits until the server has said that something changed, or was connected anew. Only who
    /// waits here makes us ask a server to tell of changes.
    pub async fn is_stale(&self) {
        self.interest.notify_one();
        let _ = self.stale.subscribe().wait_for(|kinds| !kinds.is_empty()).await;
    }

    /// What may have changed since this was last asked for. Whoever takes it has to look.
    pub fn take_stale(&self) -> Kinds {
        self.stale.send_replace(Kinds::default())
    }

    /// Whether there is something that changed and was not taken.
    pub fn has_stale(&self) -> bool {
        !self.stale.borrow().is_empty()
    }

    /// Waits until what changed was taken, by whoever looks at it.
    pub async fn is_taken(&self) {
        let _ = self.stale.subscribe().wait_for(|kinds| kinds.is_empty()).await;
    }

    /// Puts back what was taken and could not be looked at.
    pub fn put_stale(&self, kinds: Kinds) {
        mark(&self.stale, kinds);
    }

    /// What the server tells of resources that are followed: the parameters of its notifications.
    pub fn updates(&self) -> broadcast::Receiver<Raw> {
        self.updates.subscribe()
    }

    /// What the server says has changed on connections that the lists do not come from.
    pub fn told(&self) -> broadcast::Receiver<Kinds> {
        self.told.subscribe()
    }

    /// Has the server tell of changes of a resource, as long as what is returned lives. After an outage it is
    /// asked again.
    ///
    /// # Errors
    /// When the server is not there, or does not want to.
    pub async fn follow(self: &Arc<Self>, uri: &str) -> Result<Followed, InvokeError> {
        let connection = self.connection().await?;
        let first = !self.followed.borrow().contains_key(uri);
        if first && connection.peer.revision.has_handshake() {
            let params = Params::none().with("uri", &uri);
            connection
                .session
                .request("resources/subscribe", params, self.spec.request_timeout.get())
                .await?;
        }
        self.followed.send_modify(|all| *all.entry(uri.to_owned()).or_default() += 1);
        // Servers of the newest revision are asked on the stream that tells of changes.
        self.interest.notify_one();
        Ok(Followed { server: Arc::downgrade(self), uri: uri.to_owned() })
    }

    /// Nobody of one more wants to hear of a resource.
    fn unfollow(&self, uri: &str) {
        let mut last = false;
        self.followed.send_modify(|all| {
            last = all.get(uri).is_some_and(|count| *count <= 1);
            if last {
                all.remove(uri);
            } else if let Some(count) = all.get_mut(uri) {
                *count -= 1;
            }
        });
        let State::Ready(connection) = self.state() else { return };
        if last
            && connection.peer.revision.has_handshake()
            && let Ok(tokio) = tokio::runtime::Handle::try_current()
        {
            let params = Params::none().with("uri", &uri);
            tokio.spawn(async move {
                let _ = connection.session.request("resources/unsubscribe", params, UNFOLLOW).await;
            });
        }
    }

    fn unavailable(&self, reason: &Arc<str>, hint: Option<&Arc<str>>) -> Unavailable {
        Unavailable { server: self.spec.name.to_string(), reason: Arc::clone(reason), hint: hint.cloned() }
    }

    /// A connection for a request of a client. A server that asks in the middle of requests, and does not say
    /// during which, has a client alone for as long as that client's requests run.
    pub async fn lane(self: &Arc<Self>, client: Option<&Arc<dyn Behind>>) -> Result<Lane, Unavailable> {
        let main = self.connection().await?;
        Ok(self.lanes.take(self, main, client).await)
    }

    /// Ends the connection and the process, and waits for both.
    pub async fn stop(&self) {
        self.stop.notify_one();
        self.lanes.close().await;
        while self.tasks.lock().await.join_next().await.is_some() {}
    }
}

/// A resource whose changes somebody wants to hear of.
pub struct Followed {
    server: Weak<Server>,
    uri: String,
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade() {
            server.unfollow(&self.uri);
        }
    }
}

/// All that it takes to connect.
#[derive(Clone)]
struct Opening {
    spec: Arc<ServerSpec>,
    limits: Limits,
    tokens: Option<Arc<TokenSource>>,
    ear: Ear,
}

impl Opening {
    /// The same for clients that declared this.
    fn declaring(&self, capabilities: serde_json::Value) -> Self {
        let mut other = self.clone();
        other.ear.aside = true;
        other.ear.questions = Arc::new(Clients { capabilities });
        other
    }

    async fn connect(&self) -> Result<Connection, ConnectError> {
        connect(&self.spec, self.limits, self.tokens.as_ref(), Arc::new(self.ear.clone())).await
    }
}

struct Connector {
    spec: Arc<ServerSpec>,
    opening: Opening,
    tell: watch::Sender<State>,
    stale: Arc<watch::Sender<Kinds>>,
    followed: Arc<watch::Sender<BTreeMap<String, usize>>>,
    interest: Arc<Notify>,
    wake: Arc<Notify>,
}

impl Connector {
    async fn run(self, stop: &Notify) {
        let mut attempts = PAUSES.len() + 1;
        loop {
            tokio::select! {
                () = stop.notified() => return,
                () = self.wanted() => {}
            }
            let connected = tokio::select! {
                () = stop.notified() => return,
                connected = self.outage(attempts) => connected,
            };
            // A server that was down for a whole outage is probed, not stormed.
            attempts = if connected.is_some() { PAUSES.len() + 1 } else { 1 };
            let Some(connection) = connected else { continue };
            let ended = tokio::select! {
                () = stop.notified() => None,
                ended = self.attend(&connection) => Some(ended),
                never = self.listen(&connection) => match never {},
            };
            match ended {
                Some(reason) => {
                    // On next use it is started again, so it may be tried at once.
                    let state = State::Down { reason, hint: None, next_try: Instant::now(), login: false };
                    self.tell.send_replace(state);
                    close(connection).await;
                }
                None => {
                    self.tell.send_replace(State::Idle);
                    return close(connection).await;
                }
            }
        }
    }

    /// Until somebody wants the server; an optional one is wanted every now and then anyway.
    async fn wanted(&self) {
        let down = matches!(&*self.tell.borrow(), State::Down { .. });
        if down && self.spec.startup == Startup::Optional {
            let _ = tokio::time::timeout(spread(BACKGROUND_EVERY), self.wake.notified()).await;
        } else {
            self.wake.notified().await;
        }
    }

    /// Tries to connect, with pauses. `None` when the outage goes on.
    async fn outage(&self, attempts: usize) -> Option<Arc<Connection>> {
        self.tell.send_replace(State::Connecting);
        let mut pauses = PAUSES.iter();
        for attempt in 1..=attempts {
            match self.opening.connect().await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    mark(&self.stale, Kinds::ALL);
                    self.tell.send_replace(State::Ready(Arc::clone(&connection)));
                    return Some(connection);
                }
                Err(error) => {
                    let reason: Arc<str> = mask(&chain(&error), &[]).into();
                    tracing::debug!(server = %self.spec.name, attempt, %reason, "connecting failed");
                    match pauses.next().filter(|_| attempt < attempts && !error.is_final()) {
                        Some(pause) => tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await,
                        None => {
                            let hint = error.hint().map(Into::into);
                            let next_try = Instant::now() + PROBE_EVERY;
                            let login = error.wants_login();
                            self.tell.send_replace(State::Down { reason, hint, next_try, login });
                            // Who asked meanwhile is told by this; it is no wish for a probe at once.
                            let _ = self.wake.notified().now_or_never();
                            return None;
                        }
                    }
                }
            }
        }
        None
    }

    /// Asks a server of the newest revision to tell of changes, again and again; older ones tell
    /// unasked. What may have changed while nobody listened is looked at: the first thing that a
    /// server says on such a stream is that it listens now, which the [`Ear`] hears.
    async fn listen(&self, connection: &Connection) -> std::convert::Infallible {
        let tells = |capability| connection.peer.tells_of_changes(capability);
        let wanted = Kinds {
            tools: self.spec.load_tools && tells("tools"),
            prompts: self.spec.load_prompts && tells("prompts"),
            resources: tells("resources"),
        };
        let has_resources = connection.peer.has("resources");
        if connection.peer.revision.has_handshake() {
            self.follow_again(connection).await;
            return std::future::pending().await;
        }
        if wanted.is_empty() && !has_resources {
            return std::future::pending().await;
        }
        self.interest.notified().await;
        // Whoever was interested once is so after the next outage too.
        self.interest.notify_one();
        let mut pause = LISTEN_AGAIN;
        let mut followed = self.followed.subscribe();
        loop {
            let began = Instant::now();
            let resources: Vec<String> = followed.borrow_and_update().keys().cloned().collect();
            if wanted.is_empty() && resources.is_empty() {
                let _ = followed.changed().await;
                continue;
            }
            let mut filter = serde_json::json!({
                "toolsListChanged": wanted.tools,
                "promptsListChanged": wanted.prompts,
                "resourcesListChanged": wanted.resources,
            });
            if !resources.is_empty() {
                filter["resourceSubscriptions"] = resources.into();
            }
            let params = Params::none().with("notifications", &filter);
            let listening = connection.session.request("subscriptions/listen", params, Duration::MAX);
            let outcome = tokio::select! {
                outcome = listening => outcome,
                // What is followed has changed: the stream is asked for anew.
                Ok(()) = followed.changed() => continue,
            };
            tracing::debug!(server = %self.spec.name, ?outcome, "no longer told of changes");
            if let Err(RequestError::Rpc(RpcError { code: RpcError::METHOD_NOT_FOUND, .. })) = outcome {
                return std::future::pending().await;
            }
            // One that ends every stream at once is asked less and less often.
            pause =
                if began.elapsed() > LISTEN_SELDOM { LISTEN_AGAIN } else { (pause * 2).min(LISTEN_SELDOM) };
            tokio::time::sleep(spread(pause)).await;
        }
    }

    /// Has a server that was away tell of what was followed before.
    async fn follow_again(&self, connection: &Connection) {
        let resources: Vec<String> = self.followed.borrow().keys().cloned().collect();
        for uri in resources {
            let params = Params::none().with("uri", &uri);
            let asked =
                connection.session.request("resources/subscribe", params, self.spec.request_timeout.get());
            if let Err(error) = asked.await {
                tracing::debug!(server = %self.spec.name, uri, %error, "a resource is not followed any more");
            }
        }
    }

    /// Until the conversation ends; why it did.
    async fn attend(&self, connection: &Arc<Connection>) -> Arc<str> {
        let why = connection.session.end().await;
        connection.obituary(&why).await.into()
    }
}

/// More of what a server offers may have changed.
fn mark(stale: &watch::Sender<Kinds>, kinds: Kinds) {
    stale.send_modify(|all| {
        all.tools |= kinds.tools;
        all.prompts |= kinds.prompts;
        all.resources |= kinds.resources;
    });
}

/// Callers may still hold the connection; the last of them lets go of it soon, since it has ended.
async fn close(connection: Arc<Connection>) {
    if let Some(connection) = Arc::into_inner(connection) {
        connection.close().await;
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
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
