//! The tree that every file format is read into: scalars, lists and maps, each with its place.
//!
//! Invariant: at most [`DEEPEST`] levels and [`MOST_NODES`] nodes, aliases expanded; no map has a
//! key twice. What is past the limits was refused by the reader, so no walk over a tree can hurt.

use serde_json::value::RawValue;

use crate::source::Span;

/// Levels of nesting.
pub(crate) const DEEPEST: usize = 64;
/// Nodes in one file, aliases expanded.
pub(crate) const MOST_NODES: usize = 4_000_000;

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A scalar keeps its text: `1.10` stays `1.10` where a text is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scalar {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Bool,
    Number,
    String,
}

/// One key of a map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn scalar(span: Span, kind: Kind, text: impl Into<String>) -> Self {
        Self { span, value: Value::Scalar(Scalar { kind, text: text.into() }) }
    }

    pub(crate) fn string(span: Span, text: impl Into<String>) -> Self {
        Self::scalar(span, Kind::String, text)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if scalar.kind != Kind::Null => Some(&scalar.text),
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(Scalar { kind: Kind::Null, .. }))
    }

    /// The node without one of its keys, and that key's entry.
    pub(crate) fn without(&self, key: &str) -> (Node, Option<Entry>) {
        let mut node = self.clone();
        let Value::Map(entries) = &mut node.value else { return (node, None) };
        let at = entries.iter().position(|entry| entry.key == key);
        let entry = at.map(|at| entries.remove(at));
        (node, entry)
    }

    /// Levels of lists and maps, the scalars in them included.
    pub(crate) fn depth(&self) -> usize {
        let inner = match &self.value {
            Value::Scalar(_) => None,
            Value::List(items) => items.iter().map(Node::depth).max(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.depth()).max(),
        };
        1 + inner.unwrap_or(0)
    }

    /// What it is, for messages.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Scalar(scalar) => match scalar.kind {
                Kind::Null => "nothing",
                Kind::Bool => "true or false",
                Kind::Number => "a number",
                Kind::String => "a text",
            },
        }
    }

    /// The node as JSON. Numbers that JSON can spell keep their spelling, keys their order.
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
            Kind::Null => out.push_str("null"),
            Kind::Bool => out.push_str(if self.text.eq_ignore_ascii_case("true") { "true" } else { "false" }),
            Kind::Number if is_json_number(&self.text) => out.push_str(&self.text),
            // `0x1f`, `.5` and `+1` are numbers of YAML and TOML only; `.inf` and `.nan` have no JSON form.
            Kind::Number => match yaml_number(&self.text) {
                Some(number) => out.push_str(&number),
                None => write_string(&self.text, out),
            },
            Kind::String => write_string(&self.text, out),
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string has a JSON form"));
}

/// Whether JSON can spell a number this way.
pub(crate) fn is_json_number(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
        && text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && !text.ends_with(char::is_whitespace)
        && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// A YAML or TOML number as JSON spells it.
fn yaml_number(text: &str) -> Option<String> {
    let text = text.replace('_', "");
    let radix =
        |prefix, radix| text.strip_prefix(prefix).and_then(|rest| i64::from_str_radix(rest, radix).ok());
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| radix("0b", 2)) {
        return Some(number.to_string());
    }
    // `+1` and `007`.
    if let Ok(number) = text.parse::<i128>() {
        return Some(number.to_string());
    }
    let number: f64 = text.parse().ok()?;
    serde_json::Number::from_f64(number).map(|number| number.to_string())
}

/// What a plain YAML scalar means (the core schema of YAML 1.2).
pub(crate) fn plain_kind(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Kind::Bool,
        ".inf" | ".Inf" | ".INF" | "-.inf" | "+.inf" | ".nan" | ".NaN" | ".NAN" => Kind::Number,
        _ if is_plain_number(text) => Kind::Number,
        _ => Kind::String,
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
