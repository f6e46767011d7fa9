//! Our entry in a TOML file: a separate table at the end.
//!
//! Invariant: the rest of the file is not rewritten; it is only cut and joined.

use std::ops::Range;

use serde_json::{Map, Value as Json, json};
use toml_edit::{Document, Item, Table, Value};

use super::{ConnectError, is_toolgate_entry};

pub(super) fn connect(
    text: &str,
    root: &str,
    name: &str,
    entry: &Map<String, Json>,
    force: bool,
) -> Result<String, ConnectError> {
    let known = find_entry(text, root, name)?;
    if let Some(known) = &known {
        if known.value == Json::Object(entry.clone()) {
            return Ok(text.to_owned());
        }
        if !force && !is_toolgate_entry(&known.value) {
            return Err(ConnectError::Foreign(name.to_owned()));
        }
    }
    let body: String = entry.iter().map(|(key, value)| format!("{key} = {}\n", to_toml(value))).collect();
    let Some(known) = known else {
        let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let space = if text.trim().is_empty() { "" } else { "\n" };
        let whole = format!("{text}{line}{space}{}{body}", table_header(root, name));
        // A table cannot follow if the servers are an inline table.
        return match find_entry(&whole, root, name) {
            Ok(Some(_)) => Ok(whole),
            _ => Err(ConnectError::Shape(root.to_owned())),
        };
    };
    let place = known.place.ok_or_else(|| ConnectError::NoTable(name.to_owned()))?;
    Ok(format!("{}{}{body}{}", &text[..place.start], table_header(root, name), &text[place.end..]))
}

pub(super) fn disconnect(
    text: &str,
    root: &str,
    name: &str,
    force: bool,
) -> Result<Option<String>, ConnectError> {
    let Some(known) = find_entry(text, root, name)? else { return Ok(None) };
    if !force && !is_toolgate_entry(&known.value) {
        return Err(ConnectError::Foreign(name.to_owned()));
    }
    let place = known.place.ok_or_else(|| ConnectError::NoTable(name.to_owned()))?;
    let (before, after) = (&text[..place.start], &text[place.end..]);
    // Also removes the empty line that was inserted before the entry.
    let before = if before.ends_with("\n\n") { &before[..before.len() - 1] } else { before };
    Ok(Some(format!("{before}{after}")))
}

/// An entry, and its range of lines if they are contiguous.
struct FoundEntry {
    value: Json,
    place: Option<Range<usize>>,
}

fn find_entry(text: &str, root: &str, name: &str) -> Result<Option<FoundEntry>, ConnectError> {
    let document = Document::parse(text).map_err(|error| ConnectError::Toml(error.message().to_owned()))?;
    let Some(servers) = document.get(root) else { return Ok(None) };
    if servers.as_table_like().is_none() {
        return Err(ConnectError::Shape(root.to_owned()));
    }
    let Some(item) = servers.get(name) else { return Ok(None) };
    let place = match item {
        Item::Table(table) if !table.is_dotted() && !table.is_implicit() => line_range(text, table),
        _ => None,
    };
    Ok(Some(FoundEntry { value: item_to_json(item), place }))
}

/// Returns the range from the header to the last value. `None` if subtables are elsewhere.
fn line_range(text: &str, table: &Table) -> Option<Range<usize>> {
    let header = table.span()?;
    let mut end = header.end;
    for (_, item) in table {
        end = end.max(item.as_value()?.span()?.end);
    }
    let start = text[..header.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[end..].find('\n').map_or(text.len(), |at| end + at + 1);
    Some(start..end)
}

fn item_to_json(item: &Item) -> Json {
    match item {
        Item::Value(value) => value_to_json(value),
        Item::Table(table) => table.iter().map(|(key, item)| (key.to_owned(), item_to_json(item))).collect(),
        Item::None | Item::ArrayOfTables(_) => Json::Null,
    }
}

fn value_to_json(value: &Value) -> Json {
    match value {
        Value::String(text) => text.value().as_str().into(),
        Value::Boolean(value) => (*value.value()).into(),
        Value::Integer(value) => (*value.value()).into(),
        Value::Float(value) => json!(value.value()),
        Value::Array(items) => items.iter().map(value_to_json).collect(),
        Value::InlineTable(table) => {
            table.iter().map(|(key, value)| (key.to_owned(), value_to_json(value))).collect()
        }
        Value::Datetime(_) => Json::Null,
    }
}

fn table_header(root: &str, name: &str) -> String {
    let bare =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if bare { format!("[{root}.{name}]\n") } else { format!("[{root}.{}]\n", quoted(name)) }
}

/// Formats strings and lists of strings, the only types of values in an entry.
fn to_toml(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        Json::Array(items) => format!("[{}]", items.iter().map(to_toml).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// Quotes as JSON does; TOML also requires U+007F to be escaped.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007f")
}
