//! Start of a request: checks the rules of its revision, answers protocol methods, leaves the rest to the service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_json::{MemberName, object_members, unquote};

use super::client::{ClientHandle, QUEUE, is_level};
use super::client_queue::message_queue;
use super::exchange::{AnswerStep, QuestionDelivery, RequestExchange, StateSeal};
use super::http::TraceSource;
use super::meta::RequestMeta;
use super::request_state::StateScope;
use super::session::{ListKind, MAX_SUBSCRIPTIONS, SessionData, SessionRegistry, SessionTicket};
use super::{
    ClientRequest, McpEndpoint, RpcResult, ServiceInfo, Subscription, is_removed_method, method_not_found,
    negotiate, unsupported_revision,
};
use crate::RawJson;
use crate::message::{Message, MethodName, RequestId, RpcError};
use crate::revision::Revision;
use crate::trace::TraceContext;

/// Longest name of a tool or prompt.
const MAX_NAME_BYTES: usize = 256;
/// Longest URI of a resource, template of one, or id of a task.
const MAX_URI_BYTES: usize = 2 << 10;

/// Parsed client request.
pub(super) struct IncomingRequest {
    pub(super) id: RequestId,
    pub(super) method: MethodName,
    pub(super) params: Option<RawJson>,
    /// Members of `params`.
    pub(super) members: Vec<(MemberName, RawJson)>,
    pub(super) meta: RequestMeta,
    pub(super) trace: TraceContext,
}

impl IncomingRequest {
    pub(super) fn new(
        id: RequestId,
        method: MethodName,
        params: Option<RawJson>,
        outer: &TraceSource,
    ) -> Self {
        let members = params.as_ref().map(RawJson::shared_members).unwrap_or_default();
        let meta = RequestMeta::of(&members);
        let trace = meta.trace(outer);
        Self { id, method, params, members, meta, trace }
    }

    pub(super) fn member(&self, name: &str) -> Option<&RawJson> {
        self.members.iter().find(|(member, _)| *member == name).map(|(_, value)| value)
    }

    /// Rejects a name, URI or id that is too long to be one. Answers and records would repeat it.
    fn check_target(&self) -> Result<(), RpcError> {
        let check = |value: Option<&str>, member: &str, most: usize| {
            // Quoting only makes a string longer.
            let is_long = |raw: &str| raw.len() > most && unquote(raw).is_none_or(|text| text.len() > most);
            if value.is_some_and(is_long) {
                let message = format!("`{member}` is longer than {most} bytes");
                return Err(RpcError::new(RpcError::INVALID_PARAMS, message));
            }
            Ok(())
        };
        let member = |name: &str| self.member(name).map(RawJson::as_str);
        match &*self.method {
            "tools/call" | "prompts/get" => check(member("name"), "name", MAX_NAME_BYTES),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                check(member("uri"), "uri", MAX_URI_BYTES)
            }
            "completion/complete" => {
                let reference = member("ref").map(object_members).unwrap_or_default();
                let part =
                    |name: &str| reference.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
                check(part("name"), "ref.name", MAX_NAME_BYTES)?;
                check(part("uri"), "ref.uri", MAX_URI_BYTES)
            }
            method if method.starts_with("tasks/") => check(member("taskId"), "taskId", MAX_URI_BYTES),
            _ => Ok(()),
        }
    }
}

/// Client that completed the handshake.
#[derive(Clone)]
pub(super) struct ClientSession {
    pub(super) revision: Revision,
    pub(super) capabilities: Arc<Value>,
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

