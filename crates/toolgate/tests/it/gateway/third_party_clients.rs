//! Third-party MCP clients at `/mcp`, with third-party servers.
//!
//! The programs in `tests/peers` do the same work with different libraries. Half of the clients and half of the servers
//! use the newest revision, the others the previous one: every combination is tested. Like the
//! [`third_party_servers`](crate::upstream::third_party_servers), these tests are ignored unless the peers are
//! installed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER};
use crate::support::third_party::{git, node, own, package, peers, project, run_client, text};

/// Starts a gateway with five third-party servers and a git repository with a note.
fn start_gateway(peers: &Path) -> Gateway {
    let program = project(json!({})).with("TOOLGATE_API_KEY", OWNER).with("TOOLGATE_LOG", "off");
    let folder = text(&program.project).to_owned();
    let python = |name: &str| json!({ "command": peers.join("python/bin").join(name), "timeout": "60s" });
    let servers = json!({
        "everything": package(peers, "server-everything", &["stdio"]),
        "files": package(peers, "server-filesystem", &[&folder]),
        "memory": package(peers, "server-memory", &[]),
        "time": python("mcp-server-time"),
        "git": python("mcp-server-git"),
    });
    program.write("mcp.json", json!({ "servers": servers }).to_string());
    program.write("note.txt", "forty-two");
    git(&program, &["init", "--quiet", "--initial-branch", "trunk"]);
    let gateway = Gateway::serve(program);
    // Wait for all servers first, because a slow machine may need long to start them.
    gateway.wait("all servers", |gateway| {
        let servers = gateway.get("/v1/servers", OWNER).json();
        servers["servers"].as_array().is_some_and(|all| all.iter().all(|server| server["state"] == "ready"))
    });
    gateway
}

#[test]
#[ignore = "needs the clients that `cargo xtask test` installs"]
fn clients_in_two_languages_and_revisions() {
    let peers = peers();
    let gateway = start_gateway(&peers);
    let (url, note) = (format!("http://127.0.0.1:{}/mcp", gateway.port), gateway.program.path("note.txt"));
    let (v1, v2, node) = (peers.join("python-v1/bin/python"), peers.join("python/bin/python"), node(&peers));
    let packages = peers.join("npm/node_modules");
    for (program, script, first, revision) in [
        (&v1, "client_v1.py", vec![], "2025-11-25"),
        (&v2, "client_v2.py", vec![], "2026-07-28"),
        (&v2, "client_fastmcp.py", vec![], "2026-07-28"),
        (&node, "client.mjs", vec![text(&packages), "v1"], "2025-11-25"),
        (&node, "client.mjs", vec![text(&packages), "v2"], "2025-11-25"),
        (&node, "client.mjs", vec![text(&packages), "v2-newest"], "2026-07-28"),
    ] {
        let script = own(script);
        let words = std::iter::once(text(&script)).chain(first).chain([url.as_str(), OWNER, text(&note)]);
        let arguments: Vec<_> = words.map(OsStr::new).collect();
        // No client has roots, and `client.mjs` opens no URLs: the tools that need them are not listed.
        let tools = if program == &node { 52 } else { 53 };
        check_results(&run_client(program, &arguments), revision, tools);
    }
    // Every call is in the log, with its end.
    let calls = gateway.executions("tool=get-sum");
    assert_eq!(calls.len(), 6);
    assert!(calls.iter().all(|call| call["end"]["status"] == "success"), "{calls:?}");
}

/// Checks the results of a client.
fn check_results(done: &Json, revision: &str, tools: u32) {
    let contains = |key: &str, part: &str| {
        assert!(done[key].as_str().is_some_and(|text| text.contains(part)), "{key} without {part}: {done:#}");
    };
    assert_eq!(done["revision"], revision, "{done:#}");
    assert_eq!(done["server"], "toolgate", "{done:#}");
    for (key, number) in [("tools", tools), ("prompts", 4), ("resources", 8), ("templates", 2)] {
        assert_eq!(done[key], number, "{key}: {done:#}");
    }
    contains("sum", "The sum of 2 and 3 is 5.");
    assert!(done["structured"]["humidity"].is_number(), "{done:#}");
    contains("unknown", "there is no tool `no-such-tool`");
    contains("file", "forty-two");
    contains("zone", "UTC");
    contains("long", "Long running operation completed.");
    // Elicitation and sampling reached the client during its call, and the answers came back.
    assert_eq!(done["asked"], json!(["elicitation", "sampling"]), "{done:#}");
    contains("elicited", "\"name\": \"Ann\"");
    contains("sampled", "a model said this");
    let steps: Vec<_> = done["progress"].as_array().expect("a list").iter().take(2).collect();
    assert!(steps.iter().all(|step| step[1].as_f64() == Some(2.0)), "progress: {done:#}");
    assert_eq!(steps.len(), 2, "progress: {done:#}");
    contains("prompt", "What's weather in Oslo?");
    contains("read", "Resource 1: This is a plaintext resource");
    assert_eq!(done["completed"], json!(["Sales", "Support"]), "{done:#}");
}

