//! Tools that ask the client questions.

use rmcp::model::CallToolResponse;
use serde_json::{Value, json};

use super::{ToolCall, text_result};
use crate::ask::{
    CallInterrupt, Question, declares, form_field, form_question, required_capability, roots_question,
    sampling_question,
};

/// Runs the tool if it is one of these; otherwise returns `None`.
pub(super) async fn run(call: &ToolCall<'_>, name: &str) -> Result<Option<CallToolResponse>, CallInterrupt> {
    let round = &call.round;
    let confirm = || form_question("Please confirm", json!({ "ok": { "type": "boolean" } }));
    let response = match name {
        "test_sampling" => {
            let answers =
                round.ask(&[("answer", sampling_question(call.text("prompt", ""), 100))], None).await?;
            text_result(&format!("LLM response: {}", sampled_text(&answers["answer"])))
        }
        "test_missing_capability" => {
            let answers =
                round.ask(&[("answer", sampling_question("Is the model available?", 10))], None).await?;
            text_result(&format!("LLM response: {}", sampled_text(&answers["answer"])))
        }
        "test_elicitation" => {
            let text = |about: &str| json!({ "type": "string", "description": about });
            let properties =
                json!({ "username": text("User's response"), "email": text("User's email address") });
            ask_form(call, "User response", form_question(call.text("message", "Who is it?"), properties))
                .await?
        }
        "test_streaming_elicitation" => {
            ask_form(
                call,
                "User response",
                form_question("Who is it?", json!({ "name": { "type": "string" } })),
            )
            .await?
        }
        "test_elicitation_sep1034_defaults" => {
            ask_form(call, "Elicitation completed", form_question("All of these have a default", defaults()))
                .await?
        }
        "test_elicitation_sep1330_enums" => {
            ask_form(call, "Elicitation completed", form_question("Choose of each", choices())).await?
        }
        "test_input_required_result_elicitation" => {
            let answers = round.ask(&[("user_name", name_form("What is your name?"))], None).await?;
            text_result(&format!("Hello, {}!", form_field(&answers["user_name"], "name")))
        }
        "test_input_required_result_sampling" => {
            let question = sampling_question("What is the capital of France?", 100);
            let answers = round.ask(&[("capital_question", question)], None).await?;
            text_result(&sampled_text(&answers["capital_question"]))
        }
        "test_input_required_result_list_roots" => {
            let answers = round.ask(&[("client_roots", roots_question())], None).await?;
            text_result(&format!("Roots: {}", answers["client_roots"]["roots"]))
        }
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            let state = round.open_state()?;
            round.ask(&[("confirm", confirm())], Some(json!({ "tool": name }))).await?;
            let known = state.is_none_or(|state| state["tool"] == name);
            text_result(if known { "state-ok" } else { "state of another tool" })
        }
        "test_input_required_result_multiple_inputs" => {
            let questions = all_questions();
            let answers = round.ask(&questions, Some(json!({ "tool": name }))).await?;
            let (greeting, user) =
                (sampled_text(&answers["greeting"]), form_field(&answers["user_name"], "name"));
            text_result(&format!("{greeting} {user}, of {}", answers["client_roots"]["roots"]))
        }
        "test_input_required_result_multi_round" => two_rounds(call).await?,
        "test_input_required_result_capabilities" => {
            let mut questions = all_questions();
            questions.retain(|(_, question)| {
                required_capability(question).is_some_and(|name| declares(&round.capabilities(), name))
            });
            let answers = round.ask(&questions, None).await?;
            text_result(&format!("{} answers", answers.len()))
        }
        _ => return Ok(None),
    };
    Ok(Some(response))
}

async fn two_rounds(call: &ToolCall<'_>) -> Result<CallToolResponse, CallInterrupt> {
    let state = call.round.open_state()?;
    let known = state.as_ref().and_then(|state| state["name"].as_str());
    let name = match known {
        Some(name) => name.to_owned(),
        None => {
            let question = ("step1", name_form("Step 1: What is your name?"));
            let answers = call.round.ask(&[question], Some(json!({ "step": 1 }))).await?;
            form_field(&answers["step1"], "name").to_owned()
        }
    };
    let question =
        form_question("Step 2: What is your favorite color?", json!({ "color": { "type": "string" } }));
    let state = json!({ "step": 2, "name": name });
    let answers = call.round.ask(&[("step2", question)], Some(state)).await?;
    Ok(text_result(&format!("{name} likes {}", form_field(&answers["step2"], "color"))))
}

/// Asks with this form, and returns the answer as text.
async fn ask_form(
    call: &ToolCall<'_>,
    lead: &str,
    question: Value,
) -> Result<CallToolResponse, CallInterrupt> {
    let answers = call.round.ask(&[("form", question)], None).await?;
    let answer = &answers["form"];
    let action = answer["action"].as_str().unwrap_or_default();
    Ok(text_result(&format!("{lead}: action={action}, content={}", answer["content"])))
}

fn name_form(message: &str) -> Value {
    form_question(message, json!({ "name": { "type": "string" } }))
}

/// Returns one question of each kind.
fn all_questions() -> Vec<Question> {
    vec![
        ("user_name", name_form("What is your name?")),
        ("greeting", sampling_question("Generate a greeting", 50)),
        ("client_roots", roots_question()),
    ]
}

/// Returns the text of a model's response.
fn sampled_text(answer: &Value) -> String {
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
