//! The descendants of a process, from `/proc`.
//!
//! The shim is the subreaper of its tree: an orphan becomes the shim's own child, so the chain of parents never leaves
//! the tree, no matter how a program uses sessions, groups and double forks. Invariant: every process that a
//! program started is found, if it was there during the whole listing.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Pid;

use crate::process::tree::{KILL_INTERVAL, ProcessStat};

/// Attempts to list the open files of a process before it counts as one that hides them.
const MAX_DENIED_ROUNDS: u32 = 5;

/// All descendants of `root`, without `root` itself.
pub(crate) fn descendants(root: Pid) -> io::Result<Vec<ProcessStat>> {
    Ok(descendants_in(root, &snapshot()?))
}

/// All processes of a session.
pub(crate) fn processes_of_session(leader: Pid) -> io::Result<Vec<ProcessStat>> {
    let mut all = snapshot()?;
    all.retain(|process| process.session == Some(leader));
    Ok(all)
}

/// The number of descendants of `root`, and their resident memory in bytes. Shared memory is counted once per process.
pub(crate) fn usage(root: Pid) -> io::Result<(usize, u64)> {
    let alive: Vec<_> = descendants(root)?.into_iter().filter_map(live_folder).collect();
    let pages = |folder: &PathBuf| -> Option<u64> {
        fs_err::read_to_string(folder.join("statm")).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let held: u64 = alive.iter().filter_map(pages).sum();
    Ok((alive.len(), held * rustix::param::page_size() as u64))
}

/// The bytes of files on `device` that have no name and that descendants of `root` have open or mapped.
pub(crate) fn unlinked_bytes(root: Pid, device: u64) -> io::Result<u64> {
    let mut files: HashMap<u64, u64> = HashMap::new();
    for folder in descendants(root)?.into_iter().filter_map(live_folder) {
        let open = match open_files(&folder) {
            Ok(open) => open,
            // A process that hides its files could hide any number of bytes.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(u64::MAX),
            Err(_) => continue,
        };
        for meta in open.flatten().filter_map(|entry| fs_err::metadata(entry.path()).ok()) {
            if meta.is_file() && meta.nlink() == 0 && meta.dev() == device {
                files.insert(meta.ino(), meta.blocks() * 512);
            }
        }
        for (inode, bytes) in deleted_mappings(&fs_err::read(folder.join("maps")).unwrap_or_default(), device)
        {
            files.entry(inode).or_insert(bytes);
        }
    }
    Ok(files.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)))
}

/// Lists the open files of a process. While it starts another program or exits, the kernel denies this for a moment.
fn open_files(folder: &Path) -> io::Result<fs_err::ReadDir> {
    for _ in 0..MAX_DENIED_ROUNDS {
        match fs_err::read_dir(folder.join("fd")) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => thread::sleep(KILL_INTERVAL),
            listing => return listing,
        }
    }
    fs_err::read_dir(folder.join("fd"))
}

/// The folder in `/proc` that describes a process. If its first thread has exited, that of another thread; `None` if all
/// have.
fn live_folder(process: ProcessStat) -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/proc/{}", process.pid.as_raw_nonzero()));
    if !process.zombie {
        return Some(folder);
    }
    let own = process.pid.as_raw_nonzero().to_string();
    let threads = fs_err::read_dir(folder.join("task")).ok()?;
    threads.flatten().find(|thread| thread.file_name() != own.as_str()).map(|thread| thread.path())
}

/// The inodes and sizes of deleted files on a device, from lines `START-END MODE OFFSET DEVICE INODE PATH (deleted)`.
fn deleted_mappings(maps: &[u8], device: u64) -> impl Iterator<Item = (u64, u64)> {
    let device = format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device)).into_bytes();
    let lines = maps.split(|byte| *byte == b'\n').filter(|line| line.ends_with(b" (deleted)"));
    lines.filter_map(move |line| {
        let fields: Vec<_> = line.splitn(6, |byte| *byte == b' ').collect();
        let (range, inode) = (str::from_utf8(fields.first()?).ok()?, str::from_utf8(fields.get(4)?).ok()?);
        if *fields.get(3)? != device {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let bytes = u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(start, 16).ok()?)?;
        Some((inode.parse().ok()?, bytes))
    })
}

