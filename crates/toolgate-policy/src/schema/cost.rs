//! Checks if a schema from outside is safe to validate values with, and estimates its cost.
//!
//! A schema runs on every call, and can refer to other schemas on the network, double its size with every level, refer
//! to itself forever, or contain a pattern that takes minutes. Such schemas are rejected here, before they are compiled.
//! Invariant: linear in the size of the schema, and nothing is fetched.

use std::collections::{HashMap, HashSet};

use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::{Map, Value};

/// Parts of one schema.
const MAX_PARTS: usize = 2_000;
/// Parts of one schema with all references expanded.
const MAX_COST: u64 = 10_000;
/// Nesting with all references expanded.
const MAX_DEPTH: usize = 256;
/// The compiled size of one pattern, in bytes.
pub(super) const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The compiled size of an ordinary pattern, in bytes.
const ORDINARY_PATTERN_BYTES: usize = 64 << 10;
/// Patterns of one schema that are larger. Each takes some milliseconds to compile.
const MAX_LARGE_PATTERNS: usize = 32;
/// Values of an `enum` or `required` that cost as much as one part.
const VALUES_PER_PART: u64 = 16;

/// Keywords that hold data, not schemas.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];
/// Keywords that hold schemas by name. A name is never a keyword: a property can be called `const`.
const NAME_MAPS: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// Keywords that apply to members or items of a value. All others apply to the value itself.
const CHILD_APPLICATORS: [&str; 10] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
];

/// An unsafe schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// It refers to another document.
    #[error("its schema refers to `{0}`, which is not part of it")]
    Elsewhere(String),
    /// It refers to a part that does not exist.
    #[error("its schema refers to `{0}`, which does not exist")]
    Missing(String),
    /// It refers to a name that two parts have.
    #[error("its schema refers to `{0}`, which exists more than once")]
    Ambiguous(String),
    /// A part of it is a document of its own. References inside it then have another meaning.
    #[error("a part of its schema has the `$id` `{0}`; only the whole schema may have one")]
    Embedded(String),
    #[error("its schema has more than {MAX_PARTS} parts")]
    TooMany,
    /// It is too large with all references expanded.
    #[error("its schema grows past {MAX_COST} parts when its references are followed")]
    TooCostly,
    /// A part applies itself to the same value again.
    #[error("its schema refers to `{0}` in an endless loop")]
    Endless(String),
    /// It contains a pattern that cannot be matched in linear time.
    #[error("its schema contains the pattern `{0}`, which is invalid or cannot be matched in linear time")]
    Pattern(String),
}

/// The cost of a safe schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SchemaCost {
    /// Parts with all references expanded.
    pub(super) parts: u64,
    /// References from a part to one that contains it, with all other references expanded. A value nested `n` levels
    /// deep can be validated `recursions.pow(n)` times, unless the results are cached.
    pub(super) recursions: u64,
    pub(super) patterns: PatternCost,
}

impl SchemaCost {
    fn add(&mut self, other: Self) {
        self.parts = self.parts.saturating_add(other.parts);
        self.recursions = self.recursions.saturating_add(other.recursions);
        self.patterns.add(other.patterns);
    }

    fn times(self, factor: u64) -> Self {
        Self {
            parts: self.parts.saturating_mul(factor),
            recursions: self.recursions.saturating_mul(factor),
            patterns: self.patterns.times(factor),
        }
    }
}

/// The size of patterns, in states: characters and classes with all repetitions expanded. Each may be active at each
/// byte of a string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PatternCost {
    /// States of patterns that may read a whole string.
    pub(super) unbounded: u64,
    /// States of patterns that read only the head of a string, such as `^[a-z]{1,64}$`.
    pub(super) bounded: u64,
    /// The longest head that these read, in bytes.
    pub(super) head_bytes: usize,
}

impl PatternCost {
    fn of(pattern: &Hir) -> Self {
        let states = pattern_states(pattern);
        let properties = pattern.properties();
        match properties.maximum_len().filter(|_| properties.look_set_prefix().contains(Look::Start)) {
            // The byte after the head is read too.
            Some(longest) => Self { unbounded: 0, bounded: states, head_bytes: longest.saturating_add(1) },
            None => Self { unbounded: states, ..Self::default() },
        }
    }

    /// States of all patterns.
    pub(super) fn states(self) -> u64 {
        self.unbounded.saturating_add(self.bounded)
    }

