//! An MCP server on loopback that misbehaves on request: `testkit http MODE KEY=VALUE…`.
//!
//! It prints its port and serves until it is killed: streamable HTTP at `/mcp`, HTTP+SSE of the first
//! revision at `/sse`, a WebSocket at `/ws`. On the standard library, a thread per connection, so that
//! nothing stands between a mode and the bytes it sends. Keys: `port=` for one that is known beforehand;
//! `era=modern`; `tools=` (a file with a list of them); `session=` (an id) for a handshake that begins one;
//! `status=` and `to=` (a port) for redirects; `name=` for encodings; `cert=`, `key=` and `client-ca=` (files) for TLS.

mod connection;
mod fault;
mod tls;

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::{Mode, answer, complain, discovered, question, response};
use fault::Fault;

/// What every connection shares.
struct Server {
    fault: Fault,
    modern: bool,
    /// What it offers in place of the tools of a good server.
    tools: Option<Value>,
    /// The id of the session that a handshake begins.
    session: Option<String>,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// Where answers go to in the first revision: the stream that was opened last.
    events: Mutex<Option<Sender<String>>>,
    /// Questions that were asked in the middle of a call, by their ids.
    asked: Mutex<HashMap<String, Sender<String>>>,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let keys: HashMap<&str, &str> = args.iter().skip(1).filter_map(|arg| arg.split_once('=')).collect();
    let Some(fault) = args.first().and_then(|mode| Fault::of(mode, &keys)) else {
        complain("usage: testkit http MODE KEY=VALUE…");
        return ExitCode::from(2);
    };
    let server = Server {
        fault,
        modern: keys.get("era") == Some(&"modern"),
        tools: keys.get("tools").map(|file| {
            let text = fs_err::read_to_string(file).expect("the file of tools can be read");
            serde_json::from_str(&text).expect("it is JSON")
        }),
        session: keys.get("session").map(|&id| id.to_owned()),
        tls: tls::config(&keys),
        events: Mutex::default(),
        asked: Mutex::default(),
    };
    let port = keys.get("port").and_then(|port| port.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let server = Arc::new(server);
    let port = listener.local_addr().expect("it is bound").port();
    let _ = writeln!(std::io::stdout(), "{port}");
    for (number, stream) in listener.incoming().flatten().enumerate() {
        let server = Arc::clone(&server);
        std::thread::spawn(move || connection::serve(number, stream, &server));
    }
    ExitCode::SUCCESS
}

impl Server {
    /// The answer of a good server; none to a notification.
    fn answer(&self, message: &Value) -> Option<Value> {
        let (id, method) = (&message["id"], message["method"].as_str()?);
        if id.is_null() {
            return None;
        }
        let outcome = match method {
            "server/discover" if self.modern => Ok(discovered()),
            "initialize" if self.modern => Err((-32601, "there is no handshake".to_owned())),
            "tools/list" if self.tools.is_some() => Ok(json!({ "tools": self.tools })),
            _ => answer(Mode::Good, method, &message["params"]),
        };
        Some(response(id, &outcome))
    }

    /// The answer where no fault is in the way of bytes: a result of 64 MiB, or a good one.
    fn message(&self, message: &Value) -> Option<String> {
        let huge = matches!(self.fault, Fault::HugeJson | Fault::HugeEvents);
        if huge && message["method"] == "tools/call" {
            return Some(crate::huge(&message["id"]));
        }
        self.answer(message).map(|answer| answer.to_string())
    }
}
