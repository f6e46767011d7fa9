//! A child process and everything it starts, under a shim that stops them together.
//!
//! The child gets its own environment, no shell, and no file descriptors except stdin, stdout and stderr, and its own
//! executable if that was opened before. Invariant: a [`Child`] that was stopped leaves no process behind; one that is
//! dropped without being stopped ends shortly after, by itself.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use toolgate_redact::looks_secret;
use toolgate_types::ConfigString;

use platform::ProcessHandle;

pub mod nesting;
pub mod orphans;
pub(crate) mod platform;
pub mod sandbox;
pub mod shim;
mod stderr;
mod tree;

#[cfg(test)]
mod tests;

/// Variables of our own environment that every child inherits.
const INHERITED: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"];
/// Variables that say how the network is reached: proxies, in upper and lower case, and certificate authorities.
const NETWORK_VARIABLES: [&str; 15] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_ENV_PROXY",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];
/// Prefixes of the settings of the package managers that start servers: registries, proxies, caches.
const PACKAGE_MANAGER_PREFIXES: [&str; 4] = ["UV_", "PIP_", "npm_config_", "NPM_CONFIG_"];
/// Variable with the folders of the projects above a server, separated by `:`. A project that finds itself in it was
/// started by one of its own servers.
pub const PROJECTS_VARIABLE: &str = "TOOLGATE_PROJECTS";
/// The search path if there is no `PATH`, as in the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The time beyond the grace periods after which a shim counts as stuck.
const SHIM_SLACK: Duration = Duration::from_millis(800);
/// The time to read the rest of stderr after the process tree has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// The program to start, and its environment.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// Looked up in the child's `PATH`, unless it contains a `/`.
    pub program: ConfigString,
    pub args: Vec<ConfigString>,
    /// Variables in addition to the inherited ones; `None` removes one.
    pub env: BTreeMap<String, Option<ConfigString>>,
    /// Inherit the variables that say how the network is reached, too.
    pub inherits_network: bool,
    pub cwd: PathBuf,
    pub limits: ProcessLimits,
    /// The time it may continue after its stdin was closed. A program that reads all of its input before it starts work
    /// needs as long as its work may take.
    pub grace: Duration,
    /// Restricts the program and everything it starts.
    pub sandbox: Option<sandbox::SandboxSpec>,
    /// The open file to execute instead of `program`, so that it cannot be replaced after it was checked. Systems that
    /// cannot execute an open file execute `program`.
    pub file: Option<Arc<OwnedFd>>,
    /// The executable whose `shim` command runs [`shim::main`]; this one if `None`.
    pub shim: Option<PathBuf>,
}

impl ChildSpec {
    pub fn new(program: ConfigString, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program,
            args: Vec::new(),
            env: BTreeMap::new(),
            inherits_network: true,
            cwd: cwd.into(),
            limits: ProcessLimits::default(),
            grace: shim::STDIN_GRACE,
            sandbox: None,
            file: None,
            shim: None,
        }
    }

    /// All variables of the child: the inherited ones, then its own.
    fn environment(&self) -> BTreeMap<OsString, OsString> {
        let mut all: BTreeMap<OsString, OsString> =
            INHERITED.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
        if self.inherits_network && self.sandbox.is_none() {
            all.extend(std::env::vars_os().filter_map(network_variable));
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => all.insert(name.into(), value.expose().into()),
                None => all.remove(OsStr::new(name)),
            };
        }
        all
    }
}

/// Returns a variable as a child gets it, if it says how the network is reached.
fn network_variable((name, value): (OsString, OsString)) -> Option<(OsString, OsString)> {
    let shown = name.to_str().filter(|name| is_network_variable(name))?;
    // Without the password of a proxy there is no network; the password of a registry opens more than the network.
    let is_proxy = shown.to_ascii_lowercase().contains("proxy");
    let value = match value.to_str() {
        Some(text) if !is_proxy => without_user_info(text).into(),
        _ => value,
    };
    Some((name, value))
}

/// Removes user and password from all URLs in a text. The URL stays: without it, a package of a private registry would be
/// looked up in the public one, where anybody may have published the name.
fn without_user_info(text: &str) -> String {
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let end =
            rest.find(|c: char| matches!(c, '/' | '?' | '#') || c.is_whitespace()).unwrap_or(rest.len());
        let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
        clean.push_str("://");
        clean.push_str(&rest[host..]);
    }
    clean
}

