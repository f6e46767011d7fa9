//! A tool, and the path of a call inside a program: validate, run with a deadline, validate, add hints.
//!
//! Invariant: whatever the function does (fail, panic, exceed its deadline, return something undeclared), the caller
//! gets one complete result. Dropping the future cancels the function.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use toolgate_types::call::{ResultMetadata, ResultStatus};
use toolgate_types::{ToolContext as Context, ToolResult};

use crate::builder::{ToolBuilder, ToolOutput};
use crate::definition::Definition;
use crate::error::ToolError;
use crate::hints::{CallFacts, Hints};
use crate::schema::CompiledSchema;

/// Result of a call.
pub type CallResult = ToolResult<Value, ToolError>;

type HandlerFuture = Pin<Box<dyn Future<Output = Result<(Value, Hints), ToolError>> + Send>>;

/// Function behind a tool, with its types erased.
pub(crate) struct Handler(Box<dyn Fn(Value, Context) -> HandlerFuture + Send + Sync>);

impl Handler {
    pub(crate) fn new<P, F, R>(run: impl Fn(P, Context) -> F + Send + Sync + 'static) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        F: Future<Output = R> + Send + 'static,
        R: ToolOutput,
    {
        Self(Box::new(move |arguments, context| {
            let params = match serde_json::from_value::<P>(arguments) {
                Ok(params) => params,
                // Constraints that a schema cannot express, such as a range that ends before it begins.
                Err(error) => {
                    return Box::pin(std::future::ready(Err(ToolError::invalid(error.to_string()))));
                }
            };
            let running = run(params, context);
            Box::pin(async move {
                let answer = running.await.into_answer()?;
                let data = serde_json::to_value(answer.data).map_err(ToolError::invalid_output)?;
                Ok((data, answer.hints))
            })
        }))
    }
}

/// A tool that fulfils the full contract. Clones share its state.
#[derive(Clone)]
pub struct Tool(Arc<ToolInner>);

struct ToolInner {
    definition: Definition,
    input: CompiledSchema,
    output: CompiledSchema,
    handler: Handler,
    slots: Option<Semaphore>,
    calls: AtomicU64,
    successes: AtomicU64,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.0.definition.name).finish()
    }
}

impl Tool {
    /// Starts the definition of a tool with the name that callers use.
    pub fn builder(name: &str) -> ToolBuilder {
        ToolBuilder::new(name)
    }

    pub(crate) fn new(
        definition: Definition,
        input: CompiledSchema,
        output: CompiledSchema,
        handler: Handler,
    ) -> Self {
        let slots = definition.max_instances.and_then(|most| usize::try_from(most.get()).ok());
        let (calls, successes) = (AtomicU64::new(0), AtomicU64::new(0));
        let slots = slots.map(Semaphore::new);
        Self(Arc::new(ToolInner { definition, input, output, handler, slots, calls, successes }))
    }

    /// Returns the definition.
    pub fn definition(&self) -> &Definition {
        &self.0.definition
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.0.definition.name.as_str()
    }

    /// Calls the tool. `service_version` is the version of the program.
    pub async fn call(
        &self,
        arguments: Value,
        context: Context,
        service_version: &'static str,
    ) -> CallResult {
        let begin = Instant::now();
        let inner = &*self.0;
        let (trace_id, correlation_id) = (context.trace_id.clone(), context.correlation_id.clone());
        tracing::debug!(tool = self.name(), trace_id, correlation_id, %arguments, "call started");
        let outcome = self.run(arguments, context).await;
        let took = begin.elapsed();
        let (data, error, hints) = match outcome {
            Ok((data, hints)) => (Some(data), None, hints),
            Err(error) => (None, Some(error), Hints::new()),
        };
        match &error {
            None => tracing::info!(tool = self.name(), trace_id, correlation_id, ?took, "call succeeded"),
            Some(error) => {
                let why = error.source.as_ref().map(ToString::to_string);
                let code = &*error.code;
                tracing::warn!(tool = self.name(), trace_id, correlation_id, ?took, code, why, "{error}");
            }
        }
        let record = (inner.calls.load(Ordering::Relaxed), inner.successes.load(Ordering::Relaxed));
        let facts = CallFacts { definition: &inner.definition, error: error.as_ref(), took, record };
        let agent_hints = hints.complete(&facts);
        let metadata = ResultMetadata {
            tool_version: inner.definition.version.clone(),
            timestamp: now(),
            execution_time: took.as_secs_f64() * 1000.0,
            service_version,
            trace_id,
            correlation_id,
            cached: false,
            call_id: None,
        };
        let status = if error.is_none() { ResultStatus::Success } else { ResultStatus::Error };
        ToolResult { status, data, content: None, error, agent_hints, metadata }
    }

    async fn run(&self, arguments: Value, context: Context) -> Result<(Value, Hints), ToolError> {
        let ToolInner { definition, input, output, handler, slots, calls, successes } = &*self.0;
        let deprecation = definition.deprecated.as_ref();
        if let Some(removed) = deprecation.filter(|deprecation| *deprecation.removal_date < *today()) {
            return Err(ToolError::removed(removed.replacement.as_str()));
        }
        input.check(&arguments).map_err(ToolError::invalid)?;
        let allowed = definition.timeout().get();
        let running = async {
            let _slot = match slots {
                Some(slots) => slots.acquire().await.ok(),
                None => None,
            };
            calls.fetch_add(1, Ordering::Relaxed);
            (handler.0)(arguments, context).await
        };
        let guarded = AssertUnwindSafe(running).catch_unwind();
        let ended = timeout(allowed, guarded).await.map_err(|_| ToolError::timeout(allowed))?;
        let (data, hints) = ended.map_err(|panic| ToolError::system(panic_message(&*panic)))??;
        output.check(&data).map_err(ToolError::invalid_output)?;
        successes.fetch_add(1, Ordering::Relaxed);
        Ok((data, hints))
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "no message".to_owned()))
}

/// Current time in UTC, to the millisecond.
pub(crate) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}
