//! Visibility: a caller sees the tools that it may call, under names that no other server can take.

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER};
use crate::support::mcp_client::{McpSession, request_message};
use crate::support::program::Program;
use crate::support::test_server::testkit;

fn tool(name: &str) -> Json {
    json!({ "name": name, "description": format!("Does {name}."), "inputSchema": { "type": "object" } })
}

/// Creates a project with scripted servers, `(name, tools)`, two own tools and more config.
fn project(servers: &[(&str, &[&str])], config: &Json) -> Program {
    let own =
        |name: &str| json!({ "name": name, "description": "Own.", "input_schema": { "type": "object" } });
    let program = Program::new(&[
        ("tools/tools.json", &json!({ "tools": [own("pay"), own("look")] }).to_string()),
        ("tools/pay.py", "def run():\n    return {}\n"),
        ("tools/look.py", "def run():\n    return {}\n"),
    ]);
    let mut entries = json!({});
    for (name, tools) in servers {
        let file = format!("{name}.tools");
        let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
        program.write(&file, json!({ "tools": tools }).to_string());
        entries[name] = json!({ "command": testkit(), "args": ["scripted", program.path(&file)] });
    }
    program.write("mcp.json", json!({ "servers": entries }).to_string());
    let mut whole = json!({ "registries": { "tools": "tools/tools.json", "mcp": "mcp.json" } });
    for (key, value) in config.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    program.write("toolgate.yaml", whole.to_string());
    program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER)
}

fn names(list: &Json) -> Vec<String> {
    let mut names: Vec<_> = list
        .as_array()
        .expect("a list")
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect();
    names.sort();
    names
}

/// No permission that a caller was not given, and no permission for one tool, shows another tool.
#[test]
fn a_caller_sees_what_it_may_call() {
    let caller = |id: &str, permissions: &[&str]| json!({ "id": id, "permissions": permissions, "api_key": format!("key-of-{id}") });
    let rules =
        "permit(principal == Caller::\"ruled\", action == Action::\"call\", resource == Tool::\"look\");";
    let config = json!({ "results": {}, "callers": [
        caller("none", &[]), caller("one", &["mail:find"]), caller("all", &["mail:*"]), caller("reads", &["*:find"]),
        caller("own", &["tools:look"]), caller("ruled", &[]),
    ] });
    let program = project(&[("mail", &["find", "send"])], &config);
    program.write("policy.cedar", rules);
    let gateway = Gateway::serve(program);
    for (id, expected) in [
        ("none", vec![]),
        ("one", vec!["find"]),
        ("all", vec!["find", "send"]),
        ("reads", vec!["find"]),
        ("own", vec!["look"]),
        ("ruled", vec!["look"]),
    ] {
        let key = format!("key-of-{id}");
        // Every caller may read its own stored results.
        let mut expected = [expected, vec!["read_result"]].concat();
        expected.sort_unstable();
        assert_eq!(names(&gateway.get("/v1/tools", &key).json()["tools"]), expected, "{id}");
        let session = McpSession::begin(&gateway, &key, "2025-11-25", &json!({}));
        let listed = session.post(&request_message(1, "tools/list", &json!({})));
        assert_eq!(names(&listed.json()["result"]["tools"]), expected, "{id} over MCP");
        for name in ["find", "send", "look", "pay"] {
            let seen = expected.contains(&name);
            assert_eq!(gateway.get(&format!("/v1/tools/{name}"), &key).status == 200, seen, "{id} {name}");
            let called = gateway.call(&key, name, &json!({}));
            assert_eq!(called.status == 200, seen, "{id} {name}: {called:?}");
            let found = gateway.get(&format!("/v1/tools/search?q={name}"), &key).json();
            assert_eq!(names(&found["tools"]).contains(&name.to_owned()), seen, "{id} {name}: {found}");
        }
    }
    let denied = |id: &str, name: &str| gateway.call(&format!("key-of-{id}"), name, &json!({}));
    assert_eq!(denied("none", "pay").status_and_code(), (404, "tool_not_found".to_owned()));
    assert_eq!(denied("own", "send").status_and_code(), (404, "tool_not_found".to_owned()));
    // A caller with another permission on the server learns the one it lacks.
    assert_eq!(denied("one", "send").status_and_code(), (403, "unauthorized".to_owned()));
}

