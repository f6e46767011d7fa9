//! Lists of servers that depend on the client: on its capabilities, or on the login of its caller.
//!
//! The catalog has the definitions of the main connection. That one has all capabilities and, with `auth: caller`, the
//! credential of the owner. A server may list less to others: no tool that needs sampling to a client without it, none of
//! an administrator to a caller that is not one. Nothing in a definition says so. So where a connection of the client
//! would have other capabilities or another credential, its own list is read on that connection, and limits the list that
//! the client gets. A list is read in a task of its own, so a client that leaves does not stop it, and a server that does not
//! answer delays the lists of others once. Invariant: of a server with `auth: caller`, a caller sees nothing that only
//! another login lists.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use toolgate_types::server::Transport;
use toolgate_types::{Caller, CallerId, ServerName};
use toolgate_upstream::offer::{OfferKinds, OfferedItem, ServerOffer};
use toolgate_upstream::{DownstreamClient, ListError, Requester};

use super::{ManagedServer, Runtime};
use crate::catalog::{CatalogTool, SEPARATOR, ToolState};

/// Longest wait for the list of one client, from the moment when the gateway requested it. Without it, lists of servers
/// with `auth: caller` are empty, and all others are as in the catalog.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The same for servers over HTTP where only capabilities matter: no child process has to start for the client.
const MAX_HTTP_WAIT: Duration = Duration::from_secs(2);
/// Longest time that a server may take. A list that comes after the wait is announced.
const MAX_READ: Duration = Duration::from_secs(30);
/// Time after that a list with the credential of a caller is read again: its login may have other rights by then.
const MAX_AGE: Duration = Duration::from_secs(5);
/// The same without a login.
const MAX_LOGIN_AGE: Duration = Duration::from_secs(1);
/// The same after a failure: a server that does not answer must not delay every list.
const MAX_FAILURE_AGE: Duration = Duration::from_secs(30);
/// Lists of one server that are remembered.
const MAX_LISTS: usize = 1_024;
/// Name of the tool that logs a caller in, after the prefix of its server.
pub(crate) const LOGIN_TOOL: &str = "log_in";

/// The client that a list is for.
#[derive(Clone, Copy)]
pub struct ListViewer<'a> {
    pub caller: &'a Caller,
    pub session: Option<&'a str>,
    /// `None` for a front end without clients to ask; capabilities do not limit its lists.
    pub client: Option<&'a Arc<dyn DownstreamClient>>,
}

/// The part of the catalog that servers list to one client. The default limits nothing.
#[derive(Debug, Clone, Default)]
pub struct ListFilter(BTreeMap<ServerName, ServerList>);

/// The items that a server lists to one client.
#[derive(Debug, Clone)]
enum ServerList {
    /// Tools by their names, where lists depend on capabilities only.
    Tools(Arc<ServerOffer>),
    /// All lists, read with the credential of the caller.
    Own(Arc<ServerOffer>),
    /// The caller has no login.
    LoginNeeded,
    /// The lists cannot be read.
    Unknown,
}

impl ListFilter {
    /// Returns true if the client is shown the tool, as far as its server is concerned.
    pub fn shows(&self, tool: &CatalogTool) -> bool {
        match tool.server.as_ref().and_then(|server| self.0.get(server)) {
            None => true,
            Some(ServerList::Tools(offer) | ServerList::Own(offer)) => {
                offer.tools.iter().any(|listed| listed.name == tool.original)
            }
            Some(ServerList::LoginNeeded | ServerList::Unknown) => false,
        }
    }

    /// The items to show of a server, of those in the catalog. Only a login of its own replaces them.
    pub(crate) fn items(
        &self,
        server: &ServerName,
        offer: &ServerOffer,
        of: impl Fn(&ServerOffer) -> &Arc<[OfferedItem]>,
    ) -> Arc<[OfferedItem]> {
        match self.0.get(server) {
            None | Some(ServerList::Tools(_)) => Arc::clone(of(offer)),
            Some(ServerList::Own(own)) => Arc::clone(of(own)),
            Some(ServerList::LoginNeeded | ServerList::Unknown) => Arc::default(),
        }
    }

    /// Servers that the caller has to log in to.
    pub(crate) fn logins(&self) -> impl Iterator<Item = &ServerName> {
        let needs_login = |(server, list)| matches!(list, &ServerList::LoginNeeded).then_some(server);
        self.0.iter().filter_map(needs_login)
    }

    /// A number that differs between filters that show different tools.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (server, list) in &self.0 {
            server.as_str().hash(&mut hasher);
            std::mem::discriminant(list).hash(&mut hasher);
            if let ServerList::Tools(offer) | ServerList::Own(offer) = list {
                offer.tools.iter().for_each(|tool| tool.name.hash(&mut hasher));
            }
        }
        hasher.finish()
    }
}

/// Lists of one server that were read for clients.
#[derive(Default)]
pub(super) struct ClientLists {
    cells: Mutex<HashMap<ListKey, Arc<Mutex<ListCell>>>>,
    readings: Mutex<JoinSet<()>>,
    /// True after a list that came too late, until one comes. Not used with `auth: caller`, where the login of one caller
    /// may be the reason.
    is_slow: AtomicBool,
}

