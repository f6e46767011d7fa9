//! The MCP service: answers client requests from the catalog, through the pipeline, or from the server that owns them.
//!
//! Tool calls, prompts, resources, completions and tasks take [`Runtime::execute`](toolgate_runtime::Runtime::execute)
//! and no other path. Invariant: items a caller may not use are in no list, and requests for them fail as if they did
//! not exist.

mod call;
mod changes;
mod hints;
mod items;
mod lists;
mod profile;
mod programs;
mod search;
mod tasks;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value, json};
use toolgate_mcp::mirror::HeaderMirror;
use toolgate_mcp::server::{
    ChangeSource, ClientRequest, RequestExchange, RpcResult, ServiceCall, ServiceChange, ServiceInfo,
    Subscription, is_of_earlier_run,
};
use toolgate_mcp::{Forwarded, RawJson, Revision, RpcError, TraceContext};
use toolgate_runtime::catalog::Upstream;
use toolgate_runtime::runtime::AccessRules;
use toolgate_runtime::{
    CallOutcome, DownstreamClient, ListFilter, ListRequest, ListViewer, Operation, Runtime, SessionId,
};
use toolgate_types::profile::ProfileName;
use toolgate_types::tool::Permission;
use toolgate_types::{Caller, ErrorCode};

use crate::lifecycle::{Lifecycle, Phase};
use crate::response;
use lists::ListCache;
use profile::ViewCache;

/// Key of hints and metadata in `_meta`.
pub(crate) const RESULT_KEY: &str = "toolgate/result";
/// Maximum length of the combined instructions of all servers.
const MAX_INSTRUCTIONS: usize = 16 << 10;

/// An MCP client, as its authenticated caller and profile.
#[derive(Clone)]
pub(crate) struct McpCaller {
    pub(crate) caller: Arc<Caller>,
    /// The requested profile, if any.
    profile: Option<ProfileName>,
    /// Session identity, if the caller id alone is not enough.
    id: Option<Arc<str>>,
    /// Permissions a call lacked. Recorded only for callers whose token could get more scopes.
    missing: Option<Arc<OnceLock<Vec<Permission>>>>,
    /// True if the person at the client may approve calls.
    client_approves: bool,
    /// The callers and the policy that decide on its calls; those in use, if there are none.
    access: Option<Arc<AccessRules>>,
}

impl McpCaller {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self {
            caller: Arc::clone(caller),
            profile: None,
            id: None,
            missing: None,
            client_approves: false,
            access: None,
        }
    }

    /// Creates a caller whose permissions come from the scopes of its token.
    pub(crate) fn limited_by_scopes(caller: &Arc<Caller>) -> Self {
        Self { missing: Some(Arc::default()), ..Self::new(caller) }
    }

    /// Limits the caller to a profile. Sessions of one profile are separate from those of another.
    pub(crate) fn with_profile(self, profile: Option<ProfileName>) -> Self {
        let id = profile.as_ref().map(|profile| format!("{}#{profile}", self.caller.id).into());
        Self { profile, id, ..self }
    }

    /// Lets the person at the client approve calls: the client runs on this machine, for the owner of the project.
    pub(crate) fn with_client_approvals(self) -> Self {
        Self { client_approves: true, ..self }
    }

    /// Has its calls decided by these callers and this policy.
    pub(crate) fn with_access(self, access: Option<Arc<AccessRules>>) -> Self {
        Self { access, ..self }
    }

    /// Id under which its sessions and streams are known.
    pub(crate) fn id(&self) -> &Arc<str> {
        self.id.as_ref().unwrap_or_else(|| self.caller.id.shared())
    }

    /// Permissions its call lacked.
    pub(crate) fn missing_permissions(&self) -> Option<&[Permission]> {
        self.missing.as_ref()?.get().map(Vec::as_slice)
    }

    /// Records the permissions a call lacked.
    fn record_missing(&self, called: &CallOutcome) {
        if let Some(missing) = &self.missing
            && let Some(permissions) = response::missing_permissions(called)
        {
            let _ = missing.set(permissions.to_vec());
        }
    }
}

/// The MCP service behind every MCP transport.
#[derive(Clone)]
pub(crate) struct McpService {
    runtime: Arc<Runtime>,
    lifecycle: Arc<Lifecycle>,
    list_cache: Arc<ListCache>,
    view_cache: Arc<ViewCache>,
}

