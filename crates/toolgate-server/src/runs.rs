//! What the door knows of the agent: that it can be given tasks, what became of them, and which it works on now.
//!
//! The agent stands beside the doors in the order of the crates; whoever puts both together gives one to the other.
//! Invariant: a run acts as its caller, and goes on whoever watches it; it ends by itself, when it is told to, and with
//! the door and the key that began it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::task::JoinSet;
use toolgate_types::Caller;

/// Runs of the agent that go on at once.
const MOST: usize = 32;
/// Words that wait for whoever watches. Who does not read misses some, and has them with the whole turn.
const WORDS: usize = 256;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Something new, in words.
    New(String),
    /// What was begun, by its id.
    Resume(String),
}

/// Why there is no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRun {
    /// There is none to go on with, for this caller.
    Absent(String),
    /// It goes on elsewhere, or has ended.
    Busy(String),
    /// It cannot be begun.
    Failed(String),
}

/// Who hears what happens: events as JSON, each with its name in `event`.
pub type Heard = Arc<dyn Fn(Json) + Send + Sync>;

/// A run that was begun.
pub struct Started {
    /// Its id.
    pub run: String,
    /// All of it, up to its end.
    pub work: BoxFuture<'static, ()>,
}

/// What happened in a run, and what happens while it goes on.
pub trait Followed: Send + 'static {
    /// What happened since this was last asked for: events, each with its number.
    ///
    /// # Errors
    /// When it cannot be read.
    fn news(&mut self) -> io::Result<Vec<(u64, Json)>>;

    /// Whether somebody works on it.
    fn goes_on(&self) -> bool;

    /// As whom it acts.
    fn caller(&self) -> &str;
}

/// An agent that can be given tasks.
pub trait Runs: Send + Sync + 'static {
    /// Begins. `heard` is told of everything as it happens; `stop` ends the run when it resolves.
    ///
    /// # Errors
    /// When there is nothing to begin.
    fn start(
        &self,
        caller: Caller,
        task: Task,
        heard: Heard,
        stop: BoxFuture<'static, ()>,
    ) -> Result<Started, NoRun>;

    /// All runs, the newest first, each with its `caller`.
    ///
    /// # Errors
    /// When they cannot be read.
    fn list(&self) -> io::Result<Vec<Json>>;

    /// One of them, with its `caller`, its `state` and what happened in it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn show(&self, id: &str) -> io::Result<Option<Json>>;

    /// The same as events, from the beginning on.
    ///
    /// # Errors
    /// When it cannot be read.
    fn follow(&self, id: &str) -> io::Result<Option<Box<dyn Followed>>>;
}

/// The runs that go on behind a door.
pub(crate) struct Going {
    places: Arc<Semaphore>,
    live: Arc<Mutex<HashMap<String, Live>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// One of them.
#[derive(Clone)]
pub(crate) struct Live {
    /// Ends it.
    pub(crate) stop: Arc<Notify>,
    /// Everything that happens, as it happens, each with how many turns had ended.
    pub(crate) heard: broadcast::Sender<(u64, Json)>,
    /// How many turns have ended.
    pub(crate) turns: Arc<AtomicU64>,
    /// The number of the last event before it was begun, or taken up again: an end up to there is not its end.
    pub(crate) before: Arc<AtomicU64>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            stop: Arc::default(),
            heard: broadcast::Sender::new(WORDS),
            turns: Arc::default(),
            before: Arc::default(),
        }
    }
}

impl Live {
    /// Who hears what happens.
    pub(crate) fn ear(&self) -> Heard {
        let (heard, turns) = (self.heard.clone(), Arc::clone(&self.turns));
        Arc::new(move |event| {
            let ends = u64::from(event["event"] == "said");
            let _ = heard.send((turns.fetch_add(ends, Ordering::Relaxed), event));
        })
    }
}

impl Default for Going {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), live: Arc::default(), tasks: Mutex::default() }
    }
}

impl Going {
    /// A place for one more, where there is one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The one of this id, where it goes on here.
    pub(crate) fn get(&self, run: &str) -> Option<Live> {
        all(&self.live).get(run).cloned()
    }

    /// Works on a run until its end, whoever watches.
    pub(crate) fn add(
        &self,
        Started { run, work }: Started,
        live: Live,
        kept: impl Send + 'static,
        place: OwnedSemaphorePermit,
    ) {
        all(&self.live).insert(run.clone(), live);
        let going = Arc::clone(&self.live);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _kept = (kept, place);
            let _gone = Gone { run, going };
            work.await;
        });
    }
}

fn all(live: &Mutex<HashMap<String, Live>>) -> MutexGuard<'_, HashMap<String, Live>> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a run out of those that go on, however it ends.
struct Gone {
    run: String,
    going: Arc<Mutex<HashMap<String, Live>>>,
}

impl Drop for Gone {
    fn drop(&mut self) {
        all(&self.going).remove(&self.run);
    }
}
