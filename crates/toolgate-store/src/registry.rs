//! The queue that all changes of tools and servers go through.
//!
//! An actor takes all queued changes, applies them in order, validates the result, commits it in one write, publishes
//! the new state, and only then replies. Edits of the files by other programs are validated and published the same way;
//! an invalid edit is rejected as a whole, and the last valid state stays in use.
//! Invariant: a change is acknowledged only once it is durable and in use, and an invalid change is rejected alone.

mod plan;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use toolgate_types::tool::Permission;
use toolgate_types::{ApiSpec, Profiles, Secret, ServerSpec, ToolDefinition, ToolSettings};

use crate::document::{EntryError, EntryOp};
use crate::file::disk::FileStamp;
use crate::store::{
    CommitError, RegistryDocuments, RegistrySnapshot, RegistrySources, Revision, Store, StoreUnavailable,
};
use plan::{BaseState, BatchPlan};

/// Maximum number of changes per commit; further ones wait for the next one.
const MAX_BATCH: usize = 1024;
/// Maximum number of times a batch is applied again because another process wrote in the meantime.
const MAX_RETRIES: usize = 8;
/// Interval for checking the other files of the project. An edit is in use after two intervals, and within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The validated contents of the files.
#[derive(Debug, Clone, Default)]
pub struct CheckedRegistry {
    /// The project's own tools, in the order of the file.
    pub tools: Vec<Arc<ToolDefinition>>,
    /// Settings of individual tools.
    pub settings: Vec<ToolSettings>,
    /// MCP servers from all configuration files.
    pub servers: Vec<ServerSpec>,
    /// HTTP APIs from the project file.
    pub apis: Vec<ApiSpec>,
    /// Profiles from the project file.
    pub profiles: Arc<Profiles>,
    /// Secrets to mask.
    pub secrets: Vec<Secret>,
    /// Names of the variables that entries refer to.
    pub variables: BTreeSet<String>,
    /// Other files that were read for this result.
    pub other_files: Vec<PathBuf>,
    /// Warnings.
    pub notes: Vec<RegistryProblem>,
    /// The rest of the project.
    pub project: ProjectContent,
}

/// The part of a project that the registry carries along and does not know: it is valid together with the entries, and is
/// put to use with them.
#[derive(Clone, Default)]
pub struct ProjectContent(Option<Arc<dyn Any + Send + Sync>>);

impl ProjectContent {
    pub fn new<T: Send + Sync + 'static>(content: Arc<T>) -> Self {
        Self(Some(content))
    }

    /// Returns the content, if there is any of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        Arc::downcast(Arc::clone(self.0.as_ref()?)).ok()
    }
}

impl fmt::Debug for ProjectContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProjectContent")
    }
}

/// A problem with an entry or a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RegistryProblem {
    pub message: String,
    /// File and position; `None` for an entry that is not in a file yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// All problems found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; "))]
pub struct RegistryProblems(pub Vec<RegistryProblem>);

/// File contents to validate.
#[derive(Debug, Clone, Copy)]
pub struct CheckInput<'a> {
    pub texts: &'a RegistrySources,
    /// True if the files are complete, so that positions in them are positions in the files. Otherwise `tools` holds
    /// only the entries that change.
    pub whole: bool,
}

