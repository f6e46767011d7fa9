//! A child process, and everything it starts, under a shim that ends them together.
//!
//! The child gets an environment of its own, no shell, and no descriptor but stdin, stdout and stderr.
//! Invariant: a [`Child`] that was stopped or dropped leaves no process behind; what is dropped without
//! being stopped ends a little later, by itself.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use toolgate_types::Text;

pub mod confine;
pub mod shim;
mod stderr;
mod tree;

#[cfg(test)]
mod tests;

/// Our own variables that every child gets, where they are set.
const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"];
/// Where programs are looked up when there is no `PATH`, as the C library does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// This executable, even when its file was replaced by another version since it started.
pub(crate) const OURSELVES: &str = "/proc/self/exe";
/// Above what the shim takes from SIGTERM to its end. One that takes longer is stuck.
const SHIM_SLACK: Duration = Duration::from_millis(800);
/// For the rest of stderr to be read when the tree is gone.
const DRAIN: Duration = Duration::from_millis(200);

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// The program, looked up on the child's `PATH` unless it holds a `/`.
    pub program: Text,
    /// Its arguments.
    pub args: Vec<Text>,
    /// Its environment, beside the few variables that every child gets; `None` keeps one away.
    pub env: BTreeMap<String, Option<Text>>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// What it may use.
    pub limits: Limits,
    /// How long it may go on when its stdin is closed. A program that is to read all its input before it
    /// works needs as long as its work may take.
    pub grace: Duration,
    /// The executable whose `shim` command runs [`shim::main`]; this one where it is `None`.
    pub shim: Option<PathBuf>,
}

impl ChildSpec {
    /// A program without arguments, in this folder.
    pub fn new(program: Text, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: cwd.into(),
            limits: Limits::default(),
            grace: shim::STDIN_GRACE,
            shim: None,
        }
    }

    /// All variables of the child: ours that every child gets, then its own.
    fn environment(&self) -> BTreeMap<OsString, OsString> {
        let mut all: BTreeMap<OsString, OsString> =
            INHERITED.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
        for (name, value) in &self.env {
            match value {
                Some(value) => all.insert(name.into(), value.expose().into()),
                None => all.remove(OsStr::new(name)),
            };
        }
        all
    }
}

impl From<&toolgate_types::server::Stdio> for ChildSpec {
    fn from(server: &toolgate_types::server::Stdio) -> Self {
        Self {
            args: server.args.clone(),
            env: server.env.clone(),
            ..Self::new(server.command.clone(), &server.cwd)
        }
    }
}

/// What a child may use, it and each process it starts. `None` leaves a limit as ours is. There are
/// never core files: they hold secrets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open files. The shim needs a dozen itself.
    pub open_files: Option<u64>,
    /// Processes of the user, others included.
    pub processes: Option<u64>,
    /// Address space. Some programs reserve far more than they use.
    pub memory_bytes: Option<u64>,
    /// Memory that can be written to, whether it was yet or not.
    pub data_bytes: Option<u64>,
    /// The largest file that can be written.
    pub file_bytes: Option<u64>,
}

impl Limits {
    fn by_name(&mut self, name: &str) -> Option<&mut Option<u64>> {
        match name {
            "open_files" => Some(&mut self.open_files),
            "processes" => Some(&mut self.processes),
            "memory_bytes" => Some(&mut self.memory_bytes),
            "data_bytes" => Some(&mut self.data_bytes),
            "file_bytes" => Some(&mut self.file_bytes),
            _ => None,
        }
    }

    fn named(self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("open_files", self.open_files),
            ("processes", self.processes),
            ("memory_bytes", self.memory_bytes),
            ("data_bytes", self.data_bytes),
            ("file_bytes", self.file_bytes),
        ]
        .into_iter()
        .filter_map(|(name, limit)| Some((name, limit?)))
    }
}

/// Why a child was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program.
    #[error("command `{program}` was not found")]
    NotFound {
        /// As it may be shown.
        program: String,
        /// The folders that were looked through; `None` for a path.
        path: Option<String>,
    },
    /// There is none of the programs that would do.
    #[error("neither `{program}` nor `{other}` was found")]
    NoRunner {
        /// The first choice.
        program: String,
        /// The second.
        other: String,
        /// The folders that were looked through.
        path: String,
    },
    /// There is a file of that name that is not a program.
    #[error("`{}` is not executable", .0.display())]
    NotExecutable(PathBuf),
    /// Its working folder is missing.
    #[error("the working folder `{}` of command `{program}` does not exist", .cwd.display())]
    NoFolder {
        /// As it may be shown.
        program: String,
        /// The folder.
        cwd: PathBuf,
    },
    /// The system refused.
    #[error("cannot start command `{program}`")]
    Refused {
        /// As it may be shown.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl SpawnError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { program, path: Some(path) } => {
                let install = install(program);
                Some(format!("install {install}, or give its full path; looked in `PATH={path}`"))
            }
            Self::NoRunner { program, other, path } => {
                let (first, second) = (install(program), install(other));
                Some(format!("install {first}, or {second}; looked in `PATH={path}`"))
            }
            Self::NotFound { path: None, .. } => {
                Some("a path is taken from the working folder of the server".into())
            }
            Self::NotExecutable(path) => Some(format!("`chmod +x {}` makes it so", path.display())),
            Self::NoFolder { .. } => Some("make the folder, or correct `cwd`".into()),
            Self::Refused { .. } => None,
        }
    }
}

