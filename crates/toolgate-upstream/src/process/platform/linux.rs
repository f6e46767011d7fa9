//! Linux: sub-reapers, `/proc` and process descriptors.
//!
//! Invariant: no process of a tree is missed, no matter how a program uses sessions, groups and double forks.

use std::ffi::CStr;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

pub(crate) mod sandbox;
mod tree;

/// Identifies a child process.
pub(crate) use std::os::fd::OwnedFd as ProcessHandle;
pub(crate) use tree::{descendants, orphans, own_stat, processes_of_session, unlinked_bytes, usage};

/// This executable, even if its file was replaced by another version since it started.
const OWN_EXECUTABLE: &str = "/proc/self/exe";
/// The folder with the open descriptors of this process.
pub(crate) const DESCRIPTORS: &str = "/proc/self/fd";
/// Interval at which a shim looks whether Toolgate is gone. Not needed: its stdin hangs up.
pub(crate) const PARENT_POLL: Option<Duration> = None;

/// The path of this executable.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    Ok(OWN_EXECUTABLE.into())
}

/// Makes this process the parent of all orphans below it. Returns true if it is.
pub(crate) fn adopt_orphans() -> io::Result<bool> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(true)
}

/// Names this process in listings.
pub(crate) fn set_process_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Ends this process when its parent ends.
fn end_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Opens a child that was not reaped yet. The handle names it reliably; its process id could be reused.
pub(crate) fn open_process(pid: Pid) -> io::Result<ProcessHandle> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal to a child.
pub(crate) fn signal_process(process: &ProcessHandle, signal: Signal) -> io::Result<()> {
    Ok(pidfd_send_signal(process, signal)?)
}

/// The path that executes an open file in this process and its children. It stays valid if the file is renamed or
/// replaced.
pub(crate) fn descriptor_path(file: RawFd) -> Option<PathBuf> {
    Some(PathBuf::from(format!("{DESCRIPTORS}/{file}")))
}

/// Opens a file below a folder. No link may lead outside. If `read` is false, the file need not be readable.
pub(crate) fn open_below(folder: &Path, path: &Path, read: bool) -> rustix::io::Result<OwnedFd> {
    // Nonblocking, because opening a pipe would wait for a writer.
    let how = if read { OFlags::RDONLY | OFlags::NONBLOCK } else { OFlags::PATH } | OFlags::CLOEXEC;
    let root = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(&root, path, how, Mode::empty(), beneath) {
        // For kernels without `openat2`.
        Err(Errno::NOSYS) => super::open_checked(folder, path, how),
        opened => opened,
    }
}

/// The number of tasks on this machine.
pub(crate) fn system_tasks() -> Option<u64> {
    let load = fs_err::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

/// Entries and bytes in the file system that the shim has mounted on the folder, if it has. Files without a name count.
pub(crate) fn mounted_size(shim: Pid, folder: &Path) -> Option<(usize, u64)> {
    let shim = shim.as_raw_nonzero().to_string();
    let seen = Path::new("/proc").join(shim).join("root").join(folder.strip_prefix("/").ok()?);
    if fs_err::metadata(&seen).ok()?.dev() == fs_err::metadata(folder).ok()?.dev() {
        return None;
    }
    let size = rustix::fs::statvfs(&seen).ok()?;
    let entries = usize::try_from(size.f_files - size.f_ffree).unwrap_or(usize::MAX);
    Some((entries, (size.f_blocks - size.f_bfree) * size.f_frsize))
}

/// Returns true if a process without children has descendants. Never: orphans become children of the sub-reaper.
pub(crate) fn has_descendants(_root: Pid) -> bool {
    false
}
