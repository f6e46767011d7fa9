//! `toolbox`: strict and dynamic servers, local tools, and startup errors.

use serde_json::{Value as Json, json};

use crate::support::program::Program;
use crate::support::test_server::testkit;

/// A server: its name, its mode and its tools.
type Mcp<'a> = (&'a str, &'a str, &'a [&'a str]);

/// Creates a project with these servers, tool settings and local tools.
fn project(mcps: &[Mcp<'_>], settings: &[&str], own: &[&str]) -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "info");
    let mcps: Vec<Json> = mcps
        .iter()
        .map(|(name, mode, tools)| {
            offer(&program, name, tools);
            let mut entry = json!({
                "name": name, "command": testkit(), "args": ["scripted", program.path(name)], "mode": mode,
            });
            if *mode == "dynamic" {
                entry["default_tool_config"] = json!({ "max_instances": 10, "timeout": "P0DT0H0M30S" });
            }
            entry
        })
        .collect();
    let settings: Vec<_> = settings.iter().map(|name| json!({ "name": name, "max_instances": 20 })).collect();
    let config = json!({
        "registries": { "tools": "tools/tools.json" }, "toolbox": { "tools": settings, "mcps": mcps },
    });
    let tool = |name: &&str| {
        program.write(&format!("tools/{name}.py"), "");
        json!({ "name": name, "description": "Mine.", "input_schema": { "type": "object" }, "script_path": format!("{name}.py") })
    };
    program
        .write("tools/tools.json", json!({ "tools": own.iter().map(tool).collect::<Vec<_>>() }).to_string());
    // JSON is YAML.
    program.write("toolgate.yaml", config.to_string());
    program
}

fn offer(program: &Program, server: &str, tools: &[&str]) {
    let tool =
        |name: &&str| json!({ "name": name, "description": "Theirs.", "inputSchema": { "type": "object" } });
    program.write(server, json!({ "tools": tools.iter().map(tool).collect::<Vec<_>>() }).to_string());
}

/// Returns the exit code and the tools on one line, then the log and the error.
fn started(program: &Program) -> String {
    let run = program.run("tools list --json");
    let tools: Vec<Json> = serde_json::from_str(&run.stdout).unwrap_or_default();
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    // A slow start has a line that a quick one has not.
    let output =
        run.stderr.lines().filter(|line| !line.starts_with("waiting for ") && !line.starts_with("next: "));
    // Without the timestamp.
    let output = output.map(|line| line.split_once("Z ").map_or(line, |(_, line)| line.trim_start()));
    let output = output.map(|line| line.replace(&testkit().display().to_string(), "testkit"));
    format!("{}: {}\n{}", run.code, names.join(" "), output.collect::<Vec<_>>().join("\n"))
}

#[test]
fn strict_servers_only() {
    let mcps: [Mcp<'_>; 2] = [("customers", "strict", &["get_customer"]), ("mail", "strict", &["send"])];
    insta::assert_snapshot!(started(&project(&mcps, &["get_customer", "send"], &[])), @"0: get_customer send");
}

#[test]
fn dynamic_servers_only() {
    let mcps: [Mcp<'_>; 2] = [("customers", "dynamic", &["get_customer"]), ("mail", "dynamic", &["send"])];
    insta::assert_snapshot!(started(&project(&mcps, &[], &[])), @"
    0: get_customer send
    INFO Tool 'get_customer' from MCP 'customers' not explicitly configured, using default configuration
    INFO Tool 'send' from MCP 'mail' not explicitly configured, using default configuration
    ");
}

#[test]
fn strict_and_dynamic_servers_and_local_tools() {
    let mcps: [Mcp<'_>; 2] =
        [("customers", "dynamic", &["get_customer", "find"]), ("mail", "strict", &["send"])];
    let program = project(&mcps, &["get_customer", "send", "sum"], &["sum"]);
    insta::assert_snapshot!(started(&program), @"
    0: sum get_customer find send
    INFO Tool 'find' from MCP 'customers' not explicitly configured, using default configuration
    ");
}

/// Local tools get their settings from the registry; a script without an entry is not a tool.
#[test]
fn a_script_without_an_entry_is_not_a_tool() {
    let program = project(&[("mail", "strict", &["send"])], &["send"], &["sum"]);
    program.write("tools/stray.py", "");
    assert_eq!(started(&program), "0: sum send\n");
    let run = program.run("tools call stray");
    assert!(run.code == 1 && run.stderr.contains("there is no tool `stray`"), "{run}");
    program.write("tools/tools.json", r#"{"tools": [{"name": "sum"}]}"#);
    assert_eq!(program.run("tools list").code, 78, "an incomplete entry is rejected");
}

#[test]
fn a_server_that_is_down_is_an_error_of_the_command() {
    let program = project(&[("customers", "dynamic", &["get_customer"])], &[], &[]);
    let config = program.read("toolgate.yaml").replace("scripted", "broken");
    program.write("toolgate.yaml", config);
    insta::assert_snapshot!(started(&program), @r"
    69: 
    unavailable customers · stdio
    error: Failed to connect to MCP server 'customers' at testkit broken [project]/customers
    Error: `testkit broken [project]/customers` exited with code 3; it wrote: boom: missing licence
    hint: run the command by hand to see why it exits
    ");
}

#[test]
fn startup_fails_if_a_strict_server_has_unconfigured_tools() {
    let mcps: [Mcp<'_>; 2] =
        [("customers", "strict", &["get_customer", "delete"]), ("mail", "dynamic", &["send"])];
    insta::assert_snapshot!(started(&project(&mcps, &["get_customer"], &[])), @"
    78: 
    error: Tool 'delete' from MCP server 'customers' is not configured in the toolbox.

    MCP Server: customers
    Mode: strict
    Missing Tool: delete

    Configured tools: [get_customer]

    To resolve:
    1. Add the tool to myai.toolbox.tools in your configuration, OR
    2. Change the MCP server mode to 'dynamic' and provide default_tool_config
    ");
}

#[test]
fn switching_from_strict_to_dynamic() {
    let program = project(&[("customers", "strict", &["get_customer", "delete"])], &["get_customer"], &[]);
    assert!(started(&program).starts_with("78: \n"));
    let defaults = r#""mode":"dynamic","default_tool_config":{"max_instances":10}"#;
    program.write("toolgate.yaml", program.read("toolgate.yaml").replace(r#""mode":"strict""#, defaults));
    insta::assert_snapshot!(started(&program), @"
    0: get_customer delete
    INFO Tool 'delete' from MCP 'customers' not explicitly configured, using default configuration
    ");
}

#[test]
fn missing_tools_and_servers_without_tools() {
    let mcps: [Mcp<'_>; 2] = [("customers", "dynamic", &[]), ("mail", "strict", &["send"])];
    insta::assert_snapshot!(started(&project(&mcps, &["send", "gone"], &[])), @"
    0: send
    WARN MCP server 'customers' at testkit scripted [project]/customers returned no tools
    WARN Tool 'gone' was configured but is available from no MCP server
    ");
}

#[test]
fn a_configured_tool_is_no_longer_offered() {
    for mode in ["strict", "dynamic"] {
        let program = project(&[("mail", mode, &["send", "read"])], &["send", "read"], &[]);
        assert_eq!(started(&program), "0: send read\n");
        offer(&program, "mail", &["send"]);
        let warning = "WARN Tool 'read' was configured but is no longer available from MCP server 'mail'";
        assert_eq!(started(&program), format!("0: send\n{warning}"));
    }
}

#[test]
fn a_new_tool_of_a_dynamic_server() {
    let program = project(&[("mail", "dynamic", &["send"])], &["send"], &[]);
    assert_eq!(started(&program), "0: send\n");
    offer(&program, "mail", &["send", "read"]);
    insta::assert_snapshot!(started(&program), @"
    0: send read
    INFO Tool 'read' from MCP 'mail' not explicitly configured, using default configuration
    ");
}

#[test]
fn a_hundred_tools_of_which_five_are_configured() {
    let names: Vec<_> = (0..100).map(|n| format!("tool{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let shown = started(&project(&[("big", "dynamic", &names)], &names[..5], &[]));
    assert!(shown.starts_with(&format!("0: {}\n", names.join(" "))), "{shown}");
    assert_eq!(shown.matches("not explicitly configured, using default configuration").count(), 95);
}

#[test]
fn the_same_name_on_two_servers_and_locally() {
    let mcps: [Mcp<'_>; 2] = [("one", "dynamic", &["send"]), ("two", "dynamic", &["send"])];
    let program = project(&mcps, &[], &[]);
    insta::assert_snapshot!(started(&program), @"
    0: send two__send
    INFO Tool 'send' from MCP 'one' not explicitly configured, using default configuration
    INFO Tool 'send' from MCP 'two' not explicitly configured, using default configuration
    WARN Tool 'send' of MCP 'two' is listed as 'two__send': the name is taken by MCP 'one'
    ");
    assert!(program.run("tools call two__send").stdout.starts_with("called"), "both can be called");
    insta::assert_snapshot!(started(&project(&mcps, &[], &["send"])), @"
    0: send one__send two__send
    INFO Tool 'send' from MCP 'one' not explicitly configured, using default configuration
    WARN Tool 'send' of MCP 'one' is listed as 'one__send': the name is taken by your own tools
    INFO Tool 'send' from MCP 'two' not explicitly configured, using default configuration
    WARN Tool 'send' of MCP 'two' is listed as 'two__send': the name is taken by your own tools
    ");
}
