//! Start of a request: checks the rules of its revision, answers protocol methods, passes the rest to the service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolgate_json::MemberName;

use super::client::{ClientHandle, QUEUE, is_level};
use super::exchange::{QuestionDelivery, RequestExchange, RunningRequest};
use super::http::TraceSource;
use super::meta::RequestMeta;
use super::request_state::StateScope;
use super::session::{MAX_SUBSCRIPTIONS, SessionData, SessionRegistry};
use super::{
    CallerIdentity as _, ClientRequest, McpEndpoint, RpcResult, Service, is_removed_method, method_not_found,
    unsupported_revision,
};
use crate::RawJson;
use crate::message::{RequestId, RpcError};
use crate::revision::Revision;
use crate::trace::TraceContext;

/// Parsed client request.
pub(super) struct IncomingRequest {
    pub(super) id: RequestId,
    pub(super) method: Box<str>,
    pub(super) params: Option<RawJson>,
    /// Members of `params`.
    pub(super) members: Vec<(MemberName, RawJson)>,
    pub(super) meta: RequestMeta,
    pub(super) trace: TraceContext,
}

impl IncomingRequest {
    pub(super) fn new(id: RequestId, method: Box<str>, params: Option<RawJson>, outer: &TraceSource) -> Self {
        let members = params.as_ref().map(RawJson::shared_members).unwrap_or_default();
        let meta = RequestMeta::of(&members);
        let trace = meta.trace(outer);
        Self { id, method, params, members, meta, trace }
    }
}

/// Client that completed the handshake.
#[derive(Clone)]
pub(super) struct ClientSession {
    pub(super) revision: Revision,
    pub(super) capabilities: Value,
    pub(super) identity: u64,
    pub(super) id: Option<Box<str>>,
    pub(super) state: SessionState,
}

/// Location of a session's mutable state.
#[derive(Clone)]
pub(super) enum SessionState {
    /// Owned by the connection.
    Connection(Arc<SessionData>),
    /// In the registry under the session id; created on first use.
    Shared(Arc<SessionRegistry>, Box<str>),
}

impl SessionState {
    pub(super) fn get(&self) -> Option<Arc<SessionData>> {
        match self {
            Self::Connection(data) => Some(Arc::clone(data)),
            Self::Shared(sessions, id) => sessions.get(id),
        }
    }

    pub(super) fn get_or_create(&self) -> Arc<SessionData> {
        match self {
            Self::Connection(data) => Arc::clone(data),
            Self::Shared(sessions, id) => sessions.get_or_create(id),
        }
    }
}

/// Ids for clients without a session.
static NEXT_CLIENT_ID: AtomicU64 = AtomicU64::new(0);

