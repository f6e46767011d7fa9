//! Interface between the gateway and the files of its project: its policy, and configurations to import.
//!
//! This crate does not know file formats; the crate that wires the gateway connects the two. Invariant: a text is checked
//! together with the rest of the project before it is written, and is written only over the text that its author saw.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value as Json};
use toolgate_runtime::access_diff::AccessView;
use toolgate_runtime::runtime::AccessRules;
use toolgate_store::document::EntryKind;
use toolgate_types::{Group, Profiles};

use std::sync::Arc;

/// The policy file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyText {
    /// Path of the file, relative to the project folder if inside it.
    pub file: String,
    /// Empty if there is no file.
    pub text: String,
    /// Version of this text, as decisions name it.
    pub hash: String,
    pub exists: bool,
}

/// A problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProjectProblem {
    /// `error`, `warning` or `note`.
    pub severity: &'static str,
    pub message: String,
    pub file: Option<String>,
    /// From 1.
    pub line: Option<usize>,
    /// From 1, in characters.
    pub column: Option<usize>,
    pub hint: Option<String>,
}

/// A policy that was checked with the rest of the project.
pub struct CheckedPolicy {
    pub problems: Vec<ProjectProblem>,
    /// Access under the policy; `None` if it has errors.
    pub access: Option<CandidateAccess>,
}

/// Everything that decides about tools, with a policy that is not in use.
pub struct CandidateAccess {
    pub version: String,
    pub rule_count: usize,
    pub rules: AccessRules,
    pub profiles: Arc<Profiles>,
    pub groups: Vec<Arc<Group>>,
}

impl CandidateAccess {
    pub fn view(&self) -> AccessView<'_> {
        AccessView { rules: &self.rules, profiles: &self.profiles, groups: &self.groups }
    }
}

/// A policy was not written.
#[derive(Debug, thiserror::Error)]
pub enum PolicyWriteError {
    /// The file has another text than the author saw.
    #[error("the policy has changed: its hash is {current}")]
    Conflict { current: String },
    /// The text, or the project with it, has errors.
    #[error("the policy was rejected, and nothing was changed")]
    Invalid(Vec<ProjectProblem>),
    #[error("the policy cannot be written")]
    Io(#[from] io::Error),
}

/// A policy text that another one replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyVersion {
    pub hash: String,
    /// Time of its replacement.
    pub at: String,
    /// Id of the caller that replaced it.
    pub by: String,
    pub text: String,
}

/// Servers of a pasted configuration.
pub struct PastedServers {
    /// Names and entries, with references unresolved.
    pub servers: Vec<(String, Map<String, Json>)>,
    /// Skipped entries and keys.
    pub problems: Vec<ProjectProblem>,
}

/// The files of a project. Operations block.
pub trait ProjectService: Send + Sync + 'static {
    /// Reads the policy.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read_policy(&self) -> io::Result<PolicyText>;

    /// Checks the project with another policy.
    fn check_policy(&self, text: &str) -> CheckedPolicy;

    /// Checks and writes the policy. `expected` is the hash of the text that the author saw.
    ///
    /// # Errors
    /// If the text is invalid or was changed meanwhile, or the file cannot be written.
    fn write_policy(&self, text: &str, expected: Option<&str>, author: &str) -> Result<(), PolicyWriteError>;

    /// Lists the policies that were replaced through [`Self::write_policy`], newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn policy_versions(&self) -> io::Result<Vec<PolicyVersion>>;

    /// Reads the servers of a configuration of any dialect. Nothing is written, and no file is read.
    fn parse_servers(&self, text: &str) -> PastedServers;

    /// Path of a registry file, relative to the project folder if inside it.
    fn registry_file(&self, kind: EntryKind) -> Option<String>;
}
