//! The pool of connections to one server, beside the main connection, the one that lists are read from.
//!
//! A connection belongs to its owner: a caller, or one session of a caller (`isolation`). The first owner gets the main
//! connection, so a server with one caller has one process; every other owner gets one from the pool. Unused connections
//! are closed after `idle_timeout`. At `max_connections`, an idle connection of the caller with the most connections
//! makes room; if none is idle, requests queue, and the caller with the fewest connections is served first.
//!
//! Before the newest protocol revision, a client declares its capabilities once per connection, and a server may send a
//! request of its own (elicitation, sampling, roots) during any request of the client. Over HTTP, each set of declared
//! capabilities gets its own session, and the stream of a server's request identifies the client. Over pipes nothing says
//! which client request it belongs to. Once a server is known to send requests, one client gets a connection exclusively
//! while its requests run, and other clients of the same owner get another one meanwhile. This includes clients that
//! cannot be asked: a server request caused by them must not reach another client.
//!
//! Invariants: a connection is never used by two owners; a server's request is only ever forwarded to the client whose
//! request it belongs to; processes are bounded, including those that are being started or stopped.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use toolgate_mcp::{DownstreamClient, Params, with_jitter};
use toolgate_types::CallerId;
use toolgate_types::server::{Isolation, Transport};

use super::{
    BACKOFF, ConnectOptions, PROBE_INTERVAL, Server, ServerUnavailable, listen_for_changes, resubscribe,
};
use crate::connect::{Connection, ConnectionOwner, OutageKind};
use crate::offer::OfferKinds;

#[cfg(test)]
mod tests;

/// Idle connections kept for one owner.
const MAX_IDLE: usize = 2;
/// Callers with a failed connection that are remembered.
const MAX_FAILURES: usize = 1_024;
/// A connection that was open this long gets the full reconnect backoff again.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// The client capabilities that allow a server to send requests.
const ASKABLE_CAPABILITIES: [&str; 3] = ["sampling", "elicitation", "roots"];

/// The origin of a request to a server.
#[derive(Clone, Copy)]
pub struct Requester<'a> {
    pub caller: &'a CallerId,
    /// The session of the caller, if it has one.
    pub session: Option<&'a str>,
    /// The client behind the request, if it can be asked.
    pub client: Option<&'a Arc<dyn DownstreamClient>>,
}

/// The owner that a connection must have.
#[derive(Clone, Copy)]
struct OwnerKey<'a> {
    caller: &'a CallerId,
    session: Option<&'a str>,
}

impl OwnerKey<'_> {
    fn is(&self, owner: &ConnectionOwner) -> bool {
        owner.caller == *self.caller && owner.session.as_deref() == self.session
    }

    fn to_owner(self) -> ConnectionOwner {
        ConnectionOwner { caller: self.caller.clone(), session: self.session.map(Into::into) }
    }

    /// Claims a connection that has no owner yet. Returns false if it belongs to another one.
    fn claim(&self, connection: &Connection) -> bool {
        self.is(connection.owner().get_or_init(|| self.to_owner()))
    }
}

/// Protocol revisions that a request can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProtocolEra {
    Any,
    /// Revisions with a handshake: the client can only be asked in a session.
    Handshake,
    /// The newest one.
    Newest,
}

/// The connection that a request needs.
struct ConnectionNeed<'a> {
    owner: Option<OwnerKey<'a>>,
    caller: &'a CallerId,
    client: Option<u64>,
    opener: Option<Arc<dyn DownstreamClient>>,
    /// Capabilities to declare; `None` for requests without a client.
    declared: Option<Value>,
    /// True if a connection must have declared exactly these, not just at least these.
    exact: bool,
    /// True if no other client may use it at the same time.
    exclusive: bool,
    /// True if the main connection must not be used, because it has declared more.
    exact_list: bool,
    era: ProtocolEra,
    log_level: Option<Box<str>>,
}

