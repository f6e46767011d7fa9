//! Metrics per tool, and per caller and server, in the Prometheus text format.
//!
//! A call takes the handle of its tool once and counts with a few atomic additions; the counters of its caller are found
//! under a shared lock. Nothing is allocated per call. Invariant: label cardinality is bounded. Names come from the catalog,
//! and tools beyond ten thousand share one label, as do pairs of a caller and a server; statuses and codes are closed sets.

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
/// Maximum number of pairs of a caller and a server with their own labels.
const MAX_CALLER_PAIRS: usize = 10_000;
/// Label shared by all further tools. It cannot be a tool name, because those have no brackets.
const OTHERS: &str = "(others)";
/// Maximum length of a name in a label.
const MAX_NAME_LENGTH: usize = 128;

/// Upper bounds of the duration buckets, in microseconds.
pub(crate) const BOUNDS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

const STATUSES: [CallStatus; 3] = [CallStatus::Success, CallStatus::Error, CallStatus::Abandoned];

/// Returns the index of a code in [`ErrorCode::ALL`]. A match, so that a new code fails to compile until it is added.
pub(crate) fn code_index(code: ErrorCode) -> usize {
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
    callers: RwLock<CallerTable>,
}

/// Counters by caller and server.
#[derive(Debug, Default)]
struct CallerTable {
    callers: BTreeMap<Box<str>, Vec<(Box<str>, CallerMetrics)>>,
    /// Number of pairs of a caller and a server.
    pairs: usize,
}

impl CallerTable {
    fn get(&self, caller: &str, server: &str) -> Option<&CallerMetrics> {
        let servers = self.callers.get(caller)?;
        servers.iter().find(|(name, _)| **name == *server).map(|(_, counters)| counters)
    }
}

/// Calls of one caller on one server, by how they ended.
#[derive(Debug, Default)]
struct CallerMetrics([AtomicU64; STATUSES.len()]);

impl CallerMetrics {
    fn record(&self, status: CallStatus) {
        self.0[status_index(status)].fetch_add(1, Ordering::Relaxed);
    }
}

fn status_index(status: CallStatus) -> usize {
    match status {
        CallStatus::Success => 0,
        CallStatus::Error => 1,
        CallStatus::Abandoned => 2,
    }
}

impl Metrics {
    /// Counts a call that ended, for its caller. `server` is empty for own and unknown tools.
    pub fn record_caller(&self, caller: &str, server: &str, status: CallStatus) {
        let caller = &caller[..caller.floor_char_boundary(MAX_NAME_LENGTH)];
        if let Some(counters) = self.callers.read().get(caller, server) {
            return counters.record(status);
        }
        let mut table = self.callers.write();
        let is_full = table.pairs >= MAX_CALLER_PAIRS && table.get(caller, server).is_none();
        let (caller, server) = if is_full { (OTHERS, OTHERS) } else { (caller, server) };
        if table.get(caller, server).is_none() {
            let servers = table.callers.entry(caller.into()).or_default();
            servers.push((server.into(), CallerMetrics::default()));
            table.pairs += 1;
        }
        if let Some(counters) = table.get(caller, server) {
            counters.record(status);
        }
    }

    /// Returns the metrics of a tool, to be looked up once and kept. Only for names in the catalog: names invented by
    /// callers would fill the table. `server` is empty for own and unknown tools.
    pub fn tool(&self, name: &str, server: &str) -> Arc<ToolMetrics> {
        let name = &name[..name.floor_char_boundary(MAX_NAME_LENGTH)];
        if let Some(known) = self.tools.read().get(name) {
            return Arc::clone(known);
        }
        let mut tools = self.tools.write();
        let has_room = tools.len() < MAX_TOOLS || tools.contains_key(name);
        let (name, server) = if has_room { (name, server) } else { (OTHERS, "") };
        let new =
            || Arc::new(ToolMetrics { name: name.into(), server: server.into(), ..ToolMetrics::default() });
        Arc::clone(tools.entry(name.into()).or_insert_with(new))
    }

    /// Returns the metrics for calls of tools that are not in the catalog.
    pub fn unknown_tool(&self) -> Arc<ToolMetrics> {
        self.tool("(unknown)", "")
    }

    /// Renders all metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        let tools = self.tools.read();
        let labels = |name: &str, tool: &ToolMetrics| {
            format!("tool=\"{}\",server=\"{}\"", escape_label(name), escape_label(&tool.server))
        };
        let usage: Vec<_> = tools.iter().map(|(name, tool)| (escape_label(name), tool)).collect();
        let tools: Vec<_> = tools.iter().map(|(name, tool)| (labels(name, tool), tool)).collect();
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
        // The documented name lacks the suffix `_total` of a counter, and `promtool` rejects such a counter.
        write_header(&mut out, "tool_usage", "untyped", "Calls that ended, by tool.");
        for (name, tool) in &usage {
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
            write_sample(&mut out, "toolgate_tool_cache_hits_total", name, hits);
        }
        let name_of_time = "toolgate_tool_duration_seconds";
        write_header(&mut out, name_of_time, "histogram", "Time from the request to the result.");
        for (name, tool) in &tools {
            tool.render_times(name_of_time, name, &mut out);
        }
        self.render_callers(&mut out);
        out
    }
}

