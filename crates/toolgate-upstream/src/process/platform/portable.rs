//! Systems other than Linux: sessions, and nothing else.
//!
//! A shim leads a session, so the processes of a tree are those of its session. A program that creates a session of its
//! own is not found. There is no sandbox. Invariant: nothing here uses more than POSIX and the folder `/dev/fd`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{getpgid, getsid};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::tree::ProcessStat;

/// Identifies a child process, until it is reaped.
pub(crate) use rustix::process::Pid as ProcessHandle;

/// The folder with the open descriptors of this process.
pub(crate) const DESCRIPTORS: &str = "/dev/fd";
/// Interval at which a shim looks whether Toolgate is gone. Not every system reports that its stdin hung up.
pub(crate) const PARENT_POLL: Option<Duration> = Some(Duration::from_millis(500));
/// The highest process id of macOS and the BSDs.
#[cfg(not(target_os = "linux"))]
const MAX_PROCESS_ID: i32 = 99_999;

/// The path of this executable. After an upgrade, this is the new version.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Makes this process the parent of all orphans below it. Returns true if it is.
pub(crate) fn adopt_orphans() -> io::Result<bool> {
    Ok(false)
}

/// Names this process in listings.
pub(crate) fn set_process_name(_name: &CStr) {}

/// Opens a child that was not reaped yet. The caller must not use the handle after that.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(crate) fn open_process(pid: Pid) -> io::Result<ProcessHandle> {
    Ok(pid)
}

/// Sends a signal to a child.
pub(crate) fn signal_process(process: &ProcessHandle, signal: Signal) -> io::Result<()> {
    Ok(kill_process(*process, signal)?)
}

/// All processes in the session of `root`, without `root` itself.
pub(crate) fn descendants(root: Pid) -> io::Result<Vec<ProcessStat>> {
    let mut all = processes_of_session(root)?;
    all.retain(|process| process.pid != root);
    Ok(all)
}

/// Returns true if a process without children has descendants: orphans of its session are children of others.
pub(crate) fn has_descendants(root: Pid) -> bool {
    descendants(root).is_ok_and(|all| !all.is_empty())
}

/// All processes of a session.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(crate) fn processes_of_session(leader: Pid) -> io::Result<Vec<ProcessStat>> {
    // POSIX has no list of processes, but it tells the session of each.
    let of_session = |pid: Pid| {
        (session_of(pid)? == leader).then(|| ProcessStat {
            pid,
            parent: None,
            group: group_of(pid),
            session: Some(leader),
            zombie: false,
        })
    };
    Ok(process_ids().filter_map(Pid::from_raw).filter_map(of_session).collect())
}

/// `None` for a process that is gone. The kernel reports 0 for its own threads, and for leaders that are not visible here;
/// `rustix` has no value for that.
fn session_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(getsid(Some(raw(pid))).ok()?.as_raw())
}

fn group_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(getpgid(Some(raw(pid))).ok()?.as_raw())
}

fn raw(pid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get())
}

#[cfg(not(target_os = "linux"))]
fn process_ids() -> impl Iterator<Item = i32> {
    1..=MAX_PROCESS_ID
}

/// Linux has up to four million ids, so tests ask for those in use. Linux also tells the session of a process that has
/// exited and was not reaped, unlike macOS.
#[cfg(target_os = "linux")]
fn process_ids() -> impl Iterator<Item = i32> {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs_err::read_to_string(entry.path().join("stat")).ok()?;
        (!stat.rsplit_once(") ")?.1.starts_with('Z')).then_some(id)
    })
}

/// This process.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(crate) fn own_stat() -> io::Result<ProcessStat> {
    let pid = rustix::process::getpid();
    Ok(ProcessStat { pid, parent: None, group: group_of(pid), session: session_of(pid), zombie: false })
}

/// The children of this process that left its session and are not known to it, with their descendants.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(crate) fn orphans(_is_known: impl Fn(Pid) -> bool) -> io::Result<Vec<ProcessStat>> {
    Ok(Vec::new())
}

/// The number of descendants of `root`, and their memory in bytes: not known here.
pub(crate) fn usage(root: Pid) -> io::Result<(usize, u64)> {
    Ok((descendants(root)?.len(), 0))
}

/// The bytes of files on `device` that have no name and that descendants of `root` have open or mapped: not known here.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(crate) fn unlinked_bytes(_root: Pid, _device: u64) -> io::Result<u64> {
    Ok(0)
}

/// The path that executes an open file: there is none.
pub(crate) fn descriptor_path(_file: RawFd) -> Option<PathBuf> {
    None
}

/// Opens a file below a folder. No link may lead outside. The file must be readable.
pub(crate) fn open_below(folder: &Path, path: &Path, _read: bool) -> rustix::io::Result<OwnedFd> {
    // Nonblocking, because opening a pipe would wait for a writer.
    super::open_checked(folder, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)
}

/// The number of tasks on this machine: not known here.
pub(crate) fn system_tasks() -> Option<u64> {
    None
}

/// Entries and bytes in the file system that the shim has mounted on the folder: it has not.
pub(crate) fn mounted_size(_shim: Pid, _folder: &Path) -> Option<(usize, u64)> {
    None
}

/// The sandbox: there is none, so no program starts in it.
pub(crate) mod sandbox {
    use std::convert::Infallible;
    use std::ffi::OsString;
    use std::io;
    use std::process::ExitCode;

    use crate::process::sandbox::{MissingLayer, SANDBOX_FAILED, SandboxSpec};
    use crate::process::shim::{CANNOT_START, log_line};

    /// Stores the files of a program that ended. None is started here.
    pub(crate) fn store_files(mount: &Infallible) {
        match *mount {}
    }

    /// Returns true if this system has a sandbox.
    pub fn is_supported() -> bool {
        false
    }

    /// Returns the layer that is missing on this machine.
    pub fn missing_layer() -> Option<MissingLayer> {
        Some(MissingLayer::Platform)
    }

    /// Refuses to start a program.
    pub(crate) fn enter(_spec: &SandboxSpec) -> io::Result<Option<Infallible>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, MissingLayer::Platform.to_string()))
    }

    /// Refuses to start a program.
    pub(crate) fn main(_args: impl Iterator<Item = OsString>) -> ExitCode {
        log_line(&format!("{SANDBOX_FAILED}{}", MissingLayer::Platform));
        ExitCode::from(CANNOT_START)
    }

    /// Reports that there is no sandbox.
    pub(crate) fn probe() -> ExitCode {
        log_line(&MissingLayer::Platform.to_string());
        ExitCode::FAILURE
    }
}
