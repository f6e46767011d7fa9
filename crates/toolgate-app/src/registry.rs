//! The registry of a project: its files, their validation, the runtime that uses them, and changes of its entries.
//!
//! Used by every front end that changes tools or servers, or keeps running while they change.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use toolgate_config::{ProblemEntry, RegistryPaths, Report, Severity, load_with_overlay};
use toolgate_redact::printable;
use toolgate_runtime::Runtime;
use toolgate_store::document::DocumentError;
use toolgate_store::file::{self, FileStore};
use toolgate_store::registry::{
    ChangeError, CheckFn, CheckInput, CheckedRegistry, CommittedChange, OpenError, PublishFn, Registry,
    RegistryActor, RegistryChange, RegistryProblem, RegistryProblems,
};

use crate::event::{AppEvent, EventHandler};
use crate::project::ProjectFiles;
use crate::socket::{self, SocketError};

/// A registry whose states go to a runtime.
pub struct OpenRegistry {
    registry: Registry,
    actor: RegistryActor<FileStore>,
    publish: PublishFn,
}

impl OpenRegistry {
    pub(crate) async fn open(files: ProjectFiles, publish: PublishFn) -> Result<Self, OpenError> {
        let RegistryPaths { tools, servers } = files.registries.clone();
        let store = FileStore::open(file::RegistryPaths { tools, servers }).await?;
        let (registry, actor) = Registry::open(store, files.validator(), Arc::clone(&publish)).await?;
        Ok(Self { registry, actor, publish })
    }

    /// Returns a handle for changes.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Puts the files to use as they are now. Includes edits made since the project was loaded.
    pub async fn publish(&self) {
        (self.publish)(self.registry.state()).await;
    }

    /// Applies changes, and follows edits of the files, until it is dropped.
    pub async fn run(self) {
        // Without a handle, the actor ends.
        let Self { registry: _handle, actor, .. } = self;
        actor.run().await;
    }
}

impl ProjectFiles {
    /// Validates the whole project with candidate texts in place of the registry files.
    fn validator(self) -> CheckFn {
        Arc::new(move |candidate: CheckInput<'_>| {
            let CheckInput { texts, whole } = candidate;
            let RegistryPaths { tools, servers } = &self.registries;
            let texts: BTreeMap<PathBuf, Arc<str>> = [(tools, &texts.tools), (servers, &texts.servers)]
                .into_iter()
                .filter_map(|(path, text)| Some((path.clone()?, text.clone()?)))
                .collect();
            let loaded = load_with_overlay(&self.folder, self.file.as_deref(), &self.environment, texts);
            let problems = |severity| self.problems(&loaded.report, severity, whole);
            let Some(config) = loaded.config else { return Err(RegistryProblems(problems(Severity::Error))) };
            Ok(CheckedRegistry {
                tools: config.tools.into_iter().map(Arc::new).collect(),
                settings: config.tool_settings,
                servers: config.servers,
                apis: config.apis,
                profiles: config.profiles,
                secrets: config.secrets,
                variables: config.variables.into_keys().collect(),
                other_files: self.other_files(&loaded.report),
                notes: problems(Severity::Warning),
            })
        })
    }

    /// Returns the problems of one severity. A new entry has no position in the file yet.
    fn problems(&self, report: &Report, severity: Severity, whole: bool) -> Vec<RegistryProblem> {
        let RegistryPaths { tools, servers } = &self.registries;
        let registries = [tools, servers].map(|path| {
            let path = path.as_ref()?;
            let source = report.sources().iter().find(|source| source.path() == Some(path))?;
            Some(source.name().to_owned())
        });
        let problem = |ProblemEntry { message, file, line, column, hint, .. }: ProblemEntry| {
            let place = file.filter(|file| whole || !registries.contains(&Some(file.clone())));
            let place = place.map(|file| match (line, column) {
                (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
                _ => file,
            });
            RegistryProblem { message, place, hint }
        };
        report.entries().into_iter().filter(|entry| entry.severity == severity).map(problem).collect()
    }

    /// Returns all other files that influence the configuration, existing or not.
    fn other_files(&self, report: &Report) -> Vec<PathBuf> {
        let RegistryPaths { tools, servers } = &self.registries;
        let read = report.sources().iter().filter_map(|source| source.path().map(ToOwned::to_owned));
        let may_appear = [".env", "policy.cedar", "toolgate.yaml"].map(|name| self.folder.join(name));
        let mut files: Vec<PathBuf> = read.chain(may_appear).collect();
        files.retain(|file| Some(file) != tools.as_ref() && Some(file) != servers.as_ref());
        files.sort();
        files.dedup();
        files
    }
}

