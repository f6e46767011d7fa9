//! Third-party clients of profiles, with a third-party server.
//!
//! Like the [`third_party_clients`](crate::gateway::third_party_clients), these tests are ignored unless the peers are
//! installed.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER};
use crate::support::program::Program;
use crate::support::third_party::{node, own, package, peers, run_client, text};

fn start_gateway(peers: &Path) -> Gateway {
    let profiles = json!({
        "find": { "exposure": "search", "provider": "any", "tools": { "exclude": ["get-env"] } },
        "renamed": {
            "provider": "openai",
            "hints": "text",
            "tools": { "include": ["everything__get-*"], "exclude": ["get-env"],
                "as": { "get-sum": { "name": "add", "description": "Adds." } } },
            "prompts": { "include": ["args-prompt"], "as": { "args-prompt": { "name": "weather" } } },
            "resources": [],
        },
    });
    let anonymous = json!({ "id": "anonymous", "permissions": ["everything:*"] });
    let step = json!({ "action": "get-tiny-image", "description": "Look at it." });
    let project = json!({
        "registries": { "mcp": "mcp.json" }, "profiles": profiles, "callers": [anonymous],
        "toolbox": { "tools": [{ "name": "get-sum", "follow_ups": [step] }] },
    });
    let servers = json!({ "everything": package(peers, "server-everything", &["stdio"]) });
    let program = Program::new(&[
        ("toolgate.yaml", &project.to_string()),
        ("mcp.json", &json!({ "servers": servers }).to_string()),
    ]);
    Gateway::serve(program.with("TOOLGATE_API_KEY", OWNER).with("TOOLGATE_LOG", "off"))
}

#[test]
#[ignore = "needs the clients that `cargo xtask test` installs"]
fn python_and_javascript_clients_of_profiles() {
    let peers = peers();
    let gateway = start_gateway(&peers);
    let url = format!("http://127.0.0.1:{}", gateway.port);
    let (python, node, packages) =
        (peers.join("python-v1/bin/python"), node(&peers), peers.join("npm/node_modules"));
    let (in_python, in_javascript) = (own("profiles_v1.py"), own("profiles.mjs"));
    let python = run_client(&python, &[text(&in_python), &url, OWNER].map(OsStr::new));
    check_search(&python["find"]);
    for way in ["renamed", "sse", "ws"] {
        check_renamed(&python[way]);
    }
    for generation in ["v1", "v2", "v2-newest"] {
        let arguments = [text(&in_javascript), text(&packages), generation, &url, OWNER].map(OsStr::new);
        let done = run_client(&node, &arguments);
        check_search(&done["find"]);
        check_renamed(&done["renamed"]);
    }
    // All were calls of the same tool: two and one by each client, and one more over each other endpoint.
    assert_eq!(gateway.executions("tool=get-sum&status=success&limit=100").len(), 4 * 3 + 2);
    assert!(gateway.executions("tool=call_tool").is_empty() && gateway.executions("tool=add").is_empty());
}

fn assert_contains(done: &Json, key: &str, part: &str) {
    assert!(done[key].as_str().is_some_and(|text| text.contains(part)), "{key} without {part}: {done:#}");
}

/// Checks that a client found and called tools by search.
fn check_search(done: &Json) {
    assert_eq!(done["tools"], json!(["search_tools", "describe_tool", "call_tool"]), "{done:#}");
    assert_eq!(done["found"][0], "get-sum", "{done:#}");
    assert_eq!(done["described"], json!(["a", "b"]), "{done:#}");
    assert_contains(done, "sum", "The sum of 2 and 3 is 5.");
    assert_contains(done, "text", "The sum of 2 and 3 is 5.");
    // Elicitation reaches the client through `call_tool`.
    assert_contains(done, "elicited", "User provided the requested information");
    assert_contains(done, "unknown", "there is no tool `get-env`");
}

/// Checks that a client got the renamed tools.
fn check_renamed(done: &Json) {
    let tools: Vec<_> = done["tools"].as_array().expect("a list").iter().filter_map(Json::as_str).collect();
    assert!(tools.contains(&"add") && tools.contains(&"get-tiny-image"), "{done:#}");
    assert!(tools.iter().all(|name| *name == "add" || name.starts_with("get-")), "{done:#}");
    assert!(!tools.contains(&"get-sum") && !tools.contains(&"get-env"), "{done:#}");
    assert_eq!(done["prompts"], json!(["weather"]), "{done:#}");
    assert_eq!(done["resources"], 0, "{done:#}");
    assert_contains(done, "sum", "The sum of 2 and 3 is 5.");
    assert_eq!(done["hints"], "[next", "{done:#}");
    assert_contains(done, "unknown", "there is no tool `get-sum`");
    assert_eq!(done["prompt"], "What's weather in Oslo?", "{done:#}");
}
