//! The server: its capabilities, and the dispatch of requests.
//!
//! One [`FixtureServer`] is one session. State that outlives a session, or is visible to others, is in [`SharedState`]:
//! in the newest revision every request is a session of its own.
#![expect(deprecated, reason = "clients of the older revisions use what the newest has deprecated")]

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
    CompletionInfo, ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, GetTaskParams,
    GetTaskResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    RequestStateCodec, ResourceUpdatedNotificationParam, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ServerHandler, model::DiscoverResult};
use serde_json::json;
use tokio::sync::broadcast;

use crate::{ProtocolEra, from_wire, legacy, prompts, resources, tools};

/// Change that clients may be notified of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ServerChange {
    Tools,
    Prompts,
    /// The content of [`resources::WATCHED`].
    Resource,
}

/// State shared by all sessions.
pub(crate) struct SharedState {
    pub(crate) tasks: TaskManager,
    pub(crate) codec: RequestStateCodec,
    /// True while the optional tool and the optional prompt are listed.
    pub(crate) more_tools: AtomicBool,
    pub(crate) more_prompts: AtomicBool,
    /// Feeds the streams of `subscriptions/listen`.
    changes: broadcast::Sender<ServerChange>,
    /// Receivers of accepted subscriptions that are not listened to yet.
    receivers: Mutex<Vec<broadcast::Receiver<ServerChange>>>,
    /// Clients of the older revisions, which are notified without a subscription.
    sessions: Mutex<Vec<(Peer<RoleServer>, Arc<SessionState>)>>,
}

/// State of a session of the older revisions.
#[derive(Default)]
pub(crate) struct SessionState {
    /// Name of the requested log level; `None` means all levels.
    pub(crate) level: Mutex<Option<String>>,
    watched: Mutex<BTreeSet<String>>,
}

/// One session.
pub(crate) struct FixtureServer {
    era: ProtocolEra,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) session: Arc<SessionState>,
}

impl FixtureServer {
    pub(crate) fn new(era: ProtocolEra) -> Self {
        let shared = SharedState {
            tasks: TaskManager::new(),
            codec: RequestStateCodec::try_new(*b"the key of a test is no secret..")
                .expect("it is long enough"),
            more_tools: AtomicBool::new(false),
            more_prompts: AtomicBool::new(false),
            changes: broadcast::channel(16).0,
            receivers: Mutex::default(),
            sessions: Mutex::default(),
        };
        Self { era, shared: Arc::new(shared), session: Arc::default() }
    }

    /// Creates another session of the same server.
    pub(crate) fn new_session(&self) -> Self {
        Self { era: self.era, shared: Arc::clone(&self.shared), session: Arc::default() }
    }

    pub(crate) fn is_dual(&self) -> bool {
        self.era == ProtocolEra::Dual
    }

    /// Applies a change and notifies all clients.
    pub(crate) async fn apply_change(&self, change: ServerChange) {
        match change {
            ServerChange::Tools => drop(self.shared.more_tools.fetch_xor(true, Ordering::SeqCst)),
            ServerChange::Prompts => drop(self.shared.more_prompts.fetch_xor(true, Ordering::SeqCst)),
            ServerChange::Resource => {}
        }
        // There may be no receiver.
        let _ = self.shared.changes.send(change);
        let mut sessions = self.shared.sessions.lock().expect("the lock is not poisoned").clone();
        sessions.retain(|(peer, _)| !peer.is_transport_closed());
        for (peer, session) in sessions {
            let watched =
                session.watched.lock().expect("the lock is not poisoned").contains(resources::WATCHED);
            // Ignore errors: a client that is gone must not keep the others from being notified.
            let _ = match change {
                ServerChange::Tools => peer.notify_tool_list_changed().await,
                ServerChange::Prompts => peer.notify_prompt_list_changed().await,
                ServerChange::Resource if watched => {
                    peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(resources::WATCHED))
                        .await
                }
                ServerChange::Resource => Ok(()),
            };
        }
    }
}

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "logging": {},
            "completions": {},
        });
        if self.is_dual() {
            capabilities["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
        }
        let newest =
            if self.is_dual() { ProtocolVersion::V_2026_07_28 } else { ProtocolVersion::V_2025_11_25 };
        from_wire(json!({
            "protocolVersion": newest,
            "capabilities": capabilities,
            "serverInfo": { "name": "conformance-server", "version": env!("CARGO_PKG_VERSION") },
            "instructions": "Every fixture of the conformance suite is here.",
        }))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(if self.is_dual() {
            ProtocolVersion::KNOWN_VERSIONS
        } else {
            legacy::legacy_versions()
        })
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if !self.is_dual() {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None));
        }
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut sessions = self.shared.sessions.lock().expect("the lock is not poisoned");
        sessions.retain(|(peer, _)| !peer.is_transport_closed());
        sessions.push((context.peer, Arc::clone(&self.session)));
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(tools::list(self))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::list(self).tools.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tools::call(self, request, &context).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(prompts::list(self))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(self, request, &context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(resources::list())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&request.uri)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.watched.lock().expect("the lock is not poisoned").insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.watched.lock().expect("the lock is not poisoned").remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // Before the acknowledgement: a client may cause a change as soon as it has that, before `listen` runs.
        let changes = self.shared.changes.subscribe();
        self.shared.receivers.lock().expect("the lock is not poisoned").push(changes);
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let prepared = self.shared.receivers.lock().expect("the lock is not poisoned").pop();
        let mut changes = prepared.unwrap_or_else(|| self.shared.changes.subscribe());
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // The sink rejects notifications that the client did not subscribe to. Missed ones are not repeated.
            let _ = match change {
                Ok(ServerChange::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(ServerChange::Prompts) => context.sink().notify_prompt_list_changed().await,
                Ok(ServerChange::Resource) => {
                    context.sink().notify_resource_updated(resources::WATCHED).await
                }
                Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let all = ["paris", "park", "party", "test", "testing"].into_iter();
        let matching = all.filter(|word| word.starts_with(&request.argument.value)).map(str::to_owned);
        let found = CompletionInfo::new(matching.collect());
        Ok(CompleteResult::new(found.map_err(|why| ErrorData::internal_error(why, None))?))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let level = tools::logging::level_name(request.level);
        *self.session.level.lock().expect("the lock is not poisoned") = Some(level);
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.shared.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.cancel_task(&request.task_id)
    }
}
