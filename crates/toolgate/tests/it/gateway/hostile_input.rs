//! Schemas, names and arguments that are made to stop the process or to fill the disk.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::mcp_client::{McpSession, call_message, request_message};

/// Thirty levels, each of which refers to the next one twice: 2^30 steps to validate a value.
fn exploding_schema() -> Json {
    let mut defs = serde_json::Map::new();
    for level in 0..30 {
        let next = json!({ "$ref": format!("#/$defs/a{}", level + 1) });
        defs.insert(format!("a{level}"), json!({ "allOf": [next.clone(), next] }));
    }
    defs.insert("a30".to_owned(), json!({ "type": "object" }));
    json!({ "type": "object", "$ref": "#/$defs/a0", "$defs": defs })
}

#[test]
fn an_exploding_schema_of_a_caller_is_rejected() {
    let program = project(&json!({ "human_input": {}, "registries": { "tools": "tools.json" } }));
    program.write("tools.json", "{\"tools\": []}");
    let gateway = Gateway::serve(program);
    let asked = gateway.call(
        OWNER,
        "request_human_input",
        &json!({ "question": "Why?", "schema": exploding_schema() }),
    );
    assert_eq!(asked.status_and_code(), (422, "invalid_arguments".to_owned()), "{asked:?}");
    let message = asked.json()["error"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("grows past 10000 parts"), "{message}");
    let tool = json!({ "name": "slow", "description": "Never ends.", "script_path": "slow.sh",
        "input_schema": exploding_schema() });
    let registered = gateway.post("/v1/tools", OWNER, &tool);
    assert_eq!(registered.status_and_code(), (422, "invalid".to_owned()), "{registered:?}");
    assert!(registered.body.contains("grows past 10000 parts"), "{registered:?}");
    // A property can have the name of a keyword that holds data.
    for name in ["normal", "const", "default", "definitions"] {
        let mut schema = exploding_schema();
        schema["properties"] = json!({ name: { "$ref": schema["$ref"].take() } });
        schema.as_object_mut().expect("an object").remove("$ref");
        let asked =
            gateway.call(OWNER, "request_human_input", &json!({ "question": "Why?", "schema": schema }));
        assert_eq!(asked.status_and_code(), (422, "invalid_arguments".to_owned()), "{name}: {asked:?}");
        assert!(asked.body.contains("grows past 10000 parts"), "{name}: {asked:?}");
    }
    assert_eq!(gateway.call(OWNER, "echo", &json!({ "message": "x" })).status, 200);
}

