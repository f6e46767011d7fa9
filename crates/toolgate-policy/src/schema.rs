//! Schemas, compiled when a tool is loaded: a call compiles nothing.
//!
//! Invariant: nothing is fetched, and a pattern takes linear time.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use toolgate_types::json::Arguments;

use crate::grant::{Grant, Input};

/// Problems of one value that are told.
const MOST_PROBLEMS: usize = 8;

/// A compiled schema.
pub struct Schema {
    validator: Validator,
    /// Whether everything fits, so that nothing needs to be parsed.
    takes_all: bool,
}

/// A schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its schema cannot be used: {0}")]
pub struct SchemaError(pub String);

/// Why a value does not fit: each place with what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit(pub Vec<String>);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Misfit {}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("takes_all", &self.takes_all).finish_non_exhaustive()
    }
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// When it is not a schema, or refers to something that it does not hold.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        let takes_all =
            schema.as_object().is_some_and(|members| members.is_empty()) || schema == &Value::Bool(true);
        let validator = jsonschema::options()
            .with_pattern_options(PatternOptions::regex())
            .build(schema)
            .map_err(|error| SchemaError(error.to_string()))?;
        Ok(Self { validator, takes_all })
    }

    /// Whether a value fits.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub fn check(&self, value: &Value) -> Result<(), Misfit> {
        if self.takes_all || self.validator.is_valid(value) {
            return Ok(());
        }
        let problem = |error: jsonschema::ValidationError<'_>| {
            let place = error.instance_path().to_string();
            if place.is_empty() { error.to_string() } else { format!("`{}`: {error}", &place[1..]) }
        };
        Err(Misfit(self.validator.iter_errors(value).take(MOST_PROBLEMS).map(problem).collect()))
    }

    /// Turns a granted call into what a tool can be invoked with.
    ///
    /// # Errors
    /// What does not fit; the grant is used up all the same.
    pub fn validate(&self, grant: Grant, arguments: &Arguments) -> Result<Input, Misfit> {
        if !self.takes_all {
            let value = arguments.value().ok_or_else(|| Misfit(vec!["they cannot be read".to_owned()]))?;
            self.check(value)?;
        }
        Ok(grant.with(arguments.raw().clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        let schema = Schema::new(&json!({
            "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": { "path": { "type": "string", "maxLength": 3 }, "n": { "type": "integer" } },
        }))
        .unwrap();
        let told =
            |value: Value| schema.check(&value).err().map(|misfit| misfit.to_string()).unwrap_or_default();
        assert_eq!(told(json!({ "path": "a" })), "");
        assert_eq!(told(json!({})), "\"path\" is a required property");
        assert!(told(json!({ "path": "long", "n": 1.5 })).contains("`n`: 1.5 is not of type \"integer\""));
        assert!(told(json!({ "path": "a", "more": 1 })).contains("'more' was unexpected"));
    }

    #[test]
    fn nothing_is_fetched_and_nothing_takes_long() {
        assert!(Schema::new(&json!({ "$ref": "http://127.0.0.1:9/x" })).is_err());
        assert!(Schema::new(&json!({ "$ref": "file:///etc/hostname" })).is_err());
        assert!(Schema::new(&json!({ "type": "string", "pattern": "(?=a)" })).is_err());
        let schema = Schema::new(&json!({ "type": "string", "pattern": "^(a+)+$" })).unwrap();
        assert!(schema.check(&json!(format!("{}!", "a".repeat(1 << 20)))).is_err());
    }
}
