//! JSON-RPC messages. Only the envelope is parsed; params, results and error data stay raw.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use toolgate_json::{MemberName, unquote};

use crate::RawJson;
use crate::scan::{ScanError, ScanLimits};

/// Name of a method. Clones share it.
pub type MethodName = MemberName;

/// Returns the name of a method. The usual ones are not copied.
pub(crate) fn method_name(name: &str) -> MethodName {
    const USUAL: [&str; 8] = [
        "tools/call",
        "tools/list",
        "resources/read",
        "resources/list",
        "prompts/get",
        "prompts/list",
        "notifications/progress",
        "notifications/message",
    ];
    match USUAL.iter().find(|usual| **usual == name) {
        Some(usual) => MethodName::from_static(usual),
        None => name.into(),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Request { id: RequestId, method: MethodName, params: Option<RawJson> },
    Notification { method: MethodName, params: Option<RawJson> },
    Response { id: RequestId, outcome: Result<RawJson, RpcError> },
}

/// Results up to this size are copied into one buffer; larger ones are sent as a separate part.
const MAX_COPIED_BYTES: usize = 16 << 10;
/// Length of a response around its id and result.
const ENVELOPE_LENGTH: usize = 34;
/// Longer string ids are rejected, because an id is stored while its request runs.
const MAX_ID_BYTES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    Number(i64),
    String(Box<str>),
}

/// `error` member of a JSON-RPC response.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<RawJson>,
}

impl RpcError {
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;

    /// The client did not declare a capability that the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;

    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Reason for rejecting bytes as a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Invalid JSON, or beyond the limits.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Valid JSON that is not a JSON-RPC message.
    #[error("not a JSON-RPC message: {0}")]
    Shape(&'static str),
}

impl MessageError {
    /// JSON-RPC error code.
    pub(crate) fn code(&self) -> i64 {
        match self {
            Self::Scan(_) => -32700,
            Self::Shape(_) => -32600,
        }
    }

    /// Extracts the id of a malformed message, so that the error response names the request.
    pub(crate) fn request_id(&self, bytes: &[u8]) -> Option<RequestId> {
        #[derive(Deserialize)]
        struct IdMember<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        // After a failed scan the id is not trusted: the message may contain two of them.
        if matches!(self, Self::Scan(_)) {
            return None;
        }
        RequestId::read(serde_json::from_slice::<IdMember<'_>>(bytes).ok()?.id.get()).ok()
    }
}

/// Top-level members of a message as raw JSON.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    fn of(message: &'a RawJson) -> Self {
        let mut envelope = Self::default();
        for (name, value) in message.iter_members() {
            let member = match &*name {
                "jsonrpc" => &mut envelope.jsonrpc,
                "id" => &mut envelope.id,
                "method" => &mut envelope.method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                _ => continue,
            };
            // `null` counts as absent, except for `id`, where the caller decides.
            *member = Some(value).filter(|value| *value != "null" || name == "id");
        }
        envelope
    }
}

#[derive(Deserialize)]
struct ErrorEnvelope<'a> {
    code: i64,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// Treatment of an id that is `null`.
#[derive(Clone, Copy)]
enum NullIdPolicy {
    /// As a missing id: some servers send `"id": null` in notifications.
    Absent,
    /// Invalid: a request with a null id could not be answered.
    Reject,
}

/// Envelope members that were readable before the first syntax error.
#[derive(Default)]
struct PartialMessage {
    id: Option<i64>,
    has_method: bool,
    has_outcome: bool,
}

impl<'de> Visitor<'de> for &mut PartialMessage {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match &*name {
                "id" => {
                    self.id = Some(members.next_value()?);
                    continue;
                }
                "method" => self.has_method = true,
                "result" | "error" => self.has_outcome = true,
                _ => {}
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

impl Message {
    /// Parses one message, or a batch (2024-11-05 and 2025-03-26).
    pub fn read(bytes: &Bytes, limits: ScanLimits) -> Result<Vec<Self>, MessageError> {
        Self::read_all(bytes, limits, NullIdPolicy::Absent)
    }

