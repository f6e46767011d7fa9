//! The contenders: processes between the load and the upstream server.
//!
//! Invariant: dropping a contender ends its process and the child processes of that.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::cpus::CpuLayout;
use super::instrument::Instrument;
use super::nginx::NginxSetup;
use super::{GatewayBinaries, LoadCase, nginx};
use crate::{peers, program};

/// The API key of the load.
pub(super) const KEY: &str = "the-load-of-the-benchmark-has-this-key";
/// Time limit for a program to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The programs of the benchmark and the way to start them.
#[derive(Clone, Copy)]
pub(super) struct BenchSetup<'a> {
    pub(super) built: &'a GatewayBinaries,
    /// Folder for files of the benchmark.
    pub(super) folder: &'a Path,
    /// `None` if processes are not pinned.
    pub(super) cpus: Option<CpuLayout>,
    /// Contenders run under this instrument.
    pub(super) instrument: Option<&'a Instrument>,
}

impl BenchSetup<'_> {
    /// A command for a contender.
    pub(super) fn contender_command(&self, program: &Path) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(cpus) = self.cpus {
            words.extend(["taskset".into(), "-c".into(), cpus.gateway().to_string().into()]);
        }
        words.extend(self.instrument.iter().flat_map(|instrument| instrument.arguments.iter().cloned()));
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for (name, value) in self.instrument.iter().flat_map(|instrument| &instrument.environment) {
            command.env(name, value);
        }
        command
    }

    /// A command for the load or the upstream server.
    pub(super) fn testkit_command(&self) -> Command {
        let Some(cpus) = self.cpus else { return Command::new(&self.built.testkit) };
        let mut command = Command::new("taskset");
        command.arg("-c").arg(cpus.load().to_string()).arg(&self.built.testkit);
        command
    }
}

/// A child process, ended on drop.
pub(super) struct BenchProcess {
    child: Child,
    /// Kept open, so that the process does not fail when it writes to it.
    _stdout: Option<BufReader<ChildStdout>>,
    pub(super) port: u16,
}

/// The kinds of contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContenderKind {
    Direct,
    Nginx(NginxSetup),
    Toolgate(LogLimit),
    Rmcp,
    Fastmcp,
    Agentgateway,
}

/// `audit.max_body`: bytes of arguments, and of output, that are logged per call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogLimit {
    /// The default: bodies of the benchmark are logged whole.
    Whole,
    Kib64,
    Kib4,
}

impl LogLimit {
    /// The value in the configuration.
    fn value(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Kib64 => Some("64KiB"),
            Self::Kib4 => Some("4KiB"),
        }
    }
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

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Header lines with host and credential, for a request that is not made by the load.
    pub(super) fn headers(&self) -> String {
        let key = self.key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        format!("Host: localhost:{}\r\n{key}", self.port)
    }

    /// Process ids of the contender and its current child processes.
    pub(super) fn pids(&self) -> Vec<String> {
        let Some(process) = &self.process else { return Vec::new() };
        let id = process.child.id().to_string();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let children = children.split_whitespace().map(str::to_owned);
        [id.clone()].into_iter().chain(children).collect()
    }

    /// Context switches of all threads so far, voluntary and not. `None` without `/proc`.
    pub(super) fn context_switches(&self) -> Option<u64> {
        let mut all = 0;
        for pid in self.pids() {
            for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
                // A thread may end at any time.
                all +=
                    fs::read_to_string(task.path().join("status")).map_or(0, |text| context_switches(&text));
            }
        }
        Some(all)
    }

    /// Resident memory in KiB.
    pub(super) fn resident_kib(&self) -> Option<f64> {
        let id = self.process.as_ref()?.child.id();
        super::super::catalog::resident_mib(id).map(|mib| mib * 1024.0)
    }
}

impl Contender {
    /// Ends the process and waits until it has written its files.
    pub(super) fn stop(self, limit: Duration) -> anyhow::Result<()> {
        self.process.map_or(Ok(()), |process| process.stop(limit))
    }
}

