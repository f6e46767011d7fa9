//! Scripted model for tests: runs `testkit model` in the background and returns the requests it saw. Tests include this
//! file as a module, by `#[path]`, next to `built.rs`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::built::testkit;

/// Scripted model; killed when dropped.
pub(crate) struct ScriptedModel {
    child: Child,
    folder: TempDir,
    /// Port it listens on.
    pub(crate) port: u16,
}

impl ScriptedModel {
    #[expect(clippy::disallowed_methods, reason = "the server is the other side of the test")]
    pub(crate) fn start(turns: &Json) -> Self {
        let folder = TempDir::new().expect("the temporary folder can be written to");
        let script = folder.path().join("script.json");
        fs_err::write(&script, turns.to_string()).expect("the script can be written");
        let mut child = Command::new(testkit())
            .arg("model")
            .arg(&script)
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

    /// Returns the requests so far: `path`, `headers` and `body`.
    pub(crate) fn requests(&self) -> Vec<Json> {
        let log = fs_err::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
