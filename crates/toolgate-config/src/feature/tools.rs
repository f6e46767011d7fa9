//! Tools of the project: entries of `tools.json` and their scripts.

pub(crate) mod caching;
mod json_schema;
mod script;

use std::num::NonZeroU32;
use std::path::Path;

use toolgate_types::hints::Severity;
use toolgate_types::tool::{
    Category, ContractLevel, Deprecation, FollowUp, Permission, RateLimit, ResponseTime, ToolExample,
};
use toolgate_types::{ByteSize, ConfigString, HumanDuration, ToolDefinition, ToolLimits, ToolName};

use self::caching::CacheKeys;
use self::script::{ScriptFile, resolve_script};
use crate::context::Context;
use crate::keys::{
    AnyValue, NamedMap, SchemaNode, Spanned, choice, into_value, into_values, keys, read_by_parsing,
};
use crate::resolve::ConfigBuilder;
use crate::source::Span;

keys! {
    /// A tool of this project: a script in the folder of `tools.json`, and this entry.
    struct ToolFile as "tool" {
        /// Name of the tool: letters, digits, `_`, `.` and `-`.
        name: ToolName; required,
        /// Contract the entry must satisfy. Default: the `contract` of the file.
        contract: ContractName,
        /// Purpose, use and result of the tool. Models choose tools by this text.
        description: String; required,
        /// Kind of tool. The only kind is `local`, a script.
        r#type: ToolKindName = "local",
        /// Version of the tool.
        version: String = "1.0.0",
        /// JSON Schema of the arguments.
        input_schema ("inputSchema", "parameters", "inputs"): SchemaNode; required,
        /// JSON Schema of the result.
        output_schema ("outputSchema", "outputs"): SchemaNode,
        /// Location of the script.
        config: ScriptFile,
        /// Same as `config.script_path`.
        script_path: String,
        /// Same as `config.entrypoint`.
        entrypoint ("function"): String,
        /// Environment variables of the script. It gets these and a few harmless ones, not your environment.
        env: NamedMap<Option<ConfigString>>,
        /// Memory limit of each process of the script; at least `32MiB`.
        max_memory ("maxMemory"): ByteSize = "1GiB",
        /// Timeout of one call.
        timeout: HumanDuration,
        /// Maximum number of concurrent calls if the tool is `parallel_capable`.
        max_instances: NonZeroU32 = "5",
        /// Allows concurrent calls.
        parallel_capable ("parallelCapable"): bool = "false",
        /// Permissions a caller needs, as `resource:action`.
        permissions: Vec<Spanned<Permission>>,
        /// Kind of operation. A `mutation` is never cached.
        category: CategoryName,
        /// Typical response time. If `timeout` is not set, it is 1 s (`fast`), 10 s (`medium`) or 120 s (`slow`).
        response_time ("responseTime"): ResponseTimeName,
        /// Allows caching of results.
        cacheable: bool = "false",
        /// Lifetime of a cached result.
        cache_ttl ("cacheTTL", "cacheTtl"): HumanDuration,
        /// Marks calls as safe to repeat. Only idempotent tools are retried.
        idempotent: bool = "false",
        /// Example calls with their results.
        examples: Vec<Spanned<ExampleFile>>,
        /// Keywords for tool search.
        tags: Vec<Spanned<String>>,
        /// Rate limit per caller.
        rate_limit ("rateLimit"): RateLimitFile,
        /// Marks the tool as deprecated and names its replacement.
        deprecated: DeprecationFile,
        /// Suggested next steps, returned to callers as hints.
        follow_ups ("followUps"): Vec<Spanned<FollowUpFile>>,
    }
}

choice! {
    /// Set of keys a tool must define.
    enum ContractName as "a contract" {
        /// Name, description and input schema are required; everything else has a default.
        Standard = "standard",
        /// Every key listed by `toolgate check --contract full` is required. A tool that lacks one is
        /// refused.
        Full = "full",
    }
}

choice! {
    /// Kind of tool.
    enum ToolKindName as "a kind of tool" {
        /// A script.
        Local = "local",
    }
}

choice! {
    /// Kind of tool.
    enum CategoryName as "a category" {
        /// Only reads.
        Query = "query",
        /// Changes something.
        Mutation = "mutation",
        /// Computes a result from its arguments.
        Analysis = "analysis",
        /// Creates something new.
        Generation = "generation",
    }
}

choice! {
    /// Typical response time of a tool.
    enum ResponseTimeName as "a response time" {
        /// Under 100 ms.
        Fast = "fast",
        /// Up to a second.
        Medium = "medium",
        /// More than a second.
        Slow = "slow",
    }
}

