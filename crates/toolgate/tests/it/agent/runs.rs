//! `toolgate run`, `runs`, `resume`, `replay` and `chat` with real tools and a scripted model.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::agent::{KEY, ScriptedModel, call, events, project};
use crate::support::gateway::wait_until;
use crate::support::program::{Program, RunOutput};
use crate::support::scripts::write_script;
use crate::support::test_server::{entry, processes_left};

/// Creates a project with the tools of `testkit good`.
fn with_kit(model: &ScriptedModel, agent: Json) -> Program {
    let program = project(model, &json!({ "registries": { "mcp": "mcp.json" }, "agent": agent }));
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program
}

fn ended_event(run: &RunOutput) -> Json {
    let last = events(run).pop().expect("an ended event");
    assert_eq!(last["event"], "ended", "{run}");
    last
}

#[test]
fn a_task_is_done_with_tools() {
    let model = ScriptedModel::start(&json!([
        { "text": "Let me see.", "calls": [call("c1", "echo", json!({ "message": "hi" })), call("c2", "picture", json!({}))] },
        { "text": "It says **hi**." },
    ]));
    let program = with_kit(&model, json!({ "instructions": "Be kind." }));
    let run = program.run_list(&["run", "say hi"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "It says **hi**.\n"), "{run}");
    assert!(run.stderr.contains("✓ [1] echo {\"message\":\"hi\"} · "), "{run}");
    assert!(run.stderr.contains("2 turns · 2 calls · 220 tokens"), "{run}");
    let [first, second] = &model.seen()[..] else { panic!("two requests") };
    let expected = first["messages"][0]["content"].as_str().unwrap();
    assert!(expected.starts_with("You are helper.\n\nBe kind.\n\n"), "{expected}");
    let names: Vec<_> =
        first["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    for name in ["echo", "picture", "request_human_input", "read_result", "list_resources", "read_resource"] {
        assert!(names.contains(&&json!(name)), "{name}: {names:?}");
    }
    // Text, image, audio, link, resource, and an unknown content type.
    let messages = second["messages"].as_array().unwrap();
    assert_eq!(messages[3]["tool_call_id"], "c1");
    let picture = messages[4]["content"].as_str().unwrap();
    for part in [
        "[image/png, in the next message]",
        "[resource test://one · one]",
        "[test://two]\ntwo",
        "type `hologram`",
    ] {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    let shown = messages[5].to_string();
    assert!(shown.contains("data:image/png;base64,iVBORw0KGgo=") && shown.contains("input_audio"), "{shown}");
    // Calls of a run are in the execution log, with the id of the run.
    let log = program.run("log --json");
    assert_eq!(log.stdout.lines().count(), 2, "{log}");
    assert!(!format!("{run}{log}").contains(KEY));
    for (path, bytes) in program.files() {
        let text = String::from_utf8_lossy(&bytes);
        assert!(path.ends_with("toolgate.yaml") || !text.contains(KEY), "{}", path.display());
    }
}

#[test]
fn json_output_has_events_and_runs_are_listed() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "echo", json!({ "message": "hi" }))], "usage": { "input": 1000, "output": 100 } },
        { "text": "Done.", "usage": { "input": 2000, "output": 10 } },
    ]));
    let mut spec = model.model();
    spec["price"] = json!({ "input": 1.0, "output": 10.0 });
    let program = with_kit(&model, json!({ "model": spec }));
    let run = program.run_list(&["run", "--json", "say hi"]);
    let names: Vec<_> =
        events(&run).iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    let without_text: Vec<_> = names.iter().filter(|name| *name != "text").map(String::as_str).collect();
    assert_eq!(without_text, ["begun", "said", "call", "result", "said", "ended"], "{run}");
    let end = ended_event(&run);
    assert_eq!((&end["reason"], &end["answer"], &end["calls"]), (&json!("done"), &json!("Done."), &json!(1)));
    let cost = end["cost"].as_f64().unwrap();
    assert!((cost - 0.0041).abs() < 1e-9, "{cost}");
    let runs = program.run("runs --json").json();
    assert_eq!(
        (&runs[0]["run"], &runs[0]["state"], &runs[0]["task"]),
        (&end["run"], &json!("done"), &json!("say hi"))
    );
    let id = end["run"].as_str().unwrap();
    let shown = program.run(&format!("runs show {}", &id[..18]));
    assert_eq!(shown.code, 0, "{shown}");
    assert!(shown.stdout.contains("> say hi") && shown.stdout.contains("✓ echo"), "{shown}");
    assert!(shown.stdout.contains("▸ echo {\"message\":\"hi\"}"), "{shown}");
    let none = program.run("runs show nothing");
    assert_eq!(none.code, 1, "{none}");
}