    fn add(&mut self, other: Self) {
        self.unbounded = self.unbounded.saturating_add(other.unbounded);
        self.bounded = self.bounded.saturating_add(other.bounded);
        self.head_bytes = self.head_bytes.max(other.head_bytes);
    }

    fn times(self, factor: u64) -> Self {
        Self {
            unbounded: self.unbounded.saturating_mul(factor),
            bounded: self.bounded.saturating_mul(factor),
            ..self
        }
    }
}

/// The parser limits the nesting, so this does not recurse deeply.
fn pattern_states(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Capture(capture) => pattern_states(&capture.sub).saturating_add(1),
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            pattern_states(&repetition.sub).saturating_mul(copies.into()).saturating_add(1)
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(pattern_states).fold(0, u64::saturating_add)
        }
    }
}

/// Rejects an unsafe schema.
///
/// # Errors
/// The first fault.
pub fn check(schema: &Value) -> Result<(), SchemaFault> {
    schema_cost(schema).map(drop)
}

/// Rejects an unsafe schema, and returns the cost of a safe one.
pub(super) fn schema_cost(schema: &Value) -> Result<SchemaCost, SchemaFault> {
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    // Draft 4 spells `$id` without the dollar sign.
    let id = if draft.contains("draft-04") || draft.contains("draft-03") { "id" } else { "$id" };
    let mut walk =
        SchemaWalk { id, parts: 0, visited: HashSet::new(), patterns: HashMap::new(), large_patterns: 0 };
    walk.add(schema)?;
    let mut counter = CostCounter { root: schema, walk, costs: HashMap::new() };
    let cost = counter.cost(schema, 0)?;
    if cost.parts > MAX_COST {
        return Err(SchemaFault::TooCostly);
    }
    check_loops(schema, counter.costs.keys().copied())?;
    // With several recursive parts, each may lead to the others.
    let recursive = counter.costs.values().flatten().filter(|cost| cost.recursions > 0).count() as u64;
    Ok(SchemaCost { recursions: cost.recursions.saturating_mul(recursive), ..cost })
}

/// Returns the members of a keyword that holds schemas by name.
fn named_schemas<'a>(keyword: &str, value: &'a Value) -> Option<&'a Map<String, Value>> {
    value.as_object().filter(|_| NAME_MAPS.contains(&keyword))
}

/// Checks all parts, wherever they are.
struct SchemaWalk<'a> {
    /// The keyword that makes a part a document of its own.
    id: &'a str,
    parts: usize,
    /// Schemas that were checked. A reference can use data, or a map of names, as a schema.
    visited: HashSet<*const Value>,
    /// Patterns that were checked.
    patterns: HashMap<&'a str, PatternCost>,
    large_patterns: usize,
}

impl<'a> SchemaWalk<'a> {
    /// Checks a schema and all below it, once.
    fn add(&mut self, value: &'a Value) -> Result<(), SchemaFault> {
        if value.is_object() && !self.visited.insert(value) {
            return Ok(());
        }
        self.add_part()?;
        match value {
            Value::Object(members) => {
                let is_root = self.parts == 1;
                for (key, member) in members {
                    match (key.as_str(), member) {
                        ("pattern", Value::String(pattern)) => drop(self.add_pattern(pattern)?),
                        ("patternProperties", Value::Object(patterns)) => {
                            patterns.keys().try_for_each(|pattern| self.add_pattern(pattern).map(drop))?;
                        }
                        (key, Value::String(name)) if key == self.id && !is_root => {
                            return Err(SchemaFault::Embedded(excerpt(name)));
                        }
                        (key, _) if DATA.contains(&key) => continue,
                        _ => {}
                    }
                    match named_schemas(key, member) {
                        Some(schemas) => {
                            self.add_part()?;
                            schemas.values().try_for_each(|schema| self.add(schema))?;
                        }
                        None => self.add(member)?,
                    }
                }
                Ok(())
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.add(item)),
            _ => Ok(()),
        }
    }

    fn add_part(&mut self) -> Result<(), SchemaFault> {
        self.parts += 1;
        if self.parts > MAX_PARTS { Err(SchemaFault::TooMany) } else { Ok(()) }
    }

