//! Translates the schemas of a document to self-contained JSON Schema 2020-12.
//!
//! Referenced schemas go under `$defs`, each once, so that cycles stay cycles. Invariant: no recursion over references,
//! and no more than [`MAX_PARTS`] parts.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Map, Value, json};
use toolgate_policy::schema::{check, pattern_is_linear};

use super::document::{DocumentFault, OpenApiDocument};

/// Values in the schemas of one operation.
const MAX_PARTS: usize = 20_000;
/// The largest schema of a tool.
const MAX_BYTES: usize = 64 << 10;

/// The direction of the values: some properties are only sent in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Translates schemas and collects their references.
pub(super) struct SchemaTranslator<'a> {
    document: OpenApiDocument<'a>,
    direction: Direction,
    /// True if descriptions are omitted.
    lean: bool,
    /// The names under `$defs`, by reference.
    names: HashMap<String, String>,
    /// References that are not translated yet.
    pending: VecDeque<(String, &'a Value)>,
    defs: BTreeMap<String, Value>,
    parts: usize,
}

/// Returns true if a schema is small and safe enough for a tool.
pub(super) fn is_acceptable(schema: &Value) -> bool {
    schema.to_string().len() <= MAX_BYTES && check(schema).is_ok()
}

/// Translates one schema to a self-contained one. Falls back to a lean one if the full one is too large.
pub(super) fn translate_standalone(
    document: OpenApiDocument<'_>,
    schema: &Value,
    direction: Direction,
) -> Result<Value, DocumentFault> {
    let translate = |lean| {
        let mut schemas = SchemaTranslator::new(document, direction, lean);
        // References are resolved in the document. It outlives this function.
        let translated = schemas.translate(schema)?;
        let defs = schemas.finish()?;
        let mut translated = match translated {
            Value::Object(members) => members,
            other => return Ok(other),
        };
        if !translated.contains_key("type") && leads_to_object(&translated, &defs) {
            // Clients of older MCP revisions look for `type` at the top.
            translated.insert("type".to_owned(), "object".into());
        }
        if !defs.is_empty() {
            translated.insert("$defs".to_owned(), Value::Object(defs));
        }
        Ok(Value::Object(translated))
    };
    let full = translate(false)?;
    if is_acceptable(&full) && full.is_object() {
        return Ok(full);
    }
    let lean = translate(true)?;
    match check(&lean) {
        _ if !lean.is_object() => Err(DocumentFault("its schema is not an object".to_owned())),
        Err(fault) => Err(DocumentFault(fault.to_string())),
        Ok(()) if !is_acceptable(&lean) => {
            Err(DocumentFault(format!("its schema is larger than {MAX_BYTES} bytes")))
        }
        Ok(()) => Ok(lean),
    }
}

/// Returns true if a reference leads to an object schema.
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

impl<'a> SchemaTranslator<'a> {
    pub(super) fn new(document: OpenApiDocument<'a>, direction: Direction, lean: bool) -> Self {
        Self {
            document,
            direction,
            lean,
            names: HashMap::new(),
            pending: VecDeque::new(),
            defs: BTreeMap::new(),
            parts: 0,
        }
    }

    pub(super) fn is_lean(&self) -> bool {
        self.lean
    }

    /// Translates all pending references. Returns the contents of `$defs`.
    pub(super) fn finish(mut self) -> Result<Map<String, Value>, DocumentFault> {
        while let Some((name, schema)) = self.pending.pop_front() {
            let translated = self.translate(schema)?;
            self.defs.insert(name, translated);
        }
        Ok(self.defs.into_iter().collect())
    }

    pub(super) fn translate(&mut self, schema: &Value) -> Result<Value, DocumentFault> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(DocumentFault(format!("its schemas have more than {MAX_PARTS} parts")));
        }
        let members = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(members) => members,
            _ => return Err(DocumentFault("one of its schemas is not an object".to_owned())),
        };
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            let referring = json!({ "$ref": format!("#/$defs/{}", self.name(reference)?) });
            // Before 3.1, siblings of `$ref` are ignored.
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

    /// The name of a reference under `$defs`.
    fn name(&mut self, reference: &str) -> Result<String, DocumentFault> {
        if let Some(name) = self.names.get(reference) {
            return Ok(name.clone());
        }
        let target = self.document.resolve_reference(reference)?;
        let last = reference.rsplit('/').next().unwrap_or_default();
        let letter =
            |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
        let mut name: String = last.chars().take(64).map(letter).collect();
        if name.is_empty() || self.names.values().any(|taken| *taken == name) {
            name = format!("{name}_{}", self.names.len());
        }
        self.names.insert(reference.to_owned(), name.clone());
        self.pending.push_back((name.clone(), target));
        Ok(name)
    }

    fn members(&mut self, members: &Map<String, Value>) -> Result<Map<String, Value>, DocumentFault> {
        let mut translated = Map::new();
        for (key, value) in members {
            let value = match (key.as_str(), value) {
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
            translated.insert(key.clone(), value);
        }
        Ok(translated)
    }

    fn each(&mut self, schemas: &Map<String, Value>) -> Result<Map<String, Value>, DocumentFault> {
        schemas.iter().map(|(name, schema)| Ok((name.clone(), self.translate(schema)?))).collect()
    }

    /// Drops required properties that only the other direction sends.
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

/// Converts 3.0 keywords (`nullable`, boolean `exclusiveMinimum`) to 2020-12.
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
        // A schema without a type accepts `null` already.
        None => {}
    }
}
