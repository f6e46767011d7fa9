//! `toolgate.lock`: the file with the pins of a project, to be committed with it. The replicas of a cluster share its text
//! in their database.
//!
//! Several processes may use one project, so each write starts from the current content of the file. Invariants:
//! readers see either the old or the new file, never a part, and a file in an unknown format is never overwritten.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use toolgate_state::read_regular;
use toolgate_store::callers::StoreStamp;
use toolgate_store::cluster::DocumentStore;

use super::{PinSet, ServerPins};

/// Name of the file in the project folder.
pub const FILE_NAME: &str = "toolgate.lock";
/// Prefix of temporary files beside it.
const TEMPORARY_PREFIX: &str = ".toolgate.lock.";
/// Format version.
const VERSION: u32 = 1;
/// Note in the file for its readers.
const ABOUT: &str = "Tool definitions of MCP servers, as first seen or last approved. \
    Commit this file with the project; `toolgate servers approve` updates it.";
/// Enough for more than ten thousand tools.
const MAX_BYTES: u64 = 256 << 20;

/// Reasons why the lock file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("cannot read `{}`", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("`{}` is not a lock file of this version of Toolgate", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("`{}` is larger than the limit of 256 MiB", .0.display())]
    TooLarge(PathBuf),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockDocument {
    #[serde(default)]
    about: String,
    version: FormatVersion,
    servers: BTreeMap<String, ServerPins>,
}

/// Format version. Other versions are rejected, since their content may have another meaning.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
#[derive(Clone)]
struct FormatVersion;

impl TryFrom<u32> for FormatVersion {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        if version == VERSION { Ok(Self) } else { Err(format!("unknown version {version}")) }
    }
}

impl From<FormatVersion> for u32 {
    fn from(_: FormatVersion) -> Self {
        VERSION
    }
}

/// The lock file of a project, or its text in the database of a cluster.
#[derive(Debug, Clone)]
pub struct LockFile {
    path: PathBuf,
    shared: Option<Arc<dyn DocumentStore>>,
}

/// Name of the text in the database of a cluster.
const DOCUMENT: &str = "pins";

/// Modification time and size, or the version of a shared text, to detect changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileStamp {
    File(Option<(SystemTime, u64)>),
    Shared(StoreStamp),
}

impl LockFile {
    /// The lock file of a project folder.
    pub fn in_project(project: &Path) -> Self {
        Self { path: project.join(FILE_NAME), shared: None }
    }

    /// The pins of a cluster.
    pub fn in_cluster(documents: Arc<dyn DocumentStore>) -> Self {
        Self { path: FILE_NAME.into(), shared: Some(documents) }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the pins. Empty if there is no file.
    pub fn read(&self) -> Result<PinSet, LockError> {
        if let Some(documents) = &self.shared {
            return self.parse(documents.read(DOCUMENT).as_deref().map(str::as_bytes));
        }
        let path = || self.path.clone();
        let bytes = match read_regular(&self.path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PinSet::default()),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => return Err(LockError::TooLarge(path())),
            Err(source) => return Err(LockError::Unreadable { path: path(), source }),
        };
        self.parse(Some(&bytes))
    }

    fn parse(&self, bytes: Option<&[u8]>) -> Result<PinSet, LockError> {
        let Some(bytes) = bytes else { return Ok(PinSet::default()) };
        let malformed = |source| LockError::Malformed { path: self.path.clone(), source };
        let document: LockDocument = serde_json::from_slice(bytes).map_err(malformed)?;
        Ok(PinSet { servers: document.servers })
    }

    /// The current stamp of the file.
    pub fn stamp(&self) -> FileStamp {
        if let Some(documents) = &self.shared {
            return FileStamp::Shared(documents.stamp(DOCUMENT));
        }
        let stamp = |metadata: std::fs::Metadata| Some((metadata.modified().ok()?, metadata.len()));
        FileStamp::File(fs_err::metadata(&self.path).ok().and_then(stamp))
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    /// Removes the temporary files of processes that were killed while they wrote the file.
    pub fn remove_orphans(&self) {
        if self.is_shared() {
            return;
        }
        let Ok(folder) = fs_err::File::open(self.folder()) else { return };
        // A process that writes holds the lock: see [`Self::update`].
        if folder.try_lock().is_err() {
            return;
        }
        for entry in fs_err::read_dir(self.folder()).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_temporary) {
                let _ = fs_err::remove_file(entry.path());
            }
        }
    }

    /// Updates the pins, starting from the current content of the file. Returns the new pins. The change is made again if
    /// another replica of a cluster changed them meanwhile.
    pub fn update(&self, mut change: impl FnMut(&mut PinSet)) -> Result<PinSet, LockError> {
        if let Some(documents) = &self.shared {
            let mut newest = PinSet::default();
            documents.update(DOCUMENT, &mut |text| {
                let before = self.parse(text.map(str::as_bytes)).map_err(std::io::Error::other)?;
                newest = before.clone();
                change(&mut newest);
                if newest == before {
                    return Ok(None);
                }
                let (text, pins) = render(std::mem::take(&mut newest));
                newest = pins;
                Ok(Some(text))
            })?;
            return Ok(newest);
        }
        let folder = self.folder();
        // The lock is on the folder, because the file itself is replaced and a separate lock file would be clutter.
        let folder_lock = fs_err::File::open(folder)?;
        folder_lock.lock()?;
        let before = self.read()?;
        let mut pins = before.clone();
        change(&mut pins);
        if pins != before {
            let text;
            (text, pins) = render(pins);
            let mut file = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(folder)?;
            file.write_all(text.as_bytes())?;
            make_world_readable(file.as_file())?;
            file.as_file().sync_all()?;
            file.persist(&self.path).map_err(|error| error.error)?;
            folder_lock.sync_all()?;
        }
        Ok(pins)
    }
}

