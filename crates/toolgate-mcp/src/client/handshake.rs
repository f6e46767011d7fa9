//! Protocol negotiation: the `server/discover` probe of the newest revision and the `initialize` handshake of
//! older ones.
//!
//! An older server answers the probe with an error, does not answer, or exits. If it does not answer, the
//! handshake follows on the same connection; if it exits, the caller reconnects with [`ProtocolMode::Legacy`].

use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::RawJson;
use crate::downstream::DownstreamClient;
use crate::instance;
use crate::link::LinkError;
use crate::message::RpcError;
use crate::params::Params;
use crate::revision::Revision;
use crate::session::{RequestError, Session};

/// Time a server has to answer the probe before the handshake is sent as well.
const PROBE_TIMEOUT: Duration = Duration::from_millis(800);
/// Error code for an unsupported protocol revision.
const UNSUPPORTED_REVISION: i64 = -32022;

/// Revisions to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProtocolMode {
    /// The newest revision, then the ones with a handshake.
    #[default]
    Auto,
    /// Only revisions with a handshake.
    Legacy,
    /// Only this one.
    Fixed(Revision),
}

/// Server as it described itself in the handshake.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    pub revision: Revision,
    pub name: String,
    pub version: String,
    pub capabilities: RawJson,
    /// Instructions for models.
    pub instructions: Option<String>,
}

impl PeerInfo {
    /// True if the server declared the capability: `tools`, `prompts`, `resources`.
    pub fn has_capability(&self, capability: &str) -> bool {
        let capabilities: Result<std::collections::HashMap<&str, &RawValue>, _> =
            self.capabilities.parse_borrowed();
        capabilities.is_ok_and(|capabilities| capabilities.contains_key(capability))
    }

    /// True if the server announces changes of its list of `tools`, `prompts` or `resources`.
    pub fn notifies_list_changed(&self, capability: &str) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Capability {
            #[serde(default)]
            list_changed: bool,
        }
        let capabilities: Result<std::collections::HashMap<&str, &RawValue>, _> =
            self.capabilities.parse_borrowed();
        let one = capabilities.ok().and_then(|all| serde_json::from_str(all.get(capability)?.get()).ok());
        one.is_some_and(|one: Capability| one.list_changed)
    }

    /// Adds client info and capabilities to `_meta` where the revision has no handshake to declare them.
    pub(crate) fn describe_us(&self, params: &mut Params, capabilities: &serde_json::Value) {
        if !self.revision.has_handshake() {
            describe_us(params, self.revision, capabilities);
        }
    }

    /// As [`describe_us`](Self::describe_us), with the capabilities and log level of the downstream client.
    pub(crate) fn describe_client(&self, params: &mut Params, client: &dyn DownstreamClient) {
        if !self.revision.has_handshake() {
            describe_us(params, self.revision, client.capabilities());
            if let Some(level) = client.log_level() {
                params.add_meta("io.modelcontextprotocol/logLevel", &level);
            }
        }
    }
}

fn describe_us(params: &mut Params, revision: Revision, capabilities: &serde_json::Value) {
    static CLIENT_INFO: LazyLock<String> = LazyLock::new(|| client_info().to_string());
    params.add_meta_text("io.modelcontextprotocol/protocolVersion", revision.name());
    params.add_meta_fixed("io.modelcontextprotocol/clientInfo", CLIENT_INFO.as_str());
    let name = "io.modelcontextprotocol/clientCapabilities";
    match capabilities.as_object() {
        Some(none) if none.is_empty() => params.add_meta_fixed(name, "{}"),
        _ => params.add_meta(name, capabilities),
    }
}

fn client_info() -> serde_json::Value {
    json!({ "name": "toolgate", "version": env!("CARGO_PKG_VERSION") })
}

