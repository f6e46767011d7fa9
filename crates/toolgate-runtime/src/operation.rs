//! Operations: everything that a caller can ask of the runtime, as a front end passes it on.
//!
//! Invariant: nothing here authenticates the caller or grants anything; the pipeline decides.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_json::CallArguments;
use toolgate_types::call::OperationKind;
use toolgate_types::{Caller, Profile, ToolContext};
use toolgate_upstream::invoke::TaskMethod;
use toolgate_upstream::questions::Responder;
use toolgate_upstream::{Forwarded, RawJson, TraceContext};

use crate::catalog::CatalogTool;
use crate::date;
use crate::runtime::AccessRules;

/// One operation of a caller.
#[derive(Debug, Clone)]
pub struct Operation {
    pub target: OperationTarget,
    pub arguments: CallArguments,
    pub trace: TraceContext,
    pub origin: CallOrigin,
    /// True to return the full result, however large it is.
    pub full_result: bool,
}

/// The thing that an operation uses.
#[derive(Debug, Clone)]
pub enum OperationTarget {
    /// Calls a tool, by the name that callers know.
    Tool(Arc<str>),
    /// Calls a tool that belongs to the front end and is not in the catalog, such as a tool of the agent.
    FrontEndTool(Arc<CatalogTool>),
    /// Reads a resource. Without a server, the servers that may have the URI are tried in order.
    Resource { uri: String, server: Option<String> },
    /// Gets a prompt of a server, by its name on the server.
    Prompt { server: String, name: String },
    /// Completes an argument of a prompt or of a resource template.
    Completion(CompletionTarget),
    /// Subscribes to updates of a resource. The subscription is part of the outcome.
    Subscription { uri: String },
    /// Sends a request for a task that an earlier tool call of the same caller started.
    Task { id: String, method: TaskMethod },
}

/// The thing whose argument is completed.
#[derive(Debug, Clone)]
pub enum CompletionTarget {
    Prompt {
        server: String,
        name: String,
    },
    /// A resource or a template, by its URI as listed.
    Resource {
        uri: String,
    },
}

/// The session of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionId {
    /// Issued by Toolgate: an MCP session or an agent run.
    Issued(String),
    /// Issued by Toolgate before its last start. It counts as tainted: its taint is no longer known.
    Earlier(String),
    /// Chosen by the caller. It is recorded, but taint ignores it: a caller could choose a new one to lose its taint.
    Claimed(String),
}

impl SessionId {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Issued(id) | Self::Earlier(id) | Self::Claimed(id) => id,
        }
    }

    /// The id, if Toolgate issued it.
    pub fn issued(&self) -> Option<&str> {
        match self {
            Self::Issued(id) | Self::Earlier(id) => Some(id),
            Self::Claimed(_) => None,
        }
    }
}

/// Context of an operation, as far as the front end knows it. Nothing here authenticates the caller.
#[derive(Debug, Clone, Default)]
pub struct CallOrigin {
    /// Id of the end user.
    pub user: Option<String>,
    pub session: Option<SessionId>,
    pub agent_version: Option<String>,
    /// Other known facts, such as the user's preferences.
    pub metadata: Option<Value>,
    /// Parts of the client's request that are forwarded to the server.
    pub forwarded: Forwarded,
    /// True if the person at the client may approve the call.
    pub client_approves: bool,
    /// True if the profile hides the tool from the client. The call then fails as if the tool did not exist.
    pub hidden: bool,
    /// The profile that the client sees. It limits the resources that can be read.
    pub profile: Option<Arc<Profile>>,
    /// Callers and policy of the configuration that the caller was authenticated by. Without them, those in use decide.
    pub access: Option<Arc<AccessRules>>,
    /// Asks the person behind this call for approval. The responder of the runtime, if there is none.
    pub approver: Option<CallApprover>,
    /// Bytes of a result that the front end can pass on. Longer ones are stored, as if `results.max_inline` said so.
    pub max_inline: Option<usize>,
}

