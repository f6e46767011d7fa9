//! Sessions of MCP clients: after a restart of the gateway, over `toolgate stdio` beside it, and at their start.

use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::mcp_client::{ACCEPT, McpSession, call_message, request_message};
use crate::support::program::Program;
use crate::support::scripts::SERVER_SCRIPT;
use crate::support::stdio_client::StdioClient;
use crate::support::test_server::testkit;

fn initialize(capabilities: &Json) -> Json {
    json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": { "name": "t", "version": "1" } })
}

fn echo(text: &str) -> Json {
    json!({ "name": "echo", "arguments": { "message": text } })
}

/// Stops the gateway and starts it again, at the same port.
pub(super) fn restart(mut gateway: Gateway) -> Gateway {
    gateway.signal("-TERM");
    gateway.wait_for_exit();
    let Gateway { program, port, .. } = gateway;
    Gateway::with(program, &format!("serve --json --listen 127.0.0.1:{port}"))
}

/// Clients do not notice a restart: their session id stays valid, for their caller alone.
#[test]
fn sessions_survive_a_restart() {
    let gateway = Gateway::start(&json!({ "callers": [
        { "id": "ann", "permissions": ["s:*"], "api_key": "key-of-ann" },
        { "id": "bob", "permissions": ["s:*"], "api_key": "key-of-bob" },
    ] }));
    let first =
        gateway.post_mcp("key-of-ann", None, &request_message(1, "initialize", &initialize(&json!({}))));
    let session = first.session().expect("a session");
    let mode =
        fs_err::metadata(gateway.program.path(".toolgate/sessions.json")).expect("the keys").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let gateway = restart(gateway);
    let call = call_message(2, "echo", &json!({ "message": "again" }));
    let answer = gateway.post_mcp("key-of-ann", Some(session), &call);
    assert_eq!(
        (answer.status, &answer.json()["result"]["content"][0]["text"]),
        (200, &json!("again")),
        "{answer:?}"
    );
    assert_eq!(gateway.post_mcp("key-of-bob", Some(session), &call).status, 404, "of another caller");
    // The taint of the session is not known any more, so it counts as tainted.
    gateway.program.write(
        "policy.cedar",
        r#"forbid(principal, action == Action::"call", resource) when { context.tainted };"#,
    );
    let gateway = restart(gateway);
    let refused = gateway.post_mcp("key-of-ann", Some(session), &call);
    assert!(refused.body.contains("the policy forbids it"), "{refused:?}");
    let second =
        gateway.post_mcp("key-of-ann", None, &request_message(1, "initialize", &initialize(&json!({}))));
    let answer = gateway.post_mcp("key-of-ann", second.session(), &call);
    assert!(answer.body.contains("again"), "{answer:?}");
    // Without the keys, old sessions end.
    fs_err::remove_file(gateway.program.path(".toolgate/sessions.json")).expect("the keys");
    let gateway = restart(gateway);
    assert_eq!(gateway.post_mcp("key-of-ann", Some(session), &call).status, 404);
}

