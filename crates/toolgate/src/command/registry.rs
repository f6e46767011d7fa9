//! The registry of a project: the location of its files, their validation, and the runtime that uses them.
//!
//! Used by every command that changes tools or servers, or keeps running while they change.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use toolgate_config::{Environment, ProblemEntry, RegistryPaths, Report, Severity, load_with_overlay};
use toolgate_runtime::Runtime;
use toolgate_store::file::{self, FileStore};
use toolgate_store::registry::{
    CheckFn, CheckInput, CheckedRegistry, OpenError, PublishFn, Registry, RegistryActor, RegistryProblem,
    RegistryProblems,
};

use crate::cli::ProjectArgs;
use crate::output::Output;

/// Inputs of the configuration, beside the text of the registry files.
#[derive(Debug, Clone)]
pub(crate) struct ProjectFiles {
    folder: PathBuf,
    file: Option<PathBuf>,
    environment: Environment,
    pub(crate) registries: RegistryPaths,
}

impl ProjectFiles {
    pub(crate) fn new(project: &ProjectArgs, environment: Environment, registries: RegistryPaths) -> Self {
        let ProjectArgs { folder, file } = project;
        Self { folder: folder.clone(), file: file.clone(), environment, registries }
    }

    /// Opens the registry. The caller must run the actor; `publish` is called with every new state.
    pub(crate) async fn open(
        self,
        publish: PublishFn,
    ) -> Result<(Registry, RegistryActor<FileStore>), OpenError> {
        let RegistryPaths { tools, servers } = self.registries.clone();
        let store = FileStore::open(file::RegistryPaths { tools, servers }).await?;
        Registry::open(store, self.validator(), publish).await
    }

    /// Opens the registry for a runtime and publishes the current files to it. On failure, prints a message and leaves
    /// the runtime as it is.
    pub(crate) async fn open_for(
        self,
        runtime: &Arc<Runtime>,
        output: &Output,
    ) -> Option<(Registry, RegistryActor<FileStore>)> {
        let publish = publish_to(runtime, output);
        match self.open(Arc::clone(&publish)).await {
            Ok((registry, actor)) => {
                // Includes edits made since the project was loaded.
                publish(registry.state()).await;
                Some((registry, actor))
            }
            Err(error) => {
                output.message(&format!("file changes are ignored: {error}\n"));
                None
            }
        }
    }

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
pub(crate) fn publish_to(runtime: &Arc<Runtime>, output: &Output) -> PublishFn {
    let (runtime, hidden) = (Arc::clone(runtime), output.mask_handle());
    Arc::new(move |state| {
        let (runtime, hidden) = (Arc::clone(&runtime), hidden.clone());
        async move {
            let CheckedRegistry { tools, settings, servers, apis, profiles, secrets, .. } =
                (*state.checked).clone();
            // Before anything can print them.
            hidden.add(&secrets);
            runtime.add_secrets(&secrets);
            runtime.set_profiles(profiles);
            runtime.replace(tools, settings, servers, apis).await;
        }
        .boxed()
    })
}
