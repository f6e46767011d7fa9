//! The workers of one Python tool: as many as are needed at once, kept for a while, ended when nobody needs them.
//!
//! How many calls may run at once is decided before they get here. Invariant: a worker that is handed out has loaded
//! the file as it is now, and one whose call was given up is ended.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use toolgate_mcp::Raw;
use toolgate_types::ToolContext;
use toolgate_types::tool::Script;

use super::file::Opened;
use super::leaving::Leaving;
use super::worker::Worker;
use super::{Job, ScriptError};

/// How long a worker that nobody needs is kept.
const IDLE: Duration = Duration::from_secs(60);
/// For a worker to end by itself.
const GRACE: Duration = Duration::from_secs(1);

pub(super) struct Pool {
    script: Script,
    leaving: Arc<Leaving>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last one that was used is used next, so that those beyond need grow old.
    idle: Vec<(Worker, Instant)>,
    /// Its tool is gone, or was replaced.
    closed: bool,
    /// Ends those that have grown old, as long as there are any.
    sweeper: JoinSet<()>,
    sweeps: bool,
}

impl Pool {
    pub(super) fn new(script: Script, leaving: Arc<Leaving>) -> Self {
        Self { script, leaving, state: Mutex::default() }
    }

    pub(super) fn script(&self) -> &Script {
        &self.script
    }

    /// Makes a call, with a worker that waits or with a new one.
    pub(super) async fn call(
        self: &Arc<Self>,
        job: &Job<'_>,
        arguments: &Raw,
        context: &ToolContext,
    ) -> Result<Raw, ScriptError> {
        let worker = match self.waiting(job)? {
            Some(worker) => worker,
            None => Worker::start(job).await?,
        };
        let mut out = Out { pool: self, worker: Some(worker) };
        let worker = out.worker.as_mut().expect("it was just handed out");
        let (given, goes_on) = worker.call(job, arguments, context).await;
        if goes_on {
            out.back();
        }
        given
    }

    /// A worker that waits and has loaded the file as it is now. Others are ended.
    fn waiting(&self, job: &Job<'_>) -> Result<Option<Worker>, ScriptError> {
        let stamp = Opened::new(job, true)?.stamp;
        loop {
            let Some((worker, _)) = self.state().idle.pop() else { return Ok(None) };
            if worker.stamp == stamp && worker.lives() {
                return Ok(Some(worker));
            }
            worker.end(&self.leaving, GRACE);
        }
    }

    fn put(self: &Arc<Self>, worker: Worker) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            return worker.end(&self.leaving, GRACE);
        }
        state.idle.push((worker, Instant::now()));
        while state.sweeper.try_join_next().is_some() {}
        if !state.sweeps {
            state.sweeps = true;
            state.sweeper.spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Ends those that wait; those that run end after their call.
    pub(super) fn close(&self) {
        let idle = {
            let mut state = self.state();
            state.closed = true;
            state.sweeper.abort_all();
            std::mem::take(&mut state.idle)
        };
        for (worker, _) in idle {
            worker.end(&self.leaving, GRACE);
        }
    }

    /// Ends those that nobody needed for long; says when to look again.
    fn end_old(&self) -> Option<Instant> {
        let mut state = self.state();
        let now = Instant::now();
        let young = state.idle.partition_point(|(_, since)| *since + IDLE <= now);
        let old: Vec<_> = state.idle.drain(..young).collect();
        let next = state.idle.first().map(|(_, since)| *since + IDLE);
        state.sweeps = next.is_some();
        drop(state);
        for (worker, _) in old {
            worker.end(&self.leaving, GRACE);
        }
        next
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("script", &self.script).finish_non_exhaustive()
    }
}

async fn sweep(pool: Weak<Pool>) {
    let mut next = Instant::now() + IDLE;
    loop {
        sleep_until(next).await;
        let Some(pool) = pool.upgrade() else { return };
        match pool.end_old() {
            Some(later) => next = later,
            // The next worker that comes back brings another.
            None => return,
        }
    }
}

/// A worker that was handed out. Dropped in the middle of a call, it is ended.
struct Out<'a> {
    pool: &'a Arc<Pool>,
    worker: Option<Worker>,
}

impl Out<'_> {
    fn back(mut self) {
        if let Some(worker) = self.worker.take() {
            self.pool.put(worker);
        }
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.end(&self.pool.leaving, Duration::ZERO);
        }
    }
}
