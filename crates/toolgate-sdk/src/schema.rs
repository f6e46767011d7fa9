//! JSON Schemas of Rust types, and validation against them.
//!
//! Invariant: a schema is draft 2020-12 and self-contained; nothing is ever fetched for it.

use jsonschema::{PatternOptions, Validator};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Maximum number of problems reported per value.
const MAX_PROBLEMS: usize = 8;

/// Returns the schema for deserializing a `P`. Unknown properties are rejected.
pub(crate) fn input_schema<P: JsonSchema>() -> Value {
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

/// Returns the schema of a serialized `R`.
pub(crate) fn output_schema<R: JsonSchema>() -> Value {
    generate::<R>(SchemaSettings::draft2020_12().for_serialize())
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    // Inline subschemas, since models read a schema from top to bottom. Recursive types remain references.
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    // The name of a Rust type means nothing to a caller, and the tool has its own description.
    schema.remove("title");
    schema.remove("description");
    let mut schema = schema.to_value();
    drop_integer_formats(&mut schema);
    schema
}

/// Removes formats such as `uint32`. They are no standard formats, some model providers reject them, and `minimum` and
/// `maximum` express the same.
fn drop_integer_formats(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let is_width = |format: &str| format.starts_with("int") || format.starts_with("uint");
            if members.get("format").and_then(Value::as_str).is_some_and(is_width) {
                members.remove("format");
            }
            members.values_mut().for_each(drop_integer_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_integer_formats),
        _ => {}
    }
}

#[derive(Debug)]
pub(crate) struct CompiledSchema(Validator);

impl CompiledSchema {
    /// Compiles a schema, or returns the reason why it is invalid.
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        options.build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Validates a value; the error lists the problems with their paths.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        if self.0.is_valid(value) {
            return Ok(());
        }
        let problem = |error: jsonschema::ValidationError<'_>| {
            let path = error.instance_path().to_string();
            if path.is_empty() { error.to_string() } else { format!("`{}`: {error}", &path[1..]) }
        };
        Err(self.0.iter_errors(value).take(MAX_PROBLEMS).map(problem).collect::<Vec<_>>().join("; "))
    }
}
