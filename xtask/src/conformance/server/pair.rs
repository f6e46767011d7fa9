//! One pair of client and server: starts the processes between them, and runs the suite.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::report::SuiteReport;
use super::{Fixture, Route, Suite, SuitePaths, SuiteRun};
use crate::{peers, program};

/// Interval of the checks whether a server listens.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A child process, ended on drop.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(run: SuiteRun, scenario: Option<&str>, paths: &SuitePaths) -> anyhow::Result<SuiteReport> {
    let route = match run.route {
        Route::Direct => "direct",
        Route::Gateway => "through",
        Route::Profile => "profile",
    };
    let logs = paths.logs.join(format!("{}-{}-{route}", run.suite.name(), run.fixture.name()));
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let (server, entry) = server(run.fixture, paths, &logs)?;
    let (gateway, url) = match &entry["url"] {
        Value::String(url) if run.route == Route::Direct => (None, url.clone()),
        _ => {
            let (gateway, url) = toolgate(entry, paths, &logs)?;
            let profile = if run.route == Route::Profile { "/suite" } else { "" };
            (Some(gateway), format!("{url}/mcp{profile}"))
        }
    };
    let suite = program::capture(suite(run.suite, &url, scenario, &logs.join("checks")))?;
    drop((gateway, server));
    let file = logs.join("suite.log");
    fs::write(&file, &suite.output).with_context(|| format!("cannot write {}", file.display()))?;
    SuiteReport::read(&logs.join("checks"), &suite.output)
}

/// Starts the server with the fixtures and returns its configuration entry. Toolgate starts stdio servers itself.
fn server(fixture: Fixture, paths: &SuitePaths, logs: &Path) -> anyhow::Result<(Option<ChildGuard>, Value)> {
    let program = paths.debug.join("conformance-server");
    let (arguments, kind, path): (&[&str], _, _) = match fixture {
        Fixture::Stdio => return Ok((None, json!({ "command": program, "args": ["--stdio"] }))),
        Fixture::StdioLegacy => {
            return Ok((None, json!({ "command": program, "args": ["--stdio", "--legacy"] })));
        }
        Fixture::Http => (&["--http", "0"], "http", "mcp"),
        Fixture::HttpLegacy => (&["--http", "0", "--legacy"], "http", "mcp"),
        Fixture::Sse => (&["--sse", "0"], "sse", "sse"),
        Fixture::PythonSdk => {
            let mut command = Command::new(peers::folder().join("python/bin/python"));
            command.args(["-m", "mcp_everything_server", "--log-level", "WARNING", "--port"]);
            command.current_dir(peers::python_sdk_server()?);
            return start_at_port(command, logs);
        }
        Fixture::TypescriptSdk => {
            let packages = peers::folder().join("npm/node_modules");
            let mut command = Command::new(packages.join("node/bin/node"));
            command.arg(program::root().join("crates/toolgate/tests/peers/everything_server.mjs"));
            command.arg(packages.join("@modelcontextprotocol/sdk"));
            return start_at_port(command, logs);
        }
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let (running, line) = start(command, &logs.join("conformance-server.log"))?;
    let url = format!("http://127.0.0.1:{}/{path}", line.trim());
    Ok((Some(running), json!({ "type": kind, "url": url })))
}

/// Starts a server that listens at the port in its last argument.
fn start_at_port(mut command: Command, logs: &Path) -> anyhow::Result<(Option<ChildGuard>, Value)> {
    // Another program may take the port before the server does; then the server ends.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr())?.port();
    command.arg(port.to_string());
    let log = logs.join("server.log");
    let errors = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let mut running = ChildGuard(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if running.0.try_wait()?.is_some() {
            bail!("{command:?} did not start\n{}", fs::read_to_string(&log).unwrap_or_default());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok((Some(running), json!({ "type": "http", "url": format!("http://127.0.0.1:{port}/mcp") })))
}

/// Starts Toolgate in front of that server and an unrelated one, with anonymous access. Returns its URL.
fn toolgate(mut entry: Value, paths: &SuitePaths, logs: &Path) -> anyhow::Result<(ChildGuard, String)> {
    let tool =
        |name: &str| json!({ "name": name, "description": "Reports.", "inputSchema": { "type": "object" } });
    let write = |name: &str, value: Value| {
        let file = logs.join(name);
        fs::write(&file, value.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        anyhow::Ok(file)
    };
    let beside = write("beside.json", json!({ "tools": [tool("weather"), tool("tides")] }))?;
    let mut beside = json!({ "command": paths.debug.join("testkit"), "args": ["scripted", beside] });
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
    let mut command = Command::new(paths.debug.join("toolgate"));
    command.arg("-C").arg(logs).args(["serve", "--listen", "127.0.0.1:0", "--json"]);
    let (running, line) = start(command, &logs.join("toolgate.log"))?;
    let ready: Value =
        serde_json::from_str(&line).with_context(|| format!("`toolgate serve` printed {line}"))?;
    let url = ready["url"].as_str().with_context(|| format!("`toolgate serve` printed {line}"))?;
    Ok((running, url.to_owned()))
}

/// Starts a program, and waits for its first line.
fn start(mut command: Command, log: &Path) -> anyhow::Result<(ChildGuard, String)> {
    let errors = fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut running = ChildGuard(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
    let mut line = String::new();
    if let Some(output) = &mut running.0.stdout {
        BufReader::new(output).read_line(&mut line).context("cannot read the output of a child process")?;
    }
    if line.is_empty() {
        bail!("{command:?} did not start\n{}", fs::read_to_string(log).unwrap_or_default());
    }
    Ok((running, line))
}

/// The command for one run of the suite.
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