/// Returns a callback that applies the state of the registry to a runtime.
pub(crate) fn publish_to(runtime: &Arc<Runtime>, events: &EventHandler) -> PublishFn {
    let (runtime, events) = (Arc::clone(runtime), Arc::clone(events));
    Arc::new(move |state| {
        let (runtime, events) = (Arc::clone(&runtime), Arc::clone(&events));
        async move {
            let CheckedRegistry { tools, settings, servers, apis, profiles, secrets, .. } =
                (*state.checked).clone();
            if !secrets.is_empty() {
                // Before anything can print them.
                events(AppEvent::NewSecrets(&secrets));
            }
            runtime.add_secrets(&secrets);
            runtime.set_profiles(profiles);
            runtime.replace(tools, settings, servers, apis).await;
        }
        .boxed()
    })
}

/// The process that makes a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeRoute {
    /// The running gateway of the project.
    Gateway,
    /// This process, directly on the files.
    Files,
}

impl ChangeRoute {
    /// Returns the name in documents.
    pub fn label(self) -> &'static str {
        match self {
            Self::Gateway => "server",
            Self::Files => "files",
        }
    }
}

/// A rejected change.
#[derive(Debug)]
pub struct RejectedChange {
    /// Error code, as in the REST API.
    pub code: String,
    pub message: String,
    pub problems: Vec<RegistryProblem>,
    /// Actual revision, if it is not the expected one.
    pub revision: Option<String>,
}

/// No route to make a change works.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The structure of a file does not allow changes.
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("the registry was closed")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ProjectFiles {
    /// Makes a change: through the running gateway of the project, otherwise directly on the files. Blocks, and must
    /// not be called in an async task.
    ///
    /// # Errors
    /// If the gateway does not respond, or a file cannot be changed at all. A rejected change is not an error.
    pub fn submit(
        self,
        change: RegistryChange,
    ) -> Result<(ChangeRoute, Result<CommittedChange, RejectedChange>), SubmitError> {
        let state = self.state_folder();
        if state.socket().exists() {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            if let Some(outcome) = tokio.block_on(socket::submit_change(&state, &change))? {
                return Ok((ChangeRoute::Gateway, outcome));
            }
        }
        // Only files and a queue: without an I/O driver, no failing write can lose a wakeup.
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let name = change.op.name.clone();
        let outcome = tokio.block_on(self.apply_change(change))?;
        Ok((ChangeRoute::Files, outcome.map_err(|error| RejectedChange::new(&error, &name))))
    }

    async fn apply_change(
        self,
        change: RegistryChange,
    ) -> Result<Result<CommittedChange, ChangeError>, SubmitError> {
        let no_listener: PublishFn = Arc::new(|_| async {}.boxed());
        let OpenRegistry { registry, actor, .. } = match OpenRegistry::open(self, no_listener).await {
            Ok(opened) => opened,
            Err(OpenError::Refused(problems)) => return Ok(Err(ChangeError::FilesRejected(problems))),
            Err(OpenError::Unavailable(error)) => return Ok(Err(ChangeError::Unavailable(error))),
            Err(OpenError::Document(error)) => return Err(error.into()),
        };
        tokio::select! {
            outcome = registry.submit(change) => Ok(outcome),
            () = actor.run() => Err(SubmitError::Closed),
        }
    }
}

impl RejectedChange {
    fn new(error: &ChangeError, name: &str) -> Self {
        let problems = match error {
            ChangeError::Invalid(RegistryProblems(problems))
            | ChangeError::FilesRejected(RegistryProblems(problems)) => problems.clone(),
            ChangeError::Unavailable(error) => {
                vec![RegistryProblem { message: error.0.to_string(), place: None, hint: None }]
            }
            _ => Vec::new(),
        };
        let message = match error {
            ChangeError::Invalid(_) => format!("`{}` was rejected, and nothing was changed", printable(name)),
            ChangeError::FilesRejected(_) => {
                "the registry files have errors, and nothing was changed".to_owned()
            }
            error => error.to_string(),
        };
        let revision = match error {
            ChangeError::Conflict { current } => Some(current.to_string()),
            _ => None,
        };
        Self { code: error.code().to_owned(), message, problems, revision }
    }

    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<&'static str> {
        match self.code.as_str() {
            "already_exists" => Some("use `update` to change it"),
            "not_found" => Some("use `add` to create it; entries of the project file are changed there"),
            "conflict" => Some("review the changes, then retry with this revision"),
            "configuration_refused" => Some("run `toolgate check` to see the problems, then fix them"),
            "storage_unavailable" => Some("check the disk and the file permissions; nothing was changed"),
            _ => None,
        }
    }
}
