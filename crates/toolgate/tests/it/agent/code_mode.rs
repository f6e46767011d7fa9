//! `exposure: code`: programs of the model call tools as functions, in the agent and in profiles.

use serde_json::{Value as Json, json};

use crate::agent::{ScriptedModel, call, events, project, results};
use crate::gateway::profiles;
use crate::support::gateway::Gateway;
use crate::support::program::{Program, RunOutput};
use crate::support::terminal::TerminalSession;
use crate::support::test_server::entry;

/// Creates a project whose agent calls the tools of `testkit good` in programs.
fn with_kit(model: &ScriptedModel, agent: &Json, policy: &str) -> Program {
    let mut agent = agent.clone();
    agent["exposure"] = "code".into();
    let more = json!({ "registries": { "mcp": "mcp.json" }, "agent": agent,
        "code_execution": { "enabled": true, "timeout": "10m" }, "results": { "max_inline": "4KiB" } });
    let program = project(model, &more).with("TERM", "xterm").with("API_SECRET", "hunter2");
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program.write("policy.cedar", policy);
    program
}

fn code(id: &str, code: &str) -> Json {
    call(id, "run_code", json!({ "code": code }))
}

/// Runs one program and returns its result for the model.
fn run_one(agent: &Json, policy: &str, program_text: &str) -> (String, Program, RunOutput) {
    let model = ScriptedModel::start(&json!([{ "calls": [code("c1", program_text)] }, { "text": "Done." }]));
    let program = with_kit(&model, agent, policy);
    let run = program.run_list(&["run", "--json", "go"]);
    let result = results(&run)[0].clone();
    (result, program, run)
}

/// The calls in the execution log, with the members of their first record.
fn log_records(program: &Program) -> Vec<Json> {
    let log = program.run("log --json");
    let calls = log.stdout.lines().map(|line| serde_json::from_str::<Json>(line).expect("a record"));
    calls
        .map(|call| if call["begin"].is_object() { call["begin"].clone() } else { call["end"].clone() })
        .collect()
}

