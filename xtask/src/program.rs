//! Runs cargo, git and other programs.
//!
//! Invariant: cargo and git run in the root of this repository, regardless of the current folder.

use std::env;
use std::ffi::OsStr;
use std::io::{Read, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Exit status and output of a child process.
pub(crate) struct CommandOutput {
    pub(crate) success: bool,
    /// Standard output and standard error, in the order they were written.
    pub(crate) output: String,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    // The variable at run time comes first: a target folder shared by two checkouts can contain an `xtask` that was
    // compiled in the other one.
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

/// A command of a program in `PATH`.
pub(crate) fn named(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// A git command for its current folder, not for the one that a git hook points to.
pub(crate) fn git<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root());
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a command and returns its output. Takes the command by value: it owns the write ends of the pipe, and the
/// read below ends only after they are closed.
pub(crate) fn capture(mut command: Command) -> anyhow::Result<CommandOutput> {
    let (mut reader, writer) = pipe().context("cannot create a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot copy a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("cannot read the output of a child process")?;
    let success = child.wait().context("cannot wait for a child process")?.success();
    Ok(CommandOutput { success, output: String::from_utf8_lossy(&output).into_owned() })
}

/// Runs a command and returns its standard output. If it fails, the error has its standard error.
pub(crate) fn stdout(mut command: Command) -> anyhow::Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
}

/// Runs a command and shows its output as it comes. Returns true if it succeeded.
pub(crate) fn stream(mut command: Command) -> anyhow::Result<bool> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    Ok(status.success())
}
