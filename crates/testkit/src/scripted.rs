//! A server whose tools are in a file: `testkit scripted FILE [modern]`.
//!
//! Whoever changes the file changes the tools, and the server says so as often as the file's
//! `notify` tells it to. Every method it hears goes to `FILE.log`, a line each. With `modern` it speaks
//! the newest revision and tells of changes only on the stream that was asked for.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::Duration;

use serde_json::{Value, json};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_millis(10);

pub(crate) fn run(file: &str, modern: bool) {
    let listening: Mutex<Option<Value>> = Mutex::new(None);
    scope(|scope| {
        scope.spawn(|| tell_of_changes(file, modern, &listening));
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            let method = message["method"].as_str().unwrap_or_default();
            log(file, method);
            let id = &message["id"];
            if method == "subscriptions/listen" {
                *listening.lock().expect("nobody panics") = Some(id.clone());
                notify("notifications/subscriptions/acknowledged", Some(id));
            } else if !id.is_null() {
                let mut response = json!({ "jsonrpc": "2.0", "id": id });
                match answer(file, method, &message["params"], modern) {
                    Some(result) => response["result"] = result,
                    None => response["error"] = json!({ "code": -32601, "message": "what?" }),
                }
                say(&response);
            }
        }
        // The other thread has nobody to talk to any more.
        std::process::exit(0);
    });
}

fn answer(file: &str, method: &str, params: &Value, modern: bool) -> Option<Value> {
    let capabilities = json!({ "tools": { "listChanged": true } });
    Some(match method {
        "server/discover" if modern => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "public",
        }),
        "initialize" if !modern => json!({
            "protocolVersion": params["protocolVersion"], "capabilities": capabilities,
            "serverInfo": { "name": "scripted", "version": "1.0.0" },
        }),
        "tools/list" => json!({ "tools": read(file)["tools"], "ttlMs": 0, "cacheScope": "public" }),
        "tools/call" => {
            json!({ "content": [{ "type": "text", "text": format!("called {}", params["name"]) }] })
        }
        _ => return None,
    })
}

fn tell_of_changes(file: &str, modern: bool, listening: &Mutex<Option<Value>>) {
    let mut before = read(file);
    loop {
        sleep(EVERY);
        let now = read(file);
        if now == before || now.is_null() {
            continue;
        }
        let stream = listening.lock().expect("nobody panics").clone();
        if stream.is_some() || !modern {
            for _ in 0..now["notify"].as_u64().unwrap_or(1) {
                notify("notifications/tools/list_changed", stream.as_ref());
            }
        }
        before = now;
    }
}

fn notify(method: &str, stream: Option<&Value>) {
    let meta = stream.map(|id| json!({ "io.modelcontextprotocol/subscriptionId": id }));
    say(&json!({ "jsonrpc": "2.0", "method": method, "params": { "_meta": meta.unwrap_or(json!({})) } }));
}

fn say(message: &Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{message}").and_then(|()| stdout.flush());
}

/// What is in the file; nothing while somebody writes it.
#[expect(clippy::disallowed_methods, reason = "this crate has the standard library alone")]
fn read(file: &str) -> Value {
    std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn log(file: &str, method: &str) {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(format!("{file}.log"));
    let _ = log.and_then(|mut log| writeln!(log, "{method}"));
}
