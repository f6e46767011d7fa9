//! `testkit` over the network: a server in the background, and what it saw.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::program::{PATIENCE, Program};
use crate::servers::testkit;

/// A server that ends with its test.
pub(crate) struct Kit {
    child: Child,
    folder: TempDir,
    pub(crate) port: u16,
}

impl Kit {
    /// Starts it: `huge-json era=modern`.
    #[expect(clippy::disallowed_methods, reason = "the server is the other side of the test")]
    pub(crate) fn start(line: &str) -> Self {
        let folder = TempDir::new().expect("the temporary folder can be written to");
        let mut child = Command::new(testkit())
            .arg("http")
            .args(line.split_whitespace())
            .env("TESTKIT_LOG", folder.path().join("log"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it says its port");
        Self { child, folder, port: port.trim().parse().expect("a port") }
    }

    /// Its address for a scheme and a path, such as `http` and `mcp`.
    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}/{path}", self.port)
    }

    /// What it saw: `connected`, `request`, `broken` and `closed`, each with its time in milliseconds.
    pub(crate) fn seen(&self) -> Vec<Json> {
        let log = fs_err::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Waits until something holds, for a few seconds at most.
    #[expect(clippy::disallowed_methods, reason = "the server is another process")]
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:#?}", self.seen());
            std::thread::yield_now();
        }
    }

    /// How often it saw something.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.seen().iter().filter(|seen| seen["event"] == event).count()
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A project with these servers.
pub(crate) fn project(servers: Json) -> Program {
    Program::new(&[("mcp.json", &json!({ "servers": servers }).to_string())])
}
