//! Definition of a tool: every field of the contract, checked.
//!
//! Invariant: only the [builder](crate::builder) creates one, and it rejects incomplete ones. Its JSON is an entry of
//! `tools.json`, without the script.

use std::num::NonZeroU32;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use toolgate_types::tool::{Category, FollowUp, Permission, ResponseTime};
use toolgate_types::{HumanDuration, ToolName};

/// Definition of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Name, a verb and a noun in kebab-case.
    pub name: ToolName,
    /// Purpose, when to use it, and what it returns.
    pub description: String,
    /// Semantic version.
    pub version: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the result.
    pub output_schema: Value,
    /// Permissions required of callers.
    pub permissions: Vec<Permission>,
    /// Effect of the tool.
    pub category: Category,
    /// Typical response time.
    pub response_time: ResponseTime,
    /// Time to live of cached results; `None` if results must not be cached.
    pub cache_ttl: Option<HumanDuration>,
    /// True if a repeated call has the same effect as a single one.
    pub idempotent: bool,
    /// Deadline of one call, if it differs from that of its response time.
    pub timeout: Option<HumanDuration>,
    /// Maximum concurrent calls; `None` for any number.
    pub max_instances: Option<NonZeroU32>,
    /// Example calls with their results.
    pub examples: Vec<Example>,
    /// Search keywords.
    pub tags: Vec<String>,
    /// Rate limit of one caller.
    pub rate_limit: Option<RateLimit>,
    /// Replacement and removal date, if the tool is deprecated.
    pub deprecated: Option<Deprecation>,
    /// Steps that often make sense next.
    pub follow_ups: Vec<FollowUp>,
}

/// Example call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    /// Point of the example.
    pub description: String,
    /// Arguments of the call.
    pub params: Value,
    /// Expected result, if it is the same every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_result: Option<Value>,
}

/// Rate limit of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RateLimit {
    /// Calls per window.
    pub max_calls: NonZeroU32,
    /// Length of the window in milliseconds.
    pub window_ms: u64,
}

/// Deprecation of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deprecation {
    /// Version that deprecated the tool.
    pub since: String,
    /// Tool to use instead.
    pub replacement: ToolName,
    /// Last day of service, as `YYYY-MM-DD`. Calls are rejected after it.
    pub removal_date: String,
}

impl Definition {
    /// Returns the deadline of one call.
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
        if let Some(deprecation) = &self.deprecated {
            map.serialize_entry("deprecated", deprecation)?;
        }
        if !self.follow_ups.is_empty() {
            map.serialize_entry("follow_ups", &self.follow_ups)?;
        }
        map.end()
    }
}
