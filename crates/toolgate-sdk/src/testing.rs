//! A harness for the tests of tools: calls in the same process, checked as they are over the wire.
//!
//! Invariant: arguments and results go through JSON and the schemas, so what passes here passes for callers.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_types::ToolContext as Context;
use toolgate_types::hints::AgentHints;

use crate::error::ToolError;
use crate::tool::{CallResult, now};
use crate::tools::Tools;

/// A context for tests: an agent called `test`.
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

/// Tools under test.
#[derive(Debug, Clone)]
pub struct Harness {
    tools: Tools,
    context: Context,
}

impl Harness {
    /// Calls come from an agent called `test`.
    pub fn new(tools: Tools) -> Self {
        Self { tools, context: context() }
    }

    /// The same with calls that belong to something else.
    #[must_use]
    pub fn within(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// Calls a tool with JSON, or with whatever becomes JSON, such as its parameters struct.
    ///
    /// # Panics
    /// When there is no such tool, or the arguments have no JSON form.
    pub async fn call(&self, name: &str, arguments: impl Serialize) -> Called {
        let arguments = serde_json::to_value(arguments).expect("the arguments have a JSON form");
        let result = self.tools.call(name, arguments, self.context.clone()).await;
        Called(result.unwrap_or_else(|| panic!("there is no tool `{name}`")))
    }
}

/// How a call ended.
#[derive(Debug)]
pub struct Called(pub CallResult);

impl Called {
    /// The data, as JSON or as what it was before.
    ///
    /// # Panics
    /// When the call failed, or its data is something else.
    #[track_caller]
    pub fn data<T: DeserializeOwned>(&self) -> T {
        let Some(data) = &self.0.data else { panic!("the call failed: {:?}", self.0.error) };
        serde_json::from_value(data.clone())
            .unwrap_or_else(|error| panic!("{data} is something else: {error}"))
    }

    /// The error.
    ///
    /// # Panics
    /// When the call went well.
    #[track_caller]
    pub fn error(&self) -> &ToolError {
        match &self.0.error {
            Some(error) => error,
            None => panic!("the call went well: {:?}", self.0.data),
        }
    }

    /// The hints, which are always there.
    pub fn hints(&self) -> &AgentHints {
        &self.0.agent_hints
    }

    /// Whether the hints suggest an action.
    pub fn suggests(&self, action: &str) -> bool {
        self.hints().suggested_next_actions.iter().any(|next| next.action == action)
    }
}

/// Runs every example of every tool, each on tools of its own, so that none depends on what another did.
///
/// # Panics
/// When an example fails or gives another result, with all that do.
pub async fn check_examples(tools: impl Fn() -> Tools) {
    let mut wrong = Vec::new();
    for tool in tools().all() {
        for example in &tool.definition().examples {
            let fresh = Harness::new(tools());
            let Called(result) = fresh.call(tool.name(), &example.params).await;
            let title = format!("{}: {}", tool.name(), example.description);
            match (&result.data, &example.expected_result) {
                (None, _) => wrong.push(format!("{title}\n    failed: {:?}", result.error)),
                (Some(got), Some(expected)) if !is_same(expected, got) => {
                    wrong.push(format!("{title}\n    expected {expected}\n    got      {got}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} of the examples do not hold\n{}", wrong.len(), wrong.join("\n"));
}

/// Whether two documents say the same, however their numbers are spelt.
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
