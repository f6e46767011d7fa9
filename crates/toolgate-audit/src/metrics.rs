//! How the tools fare, in numbers that a monitoring system collects: the text format of Prometheus.
//!
//! A call takes the handle of its tool and counts with a few atomic additions; nothing is locked or allocated on
//! the way. Invariant: what the numbers are told apart by is bounded. Names come from the catalog, and beyond
//! ten thousand they count together; statuses and codes are closed sets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use toolgate_types::ErrorCode;

use crate::record::Status;

/// How many tools are told apart.
const MOST_TOOLS: usize = 10_000;
/// What all further tools count as. Not the name of a tool: those have no brackets.
const OTHERS: &str = "(others)";
/// The longest name that is shown.
const LONGEST_NAME: usize = 128;

/// The classes of time: their upper ends in microseconds.
const BOUNDS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

const STATUSES: [Status; 3] = [Status::Success, Status::Error, Status::Abandoned];

const CODES: [ErrorCode; 14] = [
    ErrorCode::InvalidArguments,
    ErrorCode::ToolNotFound,
    ErrorCode::Unauthorized,
    ErrorCode::RateLimited,
    ErrorCode::Overloaded,
    ErrorCode::Timeout,
    ErrorCode::ServiceUnavailable,
    ErrorCode::ProviderFailure,
    ErrorCode::ToolExecutionError,
    ErrorCode::InvalidOutput,
    ErrorCode::OutputTooLarge,
    ErrorCode::Cancelled,
    ErrorCode::DeprecatedRemoved,
    ErrorCode::StorageUnavailable,
];

/// The place of a code in [`CODES`]. A match, so that a new code does not compile before it has one.
fn place(code: ErrorCode) -> usize {
    match code {
        ErrorCode::InvalidArguments => 0,
        ErrorCode::ToolNotFound => 1,
        ErrorCode::Unauthorized => 2,
        ErrorCode::RateLimited => 3,
        ErrorCode::Overloaded => 4,
        ErrorCode::Timeout => 5,
        ErrorCode::ServiceUnavailable => 6,
        ErrorCode::ProviderFailure => 7,
        ErrorCode::ToolExecutionError => 8,
        ErrorCode::InvalidOutput => 9,
        ErrorCode::OutputTooLarge => 10,
        ErrorCode::Cancelled => 11,
        ErrorCode::DeprecatedRemoved => 12,
        ErrorCode::StorageUnavailable => 13,
    }
}

/// The numbers of all tools.
#[derive(Debug, Default)]
pub struct Metrics {
    tools: RwLock<BTreeMap<Box<str>, Arc<ToolMetrics>>>,
}

impl Metrics {
    /// The numbers of one tool, to be taken once and kept. Only for names that are in the catalog: what a
    /// caller makes up would fill the table.
    pub fn tool(&self, name: &str) -> Arc<ToolMetrics> {
        let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
        if let Some(known) = self.tools.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Arc::clone(known);
        }
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let name = if tools.len() < MOST_TOOLS || tools.contains_key(name) { name } else { OTHERS };
        Arc::clone(tools.entry(name.into()).or_default())
    }

    /// The numbers of the calls that belong to no tool of the catalog.
    pub fn unknown(&self) -> Arc<ToolMetrics> {
        self.tool("(unknown)")
    }

    /// All of it as text.
    pub fn render(&self) -> String {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        let tools: Vec<_> = tools.iter().map(|(name, tool)| (label(name), tool)).collect();
        let mut out = String::new();
        head(&mut out, "toolgate_tool_executions_total", "counter", "Calls that ended, by how they ended.");
        for (name, tool) in &tools {
            tool.render_executions(name, &mut out);
        }
        head(&mut out, "tool_usage", "counter", "Calls that ended, by tool.");
        for (name, tool) in &tools {
            line(&mut out, "tool_usage", &format!("tool_name=\"{name}\""), tool.count());
        }
        head(&mut out, "toolgate_tool_cache_hits_total", "counter", "Calls that were answered from memory.");
        for (name, tool) in &tools {
            let hits = tool.cache_hits.load(Ordering::Relaxed);
            line(&mut out, "toolgate_tool_cache_hits_total", &format!("tool=\"{name}\""), hits);
        }
        let name_of_time = "toolgate_tool_duration_seconds";
        head(&mut out, name_of_time, "histogram", "Time from the request to the result.");
        for (name, tool) in &tools {
            tool.render_times(name_of_time, name, &mut out);
        }
        out
    }
}

