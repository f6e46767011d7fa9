//! Asks for the values of a JSON Schema at the terminal, field by field.
//!
//! Servers ask with such schemas (MCP elicitation), and so does `request_human_input`. Invariant: the result matches the
//! schema of each field; texts of the schema are sanitised; the number of attempts is bounded.

use serde_json::{Map, Value as Json};
use toolgate_redact::printable;
use toolgate_runtime::questions::AnswerSchema;

use crate::command::agent::keys;
use crate::output::{BOLD, DIM, Output, quoted_lines};

/// Attempts of a person to give a valid value.
const MAX_ATTEMPTS: usize = 5;
/// The line that declines the whole form.
const DECLINE: &str = "-";

/// Asks for the fields of an object one by one, or for JSON if the schema has no fields. `Some(None)` if the person
/// declines, `None` if stdin is closed.
pub(crate) fn prompt_form(schema: &Json, output: &Output) -> Option<Option<Json>> {
    let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty()) else {
        output.message(&format!("  the answer is JSON that matches {}\n", printable(&schema.to_string())));
        let field = Field { name: "answer", schema, required: true };
        return prompt_field(&field, output);
    };
    output.message(&format!("  {DIM}an empty line takes the default, `{DECLINE}` declines{DIM:#}\n"));
    let is_required =
        |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let mut content = Map::new();
    for (name, property) in properties {
        let field = Field { name, schema: property, required: is_required(name) };
        match prompt_field(&field, output)? {
            Some(Json::Null) if !field.required => {}
            Some(value) => drop(content.insert(name.clone(), value)),
            None => return Some(None),
        }
    }
    Some(Some(Json::Object(content)))
}

/// One field of a form.
struct Field<'a> {
    name: &'a str,
    schema: &'a Json,
    required: bool,
}

/// A value that a field allows, and the text that is shown for it.
type FieldChoice = (Json, String);

/// Result of a typed line.
#[derive(Debug, PartialEq)]
enum Parsed {
    Value(Json),
    Declined,
    /// Not valid, with the reason.
    Invalid(String),
}

/// Asks for one field until its value is valid. A field without a value is `null`.
fn prompt_field(field: &Field<'_>, output: &Output) -> Option<Option<Json>> {
    if let Some(about) = field.schema["description"].as_str().filter(|about| !about.trim().is_empty()) {
        output.message(&format!("  {DIM}{}{DIM:#}\n", quoted_lines(about.trim())));
    }
    for (at, (_, text)) in field.choices().iter().enumerate() {
        output.message(&format!("    {}. {}\n", at + 1, printable(text)));
    }
    for _ in 0..MAX_ATTEMPTS {
        output.message(&format!("  {}: ", field.prompt()));
        match field.parse(&keys::read_line()?) {
            Parsed::Value(value) => return Some(Some(value)),
            Parsed::Declined => return Some(None),
            Parsed::Invalid(why) => output.message(&format!("    {}\n", printable(&why))),
        }
    }
    Some(None)
}

impl Field<'_> {
    /// Name of the field, and the kind of its value.
    fn prompt(&self) -> String {
        let title = printable(self.schema["title"].as_str().unwrap_or(self.name));
        let what = match (self.choices().is_empty(), self.kind()) {
            (false, "array") => "numbers or names, separated by commas".to_owned(),
            (false, _) => "number or name".to_owned(),
            (true, "boolean") => "yes or no".to_owned(),
            (true, kind @ ("array" | "object")) => format!("{kind} as JSON"),
            (true, kind) => kind.to_owned(),
        };
        let default = self.schema.get("default").filter(|default| !default.is_null());
        let default = default.map(|default| format!(" [{}]", printable(&shown_value(default))));
        let needed = if self.required { "" } else { ", optional" };
        format!("{BOLD}{title}{BOLD:#} ({what}{needed}){}", default.unwrap_or_default())
    }

    /// The type of the field, `string` if it has none.
    fn kind(&self) -> &str {
        match &self.schema["type"] {
            Json::String(kind) => kind,
            Json::Array(kinds) => {
                kinds.iter().filter_map(Json::as_str).find(|kind| *kind != "null").unwrap_or("string")
            }
            _ if self.schema["properties"].is_object() => "object",
            _ => "string",
        }
    }

    /// The values that the field, or an item of it, allows.
    fn choices(&self) -> Vec<FieldChoice> {
        let schema = if self.kind() == "array" { &self.schema["items"] } else { self.schema };
        let titled = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
        if let Some(titled) = titled.filter(|all| all.iter().all(|one| one.get("const").is_some())) {
            let choice = |one: &Json| {
                let value = one["const"].clone();
                let text = one["title"].as_str().map_or_else(|| shown_value(&value), str::to_owned);
                (value, text)
            };
            return titled.iter().map(choice).collect();
        }
        let names = schema["enumNames"].as_array();
        let values = schema["enum"].as_array().map(Vec::as_slice).unwrap_or_default();
        let choice = |(at, value): (usize, &Json)| {
            let name = names.and_then(|names| names.get(at)?.as_str());
            (value.clone(), name.map_or_else(|| shown_value(value), str::to_owned))
        };
        values.iter().enumerate().map(choice).collect()
    }

    /// Converts a typed line, and checks it against the schema.
    fn parse(&self, line: &str) -> Parsed {
        if line == DECLINE {
            return Parsed::Declined;
        }
        if line.is_empty() {
            return match self.schema.get("default").filter(|default| !default.is_null()) {
                Some(default) => Parsed::Value(default.clone()),
                None if self.required => Parsed::Invalid(format!("a value is needed; `{DECLINE}` declines")),
                None => Parsed::Value(Json::Null),
            };
        }
        let value = match self.convert(line) {
            Ok(value) => value,
            Err(why) => return Parsed::Invalid(why),
        };
        // A schema that is not valid checks nothing; the server checks the values of its own form.
        match AnswerSchema::new(self.schema.clone()).map(|schema| schema.check(&value)) {
            Ok(Err(violations)) => Parsed::Invalid(violations.to_string()),
            _ => Parsed::Value(value),
        }
    }

    fn convert(&self, line: &str) -> Result<Json, String> {
        let choices = self.choices();
        if !choices.is_empty() {
            if self.kind() != "array" {
                return find_choice(&choices, line);
            }
            let parts = line.split(',').map(str::trim).filter(|part| !part.is_empty());
            return parts.map(|part| find_choice(&choices, part)).collect::<Result<_, _>>().map(Json::Array);
        }
        match self.kind() {
            "boolean" => match line.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("type `yes` or `no`".to_owned()),
            },
            kind @ ("integer" | "number") => {
                let number = serde_json::from_str(line).ok().filter(Json::is_number);
                number.ok_or_else(|| format!("type {} {kind}", if kind == "integer" { "an" } else { "a" }))
            }
            "array" | "object" => {
                serde_json::from_str(line).map_err(|error| format!("not valid JSON: {error}"))
            }
            _ => Ok(line.into()),
        }
    }
}

