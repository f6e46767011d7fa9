//! Script tools: a Python file with a function, or any executable.
//!
//! A Python file is loaded in worker processes, which take one call at a time. An executable is started for every call,
//! gets the arguments as JSON on stdin, and answers on stdout. `invoke` takes only an `Input`, which proves that the
//! policy and the schema were checked:
//!
//! ```compile_fail
//! # async fn f(scripts: &toolgate_upstream::ScriptRunner, tool: &std::sync::Arc<toolgate_types::ToolDefinition>, context: toolgate_types::ToolContext) {
//! let arguments = toolgate_json::RawJson::from_value(&"{}");
//! scripts.invoke(tool, &arguments, context).await;
//! # }
//! ```
//!
//! Invariant: no shell; a cancelled call leaves nothing running; and the output of one call never appears in another.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;
use toolgate_mcp::RawJson;
use toolgate_mcp::scan::ScanLimits as WireLimits;
use toolgate_policy::Input;
use toolgate_redact::mask;
use toolgate_redact::sanitize::sanitize;
use toolgate_types::tool::ScriptSpec;
use toolgate_types::{Secret, ToolContext, ToolDefinition, ToolName};

use crate::process::{ChildSpec, ProcessLimits, SpawnError};

mod file;
mod pool;
mod program;
mod reply;
pub(crate) mod shutdown;
mod worker;

use pool::WorkerPool;
use shutdown::ShutdownTasks;

/// Characters of a script's own message in an error.
const MAX_QUOTE_CHARS: usize = 2_000;
/// Bytes of a file that are searched for a function.
const MAX_SEARCHED_BYTES: u64 = 1 << 20;
/// Lines of stderr in an error.
const STDERR_LINES: usize = 5;

/// A failed script call.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The script cannot be run. Nothing was executed.
    #[error("{message}")]
    Unusable {
        message: String,
        /// The suggested fix.
        hint: Option<String>,
        /// Details for the log only.
        #[source]
        cause: Option<InternalCause>,
    },
    /// The script ran and failed.
    #[error("{message}")]
    Failed {
        /// The script's own message.
        message: String,
        /// The script's own error code.
        tool_code: Option<String>,
        /// The script's suggested fix.
        hint: Option<String>,
        /// Details for the log only.
        #[source]
        cause: Option<InternalCause>,
    },
    /// An argument does not fit the parameter of a Python function. The function was not called.
    #[error("{0}")]
    WrongArgument(String),
    /// The process ended during the call. Its effects are not known.
    #[error("{0}")]
    Died(String),
    /// The result is too large.
    #[error("the result is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
}

/// Details for the log that callers must not see, such as a traceback.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InternalCause(String);

impl ScriptError {
    fn unusable(message: String, hint: impl Into<Option<String>>) -> Self {
        Self::Unusable { message, hint: hint.into(), cause: None }
    }

    fn failed(message: String) -> Self {
        Self::Failed { message, tool_code: None, hint: None, cause: None }
    }

    /// Takes the details for the log.
    pub fn take_cause(&mut self) -> Option<InternalCause> {
        match self {
            Self::Unusable { cause, .. } | Self::Failed { cause, .. } => cause.take(),
            Self::WrongArgument(_) | Self::Died(_) | Self::TooLarge { .. } => None,
        }
    }

    /// Takes the script's own error code.
    pub fn take_code(&mut self) -> Option<String> {
        match self {
            Self::Failed { tool_code, .. } => tool_code.take(),
            _ => None,
        }
    }

    /// The suggested fix.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unusable { hint, .. } | Self::Failed { hint, .. } => hint.as_deref(),
            Self::TooLarge { .. } => Some("return less, or raise `max_output` in `toolbox`"),
            Self::WrongArgument(_) | Self::Died(_) => None,
        }
    }
}

/// Runs scripts, and keeps the worker pools of Python tools.
#[derive(Debug)]
pub struct ScriptRunner {
    wire: WireLimits,
    shim: Option<PathBuf>,
    pools: Mutex<HashMap<ToolName, Arc<WorkerPool>>>,
    shutdowns: Arc<ShutdownTasks>,
}

impl ScriptRunner {
    /// Creates a runner without workers. Results are bounded by `wire`.
    pub fn new(wire: WireLimits) -> Self {
        Self { wire, shim: None, pools: Mutex::default(), shutdowns: Arc::default() }
    }

    /// Uses another executable as the shim.
    #[must_use]
    pub fn with_shim(self, shim: PathBuf) -> Self {
        Self { shim: Some(shim), ..self }
    }

    /// Runs a script, and returns its output as an MCP tool result. Dropping the future stops the program and everything
    /// it started.
    ///
    /// # Errors
    /// If the script cannot be run, fails, or returns an invalid result.
    pub async fn invoke(
        &self,
        tool: &Arc<ToolDefinition>,
        input: &Input,
        context: ToolContext,
    ) -> Result<RawJson, ScriptError> {
        let arguments = input.arguments();
        let call = ScriptCall {
            tool,
            script: &tool.script,
            limits: self.wire,
            shim: self.shim.as_deref(),
            shutdowns: &self.shutdowns,
        };
        if is_python(&tool.script) {
            self.pool(tool).call(&call, arguments, &context).await
        } else {
            program::run(&call, arguments, &context).await
        }
    }

