//! Orphans of a shim that was killed: processes of its tree that outlive it.
//!
//! The shim is the subreaper of its tree. If it dies, its orphans move to the next subreaper. The executable makes itself
//! one, so that it can find them. Its own children are all shims, registered here; every other child that is not in its
//! own session is an orphan. Invariant: a shim is registered before another thread can take it for an orphan.

use std::collections::HashMap;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::process::{self, Pid, WaitOptions};

use super::{platform, tree};

/// True if this process is a subreaper.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// The shims that were started and not reaped, with a number that no other has: process ids are reused.
static SHIMS: LazyLock<Mutex<HashMap<Pid, u64>>> = LazyLock::new(Mutex::default);

/// Makes this process the subreaper of all processes that it starts, so that killing a shim leaves none behind.
///
/// Linux only. For executables that start no other child processes in sessions of their own. Without it, only processes in the
/// session of a killed shim are found.
pub fn adopt() {
    if platform::adopt_orphans().unwrap_or(false) {
        ADOPTS.store(true, Ordering::Relaxed);
    }
}

/// A shim that is not an orphan. Dropped when it was reaped.
#[derive(Debug)]
pub(super) struct RegisteredShim(Pid, u64);

/// Starts a shim and registers it.
pub(super) fn spawn_shim(
    spawn: impl FnOnce() -> io::Result<tokio::process::Child>,
) -> io::Result<(tokio::process::Child, RegisteredShim)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Locked while it starts, so that a search for orphans sees it registered.
    let mut shims = SHIMS.lock();
    let child = spawn()?;
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    shims.insert(pid, number);
    Ok((child, RegisteredShim(pid, number)))
}

impl Drop for RegisteredShim {
    fn drop(&mut self) {
        let mut shims = SHIMS.lock();
        if shims.get(&self.0) == Some(&self.1) {
            shims.remove(&self.0);
        }
    }
}

/// Kills all orphans and their descendants with SIGKILL, and reaps them. Blocks.
pub(super) fn kill_all() -> io::Result<()> {
    if !ADOPTS.load(Ordering::Relaxed) {
        return Ok(());
    }
    let own = process::getpid();
    tree::kill_until_none(|| {
        let shims = SHIMS.lock();
        let found = platform::orphans(|pid| shims.contains_key(&pid))?;
        for orphan in found.iter().filter(|orphan| orphan.zombie && orphan.parent == Some(own)) {
            let _ = process::waitpid(Some(orphan.pid), WaitOptions::NOHANG);
        }
        Ok(found)
    })
}
