//! `code_execution`: limits and sandbox of code sent by callers.

use std::num::NonZeroU32;

use toolgate_types::builtins::CodeExecutionConfig;
use toolgate_types::{ByteSize, ConfigString, HumanDuration};

use crate::context::Context;
use crate::keys::{Spanned, keys};
use crate::resolve::ConfigBuilder;

keys! {
    /// Python or shell code sent by callers. Each call runs in its own temporary folder.
    struct CodeExecutionFile as "code_execution" {
        /// Enables the tool.
        enabled: bool = "false",
        /// Sandboxes the code with Landlock and seccomp: no network, and no files except its own folder and
        /// (read-only) system programs. If the kernel does not support this, the call fails. With `false` the code
        /// has the same rights as Toolgate.
        sandbox: bool = "true",
        /// Timeout of one run.
        timeout: HumanDuration = "30s",
        /// Memory of all processes of one run together.
        max_memory: ByteSize = "512MiB",
        /// Maximum output on stdout, and on stderr.
        max_output: ByteSize = "1MiB",
        /// Maximum number of concurrent processes.
        max_processes: NonZeroU32 = "32",
        /// Maximum total size of the files it writes.
        max_disk: ByteSize = "64MiB",
        /// Python interpreter, for example of a virtual environment.
        python: ConfigString = "python3",
        /// More files and folders readable in the sandbox, relative to the project folder.
        read: Vec<Spanned<String>>,
    }
}

/// Default of `max_processes`.
const DEFAULT_MAX_PROCESSES: NonZeroU32 = NonZeroU32::new(32).expect("it is not zero");

impl ConfigBuilder {
    pub(crate) fn set_code_execution(&mut self, file: CodeExecutionFile, cx: &mut Context<'_>) {
        self.record_origins("code_execution", file.value_spans());
        let mut read = Vec::new();
        for Spanned { value, span, .. } in file.read.into_iter().flat_map(|at| at.value) {
            let path = cx.project.join(&value);
            if !path.exists() {
                let message = format!("`{value}` does not exist{}", cx.location_suffix());
                cx.error(span, message, "create it, or remove it from the list");
            }
            read.push(path);
        }
        if !file.enabled.is_some_and(|at| at.value) {
            return;
        }
        // A path is relative to the project folder, like all paths.
        let python = file.python.map_or_else(|| ConfigString::plain("python3"), |at| at.value);
        let python = if python.expose().contains('/') {
            ConfigString::plain(cx.project.join(python.expose()).to_string_lossy())
        } else {
            python
        };
        let size = |at: Option<Spanned<ByteSize>>, mib| at.map_or(ByteSize::from_mib(mib), |at| at.value);
        self.builtins.code_execution = Some(CodeExecutionConfig {
            sandbox: file.sandbox.is_none_or(|at| at.value),
            timeout: file.timeout.map_or(HumanDuration::from_secs(30), |at| at.value),
            max_memory: size(file.max_memory, 512),
            max_output: size(file.max_output, 1),
            max_processes: file.max_processes.map_or(DEFAULT_MAX_PROCESSES, |at| at.value),
            max_disk: size(file.max_disk, 64),
            python,
            read,
        });
    }
}
