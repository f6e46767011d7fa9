//! A tool call: its context, its errors and its result.
//!
//! The JSON names are those of the tool interface specification. Invariant: a result is either data or an error, always
//! with hints and metadata, and the data of a success is never `null`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::hints::AgentHints;
use crate::tool::Permission;

/// Origin of a call.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolContext {
    /// User on whose behalf the call is made, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Session the call belongs to, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// ID that links the call with related calls.
    pub correlation_id: String,
    /// Trace ID: 32 hexadecimal digits.
    pub trace_id: String,
    /// Agent that makes the call.
    pub agent_id: String,
    /// Version of that agent.
    pub agent_version: String,
    /// Time of the call, in UTC.
    pub timestamp: String,
    /// Further data about the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Stable error code that programs can rely on. [`Self::about`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    InvalidArguments,
    ToolNotFound,
    NotFound,
    Unauthorized,
    RateLimited,
    Overloaded,
    Timeout,
    ServiceUnavailable,
    ProviderFailure,
    ToolUnusable,
    ToolExecutionError,
    InvalidOutput,
    OutputTooLarge,
    Cancelled,
    DeprecatedRemoved,
    StorageUnavailable,
}

/// Category of an error, by where it has to be fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// In the request.
    Validation,
    /// In permissions, limits or the tool's own rules.
    Business,
    /// In the gateway or a server.
    System,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 16] = [
        Self::InvalidArguments,
        Self::ToolNotFound,
        Self::Unauthorized,
        Self::RateLimited,
        Self::Overloaded,
        Self::Timeout,
        Self::ServiceUnavailable,
        Self::ProviderFailure,
        Self::ToolUnusable,
        Self::ToolExecutionError,
        Self::InvalidOutput,
        Self::OutputTooLarge,
        Self::Cancelled,
        Self::DeprecatedRemoved,
        Self::StorageUnavailable,
        Self::NotFound,
    ];

    /// Name in JSON, metrics and records.
    pub fn label(self) -> &'static str {
        match self {
            Self::InvalidArguments => "invalid_arguments",
            Self::ToolNotFound => "tool_not_found",
            Self::NotFound => "not_found",
            Self::Unauthorized => "unauthorized",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::ServiceUnavailable => "service_unavailable",
            Self::ProviderFailure => "provider_failure",
            Self::ToolUnusable => "tool_unusable",
            Self::ToolExecutionError => "tool_execution_error",
            Self::InvalidOutput => "invalid_output",
            Self::OutputTooLarge => "output_too_large",
            Self::Cancelled => "cancelled",
            Self::DeprecatedRemoved => "deprecated_removed",
            Self::StorageUnavailable => "storage_unavailable",
        }
    }

    /// Meaning, for the reference page.
    pub fn about(self) -> &'static str {
        match self {
            Self::InvalidArguments => "The arguments do not match the schema.",
            Self::ToolNotFound => "No such tool, as far as this caller may know.",
            Self::NotFound => "No such resource, prompt or task, as far as this caller may know.",
            Self::Unauthorized => {
                "The caller lacks a permission, a policy denied the call, or the server rejected the credential of the gateway."
            }
            Self::RateLimited => {
                "The caller exceeded its rate limit, or the gateway exceeded that of the server."
            }
            Self::Overloaded => "Too many calls run already.",
            Self::Timeout => "The deadline passed.",
            Self::ServiceUnavailable => "The server cannot be reached.",
            Self::ProviderFailure => "The server failed during the call.",
            Self::ToolUnusable => {
                "The tool cannot run: its script is missing or broken. Nothing was executed."
            }
            Self::ToolExecutionError => "The tool ran and reported an error.",
            Self::InvalidOutput => "The result does not match the schema.",
            Self::OutputTooLarge => "The result exceeds the size limit.",
            Self::Cancelled => "The caller disconnected or cancelled.",
            Self::DeprecatedRemoved => "The tool is past its removal date.",
            Self::StorageUnavailable => "The execution log cannot be written.",
        }
    }

    pub fn class(self) -> ErrorClass {
        match self {
            Self::InvalidArguments | Self::ToolNotFound | Self::NotFound => ErrorClass::Validation,
            Self::Unauthorized | Self::RateLimited | Self::DeprecatedRemoved | Self::ToolExecutionError => {
                ErrorClass::Business
            }
            Self::Overloaded
            | Self::Timeout
            | Self::ServiceUnavailable
            | Self::ProviderFailure
            | Self::ToolUnusable
            | Self::InvalidOutput
            | Self::OutputTooLarge
            | Self::Cancelled
            | Self::StorageUnavailable => ErrorClass::System,
        }
    }
}

