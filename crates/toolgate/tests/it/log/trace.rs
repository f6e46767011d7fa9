//! Correlation ids and trace contexts sent to servers.

use serde_json::{Value as Json, json};

use crate::support::test_server::{TestServer, project, testkit};

/// Returns the messages of the requests a server got.
fn messages(seen: &[Json]) -> Vec<&Json> {
    let message =
        |event: &'static str| move |seen: &&Json| seen["event"] == event && !seen["message"]["id"].is_null();
    seen.iter().filter(|seen| message("request")(seen) || message("message")(seen)).collect()
}

fn is_traceparent(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    matches!(&parts[..], ["00", trace, span, "01"] if trace.len() == 32 && span.len() == 16 && hex(trace) && hex(span))
}

#[test]
fn over_http_in_headers_and_meta() {
    for (era, path, kind) in [("legacy", "mcp", "http"), ("modern", "mcp", "http"), ("legacy", "sse", "sse")]
    {
        let kit = TestServer::start(&format!("good era={era}"));
        let program = project(json!({ "kit": { "url": kit.url("http", path), "type": kind } }));
        let run = program.run("tools call kit__echo message=x --correlation-id order-66");
        assert_eq!((run.code, run.stdout.as_str()), (0, "{\"message\":\"x\"}\n"), "{}", run.stderr);
        let seen = kit.seen();
        let requests = messages(&seen);
        assert!(requests.len() > 2, "{requests:#?}");
        for request in requests {
            let (headers, meta) = (&request["headers"], &request["message"]["params"]["_meta"]);
            assert!(is_traceparent(headers["traceparent"].as_str().expect("a header")), "{request}");
            assert_eq!(headers["traceparent"], meta["traceparent"]);
            assert_eq!(headers["x-correlation-id"], meta["toolgate/correlationId"]);
            let is_call = request["message"]["method"] == "tools/call";
            assert_eq!(headers["x-correlation-id"] == "order-66", is_call, "{request}");
        }
    }
}

#[test]
fn over_stdio_in_meta() {
    for era in ["legacy", "modern"] {
        let program = project(json!({}));
        let log = program.path("log");
        let server = json!({ "command": testkit(), "args": ["good", era], "env": { "TESTKIT_LOG": log } });
        program.write("mcp.json", json!({ "servers": { "kit": server } }).to_string());
        let run = program.run("tools call kit__echo message=x --correlation-id order-66");
        assert_eq!(run.code, 0, "{}", run.stderr);
        let seen: Vec<Json> =
            program.read("log").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for request in messages(&seen) {
            let meta = &request["message"]["params"]["_meta"];
            assert!(is_traceparent(meta["traceparent"].as_str().expect("a member")), "{request}");
            let id = meta["toolgate/correlationId"].as_str().expect("a member");
            assert_eq!(id == "order-66", request["message"]["method"] == "tools/call", "{request}");
        }
    }
}

/// An id from outside is used unchanged or replaced.
#[test]
fn an_invalid_id_is_replaced() {
    let long = "x".repeat(4 << 10);
    for bad in ["a%0d%0aX-Admin: 1", "a\r\nX-Admin: 1", "ä", "", long.as_str()] {
        let kit = TestServer::start("good");
        let program = project(json!({ "kit": { "url": kit.url("http", "mcp") } }));
        let run = program.run_list(&["tools", "call", "kit__fail", "--json", "--correlation-id", bad]);
        let id = run.json()["error"]["correlationId"].as_str().expect("a text").to_owned();
        assert_eq!((id.len(), &id[14..15]), (36, "7"), "{bad:?}: {run}");
        assert!(
            run.stderr.contains(&format!("note: invalid correlation id, using `{id}`")),
            "{}",
            run.stderr
        );
        let seen = kit.seen();
        let call = seen
            .iter()
            .find(|seen| seen["message"]["method"] == "tools/call")
            .expect("the server got the call");
        assert_eq!(call["headers"]["x-correlation-id"], id.as_str());
        assert!(seen.iter().all(|seen| seen["headers"]["x-admin"].is_null()));
    }
}

#[test]
fn an_error_names_the_id() {
    let kit = TestServer::start("huge-json");
    let program = project(json!({ "kit": { "url": kit.url("http", "mcp") } }));
    let run = program.run("tools call kit__echo message=x --json --correlation-id order-66");
    assert_eq!((run.code, &run.json()["error"]["correlationId"]), (1, &json!("order-66")), "{run}");
}

/// `TRACEPARENT` continues the trace of the calling script.
#[test]
fn a_trace_from_outside_is_continued() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let program = project(json!({})).with("TRACEPARENT", &format!("00-{trace}-00f067aa0ba902b7-01"));
    let run = program.run("tools call nothing --json");
    assert_eq!((run.code, run.json()["metadata"]["traceId"].as_str()), (1, Some(trace)), "{run}");
    let error = &run.json()["error"];
    assert_eq!(error["code"], "tool_not_found", "{run}");
    let logged = program.run("log --tool nothing --json");
    assert!(logged.stdout.contains(trace) && logged.stdout.contains("tool_not_found"), "{logged}");
}
