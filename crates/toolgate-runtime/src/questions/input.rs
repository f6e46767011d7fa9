//! `request_human_input`: a tool that asks a person.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_redact::sanitize::sanitize;
use toolgate_types::ErrorCode;
use toolgate_types::tool::ResponseTime;
use toolgate_upstream::builtin::{BuiltinCall, BuiltinError, BuiltinResult};
use toolgate_upstream::{BuiltinTool, RawJson};

use super::client::ClientResponder;
use super::{
    Answer, AnswerSchema, HumanReply, InputQuestion, NoAnswer, Question, QuestionContext, QuestionQueue,
    Responder,
};

pub const REQUEST_HUMAN_INPUT: &str = "request_human_input";
/// Size limit of the `schema` argument.
const MAX_SCHEMA_BYTES: usize = 8 << 10;

#[derive(Deserialize)]
struct InputArguments {
    question: String,
    #[serde(default)]
    choices: Vec<String>,
    #[serde(default)]
    schema: Option<Json>,
}

/// Creates the tool. Its timeout is that of the queue unless the settings set a shorter one.
pub fn input_tool(queue: &Arc<QuestionQueue>) -> BuiltinTool {
    let shared_queue = Arc::clone(queue);
    let run = move |call: BuiltinCall| -> futures_util::future::BoxFuture<'static, BuiltinResult> {
        let queue = Arc::clone(&shared_queue);
        Box::pin(async move { ask(&queue, call).await })
    };
    let description = "Asks a person a question and waits for the answer. Use it when you lack information that no other \
                     tool can give, when a request can be understood in more than one way, or before a decision that is \
                     not yours. Returns the person's answer, or that the person declined.";
    let name = REQUEST_HUMAN_INPUT.parse().expect("a valid name");
    let mut tool = BuiltinTool::query(name, description, RawJson::from_value(&input_schema()), run);
    tool.output_schema = Some(RawJson::from_value(&output_schema()));
    // Repeating the call asks the person again.
    tool.idempotent = false;
    tool.response_time = Some(ResponseTime::Slow);
    tool.timeout = Some(queue.timeout());
    tool.tags = ["human", "question", "clarification"].map(str::to_owned).to_vec();
    tool.waits_for_person = true;
    tool
}

fn input_schema() -> Json {
    json!({
        "type": "object", "required": ["question"], "additionalProperties": false,
        "properties": {
            "question": { "type": "string", "minLength": 1, "maxLength": 4000, "pattern": "\\S",
                "description": "The question, with all the context a person needs who does not know your task." },
            "choices": { "type": "array", "minItems": 2, "maxItems": 20, "uniqueItems": true,
                "items": { "type": "string", "minLength": 1, "maxLength": 200 },
                "description": "Allowed answers. Without them, any text is allowed." },
            "schema": { "type": "object",
                "description": "JSON Schema of the answer, for more than one value. Clients show an object with primitive fields as a form." },
        },
        "not": { "required": ["choices", "schema"] },
        "examples": [{ "question": "Which of the two accounts is meant?", "choices": ["savings", "current"] }],
    })
}

fn output_schema() -> Json {
    json!({
        "type": "object", "required": ["action", "by"],
        "properties": {
            "action": { "enum": ["accept", "decline"], "description": "`accept` if the person answered." },
            "answer": { "description": "The answer: a text, one of the choices, or a value that matches the schema." },
            "reason": { "type": "string", "description": "Reason for declining." },
            "by": { "type": "string", "description": "Name of the person who answered." },
        },
    })
}

async fn ask(queue: &QuestionQueue, call: BuiltinCall) -> BuiltinResult {
    let arguments: InputArguments = call.arguments.parse().map_err(|error| error.to_string())?;
    if arguments.schema.as_ref().is_some_and(|schema| schema.to_string().len() > MAX_SCHEMA_BYTES) {
        let message = format!("`schema` is larger than {MAX_SCHEMA_BYTES} bytes");
        return Err(BuiltinError::new(ErrorCode::InvalidArguments, message));
    }
    let schema = arguments.schema.map(AnswerSchema::new).transpose();
    let schema = schema
        .map_err(|error| BuiltinError::new(ErrorCode::InvalidArguments, format!("`schema`: {error}")))?;
    let input = InputQuestion {
        text: sanitize(&arguments.question).into_owned(),
        choices: arguments.choices.iter().map(|choice| sanitize(choice).into_owned()).collect(),
        schema,
        caller: call.caller,
        tool: REQUEST_HUMAN_INPUT.to_owned(),
        session: call.context.session_id,
        context: QuestionContext::default(),
    };
    let client = call.client.and_then(|client| ClientResponder::for_question(client, &input));
    let extra = client.as_ref().map(|client| client as &dyn Responder);
    let question = Arc::new(Question::Input(input));
    let HumanReply { answer, by } =
        queue.ask_until(question, extra, call.deadline).await.map_err(builtin_error)?;
    let (structured, text) = match answer {
        Answer::Value(answer) => {
            let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
            (json!({ "action": "accept", "answer": answer, "by": by }), text)
        }
        Answer::Declined(None) | Answer::ForSession { .. } => {
            (json!({ "action": "decline", "by": by }), "the person declined to answer".to_owned())
        }
        Answer::Declined(Some(reason)) => {
            let text = format!("the person declined to answer: {reason}");
            (json!({ "action": "decline", "reason": reason, "by": by }), text)
        }
    };
    Ok(RawJson::from_value(
        &json!({ "content": [{ "type": "text", "text": text }], "structuredContent": structured }),
    ))
}

fn builtin_error(why: NoAnswer) -> BuiltinError {
    let (code, hint) = match &why {
        NoAnswer::NoResponder => (
            ErrorCode::ServiceUnavailable,
            Some(
                "go on without the answer, and say what you would have asked; people can answer at a terminal, or \
                 with `toolgate questions` while `toolgate serve` runs",
            ),
        ),
        NoAnswer::QueueFull => (ErrorCode::Overloaded, Some("wait until the open questions are answered")),
        NoAnswer::TimedOut => (
            ErrorCode::Timeout,
            Some(
                "go on without the answer or ask again later; people answer with `toolgate questions` or at \
                 /v1/human-input; `human_input.timeout` sets the time limit",
            ),
        ),
        NoAnswer::Closed => (ErrorCode::ServiceUnavailable, None),
    };
    let builtin_error = BuiltinError::new(code, why.to_string());
    let builtin_error = match why {
        // No person comes while the program runs.
        NoAnswer::NoResponder | NoAnswer::Closed => builtin_error.permanent(),
        NoAnswer::QueueFull | NoAnswer::TimedOut => builtin_error,
    };
    match hint {
        Some(hint) => builtin_error.with_hint(hint),
        None => builtin_error,
    }
}