impl ConnectionNeed<'_> {
    fn is_satisfied_by(&self, entry: &PoolEntry) -> bool {
        let owned = match (&self.owner, &entry.owner) {
            (Some(key), Some(owner)) => key.is(owner),
            (None, None) => true,
            _ => false,
        };
        let suits_era = match self.era {
            ProtocolEra::Any => true,
            ProtocolEra::Handshake => entry.has_handshake,
            ProtocolEra::Newest => !entry.has_handshake,
        };
        let declared = match &self.declared {
            Some(declared) if entry.has_handshake && self.exact => entry.declared == *declared,
            Some(declared) if entry.has_handshake => covers(&entry.declared, declared),
            _ => true,
        };
        owned
            && suits_era
            && declared
            && (!self.exclusive || entry.requests == 0 || entry.client == self.client)
            && entry.is_usable()
    }

    /// Returns true if the main connection may be used if nothing else is left.
    fn may_share_main(&self) -> bool {
        self.owner.is_none() && self.era != ProtocolEra::Handshake
    }
}

/// Returns true if all these capabilities were declared.
fn covers(declared: &Value, needed: &Value) -> bool {
    needed.as_object().is_none_or(|needed| needed.keys().all(|name| declared.get(name).is_some()))
}

/// The declared capabilities of a client that allow a server to send requests.
pub(super) fn askable_capabilities(client: &dyn DownstreamClient) -> Value {
    let all = client.capabilities();
    let declared = ASKABLE_CAPABILITIES.iter();
    let declared = declared.filter_map(|name| Some(((*name).to_owned(), all.get(*name)?.clone())));
    Value::Object(declared.collect::<Map<_, _>>())
}

/// The connections of a server to its callers.
pub(super) struct ConnectionPool {
    options: ConnectOptions,
    over_http: bool,
    /// True if the main connection can become that of the first owner: it does not differ from the others.
    is_main_claimable: bool,
    table: Mutex<PoolTable>,
    /// Notified when a queued request may find a connection.
    freed: Notify,
    /// Number of open connections.
    open: watch::Sender<usize>,
    /// True once the server has rejected the handshake of older revisions.
    newest_only: AtomicBool,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct PoolTable {
    /// The client that uses the main connection exclusively, and its number of running requests.
    main: (u64, usize),
    entries: Vec<PoolEntry>,
    /// Connections that are being opened, open, or being closed.
    alive: usize,
    next_id: u64,
    queue: Vec<QueuedRequest>,
    /// Callers with a failed connection, and the time of the next attempt.
    failures: HashMap<CallerId, (Instant, ServerUnavailable)>,
    is_closed: bool,
}

struct QueuedRequest {
    id: u64,
    caller: CallerId,
}

/// A connection of the pool. Its task closes the connection once the entry is dropped.
struct PoolEntry {
    id: u64,
    owner: Option<ConnectionOwner>,
    /// The caller it was opened for.
    caller: CallerId,
    /// The capabilities declared on it.
    declared: Value,
    has_handshake: bool,
    /// The client that used it last.
    client: Option<u64>,
    /// Running requests, and those that wait until it is open.
    requests: usize,
    last_used: Instant,
    subscriptions: Arc<SubscribedResources>,
    state: watch::Receiver<EntryState>,
    _open: oneshot::Sender<()>,
}

/// Subscribed resources of a connection, with the number of subscribers.
pub(super) type SubscribedResources = watch::Sender<BTreeMap<String, usize>>;

#[derive(Clone)]
enum EntryState {
    Opening,
    Ready(Arc<Connection>),
    Failed(ServerUnavailable),
    /// The server rejected the handshake of older revisions.
    NewestOnly,
    Closed,
}

impl PoolEntry {
    fn is_usable(&self) -> bool {
        match &*self.state.borrow() {
            EntryState::Opening => true,
            EntryState::Ready(connection) => connection.session.close_reason().is_none(),
            _ => false,
        }
    }

    fn ready(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            EntryState::Ready(connection) => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    fn is_subscribed(&self) -> bool {
        !self.subscriptions.borrow().is_empty()
    }
}

impl PoolTable {
    fn count(&self, caller: &CallerId) -> usize {
        self.entries.iter().filter(|entry| entry.caller == *caller).count()
    }

