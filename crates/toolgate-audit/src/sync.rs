//! The thread that makes what was written durable: one `fdatasync` for everyone who waits.
//!
//! It is a thread of its own so that who needs only the kernel to have a line does not wait for the disk.
//! Invariant: after an error no descriptor is synced again: the kernel may have dropped the pages it could not
//! write and would call the next attempt a success. The writer opens new ones and writes those pages again.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs_err::File;
use jiff::civil::Date;
use tokio::sync::oneshot;

use crate::folder;
use crate::log::Unavailable;

/// How long what nobody waits for may stay in the kernel before its sync begins; with a disk that takes as
/// long again it is durable within 10 ms.
const LINGER: Duration = Duration::from_millis(5);

pub(crate) type Waiter = oneshot::Sender<Result<(), Unavailable>>;

/// What the writer hands over after a write.
pub(crate) struct Wrote {
    pub(crate) day: Date,
    pub(crate) file: Arc<File>,
    /// How long the file is now.
    pub(crate) length: u64,
    /// Whether the file is new, and its name not durable.
    pub(crate) created: bool,
    pub(crate) waiters: Vec<Waiter>,
}

/// What the writer and the syncer share.
pub(crate) struct Syncer {
    folder: PathBuf,
    state: Mutex<State>,
    wake: Condvar,
}

/// Files that are not durable, and how long they were when they were handed over.
type Dirty = BTreeMap<Date, (Arc<File>, u64)>;

/// Files to make durable, whether a name among them is new, and who waits.
type Work = (Dirty, bool, Vec<Waiter>);

#[derive(Default)]
struct State {
    dirty: Dirty,
    created: bool,
    waiters: Vec<Waiter>,
    /// How far each file is durable.
    synced: BTreeMap<Date, u64>,
    failed: Option<Arc<io::Error>>,
    closed: bool,
}

impl Syncer {
    pub(crate) fn new(folder: PathBuf, lengths: BTreeMap<Date, u64>) -> Self {
        let state = State { synced: lengths, ..State::default() };
        Self { folder, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// A line was written. Who waits is told when it is durable.
    pub(crate) fn wrote(&self, wrote: Wrote) {
        let mut state = self.lock();
        if let Some(cause) = &state.failed {
            refuse(wrote.waiters, cause);
            return;
        }
        let idle = state.dirty.is_empty();
        state.dirty.insert(wrote.day, (wrote.file, wrote.length));
        state.created |= wrote.created;
        let urgent = !wrote.waiters.is_empty();
        state.waiters.extend(wrote.waiters);
        drop(state);
        if idle || urgent {
            self.wake.notify_one();
        }
    }

    /// Why the last sync failed, when it did. From then on nothing is synced until [`Self::renew`].
    pub(crate) fn failure(&self) -> Option<Arc<io::Error>> {
        self.lock().failed.clone()
    }

    /// How far each file is durable.
    pub(crate) fn synced(&self) -> BTreeMap<Date, u64> {
        self.lock().synced.clone()
    }

    /// The writer has new descriptors.
    pub(crate) fn renew(&self) {
        self.lock().failed = None;
    }

    /// A file is gone.
    pub(crate) fn forget(&self, day: Date) {
        self.lock().synced.remove(&day);
    }

    /// Ends the thread when all is durable.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// The thread. `failed` is called when a sync failed.
    pub(crate) fn run(&self, failed: impl Fn()) {
        while let Some(work) = self.next() {
            if !self.settle(work) {
                failed();
            }
        }
    }

    /// Makes work durable, and tells who waits. False when it failed.
    fn settle(&self, (work, created, waiters): Work) -> bool {
        let done = self.sync(&work, created);
        match done {
            Ok(()) => {
                let lengths = work.into_iter().map(|(day, (_, length))| (day, length));
                self.lock().synced.extend(lengths);
                for waiter in waiters {
                    // Who left does not want to know.
                    let _ = waiter.send(Ok(()));
                }
                true
            }
            Err(error) => {
                tracing::error!(%error, "the execution log cannot be made durable");
                let cause = Arc::new(error);
                // The next one who writes makes the names durable as well.
                self.lock().created |= created;
                self.fail(&cause);
                refuse(waiters, &cause);
                false
            }
        }
    }

    /// A sync failed, here or where the writer made one.
    pub(crate) fn fail(&self, cause: &Arc<io::Error>) {
        let mut state = self.lock();
        state.failed = Some(Arc::clone(cause));
        state.dirty.clear();
        let late = std::mem::take(&mut state.waiters);
        drop(state);
        refuse(late, cause);
    }

    /// Makes durable what there is, without a thread and without waiting.
    #[cfg(test)]
    pub(crate) fn settle_now(&self) {
        let mut state = self.lock();
        let created = std::mem::take(&mut state.created);
        let work = (std::mem::take(&mut state.dirty), created, std::mem::take(&mut state.waiters));
        drop(state);
        self.settle(work);
    }

    /// What is to be made durable; waits until it is time. `None` at the end.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        while state.dirty.is_empty() {
            if state.closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let nobody = |state: &mut State| state.waiters.is_empty() && !state.closed;
        let waited = self.wake.wait_timeout_while(state, LINGER, nobody);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let created = std::mem::take(&mut state.created);
        Some((std::mem::take(&mut state.dirty), created, std::mem::take(&mut state.waiters)))
    }

    fn sync(&self, work: &Dirty, created: bool) -> io::Result<()> {
        for (file, _) in work.values() {
            folder::sync_file(file)?;
        }
        if created { folder::sync(&self.folder) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refuse(waiters: Vec<Waiter>, cause: &Arc<io::Error>) {
    for waiter in waiters {
        let _ = waiter.send(Err(Unavailable::new(true, Arc::clone(cause))));
    }
}
