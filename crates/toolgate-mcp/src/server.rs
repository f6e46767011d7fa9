//! Server half: decodes the requests of clients of every revision, and encodes the responses to them.
//!
//! [`McpEndpoint`] decodes HTTP requests, [`LinkSession`] the messages of a [`Link`](crate::Link): lines, WebSocket,
//! HTTP+SSE. Both do the parts that every service needs: handshake, checks per revision, sessions, cancellation, requests
//! to the client, change streams. The rest is a [`ServiceCall`] inside a [`RequestExchange`]: the user of this module
//! answers it with a future of its own, then lets the endpoint send the response. Invariant: nothing here calls a
//! service; notifications of a request are sent in order and before its response; data of one caller is never given to
//! another.

mod changes;
mod client;
mod client_queue;
mod exchange;
mod first_response;
mod hmac;
mod http;
mod incoming;
mod link_session;
mod meta;
mod request_state;
mod resumable;
mod session;
mod suspended;

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_json::{MemberName, quote, unquote};

use crate::downstream::Forwarded;
use crate::instance;
use crate::message::{MethodName, RpcError};
use crate::revision::Revision;
use crate::scan::ScanLimits;
use crate::trace::TraceContext;
use crate::{DownstreamClient, RawJson};

pub use changes::{ChangeSource, ListenRequest, SessionChanges};
pub use client::ClientHandle;
pub use exchange::RequestExchange;
pub use http::{
    GetRequest, HttpExchange, HttpReply, KEEPALIVE_INTERVAL, PostRequest, ReplyBody, RequestHead,
    ToolCallRequest, TraceSource, respond_batch, sse_event,
};
pub use incoming::{InitializeRequest, ServiceCall, SubscribeCall};
pub use link_session::{LinkRequest, LinkSession};
use request_state::StateSigner;
use resumable::ResumableStreams;
pub use session::{SessionKeys, is_of_earlier_run, random_id};
use session::{SessionRegistry, TicketSigner};
use suspended::SuspendedRequests;

/// Result of a request: a result or an error.
pub type RpcResult = Result<RawJson, RpcError>;

/// Error code: a header contradicts the body.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// Error code: unsupported protocol revision.
pub(crate) const UNSUPPORTED_REVISION: i64 = -32022;

/// Resource subscription; ends on drop.
pub type Subscription = Box<dyn Send + Sync>;

/// Server info for the handshake.
#[derive(Debug, Clone)]
pub struct ServiceInfo {
    pub name: String,
    pub version: String,
    pub capabilities: Value,
    /// Instructions for models.
    pub instructions: Option<String>,
    /// True for a gateway. It refuses itself as one of its servers.
    pub is_gateway: bool,
}

/// Change that clients are notified of.
#[derive(Debug, Clone)]
pub enum ServiceChange {
    /// The list of tools changed.
    Tools,
    /// The list of prompts changed.
    Prompts,
    /// The list of resources changed.
    Resources,
    /// A resource changed: its URI and the params of the notification.
    Resource(Box<str>, RawJson),
    /// Resource changes were lost: every subscribed resource may have changed.
    Missed,
    /// Any other notification: method and params.
    Other(Box<str>, RawJson),
}

/// Request for the service: the same shape in every revision.
pub struct ClientRequest {
    pub method: MethodName,
    members: Vec<(MemberName, RawJson)>,
    /// `_meta` members to forward.
    extra_meta: Vec<(Box<str>, RawJson)>,
    pub client: Arc<ClientHandle>,
    /// Session id, in revisions that have sessions.
    pub session: Option<Box<str>>,
    pub trace: TraceContext,
}

impl ClientRequest {
    /// Parses a member of the params.
    ///
    /// # Errors
    /// The member is missing or has another type.
    pub fn member<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, RpcError> {
        let found = self.raw_member(name).and_then(|raw| raw.parse().ok());
        found.ok_or_else(|| {
            RpcError::new(RpcError::INVALID_PARAMS, format!("`{name}` is missing or has the wrong type"))
        })
    }

    /// Returns a string member of the params.
    ///
    /// # Errors
    /// The member is missing or not a string.
    pub fn string(&self, name: &str) -> Result<Arc<str>, RpcError> {
        let found = self.members.iter().find(|(member, _)| *member == name);
        match found.and_then(|(_, value)| unquote(value.as_str())) {
            Some(text) => Ok(text.into()),
            None => self.member::<String>(name).map(Into::into),
        }
    }

    /// Returns a member of the params unchanged.
    pub fn raw_member(&self, name: &str) -> Option<RawJson> {
        self.members.iter().find(|(member, _)| *member == name).map(|(_, value)| value.clone())
    }

    /// Returns the parts to forward with the request: all params except `known`, which the caller sets itself.
    pub fn forwarded(&self, known: &[&str]) -> Forwarded {
        let members = self.members.iter().filter(|(name, _)| *name != "_meta" && !known.contains(&&**name));
        Forwarded {
            extra_params: members.map(|(name, value)| ((**name).into(), value.clone())).collect(),
            extra_meta: self.extra_meta.clone(),
            client: Some(Arc::clone(&self.client) as Arc<dyn DownstreamClient>),
        }
    }
}

/// Decodes and encodes for one service. Callers are known by their ids: each sees only its own sessions and streams.
pub struct McpEndpoint {
    limits: ScanLimits,
    signer: TicketSigner,
    sessions: Arc<SessionRegistry>,
    suspended_requests: Arc<SuspendedRequests>,
    streams: Arc<ResumableStreams>,
    states: Arc<StateSigner>,
}

