//! MCP servers, good and bad, behind the executable. The bad ones are `testkit` modes.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::support::program::{HANG_TIMEOUT, Program};
use crate::support::test_server::{entry, processes_left, testkit};

/// Creates a project with a server per mode, named after its mode.
fn project(modes: &[&str]) -> Program {
    let servers: serde_json::Map<_, _> = modes.iter().map(|mode| ((*mode).to_owned(), entry(mode))).collect();
    Program::new(&[("mcp.json", &json!({ "servers": servers }).to_string())])
}

fn statuses(program: &Program) -> Vec<(String, String, Json)> {
    let run = program.run("servers --json");
    let all: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    all.into_iter().map(|one| (text(&one["name"]), text(&one["state"]), one)).collect()
}

#[test]
fn tolerable_faults_are_tolerated() {
    let modes = ["good", "deaf", "shy", "noisy", "wrong-ids", "flood", "stubborn"];
    for (name, state, status) in statuses(&project(&modes)) {
        assert_eq!((state.as_str(), &status["tools"]), ("ready", &json!(5)), "{name}: {status}");
        assert_eq!(status["protocolVersion"], "2025-11-25");
        assert_eq!(status["transport"], "stdio");
    }
}

#[test]
fn a_silent_server_delays_no_other() {
    let program = project(&["good", "silent", "broken"]);
    let run = program.run("tools list --json");
    let tools: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    assert_eq!((run.code, tools.len()), (69, 5), "{}", run.stderr);
    // One line names the slow server; the quick one has none.
    assert_eq!(run.stderr.matches("waiting for silent\n").count(), 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("unavailable silent") && !run.stderr.contains("ready good"),
        "{}",
        run.stderr
    );
    assert!(run.took < HANG_TIMEOUT, "{:?}", run.took);
}

#[test]
fn an_error_names_the_server_its_exit_code_and_stderr() {
    let program = project(&["broken"]);
    let run = program.run("tools list");
    assert_eq!(run.code, 69);
    assert!(run.stderr.contains("Failed to connect to MCP server 'broken' at "), "{}", run.stderr);
    assert!(run.stderr.contains("exited with code 3; it wrote: boom: missing licence"), "{}", run.stderr);
    assert!(run.stderr.contains("testkit broken` exited with code 3"), "{}", run.stderr);
}

