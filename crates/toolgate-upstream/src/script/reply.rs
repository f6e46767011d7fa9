//! Converts the output of a script to an MCP tool result.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_mcp::RawJson;
use toolgate_mcp::scan::ScanLimits;

/// Converts JSON: an object becomes structured content plus text. Everything else becomes text, and structured content
/// too if the tool has an output schema. JSON that already is a tool result is passed through.
pub(super) fn from_json(bytes: Bytes, limits: ScanLimits, has_schema: bool) -> Result<RawJson, String> {
    let raw = RawJson::new(bytes, limits).map_err(|error| error.to_string())?;
    let text = raw.as_str().trim();
    if text == "null" {
        return Ok(RawJson::from_value(&serde_json::json!({ "content": [] })));
    }
    let is_object = text.starts_with('{');
    if is_object && is_reply(&raw) {
        return Ok(raw);
    }
    let quoted = if text.starts_with('"') { text.to_owned() } else { Value::from(text).to_string() };
    let structured =
        if is_object || has_schema { format!(",\"structuredContent\":{text}") } else { String::new() };
    Ok(RawJson::from_trusted(format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{quoted}}}]{structured}}}"
    )))
}

/// Converts stdout. It must be JSON if it starts like an object or the tool has a schema; otherwise it may be text.
pub(super) fn from_output(bytes: Vec<u8>, limits: ScanLimits, has_schema: bool) -> Result<RawJson, String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        format!("its stdout is not valid UTF-8 at byte {}", error.utf8_error().valid_up_to())
    })?;
    if text.trim().is_empty() {
        return Ok(RawJson::from_value(&serde_json::json!({ "content": [] })));
    }
    let must_be_json = has_schema || text.trim_start().starts_with('{');
    let plain_text = (!must_be_json).then(|| text.clone());
    match (from_json(text.into(), limits, has_schema), plain_text) {
        (Ok(reply), _) => Ok(reply),
        (Err(_), Some(text)) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            Ok(RawJson::from_value(&serde_json::json!({ "content": [{ "type": "text", "text": text }] })))
        }
        (Err(why), None) => Err(format!("its stdout is not JSON: {why}")),
    }
}

/// Returns true if an object has a content list, as a tool result has.
fn is_reply(raw: &RawJson) -> bool {
    #[derive(Deserialize)]
    struct Shape<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Block {
        #[serde(rename = "type")]
        _kind: String,
    }
    let shape: Result<Shape<'_>, _> = raw.parse_borrowed();
    shape.is_ok_and(|shape| {
        shape.content.iter().all(|block| serde_json::from_str::<Block>(block.get()).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &str, has_schema: bool, expected: &str) {
        let result = from_output(written.as_bytes().to_vec(), ScanLimits::default(), has_schema);
        let result = result.map_or_else(|error| error, |raw| raw.as_str().to_owned());
        assert_eq!(result, expected, "{written}");
    }

    #[test]
    fn converts_json_and_text() {
        check(
            "{\"n\": 1.0}\n",
            false,
            r#"{"content":[{"type":"text","text":"{\"n\": 1.0}"}],"structuredContent":{"n": 1.0}}"#,
        );
        check("hello\nworld\n", false, r#"{"content":[{"type":"text","text":"hello\nworld"}]}"#);
        check("\"hello\"", false, r#"{"content":[{"type":"text","text":"hello"}]}"#);
        check("[1, 2]", false, r#"{"content":[{"type":"text","text":"[1, 2]"}]}"#);
        check("[1]", true, r#"{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1]}"#);
        check("[INFO] done", false, r#"{"content":[{"type":"text","text":"[INFO] done"}]}"#);
        check("", false, r#"{"content":[]}"#);
        check("null", false, r#"{"content":[]}"#);
    }

    #[test]
    fn passes_tool_results_through() {
        for reply in [
            r#"{"content":[{"type":"text","text":"a"}],"isError":true}"#,
            r#"{"content":[{"type":"image","data":"","mimeType":"image/png"}],"structuredContent":{"a":1}}"#,
            r#"{"content":[]}"#,
        ] {
            check(reply, false, reply);
        }
        let other = r#"{"content":[1]}"#;
        let text = Value::from(other);
        check(
            other,
            false,
            &format!(r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{other}}}"#),
        );
    }

    #[test]
    fn rejects_invalid_json() {
        for (written, has_schema) in
            [("{\"a\": NaN}", false), ("{\"a\": ", false), ("NaN", true), ("hello", true)]
        {
            let error =
                from_output(written.as_bytes().to_vec(), ScanLimits::default(), has_schema).unwrap_err();
            assert!(error.starts_with("its stdout is not JSON: "), "{written}: {error}");
        }
        let error = from_output(b"caf\xe9".to_vec(), ScanLimits::default(), false).unwrap_err();
        assert_eq!(error, "its stdout is not valid UTF-8 at byte 3");
    }
}
