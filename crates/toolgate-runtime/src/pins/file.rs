//! `toolgate.lock`: the pins of a project, in a file that is kept with it.
//!
//! Several processes may work on one project; each reads what the others have written before it
//! writes. Invariant: a reader sees the file as it was or as it is to be, never a part, and a file
//! that is not ours to understand is never written over.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Pins, ServerPins};

/// Its name in a project folder.
pub const NAME: &str = "toolgate.lock";
/// The form of the file.
const VERSION: u32 = 1;
/// What somebody who opens it should know.
const ABOUT: &str = "What servers said of their tools when these were first seen or approved. \
    Keep this file with the project; `toolgate servers approve` changes it.";
/// More than ten thousand tools take.
const LARGEST_BYTES: u64 = 256 << 20;

/// Why the pins cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file or its folder.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// What it holds.
    #[error("`{}` is not a lock file of this version of Toolgate", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where it is wrong.
        source: serde_json::Error,
    },
    /// Its size.
    #[error("`{}` is larger than a lock file can be", .0.display())]
    TooLarge(PathBuf),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    about: String,
    version: Version,
    servers: BTreeMap<String, ServerPins>,
}

/// The form of the file; another one is refused, since it may mean something else.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
#[derive(Clone)]
struct Version;

impl TryFrom<u32> for Version {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        if version == VERSION { Ok(Self) } else { Err(format!("version {version} is not known here")) }
    }
}

impl From<Version> for u32 {
    fn from(_: Version) -> Self {
        VERSION
    }
}

/// The file of a project.
#[derive(Debug, Clone)]
pub struct LockFile {
    path: PathBuf,
}

/// What tells that the file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(Option<(SystemTime, u64)>);

impl LockFile {
    /// The file of a project folder.
    pub fn of(project: &Path) -> Self {
        Self { path: project.join(NAME) }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds; nothing where there is none.
    pub fn read(&self) -> Result<Pins, LockError> {
        let bytes = match fs_err::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Pins::default()),
            Err(error) => return Err(error.into()),
            Ok(metadata) if metadata.len() > LARGEST_BYTES => {
                return Err(LockError::TooLarge(self.path.clone()));
            }
            Ok(_) => fs_err::read(&self.path)?,
        };
        let document: Document = serde_json::from_slice(&bytes)
            .map_err(|source| LockError::Malformed { path: self.path.clone(), source })?;
        Ok(Pins { servers: document.servers })
    }

    /// When it was last written.
    pub fn stamp(&self) -> Stamp {
        let stamp = |metadata: std::fs::Metadata| Some((metadata.modified().ok()?, metadata.len()));
        Stamp(fs_err::metadata(&self.path).ok().and_then(stamp))
    }

    /// Changes what it holds, after everything that others have written, and returns what it holds
    /// then.
    pub fn change(&self, change: impl FnOnce(&mut Pins)) -> Result<Pins, LockError> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // The folder itself is what processes take turns at; another file would be in the way.
        let turn = fs_err::File::open(folder)?;
        turn.lock()?;
        let before = self.read()?;
        let mut pins = before.clone();
        change(&mut pins);
        if pins != before {
            let servers = std::mem::take(&mut pins.servers);
            let document = Document { about: ABOUT.to_owned(), version: Version, servers };
            let mut file = tempfile::Builder::new().prefix(".toolgate.lock.").tempfile_in(folder)?;
            let mut bytes = serde_json::to_vec_pretty(&document).expect("texts and JSON have a JSON form");
            pins.servers = document.servers;
            bytes.push(b'\n');
            file.write_all(&bytes)?;
            readable_by_all(file.as_file())?;
            file.as_file().sync_all()?;
            file.persist(&self.path).map_err(|error| error.error)?;
            turn.sync_all()?;
        }
        Ok(pins)
    }
}

/// There is no secret in it, and others work on the project too.
#[cfg(unix)]
fn readable_by_all(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_file: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::{NewPin, Pin};

    fn pin(tool: &str, hash: &str, replaces: Option<&str>) -> NewPin {
        let pin = Pin { hash: hash.into(), definition: serde_json::json!({ "name": tool }) };
        NewPin {
            server: "s".parse().unwrap(),
            tool: tool.to_owned(),
            pin,
            replaces: replaces.map(Into::into),
        }
    }

    fn hash(pins: &Pins, tool: &str) -> String {
        pins.get(&"s".parse().unwrap(), tool).map(|pin| pin.hash.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = LockFile::of(folder.path());
        assert_eq!(file.read().unwrap(), Pins::default());
        file.change(|pins| pins.remember([pin("a", "1", None)])).unwrap();
        let stamp = file.stamp();
        file.change(|pins| pins.remember([pin("a", "1", Some("1"))])).unwrap();
        assert_eq!(file.stamp(), stamp, "what does not change is not written");
        // Another process, with an older idea of what is pinned.
        LockFile::of(folder.path())
            .change(|pins| pins.remember([pin("a", "2", None), pin("b", "1", None)]))
            .unwrap();
        let pins = file.read().unwrap();
        assert_eq!((hash(&pins, "a"), hash(&pins, "b")), ("1".to_owned(), "1".to_owned()));
        file.change(|pins| pins.remember([pin("a", "2", Some("1"))])).unwrap();
        assert_eq!(hash(&file.read().unwrap(), "a"), "2");
        let left = fs_err::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "nothing but the file is left");
    }

    #[test]
    fn servers_that_cannot_have_a_tool() {
        let mut pins = Pins::default();
        let of =
            |server: &str, tool: &str| NewPin { server: server.parse().unwrap(), ..pin(tool, "1", None) };
        pins.remember([of("a", "send mail"), of("b", "look")]);
        let ruled_out = |tool: &str| ["a", "b", "new"].map(|server| pins.rule_out(server, tool));
        assert_eq!(ruled_out("send-mail"), [false, true, false], "who was never seen may have it");
        assert_eq!(ruled_out("unknown"), [false, false, false], "anyone may have it");
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = LockFile::of(folder.path());
        for text in
            ["{", "{}", r#"{"version": 2, "servers": {}}"#, r#"{"version": 1, "servers": {}, "x": 1}"#]
        {
            fs_err::write(file.path(), text).unwrap();
            assert!(matches!(file.read(), Err(LockError::Malformed { .. })), "{text}");
            assert!(file.change(|pins| pins.remember([pin("a", "1", None)])).is_err());
            assert_eq!(fs_err::read_to_string(file.path()).unwrap(), text);
        }
    }

    #[test]
    fn processes_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let file = LockFile::of(folder.path());
                scope.spawn(move || {
                    file.change(|pins| pins.remember([pin(&format!("t{n}"), "1", None)])).unwrap()
                });
            }
        });
        assert_eq!(LockFile::of(folder.path()).read().unwrap().names(&"s".parse().unwrap()).count(), 8);
    }
}
