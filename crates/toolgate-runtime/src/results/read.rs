//! What `read_result` gives of a result: a page, the lines that match, or what a JSON pointer names.

use std::borrow::Cow;

use regex::RegexBuilder;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_upstream::Raw;

/// Bytes of a page where nothing else is said.
const PAGE: usize = 16 << 10;
/// Lines that a search gives.
const MOST_LINES: usize = 200;
/// Bytes of a line that a search shows.
const LONGEST_LINE: usize = 1_000;
/// Lines around one that matches.
const MOST_CONTEXT: usize = 20;
/// What a pattern may take in memory when it is compiled.
const PATTERN_BYTES: usize = 1 << 20;

/// What is wanted of a result.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Wanted {
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

/// The schema of the arguments.
pub(super) fn schema(most: usize) -> Value {
    json!({
        "type": "object", "required": ["uri"], "additionalProperties": false,
        "properties": {
            "uri": { "type": "string", "description": "The address of the result, `toolgate://results/…`." },
            "pointer": { "type": "string", "description": "A JSON pointer (RFC 6901) into the result, such as `/items/0/name`. What follows then works on that part." },
            "grep": { "type": "string", "minLength": 1, "maxLength": 1000, "description": "A regular expression: only lines that match are given, each with its number." },
            "context": { "type": "integer", "minimum": 0, "maximum": MOST_CONTEXT, "description": "Lines to give around each that matches." },
            "offset": { "type": "integer", "minimum": 0, "description": "Where the page begins: the byte, or with `grep` the number of the line." },
            "length": { "type": "integer", "minimum": 1, "maximum": most, "description": "The most bytes to give." },
        },
    })
}

impl Wanted {
    /// That part of a reply, at most `most` bytes of it.
    pub(super) fn of(&self, reply: &Raw, most: usize) -> Result<Raw, String> {
        let text = text(reply);
        let text = match &self.pointer {
            Some(pointer) => Cow::Owned(pointed(reply, &text, pointer)?),
            None => text,
        };
        let length = self.length.unwrap_or(PAGE).min(most);
        let (shown, place) = match &self.grep {
            Some(pattern) => self.lines(&text, pattern, length)?,
            None => self.page(&text, length),
        };
        Ok(Raw::of(&json!({ "content": [{ "type": "text", "text": shown }], "structuredContent": place })))
    }

    fn page(&self, text: &str, length: usize) -> (String, Value) {
        let from = text.floor_char_boundary(self.offset.min(text.len()));
        let mut to = text.floor_char_boundary(from.saturating_add(length).min(text.len()));
        if to == from && from < text.len() {
            // A page is never empty, so that who goes on gets on.
            to = text.ceil_char_boundary(from + 1);
        }
        let next = (to < text.len()).then_some(to);
        (text[from..to].to_owned(), json!({ "offset": from, "nextOffset": next, "total": text.len() }))
    }

    fn lines(&self, text: &str, pattern: &str, length: usize) -> Result<(String, Value), String> {
        let pattern = RegexBuilder::new(pattern)
            .size_limit(PATTERN_BYTES)
            .build()
            .map_err(|error| format!("`grep` is not a pattern: {error}"))?;
        let lines: Vec<&str> = text.lines().collect();
        let matching: Vec<usize> = (0..lines.len()).filter(|at| pattern.is_match(lines[*at])).collect();
        let context = self.context.min(MOST_CONTEXT);
        let (mut shown, mut next, mut given) = (String::new(), None, 0);
        // Lines are numbered from one; `offset` is the last number that was given.
        let mut after = self.offset;
        for at in &matching {
            let (first, last) = (at.saturating_sub(context), (at + context).min(lines.len() - 1));
            for at in first..=last {
                let number = at + 1;
                if number <= after {
                    continue;
                }
                let line = &lines[at][..lines[at].floor_char_boundary(LONGEST_LINE)];
                if given == MOST_LINES || given > 0 && shown.len() + line.len() > length {
                    next = Some(after);
                    break;
                }
                shown.push_str(if given > 0 { "\n" } else { "" });
                shown.push_str(&format!("{number}: {line}"));
                (after, given) = (number, given + 1);
            }
            if next.is_some() {
                break;
            }
        }
        Ok((shown, json!({ "matches": matching.len(), "nextOffset": next, "total": lines.len() })))
    }
}

/// What a reply says: its texts, or its structured content where it has none.
fn text(reply: &Raw) -> Cow<'_, str> {
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
        _ => Cow::Borrowed(reply.get()),
    }
}

/// What a pointer names in the structured content, or in a text that is JSON, or in the reply.
fn pointed(reply: &Raw, text: &str, pointer: &str) -> Result<String, String> {
    let whole: Value = reply.parse().map_err(|error| error.to_string())?;
    let value = match &whole["structuredContent"] {
        Value::Null => serde_json::from_str(text).unwrap_or(whole),
        structured => structured.clone(),
    };
    let found = value.pointer(pointer).ok_or_else(|| format!("there is nothing at `{pointer}`"))?;
    Ok(match found {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).expect("it was JSON"),
    })
}
