//! What the file backend asks of a disk. The real one is here; the tests have one that forgets.
//!
//! Invariant: every call that can fail or be the last one before a crash is a call of its own.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How the name of a file ends that is written to be renamed.
pub const TEMPORARY: &str = ".toolgate-tmp";
/// A registry of 100,000 tools fits; the reader of configurations takes no more either.
const LARGEST_BYTES: u64 = 64 << 20;
/// How long another process may be in the middle of a change.
const TURN: Duration = Duration::from_secs(10);

/// What tells that a file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    modified: Option<SystemTime>,
    size: u64,
    inode: u64,
}

impl Stamp {
    /// Of a file, where there is one.
    pub fn of(path: &Path) -> Option<Self> {
        let data = fs_err::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&data);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self { modified: data.modified().ok(), size: data.len(), inode })
    }

    /// Whether a later write is sure to have another stamp: clocks of file systems are coarse.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let age = self.modified.and_then(|modified| now.duration_since(modified).ok());
        age.is_some_and(|age| age > Duration::from_secs(2))
    }
}

/// A place for files.
pub trait Disk: Clone + Send + Sync + 'static {
    /// A file that is being written.
    type File;
    /// As long as it is held, no other process changes anything.
    type Turn;

    /// Waits for the turn to change files in these folders.
    fn turn(&self, folders: &[PathBuf]) -> io::Result<Self::Turn>;
    /// What a file holds; `None` where there is none.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// A new file; with the rights of another, where that is there.
    fn create(&self, path: &Path, like: &Path) -> io::Result<Self::File>;
    /// Writes all of it.
    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written safe. After an error the file is of no use.
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    /// Gives a file another name, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder safe.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Takes a file away.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The files in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
}

/// The disk of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    type File = fs_err::File;
    type Turn = Vec<fs_err::File>;

    fn turn(&self, folders: &[PathBuf]) -> io::Result<Self::Turn> {
        folders.iter().map(|folder| turn(folder)).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let file = match fs_err::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        bytes.reserve(usize::try_from(file.metadata()?.len().min(LARGEST_BYTES)).unwrap_or(0) + 1);
        file.take(LARGEST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST_BYTES {
            let message = format!("`{}` is larger than {} MiB", path.display(), LARGEST_BYTES >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        Ok(Some(bytes))
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

/// The folder itself is what processes take turns at; another file would be in the way.
fn turn(folder: &Path) -> io::Result<fs_err::File> {
    let file = fs_err::File::open(folder)?;
    let (mut pause, mut waited) = (Duration::from_millis(1), Duration::ZERO);
    loop {
        match file.file().try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
            Err(std::fs::TryLockError::WouldBlock) if waited >= TURN => {
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
