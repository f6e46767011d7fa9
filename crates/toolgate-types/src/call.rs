//! A call: who makes it, in which context, and how it ends.
//!
//! The JSON names are those of the tool interface specification. Invariant: a result is either data or
//! an error, always with hints and metadata, and the data of a success is never `null`.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::hints::AgentHints;
use crate::tool::Permission;

/// Where a call comes from and what it belongs to.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolContext {
    /// The person behind it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The session it belongs to, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// What links it with other calls.
    pub correlation_id: String,
    /// The trace it is part of, 32 hexadecimal digits.
    pub trace_id: String,
    /// The agent that calls.
    pub agent_id: String,
    /// Its version.
    pub agent_version: String,
    /// When it was made, in UTC.
    pub timestamp: String,
    /// What else is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// What went wrong, in one word that programs can rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The arguments do not fit the schema.
    InvalidArguments,
    /// There is no such tool, for this caller.
    ToolNotFound,
    /// The caller may not do this.
    Unauthorized,
    /// The caller has used its allowance.
    RateLimited,
    /// Too much is going on.
    Overloaded,
    /// It took too long.
    Timeout,
    /// The server is not there.
    ServiceUnavailable,
    /// The server failed in the middle of it.
    ProviderFailure,
    /// The tool ran and failed.
    ToolExecutionError,
    /// The result does not fit the schema.
    InvalidOutput,
    /// The result is larger than allowed.
    OutputTooLarge,
    /// The caller left.
    Cancelled,
    /// The tool was taken away.
    DeprecatedRemoved,
    /// What must be written down cannot be.
    StorageUnavailable,
}

/// Whose problem it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// What the caller sent.
    Validation,
    /// A rule.
    Business,
    /// The machinery.
    System,
}

impl ErrorCode {
    /// Its name in JSON, metrics and records.
    pub fn label(self) -> &'static str {
        match self {
            Self::InvalidArguments => "invalid_arguments",
            Self::ToolNotFound => "tool_not_found",
            Self::Unauthorized => "unauthorized",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::ServiceUnavailable => "service_unavailable",
            Self::ProviderFailure => "provider_failure",
            Self::ToolExecutionError => "tool_execution_error",
            Self::InvalidOutput => "invalid_output",
            Self::OutputTooLarge => "output_too_large",
            Self::Cancelled => "cancelled",
            Self::DeprecatedRemoved => "deprecated_removed",
            Self::StorageUnavailable => "storage_unavailable",
        }
    }

    /// Whose problem it is.
    pub fn class(self) -> ErrorClass {
        match self {
            Self::InvalidArguments | Self::ToolNotFound => ErrorClass::Validation,
            Self::Unauthorized | Self::RateLimited | Self::DeprecatedRemoved | Self::ToolExecutionError => {
                ErrorClass::Business
            }
            Self::Overloaded
            | Self::Timeout
            | Self::ServiceUnavailable
            | Self::ProviderFailure
            | Self::InvalidOutput
            | Self::OutputTooLarge
            | Self::Cancelled
            | Self::StorageUnavailable => ErrorClass::System,
        }
    }
}

/// A step of the road.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Which tool a name means.
    Resolve,
    /// Whether the caller may.
    Authorize,
    /// Whether the arguments fit.
    ValidateInput,
    /// Whether secrets would leave.
    Egress,
    /// Whether the caller has calls left.
    RateLimit,
    /// Whether the result is known.
    Cache,
    /// Whether there is room.
    Slots,
    /// Writing it down before it is sent.
    Record,
    /// Running it.
    Invoke,
    /// Making the reply a result.
    Convert,
    /// Whether the result fits.
    ValidateOutput,
    /// Keeping what is too large to be given whole.
    Keep,
    /// What to tell the caller beside.
    Hints,
}

impl Stage {
    /// Its name in traces, records and metrics.
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

/// What is known about whether the tool did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did not begin.
    NotStarted,
    /// It ended.
    Finished,
    /// It may have done all, a part or nothing.
    Unknown,
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// In one word.
    pub code: ErrorCode,
    /// Where on the road.
    pub stage: Stage,
    /// For the caller: nothing in it that the caller should not know.
    pub message: String,
    /// The way out, where there is one to name.
    pub hint: Option<String>,
    /// When it may be tried again.
    pub retry_after: Option<Duration>,
    /// Whether the tool did something.
    pub outcome: Outcome,
    /// What decided, where it was denied.
    pub denial: Option<Box<Denial>>,
    /// What joins it with the record of the call; known when the call has ended.
    pub correlation_id: Option<Box<str>>,
    /// For the log alone.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What decided against a call. For the log, and for the door where the caller may know of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The permissions that the caller lacks, where that is why.
    pub missing: Vec<Permission>,
    /// The rules that decided, by their names; `permissions` where those did.
    pub rules: Vec<String>,
}

impl CallError {
    /// An error before anything was sent.
    pub fn new(code: ErrorCode, stage: Stage, message: impl Into<String>) -> Self {
        let (message, outcome) = (message.into(), Outcome::NotStarted);
        Self {
            code,
            stage,
            message,
            hint: None,
            retry_after: None,
            outcome,
            denial: None,
            correlation_id: None,
            source: None,
        }
    }

    /// The same with the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same where the tool may have done something.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// The same with what the log should know.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Whether the same call may be made again without harm and with a chance.
    pub fn is_retryable(&self) -> bool {
        let may_pass = matches!(
            self.code,
            ErrorCode::RateLimited
                | ErrorCode::Overloaded
                | ErrorCode::Timeout
                | ErrorCode::ServiceUnavailable
                | ErrorCode::ProviderFailure
                | ErrorCode::StorageUnavailable
        );
        may_pass && self.outcome == Outcome::NotStarted
    }
}

impl Serialize for CallError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shown<'a> {
            code: ErrorCode,
            class: ErrorClass,
            stage: Stage,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
            retryable: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_after_ms: Option<u128>,
            outcome: Outcome,
            #[serde(skip_serializing_if = "Option::is_none")]
            correlation_id: Option<&'a str>,
        }
        let shown = Shown {
            code: self.code,
            class: self.code.class(),
            stage: self.stage,
            message: &self.message,
            hint: self.hint.as_deref(),
            retryable: self.is_retryable(),
            retry_after_ms: self.retry_after.map(|time| time.as_millis()),
            outcome: self.outcome,
            correlation_id: self.correlation_id.as_deref(),
        };
        shown.serialize(serializer)
    }
}

/// When and by what a result was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultMetadata {
    /// The version of the tool.
    pub tool_version: String,
    /// When it ran, in UTC.
    pub timestamp: String,
    /// Milliseconds from the request to the result.
    pub execution_time: f64,
    /// The version of Toolgate.
    pub service_version: &'static str,
    /// The trace it is part of.
    pub trace_id: String,
    /// What links it with other calls.
    pub correlation_id: String,
    /// Whether it was known already.
    pub cached: bool,
}

/// How a call ended, with all that a caller gets. `D` is the data, `E` what is said where there is none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult<D, E = CallError> {
    /// `success` or `error`.
    pub status: Status,
    /// What the tool gave; never `null` for a success.
    pub data: Option<D>,
    /// Why there is none.
    pub error: Option<E>,
    /// What to do next, and how far to trust it.
    pub agent_hints: AgentHints,
    /// When and by what it was made.
    pub metadata: ResultMetadata,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// With data.
    Success,
    /// With an error.
    Error,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Error => "error",
        })
    }
}