/// Returns true for a variable that says how the network is reached. Credentials of package managers are none: a server
/// gets them if its `env` has them.
fn is_network_variable(name: &str) -> bool {
    let is_setting = PACKAGE_MANAGER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let is_credential = || {
        let lower = name.to_ascii_lowercase();
        looks_secret(name) || lower.contains("_auth") || lower.ends_with("_key") || lower.ends_with("_otp")
    };
    NETWORK_VARIABLES.contains(&name) || is_setting && !is_credential()
}

impl From<&toolgate_types::server::StdioTransport> for ChildSpec {
    fn from(server: &toolgate_types::server::StdioTransport) -> Self {
        Self {
            args: server.args.clone(),
            env: server.env.clone(),
            ..Self::new(server.command.clone(), &server.cwd)
        }
    }
}

/// Resource limits of a child, and of each process it starts. `None` inherits our own limit. Core files are always
/// disabled, because they contain secrets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open files. The shim itself needs a dozen.
    pub open_files: Option<u64>,
    /// Processes of the user, including those of other programs.
    pub processes: Option<u64>,
    /// Address space. Some programs reserve far more than they use.
    pub memory_bytes: Option<u64>,
    /// Writable memory, used or not.
    pub data_bytes: Option<u64>,
    /// The largest file that can be written.
    pub file_bytes: Option<u64>,
}

impl ProcessLimits {
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

/// A child that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("command `{program}` was not found")]
    NotFound {
        /// The program, with secrets hidden.
        program: String,
        /// The search path; `None` if the program is a path.
        path: Option<String>,
    },
    /// Neither the program nor its fallback exists.
    #[error("neither `{program}` nor `{other}` was found")]
    NoRunner {
        program: String,
        /// The fallback.
        other: String,
        /// The search path.
        path: String,
    },
    /// The file exists and is not executable.
    #[error("`{}` is not executable", .0.display())]
    NotExecutable(PathBuf),
    /// The working folder does not exist.
    #[error("the working folder `{}` of command `{program}` does not exist", .cwd.display())]
    NoFolder {
        /// The program, with secrets hidden.
        program: String,
        cwd: PathBuf,
    },
    /// The system call failed.
    #[error("cannot start command `{program}`")]
    Refused {
        /// The program, with secrets hidden.
        program: String,
        #[source]
        source: io::Error,
    },
}

impl SpawnError {
    /// The suggested fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { program, path: Some(path) } => {
                let install = install_advice(program);
                Some(format!("install {install}, or give its full path; looked in `PATH={path}`"))
            }
            Self::NoRunner { program, other, path } => {
                let (first, second) = (install_advice(program), install_advice(other));
                Some(format!("install {first}, or {second}; looked in `PATH={path}`"))
            }
            Self::NotFound { path: None, .. } => {
                Some("relative paths start at the server's working folder".into())
            }
            Self::NotExecutable(path) => {
                Some(format!("make it executable with `chmod +x {}`", path.display()))
            }
            Self::NoFolder { .. } => Some("create the folder, or correct `cwd`".into()),
            Self::Refused { .. } => None,
        }
    }
}

/// Names the package to install, for a hint.
fn install_advice(program: &str) -> String {
    match package_of(program) {
        Some(package) if package != program => format!("{package}, which brings `{program}`"),
        _ => format!("`{program}`"),
    }
}

/// The package of a program that servers are commonly started with.
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

/// The exit status of a child. Its `Display` follows the name of the child: "`x` exited with code 3".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildExit {
    /// An exit code. 127 may mean that the program could not be started; stderr says so.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
    /// The status is not known.
    Unknown,
}

impl ChildExit {
    /// Returns true for exit code 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// Converts the exit status of the shim, which reports a signal as a shell does.
    fn from_shim_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => {
                let signal = code - shim::SIGNAL_EXIT_BASE;
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

impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => {
                write!(f, "was killed by signal {signal}")?;
                let name = signal_hook::low_level::signal_name(*signal);
                name.map_or(Ok(()), |name| write!(f, " ({name})"))
            }
            Self::Unknown => write!(f, "ended with unknown status"),
        }
    }
}

/// A running child.
///
/// After `stdin` was taken, dropping it ends the child, after the grace period of the [`ChildSpec`].
#[derive(Debug)]
pub struct Child {
    /// `None` after it was taken.
    pub stdin: Option<ChildStdin>,
    /// `None` after it was taken.
    pub stdout: Option<ChildStdout>,
    shim: Pid,
    handle: ProcessHandle,
    stderr: Arc<stderr::StderrTail>,
    exit: watch::Receiver<Option<ChildExit>>,
    /// The task that reads stderr and waits for the exit. Dropped with the child; then the tokio runtime reaps the
    /// process.
    _tasks: JoinSet<()>,
}

