//! The bars: the figures that the gateway has to reach, each with its measured value.
//!
//! Invariant: a bar whose figure was not measured is listed as such, never as met.

use serde::Serialize;

use super::Measurement;
use super::contender::{ContenderKind, LogLimit};
use super::counts::{CallCounts, Count};
use super::hung::HungReport;
use super::memory::SESSIONS;
use super::nginx::NginxSetup;
use super::report::GatewayReport;

/// Time that a call may take in addition to one sync.
const OVER_SYNC_US: f64 = 150.0;

const TOOLGATE: &str = ContenderKind::Toolgate(LogLimit::Whole).name();
const TOOLGATE_64KIB: &str = ContenderKind::Toolgate(LogLimit::Kib64).name();
const NGINX: &str = ContenderKind::Nginx(NginxSetup::Tuned).name();
const DIRECT: &str = ContenderKind::Direct.name();

/// The direction of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    AtMost,
    AtLeast,
}

/// A figure with the value it has to reach.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Bar {
    pub(super) figure: String,
    pub(super) unit: &'static str,
    pub(super) direction: Direction,
    /// The measured value, or the reason why there is none.
    pub(super) value: Result<f64, String>,
    pub(super) bar: f64,
    pub(super) goal: Option<f64>,
}

impl Bar {
    /// Returns true if the measured value reaches a limit.
    fn reaches(&self, limit: f64) -> bool {
        self.value.as_ref().is_ok_and(|value| match self.direction {
            Direction::AtMost => *value <= limit,
            Direction::AtLeast => *value >= limit,
        })
    }

    pub(super) fn is_met(&self) -> bool {
        self.reaches(self.bar)
    }

    /// One line of the report.
    pub(super) fn line(&self) -> String {
        let sign = match self.direction {
            Direction::AtMost => "≤",
            Direction::AtLeast => "≥",
        };
        let (figure, unit) = (&self.figure, self.unit);
        let number = |value: f64| format!("{} {unit}", format_number(value)).trim_end().to_owned();
        let goal = self.goal.map_or_else(String::new, |goal| format!(", goal {sign} {}", number(goal)));
        let limits = format!("bar {sign} {}{goal}", number(self.bar));
        match &self.value {
            Err(why) => format!("not measured  {figure} ({limits}): {why}"),
            Ok(value) => {
                let verdict = if self.goal.is_some_and(|goal| self.reaches(goal)) {
                    "goal met"
                } else if self.is_met() {
                    "met"
                } else {
                    "MISSED"
                };
                format!("{verdict:<13} {figure}: {} ({limits})", number(*value))
            }
        }
    }
}

/// Formats a number with as many decimals as its size needs.
fn format_number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

fn at_most(
    figure: String,
    unit: &'static str,
    value: Result<f64, String>,
    bar: f64,
    goal: Option<f64>,
) -> Bar {
    Bar { figure, unit, direction: Direction::AtMost, value, bar, goal }
}

fn at_least(
    figure: String,
    unit: &'static str,
    value: Result<f64, String>,
    bar: f64,
    goal: Option<f64>,
) -> Bar {
    Bar { figure, unit, direction: Direction::AtLeast, value, bar, goal }
}

/// All bars of a report.
pub(super) fn all(report: &GatewayReport) -> Vec<Bar> {
    let mut bars = Vec::new();
    for connections in [16, 64] {
        let figure = format!("CPU per small call, {connections} connections, against nginx");
        bars.push(at_most(figure, "×", cpu_ratio(report, TOOLGATE, "small", connections), 2.2, Some(1.3)));
    }
    for connections in [16, 64] {
        let figure = format!("calls/s, small, {connections} connections, against nginx");
        let ratio = rate_ratio(report, NGINX, "small", connections);
        bars.push(at_least(figure, "×", ratio, 0.45, Some(0.75)));
    }
    bars.extend(peer_bars(report));
    bars.extend(count_bars(&report.counts));
    bars.push(latency_bar(report));
    bars.extend(large_bars(report));
    bars.push(default_tool_bar(report));
    let figure = "cold start to the first call".to_owned();
    bars.push(at_most(figure, "ms", Ok(report.startup.later_ms), 30.0, Some(15.0)));
    bars.extend(memory_bars(report));
    bars.extend(hung_bars(&report.hung));
    bars
}

fn find<'a>(
    report: &'a GatewayReport,
    name: &str,
    case: &str,
    connections: u32,
) -> Result<&'a Measurement, String> {
    let found = report.find(name, case, connections).filter(|it| it.calls > 0);
    found.ok_or_else(|| format!("no call of {name} ({case}, connections: {connections})"))
}

/// The CPU time per call of a contender as a multiple of that of nginx.
fn cpu_ratio(report: &GatewayReport, name: &str, case: &str, connections: u32) -> Result<f64, String> {
    let cpu = |name| -> Result<f64, String> {
        let measurement = find(report, name, case, connections)?;
        measurement.cpu_us_per_call.ok_or_else(|| format!("the CPU time of {name} is unknown"))
    };
    Ok(cpu(name)? / cpu(NGINX)?)
}

/// The calls per second of Toolgate as a multiple of those of another contender.
fn rate_ratio(report: &GatewayReport, other: &str, case: &str, connections: u32) -> Result<f64, String> {
    let rate = |name| find(report, name, case, connections).map(|it| it.calls_per_second);
    Ok(rate(TOOLGATE)? / rate(other)?)
}

