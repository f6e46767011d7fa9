//! `/mcp`: invalid messages, and headers that contradict the body.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, request};
use crate::support::mcp_client::{EventStream, McpSession, WebSocket};
use crate::support::test_server::TestServer;

const NEWEST: &str = "MCP-Protocol-Version: 2026-07-28";

fn send_raw(gateway: &Gateway, headers: &[&str], body: &[u8]) -> HttpResponse {
    let key = format!("X-API-Key: {OWNER}");
    let length = format!("Content-Length: {}", body.len());
    let mut all = vec![key.as_str(), length.as_str(), "Accept: application/json, text/event-stream"];
    all.extend(headers);
    let mut bytes = request("POST /mcp", &all, "").into_bytes();
    bytes.extend(body);
    gateway.raw(&bytes).expect("an answer")
}

/// Returns the status and the error code.
fn status_and_code(answer: &HttpResponse) -> (u16, i64) {
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
fn rejects_invalid_messages() {
    let gateway = Gateway::start(&json!({}));
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
        (
            "an id of a megabyte",
            good.replacen("\"id\":1", &format!("\"id\":\"{}\"", "x".repeat(1 << 20)), 1),
            (400, -32600),
        ),
        ("another protocol", good.replacen("2.0", "1.0", 1), (400, -32600)),
    ] {
        let answer = send_raw(&gateway, &headers, body.as_bytes());
        assert_eq!(status_and_code(&answer), expected, "{what}: {answer:?}");
        let expected_id = if what == "another protocol" { json!(1) } else { Json::Null };
        assert_eq!(answer.json()["id"], expected_id, "{what}: {answer:?}");
    }
    let answer = send_raw(&gateway, &headers, b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}");
    assert_eq!(status_and_code(&answer), (400, -32700), "{answer:?}");
    // Without an id it is a notification, and no notification calls a tool.
    let nameless = send_raw(&gateway, &headers, good.replacen("\"id\":1,", "", 1).as_bytes());
    assert_eq!((nameless.status, nameless.body.as_str()), (202, ""));
    assert_eq!(send_raw(&gateway, &["Content-Type: text/plain"], good.as_bytes()).status, 415);
    assert_eq!(send_raw(&gateway, &[json, "Content-Encoding: gzip"], good.as_bytes()).status, 415);
    assert!(gateway.seen().is_empty(), "{:?}", gateway.seen());
    assert_eq!(send_raw(&gateway, &headers, good.as_bytes()).status, 200);
    assert_eq!(gateway.seen().len(), 1);
}

/// The ids in the response headers are those of the record.
#[test]
fn response_ids_match_the_record() {
    let gateway = Gateway::start(&json!({ "hints": "full" }));
    let head = ["Content-Type: application/json", NEWEST, "Mcp-Method: tools/call", "Mcp-Name: echo"];
    let body = call(&json!({ "message": "x" }));
    let ids = |headers: &[&str], body: &Json| {
        let answer = send_raw(&gateway, &[&head, headers].concat(), body.to_string().as_bytes());
        let metadata = answer.json()["result"]["_meta"]["toolgate/result"]["metadata"].clone();
        let of_call = metadata["correlationId"].as_str().expect("an id").to_owned();
        let trace = metadata["traceId"].as_str().expect("an id").to_owned();
        (answer.header("x-correlation-id").expect("an id").to_owned(), of_call, trace, answer)
    };
    let (header_id, of_call, trace, answer) = ids(&[], &body);
    assert_eq!(header_id, of_call);
    assert!(answer.header("traceparent").expect("a trace").contains(&trace), "{answer:?}");
    let (header_id, of_call, ..) = ids(&["X-Correlation-Id: order-7"], &body);
    assert_eq!((header_id.as_str(), of_call.as_str()), ("order-7", "order-7"));
    let mut own = body;
    own["params"]["_meta"]["toolgate/correlationId"] = json!("mine");
    assert_eq!(ids(&[], &own).1, "mine");
}