impl Child {
    /// Starts a program. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the program clearly cannot run. Errors that only show at startup are reported by [`Child::exit`] and
    /// [`Child::stderr_tail`].
    pub fn spawn(spec: &ChildSpec) -> Result<Self, SpawnError> {
        let shown = || spec.program.redacted().to_owned();
        let refused = |source| SpawnError::Refused { program: shown(), source };
        if !fs_err::metadata(&spec.cwd).is_ok_and(|folder| folder.is_dir()) {
            return Err(SpawnError::NoFolder { program: shown(), cwd: spec.cwd.clone() });
        }
        let environment = spec.environment();
        let program = match &spec.file {
            Some(file) => executable(file, &spec.program)?,
            None => resolve(&spec.program, environment.get(OsStr::new("PATH")), &spec.cwd)?,
        };
        // A duplicate without close-on-exec. Other children that start at this moment inherit it too, and their shims
        // close it.
        let file =
            spec.file.as_deref().map(inheritable).transpose().map_err(|errno| refused(errno.into()))?;
        let args = shim::ShimArgs {
            parent: Some(rustix::process::getpid()),
            grace: spec.grace,
            limits: spec.limits,
            sandbox: spec.sandbox.clone(),
            file: file.as_ref().map(AsRawFd::as_raw_fd),
            program: program.into(),
            args: spec.args.iter().map(|arg| arg.expose().into()).collect(),
        };
        let executable = match &spec.shim {
            Some(shim) => shim.clone(),
            None => platform::own_executable().map_err(refused)?,
        };
        let mut command = Command::new(executable);
        command
            .arg0("toolgate")
            .arg("shim")
            .args(args.to_command_line())
            .current_dir(&spec.cwd)
            .env_clear()
            .env(shim::ARENA_RESERVE.0, shim::ARENA_RESERVE.1)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (mut process, registered) = orphans::spawn_shim(|| command.spawn()).map_err(refused)?;
        // The process id is valid, because the process cannot have been reaped yet. An error from here on drops the
        // pipes, which ends the shim.
        let shim = process.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or_else(|| {
            SpawnError::Refused { program: shown(), source: io::Error::other("it has no process id") }
        })?;
        let handle = platform::open_process(shim).map_err(refused)?;
        let (stdin, stdout, errors) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let stderr = Arc::new(stderr::StderrTail::default());
        let (exit_sender, exit) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(supervise(process, (shim, registered), errors, Arc::clone(&stderr), exit_sender));
        Ok(Self { stdin, stdout, shim, handle, stderr, exit, _tasks: tasks })
    }

    /// The process id of the shim.
    pub fn id(&self) -> u32 {
        self.shim.as_raw_nonzero().get().unsigned_abs()
    }

    /// The last lines of stderr, cleaned.
    pub fn stderr_tail(&self, lines: usize) -> Vec<String> {
        self.stderr.lines(lines)
    }

    /// Returns true if the child and everything it started have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Bytes written to stderr so far.
    pub(crate) fn stderr_written(&self) -> u64 {
        self.stderr.written()
    }

    /// The last lines of stderr after the first `written` bytes, cleaned.
    pub(crate) fn stderr_since(&self, written: u64, lines: usize) -> Vec<String> {
        self.stderr.lines_since(written, lines)
    }

