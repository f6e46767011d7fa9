//! Content: converts a server's reply to a result.
//!
//! The reply keeps its original bytes; only the fields that affect the pipeline are parsed, so unknown kinds of content
//! pass through unchanged. Invariant: the data of a success is never `null`.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use toolgate_redact::mask;
use toolgate_redact::sanitize::sanitize;
use toolgate_types::hints::{Ratio, RelatedResource};
use toolgate_upstream::RawJson;

/// Characters quoted from a server in an error message.
const MAX_QUOTE_CHARS: usize = 2_000;
/// Related resources listed with a result.
const MAX_RELATED: usize = 20;

/// A parsed reply.
#[derive(Debug, Clone)]
pub(crate) struct ToolReply {
    /// The complete reply.
    pub(crate) raw: RawJson,
    /// Structured content if there is some, otherwise the content.
    pub(crate) data: RawJson,
    /// True if `data` is structured content, which the output schema describes.
    pub(crate) structured: bool,
    pub(crate) is_error: bool,
    /// Time to live that the server gives for the result.
    pub(crate) ttl: Option<Duration>,
    /// True if this is not a final result: a question to the client, or a running task.
    pub(crate) unfinished: bool,
    /// True if the content is untrusted although the tool is trusted: a stored result of an untrusted server.
    pub(crate) untrusted: bool,
}

/// Prepares a server's text for an error message: removes control characters, redacts secrets, limits the length.
pub(crate) fn quote(text: &str) -> String {
    let text = mask(&sanitize(text), &[]);
    match text.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The reply is not a tool result.
#[derive(Debug, thiserror::Error)]
#[error("the reply is not a tool result: {0}")]
pub(crate) struct InvalidReply(String);

/// Raw values of the fields that affect the pipeline. `null` counts as absent.
#[derive(Default)]
struct ReplyFields<'a> {
    content: Option<&'a str>,
    structured_content: Option<&'a str>,
    is_error: Option<&'a str>,
    ttl_ms: Option<&'a str>,
    result_type: Option<&'a str>,
    task: Option<&'a str>,
}

impl<'a> ReplyFields<'a> {
    fn of(raw: &'a RawJson) -> Self {
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

/// Parses a field if it is present.
fn parse_field<'a, T: Deserialize<'a>>(
    name: &str,
    value: Option<&'a str>,
) -> Result<Option<T>, InvalidReply> {
    let invalid = |error| InvalidReply(format!("`{name}`: {error}"));
    value.map(|value| serde_json::from_str(value).map_err(invalid)).transpose()
}

impl ToolReply {
    pub(crate) fn convert(raw: RawJson) -> Result<Self, InvalidReply> {
        if !raw.as_str().trim_start().starts_with('{') {
            return Err(InvalidReply("it is not an object".to_owned()));
        }
        let shape = ReplyFields::of(&raw);
        let slice = |part: Option<&str>| part.map(|part| raw.slice(part));
        let (structured, content) = (slice(shape.structured_content), slice(shape.content));
        let is_error = parse_field("isError", shape.is_error)?.unwrap_or(false);
        let ttl_ms = parse_field("ttlMs", shape.ttl_ms)?;
        let result_type: Option<Cow<'_, str>> = parse_field("resultType", shape.result_type)?;
        // Revisions before 2026-07-28 have no `resultType`; a task takes the place of the content there.
        let unfinished = match result_type.as_deref() {
            None => shape.task.is_some() && content.is_none(),
            Some("complete") => false,
            Some("input_required" | "task") => true,
            Some(other) => {
                return Err(InvalidReply(format!("its `resultType` is unknown: `{}`", quote(other))));
            }
        };
        let (data, structured) = match (structured, content) {
            (Some(data), _) => (data, true),
            (None, Some(data)) => (data, false),
            // No content is an empty list.
            (None, None) => (RawJson::from_value(&[(); 0]), false),
        };
        let ttl = ttl_ms.map(Duration::from_millis).or(unfinished.then_some(Duration::ZERO));
        Ok(Self { data, structured, is_error, ttl, unfinished, raw, untrusted: false })
    }

    /// The reply to an operation that is not a tool call. It is passed on as it is.
    pub(crate) fn verbatim(raw: RawJson) -> Self {
        let data = raw.clone();
        Self { raw, data, structured: false, is_error: false, ttl: None, unfinished: false, untrusted: false }
    }

    /// The first text, usually the error message of a failed tool.
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

/// Returns the content blocks of a reply with structured content, unless they only repeat it as text.
pub(crate) fn content_beside(reply: &RawJson) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct TextBlock<'a> {
        r#type: Cow<'a, str>,
        #[serde(default)]
        text: Cow<'a, str>,
    }
    let fields = ReplyFields::of(reply);
    let (structured, content) = (fields.structured_content?, fields.content?);
    let repeats = match serde_json::from_str::<Vec<TextBlock<'_>>>(content).ok()?.as_slice() {
        [] => true,
        [block] if block.r#type == "text" => {
            let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            parse(&block.text).is_some_and(|text| parse(structured) == Some(text))
        }
        _ => false,
    };
    (!repeats).then(|| reply.slice(content))
}