    fn entry(&self, id: u64) -> Option<&PoolEntry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    fn remove(&mut self, id: u64) -> Option<PoolEntry> {
        let at = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.swap_remove(at))
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns true if the request may open a connection now. Otherwise it has to queue; an idle connection is closed
    /// to make room for it, unless enough of them are being closed already.
    fn has_room(&mut self, caller: &CallerId, queued: Option<u64>, max: usize) -> bool {
        let rank = (self.count(caller), queued.unwrap_or(u64::MAX));
        let ahead = self.queue.iter().filter(|other| (self.count(&other.caller), other.id) < rank).count();
        let free = max.saturating_sub(self.alive);
        if free > ahead {
            return true;
        }
        let closing = self.alive - self.entries.len();
        if free + closing <= ahead
            && let Some(victim) = self.idle_victim(caller)
        {
            self.remove(victim);
        }
        false
    }

    /// The idle connection that makes room: of the caller with the most connections, the least recently used. No caller
    /// loses a connection to one that has as many.
    fn idle_victim(&self, requester: &CallerId) -> Option<u64> {
        let own = self.count(requester);
        let idle = self.entries.iter().filter(|entry| entry.requests == 0 && entry.ready().is_some());
        let candidates = idle.map(|entry| (self.count(&entry.caller), entry));
        candidates
            .filter(|(count, entry)| entry.caller == *requester || *count > own)
            .max_by_key(|(count, entry)| (*count, !entry.is_subscribed(), std::cmp::Reverse(entry.last_used)))
            .map(|(_, entry)| entry.id)
    }
}

/// A connection for one request. Dropping it returns the connection.
pub struct ClientConnection {
    pub connection: Arc<Connection>,
    /// The use that is counted; `None` if it is not.
    lease: Option<ConnectionLease>,
    /// The client that opened the connection, and may answer until its request ends.
    opener: Option<u64>,
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some(client) = self.opener {
            self.connection.roots().release(client);
        }
    }
}

impl ClientConnection {
    /// The number of the connection in the pool; `None` for the main one.
    pub(super) fn pooled(&self) -> Option<u64> {
        self.lease.as_ref()?.entry
    }
}

/// A counted use of a connection.
struct ConnectionLease {
    pool: Weak<ConnectionPool>,
    /// `None` for the main connection.
    entry: Option<u64>,
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.release(self.entry);
        }
    }
}

/// The outcome of a search in the pool.
enum FoundConnection {
    Main,
    Entry(u64, watch::Receiver<EntryState>),
    Unavailable(ServerUnavailable),
    Full,
}

/// Reasons why a request gets no connection of the pool.
enum NoConnection {
    Unavailable(ServerUnavailable),
    /// The connection that the request needs has changed.
    NeedChanged,
}

impl ConnectionPool {
    pub(super) fn new(options: ConnectOptions) -> Arc<Self> {
        Arc::new(Self {
            over_http: matches!(options.spec.transport, Transport::Http(_)),
            is_main_claimable: !matches!(&options.spec.transport, Transport::Stdio(stdio) if stdio.is_per_caller()),
            options,
            table: Mutex::default(),
            freed: Notify::new(),
            open: watch::Sender::new(0),
            newest_only: AtomicBool::new(false),
            tasks: Mutex::default(),
        })
    }

