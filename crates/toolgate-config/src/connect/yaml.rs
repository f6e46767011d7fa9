//! Our entry in a YAML file: a block below a key at the top.
//!
//! Invariant: only whole lines are added and removed, and the result is parsed again before it is used.

use std::ops::Range;

use serde_json::{Map, Value as Json};

use super::{ConnectError, is_toolgate_entry};
use crate::read::parse_document;

pub(super) fn connect(
    text: &str,
    root: &str,
    name: &str,
    entry: &Map<String, Json>,
    force: bool,
) -> Result<String, ConnectError> {
    let known = find_entry(text, root, name)?;
    match &known {
        Some(known) if *known == Json::Object(entry.clone()) => return Ok(text.to_owned()),
        Some(known) if !force && !is_toolgate_entry(known) => {
            return Err(ConnectError::Foreign(name.to_owned()));
        }
        _ => {}
    }
    let text = if known.is_some() { cut(text, root, name)? } else { text.to_owned() };
    let Some((line, rest)) = root_line(&text, root) else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return checked(format!("{text}{gap}{root}:\n{}", block(name, entry, 2)), root, name, entry);
    };
    if !["", "{}", "null", "~"].contains(&rest) {
        return Err(ConnectError::Shape(root.to_owned()));
    }
    let indent = child_indent(&text[line.end..]).unwrap_or(2);
    let header = if rest.is_empty() { text[line.clone()].to_owned() } else { format!("{root}:\n") };
    let header = if header.ends_with('\n') { header } else { format!("{header}\n") };
    let (before, after) = (&text[..line.start], &text[line.end..]);
    checked(format!("{before}{header}{}{after}", block(name, entry, indent)), root, name, entry)
}

pub(super) fn disconnect(
    text: &str,
    root: &str,
    name: &str,
    force: bool,
) -> Result<Option<String>, ConnectError> {
    let Some(known) = find_entry(text, root, name)? else { return Ok(None) };
    if !force && !is_toolgate_entry(&known) {
        return Err(ConnectError::Foreign(name.to_owned()));
    }
    cut(text, root, name).map(Some)
}

/// Returns the text if it has the entry now.
fn checked(text: String, root: &str, name: &str, entry: &Map<String, Json>) -> Result<String, ConnectError> {
    match find_entry(&text, root, name)? {
        Some(known) if known == Json::Object(entry.clone()) => Ok(text),
        _ => Err(ConnectError::Shape(root.to_owned())),
    }
}

fn find_entry(text: &str, root: &str, name: &str) -> Result<Option<Json>, ConnectError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let document = parse_document(text).map_err(ConnectError::Yaml)?;
    let document: Json = serde_json::from_str(document.get()).unwrap_or_default();
    match &document[root] {
        Json::Null => Ok(None),
        Json::Object(entries) => Ok(entries.get(name).cloned()),
        _ => Err(ConnectError::Shape(root.to_owned())),
    }
}

/// Returns the line of a key at the top, and the rest of it.
fn root_line<'t>(text: &'t str, root: &str) -> Option<(Range<usize>, &'t str)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if let Some(rest) = line.strip_prefix(root).and_then(|rest| rest.trim_start().strip_prefix(':')) {
            let rest = rest.split(" #").next().unwrap_or_default().trim();
            return Some((start..end, rest));
        }
        start = end;
    }
    None
}

/// Returns the indentation of the first entry; `None` if there is none.
fn child_indent(text: &str) -> Option<usize> {
    let first = text.lines().find(|line| !is_blank(line))?;
    Some(indent_of(first)).filter(|indent| *indent > 0)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('#')
}

/// Removes an entry: its line, and the lines below it with more indentation.
fn cut(text: &str, root: &str, name: &str) -> Result<String, ConnectError> {
    let shape = || ConnectError::NoTable(name.to_owned());
    let (line, rest) = root_line(text, root).ok_or_else(shape)?;
    let indent = child_indent(&text[line.end..]).filter(|_| rest.is_empty()).ok_or_else(shape)?;
    let names = [format!("{name}:"), format!("\"{name}\":"), format!("'{name}':")];
    let (mut at, mut range) = (line.end, None);
    for line in text[line.end..].split_inclusive('\n') {
        let end = at + line.len();
        match &mut range {
            None if !is_blank(line) && indent_of(line) == 0 => break,
            None if indent_of(line) == indent
                && names.iter().any(|name| line.trim_end() == format!("{}{name}", " ".repeat(indent))) =>
            {
                range = Some(at..end);
            }
            // Comments and empty lines after the last value belong to the next entry.
            Some(_) if !is_blank(line) && indent_of(line) <= indent => break,
            Some(range) if !is_blank(line) => range.end = end,
            _ => {}
        }
        at = end;
    }
    let range = range.ok_or_else(shape)?;
    let left = format!("{}{}", &text[..range.start], &text[range.end..]);
    // A key without entries would be `null`.
    let is_empty = child_indent(&left[line.end..]).is_none();
    Ok(if is_empty { format!("{}{root}: {{}}\n{}", &left[..line.start], &left[line.end..]) } else { left })
}

/// Formats an entry as a block. Values are JSON, and that is YAML.
fn block(name: &str, entry: &Map<String, Json>, indent: usize) -> String {
    let (outer, inner) = (" ".repeat(indent), " ".repeat(indent * 2));
    let mut text = format!("{outer}{name}:\n");
    for (key, value) in entry {
        text.push_str(&format!("{inner}{key}: {value}\n"));
    }
    text
}