/// The list for clients with one key, and the request for it that is running.
#[derive(Default)]
struct ListCell {
    known: Option<KnownList>,
    reading: Option<ListReading>,
}

struct ListReading {
    since: Instant,
    ended: watch::Receiver<()>,
    /// True if a client got its list without waiting for this one.
    is_late: bool,
}

/// Everything about a client that a list may depend on.
#[derive(PartialEq, Eq, Hash)]
struct ListKey {
    /// The caller, if its credential matters.
    caller: Option<CallerId>,
    /// The declared capabilities, as JSON.
    capabilities: Box<str>,
}

struct KnownList {
    list: ServerList,
    /// The list of the main connection at that time.
    offer: Arc<Option<ServerOffer>>,
    /// Number of changes that the server had announced on connections of clients.
    changes: u64,
    read_at: Instant,
}

impl KnownList {
    fn is_current(&self, managed: &ManagedServer) -> bool {
        let max_age = match self.list {
            ServerList::Tools(_) => Duration::MAX,
            ServerList::Own(_) => MAX_AGE,
            ServerList::LoginNeeded => MAX_LOGIN_AGE,
            ServerList::Unknown => MAX_FAILURE_AGE,
        };
        Arc::ptr_eq(&self.offer, &managed.offer.load_full())
            && self.changes == managed.server.client_list_changes()
            && self.read_at.elapsed() < max_age
    }
}

impl ClientLists {
    fn cell(&self, key: ListKey) -> Arc<Mutex<ListCell>> {
        let mut all = self.cells.lock();
        if all.len() >= MAX_LISTS && !all.contains_key(&key) {
            all.clear();
        }
        Arc::clone(all.entry(key).or_default())
    }
}

impl ManagedServer {
    /// The list for one client: read once for all clients with the same capabilities and the same credential.
    async fn list_for(self: &Arc<Self>, requester: Requester<'_>) -> ServerList {
        let is_per_caller = self.server.credentials().is_per_caller();
        let key = ListKey {
            caller: is_per_caller.then(|| requester.caller.clone()),
            capabilities: self.server.declared_capabilities(requester.client).into(),
        };
        let cell = self.client_lists.cell(key);
        let is_http = matches!(self.server.spec().transport, Transport::Http(_));
        let max_wait = if is_http && !is_per_caller { MAX_HTTP_WAIT } else { MAX_WAIT };
        // A request that was running already may have begun before the latest change, so a second one may follow.
        for _ in 0..2 {
            let (wait_end, mut ended) = {
                let mut state = cell.lock();
                if let Some(known) = state.known.as_ref().filter(|known| known.is_current(self)) {
                    return known.list.clone();
                }
                let has_failed =
                    matches!(&state.known, Some(known) if matches!(known.list, ServerList::Unknown));
                let reading = state.reading.get_or_insert_with(|| self.start_reading(&cell, requester));
                // A server that failed is asked again, but no client waits for it.
                let is_slow = !is_per_caller && self.client_lists.is_slow.load(Ordering::Relaxed);
                let max_wait = if has_failed || is_slow { Duration::ZERO } else { max_wait };
                (reading.since + max_wait, reading.ended.clone())
            };
            if timeout_at(wait_end, ended.changed()).await.is_err()
                && let Some(reading) = &mut cell.lock().reading
            {
                reading.is_late = true;
                self.client_lists.is_slow.store(true, Ordering::Relaxed);
                return ServerList::Unknown;
            }
        }
        cell.lock().known.as_ref().map_or(ServerList::Unknown, |known| known.list.clone())
    }

    /// Requests the list in a task. The caller holds the lock of the cell and stores the result there.
    fn start_reading(self: &Arc<Self>, cell: &Arc<Mutex<ListCell>>, requester: Requester<'_>) -> ListReading {
        let (end, ended) = watch::channel(());
        let reading = ListReading { since: Instant::now(), ended, is_late: false };
        let (managed, running) = (Arc::clone(self), RunningRead { cell: Arc::clone(cell), end });
        let (caller, session) = (requester.caller.clone(), requester.session.map(str::to_owned));
        let client = requester.client.cloned();
        let mut readings = self.client_lists.readings.lock();
        while readings.try_join_next().is_some() {}
        readings.spawn(async move {
            let requester =
                Requester { caller: &caller, session: session.as_deref(), client: client.as_ref() };
            let offer = managed.offer.load_full();
            let list = managed.read_list(requester).await;
            let is_readable = !matches!(list, ServerList::Unknown);
            managed.client_lists.is_slow.fetch_and(!is_readable, Ordering::Relaxed);
            // After the list was read: opening the connection may have announced a change.
            let (changes, read_at) = (managed.server.client_list_changes(), Instant::now());
            let is_late = running.finish(KnownList { list, offer, changes, read_at });
            if is_readable && is_late {
                let is_per_caller = managed.server.credentials().is_per_caller();
                managed.server.announce_lists(is_per_caller.then_some(caller));
            }
        });
        reading
    }

