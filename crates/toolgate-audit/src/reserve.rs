//! Room on the disk that is kept for the ends of calls that were sent.
//!
//! A file beside the log that holds nothing. When the disk is full it gives its room away, so that what was
//! begun can be written to its end, and until it has room again nothing is begun. Invariant: it takes no more
//! than a 64th of the disk, and a disk that knows no such files has none.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs_err::OpenOptions;
use fs_err::os::unix::fs::OpenOptionsExt;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

const NAME: &str = "reserve";
/// The share of a disk that is not taken.
const SHARE: u64 = 64;
/// With less than this there is no room worth keeping: some ends with short results.
const LEAST: u64 = 16 << 10;
/// The unit of `st_blocks`, whatever the file system uses.
const BLOCK: u64 = 512;

pub(crate) struct Reserve {
    path: PathBuf,
    /// What it should have; nothing where none is wanted, or the disk cannot do it.
    wanted: u64,
    held: bool,
}

impl Reserve {
    /// A reserve in a folder, without its room yet.
    pub(crate) fn new(folder: &Path, wanted: u64) -> Self {
        let disk = statvfs(folder).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        Self { path: folder.join(NAME), wanted: wanted.min(disk / SHARE), held: false }
    }

    /// Whether there is room to give away.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Takes its room, or as much of it as there is. An error says that the disk is full.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        if self.wanted < LEAST {
            self.drop_file();
            return Ok(());
        }
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
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
                Err(Errno::NOSPC | Errno::DQUOT) if size / 2 >= LEAST => size /= 2,
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                    // What was taken before it failed.
                    file.set_len(0)?;
                    return Err(error.into());
                }
                Err(error) => {
                    tracing::debug!(%error, "no room can be kept for the execution log on this disk");
                    self.wanted = 0;
                    self.drop_file();
                    return Ok(());
                }
            }
        }
    }

    /// Gives its room away.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        self.held = false;
        OpenOptions::new().write(true).open(&self.path)?.set_len(0)
    }

    fn drop_file(&self) {
        // It is not there, as a rule.
        let _ = fs_err::remove_file(&self.path);
    }
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[test]
fn room_is_taken_and_given_away() {
    let folder = tempfile::tempdir().unwrap();
    let size = |path: &Path| fs_err::metadata(path).map(|is| is.len()).unwrap_or_default();
    let mut reserve = Reserve::new(folder.path(), 1 << 20);
    reserve.take().unwrap();
    if !reserve.is_held() {
        return; // This disk cannot, and the log does without.
    }
    assert_eq!(size(&reserve.path), 1 << 20);
    reserve.take().unwrap();
    reserve.release().unwrap();
    assert!(!reserve.is_held() && size(&reserve.path) == 0);
    reserve.take().unwrap();
    assert_eq!(size(&reserve.path), 1 << 20);
    let mut none = Reserve::new(folder.path(), 0);
    none.take().unwrap();
    assert!(!none.is_held() && !none.path.exists());
}
