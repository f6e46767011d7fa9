//! The parts of the result of a call: texts, tables, images, sound, links and JSON.
//!
//! Invariant: an image or a sound is shown only if its first bytes are those of a known type. All other bytes are named,
//! not shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use crate::text::{MAX_SHOWN, bytes, cut, inline, pretty};

/// Parts of a result that are shown, and rows of a table.
const MAX_PARTS: usize = 50;
const MAX_ROWS: usize = 200;
const MAX_COLUMNS: usize = 24;
/// Rows of a tree, and objects and arrays inside of each other.
const MAX_TREE_ROWS: usize = 600;
const MAX_TREE_DEPTH: usize = 12;
/// Longest image or sound, in Base64.
const MAX_MEDIA: usize = 4 << 20;
/// Characters of Base64 that hold the first bytes of media.
const HEAD_CHARACTERS: usize = 16;

/// A part of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    Table(Table),
    Image(Media),
    Audio(Media),
    /// URI of a resource.
    Link(String),
    Note(String),
    Json(JsonTree),
}

/// JSON as a tree, and as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonTree {
    pub rows: Vec<TreeRow>,
    pub text: String,
}

/// A row of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRow {
    pub kind: TreeRowKind,
    /// Name or number of the value.
    pub key: String,
    pub value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeRowKind {
    /// Start of an object or an array. The rows up to its [`Close`](Self::Close) are its members.
    Open,
    Close,
    Leaf,
}

/// Rows of objects with the same members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Rows that are not shown.
    pub more: usize,
}

/// An image or a sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// Type, by its first bytes.
    pub kind: &'static str,
    /// In Base64.
    pub data: String,
}

/// Splits the data of a result into parts.
pub(super) fn parts(data: &Json) -> Vec<Part> {
    // The result of a tool is its content, or content with structured content beside it.
    let content =
        data.as_array().or_else(|| data["content"].as_array()).filter(|content| is_content(content));
    let mut parts: Vec<Part> = match content {
        Some(content) => content.iter().take(MAX_PARTS).map(part).collect(),
        None => return vec![value(data)],
    };
    if let Some(content) = content.filter(|content| content.len() > MAX_PARTS) {
        parts.push(Part::Note(format!("… {} more parts", content.len() - MAX_PARTS)));
    }
    match &data["structuredContent"] {
        Json::Null => {}
        structured => parts.push(value(structured)),
    }
    parts
}

fn is_content(content: &[Json]) -> bool {
    !content.is_empty() && content.iter().all(|item| item["type"].is_string())
}

fn part(item: &Json) -> Part {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    match item["type"].as_str() {
        Some("text") => parsed(text("text")).unwrap_or_else(|| shown_text(text("text"))),
        Some("image") => {
            media(text("data"), text("mimeType"), MediaKind::Image).map_or_else(Part::Note, Part::Image)
        }
        Some("audio") => {
            media(text("data"), text("mimeType"), MediaKind::Sound).map_or_else(Part::Note, Part::Audio)
        }
        Some("resource_link") => Part::Link(text("uri").to_owned()),
        Some("resource") => resource(&item["resource"]),
        _ => Part::Json(tree(item)),
    }
}

fn resource(resource: &Json) -> Part {
    match (resource["text"].as_str(), resource["blob"].as_str()) {
        (Some(text), _) => shown_text(text),
        (None, Some(blob)) => {
            let kind = resource["mimeType"].as_str().unwrap_or_default();
            let sound = |_| media(blob, kind, MediaKind::Sound).map_or_else(Part::Note, Part::Audio);
            media(blob, kind, MediaKind::Image).map_or_else(sound, Part::Image)
        }
        (None, None) => Part::Json(tree(resource)),
    }
}

fn shown_text(text: &str) -> Part {
    let end = text.floor_char_boundary(MAX_SHOWN);
    if end == text.len() {
        return Part::Text(text.to_owned());
    }
    Part::Text(format!("{}\n… {} more", &text[..end], bytes((text.len() - end) as u64)))
}

/// A text that is a JSON object or list.
fn parsed(text: &str) -> Option<Part> {
    let start = text.trim_start().as_bytes().first()?;
    if text.len() > MAX_SHOWN || !b"[{".contains(start) {
        return None;
    }
    serde_json::from_str(text).ok().map(|parsed: Json| value(&parsed))
}

/// A JSON value: as a table if it is a list of objects, as text if it is a string.
fn value(value: &Json) -> Part {
    let inner = match value.as_object() {
        Some(members) if members.len() == 1 => members.values().next().unwrap_or(value),
        _ => value,
    };
    match value {
        Json::String(text) => shown_text(text),
        _ => table(inner).map_or_else(|| Part::Json(tree(value)), Part::Table),
    }
}

