//! Content: a server's reply as a result.
//!
//! The reply stays the bytes it came in; only what decides is read out of it, so that kinds of content
//! that nobody here knows pass through untouched. Invariant: what a success gives is never `null`.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use toolgate_types::clean::clean;
use toolgate_types::hints::{RelatedResource, Share};
use toolgate_types::redact::mask;
use toolgate_upstream::Raw;

/// Characters of a server's words in an error.
const LONGEST_QUOTE: usize = 2_000;
/// Resources that are named beside a result.
const MOST_RELATED: usize = 20;

/// A reply, looked into.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// All of it.
    pub(crate) raw: Raw,
    /// What the tool gave: its structured content where there is some, else its content.
    pub(crate) data: Raw,
    /// Whether that is structured content, which a schema may describe.
    pub(crate) structured: bool,
    /// Whether the tool says that it failed.
    pub(crate) is_error: bool,
    /// How long the server says that it holds.
    pub(crate) ttl: Option<Duration>,
    /// Whether it is no result yet: a question to the client, or a task that goes on.
    pub(crate) unfinished: bool,
}

/// Words of a server as they may stand in an error: cleaned, without secrets, and not without end.
pub(crate) fn quoted(words: &str) -> String {
    let words = mask(&clean(words), &[]);
    match words.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// Not a result.
#[derive(Debug, thiserror::Error)]
#[error("the reply is not a result of a tool: {0}")]
pub(crate) struct NoResult(String);

/// What decides, as it is written; what is `null` is not there.
#[derive(Default)]
struct Shape<'a> {
    content: Option<&'a str>,
    structured_content: Option<&'a str>,
    is_error: Option<&'a str>,
    ttl_ms: Option<&'a str>,
    result_type: Option<&'a str>,
    task: Option<&'a str>,
}

impl<'a> Shape<'a> {
    fn of(raw: &'a Raw) -> Self {
        let mut shape = Self::default();
        for (name, value) in raw.members() {
            let member = match &*name {
                "content" => &mut shape.content,
                "structuredContent" => &mut shape.structured_content,
                "isError" => &mut shape.is_error,
                "ttlMs" => &mut shape.ttl_ms,
                "resultType" => &mut shape.result_type,
                "task" => &mut shape.task,
                _ => continue,
            };
            *member = Some(value).filter(|value| *value != "null");
        }
        shape
    }
}

/// What a member says, where it is there.
fn said<'a, T: Deserialize<'a>>(name: &str, written: Option<&'a str>) -> Result<Option<T>, NoResult> {
    let wrong = |error| NoResult(format!("`{name}`: {error}"));
    written.map(|written| serde_json::from_str(written).map_err(wrong)).transpose()
}

impl Reply {
    pub(crate) fn convert(raw: Raw) -> Result<Self, NoResult> {
        if !raw.get().trim_start().starts_with('{') {
            return Err(NoResult("it is no object".to_owned()));
        }
        let shape = Shape::of(&raw);
        let given = |part: Option<&str>| part.map(|part| raw.slice(part));
        let (structured, content) = (given(shape.structured_content), given(shape.content));
        let is_error = said("isError", shape.is_error)?.unwrap_or(false);
        let ttl_ms = said("ttlMs", shape.ttl_ms)?;
        let result_type: Option<Cow<'_, str>> = said("resultType", shape.result_type)?;
        // The revision before the newest names no type; a task stands in place of the content there.
        let unfinished = match result_type.as_deref() {
            None => shape.task.is_some() && content.is_none(),
            Some("complete") => false,
            Some("input_required" | "task") => true,
            Some(other) => return Err(NoResult(format!("its type is `{}`", quoted(other)))),
        };
        let (data, structured) = match (structured, content) {
            (Some(data), _) => (data, true),
            (None, Some(data)) => (data, false),
            // A tool that gives nothing gives an empty list of it.
            (None, None) => (Raw::of(&[(); 0]), false),
        };
        let ttl = ttl_ms.map(Duration::from_millis).or(unfinished.then_some(Duration::ZERO));
        Ok(Self { data, structured, is_error, ttl, unfinished, raw })
    }

