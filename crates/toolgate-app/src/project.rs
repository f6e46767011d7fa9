//! A project on disk: its configuration, the files it was read from, and the folder for its state.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolgate_config::{
    Config, Environment, LoadOutcome, ProblemEntry, RegistryPaths, Report, Severity, load, load_with_overlay,
};
use toolgate_runtime::pins::LockFile;
use toolgate_state::is_writable_by_others;
use toolgate_store::callers::{CallerFile, CallerStore};
use toolgate_store::cluster::CallerDocument;

use crate::cluster::Cluster;

/// A loaded project.
#[derive(Debug, Clone)]
pub struct Project {
    pub config: Config,
    pub files: ProjectFiles,
    /// The files that the configuration was read from.
    pub(crate) sources: LoadedSources,
}

/// The inputs of a configuration, to read it again when they change.
#[derive(Debug, Clone)]
pub struct ProjectFiles {
    pub(crate) folder: PathBuf,
    pub(crate) file: Option<PathBuf>,
    pub(crate) environment: Environment,
    /// Registry files that commands may change.
    pub registries: RegistryPaths,
    /// Files and folders that other users can change.
    pub(crate) exposed: Vec<PathBuf>,
    /// Files that had contents when the project was loaded. An editor may empty or remove them while it writes.
    pub(crate) written: Vec<PathBuf>,
    /// True if the project is a replica of a cluster.
    pub(crate) is_cluster: bool,
    /// The cluster, once the gateway has joined it.
    pub(crate) cluster: Option<Cluster>,
}

/// The texts that a configuration was read from, with the warnings about them.
#[derive(Debug, Clone)]
pub(crate) struct LoadedSources(pub(crate) Arc<Report>);

/// The configuration of a project is invalid.
#[derive(Debug, thiserror::Error)]
pub struct InvalidProject {
    /// All problems, with their positions.
    pub report: Report,
}

impl fmt::Display for InvalidProject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is invalid")?;
        let errors = self.report.entries().into_iter().filter(|entry| entry.severity == Severity::Error);
        for ProblemEntry { message, file, line, .. } in errors {
            write!(f, "\n{message}")?;
            match (file, line) {
                (Some(file), Some(line)) => write!(f, " ({file}:{line})")?,
                (Some(file), None) => write!(f, " ({file})")?,
                (None, _) => {}
            }
        }
        Ok(())
    }
}

impl Project {
    /// Loads the project in a folder. `file` names the project file if it has a non-default name.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn load(
        folder: &Path,
        file: Option<&Path>,
        environment: Environment,
    ) -> Result<Self, InvalidProject> {
        let outcome = load(folder, file, &environment);
        Self::new(folder, file, environment, outcome)
    }

    /// Loads the project again with other texts of some files.
    pub(crate) fn load_with(&self, texts: BTreeMap<PathBuf, Arc<str>>) -> Result<Self, InvalidProject> {
        let ProjectFiles { folder, file, environment, .. } = &self.files;
        let outcome = load_with_overlay(folder, file.as_deref(), environment, texts);
        Self::new(folder, file.as_deref(), environment.clone(), outcome)
    }

    fn new(
        folder: &Path,
        file: Option<&Path>,
        environment: Environment,
        outcome: LoadOutcome,
    ) -> Result<Self, InvalidProject> {
        let LoadOutcome { config, report } = outcome;
        let Some(config) = config else { return Err(InvalidProject { report }) };
        let sources = LoadedSources(Arc::new(report));
        let report = &sources.0;
        let paths = report.sources().iter().filter_map(|source| source.path().map(Path::to_owned));
        let mut exposed: Vec<PathBuf> = paths.filter(|path| is_writable_by_others(path)).collect();
        exposed.extend(exposed_places(&config));
        exposed.sort();
        exposed.dedup();
        let files = ProjectFiles {
            folder: folder.to_owned(),
            file: file.map(Path::to_owned),
            environment,
            registries: config.registries.clone(),
            exposed,
            written: written_files(report),
            is_cluster: config.cluster.is_some(),
            cluster: None,
        };
        Ok(Self { config, files, sources })
    }
}

impl ProjectFiles {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the project file, if it was named.
    pub fn named_file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the store of callers and keys: that of the cluster, else that of the folder.
    pub(crate) fn caller_store(&self) -> Arc<dyn CallerStore> {
        match &self.cluster {
            Some(cluster) => Arc::new(CallerDocument::new(cluster.documents())),
            None => Arc::new(self.state_folder().caller_file()),
        }
    }

    /// Returns the folder for the state of the project.
    pub fn state_folder(&self) -> StateFolder {
        StateFolder::of(&self.folder)
    }
}

/// Returns the project folder and the lock file, if other users can change them. The other files are checked when they are
/// read.
pub(crate) fn exposed_places(config: &Config) -> impl Iterator<Item = PathBuf> + use<> {
    let lock = LockFile::in_project(&config.project).path().to_owned();
    [config.project.clone(), lock].into_iter().filter(|path| is_writable_by_others(path))
}

/// Returns the project files that have contents.
pub(crate) fn written_files(report: &Report) -> Vec<PathBuf> {
    let written = report.sources().iter().filter(|source| !source.is_blank());
    written
        .filter_map(|source| source.path().filter(|path| is_project_file(path)).map(Path::to_owned))
        .collect()
}

/// Returns true for a file whose contents may be empty without a syntax error. Others are rejected when they are read.
fn is_project_file(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| ["yaml", "yml", "toml", "cedar"].iter().any(|own| extension == *own))
}

/// `.toolgate`, the folder for keys, the execution log and the socket of a project. It may not exist yet.
#[derive(Debug, Clone)]
pub struct StateFolder(PathBuf);

impl StateFolder {
    pub fn of(project: &Path) -> Self {
        Self(project.join(".toolgate"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the file with stored callers and keys.
    pub fn caller_file(&self) -> CallerFile {
        CallerFile::new(&self.0)
    }

    /// Returns the store of callers and keys.
    pub fn caller_store(&self) -> Box<dyn CallerStore> {
        Box::new(self.caller_file())
    }

    /// Returns the file with the lines typed in chats.
    pub fn chat_history(&self) -> PathBuf {
        self.0.join("chat_history")
    }
}
