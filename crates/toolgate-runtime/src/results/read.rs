//! `read_result`: returns a page of a stored result, its matching lines, or the value at a JSON pointer.

use std::borrow::Cow;

use regex::RegexBuilder;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_upstream::RawJson;

/// Default page size.
const DEFAULT_PAGE_BYTES: usize = 16 << 10;
/// Lines returned by a search.
const MAX_LINES: usize = 200;
/// Bytes shown of a matching line.
const MAX_LINE_BYTES: usize = 1_000;
/// Context lines around a match.
const MAX_CONTEXT_LINES: usize = 20;
/// Memory limit of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Arguments of `read_result`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ReadRequest {
    pub(super) uri: String,
    #[serde(default)]
    pointer: Option<String>,
    #[serde(default)]
    grep: Option<String>,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    length: Option<usize>,
}

pub(super) fn input_schema(max_bytes: usize) -> Value {
    json!({
        "type": "object", "required": ["uri"], "additionalProperties": false,
        "properties": {
            "uri": { "type": "string", "description": "URI of the stored result, `toolgate://results/…`." },
            "pointer": { "type": "string", "description": "A JSON pointer (RFC 6901) into the result, such as `/items/0/name`. The other arguments then apply to that value." },
            "grep": { "type": "string", "minLength": 1, "maxLength": 1000, "description": "A regular expression. Only matching lines are returned, with their numbers." },
            "context": { "type": "integer", "minimum": 0, "maximum": MAX_CONTEXT_LINES, "description": "Context lines around each match." },
            "offset": { "type": "integer", "minimum": 0, "description": "Start of the page: a byte offset, or with `grep` a line number." },
            "length": { "type": "integer", "minimum": 1, "maximum": max_bytes, "description": "Maximum number of bytes to return." },
        },
    })
}

impl ReadRequest {
    /// Reads the requested part, at most `max_bytes`.
    pub(super) fn read(&self, reply: &RawJson, max_bytes: usize) -> Result<RawJson, String> {
        let text = reply_text(reply);
        let text = match &self.pointer {
            Some(pointer) => Cow::Owned(follow_pointer(reply, &text, pointer)?),
            None => text,
        };
        let length = self.length.unwrap_or(DEFAULT_PAGE_BYTES).min(max_bytes);
        let (shown, place) = match &self.grep {
            Some(pattern) => self.matching_lines(&text, pattern, length)?,
            None => self.page(&text, length),
        };
        let mut content = vec![json!({ "type": "text", "text": shown })];
        // For readers that ignore structured content.
        if let Some(next) = place["nextOffset"].as_u64() {
            let (total, unit) = (&place["total"], if self.grep.is_some() { "lines" } else { "bytes" });
            let text = format!("[there is more of {total} {unit}: go on with `offset` {next}]");
            content.push(json!({ "type": "text", "text": text }));
        }
        Ok(RawJson::from_value(&json!({ "content": content, "structuredContent": place })))
    }

    fn page(&self, text: &str, length: usize) -> (String, Value) {
        let from = text.floor_char_boundary(self.offset.min(text.len()));
        let mut to = text.floor_char_boundary(from.saturating_add(length).min(text.len()));
        if to == from && from < text.len() {
            // A page is never empty, so a client that follows `nextOffset` always makes progress.
            to = text.ceil_char_boundary(from + 1);
        }
        let next = (to < text.len()).then_some(to);
        (text[from..to].to_owned(), json!({ "offset": from, "nextOffset": next, "total": text.len() }))
    }

    fn matching_lines(&self, text: &str, pattern: &str, length: usize) -> Result<(String, Value), String> {
        let pattern = RegexBuilder::new(pattern)
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| format!("`grep` is not a valid regular expression: {error}"))?;
        let lines: Vec<&str> = text.lines().collect();
        let matching: Vec<usize> = (0..lines.len()).filter(|at| pattern.is_match(lines[*at])).collect();
        let context = self.context.min(MAX_CONTEXT_LINES);
        let (mut shown, mut next, mut count) = (String::new(), None, 0);
        // Lines are numbered from one; `offset` is the number of the last line returned before.
        let mut after = self.offset;
        for at in &matching {
            let (first, last) = (at.saturating_sub(context), (at + context).min(lines.len() - 1));
            for at in first..=last {
                let number = at + 1;
                if number <= after {
                    continue;
                }
                let line = &lines[at][..lines[at].floor_char_boundary(MAX_LINE_BYTES)];
                if count == MAX_LINES || count > 0 && shown.len() + line.len() > length {
                    next = Some(after);
                    break;
                }
                shown.push_str(if count > 0 { "\n" } else { "" });
                shown.push_str(&format!("{number}: {line}"));
                (after, count) = (number, count + 1);
            }
            if next.is_some() {
                break;
            }
        }
        Ok((shown, json!({ "matches": matching.len(), "nextOffset": next, "total": lines.len() })))
    }
}

/// The text of a reply, or its structured content if it has no text.
fn reply_text(reply: &RawJson) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let members = reply.members();
    let part = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, value)| value);
    let blocks: Vec<Block> =
        part("content").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let texts: Vec<String> = blocks.into_iter().filter_map(|block| block.text).collect();
    match part("structuredContent") {
        _ if !texts.is_empty() => Cow::Owned(texts.join("\n")),
        Some(structured) if *structured != "null" => Cow::Borrowed(structured),
        _ => Cow::Borrowed(reply.as_str()),
    }
}

/// Evaluates a JSON pointer in the structured content, in a text that is JSON, or in the whole reply.
fn follow_pointer(reply: &RawJson, text: &str, pointer: &str) -> Result<String, String> {
    let document: Value = reply.parse().map_err(|error| error.to_string())?;
    let value = match &document["structuredContent"] {
        Value::Null => serde_json::from_str(text).unwrap_or(document),
        structured => structured.clone(),
    };
    let found = value.pointer(pointer).ok_or_else(|| format!("there is no value at `{pointer}`"))?;
    Ok(match found {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).expect("valid JSON"),
    })
}
