//! Listings for people: columns and progress on a terminal, plain lines elsewhere, and hints for typing errors.

use insta::assert_snapshot;
use serde_json::json;

use crate::support::gateway::{Gateway, project};
use crate::support::program::Program;
use crate::support::terminal::TerminalSession;
use crate::support::test_server::{entry, testkit};

/// A project with an own tool, and a server whose tools have limits.
fn mixed_project() -> Program {
    let program = Program::new(&[
        ("hello.sh", "#!/bin/sh\necho '{\"greeting\": \"hello\"}'\n"),
        (
            "tools.json",
            r#"{"tools": [{"name": "hello", "description": "Greets.", "script_path": "hello.sh", "input_schema": {"type": "object", "properties": {}}}]}"#,
        ),
    ]);
    let config = json!({ "registries": { "tools": "tools.json" }, "toolbox": { "mcps": [{
        "name": "s", "command": testkit(), "args": ["faulty"], "mode": "dynamic",
        "default_tool_config": { "max_instances": 3, "timeout": "7s" } }],
        "tools": [{ "name": "echo", "rate_limit": { "max_calls": 20, "window_ms": 60000 } }] } });
    program.write("toolgate.yaml", config.to_string());
    program
}

/// Runs a command on a terminal. Returns what it shows, without styles.
fn on_terminal(program: &Program, arguments: &[&str]) -> (Option<i32>, String) {
    let mut arguments = arguments.to_vec();
    arguments.extend(["--color", "never"]);
    let mut screen = TerminalSession::open(program, &arguments);
    let code = screen.child.wait().expect("it ends").code();
    screen.wait_for_end();
    (code, screen.shown().replace("\r\n", "\n"))
}