#[test]
fn invalid_calls_of_a_model_reach_no_tool() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "echo", json!("{\"message\": ")), call("c2", "no_such_tool", json!({})),
            call("c3", "fail", json!({})), call("c4", "echo", json!({ "number": "seven" }))] },
        { "text": "I am sorry." },
    ]));
    let run = with_kit(&model, json!({})).run_list(&["run", "--json", "do something"]);
    assert_eq!(ended_event(&run)["reason"], "done");
    let results: Vec<_> = events(&run).into_iter().filter(|event| event["event"] == "result").collect();
    let text = |at: usize| results[at]["text"].as_str().unwrap().to_owned();
    assert!(
        text(0).starts_with("error invalid_arguments: the arguments are not JSON that can be used"),
        "{run}"
    );
    assert!(text(1).starts_with("error tool_not_found: there is no tool `no_such_tool`"), "{run}");
    assert!(text(2).starts_with("error tool_execution_error: it did not work"), "{run}");
    assert!(text(3).starts_with("error invalid_arguments: "), "{run}");
    assert!(results.iter().all(|result| result["failed"] == true));
}

#[test]
fn model_errors_have_hints() {
    let cases = [
        (json!({ "status": 401, "error": format!("bad key {KEY}") }), "model_failed", "`model.key`"),
        (json!({ "stop": "refused" }), "refused", "I will not do that."),
        (json!({ "text": "Once upon", "stop": "length" }), "cut_off", "`model.max_tokens`"),
        (json!({ "text": "" }), "silent", "the model returned no text and no calls"),
    ];
    for (turn, reason, words) in cases {
        let model = ScriptedModel::start(&json!([turn]));
        let run = with_kit(&model, json!({})).run_list(&["run", "do it"]);
        assert_eq!(run.code, 1, "{run}");
        assert!(run.stderr.contains(&format!("{reason}: ")) && run.stderr.contains(words), "{run}");
        assert!(!run.stderr.contains(KEY), "{run}");
    }
    let none =
        Program::new(&[("toolgate.yaml", "name: x\nagent: { model: { provider: anthropic, name: m } }")]);
    let run = none.run_list(&["run", "do it"]);
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("hint: set `ANTHROPIC_API_KEY`"), "{run}");
}

#[test]
fn budgets_end_a_run() {
    let echo = |id: &str| json!({ "calls": [call(id, "echo", json!({ "message": id }))] });
    let turns = json!([echo("a"), echo("b"), echo("c"), echo("d"), echo("e"), { "text": "Enough." }]);
    for (budgets, what, calls) in [
        (json!({ "calls": 2 }), "`budgets.calls` is 2", 2),
        (json!({ "writes": 1 }), "`budgets.writes` is 1", 1),
        (json!({ "tokens": 250 }), "`budgets.tokens` is 250", 3),
        (json!({ "cost": 0.0002 }), "`budgets.cost` is 0.0002", 1),
    ] {
        let model = ScriptedModel::start(&turns);
        let mut spec = model.model();
        spec["price"] = json!({ "input": 1.0, "output": 10.0 });
        let program = with_kit(&model, json!({ "budgets": budgets, "model": spec }));
        let run = program.run_list(&["run", "--json", "go"]);
        let end = ended_event(&run);
        assert_eq!((run.code, &end["reason"], &end["calls"]), (1, &json!("budget"), &json!(calls)), "{run}");
        assert!(end["error"].as_str().unwrap().ends_with(what), "{run}");
    }
    // The deadline ends a run during a call.
    let model = ScriptedModel::start(&json!([{ "silent": true }]));
    let run = with_kit(&model, json!({ "budgets": { "time": "1s" } })).run_list(&["run", "--json", "go"]);
    assert_eq!(ended_event(&run)["error"], "budget used up: `budgets.time` is 1s", "{run}");
}

/// Appends a line to a file and then blocks.
const ADD: &str = "#!/bin/sh\ncat > /dev/null\necho once >> \"$FILE\"\nif [ ! -e \"$FILE.go\" ]; then sleep 600; fi\necho '{}'\n";