/// Kind of an operation. The execution log records it, and `toolgate log --kind` selects by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A tool call.
    #[default]
    Tool,
    /// A resource read.
    Resource,
    /// A prompt get.
    Prompt,
    /// A completion of a prompt's argument or a resource's URI.
    Completion,
    /// A subscription to updates of a resource.
    Subscription,
    /// A request for a task that an earlier tool call started.
    Task,
    /// A list of tools, prompts or resources.
    List,
}

impl OperationKind {
    pub const ALL: [Self; 7] = [
        Self::Tool,
        Self::Resource,
        Self::Prompt,
        Self::Completion,
        Self::Subscription,
        Self::Task,
        Self::List,
    ];

    /// Name in records, filters and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
            Self::Completion => "completion",
            Self::Subscription => "subscription",
            Self::Task => "task",
            Self::List => "list",
        }
    }
}

/// Stage of the pipeline, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Finds the tool of a name.
    Resolve,
    /// Checks permissions and policy.
    Authorize,
    /// Validates the arguments.
    ValidateInput,
    /// Checks the arguments for secrets.
    Egress,
    /// Applies the caller's rate limit.
    RateLimit,
    /// Looks up a cached result.
    Cache,
    /// Waits for a free slot of the tool.
    Slots,
    /// Writes the start record, before anything is sent.
    Record,
    /// Calls the tool.
    Invoke,
    /// Converts the reply to a result.
    Convert,
    /// Validates the result.
    ValidateOutput,
    /// Stores a result too large to be returned inline.
    Keep,
    /// Attaches hints.
    Hints,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 13] = [
        Self::Resolve,
        Self::Authorize,
        Self::ValidateInput,
        Self::Egress,
        Self::RateLimit,
        Self::Cache,
        Self::Slots,
        Self::Record,
        Self::Invoke,
        Self::Convert,
        Self::ValidateOutput,
        Self::Keep,
        Self::Hints,
    ];

    /// Name in traces, records and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Authorize => "authorize",
            Self::ValidateInput => "validate_input",
            Self::Egress => "egress",
            Self::RateLimit => "rate_limit",
            Self::Cache => "cache",
            Self::Slots => "slots",
            Self::Record => "record",
            Self::Invoke => "invoke",
            Self::Convert => "convert",
            Self::ValidateOutput => "validate_output",
            Self::Keep => "keep",
            Self::Hints => "hints",
        }
    }
}

/// Progress of the tool when the call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// The tool was not called: nothing has changed.
    NotStarted,
    /// The tool ran to its end.
    Finished,
    /// The tool may have run completely, in part or not at all.
    Unknown,
}

/// Error of a call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub code: ErrorCode,
    /// Stage that failed.
    pub stage: Stage,
    /// Message for the caller. Contains nothing that the caller must not know.
    pub message: String,
    /// Fix for the caller, if known.
    pub hint: Option<String>,
    /// The tool's own code of the error, such as `deck_full`.
    pub tool_code: Option<Box<ToolCode>>,
    /// Time until a retry makes sense.
    pub retry_after: Option<Duration>,
    /// Progress of the tool when the call ended.
    pub outcome: ExecutionState,
    /// True if the tool may be called again after it has run: it is idempotent.
    pub repeatable: bool,
    /// Reason of a denial.
    pub denial: Option<Box<Denial>>,
    /// ID of the call's record; set when the call has ended.
    pub correlation_id: Option<Box<str>>,
    /// Cause, for the log only. Shared by the calls that waited for the same result.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// A tool's own code of an error. In a type of its own, so that an error without one has room for a pointer only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCode(pub String);