#[test]
fn a_program_calls_tools_and_prints_little() {
    let text = "
total = 0
for number in range(5):
    reply = echo(message='x' * 1000, number=number)
    total += reply['number']
print('total', total)
print(type(picture()).__name__, end='')
";
    let model = ScriptedModel::start(&json!([{ "calls": [code("c1", text)] }, { "text": "It is 10." }]));
    let program = with_kit(&model, &json!({}), "");
    let run = program.run_list(&["run", "--json", "add up"]);
    assert!(results(&run)[0].starts_with("total 10\nlist"), "{run}");
    let ended = events(&run).pop().expect("an event");
    assert_eq!(
        (&ended["reason"], &ended["calls"]),
        (&json!("done"), &json!(7)),
        "six calls and the program: {run}"
    );
    let seen = model.seen();
    let names: Vec<&str> = seen[0]["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert!(names.contains(&"run_code") && !names.contains(&"echo"), "{names:?}");
    let about = seen[0]["tools"][0]["function"]["description"].as_str().expect("a text");
    assert!(about.contains("echo(message: str = None, number: float = None) -> str"), "{about}");
    assert!(!seen[1].to_string().contains("xxxxx"), "results stay in the program: {}", seen[1]);
    // Every call has its record; that of the program is of `code_execution`, and all have one trace.
    let records = log_records(&program);
    let of = |tool: &str| records.iter().filter(|record| record["tool"] == tool).count();
    assert_eq!((of("echo"), of("picture"), of("code_execution")), (5, 1, 1), "{records:?}");
    let traces: std::collections::BTreeSet<String> =
        records.iter().map(|record| record["trace"].to_string()).collect();
    assert_eq!(traces.len(), 1, "{records:?}");
    let shown = program.run(&format!("runs show {}", ended["run"].as_str().expect("an id")));
    assert!(shown.stdout.contains("the program made 6 calls"), "{shown}");
}

#[test]
fn denied_and_failed_calls_raise_errors() {
    let policy =
        "@id(\"no\") forbid(principal, action == Action::\"call\", resource == Tool::\"environment\");";
    let (result, program, run) = run_one(
        &json!({}),
        policy,
        "
for function, arguments in [(environment, {}), (fail, {}), (echo, {'number': 'seven'}), (echo, {'message': object()})]:
    try:
        print(function(**arguments))
    except ToolError as error:
        print(error.code, '-', error.message)
    except TypeError as error:
        print('TypeError')
fail()
",
    );
    for text in [
        "unauthorized - tool `environment` may not be called: the policy forbids it: no",
        "tool_execution_error - it did not work",
        "invalid_arguments - ",
        "TypeError",
        "Traceback",
        "File \"program.py\", line 9, in <module>",
    ] {
        assert!(result.contains(text), "{text}: {result}");
    }
    assert!(!result.contains(".main.py\", line") || result.contains("fail()"), "{result}");
    assert!(events(&run).iter().any(|event| event["event"] == "result" && event["failed"] == true), "{run}");
    let denied =
        log_records(&program).into_iter().find(|record| record["tool"] == "environment").expect("a record");
    assert_eq!(denied["decision"], "deny", "{denied}");
}

#[test]
fn a_call_in_a_program_needs_approval() {
    let model = ScriptedModel::start(&json!([
        { "calls": [code("c1", "print(echo(message='one'))\ntry:\n    echo(message='two')\nexcept ToolError as error:\n    print(error.code, error.hint)\n")] },
        { "text": "Done." },
    ]));
    let policy =
        "@ask(\"Shall it?\") forbid(principal, action == Action::\"call\", resource == Tool::\"echo\");";
    let program = with_kit(&model, &json!({}), policy);
    let mut screen = TerminalSession::open(&program, &["chat"]);
    screen.wait_for_prompt();
    screen.keys("go\r");
    screen.wait_screen("owner wants to call echo with {\"message\":\"one\"}");
    screen.wait("[y/N]", 1);
    screen.keys("y");
    screen.wait_screen("owner wants to call echo with {\"message\":\"two\"}");
    screen.wait("[y/N]", 2);
    screen.keys("n");
    screen.wait_screen("Done.");
    let seen = model.seen()[1].to_string();
    assert!(
        seen.contains("{'message': 'one'}")
            && seen.contains("unauthorized the person at the terminal said no"),
        "{seen}"
    );
    screen.wait_for_prompt();
    screen.keys("\u{4}");
    assert_eq!(screen.child.wait().expect("it ends").code(), Some(0), "{}", screen.shown());
}

#[test]
fn programs_are_bounded() {
    // The budget of the run counts the calls of its programs.
    let text = "
made = 0
try:
    while True:
        echo(message='x')
        made += 1
except ToolError as error:
    print(made, error.code, error.message)
";
    let (result, ..) = run_one(&json!({ "budgets": { "calls": 4 } }), "", text);
    assert!(result.starts_with("3 rate_limited the budget of 4 calls is used up"), "{result}");
    let (result, ..) = run_one(&json!({ "budgets": { "calls": 100_000, "writes": 100_000 } }), "", text);
    assert!(result.starts_with("200 rate_limited a program makes at most 200 calls"), "{result}");
    // Frames that the program makes up have no more rights than its functions.
    let (result, ..) = run_one(
        &json!({ "tools": ["echo", "code_execution"] }),
        "",
        "
import os
try:
    environment()
except NameError as error:
    print(error)
print(sorted(os.environ))
import subprocess
print(subprocess.run(['sh', '-c', 'ls /proc/self/fd; echo {\\\"call\\\":1}'], capture_output=True, text=True).stdout.split())
os.system('echo written by a child')
",
    );
    assert!(result.contains("name 'environment' is not defined"), "{result}");
    assert!(!result.contains("hunter2") && !result.contains("API_SECRET"), "{result}");
    assert!(result.contains("stderr: written by a child"), "{result}");
    // Too much output.
    let (result, ..) = run_one(&json!({}), "", "print('x' * 3_000_000)\n");
    assert!(result.contains("wrote more than 1MiB"), "{}", &result[..200.min(result.len())]);
}

/// The time limit holds for a program that closes its output.
#[test]
fn programs_end_in_time() {
    let quiet = "import os, time\nfor fd in range(64):\n    try:\n        os.close(fd)\n    except OSError:\n        pass\ntime.sleep(3000)\n";
    let model = ScriptedModel::start(&json!([{ "calls": [code("c1", quiet)] }, { "text": "Done." }]));
    let program = with_kit(&model, &json!({}), "");
    let mut config: Json = serde_json::from_str(&program.read("toolgate.yaml")).expect("the configuration");
    config["code_execution"]["timeout"] = "5s".into();
    program.write("toolgate.yaml", config.to_string());
    let run = program.run_list(&["run", "--json", "go"]);
    let result = results(&run)[0].clone();
    assert!(result.starts_with("error timeout: the code ran for more than 5s"), "{result}");
}

/// Content of an untrusted server taints the run inside of a program, too.
#[test]
fn programs_taint_the_run() {
    let policy = "@id(\"clean\") forbid(principal, action == Action::\"call\", resource == Tool::\"environment\") when { context.tainted };";
    let (result, ..) = run_one(
        &json!({}),
        policy,
        "
environment()
print('first')
try:
    environment()
except ToolError as error:
    print(error.code)
",
    );
    assert!(result.starts_with("first\nunauthorized"), "{result}");
    assert!(result.contains("from an untrusted source"), "the output is untrusted: {result}");
}

#[test]
fn a_caller_that_may_not_run_code_gets_the_tools() {
    let model = ScriptedModel::start(&json!([{ "text": "Hello." }]));
    let program = with_kit(&model, &json!({}), "");
    let config = program.read("toolgate.yaml");
    let mut config: Json = serde_json::from_str(&config).expect("the configuration");
    config["callers"] = json!([{ "id": "ann", "permissions": ["kit:*", "runs:start"] }]);
    program.write("toolgate.yaml", config.to_string());
    let run = program.run_list(&["run", "--as", "ann", "hello"]);
    assert_eq!(run.code, 0, "{run}");
    let tools = model.seen()[0]["tools"].to_string();
    assert!(tools.contains("\"echo\"") && !tools.contains("run_code"), "{tools}");
    // Without the tool that runs programs, the configuration is an error.
    let program = project(&model, &json!({ "agent": { "exposure": "code" } }));
    let check = program.run("check");
    assert_eq!(check.code, 78, "{check}");
    assert!(format!("{check}").contains("`exposure: code` needs the tool `code_execution`"), "{check}");
}

#[test]
fn many_functions_are_found_by_search() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "find_functions", json!({ "query": "tool73" }))] },
        { "calls": [code("c2", "print(tool73(message='x'))")] },
        { "text": "Done." },
    ]));
    let program = with_kit(&model, &json!({}), "");
    let servers = json!({ "servers": { "many": entry("pages"), "more": entry("pages") } });
    program.write("mcp.json", servers.to_string());
    let run = program.run_list(&["run", "--json", "go"]);
    let results = results(&run);
    assert!(results[0].contains("tool73(message: str = None, number: float = None) -> str"), "{run}");
    let about = model.seen()[0]["tools"][0]["function"]["description"].as_str().expect("a text").to_owned();
    assert!(!about.contains("tool73(") && about.contains("`find_functions`"), "{about}");
}

