//! The checked configuration: the one form that every dialect becomes.
//!
//! Invariant: whoever holds a `Config` holds a good one. It knows no dialect and no default is left
//! to be worked out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use toolgate_policy::Rules;
use toolgate_types::door::CertificateMatch;
use toolgate_types::limits::ResultLimits;
use toolgate_types::telemetry::Collector;
use toolgate_types::{
    AgentRules, ApiSpec, AuditRules, BuiltinRules, Caller, CallerId, DoorRules, EgressRules, KeyHash, Limits,
    Profiles, Secret, ServerSpec, ToolDefinition, ToolSettings,
};

/// A checked project.
#[derive(Debug, Clone, Serialize)]
pub struct Config {
    /// The project folder.
    pub project: PathBuf,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The files it was read from.
    pub files: Vec<String>,
    /// The registries that commands may change.
    #[serde(skip)]
    pub registries: Registries,
    /// Limits over all tools.
    pub limits: Limits,
    /// MCP servers, in the order of the files.
    pub servers: Vec<ServerSpec>,
    /// HTTP APIs, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apis: Vec<ApiSpec>,
    /// The project's own tools.
    pub tools: Vec<ToolDefinition>,
    /// What the operator says about single tools.
    pub tool_settings: Vec<ToolSettings>,
    /// Who may call tools, in the order of the file. Whether there is an `owner` is up to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Caller>,
    /// What callers are for, where it is said.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub caller_descriptions: BTreeMap<CallerId, String>,
    /// By which keys callers are known. A caller may have more than one. Only who has one is shown.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "who")]
    pub caller_keys: Vec<(CallerId, KeyHash)>,
    /// By which certificates callers are known, which are no secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caller_certificates: Vec<(CallerId, CertificateMatch)>,
    /// How the door is kept.
    #[serde(skip_serializing_if = "is_default")]
    pub serve: DoorRules,
    /// The rules beside the permissions, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyFile>,
    /// What must not leave.
    #[serde(skip_serializing_if = "EgressRules::is_off")]
    pub egress: EgressRules,
    /// What happens to results that are too large; without it all are given whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<ResultLimits>,
    /// Which of the tools that Toolgate brings along there are.
    #[serde(flatten)]
    pub builtins: BuiltinRules,
    /// What the agent is made of.
    #[serde(skip_serializing_if = "AgentRules::is_default")]
    pub agent: AgentRules,
    /// Where traces of calls go, where they go anywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Collector>,
    /// How the execution log is kept.
    #[serde(skip_serializing_if = "AuditRules::is_default")]
    pub audit: AuditRules,
    /// Views of what there is, and who uses which.
    #[serde(skip_serializing_if = "no_profiles")]
    pub profiles: Arc<Profiles>,
    /// Every secret in it, so that none is shown by whoever uses it.
    #[serde(skip)]
    pub secrets: Vec<Secret>,
    /// What a person is asked for when servers start.
    pub inputs: Vec<InputSpec>,
    /// The variables that the files refer to, and where each was found.
    pub variables: BTreeMap<String, String>,
    /// Where each value came from, for those that were written: `servers.github.mode` →
    /// `mcp.json:4:7`. What is not here is a default.
    pub origins: BTreeMap<String, String>,
}

fn who<S: serde::Serializer>(keys: &[(CallerId, KeyHash)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().map(|(id, _)| id))
}

fn no_profiles(profiles: &Profiles) -> bool {
    *profiles == Profiles::default()
}

fn is_default(rules: &DoorRules) -> bool {
    *rules == DoorRules::default()
}

/// The files that commands may change, where the project has them. They need not be there yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registries {
    /// The project's own tools.
    pub tools: Option<PathBuf>,
    /// MCP servers, in JSON.
    pub servers: Option<PathBuf>,
}

/// The rules of a project: parsed, and checked against the types of a call.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyFile {
    /// The file, as seen from the project folder where it is inside.
    pub path: String,
    /// What tells these rules from any others.
    pub version: String,
    /// The rules.
    #[serde(skip)]
    pub rules: Rules,
}

/// Something a person is asked for when servers start.
#[derive(Debug, Clone, Serialize)]
pub struct InputSpec {
    /// What `${input:ID}` refers to.
    pub id: String,
    /// The question.
    pub description: String,
    /// Whether the answer is hidden while it is typed.
    pub password: bool,
    /// The answers to choose from; any text where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Whether it is answered already: by its variable or its default.
    pub answered: bool,
}

impl InputSpec {
    /// The environment variable that answers it.
    pub fn variable(&self) -> String {
        variable_of_input(&self.id)
    }
}

pub(crate) fn variable_of_input(id: &str) -> String {
    format!("TOOLGATE_INPUT_{}", id.to_uppercase().replace(|c: char| !c.is_alphanumeric(), "_"))
}
