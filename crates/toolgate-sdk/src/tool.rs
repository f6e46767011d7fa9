//! A tool, and the road of a call within a program: validate, run within its time, validate, add hints.
//!
//! Invariant: whatever the function does (fail, panic, take too long, give something else than it declares),
//! the caller gets one whole result. Who leaves drops the future, and the function with it.

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
use toolgate_types::call::{ResultMetadata, Status};
use toolgate_types::{ToolContext as Context, ToolResult};

use crate::builder::{Output, ToolBuilder};
use crate::definition::Definition;
use crate::error::ToolError;
use crate::hints::{Facts, Hints};
use crate::schema::Compiled;

/// How a call ended.
pub type CallResult = ToolResult<Value, ToolError>;

type Reply = Pin<Box<dyn Future<Output = Result<(Value, Hints), ToolError>> + Send>>;

/// The function behind a tool, with its types forgotten.
pub(crate) struct Handler(Box<dyn Fn(Value, Context) -> Reply + Send + Sync>);

impl Handler {
    pub(crate) fn of<P, F, R>(run: impl Fn(P, Context) -> F + Send + Sync + 'static) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        F: Future<Output = R> + Send + 'static,
        R: Output,
    {
        Self(Box::new(move |arguments, context| {
            let params = match serde_json::from_value::<P>(arguments) {
                Ok(params) => params,
                // What the schema cannot say, such as a range that ends before it begins.
                Err(error) => {
                    return Box::pin(std::future::ready(Err(ToolError::invalid(error.to_string()))));
                }
            };
            let running = run(params, context);
            Box::pin(async move {
                let answer = running.await.answer()?;
                let data = serde_json::to_value(answer.data).map_err(ToolError::invalid_output)?;
                Ok((data, answer.hints))
            })
        }))
    }
}

/// A tool that keeps the full contract. Clones are the same tool.
#[derive(Clone)]
pub struct Tool(Arc<Inner>);

struct Inner {
    definition: Definition,
    accepts: Compiled,
    gives: Compiled,
    handler: Handler,
    slots: Option<Semaphore>,
    calls: AtomicU64,
    good: AtomicU64,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.0.definition.name).finish()
    }
}

impl Tool {
    /// A tool to be made, by the name that callers know.
    pub fn builder(name: &str) -> ToolBuilder {
        ToolBuilder::new(name)
    }

    pub(crate) fn new(definition: Definition, accepts: Compiled, gives: Compiled, handler: Handler) -> Self {
        let slots = definition.max_instances.and_then(|most| usize::try_from(most.get()).ok());
        let (calls, good) = (AtomicU64::new(0), AtomicU64::new(0));
        let slots = slots.map(Semaphore::new);
        Self(Arc::new(Inner { definition, accepts, gives, handler, slots, calls, good }))
    }

    /// What it says of itself.
    pub fn definition(&self) -> &Definition {
        &self.0.definition
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.definition.name.as_str()
    }

    /// Calls it. `service_version` is that of the program it is part of.
    pub async fn call(
        &self,
        arguments: Value,
        context: Context,
        service_version: &'static str,
    ) -> CallResult {
        let begin = Instant::now();
        let inner = &*self.0;
        let (trace_id, correlation_id) = (context.trace_id.clone(), context.correlation_id.clone());
        tracing::debug!(tool = self.name(), trace_id, correlation_id, %arguments, "a call begins");
        let outcome = self.run(arguments, context).await;
        let took = begin.elapsed();
        let (data, error, hints) = match outcome {
            Ok((data, hints)) => (Some(data), None, hints),
            Err(error) => (None, Some(error), Hints::new()),
        };
        match &error {
            None => tracing::info!(tool = self.name(), trace_id, correlation_id, ?took, "a call went well"),
            Some(error) => {
                let why = error.source.as_ref().map(ToString::to_string);
                let code = &*error.code;
                tracing::warn!(tool = self.name(), trace_id, correlation_id, ?took, code, why, "{error}");
            }
        }
        let record = (inner.calls.load(Ordering::Relaxed), inner.good.load(Ordering::Relaxed));
        let facts = Facts { definition: &inner.definition, error: error.as_ref(), took, record };
        let agent_hints = hints.finish(&facts);
        let metadata = ResultMetadata {
            tool_version: inner.definition.version.clone(),
            timestamp: now(),
            execution_time: took.as_secs_f64() * 1000.0,
            service_version,
            trace_id,
            correlation_id,
            cached: false,
        };
        let status = if error.is_none() { Status::Success } else { Status::Error };
        ToolResult { status, data, error, agent_hints, metadata }
    }

    async fn run(&self, arguments: Value, context: Context) -> Result<(Value, Hints), ToolError> {
        let Inner { definition, accepts, gives, handler, slots, calls, good } = &*self.0;
        let gone = definition.deprecated.as_ref();
        if let Some(gone) = gone.filter(|gone| *gone.removal_date < *today()) {
            return Err(ToolError::removed(gone.replacement.as_str()));
        }
        accepts.check(&arguments).map_err(ToolError::invalid)?;
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
        let (data, hints) = ended.map_err(|panic| ToolError::system(panic_text(&*panic)))??;
        gives.check(&data).map_err(ToolError::invalid_output)?;
        good.fetch_add(1, Ordering::Relaxed);
        Ok((data, hints))
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a panic: {}", text.unwrap_or_else(|| "it says nothing".to_owned()))
}

/// Now, to the millisecond, in UTC.
pub(crate) fn now() -> String {
    format!("{:.3}", Timestamp::now())
}

fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}
