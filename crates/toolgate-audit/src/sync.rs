//! The sync thread makes written records durable: one `fdatasync` for all waiting callers.
//!
//! It is a separate thread so that callers that only need `Written` do not wait for the disk. Invariant: after an error
//! no descriptor is synced again, because the kernel may have dropped the pages it could not write and would report
//! the next sync as a success. The writer opens new descriptors and writes those pages again.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fs_err::File;
use jiff::civil::Date;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::folder;
use crate::log::LogUnavailable;

/// Maximum time that a record without a waiter stays unsynced. If the disk takes as long again, the record is durable
/// within 10 ms.
const SYNC_DELAY: Duration = Duration::from_millis(5);

pub(crate) type Waiter = oneshot::Sender<Result<(), LogUnavailable>>;

/// A completed write, handed from the writer to the syncer.
pub(crate) struct WrittenBatch {
    pub(crate) day: Date,
    pub(crate) file: Arc<File>,
    /// Length of the file after the write.
    pub(crate) length: u64,
    /// True if the file is new and its name is not durable yet.
    pub(crate) created: bool,
    pub(crate) waiters: Vec<Waiter>,
}

/// State shared by the writer and the sync thread.
pub(crate) struct Syncer {
    folder: PathBuf,
    state: Mutex<SyncState>,
    wake: Condvar,
}

/// Files with unsynced data, and their length when they were handed over.
type DirtyFiles = BTreeMap<Date, (Arc<File>, u64)>;

/// Files to sync, true if a file name among them is new, and the waiters.
type SyncBatch = (DirtyFiles, bool, Vec<Waiter>);

#[derive(Default)]
struct SyncState {
    dirty: DirtyFiles,
    created: bool,
    waiters: Vec<Waiter>,
    /// Durable length of each file.
    synced: BTreeMap<Date, u64>,
    failed: Option<Arc<io::Error>>,
    closed: bool,
}

impl Syncer {
    pub(crate) fn new(folder: PathBuf, lengths: BTreeMap<Date, u64>) -> Self {
        let state = SyncState { synced: lengths, ..SyncState::default() };
        Self { folder, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Registers a write. Its waiters are notified once it is durable.
    pub(crate) fn register_write(&self, write: WrittenBatch) {
        let mut state = self.lock();
        if let Some(cause) = &state.failed {
            reject(write.waiters, cause);
            return;
        }
        let idle = state.dirty.is_empty();
        state.dirty.insert(write.day, (write.file, write.length));
        state.created |= write.created;
        let urgent = !write.waiters.is_empty();
        state.waiters.extend(write.waiters);
        drop(state);
        if idle || urgent {
            self.wake.notify_one();
        }
    }

    /// Returns the error of the last sync, if it failed. Nothing is synced then until [`Self::renew`].
    pub(crate) fn failure(&self) -> Option<Arc<io::Error>> {
        self.lock().failed.clone()
    }

    /// Returns the durable length of each file.
    pub(crate) fn synced(&self) -> BTreeMap<Date, u64> {
        self.lock().synced.clone()
    }

    /// Clears the failure after the writer opened new descriptors.
    pub(crate) fn clear_failure(&self) {
        self.lock().failed = None;
    }

    /// Forgets a removed file.
    pub(crate) fn forget(&self, day: Date) {
        self.lock().synced.remove(&day);
    }

    /// Ends the thread once everything is durable.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Runs the sync thread. Calls `failed` after a failed sync.
    pub(crate) fn run(&self, failed: impl Fn()) {
        while let Some(work) = self.wait_for_batch() {
            if !self.sync_batch(work) {
                failed();
            }
        }
    }

    /// Syncs a batch and notifies its waiters. Returns false on failure.
    fn sync_batch(&self, (work, created, waiters): SyncBatch) -> bool {
        let done = self.sync(&work, created);
        match done {
            Ok(()) => {
                let lengths = work.into_iter().map(|(day, (_, length))| (day, length));
                self.lock().synced.extend(lengths);
                for waiter in waiters {
                    // The receiver may have been dropped.
                    let _ = waiter.send(Ok(()));
                }
                true
            }
            Err(error) => {
                tracing::error!(%error, "cannot sync the execution log to disk");
                let cause = Arc::new(error);
                // The next sync must cover the new file names as well.
                self.lock().created |= created;
                self.fail(&cause);
                reject(waiters, &cause);
                false
            }
        }
    }

    /// Records a failed sync, by this thread or by the writer, and rejects all waiters.
    pub(crate) fn fail(&self, cause: &Arc<io::Error>) {
        let mut state = self.lock();
        state.failed = Some(Arc::clone(cause));
        state.dirty.clear();
        let late = std::mem::take(&mut state.waiters);
        drop(state);
        reject(late, cause);
    }

    /// Syncs everything pending on the current thread, without waiting.
    #[cfg(test)]
    pub(crate) fn sync_now(&self) {
        let mut state = self.lock();
        let created = std::mem::take(&mut state.created);
        let work = (std::mem::take(&mut state.dirty), created, std::mem::take(&mut state.waiters));
        drop(state);
        self.sync_batch(work);
    }

    /// Waits for the next batch. Returns `None` when closed.
    fn wait_for_batch(&self) -> Option<SyncBatch> {
        let mut state = self.lock();
        while state.dirty.is_empty() {
            if state.closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
        let no_waiters = |state: &mut SyncState| state.waiters.is_empty() && !state.closed;
        self.wake.wait_while_for(&mut state, no_waiters, SYNC_DELAY);
        let created = std::mem::take(&mut state.created);
        Some((std::mem::take(&mut state.dirty), created, std::mem::take(&mut state.waiters)))
    }

    fn sync(&self, work: &DirtyFiles, created: bool) -> io::Result<()> {
        for (file, _) in work.values() {
            folder::sync_file(file)?;
        }
        if created { folder::sync_folder(&self.folder) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock()
    }
}

fn reject(waiters: Vec<Waiter>, cause: &Arc<io::Error>) {
    for waiter in waiters {
        let _ = waiter.send(Err(LogUnavailable::new(true, Arc::clone(cause))));
    }
}
