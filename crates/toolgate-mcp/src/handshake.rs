//! Who speaks which revision: the probe for the newest, and the handshake of those before.
//!
//! A server of the newest revision answers `server/discover`; an older one answers with an error,
//! is silent, or ends. Where it is silent the handshake follows on the same connection; where it
//! ended, the caller opens another one and says [`ProtocolMode::Legacy`].

use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::Raw;
use crate::behind::Behind;
use crate::link::LinkError;
use crate::message::RpcError;
use crate::params::Params;
use crate::revision::Revision;
use crate::session::{RequestError, Session};

/// How long a server may think about the probe before the handshake is sent too.
const PATIENCE: Duration = Duration::from_millis(800);
/// The server does not speak the revision we used.
const UNSUPPORTED_REVISION: i64 = -32022;

/// Which revisions are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProtocolMode {
    /// The newest, then those with a handshake.
    #[default]
    Auto,
    /// The newest only.
    Modern,
    /// Those with a handshake only.
    Legacy,
}

/// A server, as it introduced itself.
#[derive(Debug, Clone)]
pub struct Peer {
    /// What it speaks.
    pub revision: Revision,
    /// Its name and version, as it gives them.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it can do.
    pub capabilities: Raw,
    /// What it wants models to know.
    pub instructions: Option<String>,
}

impl Peer {
    /// Whether it has a capability: `tools`, `prompts`, `resources`.
    pub fn has(&self, capability: &str) -> bool {
        let capabilities: Result<std::collections::HashMap<&str, &RawValue>, _> = self.capabilities.look();
        capabilities.is_ok_and(|capabilities| capabilities.contains_key(capability))
    }

    /// Whether it tells when its list of `tools`, `prompts` or `resources` changes.
    pub fn tells_of_changes(&self, capability: &str) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Capability {
            #[serde(default)]
            list_changed: bool,
        }
        let capabilities: Result<std::collections::HashMap<&str, &RawValue>, _> = self.capabilities.look();
        let one = capabilities.ok().and_then(|all| serde_json::from_str(all.get(capability)?.get()).ok());
        one.is_some_and(|one: Capability| one.list_changed)
    }

    /// Without a handshake every request says who asks.
    pub(crate) fn describe_us(&self, params: &mut Params, capabilities: &serde_json::Value) {
        if !self.revision.has_handshake() {
            describe_us(params, self.revision, capabilities);
        }
    }

    /// The same for the client that a request is passed on for: what it can be asked for is its own.
    pub(crate) fn describe_client(&self, params: &mut Params, client: &dyn Behind) {
        if !self.revision.has_handshake() {
            describe_us(params, self.revision, client.capabilities());
            if let Some(level) = client.log_level() {
                params.meta("io.modelcontextprotocol/logLevel", &level);
            }
        }
    }
}

fn describe_us(params: &mut Params, revision: Revision, capabilities: &serde_json::Value) {
    static CLIENT_INFO: LazyLock<String> = LazyLock::new(|| client_info().to_string());
    params.meta_text("io.modelcontextprotocol/protocolVersion", revision.name());
    params.meta_fixed("io.modelcontextprotocol/clientInfo", CLIENT_INFO.as_str());
    let name = "io.modelcontextprotocol/clientCapabilities";
    match capabilities.as_object() {
        Some(none) if none.is_empty() => params.meta_fixed(name, "{}"),
        _ => params.meta(name, capabilities),
    }
}

fn client_info() -> serde_json::Value {
    json!({ "name": "toolgate", "version": env!("CARGO_PKG_VERSION") })
}

/// Why a server did not introduce itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HandshakeError {
    /// It ended when it was probed; another connection without the probe may do.
    #[error("the server ended when it was asked for the newest protocol revision")]
    EndedOnProbe,
    /// It speaks nothing that we speak.
    #[error("the server speaks revisions that we do not know: {0}")]
    NoCommonRevision(String),
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered<'a> {
    supported_versions: Vec<String>,
    #[serde(borrow)]
    capabilities: &'a RawValue,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default, borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized<'a> {
    protocol_version: String,
    #[serde(borrow)]
    capabilities: &'a RawValue,
    #[serde(default)]
    server_info: Implementation,
    #[serde(default)]
    instructions: Option<String>,
}

#[derive(Default, Deserialize)]
struct Implementation {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

impl Session {
    /// Gets to know the server, within a time.
    pub async fn introduce(&self, mode: ProtocolMode, within: Duration) -> Result<Peer, HandshakeError> {
        let introduction = async {
            match mode {
                ProtocolMode::Modern => self.discover(within).await?.map_err(Into::into),
                ProtocolMode::Legacy => self.initialize(within).await,
                ProtocolMode::Auto => self.probe(within).await,
            }
        };
        let peer = match timeout(within, introduction).await {
            Ok(peer) => peer?,
            Err(_) => return Err(RequestError::TimedOut(within).into()),
        };
        self.set_peer(peer.clone());
        if peer.revision.has_handshake() {
            self.notify("notifications/initialized", Params::none()).await?;
        }
        Ok(peer)
    }

