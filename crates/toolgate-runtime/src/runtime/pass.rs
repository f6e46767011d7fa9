//! What is passed on to servers beside calls of tools: prompts, resources, completions, tasks, log levels.
//!
//! Invariant: there is no way from here to a tool; only [`Runtime::call`] is one.

use tokio::sync::broadcast;
use toolgate_types::ServerName;
use toolgate_upstream::{Along, Followed, Params, Peer, Raw, State, Trace};

use super::{Ask, AskError, Live, Runtime};
use std::sync::Arc;
use std::time::Duration;

/// A client may think for so long about what the server asks, beyond the time of the request.
const THINKING: Duration = Duration::from_secs(3600);

impl Runtime {
    /// Passes a client's request on, within the time that the server's description gives.
    ///
    /// # Errors
    /// When the server is not there, not approved, or does not answer in time.
    pub async fn pass(
        &self,
        server: &str,
        what: Ask,
        params: Params,
        (along, trace): (&Along, &Trace),
    ) -> Result<Raw, AskError> {
        let server = self.server(server).ok_or_else(|| AskError::NoServer(server.to_owned()))?;
        let spec = server.spec();
        if !spec.approved && !self.pins().approves(&spec.name) {
            return Err(AskError::NotApproved(spec.name.to_string()));
        }
        let lane = server.lane(along.client.as_ref()).await?;
        let params = params.along(along).traced(trace);
        let within = spec.request_timeout.get();
        let within = if along.client.is_some() { within.saturating_add(THINKING) } else { within };
        let outcome = lane.connection.session.ask(what.method(), params, within).await;
        outcome.map_err(|why| AskError::Request { server: spec.name.to_string(), why })
    }

    /// Has a server tell of changes of a resource, as long as what is returned lives.
    ///
    /// # Errors
    /// When the server is not there, or does not want to.
    pub async fn follow(&self, server: &str, uri: &str) -> Result<Followed, AskError> {
        let server = self.server(server).ok_or_else(|| AskError::NoServer(server.to_owned()))?;
        let name = server.spec().name.to_string();
        server.follow(uri).await.map_err(|why| AskError::Refused { server: name, why: why.to_string() })
    }

    /// What servers tell of resources that are followed.
    pub fn updates(&self) -> broadcast::Receiver<(ServerName, Raw)> {
        self.updates.subscribe()
    }

    /// What servers said has changed, once it was looked at: also where nothing is new.
    pub fn heard(&self) -> broadcast::Receiver<toolgate_upstream::offer::Kinds> {
        self.heard.subscribe()
    }

    /// The servers that are there, as they introduced themselves, in the order of the configuration.
    pub fn peers(&self) -> Vec<(ServerName, Peer)> {
        let pins = self.pins();
        let given = self.given.load();
        let peer = |live: &Arc<Live>| {
            let spec = live.server.spec();
            let State::Ready(connection) = live.server.state() else { return None };
            (spec.approved || pins.approves(&spec.name)).then(|| (spec.name.clone(), connection.peer.clone()))
        };
        given.servers.iter().filter_map(peer).collect()
    }

    /// Passes on what a server tells of its resources, as long as it is there.
    pub(super) async fn tell_updates(&self, live: &Live) {
        let (mut updates, mut told) = (live.server.updates(), live.server.told());
        loop {
            tokio::select! {
                Ok(params) = updates.recv() => {
                    let _ = self.updates.send((live.server.spec().name.clone(), params));
                }
                Ok(kinds) = told.recv() => drop(self.heard.send(kinds)),
                // Either may have fallen behind; both end with the server.
                else => tokio::task::yield_now().await,
            }
        }
    }
}