/// Over SSE, errors for invalid messages come on the stream.
#[test]
fn invalid_messages_over_sse() {
    let gateway = Gateway::start(&json!({}));
    let key = format!("X-API-Key: {OWNER}");
    let mut stream = gateway.connect();
    std::io::Write::write_all(&mut stream, request("GET /sse", &[&key], "").as_bytes()).expect("it is sent");
    let mut events = EventStream::read(stream);
    assert_eq!(events.status, 200);
    let endpoint = events.event().and_then(|event| event.data).expect("an endpoint event");
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping""#, -32700),
    ] {
        assert_eq!(gateway.post_text(&endpoint, OWNER, body).status, 202);
        let response = events.message();
        assert_eq!((&response["error"]["code"], &response["id"]), (&json!(code), &Json::Null), "{response}");
    }
    assert_eq!(
        gateway.post_text(&endpoint, OWNER, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status,
        202
    );
    assert_eq!(events.message(), json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
}

/// Over a WebSocket, an invalid message gets an error, and the connection stays usable.
#[test]
fn invalid_messages_over_a_websocket() {
    let gateway = Gateway::start(&json!({}));
    let mut socket = WebSocket::open(&gateway, OWNER);
    for (message, code) in [
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, -32700),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping""#, -32700),
    ] {
        socket.send(message);
        let response: Json = serde_json::from_str(&socket.next()).expect("JSON");
        assert_eq!(
            (&response["error"]["code"], &response["id"]),
            (&json!(code), &Json::Null),
            "{message}: {response}"
        );
    }
    socket.send(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#);
    let pong: Json = serde_json::from_str(&socket.next()).expect("JSON");
    assert_eq!(pong, json!({ "jsonrpc": "2.0", "id": 7, "result": {} }));
}

/// Numbers keep every digit on the way to the server and back, in all eras and transports.
#[test]
fn numbers_keep_their_digits() {
    let gateway = Gateway::start(&json!({}));
    let numbers = r#"{"fault":"verbatim","a":42,"b":42.0,"c":9007199254740993,"d":12345678901234567890123,"e":-0,"f":1E2,"g":0.1e-7}"#;
    let due = format!(r#""structuredContent":{numbers}"#);
    let params = format!(r#"{{"name":"echo","arguments":{numbers}}}"#);
    let plain = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{params}}}"#);
    let newest = call(&json!("ARGUMENTS")).to_string().replacen(r#""ARGUMENTS""#, numbers, 1);
    let headers = ["Content-Type: application/json", NEWEST, "Mcp-Method: tools/call", "Mcp-Name: echo"];
    let answer = send_raw(&gateway, &headers, newest.as_bytes());
    assert!(answer.body.contains(&due), "{answer:?}");
    for revision in ["2025-03-26", "2025-11-25"] {
        let session = McpSession::begin(&gateway, OWNER, revision, &json!({}));
        let answer = session.post_text(&plain);
        assert!(answer.body.contains(&due), "{revision}: {answer:?}");
    }
    let mut socket = WebSocket::open(&gateway, OWNER);
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    socket.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }).to_string());
    socket.next();
    socket.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    socket.send(&plain);
    let answer = socket.next();
    assert!(answer.contains(&due), "{answer}");
}

