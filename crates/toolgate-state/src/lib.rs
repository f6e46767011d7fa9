//! The folder `.toolgate` of a project, and every other folder with state of Toolgate.
//!
//! A project may come from a stranger, with links in place of the files that Toolgate writes. Invariant: from `.toolgate`
//! on, no link is followed; files are opened relative to the descriptor of their folder; folders are accessible to their
//! owner only; a folder or file of another user is refused, and so is writing to a file that has another name elsewhere.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err::File;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

/// Name of the folder in a project.
pub const STATE_FOLDER: &str = ".toolgate";
/// Target of the trace events for the steps of a change.
pub const STEP_TARGET: &str = "toolgate_state::step";
/// Prefix of temporary files and folders. The process id of their owner follows.
const TEMPORARY: &str = ".tmp-";
/// Prefix of temporary files of other libraries, and of earlier versions.
const ANY_TEMPORARY: &str = ".tmp";
/// Maximum age of a temporary file. It is then removed even if a process with the id of its owner exists: ids
/// are reused.
const MAX_TEMPORARY_AGE: Duration = Duration::from_secs(3600);

/// A folder that belongs to this user, opened without following links.
#[derive(Debug)]
pub struct StateDir {
    folder: OwnedFd,
    path: PathBuf,
}

/// Access to a file of a [`StateDir`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// For reading. The file must exist.
    Read,
    /// For reading and writing. The file must exist.
    Write,
    /// For reading and writing. Created if it does not exist.
    Create,
    /// For appending. Created if it does not exist.
    Append,
    /// For appending. Must not exist yet.
    AppendNew,
}

