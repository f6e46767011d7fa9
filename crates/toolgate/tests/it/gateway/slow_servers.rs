//! One silent or failing server delays nobody: neither lists nor calls of other servers, and not its own tools.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, project};
use crate::support::mcp_client::{McpSession, call_message, request_message};
use crate::support::test_server::{TestServer, testkit};

/// Longer than the grace for optional servers, on a busy machine, and much shorter than any timeout of a server here.
const AT_ONCE: Duration = Duration::from_secs(6);

fn server(name: &str, mode: &str, startup: &str) -> Json {
    json!({
        "name": name, "command": testkit(), "args": [mode], "mode": "dynamic", "startup": startup,
        "timeout": "60s", "request_timeout": "60s",
        "default_tool_config": { "max_instances": 8, "timeout": "50s" },
    })
}

/// Returns a message with the names of all listed items of a kind.
fn names(session: &McpSession<'_>, kind: &str) -> Vec<String> {
    let response = session.post(&request_message(1, &format!("{kind}/list"), &json!({}))).json();
    let listed = response["result"][kind].as_array().unwrap_or_else(|| panic!("{response}")).clone();
    listed.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

/// Starts a gateway and calls the good server; returns the gateway.
#[expect(clippy::disallowed_methods, reason = "servers are slow in real time")]
fn start_and_call(servers: &[Json]) -> Gateway {
    let start = Instant::now();
    let gateway = Gateway::serve(project(&json!({ "mcps": servers })));
    let session = McpSession::begin(&gateway, OWNER, "2025-06-18", &json!({}));
    assert!(names(&session, "tools").contains(&"echo".to_owned()));
    let called = session.post(&call_message(2, "echo", &json!({ "message": "x" }))).json();
    assert_eq!(called["result"]["content"][0]["type"], "text", "{called}");
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    gateway
}

#[test]
fn a_silent_server_does_not_delay_the_start() {
    start_and_call(&[server("good", "good", "required"), server("slow", "silent", "optional")]);
    start_and_call(&[server("good", "good", "required"), server("slow", "silent-tools", "optional")]);
}

/// Lists of prompts and resources that fail, or are not answered, cost only what is in them.
#[test]
fn a_failing_list_of_prompts_does_not_cost_the_tools() {
    for mode in ["silent-prompts", "failing-prompts"] {
        let gateway = start_and_call(&[server("kit", mode, "required")]);
        let session = McpSession::begin(&gateway, OWNER, "2025-06-18", &json!({}));
        assert_eq!((names(&session, "prompts"), names(&session, "resources")), (vec![], vec![]), "{mode}");
    }
}

/// Commands wait a few seconds for optional servers, not for their timeout.
#[test]
fn commands_do_not_wait_for_a_silent_server() {
    for mode in ["silent", "silent-tools"] {
        let servers = [server("good", "good", "required"), server("slow", mode, "optional")];
        let program = project(&json!({ "mcps": servers })).with("TOOLGATE_LOG", "warn");
        let called = program.run("tools call good__echo message=x");
        assert_eq!(called.code, 0, "{called}");
        assert!(called.took < AT_ONCE, "the name says which server: {:?}", called.took);
        let called = program.run("tools call echo message=x");
        assert_eq!(called.code, 0, "{called}");
        assert!(called.took < 3 * AT_ONCE, "{:?}", called.took);
        let listed = program.run("tools list");
        assert_eq!(listed.code, 69, "{listed}");
        assert!(listed.took < 3 * AT_ONCE, "{:?}", listed.took);
        assert!(listed.stdout.contains("echo"), "{listed}");
        assert!(listed.stderr.contains("no answer within 5 s, so tools are missing: slow"), "{listed}");
        assert!(!listed.stderr.contains("returned no tools"), "{listed}");
    }
}

/// A server that hangs is asked for its list for each new kind of client. The first one waits for a moment, others do not,
/// also if the first one leaves; clients are notified when the lists arrive.
#[test]
#[expect(clippy::disallowed_methods, reason = "the server hangs in real time")]
fn a_hanging_server_delays_one_list() {
    let kit = TestServer::start("good");
    let hanging = json!({
        "name": "slow", "url": kit.url("http", "mcp"), "mode": "dynamic", "request_timeout": "60s",
        "default_tool_config": { "max_instances": 8, "timeout": "50s" },
    });
    let gateway = Gateway::serve(project(&json!({ "mcps": [server("good", "good", "required"), hanging] })));
    gateway.wait("both servers", |gateway| {
        gateway.get("/v1/servers", OWNER).body.matches(r#""state":"ready""#).count() == 2
    });
    let kinds = ["{}", r#"{"roots":{}}"#, r#"{"sampling":{}}"#, r#"{"elicitation":{}}"#];
    let sessions = kinds.map(|kind| {
        McpSession::begin(&gateway, OWNER, "2025-06-18", &serde_json::from_str(kind).expect("JSON"))
    });
    kit.signal("-STOP");
    let start = Instant::now();
    drop(sessions[0].begin_post(&request_message(1, "tools/list", &json!({}))));
    for session in sessions.iter().chain(&sessions) {
        assert!(names(session, "tools").iter().any(|name| name.contains("echo")));
    }
    let took = start.elapsed();
    kit.signal("-CONT");
    assert!(took < AT_ONCE, "{took:?}");
}
