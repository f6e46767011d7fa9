//! Interface between the gateway and the agent: start runs, list them, follow them, and track the active ones.
//!
//! The agent crate is a sibling of this crate; the binary connects the two. Invariant: a run acts as its caller and
//! continues without a watcher. It ends by itself, on request, or with the gateway or the credential that started it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value as Json;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::task::JoinSet;
use toolgate_types::{Caller, CallerId};

/// Agent runs active at the same time, and those of one caller.
const MAX_RUNS: usize = 32;
const MAX_RUNS_PER_CALLER: usize = 8;
/// Live events buffered per watcher. A slow watcher misses partial text, but gets it again with the whole turn.
const EVENT_BUFFER: usize = 256;
/// Bytes of an unfinished turn that are kept for watchers that join.
const MAX_PARTIAL_TEXT: usize = 256 << 10;

/// Request to start a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunRequest {
    /// A new task, in natural language.
    New(String),
    /// Id of a run to resume.
    Resume(String),
}

/// Error of a run that could not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStartError {
    /// The caller has no such run to resume.
    NotFound(String),
    /// The run is active elsewhere, or has ended.
    Busy(String),
    /// The run failed to start.
    Failed(String),
}

/// Receives the events of a run: JSON objects with their name in `event`.
pub type EventSink = Arc<dyn Fn(Json) + Send + Sync>;

/// A run that has started.
pub struct StartedRun {
    /// Id of the run.
    pub run: String,
    /// Future that executes the run to its end.
    pub work: BoxFuture<'static, ()>,
}

/// Reads the events of one run, while it is active and after.
pub trait RunFollower: Send + 'static {
    /// Returns events added since the last call, each with its number.
    ///
    /// # Errors
    /// Fails if the journal is unreadable.
    fn new_events(&mut self) -> io::Result<Vec<(u64, Json)>>;

    /// Returns true while the run is being executed.
    fn is_active(&self) -> bool;

    /// Id of the caller the run acts as.
    fn caller(&self) -> &str;
}

/// An agent that executes runs.
pub trait RunService: Send + Sync + 'static {
    /// Starts a run. `events` receives every event as it happens; the run stops when `stop` resolves.
    ///
    /// # Errors
    /// Fails if the run cannot be started or resumed.
    fn start(
        &self,
        caller: Caller,
        request: RunRequest,
        events: EventSink,
        stop: BoxFuture<'static, ()>,
    ) -> Result<StartedRun, RunStartError>;

    /// Lists all runs, newest first, each with its `caller`.
    ///
    /// # Errors
    /// Fails if the journals are unreadable.
    fn list(&self) -> io::Result<Vec<Json>>;

    /// Returns a run with its `caller`, `state` and entries.
    ///
    /// # Errors
    /// Fails if the journal is unreadable.
    fn show(&self, id: &str) -> io::Result<Option<Json>>;

    /// Follows a run from its first event.
    ///
    /// # Errors
    /// Fails if the journal is unreadable.
    fn follow(&self, id: &str) -> io::Result<Option<Box<dyn RunFollower>>>;
}

/// The agent of a gateway, and its runs. They outlive the request that started them.
pub(crate) struct AgentRuns {
    /// `None` if no agent is configured.
    pub(crate) service: Option<Arc<dyn RunService>>,
    pub(crate) active: ActiveRuns,
}

impl AgentRuns {
    pub(crate) fn new(service: Option<Arc<dyn RunService>>) -> Self {
        Self { service, active: ActiveRuns::default() }
    }
}

