//! Programs that count events of a process: Valgrind for instructions and allocations, strace for system calls.
//!
//! Invariant: a program on `PATH` is used as it is; a missing one is unpacked from its Debian package below `target`, and
//! the system stays unchanged.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;

use crate::{peers, program};

/// A command line that runs a program under an instrument.
#[derive(Debug, Clone, Default)]
pub(super) struct Instrument {
    /// The instrument and its arguments; the program follows.
    pub(super) arguments: Vec<OsString>,
    /// Environment of the instrument.
    pub(super) environment: Vec<(&'static str, OsString)>,
}

/// Valgrind counts every byte of a `rep movsb` as an instruction, and the C library copies with it from 2 KiB on. With
/// these settings it copies with vector instructions.
const NO_REP_INSTRUCTIONS: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// Runs a program under callgrind and writes its profile to a file when it ends.
pub(super) fn callgrind(file: &Path) -> anyhow::Result<Instrument> {
    let found = find("valgrind", &["valgrind"])?;
    let mut output = OsString::from("--callgrind-out-file=");
    output.push(file);
    let arguments =
        vec![found.path.into_os_string(), "--tool=callgrind".into(), "--dump-line=no".into(), output];
    let library = found.unpacked.map(|folder| ("VALGRIND_LIB", folder.join("usr/libexec/valgrind").into()));
    let tunables = ("GLIBC_TUNABLES", NO_REP_INSTRUCTIONS.into());
    Ok(Instrument { arguments, environment: library.into_iter().chain([tunables]).collect() })
}

/// Runs a program under strace and writes the number of its system calls to a file after it ended.
pub(super) fn strace(file: &Path) -> anyhow::Result<Instrument> {
    let found = find("strace", &["strace", "libunwind8"])?;
    let mut arguments = vec![found.path.into_os_string()];
    // With `-D` the started process is the program itself, so that signals reach it.
    arguments.extend(["-D", "-f", "-c", "-o"].map(OsString::from));
    arguments.push(file.into());
    let library = found.unpacked.map(|folder| ("LD_LIBRARY_PATH", library_folder(&folder).into()));
    if library.is_some() {
        // The program itself uses the libraries of the system.
        arguments.extend(["-E", "LD_LIBRARY_PATH"].map(OsString::from));
    }
    Ok(Instrument { arguments, environment: library.into_iter().collect() })
}

/// A program, and the folder of its package if it was unpacked.
struct FoundProgram {
    path: PathBuf,
    unpacked: Option<PathBuf>,
}

/// Finds a program on `PATH`, or below `target`, where its packages are unpacked the first time.
fn find(name: &str, packages: &[&str]) -> anyhow::Result<FoundProgram> {
    let mut version = Command::new(name);
    version.arg("--version");
    if program::capture(version).is_ok_and(|done| done.success) {
        return Ok(FoundProgram { path: name.into(), unpacked: None });
    }
    let folder = peers::folder().join(name);
    let path = folder.join("usr/bin").join(name);
    if !path.exists() {
        println!("Fetching {name} …");
        for package in packages {
            if let Some(why) = peers::debian_package(package, &folder)? {
                bail!("{name} is not installed, and its package cannot be fetched: {}", why.trim_end());
            }
        }
    }
    Ok(FoundProgram { path, unpacked: Some(folder) })
}

/// Returns the folder of the libraries in unpacked packages: Debian names it after the architecture.
fn library_folder(unpacked: &Path) -> PathBuf {
    unpacked.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))
}
