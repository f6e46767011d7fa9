//! The shim: a small process between Toolgate and a program, which ends the program's whole tree.
//!
//! `toolgate shim [--parent PID] [--grace MS] [--limit NAME=NUMBER]… [--] PROGRAM ARGUMENT…`
//!
//! A group kill leaves programs alive that made a session of their own or forked twice, and nothing
//! runs in Toolgate when it is killed by SIGKILL. So the shim is the sub-reaper of the tree, where all
//! its orphans arrive, and watches its stdin, whose other end only Toolgate holds: a hang-up there means
//! that stdin was closed on purpose or that Toolgate is gone. It never reads from it; the program does.
//! Invariant: it ends after its tree. It has no thread, no runtime and no unsafe code.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{self, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

use super::{Limits, confine, tree};

#[cfg(test)]
mod tests;

/// After stdin was closed, for the program to end by itself.
pub(crate) const STDIN_GRACE: Duration = Duration::from_secs(2);
/// Between SIGTERM and SIGKILL.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(2);
/// The same two when Toolgate is gone: nobody waits for a good end any more.
const ORPHAN_STDIN_GRACE: Duration = Duration::from_millis(200);
const ORPHAN_TERM_GRACE: Duration = Duration::from_secs(1);
/// Between SIGTERM and SIGKILL for what a program that ended by itself left behind.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// While something is being waited for, how often to look whether Toolgate is gone.
const LOOK: Duration = Duration::from_millis(50);
/// Between two rounds of SIGKILL, at first and at last: a process in an uninterruptible call may take
/// long, and must not cost a processor until then.
const FIRST_ROUND: Duration = Duration::from_millis(2);
const LAST_ROUND: Duration = Duration::from_secs(1);

/// Exit code of wrong arguments.
const USAGE: u8 = 2;
/// Exit code of a program that cannot be started, as in a shell.
pub(crate) const CANNOT_START: u8 = 127;
/// Added to the signal that ended a program, as in a shell.
pub(crate) const SIGNALLED: i32 = 128;

/// Runs the shim with what follows `shim` on the command line.
///
/// To be called before anything else is set up: it is on the way of every child.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter().peekable();
    if args.next_if(|first| first == confine::COMMAND).is_some() {
        return confine::main(args);
    }
    match Args::parse(args).map(|args| run(&args)) {
        Ok(Ok(code)) => code,
        Ok(Err(Failed { program, source })) => {
            say(&format!("cannot start `{}`: {source}", program.display()));
            ExitCode::from(CANNOT_START)
        }
        Err(Usage(what)) => {
            say(&format!("shim: {what}"));
            ExitCode::from(USAGE)
        }
    }
}

/// One line to whoever reads the program's stderr. Nobody may, which is no reason to fail.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "toolgate: {text}");
}

/// The command line of the shim.
#[derive(Debug)]
pub(crate) struct Args {
    /// Toolgate. Another parent means that it is gone.
    pub(crate) parent: Option<Pid>,
    pub(crate) grace: Duration,
    pub(crate) limits: Limits,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

/// The arguments are wrong.
#[derive(Debug)]
struct Usage(String);

/// The program did not start.
#[derive(Debug)]
struct Failed {
    program: OsString,
    source: io::Error,
}

impl Args {
    fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Usage> {
        let mut args = args.into_iter();
        let (mut parent, mut grace, mut limits) = (process::getppid(), STDIN_GRACE, Limits::default());
        let program = loop {
            let flag = args.next().ok_or_else(|| Usage("no program is given".into()))?;
            if flag == "--" {
                break args.next().ok_or_else(|| Usage("no program is given".into()))?;
            }
            if !flag.as_encoded_bytes().starts_with(b"-") {
                break flag;
            }
            let value = args.next();
            let value = value.as_deref().and_then(OsStr::to_str).unwrap_or_default();
            let wrong = || Usage(format!("`{value}` is not a value of `{}`", flag.display()));
            match flag.to_str() {
                Some("--parent") => {
                    parent = Some(value.parse().ok().and_then(Pid::from_raw).ok_or_else(wrong)?);
                }
                Some("--grace") => grace = Duration::from_millis(value.parse().map_err(|_| wrong())?),
                Some("--limit") => {
                    let (name, number) = value.split_once('=').ok_or_else(wrong)?;
                    let number = number.parse().map_err(|_| wrong())?;
                    *limits.by_name(name).ok_or_else(wrong)? = Some(number);
                }
                _ => return Err(Usage(format!("unknown flag `{}`", flag.display()))),
            }
        };
        Ok(Self { parent, grace, limits, program, args: args.collect() })
    }