/// Permissions to manage tools and to read resources or prompts allow no call of a tool with the same name.
#[test]
fn other_permissions_do_not_allow_calls() {
    let caller = |id: &str, permission: &str| json!({ "id": id, "permissions": [permission], "api_key": format!("key-of-{id}") });
    let config = json!({ "callers": [caller("writes", "tools:write"), caller("reads", "mail:resources"),
        caller("gets", "mail:prompts"), caller("calls", "mail:tool.resources")] });
    let gateway = Gateway::serve(project(&[("mail", &["resources", "prompts"])], &config));
    let own = json!({ "name": "write", "description": "Own.", "input_schema": { "type": "object" } });
    assert_eq!(gateway.post("/v1/tools", OWNER, &own).status, 201);
    let call = |id: &str, tool: &str| gateway.call(&format!("key-of-{id}"), tool, &json!({})).status;
    assert_ne!(call("writes", "write"), 200);
    assert_ne!(call("reads", "resources"), 200);
    assert_ne!(call("gets", "prompts"), 200);
    assert_eq!(call("calls", "resources"), 200);
    assert_eq!(gateway.call(OWNER, "resources", &json!({})).status, 200);
}

/// A name that begins with a server's name reaches that server alone, whatever another server offers.
#[test]
fn a_server_alone_has_names_with_its_prefix() {
    let gateway =
        Gateway::serve(project(&[("evil", &["mail__send", "mail__gone"]), ("mail", &["send"])], &json!({})));
    let listed = names(&gateway.get("/v1/tools", OWNER).json()["tools"]);
    assert_eq!(listed, ["evil__mail__gone", "evil__mail__send", "look", "pay", "send"]);
    let called = |name: &str| gateway.call(OWNER, name, &json!({}));
    assert_eq!(called("mail__send").json()["data"][0]["text"], "called \"send\"");
    assert_eq!(called("mail__gone").status, 404);
    assert_eq!(called("evil__mail__send").json()["data"][0]["text"], "called \"mail__send\"");
    assert_eq!(gateway.program.read("mail.tools.log").matches("tools/call").count(), 1);
    // An own tool, registered over HTTP, does not take such a name either.
    let own = json!({ "name": "mail__send", "description": "Own.", "input_schema": { "type": "object" } });
    assert_eq!(gateway.post("/v1/tools", OWNER, &own).status, 201);
    assert_eq!(called("mail__send").json()["data"][0]["text"], "called \"send\"");
}

/// Two servers, one of which would have the names of the other.
#[test]
fn server_names_within_one_another_are_refused() {
    let run = project(&[("mail", &["x"]), ("mail__x", &["y"])], &json!({})).run("check");
    assert_eq!(run.code, 78, "{run}");
    assert!(run.stderr.contains("the tools of `mail__x` would have names of `mail`"), "{run}");
}

/// Suggestions come from the calls of the caller itself, after five observations, and name only tools it sees.
#[test]
fn hints_are_learned_from_own_calls() {
    let caller = |id: &str, permissions: &[&str]| json!({ "id": id, "permissions": permissions, "api_key": format!("key-of-{id}") });
    let follow_ups = json!([{ "action": "send", "priority": "high" }]);
    let config = json!({
        "callers": [caller("ann", &["mail:*", "tools:*"]), caller("bob", &["mail:find", "tools:*"])],
        "toolbox": { "tools": [
            { "name": "look", "follow_ups": follow_ups },
            // A tool that may change anything is not suggested from habit.
            { "name": "send", "category": "generation" },
        ] },
    });
    let gateway = Gateway::serve(project(&[("mail", &["find", "send"])], &config));
    let suggested = |id: &str, name: &str| {
        let called = gateway.call(&format!("key-of-{id}"), name, &json!({}));
        let actions = called.json()["agentHints"]["suggestedNextActions"].take();
        let actions: Vec<_> =
            actions.as_array().expect("a list").iter().map(|next| next["action"].clone()).collect();
        json!(actions)
    };
    for _ in 0..5 {
        assert_eq!(suggested("ann", "find"), json!([]), "fewer than five observations");
        suggested("ann", "send");
    }
    assert_eq!(suggested("ann", "find"), json!(["send"]));
    assert_eq!(suggested("bob", "find"), json!([]), "another caller");
    assert_eq!(
        (suggested("ann", "look"), suggested("bob", "look")),
        (json!(["send"]), json!([])),
        "declared"
    );
    for _ in 0..7 {
        assert_eq!(suggested("ann", "pay"), json!([]), "a change is never suggested again");
    }
}
