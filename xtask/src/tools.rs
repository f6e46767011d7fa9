//! The cargo subcommands that the steps need and rustup does not bring.
//!
//! Invariant: nothing is installed unsaid. Compiling a tool takes minutes, and a silent minute
//! looks like a hang. A tool that is already there is used as it is, whatever its version.

use std::io::Write;

use anyhow::bail;

use crate::program;
use crate::step::Console;

/// One tool, at the version this repository is tested with.
pub(crate) struct Tool {
    package: &'static str,
    version: &'static str,
    /// The word after `cargo`.
    subcommand: &'static str,
}

/// Checks licences, bans, sources and advisories of the dependencies.
pub(crate) const DENY: Tool = Tool { package: "cargo-deny", version: "0.20.2", subcommand: "deny" };

/// Builds and runs the fuzz targets.
pub(crate) const FUZZ: Tool = Tool { package: "cargo-fuzz", version: "0.13.2", subcommand: "fuzz" };

impl Tool {
    /// Installs the tool when it is not there.
    pub(crate) fn ensure(&self, console: &mut Console<impl Write>) -> anyhow::Result<()> {
        let Self { package, version, subcommand } = self;
        if program::capture(program::cargo([subcommand, "--version"]))?.success {
            return Ok(());
        }
        console.say(&format!("installing {package} {version}, which takes some minutes …"))?;
        let wanted = format!("{package}@{version}");
        // Compiling it with all optimisations takes longer than it will ever run.
        let installed = program::capture(program::cargo(["install", "--locked", "--debug", &wanted]))?;
        if !installed.success {
            bail!(
                "cannot install `{package}`\n{}\nhint: it needs the network once; by hand: \
                 `cargo install --locked {wanted}`",
                installed.output.trim_end()
            );
        }
        Ok(())
    }
}
