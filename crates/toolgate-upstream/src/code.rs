//! Code execution: runs code from callers once, under limits, in a scratch folder that is removed afterwards.
//!
//! The program runs under the shim, which stops everything it starts; in the sandbox, if the configuration enables it
//! (`process::sandbox`); and under `usage`, which enforces limits that the kernel does not apply to all processes
//! together. Invariant: when the call is over, its processes and its folder are gone, no matter what the code does,
//! and its output is bounded.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdout;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout};
use toolgate_types::builtins::CodeExecutionConfig;
use toolgate_types::{ConfigString, ErrorCode};

use crate::builtin::BuiltinError;
use crate::process::{Child, ChildExit, ChildSpec, ProcessLimits, platform, sandbox};
use crate::script::shutdown::ShutdownTasks;

mod files;
mod functions;
mod scratch;
mod usage;

pub use files::OutputFile;
pub use functions::{FunctionError, FunctionHost, ProgramFunction};
use scratch::ScratchDir;

/// Longer than any call may run: the deadline of the call ends it first.
const UNLIMITED_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
/// The time the Python interpreter may take to report its location.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// The time to read the rest of stdout after the process tree has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_OPEN_FILES: u64 = 256;
/// Lines of stderr in the result.
const STDERR_LINES: usize = 200;
/// The address space limit is this multiple of `max_memory`: programs reserve more than they use.
const ADDRESS_SPACE_FACTOR: u64 = 8;

/// The language of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    Python,
    /// `/bin/sh`.
    Shell,
}

/// The code to run, with its input.
#[derive(Debug, Deserialize)]
pub struct CodeJob {
    pub language: Language,
    pub code: String,
    #[serde(default)]
    pub stdin: String,
    /// Files to create in the scratch folder.
    #[serde(default)]
    pub files: Vec<InputFile>,
}

/// A file to create in the scratch folder.
#[derive(Debug, Deserialize)]
pub struct InputFile {
    /// The path relative to the scratch folder.
    pub path: String,
    pub text: String,
}

/// The result of running code.
#[derive(Debug)]
pub struct CodeOutcome {
    pub exit: ChildExit,
    pub stdout: String,
    /// The last lines of stderr.
    pub stderr: String,
    /// The files that the code wrote.
    pub files: Vec<OutputFile>,
    /// The number of files beyond the limit.
    pub omitted_files: usize,
}

/// The limit that the code has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    Time,
    Output,
    Memory,
    Processes,
    Disk,
}

/// A Python interpreter, and the folders it needs to read.
#[derive(Debug, Clone)]
struct PythonInstall {
    program: PathBuf,
    folders: Vec<PathBuf>,
}

/// Runs code.
#[derive(Debug)]
pub struct CodeRunner {
    config: CodeExecutionConfig,
    /// The parent of all scratch folders.
    root: PathBuf,
    shutdowns: Arc<ShutdownTasks>,
    python: OnceCell<PythonInstall>,
}

impl CodeRunner {
    /// Creates scratch folders below `.toolgate` of the project.
    pub fn new(config: CodeExecutionConfig, project: &Path) -> Self {
        let root = project.join(".toolgate/scratch");
        Self { config, root, shutdowns: Arc::default(), python: OnceCell::new() }
    }

    pub fn config(&self) -> &CodeExecutionConfig {
        &self.config
    }

    /// Waits until all cancelled calls are cleaned up.
    pub async fn stop(&self) {
        self.shutdowns.wait_all().await;
    }

    /// Runs code. Dropping the future stops the program and everything it started.
    ///
    /// # Errors
    /// If the code cannot be run, or exceeds a limit.
    pub async fn run(&self, job: &CodeJob) -> Result<CodeOutcome, BuiltinError> {
        self.run_job(job, None).await
    }

