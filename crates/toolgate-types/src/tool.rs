//! A tool: its definition, its settings and its limits.
//!
//! Invariant: schemas, examples and expected results are kept as raw JSON, so that the spelling of numbers and the
//! order of keys reach the other side unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::contract::is_permission;
use crate::hints::Severity;
use crate::{ByteSize, ConfigString, HumanDuration, ToolName};

/// Concurrency and time limits of a tool. `None` leaves a limit to the next default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ToolLimits {
    /// Maximum concurrent calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_instances: Option<NonZeroU32>,
    /// Deadline of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<HumanDuration>,
    /// True if calls may run concurrently at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_capable: Option<bool>,
}

impl ToolLimits {
    /// Fills limits that are not set from `default`, field by field.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        Self {
            max_instances: self.max_instances.or(default.max_instances),
            timeout: self.timeout.or(default.timeout),
            parallel_capable: self.parallel_capable.or(default.parallel_capable),
        }
    }
}

/// Operator's settings of one tool, whatever its source.
#[derive(Debug, Clone, Serialize)]
pub struct ToolSettings {
    pub name: ToolName,
    #[serde(flatten)]
    pub limits: ToolLimits,
    /// `strict` overrides a server's dynamic mode for this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<SettingsMode>,
    /// Permissions required of callers, replacing those of its server's tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<Permission>,
    /// Effect of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// True if a repeated call has the same effect as a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Time to live of cached results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl: Option<HumanDuration>,
    /// Rate limit of one caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// Search keywords.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Steps that often make sense next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub follow_ups: Vec<FollowUp>,
}

impl ToolSettings {
    /// Creates settings that change nothing.
    pub fn new(name: ToolName) -> Self {
        Self {
            name,
            limits: ToolLimits::default(),
            mode: None,
            permissions: Vec::new(),
            category: None,
            idempotent: None,
            cache_ttl: None,
            rate_limit: None,
            tags: Vec::new(),
            follow_ups: Vec::new(),
        }
    }
}

/// Mode of a tool's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingsMode {
    /// Only these settings apply; the server's defaults are ignored.
    Strict,
    /// The server's defaults fill what these settings leave open.
    Dynamic,
}

/// Tool defined by the project, run as a script.
#[derive(Debug, Clone, Serialize)]
pub struct ToolDefinition {
    pub name: ToolName,
    /// Purpose, when to use it, and what it returns.
    pub description: String,
    /// Contract that the definition must fulfil.
    #[serde(skip_serializing_if = "ContractLevel::is_standard")]
    pub contract: ContractLevel,
    pub version: String,
    /// JSON Schema of the arguments.
    pub input_schema: Box<RawValue>,
    /// JSON Schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// Script that implements the tool.
    #[serde(flatten)]
    pub script: ScriptSpec,
    #[serde(flatten)]
    pub limits: ToolLimits,
    /// Permissions required of callers, as `{resource}:{action}`.
    pub permissions: Vec<Permission>,
    /// Effect of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Typical response time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_time: Option<ResponseTime>,
    /// Time to live of cached results; `None` disables caching.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl: Option<HumanDuration>,
    /// True if a repeated call has the same effect as a single one.
    pub idempotent: bool,
    /// Example calls with their results, for readers and for tests.
    pub examples: Vec<ToolExample>,
    /// Search keywords.
    pub tags: Vec<String>,
    /// Rate limit of one caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// Replacement and removal date, if the tool is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecation>,
    /// Steps that often make sense next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub follow_ups: Vec<FollowUp>,
}

impl ToolDefinition {
    /// Creates a definition with default settings, for any arguments.
    pub fn for_script(name: ToolName, script: ScriptSpec) -> Self {
        Self {
            name,
            description: String::new(),
            contract: ContractLevel::Standard,
            version: "1.0.0".to_owned(),
            input_schema: RawValue::from_string("{}".to_owned()).expect("valid JSON"),
            output_schema: None,
            script,
            limits: ToolLimits::default(),
            permissions: Vec::new(),
            category: None,
            response_time: None,
            cache_ttl: None,
            idempotent: false,
            examples: Vec::new(),
            tags: Vec::new(),
            rate_limit: None,
            deprecated: None,
            follow_ups: Vec::new(),
        }
    }
}

