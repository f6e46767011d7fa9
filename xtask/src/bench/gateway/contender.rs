//! The contenders: processes between the load and the upstream server.
//!
//! Invariant: dropping a contender ends its process and the child processes of that.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{GatewayBinaries, LoadCase, nginx};
use crate::peers;

/// The API key of the load.
const KEY: &str = "the-load-of-the-benchmark-has-this-key";
/// Time limit for a program to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The programs, and a folder for files of the benchmark.
pub(super) struct BenchPaths<'a> {
    pub(super) built: &'a GatewayBinaries,
    pub(super) folder: &'a Path,
}

/// A child process, ended on drop.
pub(super) struct BenchProcess {
    child: Child,
    /// Kept open, so that the process does not fail when it writes to it.
    _stdout: Option<BufReader<ChildStdout>>,
    pub(super) port: u16,
}

/// One connection path from the load to the upstream server.
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// Description for the report.
    pub(super) description: String,
    /// `None` for the direct connection.
    process: Option<BenchProcess>,
    port: u16,
    path: &'static str,
    key: Option<&'static str>,
    case_filter: CaseFilter,
}

/// The cases that a contender is measured in.
enum CaseFilter {
    All,
    /// Large results over 16 connections: shows the cost of logging whole bodies.
    Large,
    /// Small results over 1 and 16 connections: a slow contender would take too long in the other cases.
    Few,
}

impl Contender {
    pub(super) fn is_measured_in(&self, case: LoadCase) -> bool {
        match self.case_filter {
            CaseFilter::All => true,
            CaseFilter::Large => ["kib64", "mib1"].contains(&case.name) && case.connections == 16,
            CaseFilter::Few => case.name == "small" && case.connections <= 16,
        }
    }

    /// Arguments of the load for this contender.
    pub(super) fn load_arguments(&self) -> Vec<String> {
        let key = self.key.map(|key| format!("key={key}"));
        [format!("port={}", self.port), format!("path={}", self.path)].into_iter().chain(key).collect()
    }

    /// Process ids of the contender and its current child processes.
    pub(super) fn pids(&self) -> Vec<String> {
        let Some(process) = &self.process else { return Vec::new() };
        let id = process.child.id().to_string();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let children = children.split_whitespace().map(str::to_owned);
        [id.clone()].into_iter().chain(children).collect()
    }

    /// Resident memory in KiB.
    pub(super) fn resident_kib(&self) -> Option<f64> {
        let id = self.process.as_ref()?.child.id();
        super::super::catalog::resident_mib(id).map(|mib| mib * 1024.0)
    }
}