    /// Describes the public functions of a Python file: one JSON object with the members `functions` and `version`. Runs
    /// the file in a process of its own, with the environment and the limits of a call, and ends the process.
    ///
    /// # Errors
    /// If the file cannot be loaded.
    pub fn describe(&self, script: ScriptSpec) -> BoxFuture<'_, Result<RawJson, ScriptError>> {
        Box::pin(async move {
            let name = "describe".parse().expect("a valid name");
            let tool = Arc::new(ToolDefinition::for_script(name, script));
            let call = ScriptCall {
                tool: &tool,
                script: &tool.script,
                limits: self.wire,
                shim: self.shim.as_deref(),
                shutdowns: &self.shutdowns,
            };
            let described = timeout(pool::LOAD_TIMEOUT, worker::describe(&call)).await;
            described.unwrap_or_else(|_| Err(pool::load_timeout(&call)))
        })
    }

    /// The worker pool of a tool. If its script entry has changed, the old pool is closed.
    fn pool(&self, tool: &ToolDefinition) -> Arc<WorkerPool> {
        let mut pools = self.pools();
        match pools.get(&tool.name) {
            Some(pool) if *pool.script() == tool.script => Arc::clone(pool),
            _ => {
                let pool = Arc::new(WorkerPool::new(tool.script.clone(), Arc::clone(&self.shutdowns)));
                if let Some(old) = pools.insert(tool.name.clone(), Arc::clone(&pool)) {
                    old.close();
                }
                pool
            }
        }
    }

    /// Closes the pools of all other tools. Running calls finish.
    pub fn retain_tools<'a>(&self, tools: impl IntoIterator<Item = &'a ToolDefinition>) {
        let names: HashSet<_> = tools.into_iter().map(|tool| &tool.name).collect();
        self.pools().retain(|name, pool| {
            let stays = names.contains(name);
            if !stays {
                pool.close();
            }
            stays
        });
    }

    /// Stops all processes, and waits for them.
    pub async fn stop(&self) {
        let pools: Vec<_> = self.pools().drain().map(|(_, pool)| pool).collect();
        for pool in pools {
            pool.stop().await;
        }
        self.shutdowns.wait_all().await;
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<ToolName, Arc<WorkerPool>>> {
        self.pools.lock()
    }
}

/// One call of a script: the script, and the settings to run it with.
#[derive(Clone, Copy)]
struct ScriptCall<'a> {
    tool: &'a Arc<ToolDefinition>,
    script: &'a ScriptSpec,
    limits: WireLimits,
    shim: Option<&'a Path>,
    shutdowns: &'a Arc<ShutdownTasks>,
}

impl ScriptCall<'_> {
    /// The child specification common to all scripts.
    fn child(&self, program: toolgate_types::ConfigString, cwd: &Path) -> ChildSpec {
        ChildSpec {
            env: self.script.env.clone(),
            limits: ProcessLimits {
                data_bytes: Some(self.script.max_memory.bytes()),
                ..ProcessLimits::default()
            },
            shim: self.shim.map(Path::to_owned),
            ..ChildSpec::new(program, cwd)
        }
    }

    /// Prepares a script's message for display: cleaned, without secrets, and truncated.
    fn quoted(&self, words: &str) -> String {
        let words = self.masked(words);
        match words.char_indices().nth(MAX_QUOTE_CHARS) {
            Some((end, _)) => format!("{}…", &words[..end]),
            None => words,
        }
    }

    fn masked(&self, words: &str) -> String {
        let values = self.script.env.values().flatten();
        let secrets: Vec<_> = values.map(|text| Secret::new(text.expose())).collect();
        mask(&sanitize(words), &secrets)
    }

    /// The path of the script, relative to the project.
    fn file(&self) -> String {
        let path = &self.script.script_path;
        path.strip_prefix(&self.script.project).unwrap_or(path).display().to_string()
    }

    fn cannot_start(&self, error: &SpawnError) -> ScriptError {
        let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        ScriptError::unusable(format!("{error}{source}"), error.hint())
    }
}

/// Finds the definition of a Python tool's function: `tools/cards.py:12`. `None` for other programs, and for functions that
/// the file does not define by name. Reads the file, so it is for errors only.
pub fn definition_place(script: &ScriptSpec) -> Option<String> {
    if !is_python(script) {
        return None;
    }
    let path = &script.script_path;
    let mut source = String::new();
    fs_err::File::open(path).ok()?.take(MAX_SEARCHED_BYTES).read_to_string(&mut source).ok()?;
    let defines = |line: &str| {
        let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("def ")?;
        rest.trim_start()
            .strip_prefix(script.entrypoint.as_str())?
            .trim_start()
            .starts_with('(')
            .then_some(())
    };
    let line = source.lines().position(|line| defines(line).is_some())? + 1;
    Some(format!("{}:{line}", path.strip_prefix(&script.project).unwrap_or(path).display()))
}

fn is_python(script: &ScriptSpec) -> bool {
    script.script_path.extension().is_some_and(|extension| extension == "py")
}
