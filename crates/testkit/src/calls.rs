//! Tool calls over stdio that fail in the way their argument `fault` names.

use std::collections::HashMap;
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{print_error, write_stdout};

/// Interval at which a file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Answers a call, or fails to. `line` is the raw message.
pub(crate) fn call(message: &Value, line: &str) {
    let id = &message["id"];
    let arguments = &message["params"]["arguments"];
    let text = arguments["message"].as_str().unwrap_or_default().to_owned();
    match arguments["fault"].as_str().unwrap_or_default() {
        "next-id" => answer(&json!(id.as_i64().unwrap_or(0) + 1), &text),
        "text-id" => answer(&json!(id.to_string()), &text),
        "twice" => {
            answer(id, &text);
            answer(id, "a second answer");
        }
        "late" => {
            let id = id.clone();
            let after = Duration::from_millis(arguments["after"].as_u64().unwrap_or(1_000));
            spawn(move || {
                sleep(after);
                answer(&id, "too late");
            });
        }
        "never" => {}
        // Sends progress, then answers or, with `fails`, reports an error once a file of this name exists, so that the
        // test decides when. The answer is padded to `bytes`.
        "until" => {
            let id = id.clone();
            let fails = arguments["fails"] == true;
            let token = &message["params"]["_meta"]["progressToken"];
            for step in 0..arguments["steps"].as_u64().unwrap_or(0) {
                let params = json!({ "progressToken": token, "progress": step });
                let progress =
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
                write_stdout(format!("{progress}\n").as_bytes());
            }
            let padding =
                arguments["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
            spawn(move || {
                while !std::path::Path::new(&text).exists() {
                    sleep(POLL_INTERVAL);
                }
                let text = format!("{:.<padding$}", "there it is");
                if fails { answer_error(&id, "it failed") } else { answer(&id, &text) }
            });
        }
        "is-error" => answer_error(id, &text),
        // The arguments as received, byte for byte.
        "verbatim" => answer_structured(id, &raw_member(line, &["params", "arguments"])),
        // The given text as structured content, whether it is JSON or not.
        "raw" => answer_structured(id, &text),
        "large" => answer(id, &"x".repeat(200_000)),
        "exit" => {
            print_error(&text);
            std::process::exit(3);
        }
        "structured" => {
            let result = json!({ "content": [], "structuredContent": { "said": text } });
            write_stdout(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })).as_bytes());
        }
        "refuse" => {
            let error = json!({ "code": -32000, "message": text });
            write_stdout(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "error": error })).as_bytes());
        }
        "crash" => crash(),
        _ => answer(id, &text),
    }
}

fn answer_structured(id: &Value, text: &str) {
    let result = format!(r#"{{"content":[],"structuredContent":{text}}}"#);
    write_stdout(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n").as_bytes());
}

/// Returns the raw text of a nested member.
fn raw_member(text: &str, path: &[&str]) -> String {
    let Some((key, rest)) = path.split_first() else { return text.to_owned() };
    let members: HashMap<&str, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    members.get(key).map(|value| raw_member(value.get(), rest)).unwrap_or_default()
}

fn answer_error(id: &Value, text: &str) {
    let result = json!({ "isError": true, "content": [{ "type": "text", "text": text }] });
    write_stdout(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })).as_bytes());
}

fn answer(id: &Value, text: &str) {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    write_stdout(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })).as_bytes());
}

/// Dies of a segmentation fault. The Rust runtime catches the first signal, to check for a stack overflow, and lets the
/// second one through.
#[expect(clippy::disallowed_methods, reason = "signals to ourselves, without unsafe code")]
fn crash() {
    loop {
        let _ = Command::new("kill").args(["-SEGV", &std::process::id().to_string()]).status();
    }
}
