//! SIGTERM: calls that were accepted are answered before the gateway ends, on every MCP transport.

use std::io::Write as _;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project, request};
use crate::support::mcp_client::{EventStream, WebSocket, call_message, request_message};
use crate::support::program::Program;
use crate::support::stdio_client::StdioClient;

/// Calls on each connection.
const CALLS: u32 = 150;

/// Creates a project in which all calls run at once.
fn busy_project() -> Program {
    let limits = json!({ "max_instances": CALLS, "timeout": "50s" });
    project(&json!({ "server": { "default_tool_config": limits }, "max_concurrent": CALLS }))
}

fn initialize() -> Json {
    let client = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    request_message(0, "initialize", &params)
}

/// Returns calls that end once the file `gate` exists. Their responses are larger than the buffers of a socket: those of
/// a client that does not read are still queued when the last call has ended.
fn calls(gate: &std::path::Path) -> impl Iterator<Item = Json> {
    let arguments = json!({ "fault": "until", "message": gate, "bytes": 60_000 });
    (1..=CALLS).map(move |id| call_message(id, "echo", &arguments))
}

/// Sorts the ids of responses; panics if one of them is an error.
fn answered(responses: impl Iterator<Item = Json>) -> Vec<u64> {
    let id = |response: Json| {
        let text = response["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with("there it is"), "{response}");
        response["id"].as_u64().expect("a number")
    };
    let mut ids: Vec<_> = responses.map(id).collect();
    ids.sort_unstable();
    ids
}

fn is_response(message: &Json) -> bool {
    !message["id"].is_null()
}

/// Sends SIGTERM, lets the calls end, and returns when the gateway closes its connections.
fn stop_while_calls_run(gateway: &Gateway) {
    gateway.wait("all calls", |gateway| gateway.seen().len() == CALLS as usize);
    gateway.signal("-TERM");
    gateway.wait("a no", |gateway| gateway.get("/readyz", OWNER).status == 503);
    gateway.program.write("gate", "");
    gateway.wait("the end of the calls", |gateway| {
        std::net::TcpStream::connect(("127.0.0.1", gateway.port)).is_err()
    });
}

#[test]
fn calls_over_a_websocket_are_answered() {
    let mut gateway = Gateway::serve(busy_project());
    let mut socket = WebSocket::open(&gateway, OWNER);
    socket.send(&initialize().to_string());
    socket.next();
    calls(&gateway.program.path("gate")).for_each(|call| socket.send(&call.to_string()));
    stop_while_calls_run(&gateway);
    let messages = std::iter::repeat_with(|| serde_json::from_str::<Json>(&socket.next()).expect("JSON"));
    let responses = messages.filter(is_response).take(CALLS as usize);
    assert_eq!(answered(responses), (1..=CALLS.into()).collect::<Vec<u64>>());
    drop(socket);
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn calls_over_sse_are_answered() {
    let mut gateway = Gateway::serve(busy_project());
    let mut stream = gateway.connect();
    let key = format!("X-API-Key: {OWNER}");
    stream.write_all(request("GET /sse", &[&key], "").as_bytes()).expect("it is sent");
    let mut events = EventStream::read(stream);
    let path = events.event().and_then(|event| event.data).expect("the URL for messages");
    for message in std::iter::once(initialize()).chain(calls(&gateway.program.path("gate"))) {
        let answer = gateway.post(&path, OWNER, &message);
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    stop_while_calls_run(&gateway);
    let responses = std::iter::from_fn(|| events.next()).filter(is_response).skip(1);
    assert_eq!(answered(responses), (1..=CALLS.into()).collect::<Vec<u64>>(), "and the stream ends");
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
fn calls_over_stdio_are_answered() {
    let program = busy_project();
    let gate = program.path("gate");
    let mut client = StdioClient::begin(&program);
    client.send(&initialize());
    client.receive();
    calls(&gate).for_each(|call| client.send(&call));
    let seen = || fs_err::read_to_string(program.path("seen")).unwrap_or_default();
    crate::support::gateway::wait_until("all calls", || {
        seen().matches(r#""method":"tools/call""#).count() == CALLS as usize
    });
    let status = std::process::Command::new("kill").arg(client.child.id().to_string()).status();
    assert!(status.expect("`kill` is installed").success());
    program.write("gate", "");
    let responses = std::iter::repeat_with(|| client.receive()).filter(is_response);
    assert_eq!(answered(responses.take(CALLS as usize)), (1..=CALLS.into()).collect::<Vec<u64>>());
    assert!(client.child.wait().expect("it ends").success());
}