    /// What the result refers to: resources that are in it, and links to others.
    pub(crate) fn related(&self) -> Vec<RelatedResource> {
        #[derive(Deserialize)]
        struct Content {
            #[serde(default)]
            content: Vec<Block>,
        }
        #[derive(Deserialize)]
        struct Block {
            #[serde(default)]
            uri: Option<String>,
            #[serde(default)]
            name: Option<String>,
            #[serde(default)]
            resource: Option<Embedded>,
        }
        #[derive(Deserialize)]
        struct Embedded {
            uri: String,
        }
        // Most results refer to nothing, and need no look inside.
        if !self.raw.get().contains("\"uri\"") {
            return Vec::new();
        }
        let content = self.raw.parse::<Content>().map(|content| content.content).unwrap_or_default();
        let found = content.into_iter().filter_map(|block| match (block.resource, block.uri) {
            // What is there says more than what is only named.
            (Some(embedded), _) => Some((embedded.uri.clone(), embedded.uri, Share::ALL)),
            (None, Some(uri)) => Some((uri.clone(), block.name.unwrap_or(uri), Share::nearest(0.5))),
            (None, None) => None,
        });
        let related = |(id, label, relevance): (String, String, Share)| RelatedResource {
            kind: "resource".to_owned(),
            id: clean(&id).into_owned(),
            label: clean(&label).into_owned(),
            relevance,
            metadata: None,
        };
        found.take(MOST_RELATED).map(related).collect()
    }

    /// The first text, which is what a tool says of its failure.
    pub(crate) fn first_text(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Content {
            #[serde(default)]
            content: Vec<Block>,
        }
        #[derive(Deserialize)]
        struct Block {
            #[serde(default)]
            text: Option<String>,
        }
        self.raw.parse::<Content>().ok()?.content.into_iter().find_map(|block| block.text)
    }
}

#[test]
fn what_a_tool_gave() {
    let reply = |text: &'static str| {
        let raw = Raw::new(bytes::Bytes::from_static(text.as_bytes()), Default::default()).unwrap();
        let reply = Reply::convert(raw).unwrap();
        (reply.data.get().to_owned(), reply.structured, reply.is_error)
    };
    let text = r#"{"content":[{"type":"text","text":"1"}],"structuredContent":{"n":1.0}}"#;
    assert_eq!(reply(text), (r#"{"n":1.0}"#.to_owned(), true, false));
    let unknown = r#"{"content":[{"type":"hologram","z":1}],"isError":true}"#;
    assert_eq!(reply(unknown), (r#"[{"type":"hologram","z":1}]"#.to_owned(), false, true));
    assert_eq!(reply(r#"{"structuredContent":null}"#), ("[]".to_owned(), false, false));
    assert_eq!(reply("{}"), ("[]".to_owned(), false, false));
    // Some servers write what is not there as `null`.
    assert_eq!(reply(r#"{"content":null,"isError":null,"ttlMs":null}"#), ("[]".to_owned(), false, false));
}

#[test]
fn what_a_result_refers_to() {
    let raw = Raw::of(&serde_json::json!({ "content": [
        { "type": "resource_link", "uri": "test://a", "name": "A\u{200B}" },
        { "type": "resource", "resource": { "uri": "test://b", "text": "b" } },
        { "type": "text", "text": "c" },
    ] }));
    let related = Reply::convert(raw).unwrap().related();
    let shown: Vec<_> =
        related.iter().map(|one| (one.id.as_str(), one.label.as_str(), one.relevance.get())).collect();
    assert_eq!(shown, [("test://a", "A", 0.5), ("test://b", "test://b", 1.0)]);
}

#[test]
fn words_of_a_server_are_quoted_with_care() {
    assert_eq!(quoted("no\u{1b}[2J such card"), "no[2J such card");
    let said = quoted("401: Authorization: Bearer sk-abcdefghijklmnopqrstuvwx");
    assert!(!said.contains("abcdefghij"), "{said}");
    assert_eq!(quoted(&"x".repeat(1 << 20)).chars().count(), LONGEST_QUOTE + 1);
}
