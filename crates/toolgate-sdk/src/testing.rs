//! Test harness: calls tools in the same process, with the same checks as over the wire.
//!
//! Invariant: arguments and results pass through JSON and the schemas, so tests see exactly what callers see.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_types::ToolContext as Context;
use toolgate_types::hints::AgentHints;

use crate::error::ToolError;
use crate::tool::{CallResult, now};
use crate::tools::Tools;

/// Returns a call context for tests, of an agent named `test`.
pub fn context() -> Context {
    Context {
        user_id: None,
        session_id: None,
        correlation_id: "test".to_owned(),
        trace_id: "0".repeat(32),
        agent_id: "test".to_owned(),
        agent_version: "0.0.0".to_owned(),
        timestamp: now(),
        metadata: None,
    }
}

/// Harness around the tools under test.
#[derive(Debug, Clone)]
pub struct Harness {
    tools: Tools,
    context: Context,
}

impl Harness {
    /// Creates a harness whose calls come from an agent named `test`.
    pub fn new(tools: Tools) -> Self {
        Self { tools, context: context() }
    }

    /// Replaces the context of the calls.
    #[must_use]
    pub fn with_context(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// Calls a tool with JSON, or with anything that serializes to JSON, such as its parameters struct.
    ///
    /// # Panics
    /// If there is no such tool, or the arguments cannot be serialized.
    pub async fn call(&self, name: &str, arguments: impl Serialize) -> TestCall {
        let arguments = serde_json::to_value(arguments).expect("the arguments serialize to JSON");
        let result = self.tools.call(name, arguments, self.context.clone()).await;
        TestCall(result.unwrap_or_else(|| panic!("there is no tool `{name}`")))
    }
}

/// Result of a call, with accessors for assertions.
#[derive(Debug)]
pub struct TestCall(pub CallResult);

impl TestCall {
    /// Returns the data, deserialized.
    ///
    /// # Panics
    /// If the call failed, or the data has another type.
    #[track_caller]
    pub fn data<T: DeserializeOwned>(&self) -> T {
        let Some(data) = &self.0.data else { panic!("the call failed: {:?}", self.0.error) };
        serde_json::from_value(data.clone())
            .unwrap_or_else(|error| panic!("{data} has another type: {error}"))
    }

    /// Returns the error.
    ///
    /// # Panics
    /// If the call succeeded.
    #[track_caller]
    pub fn error(&self) -> &ToolError {
        match &self.0.error {
            Some(error) => error,
            None => panic!("the call succeeded: {:?}", self.0.data),
        }
    }

    /// Returns the hints, which every result has.
    pub fn hints(&self) -> &AgentHints {
        &self.0.agent_hints
    }

    /// Returns true if the hints suggest an action.
    pub fn suggests(&self, action: &str) -> bool {
        self.hints().suggested_next_actions.iter().any(|next| next.action == action)
    }
}

/// Runs every example of every tool. Each runs on fresh tools, so that none depends on the effects of another.
///
/// # Panics
/// If examples fail or return another result. The message lists all of them.
pub async fn check_examples(tools: impl Fn() -> Tools) {
    let mut failures = Vec::new();
    for tool in tools().all() {
        for example in &tool.definition().examples {
            let fresh = Harness::new(tools());
            let TestCall(result) = fresh.call(tool.name(), &example.params).await;
            let title = format!("{}: {}", tool.name(), example.description);
            match (&result.data, &example.expected_result) {
                (None, _) => failures.push(format!("{title}\n    failed: {:?}", result.error)),
                (Some(got), Some(expected)) if !is_same(expected, got) => {
                    failures.push(format!("{title}\n    expected {expected}\n    got      {got}"));
                }
                _ => {}
            }
        }
    }
    assert!(failures.is_empty(), "{} examples failed\n{}", failures.len(), failures.join("\n"));
}

/// Returns true if two documents are equal, however their numbers are spelled.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b,
    }
}
