//! The registry of a project: its files, their validation, the runtime that uses them, and changes of its entries.
//!
//! Used by every front end that changes tools or servers, or keeps running while they change.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use toolgate_config::{Config, ProblemEntry, RegistryPaths, Report, Severity, is_blank, load_with_overlay};
use toolgate_postgres::RegistryStore;
use toolgate_redact::printable;
use toolgate_runtime::Runtime;
use toolgate_store::document::DocumentError;
use toolgate_store::file::{self, FileStore};
use toolgate_store::registry::{
    ChangeError, CheckFn, CheckInput, CheckedRegistry, CommittedChange, OpenError, ProjectContent, PublishFn,
    Registry, RegistryActor, RegistryChange, RegistryProblem, RegistryProblems,
};
use toolgate_store::store::RegistrySources;

use crate::event::{AppEvent, EventHandler};
use crate::project::{LoadedSources, ProjectFiles, written_files};
use crate::reload::ReloadTarget;
use crate::socket::{self, SocketError};

/// Bytes of a project file that are read, as in `toolgate-config`.
const MAX_PROJECT_FILE: u64 = 64 << 20;

/// The queue of changes, on the store that the project has.
enum StoreActor {
    Files(RegistryActor<FileStore>),
    Cluster(Box<RegistryActor<RegistryStore>>),
}

impl StoreActor {
    async fn run(self) {
        match self {
            Self::Files(actor) => actor.run().await,
            Self::Cluster(actor) => actor.run().await,
        }
    }
}

/// A registry whose states go to a runtime.
pub struct OpenRegistry {
    registry: Registry,
    actor: StoreActor,
    publish: PublishFn,
}

impl OpenRegistry {
    /// Opens the registry. A project that was checked is not checked again if its files are still the same.
    pub(crate) async fn open(
        files: ProjectFiles,
        checked: Option<CheckedProject>,
        publish: PublishFn,
    ) -> Result<Self, OpenError> {
        let RegistryPaths { tools, servers } = files.registries.clone();
        let cluster = files.cluster.clone();
        let (registry, actor) = match cluster {
            None => {
                let store = FileStore::open(file::RegistryPaths { tools, servers }).await?;
                let opened = Registry::open(store, files.validator(checked), Arc::clone(&publish)).await?;
                (opened.0, StoreActor::Files(opened.1))
            }
            Some(cluster) => {
                let store = RegistryStore::open(cluster.database, tools.is_some(), servers.is_some());
                let opened = Registry::open(store, files.validator(checked), Arc::clone(&publish)).await?;
                (opened.0, StoreActor::Cluster(Box::new(opened.1)))
            }
        };
        Ok(Self { registry, actor, publish })
    }

    /// Returns a handle for changes.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Puts the files to use as they are now. Includes edits made since the project was loaded.
    pub fn publish(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            (self.publish)(self.registry.state()).await;
        })
    }

    /// Applies changes, and follows edits of the files, until it is dropped.
    pub fn run(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Without a handle, the actor ends.
            let Self { registry: _handle, actor, .. } = self;
            actor.run().await;
        })
    }
}

/// A project that was loaded and is valid.
pub(crate) struct CheckedProject {
    registry: CheckedRegistry,
    sources: LoadedSources,
}

impl ProjectFiles {
    /// Returns the registry of a project that was just loaded.
    pub(crate) fn checked_project(&self, config: &Config, sources: LoadedSources) -> CheckedProject {
        let registry = CheckedRegistry {
            tools: config.tools.clone(),
            settings: config.tool_settings.clone(),
            servers: config.servers.clone(),
            apis: config.apis.clone(),
            profiles: Arc::clone(&config.profiles),
            secrets: config.secrets.clone(),
            variables: config.variables.keys().cloned().collect(),
            other_files: self.other_files(&sources.0),
            notes: self.problems(&sources.0, Severity::Warning, true),
            project: ProjectContent::new(Arc::new(config.clone())),
        };
        CheckedProject { registry, sources }
    }

    /// Returns true if every file of the project still has the text it was loaded from, and no file has appeared.
    fn is_unchanged(&self, project: &CheckedProject, texts: &RegistrySources) -> bool {
        let RegistryPaths { tools, servers } = &self.registries;
        let read = project.sources.0.sources();
        let has_text = |path: &Path, text: Option<&str>| match (
            read.iter().find(|source| source.path() == Some(path)),
            text,
        ) {
            (Some(source), Some(text)) => source.has_text(text),
            (source, text) => source.is_none() && text.is_none(),
        };
        let registries = [(tools, &texts.tools), (servers, &texts.servers)];
        let mut registries = registries.into_iter().filter_map(|(path, text)| Some((path.as_ref()?, text)));
        registries.all(|(path, text)| has_text(path, text.as_deref()))
            && project.registry.other_files.iter().all(|path| {
                // The paths of the sources are absolute.
                let path = &std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let text = toolgate_state::read_regular(path, MAX_PROJECT_FILE).ok();
                has_text(path, text.as_deref().map(String::from_utf8_lossy).as_deref())
            })
    }

