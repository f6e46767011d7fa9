//! The body of a request: which argument it is, and how it is written.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::document::{Fault, Place};
use super::encode::{Unsendable, escaped};
use super::operation::Taken;

/// A body.
#[derive(Debug, Clone)]
pub(super) struct Body {
    argument: String,
    /// What is said of it in `Content-Type`.
    kind: String,
    form: Form,
}

/// How a body is written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Json,
    /// `a=1&b=2`.
    Fields,
    /// Parts, some of them files: those that are named here.
    Parts(Vec<String>),
    Text,
    /// The argument is base64.
    Bytes,
}

/// Whether a media type is JSON.
pub(super) fn is_json(kind: &str) -> bool {
    let kind = essence(kind);
    kind == "application/json" || kind.ends_with("+json")
}

/// A media type without its parameters.
pub(super) fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The body of an operation, in the form that loses the least.
pub(super) fn of(place: &Place<'_>, taken: &mut Taken<'_>) -> Result<Option<Body>, Fault> {
    let Some(body) = place.operation.get("requestBody") else { return Ok(None) };
    let body = place.document.follow(body)?;
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
        return if required { Err(Fault("its body has no form that is known".to_owned())) } else { Ok(None) };
    };
    let kind = if kind.contains('*') { "application/json" } else { kind.as_str() };
    if !kind.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err(Fault("the media type of its body cannot be sent".to_owned()));
    }
    let any = json!({});
    let schema = media.get("schema").unwrap_or(&any);
    let form = match rank(kind) {
        0 => Form::Json,
        1 => Form::Fields,
        2 => Form::Parts(files(place, schema)?),
        3 => Form::Text,
        4 => Form::Bytes,
        _ => return Err(Fault(format!("its body is `{kind}`, which is not understood"))),
    };
    let schema = match form {
        Form::Text => json!({ "type": "string" }),
        Form::Bytes => {
            json!({ "type": "string", "contentEncoding": "base64", "description": format!("{kind} as base64") })
        }
        Form::Json | Form::Fields | Form::Parts(_) => taken.schemas.translate(schema)?,
    };
    let argument = taken.add(["body".to_owned(), "request_body".to_owned()], schema, required)?;
    Ok(Some(Body { argument, kind: kind.to_owned(), form }))
}

/// The members of a form that are files: their values come as base64.
fn files(place: &Place<'_>, schema: &Value) -> Result<Vec<String>, Fault> {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => place.document.follow(place.document.referred(reference)?)?,
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

impl Body {
    /// The argument that it is.
    pub(super) fn argument(&self) -> &str {
        &self.argument
    }

    /// Its media type and its bytes; nothing where there is none.
    pub(super) fn write(
        &self,
        value: Option<&Value>,
        written: Option<&str>,
    ) -> Result<Option<(String, Vec<u8>)>, Unsendable> {
        let Some(value) = value else { return Ok(None) };
        let bytes = match &self.form {
            Form::Json => written.map_or_else(|| value.to_string(), str::to_owned).into_bytes(),
            Form::Fields => self.fields(self.members(value)?)?.into_bytes(),
            Form::Parts(files) => {
                let boundary = format!("{:032x}", fastrand::u128(..));
                let bytes = self.parts(self.members(value)?, files, &boundary)?;
                return Ok(Some((format!("multipart/form-data; boundary={boundary}"), bytes)));
            }
            Form::Text => self.text(value)?.as_bytes().to_vec(),
            Form::Bytes => self.decoded(self.text(value)?)?,
        };
        Ok(Some((self.kind.clone(), bytes)))
    }

    fn bad(&self, why: &str) -> Unsendable {
        Unsendable { argument: self.argument.clone(), why: why.to_owned() }
    }

    fn members<'v>(&self, value: &'v Value) -> Result<&'v Map<String, Value>, Unsendable> {
        value.as_object().ok_or_else(|| self.bad("is not an object"))
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, Unsendable> {
        value.as_str().ok_or_else(|| self.bad("is not a text"))
    }

    fn decoded(&self, text: &str) -> Result<Vec<u8>, Unsendable> {
        STANDARD.decode(text).map_err(|_| self.bad("is not base64"))
    }

    fn fields(&self, members: &Map<String, Value>) -> Result<String, Unsendable> {
        let mut fields = Vec::new();
        for (name, value) in members {
            let items = match value {
                Value::Array(items) => items.as_slice(),
                Value::Null => &[],
                value => std::slice::from_ref(value),
            };
            for item in items {
                let text = plain(item).unwrap_or_else(|| item.to_string());
                fields.push(format!("{}={}", escaped(name), escaped(&text)));
            }
        }
        Ok(fields.join("&"))
    }

    /// The boundary is random, so that no value can hold it but by guessing.
    fn parts(
        &self,
        members: &Map<String, Value>,
        files: &[String],
        boundary: &str,
    ) -> Result<Vec<u8>, Unsendable> {
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
                        self.decoded(text)?
                    }
                    (_, Value::Object(_) | Value::Array(_)) => {
                        out.extend_from_slice(b"\r\nContent-Type: application/json");
                        item.to_string().into_bytes()
                    }
                    _ => plain(item).unwrap_or_default().into_bytes(),
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

/// A value that is no list and no object, as text.
pub(super) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}