fn table(value: &Json) -> Option<Table> {
    let rows = value.as_array().filter(|rows| rows.len() > 1 && rows.iter().all(Json::is_object))?;
    let mut columns: Vec<String> = Vec::new();
    for name in rows.iter().take(MAX_ROWS).filter_map(Json::as_object).flat_map(serde_json::Map::keys) {
        if !columns.contains(name) {
            columns.push(name.clone());
            if columns.len() > MAX_COLUMNS {
                return None;
            }
        }
    }
    let cells = |row: &Json| columns.iter().map(|name| inline(&row[name.as_str()], 200)).collect();
    let shown = rows.iter().take(MAX_ROWS).map(cells).collect();
    Some(Table { rows: shown, more: rows.len().saturating_sub(MAX_ROWS), columns: columns.clone() })
}

/// A value as a tree. The text has the rest of a large one.
fn tree(value: &Json) -> JsonTree {
    let mut rows = Vec::new();
    add_rows(String::new(), value, 0, &mut rows);
    JsonTree { rows, text: pretty(value) }
}

fn add_rows(key: String, value: &Json, depth: usize, rows: &mut Vec<TreeRow>) {
    let row = |kind, key, value| TreeRow { kind, key, value };
    let (count, unit) = match value {
        Json::Object(members) if depth < MAX_TREE_DEPTH => (members.len(), "member"),
        Json::Array(items) if depth < MAX_TREE_DEPTH => (items.len(), "item"),
        Json::Null => return rows.push(row(TreeRowKind::Leaf, key, "null".to_owned())),
        value => return rows.push(row(TreeRowKind::Leaf, key, inline(value, 300))),
    };
    rows.push(row(TreeRowKind::Open, key, format!("{count} {unit}{}", if count == 1 { "" } else { "s" })));
    let members = value.as_object().into_iter().flatten().map(|(name, member)| (name.clone(), member));
    let items = value.as_array().into_iter().flatten().enumerate().map(|(at, item)| (at.to_string(), item));
    for (at, (key, value)) in members.chain(items).enumerate() {
        if rows.len() >= MAX_TREE_ROWS {
            rows.push(row(TreeRowKind::Leaf, "…".to_owned(), format!("{} more", count - at)));
            break;
        }
        add_rows(cut(key, 120), value, depth + 1, rows);
    }
    rows.push(row(TreeRowKind::Close, String::new(), String::new()));
}

/// Kinds of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MediaKind {
    Image,
    Sound,
}

/// The type of media, by its first bytes.
fn known_type(kind: MediaKind, head: &[u8]) -> Option<&'static str> {
    let riff = |name: &[u8]| head.starts_with(b"RIFF") && head.get(8..12) == Some(name);
    match (kind, head) {
        (MediaKind::Image, [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..]) => Some("image/png"),
        (MediaKind::Image, [0xff, 0xd8, 0xff, ..]) => Some("image/jpeg"),
        (MediaKind::Image, [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..]) => Some("image/gif"),
        (MediaKind::Image, _) if riff(b"WEBP") => Some("image/webp"),
        (MediaKind::Sound, _) if riff(b"WAVE") => Some("audio/wav"),
        (MediaKind::Sound, [b'I', b'D', b'3', ..] | [0xff, 0xe2..=0xff, ..]) => Some("audio/mpeg"),
        (MediaKind::Sound, [b'O', b'g', b'g', b'S', ..]) => Some("audio/ogg"),
        (MediaKind::Sound, [b'f', b'L', b'a', b'C', ..]) => Some("audio/flac"),
        _ => None,
    }
}

/// Media of a known type, or a note that it is not.
fn media(data: &str, claimed: &str, kind: MediaKind) -> Result<Media, String> {
    let size = bytes((data.len() / 4 * 3) as u64);
    let claimed = cut(claimed.to_owned(), 80);
    if data.len() > MAX_MEDIA {
        return Err(format!("{size} of {claimed}: too long to show here"));
    }
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let head = data.get(..HEAD_CHARACTERS).and_then(|head| STANDARD.decode(head).ok()).unwrap_or_default();
    match known_type(kind, &head) {
        Some(kind) if data.bytes().all(is_base64) => Ok(Media { kind, data: data.to_owned() }),
        _ => Err(format!(
            "{size} that claim to be {claimed}: not shown, because the first bytes are not of a known type"
        )),
    }
}
