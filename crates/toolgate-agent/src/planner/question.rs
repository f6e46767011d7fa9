//! Questions to the person: for what a tool needs, or for which tool is meant.
//!
//! Every question comes with a schema of plain fields, so that the answer is an object, and anything else is none.
//! Invariant: a question says which tool it is for and why it is asked.

use serde_json::{Map, Value as Json, json};
use toolgate_search::{Entry, Kind, Parameter};

use crate::model::{Part, ToolOutput};

/// Letters of a description that stand in a question.
const MOST_ABOUT: usize = 200;

/// A question to the person.
pub(super) struct Question {
    pub(super) text: String,
    schema: Json,
}

impl Question {
    /// What a tool needs.
    pub(super) fn missing(entry: &Entry, open: &[&Parameter]) -> Self {
        let names: Vec<String> = open.iter().map(|parameter| format!("`{}`", parameter.name)).collect();
        let about = open
            .iter()
            .filter(|parameter| !parameter.description.is_empty())
            .map(|parameter| format!("\n{}: {}", parameter.name, begin(&parameter.description)));
        let text = format!("For `{}` I need {}.{}", entry.name, names.join(", "), about.collect::<String>());
        let fields = open.iter().map(|parameter| (parameter.name.clone(), field(parameter)));
        Self { text, schema: object(fields.collect()) }
    }

    /// Which tool is meant.
    pub(super) fn which(words: &str, names: &[&str], no_tool: &str) -> Self {
        let choices: Vec<&str> = names.iter().copied().chain([no_tool]).collect();
        let text = format!("I am not sure which tool \"{}\" is for: {}?", begin(words), choices.join(", "));
        let tool = json!({ "type": "string", "enum": choices, "description": "The tool that is meant." });
        Self { text, schema: object(Map::from_iter([("tool".to_owned(), tool)])) }
    }

    /// The arguments of the tool that asks.
    pub(super) fn arguments(&self) -> Map<String, Json> {
        let Self { text, schema } = self;
        Map::from_iter([("question".to_owned(), json!(text)), ("schema".to_owned(), schema.clone())])
    }
}

/// Whether a person can be asked for a value in one field.
pub(super) fn is_plain(kind: &Kind) -> bool {
    match kind {
        Kind::Text | Kind::Integer | Kind::Number | Kind::Boolean => true,
        Kind::OneOf(values) => values.iter().all(Json::is_string),
        Kind::List(_) | Kind::Group(_) | Kind::Other => false,
    }
}

/// What the person answered, field by field; `None` where the person did not.
pub(super) fn answer(output: &ToolOutput) -> Option<Map<String, Json>> {
    let Some(Part::Text { text }) = output.parts.first().filter(|_| !output.failed) else { return None };
    match serde_json::from_str(text) {
        Ok(Json::Object(answer)) => Some(answer),
        _ => None,
    }
}

fn object(fields: Map<String, Json>) -> Json {
    let required: Vec<&String> = fields.keys().collect();
    json!({ "type": "object", "required": required, "properties": fields })
}

fn field(parameter: &Parameter) -> Json {
    let mut field = match &parameter.kind {
        Kind::Integer => json!({ "type": "integer" }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::OneOf(values) => json!({ "type": "string", "enum": values }),
        _ => json!({ "type": "string" }),
    };
    if !parameter.description.is_empty() {
        field["description"] = json!(begin(&parameter.description));
    }
    field
}

/// The beginning of a text, on one line.
fn begin(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST_ABOUT {
        line
    } else {
        line.chars().take(MOST_ABOUT).chain(['…']).collect()
    }
}
