//! A stateful server: it remembers notes, and repeats those of the same session, or of the same process over stdio.

use serde_json::{Value, json};

/// The notes of one session.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

/// The tools of a stateful server.
pub(crate) fn tools() -> Value {
    json!([
        crate::tool("remember", "Remembers the message."),
        crate::tool("recall", "Repeats all remembered messages."),
        crate::tool("ask", "Asks a question."),
    ])
}

/// Returns true if a call is about notes.
pub(crate) fn handles(params: &Value) -> bool {
    params["name"] == "remember" || params["name"] == "recall"
}

impl Notes {
    /// Remembers a log level that was set.
    pub(crate) fn note_level(&mut self, params: &Value) {
        self.0.push(format!("level-{}", params["level"].as_str().unwrap_or_default()));
    }

    pub(crate) fn call(&mut self, params: &Value) -> Value {
        if params["name"] == "remember" {
            self.0.push(params["arguments"]["message"].as_str().unwrap_or_default().to_owned());
        }
        let text = format!("{}: {}", std::process::id(), self.0.join(" "));
        json!({ "content": [{ "type": "text", "text": text }] })
    }
}
