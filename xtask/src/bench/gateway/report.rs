//! The figures as a table on the terminal, as JSON and as a chart below `target/bench`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::hung::{Hung, SERVERS};
use super::memory::{Memory, SESSIONS};
use super::{Figure, chart};
use crate::bench::verdict;

/// All that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) binary: String,
    pub(super) quick: bool,
    pub(super) cores: usize,
    pub(super) load_before: String,
    pub(super) load_after: String,
    pub(super) contenders: Vec<(&'static str, String)>,
    /// Who could not take part, and why.
    pub(super) absent: Vec<String>,
    pub(super) memory: Memory,
    pub(super) hung: Hung,
    pub(super) figures: Vec<Figure>,
}

impl Report {
    pub(super) fn print(&self) {
        println!("bench `gateway`");
        self.contenders.iter().for_each(|(name, what)| println!("  {name:<10} {what}"));
        self.absent.iter().for_each(|why| println!("  not measured: {why}"));
        let mut tool = "";
        for figure in &self.figures {
            if figure.cell.name != tool {
                tool = figure.cell.name;
                println!(
                    "  {:<17} {:<10} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10}",
                    tool, "", "CPU/call", "calls/s", "p50", "p99", "added p50", "added p99"
                );
            }
            println!("{}", self.row(figure));
        }
        self.print_memory();
        let Hung { before_p99_us, during_p99_us, list_p99_us, errors, error } = &self.hung;
        println!(
            "  one of {SERVERS} servers hangs: p99 of the others {}, {} before",
            us(*during_p99_us),
            us(*before_p99_us)
        );
        println!("                p99 of tools/list meanwhile {}, {errors} failed", us(*list_p99_us));
        if let Some(error) = error {
            println!("                {error}");
        }
        self.bars().iter().for_each(|(bar, met)| println!("  bar  {bar}: {}", verdict(*met)));
        let (before, after) = (&self.load_before, &self.load_after);
        println!("  load average  {before} before, {after} after, {} processors", self.cores);
    }

    fn row(&self, figure: &Figure) -> String {
        let direct = self.find("direct", figure.cell.name, figure.cell.connections);
        let added = |of: fn(&Figure) -> f64| match direct {
            Some(direct) if figure.contender != "direct" && figure.calls > 0 => us(of(figure) - of(direct)),
            _ => "–".to_owned(),
        };
        let cpu = figure.cpu_us_per_call.map_or_else(|| "–".to_owned(), us);
        let connections = match figure.cell.connections {
            1 => "1 connection".to_owned(),
            number => format!("{number} connections"),
        };
        let mut row = format!(
            "    {connections:<15} {:<10} {cpu:>11} {:>10.0} {:>10} {:>10} {:>10} {:>10}",
            figure.contender,
            figure.calls_per_second,
            us(figure.p50_us),
            us(figure.p99_us),
            added(|figure| figure.p50_us),
            added(|figure| figure.p99_us),
        );
        if let Some(error) = &figure.error {
            row += &format!("\n      {} connections failed: {error}", figure.errors);
        }
        row
    }

