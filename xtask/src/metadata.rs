//! The output of `cargo metadata`, as far as the checks need it.
//!
//! Invariant: read without dependencies (`--no-deps`), so it needs neither network nor lock file.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use crate::program;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// A crate of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// One line under `[dependencies]` or a similar section. The name is the package's, even if it is renamed.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for a normal dependency.
    pub(crate) kind: Option<DependencyKind>,
}

/// The section of a dependency other than `[dependencies]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    Build,
    Dev,
}

/// A target of a crate.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Metadata {
    /// Reads the workspace of this manifest.
    pub(crate) fn read(manifest: &Path) -> anyhow::Result<Self> {
        let mut command = program::cargo(["metadata", "--no-deps", "--format-version", "1"]);
        command.arg("--manifest-path").arg(manifest);
        let text = program::stdout(command)?;
        serde_json::from_str(&text).context("cannot read the output of `cargo metadata`")
    }
}
