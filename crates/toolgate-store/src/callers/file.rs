//! Callers and keys in one file.
//!
//! Invariant: only its owner can write the file; it is replaced atomically, and is on disk when a change returns.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use toolgate_state::{FileAccess, StateDir};

use super::{CallerRecords, CallerStore, KeyError, StoreStamp};

/// Name of the file, and its maximum size.
const FILE_NAME: &str = "keys.json";
const LOCK_NAME: &str = "keys.lock";
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The file `keys.json` in a state folder.
#[derive(Debug, Clone)]
pub struct CallerFile {
    folder: PathBuf,
    path: PathBuf,
}

impl CallerFile {
    /// Returns the file in a folder. The folder may not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), path: folder.join(FILE_NAME) }
    }

    fn invalid(&self, why: String) -> KeyError {
        KeyError::File { path: self.path.clone(), why }
    }

    /// Reads the file. Returns `None` if it does not exist.
    fn read_file(&self) -> Result<Option<CallerRecords>, KeyError> {
        let opened =
            StateDir::open(&self.folder).and_then(|folder| folder.open_file(FILE_NAME, FileAccess::Read));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if file.metadata()?.mode() & 0o022 != 0 {
            return Err(self.invalid("other users can write to it".to_owned()));
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
        let records: CallerRecords =
            serde_json::from_str(&text).map_err(|error| self.invalid(error.to_string()))?;
        if records.keys.is_empty() && records.callers.is_empty() {
            return Err(self.invalid("it contains no keys".to_owned()));
        }
        Ok(Some(records.migrate()))
    }

    /// Replaces the file atomically. Removes it if there is nothing to store.
    fn write_file(&self, records: &CallerRecords) -> Result<(), KeyError> {
        let folder = StateDir::create(&self.folder)?;
        if records.keys.is_empty() && records.callers.is_empty() {
            folder.remove(FILE_NAME)?;
            return Ok(folder.sync()?);
        }
        let mut text = serde_json::to_string_pretty(records).map_err(io::Error::from)?;
        text.push('\n');
        Ok(folder.replace(FILE_NAME, text.as_bytes())?)
    }
}

impl CallerStore for CallerFile {
    fn read(&self) -> Result<CallerRecords, KeyError> {
        Ok(self.read_file()?.unwrap_or_default())
    }

    fn update(
        &self,
        change: &mut dyn FnMut(&mut CallerRecords) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        // Against writers in other processes.
        let lock = StateDir::create(&self.folder)?.open_file(LOCK_NAME, FileAccess::Create)?;
        lock.file().lock()?;
        let before = self.read()?;
        let mut records = before.clone();
        change(&mut records)?;
        if records == before { Ok(()) } else { self.write_file(&records) }
    }

    /// Modification time, length and inode of the file.
    fn stamp(&self) -> StoreStamp {
        let Ok(file) = fs_err::symlink_metadata(&self.path) else { return StoreStamp::default() };
        let modified = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = modified.unwrap_or_default().as_nanos();
        StoreStamp(format!("{nanos} {} {}", file.len(), file.ino()))
    }
}
