//! Outages of HTTP servers: dead, restarted and rejecting servers, as callers and operators see them.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project};
use crate::support::test_server::TestServer;

/// Starts a gateway with one HTTP server, `kit`, and more keys for it.
fn gateway(kit: &TestServer, more: &Json) -> Gateway {
    let mut server = json!({ "name": "kit", "url": kit.url("http", "mcp"), "mode": "dynamic",
        "default_tool_config": { "max_instances": 8, "timeout": "50s" } });
    server.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    Gateway::serve(project(&json!({ "mcps": [server] })).with("TOOLGATE_LOG", "warn"))
}

fn echo(gateway: &Gateway) -> HttpResponse {
    gateway.call(OWNER, "echo", &json!({ "message": "x" }))
}

/// Returns the state of the server in listings.
fn state(gateway: &Gateway) -> String {
    let servers = gateway.get("/v1/servers", OWNER).json();
    servers["servers"][0]["state"].as_str().expect("a state").to_owned()
}

/// No call is needed to notice that the process of a server is gone.
#[test]
fn a_dead_server_is_not_ready() {
    std::thread::scope(|scope| {
        for era in ["legacy", "modern"] {
            scope.spawn(move || check_dead_server(era));
        }
    });
}

fn check_dead_server(era: &str) {
    let kit = TestServer::start(&format!("good era={era}"));
    let port = kit.port;
    let gateway = gateway(&kit, &json!({}));
    assert_eq!((gateway.get("/readyz", OWNER).status, state(&gateway).as_str()), (200, "ready"));
    drop(kit);
    gateway.wait("a server that is down", |gateway| state(gateway) == "unavailable");
    let ready = gateway.get("/readyz", OWNER);
    assert_eq!((ready.status, &ready.json()["down"]), (503, &json!(1)), "{ready:?}");
    let shown = gateway.program.read("~/stderr");
    assert!(shown.contains("MCP server 'kit' is not available: cannot connect to"), "{shown}");
    let refused = echo(&gateway);
    assert_eq!(refused.status_and_code(), (503, "service_unavailable".to_owned()));
    assert_eq!(refused.json()["error"]["retryable"], true);
    let _back = TestServer::start(&format!("good era={era} port={port}"));
    gateway.wait("a call after the outage", |gateway| echo(gateway).status == 200);
    assert_eq!(gateway.get("/readyz", OWNER).status, 200);
}

/// A restarted server does not know the old session. The call that finds out is made again in a new session.
#[test]
fn a_lost_session_is_renewed() {
    for status in [404, 400] {
        let kit = TestServer::start("good session=one");
        let port = kit.port;
        let gateway = gateway(&kit, &json!({}));
        assert_eq!(echo(&gateway).status, 200);
        drop(kit);
        let kit = TestServer::start(&format!("good session=two lost={status} port={port}"));
        let answer = echo(&gateway);
        assert_eq!(answer.status, 200, "{status}: {answer:?}");
        let executed = |seen: &&Json| {
            seen["message"]["method"] == "tools/call" && seen["headers"]["mcp-session-id"] == "two"
        };
        assert_eq!(kit.seen().iter().filter(executed).count(), 1, "{status}");
        assert_eq!(state(&gateway), "ready");
    }
}

/// The status of a server decides the code, and whether a retry makes sense.
#[test]
fn errors_say_what_to_do() {
    let cases = [
        ("status status=401", 403, "unauthorized", "business", false, "request-permission"),
        ("status status=403", 403, "unauthorized", "business", false, "request-permission"),
        ("status status=404", 404, "tool_not_found", "validation", false, "list-tools"),
        ("status status=429 retry-after=7", 429, "rate_limited", "business", true, "wait-and-retry"),
        ("status status=500", 503, "provider_failure", "system", false, "check-outcome"),
        ("status status=405", 503, "provider_failure", "system", false, "report-problem"),
        ("rpc-error code=-32601", 404, "tool_not_found", "validation", false, "list-tools"),
        ("rpc-error code=-32602", 404, "tool_not_found", "validation", false, "list-tools"),
        ("rpc-error code=-32000", 503, "provider_failure", "system", false, "report-problem"),
    ];
    for (mode, status, code, class, retryable, action) in cases {
        let kit = TestServer::start(mode);
        let gateway = gateway(&kit, &json!({}));
        let answer = echo(&gateway);
        let (error, hints) = (&answer.json()["error"], &answer.json()["agentHints"]);
        assert_eq!(answer.status_and_code(), (status, code.to_owned()), "{mode}");
        assert_eq!((&error["class"], &error["retryable"]), (&json!(class), &json!(retryable)), "{mode}");
        assert_eq!(hints["suggestedNextActions"][0]["action"], action, "{mode}");
        let wait = code == "rate_limited";
        assert_eq!(answer.header("retry-after"), wait.then_some("7"), "{mode}");
        assert_eq!(error.get("retryAfterMs"), wait.then_some(&json!(7_000)), "{mode}");
    }
}

/// A server that rejects the credential in its handshake gives the same code as one that rejects it in a call.
#[test]
fn a_rejected_credential_is_unauthorized_before_the_first_call() {
    let kit = TestServer::start("good");
    let port = kit.port;
    let gateway = gateway(&kit, &json!({}));
    drop(kit);
    let _kit = TestServer::start(&format!("status status=401 on=all port={port}"));
    gateway.wait("the outage", |gateway| echo(gateway).code() == "unauthorized");
    let refused = echo(&gateway);
    assert_eq!(refused.json()["error"]["retryable"], false, "{refused:?}");
}