    /// Validates the whole project with candidate texts in place of the registry files. The first result is that of
    /// `checked`, if the files are still the same.
    fn validator(self, checked: Option<CheckedProject>) -> CheckFn {
        let checked = Mutex::new(checked);
        // Files that have had contents: an editor may empty or remove them while it writes.
        let written = Mutex::new(self.written.clone());
        Arc::new(move |candidate: CheckInput<'_>| {
            let CheckInput { texts, whole } = candidate;
            let checked = checked.lock().take();
            if let Some(project) = checked.filter(|project| whole && self.is_unchanged(project, texts)) {
                return Ok(project.registry);
            }
            let RegistryPaths { tools, servers } = &self.registries;
            let texts: BTreeMap<PathBuf, Arc<str>> = [(tools, &texts.tools), (servers, &texts.servers)]
                .into_iter()
                .filter_map(|(path, text)| Some((path.clone()?, text.clone()?)))
                .collect();
            let loaded = load_with_overlay(&self.folder, self.file.as_deref(), &self.environment, texts);
            if let Some(problem) = emptied_file(&written.lock(), &loaded.report) {
                return Err(RegistryProblems(vec![problem]));
            }
            let problems = |severity| self.problems(&loaded.report, severity, whole);
            let Some(config) = loaded.config else { return Err(RegistryProblems(problems(Severity::Error))) };
            self.check_gateway_parts(&config).map_err(|problem| RegistryProblems(vec![problem]))?;
            let project = ProjectContent::new(Arc::new(config.clone()));
            let mut written = written.lock();
            for path in written_files(&loaded.report) {
                if !written.contains(&path) {
                    written.push(path);
                }
            }
            drop(written);
            Ok(CheckedRegistry {
                project,
                tools: config.tools,
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

/// Reports a project file that is missing or has no content now: without this, everything in it would be removed.
fn emptied_file(written: &[PathBuf], report: &Report) -> Option<RegistryProblem> {
    let is_emptied = |path: &&PathBuf| {
        let read = report.sources().iter().find(|source| source.path() == Some(path.as_path()));
        match read {
            // The text that was loaded: by now, the file may be written again.
            Some(source) => source.is_blank(),
            None => match toolgate_state::read_regular(path, MAX_PROJECT_FILE) {
                Ok(text) => is_blank(&String::from_utf8_lossy(&text)),
                Err(_) => true,
            },
        }
    };
    let path = written.iter().find(is_emptied)?;
    Some(RegistryProblem {
        message: format!(
            "`{}` has no content or is missing; the previous state stays in use",
            path.display()
        ),
        place: None,
        hint: Some("write the file again, or restart to use the project without it".to_owned()),
    })
}

/// Returns a callback that applies the state of the registry to a runtime.
pub(crate) fn publish_to(
    runtime: &Arc<Runtime>,
    reload: &Arc<ReloadTarget>,
    events: &EventHandler,
) -> PublishFn {
    let (runtime, reload, events) = (Arc::clone(runtime), Arc::clone(reload), Arc::clone(events));
    Arc::new(move |state| {
        let (runtime, reload, events) = (Arc::clone(&runtime), Arc::clone(&reload), Arc::clone(&events));
        async move {
            let CheckedRegistry { tools, settings, servers, apis, profiles, secrets, project, .. } =
                (*state.checked).clone();
            if !secrets.is_empty() {
                // Before anything can print them.
                events(AppEvent::NewSecrets(&secrets));
            }
            runtime.add_secrets(&secrets);
            if let Some(config) = project.get::<Config>() {
                reload.apply(&config, &runtime, &events);
            }
            reload.announce_registry(state.rev);
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
    /// The files of one replica are not those of the cluster.
    #[error(
        "this project is a cluster, and no gateway runs here; start `toolgate serve`, or change the files and run `toolgate cluster push`"
    )]
    NoGateway,
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
        let is_cluster = self.is_cluster;
        if state.path().exists() {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            if let Some(outcome) = tokio.block_on(socket::submit_change(&state, &change))? {
                return Ok((ChangeRoute::Gateway, outcome));
            }
        }
        if is_cluster {
            return Err(SubmitError::NoGateway);
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
        let OpenRegistry { registry, actor, .. } = match OpenRegistry::open(self, None, no_listener).await {
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

#[cfg(test)]
mod tests {
    use toolgate_config::Environment;

    use super::*;
    use crate::project::Project;

    const TOOL: &str = r#"{ "tools": [{ "name": "a", "description": "A.", "inputSchema": { "type": "object" }, "script_path": "a.py" }] }"#;

    /// Loads a project, lets `edit` change it, and opens its registry. Returns the loaded and the registered tools.
    async fn open_after(edit: impl FnOnce(&Path)) -> [Vec<Arc<toolgate_types::ToolDefinition>>; 2] {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs_err::write(folder.path().join(name), text).unwrap();
        write("toolgate.yaml", "registries: { tools: tools.json }\n");
        write("a.py", "def run(): pass\n");
        write("tools.json", TOOL);
        let Project { config, files, sources } =
            Project::load(folder.path(), None, Environment::default()).unwrap();
        let checked = files.checked_project(&config, sources);
        edit(folder.path());
        let publish: PublishFn = Arc::new(|_| async {}.boxed());
        let opened = OpenRegistry::open(files, Some(checked), publish).await.unwrap();
        [config.tools, opened.registry().state().checked.tools.clone()]
    }

    #[tokio::test]
    async fn an_unchanged_project_is_checked_once() {
        let [loaded, registered] = open_after(|_| {}).await;
        assert!(Arc::ptr_eq(&loaded[0], &registered[0]));
    }

    #[tokio::test]
    async fn edits_since_the_load_are_seen() {
        let [_, registered] = open_after(|folder| {
            fs_err::write(folder.join("tools.json"), TOOL.replace("A.", "B.")).unwrap();
        })
        .await;
        assert_eq!(registered[0].description, "B.");
        let edit = |name: &'static str, text: &'static str| {
            open_after(move |folder| fs_err::write(folder.join(name), text).unwrap())
        };
        for (name, text) in
            [("toolgate.yaml", "registries: { tools: tools.json }\nname: x\n"), (".env", "A=1\n")]
        {
            let [loaded, registered] = edit(name, text).await;
            assert!(!Arc::ptr_eq(&loaded[0], &registered[0]), "{name}");
        }
    }
}