impl BenchProcess {
    /// Asks the process to end, and waits for that.
    fn stop(mut self, limit: Duration) -> anyhow::Result<()> {
        self.signal("-TERM")?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            anyhow::ensure!(start.elapsed() < limit, "a process did not end within {limit:?}");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

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

/// Adds up the context switches in `/proc/PID/task/TID/status`.
fn context_switches(status: &str) -> u64 {
    let lines = status.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
    lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
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
pub(super) fn upstream(setup: &BenchSetup<'_>) -> anyhow::Result<BenchProcess> {
    let mut command = setup.testkit_command();
    command.args(["bench", "upstream"]);
    BenchProcess::start_reporting_port(command, setup.folder, |line| line.trim().parse().ok())
}

/// All contenders, in the order of the report.
const KINDS: [ContenderKind; 9] = [
    ContenderKind::Direct,
    ContenderKind::Nginx(NginxSetup::Tuned),
    ContenderKind::Nginx(NginxSetup::Plain),
    ContenderKind::Toolgate(LogLimit::Whole),
    ContenderKind::Toolgate(LogLimit::Kib64),
    ContenderKind::Toolgate(LogLimit::Kib4),
    ContenderKind::Rmcp,
    ContenderKind::Fastmcp,
    ContenderKind::Agentgateway,
];

/// Starts all contenders. The second list has the reasons why others are missing.
pub(super) fn all(setup: &BenchSetup<'_>, upstream: u16) -> anyhow::Result<(Vec<Contender>, Vec<String>)> {
    let (mut contenders, mut absent) = (Vec::new(), Vec::new());
    for kind in KINDS {
        match start(setup, upstream, kind) {
            Ok(contender) => contenders.push(contender),
            // Without Toolgate there is nothing to report.
            Err(why) if matches!(kind, ContenderKind::Toolgate(_)) => return Err(why),
            Err(why) => absent.push(format!("{}: {why:#}", kind.name())),
        }
    }
    Ok((contenders, absent))
}

impl ContenderKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx(NginxSetup::Tuned) => "nginx",
            Self::Nginx(NginxSetup::Plain) => "plain",
            Self::Toolgate(LogLimit::Whole) => "toolgate",
            Self::Toolgate(LogLimit::Kib64) => "log 64KiB",
            Self::Toolgate(LogLimit::Kib4) => "log 4KiB",
            Self::Rmcp => "rmcp",
            Self::Fastmcp => "fastmcp",
            Self::Agentgateway => "agentgw",
        }
    }

    fn case_filter(self) -> CaseFilter {
        match self {
            Self::Toolgate(LogLimit::Kib64 | LogLimit::Kib4) => CaseFilter::Large,
            Self::Fastmcp => CaseFilter::Few,
            _ => CaseFilter::All,
        }
    }
}

/// Starts one contender.
pub(super) fn start(setup: &BenchSetup<'_>, upstream: u16, kind: ContenderKind) -> anyhow::Result<Contender> {
    let name = kind.name();
    let (process, description) = match kind {
        ContenderKind::Direct => (None, "nothing between the load and the upstream".to_owned()),
        ContenderKind::Nginx(nginx) => {
            let (process, description) = nginx::start(setup, upstream, nginx)?;
            (Some(process), description)
        }
        ContenderKind::Toolgate(logged) => {
            let description = match logged.value() {
                None => format!("validation, policy, limits, hints and log on; {}", setup.built.profile),
                Some(size) => format!("the same with `audit.max_body: {size}`"),
            };
            let folder = format!("{name}-{upstream}").replace(' ', "-");
            let project = create_project(setup, &folder, &config(upstream, logged))?;
            (Some(start_project(setup, &project)?), description)
        }
        ContenderKind::Rmcp => {
            let description = "rmcp's client behind its server, the simplest gateway on that library";
            (Some(rmcp_proxy(setup, upstream)?), description.to_owned())
        }
        ContenderKind::Fastmcp => (Some(fastmcp(setup, upstream)?), "FastMCP's proxy".to_owned()),
        ContenderKind::Agentgateway => (Some(agentgateway(setup, upstream)?), "agentgateway".to_owned()),
    };
    let port = process.as_ref().map_or(upstream, |process| process.port);
    let key = matches!(kind, ContenderKind::Toolgate(_)).then_some(KEY);
    Ok(Contender { name, description, process, port, path: "/mcp", key, case_filter: kind.case_filter() })
}

/// Starts `toolgate serve` with this configuration, in its own folder.
pub(super) fn toolgate_with_config(
    setup: &BenchSetup<'_>,
    name: &'static str,
    config: &Value,
) -> anyhow::Result<Contender> {
    GatewayProject::with_config(setup, name, config)?.start(setup)
}

/// The folder of a gateway that is started several times.
pub(super) struct GatewayProject {
    name: &'static str,
    folder: PathBuf,
}

impl GatewayProject {
    /// Writes the configuration of the contender `toolgate`.
    pub(super) fn create(setup: &BenchSetup<'_>, name: &'static str, upstream: u16) -> anyhow::Result<Self> {
        Ok(Self { name, folder: create_project(setup, name, &config(upstream, LogLimit::Whole))? })
    }

