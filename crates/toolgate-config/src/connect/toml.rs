//! Our entry in a file of TOML: a table of its own, at the end.
//!
//! Invariant: the rest of the text is not written anew; it is cut, and put together again.

use std::ops::Range;

use serde_json::{Map, Value as Json, json};
use toml_edit::{Document, Item, Table, Value};

use super::{ConnectError, is_ours};

pub(super) fn connect(
    text: &str,
    root: &str,
    name: &str,
    entry: &Map<String, Json>,
    force: bool,
) -> Result<String, ConnectError> {
    let known = find(text, root, name)?;
    if let Some(known) = &known {
        if known.value == Json::Object(entry.clone()) {
            return Ok(text.to_owned());
        }
        if !force && !is_ours(&known.value) {
            return Err(ConnectError::Foreign(name.to_owned()));
        }
    }
    let body: String = entry.iter().map(|(key, value)| format!("{key} = {}\n", written(value))).collect();
    let Some(known) = known else {
        let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let space = if text.trim().is_empty() { "" } else { "\n" };
        let whole = format!("{text}{line}{space}{}{body}", header(root, name));
        // Where the servers are one value in braces, a table cannot follow.
        return match find(&whole, root, name) {
            Ok(Some(_)) => Ok(whole),
            _ => Err(ConnectError::Shape(root.to_owned())),
        };
    };
    let place = known.place.ok_or_else(|| ConnectError::NoTable(name.to_owned()))?;
    Ok(format!("{}{}{body}{}", &text[..place.start], header(root, name), &text[place.end..]))
}

pub(super) fn disconnect(
    text: &str,
    root: &str,
    name: &str,
    force: bool,
) -> Result<Option<String>, ConnectError> {
    let Some(known) = find(text, root, name)? else { return Ok(None) };
    if !force && !is_ours(&known.value) {
        return Err(ConnectError::Foreign(name.to_owned()));
    }
    let place = known.place.ok_or_else(|| ConnectError::NoTable(name.to_owned()))?;
    let (before, after) = (&text[..place.start], &text[place.end..]);
    // The empty line that was put before it goes with it.
    let before = if before.ends_with("\n\n") { &before[..before.len() - 1] } else { before };
    Ok(Some(format!("{before}{after}")))
}

/// An entry, and its lines where they stand together.
struct Known {
    value: Json,
    place: Option<Range<usize>>,
}

fn find(text: &str, root: &str, name: &str) -> Result<Option<Known>, ConnectError> {
    let document = Document::parse(text).map_err(|error| ConnectError::Toml(error.message().to_owned()))?;
    let Some(servers) = document.get(root) else { return Ok(None) };
    if servers.as_table_like().is_none() {
        return Err(ConnectError::Shape(root.to_owned()));
    }
    let Some(item) = servers.get(name) else { return Ok(None) };
    let place = match item {
        Item::Table(table) if !table.is_dotted() && !table.is_implicit() => lines(text, table),
        _ => None,
    };
    Ok(Some(Known { value: json(item), place }))
}

/// The lines from the header to the last value. `None` where tables within it stand elsewhere.
fn lines(text: &str, table: &Table) -> Option<Range<usize>> {
    let header = table.span()?;
    let mut end = header.end;
    for (_, item) in table {
        end = end.max(item.as_value()?.span()?.end);
    }
    let start = text[..header.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[end..].find('\n').map_or(text.len(), |at| end + at + 1);
    Some(start..end)
}

fn json(item: &Item) -> Json {
    match item {
        Item::Value(value) => plain(value),
        Item::Table(table) => table.iter().map(|(key, item)| (key.to_owned(), json(item))).collect(),
        Item::None | Item::ArrayOfTables(_) => Json::Null,
    }
}

fn plain(value: &Value) -> Json {
    match value {
        Value::String(text) => text.value().as_str().into(),
        Value::Boolean(value) => (*value.value()).into(),
        Value::Integer(value) => (*value.value()).into(),
        Value::Float(value) => json!(value.value()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::InlineTable(table) => {
            table.iter().map(|(key, value)| (key.to_owned(), plain(value))).collect()
        }
        Value::Datetime(_) => Json::Null,
    }
}

fn header(root: &str, name: &str) -> String {
    let bare =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if bare { format!("[{root}.{name}]\n") } else { format!("[{root}.{}]\n", quoted(name)) }
}

/// Texts and lists of them, which is all that an entry has.
fn written(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        Json::Array(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// As JSON spells it, except for the one character that TOML wants escaped beyond that.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007f")
}