impl McpEndpoint {
    /// Creates an endpoint. Client messages are parsed within `limits`; `keys` sign the ids of sessions.
    pub fn new(limits: ScanLimits, keys: &SessionKeys) -> Arc<Self> {
        Arc::new(Self {
            limits,
            signer: TicketSigner::new(keys),
            sessions: Arc::default(),
            suspended_requests: Arc::default(),
            streams: Arc::default(),
            states: Arc::new(StateSigner::new()),
        })
    }

    /// Replaces the keys that sign the ids of sessions.
    pub fn set_session_keys(&self, keys: &SessionKeys) {
        self.signer.set_keys(keys);
    }
}

impl ServiceInfo {
    /// Encodes the result of `initialize`.
    fn initialize_result(self, revision: Revision) -> RawJson {
        let Self { name, version, capabilities, instructions, is_gateway } = self;
        let mut result = json!({
            "protocolVersion": revision.name(),
            "capabilities": capabilities,
            "serverInfo": { "name": name, "version": version },
        });
        if let Some(instructions) = instructions {
            result["instructions"] = instructions.into();
        }
        if is_gateway {
            result["_meta"] = json!({ instance::MEMBER: instance::id() });
        }
        RawJson::from_value(&result)
    }

    /// Encodes the result of `server/discover`.
    pub fn discover_result(self) -> RawJson {
        let Self { name, version, capabilities, instructions, is_gateway } = self;
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": supported_revisions(),
            "capabilities": capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": name, "version": version } },
        });
        if let Some(instructions) = instructions {
            result["instructions"] = instructions.into();
        }
        if is_gateway {
            result["_meta"][instance::MEMBER] = instance::id().into();
        }
        RawJson::from_value(&result)
    }
}

/// Names of the supported revisions, newest first.
fn supported_revisions() -> Vec<&'static str> {
    Revision::all().rev().map(Revision::name).collect()
}

fn unsupported_revision(requested: &str) -> RpcError {
    RpcError {
        code: UNSUPPORTED_REVISION,
        message: "unsupported protocol revision".to_owned(),
        data: Some(RawJson::from_value(
            &json!({ "supported": supported_revisions(), "requested": requested }),
        )),
    }
}

/// Picks the revision for a handshake: the client's if supported, otherwise our newest one with a handshake.
fn negotiate(requested: Option<&str>) -> Revision {
    let known = requested.and_then(|name| name.parse::<Revision>().ok());
    known.filter(|revision| revision.has_handshake()).unwrap_or(Revision::NEWEST_WITH_HANDSHAKE)
}

/// True for methods that the newest revision no longer has.
fn is_removed_method(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "ping"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/list"
            | "tasks/result"
    )
}

fn method_not_found(method: &str) -> RpcError {
    let method: String = method.chars().take(64).collect();
    RpcError::new(RpcError::METHOD_NOT_FOUND, format!("there is no method `{method}`"))
}

/// Result members that only the newest revision has.
const NEWEST_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// Returns true if a result of this revision may have the member.
pub fn has_result_member(revision: Revision, name: &str, value: &str) -> bool {
    // Only the newest revision allows non-object structured content; the text content repeats it.
    let is_new = NEWEST_MEMBERS.contains(&name) || name == "structuredContent" && !value.starts_with('{');
    !revision.has_handshake() || !is_new
}

/// Adapts a result to a revision: adds or removes the members that only the newest one has. Services call this
/// themselves, so that they can cache the adapted result.
pub fn adapt_result(revision: Revision, result: RawJson) -> RawJson {
    if revision.has_handshake() {
        // Substring checks first: they are cheap, and few results of an older server have such members.
        let mut changing = NEWEST_MEMBERS.iter().chain(&["structuredContent"]);
        if !changing.any(|name| result.contains_short(name))
            || result.members().iter().all(|(name, value)| has_result_member(revision, name, value))
        {
            return result;
        }
        let mut out = String::with_capacity(result.as_str().len());
        for (name, value) in result.members() {
            if has_result_member(revision, &name, value) {
                out.push(if out.is_empty() { '{' } else { ',' });
                quote(&name, &mut out);
                out.push(':');
                out.push_str(value);
            }
        }
        out.push_str(if out.is_empty() { "{}" } else { "}" });
        return RawJson::from_trusted(out);
    }
    if result.contains_short("resultType") && result.members().iter().any(|(name, _)| name == "resultType") {
        return result;
    }
    let text = result.as_str();
    let Some(rest) = text.trim_start().strip_prefix('{') else { return result };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    RawJson::from_trusted(format!("{{\"resultType\":\"complete\"{comma}{rest}"))
}

#[test]
fn older_revisions_get_only_object_structured_content() {
    let adapted = |text: &str| {
        adapt_result(Revision::NEWEST_WITH_HANDSHAKE, RawJson::from_trusted(text.to_owned()))
            .as_str()
            .to_owned()
    };
    let text = r#"{"content":[{"type":"text","text":"\"structuredContent\":[1]"}]"#;
    assert_eq!(adapted(&format!(r#"{text},"structuredContent": [1]}}"#)), format!("{text}}}"));
    assert_eq!(adapted(r#"{"structuredContent":1}"#), "{}");
    let object = r#"{"content":[],"structuredContent":{"structuredContent":[1]}}"#;
    assert_eq!(adapted(object), object);
}
