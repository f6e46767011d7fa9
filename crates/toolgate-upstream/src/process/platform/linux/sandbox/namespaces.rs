//! Namespaces: processes, System V objects, sockets and mounts of their own.
//!
//! The shim [enters](enter) them, and mounts a file system with a size limit on the scratch folder. The first process
//! inside then [replaces its root](enter_root) by one that holds the allowed paths only, read-only. There is no `/proc`.
//! When the program has ended, the shim [stores](store_files) its files in the real scratch folder.
//! Invariant: nothing outside of the scratch folder can be changed, not even by the owner of a file.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::process::sandbox::{OMITTED_FILE, SandboxSpec};

/// The mount point of the new root until it becomes the root. It exists everywhere, and no allowed path is below it.
const ROOT: &str = "/proc";
/// Space beyond the limit, so that code over the limit is stopped with an error that names the limit. Code that writes
/// faster gets "no space left on device".
const SPARE_BYTES: u64 = 1 << 20;
const SPARE_FACTOR: u64 = 4;

/// The file system that is mounted on the scratch folder.
pub(crate) struct ScratchMount {
    /// The real scratch folder, below the mount.
    real: OwnedFd,
    mounted: PathBuf,
    /// The sum of file sizes to store. Sparse files can be larger than the file system.
    max_bytes: u64,
}

/// Moves this process and its future children into new namespaces. `None` if the kernel or its configuration does not
/// allow it: then nothing is mounted, and the caller falls back to a stricter filter.
///
/// # Errors
/// If the scratch folder cannot be opened or filled.
pub(crate) fn enter(spec: &SandboxSpec) -> io::Result<Option<ScratchMount>> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let real = rustix::fs::openat(CWD, &spec.scratch, directory, Mode::empty())?;
    if unshare().and_then(|()| mount_scratch(spec)).is_err() {
        return Ok(None);
    }
    pass_capabilities()
        .map_err(|error| io::Error::other(format!("the capabilities cannot be set: {error}")))?;
    let mount =
        ScratchMount { real, mounted: spec.scratch.clone(), max_bytes: 2 * spec.max_bytes + SPARE_BYTES };
    copy_tree(&mount.real_path(), &mount.mounted, u64::MAX).map_err(|omitted| {
        io::Error::other(format!("{omitted} input files do not fit into the scratch folder"))
    })?;
    // The old working folder is below the mount.
    rustix::process::chdir(&mount.mounted)?;
    Ok(Some(mount))
}

/// Enters new namespaces and mounts a file system, as [`enter`] does. For a process that ends afterwards.
pub(super) fn try_enter() -> io::Result<()> {
    unshare().and_then(|()| mount_tmpfs(Path::new(ROOT), "size=4k"))
}

fn unshare() -> io::Result<()> {
    let spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if nix::sched::unshare(spaces | CloneFlags::CLONE_NEWUSER).is_ok() {
        // The program keeps its user, and no other user exists.
        fs_err::write("/proc/self/setgroups", "deny")?;
        fs_err::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs_err::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    } else {
        // User namespaces may be disabled. Root can do without.
        nix::sched::unshare(spaces)?;
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

fn mount_scratch(spec: &SandboxSpec) -> io::Result<()> {
    let options = format!(
        "mode=0700,size={},nr_inodes={}",
        spec.max_bytes.saturating_add(SPARE_BYTES),
        spec.max_entries.saturating_mul(SPARE_FACTOR)
    );
    mount_tmpfs(&spec.scratch, &options)
}

fn mount_tmpfs(target: &Path, options: &str) -> io::Result<()> {
    let options = CString::new(options).map_err(io::Error::other)?;
    mount("tmpfs", target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?;
    Ok(())
}

/// Lets the first process keep the capabilities that it needs, over its `execve`. It drops them.
fn pass_capabilities() -> io::Result<()> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::SETPCAP;
    let own = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: needed, ..own })?;
    for capability in needed.iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

impl ScratchMount {
    fn real_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.real.as_raw_fd()))
    }
}

/// Copies the files of the program into the real scratch folder. All processes must have ended.
pub(crate) fn store_files(mount: &ScratchMount) {
    let real = mount.real_path();
    // Errors count as omitted files.
    for entry in fs_err::read_dir(&real).into_iter().flatten().flatten() {
        let path = entry.path();
        let _ = fs_err::remove_file(&path).or_else(|_| fs_err::remove_dir_all(&path));
    }
    let omitted = copy_tree(&mount.mounted, &real, mount.max_bytes).err().unwrap_or_default();
    let note = real.join(OMITTED_FILE);
    let _ = if omitted == 0 { fs_err::remove_file(note) } else { fs_err::write(note, omitted.to_string()) };
}