    /// Watches the number of open connections.
    pub(super) fn watch_open(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    fn owner_of<'a>(&self, requester: &Requester<'a>) -> Option<OwnerKey<'a>> {
        let Requester { caller, session, .. } = *requester;
        match self.options.spec.connections.isolation {
            // A connection with the credential of a caller is never shared.
            Isolation::Shared if self.options.spec.auth.is_per_caller() => {
                Some(OwnerKey { caller, session: None })
            }
            Isolation::Shared => None,
            Isolation::Caller => Some(OwnerKey { caller, session: None }),
            Isolation::Session => Some(OwnerKey { caller, session }),
        }
    }

    /// The revisions that a request can use. A client that can only be asked in a session needs one, even if the server
    /// also has the newest revision, without sessions.
    fn era_of(&self, main: &Connection, client: Option<&dyn DownstreamClient>) -> ProtocolEra {
        let Some(client) = client else { return ProtocolEra::Any };
        let is_fixed = self.options.spec.connections.protocol.is_some();
        if is_fixed || main.peer.revision.has_handshake() || self.newest_only.load(Ordering::Relaxed) {
            return ProtocolEra::Any;
        }
        if client.accepts_input_requests() {
            return ProtocolEra::Newest;
        }
        let all = client.capabilities();
        let is_askable = ASKABLE_CAPABILITIES.iter().any(|name| all.get(*name).is_some());
        if is_askable { ProtocolEra::Handshake } else { ProtocolEra::Any }
    }

    /// Returns true if the lists of the server may depend on the capabilities of a client: the client lacks one, and its
    /// requests declare their own. Over pipes, they do once the server has sent a request of its own: a server that sends
    /// none needs no capability, and would only cost a process for each.
    pub(super) fn lists_apart(&self, main: &Connection, client: &dyn DownstreamClient) -> bool {
        let all = client.capabilities();
        let lacks_one = ASKABLE_CAPABILITIES.iter().any(|name| all.get(*name).is_none());
        let declares_own = !main.peer.revision.has_handshake()
            || self.over_http
            || self.options.notifications.server_asks.load(Ordering::Relaxed);
        lacks_one && declares_own
    }

    /// The connection that a request needs; `None` if it gets the main one, and claims it for its owner.
    fn need_of<'a>(&self, main: &Connection, requester: &Requester<'a>) -> Option<ConnectionNeed<'a>> {
        let owner = self.owner_of(requester);
        let client = requester.client.map(|client| &**client);
        let era = self.era_of(main, client);
        let has_handshake = main.peer.revision.has_handshake();
        let server_asks = self.options.notifications.server_asks.load(Ordering::Relaxed);
        let by_capabilities = has_handshake && client.is_some() && (self.over_http || server_asks);
        // Over HTTP, the newest revision has no sessions, so there is no state to isolate; credentials are.
        let is_stateless = self.over_http && !has_handshake && !self.options.spec.auth.is_per_caller();
        if era != ProtocolEra::Handshake
            && !by_capabilities
            && (is_stateless || self.claims_main(owner, main))
        {
            return None;
        }
        let declared = client.map(askable_capabilities);
        let in_session = has_handshake || era == ProtocolEra::Handshake;
        Some(ConnectionNeed {
            owner,
            caller: requester.caller,
            client: client.map(DownstreamClient::identity),
            opener: requester.client.cloned(),
            declared,
            exact: self.over_http || server_asks,
            exclusive: in_session && server_asks && !self.over_http && client.is_some(),
            exact_list: false,
            era,
            log_level: client.filter(|_| in_session).and_then(DownstreamClient::log_level),
        })
    }

    /// Returns a connection for a request, and opens one if needed.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        server: &Server,
        requester: Requester<'_>,
    ) -> Result<ClientConnection, ServerUnavailable> {
        self.acquire_as(server, requester, false).await
    }

    /// The same for a request for lists: they depend on the declared capabilities, so the main connection is not used
    /// where the client has declared less. Calls take the main one while it is free: that saves a process.
    pub(super) async fn acquire_for_list(
        self: &Arc<Self>,
        server: &Server,
        requester: Requester<'_>,
    ) -> Result<ClientConnection, ServerUnavailable> {
        self.acquire_as(server, requester, true).await
    }

    async fn acquire_as(
        self: &Arc<Self>,
        server: &Server,
        requester: Requester<'_>,
        exact_list: bool,
    ) -> Result<ClientConnection, ServerUnavailable> {
        loop {
            let main = match server.ready_connection() {
                Some(main) => main,
                // The main connection may be down because of its owner; those of other callers still work.
                None => match self.find_open(&requester) {
                    Some(found) => return Ok(found),
                    None => server.connection().await?,
                },
            };
            let Some(mut need) = self.need_of(&main, &requester) else {
                return Ok(ClientConnection { connection: main, lease: None, opener: None });
            };
            need.exact_list = exact_list;
            if let FoundConnection::Entry(id, state) = self.find(&need, None, None)
                && let lease = self.lease(Some(id))
                && let EntryState::Ready(connection) = &*state.borrow()
            {
                return Ok(ClientConnection {
                    connection: Arc::clone(connection),
                    lease: Some(lease),
                    opener: need.client,
                });
            }
            // Boxed, because this is rare: otherwise its size would be part of every call's future.
            match Box::pin(self.acquire_own(main, need)).await {
                Ok(found) => return Ok(found),
                Err(NoConnection::Unavailable(unavailable)) => return Err(unavailable),
                Err(NoConnection::NeedChanged) => {}
            }
        }
    }

    /// Finds an open connection of the requester while the main one is down. Over HTTP the server itself is down then.
    fn find_open(self: &Arc<Self>, requester: &Requester<'_>) -> Option<ClientConnection> {
        let owner = self.owner_of(requester).filter(|_| !self.over_http)?;
        let client = requester.client.map(|client| client.identity());
        let server_asks = self.options.notifications.server_asks.load(Ordering::Relaxed);
        let mut table = self.table.lock();
        let entry = table.entries.iter_mut().find(|entry| {
            let is_free = !server_asks || entry.requests == 0 || entry.client == client;
            is_free && entry.is_usable() && entry.owner.as_ref().is_some_and(|of| owner.is(of))
        })?;
        let connection = entry.ready()?;
        entry.client = client;
        entry.requests += 1;
        let id = entry.id;
        drop(table);
        Some(ClientConnection { connection, lease: Some(self.lease(Some(id))), opener: client })
    }

    fn lease(self: &Arc<Self>, entry: Option<u64>) -> ConnectionLease {
        ConnectionLease { pool: Arc::downgrade(self), entry }
    }

    async fn acquire_own(
        self: &Arc<Self>,
        main: Arc<Connection>,
        need: ConnectionNeed<'_>,
    ) -> Result<ClientConnection, NoConnection> {
        let give_up = Instant::now() + self.options.spec.timeout.get();
        let mut queued: Option<QueueGuard<'_>> = None;
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            let (id, mut state) = match self.find(&need, Some(&main), queued.as_ref().map(|queued| queued.id))
            {
                FoundConnection::Entry(id, state) => (id, state),
                FoundConnection::Main => {
                    return Ok(ClientConnection {
                        connection: main,
                        lease: Some(self.lease(None)),
                        opener: None,
                    });
                }
                FoundConnection::Unavailable(unavailable) => {
                    return self.fall_back(&need, main, unavailable);
                }
                // If the server sends a request now, its client is unknown and the request is rejected.
                FoundConnection::Full if need.may_share_main() => {
                    return Ok(ClientConnection { connection: main, lease: None, opener: None });
                }
                FoundConnection::Full => {
                    queued.get_or_insert_with(|| self.enqueue(need.caller));
                    if timeout_at(give_up, freed).await.is_err() {
                        return Err(NoConnection::Unavailable(self.busy()));
                    }
                    continue;
                }
            };
            let lease = self.lease(Some(id));
            queued = None;
            let opened = state.wait_for(|state| !matches!(state, EntryState::Opening)).await;
            match opened.as_deref() {
                Ok(EntryState::Ready(connection)) => {
                    return Ok(ClientConnection {
                        connection: Arc::clone(connection),
                        lease: Some(lease),
                        opener: need.client,
                    });
                }
                Ok(EntryState::Failed(unavailable)) => {
                    return self.fall_back(&need, main, unavailable.clone());
                }
                Ok(EntryState::NewestOnly) => return Err(NoConnection::NeedChanged),
                Ok(EntryState::Closed | EntryState::Opening) => {}
                Err(_) => return Err(NoConnection::Unavailable(self.stopping())),
            }
        }
    }

    /// Returns the main connection if the request may share it, otherwise the failure.
    fn fall_back(
        &self,
        need: &ConnectionNeed<'_>,
        main: Arc<Connection>,
        unavailable: ServerUnavailable,
    ) -> Result<ClientConnection, NoConnection> {
        if need.may_share_main() {
            return Ok(ClientConnection { connection: main, lease: None, opener: None });
        }
        Err(NoConnection::Unavailable(unavailable))
    }

    /// Finds a suitable connection and counts its use. With the main connection, also opens one if there is room.
    fn find(
        self: &Arc<Self>,
        need: &ConnectionNeed<'_>,
        main: Option<&Arc<Connection>>,
        queued: Option<u64>,
    ) -> FoundConnection {
        let mut table = self.table.lock();
        if table.is_closed {
            return FoundConnection::Unavailable(self.stopping());
        }
        if let Some(main) =
            main.filter(|_| need.exclusive && !need.exact_list && need.era != ProtocolEra::Handshake)
            && let Some(client) = need.client
        {
            let (user, requests) = &mut table.main;
            // Requests from before the server was known to send requests are not counted in the table.
            let is_free = *requests == 0 && main.session.serves_only_client(client);
            if (is_free || (*requests > 0 && *user == client)) && self.claims_main(need.owner, main) {
                *user = client;
                *requests += 1;
                return FoundConnection::Main;
            }
        }
        let now = Instant::now();
        if let Some(entry) = table.entries.iter_mut().find(|entry| need.is_satisfied_by(entry)) {
            entry.client = need.client;
            entry.requests += 1;
            entry.last_used = now;
            return FoundConnection::Entry(entry.id, entry.state.clone());
        }
        let Some(main) = main else { return FoundConnection::Full };
        match table.failures.get(need.caller) {
            Some((until, unavailable)) if *until > now => {
                return FoundConnection::Unavailable(unavailable.clone());
            }
            Some(_) => drop(table.failures.remove(need.caller)),
            None => {}
        }
        let max = usize::try_from(self.options.spec.connections.max_connections.get()).unwrap_or(usize::MAX);
        if !table.has_room(need.caller, queued, max) {
            return FoundConnection::Full;
        }
        let entry = self.open_entry(table.next_id(), need, main);
        let (id, state) = (entry.id, entry.state.clone());
        table.alive += 1;
        table.entries.push(entry);
        FoundConnection::Entry(id, state)
    }

    /// Starts to open a connection.
    fn open_entry(self: &Arc<Self>, id: u64, need: &ConnectionNeed<'_>, main: &Connection) -> PoolEntry {
        let owner = need.owner.map(OwnerKey::to_owner);
        let in_older_era = need.era == ProtocolEra::Handshake;
        let (opener, declared) = (need.opener.clone(), need.declared.clone());
        let options = self.options.for_pool(owner.clone(), opener, declared, in_older_era);
        let declared = options.notifications.features.capabilities();
        let (state_sender, state) = watch::channel(EntryState::Opening);
        let (open, closing) = oneshot::channel();
        let subscriptions = Arc::<SubscribedResources>::default();
        let task = EntryTask {
            guard: EntryGuard { pool: Arc::downgrade(self), id },
            options,
            state: state_sender,
            closing,
            subscriptions: Arc::clone(&subscriptions),
            log_level: need.log_level.clone(),
            in_older_era,
            caller: need.caller.clone(),
        };
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task.run());
        PoolEntry {
            id,
            owner,
            caller: need.caller.clone(),
            declared,
            has_handshake: in_older_era || main.peer.revision.has_handshake(),
            client: need.client,
            requests: 1,
            last_used: Instant::now(),
            subscriptions,
            state,
            _open: open,
        }
    }

    fn enqueue(&self, caller: &CallerId) -> QueueGuard<'_> {
        let mut table = self.table.lock();
        let id = table.next_id();
        table.queue.push(QueuedRequest { id, caller: caller.clone() });
        QueueGuard { pool: self, id }
    }

    /// Ends a use of a connection.
    fn release(&self, entry: Option<u64>) {
        let mut table = self.table.lock();
        let Some(id) = entry else {
            table.main.1 = table.main.1.saturating_sub(1);
            return;
        };
        let Some(at) = table.entries.iter().position(|entry| entry.id == id) else { return };
        let entry = &mut table.entries[at];
        entry.requests = entry.requests.saturating_sub(1);
        entry.last_used = Instant::now();
        if entry.requests > 0 {
            return;
        }
        let entry = &table.entries[at];
        let same_owner = |other: &&PoolEntry| other.requests == 0 && other.owner == entry.owner;
        let idle = table.entries.iter().filter(same_owner).count();
        let surplus = (idle > MAX_IDLE && !entry.is_subscribed()).then(|| table.entries.swap_remove(at));
        let is_awaited = !table.queue.is_empty();
        drop(table);
        drop(surplus);
        if is_awaited {
            self.freed.notify_waiters();
        }
    }

    fn unavailable(&self, reason: &str, kind: OutageKind, hint: Option<&str>) -> ServerUnavailable {
        let server = self.options.spec.name.to_string();
        ServerUnavailable { server, reason: reason.into(), hint: hint.map(Into::into), kind }
    }

    fn stopping(&self) -> ServerUnavailable {
        self.unavailable("it is being stopped", OutageKind::Unreachable, None)
    }

    fn busy(&self) -> ServerUnavailable {
        let max = self.options.spec.connections.max_connections;
        let reason = format!("all of its {max} connections are in use");
        self.unavailable(&reason, OutageKind::Busy, Some("raise `max_connections` of the server"))
    }

    /// The open connections of a requester's owner, without the main one.
    pub(super) fn connections_of(&self, requester: &Requester<'_>) -> Vec<Arc<Connection>> {
        let owner = self.owner_of(requester);
        let table = self.table.lock();
        let is_own = |entry: &&PoolEntry| match (&owner, &entry.owner) {
            (Some(key), Some(owner)) => key.is(owner),
            (owner, of) => owner.is_none() && of.is_none(),
        };
        table.entries.iter().filter(is_own).filter_map(PoolEntry::ready).collect()
    }

    /// Returns true if the main connection is that of the requester's owner, or shared.
    pub(super) fn owns_main(&self, main: &Connection, requester: &Requester<'_>) -> bool {
        self.claims_main(self.owner_of(requester), main)
    }

    /// Claims the main connection for an owner. Returns false if it belongs to another one.
    fn claims_main(&self, owner: Option<OwnerKey<'_>>, main: &Connection) -> bool {
        owner.is_none_or(|owner| self.is_main_claimable && owner.claim(main))
    }

    /// The subscriptions of a connection, and the connection if it is open.
    pub(super) fn subscriptions(
        &self,
        entry: u64,
    ) -> Option<(Arc<SubscribedResources>, Option<Arc<Connection>>)> {
        let table = self.table.lock();
        table.entry(entry).map(|entry| (Arc::clone(&entry.subscriptions), entry.ready()))
    }

    /// Forgets a failed connection of a caller, because its credential has changed.
    pub(super) fn forget_failure(&self, caller: &CallerId) {
        self.table.lock().failures.remove(caller);
    }

    /// Closes the connections of a session that has ended, if each session has its own.
    pub(super) fn end_session(&self, caller: &CallerId, session: &str) {
        if self.options.spec.connections.isolation != Isolation::Session {
            return;
        }
        let key = OwnerKey { caller, session: Some(session) };
        let is_ended = |entry: &mut PoolEntry| entry.owner.as_ref().is_some_and(|owner| key.is(owner));
        let ended: Vec<_> = self.table.lock().entries.extract_if(.., is_ended).collect();
        drop(ended);
    }

    /// Closes all connections, and waits for them. No other is opened.
    pub(super) async fn close(&self) {
        let entries = {
            let mut table = self.table.lock();
            table.is_closed = true;
            std::mem::take(&mut table.entries)
        };
        drop(entries);
        self.freed.notify_waiters();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// The place of a request in the queue, given up on drop.
struct QueueGuard<'a> {
    pool: &'a ConnectionPool,
    id: u64,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.pool.table.lock().queue.retain(|queued| queued.id != self.id);
        // Others may be next now.
        self.pool.freed.notify_waiters();
    }
}

