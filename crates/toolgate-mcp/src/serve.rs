//! The server's side of the protocol: requests of clients, whatever revision they speak, become requests to a
//! [`Service`].
//!
//! [`Endpoint`] answers over HTTP and on any [`Link`](crate::Link): lines, a WebSocket, the events of the first
//! revision. What every service needs is done here: the handshake and its absence, the checks of every revision,
//! sessions, cancellation, questions to the client, streams of changes. Invariant: a service sees requests of one
//! shape; what a client hears of a request comes in order and before its answer; and nothing that belongs to one
//! guest is ever given to another.

mod begin;
mod changes;
mod client;
mod conversation;
mod exchange;
mod http;
mod meta;
mod parked;
mod resumable;
mod session;
mod soon;
mod state;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};
use toolgate_types::json::{Name, quote};

use crate::behind::Along;
use crate::message::RpcError;
use crate::mirror::Mirror;
use crate::revision::Revision;
use crate::scan::Limits;
use crate::trace::Trace;
use crate::{Behind, Raw};

pub use client::Client;
pub(crate) use http::cancelled;
pub use http::{Belongs, Body, HEARTBEAT, Head, Reply, framed};
use parked::Parked;
use resumable::Streams;
pub use session::unguessable;
use session::{Sealer, Sessions};
use state::States;

/// What a service answers: a result, or an error.
pub type Outcome = Result<Raw, RpcError>;

/// A header does not say what the body says.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// The revision is not one of ours.
pub(crate) const UNSUPPORTED_REVISION: i64 = -32022;

/// Who is on the other side.
pub trait Guest: Clone + Send + Sync + 'static {
    /// What tells it from every other.
    fn id(&self) -> &str;
}

/// What is served.
pub trait Service: Send + Sync + 'static {
    /// Who it is served to.
    type Guest: Guest;

    /// What the service says of itself to a guest.
    fn about(&self, guest: &Self::Guest, revision: Revision) -> About;

    /// Answers a request. A method that it does not know is [`RpcError::METHOD_NOT_FOUND`].
    fn request(&self, guest: &Self::Guest, request: Request) -> BoxFuture<'static, Outcome>;

    /// Tells a guest what changes, from now on.
    fn changes(&self, guest: &Self::Guest) -> BoxStream<'static, Change>;

    /// Has changes of a resource told, until what is returned is dropped.
    fn subscribe(&self, guest: &Self::Guest, uri: &str)
    -> BoxFuture<'static, Result<Subscription, RpcError>>;

    /// The arguments of a tool that are mirrored in headers.
    fn mirrors(&self, guest: &Self::Guest, tool: &str) -> Vec<Mirror>;
}

/// Changes of a resource are told as long as it lives.
pub type Subscription = Box<dyn Send + Sync>;

/// What a service says of itself.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it can do.
    pub capabilities: Value,
    /// What models should know of it.
    pub instructions: Option<String>,
}

/// Something that changed.
#[derive(Debug, Clone)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// A resource: its address, and what is told of it.
    Resource(Box<str>, Raw),
    /// Changes of resources that nobody can tell of any more: each that is followed may be one.
    Missed,
    /// Something else that whoever listens may hear: a method, and its parameters.
    Other(Box<str>, Raw),
}

/// A request of a client.
pub struct Request {
    /// What is asked for.
    pub method: Box<str>,
    /// With what.
    members: Vec<(Name, Raw)>,
    /// What else its `_meta` says, to be passed on.
    others: Vec<(Box<str>, Raw)>,
    /// Who asks.
    pub client: Arc<Client>,
    /// The session it is part of, where there is one.
    pub session: Option<Box<str>>,
    /// The call it belongs to.
    pub trace: Trace,
}

impl Request {
    /// A member of the parameters.
    ///
    /// # Errors
    /// When it is not there, or of another type.
    pub fn member<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, RpcError> {
        let found = self.raw_member(name).and_then(|raw| raw.parse().ok());
        found.ok_or_else(|| {
            RpcError::new(RpcError::INVALID_PARAMS, format!("`{name}` is missing or of another type"))
        })
    }

    /// A member of the parameters, as it came.
    pub fn raw_member(&self, name: &str) -> Option<Raw> {
        self.members.iter().find(|(member, _)| *member == name).map(|(_, value)| value.clone())
    }

    /// What goes along when the request is passed on: all parameters but these, which whoever passes it on
    /// says itself.
    pub fn along(&self, known: &[&str]) -> Along {
        let members = self.members.iter().filter(|(name, _)| *name != "_meta" && !known.contains(&&**name));
        Along {
            members: members.map(|(name, value)| ((**name).into(), value.clone())).collect(),
            meta: self.others.clone(),
            client: Some(Arc::clone(&self.client) as Arc<dyn Behind>),
        }
    }
}

/// A service with all that is between it and its clients.
pub struct Endpoint<S: Service> {
    service: Arc<S>,
    limits: Limits,
    sealer: Sealer,
    sessions: Arc<Sessions>,
    parked: Arc<Parked>,
    streams: Arc<Streams>,
    states: Arc<States>,
}

