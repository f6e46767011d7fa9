//! Elicitation and sampling by servers during a call of the agent.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::agent::{ScriptedModel, call, project, results, run, stream};
use crate::support::gateway::{Gateway, wait_until};
use crate::support::program::Program;
use crate::support::terminal::TerminalSession;
use crate::support::test_server::entry;

/// A turn whose call makes the server request a number or a text from the model.
fn asks(mode: &str) -> Json {
    json!({ "calls": [call("c1", "ask", json!({ "mode": mode, "message": "A rhyme on gate?" }))] })
}

fn with_kit(model: &ScriptedModel, agent: Json) -> Program {
    let program = project(model, &json!({ "registries": { "mcp": "mcp.json" }, "agent": agent }));
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program
}

#[test]
fn elicitation_is_answered_as_configured() {
    let ask = asks("form");
    for (how, turns, answer) in [
        ("deny", json!([ask, { "text": "Done." }]), "not offered here"),
        (
            "model",
            json!([ask, { "text": "{\"size\": 7}" }, { "text": "Done." }]),
            "{\"action\":\"accept\",\"content\":{\"size\":7}}",
        ),
        ("model", json!([ask, { "text": "DECLINE" }, { "text": "Done." }]), "{\"action\":\"decline\"}"),
        // Without a terminal, the answer is neither accept nor decline.
        ("ask", json!([ask, { "text": "Done." }]), "{\"action\":\"cancel\"}"),
    ] {
        let model = ScriptedModel::start(&turns);
        let ran = run(&with_kit(&model, json!({ "elicitation": how })), "ask");
        assert!(results(&ran)[0].contains(answer), "{how}: {ran}");
    }
}

#[test]
fn sampling_is_answered_by_the_model_if_configured() {
    let ask = asks("sampling");
    for (how, turns, answer) in [
        ("deny", json!([ask, { "text": "Done." }]), "not offered here"),
        ("model", json!([ask, { "text": "Late." }, { "text": "Done." }]), "\"text\":\"Late.\""),
    ] {
        let model = ScriptedModel::start(&turns);
        let ran = run(&with_kit(&model, json!({ "sampling": how })), "ask");
        assert!(results(&ran)[0].contains(answer), "{how}: {ran}");
        let seen = model.seen();
        assert_eq!(seen.len(), if how == "model" { 3 } else { 2 }, "{how}: {seen:?}");
        if how == "model" {
            // The request is marked as coming from a server and has no tools.
            let request = &seen[1];
            let answer = request["messages"][0]["content"].as_str().unwrap_or_default();
            assert!(answer.contains("The MCP server `kit` requests a text from you"), "{request}");
            assert!(request["messages"][1]["content"].to_string().contains("A rhyme on gate?"), "{request}");
            assert!(request.get("tools").is_none(), "{request}");
            assert_eq!(request["max_tokens"], 100, "the limit of the server: {request}");
        }
    }
}

#[test]
fn answers_of_the_model_match_the_requested_schema() {
    let (wrong, right) = (json!({ "text": "{\"size\": \"seven\"}" }), json!({ "text": "{\"size\": 7}" }));
    for (turns, answer) in [
        (
            json!([asks("form"), wrong, right, { "text": "Done." }]),
            "{\"action\":\"accept\",\"content\":{\"size\":7}}",
        ),
        (json!([asks("form"), wrong, wrong, { "text": "Done." }]), "{\"action\":\"decline\"}"),
        (json!([asks("form"), { "text": "[7]" }, wrong, { "text": "Done." }]), "{\"action\":\"decline\"}"),
        (json!([asks("url"), { "text": "Done." }]), "only form elicitation is supported"),
    ] {
        let model = ScriptedModel::start(&turns);
        let ran = run(&with_kit(&model, json!({ "elicitation": "model" })), "ask");
        assert!(results(&ran)[0].contains(answer), "{answer}: {ran}");
        let seen = model.seen();
        if seen.len() == 4 {
            assert!(
                seen[2].to_string().contains("The answer does not match the schema: "),
                "the model gets the reason: {}",
                seen[2]
            );
        }
    }
}

#[test]
fn sampling_counts_towards_the_budget() {
    let turns = json!([asks("sampling"), { "text": "Late." }, { "text": "Done." }]);
    // Each turn has 110 tokens: two turns belong to the run, one to the server.
    let model = ScriptedModel::start(&turns);
    let ran = run(&with_kit(&model, json!({ "sampling": "model" })), "ask");
    assert!(ran.stdout.contains("\"input_tokens\":300"), "{ran}");
    let model = ScriptedModel::start(&turns);
    let few = with_kit(&model, json!({ "sampling": "model", "budgets": { "tokens": 110 } }));
    let ran = few.run_list(&["run", "--json", "ask"]);
    assert!(ran.stdout.contains("the budget of the run is used up"), "{ran}");
    assert_eq!((ran.code, model.seen().len()), (1, 1), "nothing is written beyond it: {ran}");
}