    fn add_pattern(&mut self, pattern: &'a str) -> Result<PatternCost, SchemaFault> {
        if let Some(known) = self.patterns.get(pattern) {
            return Ok(*known);
        }
        if !compiles_within(pattern, ORDINARY_PATTERN_BYTES) {
            self.large_patterns += 1;
            if self.large_patterns > MAX_LARGE_PATTERNS {
                return Err(SchemaFault::Pattern(excerpt(pattern)));
            }
            pattern_is_linear(pattern)?;
        }
        let parsed = regex_syntax::parse(pattern).map_err(|_| SchemaFault::Pattern(excerpt(pattern)))?;
        let cost = PatternCost::of(&parsed);
        self.patterns.insert(pattern, cost);
        Ok(cost)
    }
}

/// Separates the usable patterns of one schema from the others, with the same limits as [`check`].
#[derive(Default)]
pub(super) struct PatternLimits {
    known: HashMap<String, bool>,
    large_patterns: usize,
}

impl PatternLimits {
    /// Returns true if a pattern can be used. Each is compiled once.
    pub(super) fn admit(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.known.get(pattern) {
            return *known;
        }
        let is_usable = compiles_within(pattern, ORDINARY_PATTERN_BYTES)
            || self.large_patterns < MAX_LARGE_PATTERNS && {
                self.large_patterns += 1;
                pattern_is_linear(pattern).is_ok()
            };
        self.known.insert(pattern.to_owned(), is_usable);
        is_usable
    }
}

/// Rejects a pattern that cannot be matched in linear time, or that is too large.
///
/// # Errors
/// Names the pattern.
pub fn pattern_is_linear(pattern: &str) -> Result<(), SchemaFault> {
    if compiles_within(pattern, MAX_PATTERN_BYTES) {
        Ok(())
    } else {
        Err(SchemaFault::Pattern(excerpt(pattern)))
    }
}

fn compiles_within(pattern: &str, size_bytes: usize) -> bool {
    regex::RegexBuilder::new(pattern).size_limit(size_bytes).dfa_size_limit(size_bytes).build().is_ok()
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Counts parts with all references expanded.
struct CostCounter<'a> {
    root: &'a Value,
    walk: SchemaWalk<'a>,
    /// Cost of each reference. `None` while it is counted.
    costs: HashMap<&'a str, Option<SchemaCost>>,
}

impl<'a> CostCounter<'a> {
    /// A reference to a part being counted adds no parts: the validator caches its result per value.
    fn cost(&mut self, schema: &'a Value, depth: usize) -> Result<SchemaCost, SchemaFault> {
        if depth > MAX_DEPTH {
            return Err(SchemaFault::TooCostly);
        }
        let mut total = SchemaCost::default();
        match schema {
            Value::Object(members) => {
                total.parts = 1;
                for (key, member) in members {
                    match (key.as_str(), member) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                            total.add(self.reference_cost(reference, depth)?);
                        }
                        ("enum" | "required", Value::Array(values)) => {
                            total.parts += values.len() as u64 / VALUES_PER_PART;
                        }
                        ("$defs" | "definitions", _) => {}
                        (key, _) if DATA.contains(&key) => {}
                        ("pattern", Value::String(pattern)) => {
                            total.patterns.add(self.walk.add_pattern(pattern)?);
                        }
                        (key, _) => match named_schemas(key, member) {
                            Some(schemas) => {
                                if key == "patternProperties" {
                                    total.patterns.add(self.name_patterns(schemas)?);
                                }
                                total.parts += 1;
                                for schema in schemas.values() {
                                    total.add(self.cost(schema, depth + 1)?);
                                }
                            }
                            None => total.add(self.cost(member, depth + 1)?),
                        },
                    }
                }
                // These keywords validate all other parts a second time, to find the members those cover.
                let again = ["unevaluatedProperties", "unevaluatedItems"];
                let again = again.iter().filter(|key| members.contains_key(**key)).count() as u64;
                total = total.times(1 + again);
            }
            Value::Array(items) => {
                for item in items {
                    total.add(self.cost(item, depth + 1)?);
                }
            }
            _ => {}
        }
        Ok(total)
    }

    /// Cost of the patterns of names. `additionalProperties` matches them a second time.
    fn name_patterns(&mut self, schemas: &'a Map<String, Value>) -> Result<PatternCost, SchemaFault> {
        let mut total = PatternCost::default();
        for pattern in schemas.keys() {
            total.add(self.walk.add_pattern(pattern)?.times(2));
        }
        Ok(total)
    }

    fn reference_cost(&mut self, reference: &'a str, depth: usize) -> Result<SchemaCost, SchemaFault> {
        match self.costs.get(reference) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Ok(SchemaCost { recursions: 1, ..SchemaCost::default() }),
            None => {}
        }
        let target = resolve(reference, self.root)?;
        self.walk.add(target)?;
        self.costs.insert(reference, None);
        let total = self.cost(target, depth + 1)?;
        self.costs.insert(reference, Some(total));
        Ok(total)
    }
}

