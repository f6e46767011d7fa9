//! Log messages to the client.
//!
//! In the older revisions a client says once which it wants. In the newest it says so with each request,
//! and who said nothing gets nothing.
#![expect(deprecated, reason = "the newest revision deprecates logging, and has it")]

use rmcp::model::LoggingMessageNotificationParam;
use serde::Serialize;
use serde_json::{Value, json};

use super::Call;
use crate::typed;

/// From the least to the most.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// A level as the word of the protocol. The library has deprecated its type for it.
pub(crate) fn word(level: impl Serialize) -> String {
    match serde_json::to_value(level) {
        Ok(Value::String(word)) => word,
        _ => LEVELS[0].to_owned(),
    }
}

pub(crate) async fn info(call: &Call<'_>, message: &str) {
    let wanted = if call.round.is_modern() {
        call.round.context.meta.log_level().map(word)
    } else {
        let level = call.fixture.session.level.lock().expect("nobody panics with it");
        Some(level.clone().unwrap_or_else(|| LEVELS[0].to_owned()))
    };
    let place = |word: &str| LEVELS.iter().position(|level| *level == word);
    if wanted.is_some_and(|wanted| place("info") >= place(&wanted)) {
        let message: LoggingMessageNotificationParam =
            typed(json!({ "level": "info", "logger": "conformance-server", "data": message }));
        // Who asked may be gone.
        let _ = call.round.context.peer.notify_logging_message(message).await;
    }
}
