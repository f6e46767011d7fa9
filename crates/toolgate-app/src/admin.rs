//! The files of a project, as the gateway reads and changes them over HTTP: the policy, and pasted configurations.
//!
//! Uses the functions of `toolgate plan`, `policy test` and `import`. Invariant: the policy is checked together with the
//! rest of the project, and replaced atomically; the text that it replaces is kept.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use toolgate_config::{
    Config, LoadOutcome, ProblemEntry, Severity, is_blank, load_with_overlay, parse_servers,
};
use toolgate_policy::rules::text_version;
use toolgate_server::project::{
    CandidateAccess, CheckedPolicy, PastedServers, PolicyText, PolicyVersion, PolicyWriteError,
    ProjectProblem, ProjectService,
};
use toolgate_state::{StateDir, read_regular};
use toolgate_store::document::EntryKind;
use toolgate_store::file::disk::RealDisk;
use toolgate_store::file::{RegistryFiles, RegistryPaths};
use toolgate_store::registry::Registry;

use crate::project::ProjectFiles;

/// Policy of a project that names none.
const DEFAULT_POLICY: &str = "policy.cedar";
/// Bytes of a policy that are read.
const MAX_POLICY_BYTES: u64 = 4 << 20;
/// Folder of replaced policies, below `.toolgate`.
const VERSIONS_FOLDER: &str = "policies";
/// Replaced policies that are kept.
const MAX_VERSIONS: usize = 50;

/// Replaces a file atomically, if it still has the text `before`. Writes through a symbolic link.
///
/// # Errors
/// If the file was changed meanwhile, or cannot be written.
pub fn replace_file(path: &Path, before: Option<&str>, text: &str) -> io::Result<()> {
    let real = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // It replaces files of any content.
    let paths = RegistryPaths { tools: None, servers: Some(real) };
    RegistryFiles::open(RealDisk, paths)?.overwrite(EntryKind::Server, before, text)
}

/// The files of a project with a registry.
pub(crate) struct ProjectAdmin {
    files: ProjectFiles,
    registry: Registry,
}

impl ProjectAdmin {
    pub(crate) fn new(files: ProjectFiles, registry: Registry) -> Self {
        Self { files, registry }
    }

    /// The configuration in use.
    fn config(&self) -> Option<Arc<Config>> {
        self.registry.state().checked.project.get::<Config>()
    }

    /// Name and path of the policy.
    fn policy_file(&self) -> (String, PathBuf) {
        let config = self.config();
        let named = config.as_ref().and_then(|config| Some(config.policy.as_ref()?.path.clone()));
        let name = named.unwrap_or_else(|| DEFAULT_POLICY.to_owned());
        let folder = config.map_or_else(|| self.files.folder().to_owned(), |config| config.project.clone());
        let path = folder.join(&name);
        (name, path)
    }