/// Removes an entry from the pool when its task ends.
struct EntryGuard {
    pool: Weak<ConnectionPool>,
    id: u64,
}

impl EntryGuard {
    /// Records the number of open connections.
    fn count_open(&self, change: isize) {
        if let Some(pool) = self.pool.upgrade() {
            pool.open.send_modify(|open| *open = open.saturating_add_signed(change));
        }
    }
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let removed = {
            let mut table = pool.table.lock();
            table.alive -= 1;
            table.remove(self.id)
        };
        drop(removed);
        pool.freed.notify_waiters();
    }
}

/// Opens a connection, and closes it in the end.
struct EntryTask {
    guard: EntryGuard,
    options: ConnectOptions,
    state: watch::Sender<EntryState>,
    closing: oneshot::Receiver<()>,
    subscriptions: Arc<SubscribedResources>,
    log_level: Option<Box<str>>,
    in_older_era: bool,
    caller: CallerId,
}

impl EntryTask {
    async fn run(mut self) {
        let mut reconnects = BACKOFF.iter();
        loop {
            let connected = tokio::select! {
                _ = &mut self.closing => return,
                connected = self.options.connect_with_backoff(BACKOFF.len() + 1) => connected,
            };
            // Its request may end long before the connection.
            self.options.opener = None;
            let connection = match connected {
                Ok(connection) => Arc::new(connection),
                Err(error) => {
                    if self.in_older_era && error.is_revision_refused() {
                        return self.report_newest_only();
                    }
                    return self.report_failure(self.options.outage(&error).into());
                }
            };
            self.set_log_level(&connection).await;
            self.state.send_replace(EntryState::Ready(Arc::clone(&connection)));
            self.guard.count_open(1);
            let opened_at = Instant::now();
            let is_over = tokio::select! {
                _ = &mut self.closing => true,
                () = idle(&self.guard, self.options.spec.connections.idle_timeout.get()) => true,
                _ = connection.session.closed() => false,
                never = listen(&self.options, &connection, &self.subscriptions) => match never {},
            };
            // Requests that wait for the connection start over, or wait for the next one.
            let is_needed = !is_over && !self.subscriptions.borrow().is_empty();
            self.state.send_replace(if is_needed { EntryState::Opening } else { EntryState::Closed });
            self.guard.count_open(-1);
            super::close(connection).await;
            // Subscribers wait for updates without a request that would open another connection.
            if opened_at.elapsed() > STABLE_AFTER {
                reconnects = BACKOFF.iter();
            }
            let Some(pause) = reconnects.next().filter(|_| is_needed) else { return };
            if timeout(with_jitter(*pause), &mut self.closing).await.is_ok() {
                return;
            }
            self.options.notifications.report_missed_updates();
        }
    }