/// What to install to have a program, in words.
fn install(program: &str) -> String {
    match package_of(program) {
        Some(package) if package != program => format!("{package}, which brings `{program}`"),
        _ => format!("`{program}`"),
    }
}

/// What to install for the programs that servers are usually started with.
fn package_of(program: &str) -> Option<&'static str> {
    match program {
        "npx" | "npm" | "node" => Some("Node.js"),
        "uvx" | "uv" => Some("uv"),
        "pipx" => Some("pipx"),
        "python" | "python3" | "pip" => Some("Python"),
        "bunx" | "bun" => Some("Bun"),
        "deno" => Some("Deno"),
        "docker" => Some("Docker"),
        "podman" => Some("Podman"),
        _ => None,
    }
}

/// How a child ended. Its `Display` follows the name of the child: "`x` exited with code 3".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code. 127 may be a program that could not be started: stderr says.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody saw it.
    Unknown,
}

impl Exit {
    /// Whether it ended by itself and without complaint.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// From the end of the shim, which tells of a signal as a shell does.
    fn of_shim(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => {
                let signal = code - shim::SIGNALLED;
                if signal_hook::low_level::signal_name(signal).is_some() {
                    Self::Signal(signal)
                } else {
                    Self::Code(code)
                }
            }
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => {
                write!(f, "was killed by signal {signal}")?;
                let name = signal_hook::low_level::signal_name(*signal);
                name.map_or(Ok(()), |name| write!(f, " ({name})"))
            }
            Self::Unknown => write!(f, "ended, and nobody saw how"),
        }
    }
}

/// A running child.
///
/// Whoever takes `stdin` ends the child by dropping it, after the grace of the [`ChildSpec`].
#[derive(Debug)]
pub struct Child {
    /// Its standard input, until it is taken.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, until it is taken.
    pub stdout: Option<ChildStdout>,
    shim: Pid,
    /// Names the shim for certain, which a number that may be used again does not.
    shim_fd: OwnedFd,
    stderr: Arc<stderr::Tail>,
    exit: watch::Receiver<Option<Exit>>,
    /// The task that reads stderr and waits for the end. Dropped with the child, when the runtime takes
    /// over the waiting.
    _tasks: JoinSet<()>,
}

impl Child {
    /// Starts a program. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When it is clear that the program cannot run. What only its start shows is told by
    /// [`Child::exit`] and [`Child::stderr_tail`].
    pub fn spawn(spec: &ChildSpec) -> Result<Self, SpawnError> {
        let shown = || spec.program.shown().to_owned();
        let refused = |source| SpawnError::Refused { program: shown(), source };
        if !fs_err::metadata(&spec.cwd).is_ok_and(|folder| folder.is_dir()) {
            return Err(SpawnError::NoFolder { program: shown(), cwd: spec.cwd.clone() });
        }
        let environment = spec.environment();
        let program = resolve(&spec.program, environment.get(OsStr::new("PATH")), &spec.cwd)?;
        let args = shim::Args {
            parent: Some(rustix::process::getpid()),
            grace: spec.grace,
            limits: spec.limits,
            program: program.into(),
            args: spec.args.iter().map(|arg| arg.expose().into()).collect(),
        };
        let mut process = Command::new(spec.shim.as_deref().unwrap_or(Path::new(OURSELVES)))
            .arg0("toolgate")
            .arg("shim")
            .args(args.to_command_line())
            .current_dir(&spec.cwd)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(refused)?;
        // It cannot have been collected yet, so the number is good. An error from here on drops the
        // pipes, which ends the shim.
        let shim = process.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or_else(|| {
            SpawnError::Refused { program: shown(), source: io::Error::other("it has no process id") }
        })?;
        let shim_fd = pidfd_open(shim, PidfdFlags::empty()).map_err(|errno| refused(errno.into()))?;
        let (stdin, stdout, errors) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let stderr = Arc::new(stderr::Tail::default());
        let (tell, exit) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(attend(process, shim, errors, Arc::clone(&stderr), tell));
        Ok(Self { stdin, stdout, shim, shim_fd, stderr, exit, _tasks: tasks })
    }

    /// The process id of the shim, under which the program runs.
    pub fn id(&self) -> u32 {
        self.shim.as_raw_nonzero().get().unsigned_abs()
    }

    /// The last lines it wrote to stderr, fit to be shown.
    pub fn stderr_tail(&self, lines: usize) -> Vec<String> {
        self.stderr.lines(lines)
    }

