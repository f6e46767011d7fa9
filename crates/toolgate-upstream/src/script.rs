//! A tool that is a program of one's own: a Python file with a function, or any executable.
//!
//! A Python file is kept ready in worker processes, one call at a time each; an executable is started for every
//! call, gets the arguments as JSON on stdin and answers on stdout. Only what was decided on and checked gets here:
//!
//! ```compile_fail
//! # async fn f(scripts: &toolgate_upstream::Scripts, tool: &std::sync::Arc<toolgate_types::ToolDefinition>, context: toolgate_types::ToolContext) {
//! let arguments = toolgate_types::json::Raw::of(&"{}");
//! scripts.invoke(tool, &arguments, context).await;
//! # }
//! ```
//!
//! Invariant: no shell; nothing of a call that was given up goes on; and what one call printed is not told to another.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolgate_mcp::Raw;
use toolgate_mcp::scan::Limits as WireLimits;
use toolgate_policy::Input;
use toolgate_types::clean::clean;
use toolgate_types::redact::mask;
use toolgate_types::tool::Script;
use toolgate_types::{Secret, ToolContext, ToolDefinition, ToolName};

use crate::process::{ChildSpec, Limits, SpawnError};

mod file;
pub(crate) mod leaving;
mod pool;
mod program;
mod reply;
mod worker;

use leaving::Leaving;
use pool::Pool;

/// Characters of a program's own words in an error.
const LONGEST_QUOTE: usize = 2_000;
/// Lines of stderr in an error.
const LAST_WORDS: usize = 5;

/// Why a script gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It cannot be run at all. Nothing was done.
    #[error("{message}")]
    Unusable {
        /// Why.
        message: String,
        /// What to do about it.
        hint: Option<String>,
        /// What is behind it, for the log.
        #[source]
        cause: Option<Cause>,
    },
    /// It ran, and failed.
    #[error("{message}")]
    Failed {
        /// In its own words.
        message: String,
        /// What is behind it, for the log.
        #[source]
        cause: Option<Cause>,
    },
    /// It ended in the middle of the call. What it has done is not known.
    #[error("{0}")]
    Died(String),
    /// It gave more than may be given.
    #[error("the result is larger than {limit} bytes")]
    TooLarge {
        /// The most.
        limit: usize,
    },
}

/// What is for the log and not for callers, such as where in a program something went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cause(String);

impl ScriptError {
    fn unusable(message: String, hint: impl Into<Option<String>>) -> Self {
        Self::Unusable { message, hint: hint.into(), cause: None }
    }

    fn failed(message: String) -> Self {
        Self::Failed { message, cause: None }
    }

    /// What is behind it, for the log.
    pub fn take_cause(&mut self) -> Option<Cause> {
        match self {
            Self::Unusable { cause, .. } | Self::Failed { cause, .. } => cause.take(),
            Self::Died(_) | Self::TooLarge { .. } => None,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unusable { hint, .. } => hint.as_deref(),
            Self::TooLarge { .. } => Some("`max_output` in `toolbox` says how much a result may be"),
            Self::Failed { .. } | Self::Died(_) => None,
        }
    }
}

/// All scripts, with the workers that are kept ready for them.
#[derive(Debug)]
pub struct Scripts {
    wire: WireLimits,
    shim: Option<PathBuf>,
    pools: Mutex<HashMap<ToolName, Arc<Pool>>>,
    leaving: Arc<Leaving>,
}

impl Scripts {
    /// None yet. A result has no more bytes and levels than `wire` says.
    pub fn new(wire: WireLimits) -> Self {
        Self { wire, shim: None, pools: Mutex::default(), leaving: Arc::default() }
    }

    /// The same with another executable as the shim.
    #[must_use]
    pub fn with_shim(self, shim: PathBuf) -> Self {
        Self { shim: Some(shim), ..self }
    }

    /// Runs a tool with what was decided on, and gives its result in the form of a server's reply. Whoever drops
    /// this ends the program and all it started.
    ///
    /// # Errors
    /// When the script cannot be run, fails, or gives what is no result.
    pub async fn invoke(
        &self,
        tool: &Arc<ToolDefinition>,
        input: &Input,
        context: ToolContext,
    ) -> Result<Raw, ScriptError> {
        let arguments = input.arguments();
        let job = Job {
            tool,
            script: &tool.script,
            limits: self.wire,
            shim: self.shim.as_deref(),
            leaving: &self.leaving,
        };
        if is_python(&tool.script) {
            self.pool(tool).call(&job, arguments, &context).await
        } else {
            program::run(&job, arguments, &context).await
        }
    }

    /// The workers of a tool. Where its entry has changed, those of the old one go.
    fn pool(&self, tool: &ToolDefinition) -> Arc<Pool> {
        let mut pools = self.pools();
        match pools.get(&tool.name) {
            Some(pool) if *pool.script() == tool.script => Arc::clone(pool),
            _ => {
                let pool = Arc::new(Pool::new(tool.script.clone(), Arc::clone(&self.leaving)));
                if let Some(old) = pools.insert(tool.name.clone(), Arc::clone(&pool)) {
                    old.close();
                }
                pool
            }
        }
    }

    /// Ends the workers of tools that are not there any more; a call that runs ends as it began.
    pub fn keep<'a>(&self, tools: impl IntoIterator<Item = &'a ToolDefinition>) {
        let there: HashSet<_> = tools.into_iter().map(|tool| &tool.name).collect();
        self.pools().retain(|name, pool| {
            let stays = there.contains(name);
            if !stays {
                pool.close();
            }
            stays
        });
    }

    /// Ends every process, and waits for them.
    pub async fn stop(&self) {
        let pools: Vec<_> = self.pools().drain().map(|(_, pool)| pool).collect();
        for pool in pools {
            pool.stop().await;
        }
        self.leaving.wait().await;
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<ToolName, Arc<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call of a script: what is to be run, and how.
#[derive(Clone, Copy)]
struct Job<'a> {
    tool: &'a Arc<ToolDefinition>,
    script: &'a Script,
    limits: WireLimits,
    shim: Option<&'a Path>,
    leaving: &'a Arc<Leaving>,
}

impl Job<'_> {
    /// A child with what every child of a script gets.
    fn child(&self, program: toolgate_types::Text, cwd: &Path) -> ChildSpec {
        ChildSpec {
            env: self.script.env.clone(),
            limits: Limits { data_bytes: Some(self.script.max_memory.bytes()), ..Limits::default() },
            shim: self.shim.map(Path::to_owned),
            ..ChildSpec::new(program, cwd)
        }
    }

    /// What the program says, as it may be shown: cleaned, without secrets, and not without end.
    fn quoted(&self, words: &str) -> String {
        let words = self.masked(words);
        match words.char_indices().nth(LONGEST_QUOTE) {
            Some((end, _)) => format!("{}…", &words[..end]),
            None => words,
        }
    }

    fn masked(&self, words: &str) -> String {
        let values = self.script.env.values().flatten();
        let secrets: Vec<_> = values.map(|text| Secret::new(text.expose())).collect();
        mask(&clean(words), &secrets)
    }

    /// The file as it is shown.
    fn file(&self) -> String {
        let path = &self.script.script_path;
        path.strip_prefix(&self.script.project).unwrap_or(path).display().to_string()
    }

    fn cannot_start(&self, error: &SpawnError) -> ScriptError {
        let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        ScriptError::unusable(format!("{error}{source}"), error.hint())
    }
}

fn is_python(script: &Script) -> bool {
    script.script_path.extension().is_some_and(|extension| extension == "py")
}