#[test]
fn a_resumed_run_does_not_repeat_interrupted_calls() {
    let model = ScriptedModel::start(&json!([
        { "text": "I add.", "calls": [call("c1", "add", json!({})), call("c2", "add", json!({}))] },
        { "text": "I do not know whether it was added." },
    ]));
    let program = project(&model, &json!({ "registries": { "tools": "tools/tools.json" } }));
    let file = program.path("lines");
    let tool = json!({ "name": "add", "description": "Adds a line.", "script_path": "add.sh", "timeout": "500s",
        "input_schema": { "type": "object" }, "env": { "FILE": file } });
    program.write("tools/tools.json", json!({ "tools": [tool] }).to_string());
    write_script(&program, "add.sh", ADD);
    let mut running = program.start("run --json add");
    wait_until("the tool runs", || fs_err::read_to_string(&file).is_ok_and(|text| text == "once\n"));
    running.child.kill().expect("the process is a child");
    running.child.wait().expect("it ends");
    drop(running);
    let runs = program.run("runs --json").json();
    assert_eq!(runs[0]["state"], "interrupted");
    let id = runs[0]["run"].as_str().unwrap();
    // From here on the tool returns, so that the second call completes.
    program.write("lines.go", "");
    let run = program.run_list(&["run", "--json", "--resume", &id[..18]]);
    let end = ended_event(&run);
    assert_eq!((run.code, &end["reason"]), (0, &json!("done")), "{run}");
    assert_eq!(program.read("lines"), "once\nonce\n", "the first call is not repeated, the second is made");
    let seen = model.seen();
    let results: Vec<_> = seen.last().unwrap()["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["role"] == "tool")
        .collect();
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(
        results[0]["content"].as_str().unwrap().contains("the call may have taken effect"),
        "{results:?}"
    );
    assert!(!results[1]["content"].as_str().unwrap().contains("taken effect"), "{results:?}");
    let again = program.run_list(&["run", "--resume", id]);
    assert_eq!(again.code, 1, "{again}");
    let expected =
        format!("error: run `{id}` has already ended\nhint: continue it with `toolgate chat --resume {id}`");
    assert!(again.stderr.contains(&expected), "{again}");
}

/// Tools added to tools.json during a run are available in its next turn.
#[test]
fn tools_added_during_a_run_are_used() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "wait", json!({}))] },
        { "text": "Done." },
    ]));
    let program = project(&model, &json!({ "registries": { "tools": "tools/tools.json" } }));
    let tool = |name: &str| {
        json!({ "name": name, "description": "Waits.", "script_path": "wait.sh", "timeout": "50s",
            "input_schema": { "type": "object" }, "env": { "FILE": program.path("go") } })
    };
    program.write("tools/tools.json", json!({ "tools": [tool("wait")] }).to_string());
    let script =
        "#!/bin/sh\ntouch \"$FILE.began\"\nwhile ! [ -e \"$FILE\" ]; do sleep 0.05; done\necho '{}'\n";
    write_script(&program, "wait.sh", script);
    let running = program.start("run --json wait");
    wait_until("the tool runs", || program.path("go.began").exists());
    program.write("tools/tools.json", json!({ "tools": [tool("wait"), tool("later")] }).to_string());
    // The files are polled every second.
    std::thread::sleep(Duration::from_secs(4));
    program.write("go", "");
    running.line(|line| line.contains("\"ended\""));
    let names = |seen: &Json| -> Vec<String> {
        let tools = seen["tools"].as_array().unwrap().iter();
        tools.filter_map(|tool| Some(tool["function"]["name"].as_str()?.to_owned())).collect()
    };
    let seen = model.seen();
    assert!(!names(&seen[0]).contains(&"later".to_owned()), "{:?}", names(&seen[0]));
    assert!(names(&seen[1]).contains(&"later".to_owned()), "{:?}", names(&seen[1]));
}

/// Errors come first, then the hint.
#[test]
fn unknown_runs_are_rejected() {
    let program = project(&ScriptedModel::start(&json!([])), &json!({}));
    for arguments in ["run --resume nope", "chat --resume nope", "runs show nope"] {
        let run = program.run(arguments);
        let expected = "error: no such run: `nope`\nhint: list runs with `toolgate runs`\n";
        assert_eq!((run.code, run.stderr.ends_with(expected)), (1, true), "{run}");
    }
    let run = program.run("run --replay x text");
    assert_eq!(run.code, 2, "{run}");
    assert!(run.stderr.contains("       toolgate run [OPTIONS] --replay <FILE>\n"), "{run}");
}