impl StateDir {
    /// Opens a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// If it is a link, or belongs to another user, or cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (base, names) = split(path);
        fs_err::create_dir_all(&base)?;
        Self::walk(base, names, true)
    }

    /// Opens an existing folder.
    ///
    /// # Errors
    /// If it does not exist, is a link, or belongs to another user.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (base, names) = split(path);
        Self::walk(base, names, false)
    }

    fn walk(base: PathBuf, names: Vec<PathBuf>, create: bool) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, &base, flags, Mode::empty());
        let mut current = Self { folder: opened.map_err(|error| describe(error, &base))?, path: base };
        // A folder that the user chose elsewhere keeps its mode.
        let is_private = names.first().is_some_and(|name| name.as_os_str() == STATE_FOLDER);
        for name in names {
            let path = current.path.join(&name);
            if create {
                match rustix::fs::mkdirat(&current.folder, &name, Mode::from_raw_mode(0o700)) {
                    Ok(()) => trace_step("folder created", &path),
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(describe(error, &path)),
                }
            }
            let opened = rustix::fs::openat(&current.folder, &name, flags | OFlags::NOFOLLOW, Mode::empty());
            let folder = opened.map_err(|error| match error {
                Errno::LOOP | Errno::NOTDIR => refuse(&path, "is not a folder, or is a link; remove it"),
                error => describe(error, &path),
            })?;
            let stat = rustix::fs::fstat(&folder).map_err(|error| describe(error, &path))?;
            check_owner(&stat, &path)?;
            if is_private && stat.st_mode & 0o077 != 0 {
                rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o700))
                    .map_err(|error| describe(error, &path))?;
            }
            current = Self { folder, path };
        }
        Ok(current)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file. New files are readable by their owner only.
    ///
    /// # Errors
    /// If it is not a regular file, belongs to another user, or is to be written and has a hard link.
    pub fn open_file(&self, name: &str, access: FileAccess) -> io::Result<File> {
        let path = self.path.join(name);
        let flags = match access {
            FileAccess::Read => OFlags::RDONLY,
            FileAccess::Write => OFlags::RDWR,
            FileAccess::Create => OFlags::RDWR | OFlags::CREATE,
            FileAccess::Append => OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
            FileAccess::AppendNew => OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL,
        };
        // Without `NONBLOCK`, opening a FIFO waits for its other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.folder, name, flags, Mode::from_raw_mode(0o600));
        let file = opened.map_err(|error| match error {
            Errno::LOOP => refuse(&path, "is a link; remove it"),
            error => describe(error, &path),
        })?;
        check_file(&file, access, &path)?;
        Ok(File::from_parts(file.into(), path))
    }

    /// Reads a file of at most `max_bytes` bytes.
    ///
    /// # Errors
    /// If it does not exist, is too large, or is refused by [`Self::open_file`].
    pub fn read(&self, name: &str, max_bytes: u64) -> io::Result<Vec<u8>> {
        read_limited(self.open_file(name, FileAccess::Read)?, max_bytes)
    }

    /// Replaces a file atomically. Durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn replace(&self, name: &str, text: &[u8]) -> io::Result<()> {
        self.write(name, text, true)?;
        self.sync()
    }

    /// Replaces a file atomically. It may be lost in a power loss.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn replace_unsynced(&self, name: &str, text: &[u8]) -> io::Result<()> {
        self.write(name, text, false)
    }

    fn write(&self, name: &str, text: &[u8], sync: bool) -> io::Result<()> {
        let temporary = temporary_name();
        let written = self.open_file(&temporary, FileAccess::AppendNew).and_then(|mut file| {
            trace_step("file created", file.path());
            file.write_all(text)?;
            trace_step("file written", file.path());
            if sync {
                file.sync_all()?;
                trace_step("file synced", file.path());
            }
            let path = self.path.join(name);
            let renamed = rustix::fs::renameat(&self.folder, &temporary, &self.folder, name);
            renamed.map_err(|error| describe(error, &path))?;
            trace_step("file renamed", &path);
            Ok(())
        });
        if written.is_err() {
            let _ = self.remove(&temporary);
        }
        written
    }

    /// Removes a file.
    ///
    /// # Errors
    /// If it does not exist or cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()).map_err(|error| describe(error, &path))?;
        trace_step("file removed", &path);
        Ok(())
    }

    /// Makes the names in the folder durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&self) -> io::Result<()> {
        rustix::fs::fsync(&self.folder).map_err(|error| describe(error, &self.path))?;
        trace_step("folder synced", &self.path);
        Ok(())
    }

    /// Returns the names in the folder.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let failed = |error| describe(error, &self.path);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Toolgate writes no other names.
            names.extend(entry.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Returns true if there is a socket of this user with the name.
    ///
    /// # Errors
    /// If it is something else, or belongs to another user.
    pub fn has_socket(&self, name: &str) -> io::Result<bool> {
        let path = self.path.join(name);
        let stat = match rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(describe(error, &path)),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(refuse(&path, "is not a socket; remove it"));
        }
        check_owner(&stat, &path).map(|()| true)
    }

    /// Creates a folder that is removed at the next start, unless its owner removes it before. Returns its name.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn temporary_folder(&self) -> io::Result<String> {
        let name = temporary_name();
        rustix::fs::mkdirat(&self.folder, &name, Mode::from_raw_mode(0o700))
            .map_err(|error| describe(error, &self.path.join(&name)))?;
        Ok(name)
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// If it is not empty.
    pub fn remove_folder(&self, name: &str) -> io::Result<()> {
        rustix::fs::unlinkat(&self.folder, name, AtFlags::REMOVEDIR)
            .map_err(|error| describe(error, &self.path.join(name)))
    }

    /// Renames a file.
    ///
    /// # Errors
    /// If it does not exist, or the target is a folder.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.folder, from, &self.folder, to)
            .map_err(|error| describe(error, &self.path.join(from)))
    }

    /// Removes temporary files and folders of processes that were killed. Never those of a running process.
    fn remove_orphans(&self, now: SystemTime) {
        for name in self.names().unwrap_or_default() {
            let Some(rest) = name.strip_prefix(ANY_TEMPORARY) else { continue };
            let Ok(stat) = rustix::fs::statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let owner = rest.strip_prefix('-').and_then(|rest| rest.split('-').next()?.parse().ok());
            let is_gone = |pid| test_kill_process(pid) == Err(Errno::SRCH);
            let age = now.duration_since(modified(&stat)).unwrap_or_default();
            if !owner.and_then(Pid::from_raw).is_some_and(is_gone) && age < MAX_TEMPORARY_AGE {
                continue;
            }
            let removed = match FileType::from_raw_mode(stat.st_mode) {
                // Holds at most a socket.
                FileType::Directory => {
                    let _ = self.remove(&format!("{name}/s"));
                    self.remove_folder(&name)
                }
                _ => self.remove(&name),
            };
            if removed.is_ok() {
                let _ = self.sync();
            }
        }
    }
}

