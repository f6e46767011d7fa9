//! How far a definition has moved from its pin.
//!
//! *Compatible*: every call that was good is good still, and the words are much the same.
//! *Breaking*: a good call may be refused now, or does more than it did. *Suspicious*: the words
//! give orders, or say something else altogether, or the tool now claims to be harmless.
//! Invariant: what is not understood is breaking.

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value};
use toolgate_upstream::suspicion;

/// A text with fewer words than this may change freely: there is too little to compare.
const FEWEST_WORDS: usize = 8;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// How bad it is.
    pub class: DriftClass,
    /// What changed, each to be read on its own.
    pub changes: Vec<String>,
}

/// How bad a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriftClass {
    /// Nothing that worked stops to work.
    Compatible,
    /// Something may stop to work.
    Breaking,
    /// Somebody may mean harm.
    Suspicious,
}

impl DriftClass {
    /// Its name in messages.
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
    /// Compares two definitions in their canonical form.
    pub fn between(old: &Value, new: &Value) -> Self {
        let mut drift = Self { class: DriftClass::Compatible, changes: Vec::new() };
        drift.words(old, new);
        drift.annotations(&old["annotations"], &new["annotations"]);
        if let Err(why) = takes_all_of(&old["inputSchema"], &new["inputSchema"]) {
            drift.add(DriftClass::Breaking, why);
        } else if old["inputSchema"] != new["inputSchema"] {
            drift.add(DriftClass::Compatible, "it takes more arguments, or explains them differently");
        }
        match (&old["outputSchema"], &new["outputSchema"]) {
            (old, new) if old == new => {}
            (Value::Null, _) => drift.add(DriftClass::Compatible, "its results have a schema now"),
            (_, Value::Null) => drift.add(DriftClass::Breaking, "its results have no schema any more"),
            (old, new) => match fits(new, old, "its result") {
                Ok(()) => drift.add(DriftClass::Compatible, "its results have more in them"),
                Err(why) => drift.add(DriftClass::Breaking, why),
            },
        }
        if drift.changes.is_empty() {
            drift.add(DriftClass::Compatible, "it is annotated differently");
        }
        drift
    }

    fn add(&mut self, class: DriftClass, what: impl Into<String>) {
        self.class = self.class.max(class);
        self.changes.push(what.into());
    }

    fn words(&mut self, old: &Value, new: &Value) {
        if let Some(sign) = suspicion::of_value(new).filter(|_| suspicion::of_value(old).is_none()) {
            self.add(DriftClass::Suspicious, format!("it {sign}"));
        }
        let text = |value: &Value| value["description"].as_str().unwrap_or_default().to_owned();
        let (before, after) = (text(old), text(new));
        if before != after {
            if alike(&before, &after) {
                self.add(DriftClass::Compatible, "its description is worded differently");
            } else {
                self.add(DriftClass::Suspicious, "its description says something else");
            }
        }
        if old["title"] != new["title"] {
            self.add(DriftClass::Compatible, "its title is another one");
        }
    }