/// This process.
///
/// In a container its group and session can belong to a process outside. The kernel then reports 0 for them, for which
/// `rustix` has no value; here they are `None`.
pub(crate) fn own_stat() -> io::Result<ProcessStat> {
    parse(&fs_err::read("/proc/self/stat")?)
        .ok_or_else(|| io::Error::other("`/proc/self/stat` is not readable"))
}

/// All visible processes.
fn snapshot() -> io::Result<Vec<ProcessStat>> {
    let mut all = Vec::new();
    for entry in fs_err::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            // A process that has exited since the listing is not an error.
            let stat = fs_err::read(entry.path().join("stat")).unwrap_or_default();
            all.extend(parse(&stat));
        }
    }
    Ok(all)
}

/// Parses `PID (NAME) STATE PARENT GROUP SESSION …`. The program chooses its name, which may contain brackets and line
/// breaks, so the last bracket counts.
fn parse(stat: &[u8]) -> Option<ProcessStat> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let number = |text: &str| text.trim().parse().ok().and_then(Pid::from_raw);
    let pid = number(str::from_utf8(&stat[..open]).ok()?)?;
    let mut rest = str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace();
    let zombie = matches!(rest.next()?, "Z" | "X");
    let (parent, group, session) = (number(rest.next()?), number(rest.next()?), number(rest.next()?));
    Some(ProcessStat { pid, parent, group, session, zombie })
}

/// The children of this process that left its session and are not known to it, with their descendants.
pub(crate) fn orphans(is_known: impl Fn(Pid) -> bool) -> io::Result<Vec<ProcessStat>> {
    let (own, all) = (own_stat()?, snapshot()?);
    let is_orphan = |process: &&ProcessStat| {
        process.parent == Some(own.pid) && process.session != own.session && !is_known(process.pid)
    };
    let mut found = Vec::new();
    for orphan in all.iter().filter(is_orphan) {
        found.push(*orphan);
        found.extend(descendants_in(orphan.pid, &all));
    }
    Ok(found)
}

fn descendants_in(root: Pid, all: &[ProcessStat]) -> Vec<ProcessStat> {
    let mut children: HashMap<Pid, Vec<ProcessStat>> = HashMap::new();
    for process in all {
        if let Some(parent) = process.parent {
            children.entry(parent).or_default().push(*process);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        // Removed, so that process ids reused during the snapshot cannot cause a cycle.
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
        let mut found: Vec<_> = descendants_in(Pid::from_raw(root).unwrap(), &all)
            .iter()
            .map(|process| process.pid.as_raw_nonzero().get())
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{stats:?}");
    }

    #[test]
    fn finds_only_descendants() {
        let stats = ["1 (init) S 0 1 1 0", "7 (a) S 1 7 7 0", "8 (b) S 7 7 7 0", "9 (c) R 8 9 9 0"];
        check(&stats, 7, &[8, 9]);
        check(&stats, 9, &[]);
        check(&stats, 1, &[7, 8, 9]);
    }

    #[test]
    fn a_process_name_cannot_spoof_fields() {
        check(&["8 (x) S 1 1 1 (\n) Z) S 7 7 7 0", "no stat", "9 (y", ""], 7, &[8]);
    }

    #[test]
    fn a_group_and_session_from_outside_the_namespace() {
        let stat = parse(b"7 (a) S 1 0 0 0").unwrap();
        assert_eq!((stat.group, stat.session), (None, None));
        assert_eq!(own_stat().unwrap().pid, rustix::process::getpid());
    }

    #[test]
    fn finds_mapped_files_without_a_name() {
        let maps = b"7f00-8f00 r--p 00000000 fe:00 42                     /tmp/a b (deleted)\n\
            1000-2000 rw-s 00000000 00:01 9 /dev/zero (deleted)\nbroken (deleted)\n";
        assert_eq!(deleted_mappings(maps, rustix::fs::makedev(254, 0)).collect::<Vec<_>>(), [(42, 0x1000)]);
    }

    #[test]
    fn a_cycle_terminates() {
        check(&["7 (a) S 8 7 7 0", "8 (b) S 7 7 7 0"], 7, &[7, 8]);
    }
}