/// Contract that a tool's definition must fulfil.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractLevel {
    /// Name, description and input schema.
    Standard,
    /// Every field of the contract.
    Full,
}

impl ContractLevel {
    fn is_standard(&self) -> bool {
        *self == Self::Standard
    }
}

/// Step that often makes sense after a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowUp {
    /// Name of a tool, or a word for the action.
    pub action: String,
    pub priority: Severity,
    /// Purpose of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Actions that have to come before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl ToolDefinition {
    /// Deadline of one call: its own timeout, else that of its response time, else the default.
    pub fn timeout(&self, default: HumanDuration) -> HumanDuration {
        self.limits.timeout.or(self.response_time.map(ResponseTime::timeout)).unwrap_or(default)
    }

    /// Permissions a caller needs: the declared ones, otherwise `tools:{name}`.
    pub fn required_permissions(&self) -> Vec<Permission> {
        match self.permissions.as_slice() {
            [] => vec![Permission::of_own_tool(&self.name)],
            declared => declared.to_vec(),
        }
    }
}

/// Script that implements a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScriptSpec {
    /// File, inside the folder of its registry.
    pub script_path: PathBuf,
    /// Function in it, for a Python file.
    pub entrypoint: String,
    /// Environment variables, besides the few that every child process gets. `None` removes a variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<ConfigString>>,
    /// Memory limit of each of its processes.
    pub max_memory: ByteSize,
    /// Folder that must contain the file, symbolic links resolved.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Project folder, which may contain a virtual environment.
    #[serde(skip)]
    pub project: PathBuf,
}

impl ScriptSpec {
    /// Default function of a Python file.
    pub const DEFAULT_ENTRYPOINT: &str = "run";
    /// Default memory limit.
    pub const DEFAULT_MEMORY: ByteSize = ByteSize::from_mib(1024);

    /// Creates a script with default settings.
    pub fn new(script_path: impl Into<PathBuf>) -> Self {
        let script_path = script_path.into();
        let folder = script_path.parent().map(Path::to_owned).unwrap_or_default();
        Self {
            script_path,
            entrypoint: Self::DEFAULT_ENTRYPOINT.to_owned(),
            env: BTreeMap::new(),
            max_memory: Self::DEFAULT_MEMORY,
            project: folder.clone(),
            folder,
        }
    }
}

/// Permission required of a caller: `{resource}:{action}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Permission(Box<str>);

impl Permission {
    /// Permission for an own tool that declares none.
    pub fn of_own_tool(name: &ToolName) -> Self {
        Self(format!("tools:{}", Self::tool_action(name.as_str())).into())
    }

    /// The action that allows calls of a tool: its name, or `tool.{name}` if the name alone allows something else.
    pub fn tool_action(name: &str) -> Cow<'_, str> {
        // `tools:write` changes tools; `{server}:resources` and `{server}:prompts` do not call tools.
        match name {
            "write" | "resources" | "prompts" => format!("tool.{name}").into(),
            name => name.into(),
        }
    }

    pub fn resource(&self) -> &str {
        self.0.split_once(':').map_or("", |(resource, _)| resource)
    }

    pub fn action(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, action)| action)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The string is not a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a permission is `resource:action`, such as `cards:create`")]
pub struct PermissionError;

impl std::str::FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        if is_permission(text) { Ok(Self(text.into())) } else { Err(PermissionError) }
    }
}

/// Effect of a tool; decides whether results may be cached and calls retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Reads data and changes nothing.
    Query,
    /// Changes data.
    Mutation,
    /// Computes something from its arguments.
    Analysis,
    /// Creates new content.
    Generation,
}

impl Category {
    /// Name in configuration, commands and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
            Self::Analysis => "analysis",
            Self::Generation => "generation",
        }
    }
}