/// Resources that the result embeds or links to.
pub(crate) fn related_resources(reply: &RawJson) -> Vec<RelatedResource> {
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
    // Most results have no URIs, so the parse is skipped.
    if !reply.contains_short("\"uri\"") {
        return Vec::new();
    }
    let content = reply.parse::<Content>().map(|content| content.content).unwrap_or_default();
    let found = content.into_iter().filter_map(|block| match (block.resource, block.uri) {
        // Embedded resources are more relevant than links.
        (Some(embedded), _) => Some((embedded.uri.clone(), embedded.uri, Ratio::ONE)),
        (None, Some(uri)) => Some((uri.clone(), block.name.unwrap_or(uri), Ratio::clamped(0.5))),
        (None, None) => None,
    });
    let related = |(id, label, relevance): (String, String, Ratio)| RelatedResource {
        kind: "resource".to_owned(),
        id: sanitize(&id).into_owned(),
        label: sanitize(&label).into_owned(),
        relevance,
        metadata: None,
    };
    found.take(MAX_RELATED).map(related).collect()
}

#[test]
fn converts_content_and_structured_content() {
    let reply = |text: &'static str| {
        let raw = RawJson::new(bytes::Bytes::from_static(text.as_bytes()), Default::default()).unwrap();
        let reply = ToolReply::convert(raw).unwrap();
        (reply.data.as_str().to_owned(), reply.structured, reply.is_error)
    };
    let text = r#"{"content":[{"type":"text","text":"1"}],"structuredContent":{"n":1.0}}"#;
    assert_eq!(reply(text), (r#"{"n":1.0}"#.to_owned(), true, false));
    let unknown = r#"{"content":[{"type":"hologram","z":1}],"isError":true}"#;
    assert_eq!(reply(unknown), (r#"[{"type":"hologram","z":1}]"#.to_owned(), false, true));
    assert_eq!(reply(r#"{"structuredContent":null}"#), ("[]".to_owned(), false, false));
    assert_eq!(reply("{}"), ("[]".to_owned(), false, false));
    // Some servers send `null` for absent fields.
    assert_eq!(reply(r#"{"content":null,"isError":null,"ttlMs":null}"#), ("[]".to_owned(), false, false));
}

#[test]
fn lists_related_resources() {
    let raw = RawJson::from_value(&serde_json::json!({ "content": [
        { "type": "resource_link", "uri": "test://a", "name": "A\u{200B}" },
        { "type": "resource", "resource": { "uri": "test://b", "text": "b" } },
        { "type": "text", "text": "c" },
    ] }));
    let related = related_resources(&raw);
    let shown: Vec<_> =
        related.iter().map(|one| (one.id.as_str(), one.label.as_str(), one.relevance.get())).collect();
    assert_eq!(shown, [("test://a", "A", 0.5), ("test://b", "test://b", 1.0)]);
}

#[test]
fn quote_cleans_redacts_and_truncates() {
    assert_eq!(quote("no\u{1b}[2J such card"), "no[2J such card");
    let quoted = quote("401: Authorization: Bearer sk-abcdefghijklmnopqrstuvwx");
    assert!(!quoted.contains("abcdefghij"), "{quoted}");
    assert_eq!(quote(&"x".repeat(1 << 20)).chars().count(), MAX_QUOTE_CHARS + 1);
}

#[test]
fn content_is_kept_beside_structured_content() {
    let found = |reply: serde_json::Value| {
        content_beside(&RawJson::from_value(&reply)).map(|content| content.parse().expect("JSON"))
    };
    let text = |text: &str| serde_json::json!([{ "type": "text", "text": text }]);
    let reply = |content| serde_json::json!({ "content": content, "structuredContent": { "n": 1 } });
    assert_eq!(found(reply(text("{ \"n\": 1 }"))), None, "the same, as text");
    assert_eq!(found(reply(text("n is 1"))), Some(text("n is 1")));
    assert_eq!(found(reply(serde_json::json!([]))), None);
    assert_eq!(found(serde_json::json!({ "content": text("n is 1") })), None, "`data` has it");
    let image = serde_json::json!([{ "type": "image", "data": "AAAA", "mimeType": "image/png" }]);
    assert_eq!(found(reply(image.clone())), Some(image));
}
