//! JSON Schemas, compiled when a tool is loaded, so that no call has to compile one.
//!
//! Invariant: nothing is fetched, and patterns match in linear time.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use toolgate_json::CallArguments;

use crate::grant::{Grant, Input};

/// Problems reported per value.
const MAX_PROBLEMS: usize = 8;

/// A compiled JSON Schema.
pub struct SchemaValidator {
    validator: Validator,
    /// True for the empty schema. It accepts everything, so arguments need not be parsed.
    accepts_all: bool,
}

/// A schema that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its schema is invalid: {0}")]
pub struct SchemaError(pub String);

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
    /// If it is not a valid schema, or refers to another document.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        let accepts_all =
            schema.as_object().is_some_and(|members| members.is_empty()) || schema == &Value::Bool(true);
        let validator = jsonschema::options()
            .with_pattern_options(PatternOptions::regex())
            .build(schema)
            .map_err(|error| SchemaError(error.to_string()))?;
        Ok(Self { validator, accepts_all })
    }

    /// Validates a value.
    ///
    /// # Errors
    /// The violations and their locations.
    pub fn check(&self, value: &Value) -> Result<(), SchemaViolations> {
        if self.accepts_all || self.validator.is_valid(value) {
            return Ok(());
        }
        let problem = |error: jsonschema::ValidationError<'_>| {
            let location = error.instance_path().to_string();
            if location.is_empty() { error.to_string() } else { format!("`{}`: {error}", &location[1..]) }
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
}