#[test]
fn a_profile_runs_programs() {
    let code = json!({ "enabled": true, "timeout": "10m" });
    let gateway = profiles::start_gateway(
        &json!({ "code": { "exposure": "code", "tools": { "exclude": "delete_all", "as": { "time.now": { "name": "clock" } } } },
            "none": { "exposure": "code", "tools": ["shapes"] } }),
        &json!({ "code_execution": code }),
    );
    assert_eq!(
        profiles::names(&gateway, "/mcp/code", crate::support::gateway::OWNER),
        ["run_code", "find_functions"]
    );
    assert_eq!(
        profiles::names(&gateway, "/mcp/none", crate::support::gateway::OWNER),
        ["shapes"],
        "it cannot run code"
    );
    let found =
        profiles::call(&gateway, "/mcp/code", "find_functions", &json!({ "query": "what time is it" }));
    assert_eq!(
        found["result"]["structuredContent"]["functions"][0]["signature"], "clock(zone: str) -> str",
        "{found}"
    );
    let run = |text: &str| profiles::call(&gateway, "/mcp/code", "run_code", &json!({ "code": text }));
    let answer = run(
        "print(clock('UTC')['said'], clock(zone='CET'))\ntry:\n    delete_all()\nexcept NameError:\n    print('none')\n",
    );
    let stdout = &answer["result"]["structuredContent"]["stdout"];
    assert_eq!(*stdout, "{'zone': 'UTC'} {'said': {'zone': 'CET'}}\nnone\n", "{answer}");
    let answer = run("clock()");
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(answer.to_string().contains("ToolError: invalid_arguments"), "{answer}");
    // A caller without the permission of `code_execution` has the tools themselves.
    assert_eq!(names_of_bob(&gateway), ["clock"]);
}

fn names_of_bob(gateway: &Gateway) -> Vec<String> {
    profiles::names(gateway, "/mcp/code", "a-key-that-bob-has-alone")
}