/// Harm that a call can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RiskLevel {
    /// Reads only.
    Low,
    /// Creates something new, and destroys nothing.
    Medium,
    /// Changes something, or its effect is unknown.
    High,
}

impl RiskLevel {
    /// Name in listings and policies.
    pub fn label(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl From<Option<Category>> for RiskLevel {
    fn from(category: Option<Category>) -> Self {
        match category {
            Some(Category::Query | Category::Analysis) => Self::Low,
            Some(Category::Generation) => Self::Medium,
            Some(Category::Mutation) | None => Self::High,
        }
    }
}

/// Properties of a tool that the pipeline relies on. Unknown properties have the most cautious value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolContract {
    /// Version of the tool, or of its server.
    pub version: String,
    pub risk: RiskLevel,
    /// True if a repeated call has the same effect as a single one.
    pub idempotent: bool,
    /// True if results may be cached.
    pub cacheable: bool,
}

impl ToolContract {
    /// Properties of an unknown tool.
    pub fn unknown() -> Self {
        Self { version: String::new(), risk: RiskLevel::High, idempotent: false, cacheable: false }
    }
}

impl From<&ToolDefinition> for ToolContract {
    fn from(tool: &ToolDefinition) -> Self {
        Self {
            version: tool.version.clone(),
            risk: tool.category.into(),
            idempotent: tool.idempotent,
            cacheable: tool.cache_ttl.is_some(),
        }
    }
}

/// Typical response time of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseTime {
    /// Under 100 ms.
    Fast,
    /// Up to a second.
    Medium,
    /// More than a second.
    Slow,
}

impl ResponseTime {
    /// Default deadline of a call to such a tool.
    pub const fn timeout(self) -> HumanDuration {
        match self {
            Self::Fast => HumanDuration::from_secs(1),
            Self::Medium => HumanDuration::from_secs(10),
            Self::Slow => HumanDuration::from_secs(120),
        }
    }
}

/// Example call of a tool.
#[derive(Debug, Clone, Serialize)]
pub struct ToolExample {
    /// Point of the example.
    pub description: String,
    /// Arguments of the call.
    pub params: Box<RawValue>,
    /// Expected result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_result: Option<Box<RawValue>>,
}

/// Rate limit of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct RateLimit {
    /// Calls per window.
    pub max_calls: NonZeroU32,
    pub window: HumanDuration,
}

/// Deprecation of a tool.
#[derive(Debug, Clone, Serialize)]
pub struct Deprecation {
    /// Version that deprecated the tool.
    pub since: String,
    /// Tool to use instead.
    pub replacement: ToolName,
    /// Last day of service, as `YYYY-MM-DD`.
    pub removal_date: String,
    /// Day of the announcement, as `YYYY-MM-DD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced: Option<String>,
}

impl Deprecation {
    /// Returns true if the last day of service is over. `today` is a date as `YYYY-MM-DD`.
    pub fn is_removed(&self, today: &str) -> bool {
        today > self.removal_date.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_instances: Option<u32>, seconds: Option<u64>, parallel: Option<bool>) -> ToolLimits {
        ToolLimits {
            max_instances: max_instances.and_then(NonZeroU32::new),
            timeout: seconds.map(HumanDuration::from_secs),
            parallel_capable: parallel,
        }
    }

    #[test]
    fn limits_merge_field_by_field() {
        let default = limits(Some(10), Some(30), Some(true));
        assert_eq!(
            limits(Some(20), Some(60), Some(false)).or(default),
            limits(Some(20), Some(60), Some(false))
        );
        assert_eq!(limits(Some(20), None, None).or(default), limits(Some(20), Some(30), Some(true)));
        assert_eq!(ToolLimits::default().or(default), default);
    }

    #[test]
    fn validates_permissions() {
        assert!("cards:create".parse::<Permission>().is_ok());
        for bad in ["cards", "cards:", ":read", "a:b:c", "a b:c", "*:read"] {
            assert!(bad.parse::<Permission>().is_err(), "{bad}");
        }
    }
}
