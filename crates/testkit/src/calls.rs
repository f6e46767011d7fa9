//! Calls that go wrong in the way that their argument `fault` names, over stdio.

use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{complain, write};

/// Answers a call, or does not.
pub(crate) fn call(message: &Value) {
    let id = &message["id"];
    let arguments = &message["params"]["arguments"];
    let said = arguments["message"].as_str().unwrap_or_default().to_owned();
    match arguments["fault"].as_str().unwrap_or_default() {
        "next-id" => answer(&json!(id.as_i64().unwrap_or(0) + 1), &said),
        "text-id" => answer(&json!(id.to_string()), &said),
        "twice" => {
            answer(id, &said);
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
        "large" => answer(id, &"x".repeat(200_000)),
        "exit" => {
            complain(&said);
            std::process::exit(3);
        }
        "structured" => {
            let result = json!({ "content": [], "structuredContent": { "said": said } });
            write(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })).as_bytes());
        }
        "refuse" => {
            let error = json!({ "code": -32000, "message": said });
            write(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "error": error })).as_bytes());
        }
        "crash" => crash(),
        _ => answer(id, &said),
    }
}

fn answer(id: &Value, text: &str) {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    write(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })).as_bytes());
}

/// As a program that reads where it must not. The first signal is caught by Rust, which looks for an
/// overflow of the stack and then lets the second one through.
#[expect(clippy::disallowed_methods, reason = "signals to ourselves, without unsafe code")]
fn crash() {
    loop {
        let _ = Command::new("kill").args(["-SEGV", &std::process::id().to_string()]).status();
    }
}
