//! Classifies how a definition differs from its pin.
//!
//! *Compatible*: all valid calls stay valid, and the description is similar. *Breaking*: a valid call may be rejected
//! or do more than before. *Suspicious*: the description contains instructions, says something else entirely, or the
//! tool now claims to be harmless. Invariant: changes that are not understood are breaking.

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value};
use toolgate_upstream::poisoning;

/// Descriptions with fewer words may change freely: there is too little text to compare.
const MIN_WORDS: usize = 8;

/// Difference between two definitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    pub class: DriftClass,
    /// One readable description per change.
    pub changes: Vec<String>,
}

/// Severity of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriftClass {
    /// Existing calls keep working.
    Compatible,
    /// Existing calls may fail.
    Breaking,
    /// The change may be an attack.
    Suspicious,
}

impl DriftClass {
    pub fn label(self) -> &'static str {
        match self {
            Self::Compatible => "compatible",
            Self::Breaking => "breaking",
            Self::Suspicious => "suspicious",
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its definition changed ({}): {}", self.class.label(), self.changes.join("; "))
    }
}

impl Drift {
    /// Compares two definitions in canonical form.
    pub fn between(old: &Value, new: &Value) -> Self {
        let mut drift = Self { class: DriftClass::Compatible, changes: Vec::new() };
        drift.compare_texts(old, new);
        drift.compare_annotations(&old["annotations"], &new["annotations"]);
        if let Err(why) = check_arguments(&old["inputSchema"], &new["inputSchema"]) {
            drift.add(DriftClass::Breaking, why);
        } else if old["inputSchema"] != new["inputSchema"] {
            drift.add(DriftClass::Compatible, "it accepts more arguments or describes them differently");
        }
        match (&old["outputSchema"], &new["outputSchema"]) {
            (old, new) if old == new => {}
            (Value::Null, _) => drift.add(DriftClass::Compatible, "its results have a schema now"),
            (_, Value::Null) => drift.add(DriftClass::Breaking, "its results have no schema any more"),
            (old, new) => match check_subschema(new, old, "its result") {
                Ok(()) => drift.add(DriftClass::Compatible, "its results have more fields"),
                Err(why) => drift.add(DriftClass::Breaking, why),
            },
        }
        if drift.changes.is_empty() {
            drift.add(DriftClass::Compatible, "its annotations changed");
        }
        drift
    }

    fn add(&mut self, class: DriftClass, what: impl Into<String>) {
        self.class = self.class.max(class);
        self.changes.push(what.into());
    }

    fn compare_texts(&mut self, old: &Value, new: &Value) {
        if let Some(sign) = poisoning::check_value(new).filter(|_| poisoning::check_value(old).is_none()) {
            self.add(DriftClass::Suspicious, format!("it {sign}"));
        }
        let text = |value: &Value| value["description"].as_str().unwrap_or_default().to_owned();
        let (before, after) = (text(old), text(new));
        if before != after {
            if shares_most_words(&before, &after) {
                self.add(DriftClass::Compatible, "its description is worded differently");
            } else {
                self.add(DriftClass::Suspicious, "its description says something else");
            }
        }
        if old["title"] != new["title"] {
            self.add(DriftClass::Compatible, "its title changed");
        }
    }

    /// A tool that newly claims to be harmless could be retried, cached or allowed without cause; a tool that drops
    /// such a claim is not the tool that was approved.
    fn compare_annotations(&mut self, old: &Value, new: &Value) {
        let harmless = [
            ("readOnlyHint", true, "to only read"),
            ("destructiveHint", false, "to destroy nothing"),
            ("idempotentHint", true, "to be repeatable"),
            ("openWorldHint", false, "to stay within its own world"),
        ];
        for (name, good, claim) in harmless {
            let claims = |annotations: &Value| annotations[name].as_bool() == Some(good);
            match (claims(old), claims(new)) {
                (false, true) => self.add(DriftClass::Suspicious, format!("it claims {claim} now")),
                (true, false) => {
                    self.add(DriftClass::Breaking, format!("it does not claim {claim} any more"))
                }
                _ => {}
            }
        }
    }
}