/// Arguments mirrored in headers: integers are compared as numbers, and ambiguous values are rejected.
#[test]
fn numbers_in_headers() {
    let program = project(&json!({}));
    let schema = json!({ "type": "object", "properties": {
        "number": { "type": "integer", "x-mcp-header": "Number" } } });
    let tool = json!({ "name": "echo", "description": "Says it back.", "inputSchema": schema });
    program.write("tools.json", json!([tool]).to_string());
    let kit = TestServer::start(&format!("good era=modern tools={}", program.path("tools.json").display()));
    let mut file: Json = serde_json::from_str(&program.read("toolgate.yaml")).expect("JSON");
    file["toolbox"]["mcps"] = json!([{ "name": "s", "url": kit.url("http", "mcp"), "mode": "dynamic",
        "default_tool_config": { "max_instances": 4, "timeout": "30s" } }]);
    program.write("toolgate.yaml", file.to_string());
    let gateway = Gateway::serve(program);
    let ask = |number: &str, header: Option<&str>| {
        let body = call(&json!("ARGUMENTS")).to_string();
        let body = body.replacen(r#""ARGUMENTS""#, &format!(r#"{{"number":{number}}}"#), 1);
        let mirrored = header.map(|header| format!("Mcp-Param-Number: {header}"));
        let mut headers =
            vec!["Content-Type: application/json", NEWEST, "Mcp-Method: tools/call", "Mcp-Name: echo"];
        headers.extend(mirrored.as_deref());
        send_raw(&gateway, &headers, body.as_bytes())
    };
    let calls = || {
        let seen = kit.seen().into_iter().filter(|seen| seen["message"]["method"] == "tools/call");
        seen.collect::<Vec<_>>()
    };
    for (number, header, code) in [
        ("42", Some("43"), -32020),
        ("42", None, -32020),
        ("42", Some("042"), -32020),
        ("42", Some("=?base64?NDM=?="), -32020),
        ("9007199254740993", Some("9007199254740993"), -32602),
        ("9007199254740993", Some("9007199254740992"), -32602),
        ("12345678901234567890123", Some("12345678901234567890123"), -32602),
    ] {
        let answer = ask(number, header);
        assert_eq!(status_and_code(&answer), (400, code), "{number} {header:?}: {answer:?}");
    }
    assert!(calls().is_empty(), "no rejected call reached the server");
    for (number, header) in [
        ("42", "42"),
        ("42", "42.0"),
        ("42.0", "42"),
        ("42", "=?base64?NDI=?="),
        ("9007199254740991", "9007199254740991"),
    ] {
        let before = calls().len();
        let answer = ask(number, Some(header));
        assert_eq!(answer.status, 200, "{number} {header}: {answer:?}");
        let calls = calls();
        assert_eq!(calls.len(), before + 1, "{number} {header}: called once");
        let call = &calls[before];
        let body = call["body"].as_str().expect("a text");
        assert!(body.contains(&format!(r#""arguments":{{"number":{number}}}"#)), "as it was written: {body}");
        let due = number.trim_end_matches(".0");
        assert_eq!(call["headers"]["mcp-param-number"], due, "{number} {header}: {call}");
    }
}

#[test]
fn rejects_headers_that_contradict_the_body() {
    let gateway = Gateway::start(&json!({}));
    let good = call(&json!({ "message": "x" })).to_string();
    let with = |headers: &[&str]| {
        let headers: Vec<_> = headers.iter().chain(&["Content-Type: application/json"]).copied().collect();
        send_raw(&gateway, &headers, good.as_bytes())
    };
    let (method, name) = ("Mcp-Method: tools/call", "Mcp-Name: echo");
    for (what, headers) in [
        ("another method", [NEWEST, "Mcp-Method: tools/list", name]),
        ("another tool", [NEWEST, method, "Mcp-Name: safe"]),
        ("another tool, encoded", [NEWEST, method, "Mcp-Name: =?base64?c2FmZQ==?="]),
        ("another revision", ["MCP-Protocol-Version: 2025-11-25", method, name]),
        ("invalid method", [NEWEST, "X-Other: x", name]),
        ("no tool", [NEWEST, method, "X-Other: x"]),
    ] {
        let answer = with(&headers);
        assert_eq!(answer.status, 400, "{what}: {answer:?}");
        assert_eq!(status_and_code(&answer).1, -32020, "{what}: {answer:?}");
    }
    let unknown = with(&["MCP-Protocol-Version: 1999-01-01", method, name]);
    assert_eq!(unknown.status, 400, "{unknown:?}");
    let headers = ["MCP-Protocol-Version: 1999-01-01", method, name, "Content-Type: application/json"];
    let unknown = send_raw(&gateway, &headers, good.replace("2026-07-28", "1999-01-01").as_bytes());
    assert_eq!(status_and_code(&unknown), (400, -32022), "{unknown:?}");
    assert!(gateway.seen().is_empty(), "{:?}", gateway.seen());
    for name in [name, "Mcp-Name: =?base64?ZWNobw==?="] {
        assert_eq!(with(&[NEWEST, method, name]).status, 200, "{name}");
    }
    assert_eq!(gateway.seen().len(), 2, "each was called once");
}

/// Missing client capabilities have their own error code, with the required capabilities.
#[test]
fn missing_capabilities_are_named() {
    let gateway = Gateway::start(&json!({ "server": { "args": ["faulty", "modern"] } }));
    let ask = |method: &str, name: &str, params: Json, capabilities: &Json| {
        let mut body = call(&json!({}));
        let meta = body["params"]["_meta"].take();
        body["method"] = method.into();
        body["params"] = params;
        body["params"]["_meta"] = meta;
        body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        let (method, name) = (format!("Mcp-Method: {method}"), format!("Mcp-Name: {name}"));
        send_raw(
            &gateway,
            &[NEWEST, &method, &name, "Content-Type: application/json"],
            body.to_string().as_bytes(),
        )
    };
    let needs = |answer: &HttpResponse| answer.json()["error"]["data"]["requiredCapabilities"].clone();
    let question = json!({ "name": "ask", "arguments": { "message": "What size?" } });
    let refused = ask("tools/call", "ask", question.clone(), &json!({}));
    assert_eq!(status_and_code(&refused), (400, -32021), "{refused:?}");
    assert!(needs(&refused)["elicitation"].is_object(), "{refused:?}");
    let pending = ask("tools/call", "ask", question, &needs(&refused)).json();
    assert_eq!(pending["result"]["resultType"], "input_required", "{pending}");
    let task = json!({ "taskId": "none" });
    let refused = ask("tasks/get", "none", task.clone(), &json!({}));
    assert_eq!(status_and_code(&refused), (400, -32021), "{refused:?}");
    let known = ask("tasks/get", "none", task, &needs(&refused));
    assert_eq!(status_and_code(&known).1, -32602, "no such task: {known:?}");
}

/// A long list is paginated, and a change on its last page is noticed.
#[test]
fn long_lists_are_paginated() {
    const COUNT: usize = 2_300;
    let tools = |last: &str| {
        let tool = |number: usize| {
            let description = if number == COUNT - 1 { last } else { "Says it back." };
            json!({ "name": format!("t{number:04}"), "type": "local", "description": description,
                "input_schema": { "type": "object" }, "config": { "script_path": "say.py" } })
        };
        json!({ "tools": (0..COUNT).map(tool).collect::<Vec<_>>() }).to_string()
    };
    let program = project(&json!({ "registries": { "tools": "tools/tools.json" }, "mcps": [] }));
    program.write("tools/tools.json", tools("Comes last."));
    program.write("tools/say.py", "def run(args):\n    return {'said': args}\n");
    let gateway = Gateway::serve(program);
    let session = McpSession::begin(&gateway, OWNER, "2025-11-25", &json!({}));
    let page = |cursor: Option<&str>| {
        let params = cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor }));
        session.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params })).json()
    };
    let all = || {
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = page(cursor.as_deref());
            let tools = page["result"]["tools"].as_array().unwrap_or_else(|| panic!("{page}"));
            assert!(tools.len() <= 1_000);
            all.extend(tools.iter().cloned());
            cursor = page["result"]["nextCursor"].as_str().map(ToOwned::to_owned);
            if cursor.is_none() {
                return all;
            }
        }
    };
    let listed = all();
    let names: Vec<_> = listed.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, (0..COUNT).map(|number| format!("t{number:04}")).collect::<Vec<_>>());
    for bad in ["7", "-1", "x", ""] {
        assert_eq!(page(Some(bad))["error"]["code"], -32602, "{bad}");
    }
    assert_eq!(
        page(Some("9000"))["result"]["tools"],
        json!([]),
        "the list had more pages when the cursor was issued"
    );
    let mut stream = session.listen(None);
    gateway.program.write("tools/tools.json", tools("Is another."));
    assert_eq!(stream.message()["method"], "notifications/tools/list_changed");
    assert_eq!(all()[COUNT - 1]["description"], "Is another.");
}
