//! TOML, for the configuration files of other programs.

use toml_edit::{Document, Item, Table, TableLike, Value as TomlValue};

use super::{clamp_span, too_deep, too_many};
use crate::node::{MAX_DEPTH, MAX_NODES, MapEntry, Node, Scalar, ScalarKind, Value};
use crate::problem::Problem;
use crate::source::{SourceId, Span};

pub(crate) fn read(text: &str, id: SourceId) -> Result<Node, Problem> {
    // A value takes at least two bytes. Real TOML files are never this long, and the parser would exhaust memory
    // before the values could be counted.
    if text.len() > 2 * MAX_NODES {
        return Err(too_many(Span::new(id, 0, 0)));
    }
    let document = Document::parse(text).map_err(|error| {
        let range = error.span().unwrap_or(0..0);
        let span = clamp_span(text, id, range.start, range.end);
        let bare = &text[span.start..span.end];
        // The parser takes an unquoted word for the number `nan` and reports it as such.
        let is_value = text[..span.start].trim_end().ends_with(['=', '[', ',']);
        let is_word =
            bare.starts_with(|c: char| c.is_ascii_alphabetic()) && !bare.contains(char::is_whitespace);
        if is_value && is_word {
            return Problem::error(span, format!("not valid TOML: `{bare}` is not a value"))
                .hint(format!("write strings in quotes: \"{bare}\""));
        }
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        Problem::error(span, format!("not valid TOML: {message}"))
    })?;
    let table: &Table = document.as_table();
    table_node(table, Span::new(id, 0, 0), text, 0)
}

fn table_node(table: &dyn TableLike, span: Span, text: &str, depth: usize) -> Result<Node, Problem> {
    if depth > MAX_DEPTH {
        return Err(too_deep(span));
    }
    let mut entries = Vec::new();
    for (name, item) in table.iter() {
        let key_span = table
            .key(name)
            .and_then(toml_edit::Key::span)
            .map_or(span, |range| clamp_span(text, span.source, range.start, range.end));
        entries.push(MapEntry {
            key: name.to_owned(),
            key_span,
            node: item_node(item, key_span, text, depth + 1)?,
        });
    }
    Ok(Node { span, value: Value::Map(entries) })
}

fn item_node(item: &Item, place: Span, text: &str, depth: usize) -> Result<Node, Problem> {
    match item {
        Item::Value(value) => value_node(value, place, text, depth),
        Item::Table(table) => table_node(table, place, text, depth),
        Item::ArrayOfTables(tables) => {
            let items = tables
                .iter()
                .map(|table| table_node(table, place, text, depth + 1))
                .collect::<Result<_, _>>()?;
            Ok(Node { span: place, value: Value::List(items) })
        }
        Item::None => Ok(Node::scalar(place, ScalarKind::Null, "")),
    }
}

fn value_node(value: &TomlValue, place: Span, text: &str, depth: usize) -> Result<Node, Problem> {
    let span = value.span().map_or(place, |range| clamp_span(text, place.source, range.start, range.end));
    if depth > MAX_DEPTH {
        return Err(too_deep(span));
    }
    let scalar = |kind, text: String| Value::Scalar(Scalar { kind, text });
    let value = match value {
        TomlValue::String(string) => scalar(ScalarKind::String, string.value().clone()),
        TomlValue::Integer(number) => scalar(ScalarKind::Number, number.value().to_string()),
        TomlValue::Float(number) => scalar(ScalarKind::Number, number.value().to_string()),
        TomlValue::Boolean(flag) => scalar(ScalarKind::Bool, flag.value().to_string()),
        TomlValue::Datetime(time) => scalar(ScalarKind::String, time.value().to_string()),
        TomlValue::Array(items) => Value::List(
            items.iter().map(|item| value_node(item, span, text, depth + 1)).collect::<Result<_, _>>()?,
        ),
        TomlValue::InlineTable(table) => return table_node(table, span, text, depth),
    };
    Ok(Node { span, value })
}
