//! Why a tool came to nothing: whose problem it is, a code for programs, and the way on.
//!
//! Invariant: what is told to the caller was written for the caller. A cause goes to the log and nowhere else.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use serde::{Serialize, Serializer};
use toolgate_types::call::{ErrorClass, Outcome};

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// Whose problem it is.
    pub class: ErrorClass,
    /// What went wrong, in one word that programs can rely on, such as `deck_full`.
    pub code: Cow<'static, str>,
    /// For the caller: nothing in it that the caller should not know.
    pub message: String,
    /// The way out, where there is one to name.
    pub hint: Option<String>,
    /// Whether the same call may be made again with a chance.
    pub retryable: bool,
    /// When it may be.
    pub retry_after: Option<Duration>,
    /// What is known about whether something was done.
    pub outcome: Outcome,
    /// For the log alone.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl ToolError {
    fn new(class: ErrorClass, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (code, message) = (code.into(), message.into());
        let outcome = Outcome::Finished;
        Self { class, code, message, hint: None, retryable: false, retry_after: None, outcome, source: None }
    }

    /// What the caller sent is wrong, and no other call with it would go better.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Validation, "invalid_arguments", message).not_started()
    }

    /// A rule says no: `ToolError::rule("deck_full", "the deck `spanish` has 100 cards already")`.
    pub fn rule(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Business, code, message)
    }

    /// There is no such thing.
    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::rule("not_found", format!("there is no {what} `{id}`")).not_started()
    }

    /// The machinery failed. The caller is told just that; what happened goes to the log.
    pub fn system(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let message = "the tool failed for a reason of its own; its log has it";
        let error = Self::new(ErrorClass::System, "tool_execution_error", message);
        Self { source: Some(source.into()), outcome: Outcome::Unknown, ..error }
    }

    /// Something that the tool needs is not there now, and may be later.
    pub fn unavailable(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::new(ErrorClass::System, "service_unavailable", message).not_started().retry_after(retry_after)
    }

    pub(crate) fn timeout(allowed: Duration) -> Self {
        let message = format!("no result within {} ms", allowed.as_millis());
        let error = Self::new(ErrorClass::System, "timeout", message);
        Self { outcome: Outcome::Unknown, ..error }
    }

    pub(crate) fn invalid_output(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error = Self::system(source);
        let message = "the tool gave a result that does not fit its schema; its log has it".to_owned();
        Self { code: "invalid_output".into(), message, outcome: Outcome::Finished, ..error }
    }

    pub(crate) fn removed(replacement: &str) -> Self {
        Self::rule("deprecated_removed", "the tool was taken away")
            .not_started()
            .hint(format!("use `{replacement}` in its place"))
    }

    /// The same with the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same where trying again has a chance, from some time on.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        (self.retryable, self.retry_after) = (true, Some(pause));
        self
    }

    /// The same where nothing was done.
    #[must_use]
    pub fn not_started(mut self) -> Self {
        self.outcome = Outcome::NotStarted;
        self
    }

    /// The same with what the log should know.
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
        struct Shown<'a> {
            code: &'a str,
            class: ErrorClass,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
            retryable: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_after_ms: Option<u128>,
            outcome: Outcome,
        }
        let Self { class, code, message, hint, retryable, retry_after, outcome, source: _ } = self;
        let (hint, retry_after_ms) = (hint.as_deref(), retry_after.map(|pause| pause.as_millis()));
        let (class, retryable, outcome) = (*class, *retryable, *outcome);
        Shown { code, class, message, hint, retryable, retry_after_ms, outcome }.serialize(serializer)
    }
}

#[test]
fn a_cause_is_for_the_log_alone() {
    let error = ToolError::system("password=hunter2").hint("try later");
    let shown = serde_json::to_string(&error).unwrap();
    assert!(!shown.contains("hunter2") && !error.to_string().contains("hunter2"), "{shown}");
    assert!(shown.contains(r#""code":"tool_execution_error","class":"system""#), "{shown}");
    let later = ToolError::unavailable("the store is being moved", Duration::from_secs(2));
    let shown = serde_json::to_value(&later).unwrap();
    assert_eq!((&shown["retryable"], &shown["retryAfterMs"]), (&true.into(), &2000.into()));
}