    /// The same as arguments, for Toolgate's side.
    pub(crate) fn to_command_line(&self) -> Vec<OsString> {
        let mut line = vec!["--grace".into(), self.grace.as_millis().to_string().into()];
        if let Some(parent) = self.parent {
            line.extend(["--parent".into(), parent.as_raw_nonzero().to_string().into()]);
        }
        for (name, number) in self.limits.named() {
            line.extend(["--limit".into(), format!("{name}={number}").into()]);
        }
        line.extend(["--".into(), self.program.clone()]);
        line.extend(self.args.iter().cloned());
        line
    }
}

fn run(args: &Args) -> Result<ExitCode, Failed> {
    let failed = |source| Failed { program: args.program.clone(), source };
    close_inherited();
    isolate(&args.limits).map_err(|errno| failed(errno.into()))?;
    let signals = Signals::register().map_err(failed)?;
    let child = start(args).map_err(failed)?;
    release_output();
    Ok(Watch { args, child, signals, status: None }.until_the_end())
}

/// Closes what came from Toolgate's own parent. Toolgate's descriptors close by themselves, but one that
/// was leaked into Toolgate would be leaked on.
fn close_inherited() {
    let Ok(listing) = fs_err::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> =
        listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The descriptor of the listing is among them, and closed already: closing it again does nothing.
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        let _ = nix::unistd::close(descriptor);
    }
}

fn isolate(limits: &Limits) -> rustix::io::Result<()> {
    // Only for people who look at a list of processes.
    let _ = rustix::thread::set_name(c"toolgate-shim");
    // It fails for a leader of a group, who has what we want already, or was started by hand.
    let _ = process::setsid();
    process::set_child_subreaper(Some(process::getpid()))?;
    process::umask(Mode::RWXG | Mode::RWXO);
    limit(Resource::Core, Some(0))?;
    limit(Resource::Nofile, limits.open_files)?;
    limit(Resource::Nproc, limits.processes)?;
    limit(Resource::Data, limits.data_bytes)?;
    limit(Resource::Fsize, limits.file_bytes)?;
    limit(Resource::As, limits.memory_bytes)
}

/// Sets a limit, or less where we may not have as much.
fn limit(resource: Resource, wanted: Option<u64>) -> rustix::io::Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let most = process::getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
    process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
}

#[expect(clippy::disallowed_methods, reason = "this is where children are started")]
fn start(args: &Args) -> io::Result<Pid> {
    // A group of its own: `kill 0` in a script must not hit the shim.
    let child = Command::new(&args.program).args(&args.args).process_group(0).spawn().map_err(|error| {
        let there = error.kind() == io::ErrorKind::NotFound && fs_err::metadata(&args.program).is_ok();
        if there {
            io::Error::other("the interpreter in its first line is not there")
        } else if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) {
            io::Error::other("it is no program; a script begins with a line such as `#!/bin/sh`")
        } else {
            error
        }
    })?;
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("it has no process id"))
}

/// Lets go of stdout and stderr, so that their end is seen when the program's tree lets go.
fn release_output() {
    if let Ok(null) = fs_err::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null.file());
        let _ = rustix::stdio::dup2_stderr(null.file());
    }
}

/// SIGTERM, SIGINT and SIGCHLD as something that can be polled.
struct Signals {
    wake: UnixStream,
    asked_to_end: Arc<AtomicBool>,
}

