//! Lanes: connections of their own for clients whose requests a server could mix up.
//!
//! Before the newest revision a client says once what it can be asked for, and a server asks in the middle of a
//! request; over pipes nothing says in the middle of which. Over HTTP clients get sessions on which their own
//! capabilities were declared, and the stream of a question says whose it is. Elsewhere a connection may be a process
//! with a memory of its own, so all share one as long as they can: once a server is known to ask, a client has it to
//! itself while its requests run, and others get one of their own meanwhile, also those that cannot be asked: what is
//! asked because of them must not reach somebody else.
//! Invariant: a question is never put to another client than the one whose request it
//! belongs to.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Map, Value};
use toolgate_mcp::Behind;
use toolgate_types::server::Transport;

use super::{Opening, Server};
use crate::connect::Connection;

/// Connections beside the common one. Each may be a process.
const MOST: usize = 32;
/// Those of them that stay when nobody uses them.
const MOST_IDLE: usize = 2;
/// What a client must have declared to be asked for anything.
const QUESTIONS: [&str; 3] = ["sampling", "elicitation", "roots"];

/// The lanes of a server.
pub(super) struct Lanes {
    opening: Opening,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Who has the common connection to itself, with how many requests.
    main: (u64, usize),
    extra: Vec<Extra>,
    /// Those that are being opened.
    opening: usize,
}

/// A connection beside the common one, and who has it, with how many requests.
struct Extra {
    connection: Arc<Connection>,
    /// What was declared on it.
    declared: Value,
    client: u64,
    requests: usize,
}

/// What a client needs of a connection.
struct Need {
    client: u64,
    declared: Value,
    /// Whether no other client may use it meanwhile.
    alone: bool,
}

impl Need {
    fn is_met_by(&self, extra: &Extra) -> bool {
        extra.declared == self.declared && (!self.alone || extra.requests == 0 || extra.client == self.client)
    }
}

/// A connection for one request.
pub struct Lane {
    /// The connection.
    pub connection: Arc<Connection>,
    /// Who gets it back.
    held: Option<Weak<Server>>,
}

impl Lanes {
    pub(super) fn new(opening: Opening) -> Self {
        Self { opening, books: Mutex::default() }
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a client needs, where the common connection is not enough.
    fn need(&self, main: &Connection, client: &dyn Behind) -> Option<Need> {
        let over_http = matches!(self.opening.spec.transport, Transport::Http(_));
        let asks = self.opening.ear.asks.load(Ordering::Relaxed);
        if !main.peer.revision.has_handshake() || !(over_http || asks) {
            return None;
        }
        let all = client.capabilities();
        let known = QUESTIONS.iter().filter_map(|name| Some(((*name).to_owned(), all.get(*name)?.clone())));
        let declared: Map<String, Value> = known.collect();
        let alone = !over_http;
        Some(Need { client: client.identity(), declared: declared.into(), alone })
    }

    pub(super) async fn take(
        &self,
        server: &Arc<Server>,
        main: Arc<Connection>,
        client: Option<&Arc<dyn Behind>>,
    ) -> Lane {
        let Some(need) = client.and_then(|client| self.need(&main, &**client)) else {
            return Lane { connection: main, held: None };
        };
        let held = Some(Arc::downgrade(server));
        match self.find(&need, &main) {
            Some(Some(connection)) => return Lane { connection, held },
            Some(None) => {}
            // All are taken. Where the server asks now, nobody can tell whom, and nobody is asked.
            None => return Lane { connection: main, held: None },
        }
        let guard = Begun(self);
        // In a box, as all that is rare on the road of a call: the room for it would be part of every call.
        let opened = Box::pin(self.opening.declaring(need.declared.clone()).connect()).await;
        drop(guard);
        match opened {
            Ok(connection) => {
                let connection = Arc::new(connection);
                let Need { client, declared, .. } = need;
                let extra = Extra { connection: Arc::clone(&connection), declared, client, requests: 1 };
                self.books().extra.push(extra);
                Lane { connection, held }
            }
            Err(error) => {
                tracing::debug!(server = %self.opening.spec.name, "no connection of its own for a client: {error}");
                Lane { connection: main, held: None }
            }
        }
    }

    /// A connection that does; or leave to open one.
    fn find(&self, need: &Need, main: &Arc<Connection>) -> Option<Option<Arc<Connection>>> {
        let mut books = self.books();
        let (client, requests) = &mut books.main;
        // Requests that came before the server was known to ask are not in the books.
        let free = *requests == 0 && main.session.serves_only(need.client);
        if need.alone && (free || *client == need.client) {
            *client = need.client;
            *requests += 1;
            return Some(Some(Arc::clone(main)));
        }
        books.extra.retain(|extra| extra.connection.session.ended().is_none());
        if let Some(extra) = books.extra.iter_mut().find(|extra| need.is_met_by(extra)) {
            extra.client = need.client;
            extra.requests += 1;
            return Some(Some(Arc::clone(&extra.connection)));
        }
        if books.extra.len() + books.opening >= MOST {
            // One that nobody uses makes room.
            let idle = books.extra.iter().position(|extra| extra.requests == 0)?;
            books.extra.swap_remove(idle);
        }
        books.opening += 1;
        Some(None)
    }

    fn leave(&self, connection: &Arc<Connection>) -> Option<Arc<Connection>> {
        let mut books = self.books();
        let Some(at) = books.extra.iter().position(|extra| Arc::ptr_eq(&extra.connection, connection)) else {
            books.main.1 = books.main.1.saturating_sub(1);
            return None;
        };
        books.extra[at].requests = books.extra[at].requests.saturating_sub(1);
        let idle = books.extra.iter().filter(|extra| extra.requests == 0).count();
        (books.extra[at].requests == 0 && idle > MOST_IDLE).then(|| books.extra.swap_remove(at).connection)
    }

    /// Ends all of them, and waits.
    pub(super) async fn close(&self) {
        let all = std::mem::take(&mut self.books().extra);
        for extra in all {
            super::close(extra.connection).await;
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let Some(server) = self.held.take().and_then(|server| server.upgrade()) else { return };
        // One that nobody needs ends with the last who holds it, its process with it.
        drop(server.lanes.leave(&self.connection));
    }
}

/// A connection that is being opened, whoever waits for it.
struct Begun<'a>(&'a Lanes);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.books().opening -= 1;
    }
}
