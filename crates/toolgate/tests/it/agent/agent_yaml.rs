//! `agent.yaml`: the effect of every key on a run.

use serde_json::{Value as Json, json};

use crate::agent::{KEY, ScriptedModel, call, events, results, run};
use crate::support::program::Program;
use crate::support::test_server::testkit;

/// Creates a project of one `agent.yaml` with the server `kit` and these keys.
fn agent(model: &ScriptedModel, keys: &Json) -> Program {
    let kit = json!({ "type": "mcp", "name": "kit", "command": testkit(), "args": ["good"] });
    let mut whole = json!({ "name": "librarian", "model": model.model(), "tools": [kit] });
    for (key, value) in keys.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("tools", Json::Array(more)) => {
                whole["tools"].as_array_mut().expect("a list").extend(more.clone());
            }
            ("model", Json::Object(more)) => {
                whole["model"].as_object_mut().expect("a map").extend(more.clone());
            }
            _ => whole[key] = value.clone(),
        }
    }
    Program::new(&[("agent.yaml", &whole.to_string())])
}

/// Returns the system prompt.
fn system_prompt(model: &ScriptedModel) -> String {
    model.seen()[0]["messages"][0]["content"].as_str().expect("a text").to_owned()
}

#[test]
fn prompt_and_tools_follow_agent_yaml() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "shelf", json!({ "title": "Emma" }))] },
        { "text": "Third shelf." },
    ]));
    let shelf = json!({ "type": "function", "name": "shelf", "description": "Says where a book stands.",
        "file": "shelf.py", "function": "find", "parameters": { "title": { "type": "string", "required": true } } });
    let program = agent(
        &model,
        &json!({ "description": "Finds books.", "instructions": { "file": "instructions.md" }, "tools": [shelf],
            "prompts": ["kit/greet"], "resources": ["test://one"], "skills": ["know-how"] }),
    );
    program.write("instructions.md", "Whisper.\n");
    program.write("shelf.py", "def find(title: str):\n    return {\"shelf\": 3, \"title\": title}\n");
    program.write("know-how/binding/SKILL.md", "---\nname: binding\ndescription: Binds books.\n---\n");
    // The default folder is not read if `skills` names another one.
    program.write("skills/other/SKILL.md", "---\nname: other\ndescription: Other.\n---\n");
    let ran = run(&program, "where is Emma?");
    assert!(results(&ran)[0].contains("\"shelf\":3") && results(&ran)[0].contains("Emma"), "{ran}");
    let system_prompt = system_prompt(&model);
    for part in [
        "You are librarian.\n\nWhisper.\n\n",
        "Greet everyone.",
        "The resource test://one:\n",
        "the content",
        "- binding: Binds books.",
    ] {
        assert!(system_prompt.contains(part), "{part}: {system_prompt}");
    }
    assert!(!system_prompt.contains("- other:"), "{system_prompt}");
    let checked = program.run("check");
    assert!(checked.stdout.contains("librarian") && checked.stdout.contains("Finds books."), "{checked}");
}

#[test]
fn skills_default_to_the_usual_folder() {
    let model = ScriptedModel::start(&json!([{ "text": "Done." }]));
    let program = agent(&model, &json!({}));
    program.write("skills/other/SKILL.md", "---\nname: other\ndescription: Other.\n---\n");
    run(&program, "go");
    assert!(system_prompt(&model).contains("- other: Other."), "{}", system_prompt(&model));
}

#[test]
fn model_parameters_are_sent() {
    let model = ScriptedModel::start(&json!([{ "text": "Done." }, { "text": "Done." }]));
    let keys = json!({ "name": "large", "temperature": 0.25, "max_tokens": 77, "stream": false });
    run(&agent(&model, &json!({ "model": keys })), "go");
    run(&agent(&model, &json!({})), "go");
    let [with, without] = &model.requests()[..] else { panic!("two requests") };
    assert_eq!(with["path"], "/v1/chat/completions", "`url` decides the endpoint");
    assert_eq!(with["headers"]["authorization"], format!("Bearer {KEY}"));
    let parameters = |request: &Json| {
        let body = &request["body"];
        json!([body["model"], body["temperature"], body["max_tokens"], body["stream"] == true])
    };
    assert_eq!(parameters(with), json!(["large", 0.25, 77, false]));
    assert_eq!(parameters(without), json!(["scripted", null, 8192, true]));
}