/// The numbers of one tool.
#[derive(Debug, Default)]
pub struct ToolMetrics {
    success: AtomicU64,
    abandoned: AtomicU64,
    errors: [AtomicU64; CODES.len()],
    cache_hits: AtomicU64,
    times: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl ToolMetrics {
    /// A call ended; `error` is `None` for a success.
    pub fn ended(&self, error: Option<ErrorCode>, took: Duration, cached: bool) {
        let count = match error {
            None => &self.success,
            Some(code) => &self.errors[place(code)],
        };
        count.fetch_add(1, Ordering::Relaxed);
        if cached {
            self.cache_hits.fetch_add(1, Ordering::Relaxed);
        }
        self.took(took);
    }

    /// Who made a call left.
    pub fn abandoned(&self, took: Duration) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        self.took(took);
    }

    fn took(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = BOUNDS.partition_point(|bound| *bound < micros);
        self.times[class].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.times.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn render_executions(&self, tool: &str, out: &mut String) {
        for status in STATUSES {
            let counts: Vec<(&str, u64)> = match status {
                Status::Success => vec![("", self.success.load(Ordering::Relaxed))],
                Status::Abandoned => vec![("", self.abandoned.load(Ordering::Relaxed))],
                Status::Error => CODES
                    .iter()
                    .map(|code| (code.label(), self.errors[place(*code)].load(Ordering::Relaxed)))
                    .filter(|(_, count)| *count > 0)
                    .collect(),
            };
            for (code, count) in counts {
                let labels = format!("tool=\"{tool}\",status=\"{}\",code=\"{code}\"", status.label());
                line(out, "toolgate_tool_executions_total", &labels, count);
            }
        }
    }

    fn render_times(&self, name: &str, tool: &str, out: &mut String) {
        let mut sum = 0;
        let bucket = format!("{name}_bucket");
        for (index, count) in self.times.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            let bound = BOUNDS.get(index).map_or_else(|| "+Inf".to_owned(), |bound| seconds(*bound));
            line(out, &bucket, &format!("tool=\"{tool}\",le=\"{bound}\""), sum);
        }
        let micros = self.micros.load(Ordering::Relaxed);
        line(out, &format!("{name}_sum"), &format!("tool=\"{tool}\""), seconds(micros));
        line(out, &format!("{name}_count"), &format!("tool=\"{tool}\""), sum);
    }
}

/// Microseconds as a number of seconds.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

/// The value of a label, as the format wants it.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_monitoring_system_reads() {
        let metrics = Metrics::default();
        let tool = metrics.tool("files.\"read\"");
        tool.ended(None, Duration::from_micros(500), false);
        tool.ended(None, Duration::from_micros(501), true);
        tool.ended(Some(ErrorCode::Timeout), Duration::from_secs(100), false);
        metrics.tool("files.\"read\"").abandoned(Duration::from_millis(3));
        let text = metrics.render();
        let expected = r#"# HELP toolgate_tool_executions_total Calls that ended, by how they ended.
# TYPE toolgate_tool_executions_total counter
toolgate_tool_executions_total{tool="files.\"read\"",status="success",code=""} 2
toolgate_tool_executions_total{tool="files.\"read\"",status="error",code="timeout"} 1
toolgate_tool_executions_total{tool="files.\"read\"",status="abandoned",code=""} 1
# HELP tool_usage Calls that ended, by tool.
# TYPE tool_usage counter
tool_usage{tool_name="files.\"read\""} 4
# HELP toolgate_tool_cache_hits_total Calls that were answered from memory.
# TYPE toolgate_tool_cache_hits_total counter
toolgate_tool_cache_hits_total{tool="files.\"read\""} 1
# HELP toolgate_tool_duration_seconds Time from the request to the result.
# TYPE toolgate_tool_duration_seconds histogram
toolgate_tool_duration_seconds_bucket{tool="files.\"read\"",le="0.0005"} 1
toolgate_tool_duration_seconds_bucket{tool="files.\"read\"",le="0.001"} 2
"#;
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("le=\"60\"} 3\n") && text.contains("le=\"+Inf\"} 4\n"));
        assert!(text.ends_with(
            "toolgate_tool_duration_seconds_sum{tool=\"files.\\\"read\\\"\"} 100.004001\n\
             toolgate_tool_duration_seconds_count{tool=\"files.\\\"read\\\"\"} 4\n"
        ));
    }

    #[test]
    fn every_code_has_its_place() {
        for (index, code) in CODES.into_iter().enumerate() {
            assert_eq!(place(code), index);
        }
    }

    #[test]
    fn names_are_bounded() {
        let metrics = Metrics::default();
        for index in 0..MOST_TOOLS + 5 {
            metrics.tool(&index.to_string()).ended(None, Duration::ZERO, false);
        }
        metrics.tool(&"ä".repeat(1000)).ended(None, Duration::ZERO, false);
        assert_eq!(metrics.tools.read().unwrap().len(), MOST_TOOLS + 1);
        assert_eq!(metrics.tool(OTHERS).count(), 6);
        assert_eq!(metrics.tool("7").count(), 1);
    }
}
