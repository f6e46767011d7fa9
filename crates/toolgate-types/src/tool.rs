//! A tool: what it is called, what it takes and gives, and how much of it may run at once.
//!
//! Invariant: schemas, examples and expected results are kept as the text they were written in, so
//! that the spelling of numbers and the order of keys reach the other side unchanged.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::contract::is_permission;
use crate::hints::Severity;
use crate::{ByteSize, HumanDuration, Text, ToolName};

/// How much of a tool may run, and for how long. What is `None` is left to the next in line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ToolLimits {
    /// Calls that may run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_instances: Option<NonZeroU32>,
    /// How long one call may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<HumanDuration>,
    /// Whether calls may overlap at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_capable: Option<bool>,
}

impl ToolLimits {
    /// These limits where they are set, the others where they are not, field by field.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        Self {
            max_instances: self.max_instances.or(default.max_instances),
            timeout: self.timeout.or(default.timeout),
            parallel_capable: self.parallel_capable.or(default.parallel_capable),
        }
    }
}

/// What the operator says about one tool, wherever it comes from.
#[derive(Debug, Clone, Serialize)]
pub struct ToolSettings {
    /// The tool.
    pub name: ToolName,
    /// Its limits.
    #[serde(flatten)]
    pub limits: ToolLimits,
    /// `strict` overrides a server's dynamic mode for this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<SettingsMode>,
    /// What a caller must be allowed to do, in place of what its server's tools demand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<Permission>,
    /// What kind of tool it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Whether calling it twice is as good as calling it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// How long a result may be served again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl: Option<HumanDuration>,
    /// How often one caller may call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// Words to find it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What often makes sense after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub follow_ups: Vec<FollowUp>,
}

impl ToolSettings {
    /// Settings that say nothing.
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

/// A tool's own mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingsMode {
    /// Only what these settings say counts; nothing is taken from the server's defaults.
    Strict,
    /// The server's defaults fill what these settings leave open.
    Dynamic,
}

/// A tool of one's own.
#[derive(Debug, Clone, Serialize)]
pub struct ToolDefinition {
    /// Its name.
    pub name: ToolName,
    /// What it does, when to use it, what it returns.
    pub description: String,
    /// How much it has to say of itself.
    #[serde(skip_serializing_if = "Level::is_standard")]
    pub contract: Level,
    /// Its version.
    pub version: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Box<RawValue>,
    /// The JSON Schema of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// The program behind it.
    #[serde(flatten)]
    pub script: Script,
    /// Its limits.
    #[serde(flatten)]
    pub limits: ToolLimits,
    /// What a caller must be allowed to do, as `{resource}:{action}`.
    pub permissions: Vec<Permission>,
    /// What kind of tool it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// How fast it usually answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_time: Option<ResponseTime>,
    /// How long a result may be served again; `None` where it may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl: Option<HumanDuration>,
    /// Whether calling it twice is as good as calling it once.
    pub idempotent: bool,
    /// Calls with their results, for readers and for tests.
    pub examples: Vec<Example>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// How often one caller may call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// What follows it, where it is on its way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecation>,
    /// What often makes sense after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub follow_ups: Vec<FollowUp>,
}

/// How much a tool has to say of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Its name, its description and the schema of its arguments.
    Standard,
    /// All of the contract.
    Full,
}

impl Level {
    fn is_standard(&self) -> bool {
        *self == Self::Standard
    }
}

/// A step that often makes sense after a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowUp {
    /// The tool, or a word for what to do.
    pub action: String,
    /// How urgent it is.
    pub priority: Severity,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What has to come before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl ToolDefinition {
    /// How long one call may take: its own timeout, else what its response time allows, else the default.
    pub fn timeout(&self, default: HumanDuration) -> HumanDuration {
        self.limits.timeout.or(self.response_time.map(ResponseTime::timeout)).unwrap_or(default)
    }
}

/// The program behind a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Script {
    /// The file, inside the folder of its registry.
    pub script_path: PathBuf,
    /// The function in it, for a Python file.
    pub entrypoint: String,
    /// Its environment, beside the few variables that every child gets; `None` keeps one away.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<Text>>,
    /// The memory that each of its processes may use.
    pub max_memory: ByteSize,
    /// The folder that the file must not leave, by no link either.
    #[serde(skip)]
    pub folder: PathBuf,
    /// The folder of the project, where a virtual environment may be.
    #[serde(skip)]
    pub project: PathBuf,
}

