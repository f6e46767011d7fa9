//! The body of a request: the argument it comes from, and its encoding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::document::{DocumentFault, OperationContext};
use super::encode::{EncodeError, percent_encode};
use super::operation::ArgumentSchemaBuilder;

/// The request body of an operation.
#[derive(Debug, Clone)]
pub(super) struct RequestBody {
    argument: String,
    /// The value of `Content-Type`.
    kind: String,
    encoding: BodyEncoding,
}

/// The encoding of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BodyEncoding {
    Json,
    /// `a=1&b=2`.
    Fields,
    /// Multipart; the fields named here are files.
    Parts(Vec<String>),
    Text,
    /// Raw bytes; the argument is base64.
    Bytes,
}

/// Returns true if a media type is JSON.
pub(super) fn is_json(kind: &str) -> bool {
    let kind = essence(kind);
    kind == "application/json" || kind.ends_with("+json")
}

/// A media type without its parameters.
pub(super) fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Parses the request body of an operation. Of several media types, picks the one that loses the least.
pub(super) fn parse(
    context: &OperationContext<'_>,
    arguments: &mut ArgumentSchemaBuilder<'_>,
) -> Result<Option<RequestBody>, DocumentFault> {
    let Some(body) = context.operation.get("requestBody") else { return Ok(None) };
    let body = context.document.resolve(body)?;
    let required = body.get("required").and_then(Value::as_bool).unwrap_or_default();
    let content = body.get("content").and_then(Value::as_object);
    let rank = |kind: &str| match essence(kind).as_str() {
        "*/*" | "application/*" => 0,
        _ if is_json(kind) => 0,
        "application/x-www-form-urlencoded" => 1,
        "multipart/form-data" => 2,
        kind if kind.starts_with("text/") => 3,
        kind if kind.starts_with("multipart/") => 5,
        _ => 4,
    };
    let best = content.into_iter().flatten().min_by_key(|(kind, _)| rank(kind));
    let Some((kind, media)) = best else {
        return if required {
            Err(DocumentFault("its body has no supported media type".to_owned()))
        } else {
            Ok(None)
        };
    };
    let kind = if kind.contains('*') { "application/json" } else { kind.as_str() };
    if !kind.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err(DocumentFault("the media type of its body is invalid".to_owned()));
    }
    let any = json!({});
    let schema = media.get("schema").unwrap_or(&any);
    let encoding = match rank(kind) {
        0 => BodyEncoding::Json,
        1 => BodyEncoding::Fields,
        2 => BodyEncoding::Parts(files(context, schema)?),
        3 => BodyEncoding::Text,
        4 => BodyEncoding::Bytes,
        _ => return Err(DocumentFault(format!("its body is `{kind}`, which is not supported"))),
    };
    let schema = match encoding {
        BodyEncoding::Text => json!({ "type": "string" }),
        BodyEncoding::Bytes => {
            json!({ "type": "string", "contentEncoding": "base64", "description": format!("{kind} as base64") })
        }
        BodyEncoding::Json | BodyEncoding::Fields | BodyEncoding::Parts(_) => {
            arguments.schemas.translate(schema)?
        }
    };
    let argument = arguments.add(["body".to_owned(), "request_body".to_owned()], schema, required)?;
    Ok(Some(RequestBody { argument, kind: kind.to_owned(), encoding }))
}

/// The multipart fields that are files: their values are base64.
fn files(context: &OperationContext<'_>, schema: &Value) -> Result<Vec<String>, DocumentFault> {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => context.document.resolve(context.document.resolve_reference(reference)?)?,
        None => schema,
    };
    let is_file = |schema: &Value| {
        schema.get("format").and_then(Value::as_str) == Some("binary")
            || schema.get("contentMediaType").is_some()
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let files = properties.into_iter().flatten().filter(|(_, schema)| is_file(schema));
    Ok(files.map(|(name, _)| name.clone()).collect())
}

impl RequestBody {
    /// The name of the argument that holds the body.
    pub(super) fn argument(&self) -> &str {
        &self.argument
    }

    /// Encodes the body: its media type and its bytes; `None` without an argument.
    pub(super) fn write(
        &self,
        value: Option<&Value>,
        written: Option<&str>,
    ) -> Result<Option<(String, Vec<u8>)>, EncodeError> {
        let Some(value) = value else { return Ok(None) };
        let bytes = match &self.encoding {
            BodyEncoding::Json => written.map_or_else(|| value.to_string(), str::to_owned).into_bytes(),
            BodyEncoding::Fields => self.fields(self.members(value)?)?.into_bytes(),
            BodyEncoding::Parts(files) => {
                let boundary = format!("{:032x}", fastrand::u128(..));
                let bytes = self.parts(self.members(value)?, files, &boundary)?;
                return Ok(Some((format!("multipart/form-data; boundary={boundary}"), bytes)));
            }
            BodyEncoding::Text => self.text(value)?.as_bytes().to_vec(),
            BodyEncoding::Bytes => self.decode_base64(self.text(value)?)?,
        };
        Ok(Some((self.kind.clone(), bytes)))
    }

    fn error(&self, why: &str) -> EncodeError {
        EncodeError { argument: self.argument.clone(), why: why.to_owned() }
    }

    fn members<'v>(&self, value: &'v Value) -> Result<&'v Map<String, Value>, EncodeError> {
        value.as_object().ok_or_else(|| self.error("is not an object"))
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, EncodeError> {
        value.as_str().ok_or_else(|| self.error("is not a string"))
    }

    fn decode_base64(&self, text: &str) -> Result<Vec<u8>, EncodeError> {
        STANDARD.decode(text).map_err(|_| self.error("is not base64"))
    }

    fn fields(&self, members: &Map<String, Value>) -> Result<String, EncodeError> {
        let mut fields = Vec::new();
        for (name, value) in members {
            let items = match value {
                Value::Array(items) => items.as_slice(),
                Value::Null => &[],
                value => std::slice::from_ref(value),
            };
            for item in items {
                let text = scalar_string(item).unwrap_or_else(|| item.to_string());
                fields.push(format!("{}={}", percent_encode(name), percent_encode(&text)));
            }
        }
        Ok(fields.join("&"))
    }

    /// Encodes multipart fields. The boundary is random, so that no value can contain it except by guessing.
    fn parts(
        &self,
        members: &Map<String, Value>,
        files: &[String],
        boundary: &str,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        for (name, value) in members {
            let items = match value {
                Value::Array(items) => items.as_slice(),
                Value::Null => &[],
                value => std::slice::from_ref(value),
            };
            let shown = name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
            for item in items {
                let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{shown}\"");
                out.extend_from_slice(head.as_bytes());
                let bytes = match (files.contains(name), item) {
                    (true, Value::String(text)) => {
                        let kind =
                            format!("; filename=\"{shown}\"\r\nContent-Type: application/octet-stream");
                        out.extend_from_slice(kind.as_bytes());
                        self.decode_base64(text)?
                    }
                    (_, Value::Object(_) | Value::Array(_)) => {
                        out.extend_from_slice(b"\r\nContent-Type: application/json");
                        item.to_string().into_bytes()
                    }
                    _ => scalar_string(item).unwrap_or_default().into_bytes(),
                };
                out.extend_from_slice(b"\r\n\r\n");
                out.extend_from_slice(&bytes);
                out.extend_from_slice(b"\r\n");
            }
        }
        out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        Ok(out)
    }
}

/// A scalar as a string; `None` for an array or an object.
pub(super) fn scalar_string(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}
