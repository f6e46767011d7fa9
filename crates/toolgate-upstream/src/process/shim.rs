//! The shim: a small process between Toolgate and a program. It stops the program's whole process tree.
//!
//! `toolgate shim [--parent PID] [--grace MS] [--limit NAME=NUMBER]… [--file DESCRIPTOR] [--scratch PATH --disk BYTES
//! --entries NUMBER [--read PATH]…] [--] PROGRAM ARGUMENT…`
//!
//! Killing a process group misses programs that created their own session or forked twice, and Toolgate cannot clean up
//! if it is killed by SIGKILL. Therefore the shim leads a session, and on Linux it is the subreaper of the tree, which
//! inherits all orphans. It also polls its stdin, whose other end only Toolgate holds: a hang-up means that stdin was
//! closed on purpose or that Toolgate is gone. The shim never reads from stdin; the program does. Invariant: the shim ends
//! after its tree. It has no thread, no runtime and no unsafe code.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{self, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

use super::platform::sandbox::{enter, store_files};
use super::sandbox::{SANDBOX_FAILED, SandboxSpec};
use super::{ProcessLimits, platform, sandbox, tree};

#[cfg(test)]
mod tests;

/// Grace period after stdin was closed.
pub(crate) const STDIN_GRACE: Duration = Duration::from_secs(2);
/// Grace period between SIGTERM and SIGKILL.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(2);
/// The same grace periods after Toolgate is gone. Shorter, because no caller waits for a clean exit.
const ORPHAN_STDIN_GRACE: Duration = Duration::from_millis(200);
const ORPHAN_TERM_GRACE: Duration = Duration::from_secs(1);
/// Grace period between SIGTERM and SIGKILL for processes left behind by a program that exited by itself.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// The interval for checking if Toolgate is gone, during a shutdown.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Exponential backoff between rounds of SIGKILL: a process in an uninterruptible system call may take long to die, and
/// the shim must not burn CPU until then.
const KILL_INTERVAL_MIN: Duration = Duration::from_millis(2);
const KILL_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Exit code for wrong arguments.
const USAGE_ERROR: u8 = 2;
/// Exit code for a program that cannot be started, as in a shell.
pub(crate) const CANNOT_START: u8 = 127;
/// Added to the signal that killed the program, as in a shell.
pub(crate) const SIGNAL_EXIT_BASE: i32 = 128;

/// Runs the shim with the arguments after `shim`.
///
/// Must be called before any other setup: every child starts through here.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter().peekable();
    if args.next_if(|first| first == sandbox::SUBCOMMAND).is_some() {
        return platform::sandbox::main(args);
    }
    if args.next_if(|first| first == sandbox::PROBE).is_some() {
        return platform::sandbox::probe();
    }
    match ShimArgs::parse(args).map(|args| run(&args)) {
        Ok(Ok(code)) => code,
        Ok(Err(StartError { program, source })) => {
            log_line(&format!("cannot start `{}`: {source}", program.display()));
            ExitCode::from(CANNOT_START)
        }
        Err(UsageError(what)) => {
            log_line(&format!("shim: {what}"));
            ExitCode::from(USAGE_ERROR)
        }
    }
}

/// Writes one line to stderr. Ignores errors, because stderr may be closed.
pub(super) fn log_line(text: &str) {
    let _ = writeln!(io::stderr(), "toolgate: {text}");
}

