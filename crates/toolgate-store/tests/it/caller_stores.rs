//! The stores of callers in a file and in memory, for the contract.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use toolgate_store::callers::{CallerFile, CallerRecords, CallerStore, KeyError, StoreStamp};
use toolgate_types::KeyHash;

use crate::callers::{author, caller, id, names};

/// Shows that the operations need nothing but the trait.
#[derive(Debug, Default)]
struct MemoryStore {
    records: std::sync::Mutex<CallerRecords>,
    changes: AtomicU64,
}

impl CallerStore for MemoryStore {
    fn read(&self) -> Result<CallerRecords, KeyError> {
        Ok(self.records.lock().unwrap().clone())
    }

    fn update(
        &self,
        change: &mut dyn FnMut(&mut CallerRecords) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let mut records = self.records.lock().unwrap();
        let mut changed = records.clone();
        change(&mut changed)?;
        *records = changed;
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn stamp(&self) -> StoreStamp {
        StoreStamp(self.changes.load(Ordering::Relaxed).to_string())
    }
}

/// Runs a check against every implementation.
pub(crate) fn check(contract: impl Fn(&dyn CallerStore)) {
    let folder = tempfile::tempdir().unwrap();
    contract(&CallerFile::new(folder.path()));
    contract(&MemoryStore::default());
}

fn write(folder: &Path, text: &str) {
    fs_err::write(folder.join("keys.json"), text).unwrap();
}

/// The file of an older version is read, and its owner key is kept.
#[test]
fn reads_the_file_of_an_older_version() {
    let folder = tempfile::tempdir().unwrap();
    let hash = KeyHash::of("a key");
    let text = format!(
        r#"{{"keys":[{{"caller":"owner","sha256":"{hash}"}}],"callers":[{{"id":"ann","permissions":["mail:*"],
        "sha256":"{}","created":"2026-11-15T08:00:00Z","by":"owner"}}]}}"#,
        KeyHash::of("another")
    );
    write(folder.path(), &text);
    let store = CallerFile::new(folder.path());
    let store: &dyn CallerStore = &store;
    assert_eq!(store.owner_key(None, Timestamp::UNIX_EPOCH).unwrap().hash, hash, "it may be in use");
    assert_eq!(names(store, &id("ann")), ["default"]);
    store.revoke_key(&id("ann"), "default").unwrap();
    assert_eq!(names(store, &id("ann")), [""; 0]);
    assert_eq!(store.read().unwrap().callers.len(), 1);
}

#[test]
fn the_file_has_hashes_only_and_is_private() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let folder = tempfile::tempdir().unwrap();
    let file = CallerFile::new(folder.path());
    let store: &dyn CallerStore = &file;
    let (_, key) = store.add_caller(caller(&id("ann")), author(1)).unwrap();
    let path = folder.path().join("keys.json");
    assert!(!fs_err::read_to_string(&path).unwrap().contains(key.expose()));
    assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o777, 0o600);
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(store.read(), Err(KeyError::File { .. })), "anyone could write there");
    for bad in ["", "{", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"caller":"owner","sha256":"abc"}]}"#] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), bad);
        assert!(matches!(CallerFile::new(folder.path()).read(), Err(KeyError::File { .. })), "{bad}");
    }
}