keys! {
    /// An example call with its result, for documentation and tests.
    struct ExampleFile as "example" {
        /// Description of the example.
        description: String; required,
        /// Arguments of the call.
        params: AnyValue; required,
        /// Expected result.
        expected_result ("expectedResult"): AnyValue,
    }
}

keys! {
    /// Rate limit of a tool, per caller.
    struct RateLimitFile as "rate_limit" {
        /// Maximum number of calls per window.
        max_calls ("maxCalls"): NonZeroU32; required,
        /// Length of the window in milliseconds.
        window_ms ("windowMs"): NonZeroU32; required,
    }
}

keys! {
    /// Deprecation of a tool.
    struct DeprecationFile as "deprecated" {
        /// Version that deprecated the tool.
        since: String; required,
        /// Tool to use instead.
        replacement: ToolName; required,
        /// Date after which calls are refused, as `YYYY-MM-DD`.
        removal_date ("removalDate"): String; required,
        /// Day of the announcement, as `YYYY-MM-DD`. In the contract `full`, 90 days must lie between it and the removal
        /// date. Default: today.
        announced: String,
    }
}

keys! {
    /// A suggested next step after a tool.
    struct FollowUpFile as "follow-up" {
        /// Name of the next tool, or a short name of the action.
        action: String; required,
        /// Urgency of the step.
        priority: PriorityName = "medium",
        /// Purpose of the step.
        description: String,
        /// Steps that must come first.
        after: Vec<Spanned<String>>,
    }
}

choice! {
    /// Urgency of a step.
    enum PriorityName as "a priority" {
        /// Do it immediately.
        Critical = "critical",
        /// Do it soon.
        High = "high",
        /// Do it in turn.
        Medium = "medium",
        /// Do it when there is time.
        Low = "low",
    }
}