/// The responder of one call.
#[derive(Clone)]
pub struct CallApprover(pub Arc<dyn Responder>);

impl fmt::Debug for CallApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallApprover")
    }
}

impl CallOrigin {
    pub(crate) fn session_id(&self) -> Option<&str> {
        self.session.as_ref().map(SessionId::as_str)
    }
}

impl Operation {
    /// A tool call.
    pub fn tool(name: impl Into<Arc<str>>, arguments: impl Into<CallArguments>) -> Self {
        Self::new(OperationTarget::Tool(name.into()), arguments)
    }

    /// A resource read. Without a server, the servers that may have the URI are tried in order.
    pub fn resource(uri: impl Into<String>, server: Option<String>) -> Self {
        let uri = uri.into();
        let arguments = RawJson::from_value(&json!({ "uri": uri }));
        Self::new(OperationTarget::Resource { uri, server }, arguments)
    }

    /// A prompt get.
    pub fn prompt(
        server: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<CallArguments>,
    ) -> Self {
        Self::new(OperationTarget::Prompt { server: server.into(), name: name.into() }, arguments)
    }

    /// A subscription to updates of a resource.
    pub fn subscription(uri: impl Into<String>) -> Self {
        let uri = uri.into();
        let arguments = RawJson::from_value(&json!({ "uri": uri }));
        Self::new(OperationTarget::Subscription { uri }, arguments)
    }

    /// A request for a task.
    pub fn task(id: impl Into<String>, method: TaskMethod) -> Self {
        let id = id.into();
        let arguments = RawJson::from_value(&json!({ "taskId": id }));
        Self::new(OperationTarget::Task { id, method }, arguments)
    }

    pub fn new(target: OperationTarget, arguments: impl Into<CallArguments>) -> Self {
        Self {
            target,
            arguments: arguments.into(),
            trace: TraceContext::generate(),
            origin: CallOrigin::default(),
            full_result: false,
        }
    }

    #[must_use]
    pub fn with_origin(self, origin: CallOrigin) -> Self {
        Self { origin, ..self }
    }

    #[must_use]
    pub fn with_trace(self, trace: TraceContext) -> Self {
        Self { trace, ..self }
    }

    /// The name of the target, as the caller knows it: of a tool or a prompt, the URI of a resource, the id of a task.
    pub fn name(&self) -> &str {
        match &self.target {
            OperationTarget::Tool(name) => name,
            OperationTarget::FrontEndTool(tool) => &tool.name,
            OperationTarget::Resource { uri, .. } | OperationTarget::Subscription { uri } => uri,
            OperationTarget::Completion(CompletionTarget::Resource { uri }) => uri,
            OperationTarget::Prompt { name, .. } => name,
            OperationTarget::Completion(CompletionTarget::Prompt { name, .. }) => name,
            OperationTarget::Task { id, .. } => id,
        }
    }

    pub fn kind(&self) -> OperationKind {
        match &self.target {
            OperationTarget::Tool(_) | OperationTarget::FrontEndTool(_) => OperationKind::Tool,
            OperationTarget::Resource { .. } => OperationKind::Resource,
            OperationTarget::Prompt { .. } => OperationKind::Prompt,
            OperationTarget::Completion(_) => OperationKind::Completion,
            OperationTarget::Subscription { .. } => OperationKind::Subscription,
            OperationTarget::Task { .. } => OperationKind::Task,
        }
    }

    /// The context that is passed to tools.
    pub(crate) fn tool_context(&self, caller: &Caller) -> ToolContext {
        let CallOrigin { user, session, agent_version, metadata, .. } = self.origin.clone();
        ToolContext {
            user_id: user,
            session_id: session.map(|session| session.as_str().to_owned()),
            correlation_id: self.trace.correlation_id().to_owned(),
            trace_id: self.trace.trace_id().to_owned(),
            agent_id: caller.id.to_string(),
            agent_version: agent_version.unwrap_or_default(),
            timestamp: date::timestamp(),
            metadata,
        }
    }
}