impl McpService {
    pub(crate) fn new(runtime: &Arc<Runtime>, lifecycle: &Arc<Lifecycle>) -> Self {
        Self {
            runtime: Arc::clone(runtime),
            lifecycle: Arc::clone(lifecycle),
            list_cache: Arc::default(),
            view_cache: Arc::default(),
        }
    }

    /// Returns true if the configuration in use has the caller.
    pub(crate) fn is_configured(&self, mcp_caller: &McpCaller) -> bool {
        self.runtime.caller(mcp_caller.caller.id.as_str()).is_some()
    }

    /// Returns a caller that was found by its name with its rights of now, and the policy of the same configuration. `None`
    /// if the configuration had it before (`was_configured`) and does not have it any more.
    pub(crate) fn with_current_rights(
        &self,
        mcp_caller: &McpCaller,
        was_configured: bool,
    ) -> Option<McpCaller> {
        let access = self.runtime.access_rules();
        let caller = match access.caller(mcp_caller.caller.id.as_str()) {
            Some(now) if now.has_same_rights(&mcp_caller.caller) => Arc::clone(&mcp_caller.caller),
            Some(now) => {
                Arc::new(Caller { credential: mcp_caller.caller.credential.clone(), ..Caller::clone(now) })
            }
            None if was_configured => return None,
            None => Arc::clone(&mcp_caller.caller),
        };
        Some(McpCaller { caller, access: Some(access), ..mcp_caller.clone() })
    }

    /// Answers the call of an exchange, if it has one. The response is driven afterwards.
    pub(crate) fn answer(&self, mcp_caller: &McpCaller, exchange: &mut RequestExchange) {
        if let Some(call) = exchange.take_call() {
            exchange.answer(self.clone().answer_call(mcp_caller.clone(), call));
        }
    }

