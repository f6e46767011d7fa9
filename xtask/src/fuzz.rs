//! Fuzzing: the targets in `fuzz/`, each for a bounded time, from its seeds and its corpus.
//!
//! Invariant: works on the stable toolchain. `-s none` turns off the sanitizers, which need a nightly toolchain and
//! find memory errors that safe code does not have. `--dev` selects the profile that `fuzz/Cargo.toml` has for this.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::metadata::Metadata;
use crate::program;
use crate::step::Console;
use crate::tools;

/// `cargo xtask fuzz`: the long run. Returns true if no target found anything.
pub(crate) fn run(only: Option<&str>, seconds: u32) -> anyhow::Result<bool> {
    tools::FUZZ.ensure(&mut Console::stdout())?;
    let mut targets = targets()?;
    if let Some(only) = only {
        if !targets.iter().any(|target| target == only) {
            bail!("unknown fuzz target `{only}`\nhint: the targets are {}", list(&targets));
        }
        targets.retain(|target| target == only);
    }
    if !program::stream(cargo_fuzz("build")?)? {
        bail!("the fuzz targets do not build");
    }
    for target in &targets {
        println!("Fuzzing `{target}` for {seconds} s …");
        if !program::stream(command(target, seconds)?)? {
            eprintln!("error: fuzz target `{target}` failed\n{}", hint(target));
            return Ok(false);
        }
    }
    println!("Nothing found by {}, {seconds} s each.", list(&targets));
    Ok(true)
}

/// Lists the binaries of the fuzz workspace: a target is added in one place, its manifest.
fn targets() -> anyhow::Result<Vec<String>> {
    let metadata = Metadata::read(Path::new("fuzz/Cargo.toml"))?;
    let targets: Vec<String> = metadata
        .packages
        .into_iter()
        .flat_map(|package| package.targets)
        .filter(|target| target.kind.iter().any(|kind| kind == "bin"))
        .map(|target| target.name)
        .collect();
    // A run without targets must not pass.
    if targets.is_empty() {
        bail!("fuzz/Cargo.toml has no `[[bin]]`");
    }
    Ok(targets)
}

/// `cargo fuzz` in the target folder of the workspace, which already has macros and build scripts.
fn cargo_fuzz(action: &str) -> anyhow::Result<Command> {
    let mut command = program::cargo(["fuzz", action, "--fuzz-dir", "fuzz", "--dev", "-s", "none"]);
    command.arg("--target-dir").arg(Metadata::read(Path::new("Cargo.toml"))?.target_directory);
    Ok(command)
}

fn command(target: &str, seconds: u32) -> anyhow::Result<Command> {
    let corpus = format!("fuzz/corpus/{target}");
    let seeds = format!("fuzz/seeds/{target}");
    if !program::root().join(&seeds).is_dir() {
        bail!("fuzz target `{target}` has no seeds\n  --> {seeds}\nhint: put a few small, real files there");
    }
    // Ignored by git, so a fresh clone has none. libFuzzer writes new inputs to the first folder, this one.
    let folder = program::root().join(&corpus);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut command = cargo_fuzz("run")?;
    command.args([target, &corpus, &seeds]).arg("--").arg(format!("-max_total_time={seconds}")).args([
        "-rss_limit_mb=2048",
        // One input this small must not take five seconds, on any machine.
        "-timeout=5",
    ]);
    Ok(command)
}

fn hint(target: &str) -> String {
    format!(
        "hint: the input is in fuzz/artifacts/{target}; make it a test, fix it, \
         then copy it to fuzz/seeds/{target}"
    )
}

fn list(targets: &[String]) -> String {
    let quoted: Vec<_> = targets.iter().map(|target| format!("`{target}`")).collect();
    quoted.join(", ")
}
