//! A tool that is a function of ours: nothing is started and nobody is reached.

use std::fmt;

use futures_util::future::BoxFuture;
use toolgate_mcp::Raw;
use toolgate_policy::Input;
use toolgate_types::tool::Category;
use toolgate_types::{CallerId, ToolContext, ToolName};

/// What it gives, in the form of a server's reply, or why it gives nothing.
pub type Given = Result<Raw, String>;

/// A call, as a function of ours gets it.
#[derive(Debug)]
pub struct Asked {
    /// Its arguments, which fit the schema.
    pub arguments: Raw,
    /// Who calls.
    pub caller: CallerId,
    /// What it belongs to.
    pub context: ToolContext,
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
            run: Box::new(run),
        }
    }

    /// Runs it, with what was decided on.
    pub async fn invoke(&self, input: &Input, context: ToolContext) -> Given {
        let (arguments, caller) = (input.arguments().clone(), input.caller().clone());
        (self.run)(Asked { arguments, caller, context }).await
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtin").field("name", &self.name).finish_non_exhaustive()
    }
}