read_by_parsing! {
    ToolName: "a tool's name", { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$" };
    Permission: "a permission", { "type": "string", "pattern": "^[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+$" };
}

/// A tool or its settings, with cache keys that other entries may still complete.
pub(crate) struct PendingEntry<T> {
    pub(crate) value: T,
    pub(crate) caching: CacheKeys,
    pub(crate) span: Span,
}

impl ConfigBuilder {
    /// Adds a tool, or reports its problems. Its script is in `folder`.
    pub(crate) fn add_tool(&mut self, file: ToolFile, folder: &Path, cx: &mut Context<'_>) {
        let label =
            file.name.as_ref().map_or_else(|| "tool".to_owned(), |name| format!("tool `{}`", name.value));
        cx.labels.push(label);
        self.build_tool(file, folder, cx);
        cx.labels.pop();
    }

    fn build_tool(&mut self, mut file: ToolFile, folder: &Path, cx: &mut Context<'_>) {
        let written = file.value_spans();
        let (name, description) = (file.name.take(), file.description.take());
        let input = file.input_schema.take();
        let script = name.as_ref().and_then(|name| resolve_script(&mut file, name, folder, cx));
        if let Some(input) = &input {
            json_schema::check(&input.value.0, true, cx);
        }
        if let Some(output) = &file.output_schema {
            json_schema::check(&output.value.0, false, cx);
        }
        let caching = CacheKeys {
            ttl_is_invalid: file.cache_ttl.is_none() && file.present_keys.contains(&"cache_ttl"),
            cacheable: file.cacheable.take(),
            category: file.category.take(),
            ttl: file.cache_ttl.take(),
        };
        let cache_ttl = caching.resolve_ttl(cx);
        let deprecated =
            file.deprecated.take().and_then(|at| resolve_deprecation(at.value, name.as_ref(), cx));
        // These keys are required; missing or invalid ones are already reported.
        let (Some(name), Some(description), Some(input), Some(script)) = (name, description, input, script)
        else {
            return;
        };
        if let Some(first) = self.tool_at.insert(name.value.clone(), self.tools.len()) {
            let hint = format!(
                "the other is at {}; rename or remove one",
                cx.sources.location(self.tools[first].span)
            );
            cx.error(name.span, format!("tool `{}` is defined twice", name.value), hint);
        }
        self.record_origins(&format!("tools.{}", name.value), written);
        let full = matches!(&file.contract, Some(at) if matches!(at.value, ContractName::Full));
        if full {
            self.full_contract.push((name.value.clone(), name.span));
        }
        let limits = ToolLimits {
            max_instances: into_value(file.max_instances),
            timeout: into_value(file.timeout),
            parallel_capable: into_value(file.parallel_capable),
        };
        let tool = ToolDefinition {
            description: description.value,
            contract: if full { ContractLevel::Full } else { ContractLevel::Standard },
            version: into_value(file.version).unwrap_or_else(|| "1.0.0".to_owned()),
            input_schema: input.value.0.to_json(),
            output_schema: file.output_schema.map(|at| at.value.0.to_json()),
            script,
            limits,
            permissions: into_values(file.permissions).unwrap_or_default(),
            category: caching.category.as_ref().map(|at| at.value.into()),
            response_time: file.response_time.map(|at| match at.value {
                ResponseTimeName::Fast => ResponseTime::Fast,
                ResponseTimeName::Medium => ResponseTime::Medium,
                ResponseTimeName::Slow => ResponseTime::Slow,
            }),
            cache_ttl,
            idempotent: into_value(file.idempotent).unwrap_or(false),
            examples: into_values(file.examples).into_iter().flatten().filter_map(resolve_example).collect(),
            tags: into_values(file.tags).unwrap_or_default(),
            rate_limit: file.rate_limit.and_then(|at| resolve_rate_limit(at.value)),
            deprecated,
            follow_ups: resolve_follow_ups(file.follow_ups),
            name: name.value,
        };
        self.tools.push(PendingEntry { value: tool, caching, span: name.span });
    }
}

impl From<CategoryName> for Category {
    fn from(name: CategoryName) -> Self {
        match name {
            CategoryName::Query => Self::Query,
            CategoryName::Mutation => Self::Mutation,
            CategoryName::Analysis => Self::Analysis,
            CategoryName::Generation => Self::Generation,
        }
    }
}

fn resolve_example(file: ExampleFile) -> Option<ToolExample> {
    Some(ToolExample {
        description: file.description?.value,
        params: file.params?.value.0.to_json(),
        expected_result: file.expected_result.map(|at| at.value.0.to_json()),
    })
}

pub(crate) fn resolve_rate_limit(file: RateLimitFile) -> Option<RateLimit> {
    let milliseconds = file.window_ms?.value;
    let window =
        format!("{milliseconds}ms").parse().expect("a positive number of milliseconds is a duration");
    Some(RateLimit { max_calls: file.max_calls?.value, window })
}

pub(crate) fn resolve_follow_ups(files: Option<Spanned<Vec<Spanned<FollowUpFile>>>>) -> Vec<FollowUp> {
    let follow_up = |file: FollowUpFile| {
        Some(FollowUp {
            action: file.action?.value,
            priority: file.priority.map_or(Severity::Medium, |at| match at.value {
                PriorityName::Critical => Severity::Critical,
                PriorityName::High => Severity::High,
                PriorityName::Medium => Severity::Medium,
                PriorityName::Low => Severity::Low,
            }),
            description: into_value(file.description),
            after: into_values(file.after).unwrap_or_default(),
        })
    };
    into_values(files).into_iter().flatten().filter_map(follow_up).collect()
}

fn resolve_deprecation(
    file: DeprecationFile,
    name: Option<&Spanned<ToolName>>,
    cx: &mut Context<'_>,
) -> Option<Deprecation> {
    let (since, replacement, date) = (file.since?, file.replacement?, file.removal_date?);
    if name.is_some_and(|name| name.value == replacement.value) {
        let message = format!("tool `{}` cannot replace itself", replacement.value);
        cx.error(replacement.span, message, "name another tool");
    }
    let mut read_date = |date: &Spanned<String>| {
        // A time of day may follow; only the date is used.
        let day = date.value.get(..10).filter(|day| is_date(day)).map(str::to_owned);
        if day.is_none() {
            let message = format!("`{}` is not a date{}", date.value, cx.location_suffix());
            cx.error(date.span, message, "write it as `2027-03-31`");
        }
        day
    };
    let removal_date = read_date(&date)?;
    let announced = match &file.announced {
        Some(date) => Some(read_date(date)?),
        None => None,
    };
    Some(Deprecation { since: since.value, replacement: replacement.value, removal_date, announced })
}

/// Days from 1970-01-01 to a date that [`is_date`] accepts.
pub(crate) fn days_since_epoch(date: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| date[range].parse::<i64>().unwrap_or_default();
    // The year starts in March, so that a leap day is its last day.
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn is_date(text: &str) -> bool {
    let number = |range: std::ops::Range<usize>| {
        text.get(range).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?.parse::<u32>().ok()
    };
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day) && &text[4..5] == "-" && &text[7..8] == "-"
}

#[cfg(test)]
mod tests;
