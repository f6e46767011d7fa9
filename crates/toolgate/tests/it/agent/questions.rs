//! What servers ask for in the middle of a call of the agent: who answers, and what of it reaches the server.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::agent::{ScriptedModel, call, project};
use crate::agent_stories::{results, run, stream};
use crate::agent_terminal::Screen;
use crate::door::{Door, until};
use crate::program::Program;
use crate::servers::entry;

/// A turn in which the server is made to ask for a number, or for a text of the model.
fn asks(mode: &str) -> Json {
    json!({ "calls": [call("c1", "ask", json!({ "mode": mode, "message": "A rhyme on gate?" }))] })
}

fn with_kit(model: &ScriptedModel, agent: Json) -> Program {
    let program = project(model, &json!({ "registries": { "mcp": "mcp.json" }, "agent": agent }));
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program
}

#[test]
fn what_a_server_asks_for_is_answered_as_the_project_says() {
    let ask = asks("form");
    for (how, turns, answer) in [
        ("deny", json!([ask, { "text": "Done." }]), "not offered here"),
        (
            "model",
            json!([ask, { "text": "{\"size\": 7}" }, { "text": "Done." }]),
            "{\"action\":\"accept\",\"content\":{\"size\":7}}",
        ),
        ("model", json!([ask, { "text": "DECLINE" }, { "text": "Done." }]), "{\"action\":\"decline\"}"),
        // Nobody is at a terminal: neither yes nor no.
        ("ask", json!([ask, { "text": "Done." }]), "{\"action\":\"cancel\"}"),
    ] {
        let model = ScriptedModel::start(&turns);
        let ran = run(&with_kit(&model, json!({ "elicitation": how })), "ask");
        assert!(results(&ran)[0].contains(answer), "{how}: {ran}");
    }
}

#[test]
fn a_server_gets_a_text_of_the_model_where_the_project_says_so() {
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
            // As words of a server, and with no tools to use for it.
            let asked = &seen[1];
            let told = asked["messages"][0]["content"].as_str().unwrap_or_default();
            assert!(told.contains("The MCP server `kit` requests a text from you"), "{asked}");
            assert!(asked["messages"][1]["content"].to_string().contains("A rhyme on gate?"), "{asked}");
            assert!(asked.get("tools").is_none(), "{asked}");
        }
    }
}

#[test]
fn what_a_model_answers_fits_what_the_server_asked_with() {
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
                "the model is told why: {}",
                seen[2]
            );
        }
    }
}

#[test]
fn what_a_server_has_of_the_model_counts() {
    let turns = json!([asks("sampling"), { "text": "Late." }, { "text": "Done." }]);
    // Each turn has 110 tokens: two of them are the run's, and one is the server's.
    let model = ScriptedModel::start(&turns);
    let ran = run(&with_kit(&model, json!({ "sampling": "model" })), "ask");
    assert!(ran.stdout.contains("\"input_tokens\":300"), "{ran}");
    let model = ScriptedModel::start(&turns);
    let few = with_kit(&model, json!({ "sampling": "model", "budgets": { "tokens": 110 } }));
    let ran = few.run_list(&["run", "--json", "ask"]);
    assert!(ran.stdout.contains("the budget of the run is used up"), "{ran}");
    assert_eq!((ran.code, model.seen().len()), (1, 1), "nothing is written beyond it: {ran}");
}

/// A door with an agent whose servers ask people: `ann` begins runs, `bob` answers.
fn asking(model: &ScriptedModel) -> Door {
    let callers = json!([
        { "id": "ann", "permissions": ["s:*", "runs:start"], "api_key": "key-of-ann" },
        { "id": "bob", "permissions": ["human_input:*", "approvals:*"], "api_key": "key-of-bob" },
    ]);
    let agent = json!({ "model": model.model(), "elicitation": "ask", "sampling": "ask" });
    Door::open(&json!({ "agent": agent, "callers": callers,
        "server": { "default_tool_config": { "timeout": "1s" } } }))
}

