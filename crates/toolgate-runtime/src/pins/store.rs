//! The pins of a running process: the set in memory, the lock file, and the queue of pins to write.
//!
//! Invariant: the set in memory has every pin that this process made, written or not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::sleep;
use toolgate_types::ServerSpec;

use super::queue::PinQueue;
use super::{LockError, LockFile, NewPin, PinSet};

/// Interval of the checks for changes that other processes made to the lock file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pins in memory, and the lock file behind them.
pub(crate) struct PinStore {
    /// Without it, pins last as long as the process.
    lock: Option<LockFile>,
    pins: Mutex<PinSet>,
    /// Pins waiting to be written to the lock file.
    queue: PinQueue,
    /// True if definitions are held back because they could not be pinned.
    has_held: AtomicBool,
}

impl PinStore {
    pub(crate) fn new(lock: Option<LockFile>) -> Self {
        Self { lock, pins: Mutex::default(), queue: PinQueue::default(), has_held: AtomicBool::new(false) }
    }

    /// Returns true if other replicas of a cluster share the pins.
    pub(crate) fn is_shared(&self) -> bool {
        self.lock.as_ref().is_some_and(LockFile::is_shared)
    }

    /// Notes that definitions are held back until they can be pinned.
    pub(crate) fn set_held(&self) {
        self.has_held.store(true, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> MutexGuard<'_, PinSet> {
        self.pins.lock()
    }

    /// Returns true if the configuration or a person has approved the server as a whole.
    pub(crate) fn is_approved(&self, spec: &ServerSpec) -> bool {
        spec.approved || self.get().is_approved(&spec.name)
    }

    /// Reads the lock file, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn load(&self) -> Result<(), LockError> {
        if let Some(lock) = &self.lock {
            *self.get() = lock.read()?;
        }
        Ok(())
    }

    /// Updates the lock file and reloads the pins from it. Does nothing if there is no lock file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) async fn update_file(
        &self,
        mut change: impl FnMut(&mut PinSet) + Send + 'static,
    ) -> Result<(), LockError> {
        let Some(lock) = self.lock.clone() else { return Ok(()) };
        let changed = tokio::task::spawn_blocking(move || lock.update(&mut change)).await;
        let changed = changed.unwrap_or_else(|panic| Err(std::io::Error::other(panic).into()));
        match changed {
            Ok(pins) => *self.get() = pins,
            Err(error) => {
                if self.is_shared() {
                    // A change that only this replica knows must not count here.
                    self.load()?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes new pins to the lock file, alone or in a batch with others. A failure is logged.
    pub(crate) async fn write(&self, new: Vec<NewPin>) {
        if new.is_empty() {
            return;
        }
        let write = async |new: Vec<NewPin>| {
            if let Err(error) = self.update_file(move |pins| pins.add(new.iter().cloned())).await {
                tracing::warn!("new tool definitions could not be pinned: {error}");
            }
        };
        self.queue.write(new, write).await;
    }

    /// Reloads the pins whenever another process changes the lock file, and calls `on_change`. Returns at once if there
    /// is no lock file.
    pub(crate) async fn watch(&self, on_change: impl AsyncFn()) {
        let Some(lock) = &self.lock else { return };
        let mut seen = lock.stamp();
        loop {
            sleep(POLL_INTERVAL).await;
            let stamp = lock.stamp();
            let has_held = self.has_held.swap(false, Ordering::Relaxed);
            if stamp == seen && !has_held {
                continue;
            }
            seen = stamp;
            match self.load() {
                Ok(()) => on_change().await,
                Err(error) => tracing::error!("the lock file could not be reloaded: {error}"),
            }
        }
    }
}