    /// Parses a client's message. Unlike [`read`](Self::read), rejects an id that is `null`.
    pub(crate) fn read_from_client(bytes: &Bytes, limits: ScanLimits) -> Result<Vec<Self>, MessageError> {
        Self::read_all(bytes, limits, NullIdPolicy::Reject)
    }

    fn read_all(bytes: &Bytes, limits: ScanLimits, null_id: NullIdPolicy) -> Result<Vec<Self>, MessageError> {
        let whole = RawJson::new(bytes.clone(), limits)?;
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            let parts: Vec<&RawValue> = whole.parse_borrowed().map_err(|_| MessageError::Shape("a batch"))?;
            if parts.is_empty() {
                return Err(MessageError::Shape("an empty batch"));
            }
            let messages =
                parts.into_iter().map(|part| Self::read_one(&whole.slice(part.get()), bytes.len(), null_id));
            return messages.collect();
        }
        Ok(vec![Self::read_one(&whole, bytes.len(), null_id)?])
    }

    /// Returns the id of the request that a rejected message answers, so that the request fails at once
    /// instead of timing out. If the JSON breaks off (at a `NaN`, for example), `result` or `error` must have
    /// come before that point.
    pub(crate) fn rejected_response_id(bytes: &[u8]) -> Option<i64> {
        let mut partial = PartialMessage::default();
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let whole = serde::Deserializer::deserialize_map(&mut json, &mut partial).is_ok();
        partial.id.filter(|_| !partial.has_method && (whole || partial.has_outcome))
    }

    /// Returns true if a rejected message may be a response: no method was found in it, as far as it could be read.
    pub(crate) fn may_be_response(bytes: &[u8]) -> bool {
        let mut partial = PartialMessage::default();
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let _ = serde::Deserializer::deserialize_map(&mut json, &mut partial);
        !partial.has_method && bytes.trim_ascii_start().first() == Some(&b'{')
    }

    /// Parses a message; `received` is the size of the buffer that it is in.
    fn read_one(message: &RawJson, received: usize, null_id: NullIdPolicy) -> Result<Self, MessageError> {
        let envelope = Envelope::of(message);
        let other_types = || MessageError::Shape("a member has the wrong type");
        if envelope.jsonrpc.and_then(unquote).as_deref() != Some("2.0") {
            return Err(MessageError::Shape("`jsonrpc` is not `2.0`"));
        }
        let method = envelope.method.map(|method| unquote(method).ok_or_else(other_types)).transpose()?;
        let raw = |part: &str| message.slice(part);
        let present_id = envelope.id.filter(|id| *id != "null");
        if matches!(null_id, NullIdPolicy::Reject)
            && method.is_some()
            && present_id.is_none()
            && envelope.id.is_some()
        {
            return Err(MessageError::Shape("the id is null"));
        }
        let id = present_id.map(RequestId::read).transpose()?;
        let params = envelope.params.map(raw);
        match (method, id, envelope.result, envelope.error) {
            (Some(method), Some(id), None, None) => {
                Ok(Self::Request { id, method: method_name(&method), params })
            }
            (Some(method), None, None, None) => {
                Ok(Self::Notification { method: method_name(&method), params })
            }
            (None, Some(id), Some(result), None) => {
                let result = raw(result);
                // A result may be kept for long, and keeps the buffer: copied if that is mostly something else.
                let is_small_part = received > MAX_COPIED_BYTES && result.as_str().len() < received / 2;
                let result = if is_small_part { result.to_unshared() } else { result };
                Ok(Self::Response { id, outcome: Ok(result) })
            }
            (None, Some(id), None, Some(error)) => {
                let error: ErrorEnvelope<'_> = serde_json::from_str(error).map_err(|_| other_types())?;
                let data = error.data.map(|data| raw(data.get()));
                let error = RpcError { code: error.code, message: error.message.into(), data };
                Ok(Self::Response { id, outcome: Err(error) })
            }
            (None, None, None, Some(_)) => Err(MessageError::Shape("an error without an id")),
            _ => Err(MessageError::Shape("it is not a request, notification or response")),
        }
    }