/// Copies folders and regular files, without links. Nothing else may write to either folder. Returns the number of files
/// that could not be copied as an error.
fn copy_tree(from: &Path, to: &Path, mut max_bytes: u64) -> Result<(), usize> {
    let mut omitted = 0;
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(from.join(&folder)).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let path = folder.join(entry.file_name());
            if meta.is_dir() {
                // The program may have removed its own permissions.
                let _ = fs_err::set_permissions(entry.path(), readable(0o700));
                match fs_err::create_dir(to.join(&path)) {
                    Ok(()) => folders.push(path),
                    Err(_) => omitted += 1,
                }
            } else if meta.is_file() && meta.nlink() == 1 {
                let _ = fs_err::set_permissions(entry.path(), readable(0o600));
                let fits = meta.len() <= max_bytes;
                if fits && fs_err::copy(entry.path(), to.join(&path)).is_ok() {
                    max_bytes -= meta.len();
                } else {
                    omitted += 1;
                }
            }
        }
    }
    if omitted == 0 { Ok(()) } else { Err(omitted) }
}

fn readable(mode: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}

/// Replaces the root of this process by one with these paths only. All except the scratch folder are read-only.
pub(super) fn enter_root<'a>(readable: impl Iterator<Item = &'a Path>, scratch: &Path) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    let spaces = CloneFlags::CLONE_NEWNS;
    nix::sched::unshare(spaces).map_err(|errno| failed("the mount namespace", errno.into()))?;
    // Opened before it is covered. The kernel writes the table when it is read.
    let table =
        fs_err::File::open("/proc/self/mountinfo").map_err(|error| failed("the mount table", error))?;
    let root = Path::new(ROOT);
    mount_tmpfs(root, "mode=0755,size=1m").map_err(|error| failed("the root folder", error))?;
    expose(root, readable).map_err(|error| failed("a readable path", error))?;
    let inside = join(root, scratch);
    let bound =
        fs_err::create_dir_all(&inside).and_then(|()| mount_bind(scratch, &inside).map_err(io::Error::from));
    bound.map_err(|error| failed("the scratch folder", error))?;
    for point in mount_points(table) {
        if point.starts_with(root) && point != inside {
            make_read_only(&point)
                .map_err(|error| failed(&format!("`{}` cannot be made read-only", point.display()), error))?;
        }
    }
    change_root(root).map_err(|error| failed("the root folder cannot be changed", error))?;
    rustix::process::chdir(scratch).map_err(|errno| failed("the scratch folder", errno.into()))
}

/// Binds paths below the new root. Paths that do not exist are left out.
fn expose<'a>(root: &Path, paths: impl Iterator<Item = &'a Path>) -> io::Result<()> {
    let paths: Vec<&Path> = paths.collect();
    let real: BTreeSet<PathBuf> = paths.iter().filter_map(|path| fs_err::canonicalize(path).ok()).collect();
    let mut bound: Vec<&Path> = Vec::new();
    // A folder comes before everything below it.
    for path in &real {
        if bound.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let target = join(root, path);
        if path.is_dir() {
            fs_err::create_dir_all(&target)?;
        } else {
            fs_err::create_dir_all(target.parent().unwrap_or(root))?;
            fs_err::write(&target, "")?;
        }
        mount_bind_recursive(path, &target)?;
        bound.push(path);
    }
    for path in paths {
        let Ok(real) = fs_err::canonicalize(path) else { continue };
        let target = join(root, path);
        if real == path || fs_err::symlink_metadata(&target).is_ok() {
            continue;
        }
        fs_err::create_dir_all(target.parent().unwrap_or(root))?;
        fs_err::os::unix::fs::symlink(&real, &target)?;
    }
    Ok(())
}

fn join(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The fifth field of each line, with octal escapes.
fn mount_points(table: fs_err::File) -> Vec<PathBuf> {
    let lines = BufReader::new(table).split(b'\n').map_while(Result::ok);
    lines.filter_map(|line| Some(unescape(line.split(|byte| *byte == b' ').nth(4)?))).collect()
}

fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path).into()
}

/// Makes a mount read-only. Its other flags stay, because the kernel refuses to clear those of an outer namespace.
fn make_read_only(point: &Path) -> io::Result<()> {
    let is_device = !point.is_dir() && point.parent().is_some_and(|folder| folder.ends_with("dev"));
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    if !is_device {
        flags |= MountFlags::NODEV;
    }
    let present = statvfs(point)?.f_flag;
    for (flag, kept) in [
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if present.contains(flag) {
            flags |= kept;
        }
    }
    mount_remount(point, flags, "")?;
    Ok(())
}

/// Makes a mounted folder the root, and detaches the old one.
fn change_root(root: &Path) -> io::Result<()> {
    rustix::process::chdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}