/// Gives a task, does something with the question that comes of it, and returns what the agent was told.
fn meanwhile(door: &Door, place: &str, answered: impl FnOnce(&Json, &str)) -> String {
    thread::scope(|scope| {
        let task = scope.spawn(|| stream(door, "key-of-ann", &json!({ "task": "ask" })));
        let mut question = Json::Null;
        until("a question", || {
            let list = door.get(&format!("/v1/{place}"), "key-of-bob").json();
            question.clone_from(&list.as_object().expect("a list").values().next().expect("a list")[0]);
            !question.is_null()
        });
        answered(&question, &format!("/v1/{place}/{}", question["id"].as_str().expect("an id")));
        task.join().expect("it ends")
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what passes is the time of another process")]
fn a_person_at_the_desk_answers_a_server() {
    let turns = json!([asks("form"), { "text": "Done." }, asks("form"), { "text": "Done." }]);
    let model = ScriptedModel::start(&turns);
    let door = asking(&model);
    let told = meanwhile(&door, "human-input", |question, path| {
        assert_eq!(question["text"], "MCP server `s` asks: A rhyme on gate?", "{question}");
        assert_eq!((&question["caller"], &question["tool"]), (&json!("ann"), &json!("ask")), "{question}");
        assert_eq!(question["schema"]["properties"]["size"]["type"], "integer", "{question}");
        let post = |answer: Json| door.post(path, "key-of-bob", &json!({ "answer": answer })).status;
        assert_eq!([post(json!({ "size": "large" })), post(json!(7))], [422, 422]);
        // Who thinks longer than the tool may take is waited for: that is no time of the server's.
        let asked = Instant::now();
        until("a while", || asked.elapsed() > Duration::from_millis(1_500));
        assert_eq!(post(json!({ "size": 7 })), 200);
    });
    assert!(told.contains(r#"{\"action\":\"accept\",\"content\":{\"size\":7}}"#), "{told}");
    let told = meanwhile(&door, "human-input", |_, path| {
        assert_eq!(door.post(path, "key-of-bob", &json!({ "decline": true })).status, 200);
    });
    assert!(told.contains(r#"{\"action\":\"decline\"}"#), "{told}");
}

#[test]
fn a_person_at_the_desk_says_whether_the_model_writes_for_a_server() {
    let turns = json!([asks("sampling"), { "text": "Late." }, { "text": "Done." }, asks("sampling"), { "text": "Done." }]);
    let model = ScriptedModel::start(&turns);
    let door = asking(&model);
    let decided = |approve: bool| {
        meanwhile(&door, "approvals", |question, path| {
            let text = "MCP server `s` requests text from the model: A rhyme on gate?";
            assert_eq!(question["text"], text, "{question}");
            assert_eq!(door.post(path, "key-of-bob", &json!({ "approve": approve })).status, 200);
        })
    };
    let told = decided(true);
    assert!(told.contains(r#"\"text\":\"Late.\""#), "{told}");
    let told = decided(false);
    assert!(told.contains("bob said no"), "{told}");
    assert_eq!(model.seen().len(), 5, "it was not asked without a yes");
}

#[test]
fn a_person_at_the_terminal_answers_a_server() {
    let model =
        ScriptedModel::start(&json!([asks("form"), asks("sampling"), { "text": "Late." }, { "text": "Done." }]));
    let program = with_kit(&model, json!({ "elicitation": "ask", "sampling": "ask" })).with("TERM", "xterm");
    let mut screen = Screen::open(&program, &["run", "ask"]);
    screen.wait("MCP server `kit` asks: A rhyme on gate?", 1);
    screen.wait("size [42]", 1);
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
fn the_defaults_of_a_server_are_its_answer_where_that_is_wanted() {
    let model = ScriptedModel::start(&json!([asks("form"), { "text": "Done." }]));
    let program = with_kit(&model, json!({ "elicitation": "ask" }));
    let ran = program.run_list(&["run", "--json", "--answers", "defaults", "ask"]);
    assert!(results(&ran)[0].contains(r#"{"action":"accept","content":{"size":42}}"#), "{ran}");
}
