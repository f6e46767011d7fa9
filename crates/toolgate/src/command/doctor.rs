//! `toolgate doctor`: checks everything that a project needs on this machine, and says how to fix it.
//!
//! Invariant: starts no server, writes nothing, and sends nothing but connection attempts to the hosts of servers.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;
use toolgate_app::StateFolder;
use toolgate_config::{Config, Environment, LoadOutcome, Severity, load};
use toolgate_redact::printable;
use toolgate_types::ConfigString;
use toolgate_types::server::Transport;

use crate::cli::ProjectArgs;
use crate::command::remote;
use crate::output::{BOLD, DIM, Output, display_path, toolgate_command};
use crate::owner_key;
use crate::{DONE, FAILED, INVALID_CONFIG};

/// Time for a connection to the host of a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Variables that send requests through a proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckStatus {
    Good,
    Warning,
    Problem,
}

impl CheckStatus {
    fn label(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One finding.
#[derive(Debug, Serialize)]
struct Finding {
    area: &'static str,
    status: CheckStatus,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Finding {
    fn good(area: &'static str, message: impl Into<String>) -> Self {
        Self { area, status: CheckStatus::Good, message: message.into(), hint: None }
    }

    fn warning(area: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { area, status: CheckStatus::Warning, message: message.into(), hint: Some(hint.into()) }
    }

    fn problem(area: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { area, status: CheckStatus::Problem, message: message.into(), hint: Some(hint.into()) }
    }
}

pub(crate) fn run(project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let environment = owner_key::environment();
    let LoadOutcome { config, report } = load(&project.folder, project.file.as_deref(), &environment);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let gateway = tokio.block_on(remote::gateway_version(&project.state_folder()));
    let mut findings = vec![version_finding(gateway.as_deref())];
    let errors = report.count(Severity::Error);
    let toolgate = toolgate_command(&project.folder);
    match &config {
        Some(config) => {
            findings.push(Finding::good("configuration", format!("valid, from {}", config.files.join(", "))));
            findings.extend(runtime_findings(config, &environment));
            findings.extend(tokio.block_on(network_findings(config, &environment)));
            findings.extend(key_findings(&project.state_folder(), &environment));
            findings.push(port_finding(config, gateway.is_some()));
            findings.extend(permission_findings(config, &project.state_folder()));
        }
        None => findings.push(Finding::problem(
            "configuration",
            if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") },
            format!("run `{toolgate} check` to see the problems"),
        )),
    }
    let worst = findings.iter().map(|finding| finding.status).max().unwrap_or(CheckStatus::Good);
    if output.json {
        output.document(&json!({ "ok": worst != CheckStatus::Problem, "checks": findings }))?;
    } else {
        findings.iter().for_each(|finding| output.result(&finding_text(finding)));
        if worst == CheckStatus::Good {
            output.next_step(&format!("connect to the servers with `{toolgate} servers`"));
        }
    }
    Ok(match worst {
        _ if config.is_none() => INVALID_CONFIG,
        CheckStatus::Problem => FAILED,
        CheckStatus::Good | CheckStatus::Warning => DONE,
    })
}

fn finding_text(Finding { area, status, message, hint }: &Finding) -> String {
    let style = if *status == CheckStatus::Good { DIM } else { BOLD };
    let label = status.label();
    let hint = hint.as_ref().map(|hint| format!("  hint: {}\n", printable(hint))).unwrap_or_default();
    format!("{style}{label:7}{style:#}  {area}: {}\n{hint}", printable(message))
}

fn version_finding(gateway: Option<&str>) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    match gateway {
        None => Finding::good("version", format!("toolgate {own}; no gateway is running")),
        Some(version) if version == own => {
            Finding::good("version", format!("toolgate {own}; the running gateway has the same"))
        }
        Some(version) => Finding::warning(
            "version",
            format!("the running gateway is toolgate {version}, this is {own}"),
            "restart the gateway; until then commands start the servers themselves",
        ),
    }
}

/// Checks the programs of servers and tools.
fn runtime_findings(config: &Config, environment: &Environment) -> Vec<Finding> {
    let mut programs: Vec<(&ConfigString, PathBuf, String)> = Vec::new();
    let python = ConfigString::plain("python3");
    for server in &config.servers {
        if let Transport::Stdio(stdio) = &server.transport {
            let used_by = format!("server `{}`", server.name);
            programs.push((&stdio.command, stdio.cwd.clone(), used_by));
        }
    }
    let is_python = |path: &Path| path.extension().is_some_and(|end| end == "py");
    if let Some(tool) = config.tools.iter().find(|tool| is_python(&tool.script.script_path)) {
        programs.push((&python, config.project.clone(), format!("tool `{}`", tool.name)));
    }
    let mut seen = std::collections::HashSet::new();
    programs.retain(|(program, folder, _)| seen.insert((program.expose(), folder.clone())));
    let finding = |(program, folder, used_by): (&ConfigString, PathBuf, String)| {
        // The name may come from a variable with a secret.
        let (shown, program) = (program.redacted(), program.expose());
        match find_program(program, &folder, environment) {
            Some(_) => Finding::good("runtime", format!("`{shown}` of {used_by} is installed")),
            None => {
                let message = format!("`{shown}` of {used_by} was not found");
                Finding::problem("runtime", message, install_hint(program))
            }
        }
    };
    programs.into_iter().map(finding).collect()
}

/// Returns the file of a program, as it would be found at the start of a server.
fn find_program(program: &str, folder: &Path, environment: &Environment) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs_err::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(folder.join(program)).filter(is_program);
    }
    let path = environment.variables.get("PATH")?;
    std::env::split_paths(path).map(|folder| folder.join(program)).find(is_program)
}

