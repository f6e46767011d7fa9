//! The memory of `toolgate serve`: when nobody is there, and with a thousand clients that do nothing.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::contender::{self, Contender, Place};

/// Clients at the same time.
pub(super) const SESSIONS: u32 = 1_000;
/// What was left for later is done by then.
const REST: Duration = Duration::from_millis(1_500);

/// What is held, in KiB. Absent where there is no `/proc`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Memory {
    pub(super) idle_kib: Option<f64>,
    /// Added by clients with a handshake, each with the stream of its session open.
    pub(super) legacy_added_kib: Option<f64>,
    /// Added by clients without a handshake that made one call and keep their connection.
    pub(super) modern_added_kib: Option<f64>,
}

/// Measured on processes of their own: what load leaves behind would count otherwise.
pub(super) fn measure(place: &Place<'_>) -> anyhow::Result<Memory> {
    let (idle_kib, legacy_added_kib) = with(place, "legacy")?;
    let (_, modern_added_kib) = with(place, "modern")?;
    Ok(Memory { idle_kib, legacy_added_kib, modern_added_kib })
}

/// What an idle process holds, and what clients of one kind add.
fn with(place: &Place<'_>, kind: &'static str) -> anyhow::Result<(Option<f64>, Option<f64>)> {
    let upstream = contender::upstream(place)?;
    let toolgate: Contender = contender::toolgate(place, upstream.port, kind, None)?;
    thread::sleep(REST);
    let idle = toolgate.resident_kib();
    let mut command = Command::new(&place.built.testkit);
    command.args(["bench", "sessions"]).args(toolgate.keys());
    command.arg(format!("kind={kind}")).arg(format!("count={SESSIONS}"));
    let mut clients =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start testkit")?;
    let mut stdout = BufReader::new(clients.stdout.take().context("stdout is piped")?);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    anyhow::ensure!(line.contains(&SESSIONS.to_string()), "the {kind} clients did not all get in: `{line}`");
    thread::sleep(REST);
    let full = toolgate.resident_kib();
    // They end when their stdin does.
    drop(clients.stdin.take());
    stdout.read_to_string(&mut line)?;
    clients.wait()?;
    Ok((idle, idle.zip(full).map(|(idle, full)| full - idle)))
}