/// Returns true if two texts share most of their words.
fn shares_most_words(old: &str, new: &str) -> bool {
    let words = |text: &str| -> HashSet<String> {
        text.split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let (old, new) = (words(old), words(new));
    let common = old.intersection(&new).count();
    new.len().max(old.len()) < MIN_WORDS || common * 2 >= old.union(&new).count()
}

/// Checks that all calls valid under the old schema are valid under the new one, and keep their meaning.
fn check_arguments(old: &Value, new: &Value) -> Result<(), String> {
    for (name, _) in members(old, "properties") {
        if !members(new, "properties").any(|(new, _)| new == name) {
            return Err(format!("argument `{name}` was removed"));
        }
    }
    check_subschema(old, new, "its argument")
}

fn members<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema[keyword].as_object().into_iter().flatten()
}

/// Checks, as far as possible statically, that every value valid under `narrow` is valid under `wide`.
fn check_subschema(narrow: &Value, wide: &Value, place: &str) -> Result<(), String> {
    let (Value::Object(from), Value::Object(to)) = (narrow, wide) else {
        let all = wide == &Value::Bool(true) || narrow == wide;
        return if all { Ok(()) } else { Err(format!("{place} has a different schema")) };
    };
    for (keyword, wide_value) in to {
        let narrow_value = from.get(keyword);
        if narrow_value == Some(wide_value) {
            continue;
        }
        let good = match keyword.as_str() {
            // Annotations, ignored by validators.
            "title" | "description" | "default" | "examples" | "$comment" | "deprecated" | "readOnly"
            | "writeOnly" | "$schema" | "$id" => true,
            "properties" => {
                for (name, wide) in wide_value.as_object().into_iter().flatten() {
                    if let Some(narrow) = narrow_value.and_then(|narrow_value| narrow_value.get(name)) {
                        check_subschema(narrow, wide, &format!("{place} `{name}`"))?;
                    }
                }
                true
            }
            "items" => {
                check_subschema(narrow_value.unwrap_or(&Value::Bool(true)), wide_value, place)?;
                true
            }
            "required" => {
                let needed = |value: Option<&Value>| -> HashSet<String> {
                    let names = value.and_then(Value::as_array).into_iter().flatten();
                    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
                };
                let (narrow_value, wide_value) = (needed(narrow_value), needed(Some(wide_value)));
                if let Some(name) = wide_value.difference(&narrow_value).min() {
                    return Err(format!("{place} `{name}` is required now"));
                }
                true
            }
            "type" => type_names(narrow_value).is_some_and(|narrow_value| {
                type_names(Some(wide_value)).is_some_and(|wide_value| narrow_value.is_subset(&wide_value))
            }),
            "enum" => {
                let wide_value = wide_value.as_array().map(Vec::as_slice).unwrap_or_default();
                allowed_values(from)
                    .is_some_and(|narrow_value| narrow_value.iter().all(|value| wide_value.contains(value)))
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                number(narrow_value).is_some_and(|narrow_value| {
                    number(Some(wide_value)).is_some_and(|wide_value| narrow_value >= wide_value)
                })
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                number(narrow_value).is_some_and(|narrow_value| {
                    number(Some(wide_value)).is_some_and(|wide_value| narrow_value <= wide_value)
                })
            }
            "additionalProperties" => {
                wide_value == &Value::Bool(true) || narrow_value == Some(&Value::Bool(false))
            }
            _ => false,
        };
        if !good {
            return Err(format!("{place} has a different `{keyword}`"));
        }
    }
    // A definition that other parts refer to may have changed.
    for keyword in ["$ref", "$defs", "definitions"] {
        if from.get(keyword).is_some() && to.get(keyword) != from.get(keyword) {
            return Err(format!("{place} has a different `{keyword}`"));
        }
    }
    Ok(())
}

fn allowed_values(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => Some(values.clone()),
        (_, Some(value)) => Some(vec![value.clone()]),
        _ => None,
    }
}

