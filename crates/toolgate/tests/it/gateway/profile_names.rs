//! Names in profiles: each once, the same tomorrow; words that fit nothing; headers that say what arguments say.

use serde_json::{Value as Json, json};

use crate::door::{Door, OWNER};
use crate::profiles::{call, names, said};
use crate::program::Program;
use crate::servers::testkit;

/// A project with own tools of these names.
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
fn two_tools_never_have_one_name() {
    let tools = ["a.b", "a_b", "one", "two", "search_tools", "call_tool"];
    let profiles = json!({
        "safe": { "provider": "any", "tools": ["a*"] },
        "given": { "tools": { "include": ["one", "two"], "as": { "two": { "name": "one" } } } },
        "find": { "exposure": "search", "tools": ["search_tools", "call_tool", "one"] },
    });
    let door = Door::of(project(&tools, &json!({ "profiles": profiles })));
    let safe = names(&door, "/mcp/safe", OWNER);
    assert_eq!(safe[1], "a_b");
    assert!(safe[0].starts_with("a_b_") && safe[0].len() == 10, "{safe:?}");
    let given = names(&door, "/mcp/given", OWNER);
    assert_eq!(given[1], "one", "what the operator gives counts most");
    assert!(given[0].starts_with("one_"), "{given:?}");
    for (place, name, tool) in [
        ("/mcp/safe", safe[0].as_str(), "a.b"),
        ("/mcp/safe", "a_b", "a_b"),
        ("/mcp/given", "one", "two"),
        ("/mcp/given", &given[0], "one"),
    ] {
        let before = door.executions(&format!("tool={tool}")).len();
        assert_eq!(said(&call(&door, place, name, &json!({ "x": 1 }))), json!({ "x": 1 }), "{place} {name}");
        assert_eq!(door.executions(&format!("tool={tool}")).len(), before + 1, "{place} {name} is {tool}");
    }
    // The three tools of a search keep their names, and what has the same one has another.
    assert_eq!(names(&door, "/mcp/find", OWNER), ["search_tools", "describe_tool", "call_tool"]);
    let found = call(&door, "/mcp/find", "search_tools", &json!({ "query": "call_tool", "limit": 50 }));
    let found: Vec<_> = found["result"]["structuredContent"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{found}"))
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let other =
        found.iter().find(|name| name.starts_with("call_tool_")).unwrap_or_else(|| panic!("{found:?}"));
    let arguments = json!({ "name": other, "arguments": { "y": 2 } });
    assert_eq!(said(&call(&door, "/mcp/find", "call_tool", &arguments)), json!({ "y": 2 }));
    assert_eq!(door.executions("tool=call_tool").len(), 1);
    // Names depend on themselves alone.
    let alone = project(&["a.b"], &json!({ "profiles": { "safe": { "provider": "openai" } } }));
    assert_eq!(alone.run("tools list --profile safe --json").json()["tools"][0]["name"], safe[0]);
}

/// What servers offered when they were last seen is remembered, so a word that fits none of it is told.
#[test]
fn words_that_fit_nothing_that_was_seen() {
    let server = json!({ "name": "s", "command": testkit(), "args": ["good"], "mode": "dynamic", "default_tool_config": { "max_instances": 4 } });
    let profiles = json!({ "p": { "tools": ["ech", "s__ehco", "s__echo", "echo", "s__*", "own", "*cho"] } });
    let program = project(&["own"], &json!({ "profiles": profiles, "toolbox": { "mcps": [server] } }));
    // Before anything was seen nobody knows.
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
    good: 1 MCP server and 1 tool.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
    let problems = program.run("check --json").json()["problems"].clone();
    assert_eq!(problems.as_array().map(Vec::len), Some(2), "{problems}");
    assert_eq!(problems[0]["line"], 1, "{problems}");
}

/// Arguments that a schema has mirrored in headers are checked where a client was shown that schema, and nowhere else.
#[test]
fn headers_are_asked_of_who_knows_of_them() {
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
    let door = Door::of(program);
    let arguments = json!({ "region": "eu" });
    for (place, name, code) in [
        ("/mcp", "ask", json!(-32020)),
        ("/mcp/as_it_is", "query", json!(-32020)),
        ("/mcp/other", "ask", Json::Null),
    ] {
        let answer = call(&door, place, name, &arguments);
        assert_eq!(answer["error"]["code"], code, "{place}: {answer}");
    }
}

/// What takes the place of a tool goes by the name that it has in the profile, and by none where it has none.
#[test]
fn replacements_go_by_the_names_of_the_profile() {
    let profiles = json!({
        "both": { "tools": { "as": { "new": { "name": "newer" } } } },
        "old": { "tools": ["old"] },
    });
    let program = project(&["old", "new"], &json!({ "profiles": profiles }));
    let mut tools: Json = serde_json::from_str(&program.read("tools/tools.json")).unwrap();
    tools["tools"][0]["deprecated"] =
        json!({ "since": "2020-01-01", "replacement": "new", "removal_date": "2020-02-01" });
    program.write("tools/tools.json", tools.to_string());
    let door = Door::of(program);
    let hint = |place: &str| {
        let answer = call(&door, place, "old", &json!({}));
        let error = &answer["result"]["_meta"]["toolgate/result"]["error"];
        assert_eq!(error["code"], "deprecated_removed", "{answer}");
        error["hint"].clone()
    };
    assert_eq!(hint("/mcp"), "use `new`");
    assert_eq!(hint("/mcp/both"), "use `newer`");
    assert_eq!(hint("/mcp/old"), Json::Null);
}