/// Reason of a denial. For the log, and for the caller if it may know of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Permissions that the caller lacks.
    pub missing: Vec<Permission>,
    /// Names of the policy rules that denied; `permissions` if the permission check did.
    pub rules: Vec<String>,
    /// True if the rules required approval, and the call did not get it.
    pub not_approved: bool,
    /// Person that refused to approve the call.
    pub refused_by: Option<String>,
}

impl CallError {
    /// Creates an error for a call that was not sent.
    pub fn new(code: ErrorCode, stage: Stage, message: impl Into<String>) -> Self {
        let (message, outcome) = (message.into(), ExecutionState::NotStarted);
        Self {
            code,
            stage,
            message,
            hint: None,
            tool_code: None,
            retry_after: None,
            outcome,
            repeatable: false,
            denial: None,
            correlation_id: None,
            source: None,
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets whether the tool ran.
    #[must_use]
    pub fn with_outcome(mut self, outcome: ExecutionState) -> Self {
        self.outcome = outcome;
        self
    }

    /// Adds a cause, for the log only.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// Returns true if a retry of the same call is safe and may succeed.
    pub fn is_retryable(&self) -> bool {
        let may_pass = matches!(
            self.code,
            ErrorCode::RateLimited
                | ErrorCode::Overloaded
                | ErrorCode::Timeout
                | ErrorCode::ServiceUnavailable
                | ErrorCode::ProviderFailure
                | ErrorCode::Cancelled
                | ErrorCode::StorageUnavailable
        );
        let is_safe = match self.outcome {
            ExecutionState::NotStarted => true,
            ExecutionState::Unknown => self.repeatable,
            // The tool has processed the call and would do the same again.
            ExecutionState::Finished => false,
        };
        may_pass && is_safe
    }
}

impl Serialize for CallError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ErrorBody<'a> {
            code: ErrorCode,
            class: ErrorClass,
            stage: Stage,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tool_code: Option<&'a str>,
            retryable: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_after_ms: Option<u128>,
            outcome: ExecutionState,
            #[serde(skip_serializing_if = "Option::is_none")]
            correlation_id: Option<&'a str>,
        }
        let body = ErrorBody {
            code: self.code,
            class: self.code.class(),
            stage: self.stage,
            message: &self.message,
            hint: self.hint.as_deref(),
            tool_code: self.tool_code.as_ref().map(|code| code.0.as_str()),
            retryable: self.is_retryable(),
            retry_after_ms: self.retry_after.map(|time| time.as_millis()),
            outcome: self.outcome,
            correlation_id: self.correlation_id.as_deref(),
        };
        body.serialize(serializer)
    }
}

/// Time and origin of a result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultMetadata {
    /// Version of the tool.
    pub tool_version: String,
    /// Time of the call, in UTC.
    pub timestamp: String,
    /// Milliseconds from the request to the result.
    pub execution_time: f64,
    /// Version of Toolgate.
    pub service_version: &'static str,
    /// Trace ID.
    pub trace_id: String,
    /// ID that links the call with related calls.
    pub correlation_id: String,
    /// True if the result came from the cache.
    pub cached: bool,
    /// ID of the call in the execution log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
}

/// Result of a call as the caller receives it. `D` is the type of the data, `E` that of the error.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult<D, E = CallError> {
    pub status: ResultStatus,
    /// Data returned by the tool; never `null` if the call succeeded.
    pub data: Option<D>,
    /// The content blocks, such as texts and images, that say more than the structured content in `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<D>,
    /// Error, if the call failed.
    pub error: Option<E>,
    /// Suggested next steps, and how far to trust the result.
    pub agent_hints: AgentHints,
    pub metadata: ResultMetadata,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    Success,
    Error,
}

impl fmt::Display for ResultStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Error => "error",
        })
    }
}
