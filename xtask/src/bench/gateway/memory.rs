//! The memory of `toolgate serve`: without clients, and with a thousand idle clients.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::contender::{self, BenchSetup, Contender, ContenderKind, LogLimit};

/// Concurrent clients.
pub(super) const SESSIONS: u32 = 1_000;
/// Time for background work to finish.
const SETTLE_TIME: Duration = Duration::from_millis(1_500);

/// Resident memory in KiB. Absent without `/proc`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MemoryReport {
    pub(super) idle_kib: Option<f64>,
    /// Added by clients with a handshake, each with its session stream open.
    pub(super) legacy_added_kib: Option<f64>,
    /// Added by clients without a handshake that made one call and keep their connection open.
    pub(super) modern_added_kib: Option<f64>,
}

/// Uses separate processes, because load leaves memory behind.
pub(super) fn measure(setup: &BenchSetup<'_>) -> anyhow::Result<MemoryReport> {
    let (idle_kib, legacy_added_kib) = measure_clients(setup, "legacy")?;
    let (_, modern_added_kib) = measure_clients(setup, "modern")?;
    Ok(MemoryReport { idle_kib, legacy_added_kib, modern_added_kib })
}

/// Returns the memory of an idle process, and the memory that clients of one kind add.
fn measure_clients(setup: &BenchSetup<'_>, kind: &'static str) -> anyhow::Result<(Option<f64>, Option<f64>)> {
    let upstream = contender::upstream(setup)?;
    let toolgate: Contender =
        contender::start(setup, upstream.port, ContenderKind::Toolgate(LogLimit::Whole))?;
    thread::sleep(SETTLE_TIME);
    let idle = toolgate.resident_kib();
    let mut command = setup.testkit_command();
    command.args(["bench", "sessions"]).args(toolgate.load_arguments());
    command.arg(format!("kind={kind}")).arg(format!("count={SESSIONS}"));
    let mut clients =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start testkit")?;
    let mut stdout = BufReader::new(clients.stdout.take().context("stdout is piped")?);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    anyhow::ensure!(line.contains(&SESSIONS.to_string()), "the {kind} clients did not all get in: `{line}`");
    thread::sleep(SETTLE_TIME);
    let full = toolgate.resident_kib();
    // The clients exit when their stdin is closed.
    drop(clients.stdin.take());
    stdout.read_to_string(&mut line)?;
    clients.wait()?;
    Ok((idle, idle.zip(full).map(|(idle, full)| full - idle)))
}