/// The command line of the shim.
#[derive(Debug)]
pub(crate) struct ShimArgs {
    /// The process id of Toolgate. Another parent means that Toolgate is gone.
    pub(crate) parent: Option<Pid>,
    pub(crate) grace: Duration,
    pub(crate) limits: ProcessLimits,
    /// Runs the program in a sandbox.
    pub(crate) sandbox: Option<SandboxSpec>,
    /// The descriptor of the program, executed instead of its path. The program inherits it, because the
    /// interpreter of a script opens the script through it.
    pub(crate) file: Option<RawFd>,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

#[derive(Debug)]
struct UsageError(String);

/// The program did not start.
#[derive(Debug)]
struct StartError {
    program: OsString,
    source: io::Error,
}

impl ShimArgs {
    fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut args = args.into_iter();
        let (mut parent, mut grace, mut limits) = (process::getppid(), STDIN_GRACE, ProcessLimits::default());
        let (mut read, mut scratch, mut file) = (Vec::new(), None, None);
        let (mut max_bytes, mut max_entries) = (0, 0);
        let program = loop {
            let flag = args.next().ok_or_else(|| UsageError("no program is given".into()))?;
            if flag == "--" {
                break args.next().ok_or_else(|| UsageError("no program is given".into()))?;
            }
            if !flag.as_encoded_bytes().starts_with(b"-") {
                break flag;
            }
            let value = args.next();
            match (flag.to_str(), &value) {
                (Some("--read"), Some(path)) => {
                    read.push(PathBuf::from(path));
                    continue;
                }
                (Some("--scratch"), Some(path)) => {
                    scratch = Some(PathBuf::from(path));
                    continue;
                }
                _ => {}
            }
            let value = value.as_deref().and_then(OsStr::to_str).unwrap_or_default();
            let wrong = || UsageError(format!("`{value}` is not a valid value for `{}`", flag.display()));
            match flag.to_str() {
                Some("--parent") => {
                    parent = Some(value.parse().ok().and_then(Pid::from_raw).ok_or_else(wrong)?);
                }
                Some("--grace") => grace = Duration::from_millis(value.parse().map_err(|_| wrong())?),
                Some("--file") => file = Some(value.parse().map_err(|_| wrong())?),
                Some("--disk") => max_bytes = value.parse().map_err(|_| wrong())?,
                Some("--entries") => max_entries = value.parse().map_err(|_| wrong())?,
                Some("--limit") => {
                    let (name, number) = value.split_once('=').ok_or_else(wrong)?;
                    let number = number.parse().map_err(|_| wrong())?;
                    *limits.by_name(name).ok_or_else(wrong)? = Some(number);
                }
                _ => return Err(UsageError(format!("unknown flag `{}`", flag.display()))),
            }
        };
        let sandbox = scratch.map(|scratch| SandboxSpec { read, scratch, max_bytes, max_entries });
        Ok(Self { parent, grace, limits, sandbox, file, program, args: args.collect() })
    }

    /// The arguments that parse to this value.
    pub(crate) fn to_command_line(&self) -> Vec<OsString> {
        let mut line = vec!["--grace".into(), self.grace.as_millis().to_string().into()];
        if let Some(parent) = self.parent {
            line.extend(["--parent".into(), parent.as_raw_nonzero().to_string().into()]);
        }
        for (name, number) in self.limits.named() {
            line.extend(["--limit".into(), format!("{name}={number}").into()]);
        }
        if let Some(file) = self.file {
            line.extend(["--file".into(), file.to_string().into()]);
        }
        if let Some(SandboxSpec { read, scratch, max_bytes, max_entries }) = &self.sandbox {
            line.extend(read.iter().flat_map(|path| ["--read".into(), path.into()]));
            line.extend(["--scratch".into(), scratch.into()]);
            line.extend(["--disk".into(), max_bytes.to_string().into()]);
            line.extend(["--entries".into(), max_entries.to_string().into()]);
        }
        line.extend(["--".into(), self.program.clone()]);
        line.extend(self.args.iter().cloned());
        line
    }
}

fn run(args: &ShimArgs) -> Result<ExitCode, StartError> {
    let failed = |source| StartError { program: args.program.clone(), source };
    close_inherited(args.file);
    isolate(&args.limits).map_err(failed)?;
    let scratch = match args.sandbox.as_ref().map(enter) {
        None => None,
        Some(Ok(scratch)) => scratch,
        Some(Err(error)) => {
            log_line(&format!("{SANDBOX_FAILED}{error}"));
            return Ok(ExitCode::from(CANNOT_START));
        }
    };
    let signals = SignalPipe::register().map_err(failed)?;
    let child = start(args, scratch.is_some()).map_err(failed)?;
    release_output();
    let code = TreeSupervisor { args, child, signals, status: None }.supervise_until_end();
    if let Some(scratch) = &scratch {
        store_files(scratch);
    }
    Ok(code)
}

/// Closes descriptors inherited from Toolgate's own parent. Toolgate opens its descriptors with close-on-exec, but one
/// that was leaked into Toolgate would be passed on.
fn close_inherited(except: Option<RawFd>) {
    let Ok(listing) = fs_err::read_dir(platform::DESCRIPTORS) else { return };
    let open: Vec<i32> =
        listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // Contains the descriptor of the listing itself. It is already closed: closing it again is harmless.
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2 && Some(*descriptor) != except) {
        let _ = nix::unistd::close(descriptor);
    }
}

