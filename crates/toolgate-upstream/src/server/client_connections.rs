//! Extra connections for clients whose requests a server could mix up.
//!
//! Before the newest protocol revision, a client declares its capabilities once per connection, and a server may send a
//! request of its own (elicitation, sampling, roots) during any request of the client. Over pipes nothing says which
//! client request it belongs to. Over HTTP, each set of declared capabilities gets its own session, and the stream of a
//! server's request identifies the client. Other connections may be processes with their own memory, so all clients
//! share one as long as possible. Once a server is known to send requests, a client gets the shared connection
//! exclusively while its requests run, and other clients get an extra connection meanwhile. This includes clients that
//! cannot be asked: a server request caused by them must not reach another client.
//!
//! Invariant: a server's request is only ever forwarded to the client whose request it belongs to.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use toolgate_mcp::DownstreamClient;
use toolgate_types::server::Transport;

use super::{ConnectOptions, Server};
use crate::connect::Connection;

/// Extra connections per server. Each may be a process.
const MAX_EXTRA: usize = 32;
/// Extra connections kept while idle.
const MAX_IDLE: usize = 2;
/// The client capabilities that allow a server to send requests.
const ASKABLE_CAPABILITIES: [&str; 3] = ["sampling", "elicitation", "roots"];

/// The extra connections of a server.
pub(super) struct ClientConnections {
    connect_options: ConnectOptions,
    table: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    /// The client that uses the shared connection exclusively, and its number of running requests.
    main: (u64, usize),
    extra: Vec<ExtraConnection>,
    /// Connections being opened.
    opening: usize,
}

/// An extra connection, with its current client and the number of running requests.
struct ExtraConnection {
    connection: Arc<Connection>,
    /// The capabilities declared on it.
    declared: Value,
    client: u64,
    requests: usize,
}

/// The connection that a client needs.
struct ConnectionNeed {
    client: u64,
    declared: Value,
    /// True if no other client may use it at the same time.
    exclusive: bool,
}

impl ConnectionNeed {
    fn is_satisfied_by(&self, extra: &ExtraConnection) -> bool {
        extra.declared == self.declared
            && (!self.exclusive || extra.requests == 0 || extra.client == self.client)
    }
}

/// A connection for one request. Dropping it returns the connection.
pub struct ClientConnection {
    pub connection: Arc<Connection>,
    /// The server that counts this use; `None` if it is not counted.
    server_ref: Option<Weak<Server>>,
}

impl ClientConnections {
    pub(super) fn new(connect_options: ConnectOptions) -> Self {
        Self { connect_options, table: Mutex::default() }
    }

    fn table(&self) -> parking_lot::MutexGuard<'_, ConnectionTable> {
        self.table.lock()
    }

    /// The connection that a client needs; `None` if the shared one is enough.
    fn need_of(&self, main: &Connection, client: &dyn DownstreamClient) -> Option<ConnectionNeed> {
        let over_http = matches!(self.connect_options.spec.transport, Transport::Http(_));
        let server_asks = self.connect_options.notifications.server_asks.load(Ordering::Relaxed);
        if !main.peer.revision.has_handshake() || !(over_http || server_asks) {
            return None;
        }
        let all = client.capabilities();
        let declared_capabilities = ASKABLE_CAPABILITIES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), all.get(*name)?.clone())));
        let declared: Map<String, Value> = declared_capabilities.collect();
        let exclusive = !over_http;
        Some(ConnectionNeed { client: client.identity(), declared: declared.into(), exclusive })
    }

    pub(super) async fn acquire(
        &self,
        server: &Arc<Server>,
        main: Arc<Connection>,
        client: Option<&Arc<dyn DownstreamClient>>,
    ) -> ClientConnection {
        let Some(need) = client.and_then(|client| self.need_of(&main, &**client)) else {
            return ClientConnection { connection: main, server_ref: None };
        };
        let server_ref = Some(Arc::downgrade(server));
        match self.find(&need, &main) {
            Some(Some(connection)) => return ClientConnection { connection, server_ref },
            Some(None) => {}
            // All are in use. If the server sends a request now, its client is unknown and the request is rejected.
            None => return ClientConnection { connection: main, server_ref: None },
        }
        let guard = OpeningGuard(self);
        // Boxed, because this is rare: otherwise its size would be part of every call's future.
        let opened = Box::pin(self.connect_options.with_capabilities(need.declared.clone()).connect()).await;
        drop(guard);
        match opened {
            Ok(connection) => {
                let connection = Arc::new(connection);
                let ConnectionNeed { client, declared, .. } = need;
                let extra =
                    ExtraConnection { connection: Arc::clone(&connection), declared, client, requests: 1 };
                self.table().extra.push(extra);
                ClientConnection { connection, server_ref }
            }
            Err(error) => {
                tracing::debug!(server = %self.connect_options.spec.name, "cannot open an extra connection for a client: {error}");
                ClientConnection { connection: main, server_ref: None }
            }
        }
    }

    /// Finds a suitable connection. `Some(None)` is permission to open one; `None` means that all are in use.
    fn find(&self, need: &ConnectionNeed, main: &Arc<Connection>) -> Option<Option<Arc<Connection>>> {
        let mut table = self.table();
        let (client, requests) = &mut table.main;
        // Requests from before the server was known to send requests are not counted in the table.
        let free = *requests == 0 && main.session.serves_only_client(need.client);
        if need.exclusive && (free || *client == need.client) {
            *client = need.client;
            *requests += 1;
            return Some(Some(Arc::clone(main)));
        }
        table.extra.retain(|extra| extra.connection.session.close_reason().is_none());
        if let Some(extra) = table.extra.iter_mut().find(|extra| need.is_satisfied_by(extra)) {
            extra.client = need.client;
            extra.requests += 1;
            return Some(Some(Arc::clone(&extra.connection)));
        }
        if table.extra.len() + table.opening >= MAX_EXTRA {
            // An idle connection makes room.
            let idle = table.extra.iter().position(|extra| extra.requests == 0)?;
            table.extra.swap_remove(idle);
        }
        table.opening += 1;
        Some(None)
    }

    fn release(&self, connection: &Arc<Connection>) -> Option<Arc<Connection>> {
        let mut table = self.table();
        let Some(at) = table.extra.iter().position(|extra| Arc::ptr_eq(&extra.connection, connection)) else {
            table.main.1 = table.main.1.saturating_sub(1);
            return None;
        };
        table.extra[at].requests = table.extra[at].requests.saturating_sub(1);
        let idle = table.extra.iter().filter(|extra| extra.requests == 0).count();
        (table.extra[at].requests == 0 && idle > MAX_IDLE).then(|| table.extra.swap_remove(at).connection)
    }

    /// Closes all extra connections, and waits for them.
    pub(super) async fn close(&self) {
        let all = std::mem::take(&mut self.table().extra);
        for extra in all {
            super::close(extra.connection).await;
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let Some(server) = self.server_ref.take().and_then(|server| server.upgrade()) else { return };
        // A surplus connection, and its process, ends when its last user drops it.
        drop(server.client_connections.release(&self.connection));
    }
}

/// Counts a connection being opened, even if the caller is cancelled.
struct OpeningGuard<'a>(&'a ClientConnections);

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.0.table().opening -= 1;
    }
}