impl Signals {
    fn register() -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let asked_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // The flag first: who is woken must see it.
            signal_hook::flag::register(signal, Arc::clone(&asked_to_end))?;
            signal_hook::low_level::pipe::register(signal, woken.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, woken)?;
        Ok(Self { wake, asked_to_end })
    }
}

/// Where the end of the tree has got to. Times are since the shim began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The program runs.
    Running,
    /// Its stdin is closed, and it may end by itself.
    Waiting { since: Duration },
    /// The tree got SIGTERM.
    Terminating { since: Duration, grace: Duration },
    /// The tree gets SIGKILL until it is gone.
    Killing,
}

/// What can be seen at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Facts {
    now: Duration,
    /// After stdin was closed, for the program to end by itself.
    grace: Duration,
    /// The program has ended. Others of its tree have not.
    ended: bool,
    /// SIGTERM or SIGINT came.
    asked_to_end: bool,
    /// Nobody can write to stdin any more.
    hung_up: bool,
    /// Toolgate is gone.
    orphaned: bool,
}

impl Stage {
    fn next(self, facts: Facts) -> Self {
        let Facts { now, grace, ended, asked_to_end, hung_up, orphaned } = facts;
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

struct Watch<'a> {
    args: &'a Args,
    child: Pid,
    signals: Signals,
    /// How the program ended.
    status: Option<WaitStatus>,
}

impl Watch<'_> {
    #[expect(clippy::disallowed_methods, reason = "the only look at the clock in this process")]
    fn until_the_end(mut self) -> ExitCode {
        let start = Instant::now();
        let mut stage = Stage::Running;
        let mut hung_up = false;
        let mut round = FIRST_ROUND;
        while self.reap() {
            let next = stage.next(Facts {
                now: start.elapsed(),
                grace: self.args.grace,
                ended: self.status.is_some(),
                asked_to_end: self.signals.asked_to_end.load(Ordering::Relaxed),
                hung_up,
                orphaned: process::getppid() != self.args.parent,
            });
            let changed = next != stage;
            stage = next;
            let pause = match stage {
                Stage::Running => None,
                Stage::Waiting { .. } => Some(LOOK),
                Stage::Terminating { .. } => {
                    if changed {
                        self.signal(Signal::TERM);
                    }
                    Some(LOOK)
                }
                Stage::Killing => {
                    self.signal(Signal::KILL);
                    round = (round * 2).min(LAST_ROUND);
                    Some(round)
                }
            };
            hung_up |= self.wait(stage == Stage::Running, pause);
        }
        ExitCode::from(self.status.map_or(1, exit_code))
    }

    /// Collects all that have ended. Says whether any process of the tree is left: who has no child has no
    /// descendant, since orphans become children of the sub-reaper.
    fn reap(&mut self) -> bool {
        loop {
            match process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.child => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn signal(&self, signal: Signal) {
        match tree::descendants(process::getpid()) {
            Ok(all) => tree::signal(&all, signal),
            // Without `/proc`, what can be reached.
            Err(_) => {
                let _ = process::kill_process_group(self.child, signal);
            }
        }
    }

    /// Waits for a signal, for the pause to end, and for stdin to hang up where that is news. Says whether
    /// it did.
    fn wait(&mut self, watch_stdin: bool, pause: Option<Duration>) -> bool {
        let stdin = io::stdin();
        // No event is asked for: a hang-up is always told, and what is to be read is not ours.
        let mut watched =
            [PollFd::new(&self.signals.wake, PollFlags::IN), PollFd::new(&stdin, PollFlags::empty())];
        let count = if watch_stdin { 2 } else { 1 };
        let pause = pause.map(|pause| Timespec {
            tv_sec: pause.as_secs().cast_signed(),
            tv_nsec: pause.subsec_nanos().into(),
        });
        // Interrupted, or out of memory: the loop looks at everything again.
        let _ = poll(&mut watched[..count], pause.as_ref());
        let hung_up = watch_stdin && watched[1].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let mut told = [0; 64];
        while matches!((&self.signals.wake).read(&mut told), Ok(1..)) {}
        hung_up
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