impl Metrics {
    fn render_callers(&self, out: &mut String) {
        let name = "toolgate_caller_executions_total";
        write_header(out, name, "counter", "Calls that ended, by caller and server.");
        for (caller, servers) in &self.callers.read().callers {
            let caller = escape_label(caller);
            for (server, CallerMetrics(counts)) in servers {
                let server = escape_label(server);
                for status in STATUSES {
                    let labels =
                        format!("caller=\"{caller}\",server=\"{server}\",status=\"{}\"", status.label());
                    write_sample(out, name, &labels, counts[status_index(status)].load(Ordering::Relaxed));
                }
            }
        }
    }
}

/// Metrics of one tool.
#[derive(Debug, Default)]
pub struct ToolMetrics {
    name: Box<str>,
    /// Server of the tool; empty for own tools.
    server: Box<str>,
    success: AtomicU64,
    abandoned: AtomicU64,
    errors: [AtomicU64; ErrorCode::ALL.len()],
    cache_hits: AtomicU64,
    times: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl ToolMetrics {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

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
                let labels = format!("{tool},status=\"{}\",code=\"{code}\"", status.label());
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
            write_sample(out, &bucket, &format!("{tool},le=\"{bound}\""), sum);
        }
        let micros = self.micros.load(Ordering::Relaxed);
        write_sample(out, &format!("{name}_sum"), tool, seconds(micros));
        write_sample(out, &format!("{name}_count"), tool, sum);
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
        let tool = metrics.tool("files.\"read\"", "files");
        tool.record_end(None, Duration::from_micros(500), false);
        tool.record_end(None, Duration::from_micros(501), true);
        tool.record_end(Some(ErrorCode::Timeout), Duration::from_secs(100), false);
        metrics.tool("files.\"read\"", "files").record_abandoned(Duration::from_millis(3));
        metrics.record_caller("ann", "", CallStatus::Success);
        for status in [CallStatus::Error, CallStatus::Error, CallStatus::Abandoned] {
            metrics.record_caller("ann", "files", status);
        }
        let text = metrics.render();
        let expected = r#"# HELP toolgate_tool_executions_total Calls that ended, by how they ended.
# TYPE toolgate_tool_executions_total counter
toolgate_tool_executions_total{tool="files.\"read\"",server="files",status="success",code=""} 2
toolgate_tool_executions_total{tool="files.\"read\"",server="files",status="error",code="timeout"} 1
toolgate_tool_executions_total{tool="files.\"read\"",server="files",status="abandoned",code=""} 1
# HELP tool_usage Calls that ended, by tool.
# TYPE tool_usage untyped
tool_usage{tool_name="files.\"read\""} 4
# HELP toolgate_tool_cache_hits_total Calls that were answered from memory.
# TYPE toolgate_tool_cache_hits_total counter
toolgate_tool_cache_hits_total{tool="files.\"read\"",server="files"} 1
# HELP toolgate_tool_duration_seconds Time from the request to the result.
# TYPE toolgate_tool_duration_seconds histogram
toolgate_tool_duration_seconds_bucket{tool="files.\"read\"",server="files",le="0.0005"} 1
toolgate_tool_duration_seconds_bucket{tool="files.\"read\"",server="files",le="0.001"} 2
"#;
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("le=\"60\"} 3\n") && text.contains("le=\"+Inf\"} 4\n"));
        let rest = r#"toolgate_tool_duration_seconds_sum{tool="files.\"read\"",server="files"} 100.004001
toolgate_tool_duration_seconds_count{tool="files.\"read\"",server="files"} 4
# HELP toolgate_caller_executions_total Calls that ended, by caller and server.
# TYPE toolgate_caller_executions_total counter
toolgate_caller_executions_total{caller="ann",server="",status="success"} 1
toolgate_caller_executions_total{caller="ann",server="",status="error"} 0
toolgate_caller_executions_total{caller="ann",server="",status="abandoned"} 0
toolgate_caller_executions_total{caller="ann",server="files",status="success"} 0
toolgate_caller_executions_total{caller="ann",server="files",status="error"} 2
toolgate_caller_executions_total{caller="ann",server="files",status="abandoned"} 1
"#;
        assert!(text.ends_with(rest), "{text}");
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
            metrics.tool(&index.to_string(), "").record_end(None, Duration::ZERO, false);
        }
        metrics.tool(&"ä".repeat(1000), "").record_end(None, Duration::ZERO, false);
        assert_eq!(metrics.tools.read().len(), MAX_TOOLS + 1);
        assert_eq!(metrics.tool(OTHERS, "").count(), 6);
        assert_eq!(metrics.tool("7", "").count(), 1);
        for index in 0..MAX_CALLER_PAIRS + 5 {
            metrics.record_caller(&(index / 2).to_string(), &(index % 2).to_string(), CallStatus::Success);
        }
        let table = metrics.callers.read();
        assert_eq!(table.pairs, MAX_CALLER_PAIRS + 1);
        assert_eq!(table.get(OTHERS, OTHERS).unwrap().0[0].load(Ordering::Relaxed), 5);
    }
}
