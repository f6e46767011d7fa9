//! Code that callers bring along: run once, under limits, in a folder of its own that is gone afterwards.
//!
//! The program stands under the shim, which ends all that it starts; in the sandbox, where the configuration wants it
//! (`process::confine`); and under `watch`, which looks at what limits of the kernel do not count:
//! all processes together. Invariant: whatever the code does, its processes and its folder are gone when the call is
//! over, and what is taken of it is bounded.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdout;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout};
use toolgate_types::builtins::CodeExecution;
use toolgate_types::{ErrorCode, Text};

use crate::builtin::Fault;
use crate::process::{Child, ChildSpec, Exit, Limits, OURSELVES, confine};
use crate::script::leaving::Leaving;

mod files;
mod scratch;
mod watch;

pub use files::Written;
use scratch::Scratch;

/// A call ends when its time is up, which is long before this.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a Python may take to say where it is.
const PROBE: Duration = Duration::from_secs(20);
/// For the rest of stdout to be read when the program and all it started are gone.
const DRAIN: Duration = Duration::from_millis(200);
/// Files that may be open.
const OPEN_FILES: u64 = 256;
/// Lines of stderr that are given.
const STDERR_LINES: usize = 200;
/// What a program may reserve beside what it uses, in times of that.
const RESERVE: u64 = 8;

/// In which language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// Python.
    Python,
    /// The shell of the system.
    Shell,
}

/// What is to be run.
#[derive(Debug, Deserialize)]
pub struct Job {
    /// In which language.
    pub language: Language,
    /// The code.
    pub code: String,
    /// What it can read from its stdin.
    #[serde(default)]
    pub stdin: String,
    /// Files that it finds in its folder.
    #[serde(default)]
    pub files: Vec<Input>,
}

/// A file that the code finds.
#[derive(Debug, Deserialize)]
pub struct Input {
    /// Its name, seen from the folder of the code.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// What came of it.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it last wrote to stderr.
    pub stderr: String,
    /// The files that it wrote.
    pub files: Vec<Written>,
    /// How many more there are.
    pub left_out: usize,
}

/// Why it was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    Time,
    Output,
    Memory,
    Processes,
    Disk,
}

/// A Python: the program, and the folders that it needs.
#[derive(Debug, Clone)]
struct Python {
    program: PathBuf,
    folders: Vec<PathBuf>,
}

/// Runs code.
#[derive(Debug)]
pub struct Runner {
    rules: CodeExecution,
    /// Where folders for calls are made.
    root: PathBuf,
    leaving: Arc<Leaving>,
    python: OnceCell<Python>,
}

impl Runner {
    /// Runs code under these rules, in folders below `.toolgate` of a project.
    pub fn new(rules: CodeExecution, project: &Path) -> Self {
        let root = project.join(".toolgate/scratch");
        Self { rules, root, leaving: Arc::default(), python: OnceCell::new() }
    }

    /// The rules.
    pub fn rules(&self) -> &CodeExecution {
        &self.rules
    }

    /// Waits until all that was given up is gone.
    pub async fn stop(&self) {
        self.leaving.wait().await;
    }

