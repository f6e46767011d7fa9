//! The checked configuration, independent of the dialect it was written in.
//!
//! Invariant: a `Config` is valid, and every default in it is filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use toolgate_types::limits::ResultLimits;
use toolgate_types::serve::CertificateMatch;
use toolgate_types::telemetry::OtlpCollector;
use toolgate_types::{
    AgentConfig, ApiSpec, BuiltinConfig, CallLimits, Caller, CallerId, EgressConfig, Group, KeyHash,
    Profiles, Secret, ServeConfig, ServerSpec, ToolDefinition, ToolSettings,
};

use crate::feature::audit::AuditConfig;
use crate::feature::cluster::ClusterConfig;
use crate::feature::credentials::CredentialKey;
use crate::feature::inputs::InputSpec;
use crate::feature::policy::PolicyFile;
use crate::feature::registries::RegistryPaths;

/// A checked project.
#[derive(Debug, Clone, Serialize)]
pub struct Config {
    /// The project folder.
    pub project: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Purpose of the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Files the configuration was read from.
    pub files: Vec<String>,
    /// Registry files that commands may change.
    #[serde(skip)]
    pub registries: RegistryPaths,
    /// Limits over all tools.
    pub limits: CallLimits,
    /// MCP servers, in file order.
    pub servers: Vec<ServerSpec>,
    /// HTTP APIs, in file order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apis: Vec<ApiSpec>,
    /// The project's own tools.
    pub tools: Vec<Arc<ToolDefinition>>,
    /// Operator's settings for single tools.
    pub tool_settings: Vec<ToolSettings>,
    /// Groups of callers, in file order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Arc<Group>>,
    /// Callers, in file order. Contains `owner` only if the file does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Caller>,
    /// Descriptions of callers that have one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub caller_descriptions: BTreeMap<CallerId, String>,
    /// Hashed API keys of callers; a caller may have several. Serialised as caller ids only.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize_caller_ids")]
    pub caller_keys: Vec<(CallerId, KeyHash)>,
    /// Client certificates of callers. They are not secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caller_certificates: Vec<(CallerId, CertificateMatch)>,
    #[serde(skip_serializing_if = "is_default_serve")]
    pub serve: ServeConfig,
    /// Policy rules, in addition to the permissions of callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyFile>,
    #[serde(skip_serializing_if = "EgressConfig::is_off")]
    pub egress: EgressConfig,
    /// Limits of stored results. `None` returns every result inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<ResultLimits>,
    /// Enabled built-in tools.
    #[serde(flatten)]
    pub builtins: BuiltinConfig,
    #[serde(skip_serializing_if = "AgentConfig::is_default")]
    pub agent: AgentConfig,
    /// Collector for traces of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<OtlpCollector>,
    /// Settings of the execution log.
    #[serde(skip_serializing_if = "AuditConfig::is_default")]
    pub audit: AuditConfig,
    /// Key that encrypts stored credentials.
    #[serde(rename = "credentials", skip_serializing_if = "CredentialKey::is_default")]
    pub credential_key: CredentialKey,
    /// Replicas that share their state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterConfig>,
    /// Profiles, and the profiles each caller uses.
    #[serde(skip_serializing_if = "is_default_profiles")]
    pub profiles: Arc<Profiles>,
    /// Every secret in the configuration, for redaction.
    #[serde(skip)]
    pub secrets: Vec<Secret>,
    /// Values to ask the user for when servers start.
    pub inputs: Vec<InputSpec>,
    /// Variables the files refer to, and where each is set.
    pub variables: BTreeMap<String, String>,
    /// Origin of each value set in a file or variable: `servers.github.mode` → `mcp.json:4:7`. Values that are
    /// not listed are defaults.
    pub origins: BTreeMap<String, String>,
}

fn serialize_caller_ids<S: serde::Serializer>(
    keys: &[(CallerId, KeyHash)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().map(|(id, _)| id))
}

fn is_default_profiles(profiles: &Profiles) -> bool {
    *profiles == Profiles::default()
}

fn is_default_serve(rules: &ServeConfig) -> bool {
    *rules == ServeConfig::default()
}
