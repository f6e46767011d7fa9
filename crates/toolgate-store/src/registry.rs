//! The one queue that changes of tools and servers go through.
//!
//! An actor takes all that waits, makes the changes on the texts in their order, has them checked, commits
//! them at once, publishes the new state, and only then tells who asked. What others write to the files is
//! taken over the same way, or refused as a whole while the last good state goes on.
//! Invariant: nobody is told of a change that is not safe and in use, and a bad change is refused alone.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use toolgate_types::{ApiSpec, Profiles, Secret, ServerSpec, ToolDefinition, ToolSettings};

use crate::document::{Op, Unfit};
use crate::file::disk::Stamp;
use crate::store::{CommitError, Documents, Rev, Snapshot, Store, Texts, Unavailable};
use plan::{Base, Plan};

/// Changes that are committed together at most; more wait for the next turn.
const BATCH: usize = 1024;
/// How often a batch is made anew because somebody else has written meanwhile.
const ROUNDS: usize = 8;
/// How often the project's other files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the files mean, checked.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// Own tools, in the order of the file.
    pub tools: Vec<Arc<ToolDefinition>>,
    /// What the operator says about single tools.
    pub settings: Vec<ToolSettings>,
    /// MCP servers, wherever they are configured.
    pub servers: Vec<ServerSpec>,
    /// HTTP APIs of the project file.
    pub apis: Vec<ApiSpec>,
    /// Views of what there is, of the project file.
    pub profiles: Arc<Profiles>,
    /// What must not be shown.
    pub secrets: Vec<Secret>,
    /// The variables that entries refer to, by their names.
    pub variables: BTreeSet<String>,
    /// Files beside the registry that had a say in this.
    pub beside: Vec<PathBuf>,
    /// What is not wrong and should be known all the same.
    pub notes: Vec<Problem>,
}

/// Something that is wrong with an entry or a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// Where; `None` for an entry that is in no file yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Everything that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; "))]
pub struct Problems(pub Vec<Problem>);

/// What is to be checked in the place of the files.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The texts.
    pub texts: &'a Texts,
    /// Whether they are whole, so that places in them are places in the files. Otherwise `tools` holds only
    /// the entries that change.
    pub whole: bool,
}

/// Says what texts mean, or all that is wrong with them. It may read files, and starts nothing.
pub type Check = Arc<dyn Fn(Candidate<'_>) -> Result<Checked, Problems> + Send + Sync>;

/// Puts a new state to use; what it did is visible when it is done.
pub type Publish = Arc<dyn Fn(Arc<State>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The registry as it is in use.
#[derive(Debug, Clone)]
pub struct State {
    /// Which state it is.
    pub rev: Rev,
    /// What it means.
    pub checked: Arc<Checked>,
    /// The entries as they are written.
    pub documents: Documents,
    /// Why the files, as they are now, are not in use.
    pub refused: Option<Problems>,
}

/// A change, and what it depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Only if the registry is still at this revision.
    pub expect: Option<Rev>,
    /// What to do.
    pub op: Op,
}

/// A change that was made, is safe and in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The revision that holds it.
    pub rev: Rev,
    /// What should be known about it.
    pub notes: Vec<Problem>,
}

/// Why a change was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// It does not fit what is there.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// What it describes is wrong.
    #[error("it is refused: {0}")]
    Invalid(Problems),
    /// The registry is not at the revision that was expected.
    #[error("the registry has changed: it is at revision {current}")]
    Conflict {
        /// The revision that it has.
        current: Rev,
    },
    /// Somebody has written something to the files that is wrong; nothing is written over it.
    #[error("the files are not in order, and are not written over: {0}")]
    Unreadable(Problems),
    /// It cannot be kept now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Refused {
    /// For programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unfit(Unfit::Exists { .. }) => "already_exists",
            Self::Unfit(Unfit::Missing { .. }) => "not_found",
            Self::Unfit(Unfit::OtherName { .. }) | Self::Invalid(_) => "invalid",
            Self::Unfit(Unfit::File(_)) | Self::Unreadable(_) => "configuration_refused",
            Self::Conflict { .. } => "conflict",
            Self::Unavailable(_) => "storage_unavailable",
        }
    }
}