/// Reason why the handshake failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HandshakeError {
    /// The server closed the connection on the probe; a new connection without the probe may work.
    #[error("the server closed the connection when asked for the newest protocol revision")]
    ClosedOnProbe,
    /// No revision in common.
    #[error("no protocol revision in common; the server supports: {0}")]
    NoCommonRevision(String),
    /// The server is the gateway that connects to it. Its tools would be listed again and again.
    #[error("it is this gateway itself")]
    OwnGateway,
    #[error(transparent)]
    Request(#[from] RequestError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoverResult<'a> {
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
struct InitializeResult<'a> {
    protocol_version: String,
    #[serde(borrow)]
    capabilities: &'a RawValue,
    #[serde(default)]
    server_info: Implementation,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default, borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Implementation {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

impl Session {
    /// Negotiates the protocol revision within the timeout.
    pub async fn handshake(&self, mode: ProtocolMode, within: Duration) -> Result<PeerInfo, HandshakeError> {
        let negotiation = async {
            match mode {
                ProtocolMode::Legacy => self.initialize(Revision::NEWEST_WITH_HANDSHAKE, within).await,
                ProtocolMode::Auto => self.probe(within).await,
                ProtocolMode::Fixed(revision) if revision.has_handshake() => {
                    match self.initialize(revision, within).await? {
                        peer if peer.revision == revision => Ok(peer),
                        other => Err(HandshakeError::NoCommonRevision(other.revision.name().to_owned())),
                    }
                }
                ProtocolMode::Fixed(_) => self.discover(within).await?.map_err(Into::into),
            }
        };
        let peer = match timeout(within, negotiation).await {
            Ok(peer) => peer?,
            Err(_) => return Err(RequestError::TimedOut(within).into()),
        };
        self.set_peer(peer.clone());
        if peer.revision.has_handshake() {
            self.notify("notifications/initialized", Params::none()).await?;
        }
        Ok(peer)
    }

    async fn probe(&self, within: Duration) -> Result<PeerInfo, HandshakeError> {
        let discover = self.discover(within);
        tokio::pin!(discover);
        // Over HTTP every request gets a response, so a missing one means a slow server, not one that
        // ignores unknown methods.
        let probe_timeout = if self.over_http() { within / 2 } else { PROBE_TIMEOUT };
        let probed = match timeout(probe_timeout, &mut discover).await {
            Ok(probed) => probed,
            Err(_) => {
                // Either the server starts slowly or it ignores unknown methods: send the handshake as well.
                let initialize = self.initialize(Revision::NEWEST_WITH_HANDSHAKE, within);
                tokio::pin!(initialize);
                tokio::select! {
                    probed = &mut discover => match probed {
                        Ok(Ok(peer)) => return Ok(peer),
                        _ => return initialize.await,
                    },
                    peer = &mut initialize => return match peer {
                        Ok(peer) => Ok(peer),
                        // A server of the newest revision rejects the handshake after the probe.
                        Err(error) => discover.await?.map_err(|_| error),
                    },
                }
            }
        };
        match probed? {
            Ok(peer) => Ok(peer),
            Err(RequestError::Link(_)) if self.close_reason().is_some() => Err(HandshakeError::ClosedOnProbe),
            Err(
                error @ RequestError::Link(
                    LinkError::Unreachable(_)
                    | LinkError::Blocked { .. }
                    | LinkError::Tls { .. }
                    | LinkError::Redirect(_),
                ),
            ) => Err(error.into()),
            Err(RequestError::TimedOut(time)) => Err(RequestError::TimedOut(time).into()),
            // An older revision would require the same login, with a less specific error.
            Err(error @ RequestError::Link(LinkError::LoginRequired(_) | LinkError::LoginFailed(_))) => {
                Err(error.into())
            }
            // Servers reject the probe with many different codes, so any error means an older revision.
            Err(_) => self.initialize(Revision::NEWEST_WITH_HANDSHAKE, within).await,
        }
    }

    /// The outer error is final; after the inner one an older revision is tried.
    async fn discover(&self, within: Duration) -> Result<Result<PeerInfo, RequestError>, HandshakeError> {
        let ask = || {
            let mut params = Params::none();
            describe_us(&mut params, Revision::NEWEST, &self.client_capabilities());
            self.request("server/discover", params, within)
        };
        let answer = match ask().await {
            // A server that rejects the revision and lists the same one is asked a second time.
            Err(RequestError::Rpc(error))
                if offers_revision(&error, |revision| revision == Revision::NEWEST) =>
            {
                ask().await
            }
            answer => answer,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(RequestError::Rpc(error))
                if supported_revisions(&error).is_some()
                    && !offers_revision(&error, Revision::has_handshake) =>
            {
                return Err(HandshakeError::NoCommonRevision(error.message));
            }
            Err(error) => return Ok(Err(error)),
        };
        let Ok(parsed) = answer.parse_borrowed::<DiscoverResult<'_>>() else {
            let (method, reason) = ("server/discover".to_owned(), "members are missing".to_owned());
            return Ok(Err(RequestError::Malformed { method, reason }));
        };
        if !parsed.supported_versions.iter().any(|version| version == Revision::NEWEST.name()) {
            return Ok(Err(RpcError::new(UNSUPPORTED_REVISION, parsed.supported_versions.join(", ")).into()));
        }
        if instance::is_own(parsed.meta) {
            return Err(HandshakeError::OwnGateway);
        }
        let server = parsed.meta.and_then(|meta| {
            let meta: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(meta.get()).ok()?;
            serde_json::from_str::<Implementation>(meta.get("io.modelcontextprotocol/serverInfo")?.get()).ok()
        });
        let server = server.unwrap_or_default();
        Ok(Ok(PeerInfo {
            revision: Revision::NEWEST,
            name: server.name,
            version: server.version,
            capabilities: answer.slice(parsed.capabilities.get()),
            instructions: parsed.instructions,
        }))
    }

    async fn initialize(&self, revision: Revision, within: Duration) -> Result<PeerInfo, HandshakeError> {
        let params = Params::none()
            .with("protocolVersion", &revision.name())
            .with("capabilities", &self.client_capabilities())
            .with("clientInfo", &client_info());
        let answer = self.request("initialize", params, within).await?;
        let parsed: InitializeResult<'_> = answer.parse_borrowed().map_err(|error| {
            RequestError::Malformed { method: "initialize".to_owned(), reason: error.to_string() }
        })?;
        let revision: Revision = parsed.protocol_version.parse().map_err(|_| {
            HandshakeError::NoCommonRevision(parsed.protocol_version.chars().take(32).collect())
        })?;
        if !revision.has_handshake() {
            return Err(HandshakeError::NoCommonRevision(parsed.protocol_version));
        }
        if instance::is_own(parsed.meta) {
            return Err(HandshakeError::OwnGateway);
        }
        Ok(PeerInfo {
            revision,
            name: parsed.server_info.name,
            version: parsed.server_info.version,
            capabilities: answer.slice(parsed.capabilities.get()),
            instructions: parsed.instructions,
        })
    }
}

/// True if the error lists a supported revision that matches the predicate.
fn offers_revision(error: &RpcError, predicate: impl Fn(Revision) -> bool) -> bool {
    supported_revisions(error)
        .is_some_and(|names| names.iter().any(|name| name.parse().is_ok_and(&predicate)))
}

/// Returns the supported revisions that a server lists in an unsupported-revision error.
fn supported_revisions(error: &RpcError) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Data {
        supported: Vec<String>,
    }
    let data = error.data.as_ref().filter(|_| error.code == UNSUPPORTED_REVISION)?;
    data.parse::<Data>().ok().map(|data| data.supported)
}