    /// Whether the child and all it started have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// How much it wrote to stderr so far.
    pub(crate) fn stderr_written(&self) -> u64 {
        self.stderr.written()
    }

    /// The last lines it wrote to stderr after so much was written, fit to be shown.
    pub(crate) fn stderr_since(&self, written: u64, lines: usize) -> Vec<String> {
        self.stderr.lines_since(written, lines)
    }

    /// Waits until the child and all it started have ended. Any number may wait.
    pub fn exit(&self) -> impl Future<Output = Exit> + Send + 'static {
        let mut exit = self.exit.clone();
        async move {
            // The sender goes without a word only when the runtime does.
            exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit).unwrap_or(Exit::Unknown)
        }
    }

    /// Ends the child and all it started: stdin is closed, after `grace` comes SIGTERM, two seconds later
    /// SIGKILL. Returns when none of them is left.
    ///
    /// Stdin closes only if it was not taken, or whoever took it dropped it.
    pub async fn stop(&mut self, grace: Duration) -> Exit {
        drop(self.stdin.take());
        if let Ok(exit) = timeout(grace, self.exit()).await {
            return exit;
        }
        self.signal(Signal::TERM);
        if let Ok(exit) = timeout(shim::TERM_GRACE + SHIM_SLACK, self.exit()).await {
            return exit;
        }
        // The shim is stopped by a signal, or has met a process that does not die.
        let shim = self.shim;
        // Where `/proc` cannot be read, the signal below is all there is.
        let _ = spawn_blocking(move || tree::end(shim)).await;
        self.signal(Signal::KILL);
        timeout(SHIM_SLACK, self.exit()).await.unwrap_or(Exit::Unknown)
    }

    /// Ends the child and all it started at once, by SIGKILL.
    pub(crate) async fn kill(&mut self) -> Exit {
        let shim = self.shim;
        // Where `/proc` cannot be read, `stop` does what can be done.
        let _ = spawn_blocking(move || tree::end(shim)).await;
        match timeout(SHIM_SLACK, self.exit()).await {
            Ok(exit) => exit,
            Err(_) => self.stop(Duration::ZERO).await,
        }
    }

    /// How many processes there are below the shim, and the memory that they hold. Blocks.
    pub(crate) fn usage(shim: u32) -> io::Result<(usize, u64)> {
        let shim = Pid::from_raw(shim.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        tree::usage(shim)
    }

    fn signal(&self, signal: Signal) {
        // It fails when the shim is gone, which is what all signals here want.
        let _ = pidfd_send_signal(&self.shim_fd, signal);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Where we hold stdin, closing it is the polite way. Somebody else may never close it.
        if self.stdin.is_none() {
            self.signal(Signal::TERM);
        }
    }
}

/// Reads stderr and waits for the end, then tells it.
async fn attend(
    mut process: tokio::process::Child,
    shim: Pid,
    errors: Option<ChildStderr>,
    stderr: Arc<stderr::Tail>,
    tell: watch::Sender<Option<Exit>>,
) {
    let read = async {
        if let Some(errors) = errors {
            // An error ends the reading as the end does.
            let _ = stderr.fill(errors).await;
        }
    };
    tokio::pin!(read);
    let mut all_read = false;
    let status = loop {
        tokio::select! {
            status = process.wait() => break status,
            () = &mut read, if !all_read => all_read = true,
        }
    };
    if status.as_ref().is_ok_and(|status| status.signal().is_some()) {
        // Somebody killed the shim. What has not left its session can still be found.
        let _ = spawn_blocking(move || tree::end_session(shim)).await;
    }
    if !all_read {
        // The last words matter most. They end with the tree, unless one of it was handed elsewhere.
        let _ = timeout(DRAIN, read).await;
    }
    // Who is told finds all of it gone, our descriptors included.
    drop(process);
    // Nobody may be waiting.
    let _ = tell.send(Some(status.map_or(Exit::Unknown, Exit::of_shim)));
}

/// The file of a program, as the child would find it.
fn resolve(program: &Text, path: Option<&OsString>, cwd: &Path) -> Result<PathBuf, SpawnError> {
    let name = program.expose();
    let is_path = name.contains('/');
    let path = path.map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str);
    // The shim looks from another folder than we do.
    let cwd = &std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
    let candidates: Vec<PathBuf> = if is_path {
        vec![cwd.join(name)]
    } else {
        // An empty entry is the working folder, which `join` makes of it.
        std::env::split_paths(path).map(|folder| cwd.join(folder).join(name)).collect()
    };
    let mut not_executable = None;
    for candidate in candidates.into_iter().filter(|_| !name.is_empty()) {
        if fs_err::metadata(&candidate).is_ok_and(|file| file.is_file()) {
            if rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK).is_ok() {
                return Ok(candidate);
            }
            not_executable.get_or_insert(candidate);
        }
    }
    Err(not_executable.map_or_else(
        || SpawnError::NotFound {
            program: program.shown().to_owned(),
            path: (!is_path).then(|| path.display().to_string()),
        },
        SpawnError::NotExecutable,
    ))
}