#[test]
fn ctrl_c_stops_model_tools_and_servers() {
    let model = ScriptedModel::start(&json!([{ "calls": [call("c1", "add", json!({}))] }]));
    let program = project(&model, &json!({ "registries": { "tools": "tools/tools.json" } }));
    let file = program.path("lines");
    let tool = json!({ "name": "add", "description": "Adds a line.", "script_path": "add.sh", "timeout": "500s",
        "input_schema": { "type": "object" }, "env": { "FILE": file } });
    program.write("tools/tools.json", json!({ "tools": [tool] }).to_string());
    write_script(&program, "add.sh", ADD);
    let mut running = program.start("run --json add");
    wait_until("the tool runs", || file.exists());
    let id = i32::try_from(running.child.id()).expect("a process");
    let id = rustix::process::Pid::from_raw(id).expect("a process");
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("the process is a child");
    let (line, _) = running.line(|line| line.contains("\"ended\""));
    assert!(line.contains("\"reason\":\"interrupted\""), "{line}");
    assert_eq!(running.child.wait().expect("it ends").code(), Some(130));
    let marker = file.display().to_string();
    wait_until("nothing is left", || processes_left(&marker) == 0);
}

#[test]
fn a_run_is_replayed_without_model_and_tools() {
    let secret = "s3cret-of-the-project";
    let model = ScriptedModel::start(&json!([
        { "text": "Hm.", "calls": [call("c1", "echo", json!({ "message": secret }))] },
        { "text": format!("It is {secret}.") },
    ]));
    let program = with_kit(&model, json!({ "instructions": "${WORD}" })).with("WORD", secret);
    let run = program.run_list(&["run", "--json", "--record", "record.jsonl", "say it"]);
    assert_eq!(run.code, 0, "{run}");
    let record = program.read("record.jsonl");
    assert!(!record.contains(secret) && record.contains("***"), "{record}");
    drop(model);
    let elsewhere = Program::new(&[("record.jsonl", &record)]);
    let again = elsewhere.run_list(&["run", "--json", "--replay", "record.jsonl"]);
    assert_eq!(again.code, 0, "{again}");
    let shape = |run: &RunOutput| {
        let events = events(run).into_iter().filter(|event| event["event"] != "text");
        events
            .map(|event| (event["event"].clone(), event["tool"].clone(), event["failed"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(shape(&again), shape(&run));
    assert_eq!(ended_event(&again)["answer"], "It is ***.");
    assert!(elsewhere.files().len() == 1, "nothing is written: {:?}", elsewhere.files().keys());
}

#[test]
fn a_chat_without_a_terminal_reads_lines() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "echo", json!({ "message": "one" }))] },
        { "text": "First." },
        { "text": "Second." },
        { "text": "Third." },
    ]));
    let program = with_kit(&model, json!({}));
    let typed = "hello\n\n/show 1\n/cost\n/why echo\n/tools\n/nonsense\nand now?\n/quit\n";
    let run = run_with_stdin(&program, &["chat"], typed);
    assert_eq!((run.code, run.stdout.as_str()), (0, "First.\nSecond.\n"), "{run}");
    for words in
        ["echo {", "2 turns · 1 call · 220 tokens", "allow: owner and echo", "unknown command `/nonsense`"]
    {
        assert!(run.stderr.contains(words), "{words}: {run}");
    }
    let messages = model.seen()[2]["messages"].as_array().unwrap().len();
    assert_eq!(messages, 6, "the second request contains the first");
    // A chat can be resumed.
    let id = program.run("runs --json").json()[0]["run"].as_str().unwrap().to_owned();
    let run = run_with_stdin(&program, &["chat", "--resume", &id], "and then?\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, "Third.\n"), "{run}");
    assert_eq!(model.seen()[3]["messages"].as_array().unwrap().len(), 8);
}

/// Runs a command with this stdin.
fn run_with_stdin(program: &Program, arguments: &[&str], typed: &str) -> RunOutput {
    use std::io::Write as _;
    let mut command = program.command(arguments);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the executable starts");
    child.stdin.take().expect("it is piped").write_all(typed.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    RunOutput {
        code: output.status.code().expect("no signal ended it"),
        stdout,
        stderr,
        took: Default::default(),
    }
}

#[test]
fn tools_are_searched_if_there_are_many() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "search_tools", json!({ "query": "tool73" }))] },
        { "calls": [call("c2", "tool73", json!({ "message": "x" }))] },
        { "text": "Found." },
    ]));
    let program = project(&model, &json!({ "registries": { "mcp": "mcp.json" } }));
    program.write("mcp.json", json!({ "servers": { "many": entry("pages") } }).to_string());
    let run = program.run_list(&["run", "--json", "use tool12"]);
    assert_eq!(ended_event(&run)["reason"], "done", "{run}");
    let names = |at: usize| -> Vec<String> {
        let seen = model.seen();
        seen[at]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let (first, second) = (names(0), names(1));
    assert!(first.contains(&"search_tools".to_owned()) && first.contains(&"tool12".to_owned()), "{first:?}");
    assert!(first.len() < 45 && !first.contains(&"tool73".to_owned()), "{first:?}");
    assert!(second.contains(&"tool73".to_owned()), "{second:?}");
}
