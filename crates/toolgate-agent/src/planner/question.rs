//! Questions to the user: for missing arguments, or for the tool to call.
//!
//! A question carries a schema of plain fields, so its answer is an object; any other answer counts as none. Invariant:
//! a question names the tool it is for and the reason it is asked.

use serde_json::{Map, Value as Json, json};
use toolgate_search::{ToolEntry, ToolParameter, ValueKind};

use crate::model::{Part, ToolOutput};

/// Characters of a description quoted in a question.
const MAX_EXCERPT_CHARS: usize = 200;

/// A question to the user.
pub(super) struct UserQuestion {
    pub(super) text: String,
    schema: Json,
}

impl UserQuestion {
    /// Asks for missing arguments of a tool.
    pub(super) fn missing(entry: &ToolEntry, open: &[&ToolParameter]) -> Self {
        let names: Vec<String> = open.iter().map(|parameter| format!("`{}`", parameter.name)).collect();
        let about = open
            .iter()
            .filter(|parameter| !parameter.description.is_empty())
            .map(|parameter| format!("\n{}: {}", parameter.name, excerpt(&parameter.description)));
        let text = format!("For `{}` I need {}.{}", entry.name, names.join(", "), about.collect::<String>());
        let fields = open.iter().map(|parameter| (parameter.name.clone(), field_schema(parameter)));
        Self { text, schema: object_schema(fields.collect()) }
    }

    /// Asks for the tool to call.
    pub(super) fn choose_tool(words: &str, names: &[&str], no_tool: &str) -> Self {
        let choices: Vec<&str> = names.iter().copied().chain([no_tool]).collect();
        let text = format!("I am not sure which tool \"{}\" is for: {}?", excerpt(words), choices.join(", "));
        let tool = json!({ "type": "string", "enum": choices, "description": "The tool to call." });
        Self { text, schema: object_schema(Map::from_iter([("tool".to_owned(), tool)])) }
    }

    /// Arguments for `request_human_input`.
    pub(super) fn arguments(&self) -> Map<String, Json> {
        let Self { text, schema } = self;
        Map::from_iter([("question".to_owned(), json!(text)), ("schema".to_owned(), schema.clone())])
    }
}

/// Returns true if a value of this kind fits into one form field.
pub(super) fn is_plain(kind: &ValueKind) -> bool {
    match kind {
        ValueKind::Text | ValueKind::Integer | ValueKind::Number | ValueKind::Boolean => true,
        ValueKind::OneOf(values) => values.iter().all(Json::is_string),
        ValueKind::List(_) | ValueKind::Group(_) | ValueKind::Other => false,
    }
}

/// Returns the answer of the user, field by field; `None` if there is no usable answer.
pub(super) fn parse_answer(output: &ToolOutput) -> Option<Map<String, Json>> {
    let Some(Part::Text { text }) = output.parts.first().filter(|_| !output.failed) else { return None };
    match serde_json::from_str(text) {
        Ok(Json::Object(answer)) => Some(answer),
        _ => None,
    }
}

fn object_schema(fields: Map<String, Json>) -> Json {
    let required: Vec<&String> = fields.keys().collect();
    json!({ "type": "object", "required": required, "properties": fields })
}

fn field_schema(parameter: &ToolParameter) -> Json {
    let mut field = match &parameter.kind {
        ValueKind::Integer => json!({ "type": "integer" }),
        ValueKind::Number => json!({ "type": "number" }),
        ValueKind::Boolean => json!({ "type": "boolean" }),
        ValueKind::OneOf(values) => json!({ "type": "string", "enum": values }),
        _ => json!({ "type": "string" }),
    };
    if !parameter.description.is_empty() {
        field["description"] = json!(excerpt(&parameter.description));
    }
    field
}

/// Returns the start of a text, on one line.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_EXCERPT_CHARS {
        line
    } else {
        line.chars().take(MAX_EXCERPT_CHARS).chain(['…']).collect()
    }
}
