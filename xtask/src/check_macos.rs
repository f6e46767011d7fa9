//! `cargo xtask check-macos`: checks of the build for macOS that any system can make.
//!
//! The workspace is compiled for macOS, without linking and without its C libraries, and the supervision of child
//! processes that macOS gets is tested on Linux. Invariant: nothing built here runs on macOS, so this proves types and
//! names, not behaviour; the workflow `test` runs the tests on macOS.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::metadata::Metadata;
use crate::program;

const TARGET: &str = "aarch64-apple-darwin";
/// A crate whose build script does more than compile C code, and the lines that replace its output.
const C_LIBRARY: (&str, &str) =
    ("aws-lc-sys", "rustc-cfg = [\"aarch64_apple_darwin\"]\ninclude = \"\"\nlibcrypto = \"\"\n");
/// The C compiler and the archiver of the target: nothing is linked, so neither has to do anything.
const TOOLS: [&str; 2] = ["CC_aarch64_apple_darwin", "AR_aarch64_apple_darwin"];

/// A crate with the name of its C library.
#[derive(Debug, Deserialize)]
struct LinkingPackage {
    name: String,
    links: Option<String>,
}

#[derive(Debug, Deserialize)]
struct LinkingPackages {
    packages: Vec<LinkingPackage>,
}

/// Runs the command. Returns true if everything compiles without a warning and the tests pass.
pub(crate) fn run() -> anyhow::Result<bool> {
    install()?;
    let target = Metadata::read(Path::new("Cargo.toml"))?.target_directory;
    let config = target.join("check-macos.toml");
    fs::write(&config, overrides()?).with_context(|| format!("cannot write {}", config.display()))?;
    println!("Compiling for {TARGET} …");
    // Not the benchmarks: they use counters of Linux.
    let kinds = ["--lib", "--bins", "--examples", "--tests"];
    let mut lint = program::cargo(["clippy", "--workspace", "--target", TARGET, "--config"]);
    lint.arg(&config).args(kinds).args(["--", "-D", "warnings"]).envs(TOOLS.map(|tool| (tool, "true")));
    let compiles = program::stream(lint)?;
    println!("Testing the portable supervision of child processes …");
    Ok(program::stream(portable_tests())? && compiles)
}

/// The tests of the supervision that systems other than Linux get.
pub(crate) fn portable_tests() -> Command {
    program::cargo(["test", "--package", "toolgate-upstream", "--features", "portable"])
}

/// Installs the standard library for the target, unless it is there.
fn install() -> anyhow::Result<()> {
    let mut libraries = program::named("rustc");
    libraries.args(["--print", "target-libdir", "--target", TARGET]);
    if Path::new(program::stdout(libraries)?.trim()).exists() {
        return Ok(());
    }
    println!("Installing the standard library for {TARGET} …");
    let mut add = program::named("rustup");
    add.args(["target", "add", TARGET]);
    ensure!(program::stream(add)?, "rustup could not install it\nhint: this needs the network");
    Ok(())
}

/// Configuration for cargo that replaces a build script: no C compiler for macOS is needed.
fn overrides() -> anyhow::Result<String> {
    let text = program::stdout(program::cargo(["metadata", "--locked", "--format-version", "1"]))?;
    let all: LinkingPackages =
        serde_json::from_str(&text).context("cannot read the output of `cargo metadata`")?;
    let (name, lines) = C_LIBRARY;
    let package = all.packages.iter().find(|package| package.name == name);
    let Some(links) = package.and_then(|package| package.links.as_deref()) else {
        bail!("the crate {name} is not used\nhint: remove it from xtask/src/check_macos.rs");
    };
    Ok(format!("[target.{TARGET}.{links}]\n{lines}"))
}
