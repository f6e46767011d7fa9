//! Calls that go wrong in the way that their argument `fault` names, over stdio.

use std::collections::HashMap;
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{complain, write};

/// How often a file is looked for.
const EVERY: Duration = Duration::from_millis(5);

/// Answers a call, or does not. `line` is the message as it came.
pub(crate) fn call(message: &Value, line: &str) {
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
        // Answers when there is a file of this name: the test says when. Tells how far it is, before.
        "until" => {
            let id = id.clone();
            let token = &message["params"]["_meta"]["progressToken"];
            for step in 0..arguments["steps"].as_u64().unwrap_or(0) {
                let params = json!({ "progressToken": token, "progress": step });
                let told = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
                write(format!("{told}\n").as_bytes());
            }
            spawn(move || {
                while !std::path::Path::new(&said).exists() {
                    sleep(EVERY);
                }
                answer(&id, "there it is");
            });
        }
        "is-error" => {
            let result = json!({ "isError": true, "content": [{ "type": "text", "text": said }] });
            write(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result })).as_bytes());
        }
        // The arguments as they came, byte by byte.
        "verbatim" => structured(id, &part(line, &["params", "arguments"])),
        // What it was told to say, whether it is JSON or not.
        "raw" => structured(id, &said),
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

fn structured(id: &Value, text: &str) {
    let result = format!(r#"{{"content":[],"structuredContent":{text}}}"#);
    write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n").as_bytes());
}

/// A part of a text, as it stands there.
fn part(text: &str, way: &[&str]) -> String {
    let Some((key, rest)) = way.split_first() else { return text.to_owned() };
    let members: HashMap<&str, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    members.get(key).map(|value| part(value.get(), rest)).unwrap_or_default()
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