/// Validates file contents and returns all problems. May read files, and starts nothing.
pub type CheckFn = Arc<dyn Fn(CheckInput<'_>) -> Result<CheckedRegistry, RegistryProblems> + Send + Sync>;

/// Puts a new state to use; it is in effect once the future completes.
pub type PublishFn = Arc<dyn Fn(Arc<RegistryState>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The registry in use.
#[derive(Debug, Clone)]
pub struct RegistryState {
    pub rev: Revision,
    /// Validated contents.
    pub checked: Arc<CheckedRegistry>,
    /// Entries as written in the files.
    pub documents: RegistryDocuments,
    /// Problems because of which the current files are not in use.
    pub rejection: Option<RegistryProblems>,
}

/// A change and its preconditions.
#[derive(Debug, Clone)]
pub struct RegistryChange {
    /// Revision that the registry must still have.
    pub expect: Option<Revision>,
    pub op: EntryOp,
    /// Permission check of a tool change; `None` for the owner of the files.
    pub authorize: Option<ToolAuthorizer>,
}

impl From<EntryOp> for RegistryChange {
    /// A change without preconditions.
    fn from(op: EntryOp) -> Self {
        Self { expect: None, op, authorize: None }
    }
}

/// A change of a tool, by its validated definitions.
#[derive(Debug, Clone, Copy)]
pub struct ToolChange<'a> {
    pub name: &'a str,
    /// `None` for a new tool.
    pub before: Option<&'a ToolDefinition>,
    /// `None` for a removed tool.
    pub after: Option<&'a ToolDefinition>,
}

/// Returns the permissions that the author of a change lacks. Runs when the change is applied, on the meaning of the entry:
/// no spelling of an entry and no concurrent change gets around it.
#[derive(Clone)]
pub struct ToolAuthorizer(Arc<dyn Fn(ToolChange<'_>) -> Vec<Permission> + Send + Sync>);

impl ToolAuthorizer {
    pub fn new(missing: impl Fn(ToolChange<'_>) -> Vec<Permission> + Send + Sync + 'static) -> Self {
        Self(Arc::new(missing))
    }

    fn check(&self, change: ToolChange<'_>) -> Result<(), ChangeError> {
        match (self.0)(change) {
            missing if missing.is_empty() => Ok(()),
            missing => Err(ChangeError::Unauthorized { missing }),
        }
    }
}

impl fmt::Debug for ToolAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolAuthorizer")
    }
}

/// A change that is durable and in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedChange {
    /// First revision that contains the change.
    pub rev: Revision,
    /// Warnings about the entry.
    pub notes: Vec<RegistryProblem>,
}

/// The registry as it would be after a change.
#[derive(Debug, Clone)]
pub struct ChangePreview {
    pub checked: Arc<CheckedRegistry>,
    /// Warnings about the entry.
    pub notes: Vec<RegistryProblem>,
}

/// The validation of a registry, for changes that are not made.
#[derive(Clone)]
struct PreviewCheck(CheckFn);

impl fmt::Debug for PreviewCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreviewCheck")
    }
}

/// Reason why a change was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ChangeError {
    /// The change cannot be applied to the current entries.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The entry is invalid.
    #[error("rejected: {0}")]
    Invalid(RegistryProblems),
    /// The author of the change lacks permissions.
    #[error("the change needs {}", missing.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(" and "))]
    Unauthorized { missing: Vec<Permission> },
    /// The registry is not at the expected revision.
    #[error("the registry has changed: it is at revision {current}")]
    Conflict {
        /// Actual revision.
        current: Revision,
    },
    /// The files contain an invalid edit by another program, and are not overwritten.
    #[error("the registry files are invalid and were not overwritten: {0}")]
    FilesRejected(RegistryProblems),
    /// The change cannot be stored at the moment.
    #[error(transparent)]
    Unavailable(#[from] StoreUnavailable),
}

impl ChangeError {
    /// Returns the error code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Entry(EntryError::Exists { .. }) => "already_exists",
            Self::Entry(EntryError::Missing { .. }) => "not_found",
            Self::Entry(EntryError::NameMismatch { .. }) | Self::Invalid(_) => "invalid",
            Self::Entry(EntryError::File(_)) | Self::FilesRejected(_) => "configuration_refused",
            Self::Unauthorized { .. } => "unauthorized",
            Self::Conflict { .. } => "conflict",
            Self::Unavailable(_) => "storage_unavailable",
        }
    }
}

