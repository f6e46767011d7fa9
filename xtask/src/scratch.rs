//! A temporary folder that is removed on drop.
//!
//! Invariant: the folder is new, so it has nothing of an earlier run.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use anyhow::Context;

/// A temporary folder, removed on drop.
pub(crate) struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    /// Creates the folder. The process id separates concurrent runs.
    pub(crate) fn new(purpose: &str) -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("toolgate-{purpose}-{}", process::id()));
        if path.exists() {
            // Left behind by a killed run with the same process id.
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A folder left behind is no reason to fail.
        let _ = fs::remove_dir_all(&self.path);
    }
}
