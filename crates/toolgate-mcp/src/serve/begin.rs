//! How a request begins: checked by the rules of its revision, answered here where that is enough, else handed to
//! the service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolgate_types::json::Name;

use super::client::{Client, QUEUE, is_level};
use super::exchange::{Asking, Exchange, Running};
use super::http::Belongs;
use super::meta::Meta;
use super::session::{Kept, MOST_SUBSCRIPTIONS, Sessions};
use super::state::For;
use super::{Endpoint, Guest as _, Outcome, Request, Service, no_method, unsupported, was_removed};
use crate::Raw;
use crate::message::{Id, RpcError};
use crate::revision::Revision;
use crate::trace::Trace;

/// A request as it came.
pub(super) struct Came {
    pub(super) id: Id,
    pub(super) method: Box<str>,
    pub(super) params: Option<Raw>,
    /// What is in them.
    pub(super) members: Vec<(Name, Raw)>,
    pub(super) meta: Meta,
    pub(super) trace: Trace,
}

impl Came {
    /// Looked into once.
    pub(super) fn new(id: Id, method: Box<str>, params: Option<Raw>, outer: &Belongs) -> Self {
        let members = params.as_ref().map(Raw::parts).unwrap_or_default();
        let meta = Meta::of(&members);
        let trace = meta.trace(outer);
        Self { id, method, params, members, meta, trace }
    }
}

/// A client that has made a handshake.
#[derive(Clone)]
pub(super) struct Face {
    pub(super) revision: Revision,
    pub(super) capabilities: Value,
    pub(super) identity: u64,
    pub(super) session: Option<Box<str>>,
    pub(super) keeping: Keeping,
}

/// Where a session keeps what it needs.
#[derive(Clone)]
pub(super) enum Keeping {
    /// With the connection.
    Own(Arc<Kept>),
    /// In the books, from when it needs something.
    Books(Arc<Sessions>, Box<str>),
}

impl Keeping {
    pub(super) fn find(&self) -> Option<Arc<Kept>> {
        match self {
            Self::Own(kept) => Some(Arc::clone(kept)),
            Self::Books(sessions, number) => sessions.find(number),
        }
    }

    pub(super) fn keep(&self) -> Arc<Kept> {
        match self {
            Self::Own(kept) => Arc::clone(kept),
            Self::Books(sessions, number) => sessions.keep(number),
        }
    }
}

/// Numbers for clients that have no session.
static STRANGERS: AtomicU64 = AtomicU64::new(0);

pub(super) fn stranger() -> u64 {
    STRANGERS.fetch_add(1, Ordering::Relaxed)
}

/// Whether a request says of itself what the newest revision demands.
pub(super) fn check_meta(meta: &Meta) -> Result<(), RpcError> {
    let missing = match (&meta.version, &meta.capabilities) {
        (None, _) => "io.modelcontextprotocol/protocolVersion",
        (_, None) => "io.modelcontextprotocol/clientCapabilities",
        _ => return Ok(()),
    };
    Err(RpcError::new(RpcError::INVALID_PARAMS, format!("`_meta` lacks `{missing}`")))
}

impl<S: Service> Endpoint<S> {
    /// A request of the newest revision, whose headers fit, where it has some.
    pub(super) fn begin(&self, guest: &S::Guest, came: Came) -> Exchange {
        let Came { id, method, params, mut members, meta, trace } = came;
        let revision = Revision::NEWEST;
        let asking = Asking::Parked {
            parked: Arc::clone(&self.parked),
            guest: guest.id().into(),
            method: method.clone(),
            params: params.clone(),
        };
        let refused = |id, asking, error| Exchange::ended(id, revision, asking, Err(error));
        if let Err(error) = check_meta(&meta) {
            return refused(id, asking, error);
        }
        if let Some(other) = meta.version.as_deref().filter(|version| *version != revision.name()) {
            return refused(id, asking, unsupported(other));
        }
        if was_removed(&method) {
            return refused(id, asking, no_method(&method));
        }
        if &*method == "server/discover" {
            return Exchange::ended(id, revision, asking, Ok(self.discovered(guest)));
        }
        match self.parked.resume(guest.id(), &method, params.as_ref()) {
            Some(Ok(running)) => return Exchange::new(id, revision, asking, running),
            Some(Err(outcome)) => return Exchange::ended(id, revision, asking, outcome),
            None => {}
        }
        let whose = For { guest: guest.id(), method: &method, params: params.as_ref() };
        let opened = match self.states.open(whose) {
            Ok(opened) => opened,
            Err(error) => return refused(id, asking, error),
        };
        if opened != params {
            members = opened.as_ref().map(Raw::parts).unwrap_or_default();
        }
        let (out, said) = mpsc::channel(QUEUE);
        let client = Arc::new(Client {
            identity: stranger(),
            revision,
            capabilities: meta.capabilities.unwrap_or_default(),
            progress: meta.progress,
            log_level: meta.log_level,
            out,
            thought: Arc::default(),
            lacked: OnceLock::new(),
        });
        let (asked, states, of) = (Arc::clone(&client), Arc::clone(&self.states), guest.clone());
        let named = method.clone();
        let (session, others) = (None, meta.others);
        let request = Request { method, members, others, client, session, trace };
        let answer = self.service.request(guest, request);
        let answer = Box::pin(async move {
            let result = answer.await.map_err(|error| undeclared(&asked, error))?;
            if asked.is_asked_too_much(&result) {
                return Err(undeclared(&asked, RpcError::new(-32603, "it asks for what was not declared")));
            }
            let whose = For { guest: of.id(), method: &named, params: opened.as_ref() };
            Ok(states.seal(whose, result))
        });
        Exchange::new(id, revision, asking, Running { answer, said })
    }