/// MCP clients show the reason of JSON-RPC errors only.
#[test]
fn refusals_at_the_endpoint_are_json_rpc_errors() {
    let gateway = Gateway::start(&json!({ "profiles": { "some": { "tools": ["echo"] } } }));
    let body = request_message(7, "initialize", &initialize(&json!({})));
    let headers = [ACCEPT, "Content-Type: application/json"];
    let missing = gateway.request("POST /mcp", &headers, &body.to_string());
    assert_eq!(missing.status, 401);
    assert!(missing.head.contains("www-authenticate: bearer"), "{missing:?}");
    let error = &missing.json()["error"];
    assert_eq!(
        (missing.json()["jsonrpc"].clone(), error["data"]["code"].clone()),
        (json!("2.0"), json!("unauthenticated"))
    );
    assert!(
        error["message"].as_str().is_some_and(|text| text.contains("authentication is required")),
        "{error}"
    );
    let wrong =
        gateway.request("POST /mcp", &[&headers[..], &["X-API-Key: wrong-key"]].concat(), &body.to_string());
    assert!(
        wrong.json()["error"]["message"].as_str().is_some_and(|text| text.contains("unknown")),
        "{wrong:?}"
    );

    let key = format!("X-API-Key: {OWNER}");
    let ask = |path: &str, more: &[&str]| {
        let headers = [&headers[..], &[key.as_str()], more].concat();
        gateway.request(&format!("POST {path}"), &headers, &body.to_string())
    };
    assert_eq!(ask("/mcp/some", &[]).json()["result"]["serverInfo"]["name"], "toolgate");
    let unknown = ask("/mcp/other", &[]);
    assert_eq!((unknown.status, &unknown.json()["id"]), (200, &json!(7)), "{unknown:?}");
    let message = unknown.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("there is no profile `other` for this caller"), "{message}");
    let newest = ask("/mcp/other", &["MCP-Protocol-Version: 2026-07-28"]);
    assert_eq!((newest.status, &newest.json()["id"]), (404, &json!(7)), "{newest:?}");
}

/// No change is announced before the client has got its first list.
#[test]
fn changes_are_announced_after_the_first_list() {
    let tool =
        |name: &str| json!({ "name": name, "description": "A tool.", "inputSchema": { "type": "object" } });
    let program = Program::new(&[]).with("TOOLGATE_API_KEY", OWNER).with("TOOLGATE_LOG", "off");
    let server = json!({ "command": testkit(), "args": ["scripted", program.path("scripted.json")] });
    program.write("scripted.json", json!({ "tools": [tool("one")], "notify": 1 }).to_string());
    program.write("mcp.json", json!({ "servers": { "s": server } }).to_string());
    let gateway = Gateway::serve(program);
    let mut client = StdioClient::begin(&gateway.program);
    client.ask(1, "initialize", &initialize(&json!({})));
    gateway
        .program
        .write("scripted.json", json!({ "tools": [tool("one"), tool("two")], "notify": 1 }).to_string());
    gateway.wait("the new tool", |gateway| gateway.get("/v1/tools", OWNER).body.contains("\"two\""));
    for id in 2..10 {
        client.send(&request_message(id, "ping", &json!({})));
        assert_eq!(client.receive_any()["id"], id, "nothing comes before the first list");
    }
    client.send(&request_message(10, "tools/list", &json!({})));
    let listed = client.receive_any();
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(2), "{listed}");
    gateway.program.write("scripted.json", json!({ "tools": [tool("three")], "notify": 1 }).to_string());
    assert_eq!(client.receive_any()["method"], "notifications/tools/list_changed");
}

/// Creates a project whose server notes each of its starts in the file `started`.
fn counted(yaml: &Json) -> Program {
    let program = Program::new(&[("server.py", SERVER_SCRIPT)])
        .with("TOOLGATE_API_KEY", OWNER)
        .with("TOOLGATE_LOG", "off");
    let tools = json!([{ "name": "echo", "description": "Echoes.", "inputSchema": { "type": "object" } }]);
    let env = json!({ "TOOLS": tools.to_string(), "STARTED": program.path("started") });
    let server = json!({ "command": "python3", "args": ["server.py"], "timeout": "60s", "env": env });
    program.write("mcp.json", json!({ "servers": { "s": server } }).to_string());
    let mut whole = json!({ "registries": { "mcp": "mcp.json" } });
    for (key, value) in yaml.as_object().expect("keys of the project") {
        whole[key] = value.clone();
    }
    program.write("toolgate.yaml", whole.to_string());
    program
}

