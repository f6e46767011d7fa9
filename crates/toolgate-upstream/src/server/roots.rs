//! Roots of clients, passed on to a server with sessions.
//!
//! A server requests roots when a session begins, or when it is notified that they have changed: often outside of any
//! request of a client. So before the first request of a client on a connection, and after the client reported a change,
//! the server is notified that the roots have changed, and gets those of this client. Invariant: no other client answers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use toolgate_mcp::{DownstreamClient, Params, Session};

/// Longest wait for a server that does not request the changed roots.
const MAX_WAIT: Duration = Duration::from_secs(1);
pub(super) const LIST_ROOTS: &str = "roots/list";

/// The roots that the server at the other end of a connection knows.
#[derive(Default)]
pub struct RootsRelay {
    /// True once the server has requested roots, on any connection.
    is_wanted: Arc<AtomicBool>,
    state: Mutex<RelayState>,
    answered: Notify,
    /// Held while the server is notified of changed roots.
    turn: tokio::sync::Mutex<()>,
}

/// A client, and the version of its roots.
type RootsVersion = (u64, u64);

#[derive(Default)]
struct RelayState {
    /// The client that answers now.
    client: Option<Arc<dyn DownstreamClient>>,
    /// The roots that the server has requested and not received yet.
    requested: Option<RootsVersion>,
    /// The roots that the server knows.
    known: Option<RootsVersion>,
}

fn version_of(client: &dyn DownstreamClient) -> RootsVersion {
    (client.identity(), client.roots_version())
}

impl RootsRelay {
    /// The relay of another connection to the same server. The client that opens it answers meanwhile.
    pub(super) fn for_connection(&self, opener: Option<Arc<dyn DownstreamClient>>) -> Self {
        let state = RelayState { client: opener, ..RelayState::default() };
        Self { is_wanted: Arc::clone(&self.is_wanted), state: Mutex::new(state), ..Self::default() }
    }

    /// Handles a request of the server for roots. Returns the client that answers, if the request belongs to none.
    pub(super) fn receive_request(&self) -> Option<Arc<dyn DownstreamClient>> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.requested = state.client.as_deref().map(version_of);
        state.client.clone()
    }

    /// Handles the end of such a request.
    pub(super) fn receive_answer(&self) {
        let mut state = self.state.lock();
        state.known = state.requested.take().or(state.known);
        drop(state);
        self.answered.notify_waiters();
    }

    /// Ends the turn of a client to answer.
    pub(super) fn release(&self, client: u64) {
        let mut state = self.state.lock();
        if state.client.as_ref().is_some_and(|other| other.identity() == client) {
            state.client = None;
        }
    }

    /// Returns true if the server has to be notified of the roots of this client.
    pub(crate) fn is_due(&self, client: &dyn DownstreamClient) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
            && client.capabilities().get("roots").is_some()
            && self.state.lock().known != Some(version_of(client))
    }

    /// Waits until the server has received the roots of this client. Tells it that they have changed, unless the client
    /// has opened the connection: then the server requests them by itself.
    pub(crate) async fn share(&self, session: &Session, client: &Arc<dyn DownstreamClient>) {
        let _turn = self.turn.lock().await;
        if !self.is_due(&**client) {
            return;
        }
        let is_opener = {
            let mut state = self.state.lock();
            let answers = state.client.replace(Arc::clone(client));
            state.known.is_none() && answers.is_some_and(|other| other.identity() == client.identity())
        };
        if is_opener || session.notify("notifications/roots/list_changed", Params::none()).await.is_ok() {
            let _ = timeout(MAX_WAIT, self.wait_until_known(&**client)).await;
        }
        // A server that does not request them is not notified again.
        self.state.lock().known = Some(version_of(&**client));
        self.release(client.identity());
    }

    async fn wait_until_known(&self, client: &dyn DownstreamClient) {
        loop {
            let mut answered = pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.state.lock().known == Some(version_of(client)) {
                return;
            }
            answered.await;
        }
    }
}
