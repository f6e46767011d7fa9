//! A model that follows a script, and what it saw.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;
use toolgate_types::agent::{ModelProvider, ModelSpec, Prices};
use toolgate_types::{HumanDuration, Secret, Text};

use crate::built::testkit;

/// The key that no error may show.
pub(crate) const KEY: &str = "sk-a-key-that-nobody-may-see";

/// A model that ends with its test.
pub(crate) struct Scripted {
    child: Child,
    folder: TempDir,
    port: u16,
}

impl Scripted {
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

    pub(crate) fn spec(&self, provider: ModelProvider, stream: bool) -> ModelSpec {
        let path = if matches!(provider, ModelProvider::Openai | ModelProvider::Ollama) { "/v1" } else { "" };
        ModelSpec {
            provider,
            name: "scripted".to_owned(),
            url: Text::plain(format!("http://127.0.0.1:{}{path}", self.port)),
            key: Some(Secret::new(KEY)),
            temperature: Some(0.5),
            max_tokens: 1_000,
            timeout: HumanDuration::from_secs(60),
            retries: 3,
            stream,
            max_result: 32 << 10,
            prices: Some(Prices { input: 3.0, cached_input: 0.3, output: 15.0 }),
        }
    }

    /// The requests it saw.
    pub(crate) fn seen(&self) -> Vec<Json> {
        let log = fs_err::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