    /// Runs code. With a host, its output is frames, and its calls are answered.
    async fn run_job(
        &self,
        job: &CodeJob,
        host: Option<&dyn FunctionHost>,
    ) -> Result<CodeOutcome, BuiltinError> {
        if self.config.sandbox && !sandbox::is_supported() {
            let missing = sandbox::missing_layer().unwrap_or(sandbox::MissingLayer::Landlock);
            return Err(BuiltinError::new(ErrorCode::ServiceUnavailable, missing.to_string())
                .with_hint(missing.hint()));
        }
        let (program, mut args, needs) = self.interpreter(job.language).await?;
        let scratch = ScratchDir::new(&self.root, &self.shutdowns).map_err(|error| scratch_error(&error))?;
        let main = files::prepare(scratch.path(), job)?;
        args.push(main.into());
        let spec = self.child(scratch.path(), program, args, needs);
        let child = Child::spawn(&spec).map_err(|error| {
            let fault = BuiltinError::from(error.to_string());
            error.hint().map_or(fault.clone(), |hint| fault.with_hint(hint))
        })?;
        let mut scratch = scratch.with(child);
        let outcome = match host {
            Some(host) => self.serve_calls(&mut scratch, host).await,
            None => self.supervise(&mut scratch, job.stdin.as_bytes()).await,
        };
        let (stdout, exit, exceeded) = outcome;
        let lines = scratch.child().map(|child| child.stderr_tail(STDERR_LINES)).unwrap_or_default();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout).into_owned(), lines.join("\n"));
        if let Some(why) = stderr.split_once(sandbox::SANDBOX_FAILED).filter(|_| exit == ChildExit::Code(127))
        {
            return Err(BuiltinError::new(
                ErrorCode::ServiceUnavailable,
                format!("{}{}", sandbox::SANDBOX_FAILED, why.1),
            )
            .with_hint(sandbox::MissingLayer::Landlock.hint()));
        }
        if let Some(exceeded) = exceeded {
            return Err(self.limit_error(exceeded, &stdout, &stderr));
        }
        let (folder, max_bytes) = (scratch.path().to_owned(), self.config.max_disk.bytes());
        let inputs: Vec<_> =
            job.files.iter().map(|file| (file.path.clone(), file.text.len() as u64)).collect();
        let collected =
            tokio::task::spawn_blocking(move || files::collect(&folder, &inputs, max_bytes)).await;
        let (files, omitted) = collected.unwrap_or_default();
        scratch.remove().await;
        Ok(CodeOutcome { exit, stdout, stderr, files, omitted_files: omitted })
    }

    /// Feeds stdin and reads stdout until the program ends or exceeds a limit.
    async fn supervise(
        &self,
        scratch: &mut ScratchDir,
        stdin: &[u8],
    ) -> (Vec<u8>, ChildExit, Option<LimitExceeded>) {
        let limit = self.config.max_output.as_usize();
        let mut output = Vec::new();
        let folder = scratch.path().to_owned();
        let Some(child) = scratch.child() else { return (output, ChildExit::Unknown, None) };
        let (input, stdout) = (child.stdin.take(), child.stdout.take());
        let late = sleep_until(Instant::now() + self.config.timeout.get());
        let exceeded = {
            let feed = async {
                if let Some(mut input) = input {
                    // The program may end without reading its input.
                    let _ = input.write_all(stdin).await;
                }
                // The exit of the program ends the call, not the end of its input.
                std::future::pending::<()>().await;
            };
            let read = async {
                let full = match stdout {
                    Some(stdout) => read(stdout, &mut output, limit).await,
                    None => false,
                };
                if full { LimitExceeded::Output } else { std::future::pending().await }
            };
            let watched = usage::until_limit_exceeded(child, &folder, &self.config);
            tokio::pin!(read);
            tokio::select! {
                _ = child.exit() => timeout(DRAIN_TIMEOUT, read).await.ok(),
                exceeded = &mut read => Some(exceeded),
                exceeded = watched => Some(exceeded),
                () = late => Some(LimitExceeded::Time),
                () = feed => unreachable!("never completes"),
            }
        };
        let exit = match exceeded {
            Some(_) => child.kill().await,
            None => child.exit().await,
        };
        output.truncate(limit);
        (output, exit, exceeded)
    }

    fn child(&self, folder: &Path, program: PathBuf, args: Vec<OsString>, needs: Vec<PathBuf>) -> ChildSpec {
        let text = |text: &OsString| ConfigString::plain(text.to_string_lossy());
        let mut spec = ChildSpec::new(ConfigString::plain(program.to_string_lossy()), folder);
        // Code of callers: the proxy of the user may have a password, and nothing here may use the network of the user.
        spec.inherits_network = false;
        spec.args = args.iter().map(text).collect();
        spec.sandbox = self.config.sandbox.then(|| sandbox::SandboxSpec {
            read: needs.into_iter().chain(self.config.read.iter().cloned()).collect(),
            scratch: folder.to_owned(),
            max_bytes: self.config.max_disk.bytes(),
            max_entries: usage::MAX_ENTRIES as u64,
        });
        let here = folder.to_string_lossy();
        let own = [("HOME", &*here), ("TMPDIR", &here), ("PYTHONIOENCODING", "utf-8"), ("LC_ALL", "C.UTF-8")];
        spec.env = own
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Some(ConfigString::plain(value))))
            .collect();
        let memory = self.config.max_memory.bytes();
        spec.limits = ProcessLimits {
            open_files: Some(MAX_OPEN_FILES),
            // `RLIMIT_NPROC` counts all processes of the user, so the limit is added to their number.
            processes: platform::system_tasks().map(|all| all + u64::from(self.config.max_processes.get())),
            memory_bytes: Some(memory.saturating_mul(ADDRESS_SPACE_FACTOR)),
            data_bytes: Some(memory),
            file_bytes: Some(self.config.max_disk.bytes()),
        };
        spec.grace = UNLIMITED_GRACE;
        spec
    }

    /// The program for a language, its first arguments, and the folders it needs to read.
    async fn interpreter(
        &self,
        language: Language,
    ) -> Result<(PathBuf, Vec<OsString>, Vec<PathBuf>), BuiltinError> {
        if language == Language::Shell {
            return Ok((PathBuf::from("/bin/sh"), Vec::new(), Vec::new()));
        }
        let PythonInstall { program, folders } = self.python.get_or_try_init(|| self.probe()).await?.clone();
        // Unbuffered, so that output written before a kill is not lost. No user site-packages, no bytecode files.
        let flags = ["-u", "-B", "-s", "-E"].map(OsString::from).to_vec();
        Ok((program, flags, folders))
    }

    /// Asks the configured Python for its executable and its prefixes.
    async fn probe(&self) -> Result<PythonInstall, BuiltinError> {
        let shown = self.config.python.redacted().to_owned();
        let failed = |why: String| {
            BuiltinError::from(format!("Python (`{shown}`) cannot be used: {why}"))
                .with_hint("install Python, or set `code_execution.python` to its path")
        };
        let mut spec = ChildSpec::new(self.config.python.clone(), "/");
        spec.inherits_network = false;
        let ask = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))";
        spec.args = ["-I", "-c", ask].map(ConfigString::plain).to_vec();
        let mut child = Child::spawn(&spec).map_err(|error| failed(error.to_string()))?;
        let mut output = Vec::new();
        let stdout = child.stdout.take();
        let answer = timeout(PROBE_TIMEOUT, async {
            if let Some(stdout) = stdout {
                read(stdout, &mut output, 64 << 10).await;
            }
            child.exit().await
        });
        let exit = answer.await.map_err(|_| failed("it does not answer".to_owned()))?;
        let [program, prefix, base]: [PathBuf; 3] = serde_json::from_slice(&output)
            .map_err(|_| failed(format!("it {exit}: {}", child.stderr_tail(3).join("; "))))?;
        let mut folders = vec![prefix, base];
        // A prefix of `/` would let the code read everything.
        folders.retain(|folder| folder.components().count() > 1);
        folders.dedup();
        Ok(PythonInstall { program, folders })
    }

    fn limit_error(&self, exceeded: LimitExceeded, stdout: &str, stderr: &str) -> BuiltinError {
        let CodeExecutionConfig { timeout, max_memory, max_output, max_processes, max_disk, .. } =
            &self.config;
        let (code, what, key) = match exceeded {
            LimitExceeded::Time => (ErrorCode::Timeout, format!("ran for more than {timeout}"), "timeout"),
            LimitExceeded::Output => {
                (ErrorCode::OutputTooLarge, format!("wrote more than {max_output}"), "max_output")
            }
            LimitExceeded::Memory => (
                ErrorCode::ToolExecutionError,
                format!("used more than {max_memory} of memory"),
                "max_memory",
            ),
            LimitExceeded::Processes => (
                ErrorCode::ToolExecutionError,
                format!("started more than {max_processes} processes"),
                "max_processes",
            ),
            LimitExceeded::Disk => (
                ErrorCode::ToolExecutionError,
                format!("wrote more than {max_disk} or {} files", usage::MAX_ENTRIES),
                "max_disk",
            ),
        };
        let section = |name: &str, text: &str| match tail(text) {
            "" => String::new(),
            tail => format!("\n{name}: {tail}"),
        };
        let output = format!("{}{}", section("stdout", stdout), section("stderr", stderr));
        BuiltinError::new(code, format!("the code {what} and was stopped{output}"))
            .with_hint(format!("reduce the work, or raise `code_execution.{key}`"))
    }
}