/// Twenty editors on one folder use the servers of the running gateway.
#[test]
fn stdio_joins_the_running_gateway() {
    let callers = json!([{ "id": "ann", "permissions": ["s:read"], "api_key": "key-of-ann" }]);
    let gateway = Gateway::serve(counted(&json!({ "callers": callers })));
    thread::scope(|scope| {
        let sessions: Vec<_> = (0..20)
            .map(|number| {
                let program = &gateway.program;
                scope.spawn(move || {
                    let mut client = StdioClient::begin(program);
                    client.ask(1, "initialize", &initialize(&json!({})));
                    let listed = client.ask(2, "tools/list", &json!({}));
                    assert_eq!(listed["result"]["tools"][0]["name"], "echo", "{listed}");
                    let answer = client.ask(3, "tools/call", &echo(&format!("number {number}")));
                    assert!(answer.to_string().contains(&format!("number {number}")), "{answer}");
                    drop(client.stdin.take());
                    assert!(client.child.wait().expect("our child").success());
                })
            })
            .collect();
        sessions.into_iter().for_each(|session| session.join().expect("a session"));
    });
    assert_eq!(gateway.program.read("started").lines().count(), 1, "one process of the server for all");
    assert_eq!(gateway.executions("tool=echo&limit=100").len(), 20);
    // Caller and profile are those of the flags.
    let mut client = StdioClient::with(&gateway.program, &["stdio", "--as", "ann"]);
    client.ask(1, "initialize", &initialize(&json!({})));
    let listed = client.ask(2, "tools/list", &json!({}));
    assert_eq!(listed["result"]["tools"], json!([]), "ann may not call it");
    for (flags, reason) in
        [("--as nobody", "there is no caller `nobody`"), ("--profile x", "there is no profile `x`")]
    {
        let run = gateway.program.run(&format!("stdio {flags}"));
        assert!(run.code == 1 && run.stderr.contains(reason), "{flags}: {run}");
    }
    let mut client = StdioClient::with(&gateway.program, &["stdio", "--standalone"]);
    client.ask(1, "initialize", &initialize(&json!({})));
    assert_eq!(gateway.program.read("started").lines().count(), 2, "its own process");
    // Not over the network, whoever asks.
    let remote = gateway.get("/stdio?caller=owner", OWNER);
    assert_eq!(remote.status, 404, "{remote:?}");
}

const ASK: &str =
    r#"@ask("Really say it?") forbid(principal, action == Action::"call", resource == Tool::"echo");"#;

/// A rule with `@ask` asks the person at the client of `toolgate stdio`.
#[test]
fn stdio_asks_the_client_for_approval() {
    let program = counted(&json!({}));
    program.write("policy.cedar", ASK);
    let mut client = StdioClient::begin(&program);
    client.ask(1, "initialize", &initialize(&json!({ "elicitation": {} })));
    for (id, answer, expected) in [
        (2, json!({ "action": "accept", "content": { "answer": true } }), "a word"),
        (
            3,
            json!({ "action": "accept", "content": { "answer": false } }),
            "the person at the client said no",
        ),
        (4, json!({ "action": "decline" }), "the person at the client said no"),
        (5, json!({ "action": "accept", "content": {} }), "no person can be reached here"),
    ] {
        let question = client.ask(id, "tools/call", &echo("a word"));
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let message = question["params"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("Really say it?") && message.contains("a word"), "{question}");
        client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
        let result = client.receive();
        assert!(result.to_string().contains(expected), "{id}: {result}");
    }
}

/// A client without elicitation waits for an answer at the running gateway.
#[test]
fn stdio_uses_the_question_queue_of_the_running_gateway() {
    let yaml = json!({ "human_input": { "timeout": "10m" } });
    let program = counted(&yaml);
    program.write("policy.cedar", ASK);
    let gateway = Gateway::serve(program);
    let mut client = StdioClient::begin(&gateway.program);
    client.ask(1, "initialize", &initialize(&json!({})));
    client.send(&request_message(2, "tools/call", &echo("a word")));
    let open =
        || gateway.get("/v1/approvals", OWNER).json()["approvals"][0]["id"].as_str().map(str::to_owned);
    wait_until("the question", || open().is_some());
    let answered = gateway.program.run(&format!("questions answer {} yes", open().expect("a question")));
    assert_eq!(answered.code, 0, "{answered}");
    assert!(client.receive().to_string().contains("a word"));
    drop(McpSession::begin(&gateway, OWNER, "2025-06-18", &json!({})));
}
