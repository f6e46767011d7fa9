//! Lists of processes, and signals to them.
//!
//! The platform finds the processes. Invariant: a list is not atomic; code that needs all processes gone asks until none
//! is left.

use std::collections::HashSet;
use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::platform;

/// Rounds of [`kill`] before it gives up: a process in an uninterruptible system call dies later.
const MAX_KILL_ROUNDS: u32 = 50;
/// The pause between two rounds of [`kill`].
pub(crate) const KILL_INTERVAL: Duration = Duration::from_millis(10);

/// A process, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: Pid,
    /// `None` if it is not known.
    pub(crate) parent: Option<Pid>,
    /// `None` if its leader is not visible here.
    pub(crate) group: Option<Pid>,
    /// `None` if its leader is not visible here.
    pub(crate) session: Option<Pid>,
    /// True if it has exited and was not reaped yet, as far as that is known.
    pub(crate) zombie: bool,
}

/// Sends a signal to each process.
///
/// SIGKILL also goes to their process groups: a group kill is atomic, so a program that forks faster than processes can
/// be listed cannot escape.
pub(super) fn signal(processes: &[ProcessStat], signal: Signal) {
    // Errors are ignored: a process that is gone is fine, and one of another user cannot be killed.
    for process in processes.iter().filter(|process| !process.zombie) {
        let _ = kill_process(process.pid, signal);
    }
    // If our own group is unknown, it must not be killed.
    if let (Signal::KILL, Ok(own)) = (signal, platform::own_stat()) {
        let others = processes.iter().filter(|process| process.group != own.group);
        let groups: HashSet<Pid> = others.filter_map(|process| process.group).collect();
        for group in groups {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Kills all descendants of `root` with SIGKILL, then the session of `root`, including `root`. Blocks.
///
/// Used if a shim cannot do it, because it was stopped or killed. `root` comes last: while it lives, orphans become its
/// children and can be found.
pub(super) fn kill(root: Pid) -> io::Result<()> {
    kill_until_none(|| platform::descendants(root))?;
    kill_session(root)
}

/// Kills every process in the session of `leader` with SIGKILL. Blocks.
pub(super) fn kill_session(leader: Pid) -> io::Result<()> {
    let own = rustix::process::getpid();
    kill_until_none(|| {
        let mut all = platform::processes_of_session(leader)?;
        all.retain(|process| process.pid != own);
        Ok(all)
    })
}

/// Kills processes with SIGKILL until none is found. Blocks.
pub(super) fn kill_until_none(mut look: impl FnMut() -> io::Result<Vec<ProcessStat>>) -> io::Result<()> {
    for _ in 0..MAX_KILL_ROUNDS {
        let mut left = look()?;
        left.retain(|process| !process.zombie);
        if left.is_empty() {
            break;
        }
        signal(&left, Signal::KILL);
        thread::sleep(KILL_INTERVAL);
    }
    Ok(())
}