/// The end of an output, for an error message.
fn tail(text: &str) -> &str {
    let text = text.trim_end();
    &text[text.ceil_char_boundary(text.len().saturating_sub(500))..]
}

fn scratch_error(error: &std::io::Error) -> BuiltinError {
    BuiltinError::new(ErrorCode::StorageUnavailable, format!("cannot create a scratch folder: {error}"))
}

/// Reads to the end. Returns true if the output exceeds the limit.
async fn read(mut stdout: ChildStdout, output: &mut Vec<u8>, limit: usize) -> bool {
    loop {
        output.reserve(64 << 10);
        match stdout.read_buf(output).await {
            Ok(0) | Err(_) => return false,
            Ok(_) if output.len() > limit => return true,
            Ok(_) => {}
        }
    }
}

/// Code that needs a sandbox is refused on systems without one, before anything starts.
#[cfg(all(test, any(not(target_os = "linux"), feature = "portable")))]
#[tokio::test]
async fn code_is_refused_without_a_sandbox() {
    let config = CodeExecutionConfig {
        sandbox: true,
        timeout: "1s".parse().unwrap(),
        max_memory: "64MiB".parse().unwrap(),
        max_output: "1KiB".parse().unwrap(),
        max_processes: std::num::NonZeroU32::MIN,
        max_disk: "1MiB".parse().unwrap(),
        python: ConfigString::plain("python3"),
        read: Vec::new(),
    };
    let project = tempfile::tempdir().unwrap();
    let job: CodeJob =
        serde_json::from_value(serde_json::json!({ "language": "shell", "code": "touch /tmp/never" }))
            .unwrap();
    let refused = CodeRunner::new(config, project.path()).run(&job).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ServiceUnavailable);
    assert_eq!(refused.message, "`code_execution` cannot run code: its sandbox exists on Linux only");
    assert!(refused.hint.unwrap().contains("`code_execution.sandbox: false`"));
    // The process that would run it refuses, too.
    let spec = sandbox::SandboxSpec {
        read: Vec::new(),
        scratch: project.path().to_owned(),
        max_bytes: 1 << 20,
        max_entries: 10,
    };
    assert!(platform::sandbox::enter(&spec).is_err());
    assert!(fs_err::read_dir(project.path()).unwrap().next().is_none(), "nothing was created");
}