impl<S: Service> Endpoint<S> {
    /// Makes a service ready to be served. Messages of clients are read within these limits.
    pub fn new(service: Arc<S>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            service,
            limits,
            sealer: Sealer::new(),
            sessions: Arc::default(),
            parked: Arc::default(),
            streams: Arc::default(),
            states: Arc::new(States::new()),
        })
    }

    /// The service.
    pub fn service(&self) -> &Arc<S> {
        &self.service
    }

    fn initialized(&self, guest: &S::Guest, revision: Revision) -> Raw {
        let About { name, version, capabilities, instructions } = self.service.about(guest, revision);
        let mut result = json!({
            "protocolVersion": revision.name(),
            "capabilities": capabilities,
            "serverInfo": { "name": name, "version": version },
        });
        if let Some(instructions) = instructions {
            result["instructions"] = instructions.into();
        }
        Raw::of(&result)
    }

    fn discovered(&self, guest: &S::Guest) -> Raw {
        let About { name, version, capabilities, instructions } = self.service.about(guest, Revision::NEWEST);
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": supported(),
            "capabilities": capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": name, "version": version } },
        });
        if let Some(instructions) = instructions {
            result["instructions"] = instructions.into();
        }
        Raw::of(&result)
    }
}

/// The names of the revisions that we speak, newest first.
fn supported() -> Vec<&'static str> {
    Revision::all().rev().map(Revision::name).collect()
}

fn unsupported(requested: &str) -> RpcError {
    RpcError {
        code: UNSUPPORTED_REVISION,
        message: "the protocol revision is not supported".to_owned(),
        data: Some(Raw::of(&json!({ "supported": supported(), "requested": requested }))),
    }
}

/// The revision that a handshake settles on: the client's where it is one of ours, else our newest with one.
fn negotiated(requested: Option<&str>) -> Revision {
    let known = requested.and_then(|name| name.parse::<Revision>().ok());
    known.filter(|revision| revision.has_handshake()).unwrap_or(Revision::NEWEST_WITH_HANDSHAKE)
}

/// Methods that the newest revision does not have any more.
fn was_removed(method: &str) -> bool {
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

fn no_method(method: &str) -> RpcError {
    let method: String = method.chars().take(64).collect();
    RpcError::new(RpcError::METHOD_NOT_FOUND, format!("there is no method `{method}`"))
}

/// Whether a result could have structured content that is no object. A look at the text, which is quick.
fn may_hold_other_than_objects(text: &str) -> bool {
    const KEY: &str = "\"structuredContent\"";
    let mut after = text.match_indices(KEY).map(|(at, _)| &text[at + KEY.len()..]);
    after.any(|after| !after.trim_start_matches([' ', '\t', '\r', '\n', ':']).starts_with('{'))
}

/// What only the newest revision says of a result.
const NEW: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// Whether a revision has a member of a result.
pub fn is_said_in(revision: Revision, name: &str, value: &str) -> bool {
    // Only the newest has structured content that is no object; its text stands beside it.
    let is_new = NEW.contains(&name) || name == "structuredContent" && !value.starts_with('{');
    !revision.has_handshake() || !is_new
}

/// A result in the words of a revision: what the newest one adds is added, or taken away. A service says its
/// results in the words of its client, which it may do once for many.
pub fn in_words_of(revision: Revision, result: Raw) -> Raw {
    let text = result.get();
    let has = |name: &str| text.contains(name) && result.members().iter().any(|(member, _)| member == name);
    if revision.has_handshake() {
        if !NEW.iter().any(|name| has(name)) && !may_hold_other_than_objects(text) {
            return result;
        }
        let mut out = String::with_capacity(text.len());
        for (name, value) in result.members() {
            if is_said_in(revision, &name, value) {
                out.push(if out.is_empty() { '{' } else { ',' });
                quote(&name, &mut out);
                out.push(':');
                out.push_str(value);
            }
        }
        out.push_str(if out.is_empty() { "{}" } else { "}" });
        return Raw::trusted(out);
    }
    if has("resultType") {
        return result;
    }
    let Some(rest) = text.trim_start().strip_prefix('{') else { return result };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    Raw::trusted(format!("{{\"resultType\":\"complete\"{comma}{rest}"))
}

#[test]
fn older_clients_get_structured_content_that_is_an_object_or_none() {
    let said = |text: &str| {
        in_words_of(Revision::NEWEST_WITH_HANDSHAKE, Raw::trusted(text.to_owned())).get().to_owned()
    };
    let text = r#"{"content":[{"type":"text","text":"\"structuredContent\":[1]"}]"#;
    assert_eq!(said(&format!(r#"{text},"structuredContent": [1]}}"#)), format!("{text}}}"));
    assert_eq!(said(r#"{"structuredContent":1}"#), "{}");
    let object = r#"{"content":[],"structuredContent":{"structuredContent":[1]}}"#;
    assert_eq!(said(object), object);
}
