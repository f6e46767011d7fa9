//! Functions of the operating system that find and end processes, and confine them.
//!
//! Both implementations have the same items. `linux` uses sub-reapers, `/proc`, process descriptors, Landlock, seccomp and
//! namespaces; `portable` needs POSIX only. It is used on other systems, and on Linux with the feature `portable`, so that
//! its tests run there. Invariant: no other module of this crate names a system.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod linux;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod portable;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) use linux::*;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
pub(crate) use portable::*;

/// Opens a file below a folder, after a check of its real path. A writer to the folder could replace it in between.
fn open_checked(folder: &Path, path: &Path, how: OFlags) -> rustix::io::Result<OwnedFd> {
    let (real, folder) = (fs_err::canonicalize(folder.join(path)), fs_err::canonicalize(folder));
    match (real, folder) {
        (Ok(real), Ok(folder)) if real.starts_with(&folder) => {
            openat(CWD, &real, how | OFlags::NOFOLLOW, Mode::empty())
        }
        (Ok(_), Ok(_)) => Err(Errno::XDEV),
        _ => Err(Errno::NOENT),
    }
}
