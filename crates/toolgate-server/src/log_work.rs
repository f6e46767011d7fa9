//! The background work on the execution log: collects figures, and keeps the indexes current.
//!
//! Invariant: no call waits for it. It ends with the gateway.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use toolgate_audit::{LogIndexer, ProjectLog};
use toolgate_runtime::Runtime;

/// Interval between two collections of figures.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);
/// Number of intervals between two looks at the files.
const INDEX_ROUNDS: u64 = 4;
/// The same after an error.
const RETRY_ROUNDS: u64 = 60;

/// The thread that works on the log, stopped on drop.
pub(crate) struct LogWork {
    stop: Arc<AtomicBool>,
    pub(crate) indexed_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl LogWork {
    pub(crate) fn start(runtime: &Arc<Runtime>, log: ProjectLog) -> Self {
        let (stop, indexed_bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        runtime.figures().turn_on();
        let worker = LogWorker {
            runtime: Arc::downgrade(runtime),
            log,
            stop: Arc::clone(&stop),
            indexed_bytes: Arc::clone(&indexed_bytes),
            indexers: BTreeMap::new(),
        };
        let started = Timestamp::now();
        let thread = thread::Builder::new().name("log-index".to_owned()).spawn(move || worker.run(started));
        if let Err(error) = &thread {
            tracing::warn!("figures and indexes of the execution log are not kept: {error}");
        }
        Self { stop, indexed_bytes, thread: thread.ok() }
    }
}

impl Drop for LogWork {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // The thread holds the runtime for moments only, and may be the one that drops it.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

struct LogWorker {
    runtime: Weak<Runtime>,
    log: ProjectLog,
    stop: Arc<AtomicBool>,
    indexed_bytes: Arc<AtomicU64>,
    indexers: BTreeMap<PathBuf, LogIndexer>,
}

impl LogWorker {
    fn run(mut self, started: Timestamp) {
        self.load_figures(started);
        let mut next_index = 0;
        for round in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let Some(runtime) = self.runtime.upgrade() else { return };
            runtime.figures().collect(Timestamp::now());
            drop(runtime);
            if round >= next_index {
                next_index = round + if self.update_indexes() { INDEX_ROUNDS } else { RETRY_ROUNDS };
            }
            thread::park_timeout(COLLECT_INTERVAL);
        }
    }

    fn load_figures(&self, started: Timestamp) {
        let Some(runtime) = self.runtime.upgrade() else { return };
        let go_on = || !self.stop.load(Ordering::Relaxed);
        if let Err(error) = runtime.figures().load(&self.log, started, &go_on) {
            tracing::warn!(
                "the figures do not include earlier calls: the execution log cannot be read: {error}"
            );
        }
    }

    /// Returns false after an error: the disk may be full.
    fn update_indexes(&mut self) -> bool {
        let (mut bytes, mut is_good) = (0, true);
        for folder in self.log.folders() {
            let stop = Arc::clone(&self.stop);
            let indexer = self.indexers.entry(folder).or_insert_with_key(|folder| LogIndexer::new(folder));
            if let Err(error) = indexer.update(&|| !stop.load(Ordering::Relaxed)) {
                tracing::warn!("an index of the execution log cannot be written: {error}");
                is_good = false;
            }
            bytes += indexer.indexed_bytes();
        }
        self.indexed_bytes.store(bytes, Ordering::Relaxed);
        is_good
    }
}