/// Runs executed by this gateway.
pub(crate) struct ActiveRuns {
    slots: Arc<Semaphore>,
    /// Number of active runs of each caller.
    callers: Arc<Mutex<HashMap<CallerId, usize>>>,
    runs: Arc<Mutex<HashMap<String, (CallerId, ActiveRun)>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// Handle of an active run.
#[derive(Clone)]
pub(crate) struct ActiveRun {
    /// Stops the run.
    pub(crate) stop: Arc<Notify>,
    /// Live events, each with the number of turns finished before it.
    pub(crate) events: broadcast::Sender<(u64, Json)>,
    /// Number of finished turns.
    pub(crate) turns: Arc<AtomicU64>,
    /// Text of the turn that is not finished, for watchers that join now. Locked while an event is sent.
    partial_text: Arc<Mutex<String>>,
    /// Number of the last event before the run was started or resumed. An `ended` event up to it belongs to an earlier
    /// part of the run.
    pub(crate) resumed_after: Arc<AtomicU64>,
}

impl Default for ActiveRun {
    fn default() -> Self {
        Self {
            stop: Arc::default(),
            events: broadcast::Sender::new(EVENT_BUFFER),
            turns: Arc::default(),
            partial_text: Arc::default(),
            resumed_after: Arc::default(),
        }
    }
}

impl ActiveRun {
    pub(crate) fn event_sink(&self) -> EventSink {
        let (events, turns, partial) =
            (self.events.clone(), Arc::clone(&self.turns), Arc::clone(&self.partial_text));
        Arc::new(move |event| {
            let mut partial = partial.lock();
            match event["event"].as_str() {
                Some("text") if partial.len() < MAX_PARTIAL_TEXT => {
                    partial.push_str(event["text"].as_str().unwrap_or_default());
                }
                Some("again" | "said" | "ended") => partial.clear(),
                _ => {}
            }
            let ends = u64::from(event["event"] == "said");
            let _ = events.send((turns.fetch_add(ends, Ordering::Relaxed), event));
        })
    }

    /// Returns the live events from now on, and the text of the turn before them, with the number of that turn.
    pub(crate) fn subscribe(&self) -> (broadcast::Receiver<(u64, Json)>, (u64, String)) {
        let partial = self.partial_text.lock();
        (self.events.subscribe(), (self.turns.load(Ordering::Relaxed), partial.clone()))
    }
}

impl Default for ActiveRuns {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(MAX_RUNS)),
            callers: Arc::default(),
            runs: Arc::default(),
            tasks: Mutex::default(),
        }
    }
}

/// The slot of one run, freed on drop.
pub(crate) struct RunSlot {
    caller: CallerId,
    callers: Arc<Mutex<HashMap<CallerId, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        let mut callers = self.callers.lock();
        if let Some(count) = callers.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

impl ActiveRuns {
    /// Reserves a slot for one more run of a caller, if one is free.
    pub(crate) fn acquire_slot(&self, caller: &CallerId) -> Option<RunSlot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let mut callers = self.callers.lock();
        let count = callers.entry(caller.clone()).or_default();
        if *count >= MAX_RUNS_PER_CALLER {
            return None;
        }
        *count += 1;
        Some(RunSlot { caller: caller.clone(), callers: Arc::clone(&self.callers), _permit: permit })
    }

    /// Returns the handle of a run if it is active here.
    pub(crate) fn get(&self, run: &str) -> Option<ActiveRun> {
        lock(&self.runs).get(run).map(|(_, handle)| handle.clone())
    }

    /// The active runs, with their callers.
    pub(crate) fn callers(&self) -> BTreeMap<String, CallerId> {
        lock(&self.runs).iter().map(|(run, (caller, _))| (run.clone(), caller.clone())).collect()
    }

    /// Executes a run in the background until its end, with or without a watcher.
    pub(crate) fn add(
        &self,
        StartedRun { run, work }: StartedRun,
        handle: ActiveRun,
        held: impl Send + 'static,
        slot: RunSlot,
    ) {
        lock(&self.runs).insert(run.clone(), (slot.caller.clone(), handle));
        let active_runs = Arc::clone(&self.runs);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _held = (held, slot);
            let _remove = RemoveOnDrop { run, active_runs };
            work.await;
        });
    }
}

fn lock(
    runs: &Mutex<HashMap<String, (CallerId, ActiveRun)>>,
) -> MutexGuard<'_, HashMap<String, (CallerId, ActiveRun)>> {
    runs.lock()
}

/// Removes a run from the active ones when its task ends, for whatever reason.
struct RemoveOnDrop {
    run: String,
    active_runs: Arc<Mutex<HashMap<String, (CallerId, ActiveRun)>>>,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        lock(&self.active_runs).remove(&self.run);
    }
}