/// Returns the text of a lock file, and the pins in it.
fn render(mut pins: PinSet) -> (String, PinSet) {
    let servers = std::mem::take(&mut pins.servers);
    let document = LockDocument { about: ABOUT.to_owned(), version: FormatVersion, servers };
    let mut text = serde_json::to_string_pretty(&document).expect("strings and JSON serialize");
    pins.servers = document.servers;
    text.push('\n');
    (text, pins)
}

/// Returns true for the name of a temporary file: six random characters follow the prefix. A word that a person added to
/// the name, such as `backup`, is not random.
fn is_temporary(name: &str) -> bool {
    let Some(random) = name.strip_prefix(TEMPORARY_PREFIX) else { return false };
    random.len() == 6
        && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && !random.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The file has no secrets and is shared by the users of the project.
#[cfg(unix)]
fn make_world_readable(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_world_readable(_file: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::{NewPin, Pin, PinnedDefinition};

    fn pin(tool: &str, hash: &str, replaces: Option<&str>) -> NewPin {
        let pin = Pin {
            hash: hash.into(),
            definition: PinnedDefinition::new(&serde_json::json!({ "name": tool })),
        };
        NewPin {
            server: "s".parse().unwrap(),
            tool: tool.to_owned(),
            pin,
            replaces: replaces.map(Into::into),
        }
    }

    fn hash(pins: &PinSet, tool: &str) -> String {
        pins.get(&"s".parse().unwrap(), tool).map(|pin| pin.hash.to_string()).unwrap_or_default()
    }

    #[test]
    fn writes_and_reads_pins() {
        let folder = tempfile::tempdir().unwrap();
        let file = LockFile::in_project(folder.path());
        assert_eq!(file.read().unwrap(), PinSet::default());
        file.update(|pins| pins.add([pin("a", "1", None)])).unwrap();
        let stamp = file.stamp();
        file.update(|pins| pins.add([pin("a", "1", Some("1"))])).unwrap();
        assert_eq!(file.stamp(), stamp, "an unchanged file is not written");
        // Another process with an outdated view of the pins.
        LockFile::in_project(folder.path())
            .update(|pins| pins.add([pin("a", "2", None), pin("b", "1", None)]))
            .unwrap();
        let pins = file.read().unwrap();
        assert_eq!((hash(&pins, "a"), hash(&pins, "b")), ("1".to_owned(), "1".to_owned()));
        file.update(|pins| pins.add([pin("a", "2", Some("1"))])).unwrap();
        assert_eq!(hash(&file.read().unwrap(), "a"), "2");
        let left = fs_err::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "nothing but the file is left");
    }

    #[test]
    fn removes_leftovers_of_killed_processes() {
        let folder = tempfile::tempdir().unwrap();
        let file = LockFile::in_project(folder.path());
        for name in ["toolgate.lock", ".toolgate.lock.aB3xYz", ".toolgate.lock.backup", ".toolgate.lock.Old"]
        {
            fs_err::write(folder.path().join(name), "").unwrap();
        }
        let names = || {
            let entries = fs_err::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            entries.map(|name| name.into_string().unwrap()).collect::<std::collections::BTreeSet<_>>()
        };
        let writer = fs_err::File::open(folder.path()).unwrap();
        writer.lock().unwrap();
        file.remove_orphans();
        assert_eq!(names().len(), 4, "a process writes");
        drop(writer);
        file.remove_orphans();
        assert!(names().into_iter().eq([".toolgate.lock.Old", ".toolgate.lock.backup", "toolgate.lock"]));
    }

    #[test]
    fn rules_out_servers_without_the_tool() {
        let mut pins = PinSet::default();
        let pin_of =
            |server: &str, tool: &str| NewPin { server: server.parse().unwrap(), ..pin(tool, "1", None) };
        pins.add([pin_of("a", "send mail"), pin_of("b", "look")]);
        let ruled_out = |tool: &str| ["a", "b", "new"].map(|server| pins.rules_out(server, tool));
        assert_eq!(ruled_out("send-mail"), [false, true, false], "an unknown server may have it");
        assert_eq!(ruled_out("unknown"), [false, false, false], "any server may have an unknown tool");
    }

    #[test]
    fn never_overwrites_unknown_formats() {
        let folder = tempfile::tempdir().unwrap();
        let file = LockFile::in_project(folder.path());
        for text in
            ["{", "{}", r#"{"version": 2, "servers": {}}"#, r#"{"version": 1, "servers": {}, "x": 1}"#]
        {
            fs_err::write(file.path(), text).unwrap();
            assert!(matches!(file.read(), Err(LockError::Malformed { .. })), "{text}");
            assert!(file.update(|pins| pins.add([pin("a", "1", None)])).is_err());
            assert_eq!(fs_err::read_to_string(file.path()).unwrap(), text);
        }
    }

    #[test]
    fn concurrent_updates_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let file = LockFile::in_project(folder.path());
                scope
                    .spawn(move || file.update(|pins| pins.add([pin(&format!("t{n}"), "1", None)])).unwrap());
            }
        });
        assert_eq!(
            LockFile::in_project(folder.path()).read().unwrap().tool_names(&"s".parse().unwrap()).count(),
            8
        );
    }
}
