//! The sandbox of a child: its settings, and the layers that a machine may lack.
//!
//! The platform enforces it. Invariant: without a sandbox of the platform, a child that needs one does not start.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::platform;

pub use platform::sandbox::{is_supported, missing_layer};

/// The subcommand of `shim`.
pub(crate) const SUBCOMMAND: &str = "confine";
/// The subcommand of `shim` that tries to enter namespaces, and reports on stderr why it cannot.
pub(crate) const PROBE: &str = "probe";
/// The prefix of the stderr line that reports a sandbox failure.
pub(crate) const SANDBOX_FAILED: &str = "cannot create the sandbox: ";
/// The file in the real scratch folder with the number of files that were not stored.
pub(crate) const OMITTED_FILE: &str = ".main.omitted";

/// The sandbox of a child: the paths to allow in addition to the system paths, and the size of its scratch folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Readable files and folders.
    pub read: Vec<PathBuf>,
    /// The only writable folder. It is also the working folder.
    pub scratch: PathBuf,
    /// Bytes in the scratch folder.
    pub max_bytes: u64,
    /// Files and folders in the scratch folder.
    pub max_entries: u64,
}

impl SandboxSpec {
    /// The arguments of `toolgate` that run a program in this sandbox.
    pub(super) fn to_command_line(
        &self,
        namespaces: bool,
        program: &OsString,
        args: &[OsString],
    ) -> Vec<OsString> {
        let mut line: Vec<OsString> = vec!["shim".into(), SUBCOMMAND.into()];
        line.extend(namespaces.then(|| "--namespaces".into()));
        line.extend(self.read.iter().flat_map(|path| ["--read".into(), path.into()]));
        line.extend(["--scratch".into(), self.scratch.clone().into(), "--".into(), program.clone()]);
        line.extend(args.iter().cloned());
        line
    }
}

/// The sandbox, or a layer of it, that this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingLayer {
    /// This system has no sandbox, so no code runs.
    Platform,
    /// Without it, no code runs.
    Landlock,
    /// Without them, the filter denies more. Contains the reason.
    Namespaces(String),
}

impl MissingLayer {
    /// The suggested fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Platform => {
                "run Toolgate on Linux, or set `code_execution.sandbox: false` to run code with the permissions of \
                 Toolgate itself"
            }
            Self::Landlock => {
                "use Linux 5.13 or later with Landlock enabled, or set `code_execution.sandbox: false` to run code \
                 with the permissions of Toolgate itself"
            }
            Self::Namespaces(_) => {
                "allow user namespaces on this machine or in the container; until then Landlock and a stricter filter \
                 of system calls apply (docs/builtins.md)"
            }
        }
    }
}

impl fmt::Display for MissingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => {
                f.write_str("`code_execution` cannot run code: its sandbox exists on Linux only")
            }
            Self::Landlock => {
                f.write_str("`code_execution` cannot run code: this kernel does not support Landlock")
            }
            Self::Namespaces(reason) => {
                write!(f, "the sandbox of `code_execution` has no namespaces: {reason}")
            }
        }
    }
}
