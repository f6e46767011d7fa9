//! Schemas of a document as JSON Schema 2020-12 that stands on its own.
//!
//! What a schema refers to goes under `$defs`, each part once, so that circles stay circles. Invariant: no recursion
//! over references, and no more parts than [`MOST_PARTS`].

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Map, Value, json};

use super::document::{Document, Fault};
use crate::schema::{check, pattern_is_linear};

/// Values in the schemas of one operation.
const MOST_PARTS: usize = 20_000;
/// Bytes of a schema that a tool may have.
const LARGEST: usize = 64 << 10;

/// Which way the values go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Schemas on their way to standing on their own.
pub(super) struct Schemas<'a> {
    document: Document<'a>,
    direction: Direction,
    /// Whether explanations are left out.
    lean: bool,
    /// The names under `$defs`, by reference.
    names: HashMap<String, String>,
    /// References that were met and not looked at.
    waiting: VecDeque<(String, &'a Value)>,
    defs: BTreeMap<String, Value>,
    parts: usize,
}

/// Whether a tool can have a schema.
pub(super) fn fits(schema: &Value) -> bool {
    schema.to_string().len() <= LARGEST && check(schema).is_ok()
}

/// One schema that stands on its own and can be used.
pub(super) fn whole(document: Document<'_>, schema: &Value, direction: Direction) -> Result<Value, Fault> {
    let make = |lean| {
        let mut schemas = Schemas::new(document, direction, lean);
        // What is found is looked up in the document again, which outlives this.
        let translated = schemas.translate(schema)?;
        let defs = schemas.finish()?;
        let mut translated = match translated {
            Value::Object(members) => members,
            other => return Ok(other),
        };
        if !translated.contains_key("type") && leads_to_object(&translated, &defs) {
            // Clients of older revisions of MCP look for it at the top.
            translated.insert("type".to_owned(), "object".into());
        }
        if !defs.is_empty() {
            translated.insert("$defs".to_owned(), Value::Object(defs));
        }
        Ok(Value::Object(translated))
    };
    let full = make(false)?;
    if fits(&full) && full.is_object() {
        return Ok(full);
    }
    let lean = make(true)?;
    match check(&lean) {
        _ if !lean.is_object() => Err(Fault("its schema is not an object".to_owned())),
        Err(fault) => Err(Fault(fault.to_string())),
        Ok(()) if !fits(&lean) => Err(Fault(format!("its schema is larger than {LARGEST} bytes"))),
        Ok(()) => Ok(lean),
    }
}

