//! The report: a table on the terminal, and JSON and a chart below `target/bench`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::bars::Bar;
use super::counts::CallCounts;
use super::hung::{HungReport, SERVERS};
use super::memory::{MemoryReport, SESSIONS};
use super::startup::StartupReport;
use super::{Measurement, bars, chart, counts};

/// All measurements of a run.
#[derive(Debug, Serialize)]
pub(super) struct GatewayReport {
    pub(super) binary: String,
    pub(super) quick: bool,
    /// Placement of the processes, or the fact that they are not pinned.
    pub(super) processors: String,
    pub(super) load_before: String,
    pub(super) load_after: String,
    pub(super) contenders: Vec<(&'static str, String)>,
    /// Contenders that could not start, with the reasons.
    pub(super) absent: Vec<String>,
    pub(super) memory: MemoryReport,
    pub(super) startup: StartupReport,
    /// Shortest time of an append with `fdatasync`.
    pub(super) sync_us: f64,
    pub(super) hung: HungReport,
    #[serde(rename = "figures")]
    pub(super) measurements: Vec<Measurement>,
    pub(super) counts: Vec<CallCounts>,
}

/// The JSON file: the report with its bars.
#[derive(Serialize)]
struct ReportFile<'a> {
    #[serde(flatten)]
    report: &'a GatewayReport,
    bars: Vec<Bar>,
}

impl GatewayReport {
    pub(super) fn print(&self) {
        println!("bench `gateway`");
        self.contenders.iter().for_each(|(name, description)| println!("  {name:<10} {description}"));
        self.absent.iter().for_each(|why| println!("  not measured: {why}"));
        let mut tool = "";
        for measurement in &self.measurements {
            if measurement.case.name != tool {
                tool = measurement.case.name;
                println!(
                    "  {:<17} {:<10} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10}",
                    tool, "", "CPU/call", "calls/s", "p50", "p99", "added p50", "added p99"
                );
            }
            println!("{}", self.row(measurement));
        }
        self.print_memory();
        let HungReport { before_p99_us, during_p99_us, list_p99_us, errors, error } = &self.hung;
        println!(
            "  one of {SERVERS} servers hangs: p99 of the others {}, {} before",
            us(*during_p99_us),
            us(*before_p99_us)
        );
        println!("                p99 of tools/list meanwhile {}, {errors} failed", us(*list_p99_us));
        if let Some(error) = error {
            println!("                {error}");
        }
        let StartupReport { first_ms, later_ms } = &self.startup;
        println!("  cold start    {later_ms:.1} ms to the first call, {first_ms:.1} ms in a new project");
        println!("  fdatasync     {} for an append of 1 KiB", us(self.sync_us));
        counts::print_table(&self.counts);
        let bars = bars::all(self);
        println!("  bars");
        bars.iter().for_each(|bar| println!("    {}", bar.line()));
        let met = bars.iter().filter(|bar| bar.is_met()).count();
        println!("  {met} of {} bars met", bars.len());
        if met < bars.len() {
            println!("  next          `cargo xtask bench counts` lists the functions that cost most");
        }
        println!("  processors    {}", self.processors);
        println!("  load average  {} before, {} after", self.load_before, self.load_after);
    }

    fn row(&self, measurement: &Measurement) -> String {
        let direct = self.find("direct", measurement.case.name, measurement.case.connections);
        let added = |of: fn(&Measurement) -> f64| match direct {
            Some(direct) if measurement.contender != "direct" && measurement.calls > 0 => {
                us(of(measurement) - of(direct))
            }
            _ => "–".to_owned(),
        };
        let cpu = measurement.cpu_us_per_call.map_or_else(|| "–".to_owned(), us);
        let connections = match measurement.case.connections {
            1 => "1 connection".to_owned(),
            number => format!("{number} connections"),
        };
        let mut row = format!(
            "    {connections:<15} {:<10} {cpu:>11} {:>10.0} {:>10} {:>10} {:>10} {:>10}",
            measurement.contender,
            measurement.calls_per_second,
            us(measurement.p50_us),
            us(measurement.p99_us),
            added(|measurement| measurement.p50_us),
            added(|measurement| measurement.p99_us),
        );
        if let Some(error) = &measurement.error {
            row += &format!("\n      {} connections failed: {error}", measurement.errors);
        }
        row
    }

    fn print_memory(&self) {
        let MemoryReport { idle_kib, legacy_added_kib, modern_added_kib } = &self.memory;
        let shown = |kib: &Option<f64>| {
            kib.map_or_else(|| "unknown".to_owned(), |kib| format!("{:.1} MiB", kib / 1024.0))
        };
        println!("  memory        idle {}", shown(idle_kib));
        println!(
            "                {SESSIONS} sessions with their streams open add {}",
            shown(legacy_added_kib)
        );
        println!("                {SESSIONS} idle clients without sessions add {}", shown(modern_added_kib));
    }

    pub(super) fn find(&self, contender: &str, tool: &str, connections: u32) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| {
            measurement.contender == contender
                && measurement.case.name == tool
                && measurement.case.connections == connections
        })
    }

    /// Writes the JSON and the chart.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(&ReportFile { report: self, bars: bars::all(self) })?;
        for (name, text) in [("gateway.json", json), ("gateway.svg", chart::svg(&self.measurements))] {
            let file = folder.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            println!("  written       {}", file.display());
        }
        Ok(())
    }
}

/// Microseconds, or milliseconds for large values.
fn us(time: f64) -> String {
    if time.abs() < 10_000.0 { format!("{time:.0} µs") } else { format!("{:.1} ms", time / 1_000.0) }
}