/// Why there is no registry to begin with.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The files are wrong.
    #[error(transparent)]
    Refused(#[from] Problems),
    /// A file has a shape that cannot be changed.
    #[error(transparent)]
    Document(#[from] crate::document::DocumentError),
    /// The files cannot be read.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// The way to the queue. Clones lead to the same one, which ends when the last of them is gone.
#[derive(Debug, Clone)]
pub struct Registry {
    jobs: mpsc::Sender<Job>,
    reloads: mpsc::Sender<oneshot::Sender<()>>,
    state: watch::Receiver<Arc<State>>,
}

#[derive(Debug)]
struct Job {
    change: Change,
    answer: oneshot::Sender<Result<Done, Refused>>,
}

impl Registry {
    /// Reads the registry, and returns the way to it and the actor, which somebody has to run.
    ///
    /// # Errors
    /// When the registry cannot be read, or is wrong.
    pub async fn open<S: Store>(
        store: S,
        check: Check,
        publish: Publish,
    ) -> Result<(Self, Actor<S>), OpenError> {
        let changes = store.watch();
        let snapshot = store.snapshot().await?;
        let base = checked(snapshot, &check).await??;
        let (jobs, queue) = mpsc::channel(BATCH);
        let (reloads, asked) = mpsc::channel(1);
        let state = Arc::new(base.state(None));
        let (tell, state) = watch::channel(state);
        let stamps = stamps(&base.checked.beside);
        let actor = Actor { store, check, publish, base, queue, asked, tell, changes, stamps, refused: None };
        Ok((Self { jobs, reloads, state }, actor))
    }

    /// Makes a change, and returns when it is safe and in use.
    ///
    /// # Errors
    /// When it was not made.
    pub async fn submit(&self, change: Change) -> Result<Done, Refused> {
        let (answer, answered) = oneshot::channel();
        let ended = || Refused::Unavailable(std::io::Error::other("the registry is being closed").into());
        self.jobs.send(Job { change, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    /// Reads all files again, changed or not, and returns when what they say is in use. Where they are wrong, the
    /// state says so, and what was in use stays.
    pub async fn reload(&self) -> Arc<State> {
        let (answer, answered) = oneshot::channel();
        if self.reloads.send(answer).await.is_ok() {
            // An actor that ends leaves the state as it is.
            let _ = answered.await;
        }
        self.state()
    }

    /// The registry as it is in use.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.borrow())
    }

    /// Tells when the registry is another one, or is refused.
    pub fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }
}

/// The one who changes the registry.
pub struct Actor<S> {
    store: S,
    check: Check,
    publish: Publish,
    base: Arc<Base>,
    queue: mpsc::Receiver<Job>,
    asked: mpsc::Receiver<oneshot::Sender<()>>,
    tell: watch::Sender<Arc<State>>,
    changes: watch::Receiver<Rev>,
    /// Of the files beside the registry.
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
    refused: Option<Problems>,
}

impl<S: Store> Actor<S> {
    /// Runs until nobody can submit a change any more.
    pub async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut jobs = Vec::new();
        loop {
            tokio::select! {
                count = self.queue.recv_many(&mut jobs, BATCH) => match count {
                    0 => return,
                    _ => self.serve(std::mem::take(&mut jobs)).await,
                },
                Some(answer) = self.asked.recv() => {
                    self.take_over(true).await;
                    let _ = answer.send(());
                }
                told = self.changes.changed() => match told {
                    Ok(()) => self.take_over(false).await,
                    Err(_) => return,
                },
                _ = look.tick() => {
                    let now = stamps(&self.base.checked.beside);
                    if now != self.stamps {
                        self.stamps = now;
                        self.take_over(true).await;
                    }
                }
            }
        }
    }

    /// Takes over what others have written. `anyway`: other files of the project have changed.
    async fn take_over(&mut self, anyway: bool) {
        let outcome = async {
            let snapshot = self.store.snapshot().await?;
            if snapshot.rev == self.base.rev && self.refused.is_none() && !anyway {
                return Ok(None);
            }
            checked(snapshot, &self.check).await?.map(Some)
        };
        match outcome.await {
            Ok(None) => {}
            Ok(Some(base)) => {
                self.refused = None;
                self.stamps = stamps(&base.checked.beside);
                self.put(base).await;
            }
            Err(OpenError::Unavailable(error)) => tracing::error!("{error}"),
            Err(error) => {
                let problems = match error {
                    OpenError::Refused(problems) => problems,
                    error => Problems(vec![Problem { message: error.to_string(), place: None, hint: None }]),
                };
                for Problem { message, place, .. } in &problems.0 {
                    let place = place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
                    tracing::error!("what was written to the registry is not taken over: {message}{place}");
                }
                self.refused = Some(problems);
                self.tell.send_replace(Arc::new(self.base.state(self.refused.clone())));
            }
        }
    }

    /// Puts a state to use.
    async fn put(&mut self, base: Arc<Base>) {
        let state = Arc::new(base.state(None));
        self.base = base;
        (self.publish)(Arc::clone(&state)).await;
        self.tell.send_replace(state);
    }

    /// Makes what can be made of these changes, and answers all of them.
    async fn serve(&mut self, jobs: Vec<Job>) {
        let (changes, answers): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| (job.change, job.answer)).unzip();
        let changes = Arc::new(changes);
        let outcomes = self.outcomes(&changes).await;
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // Who does not wait any more does not want to know.
            let _ = answer.send(outcome);
        }
    }

    async fn outcomes(&mut self, changes: &Arc<Vec<Change>>) -> Vec<Result<Done, Refused>> {
        let all = |refused: Refused| vec![Err(refused); changes.len()];
        for _ in 0..ROUNDS {
            let (base, check, planned) =
                (Arc::clone(&self.base), Arc::clone(&self.check), Arc::clone(changes));
            let plan = match blocking(move || Plan::new(&base, &planned, &check)).await {
                Ok(plan) => plan,
                Err(unavailable) => return all(unavailable.into()),
            };
            // Refusals are only as good as the state that they refer to.
            let committed = self.store.commit(Some(self.base.rev), plan.ops.clone()).await;
            match committed {
                Ok(snapshot) => {
                    let rev = snapshot.rev;
                    if rev != self.base.rev {
                        self.put(plan.base(rev)).await;
                    }
                    return plan.outcomes(rev);
                }
                Err(CommitError::Conflict { .. }) => {
                    self.take_over(false).await;
                    if let Some(problems) = &self.refused {
                        return all(Refused::Unreadable(problems.clone()));
                    }
                }
                Err(CommitError::Unavailable(unavailable)) => {
                    tracing::error!("a change of the registry is not made: {}", unavailable.0);
                    return plan.failed(self.base.rev, &Refused::Unavailable(unavailable));
                }
                Err(CommitError::Unfit(unfit)) => return all(unfit.into()),
            }
        }
        let busy = std::io::Error::other("others change the registry all the time");
        all(Refused::Unavailable(busy.into()))
    }
}

/// Has a whole registry checked.
async fn checked(snapshot: Snapshot, check: &Check) -> Result<Result<Arc<Base>, OpenError>, OpenError> {
    let check = Arc::clone(check);
    let work = move || {
        let checked = check(Candidate { texts: &snapshot.texts, whole: true })?;
        Ok(Arc::new(Base { rev: snapshot.rev, documents: snapshot.documents?, checked: Arc::new(checked) }))
    };
    Ok(blocking(work).await?)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Unavailable> {
    tokio::task::spawn_blocking(work).await.map_err(|panic| std::io::Error::other(panic).into())
}

fn stamps(files: &[PathBuf]) -> BTreeMap<PathBuf, Option<Stamp>> {
    files.iter().map(|file| (file.clone(), Stamp::of(file))).collect()
}
