//! One pair of client and server: starts what is between them, and lets the suite talk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::report::Report;
use super::{Fixture, Places, Run, Suite, Way};
use crate::{peers, program};

/// A process that ends with its pair.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that is gone already has nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(run: Run, scenario: Option<&str>, places: &Places) -> anyhow::Result<Report> {
    let way = match run.way {
        Way::Direct => "direct",
        Way::Through => "through",
        Way::Profile => "profile",
    };
    let logs = places.logs.join(format!("{}-{}-{way}", run.suite.name(), run.fixture.name()));
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let (server, entry) = server(run.fixture, places, &logs)?;
    let (door, url) = match &entry["url"] {
        Value::String(url) if run.way == Way::Direct => (None, url.clone()),
        _ => {
            let (door, url) = toolgate(entry, places, &logs)?;
            let profile = if run.way == Way::Profile { "/suite" } else { "" };
            (Some(door), format!("{url}/mcp{profile}"))
        }
    };
    let suite = program::capture(suite(run.suite, &url, scenario, &logs.join("checks")))?;
    drop((door, server));
    let file = logs.join("suite.log");
    fs::write(&file, &suite.output).with_context(|| format!("cannot write {}", file.display()))?;
    Report::read(&logs.join("checks"), &suite.output)
}

/// The server with the fixtures, as an entry of a configuration. Over stdio it is Toolgate that starts it.
fn server(fixture: Fixture, places: &Places, logs: &Path) -> anyhow::Result<(Option<Running>, Value)> {
    let program = places.debug.join("conformance-server");
    let (arguments, kind, path): (&[&str], _, _) = match fixture {
        Fixture::Stdio => return Ok((None, json!({ "command": program, "args": ["--stdio"] }))),
        Fixture::StdioLegacy => {
            return Ok((None, json!({ "command": program, "args": ["--stdio", "--legacy"] })));
        }
        Fixture::Http => (&["--http", "0"], "http", "mcp"),
        Fixture::HttpLegacy => (&["--http", "0", "--legacy"], "http", "mcp"),
        Fixture::Sse => (&["--sse", "0"], "sse", "sse"),
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let (running, line) = start(command, &logs.join("conformance-server.log"))?;
    let url = format!("http://127.0.0.1:{}/{path}", line.trim());
    Ok((Some(running), json!({ "type": kind, "url": url })))
}

/// Toolgate before that server, with another one beside it, for who sends no key; and where it is.
fn toolgate(mut entry: Value, places: &Places, logs: &Path) -> anyhow::Result<(Running, String)> {
    let tool =
        |name: &str| json!({ "name": name, "description": "Tells.", "inputSchema": { "type": "object" } });
    let write = |name: &str, value: Value| {
        let file = logs.join(name);
        fs::write(&file, value.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        anyhow::Ok(file)
    };
    let beside = write("beside.json", json!({ "tools": [tool("weather"), tool("tides")] }))?;
    let mut beside = json!({ "command": places.debug.join("testkit"), "args": ["scripted", beside] });
    for (name, entry) in [("beside", &mut beside), ("fixture", &mut entry)] {
        entry["name"] = json!(name);
        entry["mode"] = json!("dynamic");
        entry["default_tool_config"] = json!({ "max_instances": 64, "timeout": "60s" });
    }
    write(
        "toolgate.yaml",
        json!({
            "callers": [{ "id": "anonymous", "permissions": ["*:*"] }],
            "toolbox": { "mcps": [beside, entry] },
            "profiles": { "suite": { "exposure": "full", "tools": ["fixture__*"] } },
        }),
    )?;
    let mut command = Command::new(places.debug.join("toolgate"));
    command.arg("-C").arg(logs).args(["serve", "--listen", "127.0.0.1:0", "--json"]);
    let (running, line) = start(command, &logs.join("toolgate.log"))?;
    let said: Value = serde_json::from_str(&line).with_context(|| format!("`toolgate serve` said {line}"))?;
    let url = said["url"].as_str().with_context(|| format!("`toolgate serve` said {line}"))?;
    Ok((running, url.to_owned()))
}

/// Starts a program, and waits for its first line.
fn start(mut command: Command, log: &Path) -> anyhow::Result<(Running, String)> {
    let errors = fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut running = Running(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
    let mut line = String::new();
    if let Some(output) = &mut running.0.stdout {
        BufReader::new(output).read_line(&mut line).context("cannot read what a child says")?;
    }
    if line.is_empty() {
        bail!("{command:?} did not start\n{}", fs::read_to_string(log).unwrap_or_default());
    }
    Ok((running, line))
}

/// One run of the suite.
fn suite(suite: Suite, url: &str, scenario: Option<&str>, checks: &Path) -> Command {
    let installed = peers::folder().join("npm/node_modules");
    let (package, all) = match suite {
        Suite::First => ("conformance-0.1.16", ["--suite", "active"]),
        _ => ("@modelcontextprotocol/conformance", ["--requirements", suite.name()]),
    };
    let mut command = Command::new(installed.join("node/bin/node"));
    command.arg(installed.join(package).join("dist/index.js")).args(["server", "--url", url]);
    match (scenario, suite) {
        (None, _) => command.args(all),
        (Some(scenario), Suite::First) => command.args(["--scenario", scenario]),
        (Some(scenario), _) => command.args(["--scenario", scenario, "--spec-version", suite.name()]),
    };
    command.arg("--output-dir").arg(checks).current_dir(program::root());
    command
}
