//! Background shutdown of child processes. A cancelled call does not wait for it; stopping Toolgate does.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::process::Child;

#[derive(Debug, Default)]
pub(crate) struct ShutdownTasks(Mutex<JoinSet<()>>);

impl ShutdownTasks {
    /// Stops a child and everything it started. If its stdin is closed, it may exit by itself within `grace`.
    pub(super) fn stop(&self, child: Child, grace: Duration) {
        self.spawn(async move {
            let mut child = child;
            child.stop(grace).await;
        });
    }

    /// Runs a shutdown in the background.
    pub(crate) fn spawn(&self, end: impl Future<Output = ()> + Send + 'static) {
        if Handle::try_current().is_err() {
            // Outside of a runtime the child is just dropped, and its shim stops the tree.
            return;
        }
        let mut shutdowns = self.lock();
        while shutdowns.try_join_next().is_some() {}
        shutdowns.spawn(end);
    }

    /// Waits for all shutdowns.
    pub(crate) async fn wait_all(&self) {
        let mut shutdowns = std::mem::take(&mut *self.lock());
        while shutdowns.join_next().await.is_some() {}
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock()
    }
}

/// Stops a child when dropped.
pub(super) struct ChildGuard<'a> {
    child: Option<Child>,
    shutdowns: &'a ShutdownTasks,
}

impl<'a> ChildGuard<'a> {
    pub(super) fn new(child: Child, shutdowns: &'a ShutdownTasks) -> Self {
        Self { child: Some(child), shutdowns }
    }

    pub(super) fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("present until `release` or drop")
    }

    /// Returns the child, and lets it continue.
    pub(super) fn release(mut self) -> Child {
        self.child.take().expect("present until `release` or drop")
    }
}

impl Drop for ChildGuard<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.shutdowns.stop(child, Duration::ZERO);
        }
    }
}
