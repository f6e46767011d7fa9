//! Converts the response of an API to an MCP tool result.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use toolgate_mcp::RawJson;
use toolgate_mcp::scan::ScanLimits;

use super::body::{essence, is_json};

/// Text media types outside of `text/*`.
const TEXT_TYPES: [&str; 7] = [
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/javascript",
    "application/x-ndjson",
    "application/graphql",
    "application/x-www-form-urlencoded",
];

/// Converts a response: JSON becomes structured content plus text; text, images and audio become content of their kind;
/// everything else becomes an embedded resource with `uri`.
pub(super) fn from_response(
    kind: &str,
    bytes: Vec<u8>,
    limits: ScanLimits,
    uri: &str,
) -> Result<RawJson, String> {
    if bytes.is_empty() {
        return Ok(RawJson::from_value(&json!({ "content": [] })));
    }
    if is_json(kind) {
        let raw = RawJson::new(bytes.into(), limits)
            .map_err(|error| format!("the answer is not valid JSON: {error}"))?;
        let text = raw.as_str().trim();
        let quoted = Value::from(text);
        let structured =
            if text == "null" { String::new() } else { format!(",\"structuredContent\":{text}") };
        let reply = format!("{{\"content\":[{{\"type\":\"text\",\"text\":{quoted}}}]{structured}}}");
        return Ok(RawJson::from_trusted(reply));
    }
    let (mime, encoded) = (essence(kind), |bytes: &[u8]| STANDARD.encode(bytes));
    let block = match mime.split_once('/').map(|(top, _)| top) {
        Some("image") => json!({ "type": "image", "data": encoded(&bytes), "mimeType": mime }),
        Some("audio") => json!({ "type": "audio", "data": encoded(&bytes), "mimeType": mime }),
        top => match text(top, &mime, kind, &bytes) {
            Some(text) => json!({ "type": "text", "text": text }),
            None => {
                let mime = if mime.is_empty() { "application/octet-stream" } else { &mime };
                let resource = json!({ "uri": uri, "mimeType": mime, "blob": encoded(&bytes) });
                json!({ "type": "resource", "resource": resource })
            }
        },
    };
    Ok(RawJson::from_value(&json!({ "content": [block] })))
}

/// The body as a string, if it is text.
fn text(top: Option<&str>, mime: &str, kind: &str, bytes: &[u8]) -> Option<String> {
    let is_text =
        top == Some("text") || mime.is_empty() || TEXT_TYPES.contains(&mime) || mime.ends_with("+xml");
    if !is_text {
        return None;
    }
    let kind = kind.to_ascii_lowercase();
    if kind.contains("charset=iso-8859-1") || kind.contains("charset=latin1") {
        return Some(bytes.iter().map(|byte| char::from(*byte)).collect());
    }
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &str, bytes: &[u8], expected: &str) {
        let result = from_response(kind, bytes.to_vec(), ScanLimits::default(), "api:a/b");
        assert_eq!(result.map_or_else(|error| error, |raw| raw.as_str().to_owned()), expected, "{kind}");
    }

    #[test]
    fn converts_media_types() {
        check(
            "application/json; charset=utf-8",
            br#"{"n": 1.0}"#,
            r#"{"content":[{"type":"text","text":"{\"n\": 1.0}"}],"structuredContent":{"n": 1.0}}"#,
        );
        check(
            "application/problem+json",
            b"[1]",
            r#"{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1]}"#,
        );
        // A body that looks like a tool result is data like any other.
        check(
            "application/json",
            br#"{"content":[],"isError":true}"#,
            r#"{"content":[{"type":"text","text":"{\"content\":[],\"isError\":true}"}],"structuredContent":{"content":[],"isError":true}}"#,
        );
        check("application/json", b"null", r#"{"content":[{"type":"text","text":"null"}]}"#);
        check("application/json", b"{", "the answer is not valid JSON: invalid JSON at byte 1");
        check("", b"", r#"{"content":[]}"#);
        check("text/plain", b"hello", r#"{"content":[{"type":"text","text":"hello"}]}"#);
        check("text/plain; charset=ISO-8859-1", b"caf\xe9", r#"{"content":[{"type":"text","text":"café"}]}"#);
        check(
            "image/png",
            b"\x89P",
            r#"{"content":[{"type":"image","data":"iVA=","mimeType":"image/png"}]}"#,
        );
        let blob = r#"{"content":[{"type":"resource","resource":{"uri":"api:a/b","mimeType":"application/zip","blob":"UEs="}}]}"#;
        check("application/zip", b"PK", blob);
    }
}
