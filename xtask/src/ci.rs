//! `cargo xtask ci`: the tests of a commit, not of a working tree.
//!
//! Invariant: uncommitted changes do not take part, and the working tree stays unchanged. The clone has its own target
//! folder: cargo identifies a source by its path in the workspace and its age, so in a shared folder it would mistake
//! builds of the clone for builds of the working tree.

use std::path::Path;

use crate::metadata::Metadata;
use crate::program;
use crate::scratch::ScratchDir;

/// Clones HEAD and tests it. Returns true if all steps passed.
pub(crate) fn run() -> anyhow::Result<bool> {
    let commit = program::stdout(program::git(["rev-parse", "--verify", "HEAD"]))?.trim().to_owned();
    let subject = program::stdout(program::git(["log", "-1", "--format=%h %s"]))?;
    println!("Testing commit {}", subject.trim());
    let changed = program::stdout(program::git(["status", "--porcelain"]))?.lines().count();
    if changed > 0 {
        println!("Uncommitted changes are not tested ({changed} by `git status`).");
    }

    let scratch = ScratchDir::new("ci")?;
    let clone = scratch.path();
    let mut cloning = program::git(["clone", "--quiet", "--no-checkout"]);
    cloning.arg(program::root()).arg(clone);
    program::stdout(cloning)?;
    let mut checkout = program::git(["checkout", "--quiet", "--detach", &commit]);
    checkout.current_dir(clone);
    program::stdout(checkout)?;

    let mut command = program::cargo(["xtask", "test"]);
    command
        .current_dir(clone)
        // Kept between runs, so that the dependencies are built only once.
        .env("CARGO_TARGET_DIR", Metadata::read(Path::new("Cargo.toml"))?.target_directory.join("ci"))
        // A snapshot that does not match fails; none is rewritten.
        .env("INSTA_UPDATE", "no");
    program::stream(command)
}