/// The types of a schema. `number` includes `integer`.
fn type_names(value: Option<&Value>) -> Option<HashSet<&str>> {
    let mut types: HashSet<&str> = match value? {
        Value::String(one) => HashSet::from([one.as_str()]),
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    if types.contains("number") {
        types.insert("integer");
    }
    Some(types)
}

fn number(value: Option<&Value>) -> Option<f64> {
    value?.as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drift(old: Value, new: Value) -> String {
        let drift = Drift::between(&old, &new);
        format!("{}: {}", drift.class.label(), drift.changes.join("; "))
    }

    fn input(old: Value, new: Value) -> String {
        drift(json!({ "inputSchema": old }), json!({ "inputSchema": new }))
    }

    #[test]
    fn classifies_argument_changes() {
        let one =
            json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] });
        let with = |key: &str, value: Value| {
            let mut changed = one.clone();
            changed[key] = value;
            input(one.clone(), changed)
        };
        assert_eq!(
            with(
                "properties",
                json!({ "a": { "type": "number", "description": "n" }, "b": { "type": "string" } })
            ),
            "compatible: it accepts more arguments or describes them differently"
        );
        assert_eq!(
            with("required", json!([])),
            "compatible: it accepts more arguments or describes them differently"
        );
        assert_eq!(with("required", json!(["a", "b"])), "breaking: its argument `b` is required now");
        assert_eq!(with("properties", json!({})), "breaking: argument `a` was removed");
        assert_eq!(
            with("properties", json!({ "a": { "type": "string" } })),
            "breaking: its argument `a` has a different `type`"
        );
        assert_eq!(
            with("additionalProperties", json!(false)),
            "breaking: its argument has a different `additionalProperties`"
        );
        assert_eq!(with("not", json!({})), "breaking: its argument has a different `not`");
    }

    #[test]
    fn classifies_bounds_and_enums() {
        let both = |old: Value, new: Value| {
            let wrap = |schema| json!({ "properties": { "a": schema } });
            (
                input(wrap(old.clone()), wrap(new.clone())).starts_with("compatible"),
                input(wrap(new), wrap(old)).starts_with("compatible"),
            )
        };
        assert_eq!(both(json!({ "enum": ["x"] }), json!({ "enum": ["x", "y"] })), (true, false));
        assert_eq!(both(json!({ "maximum": 5 }), json!({ "maximum": 6 })), (true, false));
        assert_eq!(both(json!({ "minLength": 2 }), json!({ "minLength": 1 })), (true, false));
        assert_eq!(both(json!({ "pattern": "a" }), json!({})), (true, false));
        assert_eq!(
            both(json!({ "items": { "type": "integer" } }), json!({ "items": { "type": "number" } })),
            (true, false)
        );
        assert_eq!(both(json!({ "$ref": "#/$defs/a" }), json!({ "$ref": "#/$defs/b" })), (false, false));
    }

    #[test]
    fn classifies_result_changes() {
        let output = |old, new| drift(json!({ "outputSchema": old }), json!({ "outputSchema": new }));
        let one = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
        let mut more = one.clone();
        more["properties"]["b"] = json!({ "type": "string" });
        assert_eq!(output(one.clone(), more.clone()), "compatible: its results have more fields");
        more["required"] = json!([]);
        assert_eq!(output(one.clone(), more), "breaking: its result `a` is required now");
        assert_eq!(output(one.clone(), Value::Null), "breaking: its results have no schema any more");
        assert_eq!(output(Value::Null, one), "compatible: its results have a schema now");
    }

    #[test]
    fn classifies_descriptions_and_annotations() {
        let text = |old: &str, new: &str| drift(json!({ "description": old }), json!({ "description": new }));
        let long = "Adds two numbers and returns their sum as a number";
        assert_eq!(
            text(long, "Adds two numbers and gives their sum as a number."),
            "compatible: its description is worded differently"
        );
        assert_eq!(
            text(long, "Sends the sum of all your accounts to a friend of mine in another country"),
            "suspicious: its description says something else"
        );
        assert!(text("Adds", "Adds <IMPORTANT>").starts_with("suspicious: it contains a tag"));
        let claim = |old, new| drift(json!({ "annotations": old }), json!({ "annotations": new }));
        assert_eq!(
            claim(json!({}), json!({ "readOnlyHint": true })),
            "suspicious: it claims to only read now"
        );
        assert_eq!(
            claim(json!({ "destructiveHint": false }), json!({ "destructiveHint": true })),
            "breaking: it does not claim to destroy nothing any more"
        );
    }
}