    /// A request of a client that has made a handshake.
    pub(super) fn begin_with(&self, guest: &S::Guest, face: &Face, came: Came) -> Exchange {
        let Came { id, method, members, meta, trace, .. } = came;
        let (revision, asking) = (face.revision, Asking::Live(face.keeping.clone()));
        let (out, said) = mpsc::channel(QUEUE);
        let client = Arc::new(Client {
            identity: face.identity,
            revision,
            capabilities: face.capabilities.clone(),
            progress: meta.progress,
            log_level: face.keeping.find().and_then(|kept| kept.level()),
            out,
            thought: Arc::default(),
            lacked: OnceLock::new(),
        });
        let session = face.session.clone();
        let others = meta.others;
        let request = Request { method, members, others, client, session, trace };
        let answer = match &*request.method {
            "ping" => return Exchange::ended(id, revision, asking, Ok(Raw::of(&json!({})))),
            "server/discover" | "subscriptions/listen" => {
                return Exchange::ended(id, revision, asking, Err(no_method(&request.method)));
            }
            "logging/setLevel" => match self.set_level(guest, face, request) {
                Ok(answer) => answer,
                Err(error) => return Exchange::ended(id, revision, asking, Err(error)),
            },
            "resources/subscribe" => self.subscribe(guest, face, &request),
            "resources/unsubscribe" => {
                return Exchange::ended(id, revision, asking, unsubscribe(face, &request));
            }
            _ => self.service.request(guest, request),
        };
        Exchange::new(id, revision, asking, Running { answer, said })
    }

    /// The level is kept for this client; servers are told, where there are some that want to know.
    fn set_level(
        &self,
        guest: &S::Guest,
        face: &Face,
        request: Request,
    ) -> Result<futures_util::future::BoxFuture<'static, Outcome>, RpcError> {
        let level: String = request.member("level")?;
        if !is_level(&level) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "there is no such `level`"));
        }
        face.keeping.keep().set_level(&level);
        let told = self.service.request(guest, request);
        Ok(Box::pin(async move {
            match told.await {
                Err(error) if error.code == RpcError::METHOD_NOT_FOUND => Ok(Raw::of(&json!({}))),
                outcome => outcome,
            }
        }))
    }

    fn subscribe(
        &self,
        guest: &S::Guest,
        face: &Face,
        request: &Request,
    ) -> futures_util::future::BoxFuture<'static, Outcome> {
        let uri: String = match request.member("uri") {
            Ok(uri) => uri,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let kept = face.keeping.keep();
        let subscribing = self.service.subscribe(guest, &uri);
        Box::pin(async move {
            let subscription = subscribing.await?;
            let mut all = kept.subscriptions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if all.len() >= MOST_SUBSCRIPTIONS {
                return Err(RpcError::new(-32603, "the session is told of too many resources"));
            }
            all.insert(uri.into(), subscription);
            Ok(Raw::of(&json!({})))
        })
    }
}

fn unsubscribe(face: &Face, request: &Request) -> Outcome {
    let uri: String = request.member("uri")?;
    let kept = face.keeping.find();
    // Dropped outside of the lock: it tells the server.
    let gone = kept.and_then(|kept| {
        kept.subscriptions.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(uri.as_str())
    });
    drop(gone);
    Ok(Raw::of(&json!({})))
}

/// A request that failed because its server asked for something that the client did not declare: the newest
/// revision has a way to say so.
fn undeclared(client: &Client, error: RpcError) -> RpcError {
    let Some(lacked) = client.lacked.get() else { return error };
    let capability = lacked.as_object().and_then(|lacked| lacked.keys().next()).map_or("", String::as_str);
    RpcError {
        data: Some(Raw::of(&json!({ "requiredCapabilities": lacked }))),
        ..RpcError::new(
            RpcError::MISSING_CAPABILITY,
            format!("the request needs `{capability}`, which the client did not declare"),
        )
    }
}

/// What a client says in the handshake.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialize {
    #[serde(default)]
    pub(super) protocol_version: Option<String>,
    #[serde(default)]
    pub(super) capabilities: Option<Value>,
}

impl Initialize {
    pub(super) fn read(params: Option<&Raw>) -> Result<Self, RpcError> {
        let bad = || RpcError::new(RpcError::INVALID_PARAMS, "`protocolVersion` and `capabilities` are due");
        params.and_then(|params| params.parse().ok()).ok_or_else(bad)
    }
}