#[test]
fn model_timeout_and_retries() {
    let (busy, good) = (json!({ "status": 503 }), json!({ "text": "Done." }));
    for (retries, code) in [(0, 1), (1, 0)] {
        let model = ScriptedModel::start(&json!([busy, good]));
        let program = agent(&model, &json!({ "model": { "retries": retries } }));
        let ran = program.run_list(&["run", "--json", "go"]);
        assert_eq!((ran.code, model.seen().len()), (code, retries + 1), "{ran}");
    }
    let model = ScriptedModel::start(&json!([{ "silent": true }]));
    let program = agent(&model, &json!({ "model": { "retries": 0, "timeout": "1s" } }));
    let ran = program.run_list(&["run", "--json", "go"]);
    assert!(
        ran.code == 1 && ran.stdout.contains("model_failed") && ran.stdout.contains("within 1 s"),
        "{ran}"
    );
}

#[test]
fn result_limit_and_prices() {
    let long = "x".repeat(5_000);
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "echo", json!({ "message": long }))],
            "usage": { "input": 1_000_000, "cached": 400_000, "output": 100_000 } },
        { "text": "Done.", "usage": { "input": 0, "output": 0 } },
    ]));
    let price = json!({ "input": 3, "output": 15, "cached_input": 0.5 });
    let program = agent(
        &model,
        &json!({ "model": { "max_result": "1KiB", "price": price }, "budgets": { "tokens": 9_000_000 } }),
    );
    let ran = run(&program, "go");
    assert!(results(&ran)[0].len() < 2_000 && results(&ran)[0].contains("read_result"), "{ran}");
    let ended = events(&ran).pop().expect("an ended event");
    // 0.6 million tokens of uncached input, 0.4 million cached, 0.1 million of output.
    let cost = ended["cost"].as_f64().expect("a number");
    assert!((cost - (0.6 * 3.0 + 0.4 * 0.5 + 0.1 * 15.0)).abs() < 1e-9, "{cost}");
}

#[test]
fn run_limits_and_answers_to_servers() {
    let echo = |id: &str| json!({ "calls": [call(id, "echo", json!({ "message": id }))] });
    let price = json!({ "input": 1.0, "output": 10.0 });
    for (budgets, what) in [
        (json!({ "calls": 1 }), "`budgets.calls` is 1"),
        (json!({ "writes": 1 }), "`budgets.writes` is 1"),
        (json!({ "tokens": 250 }), "`budgets.tokens` is 250"),
        (json!({ "cost": 0.0002 }), "`budgets.cost` is 0.0002"),
    ] {
        let model =
            ScriptedModel::start(&json!([echo("a"), echo("b"), echo("c"), echo("d"), { "text": "Done." }]));
        let program = agent(&model, &json!({ "budgets": budgets, "model": { "price": price } }));
        let ran = program.run_list(&["run", "--json", "go"]);
        assert!(ran.code == 1 && ran.stdout.contains(what), "{what}: {ran}");
    }
    let model = ScriptedModel::start(&json!([{ "silent": true }]));
    let ran = agent(&model, &json!({ "budgets": { "time": "1s" } })).run_list(&["run", "--json", "go"]);
    assert!(ran.code == 1 && ran.stdout.contains("`budgets.time` is 1s"), "{ran}");
    let asks = |mode: &str| json!({ "calls": [call(mode, "ask", json!({ "mode": mode, "message": "?" }))] });
    for (key, mode, reply) in [("sampling", "sampling", "Late."), ("elicitation", "form", "{\"size\": 7}")] {
        let model = ScriptedModel::start(&json!([asks(mode), { "text": reply }, { "text": "Done." }]));
        let ran = run(&agent(&model, &json!({ key: "model" })), "go");
        let given = results(&ran)[0].replace(' ', "");
        assert!(given.contains("Late.") || given.contains("{\"size\":7}"), "{key}: {ran}");
    }
}