    /// Writes this configuration.
    pub(super) fn with_config(
        setup: &BenchSetup<'_>,
        name: &'static str,
        config: &Value,
    ) -> anyhow::Result<Self> {
        Ok(Self { name, folder: create_project(setup, name, config)? })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn start(&self, setup: &BenchSetup<'_>) -> anyhow::Result<Contender> {
        let process = start_project(setup, &self.folder)?;
        let port = process.port;
        Ok(Contender {
            name: self.name,
            description: setup.built.profile.clone(),
            process: Some(process),
            port,
            path: "/mcp",
            key: Some(KEY),
            case_filter: CaseFilter::All,
        })
    }
}

/// Writes the files of a gateway into a new folder.
fn create_project(setup: &BenchSetup<'_>, folder: &str, config: &Value) -> anyhow::Result<PathBuf> {
    let folder = setup.folder.join(folder);
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("toolgate.yaml", &config.to_string())?;
    write("policy.cedar", POLICY)?;
    Ok(folder)
}

fn start_project(setup: &BenchSetup<'_>, folder: &Path) -> anyhow::Result<BenchProcess> {
    let mut command = setup.contender_command(&setup.built.toolgate);
    command.arg("-C").arg(folder).args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    // The user's own configuration must not affect the benchmark.
    command.env("HOME", folder).env("XDG_CONFIG_HOME", folder.join("none"));
    command.env("TOOLGATE_LOG", "off").env("LOAD_KEY", KEY);
    if setup.instrument.is_none() {
        // With this variable the program starts itself again; instruments cannot follow.
        command.env("TOOLGATE_API_KEY", format!("{KEY}-not"));
    }
    BenchProcess::start_reporting_port(command, folder, |line| {
        let ready: Value = serde_json::from_str(line).ok()?;
        ready["address"].as_str()?.rsplit(':').next()?.parse().ok()
    })
}

pub(super) fn config(upstream: u16, logged: LogLimit) -> Value {
    let tool = |name: &str| {
        json!({
            "name": name, "category": "query", "idempotent": true, "max_instances": 1024, "timeout": "30s",
            "rate_limit": { "max_calls": 100_000_000, "window_ms": 60_000 },
            "follow_ups": [{ "action": "small", "priority": "low", "description": "Look at one record." }],
        })
    };
    let mut tools = ["small", "kib64", "mib1", "changes"].map(tool);
    // An unknown tool must not be repeated, so each call waits for the disk.
    if let Some(changes) = tools[3].as_object_mut() {
        changes.retain(|key, _| key != "category" && key != "idempotent");
    }
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
        "serve": { "max_connections": 4000, "max_connections_per_address": 4000, "max_streams_per_caller": 4000 },
    });
    if let Some(size) = logged.value() {
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
fn rmcp_proxy(setup: &BenchSetup<'_>, upstream: u16) -> anyhow::Result<BenchProcess> {
    let program = setup.built.chain.as_ref().context("`conformance-server` is not beside the executable")?;
    let mut command = setup.contender_command(program);
    command.args(["--chain", "0"]).arg(format!("http://127.0.0.1:{upstream}/mcp"));
    BenchProcess::start_reporting_port(command, setup.folder, |line| line.trim().parse().ok())
}

/// Starts FastMCP in front of the upstream server, if the tests installed it.
fn fastmcp(setup: &BenchSetup<'_>, upstream: u16) -> anyhow::Result<BenchProcess> {
    let python = peers::folder().join("python/bin/python");
    anyhow::ensure!(python.exists(), "not installed; `cargo xtask test --only peers` installs it");
    let port = free_port()?;
    let code = format!(
        "from fastmcp.server import create_proxy\n\
         proxy = create_proxy('http://127.0.0.1:{upstream}/mcp')\n\
         proxy.run(transport='http', host='127.0.0.1', port={port}, show_banner=False)\n"
    );
    let mut command = setup.contender_command(&python);
    command.arg("-c").arg(code).current_dir(setup.folder);
    BenchProcess::start_on_port(command, port, setup.folder)
}

/// Starts agentgateway, if it is on `PATH`.
fn agentgateway(setup: &BenchSetup<'_>, upstream: u16) -> anyhow::Result<BenchProcess> {
    let mut version = Command::new("agentgateway");
    version.arg("--version");
    program::capture(version).map_err(|_| anyhow::anyhow!("not on `PATH`"))?;
    let (port, file) = (free_port()?, setup.folder.join("agentgateway.yaml"));
    let target = json!({ "name": "records", "mcp": { "host": format!("http://127.0.0.1:{upstream}/mcp") } });
    let route = json!({ "backends": [{ "mcp": { "targets": [target] } }] });
    let config = json!({ "binds": [{ "port": port, "listeners": [{ "routes": [route] }] }] });
    fs::write(&file, config.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = setup.contender_command(Path::new("agentgateway"));
    command.arg("-f").arg(&file);
    BenchProcess::start_on_port(command, port, setup.folder)
}

/// Returns a port that is free at this moment.
pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr())?.port())
}

#[test]
fn adds_up_voluntary_and_other_context_switches() {
    let status = "Name:\ttoolgate\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t5\n";
    assert_eq!(context_switches(status), 155);
}
