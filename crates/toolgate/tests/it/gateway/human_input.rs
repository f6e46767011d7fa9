//! Questions to people: `request_human_input`, rules with `@ask`, and every way to answer.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, wait_until};
use crate::support::program::{HANG_TIMEOUT, Program};

const ASK: &str = "request_human_input";

/// Config with callers that ask (`ann`) and that answer (`bob`).
fn config(more: &Json) -> Json {
    let mut config = json!({
        "human_input": {},
        "callers": [
            { "id": "ann", "permissions": ["tools:*", "s:*"], "api_key": "key-of-ann" },
            { "id": "bob", "permissions": ["human_input:*", "approvals:*"], "api_key": "key-of-bob" },
            { "id": "eve", "permissions": ["tools:*", "s:*", "human_input:*", "approvals:*"], "api_key": "key-of-eve" },
        ],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// Waits for the only open question.
fn waiting(gateway: &Gateway, place: &str, member: &str) -> Json {
    let mut found = Json::Null;
    wait_until("a question", || {
        let list = gateway.get(&format!("/v1/{place}"), "key-of-bob").json();
        found.clone_from(&list[member][0]);
        !found.is_null()
    });
    found
}

fn id(question: &Json) -> &str {
    question["id"].as_str().expect("an id")
}

/// Calls the tool in the background, runs `meanwhile` with its question, and returns the response.
fn ask_in_background(
    gateway: &Gateway,
    key: &str,
    arguments: &Json,
    meanwhile: impl FnOnce(&Json),
) -> HttpResponse {
    thread::scope(|scope| {
        let call = scope.spawn(|| gateway.call(key, ASK, arguments));
        meanwhile(&waiting(gateway, "human-input", "questions"));
        call.join().expect("an answer")
    })
}

#[test]
fn answers_over_http() {
    let gateway = Gateway::start(&config(&json!({})));
    let question = json!({ "question": "Which account?", "choices": ["savings", "current"] });
    let answer = ask_in_background(&gateway, "key-of-eve", &question, |question| {
        assert_eq!(question["text"], "Which account?");
        assert_eq!(question["choices"], json!(["savings", "current"]));
        assert_eq!((&question["caller"], &question["tool"]), (&json!("eve"), &json!(ASK)));
        let path = format!("/v1/human-input/{}", id(question));
        assert_eq!(gateway.get(&path, "key-of-bob").json(), *question);
        let post = |key: &str, body: Json| gateway.post(&path, key, &body).status_and_code();
        let outcome = |status, code: &str| (status, code.to_owned());
        assert_eq!(post("key-of-ann", json!({ "answer": "savings" })), outcome(403, "unauthorized"));
        assert_eq!(
            post("key-of-eve", json!({ "answer": "savings" })),
            outcome(403, "unauthorized"),
            "its own"
        );
        assert_eq!(post("key-of-bob", json!({ "answer": "both" })), outcome(422, "invalid_arguments"));
        assert_eq!(post("key-of-bob", json!({})), outcome(400, "invalid_request"));
        assert_eq!(
            post("key-of-bob", json!({ "answer": "x", "decline": true })),
            outcome(400, "invalid_request")
        );
        let other = format!("/v1/approvals/{}", id(question));
        assert_eq!(gateway.post(&other, "key-of-bob", &json!({ "approve": true })).status, 404);
        assert_eq!(gateway.get("/v1/human-input", "key-of-ann").status, 403);
        assert_eq!(post("key-of-bob", json!({ "answer": "savings" })), outcome(200, "none"));
        assert_eq!(
            post("key-of-bob", json!({ "answer": "current" })),
            outcome(404, "not_found"),
            "a question is answered once"
        );
    });
    assert_eq!(answer.json()["data"], json!({ "action": "accept", "answer": "savings", "by": "bob" }));
    let declined =
        ask_in_background(&gateway, "key-of-ann", &json!({ "question": "And why?" }), |question| {
            let body = json!({ "decline": true, "reason": "ask Carol" });
            assert_eq!(gateway.post(&format!("/v1/human-input/{}", id(question)), OWNER, &body).status, 200);
        });
    assert_eq!(declined.json()["data"], json!({ "action": "decline", "reason": "ask Carol", "by": "owner" }));
    assert_eq!(gateway.executions(&format!("tool={ASK}&status=success")).len(), 2, "both are in the log");
    let shown = gateway.get(&format!("/v1/tools/{ASK}"), OWNER).json();
    assert!(shown["description"].as_str().is_some_and(|text| text.len() > 50), "{shown}");
    assert_eq!((&shown["category"], &shown["state"]), (&json!("query"), &json!("ready")));
    assert_eq!(gateway.call("key-of-bob", ASK, &json!({ "question": "?" })).status, 404, "deny by default");
    let why = gateway.program.run(&format!("why bob {ASK}"));
    assert!(why.stdout.contains("requires tools:request_human_input: not granted"), "{why}");
}

/// The local user needs no key and may answer questions of the owner.
#[test]
fn answers_by_command() {
    let gateway = Gateway::start(&config(&json!({})));
    let schema = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let answer = ask_in_background(
        &gateway,
        OWNER,
        &json!({ "question": "How many?", "schema": schema }),
        |question| {
            let listed = gateway.program.run("questions");
            assert!(
                listed.stdout.contains("How many?") && listed.stdout.contains("asked by owner"),
                "{listed}"
            );
            let all = gateway.program.run("questions --json").json();
            assert_eq!(all[0]["id"], question["id"]);
            let misfit = gateway.program.run(&format!("questions answer {} many", id(question)));
            assert_eq!(misfit.code, 1, "{misfit}");
            assert!(misfit.stderr.contains("is not valid"), "{misfit}");
            let absent = gateway.program.run("questions answer nothing 1");
            assert!(absent.code == 1 && absent.stderr.contains("no open question has the id"), "{absent}");
            let good = gateway.program.run_list(&["questions", "answer", id(question), r#"{"n": 7}"#]);
            assert_eq!((good.code, good.stderr.as_str()), (0, "answered\n"), "{good}");
        },
    );
    assert_eq!(answer.json()["data"]["answer"], json!({ "n": 7 }));
    assert_eq!(answer.json()["data"]["by"], "the person at the machine");
    let watching = gateway.program.start("questions --watch --json");
    let answer = ask_in_background(
        &gateway,
        "key-of-ann",
        &json!({ "question": "Red?", "choices": ["red", "blue"] }),
        |question| {
            let (line, _) = watching.line(|line| line.contains("Red?"));
            assert!(line.contains(id(question)));
            let good = gateway.program.run(&format!("questions answer {} 2", &id(question)[..30]));
            assert_eq!(good.code, 0, "{good}");
        },
    );
    assert_eq!(answer.json()["data"]["answer"], "blue");
    let alone = Program::new(&[("toolgate.yaml", "human_input: {}\n")]).run("questions");
    assert!(alone.code == 1 && alone.stderr.contains("no gateway is running for this project"), "{alone}");
}

#[test]
fn unanswered_questions_time_out() {
    let gateway = Gateway::start(&config(&json!({ "human_input": { "timeout": "1s" } })));
    let late = gateway.call("key-of-ann", ASK, &json!({ "question": "Anybody?" }));
    assert_eq!(late.status_and_code(), (504, "timeout".to_owned()));
    let error = &late.json()["error"];
    assert_eq!(error["message"], "no one answered in time");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("toolgate questions")), "{error}");
    assert_eq!(gateway.get("/v1/human-input", OWNER).json(), json!({ "questions": [] }));
    // The timeout of the tool takes precedence.
    let tools = json!([{ "name": ASK, "timeout": "1s" }]);
    let gateway = Gateway::start(&config(&json!({ "tools": tools })));
    let late = gateway.call("key-of-ann", ASK, &json!({ "question": "Anybody?" }));
    assert_eq!(late.json()["error"]["message"], "no one answered in time");
}

/// A closed connection withdraws its question; waiting calls do not block other calls or the shutdown.
#[test]
fn waiting_calls_block_nothing() {
    let mut gateway = Gateway::start(&config(&json!({ "max_concurrent": 1 })));
    let mut stream = gateway.connect();
    let body = json!({ "arguments": { "question": "Still there?" } }).to_string();
    let head = format!("POST /v1/tools/{ASK}/call");
    let request = crate::support::gateway::request(
        &head,
        &["X-API-Key: key-of-ann", "Content-Type: application/json"],
        &body,
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let question = waiting(&gateway, "human-input", "questions");
    assert_eq!(question["text"], "Still there?");
    assert_eq!(gateway.call("key-of-ann", "echo", &json!({ "message": "x" })).status, 200);
    drop(stream);
    gateway.wait("the question to go", |gateway| {
        gateway.get("/v1/human-input", "key-of-bob").json() == json!({ "questions": [] })
    });
    let stopped = ask_in_background(&gateway, "key-of-ann", &json!({ "question": "Now?" }), |_| {
        gateway.signal("-TERM")
    });
    assert_eq!(stopped.status_and_code(), (503, "service_unavailable".to_owned()));
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

/// A rule with `@ask` holds the call until another caller approves it.
#[test]
fn a_rule_asks_for_approval() {
    let program = project(&config(&json!({})));
    program.write(
        "policy.cedar",
        r#"@id("sure") @ask("Really say it?") forbid(principal, action == Action::"call", resource == Tool::"echo");"#,
    );
    let gateway = Gateway::serve(program);
    let call_with_approval = |key: &str, meanwhile: &dyn Fn(&Json)| {
        thread::scope(|scope| {
            let call = scope.spawn(|| gateway.call(key, "echo", &json!({ "message": "a word" })));
            meanwhile(&waiting(&gateway, "approvals", "approvals"));
            call.join().expect("an answer")
        })
    };
    let decide = |question: &Json, key: &str, approve: bool| {
        gateway.post(&format!("/v1/approvals/{}", id(question)), key, &json!({ "approve": approve })).status
    };
    let yes = call_with_approval("key-of-eve", &|question| {
        assert_eq!((&question["text"], &question["tool"]), (&json!("Really say it?"), &json!("echo")));
        assert_eq!(question["arguments"], r#"{"message":"a word"}"#);
        assert_eq!(decide(question, "key-of-ann", true), 403, "it has no permission for it");
        assert_eq!(decide(question, "key-of-eve", true), 403, "it would call");
        assert!(gateway.seen().is_empty(), "nothing was called before");
        assert_eq!(decide(question, "key-of-bob", true), 200);
    });
    assert_eq!(yes.json()["data"][0]["text"], "a word");
    assert_eq!(gateway.executions("tool=echo&limit=1")[0]["begin"]["asked"], "bob");
    let no =
        call_with_approval("key-of-ann", &|question| assert_eq!(decide(question, "key-of-bob", false), 200));
    assert_eq!(no.status_and_code(), (403, "unauthorized".to_owned()));
    assert_eq!(no.json()["error"]["hint"], "bob said no");
    let by_command = call_with_approval("key-of-ann", &|question| {
        let run = gateway.program.run(&format!("questions answer {} yes", id(question)));
        assert_eq!(run.code, 0, "{run}");
    });
    assert_eq!(by_command.status, 200);
    assert_eq!(gateway.seen().len(), 2);
}

/// Runs `toolgate` on a terminal with these lines as input.
fn at_terminal(program: &Program, arguments: &[&str], typed: &str) -> (i32, Json, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&master).expect("the terminal is accessible");
    unlockpt(&master).expect("the terminal is accessible");
    let name = ptsname(&master, Vec::new()).expect("it has a name");
    let open = || {
        let path = name.to_str().expect("a path");
        Stdio::from(
            fs_err::OpenOptions::new().read(true).write(true).open(path).expect("it opens").into_parts().0,
        )
    };
    let mut command = program.command(arguments);
    let mut child =
        command.stdin(open()).stderr(open()).stdout(Stdio::piped()).spawn().expect("the executable starts");
    drop(command);
    let mut master = std::fs::File::from(master);
    master.write_all(typed.as_bytes()).expect("it can be typed");
    let (sender, shown) = mpsc::channel();
    let mut screen = master.try_clone().expect("it can be read");
    thread::spawn(move || {
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = screen.read(&mut part) {
            all.extend_from_slice(&part[..read]);
        }
        let _ = sender.send(String::from_utf8_lossy(&all).into_owned());
    });
    let mut stdout = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut stdout).expect("UTF-8");
    let code = child.wait().expect("it ends").code().expect("no signal");
    let shown = shown.recv_timeout(HANG_TIMEOUT).expect("the terminal is closed");
    (code, serde_json::from_str(&stdout).expect("one JSON document"), shown)
}

#[test]
fn answers_at_the_terminal() {
    let program = Program::new(&[("toolgate.yaml", "human_input: {}\n")]);
    let ask = |arguments: Json, typed: &str| {
        let arguments = arguments.to_string();
        at_terminal(&program, &["tools", "call", ASK, "--json", "--args", &arguments], typed)
    };
    let choices = json!({ "question": "Which colour\u{1b}[2J?", "choices": ["red", "blue"] });
    let (code, result, shown) = ask(choices.clone(), "green\n2\n");
    assert_eq!(code, 0, "{result}");
    assert_eq!(
        result["data"],
        json!({ "action": "accept", "answer": "blue", "by": "the person at the terminal" })
    );
    assert!(shown.contains("owner asks") && shown.contains("1. red"), "{shown}");
    assert!(shown.contains("it must be one of `red`, `blue`"), "an invalid answer is reported: {shown}");
    assert!(!shown.contains('\u{1b}') || !shown.contains("[2J"), "the screen is not the caller's: {shown:?}");
    assert_eq!(ask(choices.clone(), "blue\n").1["data"]["answer"], "blue");
    assert_eq!(ask(choices, "\n").1["data"]["action"], "decline");
    assert_eq!(ask(json!({ "question": "Name?" }), "Ann\n").1["data"]["answer"], "Ann");
    let flat = json!({ "question": "Whom?", "schema": { "type": "object", "required": ["name", "age"], "properties": {
        "name": { "type": "string" }, "age": { "type": "integer" }, "town": { "type": "string" },
        "vip": { "type": "boolean", "default": false } } } });
    assert_eq!(
        ask(flat.clone(), "Ann\nmany\n\n\nAnn\n42\n\n\n").1["data"]["answer"],
        json!({ "name": "Ann", "age": 42, "vip": false }),
        "the question is repeated after an invalid answer"
    );
    assert_eq!(ask(flat, "\n").1["data"]["action"], "decline");
    let list = json!({ "question": "Which?", "schema": { "type": "array", "items": { "type": "integer" } } });
    assert_eq!(ask(list, "[1, 2]\n").1["data"]["answer"], json!([1, 2]));
}

#[test]
fn fails_without_a_terminal() {
    let program = Program::new(&[("toolgate.yaml", "human_input: {}\n")]);
    let run = program.run(&format!("tools call {ASK} question=Anybody? --json"));
    let error = &run.json()["error"];
    assert_eq!((run.code, &error["code"]), (1, &json!("service_unavailable")), "{run}");
    assert_eq!(error["message"], "no person can be reached here");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("terminal")), "{error}");
    let both = json!({ "question": "?", "choices": ["a", "b"], "schema": {} }).to_string();
    let run = program.run_list(&["tools", "call", ASK, "--json", "--args", &both]);
    assert_eq!(run.json()["error"]["code"], "invalid_arguments");
    let run = program.run_list(&["tools", "call", ASK, "--json", "--args", r#"{"question": "  "}"#]);
    assert_eq!(run.json()["error"]["code"], "invalid_arguments");
    // Without `human_input` the tool does not exist, and the error names the key.
    let without = Program::new(&[("toolgate.yaml", "name: x\n")]);
    let error = without.run(&format!("tools call {ASK} question=Anybody? --json")).json()["error"].clone();
    assert_eq!(error["code"], "tool_not_found");
    assert!(
        error["hint"].as_str().is_some_and(|hint| hint.contains("`human_input` in toolgate.yaml")),
        "{error}"
    );
}