    /// Serialises the message without copying a large result.
    pub fn to_parts(&self) -> MessageParts {
        match self {
            Self::Response { id, outcome: Ok(result) } => {
                let (text, tail) = result.parts();
                if text.len() <= MAX_COPIED_BYTES {
                    return MessageParts::Whole(response_bytes(id, &text, tail.as_deref()));
                }
                let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.to_json());
                let end = match tail {
                    Some(tail) => [&tail[..], b"}"].concat().into(),
                    None => Bytes::from_static(b"}"),
                };
                MessageParts::Several(vec![start.into(), text, end])
            }
            other => MessageParts::Whole(other.to_bytes()),
        }
    }

    /// Serialises the message without a trailing newline.
    pub fn to_bytes(&self) -> Bytes {
        let body = match self {
            Self::Request { params, .. } | Self::Notification { params, .. } => params.as_ref(),
            Self::Response { outcome, .. } => outcome.as_ref().ok(),
        };
        let mut out = String::with_capacity(body.map_or(0, |body| body.as_str().len()) + 128);
        out.push_str(r#"{"jsonrpc":"2.0""#);
        let member = |out: &mut String, name: &str, value: &str| {
            out.push_str(",\"");
            out.push_str(name);
            out.push_str("\":");
            out.push_str(value);
        };
        match self {
            Self::Request { id, method, params } => {
                member(&mut out, "id", &id.to_json());
                member(&mut out, "method", &quoted(method));
                if let Some(params) = params {
                    member(&mut out, "params", params.as_str());
                }
            }
            Self::Notification { method, params } => {
                member(&mut out, "method", &quoted(method));
                if let Some(params) = params {
                    member(&mut out, "params", params.as_str());
                }
            }
            Self::Response { id, outcome: Ok(result) } => {
                let (text, tail) = result.parts();
                return response_bytes(id, &text, tail.as_deref());
            }
            Self::Response { id, outcome: Err(error) } => {
                member(&mut out, "id", &id.to_json());
                let mut body = format!("{{\"code\":{},\"message\":{}", error.code, quoted(&error.message));
                if let Some(data) = &error.data {
                    body.push_str(",\"data\":");
                    body.push_str(data.as_str());
                }
                body.push('}');
                member(&mut out, "error", &body);
            }
        }
        out.push('}');
        out.into()
    }
}

/// A serialised message.
#[derive(Debug)]
pub enum MessageParts {
    Whole(Bytes),
    /// To be sent in order. There is at least one.
    Several(Vec<Bytes>),
}

impl MessageParts {
    /// All bytes in one piece.
    pub fn concat(self) -> Bytes {
        match self {
            Self::Whole(whole) => whole,
            Self::Several(parts) => parts.concat().into(),
        }
    }

    /// The first bytes.
    pub fn first(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match self {
            Self::Whole(whole) => whole,
            Self::Several(parts) => parts.first().unwrap_or(&NONE),
        }
    }
}

/// Serialises a response whose result is in one or two parts.
fn response_bytes(id: &RequestId, result: &[u8], tail: Option<&[u8]>) -> Bytes {
    let tail = tail.unwrap_or_default();
    let mut out = Vec::with_capacity(result.len() + tail.len() + ENVELOPE_LENGTH + id.max_length());
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    match id {
        RequestId::Number(number) => out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes()),
        RequestId::String(text) => out.extend_from_slice(quoted(text).as_bytes()),
    }
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(result);
    out.extend_from_slice(tail);
    out.push(b'}');
    out.into()
}

impl RequestId {
    /// At least the length of most ids as JSON.
    fn max_length(&self) -> usize {
        match self {
            Self::Number(_) => 20,
            Self::String(text) => text.len() + 2,
        }
    }

    fn read(text: &str) -> Result<Self, MessageError> {
        if text.starts_with('"') {
            if text.len() > MAX_ID_BYTES {
                return Err(MessageError::Shape("the id is too long"));
            }
            let text = serde_json::from_str(text)
                .map_err(|_| MessageError::Shape("the id is not a valid string"))?;
            return Ok(Self::String(text));
        }
        text.parse()
            .map(Self::Number)
            .map_err(|_| MessageError::Shape("the id must be a string or an integer"))
    }

    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::String(text) => quoted(text),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::String(text) => f.write_str(text),
        }
    }
}

pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("strings serialise")
}

