//! What a script gave, as the reply of a server would say it.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_mcp::Raw;
use toolgate_mcp::scan::Limits;

/// JSON that a script gave, in the form of a reply: an object is structured content, and text beside it; anything
/// else is text, and structured too where the tool has a schema for it. What has that form already is left alone.
pub(super) fn of_json(bytes: Bytes, limits: Limits, has_schema: bool) -> Result<Raw, String> {
    let raw = Raw::new(bytes, limits).map_err(|error| error.to_string())?;
    let text = raw.get().trim();
    if text == "null" {
        return Ok(Raw::of(&serde_json::json!({ "content": [] })));
    }
    let is_object = text.starts_with('{');
    if is_object && is_reply(&raw) {
        return Ok(raw);
    }
    let said = if text.starts_with('"') { text.to_owned() } else { Value::from(text).to_string() };
    let structured =
        if is_object || has_schema { format!(",\"structuredContent\":{text}") } else { String::new() };
    Ok(Raw::trusted(format!("{{\"content\":[{{\"type\":\"text\",\"text\":{said}}}]{structured}}}")))
}

/// What a program wrote. It is JSON where it looks like an object or has to be JSON, and else JSON or text.
pub(super) fn of_output(bytes: Vec<u8>, limits: Limits, has_schema: bool) -> Result<Raw, String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        format!("what it wrote to stdout is not UTF-8 from byte {} on", error.utf8_error().valid_up_to())
    })?;
    if text.trim().is_empty() {
        return Ok(Raw::of(&serde_json::json!({ "content": [] })));
    }
    let must_be_json = has_schema || text.trim_start().starts_with('{');
    let kept = (!must_be_json).then(|| text.clone());
    match (of_json(text.into(), limits, has_schema), kept) {
        (Ok(reply), _) => Ok(reply),
        (Err(_), Some(text)) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            Ok(Raw::of(&serde_json::json!({ "content": [{ "type": "text", "text": text }] })))
        }
        (Err(why), None) => Err(format!("what it wrote to stdout is not JSON: {why}")),
    }
}

/// Whether an object has a list of content, as a reply of a server has.
fn is_reply(raw: &Raw) -> bool {
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
    let shape: Result<Shape<'_>, _> = raw.look();
    shape.is_ok_and(|shape| {
        shape.content.iter().all(|block| serde_json::from_str::<Block>(block.get()).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &str, has_schema: bool, expected: &str) {
        let given = of_output(written.as_bytes().to_vec(), Limits::default(), has_schema);
        let given = given.map_or_else(|error| error, |raw| raw.get().to_owned());
        assert_eq!(given, expected, "{written}");
    }

    #[test]
    fn json_and_text() {
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
    fn a_reply_is_left_alone() {
        for whole in [
            r#"{"content":[{"type":"text","text":"a"}],"isError":true}"#,
            r#"{"content":[{"type":"image","data":"","mimeType":"image/png"}],"structuredContent":{"a":1}}"#,
            r#"{"content":[]}"#,
        ] {
            check(whole, false, whole);
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
    fn what_looks_like_json_must_be_json() {
        for (written, has_schema) in
            [("{\"a\": NaN}", false), ("{\"a\": ", false), ("NaN", true), ("hello", true)]
        {
            let error = of_output(written.as_bytes().to_vec(), Limits::default(), has_schema).unwrap_err();
            assert!(error.starts_with("what it wrote to stdout is not JSON: "), "{written}: {error}");
        }
        let error = of_output(b"caf\xe9".to_vec(), Limits::default(), false).unwrap_err();
        assert_eq!(error, "what it wrote to stdout is not UTF-8 from byte 3 on");
    }
}
