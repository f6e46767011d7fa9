//! One of a hundred servers hangs: the latency of calls to the others, and of `tools/list`.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

use super::contender::{self, BenchSetup, Contender};
use super::{LoadCase, median, run_load_with_tool};

pub(super) const SERVERS: usize = 100;
/// Concurrent calls to the server that hangs.
const WAITING: u32 = 16;
/// Turns with and without the hung server, alternately.
const TURNS: usize = 5;
/// Attempts until a server answers; each takes longer than the warm-up of the load.
const ATTEMPTS: usize = 100;

/// The 99th percentile, in microseconds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HungReport {
    /// Calls to the other servers while all of them answer.
    pub(super) before_p99_us: f64,
    /// The same while one server hangs and callers wait for it.
    pub(super) during_p99_us: f64,
    /// `tools/list` at the same time.
    pub(super) list_p99_us: f64,
    /// Failed calls and lists, and the first error.
    pub(super) errors: u64,
    pub(super) error: Option<String>,
}

pub(super) fn measure(setup: &BenchSetup<'_>) -> anyhow::Result<HungReport> {
    let (good, bad) = (contender::upstream(setup)?, contender::upstream(setup)?);
    let toolgate = contender::toolgate_with_config(setup, "hung", &config(good.port, bad.port))?;
    let case = LoadCase { tool: "", name: "hung", legacy: false, connections: 16, turns: 1, measure_ms: 500 };
    // At startup the gateway connects to all servers, which may take a while.
    let first = LoadCase { connections: 1, measure_ms: 1, ..case };
    for number in 0..=TURNS * 2 {
        let tool = format!("s{number}__small");
        let answers =
            |_: &usize| run_load_with_tool(setup, first, &tool, &toolgate).is_ok_and(|it| it.errors == 0);
        (0..ATTEMPTS).find(answers).with_context(|| format!("`{tool}` does not answer"))?;
    }
    let (mut before, mut during, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    let (mut errors, mut error) = (0, None);
    for turn in 0..TURNS {
        let tool = |number: usize| format!("s{}__small", 1 + (turn * 2 + number) % (SERVERS - 1));
        let quiet = run_load_with_tool(setup, case, &tool(0), &toolgate)?;
        bad.signal("-STOP")?;
        let waiting = start_blocked_callers(setup, &toolgate)?;
        let calls = run_load_with_tool(setup, case, &tool(1), &toolgate)?;
        let list = run_load_with_tool(setup, LoadCase { connections: 4, ..case }, "tools/list", &toolgate)?;
        bad.signal("-CONT")?;
        drop(waiting);
        errors += quiet.errors + calls.errors + list.errors;
        error = error.or(quiet.error).or(calls.error).or(list.error);
        before.push(quiet.p99_us);
        during.push(calls.p99_us);
        lists.push(list.p99_us);
    }
    Ok(HungReport {
        before_p99_us: median(before),
        during_p99_us: median(during),
        list_p99_us: median(lists),
        errors,
        error,
    })
}

/// Callers of the server that hangs. Ended on drop.
struct BlockedCallers(std::process::Child);

impl Drop for BlockedCallers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_blocked_callers(setup: &BenchSetup<'_>, toolgate: &Contender) -> anyhow::Result<BlockedCallers> {
    let mut load = setup.testkit_command();
    load.args(["bench", "load"]).args(toolgate.load_arguments()).arg("tool=s0__small");
    load.arg(format!("connections={WAITING}")).arg("measure_ms=60000").stdout(Stdio::null());
    let child = load.stderr(Stdio::null()).spawn().context("cannot start testkit")?;
    thread::sleep(Duration::from_millis(200));
    Ok(BlockedCallers(child))
}

/// A hundred servers: the first has its own process, the others share one.
fn config(good: u16, bad: u16) -> Value {
    let server = |number: usize| {
        let port = if number == 0 { bad } else { good };
        json!({ "name": format!("s{number}"), "url": format!("http://127.0.0.1:{port}/mcp"), "mode": "dynamic",
            "default_tool_config": { "max_instances": 64, "timeout": "30s" } })
    };
    let servers: Vec<_> = (0..SERVERS).map(server).collect();
    json!({
        "toolbox": { "max_concurrent": 256, "mcps": servers },
        "callers": [{ "id": "load", "permissions": ["*:*"], "api_key": "${LOAD_KEY}" }],
    })
}
