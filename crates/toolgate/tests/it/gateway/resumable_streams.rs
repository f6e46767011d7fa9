//! Streams that break during a call are resumable with `Last-Event-ID`.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::mcp_client::{McpSession, call_message, request_message};
use crate::support::third_party::{node, own, peers, text};

/// Returns a call that reports progress and ends once the file exists.
fn long(id: u32, file: &Path, steps: u32) -> Json {
    let arguments = json!({ "fault": "until", "message": file, "steps": steps });
    let mut call = call_message(id, "echo", &arguments);
    call["params"]["_meta"] = json!({ "progressToken": format!("p{id}") });
    call
}

#[test]
fn a_broken_stream_is_resumed() {
    let callers = json!([{ "id": "bob", "permissions": ["*:*"], "api_key": "key-of-bob" }]);
    let gateway = Gateway::start(&json!({ "callers": callers }));
    let file = gateway.program.path("go");
    for (revision, primed) in [("2025-11-25", true), ("2025-06-18", false), ("2025-03-26", false)] {
        let session = McpSession::begin(&gateway, OWNER, revision, &json!({}));
        let mut stream = session.stream(&long(7, &file, 3));
        if primed {
            let first = stream.event().expect("an event");
            assert!(
                first.id.is_some() && first.retry.is_some() && first.data.as_deref() == Some(""),
                "{first:?}"
            );
        }
        let first = stream.event().expect("an event");
        assert_eq!(first.message()["params"]["progress"], 0, "{revision}");
        assert_eq!(first.message()["params"]["progressToken"], "p7");
        let last = first.id.expect("an id");
        drop(stream);
        // Other callers cannot resume the stream.
        assert_eq!(
            McpSession::begin(&gateway, "key-of-bob", revision, &json!({})).listen(Some(&last)).status,
            400
        );
        assert_eq!(McpSession::begin(&gateway, OWNER, revision, &json!({})).listen(Some(&last)).status, 400);
        assert_eq!(session.listen(Some(&format!("{last}9"))).status, 400);
        assert_eq!(session.listen(Some("nothing")).status, 400);
        let mut rest = session.listen(Some(&last));
        assert_eq!(rest.status, 200);
        assert_eq!(
            [rest.message(), rest.message()].map(|message| message["params"]["progress"].clone()),
            [1, 2]
        );
        fs_err::write(&file, "").expect("it can be written");
        let end = rest.event().expect("an answer");
        assert_eq!(end.message()["result"]["content"][0]["text"], "there it is", "{revision}: {end:?}");
        assert_eq!(end.message()["id"], 7);
        assert!(rest.event().is_none(), "that was all");
        // Events are sent again on request; a completed stream ends with 204.
        assert_eq!(session.listen(Some(&last)).message()["params"]["progress"], 1);
        assert_eq!(session.listen(end.id.as_deref()).status, 204);
        fs_err::remove_file(&file).expect("the file exists");
    }
    assert_eq!(gateway.seen().len(), 3, "each call was made once");
    let calls = gateway.executions("tool=echo");
    assert!(calls.iter().all(|call| call["end"]["status"] == "success"), "{calls:?}");
}

/// Without resumable streams a call is cancelled by a disconnect or by a notification.
#[test]
fn disconnects_and_cancellations() {
    let gateway = Gateway::start(&json!({}));
    let file = gateway.program.path("never");
    let ended = |count: usize| {
        gateway.wait("the end of the call", |gateway| {
            let calls = gateway.executions("status=cancelled");
            calls.iter().filter(|call| call["end"].is_object()).count() == count
        });
    };
    // In the newest revision, closing the connection cancels the call.
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}, "progressToken": 1 });
    let mut call = long(1, &file, 1);
    call["params"]["_meta"] = meta;
    let headers = [
        &format!("X-API-Key: {OWNER}"),
        crate::support::mcp_client::ACCEPT,
        "Content-Type: application/json",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: echo",
    ];
    let mut stream = gateway.connect();
    let sent = crate::support::gateway::request("POST /mcp", &headers, &call.to_string());
    stream.write_all(sent.as_bytes()).expect("it is sent");
    let mut events = crate::support::mcp_client::EventStream::read(stream);
    let event = events.event().expect("an event");
    assert!(event.id.is_none() && event.message()["method"] == "notifications/progress", "{event:?}");
    drop(events);
    ended(1);
    // In a session, the notification cancels the call, with or without an open stream.
    let session = McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({}));
    let mut stream = session.stream(&long(2, &file, 1));
    stream.message();
    drop(stream);
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    assert_eq!(session.post(&cancel).status, 202);
    ended(2);
    // Deleting the session cancels it as well.
    let mut stream = session.stream(&long(3, &file, 1));
    stream.message();
    assert_eq!(session.delete(), 204);
    assert!(stream.next().is_none());
    ended(3);
    let after = request_message(4, "ping", &json!({}));
    assert_eq!(session.post(&after).status, 404);
}

/// A proxy that breaks the first stream with a progress notification.
struct Proxy {
    port: u16,
    broken: Arc<AtomicUsize>,
    resumed: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(gateway: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (broken, resumed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (breaks, resumes) = (Arc::clone(&broken), Arc::clone(&resumed));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", gateway)) else { break };
                pass(&client, &server, &resumes, "last-event-id:", false);
                pass(&server, &client, &breaks, "notifications/progress", true);
            }
        });
        Self { port, broken, resumed }
    }
}

/// Copies bytes and counts matches; may break the connection at the first one.
fn pass(from: &TcpStream, to: &TcpStream, count: &Arc<AtomicUsize>, word: &'static str, breaks: bool) {
    let mut from = from.try_clone().expect("it is a socket");
    let mut to = to.try_clone().expect("it is a socket");
    let count = Arc::clone(count);
    std::thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
            let seen = String::from_utf8_lossy(&bytes[..length]).to_lowercase().contains(word);
            if seen && count.fetch_add(1, Ordering::SeqCst) == 0 && breaks {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

#[test]
#[ignore = "needs the clients that `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "the client is the other side of the test")]
fn third_party_clients_resume_streams() {
    let peers = peers();
    let packages = peers.join("npm/node_modules");
    let gateway = Gateway::start(&json!({}));
    let file = gateway.program.path("go");
    let script = own("client_resume.mjs");
    for generation in ["v1", "v2"] {
        let proxy = Proxy::start(gateway.port);
        // The gateway accepts its own host with any port.
        let url = format!("http://127.0.0.1:{}/mcp", proxy.port);
        let mut command = Command::new("timeout");
        command.arg("120").arg(node(&peers)).args([text(&script), text(&packages), generation, &url, OWNER]);
        let client = command.arg(&file).stdout(Stdio::piped()).spawn().expect("it starts");
        wait_until("the stream is broken", || proxy.broken.load(Ordering::SeqCst) > 0);
        wait_until("the client is back", || proxy.resumed.load(Ordering::SeqCst) > 0);
        fs_err::write(&file, "").expect("it can be written");
        let output = client.wait_with_output().expect("it ends");
        let report: Json = serde_json::from_slice(&output.stdout).expect("one JSON document");
        assert_eq!(report["text"], "there it is", "{generation}: {report}");
        assert_eq!(report["progress"], json!([0, 1, 2]), "{generation}: no event is missing or repeated");
        fs_err::remove_file(&file).expect("the file exists");
    }
    assert_eq!(gateway.seen().len(), 2, "each call was made once");
}
