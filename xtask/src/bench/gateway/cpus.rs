//! The processors of the benchmark: one for the contender alone, one for the load and the upstream server.
//!
//! Invariant: a contender shares its processor with no other process of the benchmark, or the report says that nothing
//! was pinned.

use std::fs;
use std::process::Command;

use crate::program;

/// The processors that the processes are pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuLayout {
    gateway: usize,
    load: usize,
}

impl CpuLayout {
    /// Chooses the processors. The error is the reason why nothing can be pinned.
    pub(super) fn detect() -> Result<Self, String> {
        let status = fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc: {error}"))?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = parse_cpu_list(allowed.unwrap_or_default());
        let first = allowed.first().copied().unwrap_or(0);
        let siblings = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
        let siblings = parse_cpu_list(&fs::read_to_string(siblings).unwrap_or_default());
        let layout = Self::choose(&allowed, &siblings)
            .ok_or_else(|| format!("processors: {}, two are needed", allowed.len()))?;
        let mut taskset = Command::new("taskset");
        taskset.arg("--version");
        program::capture(taskset)
            .map_err(|_| "`taskset` is not installed (package util-linux)".to_owned())?;
        Ok(layout)
    }

    /// Puts the load on the first processor and the gateway on another core if there is one: two hardware threads of one
    /// core slow each other down.
    fn choose(allowed: &[usize], siblings_of_first: &[usize]) -> Option<Self> {
        let (first, others) = allowed.split_first()?;
        let gateway = others.iter().find(|cpu| !siblings_of_first.contains(cpu)).or(others.first())?;
        Some(Self { gateway: *gateway, load: *first })
    }

    /// Description for the report.
    pub(super) fn description(self) -> String {
        format!("contender on CPU {}, load and upstream server on CPU {}", self.gateway, self.load)
    }

    pub(super) fn gateway(self) -> usize {
        self.gateway
    }

    pub(super) fn load(self) -> usize {
        self.load
    }
}

/// Parses a list such as `0-3,8`.
fn parse_cpu_list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[test]
fn parses_lists_of_processors() {
    assert_eq!(parse_cpu_list("\t0-2,5\n"), [0, 1, 2, 5]);
    assert_eq!(parse_cpu_list(""), [0; 0]);
}

#[test]
fn prefers_another_core_for_the_gateway() {
    let choose = |allowed: &[usize], siblings: &[usize]| {
        CpuLayout::choose(allowed, siblings).map(|layout| (layout.load, layout.gateway))
    };
    assert_eq!(choose(&[0, 1, 2, 3], &[0, 1]), Some((0, 2)));
    assert_eq!(choose(&[0, 1], &[0, 1]), Some((0, 1)));
    assert_eq!(choose(&[4, 6], &[]), Some((4, 6)));
    assert_eq!(choose(&[3], &[3]), None);
}