/// Removes the temporary files that killed processes left in the state folder of a project and in the folders below it.
pub fn remove_orphans(state: &Path) {
    let Ok(folder) = StateDir::open(state) else { return };
    let now = SystemTime::now();
    folder.remove_orphans(now);
    for name in folder.names().unwrap_or_default() {
        if let Ok(below) = StateDir::open(&state.join(name)) {
            below.remove_orphans(now);
        }
    }
}

/// Opens a file of a folder with state by its path. Its folder must exist.
///
/// # Errors
/// If the folder is refused by [`StateDir::open`], or the file by [`StateDir::open_file`].
pub fn open_private(path: &Path, access: FileAccess) -> io::Result<File> {
    let (folder, name) = (path.parent(), path.file_name().and_then(|name| name.to_str()));
    let (Some(folder), Some(name)) = (folder, name) else {
        return Err(refuse(path, "is not the path of a file with state"));
    };
    StateDir::open(folder)?.open_file(name, access)
}

/// Reads a configuration file of at most `max_bytes` bytes. Links are followed; special files are refused, so that none
/// can block.
///
/// # Errors
/// If it is not a regular file, or is too large.
pub fn read_regular(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags of `open` fit");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_limited(File::from_parts(file, path), max_bytes)
}

/// Returns true if other users may change a file, or replace files of a folder: by its mode, or because it is theirs.
/// Root may change everything and does not count.
pub fn is_writable_by_others(path: &Path) -> bool {
    let Ok(file) = fs_err::metadata(path) else { return false };
    let mode = file.mode();
    let is_theirs = file.uid() != geteuid().as_raw() && file.uid() != 0;
    // In a folder with the sticky bit, they cannot replace the files of others.
    let is_open = mode & 0o002 != 0 || mode & 0o020 != 0 && !is_own_group(file.gid());
    is_theirs || is_open && !(file.is_dir() && mode & 0o1000 != 0)
}

/// Returns true for the group of this user alone, as far as that can be known: the one with the number of the user.
fn is_own_group(group: u32) -> bool {
    group == geteuid().as_raw()
}

fn read_limited(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len().min(max_bytes);
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    let path = file.path().to_owned();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let message = format!("`{}` is larger than {max_bytes} bytes", path.display());
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Splits a path at `.toolgate`, or before its last component: links are followed in the first part only.
fn split(path: &Path) -> (PathBuf, Vec<PathBuf>) {
    let parts: Vec<Component<'_>> = path.components().collect();
    let at = parts.iter().rposition(|part| part.as_os_str() == STATE_FOLDER);
    let at = at.unwrap_or(parts.len().saturating_sub(1));
    let base: PathBuf = parts[..at].iter().collect();
    let base = if base.as_os_str().is_empty() { PathBuf::from(".") } else { base };
    (base, parts[at..].iter().map(|part| part.as_os_str().into()).collect())
}

fn check_file(file: impl std::os::fd::AsFd, access: FileAccess, path: &Path) -> io::Result<()> {
    let stat = rustix::fs::fstat(file).map_err(|error| describe(error, path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refuse(path, "is not a regular file; remove it"));
    }
    // A hard link to a file elsewhere looks like a file of this folder. Toolgate itself makes none.
    if access != FileAccess::Read && stat.st_nlink > 1 {
        return Err(refuse(path, "has a hard link, so writing would change another file too; remove it"));
    }
    check_owner(&stat, path)
}

fn check_owner(stat: &Stat, path: &Path) -> io::Result<()> {
    if stat.st_uid == geteuid().as_raw() {
        return Ok(());
    }
    Err(refuse(path, "belongs to another user; remove it, or run Toolgate as that user"))
}

/// Reports a completed step of a change. A process may be killed after each.
fn trace_step(step: &'static str, path: &Path) {
    tracing::trace!(target: STEP_TARGET, step, path = %path.display());
}

fn refuse(path: &Path, reason: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("`{}` {reason}", path.display()))
}

fn describe(error: Errno, path: &Path) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot open or change `{}`: {error}", path.display()))
}

fn temporary_name() -> String {
    format!("{TEMPORARY}{}-{:08x}", std::process::id(), fastrand::u32(..))
}

fn modified(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Makes a file or socket accessible to its owner only.
///
/// # Errors
/// If it does not exist, or belongs to another user.
pub fn make_private(path: &Path) -> io::Result<()> {
    fs_err::set_permissions(path, Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests;