    fn print_memory(&self) {
        let Memory { idle_kib, legacy_added_kib, modern_added_kib } = &self.memory;
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

    fn find(&self, contender: &str, tool: &str, connections: u32) -> Option<&Figure> {
        self.figures.iter().find(|figure| {
            figure.contender == contender
                && figure.cell.name == tool
                && figure.cell.connections == connections
        })
    }

    /// What is wanted, how far it is reached, and whether that is far enough.
    fn bars(&self) -> Vec<(String, bool)> {
        let mut bars = Vec::new();
        for connections in [16, 64] {
            bars.extend(self.beside_nginx("nginx", connections));
        }
        for connections in [16, 64] {
            bars.extend(self.beside_nginx("plain", connections));
        }
        if let Some((ours, direct)) = self.pair("direct", "small", 1) {
            let added = ours.p50_us - direct.p50_us;
            let bar = format!("1 connection, p50 {} above the direct connection, at most 150 µs", us(added));
            bars.push((bar, added <= 150.0));
        }
        for nginx in ["nginx", "plain"] {
            let pair = self.pair(nginx, "mib1", 16);
            if let Some((ours, theirs)) =
                pair.and_then(|(ours, it)| ours.cpu_ns_per_byte.zip(it.cpu_ns_per_byte))
            {
                let times = ours / theirs;
                let bar = format!("1 MiB results, {times:.2} times the CPU per byte of {nginx}, at most 2");
                bars.push((bar, times <= 2.0));
            }
        }
        bars.extend(self.beside_peers());
        bars.extend(self.memory_bars());
        bars.extend(self.hung_bars());
        bars
    }

    fn hung_bars(&self) -> [(String, bool); 2] {
        let Hung { before_p99_us, during_p99_us, list_p99_us, errors, .. } = self.hung;
        let most = before_p99_us * 1.1 + 1_000.0;
        let others =
            format!("one server hangs, p99 of the others {}, at most {}", us(during_p99_us), us(most));
        let list = format!("one server hangs, p99 of tools/list {}, at most 5 ms", us(list_p99_us));
        [(others, during_p99_us <= most && errors == 0), (list, list_p99_us <= 5_000.0 && errors == 0)]
    }

    /// Toolgate and another one in the same cell.
    fn pair(&self, other: &str, tool: &str, connections: u32) -> Option<(&Figure, &Figure)> {
        self.find("toolgate", tool, connections).zip(self.find(other, tool, connections))
    }

    fn beside_nginx(&self, nginx: &str, connections: u32) -> Vec<(String, bool)> {
        let Some((ours, theirs)) = self.pair(nginx, "small", connections) else { return Vec::new() };
        let mut bars = Vec::new();
        if let Some((ours, theirs)) = ours.cpu_us_per_call.zip(theirs.cpu_us_per_call) {
            let times = ours / theirs;
            let bar = format!(
                "{connections} connections, {times:.2} times the CPU per call of {nginx}, at most 1.5"
            );
            bars.push((bar, times <= 1.5));
        }
        let times = ours.calls_per_second / theirs.calls_per_second;
        let bar = format!("{connections} connections, {times:.2} times the calls/s of {nginx}, at least 0.7");
        bars.push((bar, times >= 0.7));
        bars
    }

    fn beside_peers(&self) -> Vec<(String, bool)> {
        let of_ours = ["direct", "nginx", "plain", "toolgate", "short log"];
        // What changes something waits for the disk here, and nowhere else.
        let compared = |it: &&Figure| !of_ours.contains(&it.contender) && it.cell.name != "changes";
        let peers = self.figures.iter().filter(compared).filter(|it| it.calls > 0);
        let bars = peers.filter_map(|peer| {
            let Figure { contender, cell, .. } = peer;
            let ours = self.find("toolgate", cell.name, cell.connections)?;
            let times = ours.calls_per_second / peer.calls_per_second;
            let place = format!("{} results, connections: {}", cell.name, cell.connections);
            Some((format!("{place}, {times:.1} times the calls/s of {contender}, at least 2"), times >= 2.0))
        });
        bars.collect()
    }

    fn memory_bars(&self) -> Vec<(String, bool)> {
        let mut bars = Vec::new();
        if let Some(kib) = self.memory.idle_kib {
            bars.push((format!("{:.1} MiB when idle, at most 30", kib / 1024.0), kib <= 30.0 * 1024.0));
        }
        for (kind, added) in [("open", self.memory.legacy_added_kib), ("idle", self.memory.modern_added_kib)]
        {
            let Some(each) = added.map(|kib| kib / f64::from(SESSIONS)) else { continue };
            bars.push((format!("{each:.1} KiB for each {kind} session, at most 20"), each <= 20.0));
        }
        bars
    }

    /// Writes what a program reads, and what a person looks at.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        for (name, text) in [("gateway.json", json), ("gateway.svg", chart::svg(&self.figures))] {
            let file = folder.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            println!("  written       {}", file.display());
        }
        Ok(())
    }
}

/// Microseconds, or milliseconds where those are many.
fn us(time: f64) -> String {
    if time.abs() < 10_000.0 { format!("{time:.0} µs") } else { format!("{:.1} ms", time / 1_000.0) }
}
