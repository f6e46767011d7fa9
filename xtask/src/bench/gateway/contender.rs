//! What stands between the load and the upstream: processes that are started here and end with the benchmark.
//!
//! Invariant: what a contender started is gone when it is dropped, its children included.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{Built, Cell, nginx};
use crate::peers;

/// The key of the caller that the load is.
const KEY: &str = "the-load-of-the-benchmark-has-this-key";
/// How long a program may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where things are, and may be put.
pub(super) struct Place<'a> {
    pub(super) built: &'a Built,
    pub(super) folder: &'a Path,
}

/// A process, ended on drop.
pub(super) struct Process {
    child: Child,
    /// Held so that the process can go on writing to it.
    _stdout: Option<BufReader<ChildStdout>>,
    pub(super) port: u16,
}

/// One way to the upstream.
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// What it is, for who reads the figures.
    pub(super) what: String,
    /// Nothing for the upstream itself.
    process: Option<Process>,
    port: u16,
    path: &'static str,
    key: Option<&'static str>,
    part: Part,
}

/// The cells that a contender is measured in.
enum Part {
    All,
    /// Large results over 16 connections: what the log of whole bodies costs.
    Large,
    /// Small results over 1 and 16 connections: what is slow takes too long elsewhere.
    Few,
}

impl Contender {
    pub(super) fn takes_part(&self, cell: Cell) -> bool {
        match self.part {
            Part::All => true,
            Part::Large => ["kib64", "mib1"].contains(&cell.name) && cell.connections == 16,
            Part::Few => cell.name == "small" && cell.connections <= 16,
        }
    }

    /// Where the load finds it.
    pub(super) fn keys(&self) -> Vec<String> {
        let key = self.key.map(|key| format!("key={key}"));
        [format!("port={}", self.port), format!("path={}", self.path)].into_iter().chain(key).collect()
    }

    /// The process and the children it has now.
    pub(super) fn pids(&self) -> Vec<String> {
        let Some(process) = &self.process else { return Vec::new() };
        let id = process.child.id().to_string();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let children = children.split_whitespace().map(str::to_owned);
        [id.clone()].into_iter().chain(children).collect()
    }

    /// The memory that it holds, in KiB.
    pub(super) fn resident_kib(&self) -> Option<f64> {
        let id = self.process.as_ref()?.child.id();
        super::super::catalog::resident_mib(id).map(|mib| mib * 1024.0)
    }
}