    /// Runs code. Whoever drops this ends it and all it started.
    ///
    /// # Errors
    /// When it cannot be run, or uses more than it may.
    pub async fn run(&self, job: &Job) -> Result<Ran, Fault> {
        if self.rules.sandbox && !confine::is_supported() {
            let message = "the code is not run, as this kernel cannot keep it in a sandbox (Landlock)";
            let hint = "a kernel from 5.13 on can, where it is built with Landlock; \
                        `code_execution.sandbox: false` runs code with all that Toolgate itself may do";
            return Err(Fault::new(ErrorCode::ServiceUnavailable, message).hint(hint));
        }
        let (program, mut args, needs) = self.interpreter(job.language).await?;
        let scratch = Scratch::new(&self.root, &self.leaving).map_err(|error| no_folder(&error))?;
        let main = files::prepare(scratch.path(), job)?;
        args.push(main.into());
        let spec = self.child(scratch.path(), program, args, needs);
        let child = Child::spawn(&spec).map_err(|error| {
            let fault = Fault::from(error.to_string());
            error.hint().map_or(fault.clone(), |hint| fault.hint(hint))
        })?;
        let mut scratch = scratch.with(child);
        let outcome = self.attend(&mut scratch, job.stdin.as_bytes()).await;
        let (stdout, exit, stopped) = outcome;
        let lines = scratch.child().map(|child| child.stderr_tail(STDERR_LINES)).unwrap_or_default();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout).into_owned(), lines.join("\n"));
        if let Some(why) = stderr.split_once(confine::REFUSED).filter(|_| exit == Exit::Code(127)) {
            return Err(Fault::new(ErrorCode::ServiceUnavailable, format!("{}{}", confine::REFUSED, why.1)));
        }
        if let Some(stopped) = stopped {
            return Err(self.told(stopped, &stdout, &stderr));
        }
        let (folder, most) = (scratch.path().to_owned(), self.rules.max_disk.bytes());
        let inputs: Vec<_> =
            job.files.iter().map(|file| (file.path.clone(), file.text.len() as u64)).collect();
        let collected = tokio::task::spawn_blocking(move || files::collect(&folder, &inputs, most)).await;
        let (files, left_out) = collected.unwrap_or_default();
        scratch.remove().await;
        Ok(Ran { exit, stdout, stderr, files, left_out })
    }

    /// Talks to it until it has ended, or has to be.
    async fn attend(&self, scratch: &mut Scratch, stdin: &[u8]) -> (Vec<u8>, Exit, Option<Stopped>) {
        let limit = self.rules.max_output.as_usize();
        let mut output = Vec::new();
        let folder = scratch.path().to_owned();
        let Some(child) = scratch.child() else { return (output, Exit::Unknown, None) };
        let (input, stdout) = (child.stdin.take(), child.stdout.take());
        let late = sleep_until(Instant::now() + self.rules.timeout.get());
        let stopped = {
            let feed = async {
                if let Some(mut input) = input {
                    // One that does not want it is free not to read it.
                    let _ = input.write_all(stdin).await;
                }
                // It ends when it has ended, not when it has its input.
                std::future::pending::<()>().await;
            };
            let read = async {
                let full = match stdout {
                    Some(stdout) => read(stdout, &mut output, limit).await,
                    None => false,
                };
                if full { Stopped::Output } else { std::future::pending().await }
            };
            let watched = watch::until_too_much(child, &folder, &self.rules);
            tokio::pin!(read);
            tokio::select! {
                _ = child.exit() => timeout(DRAIN, read).await.ok(),
                stopped = &mut read => Some(stopped),
                stopped = watched => Some(stopped),
                () = late => Some(Stopped::Time),
                () = feed => unreachable!("it waits for ever"),
            }
        };
        let exit = match stopped {
            Some(_) => child.kill().await,
            None => child.exit().await,
        };
        output.truncate(limit);
        (output, exit, stopped)
    }

    fn child(&self, folder: &Path, program: PathBuf, args: Vec<OsString>, needs: Vec<PathBuf>) -> ChildSpec {
        let text = |text: &OsString| Text::plain(text.to_string_lossy());
        let (program, args) = if self.rules.sandbox {
            let read = needs.into_iter().chain(self.rules.read.iter().cloned()).collect();
            let confines = confine::Confines { read, write: vec![folder.to_owned()] };
            (PathBuf::from(OURSELVES), confines.to_command_line(program.into(), args))
        } else {
            (program, args)
        };
        let mut spec = ChildSpec::new(Text::plain(program.to_string_lossy()), folder);
        spec.args = args.iter().map(text).collect();
        let here = folder.to_string_lossy();
        let own = [("HOME", &*here), ("TMPDIR", &here), ("PYTHONIOENCODING", "utf-8"), ("LC_ALL", "C.UTF-8")];
        spec.env = own.into_iter().map(|(name, value)| (name.to_owned(), Some(Text::plain(value)))).collect();
        let memory = self.rules.max_memory.bytes();
        spec.limits = Limits {
            open_files: Some(OPEN_FILES),
            processes: tasks().map(|all| all + u64::from(self.rules.max_processes.get())),
            memory_bytes: Some(memory.saturating_mul(RESERVE)),
            data_bytes: Some(memory),
            file_bytes: Some(self.rules.max_disk.bytes()),
        };
        spec.grace = AS_LONG_AS_IT_TAKES;
        spec
    }

    /// The program for a language, what comes before the code, and the folders that it needs.
    async fn interpreter(&self, language: Language) -> Result<(PathBuf, Vec<OsString>, Vec<PathBuf>), Fault> {
        if language == Language::Shell {
            return Ok((PathBuf::from("/bin/sh"), Vec::new(), Vec::new()));
        }
        let Python { program, folders } = self.python.get_or_try_init(|| self.probe()).await?.clone();
        // Unbuffered: what was written before it had to be ended is not lost. Nothing of the user's, no caches.
        let flags = ["-u", "-B", "-s", "-E"].map(OsString::from).to_vec();
        Ok((program, flags, folders))
    }

    /// Asks the Python of the configuration where it really is.
    async fn probe(&self) -> Result<Python, Fault> {
        let shown = self.rules.python.shown().to_owned();
        let failed = |why: String| {
            Fault::from(format!("Python (`{shown}`) cannot be used: {why}"))
                .hint("install Python, or say with `code_execution.python` where it is")
        };
        let mut spec = ChildSpec::new(self.rules.python.clone(), "/");
        let ask = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))";
        spec.args = ["-I", "-c", ask].map(Text::plain).to_vec();
        let mut child = Child::spawn(&spec).map_err(|error| failed(error.to_string()))?;
        let mut said = Vec::new();
        let stdout = child.stdout.take();
        let answer = timeout(PROBE, async {
            if let Some(stdout) = stdout {
                read(stdout, &mut said, 64 << 10).await;
            }
            child.exit().await
        });
        let exit = answer.await.map_err(|_| failed("it does not answer".to_owned()))?;
        let [program, prefix, base]: [PathBuf; 3] = serde_json::from_slice(&said)
            .map_err(|_| failed(format!("it {exit}: {}", child.stderr_tail(3).join("; "))))?;
        let mut folders = vec![prefix, base];
        // Nobody means to let all be read.
        folders.retain(|folder| folder.components().count() > 1);
        folders.dedup();
        Ok(Python { program, folders })
    }

    fn told(&self, stopped: Stopped, stdout: &str, stderr: &str) -> Fault {
        let CodeExecution { timeout, max_memory, max_output, max_processes, max_disk, .. } = &self.rules;
        let (code, what, key) = match stopped {
            Stopped::Time => (ErrorCode::Timeout, format!("ran for more than {timeout}"), "timeout"),
            Stopped::Output => {
                (ErrorCode::OutputTooLarge, format!("wrote more than {max_output}"), "max_output")
            }
            Stopped::Memory => (
                ErrorCode::ToolExecutionError,
                format!("used more than {max_memory} of memory"),
                "max_memory",
            ),
            Stopped::Processes => (
                ErrorCode::ToolExecutionError,
                format!("started more than {max_processes} processes"),
                "max_processes",
            ),
            Stopped::Disk => (
                ErrorCode::ToolExecutionError,
                format!("wrote more than {max_disk} or {} files", watch::MOST_ENTRIES),
                "max_disk",
            ),
        };
        let said = |name: &str, text: &str| match tail(text) {
            "" => String::new(),
            tail => format!("\n{name}: {tail}"),
        };
        let said = format!("{}{}", said("stdout", stdout), said("stderr", stderr));
        Fault::new(code, format!("the code {what} and was ended{said}"))
            .hint(format!("let it do less at once; `code_execution.{key}` says how much it may"))
    }
}

/// The end of what was said, in an error.
fn tail(text: &str) -> &str {
    let text = text.trim_end();
    &text[text.ceil_char_boundary(text.len().saturating_sub(500))..]
}

/// How many tasks there are on this machine: what a user may have is counted with those it has.
fn tasks() -> Option<u64> {
    let load = fs_err::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

fn no_folder(error: &std::io::Error) -> Fault {
    Fault::new(ErrorCode::StorageUnavailable, format!("there is no folder for the code: {error}"))
}

/// Reads to the end. Says whether there is more than may be.
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
