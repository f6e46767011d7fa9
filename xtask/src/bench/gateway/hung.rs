//! One of a hundred servers hangs: what the callers of the others notice, and whoever lists the tools.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

use super::contender::{self, Contender, Place};
use super::{Cell, median, turn_of};

pub(super) const SERVERS: usize = 100;
/// Calls of the one that hangs, at the same time.
const WAITING: u32 = 16;
/// Turns with it and without it, one after the other.
const TURNS: usize = 5;
/// How often a server is asked until it is there; each takes longer than the warm-up of the load.
const ATTEMPTS: usize = 100;

/// The 99th percentile, in microseconds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Hung {
    /// Of calls of the others while all of them answer.
    pub(super) before_p99_us: f64,
    /// The same while one hangs and some wait for it.
    pub(super) during_p99_us: f64,
    /// Of the list of all tools meanwhile.
    pub(super) list_p99_us: f64,
    /// Calls of the others and lists that failed, and why the first of them did.
    pub(super) errors: u64,
    pub(super) error: Option<String>,
}

pub(super) fn measure(place: &Place<'_>) -> anyhow::Result<Hung> {
    let (good, bad) = (contender::upstream(place)?, contender::upstream(place)?);
    let toolgate = contender::configured(place, "hung", &config(good.port, bad.port))?;
    let cell = Cell { tool: "", name: "hung", legacy: false, connections: 16, turns: 1, measure_ms: 500 };
    // All of them are asked for what they have when it starts, which may take a while.
    let first = Cell { connections: 1, measure_ms: 1, ..cell };
    for number in 0..=TURNS * 2 {
        let tool = format!("s{number}__small");
        let answers =
            |_: &usize| turn_of(place.built, first, &tool, &toolgate).is_ok_and(|it| it.errors == 0);
        (0..ATTEMPTS).find(answers).with_context(|| format!("`{tool}` does not answer"))?;
    }
    let (mut before, mut during, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    let (mut errors, mut error) = (0, None);
    for turn in 0..TURNS {
        let tool = |number: usize| format!("s{}__small", 1 + (turn * 2 + number) % (SERVERS - 1));
        let calm = turn_of(place.built, cell, &tool(0), &toolgate)?;
        bad.signal("-STOP")?;
        let waiting = wait_for_it(place, &toolgate)?;
        let calls = turn_of(place.built, cell, &tool(1), &toolgate)?;
        let list = turn_of(place.built, Cell { connections: 4, ..cell }, "tools/list", &toolgate)?;
        bad.signal("-CONT")?;
        drop(waiting);
        errors += calm.errors + calls.errors + list.errors;
        error = error.or(calm.error).or(calls.error).or(list.error);
        before.push(calm.p99_us);
        during.push(calls.p99_us);
        lists.push(list.p99_us);
    }
    Ok(Hung {
        before_p99_us: median(before),
        during_p99_us: median(during),
        list_p99_us: median(lists),
        errors,
        error,
    })
}

/// Callers of the one that hangs, ended on drop.
struct Waiting(std::process::Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for_it(place: &Place<'_>, toolgate: &Contender) -> anyhow::Result<Waiting> {
    let mut load = Command::new(&place.built.testkit);
    load.args(["bench", "load"]).args(toolgate.keys()).arg("tool=s0__small");
    load.arg(format!("connections={WAITING}")).arg("measure_ms=60000").stdout(Stdio::null());
    let child = load.stderr(Stdio::null()).spawn().context("cannot start testkit")?;
    thread::sleep(Duration::from_millis(200));
    Ok(Waiting(child))
}

/// A hundred servers: one of its own process, the others of another.
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