    /// Answers a call. Tool calls have a future of their own, because that of all other requests is larger.
    fn answer_call(self, mcp_caller: McpCaller, call: ServiceCall) -> BoxFuture<'static, RpcResult> {
        match call {
            ServiceCall::Request(request) if &*request.method == "tools/call" => {
                Box::pin(self.call_tool(mcp_caller, request))
            }
            call => Box::pin(self.answer_other(mcp_caller, call)),
        }
    }

    async fn call_tool(self, mcp_caller: McpCaller, request: ClientRequest) -> RpcResult {
        let _call_permit = self.begin_call().await?;
        self.call(&mcp_caller, request).await
    }

    /// Returns a permit for a call, unless the gateway is stopping.
    async fn begin_call(&self) -> Result<impl Sized + use<>, RpcError> {
        let stopping = |_| RpcError::new(-32603, "the gateway is stopping and accepts no new requests");
        self.lifecycle.begin_call_when_open().await.map_err(stopping)
    }

    async fn answer_other(self, mcp_caller: McpCaller, call: ServiceCall) -> RpcResult {
        match call {
            ServiceCall::Request(request) => self.dispatch(mcp_caller, request).await,
            ServiceCall::Discover => {
                self.lifecycle.wait_until_open().await;
                Ok(self.info(&mcp_caller, Revision::NEWEST).discover_result())
            }
            ServiceCall::Subscribe(call) => {
                let operation = self.subscription(&mcp_caller, &call.request, call.uri());
                let subscription = self.subscribe(&mcp_caller, operation).await?;
                call.complete(subscription)
            }
        }
    }

    async fn dispatch(self, mcp_caller: McpCaller, request: ClientRequest) -> RpcResult {
        let _call_permit = self.begin_call().await?;
        match &*request.method {
            "tools/list" => self.server_list(&mcp_caller, &request, Self::tools).await,
            "prompts/list" => self.server_list(&mcp_caller, &request, Self::prompts).await,
            "prompts/get" => self.prompt(&mcp_caller, request).await,
            "resources/list" => self.server_list(&mcp_caller, &request, Self::resources).await,
            "resources/templates/list" => self.server_list(&mcp_caller, &request, Self::templates).await,
            "resources/read" => self.resource(&mcp_caller, request).await,
            "completion/complete" => self.complete(&mcp_caller, request).await,
            "logging/setLevel" => self.set_level(&mcp_caller, &request).await,
            method if method.starts_with("tasks/") => self.task_request(&mcp_caller, request).await,
            method => {
                let method: String = method.chars().take(64).collect();
                Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("there is no method `{method}`")))
            }
        }
    }

    /// Answers a request for a list of items of servers, limited to those that the servers list to the client.
    async fn server_list<T>(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        render: impl FnOnce(&Self, &McpCaller, &ClientRequest, &ListFilter) -> T,
    ) -> T {
        let lists = self.list_filter(mcp_caller, request).await;
        let render = |service: &Self, caller: &McpCaller, request: &ClientRequest| {
            render(service, caller, request, &lists)
        };
        self.list(mcp_caller, request, render).await
    }

    /// Reads the lists of the servers that may list less to this client than to others.
    async fn list_filter(&self, mcp_caller: &McpCaller, request: &ClientRequest) -> ListFilter {
        let client = Arc::clone(&request.client) as Arc<dyn DownstreamClient>;
        let (caller, session) = (&*mcp_caller.caller, request.session.as_deref());
        // Boxed, because it is rarely more than a look at each server.
        Box::pin(self.runtime.list_filter(ListViewer { caller, session, client: Some(&client) })).await
    }

    /// Answers a request for a list, and records it.
    async fn list<T>(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        render: impl FnOnce(&Self, &McpCaller, &ClientRequest) -> T,
    ) -> T {
        let list = ListRequest {
            name: &request.method,
            arguments: RawJson::from_trusted("{}".to_owned()),
            trace: &request.trace,
            session: request.session.as_deref().map(issued_session),
        };
        self.runtime.list(&mcp_caller.caller, list, || render(self, mcp_caller, request)).await
    }

    /// Returns name, version and capabilities for a caller.
    pub(crate) fn info(&self, mcp_caller: &McpCaller, revision: Revision) -> ServiceInfo {
        let peers = self.runtime.peers();
        let (mut extensions, mut tasks) = (Map::new(), None);
        let mut completions = false;
        for (_, peer) in &peers {
            let own: Value = peer.capabilities.parse().unwrap_or_default();
            completions |= own.get("completions").is_some();
            // Tasks of the two protocol eras are incompatible, so each is offered only to clients of its era.
            if peer.revision.has_handshake() {
                tasks = tasks.or_else(|| own.get("tasks").cloned());
            } else if let Some(Value::Object(offered)) = own.get("extensions") {
                extensions.extend(offered.clone());
            }
        }
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "logging": {},
        });
        if completions {
            capabilities["completions"] = json!({});
        }
        if let Some(mut tasks) = tasks.filter(|_| revision == Revision::V2025_11_25) {
            // The list comes from our own registry, even if the server has none.
            tasks["list"] = json!({});
            capabilities["tasks"] = tasks;
        }
        if !extensions.is_empty() && !revision.has_handshake() {
            capabilities["extensions"] = extensions.into();
        }
        ServiceInfo {
            name: "toolgate".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities,
            instructions: self.instructions(mcp_caller),
            is_gateway: true,
        }
    }

    /// Closes the connections to servers of a session that has ended.
    pub(crate) fn end_session(&self, mcp_caller: &McpCaller, session: &str) {
        self.runtime.end_session(&mcp_caller.caller.id, session);
    }

    /// Streams changes visible to a caller, starting now, or when the gateway opens: until then it has no lists, and
    /// clients that come back after a restart must not take its servers for new ones.
    pub(crate) fn changes(&self, mcp_caller: &McpCaller) -> BoxStream<'static, ServiceChange> {
        let (service, mcp_caller) = (self.clone(), mcp_caller.clone());
        if self.lifecycle.phase() > Phase::Starting {
            return changes::stream(service, mcp_caller);
        }
        let opened = async move {
            service.lifecycle.wait_until_open().await;
            changes::stream(service, mcp_caller)
        };
        Box::pin(futures_util::stream::once(opened).flatten())
    }

    /// Subscribes to resources, and streams the changes visible to a caller.
    pub(crate) async fn change_source(
        self,
        mcp_caller: McpCaller,
        uris: Vec<String>,
        trace: TraceContext,
    ) -> ChangeSource {
        // Before the subscriptions, so that no change is missed.
        let (changes, mut subscriptions) = (self.changes(&mcp_caller), HashMap::new());
        for uri in uris {
            let operation = Operation::subscription(&uri).with_trace(trace.clone());
            if let Ok(subscription) = self.subscribe(&mcp_caller, operation).await {
                subscriptions.insert(uri, subscription);
            }
        }
        ChangeSource { changes, subscriptions }
    }

    /// The subscription that a request in a session asks for.
    fn subscription(&self, mcp_caller: &McpCaller, request: &ClientRequest, uri: &str) -> Operation {
        let Operation { target, arguments, .. } = Operation::subscription(uri);
        // The client decides on the connection; nothing else of the request is sent to the server.
        let mut operation = self.operation(mcp_caller, request, (target, arguments), &[]);
        let client = operation.origin.forwarded.client.take();
        operation.origin.forwarded = Forwarded { client, ..Forwarded::default() };
        operation
    }

    /// Subscribes to changes of a resource until the returned value is dropped.
    async fn subscribe(
        &self,
        mcp_caller: &McpCaller,
        mut operation: Operation,
    ) -> Result<Subscription, RpcError> {
        operation.origin.profile = self.profile(mcp_caller)?;
        operation.origin.access.clone_from(&mcp_caller.access);
        let uri = operation.name().to_owned();
        let outcome = self.runtime.execute(&mcp_caller.caller, operation).await;
        match (outcome.subscription, outcome.result.error) {
            (Some(subscription), _) => Ok(Box::new(subscription) as Subscription),
            (None, Some(error)) if error.code != ErrorCode::NotFound => {
                Err(RpcError::new(-32603, error.message))
            }
            (None, _) => Err(items::no_resource(&uri, Revision::NEWEST)),
        }
    }

    /// Returns the arguments of a tool that are mirrored in headers.
    pub(crate) fn mirrors(&self, mcp_caller: &McpCaller, tool: &str) -> Vec<HeaderMirror> {
        if let Ok(Some(_)) = self.profile(mcp_caller) {
            // Clients that see an adapted schema cannot know its header annotations.
            let shown = self.find_tool(mcp_caller, tool).filter(|(_, shown)| shown.has_original_schema);
            return match shown.as_ref().map(|(_, shown)| &shown.tool.upstream) {
                Some(Upstream::Server(address)) => address.mirrors.clone(),
                _ => Vec::new(),
            };
        }
        let catalog = self.runtime.catalog();
        match catalog.resolve(tool).map(|tool| &tool.upstream) {
            Some(Upstream::Server(address)) => address.mirrors.clone(),
            _ => Vec::new(),
        }
    }
}