/// Returns the part that a reference names.
fn resolve<'a>(reference: &str, root: &'a Value) -> Result<&'a Value, SchemaFault> {
    let fragment = reference.strip_prefix('#').ok_or_else(|| SchemaFault::Elsewhere(excerpt(reference)))?;
    let missing = || SchemaFault::Missing(excerpt(reference));
    let fragment = percent_decode(fragment).ok_or_else(missing)?;
    let target = match fragment.as_str() {
        "" => Some(root),
        pointer if pointer.starts_with('/') => root.pointer(pointer),
        anchor => {
            let mut found = Vec::new();
            find_anchors(root, anchor, &mut found);
            if found.len() > 1 {
                // The validator might use the other one.
                return Err(SchemaFault::Ambiguous(excerpt(reference)));
            }
            found.pop()
        }
    };
    target.ok_or_else(missing)
}

/// Decodes `%2F` and the like, as the validator does.
fn percent_decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Finds the parts with an `$anchor`.
fn find_anchors<'a>(value: &'a Value, anchor: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            let named = |key: &str| members.get(key).and_then(Value::as_str) == Some(anchor);
            if named("$anchor") || named("$dynamicAnchor") {
                found.push(value);
            }
            members.values().for_each(|member| find_anchors(member, anchor, found));
        }
        Value::Array(items) => items.iter().for_each(|item| find_anchors(item, anchor, found)),
        _ => {}
    }
}

/// Rejects references that lead back to themselves for the same value. The number of ways through several such loops
/// grows with the factorial of their parts.
fn check_loops<'a>(root: &'a Value, references: impl Iterator<Item = &'a str>) -> Result<(), SchemaFault> {
    let mut visited = HashMap::new();
    references.into_iter().try_for_each(|reference| visit(reference, root, &mut visited))
}

/// Visits a reference and all that apply to the same value. `false` marks those on the current path.
fn visit<'a>(
    reference: &'a str,
    root: &'a Value,
    visited: &mut HashMap<&'a str, bool>,
) -> Result<(), SchemaFault> {
    match visited.get(reference) {
        Some(true) => return Ok(()),
        Some(false) => return Err(SchemaFault::Endless(excerpt(reference))),
        None => {}
    }
    visited.insert(reference, false);
    let mut next = Vec::new();
    in_place_references(resolve(reference, root)?, &mut next);
    next.into_iter().try_for_each(|reference| visit(reference, root, visited))?;
    visited.insert(reference, true);
    Ok(())
}

