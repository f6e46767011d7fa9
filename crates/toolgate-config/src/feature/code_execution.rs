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

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    fn project(text: &str) -> LoadOutcome {
        loaded(&[("toolgate.yaml", text)], &[])
    }

    #[test]
    fn values_and_defaults() {
        let text = "code_execution: {enabled: true, sandbox: false, timeout: 6s, max_memory: 100MiB, max_output: 2KiB, \
                    max_processes: 3, max_disk: 5MiB, python: python3.13}";
        insta::assert_snapshot!(config(&project(text))["code_execution"], @r#"{"sandbox":false,"timeout":"6s","max_memory":"100MiB","max_output":"2KiB","max_processes":3,"max_disk":"5MiB","python":"python3.13","read":[]}"#);
        insta::assert_snapshot!(config(&project("code_execution: {enabled: true}"))["code_execution"], @r#"{"sandbox":true,"timeout":"30s","max_memory":"512MiB","max_output":"1MiB","max_processes":32,"max_disk":"64MiB","python":"python3","read":[]}"#);
        for off in ["name: x", "code_execution: {}", "code_execution: {timeout: 6s}"] {
            assert!(config(&project(off)).get("code_execution").is_none(), "{off}");
        }
    }

    /// Programs with a path, and folders to read, are relative to the project.
    #[test]
    fn paths_start_at_the_project() {
        let loaded =
            project("code_execution: {enabled: true, python: env/bin/python, read: [toolgate.yaml]}");
        let config = loaded.config.as_ref().unwrap();
        let code = config.builtins.code_execution.as_ref().unwrap();
        assert_eq!(code.python.expose(), config.project.join("env/bin/python").display().to_string());
        assert_eq!(code.read, [config.project.join("toolgate.yaml")]);
    }

    #[test]
    fn reports_mistakes() {
        let text = "code_execution: {enabled: maybe, max_memory: 0, max_processes: 0, read: [gone]}";
        insta::assert_snapshot!(messages(&project(text)), @"
        error toolgate.yaml:1:27 `maybe` is neither `true` nor `false` in code_execution (write `true` or `false`)
        error toolgate.yaml:1:46 `0` is not a size in code_execution (a size must be more than zero)
        error toolgate.yaml:1:64 `0` is not a positive whole number in code_execution (write a whole number from 1 on)
        error toolgate.yaml:1:74 `gone` does not exist (create it, or remove it from the list)
        ");
    }
}