    /// A tool that claims less danger than before would be retried, cached or allowed where it was
    /// not; one that admits to more is not the tool that was approved.
    fn annotations(&mut self, old: &Value, new: &Value) {
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

/// Whether two texts share most of their words.
fn alike(old: &str, new: &str) -> bool {
    let words = |text: &str| -> HashSet<String> {
        text.split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let (old, new) = (words(old), words(new));
    let common = old.intersection(&new).count();
    new.len().max(old.len()) < FEWEST_WORDS || common * 2 >= old.union(&new).count()
}

/// Whether every call that fitted the old schema fits the new one, and means what it meant.
fn takes_all_of(old: &Value, new: &Value) -> Result<(), String> {
    for (name, _) in members(old, "properties") {
        if !members(new, "properties").any(|(new, _)| new == name) {
            return Err(format!("argument `{name}` is gone"));
        }
    }
    fits(old, new, "its argument")
}

fn members<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema[keyword].as_object().into_iter().flatten()
}

/// Whether every value that fits `narrow` fits `wide`, as far as can be told without trying.
fn fits(narrow: &Value, wide: &Value, place: &str) -> Result<(), String> {
    let (Value::Object(from), Value::Object(to)) = (narrow, wide) else {
        let all = wide == &Value::Bool(true) || narrow == wide;
        return if all { Ok(()) } else { Err(format!("{place} has another schema")) };
    };
    for (keyword, wants) in to {
        let has = from.get(keyword);
        if has == Some(wants) {
            continue;
        }
        let good = match keyword.as_str() {
            // They say something to people and nothing to a validator.
            "title" | "description" | "default" | "examples" | "$comment" | "deprecated" | "readOnly"
            | "writeOnly" | "$schema" | "$id" => true,
            "properties" => {
                for (name, wide) in wants.as_object().into_iter().flatten() {
                    if let Some(narrow) = has.and_then(|has| has.get(name)) {
                        fits(narrow, wide, &format!("{place} `{name}`"))?;
                    }
                }
                true
            }
            "items" => {
                fits(has.unwrap_or(&Value::Bool(true)), wants, place)?;
                true
            }
            "required" => {
                let needed = |value: Option<&Value>| -> HashSet<String> {
                    let names = value.and_then(Value::as_array).into_iter().flatten();
                    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
                };
                let (has, wants) = (needed(has), needed(Some(wants)));
                if let Some(name) = wants.difference(&has).min() {
                    return Err(format!("{place} `{name}` is required now"));
                }
                true
            }
            "type" => {
                types(has).is_some_and(|has| types(Some(wants)).is_some_and(|wants| has.is_subset(&wants)))
            }
            "enum" => {
                let wants = wants.as_array().map(Vec::as_slice).unwrap_or_default();
                values(from).is_some_and(|has| has.iter().all(|value| wants.contains(value)))
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                number(has).is_some_and(|has| number(Some(wants)).is_some_and(|wants| has >= wants))
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                number(has).is_some_and(|has| number(Some(wants)).is_some_and(|wants| has <= wants))
            }
            "additionalProperties" => wants == &Value::Bool(true) || has == Some(&Value::Bool(false)),
            _ => false,
        };
        if !good {
            return Err(format!("{place} has another `{keyword}`"));
        }
    }
    // A part that others refer to may have changed under them.
    for keyword in ["$ref", "$defs", "definitions"] {
        if from.get(keyword).is_some() && to.get(keyword) != from.get(keyword) {
            return Err(format!("{place} has another `{keyword}`"));
        }
    }
    Ok(())
}

fn values(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => Some(values.clone()),
        (_, Some(value)) => Some(vec![value.clone()]),
        _ => None,
    }
}

/// The types that a schema names; an integer is a number too.
fn types(value: Option<&Value>) -> Option<HashSet<&str>> {
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
    fn arguments() {
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
            "compatible: it takes more arguments, or explains them differently"
        );
        assert_eq!(
            with("required", json!([])),
            "compatible: it takes more arguments, or explains them differently"
        );
        assert_eq!(with("required", json!(["a", "b"])), "breaking: its argument `b` is required now");
        assert_eq!(with("properties", json!({})), "breaking: argument `a` is gone");
        assert_eq!(
            with("properties", json!({ "a": { "type": "string" } })),
            "breaking: its argument `a` has another `type`"
        );
        assert_eq!(
            with("additionalProperties", json!(false)),
            "breaking: its argument has another `additionalProperties`"
        );
        assert_eq!(with("not", json!({})), "breaking: its argument has another `not`");
    }

    #[test]
    fn bounds_and_choices() {
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
    fn results() {
        let output = |old, new| drift(json!({ "outputSchema": old }), json!({ "outputSchema": new }));
        let one = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
        let mut more = one.clone();
        more["properties"]["b"] = json!({ "type": "string" });
        assert_eq!(output(one.clone(), more.clone()), "compatible: its results have more in them");
        more["required"] = json!([]);
        assert_eq!(output(one.clone(), more), "breaking: its result `a` is required now");
        assert_eq!(output(one.clone(), Value::Null), "breaking: its results have no schema any more");
        assert_eq!(output(Value::Null, one), "compatible: its results have a schema now");
    }

    #[test]
    fn words_and_claims() {
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
        assert!(text("Adds", "Adds <IMPORTANT>").starts_with("suspicious: it holds a tag"));
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
