//! Metrics per tool, in the Prometheus text format.
//!
//! A call takes the handle of its tool once and counts with a few atomic additions; nothing is locked or allocated
//! per call. Invariant: label cardinality is bounded. Names come from the catalog, and tools beyond ten thousand share
//! one label; statuses and codes are closed sets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use toolgate_types::ErrorCode;

use crate::record::CallStatus;

/// Maximum number of tools with their own label.
const MAX_TOOLS: usize = 10_000;
/// Label shared by all further tools. It cannot be a tool name, because those have no brackets.
const OTHERS: &str = "(others)";
/// Maximum length of a name in a label.
const MAX_NAME_LENGTH: usize = 128;

/// Upper bounds of the duration buckets, in microseconds.
const BOUNDS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

const STATUSES: [CallStatus; 3] = [CallStatus::Success, CallStatus::Error, CallStatus::Abandoned];

/// Returns the index of a code in [`ErrorCode::ALL`]. A match, so that a new code fails to compile until it is added.
fn code_index(code: ErrorCode) -> usize {
    match code {
        ErrorCode::InvalidArguments => 0,
        ErrorCode::ToolNotFound => 1,
        ErrorCode::Unauthorized => 2,
        ErrorCode::RateLimited => 3,
        ErrorCode::Overloaded => 4,
        ErrorCode::Timeout => 5,
        ErrorCode::ServiceUnavailable => 6,
        ErrorCode::ProviderFailure => 7,
        ErrorCode::ToolUnusable => 8,
        ErrorCode::ToolExecutionError => 9,
        ErrorCode::InvalidOutput => 10,
        ErrorCode::OutputTooLarge => 11,
        ErrorCode::Cancelled => 12,
        ErrorCode::DeprecatedRemoved => 13,
        ErrorCode::StorageUnavailable => 14,
        ErrorCode::NotFound => 15,
    }
}

/// Metrics of all tools.
#[derive(Debug, Default)]
pub struct Metrics {
    tools: RwLock<BTreeMap<Box<str>, Arc<ToolMetrics>>>,
}

impl Metrics {
    /// Returns the metrics of a tool, to be looked up once and kept. Only for names in the catalog: names invented by
    /// callers would fill the table.
    pub fn tool(&self, name: &str) -> Arc<ToolMetrics> {
        let name = &name[..name.floor_char_boundary(MAX_NAME_LENGTH)];
        if let Some(known) = self.tools.read().get(name) {
            return Arc::clone(known);
        }
        let mut tools = self.tools.write();
        let name = if tools.len() < MAX_TOOLS || tools.contains_key(name) { name } else { OTHERS };
        Arc::clone(tools.entry(name.into()).or_default())
    }

    /// Returns the metrics for calls of tools that are not in the catalog.
    pub fn unknown_tool(&self) -> Arc<ToolMetrics> {
        self.tool("(unknown)")
    }

    /// Renders all metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        let tools = self.tools.read();
        let tools: Vec<_> = tools.iter().map(|(name, tool)| (escape_label(name), tool)).collect();
        let mut out = String::new();
        write_header(
            &mut out,
            "toolgate_tool_executions_total",
            "counter",
            "Calls that ended, by how they ended.",
        );
        for (name, tool) in &tools {
            tool.render_executions(name, &mut out);
        }
        write_header(&mut out, "tool_usage", "counter", "Calls that ended, by tool.");
        for (name, tool) in &tools {
            write_sample(&mut out, "tool_usage", &format!("tool_name=\"{name}\""), tool.count());
        }
        write_header(
            &mut out,
            "toolgate_tool_cache_hits_total",
            "counter",
            "Calls that were answered from memory.",
        );
        for (name, tool) in &tools {
            let hits = tool.cache_hits.load(Ordering::Relaxed);
            write_sample(&mut out, "toolgate_tool_cache_hits_total", &format!("tool=\"{name}\""), hits);
        }
        let name_of_time = "toolgate_tool_duration_seconds";
        write_header(&mut out, name_of_time, "histogram", "Time from the request to the result.");
        for (name, tool) in &tools {
            tool.render_times(name_of_time, name, &mut out);
        }
        out
    }
}

/// Metrics of one tool.
#[derive(Debug, Default)]
pub struct ToolMetrics {
    success: AtomicU64,
    abandoned: AtomicU64,
    errors: [AtomicU64; ErrorCode::ALL.len()],
    cache_hits: AtomicU64,
    times: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl ToolMetrics {
    /// Counts a call that ended; `error` is `None` for a success.
    pub fn record_end(&self, error: Option<ErrorCode>, took: Duration, cached: bool) {
        let count = match error {
            None => &self.success,
            Some(code) => &self.errors[code_index(code)],
        };
        count.fetch_add(1, Ordering::Relaxed);
        if cached {
            self.cache_hits.fetch_add(1, Ordering::Relaxed);
        }
        self.record_duration(took);
    }

    /// Counts a call whose caller disconnected.
    pub fn record_abandoned(&self, took: Duration) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        self.record_duration(took);
    }

    fn record_duration(&self, took: Duration) {
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
                CallStatus::Success => vec![("", self.success.load(Ordering::Relaxed))],
                CallStatus::Abandoned => vec![("", self.abandoned.load(Ordering::Relaxed))],
                CallStatus::Error => ErrorCode::ALL
                    .iter()
                    .map(|code| (code.label(), self.errors[code_index(*code)].load(Ordering::Relaxed)))
                    .filter(|(_, count)| *count > 0)
                    .collect(),
            };
            for (code, count) in counts {
                let labels = format!("tool=\"{tool}\",status=\"{}\",code=\"{code}\"", status.label());
                write_sample(out, "toolgate_tool_executions_total", &labels, count);
            }
        }
    }

    fn render_times(&self, name: &str, tool: &str, out: &mut String) {
        let mut sum = 0;
        let bucket = format!("{name}_bucket");
        for (index, count) in self.times.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            let bound = BOUNDS.get(index).map_or_else(|| "+Inf".to_owned(), |bound| seconds(*bound));
            write_sample(out, &bucket, &format!("tool=\"{tool}\",le=\"{bound}\""), sum);
        }
        let micros = self.micros.load(Ordering::Relaxed);
        write_sample(out, &format!("{name}_sum"), &format!("tool=\"{tool}\""), seconds(micros));
        write_sample(out, &format!("{name}_count"), &format!("tool=\"{tool}\""), sum);
    }
}

/// Formats microseconds as seconds.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn write_header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn write_sample(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

/// Escapes a label value.
fn escape_label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_prometheus_text() {
        let metrics = Metrics::default();
        let tool = metrics.tool("files.\"read\"");
        tool.record_end(None, Duration::from_micros(500), false);
        tool.record_end(None, Duration::from_micros(501), true);
        tool.record_end(Some(ErrorCode::Timeout), Duration::from_secs(100), false);
        metrics.tool("files.\"read\"").record_abandoned(Duration::from_millis(3));
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
    fn every_code_has_its_index() {
        for (index, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(code_index(code), index);
        }
    }

    #[test]
    fn label_cardinality_is_bounded() {
        let metrics = Metrics::default();
        for index in 0..MAX_TOOLS + 5 {
            metrics.tool(&index.to_string()).record_end(None, Duration::ZERO, false);
        }
        metrics.tool(&"ä".repeat(1000)).record_end(None, Duration::ZERO, false);
        assert_eq!(metrics.tools.read().len(), MAX_TOOLS + 1);
        assert_eq!(metrics.tool(OTHERS).count(), 6);
        assert_eq!(metrics.tool("7").count(), 1);
    }
}
