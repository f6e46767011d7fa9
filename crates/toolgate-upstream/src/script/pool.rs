//! The workers of one Python tool: as many as are needed at once, kept for a while, ended when nobody needs them.
//!
//! How many calls may run at once is decided before they get here. A worker is started for a call and not by it: a tool
//! that takes long to load is loaded for the next call where the first one had no time to wait. Invariant: a worker
//! that is handed out has loaded the file as it is now, and one whose call was given up is ended.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use toolgate_mcp::Raw;
use toolgate_types::tool::Script;
use toolgate_types::{ToolContext, ToolDefinition};

use super::file::Opened;
use super::leaving::Leaving;
use super::worker::Worker;
use super::{Job, ScriptError};

/// How long a worker that nobody needs is kept.
const IDLE: Duration = Duration::from_secs(60);
/// For a worker to end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// For a tool to be loaded, whether a call waits for it or not.
const LOADING: Duration = Duration::from_secs(120);

pub(super) struct Pool {
    script: Script,
    leaving: Arc<Leaving>,
    state: Mutex<State>,
    /// A worker is there, or could not be started.
    news: Notify,
}

#[derive(Default)]
struct State {
    /// The last one that was used is used next, so that those beyond need grow old.
    idle: Vec<(Worker, Instant)>,
    /// Calls that need a worker.
    waiting: usize,
    /// Workers that are loading the tool.
    starting: usize,
    starts: JoinSet<()>,
    /// Why some could not, each for one of the calls that wait.
    failed: Vec<ScriptError>,
    /// Its tool is gone, or was replaced.
    closed: bool,
    /// Ends those that have grown old, as long as there are any.
    sweeper: JoinSet<()>,
    sweeps: bool,
}

impl Pool {
    pub(super) fn new(script: Script, leaving: Arc<Leaving>) -> Self {
        Self { script, leaving, state: Mutex::default(), news: Notify::new() }
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
        let worker = self.worker(job).await?;
        let mut out = Out { pool: self, worker: Some(worker) };
        let worker = out.worker.as_mut().expect("it was just handed out");
        let (given, goes_on) = worker.call(job, arguments, context).await;
        if goes_on {
            out.back();
        }
        given
    }

    async fn worker(self: &Arc<Self>, job: &Job<'_>) -> Result<Worker, ScriptError> {
        let _waits = Waits::new(self);
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // What comes after the look is not missed.
            news.as_mut().enable();
            if let Some(worker) = self.next(job)? {
                return Ok(worker);
            }
            news.await;
        }
    }

    /// A worker that has loaded the file as it is now; others are ended. Where there is none, as many are started as
    /// are waited for.
    fn next(self: &Arc<Self>, job: &Job<'_>) -> Result<Option<Worker>, ScriptError> {
        let stamp = Opened::new(job, true)?.stamp;
        let mut state = self.state();
        while let Some((worker, _)) = state.idle.pop() {
            if worker.stamp == stamp && worker.lives() {
                return Ok(Some(worker));
            }
            worker.end(&self.leaving, GRACE);
        }
        if let Some(error) = state.failed.pop() {
            return Err(error);
        }
        while state.starts.try_join_next().is_some() {}
        while state.starting < state.waiting {
            state.starting += 1;
            let start = Start {
                pool: Arc::clone(self),
                tool: Arc::clone(job.tool),
                limits: job.limits,
                shim: job.shim.map(ToOwned::to_owned),
            };
            state.starts.spawn(start.run());
        }
        Ok(None)
    }

    /// A start has come to its end.
    fn started(self: &Arc<Self>, outcome: Result<Worker, ScriptError>) {
        self.state().starting -= 1;
        match outcome {
            Ok(worker) => self.put(worker),
            Err(error) => {
                let mut state = self.state();
                if state.waiting > 0 {
                    state.failed.push(error);
                }
                drop(state);
                self.news.notify_waiters();
            }
        }
    }

    fn put(self: &Arc<Self>, worker: Worker) {
        let mut state = self.state();
        if state.closed && state.waiting == 0 {
            drop(state);
            return worker.end(&self.leaving, GRACE);
        }
        state.idle.push((worker, Instant::now()));
        while state.sweeper.try_join_next().is_some() {}
        if !state.sweeps {
            state.sweeps = true;
            state.sweeper.spawn(sweep(Arc::downgrade(self)));
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// Ends those that nobody needs; those that run end after their call.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        self.end_unneeded(&mut state);
    }

    /// The same, and none is started any more.
    pub(super) async fn stop(&self) {
        self.close();
        let mut starts = std::mem::take(&mut self.state().starts);
        starts.shutdown().await;
    }

    fn end_unneeded(&self, state: &mut State) {
        if state.closed && state.waiting == 0 {
            state.sweeper.abort_all();
            for (worker, _) in state.idle.drain(..) {
                worker.end(&self.leaving, GRACE);
            }
        }
    }

    /// Ends those that nobody needed for long; says when to look again.
    fn end_old(&self) -> Option<Instant> {
        let mut state = self.state();
        let now = Instant::now();
        let young = state.idle.partition_point(|(_, since)| *since + IDLE <= now);
        for (worker, _) in state.idle.drain(..young) {
            worker.end(&self.leaving, GRACE);
        }
        let next = state.idle.first().map(|(_, since)| *since + IDLE);
        state.sweeps = next.is_some();
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

/// A worker on its way.
struct Start {
    pool: Arc<Pool>,
    tool: Arc<ToolDefinition>,
    limits: toolgate_mcp::scan::Limits,
    shim: Option<PathBuf>,
}

impl Start {
    async fn run(self) {
        let Self { pool, tool, limits, shim } = self;
        let leaving = Arc::clone(&pool.leaving);
        let job = Job { tool: &tool, script: &tool.script, limits, shim: shim.as_deref(), leaving: &leaving };
        let outcome = timeout(LOADING, Worker::start(&job)).await.unwrap_or_else(|_| {
            let message = format!("`{}` was not loaded within {LOADING:?}", job.file());
            Err(ScriptError::unusable(
                message,
                "do less where the file is loaded, and more in the function".to_owned(),
            ))
        });
        pool.started(outcome);
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

/// A call that needs a worker.
struct Waits<'a>(&'a Pool);

impl<'a> Waits<'a> {
    fn new(pool: &'a Pool) -> Self {
        pool.state().waiting += 1;
        Self(pool)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting -= 1;
        if state.waiting == 0 {
            // What could not be started today may be tomorrow.
            state.failed.clear();
        }
        self.0.end_unneeded(&mut state);
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
