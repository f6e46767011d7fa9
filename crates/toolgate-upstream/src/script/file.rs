//! Opens the file of a script, and checks it on every use.
//!
//! The entry was checked at load time, but files change. Invariant: the script is a regular file below the folder of its
//! registry, not reached through a link that leads outside, and not world-writable.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use toolgate_types::tool::ScriptSpec;

use super::{ScriptCall, ScriptError};
use crate::process::platform;

/// The largest script in bytes.
const MAX_SOURCE_BYTES: u64 = 16 * 1024 * 1024;

/// Identifies one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A script file that was opened and passed all checks.
pub(super) struct ScriptFile {
    file: fs_err::File,
    pub(super) stamp: FileStamp,
    pub(super) folder: PathBuf,
}

impl ScriptFile {
    /// Opens the file: for reading, or only for checking, because an executable need not be readable.
    pub(super) fn new(call: &ScriptCall<'_>, read: bool) -> Result<Self, ScriptError> {
        let path = &call.script.script_path;
        let unusable = |why: &str, hint: &str| {
            let message = format!("the script `{}` of tool `{}` {why}", call.file(), call.tool.name);
            ScriptError::unusable(message, hint.to_owned())
        };
        let file = open(call.script, read).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => unusable("does not exist", "create it, or correct `script_path`"),
            Errno::XDEV | Errno::LOOP => unusable(
                "is reached through a link that leads outside of its folder",
                "put the file itself in the folder of the registry",
            ),
            Errno::ACCESS | Errno::PERM => unusable("is not readable", "make it readable with `chmod u+r`"),
            other => unusable(&format!("cannot be opened: {other}"), "run `toolgate check`"),
        })?;
        let file = fs_err::File::from_parts(file.into(), path);
        let metadata = file
            .metadata()
            .map_err(|error| unusable(&error.to_string(), "it may have been removed just now"))?;
        if !metadata.is_file() {
            return Err(unusable("is not a file", "`script_path` names a file"));
        }
        if metadata.mode() & 0o002 != 0 {
            return Err(unusable(
                "is writable by every user on this machine",
                "remove that permission with `chmod o-w`",
            ));
        }
        let stamp = FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { file, stamp, folder })
    }

    /// The descriptor of the file, to execute it.
    pub(super) fn into_fd(self) -> OwnedFd {
        OwnedFd::from(self.file.into_parts().0)
    }

    pub(super) fn source(self) -> Result<Vec<u8>, ScriptError> {
        let Self { file, stamp, .. } = self;
        let shown = file.path().display().to_string();
        let mut source = Vec::new();
        match file.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut source) {
            Ok(_) if source.len() as u64 <= MAX_SOURCE_BYTES => Ok(source),
            Ok(_) => {
                let message =
                    format!("the script `{shown}` is too large ({} bytes; the limit is 16 MiB)", stamp.size);
                Err(ScriptError::unusable(message, None))
            }
            Err(error) => Err(ScriptError::unusable(error.to_string(), None)),
        }
    }
}

fn open(script: &ScriptSpec, read: bool) -> rustix::io::Result<OwnedFd> {
    let ScriptSpec { script_path, folder, .. } = script;
    let Ok(below) = script_path.strip_prefix(folder) else { return Err(Errno::XDEV) };
    platform::open_below(folder, below, read)
}
