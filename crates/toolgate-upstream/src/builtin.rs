//! Tools implemented in Rust, inside Toolgate.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use toolgate_mcp::{DownstreamClient, RawJson};
use toolgate_policy::Input;
use toolgate_types::tool::{Category, ResponseTime};
use toolgate_types::{CallerId, ErrorCode, HumanDuration, ToolContext, ToolName};

use crate::code::CodeRunner;

/// A result in the form of an MCP tool result, or an error.
pub type BuiltinResult = Result<RawJson, BuiltinError>;

/// The failure of a built-in tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BuiltinError {
    pub code: ErrorCode,
    pub message: String,
    /// The suggested fix.
    pub hint: Option<String>,
    /// The time to wait before a retry.
    pub retry_after: Option<std::time::Duration>,
    /// True if the same call would fail again, for any code.
    pub is_permanent: bool,
}

impl BuiltinError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retry_after: None, is_permanent: false }
    }

    /// Says that the same call would fail again.
    #[must_use]
    pub fn permanent(self) -> Self {
        Self { is_permanent: true, ..self }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<String> for BuiltinError {
    fn from(message: String) -> Self {
        Self::new(ErrorCode::ToolExecutionError, message)
    }
}

/// A call, as a built-in tool receives it.
pub struct BuiltinCall {
    /// The arguments, already validated against the schema.
    pub arguments: RawJson,
    pub caller: CallerId,
    /// The session, trace and user of the call.
    pub context: ToolContext,
    /// The time by which the call must end. A tool that stops by itself in time can report the reason.
    pub deadline: Instant,
    /// The client that made the call, if it can be asked questions.
    pub client: Option<Arc<dyn DownstreamClient>>,
    /// Set by a tool whose result holds untrusted content, although the tool itself is trusted.
    pub untrusted: Arc<AtomicBool>,
}

/// A tool implemented in Rust.
pub struct BuiltinTool {
    pub name: ToolName,
    /// The purpose of the tool, when to use it, and its result.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: RawJson,
    /// The JSON Schema of the result.
    pub output_schema: Option<RawJson>,
    pub category: Category,
    /// True if calling it twice has the same effect as calling it once.
    pub idempotent: bool,
    /// The usual response time.
    pub response_time: Option<ResponseTime>,
    /// The default timeout, unless the configuration sets one.
    pub timeout: Option<HumanDuration>,
    /// Search keywords.
    pub tags: Vec<String>,
    /// True if arguments leave this machine and results come from untrusted third parties.
    pub open_world: bool,
    /// True if every caller may call it, because it returns only the caller's own data.
    pub own_data: bool,
    /// True if it only waits for a person. Such a call takes no slot, so the tool has to limit waiting calls itself.
    pub waits_for_person: bool,
    /// Runs code of callers, for the tool that does so.
    pub code: Option<Arc<CodeRunner>>,
    /// Stops everything the tool has started.
    pub stop: Option<Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>>,
    run: Box<dyn Fn(BuiltinCall) -> BoxFuture<'static, BuiltinResult> + Send + Sync>,
}

impl BuiltinTool {
    /// Creates a read-only tool: low risk and idempotent.
    pub fn query(
        name: ToolName,
        description: impl Into<String>,
        input_schema: RawJson,
        run: impl Fn(BuiltinCall) -> BoxFuture<'static, BuiltinResult> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            description: description.into(),
            input_schema,
            output_schema: None,
            category: Category::Query,
            idempotent: true,
            response_time: None,
            timeout: None,
            tags: Vec::new(),
            open_world: false,
            own_data: false,
            waits_for_person: false,
            code: None,
            stop: None,
            run: Box::new(run),
        }
    }

    /// Runs the tool with arguments that the policy has allowed.
    pub async fn invoke(
        &self,
        input: &Input,
        context: ToolContext,
        client: Option<&Arc<dyn DownstreamClient>>,
        deadline: Instant,
        untrusted: &Arc<AtomicBool>,
    ) -> BuiltinResult {
        let (arguments, caller) = (input.arguments().clone(), input.caller().clone());
        let (client, untrusted) = (client.cloned(), Arc::clone(untrusted));
        (self.run)(BuiltinCall { arguments, caller, context, deadline, client, untrusted }).await
    }
}

impl fmt::Debug for BuiltinTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtin").field("name", &self.name).finish_non_exhaustive()
    }
}