/// Finds a choice by its text, its value or its number.
fn find_choice(choices: &[FieldChoice], line: &str) -> Result<Json, String> {
    let named = choices.iter().find(|(value, text)| text == line || shown_value(value) == line);
    let numbered = || choices.get(line.parse::<usize>().ok()?.checked_sub(1)?);
    let found = named.or_else(numbered).map(|(value, _)| value.clone());
    found.ok_or_else(|| format!("type a number from 1 to {}, or a name", choices.len()))
}

/// Formats a value: a string without its quotes.
fn shown_value(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(schema: &Json, required: bool, line: &str) -> Parsed {
        Field { name: "x", schema, required }.parse(line)
    }

    fn is_invalid(schema: &Json, line: &str) -> bool {
        matches!(parse(schema, true, line), Parsed::Invalid(_))
    }

    #[test]
    fn typed_lines_are_converted_by_schema() {
        for (schema, line, value) in [
            (json!({ "type": "string" }), "42", json!("42")),
            (json!({}), "42", json!("42")),
            (json!({ "type": "integer" }), "42", json!(42)),
            (json!({ "type": ["number", "null"] }), "1.5", json!(1.5)),
            (json!({ "type": "boolean" }), "Yes", json!(true)),
            (json!({ "type": "boolean" }), "n", json!(false)),
            (json!({ "enum": ["red", "2", "blue"] }), "1", json!("red")),
            (json!({ "enum": ["red", "2", "blue"] }), "2", json!("2")),
            (json!({ "enum": ["a", "b"], "enumNames": ["Ann", "Bob"] }), "Bob", json!("b")),
            (json!({ "oneOf": [{ "const": "a", "title": "Ann" }, { "const": "b" }] }), "Ann", json!("a")),
            (json!({ "type": "array", "items": { "enum": ["a", "b", "c"] } }), "1, c", json!(["a", "c"])),
            (json!({ "type": "object" }), "{\"n\":1}", json!({ "n": 1 })),
        ] {
            assert_eq!(parse(&schema, true, line), Parsed::Value(value), "{schema} {line}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for (schema, line) in [
            (json!({ "type": "integer" }), "1.5"),
            (json!({ "type": "integer" }), "many"),
            (json!({ "type": "integer", "maximum": 10 }), "11"),
            (json!({ "type": "boolean" }), "maybe"),
            (json!({ "type": "string", "minLength": 3 }), "ab"),
            (json!({ "enum": ["red"] }), "2"),
            (json!({ "enum": ["red"] }), "0"),
            (json!({ "type": "array", "items": { "enum": ["a"] } }), "a, x"),
            (json!({ "type": "array", "minItems": 2, "items": { "enum": ["a", "b"] } }), "a"),
            (json!({ "type": "string" }), ""),
        ] {
            assert!(is_invalid(&schema, line), "{schema} {line}");
        }
    }

    #[test]
    fn empty_lines_take_defaults_and_a_dash_declines() {
        let schema = json!({ "type": "integer", "default": 7 });
        assert_eq!(parse(&schema, true, ""), Parsed::Value(json!(7)));
        assert_eq!(parse(&json!({}), false, ""), Parsed::Value(Json::Null));
        assert_eq!(parse(&json!({}), true, "-"), Parsed::Declined);
    }
}
