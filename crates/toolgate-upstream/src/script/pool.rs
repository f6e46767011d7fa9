//! The worker pool of one Python tool: starts workers on demand, and stops those that stay idle.
//!
//! The number of concurrent calls is limited before they get here. A worker starts in its own task, independent of the
//! call that needs it: if a tool loads slowly and the first call times out, the worker is ready for the next call.
//! Invariant: a leased worker has loaded the current version of the file, and the worker of a cancelled call is
//! stopped.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use toolgate_mcp::RawJson;
use toolgate_types::tool::ScriptSpec;
use toolgate_types::{ToolContext, ToolDefinition};

use super::file::ScriptFile;
use super::shutdown::ShutdownTasks;
use super::worker::Worker;
use super::{ScriptCall, ScriptError};

/// The time an idle worker is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time a worker has to exit by itself.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// The timeout for loading a tool, independent of the call that waits for it.
pub(super) const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) struct WorkerPool {
    script: ScriptSpec,
    shutdowns: Arc<ShutdownTasks>,
    state: Mutex<PoolState>,
    /// Notifies waiting calls that a worker is ready, or failed to start.
    changed: Notify,
}

#[derive(Default)]
struct PoolState {
    /// Idle workers. Used last in, first out, so that surplus workers become old.
    idle: Vec<(Worker, Instant)>,
    /// Calls that wait for a worker.
    waiting: usize,
    /// Workers that are loading the tool.
    starting: usize,
    starts: JoinSet<()>,
    /// Errors of failed starts, each for one of the waiting calls.
    failed: Vec<ScriptError>,
    /// True if the tool was removed or replaced.
    closed: bool,
    /// Stops idle workers, as long as there are any.
    sweeper: JoinSet<()>,
    sweeper_runs: bool,
}

