//! Third-party MCP servers and clients, installed below `target/peers` by `cargo xtask test`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::support::program::Program;

/// Returns the folder of the peers.
pub(crate) fn peers() -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    let folder = std::env::var_os("TOOLGATE_PEERS").map_or_else(usual, PathBuf::from);
    let missing = "the servers are not installed; `cargo xtask test --only peers` does that";
    fs_err::canonicalize(folder).expect(missing)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Returns the installed Node.js.
pub(crate) fn node(peers: &Path) -> PathBuf {
    peers.join("npm/node_modules/node/bin/node")
}

pub(crate) fn script(peers: &Path, package: &str) -> PathBuf {
    peers.join(format!("npm/node_modules/@modelcontextprotocol/{package}/dist/index.js"))
}

/// Returns a program of `tests/peers`, which uses a third-party library.
pub(crate) fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name)
}

pub(crate) fn package(peers: &Path, package: &str, arguments: &[&str]) -> Json {
    let script = script(peers, package);
    let arguments: Vec<_> = std::iter::once(text(&script)).chain(arguments.iter().copied()).collect();
    json!({ "command": node(peers), "args": arguments, "timeout": "60s" })
}

pub(crate) fn project(servers: Json) -> Program {
    Program::new(&[("mcp.json", &json!({ "servers": servers }).to_string())])
}

#[expect(clippy::disallowed_methods, reason = "makes what the server is asked about")]
pub(crate) fn git(program: &Program, arguments: &[&str]) {
    let mut command = Command::new("git");
    // Git hooks set these variables for the tests they run.
    command.args(arguments).current_dir(&program.project).env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE");
    assert!(command.status().expect("git is installed").success());
}

/// Runs a client for at most two minutes; returns the JSON it prints.
#[expect(clippy::disallowed_methods, reason = "the client is the other side of the test")]
pub(crate) fn run_client(program: &Path, arguments: &[&OsStr]) -> Json {
    let mut command = Command::new("timeout");
    let output = command.arg("120").arg(program).args(arguments).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}: {stderr}", output.status);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{arguments:?} printed no JSON: {stderr}"))
}
