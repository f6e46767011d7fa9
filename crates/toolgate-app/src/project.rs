//! A project on disk: its configuration, the files it was read from, and the folder for its state.

use std::fmt;
use std::path::{Path, PathBuf};

use toolgate_config::{
    Config, Environment, LoadOutcome, ProblemEntry, RegistryPaths, Report, Severity, load,
};
use toolgate_server::keys::KeyStore;

/// A loaded project.
#[derive(Debug, Clone)]
pub struct Project {
    pub config: Config,
    pub files: ProjectFiles,
}

/// The inputs of a configuration, to read it again when they change.
#[derive(Debug, Clone)]
pub struct ProjectFiles {
    pub(crate) folder: PathBuf,
    pub(crate) file: Option<PathBuf>,
    pub(crate) environment: Environment,
    /// Registry files that commands may change.
    pub registries: RegistryPaths,
}

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
        let LoadOutcome { config, report } = load(folder, file, &environment);
        let Some(config) = config else { return Err(InvalidProject { report }) };
        let files = ProjectFiles {
            folder: folder.to_owned(),
            file: file.map(Path::to_owned),
            environment,
            registries: config.registries.clone(),
        };
        Ok(Self { config, files })
    }
}

impl ProjectFiles {
    /// Returns the folder for the state of the project.
    pub fn state_folder(&self) -> StateFolder {
        StateFolder::of(&self.folder)
    }
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

    /// Returns the store of API keys.
    pub fn key_store(&self) -> KeyStore {
        KeyStore::new(&self.0)
    }

    /// Returns the file with the lines typed in chats.
    pub fn chat_history(&self) -> PathBuf {
        self.0.join("chat_history")
    }

    /// Returns the socket for commands to the gateway.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// Returns the file that the gateway locks while it listens for commands.
    pub(crate) fn serve_lock(&self) -> PathBuf {
        self.0.join("serve.lock")
    }
}
