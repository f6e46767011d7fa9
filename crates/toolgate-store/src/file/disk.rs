//! The file system operations of the file backend. The real disk is here; the tests have a simulated one.
//!
//! Invariant: every operation that can fail, or be the last one before a crash, is a separate method.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use toolgate_state::read_regular;

/// Suffix of temporary files.
pub const TEMPORARY_SUFFIX: &str = ".toolgate-tmp";
/// Maximum size of a file: enough for 100,000 tools, and the same limit as for configuration files.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum time to wait for the lock while another process makes a change.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// File metadata that changes with every write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    modified: Option<SystemTime>,
    size: u64,
    inode: u64,
}

impl FileStamp {
    /// Reads the stamp of a file. Returns `None` if there is no such file.
    pub fn read(path: &Path) -> Option<Self> {
        let data = fs_err::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&data);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self { modified: data.modified().ok(), size: data.len(), inode })
    }

    /// Returns true if any later write is sure to change the stamp: file system timestamps are coarse.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let age = self.modified.and_then(|modified| now.duration_since(modified).ok());
        age.is_some_and(|age| age > Duration::from_secs(2))
    }
}

/// File system operations.
pub trait Disk: Clone + Send + Sync + 'static {
    type File;
    /// Lock guard: while it is held, no other process makes changes.
    type Lock;

    /// Waits for the lock on these folders.
    fn lock(&self, folders: &[PathBuf]) -> io::Result<Self::Lock>;
    /// Reads a file. Returns `None` if it does not exist.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Creates a file with the permissions of `like`, if that exists.
    fn create(&self, path: &Path, like: &Path) -> io::Result<Self::File>;
    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    /// Makes the contents of a file durable. After an error the file must not be used again.
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    /// Renames a file atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the file names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
}

/// The disk of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    type File = fs_err::File;
    type Lock = Vec<fs_err::File>;

    fn lock(&self, folders: &[PathBuf]) -> io::Result<Self::Lock> {
        folders.iter().map(|folder| lock_folder(folder)).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match read_regular(path, MAX_FILE_BYTES) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(io::Error::new(error.kind(), format!("`{}` cannot be read: {error}", path.display())))
            }
        }
    }

    fn create(&self, path: &Path, like: &Path) -> io::Result<Self::File> {
        let file = fs_err::OpenOptions::new().write(true).create_new(true).open(path)?;
        if let Ok(data) = fs_err::metadata(like) {
            file.set_permissions(data.permissions())?;
        }
        Ok(file)
    }

    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &mut Self::File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs_err::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs_err::File::open(folder)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs_err::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs_err::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
    }
}

/// Locks a folder itself, because a separate lock file would clutter it.
fn lock_folder(folder: &Path) -> io::Result<fs_err::File> {
    let file = fs_err::File::open(folder)?;
    let (mut pause, mut waited) = (Duration::from_millis(1), Duration::ZERO);
    loop {
        match file.file().try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
            Err(std::fs::TryLockError::WouldBlock) if waited >= LOCK_TIMEOUT => {
                let message = format!("another process is changing `{}`", folder.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                std::thread::sleep(pause);
                waited += pause;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
        }
    }
}