impl McpService {
    /// Combines the instructions of all visible servers, each under the name of its server.
    fn instructions(&self, mcp_caller: &McpCaller) -> Option<String> {
        let mut text = String::new();
        let profile = self.profile(mcp_caller).ok().flatten();
        if let Some((profile, about)) = profile.as_ref().and_then(|it| Some((it, it.description.as_ref()?))) {
            text.push_str(&format!("# {}\n{}", profile.name, about.trim()));
        }
        let view = profile.as_ref().map(|profile| self.view(profile));
        for (server, offer) in self.runtime.offers() {
            if view.as_ref().is_some_and(|view| !view.includes_server(&server, &offer)) {
                continue;
            }
            let Some(own) = offer.instructions.filter(|own| !own.trim().is_empty()) else { continue };
            if !self.has_any_access(mcp_caller, &server) || text.len() + own.len() > MAX_INSTRUCTIONS {
                continue;
            }
            text.push_str(&format!(
                "{}# {server}\n{}",
                if text.is_empty() { "" } else { "\n\n" },
                own.trim()
            ));
        }
        (!text.is_empty()).then_some(text)
    }

    /// Returns true if the caller has any permission for a server.
    fn has_any_access(&self, mcp_caller: &McpCaller, server: &str) -> bool {
        let permission = format!("{server}:resources").parse::<Permission>();
        permission.is_ok_and(|permission| mcp_caller.caller.has_any_permission_on(&permission))
    }
}

/// Time clients may cache lists. Clients that listen get change notifications.
const LIST_TTL: Duration = Duration::from_secs(60);

/// The session of a request. Clients get their session ids from the gateway.
fn issued_session(id: &str) -> SessionId {
    let id_of = if is_of_earlier_run(id) { SessionId::Earlier } else { SessionId::Issued };
    id_of(id.to_owned())
}
