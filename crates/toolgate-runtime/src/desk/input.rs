//! `request_human_input`: a tool that asks a person.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_types::ErrorCode;
use toolgate_types::clean::clean;
use toolgate_types::tool::ResponseTime;
use toolgate_upstream::builtin::{Asked, Fault, Given};
use toolgate_upstream::{Builtin, Raw};

use super::client::ByClient;
use super::{Answer, Asking, Desk, Kind, Reply, Unanswered, Way};

/// The tool that asks a person.
pub const REQUEST_HUMAN_INPUT: &str = "request_human_input";
/// Bytes of a schema.
const LONGEST_SCHEMA: usize = 8 << 10;

#[derive(Deserialize)]
struct Wanted {
    question: String,
    #[serde(default)]
    choices: Vec<String>,
    #[serde(default)]
    schema: Option<Json>,
}

/// The tool. Whoever is asked has as long as the desk says, unless the tool is given less.
pub fn tool(desk: &Arc<Desk>) -> Builtin {
    let asks = Arc::clone(desk);
    let run = move |asked: Asked| -> futures_util::future::BoxFuture<'static, Given> {
        let desk = Arc::clone(&asks);
        Box::pin(async move { ask(&desk, asked).await })
    };
    let described = "Asks a person a question and waits for the answer. Use it when you lack information that no other \
                     tool can give, when a request can be understood in more than one way, or before a decision that is \
                     not yours. Returns what the person said, or that the person declined.";
    let name = REQUEST_HUMAN_INPUT.parse().expect("it is a name");
    let mut tool = Builtin::query(name, described, Raw::of(&input_schema()), run);
    tool.output_schema = Some(Raw::of(&output_schema()));
    // A person who was asked twice was asked twice.
    tool.idempotent = false;
    tool.response_time = Some(ResponseTime::Slow);
    tool.timeout = Some(desk.patience());
    tool.tags = ["human", "question", "clarification"].map(str::to_owned).to_vec();
    tool.waits = true;
    tool
}

fn input_schema() -> Json {
    json!({
        "type": "object", "required": ["question"], "additionalProperties": false,
        "properties": {
            "question": { "type": "string", "minLength": 1, "maxLength": 4000, "pattern": "\\S",
                "description": "The question, with all that a person who knows nothing of your task needs to answer it." },
            "choices": { "type": "array", "minItems": 2, "maxItems": 20, "uniqueItems": true,
                "items": { "type": "string", "minLength": 1, "maxLength": 200 },
                "description": "The answers to choose from. Without them any text is an answer." },
            "schema": { "type": "object",
                "description": "A JSON Schema that the answer has to fit, for more than one value: an object of plain fields is asked for field by field." },
        },
        "not": { "required": ["choices", "schema"] },
        "examples": [{ "question": "Which of the two accounts is meant?", "choices": ["savings", "current"] }],
    })
}

fn output_schema() -> Json {
    json!({
        "type": "object", "required": ["action", "by"],
        "properties": {
            "action": { "enum": ["accept", "decline"], "description": "Whether the person answered." },
            "answer": { "description": "What the person said: a text, one of the choices, or what fits the schema." },
            "reason": { "type": "string", "description": "Why the person declined." },
            "by": { "type": "string", "description": "Who answered." },
        },
    })
}

async fn ask(desk: &Desk, asked: Asked) -> Given {
    let wanted: Wanted = asked.arguments.parse().map_err(|error| error.to_string())?;
    if wanted.schema.as_ref().is_some_and(|schema| schema.to_string().len() > LONGEST_SCHEMA) {
        let message = format!("`schema` has more than {LONGEST_SCHEMA} bytes");
        return Err(Fault::new(ErrorCode::InvalidArguments, message));
    }
    let asking = Asking {
        kind: Kind::HumanInput,
        text: clean(&wanted.question).into_owned(),
        choices: wanted.choices.iter().map(|choice| clean(choice).into_owned()).collect(),
        schema: wanted.schema,
        arguments: None,
        caller: asked.caller,
        tool: REQUEST_HUMAN_INPUT.to_owned(),
        session: asked.context.session_id,
    };
    let client = asked.client.and_then(|client| ByClient::of(client, &asking));
    let own = client.map(|way| Arc::new(way) as Arc<dyn Way>);
    let Reply { answer, by } = desk.ask(asking, own, asked.deadline).await.map_err(fault)?;
    let (said, text) = match answer {
        Answer::Given(answer) => {
            let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
            (json!({ "action": "accept", "answer": answer, "by": by }), text)
        }
        Answer::Declined(None) => {
            (json!({ "action": "decline", "by": by }), "the person does not want to answer".to_owned())
        }
        Answer::Declined(Some(reason)) => {
            let text = format!("the person does not want to answer: {reason}");
            (json!({ "action": "decline", "reason": reason, "by": by }), text)
        }
    };
    Ok(Raw::of(&json!({ "content": [{ "type": "text", "text": text }], "structuredContent": said })))
}

fn fault(why: Unanswered) -> Fault {
    let (code, hint) = match &why {
        Unanswered::Nobody => (
            ErrorCode::ServiceUnavailable,
            Some(
                "call it from a terminal, or from `toolgate serve`, where people answer with `toolgate questions`",
            ),
        ),
        Unanswered::Full => (ErrorCode::Overloaded, Some("wait for the answers to those that were asked")),
        Unanswered::Late => (
            ErrorCode::Timeout,
            Some(
                "go on without the answer, or ask again later; people answer with `toolgate questions`, or at \
                 /v1/human-input; `human_input.timeout` says how long they have",
            ),
        ),
        Unanswered::Closed => (ErrorCode::ServiceUnavailable, None),
        Unanswered::Schema(_) => (ErrorCode::InvalidArguments, None),
    };
    let fault = Fault::new(code, why.to_string());
    match hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}