fn install_hint(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    match name {
        "npx" | "node" | "npm" => "install Node.js: https://nodejs.org".to_owned(),
        "uvx" | "uv" => "install uv: https://docs.astral.sh/uv".to_owned(),
        "python" | "python3" | "pipx" => "install Python 3".to_owned(),
        "docker" => "install Docker, and start it".to_owned(),
        _ => "install it, or name its full path in the configuration".to_owned(),
    }
}

/// Checks that the hosts of remote servers accept connections.
async fn network_findings(config: &Config, environment: &Environment) -> Vec<Finding> {
    let mut findings = Vec::new();
    let proxy = PROXY_VARIABLES.into_iter().find(|name| environment.variables.contains_key(*name));
    if let Some(name) = proxy {
        findings.push(Finding::good("network", format!("`{name}` names a proxy")));
    }
    for server in &config.servers {
        let (Transport::Http(remote) | Transport::Sse(remote) | Transport::Websocket(remote)) =
            &server.transport
        else {
            continue;
        };
        let name = &server.name;
        let Some((host, port)) = host_and_port(remote.url.expose()) else { continue };
        let host_text = format!("{host}:{port}");
        let failed = match timeout(CONNECT_TIMEOUT, TcpStream::connect((host.as_str(), port))).await {
            Ok(Ok(_)) => {
                findings.push(Finding::good("network", format!("{host_text} of server `{name}` answers")));
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
        };
        let message = format!("{host_text} of server `{name}` cannot be reached: {failed}");
        findings.push(match proxy {
            // Requests take another route.
            Some(_) => Finding::warning("network", message, "this is fine if the proxy reaches it"),
            None => Finding::problem(
                "network",
                message,
                "check the URL, the network and the DNS; is it behind a proxy?",
            ),
        });
    }
    findings
}

/// Splits a URL into its host and port.
fn host_and_port(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let default = if matches!(scheme, "https" | "wss") { 443 } else { 80 };
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = rest.strip_prefix(':').map_or(Some(default), |port| port.parse().ok())?;
        return Some((host.to_owned(), port));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((authority.to_owned(), default)),
    }
}

fn key_findings(state: &StateFolder, environment: &Environment) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_set = environment.variables.contains_key(toolgate_config::connect::KEY_VARIABLE);
    findings.push(match (is_set, state.path().join("keys.json").is_file()) {
        (true, _) => Finding::good("keys", "the owner key comes from TOOLGATE_API_KEY"),
        (false, true) => {
            Finding::good("keys", "the owner key was created; its hash is in .toolgate/keys.json")
        }
        (false, false) => Finding::good("keys", "`toolgate serve` creates an owner key at its first start"),
    });
    if let Err(error) = state.caller_store().read() {
        findings.push(Finding::problem("keys", error.with_cause(), error.hint()));
    }
    findings
}

fn port_finding(config: &Config, is_running: bool) -> Finding {
    let address = config.serve.listen;
    match TcpListener::bind(address) {
        Ok(_) => Finding::good("port", format!("{address} is free for `toolgate serve`")),
        Err(_) if is_running => {
            Finding::good("port", format!("{address} is in use; a gateway of this project runs"))
        }
        Err(error) => Finding::problem(
            "port",
            format!("`toolgate serve` cannot listen on {address}: {error}"),
            "stop the program that has it, or set `serve.listen`",
        ),
    }
}

/// Checks the owners and modes of files.
fn permission_findings(config: &Config, state: &StateFolder) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = config.files.iter().map(|file| config.project.join(file));
    for path in std::iter::once(config.project.clone()).chain(files) {
        if toolgate_state::is_writable_by_others(&path) {
            let shown = display_path(&path);
            findings.push(Finding::problem(
                "permissions",
                format!("other users can change {shown}"),
                format!("run `chmod go-w {shown}`"),
            ));
        }
    }
    let env = config.project.join(".env");
    if fs_err::metadata(&env).is_ok_and(|data| data.permissions().mode() & 0o077 != 0) {
        let shown = display_path(&env);
        findings.push(Finding::warning(
            "permissions",
            format!("other users can read {shown}"),
            format!("run `chmod 600 {shown}`"),
        ));
    }
    if state.path().exists()
        && let Err(error) = toolgate_state::StateDir::open(state.path())
    {
        let hint = "make it a folder of your own user, with mode 700";
        findings.push(Finding::problem("permissions", format!(".toolgate cannot be used: {error}"), hint));
    }
    if findings.is_empty() {
        findings.push(Finding::good("permissions", "no other user can change the project"));
    }
    findings
}

#[test]
fn splits_urls() {
    for (url, expected) in [
        ("https://a.example/mcp", Some(("a.example", 443))),
        ("http://a.example:81/mcp?x", Some(("a.example", 81))),
        ("wss://u:p@a.example", Some(("a.example", 443))),
        ("http://[::1]:9000/mcp", Some(("::1", 9000))),
        ("http://[::1]/mcp", Some(("::1", 80))),
        ("a.example", None),
    ] {
        let expected = expected.map(|(host, port): (&str, u16)| (host.to_owned(), port));
        assert_eq!(host_and_port(url), expected, "{url}");
    }
}
