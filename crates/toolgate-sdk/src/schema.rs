//! JSON Schemas of Rust types, and values held against them.
//!
//! Invariant: a schema is draft 2020-12, holds all it refers to, and nothing is ever fetched for it.

use jsonschema::{PatternOptions, Validator};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Problems of one value that are told.
const MOST_PROBLEMS: usize = 8;

/// The schema of what is read as a `P`. Names that `P` does not have are refused.
pub(crate) fn of_input<P: JsonSchema>() -> Value {
    let mut schema = generate::<P>(SchemaSettings::draft2020_12().for_deserialize());
    if let Some(members) = schema.as_object_mut() {
        let is_plain = !["additionalProperties", "unevaluatedProperties", "anyOf", "oneOf", "allOf", "$ref"]
            .iter()
            .any(|key| members.contains_key(*key));
        if is_plain && members.get("type").is_some_and(|kind| kind == "object") {
            members.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
    schema
}

/// The schema of what an `R` is written as.
pub(crate) fn of_output<R: JsonSchema>() -> Value {
    generate::<R>(SchemaSettings::draft2020_12().for_serialize())
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    // Models read a schema from top to bottom: what is used stands where it is used. Types that hold
    // themselves become references all the same.
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    // The name of a Rust type says nothing to a caller, and the tool has a description of its own.
    schema.remove("title");
    schema.remove("description");
    let mut schema = schema.to_value();
    drop_widths(&mut schema);
    schema
}

/// `uint32` and the like are formats of Rust and of no standard, and some model providers refuse them. The bounds
/// that matter stand beside them.
fn drop_widths(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let is_width = |format: &str| format.starts_with("int") || format.starts_with("uint");
            if members.get("format").and_then(Value::as_str).is_some_and(is_width) {
                members.remove("format");
            }
            members.values_mut().for_each(drop_widths);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_widths),
        _ => {}
    }
}

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Compiled(Validator);

impl Compiled {
    /// Compiles a schema, or says why it cannot be.
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        options.build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Whether a value fits; else what does not, and where.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        if self.0.is_valid(value) {
            return Ok(());
        }
        let problem = |error: jsonschema::ValidationError<'_>| {
            let place = error.instance_path().to_string();
            if place.is_empty() { error.to_string() } else { format!("`{}`: {error}", &place[1..]) }
        };
        Err(self.0.iter_errors(value).take(MOST_PROBLEMS).map(problem).collect::<Vec<_>>().join("; "))
    }
}
