//! Clients that others wrote, at the doors of profiles, with a server that others wrote behind them.
//!
//! As in [`clients`](crate::clients), these tests are ignored where nothing is installed.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::clients::printed;
use crate::door::{Door, OWNER};
use crate::peers::{node, own, package, peers, text};
use crate::program::Program;

fn door(peers: &Path) -> Door {
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
    let nobody = json!({ "id": "anonymous", "permissions": ["everything:*"] });
    let project = json!({ "registries": { "mcp": "mcp.json" }, "profiles": profiles, "callers": [nobody] });
    let servers = json!({ "everything": package(peers, "server-everything", &["stdio"]) });
    let program = Program::new(&[
        ("toolgate.yaml", &project.to_string()),
        ("mcp.json", &json!({ "servers": servers }).to_string()),
    ]);
    Door::of(program.with("TOOLGATE_API_KEY", OWNER).with("TOOLGATE_LOG", "off"))
}

#[test]
#[ignore = "needs the clients that `cargo xtask test` installs"]
fn libraries_of_two_languages_at_profiles() {
    let peers = peers();
    let door = door(&peers);
    let url = format!("http://127.0.0.1:{}", door.port);
    let (python, node, packages) =
        (peers.join("python-v1/bin/python"), node(&peers), peers.join("npm/node_modules"));
    let (in_python, in_javascript) = (own("profiles_v1.py"), own("profiles.mjs"));
    let python = printed(&python, &[text(&in_python), &url, OWNER].map(OsStr::new));
    searched(&python["find"]);
    for way in ["renamed", "sse", "ws"] {
        renamed(&python[way]);
    }
    for generation in ["v1", "v2", "v2-newest"] {
        let arguments = [text(&in_javascript), text(&packages), generation, &url, OWNER].map(OsStr::new);
        let done = printed(&node, &arguments);
        searched(&done["find"]);
        renamed(&done["renamed"]);
    }
    // All of them were calls of the tool itself: two and one of each client, and one more over each other door.
    assert_eq!(door.executions("tool=get-sum&status=success&limit=100").len(), 4 * 3 + 2);
    assert!(door.executions("tool=call_tool").is_empty() && door.executions("tool=add").is_empty());
}

fn says(done: &Json, key: &str, part: &str) {
    assert!(done[key].as_str().is_some_and(|text| text.contains(part)), "{key} without {part}: {done:#}");
}

/// Whether a client found and called what there is where it has to search.
fn searched(done: &Json) {
    assert_eq!(done["tools"], json!(["search_tools", "describe_tool", "call_tool"]), "{done:#}");
    assert_eq!(done["found"][0], "get-sum", "{done:#}");
    assert_eq!(done["described"], json!(["a", "b"]), "{done:#}");
    says(done, "sum", "The sum of 2 and 3 is 5.");
    says(done, "text", "The sum of 2 and 3 is 5.");
    // The question of the server reaches the client through the call of a call.
    says(done, "elicited", "User provided the requested information");
    says(done, "unknown", "there is no tool `get-env`");
}

/// Whether a client got a part under other names.
fn renamed(done: &Json) {
    let tools: Vec<_> = done["tools"].as_array().expect("a list").iter().filter_map(Json::as_str).collect();
    assert!(tools.contains(&"add") && tools.contains(&"get-tiny-image"), "{done:#}");
    assert!(tools.iter().all(|name| *name == "add" || name.starts_with("get-")), "{done:#}");
    assert!(!tools.contains(&"get-sum") && !tools.contains(&"get-env"), "{done:#}");
    assert_eq!(done["prompts"], json!(["weather"]), "{done:#}");
    assert_eq!(done["resources"], 0, "{done:#}");
    says(done, "sum", "The sum of 2 and 3 is 5.");
    assert_eq!(done["hints"], "Hints", "{done:#}");
    says(done, "unknown", "there is no tool `get-sum`");
    assert_eq!(done["prompt"], "What's weather in Oslo?", "{done:#}");
}