    /// Returns true if the client may be told of a change of a list.
    pub(super) fn may_notify(&self, kind: ListKind) -> bool {
        match self {
            Self::Connection(data) => data.lists.admit(kind),
            Self::Shared(sessions, id) => sessions.may_notify(id, kind),
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

/// Part of a request that only the service can answer.
pub enum ServiceCall {
    /// `server/discover`. The answer is [`ServiceInfo::discover_result`].
    Discover,
    /// `resources/subscribe`. The answer is [`SubscribeCall::complete`].
    Subscribe(SubscribeCall),
    /// Any other method.
    Request(ClientRequest),
}

/// Subscription to a resource, for a session.
pub struct SubscribeCall {
    pub request: ClientRequest,
    uri: String,
    data: Arc<SessionData>,
}

impl SubscribeCall {
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Stores the subscription of the service in the session.
    ///
    /// # Errors
    /// The session has too many subscriptions.
    pub fn complete(self, subscription: Subscription) -> RpcResult {
        let mut all = self.data.subscriptions.lock();
        if all.len() >= MAX_SUBSCRIPTIONS {
            return Err(RpcError::new(-32603, "too many resource subscriptions in this session"));
        }
        all.insert(self.uri.into(), subscription);
        Ok(RawJson::from_value(&json!({})))
    }
}

/// `initialize` of a client. The service describes itself for the negotiated revision.
pub struct InitializeRequest {
    pub(super) id: RequestId,
    pub(super) revision: Revision,
    pub(super) ticket: SessionTicket,
}

impl InitializeRequest {
    pub(super) fn read(
        id: RequestId,
        caller: &str,
        params: Option<&RawJson>,
    ) -> Result<Self, (RequestId, RpcError)> {
        let Some(initialize) = params.and_then(|params| params.parse::<InitializeParams>().ok()) else {
            let message = "`initialize` needs `protocolVersion` and `capabilities`";
            return Err((id, RpcError::new(RpcError::INVALID_PARAMS, message)));
        };
        let revision = negotiate(initialize.protocol_version.as_deref());
        let ticket = SessionTicket::new(caller, revision, initialize.capabilities);
        Ok(Self { id, revision, ticket })
    }

    /// The negotiated revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn response(&self, info: ServiceInfo) -> Message {
        Message::Response { id: self.id.clone(), outcome: Ok(info.initialize_result(self.revision)) }
    }
}

impl McpEndpoint {
    /// Starts a request of the newest revision. Over HTTP its headers were checked before.
    pub(super) fn start_stateless(&self, caller: &Arc<str>, request: IncomingRequest) -> RequestExchange {
        let target = request.check_target();
        let IncomingRequest { id, method, params, mut members, meta, trace } = request;
        let revision = Revision::NEWEST;
        let delivery = QuestionDelivery::AsResult {
            suspended_requests: Arc::clone(&self.suspended_requests),
            caller: Arc::clone(caller),
            method: method.clone(),
            params: params.clone(),
        };
        let rejected = |id, delivery, error| RequestExchange::completed(id, revision, delivery, Err(error));
        if let Err(error) = check_meta(&meta).and(target) {
            return rejected(id, delivery, error);
        }
        if let Some(other) = meta.version.as_deref().filter(|version| *version != revision.name()) {
            return rejected(id, delivery, unsupported_revision(other));
        }
        if is_removed_method(&method) {
            return rejected(id, delivery, method_not_found(&method));
        }
        let (out, messages) = message_queue(QUEUE);
        if &*method == "server/discover" {
            let exchange = RequestExchange::new(id, revision, delivery);
            return exchange.with_call(ServiceCall::Discover, AnswerStep::None, messages);
        }
        match self.suspended_requests.resume(caller, &method, params.as_ref()) {
            Some(Ok(running)) => return RequestExchange::running(id, revision, delivery, running),
            Some(Err(outcome)) => return RequestExchange::completed(id, revision, delivery, outcome),
            None => {}
        }
        let scope = StateScope { caller, method: &method, params: params.as_ref() };
        let unwrapped_params = match self.states.verify(scope) {
            Ok(params) => params,
            Err(error) => return rejected(id, delivery, error),
        };
        if unwrapped_params != params {
            members = unwrapped_params.as_ref().map(RawJson::shared_members).unwrap_or_default();
        }
        let client = Arc::new(ClientHandle {
            identity: next_client_id(),
            revision,
            capabilities: meta.capabilities.unwrap_or_default(),
            progress: meta.progress,
            log_level: meta.log_level,
            roots_version: 0,
            out,
            user_wait: OnceLock::new(),
            missing_capability: OnceLock::new(),
        });
        let seal = StateSeal {
            client: Arc::clone(&client),
            states: Arc::clone(&self.states),
            caller: Arc::clone(caller),
            method: method.clone(),
            params: unwrapped_params,
        };
        let (session, extra_meta) = (None, meta.extra);
        let request = ClientRequest { method, members, extra_meta, client, session, trace };
        RequestExchange::new(id, revision, delivery).with_call(
            ServiceCall::Request(request),
            AnswerStep::Seal(seal),
            messages,
        )
    }

    /// Starts a request of a client that completed the handshake.
    pub(super) fn start_in_session(
        &self,
        client_session: &ClientSession,
        request: IncomingRequest,
    ) -> RequestExchange {
        let target = request.check_target();
        let IncomingRequest { id, method, members, meta, trace, .. } = request;
        let (revision, delivery) =
            (client_session.revision, QuestionDelivery::OnStream(client_session.state.clone()));
        if let Err(error) = target {
            return RequestExchange::completed(id, revision, delivery, Err(error));
        }
        let (out, messages) = message_queue(QUEUE);
        let data = client_session.state.get();
        let client = Arc::new(ClientHandle {
            identity: client_session.identity,
            revision,
            capabilities: Arc::clone(&client_session.capabilities),
            progress: meta.progress,
            log_level: data.as_ref().and_then(|data| data.log_level()),
            roots_version: data.map_or(0, |data| data.roots_version()),
            out,
            user_wait: OnceLock::new(),
            missing_capability: OnceLock::new(),
        });
        let session = client_session.id.clone();
        let extra_meta = meta.extra;
        let request = ClientRequest { method, members, extra_meta, client, session, trace };
        let (call, step) = match session_call(client_session, request) {
            Ok(call) => call,
            Err(outcome) => return RequestExchange::completed(id, revision, delivery, outcome),
        };
        RequestExchange::new(id, revision, delivery).with_call(call, step, messages)
    }
}

/// Returns the call that answers a request in a session, or the result if it needs none.
fn session_call(
    client_session: &ClientSession,
    request: ClientRequest,
) -> Result<(ServiceCall, AnswerStep), RpcResult> {
    match &*request.method {
        "ping" => Err(Ok(RawJson::from_value(&json!({})))),
        "server/discover" | "subscriptions/listen" => Err(Err(method_not_found(&request.method))),
        // Stored for this client, and passed on to servers that support it.
        "logging/setLevel" => {
            let level: String = request.member("level").map_err(Err)?;
            if !is_level(&level) {
                return Err(Err(RpcError::new(RpcError::INVALID_PARAMS, "unknown log level in `level`")));
            }
            client_session.state.get_or_create().set_log_level(&level);
            Ok((ServiceCall::Request(request), AnswerStep::LogLevel))
        }
        "resources/subscribe" => {
            let uri: String = request.member("uri").map_err(Err)?;
            let data = client_session.state.get_or_create();
            Ok((ServiceCall::Subscribe(SubscribeCall { request, uri, data }), AnswerStep::None))
        }
        "resources/unsubscribe" => Err(unsubscribe(client_session, &request)),
        _ => Ok((ServiceCall::Request(request), AnswerStep::None)),
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

/// Params of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams {
    #[serde(default)]
    protocol_version: Option<String>,
    #[serde(default)]
    capabilities: Option<Value>,
}