impl Script {
    /// The memory of a script that says nothing of it.
    pub const MEMORY: ByteSize = ByteSize::from_mib(1024);

    /// A script of which nothing is said but where it is.
    pub fn new(script_path: impl Into<PathBuf>) -> Self {
        let script_path = script_path.into();
        let folder = script_path.parent().map(Path::to_owned).unwrap_or_default();
        Self {
            script_path,
            entrypoint: "run".to_owned(),
            env: BTreeMap::new(),
            max_memory: Self::MEMORY,
            project: folder.clone(),
            folder,
        }
    }
}

/// What a caller must be allowed to do: `{resource}:{action}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Permission(Box<str>);

impl Permission {
    /// What it is about.
    pub fn resource(&self) -> &str {
        self.0.split_once(':').map_or("", |(resource, _)| resource)
    }

    /// What may be done with it.
    pub fn action(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, action)| action)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text is not a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a permission is `resource:action`, such as `cards:create`")]
pub struct PermissionError;

impl std::str::FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        if is_permission(text) { Ok(Self(text.into())) } else { Err(PermissionError) }
    }
}

/// What kind of tool it is; decides what may be cached and repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Reads.
    Query,
    /// Changes something.
    Mutation,
    /// Works out something from what it is given.
    Analysis,
    /// Makes something new.
    Generation,
}

impl Category {
    /// Its name in configuration, commands and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
            Self::Analysis => "analysis",
            Self::Generation => "generation",
        }
    }
}

/// How much harm a call can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// It reads.
    Low,
    /// It makes something new, and destroys nothing.
    Medium,
    /// It changes something, or nobody says that it does not.
    High,
}

impl Risk {
    /// Its name in listings and policies.
    pub fn label(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl From<Option<Category>> for Risk {
    fn from(category: Option<Category>) -> Self {
        match category {
            Some(Category::Query | Category::Analysis) => Self::Low,
            Some(Category::Generation) => Self::Medium,
            Some(Category::Mutation) | None => Self::High,
        }
    }
}

/// What may be done with a tool beside calling it once. What nobody vouches for is the worst.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contract {
    /// The version of the tool, or of the server it comes from.
    pub version: String,
    /// How much harm a call can do.
    pub risk: Risk,
    /// Whether calling it twice is as good as calling it once.
    pub idempotent: bool,
    /// Whether a result may be served again.
    pub cacheable: bool,
}

impl Contract {
    /// Of a tool that nothing is known of.
    pub fn unknown() -> Self {
        Self { version: String::new(), risk: Risk::High, idempotent: false, cacheable: false }
    }
}

impl From<&ToolDefinition> for Contract {
    fn from(tool: &ToolDefinition) -> Self {
        Self {
            version: tool.version.clone(),
            risk: tool.category.into(),
            idempotent: tool.idempotent,
            cacheable: tool.cache_ttl.is_some(),
        }
    }
}

/// How fast a tool usually answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseTime {
    /// Under 100 ms.
    Fast,
    /// Up to a second.
    Medium,
    /// Longer.
    Slow,
}

impl ResponseTime {
    /// How long to wait for such a tool where nothing else is said.
    pub const fn timeout(self) -> HumanDuration {
        match self {
            Self::Fast => HumanDuration::from_secs(1),
            Self::Medium => HumanDuration::from_secs(10),
            Self::Slow => HumanDuration::from_secs(120),
        }
    }
}

/// A call with its result.
#[derive(Debug, Clone, Serialize)]
pub struct Example {
    /// What it shows.
    pub description: String,
    /// The arguments.
    pub params: Box<RawValue>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_result: Option<Box<RawValue>>,
}

/// How often one caller may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct RateLimit {
    /// Calls per window.
    pub max_calls: NonZeroU32,
    /// The length of the window.
    pub window: HumanDuration,
}

/// A tool is on its way out.
#[derive(Debug, Clone, Serialize)]
pub struct Deprecation {
    /// The version since which it is.
    pub since: String,
    /// The tool to use in its place.
    pub replacement: ToolName,
    /// The day after which it is refused, as `YYYY-MM-DD`.
    pub removal_date: String,
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
    fn permissions() {
        assert!("cards:create".parse::<Permission>().is_ok());
        for bad in ["cards", "cards:", ":read", "a:b:c", "a b:c", "*:read"] {
            assert!(bad.parse::<Permission>().is_err(), "{bad}");
        }
    }
}
