//! TOML, for the configuration of programs that use it.

use toml_edit::{Document, Item, Table, TableLike, Value as TomlValue};

use super::{clamp, too_deep, too_many};
use crate::node::{DEEPEST, Entry, Kind, MOST_NODES, Node, Scalar, Value};
use crate::problem::Problem;
use crate::source::{SourceId, Span};

pub(crate) fn read(text: &str, id: SourceId) -> Result<Node, Problem> {
    // A value takes two bytes at least. No program writes a TOML file this long; its parser would fill
    // the memory with it before anything could be counted.
    if text.len() > 2 * MOST_NODES {
        return Err(too_many(Span::new(id, 0, 0)));
    }
    let document = Document::parse(text).map_err(|error| {
        let range = error.span().unwrap_or(0..0);
        let span = clamp(text, id, range.start, range.end);
        let bare = &text[span.start..span.end];
        // The parser takes a word without quotes for the number `nan`, and says so.
        let is_value = text[..span.start].trim_end().ends_with(['=', '[', ',']);
        let is_word =
            bare.starts_with(|c: char| c.is_ascii_alphabetic()) && !bare.contains(char::is_whitespace);
        if is_value && is_word {
            return Problem::error(span, format!("not valid TOML: `{bare}` is not a value"))
                .hint(format!("a text stands in quotes: \"{bare}\""));
        }
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        Problem::error(span, format!("not valid TOML: {message}"))
    })?;
    let table: &Table = document.as_table();
    table_node(table, Span::new(id, 0, 0), text, 0)
}

fn table_node(table: &dyn TableLike, span: Span, text: &str, depth: usize) -> Result<Node, Problem> {
    if depth > DEEPEST {
        return Err(too_deep(span));
    }
    let mut entries = Vec::new();
    for (name, item) in table.iter() {
        let key_span = table
            .key(name)
            .and_then(toml_edit::Key::span)
            .map_or(span, |range| clamp(text, span.source, range.start, range.end));
        entries.push(Entry {
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
        Item::None => Ok(Node::scalar(place, Kind::Null, "")),
    }
}

fn value_node(value: &TomlValue, place: Span, text: &str, depth: usize) -> Result<Node, Problem> {
    let span = value.span().map_or(place, |range| clamp(text, place.source, range.start, range.end));
    if depth > DEEPEST {
        return Err(too_deep(span));
    }
    let scalar = |kind, text: String| Value::Scalar(Scalar { kind, text });
    let value = match value {
        TomlValue::String(string) => scalar(Kind::String, string.value().clone()),
        TomlValue::Integer(number) => scalar(Kind::Number, number.value().to_string()),
        TomlValue::Float(number) => scalar(Kind::Number, number.value().to_string()),
        TomlValue::Boolean(flag) => scalar(Kind::Bool, flag.value().to_string()),
        TomlValue::Datetime(time) => scalar(Kind::String, time.value().to_string()),
        TomlValue::Array(items) => Value::List(
            items.iter().map(|item| value_node(item, span, text, depth + 1)).collect::<Result<_, _>>()?,
        ),
        TomlValue::InlineTable(table) => return table_node(table, span, text, depth),
    };
    Ok(Node { span, value })
}
