//! What a tool says of itself: all of the contract, checked.
//!
//! Invariant: the only way to one is the [builder](crate::builder), which refuses what is not whole. Its JSON
//! is an entry of `tools.json`, without the script.

use std::num::NonZeroU32;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use toolgate_types::tool::{Category, FollowUp, Permission, ResponseTime};
use toolgate_types::{HumanDuration, ToolName};

/// What a tool says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: ToolName,
    /// What it does, when to use it, what it returns.
    pub description: String,
    /// Its version.
    pub version: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// The JSON Schema of its result.
    pub output_schema: Value,
    /// What a caller must be allowed to do.
    pub permissions: Vec<Permission>,
    /// What kind of tool it is.
    pub category: Category,
    /// How fast it usually answers.
    pub response_time: ResponseTime,
    /// How long a result may be served again; `None` where it may not.
    pub cache_ttl: Option<HumanDuration>,
    /// Whether calling it twice is as good as calling it once.
    pub idempotent: bool,
    /// How long one call may take, where that does not follow from its response time.
    pub timeout: Option<HumanDuration>,
    /// Calls that may run at the same time; `None` for any number.
    pub max_instances: Option<NonZeroU32>,
    /// Calls with their results.
    pub examples: Vec<Example>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// How often one caller may call it.
    pub rate_limit: Option<RateLimit>,
    /// What follows it, where it is on its way out.
    pub deprecated: Option<Deprecated>,
    /// What often makes sense after it.
    pub follow_ups: Vec<FollowUp>,
}

/// A call with its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    /// What it shows.
    pub description: String,
    /// The arguments.
    pub params: Value,
    /// The result, where it is the same every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_result: Option<Value>,
}

/// How often one caller may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RateLimit {
    /// Calls per window.
    pub max_calls: NonZeroU32,
    /// The length of the window in milliseconds.
    pub window_ms: u64,
}

/// A tool is on its way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deprecated {
    /// The version since which it is.
    pub since: String,
    /// The tool to use in its place.
    pub replacement: ToolName,
    /// The day after which it is refused, as `YYYY-MM-DD`.
    pub removal_date: String,
}

impl Definition {
    /// How long one call may take.
    pub fn timeout(&self) -> HumanDuration {
        self.timeout.unwrap_or_else(|| self.response_time.timeout())
    }
}

impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("description", &self.description)?;
        map.serialize_entry("contract", "full")?;
        map.serialize_entry("version", &self.version)?;
        map.serialize_entry("input_schema", &self.input_schema)?;
        map.serialize_entry("output_schema", &self.output_schema)?;
        map.serialize_entry("permissions", &self.permissions)?;
        map.serialize_entry("category", &self.category)?;
        map.serialize_entry("response_time", &self.response_time)?;
        map.serialize_entry("cacheable", &self.cache_ttl.is_some())?;
        if let Some(ttl) = self.cache_ttl {
            map.serialize_entry("cache_ttl", &ttl)?;
        }
        map.serialize_entry("idempotent", &self.idempotent)?;
        map.serialize_entry("timeout", &self.timeout())?;
        map.serialize_entry("parallel_capable", &self.max_instances.is_none_or(|most| most.get() > 1))?;
        if let Some(most) = self.max_instances {
            map.serialize_entry("max_instances", &most)?;
        }
        map.serialize_entry("examples", &self.examples)?;
        map.serialize_entry("tags", &self.tags)?;
        if let Some(limit) = &self.rate_limit {
            map.serialize_entry("rate_limit", limit)?;
        }
        if let Some(gone) = &self.deprecated {
            map.serialize_entry("deprecated", gone)?;
        }
        if !self.follow_ups.is_empty() {
            map.serialize_entry("follow_ups", &self.follow_ups)?;
        }
        map.end()
    }
}