/// Extracts the request id from `notifications/cancelled`.
pub(crate) fn cancelled_request_id(params: &RawJson) -> Option<RequestId> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: serde_json::Value,
    }
    match params.parse::<Cancelled>().ok()?.request_id {
        serde_json::Value::String(text) => Some(RequestId::String(text.into())),
        number => number.as_i64().map(RequestId::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Message>, MessageError> {
        Message::read(&Bytes::copy_from_slice(text.as_bytes()), ScanLimits::default())
    }

    #[test]
    fn finds_the_request_of_a_rejected_response() {
        let id_of = |text: &str| Message::rejected_response_id(text.as_bytes());
        assert_eq!(id_of(r#"{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}"#), Some(7));
        assert_eq!(id_of(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#), Some(7));
        assert_eq!(id_of(r#"{"jsonrpc":"2.0","id":7}"#), Some(7));
        for unrelated in [
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"n":NaN}}"#,
            r#"{"jsonrpc":"2.0","id":7,"params":{"n":NaN},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":"7","result":{"n":NaN}}"#,
            r#"{"jsonrpc":"2.0","result":{"n":NaN},"id":7}"#,
            "npm WARN",
            "",
        ] {
            assert_eq!(id_of(unrelated), None, "{unrelated}");
        }
    }

    /// Asserts that a message serialises to the bytes it was parsed from.
    fn check(text: &str) {
        let messages = read(text).unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!(std::str::from_utf8(&messages[0].to_bytes()).unwrap(), text);
    }

    #[test]
    fn messages_round_trip_unchanged() {
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"z":1.0,"a":12345678901234567890123,"n":-0,"e":1E2}}"#,
        );
        check(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        check(r#"{"jsonrpc":"2.0","id":"a\"b","result":{"unknown":[1,{"deep":null}]}}"#);
        check(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no","data":{"k":1.10}}}"#);
    }

    /// A result keeps its buffer in memory, so it must be most of it.
    #[test]
    fn small_result_of_a_large_message_is_copied() {
        let is_shared = |text: String| {
            let bytes = Bytes::from(text);
            let messages = Message::read(&bytes, ScanLimits::default()).unwrap();
            let Message::Response { outcome: Ok(result), .. } = &messages[0] else { panic!("a response") };
            bytes.as_ptr_range().contains(&result.bytes().as_ptr())
        };
        let response = |size: usize, junk: usize| {
            let (result, junk) = ("x".repeat(size), "y".repeat(junk));
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"{result}"}},"other":"{junk}"}}"#)
        };
        assert!(is_shared(response(10, 100)) && is_shared(response(100_000, 50_000)));
        assert!(!is_shared(response(100_000, 150_000)));
        let batch = format!(r#"[{},{{"jsonrpc":"2.0","method":"{}"}}]"#, response(10, 0), "n".repeat(50_000));
        assert!(!is_shared(batch));
    }

    #[test]
    fn parses_batches() {
        let messages =
            read(r#"[{"jsonrpc":"2.0","id":1,"result":{}}, {"jsonrpc":"2.0","method":"n"}]"#).unwrap();
        assert_eq!(messages.len(), 2);
    }

    /// From a server it may be a notification; a client's request with it could not be answered.
    #[test]
    fn null_id_is_accepted_only_from_servers() {
        let null_id = Bytes::from_static(br#"{"jsonrpc":"2.0","id":null,"method":"notifications/x"}"#);
        let all = |message: Result<Vec<Message>, MessageError>| message.map(|all| all.len());
        assert_eq!(all(Message::read(&null_id, ScanLimits::default())), Ok(1));
        let refused = Message::read_from_client(&null_id, ScanLimits::default()).unwrap_err();
        assert_eq!((refused.code(), refused.request_id(&null_id)), (-32600, None));
        let none = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        assert_eq!(all(Message::read_from_client(&none, ScanLimits::default())), Ok(1));
        let other = br#"{"jsonrpc":"1.0","id":"a","method":5}"#;
        assert_eq!(refused.request_id(other), Some(RequestId::String("a".into())));
        assert_eq!(refused.request_id(b"[{}]"), None);
    }

    #[test]
    fn rejects_invalid_messages() {
        for text in [
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            "3",
            "[]",
            "[3]",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
