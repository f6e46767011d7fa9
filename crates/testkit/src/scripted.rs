//! MCP server whose tools are defined by a file: `testkit scripted FILE [modern]`.
//!
//! A change of the file changes the tools, and the server sends as many notifications as the file's `notify` says.
//! Every received method is logged to `FILE.log`, one per line. With `modern` it speaks the newest revision, and sends
//! notifications only on the stream that the client opened.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::Duration;

use serde_json::{Value, json};

/// Interval at which the file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn run(file: &str, modern: bool) {
    let listening: Mutex<Option<Value>> = Mutex::new(None);
    scope(|scope| {
        scope.spawn(|| notify_changes(file, modern, &listening));
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            let method = message["method"].as_str().unwrap_or_default();
            log(file, method);
            let id = &message["id"];
            if method == "subscriptions/listen" {
                *listening.lock().expect("the lock is not poisoned") = Some(id.clone());
                notify("notifications/subscriptions/acknowledged", Some(id));
            } else if !id.is_null() {
                let mut response = json!({ "jsonrpc": "2.0", "id": id });
                match answer(file, method, &message["params"], modern) {
                    Some(result) => response["result"] = result,
                    None => response["error"] = json!({ "code": -32601, "message": "what?" }),
                }
                send(&response);
            }
        }
        // End the other thread: the client is gone.
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

fn notify_changes(file: &str, modern: bool, listening: &Mutex<Option<Value>>) {
    let mut before = read(file);
    loop {
        sleep(POLL_INTERVAL);
        let now = read(file);
        if now == before || now.is_null() {
            continue;
        }
        let stream = listening.lock().expect("the lock is not poisoned").clone();
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
    send(&json!({ "jsonrpc": "2.0", "method": method, "params": { "_meta": meta.unwrap_or(json!({})) } }));
}

fn send(message: &Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{message}").and_then(|()| stdout.flush());
}

/// Returns the content of the file; null while it is being written.
#[expect(clippy::disallowed_methods, reason = "this module uses only the standard library")]
fn read(file: &str) -> Value {
    std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn log(file: &str, method: &str) {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(format!("{file}.log"));
    let _ = log.and_then(|mut log| writeln!(log, "{method}"));
}