#[test]
fn tools_are_grouped_on_a_terminal() {
    let program = mixed_project();
    program.write("long.sh", "#!/bin/sh\n");
    let long = "Says a lot about what it does, far more than any line of a terminal has room for.";
    let tools = json!({ "tools": [
        { "name": "hello", "description": "Greets.", "script_path": "hello.sh", "input_schema": { "type": "object" } },
        { "name": "long", "description": long, "script_path": "long.sh", "input_schema": { "type": "object" } } ] });
    program.write("tools.json", tools.to_string());
    let (code, shown) = on_terminal(&program, &["tools", "list"]);
    assert_eq!(code, Some(0), "{shown}");
    assert_snapshot!(shown, @r"
    your own 2 tools
      hello        Greets.
      long         Says a lot about what it does, far more than any line of a termi…

    s 5 tools
      echo         Says it back, as it was said.
      environment  Shows the environment of the server.
      fail         Fails.
      ask          Asks a question.
      picture      Gives a picture, a sound, a link and something new.
    next: show one with `toolgate tools show NAME`, call it with `toolgate tools call NAME key=value`
    ");
    // Elsewhere one line per tool, whole.
    let run = program.run("tools list");
    assert!(run.stdout.lines().count() == 7 && run.stdout.contains(long), "{run}");
}

#[test]
fn a_tool_is_shown_with_its_limits() {
    let program = mixed_project();
    assert_snapshot!(program.run("tools show echo"), @r#"
    exit code 0
    ----- stdout
    echo of s
    Says it back, as it was said.

    version 1.0.0, high risk, may not be repeated, may not be cached
    timeout 7s, 3 calls at a time, output up to 4MiB, 20 calls per 1m and caller
    needs `s:echo`
    {
      "type": "object",
      "properties": {
        "message": {
          "type": "string"
        },
        "number": {
          "type": "number"
        }
      }
    }
    ----- stderr
    "#);
    assert_snapshot!(program.run("tools show hello").stdout, @r#"
    hello your own
    Greets.

    version 1.0.0, high risk, may not be repeated, may not be cached
    timeout 30s, 1 call at a time, output up to 4MiB
    needs `tools:hello`
    {
      "type": "object",
      "properties": {}
    }
    "#);
}

#[test]
fn typing_errors_are_pointed_out() {
    let program = mixed_project();
    assert_snapshot!(program.run("tols"), @r"
    exit code 2
    ----- stdout
    ----- stderr
    error: unrecognized subcommand 'tols'

      tip: a similar subcommand exists: 'tools'

    Usage: toolgate [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    assert_snapshot!(program.run("tools call ecco message=hi"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is no tool `ecco`
    hint: did you mean `echo`?
    ");
    assert_snapshot!(program.run("tools show helo"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is no tool `helo`
    hint: did you mean `hello`?
    ");
    assert_snapshot!(program.run("tools call echo mesage=hi"), @r"
    exit code 0
    ----- stdout

    ----- stderr
    note: `echo` has no argument `mesage`; did you mean `message`?
    ");
    assert_snapshot!(program.run("why owner ecco"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is no tool `ecco`
    hint: did you mean `echo`?
    ");
}

#[test]
fn the_exit_code_tells_that_a_server_is_down() {
    let mut broken = entry("broken");
    broken["startup"] = json!("optional");
    let servers = json!({ "servers": { "good": entry("good"), "bad": broken } });
    let program = Program::new(&[("mcp.json", &servers.to_string())]);
    for (line, code) in [
        ("servers", 69),
        ("servers list", 69),
        ("servers --json", 69),
        ("servers show bad", 69),
        ("servers show good", 0),
        ("tools list", 69),
        ("tools list --server good", 0),
        ("tools call echo message=hi", 0),
    ] {
        assert_eq!(program.run(line).code, code, "{line}");
    }
    assert_eq!(program.run("servers list --json").json()[1]["state"], "unavailable");
    // A server that goes down later.
    let dies = Program::new(&[("mcp.json", &json!({ "servers": { "d": entry("dies") } }).to_string())]);
    assert_ne!(dies.run("tools call echo message=hi").code, 0);
}

#[test]
fn a_call_shows_its_progress_on_a_terminal() {
    let program = project(&json!({}));
    let file = program.path("go").display().to_string();
    let call = ["tools", "call", "echo", "fault=until", "steps=3", &format!("message={file}")];
    let screen = TerminalSession::open(&program, &call);
    // The server counts from 0.
    screen.wait("\r\u{1b}[K", 3);
    screen.wait("2", 1);
    program.write("go", "");
    screen.wait("there it is", 1);
    // The line is erased before the result.
    let shown = screen.shown();
    let result = shown.find("there it is").expect("the result");
    assert!(shown[..result].ends_with("\r\u{1b}[K"), "{shown:?}");
    // Elsewhere only the result.
    let run = program.run_list(&call);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("there it is\n", ""), "{run}");
}

#[test]
fn log_shows_calls_by_prefix_and_one_row_per_tool() {
    let gateway = Gateway::serve(mixed_project());
    let program = &gateway.program;
    // The gateway and a command beside it write a log each.
    for line in ["tools call echo message=one", "--standalone tools call echo message=two", "tools call gone"]
    {
        program.run(line);
    }
    assert_eq!(fs_err::read_dir(program.path(".toolgate/log")).expect("the log").count(), 2);
    let calls = program.run("log --json").stdout;
    let ids: Vec<String> = calls
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a record"))
        .map(|call| call["begin"]["call"].as_str().expect("an id").to_owned())
        .collect();
    let shown = program.run(&format!("log show {}", &ids[0][..26]));
    assert_eq!(shown.code, 0, "{shown}");
    let plain: Vec<_> = shown.stdout.lines().filter(|line| !is_varying(line)).collect();
    assert_snapshot!(plain.join("\n"), @r#"
    echo success by owner
      server       s
      decision     allow, by permissions
    arguments
    {
      "message": "one"
    }
    output
    {
      "content": [
        {
          "type": "text",
          "text": "one"
        }
      ]
    }
    "#);
    assert_snapshot!(program.run("log show 0"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: several calls have the id `0`
    hint: list the newest calls with `toolgate log`; a unique prefix of an id is enough
    ");
    assert_snapshot!(program.run("log show x"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: there is no call `x`
    hint: list the newest calls with `toolgate log`; a unique prefix of an id is enough
    ");
    // The calls of both are one row.
    let stats = program.run("log stats").stdout;
    let rows: Vec<Vec<&str>> = stats.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows, [["tool", "calls", "errors"], ["echo", "2", "0"], ["gone", "1", "1"]], "{stats}");
}

/// Returns true for lines with times and random ids.
fn is_varying(line: &str) -> bool {
    let keys = ["id ", "session", "began", "correlation", "trace", "took", "stages", "definition"];
    keys.iter().any(|key| line.trim_start().starts_with(key))
}

#[test]
fn check_shows_what_differs_from_the_defaults() {
    let program = Program::new(&[
        (
            "toolgate.yaml",
            "name: shop\nserve: {listen: 127.0.0.1:9000, max_body: 2MiB}\ncallers:\n  - id: ci\n    permissions: ['shop:*']\n",
        ),
        ("policy.cedar", "@id(\"all\") permit(principal, action, resource);\n"),
    ]);
    assert_snapshot!(program.run("check"), @r"
    exit code 0
    ----- stdout
    shop [project]
    read from toolgate.yaml, policy.cedar

    serve
        listen    127.0.0.1:9000  toolgate.yaml:2:17
        max_body  2MiB            toolgate.yaml:2:43

    callers
        ci  shop:*  toolgate.yaml:5:18

    policy
        policy.cedar  1 rule  found by its name

    ----- stderr
    8 defaults are not shown; use `--all`
    good: 0 MCP servers and 0 tools.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
    let all = program.run("check --all").stdout;
    assert!(all.contains("max_concurrent") && all.contains("max_connections"), "{all}");
    assert!(!program.run("check").stdout.contains("max_connections"));
}