impl BenchProcess {
    /// Sends a signal, for example `-STOP` or `-CONT`.
    pub(super) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status()?;
        anyhow::ensure!(sent.success(), "the signal {name} was not sent");
        Ok(())
    }

    /// Starts a program that prints its port on the first line of stdout.
    fn start_reporting_port(
        mut command: Command,
        folder: &Path,
        port: impl Fn(&str) -> Option<u16>,
    ) -> anyhow::Result<Self> {
        let (log_path, writer) = create_log(folder)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(writer);
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut process = Self { child, _stdout: None, port: 0 };
        let mut line = String::new();
        stdout.read_line(&mut line).context("cannot read the output of a child process")?;
        process._stdout = Some(stdout);
        process.port = port(&line).with_context(|| {
            let stderr = fs::read_to_string(log_path).unwrap_or_default();
            format!("{command:?} does not say where it listens: {line}{}", stderr.trim_end())
        })?;
        Ok(process)
    }

    /// Starts a program on a given port, and waits until it listens.
    pub(super) fn start_on_port(mut command: Command, port: u16, folder: &Path) -> anyhow::Result<Self> {
        let (log_path, writer) = create_log(folder)?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut process = Self { child, _stdout: None, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = process.child.try_wait()? {
                let stderr = fs::read_to_string(log_path).unwrap_or_default();
                bail!("{command:?} exited ({status}): {}", stderr.trim_end());
            }
            if start.elapsed() > START_TIMEOUT {
                bail!("{command:?} does not listen on port {port}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }
}

/// Creates a file for the output of a process, which is read only if the process fails.
fn create_log(folder: &Path) -> anyhow::Result<(PathBuf, File)> {
    let path = folder.join("stderr.log");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((path, file))
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // After SIGTERM it ends its own child processes too.
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

/// Starts the server behind all contenders.
pub(super) fn upstream(paths: &BenchPaths<'_>) -> anyhow::Result<BenchProcess> {
    let mut command = Command::new(&paths.built.testkit);
    command.args(["bench", "upstream"]);
    BenchProcess::start_reporting_port(command, paths.folder, |line| line.trim().parse().ok())
}

/// Starts all contenders. The second list has the reasons why others are missing.
pub(super) fn all(paths: &BenchPaths<'_>, upstream: u16) -> anyhow::Result<(Vec<Contender>, Vec<String>)> {
    let direct = Contender {
        name: "direct",
        description: "nothing between the load and the upstream".to_owned(),
        process: None,
        port: upstream,
        path: "/mcp",
        key: None,
        case_filter: CaseFilter::All,
    };
    let mut absent = Vec::new();
    let mut contenders = vec![direct];
    for (name, setup) in [("nginx", nginx::NginxSetup::Tuned), ("plain", nginx::NginxSetup::Plain)] {
        match nginx::start(paths, upstream, setup) {
            Ok((process, description)) => contenders.push(proxy(name, description, process, CaseFilter::All)),
            Err(why) => absent.push(format!("{name}: {why:#}")),
        }
    }
    contenders.push(toolgate(paths, upstream, "toolgate", None)?);
    contenders.push(toolgate(paths, upstream, "short log", Some("4KiB"))?);
    match rmcp_proxy(paths, upstream) {
        Ok(process) => {
            let description =
                "rmcp's client behind its server, the simplest gateway on that library".to_owned();
            contenders.push(proxy("rmcp", description, process, CaseFilter::All));
        }
        Err(why) => absent.push(format!("rmcp: {why:#}")),
    }
    contenders.extend(
        fastmcp(paths, upstream)
            .map(|it| proxy("fastmcp", "FastMCP's proxy".to_owned(), it, CaseFilter::Few)),
    );
    contenders.extend(
        agentgateway(paths, upstream)
            .map(|it| proxy("agentgw", "agentgateway".to_owned(), it, CaseFilter::All)),
    );
    Ok((contenders, absent))
}

fn proxy(
    name: &'static str,
    description: String,
    process: BenchProcess,
    case_filter: CaseFilter,
) -> Contender {
    let port = process.port;
    Contender { name, description, process: Some(process), port, path: "/mcp", key: None, case_filter }
}

/// Starts `toolgate serve` with every stage that a call can go through.
pub(super) fn toolgate(
    paths: &BenchPaths<'_>,
    upstream: u16,
    name: &'static str,
    logged: Option<&str>,
) -> anyhow::Result<Contender> {
    let description = match logged {
        None => format!("validation, policy, limits, hints and log on; {}", paths.built.profile),
        Some(size) => format!("the same with `audit.max_body: {size}`"),
    };
    let case_filter = if logged.is_none() { CaseFilter::All } else { CaseFilter::Large };
    let folder = format!("{name}-{upstream}").replace(' ', "-");
    let process = start_gateway(paths, &folder, &config(upstream, logged))?;
    let port = process.port;
    Ok(Contender {
        name,
        description,
        process: Some(process),
        port,
        path: "/mcp",
        key: Some(KEY),
        case_filter,
    })
}

/// Starts `toolgate serve` with this configuration, in its own folder.
pub(super) fn toolgate_with_config(
    paths: &BenchPaths<'_>,
    name: &'static str,
    config: &Value,
) -> anyhow::Result<Contender> {
    let process = start_gateway(paths, name, config)?;
    let port = process.port;
    let description = paths.built.profile.clone();
    Ok(Contender {
        name,
        description,
        process: Some(process),
        port,
        path: "/mcp",
        key: Some(KEY),
        case_filter: CaseFilter::All,
    })
}

fn start_gateway(paths: &BenchPaths<'_>, folder: &str, config: &Value) -> anyhow::Result<BenchProcess> {
    let folder = paths.folder.join(folder);
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("toolgate.yaml", &config.to_string())?;
    write("policy.cedar", POLICY)?;
    let mut command = Command::new(&paths.built.toolgate);
    command.arg("-C").arg(&folder).args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    // The user's own configuration must not affect the benchmark.
    command.env("HOME", &folder).env("XDG_CONFIG_HOME", folder.join("none"));
    command.env("TOOLGATE_LOG", "off").env("LOAD_KEY", KEY).env("TOOLGATE_API_KEY", format!("{KEY}-not"));
    BenchProcess::start_reporting_port(command, &folder, |line| {
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

/// A few rules that are evaluated for each call and deny none of them.
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

/// Starts the client and the server of rmcp as one gateway.
fn rmcp_proxy(paths: &BenchPaths<'_>, upstream: u16) -> anyhow::Result<BenchProcess> {
    let program = paths.built.chain.as_ref().context("`conformance-server` is not beside the executable")?;
    let mut command = Command::new(program);
    command.args(["--chain", "0"]).arg(format!("http://127.0.0.1:{upstream}/mcp"));
    BenchProcess::start_reporting_port(command, paths.folder, |line| line.trim().parse().ok())
}

/// Starts FastMCP in front of the upstream server, if the tests installed it.
fn fastmcp(paths: &BenchPaths<'_>, upstream: u16) -> Option<BenchProcess> {
    let python = peers::folder().join("python/bin/python");
    let port = free_port().ok()?;
    let code = format!(
        "from fastmcp.server import create_proxy\n\
         proxy = create_proxy('http://127.0.0.1:{upstream}/mcp')\n\
         proxy.run(transport='http', host='127.0.0.1', port={port}, show_banner=False)\n"
    );
    let mut command = Command::new(python);
    command.arg("-c").arg(code).current_dir(paths.folder);
    BenchProcess::start_on_port(command, port, paths.folder).ok()
}

/// Starts agentgateway, if it is on `PATH`.
fn agentgateway(paths: &BenchPaths<'_>, upstream: u16) -> Option<BenchProcess> {
    let (port, file) = (free_port().ok()?, paths.folder.join("agentgateway.yaml"));
    let target = json!({ "name": "records", "mcp": { "host": format!("http://127.0.0.1:{upstream}/mcp") } });
    let route = json!({ "backends": [{ "mcp": { "targets": [target] } }] });
    let config = json!({ "binds": [{ "port": port, "listeners": [{ "routes": [route] }] }] });
    fs::write(&file, config.to_string()).ok()?;
    let mut command = Command::new("agentgateway");
    command.arg("-f").arg(&file);
    BenchProcess::start_on_port(command, port, paths.folder).ok()
}

/// Returns a port that is free at this moment.
pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr())?.port())
}