    /// Waits until the child and everything it started have ended. May be called by several tasks.
    pub fn exit(&self) -> impl Future<Output = ChildExit> + Send + 'static {
        let mut exit = self.exit.clone();
        async move {
            // The sender is only dropped without a value if the runtime shuts down.
            exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit).unwrap_or(ChildExit::Unknown)
        }
    }

    /// Stops the child and everything it started: closes stdin, sends SIGTERM after `grace`, and SIGKILL two seconds
    /// later. Returns when no process is left.
    ///
    /// If stdin was taken, it only closes when its owner drops it.
    pub async fn stop(&mut self, grace: Duration) -> ChildExit {
        drop(self.stdin.take());
        if let Ok(exit) = timeout(grace, self.exit()).await {
            return exit;
        }
        self.signal(Signal::TERM);
        if let Ok(exit) = timeout(shim::TERM_GRACE + SHIM_SLACK, self.exit()).await {
            return exit;
        }
        // The shim was stopped by a signal, or a process does not die.
        let shim = self.shim;
        // If processes cannot be listed, the signal below is all that remains.
        let _ = spawn_blocking(move || tree::kill(shim)).await;
        self.signal(Signal::KILL);
        timeout(SHIM_SLACK, self.exit()).await.unwrap_or(ChildExit::Unknown)
    }

    /// Kills the child and everything it started at once, with SIGKILL.
    pub(crate) async fn kill(&mut self) -> ChildExit {
        let shim = self.shim;
        // If processes cannot be listed, `stop` is the fallback.
        let _ = spawn_blocking(move || tree::kill(shim)).await;
        match timeout(SHIM_SLACK, self.exit()).await {
            Ok(exit) => exit,
            Err(_) => self.stop(Duration::ZERO).await,
        }
    }

    /// The number of processes below the shim, and the memory they use, as far as the system tells. Blocks.
    pub(crate) fn usage(shim: u32) -> io::Result<(usize, u64)> {
        let shim = Pid::from_raw(shim.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        platform::usage(shim)
    }

    /// The bytes of files on a device that have no name and are held open by processes below the shim. Blocks.
    pub(crate) fn unlinked_bytes(shim: u32, device: u64) -> io::Result<u64> {
        let shim = Pid::from_raw(shim.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        platform::unlinked_bytes(shim, device)
    }

    /// Entries and bytes in the file system that the shim has mounted on the folder, if it has. Blocks.
    pub(crate) fn mounted_size(shim: u32, folder: &Path) -> Option<(usize, u64)> {
        platform::mounted_size(Pid::from_raw(shim.cast_signed())?, folder)
    }

    fn signal(&self, signal: Signal) {
        // Without a reliable handle, the id of a shim that was reaped could name another process.
        if self.has_ended() {
            return;
        }
        // Fails only if the shim is gone, and every signal here aims at that.
        let _ = platform::signal_process(&self.handle, signal);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // If stdin is still ours, closing it ends the child gracefully. Another owner may never close it.
        if self.stdin.is_none() {
            self.signal(Signal::TERM);
        }
    }
}

/// Reads stderr and waits for the exit, then publishes it.
async fn supervise(
    mut process: tokio::process::Child,
    (shim, registered): (Pid, orphans::RegisteredShim),
    errors: Option<ChildStderr>,
    stderr: Arc<stderr::StderrTail>,
    exit_sender: watch::Sender<Option<ChildExit>>,
) {
    let read = async {
        if let Some(errors) = errors {
            // A read error ends the reading like end of file.
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
        // The shim was killed from outside. Processes still in its session can be found, and those that are our
        // children now.
        let _ = spawn_blocking(move || tree::kill_session(shim).and_then(|()| orphans::kill_all())).await;
    }
    if !all_read {
        // The last lines matter most. The pipe closes with the tree, unless a descriptor was passed elsewhere.
        let _ = timeout(DRAIN_TIMEOUT, read).await;
    }
    // Before publishing, so that observers find everything gone, including our descriptors.
    drop((process, registered));
    // There may be no receiver.
    let _ = exit_sender.send(Some(status.map_or(ChildExit::Unknown, ChildExit::from_shim_status)));
}

/// Duplicates a descriptor, so that children inherit it.
fn inheritable(file: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::io::dup(file)
}

/// Checks that an open file can be executed.
fn executable(file: &OwnedFd, program: &ConfigString) -> Result<PathBuf, SpawnError> {
    let path = PathBuf::from(program.expose());
    let opened = platform::descriptor_path(file.as_raw_fd()).unwrap_or_else(|| path.clone());
    match rustix::fs::access(&opened, rustix::fs::Access::EXEC_OK) {
        Ok(()) => Ok(path),
        Err(_) => Err(SpawnError::NotExecutable(path)),
    }
}

/// Finds the executable of a program, as the child would.
fn resolve(program: &ConfigString, path: Option<&OsString>, cwd: &Path) -> Result<PathBuf, SpawnError> {
    let name = program.expose();
    let is_path = name.contains('/');
    let path = path.map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str);
    // Absolute, because the shim resolves relative to another folder.
    let cwd = &std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
    let candidates: Vec<PathBuf> = if is_path {
        vec![cwd.join(name)]
    } else {
        // An empty entry means the working folder, as `join` yields.
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
            program: program.redacted().to_owned(),
            path: (!is_path).then(|| path.display().to_string()),
        },
        SpawnError::NotExecutable,
    ))
}
