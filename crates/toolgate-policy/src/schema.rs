//! JSON Schemas, compiled once per tool.
//!
//! Invariant: an unsafe schema is never compiled, nothing is fetched, and the time to validate a value is bounded by the
//! product of the parts of the schema and of the value, plus the product of the states of its patterns and the bytes of
//! the strings. A larger sum than `MAX_STEPS` is rejected.

mod cost;
mod nulls;
mod unchecked;

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use toolgate_json::CallArguments;

use crate::grant::{Grant, Input};
use cost::{MAX_PATTERN_BYTES, SchemaCost, schema_cost};
pub use cost::{SchemaFault, check, pattern_is_linear};
pub use nulls::without_nulls;
pub use unchecked::{UncheckedPatterns, checkable};

/// Problems reported per value.
const MAX_PROBLEMS: usize = 8;
/// Bytes of one reported problem. It quotes the value.
const MAX_PROBLEM_BYTES: usize = 1 << 10;
/// Parts of the schema times parts of the value, and the same for patterns: about a second.
const MAX_STEPS: u64 = 100_000_000;
/// Parts of the schema times bytes of the value that are validated at once: some ten milliseconds at most.
const MAX_INLINE_COST: u64 = 2 << 20;
/// Bytes of strings that cost as much as one part. Keywords such as `maxLength` read them.
const BYTES_PER_PART: u64 = 64;
/// States of patterns that cost as much, per byte of a string, as one step.
const STATES_PER_STEP: u64 = 4;
/// Steps to describe the violations of a value. Unlike validation, it visits recursive parts again and again.
const MAX_DESCRIPTION_STEPS: u64 = 1_000_000;

/// A compiled JSON Schema.
pub struct SchemaValidator {
    validator: Validator,
    /// True for the empty schema. It accepts everything, so arguments need not be parsed.
    accepts_all: bool,
    cost: SchemaCost,
}

/// A schema that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("its schema is invalid: {0}")]
    Invalid(String),
    #[error(transparent)]
    Unsafe(#[from] SchemaFault),
}

/// The violations of one value, each with its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolations(pub Vec<String>);

impl fmt::Display for SchemaViolations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for SchemaViolations {}

impl fmt::Debug for SchemaValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("accepts_all", &self.accepts_all).finish_non_exhaustive()
    }
}

impl SchemaValidator {
    /// Compiles a schema.
    ///
    /// # Errors
    /// If it is not a valid schema, refers to another document, or would take too long to validate with.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        let accepts_all =
            schema.as_object().is_some_and(|members| members.is_empty()) || schema == &Value::Bool(true);
        let cost = schema_cost(schema)?;
        let patterns =
            PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|error| SchemaError::Invalid(error.to_string()))?;
        Ok(Self { validator, accepts_all, cost })
    }

    /// Returns true if validating a value of this size may take longer than async code should block.
    pub fn is_expensive(&self, size_bytes: usize) -> bool {
        let per_byte = self.cost.parts.saturating_add(self.cost.patterns.states() / STATES_PER_STEP);
        !self.accepts_all && per_byte.saturating_mul(size_bytes as u64) > MAX_INLINE_COST
    }

    /// Validates a value.
    ///
    /// # Errors
    /// The violations and their locations.
    pub fn check(&self, value: &Value) -> Result<(), SchemaViolations> {
        if self.accepts_all {
            return Ok(());
        }
        let SchemaCost { parts, recursions, patterns } = self.cost;
        let mut size = ValueSize::new(patterns.head_bytes);
        size.add(value, 0);
        let value_parts = size.parts + size.string_bytes / BYTES_PER_PART;
        let pattern_work = patterns.unbounded.saturating_mul(size.string_bytes);
        let pattern_work = pattern_work.saturating_add(patterns.bounded.saturating_mul(size.head_bytes));
        let steps = parts.saturating_mul(value_parts).saturating_add(pattern_work / STATES_PER_STEP);
        if steps > MAX_STEPS {
            let message = format!(
                "the value has {} parts and {} bytes of strings, its schema has {parts} parts and patterns with {} \
                 states, which would take too long to validate",
                size.parts,
                size.string_bytes,
                patterns.states(),
            );
            return Err(SchemaViolations(vec![message]));
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let visits = recursions.max(1).saturating_pow(size.depth);
        if steps.saturating_mul(visits) > MAX_DESCRIPTION_STEPS {
            let message = "the value does not match its schema, and is too large to say where";
            return Err(SchemaViolations(vec![message.to_owned()]));
        }
        let problem = |error: jsonschema::ValidationError<'_>| {
            let location = error.instance_path().to_string();
            let mut text = if location.is_empty() {
                error.to_string()
            } else {
                format!("`{}`: {error}", &location[1..])
            };
            if text.len() > MAX_PROBLEM_BYTES {
                text.truncate(text.floor_char_boundary(MAX_PROBLEM_BYTES));
                text.push('…');
            }
            text
        };
        Err(SchemaViolations(self.validator.iter_errors(value).take(MAX_PROBLEMS).map(problem).collect()))
    }

    /// Turns a granted call into the input a tool can be invoked with.
    ///
    /// # Errors
    /// The violations. The grant is consumed either way.
    pub fn validate(&self, grant: Grant, arguments: &CallArguments) -> Result<Input, SchemaViolations> {
        if !self.accepts_all {
            let value = arguments
                .value()
                .ok_or_else(|| SchemaViolations(vec!["the arguments are not valid JSON".to_owned()]))?;
            self.check(value)?;
        }
        Ok(grant.into_input(arguments.raw().clone()))
    }
}

