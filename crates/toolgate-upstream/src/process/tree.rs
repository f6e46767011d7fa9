//! The processes below one process, as `/proc` shows them.
//!
//! The shim is the sub-reaper of its tree, so an orphan becomes the shim's own child and the chain of
//! parents never leaves the tree, whatever a program does with sessions, groups and double forks.
//! Invariant: one look is not atomic. Whoever needs the tree gone looks again until it is.

use std::collections::{HashMap, HashSet};
use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often [`end`] looks before it gives up: a process in an uninterruptible call dies later.
const LOOKS: u32 = 50;
/// Between two looks of [`end`].
const PAUSE: Duration = Duration::from_millis(10);

/// One line of `/proc/PID/stat`, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pid: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
    session: Option<Pid>,
    /// It has ended, and its parent has not looked yet.
    zombie: bool,
}

/// Everything below `root`, without it.
pub(crate) fn descendants(root: Pid) -> io::Result<Vec<Process>> {
    Ok(below(root, &snapshot()?))
}

/// How many processes there are below `root`, and the memory that they hold, in bytes. What two of them share counts
/// twice.
pub(crate) fn usage(root: Pid) -> io::Result<(usize, u64)> {
    let all = descendants(root)?;
    let alive = all.iter().filter(|process| !process.zombie);
    let pages = |process: &Process| -> Option<u64> {
        let path = format!("/proc/{}/statm", process.pid.as_raw_nonzero());
        fs_err::read_to_string(path).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let held: u64 = alive.clone().filter_map(pages).sum();
    Ok((alive.count(), held * rustix::param::page_size() as u64))
}

/// Sends a signal to each of them.
///
/// SIGKILL goes to their groups too: to a group it is atomic, and a program that forks faster than
/// `/proc` can be read cannot run from it.
pub(crate) fn signal(processes: &[Process], signal: Signal) {
    // Errors are not looked at: a process that is gone is what we want, and one that belongs to
    // another user cannot be helped.
    for process in processes.iter().filter(|process| !process.zombie) {
        let _ = kill_process(process.pid, signal);
    }
    if signal == Signal::KILL {
        let own = rustix::process::getpgrp();
        let groups: HashSet<Pid> =
            processes.iter().filter_map(|process| process.group).filter(|group| *group != own).collect();
        for group in groups {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Ends everything below `root` by SIGKILL, then `root`'s session and with it `root`. Blocks.
///
/// For a shim that does not do it itself: it is stopped, or its own end was forced. `root` goes last,
/// because while it lives the orphans come to it and can be found.
pub(crate) fn end(root: Pid) -> io::Result<()> {
    kill_until_none(|| descendants(root))?;
    end_session(root)
}

/// Ends every process in the session of `leader` by SIGKILL. Blocks.
pub(crate) fn end_session(leader: Pid) -> io::Result<()> {
    let own = rustix::process::getpid();
    kill_until_none(|| {
        let mut all = snapshot()?;
        all.retain(|process| process.session == Some(leader) && process.pid != own);
        Ok(all)
    })
}

fn kill_until_none(mut look: impl FnMut() -> io::Result<Vec<Process>>) -> io::Result<()> {
    for _ in 0..LOOKS {
        let mut left = look()?;
        left.retain(|process| !process.zombie);
        if left.is_empty() {
            break;
        }
        signal(&left, Signal::KILL);
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// All processes that can be seen.
fn snapshot() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs_err::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            // One that ended since it was listed is no error.
            let stat = fs_err::read(entry.path().join("stat")).unwrap_or_default();
            all.extend(parse(&stat));
        }
    }
    Ok(all)
}

/// `PID (NAME) STATE PARENT GROUP SESSION …`. The name is the program's choice and may hold anything,
/// brackets and line ends included, so the last bracket counts.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let number = |text: &str| text.trim().parse().ok().and_then(Pid::from_raw);
    let pid = number(str::from_utf8(&stat[..open]).ok()?)?;
    let mut rest = str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace();
    let zombie = matches!(rest.next()?, "Z" | "X");
    let (parent, group, session) = (number(rest.next()?), number(rest.next()?), number(rest.next()?));
    Some(Process { pid, parent, group, session, zombie })
}

fn below(root: Pid, all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
    for process in all {
        if let Some(parent) = process.parent {
            children.entry(parent).or_default().push(*process);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        // Removed, so that a look taken while pids were reused cannot go in circles.
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stats: &[&str], root: i32, expected: &[i32]) {
        let all: Vec<_> = stats.iter().filter_map(|stat| parse(stat.as_bytes())).collect();
        let mut found: Vec<_> = below(Pid::from_raw(root).unwrap(), &all)
            .iter()
            .map(|process| process.pid.as_raw_nonzero().get())
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{stats:?}");
    }

    #[test]
    fn only_the_tree_is_found() {
        let stats = ["1 (init) S 0 1 1 0", "7 (a) S 1 7 7 0", "8 (b) S 7 7 7 0", "9 (c) R 8 9 9 0"];
        check(&stats, 7, &[8, 9]);
        check(&stats, 9, &[]);
        check(&stats, 1, &[7, 8, 9]);
    }

    #[test]
    fn a_name_cannot_lie() {
        check(&["8 (x) S 1 1 1 (\n) Z) S 7 7 7 0", "no stat", "9 (y", ""], 7, &[8]);
    }

    #[test]
    fn a_circle_ends() {
        check(&["7 (a) S 8 7 7 0", "8 (b) S 7 7 7 0"], 7, &[7, 8]);
    }
}
