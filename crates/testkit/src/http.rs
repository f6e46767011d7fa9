//! MCP server on loopback that misbehaves on request: `testkit http MODE KEY=VALUE…`.
//!
//! Prints its port and serves until it is killed: Streamable HTTP at `/mcp`, HTTP+SSE of the first revision at `/sse`,
//! a WebSocket at `/ws`. Uses the standard library with a thread per connection, so that a mode controls every byte
//! sent. Keys: `port=` (default: any free one); `era=modern`; `tools=` (a file with a list of tools); `session=` (ID of
//! the session that a handshake begins; `session=each` gives every handshake its own, with notes); `lost=` (status for requests with another session ID); `status=`,
//! `retry-after=`, `on=all` and `to=` (a port) for error statuses and redirects; `code=` for JSON-RPC errors; `name=` for encodings; `cert=`,
//! `key=` and `client-ca=` (files) for TLS.

mod connection;
mod fault;
mod tls;

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::notes::Notes;
use crate::{ServerMode, discover_result, elicitation_params, handle_request, print_error, response};
use fault::HttpFault;

/// State shared by all connections.
struct HttpServer {
    fault: HttpFault,
    modern: bool,
    /// Tools that replace those of a good server.
    tools: Option<Value>,
    /// ID of the session that a handshake begins.
    session: Option<String>,
    /// Status for requests with another session ID.
    lost: Option<u16>,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// Notes of each session, if every handshake begins its own.
    notes: Option<Mutex<HashMap<String, Notes>>>,
    /// Number of sessions and streams so far.
    started: AtomicUsize,
    /// Event streams of the first revision, by session: responses go there.
    events: Mutex<HashMap<String, Sender<String>>>,
    /// Questions asked during a call, by ID.
    open_questions: Mutex<HashMap<String, Sender<String>>>,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let keys: HashMap<&str, &str> = args.iter().skip(1).filter_map(|arg| arg.split_once('=')).collect();
    let Some(fault) = args.first().and_then(|mode| HttpFault::parse(mode, &keys)) else {
        print_error("usage: testkit http MODE KEY=VALUE…");
        return ExitCode::from(2);
    };
    let server = HttpServer {
        fault,
        modern: keys.get("era") == Some(&"modern"),
        tools: keys.get("tools").map(|file| {
            let text = fs_err::read_to_string(file).expect("the file of tools can be read");
            serde_json::from_str(&text).expect("it is JSON")
        }),
        session: keys.get("session").filter(|&&id| id != "each").map(|&id| id.to_owned()),
        notes: (keys.get("session") == Some(&"each")).then(Mutex::default),
        started: AtomicUsize::new(0),
        lost: keys.get("lost").and_then(|status| status.parse().ok()),
        tls: tls::config(&keys),
        events: Mutex::default(),
        open_questions: Mutex::default(),
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

impl HttpServer {
    /// Begins a session and returns its ID.
    fn begin_session(&self) -> String {
        let id = format!("s{}", self.started.fetch_add(1, Ordering::Relaxed));
        if let Some(notes) = &self.notes {
            notes.lock().expect("the lock is not poisoned").insert(id.clone(), Notes::default());
        }
        id
    }

    fn end_session(&self, id: &str) {
        if let Some(notes) = &self.notes {
            notes.lock().expect("the lock is not poisoned").remove(id);
        }
    }

    /// Returns true if requests need a session, and this is none.
    fn is_lost(&self, session: Option<&str>) -> bool {
        let Some(notes) = &self.notes else { return false };
        let notes = notes.lock().expect("the lock is not poisoned");
        !session.is_some_and(|session| notes.contains_key(session))
    }

    /// Returns the response in a session with notes; `None` if the message is about something else.
    fn answer_from_notes(&self, session: Option<&str>, message: &Value) -> Option<String> {
        let mut notes = self.notes.as_ref()?.lock().expect("the lock is not poisoned");
        let result = match message["method"].as_str()? {
            "tools/list" => json!({ "tools": crate::notes::tools() }),
            "tools/call" if crate::notes::handles(&message["params"]) => {
                notes.get_mut(session?)?.call(&message["params"])
            }
            _ => return None,
        };
        Some(response(&message["id"], &Ok(result)).to_string())
    }

    /// Returns the response of a good server; `None` for a notification.
    fn handle_message(&self, message: &Value) -> Option<Value> {
        let (id, method) = (&message["id"], message["method"].as_str()?);
        if id.is_null() {
            return None;
        }
        let outcome = match method {
            "server/discover" if self.modern => Ok(discover_result()),
            "initialize" if self.modern => Err((-32601, "there is no handshake".to_owned())),
            "tools/list" if self.tools.is_some() => Ok(json!({ "tools": self.tools })),
            _ => handle_request(ServerMode::Good, method, &message["params"]),
        };
        Some(response(id, &outcome))
    }

    /// Returns the response without transport faults: a result of 64 MiB, or a good one.
    fn response_to(&self, message: &Value) -> Option<String> {
        let huge = matches!(self.fault, HttpFault::HugeJson | HttpFault::HugeEvents);
        if huge && message["method"] == "tools/call" {
            return Some(crate::huge_response(&message["id"]));
        }
        self.handle_message(message).map(|answer| answer.to_string())
    }
}
