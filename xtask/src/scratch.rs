//! A folder under the system's temporary one that goes when its owner does.
//!
//! Invariant: the folder is new, so nothing of an earlier run can be in it.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use anyhow::Context;

/// The folder. Removed on drop.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes the folder. The process id keeps two runs at a time apart.
    pub(crate) fn new(purpose: &str) -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("toolgate-{purpose}-{}", process::id()));
        if path.exists() {
            // Left by a killed run whose process id came round again.
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder left behind in the temporary one is no reason to fail.
        let _ = fs::remove_dir_all(&self.path);
    }
}
