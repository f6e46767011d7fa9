//! Commands that run in the gateway of the project: the same output, no server started twice.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value as Json, json};

use crate::agent::{ScriptedModel, call, project as agent_project};
use crate::support::gateway::{Gateway, project, wait_until};
use crate::support::program::Program;
use crate::support::terminal::TerminalSession;
use crate::support::test_server::entry;

/// Returns the number of times that the server was started.
fn starts(program: &Program) -> usize {
    let seen = fs_err::read_to_string(program.path("seen")).unwrap_or_default();
    let seen = seen.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    seen.filter(|line| line["message"]["method"] == "initialize").count()
}

/// A project with a server, an own caller, and a rule.
fn shared_project() -> Program {
    let program = project(&json!({
        "server": { "isolation": "shared" },
        "callers": [{ "id": "ci", "api_key": "the-key-of-ci-is-this", "permissions": ["s:echo"] }] }));
    program.write(
        "policy.cedar",
        r#"@ask("Really?") forbid(principal, action == Action::"call", resource == Tool::"fail");"#,
    );
    program
}

#[test]
fn commands_print_the_same_through_the_gateway() {
    let lines = [
        "tools list",
        "tools list --json",
        "tools list --server s --as ci",
        "tools list --server nobody",
        "tools list --as nobody",
        "tools show echo",
        "tools show echo --json",
        "tools show gone",
        "tools call echo message=hello",
        "tools call echo message=x --as ci",
        "tools call echo fault=is-error message=boom",
        "tools call fail a=1",
        "tools call gone",
        "tools call gone --json",
        "tools search echo a message --json",
        "why ci echo --json",
        "why ci fail",
        "why nobody echo",
        "why ci gone",
        "prompts list --json",
        "resources list",
        "servers show nobody",
        "prompts get s gone",
    ];
    let program = shared_project();
    // The first start writes the pins.
    assert_eq!(program.run("tools list").code, 0);
    let alone: Vec<_> = lines.iter().map(|line| program.run(line)).collect();
    let gateway = Gateway::serve(program);
    let before = starts(&gateway.program);
    for (line, alone) in lines.iter().zip(alone) {
        let run = gateway.program.run(line);
        let shown = |text: &str| without_ids(text);
        assert_eq!(run.code, alone.code, "{line}: {run}\n----- standalone\n{alone}");
        assert_eq!(shown(&run.stdout), shown(&alone.stdout), "{line}: {run}");
        assert_eq!(shown(&run.stderr), shown(&alone.stderr), "{line}");
    }
    assert_eq!(starts(&gateway.program), before, "the gateway has the server already");
    let run = gateway.program.run("--standalone tools call echo message=hello");
    assert_eq!((run.code, run.stdout.as_str()), (0, "hello\n"), "{run}");
    assert_eq!(starts(&gateway.program), before + 1, "a server of its own");
    // Calls of commands are in the log of the gateway, by the caller of the command.
    let calls = gateway.executions("tool=echo&caller=ci");
    assert_eq!(calls.len(), 2, "one before the gateway started, one in it: {calls:#?}");
}

/// Replaces ids and times in JSON, which differ between calls.
fn without_ids(text: &str) -> String {
    let Ok(mut json) = serde_json::from_str::<Json>(text) else { return text.to_owned() };
    fn clear(json: &mut Json) {
        match json {
            Json::Object(fields) => fields.iter_mut().for_each(|(key, value)| {
                let varies = ["correlation_id", "correlationId", "trace_id", "traceId", "call_id", "callId"];
                if varies.contains(&key.as_str())
                    || value.is_f64()
                    || key.contains("time")
                    || key.contains("ms")
                {
                    *value = Json::Null;
                } else {
                    clear(value);
                }
            }),
            Json::Array(items) => items.iter_mut().for_each(clear),
            _ => {}
        }
    }
    clear(&mut json);
    json.to_string()
}

