//! MCP servers that others wrote, over every transport, behind the real executable.
//!
//! `cargo xtask test` installs them and says where in `TOOLGATE_PEERS`; without it these tests have
//! nobody to talk to and say so.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::program::Program;

/// Where the servers are.
#[expect(clippy::print_stdout, reason = "who runs the tests by hand should know what was not tested")]
fn peers() -> Option<PathBuf> {
    let folder = std::env::var_os("TOOLGATE_PEERS").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: `cargo xtask test` installs the servers that this test needs");
    }
    folder
}

fn node(peers: &Path, package: &str, arguments: &[&str]) -> Json {
    let script = peers.join(format!("npm/node_modules/@modelcontextprotocol/{package}/dist/index.js"));
    let arguments: Vec<_> =
        std::iter::once(script.to_str().expect("UTF-8")).chain(arguments.iter().copied()).collect();
    json!({ "command": "node", "args": arguments, "timeout": "60s" })
}

fn project(servers: Json) -> Program {
    Program::new(&[("mcp.json", &json!({ "servers": servers }).to_string())])
}

/// Name, revision and number of tools of every server, in order.
fn shown(program: &Program) -> String {
    let run = program.run("servers --json");
    let all: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    let one = |status: &Json| {
        format!(
            "{} {} {} {} tools",
            status["name"], status["state"], status["protocolVersion"], status["tools"]
        )
    };
    all.iter().map(one).collect::<Vec<_>>().join("\n").replace('"', "")
}

#[test]
fn the_reference_servers_over_stdio() {
    let Some(peers) = peers() else { return };
    let program = project(json!({}));
    let folder = program.project.to_str().expect("UTF-8").to_owned();
    let servers = json!({
        "everything": node(&peers, "server-everything", &["stdio"]),
        "files": node(&peers, "server-filesystem", &[&folder]),
        "memory": node(&peers, "server-memory", &[]),
        "time": { "command": peers.join("python/bin/mcp-server-time"), "timeout": "60s" },
        "git": { "command": peers.join("python/bin/mcp-server-git"), "timeout": "60s" },
    });
    program.write("mcp.json", json!({ "servers": servers }).to_string());
    program.write("note.txt", "forty-two");
    // The two in Python speak the newest revision, the others the one before.
    insta::assert_snapshot!(shown(&program), @r"
    everything ready 2025-11-25 13 tools
    files ready 2025-11-25 14 tools
    memory ready 2025-11-25 9 tools
    time ready 2026-07-28 2 tools
    git ready 2026-07-28 12 tools
    ");
    let call = |line: &str| program.run(&format!("tools call {line}")).stdout;
    assert_eq!(call("everything__echo message=hello"), "Echo: hello\n");
    assert_eq!(call("everything__get-sum a=2 b=3"), "The sum of 2 and 3 is 5.\n");
    assert!(call("everything__get-tiny-image").contains("[image image/png saved to "));
    assert!(call("everything__get-resource-links count=2").contains("[resource demo://"));
    assert_eq!(call(&format!("files__read_text_file path={folder}/note.txt")), "forty-two\n");
    assert!(call("memory__read_graph").contains("entities"));
    assert!(call("time__get_current_time timezone=UTC").contains("\"timezone\": \"UTC\""));
}

/// A server in the background, ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the server is the other side of the test")]
fn start(program: &str, arguments: &[&str], port: Option<u16>) -> Running {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(port) = port {
        command.env("PORT", port.to_string());
    }
    Running(command.spawn().expect("the server starts"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// Waits until somebody listens, as long as the server lives.
fn wait_for(port: u16, server: &mut Running) {
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Ok(Some(status)) = server.0.try_wait() {
            let mut said = String::new();
            let _ = server.0.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
            panic!("the server ended with {status}: {said}");
        }
        std::thread::yield_now();
    }
}

#[test]
fn streamable_http_and_legacy_sse() {
    let Some(peers) = peers() else { return };
    let script = peers.join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let script = script.to_str().expect("UTF-8");
    let (http, sse) = (free_port(), free_port());
    let mut running =
        [start("node", &[script, "streamableHttp"], Some(http)), start("node", &[script, "sse"], Some(sse))];
    wait_for(http, &mut running[0]);
    wait_for(sse, &mut running[1]);
    let program = project(json!({
        "http": { "type": "http", "url": format!("http://127.0.0.1:{http}/mcp") },
        "sse": { "type": "sse", "url": format!("http://127.0.0.1:{sse}/sse") },
    }));
    insta::assert_snapshot!(shown(&program), @r"
    http ready 2025-11-25 13 tools
    sse ready 2025-11-25 13 tools
    ");
    for server in ["http", "sse"] {
        let run = program.run(&format!("tools call {server}__echo message={server}"));
        assert_eq!(run.stdout, format!("Echo: {server}\n"), "{}", run.stderr);
    }
}

#[test]
fn websocket() {
    let Some(peers) = peers() else { return };
    let python = peers.join("python-v1/bin/python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/websocket.py");
    let mut server = start(python.to_str().expect("UTF-8"), &[script], None);
    let mut line = String::new();
    let stdout = server.0.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it says its port");
    let port: u16 = line.trim().parse().expect("a port");
    wait_for(port, &mut server);
    let program = project(json!({ "ws": { "url": format!("ws://127.0.0.1:{port}/ws") } }));
    insta::assert_snapshot!(shown(&program), @"ws ready 2025-11-25 1 tools");
    assert_eq!(program.run("tools call ws__echo message=hi").stdout, "websocket: hi\n");
}