    async fn set_log_level(&self, connection: &Connection) {
        let is_able = connection.peer.revision.has_handshake() && connection.peer.has_capability("logging");
        if let Some(level) = self.log_level.as_ref().filter(|_| is_able) {
            let params = Params::none().with("level", level);
            let timeout = self.options.spec.request_timeout.get();
            let _ = connection.session.request("logging/setLevel", params, timeout).await;
        }
    }

    fn report_failure(&self, unavailable: ServerUnavailable) {
        if let Some(pool) = self.guard.pool.upgrade() {
            let mut table = pool.table.lock();
            if table.failures.len() >= MAX_FAILURES {
                table.failures.clear();
            }
            let until = Instant::now() + PROBE_INTERVAL;
            table.failures.insert(self.caller.clone(), (until, unavailable.clone()));
        }
        self.state.send_replace(EntryState::Failed(unavailable));
    }

    fn report_newest_only(&self) {
        if let Some(pool) = self.guard.pool.upgrade() {
            pool.newest_only.store(true, Ordering::Relaxed);
        }
        self.state.send_replace(EntryState::NewestOnly);
    }
}

/// Waits until a connection was not used for the idle timeout, and removes it from the pool.
async fn idle(guard: &EntryGuard, idle_timeout: Duration) {
    let mut deadline = Instant::now() + idle_timeout;
    loop {
        sleep_until(deadline).await;
        let Some(pool) = guard.pool.upgrade() else { return };
        let mut table = pool.table.lock();
        let Some(entry) = table.entry(guard.id) else { return };
        let is_used = entry.requests > 0 || entry.is_subscribed();
        let last_used = if is_used { Instant::now() } else { entry.last_used };
        deadline = last_used + idle_timeout;
        if deadline <= Instant::now() {
            let removed = table.remove(guard.id);
            drop(table);
            drop(removed);
            return;
        }
    }
}

/// Renews the subscriptions of a connection, and receives their updates.
async fn listen(
    options: &ConnectOptions,
    connection: &Connection,
    subscriptions: &SubscribedResources,
) -> std::convert::Infallible {
    if connection.peer.revision.has_handshake() {
        resubscribe(&options.spec, connection, subscriptions).await;
        return std::future::pending().await;
    }
    listen_for_changes(&options.spec, connection, OfferKinds::default(), subscriptions).await
}
