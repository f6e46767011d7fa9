//! Arguments that are `null` although their schema does not allow it, and that may be absent.
//!
//! Models in strict mode must fill in every argument, and write `null` for those they have no value for. Invariant: a
//! value that the schema allows, or requires, stays as it is, and so does the spelling of everything else.

use std::fmt::Write as _;

use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_json::{RawJson, object_members, quote};

/// Nesting that is looked at. Arguments from outside have at most 64 levels.
const MAX_DEPTH: usize = 64;
/// References that are followed from one part of a schema.
const MAX_REFERENCES: usize = 16;
/// Parts of a schema that are looked at for one call. Parts that refer to each other have no end.
const MAX_STEPS: usize = 1_000_000;

/// Returns the arguments without members that are `null`, optional, and not allowed to be `null`. `None` if there are
/// none, the usual case.
pub fn without_nulls(schema: &Value, arguments: &RawJson) -> Option<RawJson> {
    let (mut out, mut remover) = (String::new(), NullRemover { root: schema, steps: 0 });
    let is_changed = remover.copy(arguments.as_str(), schema, 0, &mut out);
    is_changed.then(|| RawJson::from_trusted(out))
}

struct NullRemover<'a> {
    root: &'a Value,
    steps: usize,
}

impl NullRemover<'_> {
    /// Copies a value without such members. Returns true if any was left out.
    fn copy(&mut self, text: &str, schema: &Value, depth: usize, out: &mut String) -> bool {
        let schema = resolve(schema, self.root);
        let text = text.trim();
        match text.as_bytes().first() {
            Some(b'{') if depth < MAX_DEPTH => self.copy_object(text, schema, depth, out),
            Some(b'[') if depth < MAX_DEPTH && schema.get("items").is_some_and(Value::is_object) => {
                let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else {
                    out.push_str(text);
                    return false;
                };
                let mut is_changed = false;
                out.push('[');
                for (at, item) in items.into_iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    is_changed |= self.copy(item.get(), &schema["items"], depth + 1, out);
                }
                out.push(']');
                is_changed
            }
            _ => {
                out.push_str(text);
                false
            }
        }
    }

    fn copy_object(&mut self, text: &str, schema: &Value, depth: usize, out: &mut String) -> bool {
        let (mut is_changed, mut is_first) = (false, true);
        let required = schema.get("required").and_then(Value::as_array);
        out.push('{');
        for (name, value) in object_members(text) {
            let property = schema.get("properties").and_then(|all| all.get(&*name));
            let is_required = required.is_some_and(|all| all.iter().any(|one| one == &*name));
            if value.trim() == "null" && !is_required && property.is_some_and(|one| !self.allows_null(one, 0))
            {
                is_changed = true;
                continue;
            }
            out.push_str(if std::mem::take(&mut is_first) { "" } else { "," });
            quote(&name, out);
            out.push(':');
            match property {
                Some(property) => is_changed |= self.copy(value, property, depth + 1, out),
                None => drop(write!(out, "{value}")),
            }
        }
        out.push('}');
        is_changed
    }

    /// Returns true if a schema may allow `null`. In doubt it does.
    fn allows_null(&mut self, schema: &Value, depth: usize) -> bool {
        self.steps += 1;
        let schema = resolve(schema, self.root);
        let Value::Object(members) = schema else { return schema != &Value::Bool(false) };
        if depth > MAX_REFERENCES || self.steps > MAX_STEPS || members.contains_key("$ref") {
            return true;
        }
        let is_type = match members.get("type") {
            Some(Value::String(name)) => {
                name == "null" || members.get("nullable") == Some(&Value::Bool(true))
            }
            Some(Value::Array(names)) => names.iter().any(|name| name == "null"),
            _ => true,
        };
        let is_value =
            members.get("enum").and_then(Value::as_array).is_none_or(|all| all.contains(&Value::Null))
                && members.get("const").is_none_or(Value::is_null);
        if !is_type || !is_value {
            return false;
        }
        let branches = |keyword: &str| members.get(keyword).and_then(Value::as_array);
        let is_branch = ["anyOf", "oneOf"].iter().all(|keyword| {
            branches(keyword).is_none_or(|all| all.iter().any(|one| self.allows_null(one, depth + 1)))
        });
        is_branch
            && branches("allOf").is_none_or(|all| all.iter().all(|one| self.allows_null(one, depth + 1)))
    }
}

/// Follows local references.
fn resolve<'a>(mut schema: &'a Value, root: &'a Value) -> &'a Value {
    for _ in 0..MAX_REFERENCES {
        let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'))
        else {
            return schema;
        };
        match root.pointer(pointer) {
            Some(target) => schema = target,
            None => return schema,
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_nulls_that_may_be_absent_are_left_out() {
        let schema = json!({
            "type": "object", "required": ["path", "must"],
            "properties": {
                "path": { "type": "string" }, "must": { "type": "string" },
                "limit": { "type": "integer" }, "maybe": { "type": ["string", "null"] },
                "old": { "type": "string", "nullable": true }, "free": {},
                "kind": { "enum": ["a", "b"] }, "either": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
                "neither": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
                "deep": { "$ref": "#/$defs/deep" }, "list": { "type": "array", "items": { "$ref": "#/$defs/deep" } },
            },
            "$defs": { "deep": { "type": "object", "properties": { "x": { "type": "number" } } } },
        });
        let check = |arguments: &str, expected: Option<&str>| {
            let arguments = RawJson::from_trusted(arguments.to_owned());
            let found = without_nulls(&schema, &arguments);
            assert_eq!(found.as_ref().map(RawJson::as_str), expected, "{arguments:?}");
        };
        check(r#"{"path":"a","limit":null}"#, Some(r#"{"path":"a"}"#));
        check(r#"{"limit": null, "path": "a", "n": 1.0}"#, Some(r#"{"path":"a","n":1.0}"#));
        check(r#"{"path":"a","kind":null,"neither":null}"#, Some(r#"{"path":"a"}"#));
        check(
            r#"{"deep":{"x":null},"list":[{"x":1.50},{"x":null}]}"#,
            Some(r#"{"deep":{},"list":[{"x":1.50},{}]}"#),
        );
        for unchanged in [
            r#"{"path":"a"}"#,
            r#"{"path":null,"must":null}"#,
            r#"{"maybe":null,"old":null,"free":null,"either":null}"#,
            r#"{"unknown":null}"#,
        ] {
            check(unchanged, None);
        }
        // A schema that refers to itself many times over.
        let all = vec![json!({ "$ref": "#/$defs/a" }); 10];
        let bomb =
            json!({ "properties": { "x": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "allOf": all } } });
        assert!(without_nulls(&bomb, &RawJson::from_trusted(r#"{"x":null}"#.to_owned())).is_none());
    }
}
