//! Programs that the steps need and rustup does not provide.
//!
//! Invariant: every installation is announced. Compiling a tool takes minutes, and a silent minute looks like a hang.
//! An installed tool is used as it is, at any version.

use std::io::Write;
use std::process::Command;

use anyhow::bail;

use crate::program;
use crate::step::Console;

/// A tool, at the version this repository is tested with.
pub(crate) struct CargoTool {
    package: &'static str,
    version: &'static str,
    /// The word after `cargo`. `None` for a program that has the name of the package.
    subcommand: Option<&'static str>,
}

/// Checks licences, bans, sources and advisories of the dependencies.
pub(crate) const DENY: CargoTool =
    CargoTool { package: "cargo-deny", version: "0.20.2", subcommand: Some("deny") };

/// Builds and runs the fuzz targets.
pub(crate) const FUZZ: CargoTool =
    CargoTool { package: "cargo-fuzz", version: "0.13.2", subcommand: Some("fuzz") };

/// Packs the release binary as a Debian package.
pub(crate) const DEB: CargoTool =
    CargoTool { package: "cargo-deb", version: "3.8.0", subcommand: Some("deb") };

/// Builds the book.
pub(crate) const MDBOOK: CargoTool = CargoTool { package: "mdbook", version: "0.5.4", subcommand: None };

impl CargoTool {
    /// Returns the command without arguments.
    pub(crate) fn command(&self) -> Command {
        match self.subcommand {
            Some(subcommand) => program::cargo([subcommand]),
            None => program::named(self.package),
        }
    }

    /// Installs the tool if it is missing.
    pub(crate) fn ensure(&self, console: &mut Console<impl Write>) -> anyhow::Result<()> {
        let Self { package, version, .. } = self;
        let mut command = self.command();
        command.arg("--version");
        // A program of its own that does not exist cannot be started.
        if program::capture(command).is_ok_and(|output| output.success) {
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
