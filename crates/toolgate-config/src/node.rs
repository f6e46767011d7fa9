//! The tree that every file format is parsed into: scalars, lists and maps, each with its location.
//!
//! Invariant: at most [`MAX_DEPTH`] levels and [`MAX_NODES`] nodes after alias expansion, and no duplicate keys.
//! Parsers reject larger files, so recursion over a tree is safe.

use serde_json::value::RawValue;

use crate::source::Span;

/// Maximum levels of nesting.
pub(crate) const MAX_DEPTH: usize = 64;
/// Maximum number of nodes in one file, with aliases expanded.
pub(crate) const MAX_NODES: usize = 4_000_000;

/// A value with its location.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<MapEntry>),
}

/// A scalar. It keeps its spelling, so that `1.10` is still `1.10` when read as a string.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scalar {
    pub(crate) kind: ScalarKind,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Null,
    Bool,
    Number,
    String,
}

/// A key and its value in a map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MapEntry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn scalar(span: Span, kind: ScalarKind, text: impl Into<String>) -> Self {
        Self { span, value: Value::Scalar(Scalar { kind, text: text.into() }) }
    }

    pub(crate) fn string(span: Span, text: impl Into<String>) -> Self {
        Self::scalar(span, ScalarKind::String, text)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if scalar.kind != ScalarKind::Null => Some(&scalar.text),
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(Scalar { kind: ScalarKind::Null, .. }))
    }

    /// Returns the node without a key, and the entry that was removed.
    pub(crate) fn without(&self, key: &str) -> (Node, Option<MapEntry>) {
        let mut node = self.clone();
        let Value::Map(entries) = &mut node.value else { return (node, None) };
        let at = entries.iter().position(|entry| entry.key == key);
        let entry = at.map(|at| entries.remove(at));
        (node, entry)
    }

    /// Returns the number of levels, scalars included.
    pub(crate) fn depth(&self) -> usize {
        let inner = match &self.value {
            Value::Scalar(_) => None,
            Value::List(items) => items.iter().map(Node::depth).max(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.depth()).max(),
        };
        1 + inner.unwrap_or(0)
    }

    /// Returns the kind of value, for messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match &self.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Scalar(scalar) => match scalar.kind {
                ScalarKind::Null => "nothing",
                ScalarKind::Bool => "true or false",
                ScalarKind::Number => "a number",
                ScalarKind::String => "a string",
            },
        }
    }

    /// Returns the node as JSON. Valid JSON numbers keep their spelling, keys their order.
    pub(crate) fn to_json(&self) -> Box<RawValue> {
        let mut text = String::new();
        self.write_json(&mut text);
        RawValue::from_string(text).expect("every node has a JSON form")
    }

    fn write_json(&self, out: &mut String) {
        match &self.value {
            Value::Scalar(scalar) => scalar.write_json(out),
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Value::Map(entries) => {
                out.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(&entry.key, out);
                    out.push(':');
                    entry.node.write_json(out);
                }
                out.push('}');
            }
        }
    }
}

impl Scalar {
    fn write_json(&self, out: &mut String) {
        match self.kind {
            ScalarKind::Null => out.push_str("null"),
            ScalarKind::Bool => {
                out.push_str(if self.text.eq_ignore_ascii_case("true") { "true" } else { "false" })
            }
            ScalarKind::Number if is_json_number(&self.text) => out.push_str(&self.text),
            // `0x1f`, `.5` and `+1` are numbers in YAML and TOML only; `.inf` and `.nan` have no JSON form.
            ScalarKind::Number => match number_to_json(&self.text) {
                Some(number) => out.push_str(&number),
                None => write_string(&self.text, out),
            },
            ScalarKind::String => write_string(&self.text, out),
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string has a JSON form"));
}

/// Returns true if the string is a valid JSON number.
pub(crate) fn is_json_number(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
        && text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && !text.ends_with(char::is_whitespace)
        && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Converts a YAML or TOML number to JSON.
fn number_to_json(text: &str) -> Option<String> {
    let text = text.replace('_', "");
    let radix =
        |prefix, radix| text.strip_prefix(prefix).and_then(|rest| i64::from_str_radix(rest, radix).ok());
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| radix("0b", 2)) {
        return Some(number.to_string());
    }
    // Covers `+1` and `007`.
    if let Ok(number) = text.parse::<i128>() {
        return Some(number.to_string());
    }
    let number: f64 = text.parse().ok()?;
    serde_json::Number::from_f64(number).map(|number| number.to_string())
}

/// Returns the kind of a plain YAML scalar (core schema of YAML 1.2).
pub(crate) fn plain_kind(text: &str) -> ScalarKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => ScalarKind::Bool,
        ".inf" | ".Inf" | ".INF" | "-.inf" | "+.inf" | ".nan" | ".NaN" | ".NAN" => ScalarKind::Number,
        _ if is_plain_number(text) => ScalarKind::Number,
        _ => ScalarKind::String,
    }
}

fn is_plain_number(text: &str) -> bool {
    if let Some(hex) = text.strip_prefix("0x") {
        return !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return !octal.is_empty() && octal.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    }
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    body.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && body.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'-' | b'+'))
        && body.parse::<f64>().is_ok()
}
