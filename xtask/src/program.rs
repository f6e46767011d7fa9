//! Running cargo and git: where the root is, and how the output of a child is taken.
//!
//! Invariant: every child runs in the root of this repository, whatever folder the user stands in.

use std::env;
use std::ffi::OsStr;
use std::io::{Read, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// How a child ended, and all it said.
pub(crate) struct Captured {
    pub(crate) success: bool,
    /// Standard output and standard error, in the order they were written.
    pub(crate) output: String,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    // What cargo says at run time goes first: a target folder shared by two checkouts
    // can hold an `xtask` that was compiled in the other one.
    let xtask = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// A cargo command: the same cargo that runs this program.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// A git command that reads its own folder, not the one a git hook points to.
pub(crate) fn git<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root());
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    command
}

/// Runs to the end and keeps what was said. Takes the command by value: it owns the write ends
/// of the pipe, and the read below ends only once they are closed.
pub(crate) fn capture(mut command: Command) -> anyhow::Result<Captured> {
    let (mut reader, writer) = pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot copy a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("cannot read what a child says")?;
    let success = child.wait().context("cannot wait for a child")?.success();
    Ok(Captured { success, output: String::from_utf8_lossy(&output).into_owned() })
}

/// Runs to the end and keeps standard output only; any failure is an error with what was said.
pub(crate) fn stdout(mut command: Command) -> anyhow::Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} wrote what is not UTF-8"))
}

/// Runs to the end with its output shown as it comes. Says whether it ended well.
pub(crate) fn stream(mut command: Command) -> anyhow::Result<bool> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    Ok(status.success())
}