    async fn read_list(&self, requester: Requester<'_>) -> ServerList {
        let is_per_caller = self.server.credentials().is_per_caller();
        let kinds = if is_per_caller { self.listed_kinds(OfferKinds::ALL) } else { OfferKinds::TOOLS };
        match timeout(MAX_READ, self.server.list_for(requester, kinds)).await {
            Ok(Ok(offer)) if is_per_caller => ServerList::Own(Arc::new(self.with_allowed_prompts(offer))),
            Ok(Ok(offer)) => ServerList::Tools(Arc::new(offer)),
            Ok(Err(ListError::LoginNeeded)) if is_per_caller => ServerList::LoginNeeded,
            failed => {
                let spec = self.server.spec();
                if let Ok(Err(error)) = failed {
                    tracing::debug!(server = %spec.name, %error, "the list for a client cannot be read");
                }
                ServerList::Unknown
            }
        }
    }
}

/// A running request for a list. Ends it on drop, also if it panics, so that the next client starts another one.
struct RunningRead {
    cell: Arc<Mutex<ListCell>>,
    end: watch::Sender<()>,
}

impl RunningRead {
    /// Stores the list. Returns true if a client did not wait for it.
    fn finish(self, known: KnownList) -> bool {
        let mut state = self.cell.lock();
        state.known = Some(known);
        state.reading.take().is_some_and(|reading| reading.is_late)
    }
}

impl Drop for RunningRead {
    fn drop(&mut self) {
        self.cell.lock().reading = None;
        let _ = self.end.send(());
    }
}

impl Runtime {
    /// Reads the lists of the servers that may list less to a client than to the main connection.
    pub async fn list_filter(&self, viewer: ListViewer<'_>) -> ListFilter {
        let ListViewer { caller, session, client } = viewer;
        let requester = Requester { caller: &caller.id, session, client };
        let inputs = self.sources.load_full();
        let apart = inputs.servers.iter().filter(|managed| managed.server.lists_apart(requester));
        let mut apart: Vec<_> = apart.collect();
        if apart.is_empty() {
            return ListFilter::default();
        }
        let usable = self.servers_with_visible_tools(caller);
        apart.retain(|managed| {
            let name = &managed.server.spec().name;
            usable.contains(name) || self.may_see_items(caller, name)
        });
        let lists = join_all(apart.into_iter().map(async |managed| {
            let list = managed.list_for(requester).await;
            let is_optional = !managed.server.credentials().is_per_caller();
            // A list that cannot be read hides nothing where only capabilities differ.
            let is_missing = is_optional && matches!(list, ServerList::Unknown | ServerList::LoginNeeded);
            (!is_missing).then(|| (managed.server.spec().name.clone(), list))
        }));
        ListFilter(lists.await.into_iter().flatten().collect())
    }

    /// Servers with a tool that the caller may see.
    fn servers_with_visible_tools(&self, caller: &Caller) -> HashSet<ServerName> {
        let catalog = self.catalog();
        let mut found = HashSet::new();
        for tool in catalog.tools() {
            if let Some(server) = &tool.server
                && tool.state == ToolState::Ready
                && !found.contains(server)
                && self.may_see(caller, tool)
            {
                found.insert(server.clone());
            }
        }
        found
    }

    /// Returns true if the caller may see any tool, prompt or resource of a server.
    fn may_use(&self, caller: &Caller, server: &ServerName) -> bool {
        let catalog = self.catalog();
        let mut tools = catalog.tools().filter(|tool| tool.server.as_ref() == Some(server));
        let has_tool = tools.any(|tool| tool.state == ToolState::Ready && self.may_see(caller, tool));
        has_tool || self.may_see_items(caller, server)
    }

    /// Tools that log the caller in to the servers where it has no login.
    pub fn login_tools(&self, caller: &Caller, filter: &ListFilter) -> Vec<Arc<CatalogTool>> {
        let tool = |server: &ServerName| self.login_tool(caller, &login_tool_name(server));
        filter.logins().filter_map(tool).collect()
    }

    /// Returns the tool with this name, if it logs callers in to a server that this caller may use.
    pub fn login_tool(&self, caller: &Caller, name: &str) -> Option<Arc<CatalogTool>> {
        if !name.ends_with(LOGIN_TOOL) || self.catalog().resolve(name).is_some() {
            return None;
        }
        let inputs = self.sources.load();
        let mut servers = inputs.servers.iter().map(|managed| managed.server.as_ref());
        let server = servers.find(|server| login_tool_name(&server.spec().name) == name)?;
        let spec = server.spec();
        let is_offered = server.credentials().is_per_caller() && self.pins.is_approved(spec);
        (is_offered && self.may_use(caller, &spec.name)).then(|| Arc::new(CatalogTool::for_login(spec, name)))
    }

    /// Tells the clients of a caller that the lists of servers may be others now, because its credentials changed.
    pub fn announce_lists_of(&self, caller: &CallerId) {
        let _ = self.sources.list_changes.send((Some(caller.clone()), OfferKinds::ALL));
    }
}

fn login_tool_name(server: &ServerName) -> String {
    format!("{}{SEPARATOR}{LOGIN_TOOL}", server.prefix())
}
