//! A tool that is a function of ours.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use toolgate_mcp::{Behind, Raw};
use toolgate_policy::Input;
use toolgate_types::tool::{Category, ResponseTime};
use toolgate_types::{CallerId, ErrorCode, HumanDuration, ToolContext, ToolName};

/// What it gives, in the form of a server's reply, or why it gives nothing.
pub type Given = Result<Raw, Fault>;

/// Why a function of ours gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// In one word.
    pub code: ErrorCode,
    /// For the caller.
    pub message: String,
    /// The way out, where there is one to name.
    pub hint: Option<String>,
    /// When it may be tried again.
    pub retry_after: Option<std::time::Duration>,
}

impl Fault {
    /// A fault with a code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retry_after: None }
    }

    /// The same with a way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::new(ErrorCode::ToolExecutionError, message)
    }
}

/// A call, as a function of ours gets it.
pub struct Asked {
    /// Its arguments, which fit the schema.
    pub arguments: Raw,
    /// Who calls.
    pub caller: CallerId,
    /// What it belongs to.
    pub context: ToolContext,
    /// When it must have ended. What ends in time by itself can say why.
    pub deadline: Instant,
    /// The client behind it, where there is one.
    pub client: Option<Arc<dyn Behind>>,
}

/// A tool that is a function of ours.
pub struct Builtin {
    /// Its name.
    pub name: ToolName,
    /// What it does, when to use it, what it returns.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Raw,
    /// The JSON Schema of its result.
    pub output_schema: Option<Raw>,
    /// What kind of tool it is.
    pub category: Category,
    /// Whether calling it twice is as good as calling it once.
    pub idempotent: bool,
    /// How fast it usually answers.
    pub response_time: Option<ResponseTime>,
    /// How long a call may take, where the operator does not say.
    pub timeout: Option<HumanDuration>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Whether its arguments leave this machine and its results come from others, who are not to be trusted.
    pub reaches_out: bool,
    /// Whether it does nothing but wait for a person: then it takes no slot, and bounds itself how many wait.
    pub waits: bool,
    /// What ends all that it started, where it starts something.
    pub stop: Option<Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>>,
    run: Box<dyn Fn(Asked) -> BoxFuture<'static, Given> + Send + Sync>,
}

impl Builtin {
    /// A tool that reads: low in risk, and as good twice as once.
    pub fn query(
        name: ToolName,
        description: impl Into<String>,
        input_schema: Raw,
        run: impl Fn(Asked) -> BoxFuture<'static, Given> + Send + Sync + 'static,
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
            reaches_out: false,
            waits: false,
            stop: None,
            run: Box::new(run),
        }
    }

    /// Runs it, with what was decided on.
    pub async fn invoke(
        &self,
        input: &Input,
        context: ToolContext,
        client: Option<&Arc<dyn Behind>>,
        deadline: Instant,
    ) -> Given {
        let (arguments, caller) = (input.arguments().clone(), input.caller().clone());
        (self.run)(Asked { arguments, caller, context, deadline, client: client.cloned() }).await
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtin").field("name", &self.name).finish_non_exhaustive()
    }
}
