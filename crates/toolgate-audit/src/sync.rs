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
use crate::storage_errors::{StorageErrors, StorageOperation};

/// Maximum time that a record without a waiter stays unsynced. If the disk takes as long again, the record is durable
/// within 10 ms.
const SYNC_DELAY: Duration = Duration::from_millis(5);

/// Bytes at the end of a file that stay in the page cache, for queries about the latest calls.
const CACHED_TAIL: u64 = 8 << 20;
/// Bytes that are released from the page cache at once.
const RELEASE_STEP: u64 = 1 << 20;

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
    errors: Arc<StorageErrors>,
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
    /// True while the sync thread sleeps without a timeout.
    idle: bool,
    closed: bool,
}

impl Syncer {
    pub(crate) fn new(folder: PathBuf, lengths: BTreeMap<Date, u64>, errors: Arc<StorageErrors>) -> Self {
        let state = SyncState { synced: lengths, ..SyncState::default() };
        Self { folder, errors, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Registers a write. Its waiters are notified once it is durable.
    pub(crate) fn register_write(&self, write: WrittenBatch) {
        let mut state = self.lock();
        if let Some(cause) = &state.failed {
            reject(write.waiters, cause);
            return;
        }
        state.dirty.insert(write.day, (write.file, write.length));
        state.created |= write.created;
        let wakes = state.idle || !write.waiters.is_empty();
        state.waiters.extend(write.waiters);
        drop(state);
        if wakes {
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
        let mut released = BTreeMap::new();
        while let Some(work) = self.wait_for_batch() {
            let files = work.0.clone();
            if self.sync_batch(work) {
                release_pages(&files, &mut released);
            } else {
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
                self.errors.count(StorageOperation::Sync);
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
        let no_waiters = |state: &mut SyncState| state.waiters.is_empty() && !state.closed;
        let mut state = self.lock();
        // Also if nothing is written yet: the writes of this time need not wake the thread.
        self.wake.wait_while_for(&mut state, no_waiters, SYNC_DELAY);
        while state.dirty.is_empty() {
            if state.closed {
                return None;
            }
            state.idle = true;
            self.wake.wait(&mut state);
            state.idle = false;
            self.wake.wait_while_for(&mut state, no_waiters, SYNC_DELAY);
        }
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

/// Releases the synced pages of files from the page cache, except those at the end. The kernel then uses them for the
/// next records. Otherwise a busy log fills all memory, and each record pays for memory that was never used before.
fn release_pages(files: &DirtyFiles, released: &mut BTreeMap<Date, u64>) {
    // Earlier days are not written any more.
    released.retain(|day, _| files.contains_key(day));
    for (day, (file, length)) in files {
        let end = length.saturating_sub(CACHED_TAIL);
        let start = released.entry(*day).or_insert(end.saturating_sub(RELEASE_STEP));
        if end.saturating_sub(*start) < RELEASE_STEP {
            continue;
        }
        drop_pages(file, *start, end - *start);
        *start = end;
    }
}

/// Drops pages of a file from the page cache. Only a hint: after an error the pages stay, and macOS has no such call.
fn drop_pages(file: &File, start: u64, length: u64) {
    #[cfg(not(target_vendor = "apple"))]
    let _ = rustix::fs::fadvise(file, start, std::num::NonZeroU64::new(length), rustix::fs::Advice::DontNeed);
    #[cfg(target_vendor = "apple")]
    let _ = (file, start, length);
}

fn reject(waiters: Vec<Waiter>, cause: &Arc<io::Error>) {
    for waiter in waiters {
        let _ = waiter.send(Err(LogUnavailable::new(true, Arc::clone(cause))));
    }
}
