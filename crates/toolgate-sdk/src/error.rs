//! Error of a tool: its class, a code for programs, and a hint for the caller.
//!
//! Invariant: the message was written for the caller. The cause goes to the log and nowhere else.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use serde::{Serialize, Serializer};
use toolgate_types::call::{ErrorClass, ExecutionState};

/// Error of a call.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// Class of the error: in the arguments, in a rule of the domain, or in the system.
    pub class: ErrorClass,
    /// Stable code that programs can rely on, such as `deck_full`.
    pub code: Cow<'static, str>,
    /// Message for the caller. Must contain nothing that the caller must not know.
    pub message: String,
    /// The fix, if known.
    pub hint: Option<String>,
    /// True if a retry of the same call may succeed.
    pub retryable: bool,
    /// Time until a retry makes sense.
    pub retry_after: Option<Duration>,
    /// Progress of the tool when it failed: whether anything was changed.
    pub outcome: ExecutionState,
    /// Cause, for the log only.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl ToolError {
    fn new(class: ErrorClass, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (code, message) = (code.into(), message.into());
        let outcome = ExecutionState::Finished;
        Self { class, code, message, hint: None, retryable: false, retry_after: None, outcome, source: None }
    }

    /// Creates an error about the arguments. No retry with the same arguments can succeed.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Validation, "invalid_arguments", message).not_started()
    }

    /// Creates an error of a domain rule: `ToolError::rule("deck_full", "the deck `spanish` has 100 cards already")`.
    pub fn rule(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Business, code, message)
    }

    /// Creates an error for an ID that does not exist.
    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::rule("not_found", format!("there is no {what} `{id}`")).not_started()
    }

    /// Creates an internal error. The caller gets a generic message; the cause goes to the log.
    pub fn system(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message = "the tool failed; see its log for the cause";
        let error = Self::new(ErrorClass::System, "tool_execution_error", message);
        Self { source: Some(source.into()), outcome: ExecutionState::Unknown, ..error }
    }

    /// Creates an error for a temporarily missing dependency, with the time until a retry makes sense.
    pub fn unavailable(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::new(ErrorClass::System, "service_unavailable", message).not_started().retry_after(retry_after)
    }

    pub(crate) fn timeout(allowed: Duration) -> Self {
        let message = format!("no result within {} ms", allowed.as_millis());
        let error = Self::new(ErrorClass::System, "timeout", message);
        Self { outcome: ExecutionState::Unknown, ..error }
    }

    pub(crate) fn invalid_output(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error = Self::system(source);
        let message = "the result does not match the output schema; see the log of the tool".to_owned();
        Self { code: "invalid_output".into(), message, outcome: ExecutionState::Finished, ..error }
    }

    pub(crate) fn removed(replacement: &str) -> Self {
        Self::rule("deprecated_removed", "the tool was removed")
            .not_started()
            .hint(format!("use `{replacement}` instead"))
    }

    /// Adds a hint: how to fix it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Marks the error as retryable after a pause.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        (self.retryable, self.retry_after) = (true, Some(pause));
        self
    }

    /// Declares that nothing was changed.
    #[must_use]
    pub fn not_started(mut self) -> Self {
        self.outcome = ExecutionState::NotStarted;
        self
    }

    /// Adds a cause, for the log only.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl Serialize for ToolError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ErrorBody<'a> {
            code: &'a str,
            class: ErrorClass,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
            retryable: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_after_ms: Option<u128>,
            outcome: ExecutionState,
        }
        let Self { class, code, message, hint, retryable, retry_after, outcome, source: _ } = self;
        let (hint, retry_after_ms) = (hint.as_deref(), retry_after.map(|pause| pause.as_millis()));
        let (class, retryable, outcome) = (*class, *retryable, *outcome);
        ErrorBody { code, class, message, hint, retryable, retry_after_ms, outcome }.serialize(serializer)
    }
}

#[test]
fn cause_is_only_logged() {
    let error = ToolError::system("password=hunter2").hint("try later");
    let shown = serde_json::to_string(&error).unwrap();
    assert!(!shown.contains("hunter2") && !error.to_string().contains("hunter2"), "{shown}");
    assert!(shown.contains(r#""code":"tool_execution_error","class":"system""#), "{shown}");
    let later = ToolError::unavailable("the store is being moved", Duration::from_secs(2));
    let shown = serde_json::to_value(&later).unwrap();
    assert_eq!((&shown["retryable"], &shown["retryAfterMs"]), (&true.into(), &2000.into()));
}
