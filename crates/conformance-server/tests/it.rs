//! Runs the program over stdio and HTTP+SSE, which the conformance suite does not support. Streamable HTTP is covered
//! by the suite: `cargo xtask conformance --server --direct`.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test, which starts the program")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// The program; killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance-server"));
        Self(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }
}

/// Sends each line after the previous one was answered, and returns the answers to those with an ID.
fn exchange(arguments: &[&str], lines: &[Value]) -> Vec<Value> {
    let mut program = Program::start(arguments);
    let mut input = program.0.stdin.take().unwrap();
    let mut output = BufReader::new(program.0.stdout.take().unwrap()).lines();
    let mut answers = Vec::new();
    for line in lines {
        writeln!(input, "{line}").unwrap();
        if line.get("id").is_some() {
            answers.push(serde_json::from_str(&output.next().unwrap().unwrap()).unwrap());
        }
    }
    answers
}

fn discover() -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta } })
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "test", "version": "1" },
    } })
}

fn call(name: &str, more: &Value) -> Value {
    let mut params = json!({ "name": name, "arguments": {} });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params })
}

#[test]
fn dual_server_asks_in_the_result() {
    let meta = json!({ "_meta": discover()["params"]["_meta"] });
    let asks = call("test_input_required_result_elicitation", &meta);
    let answers = exchange(&["--stdio"], &[discover(), asks]);
    let versions = answers[0]["result"]["supportedVersions"].as_array().unwrap();
    assert!(
        versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2024-11-05")),
        "{versions:?}"
    );
    assert_eq!(answers[1]["result"]["resultType"], "input_required", "{}", answers[1]);
    assert_eq!(answers[1]["result"]["inputRequests"]["user_name"]["method"], "elicitation/create");
}

#[test]
fn legacy_server_asks_during_the_call() {
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let asks = call("test_input_required_result_elicitation", &json!({}));
    let answers = exchange(&["--stdio", "--legacy"], &[discover(), initialize(), initialized, asks]);
    assert_eq!(answers[0]["error"], json!({ "code": -32601, "message": "Method not found" }));
    assert_eq!(answers[1]["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answers[1]["result"]["capabilities"].get("extensions"), None);
    assert_eq!(answers[2]["method"], "elicitation/create", "{}", answers[2]);
}

#[test]
fn sse_stream_names_its_url_and_carries_responses() {
    let mut program = Program::start(&["--sse", "0"]);
    let mut port = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let address = format!("127.0.0.1:{}", port.trim());

    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /sse HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut events = BufReader::new(stream).lines().map_while(Result::ok);
    let mut data = || events.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
    let messages = data();
    assert_eq!(messages, "/messages?session=1");

    let body = initialize().to_string();
    let mut post = TcpStream::connect(&address).unwrap();
    let length = body.len();
    write!(
        post,
        "POST {messages} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut accepted = String::new();
    post.read_to_string(&mut accepted).unwrap();
    assert!(accepted.starts_with("HTTP/1.1 202"), "{accepted}");
    let answer: Value = serde_json::from_str(&data()).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "conformance-server", "{answer}");
}