    async fn probe(&self, within: Duration) -> Result<Peer, HandshakeError> {
        let discover = self.discover(within);
        tokio::pin!(discover);
        // Over HTTP every request has its answer: one that takes long says that the server is slow, and
        // not that it passes over what it does not know.
        let patience = if self.over_http() { within / 2 } else { PATIENCE };
        let probed = match timeout(patience, &mut discover).await {
            Ok(probed) => probed,
            Err(_) => {
                // Slow to start, or one that passes over what it does not know: ask both ways.
                let initialize = self.initialize(within);
                tokio::pin!(initialize);
                tokio::select! {
                    probed = &mut discover => match probed {
                        Ok(Ok(peer)) => return Ok(peer),
                        _ => return initialize.await,
                    },
                    peer = &mut initialize => return match peer {
                        Ok(peer) => Ok(peer),
                        // One of the newest revision refuses the handshake after the probe.
                        Err(error) => discover.await?.map_err(|_| error),
                    },
                }
            }
        };
        match probed? {
            Ok(peer) => Ok(peer),
            Err(RequestError::Link(_)) if self.ended().is_some() => Err(HandshakeError::EndedOnProbe),
            Err(
                error @ RequestError::Link(
                    LinkError::Unreachable(_) | LinkError::Tls { .. } | LinkError::Redirect(_),
                ),
            ) => Err(error.into()),
            Err(RequestError::TimedOut(time)) => Err(RequestError::TimedOut(time).into()),
            // An older one would want the same, and says no more about it.
            Err(error @ RequestError::Link(LinkError::Login(_) | LinkError::LoginFailed(_))) => {
                Err(error.into())
            }
            // Not keyed on one code: every answer that is not of the newest revision means an older one.
            Err(_) => self.initialize(within).await,
        }
    }

    /// The outer error is final; the inner one may mean an older server.
    async fn discover(&self, within: Duration) -> Result<Result<Peer, RequestError>, HandshakeError> {
        let ask = || {
            let mut params = Params::none();
            describe_us(&mut params, Revision::NEWEST, &self.our_capabilities());
            self.request("server/discover", params, within)
        };
        let answer = match ask().await {
            // A server that refuses the revision and names the same one wants to be asked again.
            Err(RequestError::Rpc(error)) if offers(&error, |revision| revision == Revision::NEWEST) => {
                ask().await
            }
            answer => answer,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(RequestError::Rpc(error))
                if supported(&error).is_some() && !offers(&error, Revision::has_handshake) =>
            {
                return Err(HandshakeError::NoCommonRevision(error.message));
            }
            Err(error) => return Ok(Err(error)),
        };
        let Ok(found) = answer.look::<Discovered<'_>>() else {
            let (method, what) = ("server/discover".to_owned(), "members are missing".to_owned());
            return Ok(Err(RequestError::Malformed { method, what }));
        };
        if !found.supported_versions.iter().any(|version| version == Revision::NEWEST.name()) {
            return Ok(Err(RpcError::new(UNSUPPORTED_REVISION, found.supported_versions.join(", ")).into()));
        }
        let server = found.meta.and_then(|meta| {
            let meta: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(meta.get()).ok()?;
            serde_json::from_str::<Implementation>(meta.get("io.modelcontextprotocol/serverInfo")?.get()).ok()
        });
        let server = server.unwrap_or_default();
        Ok(Ok(Peer {
            revision: Revision::NEWEST,
            name: server.name,
            version: server.version,
            capabilities: answer.slice(found.capabilities.get()),
            instructions: found.instructions,
        }))
    }

    async fn initialize(&self, within: Duration) -> Result<Peer, HandshakeError> {
        let params = Params::none()
            .with("protocolVersion", &Revision::NEWEST_WITH_HANDSHAKE.name())
            .with("capabilities", &self.our_capabilities())
            .with("clientInfo", &client_info());
        let answer = self.request("initialize", params, within).await?;
        let found: Initialized<'_> = answer.look().map_err(|error| RequestError::Malformed {
            method: "initialize".to_owned(),
            what: error.to_string(),
        })?;
        let revision: Revision = found.protocol_version.parse().map_err(|_| {
            HandshakeError::NoCommonRevision(found.protocol_version.chars().take(32).collect())
        })?;
        if !revision.has_handshake() {
            return Err(HandshakeError::NoCommonRevision(found.protocol_version));
        }
        Ok(Peer {
            revision,
            name: found.server_info.name,
            version: found.server_info.version,
            capabilities: answer.slice(found.capabilities.get()),
            instructions: found.instructions,
        })
    }
}

/// Whether the list of revisions in the error holds such a one.
fn offers(error: &RpcError, such: impl Fn(Revision) -> bool) -> bool {
    supported(error).is_some_and(|names| names.iter().any(|name| name.parse().is_ok_and(&such)))
}

/// The revisions that a server speaks, where it refuses one and says so.
fn supported(error: &RpcError) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Data {
        supported: Vec<String>,
    }
    let data = error.data.as_ref().filter(|_| error.code == UNSUPPORTED_REVISION)?;
    data.parse::<Data>().ok().map(|data| data.supported)
}