/// Reason why the registry cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The files are invalid.
    #[error(transparent)]
    Refused(#[from] RegistryProblems),
    /// The structure of a file does not allow changes.
    #[error(transparent)]
    Document(#[from] crate::document::DocumentError),
    /// The files cannot be read.
    #[error(transparent)]
    Unavailable(#[from] StoreUnavailable),
}

/// A handle to the queue. Clones share one queue, which ends when the last of them is dropped.
#[derive(Debug, Clone)]
pub struct Registry {
    jobs: mpsc::Sender<ChangeJob>,
    reloads: mpsc::Sender<oneshot::Sender<()>>,
    state: watch::Receiver<Arc<RegistryState>>,
    check: PreviewCheck,
}

#[derive(Debug)]
struct ChangeJob {
    change: RegistryChange,
    answer: oneshot::Sender<Result<CommittedChange, ChangeError>>,
}

impl Registry {
    /// Reads the registry. Returns a handle, and the actor, which the caller must run.
    ///
    /// # Errors
    /// If the registry cannot be read or is invalid.
    pub async fn open<S: Store>(
        store: S,
        check: CheckFn,
        publish: PublishFn,
    ) -> Result<(Self, RegistryActor<S>), OpenError> {
        let changes = store.watch();
        let snapshot = store.snapshot().await?;
        let base = validate(snapshot, &check).await??;
        let (jobs, queue) = mpsc::channel(MAX_BATCH);
        let (reloads, reload_requests) = mpsc::channel(1);
        let state = Arc::new(base.state(None));
        let (publisher, state) = watch::channel(state);
        let stamps = stamps(&base.checked.other_files);
        let preview_check = PreviewCheck(Arc::clone(&check));
        let actor = RegistryActor {
            store,
            check,
            publish,
            base,
            queue,
            reload_requests,
            publisher,
            changes,
            stamps,
            refused: None,
        };
        Ok((Self { jobs, reloads, state, check: preview_check }, actor))
    }

    /// Makes a change, and returns once it is durable and in use.
    ///
    /// # Errors
    /// If the change was not made.
    pub async fn submit(&self, change: RegistryChange) -> Result<CommittedChange, ChangeError> {
        let (answer, answered) = oneshot::channel();
        let ended =
            || ChangeError::Unavailable(std::io::Error::other("the registry is shutting down").into());
        self.jobs.send(ChangeJob { change, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    /// Checks a change as if it were made now. Nothing is written and nothing is put to use.
    ///
    /// # Errors
    /// If the change would not be made.
    pub async fn preview(&self, change: RegistryChange) -> Result<ChangePreview, ChangeError> {
        let (state, check) = (self.state(), Arc::clone(&self.check.0));
        let work = move || {
            let RegistryState { rev, checked, documents, .. } = &*state;
            let base = BaseState { rev: *rev, documents: documents.clone(), checked: Arc::clone(checked) };
            BatchPlan::new(&base, std::slice::from_ref(&change), &check).into_preview()
        };
        blocking(work).await?
    }

    /// Reads all files again, changed or not, and returns once their contents are in use. If they are invalid, the
    /// returned state lists the problems, and the previous contents stay in use.
    pub async fn reload(&self) -> Arc<RegistryState> {
        let (answer, answered) = oneshot::channel();
        if self.reloads.send(answer).await.is_ok() {
            // If the actor ends, the state stays as it is.
            let _ = answered.await;
        }
        self.state()
    }

    /// Returns the state in use.
    pub fn state(&self) -> Arc<RegistryState> {
        Arc::clone(&self.state.borrow())
    }

    /// Notifies of every new state, and of rejected files.
    pub fn watch(&self) -> watch::Receiver<Arc<RegistryState>> {
        self.state.clone()
    }
}

/// Applies all changes to the registry.
pub struct RegistryActor<S> {
    store: S,
    check: CheckFn,
    publish: PublishFn,
    base: Arc<BaseState>,
    queue: mpsc::Receiver<ChangeJob>,
    reload_requests: mpsc::Receiver<oneshot::Sender<()>>,
    publisher: watch::Sender<Arc<RegistryState>>,
    changes: watch::Receiver<Revision>,
    /// Stamps of the other files.
    stamps: BTreeMap<PathBuf, Option<FileStamp>>,
    refused: Option<RegistryProblems>,
}

impl<S: Store> RegistryActor<S> {
    /// Runs until the last handle is dropped.
    pub async fn run(mut self) {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut jobs = Vec::new();
        let mut unsettled = None;
        loop {
            tokio::select! {
                count = self.queue.recv_many(&mut jobs, MAX_BATCH) => match count {
                    0 => return,
                    _ => self.process_batch(std::mem::take(&mut jobs)).await,
                },
                Some(answer) = self.reload_requests.recv() => {
                    self.reload_files(true).await;
                    let _ = answer.send(());
                }
                changed = self.changes.changed() => match changed {
                    Ok(()) => self.reload_files(false).await,
                    Err(_) => return,
                },
                _ = poll.tick() => {
                    let now = stamps(&self.base.checked.other_files);
                    // Applied once the files have not changed for one interval: half of a YAML file may be valid.
                    if now == self.stamps {
                        unsettled = None;
                    } else if unsettled.as_ref() == Some(&now) {
                        unsettled = None;
                        self.stamps = now;
                        self.reload_files(true).await;
                    } else {
                        unsettled = Some(now);
                    }
                }
            }
        }
    }

    /// Reloads the files if another process changed them. `anyway`: even if they have not changed, because other files
    /// of the project have.
    async fn reload_files(&mut self, anyway: bool) {
        let outcome = async {
            let snapshot = self.store.snapshot().await?;
            if snapshot.rev == self.base.rev && self.refused.is_none() && !anyway {
                return Ok(None);
            }
            validate(snapshot, &self.check).await?.map(Some)
        };
        match outcome.await {
            Ok(None) => {}
            Ok(Some(base)) => {
                self.refused = None;
                self.stamps = stamps(&base.checked.other_files);
                self.apply_state(base).await;
            }
            Err(OpenError::Unavailable(error)) => tracing::error!("{error}"),
            Err(error) => {
                let problems = match error {
                    OpenError::Refused(problems) => problems,
                    error => RegistryProblems(vec![RegistryProblem {
                        message: error.to_string(),
                        place: None,
                        hint: None,
                    }]),
                };
                self.refused = Some(problems);
                self.publisher.send_replace(Arc::new(self.base.state(self.refused.clone())));
            }
        }
    }

    /// Puts a state to use.
    async fn apply_state(&mut self, base: Arc<BaseState>) {
        let state = Arc::new(base.state(None));
        self.base = base;
        (self.publish)(Arc::clone(&state)).await;
        self.publisher.send_replace(state);
    }

    /// Applies as many of these changes as possible, and replies to all of them.
    async fn process_batch(&mut self, jobs: Vec<ChangeJob>) {
        let (changes, answers): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| (job.change, job.answer)).unzip();
        let changes = Arc::new(changes);
        let outcomes = self.outcomes(&changes).await;
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // The receiver may have been dropped.
            let _ = answer.send(outcome);
        }
    }

    async fn outcomes(
        &mut self,
        changes: &Arc<Vec<RegistryChange>>,
    ) -> Vec<Result<CommittedChange, ChangeError>> {
        let all = |refused: ChangeError| vec![Err(refused); changes.len()];
        for _ in 0..MAX_RETRIES {
            let (base, check, planned) =
                (Arc::clone(&self.base), Arc::clone(&self.check), Arc::clone(changes));
            let plan = match blocking(move || BatchPlan::new(&base, &planned, &check)).await {
                Ok(plan) => plan,
                Err(unavailable) => return all(unavailable.into()),
            };
            // Committed even if all changes were rejected: rejections are only valid for the revision they were based
            // on.
            let committed = self.store.commit(Some(self.base.rev), plan.ops.clone()).await;
            match committed {
                Ok(snapshot) => {
                    let rev = snapshot.rev;
                    if rev != self.base.rev {
                        self.apply_state(plan.base(rev)).await;
                    }
                    return plan.outcomes(rev);
                }
                Err(CommitError::Conflict { .. }) => {
                    self.reload_files(false).await;
                    if let Some(problems) = &self.refused {
                        return all(ChangeError::FilesRejected(problems.clone()));
                    }
                }
                Err(CommitError::Unavailable(unavailable)) => {
                    tracing::error!("cannot commit a change to the registry: {}", unavailable.0);
                    return plan.failed_outcomes(self.base.rev, &ChangeError::Unavailable(unavailable));
                }
                Err(CommitError::Entry(unfit)) => return all(unfit.into()),
            }
        }
        let busy = std::io::Error::other("other processes keep changing the registry; try again");
        all(ChangeError::Unavailable(busy.into()))
    }
}

/// Validates a whole registry.
async fn validate(
    snapshot: RegistrySnapshot,
    check: &CheckFn,
) -> Result<Result<Arc<BaseState>, OpenError>, OpenError> {
    let check = Arc::clone(check);
    let work = move || {
        let checked = check(CheckInput { texts: &snapshot.texts, whole: true })?;
        Ok(Arc::new(BaseState {
            rev: snapshot.rev,
            documents: snapshot.documents?,
            checked: Arc::new(checked),
        }))
    };
    Ok(blocking(work).await?)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreUnavailable> {
    tokio::task::spawn_blocking(work).await.map_err(|panic| std::io::Error::other(panic).into())
}

fn stamps(files: &[PathBuf]) -> BTreeMap<PathBuf, Option<FileStamp>> {
    files.iter().map(|file| (file.clone(), FileStamp::read(file))).collect()
}