fn isolate(limits: &ProcessLimits) -> io::Result<()> {
    platform::set_process_name(c"toolgate-shim");
    // Fails for a process group leader, for example if started by hand. That is acceptable.
    let _ = process::setsid();
    platform::adopt_orphans()?;
    process::umask(Mode::RWXG | Mode::RWXO);
    limit(Resource::Core, Some(0))?;
    limit(Resource::Nofile, limits.open_files)?;
    limit(Resource::Nproc, limits.processes)?;
    limit(Resource::Data, limits.data_bytes)?;
    limit(Resource::Fsize, limits.file_bytes)?;
    limit(Resource::As, limits.memory_bytes)
}

/// Sets a limit, capped at our own hard limit.
fn limit(resource: Resource, requested: Option<u64>) -> io::Result<()> {
    let Some(requested) = requested else { return Ok(()) };
    let capped =
        process::getrlimit(resource).maximum.map_or(requested, |hard_limit| hard_limit.min(requested));
    Ok(process::setrlimit(resource, Rlimit { current: Some(capped), maximum: Some(capped) })?)
}

/// Tells the allocator of the shim not to reserve address space: it would count against the limits that the shim sets
/// for itself and its child, and take time to release. The program does not get this variable; the unit tells it from
/// one of the user.
pub(super) const ARENA_RESERVE: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "0K");

/// Removes [`ARENA_RESERVE`] from the environment of the program.
pub(super) fn remove_arena_reserve(command: &mut Command) {
    if std::env::var_os(ARENA_RESERVE.0).is_some_and(|value| value == ARENA_RESERVE.1) {
        command.env_remove(ARENA_RESERVE.0);
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where children are started")]
fn start(args: &ShimArgs, namespaces: bool) -> io::Result<Pid> {
    let mut command = match (&args.sandbox, args.file) {
        (Some(sandbox), _) => {
            let mut command = Command::new(platform::own_executable()?);
            command.arg0("toolgate").args(sandbox.to_command_line(namespaces, &args.program, &args.args));
            command
        }
        (None, Some(file)) => {
            let path = platform::descriptor_path(file).unwrap_or_else(|| PathBuf::from(&args.program));
            let mut command = Command::new(path);
            command.arg0(&args.program).args(&args.args);
            command
        }
        (None, None) => {
            let mut command = Command::new(&args.program);
            command.args(&args.args);
            command
        }
    };
    if args.sandbox.is_none() {
        remove_arena_reserve(&mut command);
    }
    // A separate process group, so that `kill 0` in a script does not hit the shim.
    let child = command.process_group(0).spawn().map_err(|error| {
        let exists = error.kind() == io::ErrorKind::NotFound && fs_err::metadata(&args.program).is_ok();
        if exists {
            io::Error::other("the interpreter in its first line does not exist")
        } else if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) {
            io::Error::other("it is not a program; a script needs a first line such as `#!/bin/sh`")
        } else {
            error
        }
    })?;
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("it has no process id"))
}

/// Closes stdout and stderr, so that readers see end of file as soon as the program's tree closes them.
fn release_output() {
    if let Ok(null) = fs_err::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null.file());
        let _ = rustix::stdio::dup2_stderr(null.file());
    }
}

/// SIGTERM, SIGINT and SIGCHLD as a descriptor that can be polled.
struct SignalPipe {
    wake: UnixStream,
    asked_to_end: Arc<AtomicBool>,
}

impl SignalPipe {
    fn register() -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let asked_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // The flag is registered first, so that it is set before the wake-up.
            signal_hook::flag::register(signal, Arc::clone(&asked_to_end))?;
            signal_hook::low_level::pipe::register(signal, woken.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, woken)?;
        Ok(Self { wake, asked_to_end })
    }
}

/// The stages of a shutdown. Times are relative to the start of the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShutdownStage {
    /// The program runs.
    Running,
    /// Stdin is closed; the program may exit by itself.
    Waiting { since: Duration },
    /// The tree got SIGTERM.
    Terminating { since: Duration, grace: Duration },
    /// The tree gets SIGKILL until it is gone.
    Killing,
}

/// The inputs of the state machine at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Observation {
    now: Duration,
    /// Grace period after stdin was closed.
    grace: Duration,
    /// The program has exited, and other processes of its tree have not.
    ended: bool,
    /// SIGTERM or SIGINT arrived.
    asked_to_end: bool,
    /// The other end of stdin is closed.
    hung_up: bool,
    /// Toolgate is gone.
    orphaned: bool,
}