/// Calls per second against other gateways, in every case. Calls of the default tool are left out: there Toolgate waits
/// for the disk, and the others do not.
fn peer_bars(report: &GatewayReport) -> Vec<Bar> {
    let peers =
        [ContenderKind::Rmcp, ContenderKind::Fastmcp, ContenderKind::Agentgateway].map(ContenderKind::name);
    let compared =
        report.measurements.iter().filter(|it| peers.contains(&it.contender) && !it.case.is_durable());
    compared
        .map(|peer| {
            let (case, connections) = (peer.case.name, peer.case.connections);
            let figure = format!("calls/s, {case}, connections: {connections}, against {}", peer.contender);
            at_least(figure, "×", rate_ratio(report, peer.contender, case, connections), 2.0, Some(3.0))
        })
        .collect()
}

fn count_bars(counts: &[CallCounts]) -> Vec<Bar> {
    let small = counts.iter().find(|counts| counts.contender == TOOLGATE && counts.case == "small");
    let figure = |of: fn(&CallCounts) -> &Count| {
        small.map_or_else(|| Err("not counted".to_owned()), |it| of(it).clone())
    };
    vec![
        at_most(
            "user instructions per small call".to_owned(),
            "",
            figure(|counts| &counts.instructions),
            80_000.0,
            Some(45_000.0),
        ),
        at_most(
            "system calls per small call".to_owned(),
            "",
            figure(|counts| &counts.system_calls),
            6.0,
            Some(5.5),
        ),
        at_most(
            "allocations per small call".to_owned(),
            "",
            figure(|counts| &counts.allocations),
            40.0,
            Some(20.0),
        ),
    ]
}

/// The latency added at one connection, against that of nginx.
fn latency_bar(report: &GatewayReport) -> Bar {
    let p50 = |name| find(report, name, "small", 1).map(|it| it.p50_us);
    let added = |name| -> Result<f64, String> { Ok(p50(name)? - p50(DIRECT)?) };
    let figure = "p50 added at one connection, small".to_owned();
    match added(NGINX) {
        Ok(bar) => at_most(figure + ", against nginx's", "µs", added(TOOLGATE), bar, Some(65.0)),
        Err(why) => at_most(figure, "µs", Err(why), 65.0, Some(65.0)),
    }
}

fn large_bars(report: &GatewayReport) -> Vec<Bar> {
    let bar = |case, size, name, logged, bar, goal| {
        let figure = format!("CPU per {size} result, {logged}, 16 connections, against nginx");
        at_most(figure, "×", cpu_ratio(report, name, case, 16), bar, Some(goal))
    };
    vec![
        bar("kib64", "64 KiB", TOOLGATE, "logged whole", 3.0, 2.0),
        bar("mib1", "1 MiB", TOOLGATE, "logged whole", 4.0, 3.0),
        bar("mib1", "1 MiB", TOOLGATE_64KIB, "64 KiB logged", 2.0, 1.4),
    ]
}

/// A tool without any settings waits for one sync before it is called.
fn default_tool_bar(report: &GatewayReport) -> Bar {
    let p50 = |name| find(report, name, "default", 1).map(|it| it.p50_us);
    let added = || -> Result<f64, String> { Ok(p50(TOOLGATE)? - p50(DIRECT)?) };
    let sync = report.sync_us;
    let figure = format!("p50 added at one connection, default tool (one fdatasync: {sync:.0} µs)");
    at_most(figure, "µs", added(), sync + OVER_SYNC_US, None)
}

fn memory_bars(report: &GatewayReport) -> Vec<Bar> {
    let unknown = || "no /proc on this system".to_owned();
    let memory = &report.memory;
    let each = |added: Option<f64>| added.map(|kib| kib / f64::from(SESSIONS)).ok_or_else(unknown);
    let idle = memory.idle_kib.map(|kib| kib / 1024.0).ok_or_else(unknown);
    let open = each(memory.legacy_added_kib);
    vec![
        at_most("memory when idle".to_owned(), "MiB", idle, 30.0, Some(15.0)),
        at_most("memory of an open session".to_owned(), "KiB", open, 20.0, Some(10.0)),
        at_most(
            "memory of an idle client".to_owned(),
            "KiB",
            each(memory.modern_added_kib),
            20.0,
            Some(10.0),
        ),
    ]
}

fn hung_bars(hung: &HungReport) -> Vec<Bar> {
    let value = |p99: f64| match &hung.error {
        None => Ok(p99 / 1_000.0),
        Some(error) => Err(error.clone()),
    };
    let others = (hung.before_p99_us * 1.1 + 1_000.0) / 1_000.0;
    vec![
        at_most(
            "one server hangs: p99 of the others".to_owned(),
            "ms",
            value(hung.during_p99_us),
            others,
            None,
        ),
        at_most("one server hangs: p99 of `tools/list`".to_owned(), "ms", value(hung.list_p99_us), 5.0, None),
    ]
}

#[test]
fn a_line_names_value_bar_and_goal() {
    let bar = |value: Result<f64, &str>| {
        at_most("CPU".to_owned(), "×", value.map_err(str::to_owned), 2.2, Some(1.3))
    };
    assert_eq!(bar(Ok(1.3)).line(), "goal met      CPU: 1.30 × (bar ≤ 2.20 ×, goal ≤ 1.30 ×)");
    assert_eq!(bar(Ok(2.0)).line(), "met           CPU: 2.00 × (bar ≤ 2.20 ×, goal ≤ 1.30 ×)");
    assert_eq!(bar(Ok(9.0)).line(), "MISSED        CPU: 9.00 × (bar ≤ 2.20 ×, goal ≤ 1.30 ×)");
    assert_eq!(bar(Err("no nginx")).line(), "not measured  CPU (bar ≤ 2.20 ×, goal ≤ 1.30 ×): no nginx");
    assert!(at_least("calls/s".to_owned(), "×", Ok(0.5), 0.45, None).is_met());
    assert!(!at_least("calls/s".to_owned(), "×", Ok(0.4), 0.45, None).is_met());
}