#[test]
#[ignore = "needs the clients that `cargo xtask test` installs"]
fn the_inspector_on_the_command_line() {
    let peers = peers();
    let gateway = start_gateway(&peers);
    let inspector =
        peers.join("npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let (url, key) = (format!("http://127.0.0.1:{}/mcp", gateway.port), format!("X-API-Key: {OWNER}"));
    let inspect = |words: &[&str]| {
        let start = [text(&inspector), "--cli", &url, "--transport", "http", "--header", &key, "--method"];
        let arguments: Vec<_> = start.iter().chain(words).map(OsStr::new).collect();
        run_client(&node(&peers), &arguments)
    };
    let tools = inspect(&["tools/list"]);
    let names: Vec<_> = tools["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    for name in ["echo", "read_text_file", "create_entities", "get_current_time", "git_status"] {
        assert!(names.iter().any(|known| **known == name), "no {name} in {names:?}");
    }
    let entity = r#"entities=[{"name":"Ann","entityType":"person","observations":["likes tea"]}]"#;
    inspect(&["tools/call", "--tool-name", "create_entities", "--tool-arg", entity]);
    let graph = inspect(&["tools/call", "--tool-name", "search_nodes", "--tool-arg", "query=tea"]);
    assert_eq!(graph["structuredContent"]["entities"][0]["name"], "Ann", "{graph:#}");
    let repository = format!("repo_path={}", text(&gateway.program.project));
    let status = inspect(&["tools/call", "--tool-name", "git_status", "--tool-arg", &repository]);
    assert!(status["content"][0]["text"].as_str().is_some_and(|text| text.contains("trunk")), "{status:#}");
    let prompt = inspect(&["prompts/get", "--prompt-name", "args-prompt", "--prompt-args", "city=Oslo"]);
    assert_eq!(prompt["messages"][0]["content"]["text"], "What's weather in Oslo?", "{prompt:#}");
    let read = inspect(&["resources/read", "--uri", "demo://resource/static/document/features.md"]);
    let document = read["contents"][0]["text"].as_str();
    assert!(document.is_some_and(|text| text.contains("# Everything Server - Features")), "{read:#}");
}

/// Schemathesis sends valid and invalid requests for every documented operation: every response matches the OpenAPI
/// document, and none is a server error.
#[test]
#[ignore = "needs the program that `cargo xtask test` installs"]
#[expect(clippy::disallowed_methods, reason = "the program is the other side of the test")]
fn schemathesis_finds_nothing() {
    let peers = peers();
    let callers =
        json!([{ "id": "all", "permissions": ["*:*", "servers:exec"], "api_key": "a-key-for-all-of-it" }]);
    let gateway = Gateway::start(&json!({ "callers": callers }));
    // Invalid bodies are rejected with several statuses; a failed precondition comes first.
    let statuses = r#"[checks]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "412", "413", "415", "422"]
"#;
    gateway.program.write("~/schemathesis.toml", statuses);
    let mut command = Command::new("timeout");
    command.arg("300").arg(peers.join("python/bin/st")).arg("run");
    command.arg(format!("http://127.0.0.1:{}/v1/openapi.json", gateway.port));
    command.args(["--header", "X-API-Key: a-key-for-all-of-it"]);
    // Invented keys would be invalid and get the client rate-limited.
    command.args(["--generation-with-security-parameters", "false", "--exclude-checks"]);
    // Registry entries allow more than the document describes.
    command.arg("ignored_auth,positive_data_acceptance");
    command.args(["--phases", "coverage,fuzzing", "--max-examples", "20", "--generation-deterministic"]);
    // Streams do not end.
    command.args(["--exclude-operation-id", "streamExecutions", "--exclude-operation-id", "events"]);
    command.args(["--no-color", "--warnings", "off"]).current_dir(&gateway.program.home);
    let output = command.output().expect("it starts");
    let status = output.status;
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(status.success(), "{output}");
    assert!(output.contains("Specification:    Open API 3.1.0"), "{output}");
}
