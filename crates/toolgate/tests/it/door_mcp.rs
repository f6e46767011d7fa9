//! What comes over the wire to `/mcp`: what is not a message, and heads that do not say what the body says.

use serde_json::{Value as Json, json};

use crate::client::Events;
use crate::door::{Answer, Door, OWNER, request};

const NEWEST: &str = "MCP-Protocol-Version: 2026-07-28";

fn sent(door: &Door, headers: &[&str], body: &[u8]) -> Answer {
    let key = format!("X-API-Key: {OWNER}");
    let length = format!("Content-Length: {}", body.len());
    let mut all = vec![key.as_str(), length.as_str(), "Accept: application/json, text/event-stream"];
    all.extend(headers);
    let mut bytes = request("POST /mcp", &all, "").into_bytes();
    bytes.extend(body);
    door.raw(&bytes).expect("an answer")
}

/// Status and code of the error.
fn told(answer: &Answer) -> (u16, i64) {
    (answer.status, answer.json()["error"]["code"].as_i64().unwrap_or_default())
}

fn call(arguments: &Json) -> Json {
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} });
    let params = json!({ "name": "echo", "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

#[test]
fn bodies_that_are_no_messages() {
    let door = Door::open(&json!({}));
    let json = "Content-Type: application/json";
    let headers = [json, NEWEST, "Mcp-Method: tools/call", "Mcp-Name: echo"];
    let good = call(&json!({ "message": "x" })).to_string();
    for (what, body, expected) in [
        ("nothing", String::new(), (400, -32700)),
        ("half of one", good[..good.len() - 1].to_owned(), (400, -32700)),
        ("two", format!("{good}{good}"), (400, -32700)),
        ("a key twice", good.replacen("\"id\":1", "\"id\":1,\"id\":2", 1), (400, -32700)),
        ("a number that is none", good.replacen("\"id\":1", "\"id\":1e400", 1), (400, -32700)),
        ("a batch", format!("[{good}]"), (400, -32600)),
        ("an id with a fraction", good.replacen("\"id\":1", "\"id\":1.5", 1), (400, -32600)),
        ("an id that is null", good.replacen("\"id\":1", "\"id\":null", 1), (400, -32600)),
        ("another protocol", good.replacen("2.0", "1.0", 1), (400, -32600)),
    ] {
        let answer = sent(&door, &headers, body.as_bytes());
        assert_eq!(told(&answer), expected, "{what}: {answer:?}");
        let whose = if what == "another protocol" { json!(1) } else { Json::Null };
        assert_eq!(answer.json()["id"], whose, "{what}: {answer:?}");
    }
    let answer = sent(&door, &headers, b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}");
    assert_eq!(told(&answer), (400, -32700), "{answer:?}");
    // Without any id it is a notification, and of such there are none that call a tool.
    let nameless = sent(&door, &headers, good.replacen("\"id\":1,", "", 1).as_bytes());
    assert_eq!((nameless.status, nameless.body.as_str()), (202, ""));
    assert_eq!(sent(&door, &["Content-Type: text/plain"], good.as_bytes()).status, 415);
    assert_eq!(sent(&door, &[json, "Content-Encoding: gzip"], good.as_bytes()).status, 415);
    assert!(door.seen().is_empty(), "{:?}", door.seen());
    assert_eq!(sent(&door, &headers, good.as_bytes()).status, 200);
    assert_eq!(door.seen().len(), 1);
}

/// Where answers come on a stream, what is no message is told there.
#[test]
fn what_is_no_message_over_events() {
    let door = Door::open(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let mut stream = door.connect();
    std::io::Write::write_all(&mut stream, request("GET /sse", &[&key], "").as_bytes()).expect("it is sent");
    let mut events = Events::read(stream);
    assert_eq!(events.status, 200);
    let place = events.event().and_then(|event| event.data).expect("an address");
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping""#, -32700),
    ] {
        assert_eq!(door.post_text(&place, OWNER, body).status, 202);
        let told = events.message();
        assert_eq!((&told["error"]["code"], &told["id"]), (&json!(code), &Json::Null), "{told}");
    }
    assert_eq!(door.post_text(&place, OWNER, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 202);
    assert_eq!(events.message(), json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
}

#[test]
fn heads_that_say_something_else() {
    let door = Door::open(&json!({}));
    let good = call(&json!({ "message": "x" })).to_string();
    let with = |headers: &[&str]| {
        let headers: Vec<_> = headers.iter().chain(&["Content-Type: application/json"]).copied().collect();
        sent(&door, &headers, good.as_bytes())
    };
    let (method, name) = ("Mcp-Method: tools/call", "Mcp-Name: echo");
    for (what, headers) in [
        ("another method", [NEWEST, "Mcp-Method: tools/list", name]),
        ("another tool", [NEWEST, method, "Mcp-Name: safe"]),
        ("another tool, encoded", [NEWEST, method, "Mcp-Name: =?base64?c2FmZQ==?="]),
        ("another revision", ["MCP-Protocol-Version: 2025-11-25", method, name]),
        ("no method", [NEWEST, "X-Other: x", name]),
        ("no tool", [NEWEST, method, "X-Other: x"]),
    ] {
        let answer = with(&headers);
        assert_eq!(answer.status, 400, "{what}: {answer:?}");
        assert_eq!(told(&answer).1, -32020, "{what}: {answer:?}");
    }
    let unknown = with(&["MCP-Protocol-Version: 1999-01-01", method, name]);
    assert_eq!(unknown.status, 400, "{unknown:?}");
    assert!(door.seen().is_empty(), "{:?}", door.seen());
    for name in [name, "Mcp-Name: =?base64?ZWNobw==?="] {
        assert_eq!(with(&[NEWEST, method, name]).status, 200, "{name}");
    }
    assert_eq!(door.seen().len(), 2, "each of them once");
}
