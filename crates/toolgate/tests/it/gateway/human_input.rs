//! Questions to people: `request_human_input`, rules with `@ask`, and every way to answer.

use std::io::Write as _;
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, wait_until};
use crate::support::mcp_client::{McpSession, request_message};
use crate::support::program::Program;
use crate::support::terminal::TerminalSession;

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

/// Callers that one caller created count as that caller: none of them approves the call of another.
#[test]
fn created_callers_approve_no_calls_of_their_creator() {
    let program = project(&config(&json!({ "callers": [
        { "id": "ann", "permissions": ["s:*", "approvals:*", "callers:*"], "api_key": "key-of-ann" },
        { "id": "bob", "permissions": ["human_input:*", "approvals:*"], "api_key": "key-of-bob" },
    ] })));
    program.write(
        "policy.cedar",
        r#"@ask("Sure?") forbid(principal, action == Action::"call", resource == Tool::"echo");"#,
    );
    let gateway = Gateway::serve(program);
    let create = |creator: &str, id: &str| {
        let body = json!({ "id": id, "permissions": ["s:*", "approvals:*", "callers:*"] });
        let made = gateway.post("/v1/callers", creator, &body);
        made.json()["key"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned()
    };
    let second = create("key-of-ann", "second");
    let third = create(&second, "third");
    let sibling = create("key-of-ann", "sibling");
    // By the owner: independent of one another, but not of the owner.
    let made =
        gateway.program.run("callers add made --permission s:* --permission approvals:* --json").json();
    let made = made["key"].as_str().expect("a key").to_owned();
    let other = create(OWNER, "other");
    let removed = gateway.request("DELETE /v1/callers/second", &["X-API-Key: key-of-ann"], "");
    assert_eq!(removed.status, 204);
    let approvals = |caller: &str, refused: &[&str], approved: &str| {
        thread::scope(|scope| {
            let call = scope.spawn(|| gateway.call(caller, "echo", &json!({ "message": "x" })).status);
            let path = format!("/v1/approvals/{}", id(&waiting(&gateway, "approvals", "approvals")));
            let approve = |key: &str| gateway.post(&path, key, &json!({ "approve": true })).status;
            for key in refused {
                assert_eq!(approve(key), 403, "{caller} by {key}");
            }
            assert_eq!(approve(approved), 200, "{caller} by {approved}");
            assert_eq!(call.join().expect("an answer"), 200);
        });
    };
    approvals("key-of-ann", &[&third, &sibling], "key-of-bob");
    approvals(&third, &["key-of-ann", &sibling, &third], &made);
    approvals(OWNER, &[&made, &other], "key-of-bob");
    approvals(&made, &[OWNER], &other);
}

/// Padding, white space, hidden characters and masking hide no argument from the person who approves.
#[test]
fn an_approval_shows_the_whole_call() {
    let program = project(&config(&json!({})));
    program.write(
        "policy.cedar",
        r#"@ask("Sure?") forbid(principal, action == Action::"call", resource == Tool::"echo");"#,
    );
    let gateway = Gateway::serve(program);
    let padding = "x".repeat(100 << 10);
    let body = json!({ "arguments": {
        "a": padding, "message": "evil\u{202e}", "password": "hunter2hunter2", "z": { "amount": 7 } } });
    let asked = thread::scope(|scope| {
        let call = scope.spawn(|| gateway.post("/v1/tools/echo/call", "key-of-ann", &body).status);
        let listed = waiting(&gateway, "approvals", "approvals");
        let path = format!("/v1/approvals/{}", id(&listed));
        let one = gateway.get(&path, "key-of-bob").json();
        let shown = gateway.program.run("questions");
        assert_eq!(gateway.post(&path, "key-of-bob", &json!({ "approve": false })).status, 200);
        assert_eq!(call.join().expect("an answer"), 403);
        assert!(shown.stdout.contains("long strings are shortened"), "{shown}");
        assert!(shown.stdout.contains("masked: `/password`"), "{shown}");
        (listed, one)
    });
    let (listed, one) = asked;
    let text = listed["arguments"].as_str().expect("a text");
    assert!(text.len() < 16 << 10 && text.contains("… (102400 bytes, sha256 "), "{text}");
    assert!(text.contains(r#""message":"evil\u202e""#) && text.contains(r#""z":{"amount":7}"#), "{text}");
    assert!(!text.contains("hunter2") && text.contains(r#""password":"#), "{text}");
    assert_eq!((&listed["shortened"], &listed["masked"][0]["path"]), (&json!(true), &json!("/password")));
    assert!(listed["argumentsBytes"].as_u64().is_some_and(|bytes| bytes > 100 << 10), "{listed}");
    assert!(one["fullArguments"].as_str().is_some_and(|text| text.contains(&padding)), "{}", one["masked"]);
    // Without masked values, the hash identifies the arguments. White space is not shown.
    let spaced = format!(r#"{{"arguments": {{"message":{}"x"}}}}"#, "\n".repeat(50 << 10));
    thread::scope(|scope| {
        let call = scope.spawn(|| gateway.post_text("/v1/tools/echo/call", "key-of-ann", &spaced).status);
        let listed = waiting(&gateway, "approvals", "approvals");
        assert_eq!(
            (&listed["arguments"], &listed["shortened"]),
            (&json!(r#"{"message":"x"}"#), &json!(false))
        );
        assert_eq!(listed["argumentsSha256"].as_str().map(str::len), Some(64));
        let path = format!("/v1/approvals/{}", id(&listed));
        assert_eq!(gateway.post(&path, "key-of-bob", &json!({ "approve": true })).status, 200);
        assert_eq!(call.join().expect("an answer"), 200);
    });
    // Parameters and `_meta` members that are passed on to the server are shown too.
    thread::scope(|scope| {
        let params = json!({ "name": "echo", "arguments": { "message": "x" }, "hidden": { "amount": 9 },
            "_meta": { "evil": true } });
        let session = McpSession::begin(&gateway, "key-of-ann", "2025-11-25", &json!({}));
        let message = request_message(1, "tools/call", &params);
        let call = scope.spawn(move || session.post(&message).json());
        let listed = waiting(&gateway, "approvals", "approvals");
        let all = r#"{"arguments":{"message":"x"},"hidden":{"amount":9},"_meta":{"evil":true}}"#;
        assert_eq!(listed["arguments"], all);
        let path = format!("/v1/approvals/{}", id(&listed));
        assert_eq!(gateway.post(&path, "key-of-bob", &json!({ "approve": false })).status, 200);
        assert_eq!(call.join().expect("an answer")["result"]["isError"], true);
    });
    // Arguments that cannot be shown cannot be approved.
    let many: serde_json::Map<_, _> = (0..5_000).map(|n| (format!("key{n}"), json!(n))).collect();
    let denied = gateway.call("key-of-ann", "echo", &json!(many));
    assert_eq!(denied.status_and_code(), (403, "unauthorized".to_owned()));
    assert!(
        denied.json()["error"]["message"].as_str().is_some_and(|text| text.contains("cannot be shown")),
        "{denied:?}"
    );
}

/// Input from before the question does not answer it.
#[test]
fn typing_ahead_approves_nothing() {
    let program = project(&json!({}));
    program.write(
        "policy.cedar",
        r#"@ask("Sure?") forbid(principal, action == Action::"call", resource == Tool::"echo");"#,
    );
    let call = ["tools", "call", "echo", "message=x"];
    let mut screen = TerminalSession::open_with(&program, &call, "y\ny\nyes\n");
    screen.wait("[y/N]", 1);
    screen.keys("n\n");
    assert_eq!(screen.child.wait().expect("it ends").code(), Some(1), "{}", screen.shown());
    let mut screen = TerminalSession::open(&program, &call);
    screen.wait("[y/N]", 1);
    screen.keys("y\n");
    assert_eq!(screen.child.wait().expect("it ends").code(), Some(0), "{}", screen.shown());
}

/// Runs `toolgate` on a terminal, types these lines once a question is shown, and returns the JSON that it prints.
fn at_terminal(program: &Program, arguments: &[&str], typed: &str) -> (i32, Json, String) {
    // Typed before the question, so it must answer nothing.
    let mut screen = TerminalSession::open_with(program, arguments, "ahead\n");
    screen.wait("asks", 1);
    screen.wait(": ", 2);
    screen.keys(typed);
    let code = screen.child.wait().expect("it ends").code().expect("no signal");
    wait_until("the result", || result_in(&screen.shown()).is_some());
    let shown = screen.shown();
    (code, result_in(&shown).expect("a result"), shown)
}

/// The JSON document at the end of a screen.
fn result_in(shown: &str) -> Option<Json> {
    let start = shown.find("{\r\n").or_else(|| shown.find("{\""))?;
    serde_json::from_str(shown[start..].trim()).ok()
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
        "a field is asked for again after an invalid value"
    );
    assert_eq!(ask(flat, "-\n").1["data"]["action"], "decline");
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