impl WorkerPool {
    pub(super) fn new(script: ScriptSpec, shutdowns: Arc<ShutdownTasks>) -> Self {
        Self { script, shutdowns, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn script(&self) -> &ScriptSpec {
        &self.script
    }

    /// Runs a call in an idle worker, or in a new one.
    pub(super) async fn call(
        self: &Arc<Self>,
        call: &ScriptCall<'_>,
        arguments: &RawJson,
        context: &ToolContext,
    ) -> Result<RawJson, ScriptError> {
        let worker = self.worker(call).await?;
        let mut lease = WorkerLease { pool: self, worker: Some(worker) };
        let worker = lease.worker.as_mut().expect("just leased");
        let (result, reusable) = worker.call(call, arguments, context).await;
        if reusable {
            lease.give_back();
        }
        result
    }

    async fn worker(self: &Arc<Self>, call: &ScriptCall<'_>) -> Result<Worker, ScriptError> {
        let _waiting = WaitingCall::new(self);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no notification is lost.
            changed.as_mut().enable();
            if let Some(worker) = self.next(call)? {
                return Ok(worker);
            }
            changed.await;
        }
    }

    /// Returns an idle worker that has loaded the current version of the file, and stops outdated ones. If there is
    /// none, starts as many workers as there are waiting calls.
    fn next(self: &Arc<Self>, call: &ScriptCall<'_>) -> Result<Option<Worker>, ScriptError> {
        let stamp = ScriptFile::new(call, true)?.stamp;
        let mut state = self.state();
        while let Some((worker, _)) = state.idle.pop() {
            if worker.stamp == stamp && worker.is_alive() {
                return Ok(Some(worker));
            }
            worker.stop(&self.shutdowns, STOP_GRACE);
        }
        if let Some(error) = state.failed.pop() {
            return Err(error);
        }
        while state.starts.try_join_next().is_some() {}
        while state.starting < state.waiting {
            state.starting += 1;
            let start = WorkerStart {
                pool: Arc::clone(self),
                tool: Arc::clone(call.tool),
                limits: call.limits,
                shim: call.shim.map(ToOwned::to_owned),
            };
            state.starts.spawn(start.run());
        }
        Ok(None)
    }

    /// Handles the end of a worker's start.
    fn finish_start(self: &Arc<Self>, outcome: Result<Worker, ScriptError>) {
        self.state().starting -= 1;
        match outcome {
            Ok(worker) => self.put(worker),
            Err(error) => {
                let mut state = self.state();
                if state.waiting > 0 {
                    state.failed.push(error);
                }
                drop(state);
                self.changed.notify_waiters();
            }
        }
    }

    fn put(self: &Arc<Self>, worker: Worker) {
        let mut state = self.state();
        if state.closed && state.waiting == 0 {
            drop(state);
            return worker.stop(&self.shutdowns, STOP_GRACE);
        }
        state.idle.push((worker, Instant::now()));
        while state.sweeper.try_join_next().is_some() {}
        if !state.sweeper_runs {
            state.sweeper_runs = true;
            state.sweeper.spawn(sweep(Arc::downgrade(self)));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Stops idle workers. Busy ones stop after their call.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        self.stop_unneeded(&mut state);
    }

    /// Closes the pool, and cancels workers that are starting.
    pub(super) async fn stop(&self) {
        self.close();
        let mut starts = std::mem::take(&mut self.state().starts);
        starts.shutdown().await;
    }

    fn stop_unneeded(&self, state: &mut PoolState) {
        if state.closed && state.waiting == 0 {
            state.sweeper.abort_all();
            for (worker, _) in state.idle.drain(..) {
                worker.stop(&self.shutdowns, STOP_GRACE);
            }
        }
    }

    /// Stops workers that were idle for too long. Returns the time of the next check.
    fn stop_idle(&self) -> Option<Instant> {
        let mut state = self.state();
        let now = Instant::now();
        let young = state.idle.partition_point(|(_, since)| *since + IDLE_TIMEOUT <= now);
        for (worker, _) in state.idle.drain(..young) {
            worker.stop(&self.shutdowns, STOP_GRACE);
        }
        let next = state.idle.first().map(|(_, since)| *since + IDLE_TIMEOUT);
        state.sweeper_runs = next.is_some();
        next
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("script", &self.script).finish_non_exhaustive()
    }
}

/// The start of a worker.
struct WorkerStart {
    pool: Arc<WorkerPool>,
    tool: Arc<ToolDefinition>,
    limits: toolgate_mcp::scan::ScanLimits,
    shim: Option<PathBuf>,
}

impl WorkerStart {
    async fn run(self) {
        let Self { pool, tool, limits, shim } = self;
        let shutdowns = Arc::clone(&pool.shutdowns);
        let call = ScriptCall {
            tool: &tool,
            script: &tool.script,
            limits,
            shim: shim.as_deref(),
            shutdowns: &shutdowns,
        };
        let outcome =
            timeout(LOAD_TIMEOUT, Worker::start(&call)).await.unwrap_or_else(|_| Err(load_timeout(&call)));
        pool.finish_start(outcome);
    }
}

/// The error of a file that takes too long to load.
pub(super) fn load_timeout(call: &ScriptCall<'_>) -> ScriptError {
    let message = format!("`{}` did not load within {LOAD_TIMEOUT:?}", call.file());
    ScriptError::unusable(message, "do less when the file is loaded, and more in the function".to_owned())
}

async fn sweep(pool: Weak<WorkerPool>) {
    let mut next = Instant::now() + IDLE_TIMEOUT;
    loop {
        sleep_until(next).await;
        let Some(pool) = pool.upgrade() else { return };
        match pool.stop_idle() {
            Some(later) => next = later,
            // The next worker that becomes idle starts a new sweeper.
            None => return,
        }
    }
}

/// Counts a call that waits for a worker.
struct WaitingCall<'a>(&'a WorkerPool);

impl<'a> WaitingCall<'a> {
    fn new(pool: &'a WorkerPool) -> Self {
        pool.state().waiting += 1;
        Self(pool)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting -= 1;
        if state.waiting == 0 {
            // The next call may try again.
            state.failed.clear();
        }
        self.0.stop_unneeded(&mut state);
    }
}

/// A worker in use. Dropped during a call, the worker is stopped.
struct WorkerLease<'a> {
    pool: &'a Arc<WorkerPool>,
    worker: Option<Worker>,
}

impl WorkerLease<'_> {
    fn give_back(mut self) {
        if let Some(worker) = self.worker.take() {
            self.pool.put(worker);
        }
    }
}

impl Drop for WorkerLease<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.stop(&self.pool.shutdowns, Duration::ZERO);
        }
    }
}
