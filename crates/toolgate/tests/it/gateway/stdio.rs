//! `toolgate stdio`: MCP over stdin and stdout.

use std::io::Write as _;

use serde_json::json;

use crate::support::program::Program;
use crate::support::stdio_client::StdioClient;

fn project() -> Program {
    let tools = json!({ "tools": [{
        "name": "count", "type": "local", "description": "Counts the letters of a text.",
        "input_schema": { "type": "object", "properties": { "words": { "type": "string" } } },
        "config": { "script_path": "count.py" },
    }] });
    let script = "def run(args):\n    return {'letters': len(args['words'])}\n";
    let yaml = "registries: { tools: tools/tools.json }";
    let files =
        [("toolgate.yaml", yaml), ("tools/tools.json", &tools.to_string()), ("tools/count.py", script)];
    Program::new(&files).with("TOOLGATE_LOG", "off")
}

#[test]
fn clients_with_and_without_a_handshake() {
    let program = project();
    let mut client = StdioClient::begin(&program);
    let refused = client.ask(0, "tools/list", &json!({}));
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let welcome = client.ask(1, "initialize", &params);
    assert_eq!(welcome["result"]["protocolVersion"], "2025-06-18", "{welcome}");
    assert_eq!(welcome["result"]["serverInfo"]["name"], "toolgate");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let listed = client.ask(2, "tools/list", &json!({}));
    assert_eq!(listed["result"]["tools"][0]["name"], "count", "{listed}");
    assert!(listed["result"].get("resultType").is_none(), "{listed}");
    let result = client.ask(3, "tools/call", &json!({ "name": "count", "arguments": { "words": "a b" } }));
    assert_eq!(result["result"]["structuredContent"]["letters"], 3, "{result}");
    assert!(result["result"].get("_meta").is_none(), "there is nothing to act on: {result}");

    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.ask(4, "server/discover", &json!({ "_meta": meta }));
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28", "{found}");
    let listed = client.ask(5, "tools/list", &json!({ "_meta": meta }));
    assert_eq!(listed["result"]["resultType"], "complete", "{listed}");
    assert_eq!(listed["result"]["cacheScope"], "private");
    let other = json!({ "io.modelcontextprotocol/protocolVersion": "2031-01-01", "io.modelcontextprotocol/clientCapabilities": {} });
    let refused = client.ask(6, "tools/list", &json!({ "_meta": other }));
    assert_eq!(refused["error"]["code"], -32022, "{refused}");

    drop(client.stdin.take());
    assert!(client.child.wait().unwrap().success(), "it ends when its client leaves");
    let log = program.run("log --json");
    assert!(log.stdout.contains("\"count\""), "{}", log.stdout);
}

#[test]
fn invalid_messages_get_an_error() {
    let program = project();
    let mut client = StdioClient::begin(&program);
    for (bad, code) in [
        ("nope", -32700),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"a":2}}"#, -32700),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
    ] {
        writeln!(client.stdin.as_mut().unwrap(), "{bad}").unwrap();
        let answer = client.receive();
        assert!(answer["error"]["code"] == code && answer["id"].is_null(), "{answer}");
    }
    assert_eq!(client.ask(1, "ping", &json!({}))["result"], json!({}));
}

#[test]
fn an_unknown_caller_is_rejected() {
    let run = project().run("stdio --as nobody");
    assert_eq!(run.code, 1, "{}", run.stderr);
}

/// The client's user answers the question of `request_human_input`.
#[test]
fn a_question_is_answered_by_the_client() {
    let program =
        Program::new(&[("toolgate.yaml", "human_input: { timeout: 10m }")]).with("TOOLGATE_LOG", "off");
    let mut client = StdioClient::begin(&program);
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "t", "version": "1" } });
    client.ask(1, "initialize", &params);
    let call = json!({ "name": "request_human_input", "arguments": { "question": "Which?", "choices": ["red", "blue"] } });
    let question = client.ask(2, "tools/call", &call);
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["requestedSchema"]["properties"]["answer"]["enum"], json!(["red", "blue"]));
    let answer = json!({ "action": "accept", "content": { "answer": "blue" } });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
    let answer = client.receive();
    assert_eq!(answer["result"]["structuredContent"]["answer"], "blue", "{answer}");

    // A client of the newest revision gets the question as a result and repeats the call with the answer.
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let mut call = call;
    call["_meta"] = meta;
    let first = client.ask(3, "tools/call", &call);
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let (key, question) = first["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    call["requestState"] = "tg1.forged".into();
    call["inputResponses"] = json!({ key: { "action": "accept", "content": { "answer": "red" } } });
    assert_eq!(client.ask(4, "tools/call", &call)["error"]["code"], -32602, "a forged request state");
    call["requestState"] = first["result"]["requestState"].clone();
    let second = client.ask(5, "tools/call", &call);
    assert_eq!(second["result"]["structuredContent"]["answer"], "red", "{second}");
    assert_eq!(client.ask(6, "tools/call", &call)["error"]["code"], -32602, "a request state is valid once");
}
