//! The report: a table on the terminal, and JSON and a chart below `target/bench`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::hung::{HungReport, SERVERS};
use super::memory::{MemoryReport, SESSIONS};
use super::{Measurement, chart};
use crate::bench::verdict;

/// All measurements of a run.
#[derive(Debug, Serialize)]
pub(super) struct GatewayReport {
    pub(super) binary: String,
    pub(super) quick: bool,
    pub(super) cores: usize,
    pub(super) load_before: String,
    pub(super) load_after: String,
    pub(super) contenders: Vec<(&'static str, String)>,
    /// Contenders that could not start, with the reasons.
    pub(super) absent: Vec<String>,
    pub(super) memory: MemoryReport,
    pub(super) hung: HungReport,
    #[serde(rename = "figures")]
    pub(super) measurements: Vec<Measurement>,
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
        self.targets().iter().for_each(|(target, met)| println!("  target  {target}: {}", verdict(*met)));
        let (before, after) = (&self.load_before, &self.load_after);
        println!("  load average  {before} before, {after} after, {} processors", self.cores);
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

    fn find(&self, contender: &str, tool: &str, connections: u32) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| {
            measurement.contender == contender
                && measurement.case.name == tool
                && measurement.case.connections == connections
        })
    }

    /// The targets with their values, each with true if it is met.
    fn targets(&self) -> Vec<(String, bool)> {
        let mut targets = Vec::new();
        for connections in [16, 64] {
            targets.extend(self.beside_nginx("nginx", connections));
        }
        for connections in [16, 64] {
            targets.extend(self.beside_nginx("plain", connections));
        }
        if let Some((ours, direct)) = self.pair("direct", "small", 1) {
            let added = ours.p50_us - direct.p50_us;
            let target =
                format!("1 connection, p50 {} above the direct connection, at most 150 µs", us(added));
            targets.push((target, added <= 150.0));
        }
        for nginx in ["nginx", "plain"] {
            let pair = self.pair(nginx, "mib1", 16);
            if let Some((ours, theirs)) =
                pair.and_then(|(ours, it)| ours.cpu_ns_per_byte.zip(it.cpu_ns_per_byte))
            {
                let times = ours / theirs;
                let target =
                    format!("1 MiB results, {times:.2} times the CPU per byte of {nginx}, at most 2");
                targets.push((target, times <= 2.0));
            }
        }
        targets.extend(self.beside_peers());
        targets.extend(self.memory_targets());
        targets.extend(self.hung_targets());
        targets
    }

    fn hung_targets(&self) -> [(String, bool); 2] {
        let HungReport { before_p99_us, during_p99_us, list_p99_us, errors, .. } = self.hung;
        let most = before_p99_us * 1.1 + 1_000.0;
        let others =
            format!("one server hangs, p99 of the others {}, at most {}", us(during_p99_us), us(most));
        let list = format!("one server hangs, p99 of tools/list {}, at most 5 ms", us(list_p99_us));
        [(others, during_p99_us <= most && errors == 0), (list, list_p99_us <= 5_000.0 && errors == 0)]
    }

    /// Returns Toolgate and another contender in the same case.
    fn pair(&self, other: &str, tool: &str, connections: u32) -> Option<(&Measurement, &Measurement)> {
        self.find("toolgate", tool, connections).zip(self.find(other, tool, connections))
    }

    fn beside_nginx(&self, nginx: &str, connections: u32) -> Vec<(String, bool)> {
        let Some((ours, theirs)) = self.pair(nginx, "small", connections) else { return Vec::new() };
        let mut targets = Vec::new();
        if let Some((ours, theirs)) = ours.cpu_us_per_call.zip(theirs.cpu_us_per_call) {
            let times = ours / theirs;
            let target = format!(
                "{connections} connections, {times:.2} times the CPU per call of {nginx}, at most 1.5"
            );
            targets.push((target, times <= 1.5));
        }
        let times = ours.calls_per_second / theirs.calls_per_second;
        let target =
            format!("{connections} connections, {times:.2} times the calls/s of {nginx}, at least 0.7");
        targets.push((target, times >= 0.7));
        targets
    }

    fn beside_peers(&self) -> Vec<(String, bool)> {
        let not_peers = ["direct", "nginx", "plain", "toolgate", "short log"];
        // Calls that change something wait for the disk in Toolgate, and in no other contender.
        let compared = |it: &&Measurement| !not_peers.contains(&it.contender) && it.case.name != "changes";
        let peers = self.measurements.iter().filter(compared).filter(|it| it.calls > 0);
        let targets = peers.filter_map(|peer| {
            let Measurement { contender, case, .. } = peer;
            let ours = self.find("toolgate", case.name, case.connections)?;
            let times = ours.calls_per_second / peer.calls_per_second;
            let place = format!("{} results, connections: {}", case.name, case.connections);
            Some((format!("{place}, {times:.1} times the calls/s of {contender}, at least 2"), times >= 2.0))
        });
        targets.collect()
    }

    fn memory_targets(&self) -> Vec<(String, bool)> {
        let mut targets = Vec::new();
        if let Some(kib) = self.memory.idle_kib {
            targets.push((format!("{:.1} MiB when idle, at most 30", kib / 1024.0), kib <= 30.0 * 1024.0));
        }
        for (kind, added) in [("open", self.memory.legacy_added_kib), ("idle", self.memory.modern_added_kib)]
        {
            let Some(each) = added.map(|kib| kib / f64::from(SESSIONS)) else { continue };
            targets.push((format!("{each:.1} KiB for each {kind} session, at most 20"), each <= 20.0));
        }
        targets
    }

    /// Writes the JSON and the chart.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(self)?;
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
