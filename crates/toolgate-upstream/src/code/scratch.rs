//! The scratch folder of one call, and the program that runs in it. Dropping it stops the program, then removes both.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;
use toolgate_state::StateDir;

use crate::process::Child;
use crate::script::shutdown::ShutdownTasks;

/// Folder names contain the process id of their owner, so that those of killed processes can be found.
const PREFIX: &str = "call-";

pub(super) struct ScratchDir {
    folder: Option<TempDir>,
    path: PathBuf,
    child: Option<Child>,
    shutdowns: Arc<ShutdownTasks>,
}

impl ScratchDir {
    pub(super) fn new(root: &Path, shutdowns: &Arc<ShutdownTasks>) -> io::Result<Self> {
        StateDir::create(root)?;
        remove_orphans(root);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir_in(fs_err::canonicalize(root)?)?;
        Ok(Self {
            path: folder.path().to_owned(),
            folder: Some(folder),
            child: None,
            shutdowns: Arc::clone(shutdowns),
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

    /// Removes the folder. The program must have ended.
    pub(super) async fn remove(mut self) {
        self.child = None;
        if let Some(folder) = self.folder.take() {
            // A panic in there is logged; `remove_orphans` deletes the rest later.
            let _ = tokio::task::spawn_blocking(move || remove(folder)).await;
        }
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let (child, folder) = (self.child.take(), self.folder.take());
        if folder.is_none() {
            return;
        }
        self.shutdowns.spawn(async move {
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
    // Code can create folders without any permissions.
    make_writable(&path);
    if let Err(error) = fs_err::remove_dir_all(&path) {
        tracing::warn!("cannot remove a scratch folder: {error}");
    }
}

fn make_writable(folder: &Path) {
    let _ = fs_err::set_permissions(folder, Permissions::from_mode(0o700));
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Removes the folders of processes that no longer exist.
fn remove_orphans(root: &Path) {
    for entry in fs_err::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let gone = |pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if owner.and_then(Pid::from_raw).is_some_and(gone) {
            let _ = fs_err::remove_dir_all(entry.path());
        }
    }
}
