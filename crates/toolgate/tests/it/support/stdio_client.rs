//! MCP client over stdio.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::program::Program;

/// A running `toolgate stdio` with its pipes.
pub(crate) struct StdioClient {
    pub(crate) child: std::process::Child,
    pub(crate) stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl StdioClient {
    pub(crate) fn begin(program: &Program) -> Self {
        Self::with(program, &["stdio"])
    }

    pub(crate) fn with(program: &Program, arguments: &[&str]) -> Self {
        let mut command = program.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdin, stdout }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("it was not closed");
        writeln!(stdin, "{message}").expect("it is read");
    }

    /// Returns the next message.
    pub(crate) fn receive_any(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it is a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    /// Returns the next message. Skips `tools/list_changed`, which is sent if servers start late.
    pub(crate) fn receive(&mut self) -> Value {
        loop {
            let message = self.receive_any();
            if message["method"] != "notifications/tools/list_changed" {
                return message;
            }
        }
    }

    pub(crate) fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        // Notifications may come at any time.
        std::iter::repeat_with(|| self.receive())
            .find(|message| !message["id"].is_null())
            .expect("a response")
    }
}
