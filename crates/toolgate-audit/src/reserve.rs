//! Disk space reserved for the ends of calls that were sent.
//!
//! The reserve is a preallocated file in the log folder. When the disk is full, its space is released so that calls
//! in progress can record their ends; until it is refilled, no new call may begin. Invariant: it takes at most a 64th
//! of the disk, and there is none on file systems without preallocation.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use toolgate_state::{FileAccess, open_private};

const NAME: &str = "reserve";
/// The reserve takes at most the disk size divided by this.
const MAX_DISK_FRACTION: u64 = 64;
/// A smaller reserve is useless: it would hold only a few ends with short results.
const MIN_BYTES: u64 = 16 << 10;
/// The unit of `st_blocks`, whatever the file system uses.
const BLOCK: u64 = 512;

pub(crate) struct DiskReserve {
    path: PathBuf,
    /// Target size; 0 if disabled or not supported by the file system.
    wanted: u64,
    held: bool,
}

impl DiskReserve {
    /// Creates a reserve in a folder, without allocating it yet.
    pub(crate) fn new(folder: &Path, wanted: u64) -> Self {
        let disk = statvfs(folder).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        Self { path: folder.join(NAME), wanted: wanted.min(disk / MAX_DISK_FRACTION), held: false }
    }

    /// Returns true if there is space to release.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Allocates the reserve, or as much of it as fits. Returns an error if the disk is full.
    pub(crate) fn allocate(&mut self) -> io::Result<()> {
        if self.wanted < MIN_BYTES {
            self.drop_file();
            return Ok(());
        }
        let file = open_private(&self.path, FileAccess::Create)?;
        let mut size = self.wanted;
        let has = file.metadata()?;
        if has.len() == size && has.blocks() * BLOCK >= size {
            self.held = true;
            return Ok(());
        }
        file.set_len(0)?;
        loop {
            match fallocate(&file, FallocateFlags::empty(), 0, size) {
                Ok(()) => {
                    self.held = true;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT) if size / 2 >= MIN_BYTES => size /= 2,
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                    // Frees whatever was allocated before the failure.
                    file.set_len(0)?;
                    return Err(error.into());
                }
                Err(error) => {
                    tracing::debug!(%error, "this file system cannot reserve space for the execution log");
                    self.wanted = 0;
                    self.drop_file();
                    return Ok(());
                }
            }
        }
    }

    /// Releases the reserved space.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        self.held = false;
        open_private(&self.path, FileAccess::Write)?.set_len(0)
    }

    fn drop_file(&self) {
        // Usually there is no such file.
        let _ = fs_err::remove_file(&self.path);
    }
}

/// Returns true if the error means that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[test]
fn reserve_is_taken_and_released() {
    let folder = tempfile::tempdir().unwrap();
    let size = |path: &Path| fs_err::metadata(path).map(|is| is.len()).unwrap_or_default();
    let mut reserve = DiskReserve::new(folder.path(), 1 << 20);
    reserve.allocate().unwrap();
    if !reserve.is_held() {
        return; // This file system cannot preallocate; the log works without.
    }
    assert_eq!(size(&reserve.path), 1 << 20);
    reserve.allocate().unwrap();
    reserve.release().unwrap();
    assert!(!reserve.is_held() && size(&reserve.path) == 0);
    reserve.allocate().unwrap();
    assert_eq!(size(&reserve.path), 1 << 20);
    let mut none = DiskReserve::new(folder.path(), 0);
    none.allocate().unwrap();
    assert!(!none.is_held() && !none.path.exists());
}
