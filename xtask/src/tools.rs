//! Cargo subcommands that the steps need and rustup does not provide.
//!
//! Invariant: every installation is announced. Compiling a tool takes minutes, and a silent minute looks like a hang.
//! An installed tool is used as it is, at any version.

use std::io::Write;

use anyhow::bail;

use crate::program;
use crate::step::Console;

/// A tool, at the version this repository is tested with.
pub(crate) struct CargoTool {
    package: &'static str,
    version: &'static str,
    /// The word after `cargo`.
    subcommand: &'static str,
}

/// Checks licences, bans, sources and advisories of the dependencies.
pub(crate) const DENY: CargoTool = CargoTool { package: "cargo-deny", version: "0.20.2", subcommand: "deny" };

/// Builds and runs the fuzz targets.
pub(crate) const FUZZ: CargoTool = CargoTool { package: "cargo-fuzz", version: "0.13.2", subcommand: "fuzz" };

/// Packs the release binary as a Debian package.
pub(crate) const DEB: CargoTool = CargoTool { package: "cargo-deb", version: "3.8.0", subcommand: "deb" };

impl CargoTool {
    /// Installs the tool if it is missing.
    pub(crate) fn ensure(&self, console: &mut Console<impl Write>) -> anyhow::Result<()> {
        let Self { package, version, subcommand } = self;
        if program::capture(program::cargo([subcommand, "--version"]))?.success {
            return Ok(());
        }
        console.say(&format!("installing {package} {version}, which takes some minutes …"))?;
        let wanted = format!("{package}@{version}");
        // Optimising it would take longer than all of its runs.
        let installed = program::capture(program::cargo(["install", "--locked", "--debug", &wanted]))?;
        if !installed.success {
            bail!(
                "cannot install `{package}`\n{}\nhint: it needs network access; to install it by hand: \
                 `cargo install --locked {wanted}`",
                installed.output.trim_end()
            );
        }
        Ok(())
    }
}