/// Whether a reference leads to a schema of objects.
fn leads_to_object(schema: &Map<String, Value>, defs: &Map<String, Value>) -> bool {
    let mut schema = schema;
    for _ in 0..16 {
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|way| way.strip_prefix("#/$defs/"));
        match name.and_then(|name| defs.get(name)?.as_object()) {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema.get("type").and_then(Value::as_str) == Some("object")
}

impl<'a> Schemas<'a> {
    pub(super) fn new(document: Document<'a>, direction: Direction, lean: bool) -> Self {
        Self {
            document,
            direction,
            lean,
            names: HashMap::new(),
            waiting: VecDeque::new(),
            defs: BTreeMap::new(),
            parts: 0,
        }
    }

    /// Whether explanations are left out.
    pub(super) fn is_lean(&self) -> bool {
        self.lean
    }

    /// The parts that were referred to.
    pub(super) fn finish(mut self) -> Result<Map<String, Value>, Fault> {
        while let Some((name, schema)) = self.waiting.pop_front() {
            let translated = self.translate(schema)?;
            self.defs.insert(name, translated);
        }
        Ok(self.defs.into_iter().collect())
    }

    pub(super) fn translate(&mut self, schema: &Value) -> Result<Value, Fault> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(Fault(format!("its schemas have more than {MOST_PARTS} parts")));
        }
        let members = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(members) => members,
            _ => return Err(Fault("a schema of it is not an object".to_owned())),
        };
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            let referring = json!({ "$ref": format!("#/$defs/{}", self.name(reference)?) });
            // Before 3.1 nothing counts beside a reference.
            return if self.document.plain_schemas && members.len() > 1 {
                let mut beside = self.members(members)?;
                beside.insert("$ref".to_owned(), referring["$ref"].clone());
                Ok(Value::Object(beside))
            } else {
                Ok(referring)
            };
        }
        let mut translated = self.members(members)?;
        if !self.document.plain_schemas {
            modernise(members, &mut translated);
        }
        Ok(Value::Object(translated))
    }

    /// The name under `$defs` of what is referred to.
    fn name(&mut self, reference: &str) -> Result<String, Fault> {
        if let Some(name) = self.names.get(reference) {
            return Ok(name.clone());
        }
        let target = self.document.referred(reference)?;
        let last = reference.rsplit('/').next().unwrap_or_default();
        let letter =
            |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
        let mut name: String = last.chars().take(64).map(letter).collect();
        if name.is_empty() || self.names.values().any(|taken| *taken == name) {
            name = format!("{name}_{}", self.names.len());
        }
        self.names.insert(reference.to_owned(), name.clone());
        self.waiting.push_back((name.clone(), target));
        Ok(name)
    }

    fn members(&mut self, members: &Map<String, Value>) -> Result<Map<String, Value>, Fault> {
        let mut translated = Map::new();
        for (key, value) in members {
            let made = match (key.as_str(), value) {
                ("$ref" | "$schema" | "$id" | "$comment" | "discriminator" | "xml" | "externalDocs", _) => {
                    continue;
                }
                ("nullable" | "example", _) if !self.document.plain_schemas => continue,
                ("description" | "title" | "examples" | "default", _) if self.lean => continue,
                ("pattern", Value::String(pattern)) if pattern_is_linear(pattern).is_err() => continue,
                ("properties" | "$defs" | "dependentSchemas", Value::Object(schemas)) => {
                    Value::Object(self.each(schemas)?)
                }
                ("patternProperties", Value::Object(schemas)) => {
                    let linear = schemas.iter().filter(|(pattern, _)| pattern_is_linear(pattern).is_ok());
                    let linear = linear.map(|(pattern, schema)| (pattern.clone(), schema.clone())).collect();
                    Value::Object(self.each(&linear)?)
                }
                ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                    schemas.iter().map(|schema| self.translate(schema)).collect::<Result<_, _>>()?
                }
                (
                    "items"
                    | "additionalProperties"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "contains"
                    | "propertyNames"
                    | "unevaluatedItems"
                    | "unevaluatedProperties",
                    schema,
                ) => self.translate(schema)?,
                ("required", Value::Array(names)) => self.required(names, members),
                (key, _) if key.starts_with("x-") => continue,
                (_, value) => value.clone(),
            };
            translated.insert(key.clone(), made);
        }
        Ok(translated)
    }

    fn each(&mut self, schemas: &Map<String, Value>) -> Result<Map<String, Value>, Fault> {
        schemas.iter().map(|(name, schema)| Ok((name.clone(), self.translate(schema)?))).collect()
    }

    /// What only the other side sends is not required of this one.
    fn required(&self, names: &[Value], members: &Map<String, Value>) -> Value {
        let flag = match self.direction {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        };
        let others = |name: &&Value| {
            let property = name.as_str().and_then(|name| members.get("properties")?.get(name));
            property.and_then(|property| property.get(flag)) == Some(&Value::Bool(true))
        };
        names.iter().filter(|name| !others(name)).cloned().collect()
    }
}

/// What 3.0 says in words of its own, in the words of 2020-12.
fn modernise(members: &Map<String, Value>, translated: &mut Map<String, Value>) {
    for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        match translated.get(exclusive) {
            Some(Value::Bool(true)) => match translated.remove(limit) {
                Some(bound) => drop(translated.insert(exclusive.to_owned(), bound)),
                None => drop(translated.remove(exclusive)),
            },
            Some(Value::Bool(false)) => drop(translated.remove(exclusive)),
            _ => {}
        }
    }
    if members.get("nullable") != Some(&Value::Bool(true)) {
        return;
    }
    if let Some(Value::Array(values)) = translated.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match translated.get("type") {
        Some(Value::String(kind)) => {
            let kinds = json!([kind, "null"]);
            translated.insert("type".to_owned(), kinds);
        }
        Some(_) => {}
        None if ["allOf", "anyOf", "oneOf", "not", "enum"]
            .iter()
            .any(|key| translated.contains_key(*key)) =>
        {
            let inner = Value::Object(std::mem::take(translated));
            translated.insert("anyOf".to_owned(), json!([inner, { "type": "null" }]));
        }
        // Anything goes, and that holds nothing as well.
        None => {}
    }
}