/// Size of a value.
struct ValueSize {
    /// Scalars, arrays and objects.
    parts: u64,
    depth: u32,
    /// Bytes of all strings and names.
    string_bytes: u64,
    /// The same, with at most `max_head_bytes` of each.
    head_bytes: u64,
    max_head_bytes: usize,
}

impl ValueSize {
    fn new(max_head_bytes: usize) -> Self {
        Self { parts: 0, depth: 0, string_bytes: 0, head_bytes: 0, max_head_bytes }
    }

    /// Values from outside have at most 64 levels, so this does not recurse deeply.
    fn add(&mut self, value: &Value, depth: u32) {
        self.parts += 1;
        self.depth = self.depth.max(depth);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1)),
            Value::Object(members) => {
                for (name, member) in members {
                    self.add_string(name);
                    self.add(member, depth + 1);
                }
            }
            Value::String(string) => self.add_string(string),
            _ => {}
        }
    }

    fn add_string(&mut self, string: &str) {
        self.string_bytes += string.len() as u64;
        self.head_bytes += string.len().min(self.max_head_bytes) as u64;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_violations_with_their_location() {
        let schema = SchemaValidator::new(&json!({
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": { "path": { "type": "string", "maxLength": 3 }, "n": { "type": "integer" } },
        }))
        .unwrap();
        let violations =
            |value: Value| schema.check(&value).err().map(|misfit| misfit.to_string()).unwrap_or_default();
        assert_eq!(violations(json!({ "path": "a" })), "");
        assert_eq!(violations(json!({})), "\"path\" is a required property");
        assert!(
            violations(json!({ "path": "long", "n": 1.5 })).contains("`n`: 1.5 is not of type \"integer\"")
        );
        assert!(violations(json!({ "path": "a", "more": 1 })).contains("'more' was unexpected"));
    }

    #[test]
    fn fetches_nothing_and_matches_in_linear_time() {
        assert!(SchemaValidator::new(&json!({ "$ref": "http://127.0.0.1:9/x" })).is_err());
        assert!(SchemaValidator::new(&json!({ "$ref": "file:///etc/hostname" })).is_err());
        assert!(SchemaValidator::new(&json!({ "type": "string", "pattern": "(?=a)" })).is_err());
        let schema = SchemaValidator::new(&json!({ "type": "string", "pattern": "^(a+)+$" })).unwrap();
        assert!(schema.check(&json!(format!("{}!", "a".repeat(1 << 20)))).is_err());
    }

    #[test]
    fn exploding_schemas_are_rejected_before_they_are_compiled() {
        let mut defs = serde_json::Map::new();
        for level in 0..30 {
            let next = json!({ "$ref": format!("#/$defs/a{}", level + 1) });
            defs.insert(format!("a{level}"), json!({ "allOf": [next.clone(), next] }));
        }
        defs.insert("a30".to_owned(), json!({ "type": "string" }));
        let schema = json!({ "$ref": "#/$defs/a0", "$defs": defs });
        assert_eq!(SchemaValidator::new(&schema).unwrap_err(), SchemaError::Unsafe(SchemaFault::TooCostly));
    }

    /// Every level validates the next one twice: 2^64 steps without a cache, and as many problems to describe.
    #[test]
    fn recursive_schemas_do_not_explode_with_the_value() {
        let next = json!({ "properties": { "a": { "$ref": "#/$defs/t" } } });
        let schema = json!({ "$ref": "#/$defs/t", "$defs": { "t": {
            "not": { "required": ["end"] }, "allOf": [next.clone(), next.clone(), { "anyOf": [next.clone(), next] }],
        } } });
        let schema = SchemaValidator::new(&schema).unwrap();
        let nested = |end: &str| (0..60).fold(json!({ end: 1 }), |inner, _| json!({ "a": inner }));
        assert_eq!(schema.check(&nested("b")), Ok(()));
        let violations = schema.check(&nested("end")).unwrap_err().to_string();
        assert_eq!(violations, "the value does not match its schema, and is too large to say where");
        let violations = schema.check(&json!({ "a": { "end": 1 } })).unwrap_err().to_string();
        assert!(violations.starts_with("`a`: "), "{violations}");
    }

    #[test]
    fn the_product_of_schema_and_value_is_bounded() {
        let parts: Vec<_> = (0..900).map(|n| json!({ "minimum": -n })).collect();
        let schema = SchemaValidator::new(&json!({ "items": { "allOf": parts } })).unwrap();
        assert_eq!(schema.check(&json!([1, 2, 3])), Ok(()));
        let violations = schema.check(&json!(vec![1; 200_000])).unwrap_err().to_string();
        assert!(violations.contains("would take too long to validate"), "{violations}");
        assert!(schema.is_expensive(200_000) && !schema.is_expensive(1_000));
        let plain = SchemaValidator::new(&json!({ "properties": { "a": { "type": "string" } } })).unwrap();
        assert!(!plain.is_expensive(100 << 10));
    }

    #[test]
    fn the_product_of_patterns_and_strings_is_bounded() {
        let patterns: Vec<_> =
            (0..30).map(|n| json!({ "pattern": format!("a[ab]{{{}}}[c-z]", 1000 + n) })).collect();
        let schema = SchemaValidator::new(&json!({ "anyOf": patterns })).unwrap();
        assert!(schema.is_expensive(10 << 10) && !schema.is_expensive(100));
        let refused = |value: Value| {
            let violations = schema.check(&value).unwrap_err().to_string();
            violations.contains("patterns with 30525 states, which would take too long to validate")
        };
        // 30,525 states times 20 KiB are 150 million steps.
        assert!(refused(json!("ab".repeat(10 << 10))));
        assert!(refused(json!(vec!["ab".repeat(10); 1 << 10])));
        assert!(!refused(json!("ab")));
        let names = json!({ "patternProperties": { "a[ab]{1000}[c-z]": {} } });
        let names = SchemaValidator::new(&names).unwrap();
        let value = json!({ "ab".repeat(200 << 10): 1 });
        assert!(names.check(&value).unwrap_err().to_string().contains("would take too long to validate"));
    }

    /// A long string beside members with ordinary patterns is no reason to refuse a value.
    #[test]
    fn ordinary_patterns_are_cheap() {
        let schema = SchemaValidator::new(&json!({ "properties": {
            "id": { "pattern": "^[a-z0-9-]{1,64}$" }, "version": { "pattern": r"^\d+\.\d+\.\d+$" },
            "mail": { "pattern": r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$" }, "url": { "pattern": "^https?://.+" },
            "content": { "type": "string", "maxLength": 10_000_000 },
        } }))
        .unwrap();
        assert_eq!(schema.check(&json!({ "id": "a-1", "content": "x".repeat(4 << 20) })), Ok(()));
        assert!(!schema.is_expensive(10 << 10));
    }

    #[test]
    fn problems_quote_little_of_the_value() {
        let schema = SchemaValidator::new(&json!({ "type": "integer" })).unwrap();
        let violations = schema.check(&json!("ä".repeat(1 << 20))).unwrap_err().to_string();
        assert!(violations.len() < 2 * MAX_PROBLEM_BYTES, "{} bytes", violations.len());
    }
}
