//! `testkit` as a server over HTTP or stdio.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

pub(crate) use crate::built::testkit;
use crate::support::program::{HANG_TIMEOUT, Program};

/// A `testkit http` process; killed when dropped.
pub(crate) struct TestServer {
    child: Child,
    folder: TempDir,
    pub(crate) port: u16,
}

impl TestServer {
    /// Starts it with a mode and options, such as `huge-json era=modern`.
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
        BufReader::new(stdout).read_line(&mut port).expect("the server prints its port");
        Self { child, folder, port: port.trim().parse().expect("a port") }
    }

    /// Returns its URL for a scheme and a path, such as `http` and `mcp`.
    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}/{path}", self.port)
    }

    /// Sends it a signal, such as `-STOP`.
    #[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("`kill` is installed").success());
    }

    /// Returns its events: `connected`, `request`, `broken` and `closed`, each with its time in milliseconds.
    pub(crate) fn seen(&self) -> Vec<Json> {
        let log = fs_err::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Waits until a condition holds.
    #[expect(clippy::disallowed_methods, reason = "the server is another process")]
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < HANG_TIMEOUT, "{what}: {:#?}", self.seen());
            std::thread::yield_now();
        }
    }

    /// Counts events.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.seen().iter().filter(|seen| seen["event"] == event).count()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a project with these servers.
pub(crate) fn project(servers: Json) -> Program {
    Program::new(&[("mcp.json", &json!({ "servers": servers }).to_string())])
}

pub(crate) fn entry(mode: &str) -> Json {
    json!({ "command": testkit(), "args": [mode], "timeout": "5s" })
}

/// Counts the processes with this variable in their environment.
pub(crate) fn processes_left(marker: &str) -> usize {
    processes_with(marker).len()
}

/// Returns the processes with this variable in their environment.
pub(crate) fn processes_with(marker: &str) -> Vec<u32> {
    let find = |entry: std::io::Result<fs_err::DirEntry>| {
        let entry = entry.ok()?;
        let environment = fs_err::read(entry.path().join("environ")).ok()?;
        let has = environment.windows(marker.len()).any(|part| part == marker.as_bytes());
        entry.file_name().to_str()?.parse().ok().filter(|_| has)
    };
    fs_err::read_dir("/proc").expect("Linux").filter_map(find).collect()
}