impl Process {
    /// Stops it where it is, or lets it go on.
    pub(super) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status()?;
        anyhow::ensure!(sent.success(), "the signal {name} was not sent");
        Ok(())
    }

    /// Starts a program that says on its first line of stdout where it listens.
    fn telling(
        mut command: Command,
        folder: &Path,
        port: impl Fn(&str) -> Option<u16>,
    ) -> anyhow::Result<Self> {
        let (said, writer) = log(folder)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(writer);
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut process = Self { child, _stdout: None, port: 0 };
        let mut line = String::new();
        stdout.read_line(&mut line).context("cannot read what a child says")?;
        process._stdout = Some(stdout);
        process.port = port(&line).with_context(|| {
            let said = fs::read_to_string(said).unwrap_or_default();
            format!("{command:?} does not say where it listens: {line}{}", said.trim_end())
        })?;
        Ok(process)
    }

    /// Starts a program that was told where to listen, and waits until it does.
    pub(super) fn told(mut command: Command, port: u16, folder: &Path) -> anyhow::Result<Self> {
        let (said, writer) = log(folder)?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut process = Self { child, _stdout: None, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = process.child.try_wait()? {
                let said = fs::read_to_string(said).unwrap_or_default();
                bail!("it ended, {status}: {}", said.trim_end());
            }
            if start.elapsed() > PATIENCE {
                bail!("{command:?} does not listen on port {port}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }
}

/// A file for what a process says, which is read only where it fails.
fn log(folder: &Path) -> anyhow::Result<(PathBuf, File)> {
    let path = folder.join("said");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((path, file))
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Asked to end, it ends its children too.
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        let start = Instant::now();
        while asked.is_ok() && start.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server behind all of them.
pub(super) fn upstream(place: &Place<'_>) -> anyhow::Result<Process> {
    let mut command = Command::new(&place.built.testkit);
    command.args(["bench", "upstream"]);
    Process::telling(command, place.folder, |line| line.trim().parse().ok())
}

/// All that take part, and why others do not.
pub(super) fn all(place: &Place<'_>, upstream: u16) -> anyhow::Result<(Vec<Contender>, Vec<String>)> {
    let direct = Contender {
        name: "direct",
        what: "nothing between the load and the upstream".to_owned(),
        process: None,
        port: upstream,
        path: "/mcp",
        key: None,
        part: Part::All,
    };
    let mut absent = Vec::new();
    let mut contenders = vec![direct];
    for (name, setup) in [("nginx", nginx::Setup::Tuned), ("plain", nginx::Setup::Plain)] {
        match nginx::start(place, upstream, setup) {
            Ok((process, what)) => contenders.push(passing(name, what, process, Part::All)),
            Err(why) => absent.push(format!("{name}: {why:#}")),
        }
    }
    contenders.push(toolgate(place, upstream, "toolgate", None)?);
    contenders.push(toolgate(place, upstream, "short log", Some("4KiB"))?);
    match chain(place, upstream) {
        Ok(process) => {
            let what = "two halves of rmcp, which is the simplest gateway on that library".to_owned();
            contenders.push(passing("rmcp", what, process, Part::All));
        }
        Err(why) => absent.push(format!("rmcp: {why:#}")),
    }
    contenders.extend(
        fastmcp(place, upstream).map(|it| passing("fastmcp", "FastMCP's proxy".to_owned(), it, Part::Few)),
    );
    contenders.extend(
        agentgateway(place, upstream).map(|it| passing("agentgw", "agentgateway".to_owned(), it, Part::All)),
    );
    Ok((contenders, absent))
}

fn passing(name: &'static str, what: String, process: Process, part: Part) -> Contender {
    let port = process.port;
    Contender { name, what, process: Some(process), port, path: "/mcp", key: None, part }
}

/// `toolgate serve` with all that a call can meet on its road.
pub(super) fn toolgate(
    place: &Place<'_>,
    upstream: u16,
    name: &'static str,
    logged: Option<&str>,
) -> anyhow::Result<Contender> {
    let what = match logged {
        None => format!("validation, policy, limits, hints and log on; {}", place.built.profile),
        Some(size) => format!("the same with `audit.max_body: {size}`"),
    };
    let part = if logged.is_none() { Part::All } else { Part::Large };
    let folder = format!("{name}-{upstream}").replace(' ', "-");
    let process = serving(place, &folder, &config(upstream, logged))?;
    let port = process.port;
    Ok(Contender { name, what, process: Some(process), port, path: "/mcp", key: Some(KEY), part })
}

/// `toolgate serve` with this configuration, in a folder of its own.
pub(super) fn configured(place: &Place<'_>, name: &'static str, config: &Value) -> anyhow::Result<Contender> {
    let process = serving(place, name, config)?;
    let port = process.port;
    let what = place.built.profile.clone();
    Ok(Contender { name, what, process: Some(process), port, path: "/mcp", key: Some(KEY), part: Part::All })
}

fn serving(place: &Place<'_>, folder: &str, config: &Value) -> anyhow::Result<Process> {
    let folder = place.folder.join(folder);
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("toolgate.yaml", &config.to_string())?;
    write("policy.cedar", POLICY)?;
    let mut command = Command::new(&place.built.toolgate);
    command.arg("-C").arg(&folder).args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    // The user's own configuration must not take part.
    command.env("HOME", &folder).env("XDG_CONFIG_HOME", folder.join("none"));
    command.env("TOOLGATE_LOG", "off").env("LOAD_KEY", KEY).env("TOOLGATE_API_KEY", format!("{KEY}-not"));
    Process::telling(command, &folder, |line| {
        let ready: Value = serde_json::from_str(line).ok()?;
        ready["address"].as_str()?.rsplit(':').next()?.parse().ok()
    })
}

fn config(upstream: u16, logged: Option<&str>) -> Value {
    let tool = |name: &str| {
        json!({
            "name": name, "category": "query", "idempotent": true, "max_instances": 1024, "timeout": "30s",
            "rate_limit": { "max_calls": 100_000_000, "window_ms": 60_000 },
            "follow_ups": [{ "action": "small", "priority": "low", "description": "Look at one record." }],
        })
    };
    let mut tools: Vec<_> = ["small", "kib64", "mib1"].map(tool).into();
    let mut changes = tool("changes");
    (changes["category"], changes["idempotent"]) = (json!("mutation"), json!(false));
    tools.push(changes);
    let mut config = json!({
        "toolbox": {
            "max_concurrent": 1024,
            "tools": tools,
            "mcps": [{
                "name": "records", "url": format!("http://127.0.0.1:{upstream}/mcp"), "mode": "dynamic",
                "default_tool_config": { "max_instances": 1024, "timeout": "30s" },
            }],
        },
        "callers": [{ "id": "load", "permissions": ["records:*"], "api_key": "${LOAD_KEY}" }],
        "serve": { "max_connections": 4000, "max_connections_per_address": 4000 },
    });
    if let Some(size) = logged {
        config["audit"] = json!({ "max_body": size });
    }
    config
}

/// A few rules that each call is held against, and that none of them stops.
const POLICY: &str = r#"
@id("no-system-files")
forbid (principal, action == Action::"call", resource) when {
    context.arguments.hasTag("path") && context.arguments.getTag("path") like "/etc/*"
};
@id("guests-only-read")
forbid (principal == Caller::"guest", action == Action::"call", resource) unless { resource.risk == "low" };
@id("not-too-many")
forbid (principal, action == Action::"call", resource) when {
    context.numbers.hasTag("limit") && context.numbers.getTag("limit") > 1000
};
@id("nothing-secret")
forbid (principal, action == Action::"call", resource) when {
    context.arguments.hasTag("query") && context.arguments.getTag("query") like "*password*"
};
"#;

/// The client and the server of a library, one behind the other.
fn chain(place: &Place<'_>, upstream: u16) -> anyhow::Result<Process> {
    let program = place.built.chain.as_ref().context("`conformance-server` is not beside the executable")?;
    let mut command = Command::new(program);
    command.args(["--chain", "0"]).arg(format!("http://127.0.0.1:{upstream}/mcp"));
    Process::telling(command, place.folder, |line| line.trim().parse().ok())
}

/// FastMCP in front of the upstream, where the tests installed it.
fn fastmcp(place: &Place<'_>, upstream: u16) -> Option<Process> {
    let python = peers::folder().join("python/bin/python");
    let port = free_port().ok()?;
    let code = format!(
        "from fastmcp.server import create_proxy\n\
         proxy = create_proxy('http://127.0.0.1:{upstream}/mcp')\n\
         proxy.run(transport='http', host='127.0.0.1', port={port}, show_banner=False)\n"
    );
    let mut command = Command::new(python);
    command.arg("-c").arg(code).current_dir(place.folder);
    Process::told(command, port, place.folder).ok()
}

/// agentgateway, where it is on `PATH`.
fn agentgateway(place: &Place<'_>, upstream: u16) -> Option<Process> {
    let (port, file) = (free_port().ok()?, place.folder.join("agentgateway.yaml"));
    let target = json!({ "name": "records", "mcp": { "host": format!("http://127.0.0.1:{upstream}/mcp") } });
    let route = json!({ "backends": [{ "mcp": { "targets": [target] } }] });
    let config = json!({ "binds": [{ "port": port, "listeners": [{ "routes": [route] }] }] });
    fs::write(&file, config.to_string()).ok()?;
    let mut command = Command::new("agentgateway");
    command.arg("-f").arg(&file);
    Process::told(command, port, place.folder).ok()
}

/// A port that nobody has at this moment.
pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr())?.port())
}