/// Collects the references that a schema applies to the same value.
fn in_place_references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    let skipped = |key: &str| {
        CHILD_APPLICATORS.contains(&key) || DATA.contains(&key) || ["$defs", "definitions"].contains(&key)
    };
    match schema {
        Value::Object(members) => {
            for (key, member) in members {
                match (key.as_str(), member) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                        found.push(reference)
                    }
                    (key, _) if skipped(key) => {}
                    (key, _) => match named_schemas(key, member) {
                        Some(schemas) => {
                            schemas.values().for_each(|schema| in_place_references(schema, found))
                        }
                        None => in_place_references(member, found),
                    },
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| in_place_references(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doubling(levels: usize) -> Value {
        let mut defs = serde_json::Map::new();
        defs.insert("d0".to_owned(), json!({ "type": "string" }));
        for level in 1..=levels {
            let below = json!({ "$ref": format!("#/$defs/d{}", level - 1) });
            defs.insert(format!("d{level}"), json!({ "allOf": [below.clone(), below] }));
        }
        json!({ "$defs": defs, "$ref": format!("#/$defs/d{levels}") })
    }

    #[test]
    fn accepts_safe_schemas() {
        for schema in [
            json!({}),
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "pattern": "^[a-z]+$" } } }),
            json!({ "$defs": { "tree": { "properties": { "left": { "$ref": "#/$defs/tree" } } } }, "$ref": "#/$defs/tree" }),
            json!({ "properties": { "self": { "$ref": "#" } } }),
            json!({ "$defs": { "x": { "$anchor": "here" } }, "$ref": "#here" }),
            json!({ "properties": { "p": { "default": { "$ref": "http://127.0.0.1/" } } } }),
            json!({ "$id": "https://example.com/whole", "properties": { "$id": { "type": "string" } } }),
            json!({ "$defs": { "a b": {} }, "$ref": "#/$defs/a%20b" }),
            json!({ "properties": { "zone": { "enum": (0..700).map(|n| n.to_string()).collect::<Vec<_>>() } } }),
            doubling(8),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn rejects_external_references() {
        for reference in ["http://127.0.0.1:1/x", "file:///etc/passwd", "other.json", "//host/x"] {
            let schema = json!({ "properties": { "a": { "$ref": reference } } });
            assert_eq!(check(&schema), Err(SchemaFault::Elsewhere(reference.to_owned())));
        }
        assert_eq!(
            check(&json!({ "$ref": "#/$defs/no" })),
            Err(SchemaFault::Missing("#/$defs/no".to_owned()))
        );
    }

    #[test]
    fn rejects_exploding_schemas() {
        assert_eq!(check(&doubling(26)), Err(SchemaFault::TooCostly));
        assert_eq!(check(&doubling(60)), Err(SchemaFault::TooCostly));
        let branches: Vec<_> = (0..10_000).map(|n| json!({ "const": n })).collect();
        assert_eq!(check(&json!({ "anyOf": branches })), Err(SchemaFault::TooMany));
        // `unevaluatedProperties` validates everything below it twice.
        let mut nested = json!({ "type": "string" });
        for _ in 0..30 {
            nested = json!({ "anyOf": [nested], "unevaluatedProperties": false });
        }
        assert_eq!(check(&nested), Err(SchemaFault::TooCostly));
        let values: Vec<_> = (0..200_000).collect();
        assert_eq!(check(&json!({ "items": { "enum": values } })), Err(SchemaFault::TooCostly));
    }

    #[test]
    fn references_cannot_hide_an_exploding_schema() {
        let hidden = |reference: &str, cheap: &str| {
            let mut schema = doubling(26);
            schema["$defs"][cheap] = json!({});
            schema["$ref"] = json!(reference);
            check(&schema)
        };
        // The validator decodes the name.
        assert_eq!(hidden("#/$defs/d2%36", "d2%36"), Err(SchemaFault::TooCostly));
        // The validator resolves references inside an embedded document in that document.
        let mut embedded = doubling(26);
        embedded["$id"] = json!("https://example.com/a");
        let schema = json!({ "$defs": { "d26": {}, "a": embedded }, "$ref": "#/$defs/a" });
        assert_eq!(check(&schema), Err(SchemaFault::Embedded("https://example.com/a".to_owned())));
        let draft = "http://json-schema.org/draft-04/schema#";
        let schema = json!({ "$schema": draft, "definitions": { "a": { "id": "#a" } } });
        assert_eq!(check(&schema), Err(SchemaFault::Embedded("#a".to_owned())));
        let twice = json!({ "$defs": { "a": { "$anchor": "x" }, "b": { "$anchor": "x" } }, "$ref": "#x" });
        assert_eq!(check(&twice), Err(SchemaFault::Ambiguous("#x".to_owned())));
    }

    /// A property, a dependency or a definition can have the name of any keyword.
    #[test]
    fn names_are_no_keywords() {
        let keywords = DATA.into_iter().chain(NAME_MAPS).chain(CHILD_APPLICATORS).chain(["$ref", "pattern"]);
        for name in keywords {
            let mut defs = doubling(26)["$defs"].take();
            for map in ["properties", "patternProperties", "dependentSchemas", "dependencies"] {
                let schema = json!({ map: { name: { "$ref": "#/$defs/d26" } }, "$defs": defs });
                assert_eq!(check(&schema), Err(SchemaFault::TooCostly), "{map} {name}");
            }
            defs[name] = json!({ "$ref": "#/$defs/d26" });
            let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": defs });
            assert_eq!(check(&schema), Err(SchemaFault::TooCostly), "$defs {name}");
            let pattern = json!({ "properties": { name: { "pattern": "(?=a)" } } });
            assert!(matches!(check(&pattern), Err(SchemaFault::Pattern(_))), "{name}");
            let embedded = json!({ "properties": { name: { "$id": "a" } } });
            assert!(matches!(check(&embedded), Err(SchemaFault::Embedded(_))), "{name}");
            for map in ["dependentSchemas", "dependencies"] {
                let endless = json!({ "$ref": "#/$defs/a", "$defs": { "a": { map: { name: { "$ref": "#/$defs/a" } } } } });
                assert!(matches!(check(&endless), Err(SchemaFault::Endless(_))), "{map} {name}");
            }
            // No name is a pattern either.
            let harmless = json!({ "properties": { name: { "type": "string", "(": [] } } });
            assert_eq!(check(&harmless), Ok(()), "{name}");
        }
    }

    /// A reference can use data as a schema, or a map of names.
    #[test]
    fn referenced_data_is_checked_as_a_schema() {
        let pattern = json!({ "$ref": "#/default", "default": { "pattern": "(?=a)" } });
        assert!(matches!(check(&pattern), Err(SchemaFault::Pattern(_))));
        let embedded = json!({ "$ref": "#/$defs", "$defs": { "not": { "enum": [{ "$id": "a" }] } } });
        assert_eq!(check(&embedded), Ok(()));
        let embedded = json!({ "$ref": "#/$defs", "$defs": { "properties": { "enum": { "$id": "a" } } } });
        assert!(matches!(check(&embedded), Err(SchemaFault::Embedded(_))));
    }

    #[test]
    fn rejects_endless_loops() {
        let endless = |schema: Value| matches!(check(&schema), Err(SchemaFault::Endless(_)));
        assert!(endless(json!({ "$ref": "#" })));
        assert!(endless(
            json!({ "anyOf": [{ "type": "string" }, { "not": { "$ref": "#" } }] , "properties": { "a": { "$ref": "#" } } })
        ));
        // The first way from `a` to `b` is through a member, the second is not.
        assert!(endless(json!({ "$ref": "#/$defs/a", "$defs": {
            "a": { "properties": { "x": { "$ref": "#/$defs/b" } }, "allOf": [{ "$ref": "#/$defs/b" }] },
            "b": { "$ref": "#/$defs/a" },
        } })));
        // A filter language: every level is inside the one before.
        let all = json!({ "type": "array", "items": { "$ref": "#/$defs/filter" } });
        assert!(!endless(json!({ "$ref": "#/$defs/filter", "$defs": { "filter": { "oneOf": [
            { "type": "string" }, { "properties": { "and": all } }, { "properties": { "or": all } },
        ] } } })));
    }

    #[test]
    fn counts_the_states_of_patterns() {
        let cost = |schema: Value| {
            let PatternCost { unbounded, bounded, head_bytes } = schema_cost(&schema).unwrap().patterns;
            (unbounded, bounded, head_bytes)
        };
        let pattern = |pattern: &str| cost(json!({ "pattern": pattern }));
        assert_eq!(pattern("^[a-z]+$"), (5, 0, 0));
        assert_eq!(pattern("^[a-z]{1,64}$"), (0, 67, 65));
        assert_eq!(pattern("[a-z]{1,64}$"), (66, 0, 0));
        assert_eq!(pattern("^a$|b"), (4, 0, 0));
        assert_eq!(pattern("a[ab]{1000}[c-z]"), (1003, 0, 0));
        assert_eq!(pattern("(?:ab?){10}{10}"), (311, 0, 0));
        assert_eq!(cost(json!({ "patternProperties": { "ab": {} } })), (4, 0, 0));
        let twice = json!({ "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }], "$defs": { "a": { "pattern": "ab" } } });
        assert_eq!(cost(twice), (4, 0, 0));
    }

    #[test]
    fn rejects_nonlinear_patterns() {
        assert_eq!(check(&json!({ "pattern": "^(a+)+$" })), Ok(()), "linear with this engine");
        for pattern in [r"(?=a)b", r"(\w+)\1", "a{1000}{1000}{1000}"] {
            assert_eq!(check(&json!({ "pattern": pattern })), Err(SchemaFault::Pattern(pattern.to_owned())));
        }
        let large: Vec<_> = (0..100).map(|n| json!({ "pattern": format!("x{n}[a-z]{{2000}}") })).collect();
        assert!(matches!(check(&json!({ "anyOf": large })), Err(SchemaFault::Pattern(_))));
    }
}
