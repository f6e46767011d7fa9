//! Programs on their way out. Nobody who gave a call up waits for them; whoever stops Toolgate does.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::process::Child;

#[derive(Debug, Default)]
pub(crate) struct Leaving(Mutex<JoinSet<()>>);

impl Leaving {
    /// Ends a child and all it started; in `grace` it may do so by itself, where its stdin is closed.
    pub(super) fn end(&self, child: Child, grace: Duration) {
        self.end_with(async move {
            let mut child = child;
            child.stop(grace).await;
        });
    }

    /// Sees to an end that nobody waits for.
    pub(crate) fn end_with(&self, end: impl Future<Output = ()> + Send + 'static) {
        if Handle::try_current().is_err() {
            // The child is dropped, and its shim does the rest.
            return;
        }
        let mut leaving = self.lock();
        while leaving.try_join_next().is_some() {}
        leaving.spawn(end);
    }

    /// Waits until all are gone.
    pub(crate) async fn wait(&self) {
        let mut leaving = std::mem::take(&mut *self.lock());
        while leaving.join_next().await.is_some() {}
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child that ends with whoever holds it.
pub(super) struct Held<'a> {
    child: Option<Child>,
    leaving: &'a Leaving,
}

impl<'a> Held<'a> {
    pub(super) fn new(child: Child, leaving: &'a Leaving) -> Self {
        Self { child: Some(child), leaving }
    }

    pub(super) fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it is there until it is let go")
    }

    /// The child, which goes on.
    pub(super) fn release(mut self) -> Child {
        self.child.take().expect("it is there until it is let go")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.leaving.end(child, Duration::ZERO);
        }
    }
}