pub(super) fn next_client_id() -> u64 {
    NEXT_CLIENT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Checks the `_meta` members that the newest revision requires.
pub(super) fn check_meta(meta: &RequestMeta) -> Result<(), RpcError> {
    let missing = match (&meta.version, &meta.capabilities) {
        (None, _) => "io.modelcontextprotocol/protocolVersion",
        (_, None) => "io.modelcontextprotocol/clientCapabilities",
        _ => return Ok(()),
    };
    Err(RpcError::new(RpcError::INVALID_PARAMS, format!("`_meta` lacks `{missing}`")))
}

impl<S: Service> McpEndpoint<S> {
    /// Starts a request of the newest revision. Over HTTP its headers were checked before.
    pub(super) fn start_stateless(&self, caller: &S::Caller, request: IncomingRequest) -> RequestExchange {
        let IncomingRequest { id, method, params, mut members, meta, trace } = request;
        let revision = Revision::NEWEST;
        let delivery = QuestionDelivery::AsResult {
            suspended_requests: Arc::clone(&self.suspended_requests),
            caller: caller.id().into(),
            method: method.clone(),
            params: params.clone(),
        };
        let rejected = |id, delivery, error| RequestExchange::completed(id, revision, delivery, Err(error));
        if let Err(error) = check_meta(&meta) {
            return rejected(id, delivery, error);
        }
        if let Some(other) = meta.version.as_deref().filter(|version| *version != revision.name()) {
            return rejected(id, delivery, unsupported_revision(other));
        }
        if is_removed_method(&method) {
            return rejected(id, delivery, method_not_found(&method));
        }
        if &*method == "server/discover" {
            return RequestExchange::completed(id, revision, delivery, Ok(self.discover_result(caller)));
        }
        match self.suspended_requests.resume(caller.id(), &method, params.as_ref()) {
            Some(Ok(running)) => return RequestExchange::new(id, revision, delivery, running),
            Some(Err(outcome)) => return RequestExchange::completed(id, revision, delivery, outcome),
            None => {}
        }
        let scope = StateScope { caller: caller.id(), method: &method, params: params.as_ref() };
        let unwrapped_params = match self.states.verify(scope) {
            Ok(params) => params,
            Err(error) => return rejected(id, delivery, error),
        };
        if unwrapped_params != params {
            members = unwrapped_params.as_ref().map(RawJson::shared_members).unwrap_or_default();
        }
        let (out, messages) = mpsc::channel(QUEUE);
        let client = Arc::new(ClientHandle {
            identity: next_client_id(),
            revision,
            capabilities: meta.capabilities.unwrap_or_default(),
            progress: meta.progress,
            log_level: meta.log_level,
            out,
            user_wait: Arc::default(),
            missing_capability: OnceLock::new(),
        });
        let (asked_client, states, owner) = (Arc::clone(&client), Arc::clone(&self.states), caller.clone());
        let scope_method = method.clone();
        let (session, extra_meta) = (None, meta.extra);
        let request = ClientRequest { method, members, extra_meta, client, session, trace };
        let answer = self.service.request(caller, request);
        let answer = Box::pin(async move {
            let result = answer.await.map_err(|error| missing_capability_error(&asked_client, error))?;
            if asked_client.lacks_requested_capability(&result) {
                return Err(missing_capability_error(
                    &asked_client,
                    RpcError::new(-32603, "the server asks for an undeclared capability"),
                ));
            }
            let scope =
                StateScope { caller: owner.id(), method: &scope_method, params: unwrapped_params.as_ref() };
            Ok(states.sign(scope, result))
        });
        RequestExchange::new(id, revision, delivery, RunningRequest { answer, messages })
    }

    /// Starts a request of a client that completed the handshake.
    pub(super) fn start_in_session(
        &self,
        caller: &S::Caller,
        client_session: &ClientSession,
        request: IncomingRequest,
    ) -> RequestExchange {
        let IncomingRequest { id, method, members, meta, trace, .. } = request;
        let (revision, delivery) =
            (client_session.revision, QuestionDelivery::OnStream(client_session.state.clone()));
        let (out, messages) = mpsc::channel(QUEUE);
        let client = Arc::new(ClientHandle {
            identity: client_session.identity,
            revision,
            capabilities: client_session.capabilities.clone(),
            progress: meta.progress,
            log_level: client_session.state.get().and_then(|data| data.log_level()),
            out,
            user_wait: Arc::default(),
            missing_capability: OnceLock::new(),
        });
        let session = client_session.id.clone();
        let extra_meta = meta.extra;
        let request = ClientRequest { method, members, extra_meta, client, session, trace };
        let answer = match &*request.method {
            "ping" => {
                return RequestExchange::completed(
                    id,
                    revision,
                    delivery,
                    Ok(RawJson::from_value(&json!({}))),
                );
            }
            "server/discover" | "subscriptions/listen" => {
                return RequestExchange::completed(
                    id,
                    revision,
                    delivery,
                    Err(method_not_found(&request.method)),
                );
            }
            "logging/setLevel" => match self.set_level(caller, client_session, request) {
                Ok(answer) => answer,
                Err(error) => return RequestExchange::completed(id, revision, delivery, Err(error)),
            },
            "resources/subscribe" => self.subscribe(caller, client_session, &request),
            "resources/unsubscribe" => {
                return RequestExchange::completed(
                    id,
                    revision,
                    delivery,
                    unsubscribe(client_session, &request),
                );
            }
            _ => self.service.request(caller, request),
        };
        RequestExchange::new(id, revision, delivery, RunningRequest { answer, messages })
    }

    /// Stores the log level for this client and passes it on to servers that support it.
    fn set_level(
        &self,
        caller: &S::Caller,
        client_session: &ClientSession,
        request: ClientRequest,
    ) -> Result<futures_util::future::BoxFuture<'static, RpcResult>, RpcError> {
        let level: String = request.member("level")?;
        if !is_level(&level) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "unknown log level in `level`"));
        }
        client_session.state.get_or_create().set_log_level(&level);
        let forwarded = self.service.request(caller, request);
        Ok(Box::pin(async move {
            match forwarded.await {
                Err(error) if error.code == RpcError::METHOD_NOT_FOUND => Ok(RawJson::from_value(&json!({}))),
                outcome => outcome,
            }
        }))
    }

    fn subscribe(
        &self,
        caller: &S::Caller,
        client_session: &ClientSession,
        request: &ClientRequest,
    ) -> futures_util::future::BoxFuture<'static, RpcResult> {
        let uri: String = match request.member("uri") {
            Ok(uri) => uri,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let data = client_session.state.get_or_create();
        let subscribing = self.service.subscribe(caller, &uri);
        Box::pin(async move {
            let subscription = subscribing.await?;
            let mut all = data.subscriptions.lock();
            if all.len() >= MAX_SUBSCRIPTIONS {
                return Err(RpcError::new(-32603, "too many resource subscriptions in this session"));
            }
            all.insert(uri.into(), subscription);
            Ok(RawJson::from_value(&json!({})))
        })
    }
}

fn unsubscribe(client_session: &ClientSession, request: &ClientRequest) -> RpcResult {
    let uri: String = request.member("uri")?;
    let data = client_session.state.get();
    // Dropped outside the lock: dropping notifies the server.
    let removed = data.and_then(|data| data.subscriptions.lock().remove(uri.as_str()));
    drop(removed);
    Ok(RawJson::from_value(&json!({})))
}

/// Replaces an error by [`RpcError::MISSING_CAPABILITY`] if a server needed a capability that the client did not
/// declare.
fn missing_capability_error(client: &ClientHandle, error: RpcError) -> RpcError {
    let Some(missing_capability) = client.missing_capability.get() else { return error };
    let capability = missing_capability
        .as_object()
        .and_then(|missing_capability| missing_capability.keys().next())
        .map_or("", String::as_str);
    RpcError {
        data: Some(RawJson::from_value(&json!({ "requiredCapabilities": missing_capability }))),
        ..RpcError::new(
            RpcError::MISSING_CAPABILITY,
            format!("the request needs `{capability}`, which the client did not declare"),
        )
    }
}

/// Params of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeParams {
    #[serde(default)]
    pub(super) protocol_version: Option<String>,
    #[serde(default)]
    pub(super) capabilities: Option<Value>,
}

impl InitializeParams {
    pub(super) fn read(params: Option<&RawJson>) -> Result<Self, RpcError> {
        let invalid = || {
            RpcError::new(RpcError::INVALID_PARAMS, "`initialize` needs `protocolVersion` and `capabilities`")
        };
        params.and_then(|params| params.parse().ok()).ok_or_else(invalid)
    }
}
