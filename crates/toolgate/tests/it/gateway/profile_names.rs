//! Tool names in profiles are unique and stable; patterns without a match are reported; mirrored headers are checked.

use serde_json::{Value as Json, json};

use crate::gateway::profiles::{call, names, tool_output};
use crate::support::gateway::{Gateway, OWNER};
use crate::support::program::Program;
use crate::support::test_server::testkit;

/// Creates a project with local tools of these names.
fn project(tools: &[&str], config: &Json) -> Program {
    let tool = |name: &&str| {
        json!({ "name": name, "type": "local", "description": name,
            "input_schema": { "type": "object" }, "config": { "script_path": "say.py" } })
    };
    let tools: Vec<_> = tools.iter().map(tool).collect();
    let mut whole = json!({ "registries": { "tools": "tools/tools.json" } });
    for (key, value) in config.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    let program = Program::new(&[
        ("toolgate.yaml", &whole.to_string()),
        ("tools/tools.json", &json!({ "tools": tools }).to_string()),
        ("tools/say.py", "def run(args):\n    return {'said': args}\n"),
    ]);
    program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER)
}

#[test]
fn names_are_unique() {
    let tools = ["a.b", "a_b", "one", "two", "search_tools", "call_tool"];
    let profiles = json!({
        "safe": { "provider": "any", "tools": ["a*"] },
        "given": { "tools": { "include": ["one", "two"], "as": { "two": { "name": "one" } } } },
        "find": { "exposure": "search", "tools": ["search_tools", "call_tool", "one"] },
    });
    let gateway = Gateway::serve(project(&tools, &json!({ "profiles": profiles })));
    let safe = names(&gateway, "/mcp/safe", OWNER);
    assert_eq!(safe[1], "a_b");
    assert!(safe[0].starts_with("a_b_") && safe[0].len() == 10, "{safe:?}");
    let given = names(&gateway, "/mcp/given", OWNER);
    assert_eq!(given[1], "one", "a configured name has precedence");
    assert!(given[0].starts_with("one_"), "{given:?}");
    for (endpoint, name, tool) in [
        ("/mcp/safe", safe[0].as_str(), "a.b"),
        ("/mcp/safe", "a_b", "a_b"),
        ("/mcp/given", "one", "two"),
        ("/mcp/given", &given[0], "one"),
    ] {
        let before = gateway.executions(&format!("tool={tool}")).len();
        assert_eq!(
            tool_output(&call(&gateway, endpoint, name, &json!({ "x": 1 }))),
            json!({ "x": 1 }),
            "{endpoint} {name}"
        );
        assert_eq!(
            gateway.executions(&format!("tool={tool}")).len(),
            before + 1,
            "{endpoint} {name} is {tool}"
        );
    }
    // The three search tools keep their names; tools of the same name are renamed.
    assert_eq!(names(&gateway, "/mcp/find", OWNER), ["search_tools", "describe_tool", "call_tool"]);
    let found = call(&gateway, "/mcp/find", "search_tools", &json!({ "query": "call_tool", "limit": 50 }));
    let found: Vec<_> = found["result"]["structuredContent"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{found}"))
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let other =
        found.iter().find(|name| name.starts_with("call_tool_")).unwrap_or_else(|| panic!("{found:?}"));
    let arguments = json!({ "name": other, "arguments": { "y": 2 } });
    assert_eq!(tool_output(&call(&gateway, "/mcp/find", "call_tool", &arguments)), json!({ "y": 2 }));
    assert_eq!(gateway.executions("tool=call_tool").len(), 1);
    // Generated names depend on the tool alone.
    let alone = project(&["a.b"], &json!({ "profiles": { "safe": { "provider": "openai" } } }));
    assert_eq!(alone.run("tools list --profile safe --json").json()["tools"][0]["name"], safe[0]);
}

/// The tools last seen on servers are stored, so a pattern that matches none of them is reported.
#[test]
fn patterns_without_a_match_are_reported() {
    let server = json!({ "name": "s", "command": testkit(), "args": ["good"], "mode": "dynamic", "default_tool_config": { "max_instances": 4 } });
    let profiles = json!({ "p": { "tools": ["ech", "s__ehco", "s__echo", "echo", "s__*", "own", "*cho"] } });
    let program = project(&["own"], &json!({ "profiles": profiles, "toolbox": { "mcps": [server] } }));
    // Before the first start no tools are known.
    assert!(!program.run("check").stderr.contains("fits no tool"));
    assert_eq!(program.run("tools list").code, 0);
    let checked = program.run("check");
    assert_eq!(checked.code, 0, "{checked}");
    insta::assert_snapshot!(checked.stderr, @"
    warning: `ech` in profile `p` matches no tool that any server has listed
      --> toolgate.yaml:1:69
    hint: did you mean `echo`?
    warning: `s__ehco` in profile `p` matches no tool that any server has listed
      --> toolgate.yaml:1:69
    hint: did you mean `s__echo`?
    26 defaults are not shown; use `--all`
    good: 1 MCP server and 1 tool.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
    let problems = program.run("check --json").json()["problems"].clone();
    assert_eq!(problems.as_array().map(Vec::len), Some(2), "{problems}");
    assert_eq!(problems[0]["line"], 1, "{problems}");
}

/// Mirrored headers are checked only if the client was shown their schema.
#[test]
fn mirrored_headers_are_checked_where_shown() {
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let tool =
        json!({ "name": "ask", "inputSchema": { "type": "object", "properties": { "region": region } } });
    let profiles = json!({ "as_it_is": { "tools": { "as": { "ask": { "name": "query" } } } }, "other": { "provider": "gemini" } });
    let program = project(&[], &json!({ "profiles": profiles }));
    program.write("offer.json", json!({ "tools": [tool] }).to_string());
    let arguments = json!(["scripted", program.path("offer.json"), "modern"]);
    let server = json!({ "name": "s", "command": testkit(), "args": arguments, "mode": "dynamic",
        "default_tool_config": { "max_instances": 4 } });
    let mut file: Json = serde_json::from_str(&program.read("toolgate.yaml")).unwrap();
    file["toolbox"] = json!({ "mcps": [server] });
    program.write("toolgate.yaml", file.to_string());
    let gateway = Gateway::serve(program);
    let arguments = json!({ "region": "eu" });
    for (endpoint, name, code) in [
        ("/mcp", "ask", json!(-32020)),
        ("/mcp/as_it_is", "query", json!(-32020)),
        ("/mcp/other", "ask", Json::Null),
    ] {
        let response = call(&gateway, endpoint, name, &arguments);
        assert_eq!(response["error"]["code"], code, "{endpoint}: {response}");
    }
}

/// Replacements of a deprecated tool are named as in the profile, or omitted.
#[test]
fn replacements_are_named_as_in_the_profile() {
    let profiles = json!({
        "both": { "tools": { "as": { "new": { "name": "newer" } } } },
        "old": { "tools": ["old"] },
    });
    let program = project(&["old", "new"], &json!({ "profiles": profiles, "toolbox": { "hints": "full" } }));
    let mut tools: Json = serde_json::from_str(&program.read("tools/tools.json")).unwrap();
    tools["tools"][0]["deprecated"] =
        json!({ "since": "2020-01-01", "replacement": "new", "removal_date": "2020-02-01" });
    program.write("tools/tools.json", tools.to_string());
    let gateway = Gateway::serve(program);
    let hint = |endpoint: &str| {
        let response = call(&gateway, endpoint, "old", &json!({}));
        let error = &response["result"]["_meta"]["toolgate/result"]["error"];
        assert_eq!(error["code"], "deprecated_removed", "{response}");
        error["hint"].clone()
    };
    assert_eq!(hint("/mcp"), "use `new`");
    assert_eq!(hint("/mcp/both"), "use `newer`");
    assert_eq!(hint("/mcp/old"), Json::Null);
}