    /// Reads the policy; `None` if there is no file.
    fn read(path: &Path) -> io::Result<Option<String>> {
        match read_regular(path, MAX_POLICY_BYTES) {
            Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn versions_folder(&self) -> PathBuf {
        self.files.state_folder().path().join(VERSIONS_FOLDER)
    }

    /// Keeps a text that is replaced, and removes the oldest ones.
    fn keep_version(&self, version: &PolicyVersion) -> io::Result<()> {
        let folder = StateDir::create(&self.versions_folder())?;
        let name = format!("{}.json", version.at.replace(':', "-"));
        folder.replace(&name, &serde_json::to_vec(version)?)?;
        let mut names = version_names(&folder)?;
        let surplus = names.len().saturating_sub(MAX_VERSIONS);
        names.drain(..surplus).try_for_each(|name| folder.remove(&name))
    }
}

/// Names of the files of replaced policies, oldest first.
fn version_names(folder: &StateDir) -> io::Result<Vec<String>> {
    let mut names = folder.names()?;
    names.retain(|name| name.ends_with(".json"));
    names.sort();
    Ok(names)
}

fn problem(entry: ProblemEntry) -> ProjectProblem {
    let ProblemEntry { severity, message, file, line, column, hint } = entry;
    let severity = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    ProjectProblem { severity, message, file, line, column, hint }
}

impl ProjectService for ProjectAdmin {
    fn read_policy(&self) -> io::Result<PolicyText> {
        let (file, path) = self.policy_file();
        let text = Self::read(&path)?;
        let exists = text.is_some();
        let text = text.unwrap_or_default();
        Ok(PolicyText { file, hash: text_version(&text), text, exists })
    }

    fn check_policy(&self, text: &str) -> CheckedPolicy {
        let (file, path) = self.policy_file();
        let error = |message: String, hint: &str| ProjectProblem {
            severity: "error",
            message,
            file: Some(file.clone()),
            line: None,
            column: None,
            hint: Some(hint.to_owned()),
        };
        if is_blank(text) {
            let hint = "keep one rule; to have none, remove the file and restart the gateway";
            let problems = vec![error("the policy has no rules".to_owned(), hint)];
            return CheckedPolicy { problems, access: None };
        }
        let texts = BTreeMap::from([(path, Arc::from(text))]);
        let ProjectFiles { folder, file: project_file, environment, .. } = &self.files;
        let LoadOutcome { config, report } =
            load_with_overlay(folder, project_file.as_deref(), environment, texts);
        let mut problems: Vec<_> = report.entries().into_iter().map(problem).collect();
        // Warnings about the rest of the project were there before.
        problems.retain(|problem| problem.severity == "error" || problem.file.as_ref() == Some(&file));
        let access = config.and_then(|config| {
            let policy = config.policy.as_ref()?;
            Some(CandidateAccess {
                version: policy.version.clone(),
                rule_count: policy.rules.rule_count(),
                rules: self.files.access_rules(&config),
                profiles: Arc::clone(&config.profiles),
                groups: config.groups.clone(),
            })
        });
        let is_used = access.as_ref().is_none_or(|access| access.version == text_version(text));
        if is_used {
            return CheckedPolicy { problems, access };
        }
        // The project file was edited, and its edit is not in use yet.
        problems.push(error("the project uses another policy".to_owned(), "try again in a moment"));
        CheckedPolicy { problems, access: None }
    }

    fn write_policy(&self, text: &str, expected: Option<&str>, author: &str) -> Result<(), PolicyWriteError> {
        let (_, path) = self.policy_file();
        let before = Self::read(&path)?;
        let current = text_version(before.as_deref().unwrap_or_default());
        if expected.is_some_and(|expected| expected != current) {
            return Err(PolicyWriteError::Conflict { current });
        }
        let CheckedPolicy { problems, access } = self.check_policy(text);
        if access.is_none() {
            return Err(PolicyWriteError::Invalid(problems));
        }
        if before.as_deref() == Some(text) {
            return Ok(());
        }
        if let Some(before) = &before {
            let at = format!("{:.3}", Timestamp::now());
            let (by, text) = (author.to_owned(), before.clone());
            self.keep_version(&PolicyVersion { hash: current, at, by, text })?;
        }
        replace_file(&path, before.as_deref(), text).map_err(|error| match Self::read(&path) {
            Ok(now) if now != before => {
                PolicyWriteError::Conflict { current: text_version(now.as_deref().unwrap_or_default()) }
            }
            _ => error.into(),
        })
    }

    fn policy_versions(&self) -> io::Result<Vec<PolicyVersion>> {
        #[derive(Deserialize)]
        struct StoredVersion {
            hash: String,
            at: String,
            by: String,
            text: String,
        }
        let folder = match StateDir::open(&self.versions_folder()) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut versions = Vec::new();
        for name in version_names(&folder)?.iter().rev() {
            let bytes = folder.read(name, MAX_POLICY_BYTES * 2)?;
            let StoredVersion { hash, at, by, text } = serde_json::from_slice(&bytes)?;
            versions.push(PolicyVersion { hash, at, by, text });
        }
        Ok(versions)
    }

    fn parse_servers(&self, text: &str) -> PastedServers {
        let (servers, report) = parse_servers(text, self.files.folder(), &self.files.environment);
        let servers = servers.into_iter();
        let servers =
            servers.filter_map(|server| Some((server.name, server.entry.as_object()?.clone()))).collect();
        PastedServers { servers, problems: report.entries().into_iter().map(problem).collect() }
    }

    fn registry_file(&self, kind: EntryKind) -> Option<String> {
        let path = match kind {
            EntryKind::Tool => self.files.registries.tools.as_ref()?,
            EntryKind::Server => self.files.registries.servers.as_ref()?,
        };
        let folder = self.config().map(|config| config.project.clone());
        let relative = folder.and_then(|folder| path.strip_prefix(folder).ok().map(Path::to_owned));
        Some(relative.as_deref().unwrap_or(path).display().to_string())
    }
}
