//! The registry of a project: where its files are, how they are checked, and who uses what they say.
//!
//! Every command that changes tools or servers, and every one that goes on while they change, begins here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use toolgate_config::{Environment, ProblemEntry, Registries, Report, Severity, load_over};
use toolgate_runtime::Runtime;
use toolgate_store::file::{FileStore, Paths};
use toolgate_store::registry::{
    Actor, Candidate, Check, Checked, OpenError, Problem, Problems, Publish, Registry,
};

use crate::cli::Project;
use crate::output::Output;

/// What decides what a project means, beside the texts of its registries.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    folder: PathBuf,
    file: Option<PathBuf>,
    environment: Environment,
    pub(crate) registries: Registries,
}

impl Files {
    pub(crate) fn new(project: &Project, environment: Environment, registries: Registries) -> Self {
        let Project { folder, file } = project;
        Self { folder: folder.clone(), file: file.clone(), environment, registries }
    }

    /// Opens the registry. Somebody has to run the actor; `publish` hears of every new state.
    pub(crate) async fn open(self, publish: Publish) -> Result<(Registry, Actor<FileStore>), OpenError> {
        let Registries { tools, servers } = self.registries.clone();
        let store = FileStore::open(Paths { tools, servers }).await?;
        Registry::open(store, self.check(), publish).await
    }

    /// Opens the registry for a runtime, which has then what the files say now. Where that fails it is told, and the
    /// runtime stays as it is.
    pub(crate) async fn open_for(
        self,
        runtime: &Arc<Runtime>,
        output: &Output,
    ) -> Option<(Registry, Actor<FileStore>)> {
        let publish = used_by(runtime, output);
        match self.open(Arc::clone(&publish)).await {
            Ok((registry, actor)) => {
                // What was written since the project was loaded.
                publish(registry.state()).await;
                Some((registry, actor))
            }
            Err(error) => {
                output.message(&format!("changes of the files are not taken over: {error}\n"));
                None
            }
        }
    }

    /// What the project would be, with these texts in the place of its registries.
    fn check(self) -> Check {
        Arc::new(move |candidate: Candidate<'_>| {
            let Candidate { texts, whole } = candidate;
            let Registries { tools, servers } = &self.registries;
            let texts: BTreeMap<PathBuf, Arc<str>> = [(tools, &texts.tools), (servers, &texts.servers)]
                .into_iter()
                .filter_map(|(path, text)| Some((path.clone()?, text.clone()?)))
                .collect();
            let loaded = load_over(&self.folder, self.file.as_deref(), &self.environment, texts);
            let told = |severity| self.told(&loaded.report, severity, whole);
            let Some(config) = loaded.config else { return Err(Problems(told(Severity::Error))) };
            Ok(Checked {
                tools: config.tools.into_iter().map(Arc::new).collect(),
                settings: config.tool_settings,
                servers: config.servers,
                apis: config.apis,
                profiles: config.profiles,
                secrets: config.secrets,
                variables: config.variables.into_keys().collect(),
                beside: self.beside(&loaded.report),
                notes: told(Severity::Warning),
            })
        })
    }

    /// What is wrong. An entry that is not in its file yet has no place there.
    fn told(&self, report: &Report, severity: Severity, whole: bool) -> Vec<Problem> {
        let Registries { tools, servers } = &self.registries;
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
            Problem { message, place, hint }
        };
        report.entries().into_iter().filter(|entry| entry.severity == severity).map(problem).collect()
    }

    /// The files that have a say, beside the registries; those that may appear, too.
    fn beside(&self, report: &Report) -> Vec<PathBuf> {
        let Registries { tools, servers } = &self.registries;
        let read = report.sources().iter().filter_map(|source| source.path().map(ToOwned::to_owned));
        let may_appear = [".env", "policy.cedar", "toolgate.yaml"].map(|name| self.folder.join(name));
        let mut files: Vec<PathBuf> = read.chain(may_appear).collect();
        files.retain(|file| Some(file) != tools.as_ref() && Some(file) != servers.as_ref());
        files.sort();
        files.dedup();
        files
    }
}

/// A runtime that uses what the registry says.
pub(crate) fn used_by(runtime: &Arc<Runtime>, output: &Output) -> Publish {
    let (runtime, hidden) = (Arc::clone(runtime), output.hidden());
    Arc::new(move |state| {
        let (runtime, hidden) = (Arc::clone(&runtime), hidden.clone());
        async move {
            let Checked { tools, settings, servers, apis, profiles, secrets, .. } = (*state.checked).clone();
            // Before anything can show them.
            hidden.add(&secrets);
            runtime.learn(&secrets);
            runtime.show(profiles);
            runtime.replace(tools, settings, servers, apis).await;
        }
        .boxed()
    })
}
