//! The folder of one call, with the program that runs in it. Both are gone when it is dropped, the program first.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use crate::process::Child;
use crate::script::leaving::Leaving;

/// What folders are called: with whose they are, so that those of who was killed are found.
const PREFIX: &str = "call-";

pub(super) struct Scratch {
    folder: Option<TempDir>,
    path: PathBuf,
    child: Option<Child>,
    leaving: Arc<Leaving>,
}

impl Scratch {
    pub(super) fn new(root: &Path, leaving: &Arc<Leaving>) -> io::Result<Self> {
        fs_err::create_dir_all(root)?;
        sweep(root);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir_in(fs_err::canonicalize(root)?)?;
        Ok(Self {
            path: folder.path().to_owned(),
            folder: Some(folder),
            child: None,
            leaving: Arc::clone(leaving),
        })
    }

    pub(super) fn with(mut self, child: Child) -> Self {
        self.child = Some(child);
        self
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn child(&mut self) -> Option<&mut Child> {
        self.child.as_mut()
    }

    /// Removes the folder; the program has ended.
    pub(super) async fn remove(mut self) {
        self.child = None;
        if let Some(folder) = self.folder.take() {
            // A panic there is told, and the rest is swept later.
            let _ = tokio::task::spawn_blocking(move || remove(folder)).await;
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let (child, folder) = (self.child.take(), self.folder.take());
        if folder.is_none() {
            return;
        }
        self.leaving.end_with(async move {
            if let Some(mut child) = child.filter(|child| !child.has_ended()) {
                child.kill().await;
            }
            if let Some(folder) = folder {
                let _ = tokio::task::spawn_blocking(move || remove(folder)).await;
            }
        });
    }
}

fn remove(folder: TempDir) {
    let path = folder.path().to_owned();
    if folder.close().is_ok() {
        return;
    }
    // Code can make folders in which nobody may do anything.
    open_up(&path);
    if let Err(error) = fs_err::remove_dir_all(&path) {
        tracing::warn!("what code left behind cannot be removed: {error}");
    }
}

fn open_up(folder: &Path) {
    let _ = fs_err::set_permissions(folder, Permissions::from_mode(0o700));
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Removes what was left by others who were killed.
fn sweep(root: &Path) {
    for entry in fs_err::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let whose = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let gone = |pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if whose.and_then(Pid::from_raw).is_some_and(gone) {
            let _ = fs_err::remove_dir_all(entry.path());
        }
    }
}
