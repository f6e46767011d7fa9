//! The server: what it says of itself, and which file answers what.
//!
//! One [`Fixture`] is one session. What outlives a session, or is seen by others, is in [`Shared`]: in the
//! newest era every request is a session of its own.
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

use crate::{Era, legacy, prompts, resources, tools, typed};

/// Something that others may want to hear of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Tools,
    Prompts,
    /// The content of [`resources::WATCHED`].
    Resource,
}

/// What all sessions have in common.
pub(crate) struct Shared {
    pub(crate) tasks: TaskManager,
    pub(crate) codec: RequestStateCodec,
    /// Whether the tool and the prompt that come and go are there.
    pub(crate) more_tools: AtomicBool,
    pub(crate) more_prompts: AtomicBool,
    /// For the streams of `subscriptions/listen`.
    changes: broadcast::Sender<Change>,
    /// Clients of the older revisions, who are told without having asked.
    sessions: Mutex<Vec<(Peer<RoleServer>, Arc<Session>)>>,
}

/// What a client of the older revisions has said.
#[derive(Default)]
pub(crate) struct Session {
    /// As a word of the protocol; all are wanted before one is said.
    pub(crate) level: Mutex<Option<String>>,
    watched: Mutex<BTreeSet<String>>,
}

/// One session.
pub(crate) struct Fixture {
    era: Era,
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: Arc<Session>,
}

impl Fixture {
    pub(crate) fn new(era: Era) -> Self {
        let shared = Shared {
            tasks: TaskManager::new(),
            codec: RequestStateCodec::try_new(*b"the key of a test is no secret..")
                .expect("it is long enough"),
            more_tools: AtomicBool::new(false),
            more_prompts: AtomicBool::new(false),
            changes: broadcast::channel(16).0,
            sessions: Mutex::default(),
        };
        Self { era, shared: Arc::new(shared), session: Arc::default() }
    }

    /// Another session of the same server.
    pub(crate) fn another(&self) -> Self {
        Self { era: self.era, shared: Arc::clone(&self.shared), session: Arc::default() }
    }

    pub(crate) fn is_dual(&self) -> bool {
        self.era == Era::Dual
    }

    /// Makes a change, and tells everybody.
    pub(crate) async fn change(&self, change: Change) {
        match change {
            Change::Tools => drop(self.shared.more_tools.fetch_xor(true, Ordering::SeqCst)),
            Change::Prompts => drop(self.shared.more_prompts.fetch_xor(true, Ordering::SeqCst)),
            Change::Resource => {}
        }
        // Nobody may be listening.
        let _ = self.shared.changes.send(change);
        let mut sessions = self.shared.sessions.lock().expect("nobody panics with it").clone();
        sessions.retain(|(peer, _)| !peer.is_transport_closed());
        for (peer, session) in sessions {
            let watched = session.watched.lock().expect("nobody panics with it").contains(resources::WATCHED);
            // One that is gone is no reason not to tell the others.
            let _ = match change {
                Change::Tools => peer.notify_tool_list_changed().await,
                Change::Prompts => peer.notify_prompt_list_changed().await,
                Change::Resource if watched => {
                    peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(resources::WATCHED))
                        .await
                }
                Change::Resource => Ok(()),
            };
        }
    }
}

impl ServerHandler for Fixture {
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
        typed(json!({
            "protocolVersion": newest,
            "capabilities": capabilities,
            "serverInfo": { "name": "conformance-server", "version": env!("CARGO_PKG_VERSION") },
            "instructions": "Every fixture of the conformance suite is here.",
        }))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(if self.is_dual() { ProtocolVersion::KNOWN_VERSIONS } else { legacy::versions() })
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if !self.is_dual() {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None));
        }
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut sessions = self.shared.sessions.lock().expect("nobody panics with it");
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
        self.session.watched.lock().expect("nobody panics with it").insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.watched.lock().expect("nobody panics with it").remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // What was not asked for is refused by the sink, and what was missed is over.
            let _ = match change {
                Ok(Change::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(Change::Prompts) => context.sink().notify_prompt_list_changed().await,
                Ok(Change::Resource) => context.sink().notify_resource_updated(resources::WATCHED).await,
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
        let fitting = all.filter(|word| word.starts_with(&request.argument.value)).map(str::to_owned);
        let found = CompletionInfo::new(fitting.collect());
        Ok(CompleteResult::new(found.map_err(|why| ErrorData::internal_error(why, None))?))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let level = tools::logging::word(request.level);
        *self.session.level.lock().expect("nobody panics with it") = Some(level);
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
