//! The file of a script, looked at whenever it is used.
//!
//! Its entry was checked when it was loaded, but files change. Invariant: what is run is a regular file below the
//! folder of its registry, by no link outside of it, that not everybody may write to.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use toolgate_types::tool::Script;

use super::{Job, ScriptError};

/// More is no script.
const LARGEST_SOURCE: u64 = 16 * 1024 * 1024;

/// What tells one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A file that was opened and found good.
pub(super) struct Opened {
    file: fs_err::File,
    pub(super) stamp: Stamp,
    pub(super) folder: PathBuf,
}

impl Opened {
    /// Opens the file of a script: to be read, or only to be looked at, which a program need not allow.
    pub(super) fn new(job: &Job<'_>, read: bool) -> Result<Self, ScriptError> {
        let path = &job.script.script_path;
        let unusable = |why: &str, hint: &str| {
            let message = format!("the script `{}` of tool `{}` {why}", job.file(), job.tool.name);
            ScriptError::unusable(message, hint.to_owned())
        };
        let file = open(job.script, read).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => unusable("does not exist", "write it, or correct `script_path`"),
            Errno::XDEV | Errno::LOOP => unusable(
                "is reached by a link that leads out of its folder",
                "put the file itself in the folder of the registry",
            ),
            Errno::ACCESS | Errno::PERM => unusable("may not be read", "`chmod u+r` makes it readable"),
            other => unusable(&format!("cannot be opened: {other}"), "`toolgate check` looks at all of them"),
        })?;
        let file = fs_err::File::from_parts(file.into(), path);
        let metadata =
            file.metadata().map_err(|error| unusable(&error.to_string(), "it was there just now"))?;
        if !metadata.is_file() {
            return Err(unusable("is not a file", "`script_path` names a file"));
        }
        if metadata.mode() & 0o002 != 0 {
            return Err(unusable(
                "may be changed by everybody on this machine",
                "`chmod o-w` takes that away",
            ));
        }
        let stamp = Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { file, stamp, folder })
    }

    /// All of it.
    pub(super) fn source(self) -> Result<Vec<u8>, ScriptError> {
        let Self { file, stamp, .. } = self;
        let shown = file.path().display().to_string();
        let mut source = Vec::new();
        match file.take(LARGEST_SOURCE + 1).read_to_end(&mut source) {
            Ok(_) if source.len() as u64 <= LARGEST_SOURCE => Ok(source),
            Ok(_) => {
                let message = format!("the script `{shown}` has {} bytes, which is no script", stamp.size);
                Err(ScriptError::unusable(message, None))
            }
            Err(error) => Err(ScriptError::unusable(error.to_string(), None)),
        }
    }
}

fn open(script: &Script, read: bool) -> rustix::io::Result<rustix::fd::OwnedFd> {
    let Script { script_path, folder, .. } = script;
    // A pipe in the place of a file would wait for somebody to write.
    let how = if read { OFlags::RDONLY | OFlags::NONBLOCK } else { OFlags::PATH } | OFlags::CLOEXEC;
    let Ok(below) = script_path.strip_prefix(folder) else { return Err(Errno::XDEV) };
    let root = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(&root, below, how, Mode::empty(), beneath) {
        Err(Errno::NOSYS) => {
            // A kernel without it: a look before, which whoever may write to the folder could outrun.
            let (real, folder) = (fs_err::canonicalize(script_path), fs_err::canonicalize(folder));
            match (real, folder) {
                (Ok(real), Ok(folder)) if real.starts_with(&folder) => {
                    openat(CWD, &real, how | OFlags::NOFOLLOW, Mode::empty())
                }
                (Ok(_), Ok(_)) => Err(Errno::XDEV),
                _ => Err(Errno::NOENT),
            }
        }
        opened => opened,
    }
}
