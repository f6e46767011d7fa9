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
    let is_object = text.starts_with('{');
    if is_object && is_reply(&raw) {
        return Ok(raw);
    }
    if is_object && let Some(envelope) = Envelope::of(&raw) {
        return Ok(RawJson::from_trusted(envelope.reply(has_schema)));
    }
    Ok(RawJson::from_trusted(format!("{{{}}}", content_members(text, has_schema))))
}

/// The members of a tool result for a JSON value.
fn content_members(text: &str, has_schema: bool) -> String {
    let is_object = text.starts_with('{');
    if text == "null" {
        return "\"content\":[]".to_owned();
    }
    let quoted = if text.starts_with('"') { text.to_owned() } else { Value::from(text).to_string() };
    let structured =
        if is_object || has_schema { format!(",\"structuredContent\":{text}") } else { String::new() };
    format!("\"content\":[{{\"type\":\"text\",\"text\":{quoted}}}]{structured}")
}

/// The result of a script as the tool contract describes it: data or an error, with hints and metadata of its own.
#[derive(Default)]
struct Envelope<'a> {
    status: Option<&'a str>,
    data: Option<&'a str>,
    error: Option<&'a str>,
    hints: Option<&'a str>,
    metadata: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    /// Reads an envelope. An object with other members, or without hints and status, is data.
    fn of(raw: &'a RawJson) -> Option<Self> {
        let mut envelope = Self::default();
        for (name, value) in raw.members() {
            let member = match &*name {
                "status" => &mut envelope.status,
                "data" => &mut envelope.data,
                "error" => &mut envelope.error,
                "agentHints" => &mut envelope.hints,
                "metadata" => &mut envelope.metadata,
                _ => return None,
            };
            *member = Some(value);
        }
        let has_status = matches!(envelope.status, Some("\"success\"" | "\"error\""));
        let has_hints = envelope.hints.is_some_and(|hints| hints.starts_with('{'));
        let has_result = envelope.data.is_some() || envelope.error.is_some();
        envelope.error = envelope.error.filter(|error| *error != "null");
        (has_result && (has_status || has_hints)).then_some(envelope)
    }

    /// Builds the tool result. Hints, metadata and the error are in `_meta`, as tools of the SDK send them.
    fn reply(&self, has_schema: bool) -> String {
        let mut own = Vec::new();
        let content = match self.error {
            Some(error) => {
                let fields = error_fields(error);
                let hint = fields["hint"].as_str().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                let text = format!("{}{hint}", fields["message"].as_str().unwrap_or("the tool failed"));
                own.push(format!("\"error\":{fields}"));
                format!("\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"isError\":true", Value::from(text))
            }
            None if self.status == Some("\"error\"") => {
                "\"content\":[{\"type\":\"text\",\"text\":\"the tool failed\"}],\"isError\":true".to_owned()
            }
            None => content_members(self.data.unwrap_or("null"), has_schema),
        };
        own.extend(self.hints.map(|hints| format!("\"agentHints\":{hints}")));
        own.extend(self.metadata.map(|metadata| format!("\"metadata\":{metadata}")));
        format!("{{{content},\"_meta\":{{\"toolgate/result\":{{{}}}}}}}", own.join(","))
    }
}

/// The error of an envelope as an object: a string is its message.
fn error_fields(error: &str) -> Value {
    match serde_json::from_str(error).unwrap_or_default() {
        Value::String(message) => serde_json::json!({ "message": message }),
        fields @ Value::Object(_) => fields,
        _ => serde_json::json!({ "message": "the tool failed" }),
    }
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
    fn envelopes_become_results_with_hints() {
        check(
            r#"{"data": {"n": 1}, "agentHints": {"confidence": 0.5}, "metadata": {"toolVersion": "2.0.0"}}"#,
            false,
            r#"{"content":[{"type":"text","text":"{\"n\": 1}"}],"structuredContent":{"n": 1},"_meta":{"toolgate/result":{"agentHints":{"confidence": 0.5},"metadata":{"toolVersion": "2.0.0"}}}}"#,
        );
        check(
            r#"{"status":"error","data":null,"error":{"code":"deck_full","message":"full","hint":"use another"}}"#,
            false,
            r#"{"content":[{"type":"text","text":"full\nhint: use another"}],"isError":true,"_meta":{"toolgate/result":{"error":{"code":"deck_full","message":"full","hint":"use another"}}}}"#,
        );
        check(
            r#"{"status":"success","data":"ok"}"#,
            false,
            r#"{"content":[{"type":"text","text":"ok"}],"_meta":{"toolgate/result":{}}}"#,
        );
        // Other objects are data.
        for data in [
            r#"{"data":1}"#,
            r#"{"data":1,"agentHints":2}"#,
            r#"{"status":"open","data":1}"#,
            r#"{"agentHints":{},"n":1}"#,
        ] {
            let text = Value::from(data);
            check(
                data,
                false,
                &format!(r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{data}}}"#),
            );
        }
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