impl ShutdownStage {
    fn next(self, facts: Observation) -> Self {
        let Observation { now, grace, ended, asked_to_end, hung_up, orphaned } = facts;
        let terminate = |grace| Self::Terminating { since: now, grace };
        match self {
            Self::Running | Self::Waiting { .. } if ended => terminate(LEFTOVER_GRACE),
            Self::Running | Self::Waiting { .. } if asked_to_end => terminate(TERM_GRACE),
            Self::Running if hung_up => Self::Waiting { since: now },
            Self::Waiting { since } => {
                let grace = if orphaned { grace.min(ORPHAN_STDIN_GRACE) } else { grace };
                if now >= since + grace { terminate(TERM_GRACE) } else { self }
            }
            Self::Terminating { since, grace } => {
                let grace = if orphaned { grace.min(ORPHAN_TERM_GRACE) } else { grace };
                if now >= since + grace { Self::Killing } else { self }
            }
            Self::Running | Self::Killing => self,
        }
    }
}

struct TreeSupervisor<'a> {
    args: &'a ShimArgs,
    child: Pid,
    signals: SignalPipe,
    /// The exit status of the program.
    status: Option<WaitStatus>,
}

impl TreeSupervisor<'_> {
    #[expect(clippy::disallowed_methods, reason = "the only look at the clock in this process")]
    fn supervise_until_end(mut self) -> ExitCode {
        let start = Instant::now();
        let mut stage = ShutdownStage::Running;
        let mut hung_up = false;
        let mut round = KILL_INTERVAL_MIN;
        while self.reap() {
            let orphaned = process::getppid() != self.args.parent;
            let next = stage.next(Observation {
                now: start.elapsed(),
                grace: self.args.grace,
                ended: self.status.is_some(),
                asked_to_end: self.signals.asked_to_end.load(Ordering::Relaxed),
                hung_up: hung_up || orphaned && platform::PARENT_POLL.is_some(),
                orphaned,
            });
            let changed = next != stage;
            stage = next;
            let pause = match stage {
                ShutdownStage::Running => platform::PARENT_POLL,
                ShutdownStage::Waiting { .. } => Some(POLL_INTERVAL),
                ShutdownStage::Terminating { .. } => {
                    if changed {
                        self.signal(Signal::TERM);
                    }
                    Some(POLL_INTERVAL)
                }
                ShutdownStage::Killing => {
                    self.signal(Signal::KILL);
                    round = (round * 2).min(KILL_INTERVAL_MAX);
                    Some(round)
                }
            };
            hung_up |= self.wait(stage == ShutdownStage::Running, pause);
        }
        ExitCode::from(self.status.map_or(1, exit_code))
    }

    /// Reaps all exited processes. Returns true if any process of the tree is left.
    fn reap(&mut self) -> bool {
        loop {
            match process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.child => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                // No child is left.
                Err(_) => return platform::has_descendants(process::getpid()),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        match platform::descendants(process::getpid()) {
            Ok(all) => tree::signal(&all, signal),
            // If processes cannot be listed, only the process group can be reached.
            Err(_) => {
                let _ = process::kill_process_group(self.child, signal);
            }
        }
    }

    /// Waits for a signal, for the pause to end, or, if `watch_stdin` is set, for stdin to hang up. Returns true if it
    /// did.
    fn wait(&mut self, watch_stdin: bool, pause: Option<Duration>) -> bool {
        let stdin = io::stdin();
        // No events requested: a hang-up is always reported, and the input belongs to the program.
        let mut watched =
            [PollFd::new(&self.signals.wake, PollFlags::IN), PollFd::new(&stdin, PollFlags::empty())];
        let count = if watch_stdin { 2 } else { 1 };
        let pause = pause.map(|pause| Timespec {
            tv_sec: pause.as_secs().cast_signed(),
            tv_nsec: pause.subsec_nanos().into(),
        });
        // On an error, such as an interrupt, the loop checks everything again.
        let _ = poll(&mut watched[..count], pause.as_ref());
        let hung_up = watch_stdin && watched[1].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let mut buffer = [0; 64];
        while matches!((&self.signals.wake).read(&mut buffer), Ok(1..)) {}
        hung_up
    }
}

pub(super) fn exit_code(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| SIGNAL_EXIT_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