/// Thirty patterns of a thousand states each: a string of 20 KB would take minutes to match in a debug build.
#[test]
fn expensive_patterns_are_not_matched() {
    let patterns: Vec<_> =
        (0..30).map(|n| json!({ "pattern": format!("a[ab]{{{}}}[c-z]", 1_000 + n) })).collect();
    let tool = json!({ "name": "slow", "description": "Matches.", "script_path": "slow.sh",
        "input_schema": { "type": "object", "properties": { "text": { "anyOf": patterns } } } });
    let program = project(&json!({ "registries": { "tools": "tools.json" } }));
    program.write("tools.json", json!({ "tools": [tool] }).to_string());
    program.write("slow.sh", "#!/bin/sh\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(program.path("slow.sh"), mode).expect("it exists");
    let gateway = Gateway::serve(program);
    let refused = gateway.call(OWNER, "slow", &json!({ "text": "ab".repeat(10_000) }));
    assert_eq!(refused.status_and_code(), (422, "invalid_arguments".to_owned()), "{refused:?}");
    assert!(refused.body.contains("would take too long to validate"), "{refused:?}");
}

/// Names are repeated in errors and in the log, so long ones are refused before anything is done with them.
#[test]
fn long_names_are_refused() {
    let gateway = Gateway::start(&json!({}));
    let session = McpSession::begin(&gateway, OWNER, "2025-06-18", &json!({}));
    let long = "n".repeat(100_000);
    let uri = format!("file:///{long}");
    for (message, member) in [
        (call_message(1, &long, &json!({})), "`name` is longer than 256 bytes"),
        (request_message(2, "prompts/get", &json!({ "name": long })), "`name` is longer than 256 bytes"),
        (request_message(3, "resources/read", &json!({ "uri": uri })), "`uri` is longer than 2048 bytes"),
        (
            request_message(4, "resources/subscribe", &json!({ "uri": uri })),
            "`uri` is longer than 2048 bytes",
        ),
        (
            request_message(
                5,
                "completion/complete",
                &json!({ "ref": { "type": "ref/prompt", "name": long },
                "argument": { "name": "a", "value": "" } }),
            ),
            "`ref.name` is longer than 256 bytes",
        ),
        (request_message(6, "tasks/get", &json!({ "taskId": long })), "`taskId` is longer than 2048 bytes"),
        (
            request_message(7, "tasks/result", &json!({ "taskId": long })),
            "`taskId` is longer than 2048 bytes",
        ),
        (
            request_message(8, "tasks/cancel", &json!({ "taskId": long })),
            "`taskId` is longer than 2048 bytes",
        ),
    ] {
        let answer = session.post(&message);
        assert_eq!(
            answer.json()["error"]["message"],
            member,
            "{}",
            &answer.body[..200.min(answer.body.len())]
        );
    }
    assert!(gateway.executions("limit=10").is_empty(), "none of them is a call");
    let over_rest = gateway.post("/v1/tools/execute", OWNER, &json!({ "name": long, "arguments": {} }));
    assert_eq!(over_rest.status, 404);
    assert!(over_rest.body.len() < 5_000, "{} bytes", over_rest.body.len());
    assert_eq!(gateway.executions("limit=10")[0]["begin"]["tool"], "n".repeat(256));
}

/// Calls that are denied, invalid, unknown or over a limit write at most 1 KiB of their arguments.
#[test]
fn refused_calls_do_not_fill_the_log() {
    let rate = json!({ "max_calls": 1, "window_ms": 3_600_000 });
    let gateway = Gateway::start(&json!({
        "callers": [{ "id": "eve", "permissions": [], "api_key": "key-of-eve" }],
        "tools": [{ "name": "echo", "rate_limit": rate }],
    }));
    let large = json!({ "message": "x".repeat(1 << 20) });
    // Of `b3sum`.
    let hash = "19cd47a578ae474973382bd20b0b127134570b1dd5a078a2dcf8108474ed56b0";
    let calls =
        [("key-of-eve", "echo", 404), (OWNER, "nothing", 404), (OWNER, "echo", 200), (OWNER, "echo", 429)];
    for (key, tool, status) in calls {
        assert_eq!(gateway.call(key, tool, &large).status, status, "{key} {tool}");
    }
    let log = |gateway: &Gateway| gateway.executions("limit=10");
    gateway.wait("all records", |gateway| log(gateway).len() == 4);
    for record in log(&gateway).iter().filter(|record| record["end"]["status"] == "error") {
        let cut = &record["begin"]["arguments_cut"];
        assert_eq!(*cut, json!({ "head": "", "length": large.to_string().len(), "blake3": hash }));
    }
    // Short arguments stay, for `policy test`.
    let short = json!({ "message": "x".repeat(1_000) });
    assert_eq!(gateway.call("key-of-eve", "echo", &short).status, 404);
    assert_eq!(log(&gateway)[0]["begin"]["arguments"], short);
    let long = json!({ "message": "x".repeat(1_024) });
    assert_eq!(gateway.call("key-of-eve", "echo", &long).status, 404);
    assert_eq!(log(&gateway)[0]["begin"]["arguments_cut"]["length"], long.to_string().len());
}

/// Arguments that do not match are quoted in part only.
#[test]
fn invalid_arguments_are_quoted_in_part() {
    let gateway = Gateway::start(&json!({ "human_input": {} }));
    let large = json!({ "question": "Which?", "choices": "x".repeat(1 << 20) });
    let refused = gateway.call(OWNER, "request_human_input", &large);
    assert_eq!(refused.status_and_code(), (422, "invalid_arguments".to_owned()));
    assert!(refused.body.len() < 10_000, "{} bytes", refused.body.len());
}