#[test]
fn a_missing_program_has_a_hint() {
    let program = Program::new(&[("mcp.json", r#"{"servers": {"gone": {"command": "no-such-program"}}}"#)]);
    let run = program.run("servers");
    assert_eq!(run.code, 69);
    assert!(run.stdout.contains("command `no-such-program` was not found"), "{}", run.stdout);
    assert!(run.took < HANG_TIMEOUT, "{:?}", run.took);
}

#[test]
fn a_server_that_dies_during_a_call_is_reported() {
    let run = project(&["dies"]).run("tools call dies__echo message=x");
    assert_eq!(run.code, 1);
    let expected = "MCP server `dies` ended before it answered: \
                    its process exited with code 3; it wrote: out of memory, or so";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}

#[test]
fn an_oversized_result_fails_its_call() {
    let run = project(&["huge"]).run("tools call huge__echo message=x");
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("more than 4194304 bytes"), "{}", run.stderr);
}

#[test]
fn all_pages_are_read() {
    let run = project(&["pages"]).run("tools list --json");
    let tools: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    assert_eq!(tools.len(), 100);
    assert_eq!(tools[99]["name"], "tool99");
    let keys: Vec<_> = tools[0].as_object().expect("an object").keys().cloned().collect();
    assert_eq!(
        keys,
        [
            "name",
            "server",
            "title",
            "description",
            "inputSchema",
            "version",
            "risk",
            "idempotent",
            "cacheable",
            "state",
            "reason"
        ]
    );
}

#[test]
fn arguments_are_sent_unchanged() {
    let program = project(&["good"]);
    let arguments = r#"{"number":12345678901234567890123,"z":1.0,"a":-0,"e":1E2}"#;
    let run = program.run_list(&["tools", "call", "echo", "--args", arguments]);
    // The server parses and prints them; numbers it cannot represent are in its own notation.
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains(r#""z":1.0"#), "{}", run.stdout);
    let run = program.run("tools call good__echo message=42 number=7");
    assert_eq!(run.stdout.trim(), r#"{"message":"42","number":7}"#);
}

#[test]
fn every_content_type_is_shown() {
    let run = project(&["good"]).run("tools call picture");
    let lines: Vec<_> = run.stdout.lines().collect();
    assert!(
        lines[0].starts_with("[image image/png saved to ") && lines[0].ends_with(".png]"),
        "{}",
        run.stdout
    );
    assert!(
        lines[1].starts_with("[audio audio/wav saved to ") && lines[1].ends_with(".wav]"),
        "{}",
        run.stdout
    );
    assert_eq!(lines[2], "[resource test://one · one]");
    assert_eq!(lines[3..5], ["[test://two]", "two"]);
    assert!(run.stdout.contains(r#""type": "hologram""#), "{}", run.stdout);
}

#[test]
fn a_failed_call_fails_the_command_and_its_text_is_sanitized() {
    let program = project(&["good"]);
    let run = program.run("tools call fail");
    assert_eq!((run.code, run.stdout.as_str()), (1, "it did not work [2J\n"));
    let run = program.run("tools call fail --json");
    let answer: Json = serde_json::from_str(&run.stdout).expect("one JSON document");
    assert_eq!((run.code, &answer["status"]), (1, &json!("error")));
    let run = program.run("tools call nothing");
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("there is no tool `nothing`"), "{}", run.stderr);
}

#[test]
fn poisoned_definitions_are_quarantined_one_by_one() {
    let program = project(&["poisoned"]);
    let run = program.run("tools list --json");
    let tools: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    let states: Vec<_> =
        tools.iter().map(|tool| format!("{} {}", tool["name"], tool["state"]).replace('"', "")).collect();
    let held = |name: &str| format!("poisoned__{name} quarantined");
    assert_eq!(
        states,
        [
            "good ready".to_owned(),
            held("hidden"),
            held("bare"),
            "my-tool--- ready".to_owned(),
            "long ready".to_owned()
        ]
    );
    assert!(!run.stdout.contains('\u{200B}') && !run.stdout.contains('\u{202E}'));
    let run = program.run("tools call poisoned__hidden");
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("is quarantined: its description contains the invisible character U+200B"),
        "{}",
        run.stderr
    );
}

#[test]
fn prompts_and_resources() {
    let program = project(&["good"]);
    assert_eq!(program.run("prompts list").stdout.trim(), "greet of good  Greets a person");
    assert_eq!(program.run("prompts get good greet who=Ann").stdout.trim(), "user: Greet Ann.");
    assert!(program.run("resources list").stdout.starts_with("test://one of good"), "the resource");
    assert_eq!(program.run("resources read good test://one").stdout, "[test://one]\nthe content\n");
}

#[test]
fn disallowed_prompts_are_hidden() {
    let mut server = entry("good");
    server["prompts"] = json!(["other"]);
    let program = Program::new(&[("mcp.json", &json!({ "servers": { "good": server } }).to_string())]);
    assert_eq!(program.run("prompts list").stdout, "");
    let run = program.run("prompts get good greet who=Ann");
    assert!(run.stderr.contains("there is no prompt `greet` of `good`"), "{}", run.stderr);
}

#[test]
fn tools_by_server_category_and_tag() {
    let tool = |name: &str, category: &str, tag: &str| {
        json!({ "name": name, "description": "Mine.", "input_schema": { "type": "object" },
            "script_path": "a.py", "category": category, "tags": [tag] })
    };
    let own = json!({ "tools": [tool("find", "query", "cards"), tool("pay", "mutation", "cards"), tool("look", "query", "shops")] });
    let program = Program::new(&[
        ("toolgate.yaml", "registries: { tools: tools.json, mcp: mcp.json }\n"),
        ("mcp.json", &json!({ "servers": { "good": entry("good") } }).to_string()),
        ("tools.json", &own.to_string()),
        ("tools/a.py", ""),
    ]);
    let names = |line: &str| {
        let run = program.run(&format!("tools list --json {line}"));
        let tools = run.json();
        let names = tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("--category query"), "find look");
    assert_eq!(names("--category query --tag cards"), "find");
    assert_eq!(names("--tag cards"), "find pay");
    assert!(names("--server good").starts_with("echo environment"));
    assert_eq!(program.run("tools list --category none").code, 2);
    let shown = program.run("tools show find").stdout;
    assert!(shown.contains("version 1.0.0, low risk, may not be repeated, may not be cached"), "{shown}");
    let shown = program.run("tools show good__echo").stdout;
    assert!(shown.contains("version 1.0.0, high risk, may not be repeated, may not be cached"), "{shown}");
}

#[test]
fn a_server_gets_the_declared_environment() {
    let program = project(&[]);
    let mut server = entry("good");
    server["env"] = json!({ "DECLARED": "${SECRET}", "EMPTY": null });
    server["config"] = json!({ "allowed": ["a"] });
    program.write("mcp.json", json!({ "servers": { "good": server } }).to_string());
    let program = program.with("SECRET", "s3cret-value").with("UNDECLARED", "x");
    let run = program.run("tools call environment");
    let lines: Vec<_> = run.stdout.lines().filter(|line| !line.starts_with("PATH=")).collect();
    let projects = "TOOLGATE_PROJECTS=[project]";
    assert_eq!(lines, ["DECLARED=s3cret-value", "HOME=[home]", r#"MCP_CONFIG={"allowed":["a"]}"#, projects]);
}

/// Toolgate itself has secrets in its environment, and open files and sockets of its parent.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a shell hands descriptors on, which the standard library does not"
)]
fn a_server_gets_nothing_that_was_not_declared() {
    let program = project(&[]);
    let mut server = entry("curious");
    server["env"] = json!({ "DECLARED": "yes" });
    server["cwd"] = json!("inner");
    program.write("mcp.json", json!({ "servers": { "curious": server } }).to_string());
    program.write("inner/file", "");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    // Ten descriptors without close-on-exec: files, and sockets by a feature of bash.
    let files: String = (11..=15).map(|n| format!("exec {n}<inner/file\n")).collect();
    let sockets: String = (16..=20).map(|n| format!("exec {n}<>/dev/tcp/127.0.0.1/{port}\n")).collect();
    let call = "tools call curious__environment --json";
    // The control: another program inherits the last of them.
    let proof = "readlink /proc/self/fd/20 > /dev/null || exit 9";
    let script =
        format!("umask 022\n{files}{sockets}{proof}\nexec {} {call}\n", env!("CARGO_BIN_EXE_toolgate"));
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(&program.project).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &program.home);
    for name in ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "DATABASE_URL", "SSH_AUTH_SOCK"] {
        command.env(name, "s3cret-value");
    }
    let output = command.output().expect("the shell starts");
    let answer: Json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no document: {}", String::from_utf8_lossy(&output.stderr)));
    let found = &answer["data"];
    let names: Vec<_> = found["variables"].as_object().expect("an object").keys().collect();
    assert_eq!(names, ["DECLARED", "HOME", "PATH", "TOOLGATE_PROJECTS"]);
    assert_eq!(found["descriptors"], json!([0, 1, 2]));
    assert_eq!(found["folder"], json!(program.path("inner")));
    assert_eq!(found["umask"], "0077");
    assert!(!answer.to_string().contains("s3cret-value"));
}

#[test]
fn elicitation_is_refused_without_a_terminal() {
    let program = project(&["good"]);
    let answered = program.run("tools call good__ask --answers defaults");
    assert_eq!(answered.stdout.trim(), r#"{"action":"accept","content":{"size":42}}"#, "{}", answered.stderr);
    // Tests have no terminal.
    for how in ["ask", "decline"] {
        let refused = program.run(&format!("tools call good__ask --answers {how}"));
        assert!(refused.stdout.contains("`elicitation/create` is not offered here"), "{}", refused.stdout);
    }
}

#[test]
fn a_missing_input_is_reported_before_anything_starts() {
    let mut server = entry("good");
    server["env"] = json!({ "KEY": "${input:api-key}" });
    let inputs =
        json!([{ "id": "api-key", "type": "promptString", "description": "The key", "password": true }]);
    let program = Program::new(&[(
        "mcp.json",
        &json!({ "inputs": inputs, "servers": { "good": server } }).to_string(),
    )]);
    let run = program.run("servers");
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("input `api-key` is needed to start"), "{}", run.stderr);
    assert!(run.stderr.contains("hint: set `TOOLGATE_INPUT_API_KEY`"), "{}", run.stderr);
    let program = program.with("TOOLGATE_INPUT_API_KEY", "typed-before");
    let run = program.run("tools call environment");
    assert!(run.stdout.lines().any(|line| line == "KEY=typed-before"), "{}", run.stdout);
}

#[test]
fn a_strict_server_with_an_unconfigured_tool() {
    let command = testkit().display();
    let config = format!(
        "toolbox:\n  tools: [{{name: echo}}]\n  mcps:\n    - name: customers\n      command: {command}\n      \
         args: [good]\n      mode: strict\n"
    );
    let program = Program::new(&[("toolgate.yaml", &config)]);
    let run = program.run("tools list");
    assert_eq!((run.code, run.stdout.as_str()), (78, ""));
    let text = "Tool 'environment' from MCP server 'customers' is not configured in the toolbox.

MCP Server: customers
Mode: strict
Missing Tool: environment

Configured tools: [echo]

To resolve:
1. Add the tool to myai.toolbox.tools in your configuration, OR
2. Change the MCP server mode to 'dynamic' and provide default_tool_config
";
    assert!(run.stderr.contains(text), "{}", run.stderr);
}

#[test]
fn no_process_is_left_behind() {
    let program = project(&[]);
    let marker = format!("TOOLGATE_TEST_MARKER={}", std::process::id());
    let mut servers = serde_json::Map::new();
    for mode in ["good", "stubborn", "silent"] {
        let mut server = entry(mode);
        server["timeout"] = json!("1s");
        server["env"] = json!({ "TOOLGATE_TEST_MARKER": std::process::id().to_string() });
        servers.insert(mode.to_owned(), server);
    }
    program.write("mcp.json", json!({ "servers": servers }).to_string());
    program.run("servers");
    let start = wait_start();
    while processes_left(&marker) > 0 {
        assert!(start.elapsed() < HANG_TIMEOUT, "{} processes are left", processes_left(&marker));
        std::thread::yield_now();
    }
}

#[expect(clippy::disallowed_methods, reason = "processes end in real time")]
fn wait_start() -> Instant {
    Instant::now()
}