#[test]
fn the_person_at_the_command_approves_its_call() {
    let gateway = Gateway::serve(shared_project());
    let call = ["tools", "call", "fail", "message=sent"];
    for (key, shown, code) in [("y\n", "\r\nsent\r\n", 0), ("n\n", "not approved: Really?", 1)] {
        let mut screen = TerminalSession::open(&gateway.program, &call);
        screen.wait("Really? [y/N] ", 1);
        assert!(
            screen.shown().contains(r#"owner wants to call fail with {"message":"sent"}"#),
            "{}",
            screen.shown()
        );
        screen.keys(key);
        let ended = screen.child.wait().expect("it ends");
        wait_until(shown, || screen.shown().contains(shown));
        assert_eq!(ended.code(), Some(code), "{}", screen.shown());
    }
    // Without a terminal no person can be reached, in the gateway as elsewhere.
    insta::assert_snapshot!(gateway.program.run("tools call fail a=1"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: not approved: Really?
    hint: no person can be reached here; run `toolgate tools call` in a terminal to approve the call
    ");
}

#[test]
fn an_agent_runs_in_the_gateway_and_asks_at_the_command() {
    let ask = call("c1", "request_human_input", json!({ "question": "Which colour?" }));
    let form = call("c2", "ask", json!({ "mode": "form", "message": "A size?" }));
    let model = ScriptedModel::start(
        &json!([{ "calls": [ask] }, { "calls": [form] }, { "text": "Done." }, { "text": "Again." }]),
    );
    let more = json!({ "registries": { "mcp": "mcp.json" }, "agent": { "elicitation": "ask" } });
    let program = agent_project(&model, &more).with("TERM", "xterm");
    let mut server = entry("good");
    server["env"] = json!({ "TESTKIT_LOG": program.path("seen") });
    program.write("mcp.json", json!({ "servers": { "kit": server } }).to_string());
    let gateway = Gateway::serve(program);
    let before = starts(&gateway.program);
    let mut screen = TerminalSession::open(&gateway.program, &["run", "ask"]);
    screen.wait("owner asks", 1);
    screen.wait("Which colour?", 1);
    screen.keys("blue\r");
    screen.wait("A size?", 1);
    screen.wait("size\u{1b}[0m (integer, optional) [42]: ", 1);
    screen.keys("7\r");
    screen.wait("Done.", 1);
    let status = screen.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", screen.shown());
    let seen = model.seen();
    assert!(seen[1].to_string().contains("blue"), "{}", seen[1]);
    assert!(seen[2].to_string().contains(r#"\"size\":7"#), "{}", seen[2]);
    // The content of attached files comes from the client, and the recording goes to its folder.
    gateway.program.write("note.txt", "attached by the client");
    let run = gateway.program.run_list(&["run", "--attach", "note.txt", "--record", "run.jsonl", "go on"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "Again.\n"), "{run}");
    assert!(model.seen()[3].to_string().contains("attached by the client"));
    assert!(gateway.program.read("run.jsonl").contains("Again."));
    assert_eq!(starts(&gateway.program), before, "the gateway has the server already");
}

#[test]
fn ctrl_c_ends_the_command_and_its_call() {
    let gateway = Gateway::serve(shared_project());
    let running = gateway.program.start("tools call echo fault=never");
    gateway.wait("the call", |gateway| !gateway.seen().is_empty());
    let mut running = running;
    signal(&running.child, "-INT");
    let ended = running.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(130), "{}", gateway.program.read("~/stderr"));
    gateway.wait("the record", |gateway| {
        gateway.executions("tool=echo").first().is_some_and(|call| call["end"]["status"] == "abandoned")
    });
}

#[test]
fn a_gateway_that_dies_ends_the_command_with_an_error() {
    let mut gateway = Gateway::serve(shared_project());
    let mut running = gateway.program.start("tools call echo fault=never");
    gateway.wait("the call", |gateway| !gateway.seen().is_empty());
    gateway.running.child.kill().expect("it runs");
    gateway.running.child.wait().expect("it ends");
    let ended = running.child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(1));
    insta::assert_snapshot!(gateway.program.read("~/stderr"), @r"
    error: the running gateway stopped before the command ended
    hint: the call may have been made: see `toolgate log`
    ");
    // Its sockets are left behind. Commands start the servers themselves again.
    assert!(gateway.program.path(".toolgate/commands").exists());
    let run = gateway.program.run("tools call echo message=hello");
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "hello\n", ""), "{run}");
}

#[test]
fn only_the_owner_uses_the_socket() {
    let gateway = Gateway::serve(shared_project());
    let socket = gateway.program.path(".toolgate/commands");
    let mode = fs_err::metadata(&socket).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = gateway.program.path(".toolgate");
    assert_eq!(fs_err::metadata(&folder).expect("it exists").permissions().mode() & 0o077, 0);
    // A link in its place leads elsewhere, so it is not followed.
    let other = Gateway::serve(shared_project());
    fs_err::remove_file(&socket).expect("it is ours");
    fs_err::os::unix::fs::symlink(other.program.path(".toolgate/commands"), &socket).expect("it is free");
    let run = gateway.program.run("tools call echo message=hello");
    assert_eq!((run.code, run.stdout.as_str()), (0, "hello\n"), "{run}");
    assert!(other.seen().is_empty(), "the other gateway got nothing");
}

#[test]
fn another_project_file_is_another_project() {
    let gateway = Gateway::serve(shared_project());
    gateway.program.write("other.yaml", "toolbox: {}\n");
    insta::assert_snapshot!(gateway.program.run("--file other.yaml tools list"), @r"
    exit code 0
    ----- stdout
    ----- stderr
    note: the running gateway is not used: it uses another project file
    next: show one with `toolgate tools show NAME`, call it with `toolgate tools call NAME key=value`
    ");
}

#[expect(clippy::disallowed_methods, reason = "a signal, without unsafe code")]
fn signal(child: &std::process::Child, name: &str) {
    let status = std::process::Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.expect("`kill` is installed").success());
}
