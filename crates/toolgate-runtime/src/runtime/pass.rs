//! What is passed on to servers beside calls of tools: prompts, resources, completions, tasks, log levels.
//!
//! Invariant: there is no way from here to a tool; only [`Runtime::call`] is one.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_types::ServerName;
use toolgate_upstream::offer::Kinds;
use toolgate_upstream::{Along, Followed, Params, Peer, Raw, State, Trace};

use super::{Ask, AskError, Live, Runtime};

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
        let within = along.within(spec.request_timeout.get());
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

    /// What servers tell of resources that are followed; nothing where some of that was missed.
    pub fn updates(&self) -> broadcast::Receiver<(ServerName, Option<Raw>)> {
        self.updates.subscribe()
    }

    /// What servers said has changed, once it was looked at: also where nothing is new.
    pub fn heard(&self) -> broadcast::Receiver<Kinds> {
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
        let server = &live.server.spec().name;
        loop {
            // Who fell behind missed something, says so, and hears the rest; both end with the server.
            tokio::select! {
                told = updates.recv() => match told {
                    Ok(params) => drop(self.updates.send((server.clone(), Some(params)))),
                    Err(RecvError::Lagged(_)) => drop(self.updates.send((server.clone(), None))),
                    Err(RecvError::Closed) => return std::future::pending().await,
                },
                told = told.recv() => match told {
                    Ok(kinds) => drop(self.heard.send(kinds)),
                    Err(RecvError::Lagged(_)) => drop(self.heard.send(Kinds::ALL)),
                    Err(RecvError::Closed) => return std::future::pending().await,
                },
            }
        }
    }
}
