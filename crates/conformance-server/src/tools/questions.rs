//! The tools that ask the client for something.

use rmcp::model::CallToolResponse;
use serde_json::{Value, json};

use super::{Call, said};
use crate::ask::{Question, Stop, capability, declares, field, form, roots, sample};

/// Runs the tool, if it is one of these.
pub(super) async fn run(call: &Call<'_>, name: &str) -> Result<Option<CallToolResponse>, Stop> {
    let round = &call.round;
    let confirm = || form("Please confirm", json!({ "ok": { "type": "boolean" } }));
    let response = match name {
        "test_sampling" => {
            let answers = round.ask(&[("answer", sample(call.text("prompt", ""), 100))], None).await?;
            said(&format!("LLM response: {}", spoken(&answers["answer"])))
        }
        "test_missing_capability" => {
            let answers = round.ask(&[("answer", sample("Is anybody there?", 10))], None).await?;
            said(&format!("LLM response: {}", spoken(&answers["answer"])))
        }
        "test_elicitation" => {
            let text = |about: &str| json!({ "type": "string", "description": about });
            let properties =
                json!({ "username": text("User's response"), "email": text("User's email address") });
            filled_in(call, "User response", form(call.text("message", "Who is it?"), properties)).await?
        }
        "test_streaming_elicitation" => {
            filled_in(call, "User response", form("Who is it?", json!({ "name": { "type": "string" } })))
                .await?
        }
        "test_elicitation_sep1034_defaults" => {
            filled_in(call, "Elicitation completed", form("All of these have a default", defaults())).await?
        }
        "test_elicitation_sep1330_enums" => {
            filled_in(call, "Elicitation completed", form("Choose of each", choices())).await?
        }
        "test_input_required_result_elicitation" => {
            let answers = round.ask(&[("user_name", name_form("What is your name?"))], None).await?;
            said(&format!("Hello, {}!", field(&answers["user_name"], "name")))
        }
        "test_input_required_result_sampling" => {
            let question = sample("What is the capital of France?", 100);
            let answers = round.ask(&[("capital_question", question)], None).await?;
            said(&spoken(&answers["capital_question"]))
        }
        "test_input_required_result_list_roots" => {
            let answers = round.ask(&[("client_roots", roots())], None).await?;
            said(&format!("Roots: {}", answers["client_roots"]["roots"]))
        }
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            let state = round.sealed()?;
            round.ask(&[("confirm", confirm())], Some(json!({ "tool": name }))).await?;
            let known = state.is_none_or(|state| state["tool"] == name);
            said(if known { "state-ok" } else { "state of another tool" })
        }
        "test_input_required_result_multiple_inputs" => {
            let questions = everything();
            let answers = round.ask(&questions, Some(json!({ "tool": name }))).await?;
            let (greeting, user) = (spoken(&answers["greeting"]), field(&answers["user_name"], "name"));
            said(&format!("{greeting} {user}, of {}", answers["client_roots"]["roots"]))
        }
        "test_input_required_result_multi_round" => two_rounds(call).await?,
        "test_input_required_result_capabilities" => {
            let mut questions = everything();
            questions.retain(|(_, question)| {
                capability(question).is_some_and(|name| declares(&round.capabilities(), name))
            });
            let answers = round.ask(&questions, None).await?;
            said(&format!("{} answers", answers.len()))
        }
        _ => return Ok(None),
    };
    Ok(Some(response))
}

async fn two_rounds(call: &Call<'_>) -> Result<CallToolResponse, Stop> {
    let state = call.round.sealed()?;
    let known = state.as_ref().and_then(|state| state["name"].as_str());
    let name = match known {
        Some(name) => name.to_owned(),
        None => {
            let question = ("step1", name_form("Step 1: What is your name?"));
            let answers = call.round.ask(&[question], Some(json!({ "step": 1 }))).await?;
            field(&answers["step1"], "name").to_owned()
        }
    };
    let question = form("Step 2: What is your favorite color?", json!({ "color": { "type": "string" } }));
    let state = json!({ "step": 2, "name": name });
    let answers = call.round.ask(&[("step2", question)], Some(state)).await?;
    Ok(said(&format!("{name} likes {}", field(&answers["step2"], "color"))))
}

/// Asks with this form, and says what came back.
async fn filled_in(call: &Call<'_>, lead: &str, question: Value) -> Result<CallToolResponse, Stop> {
    let answers = call.round.ask(&[("form", question)], None).await?;
    let answer = &answers["form"];
    let action = answer["action"].as_str().unwrap_or_default();
    Ok(said(&format!("{lead}: action={action}, content={}", answer["content"])))
}

fn name_form(message: &str) -> Value {
    form(message, json!({ "name": { "type": "string" } }))
}

/// One question of each kind.
fn everything() -> Vec<Question> {
    vec![
        ("user_name", name_form("What is your name?")),
        ("greeting", sample("Generate a greeting", 50)),
        ("client_roots", roots()),
    ]
}

/// The words of a model.
fn spoken(answer: &Value) -> String {
    let content = &answer["content"];
    let text = content["text"].as_str().or_else(|| content[0]["text"].as_str());
    text.unwrap_or_default().to_owned()
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "description": "A name", "default": "John Doe" },
        "age": { "type": "integer", "description": "An age", "default": 30 },
        "score": { "type": "number", "description": "A score", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "description": "Whether that was verified", "default": true },
    })
}

fn choices() -> Value {
    let titled = |word: &str| {
        json!([
            { "const": "value1", "title": format!("First {word}") },
            { "const": "value2", "title": format!("Second {word}") },
            { "const": "value3", "title": format!("Third {word}") },
        ])
    };
    let plain = ["option1", "option2", "option3"];
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    })
}
