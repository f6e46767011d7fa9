//! Log messages to the client.
//!
//! In the older revisions a client sets the level once; before that it gets all levels. In the newest it sets the level
//! with each request; without one it gets nothing.
#![expect(deprecated, reason = "the newest revision deprecates logging, and has it")]

use rmcp::model::LoggingMessageNotificationParam;
use serde::Serialize;
use serde_json::{Value, json};

use super::ToolCall;
use crate::from_wire;

/// Levels by increasing severity.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Returns the name of a level in the protocol. The library deprecates its own type for it.
pub(crate) fn level_name(level: impl Serialize) -> String {
    match serde_json::to_value(level) {
        Ok(Value::String(word)) => word,
        _ => LEVELS[0].to_owned(),
    }
}

pub(crate) async fn log_info(call: &ToolCall<'_>, message: &str) {
    let wanted = if call.round.is_modern() {
        call.round.context.meta.log_level().map(level_name)
    } else {
        let level = call.fixture.session.level.lock().expect("the lock is not poisoned");
        Some(level.clone().unwrap_or_else(|| LEVELS[0].to_owned()))
    };
    let severity = |name: &str| LEVELS.iter().position(|level| *level == name);
    if wanted.is_some_and(|wanted| severity("info") >= severity(&wanted)) {
        let message: LoggingMessageNotificationParam =
            from_wire(json!({ "level": "info", "logger": "conformance-server", "data": message }));
        // The client may be gone.
        let _ = call.round.context.peer.notify_logging_message(message).await;
    }
}