/// Starts a gateway with an agent whose servers ask people: `ann` starts runs, `bob` answers.
fn start_gateway(model: &ScriptedModel) -> Gateway {
    let callers = json!([
        { "id": "ann", "permissions": ["s:*", "runs:start"], "api_key": "key-of-ann" },
        { "id": "bob", "permissions": ["human_input:*", "approvals:*"], "api_key": "key-of-bob" },
    ]);
    let agent = json!({ "model": model.model(), "elicitation": "ask", "sampling": "ask" });
    Gateway::start(&json!({ "agent": agent, "callers": callers,
        "server": { "default_tool_config": { "timeout": "1s" } } }))
}

/// Starts a run, handles the question it causes, and returns the response.
fn meanwhile(gateway: &Gateway, collection: &str, answered: impl FnOnce(&Json, &str)) -> String {
    thread::scope(|scope| {
        let task = scope.spawn(|| stream(gateway, "key-of-ann", &json!({ "task": "ask" })));
        let mut question = Json::Null;
        wait_until("a question", || {
            let list = gateway.get(&format!("/v1/{collection}"), "key-of-bob").json();
            question.clone_from(&list.as_object().expect("a list").values().next().expect("a list")[0]);
            !question.is_null()
        });
        answered(&question, &format!("/v1/{collection}/{}", question["id"].as_str().expect("an id")));
        task.join().expect("it ends")
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what passes is the time of another process")]
fn a_person_answers_a_server_over_http() {
    let turns = json!([asks("form"), { "text": "Done." }, asks("form"), { "text": "Done." }]);
    let model = ScriptedModel::start(&turns);
    let gateway = start_gateway(&model);
    let answer = meanwhile(&gateway, "human-input", |question, path| {
        assert_eq!(question["text"], "MCP server `s` asks: A rhyme on gate?", "{question}");
        assert_eq!((&question["caller"], &question["tool"]), (&json!("ann"), &json!("ask")), "{question}");
        assert_eq!(question["schema"]["properties"]["size"]["type"], "integer", "{question}");
        let post = |answer: Json| gateway.post(path, "key-of-bob", &json!({ "answer": answer })).status;
        assert_eq!([post(json!({ "size": "large" })), post(json!(7))], [422, 422]);
        // The time a person takes does not count towards the timeout of the tool.
        let request = Instant::now();
        wait_until("a while", || request.elapsed() > Duration::from_millis(1_500));
        assert_eq!(post(json!({ "size": 7 })), 200);
    });
    assert!(answer.contains(r#"{\"action\":\"accept\",\"content\":{\"size\":7}}"#), "{answer}");
    let answer = meanwhile(&gateway, "human-input", |_, path| {
        assert_eq!(gateway.post(path, "key-of-bob", &json!({ "decline": true })).status, 200);
    });
    assert!(answer.contains(r#"{\"action\":\"decline\"}"#), "{answer}");
}

#[test]
fn a_person_approves_sampling_over_http() {
    let turns = json!([asks("sampling"), { "text": "Late." }, { "text": "Done." }, asks("sampling"), { "text": "Done." }]);
    let model = ScriptedModel::start(&turns);
    let gateway = start_gateway(&model);
    let decided = |approve: bool| {
        meanwhile(&gateway, "approvals", |question, path| {
            let text = "MCP server `s` requests text from the model: A rhyme on gate?";
            assert_eq!(question["text"], text, "{question}");
            assert_eq!(gateway.post(path, "key-of-bob", &json!({ "approve": approve })).status, 200);
        })
    };
    let answer = decided(true);
    assert!(answer.contains(r#"\"text\":\"Late.\""#), "{answer}");
    let answer = decided(false);
    assert!(answer.contains("bob said no"), "{answer}");
    assert_eq!(model.seen().len(), 5, "the model gets no request without approval");
}

#[test]
fn a_person_answers_a_server_at_the_terminal() {
    let model = ScriptedModel::start(
        &json!([asks("form"), asks("sampling"), { "text": "Late." }, { "text": "Done." }]),
    );
    let program = with_kit(&model, json!({ "elicitation": "ask", "sampling": "ask" })).with("TERM", "xterm");
    let mut screen = TerminalSession::open(&program, &["run", "ask"]);
    screen.wait("MCP server `kit` asks: A rhyme on gate?", 1);
    screen.wait("size\u{1b}[0m (integer, optional) [42]: ", 1);
    screen.keys("7\r");
    screen.wait("MCP server `kit` requests text from the model", 1);
    screen.wait("[y/N]", 1);
    screen.keys("y");
    screen.wait("Done.", 1);
    let status = screen.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", screen.shown());
    let seen = model.seen();
    assert!(seen[1].to_string().contains(r#"\"size\":7"#), "{}", seen[1]);
    assert!(seen[3].to_string().contains("Late."), "{}", seen[3]);
}

#[test]
fn elicitation_is_answered_with_defaults_if_configured() {
    let model = ScriptedModel::start(&json!([asks("form"), { "text": "Done." }]));
    let program = with_kit(&model, json!({ "elicitation": "ask" }));
    let ran = program.run_list(&["run", "--json", "--answers", "defaults", "ask"]);
    assert!(results(&ran)[0].contains(r#"{"action":"accept","content":{"size":42}}"#), "{ran}");
}
