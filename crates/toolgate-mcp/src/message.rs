//! JSON-RPC messages: the envelope is read, what is in it stays raw.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use toolgate_types::json::unquoted;

use crate::Raw;
use crate::scan::{Limits, ScanError};

/// A JSON-RPC message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// Who asks.
        id: Id,
        /// What is asked for.
        method: Box<str>,
        /// With what.
        params: Option<Raw>,
    },
    /// Wants none.
    Notification {
        /// What happened.
        method: Box<str>,
        /// With what.
        params: Option<Raw>,
    },
    /// An answer.
    Response {
        /// To whom.
        id: Id,
        /// The result, or the error.
        outcome: Result<Raw, RpcError>,
    },
}

/// A result of so many bytes is copied sooner than sent on its own.
const SMALL: usize = 16 << 10;
/// The longest id that is carried around.
const LONGEST_ID: usize = 1024;

/// The id of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(Box<str>),
}

/// The error of an answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct RpcError {
    /// What kind of error.
    pub code: i64,
    /// In words.
    pub message: String,
    /// More about it.
    pub data: Option<Raw>,
}

impl RpcError {
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are wrong.
    pub const INVALID_PARAMS: i64 = -32602;

    /// The client did not declare what the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;

    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// They did not pass the scan.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// They are JSON, but no JSON-RPC.
    #[error("not a JSON-RPC message: {0}")]
    Shape(&'static str),
}

impl MessageError {
    /// What JSON-RPC calls it.
    pub(crate) fn code(&self) -> i64 {
        match self {
            Self::Scan(_) => -32700,
            Self::Shape(_) => -32600,
        }
    }

    /// The id of what is JSON but no message, so that whoever sent it knows which one is meant.
    pub(crate) fn whose(&self, bytes: &[u8]) -> Option<Id> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        // What did not pass the scan may have two of them.
        if matches!(self, Self::Scan(_)) {
            return None;
        }
        Id::read(serde_json::from_slice::<Named<'_>>(bytes).ok()?.id.get()).ok()
    }
}

/// The members of a message, as they are written.
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
    fn of(message: &'a Raw) -> Self {
        let mut envelope = Self::default();
        for (name, value) in message.members() {
            let member = match &*name {
                "jsonrpc" => &mut envelope.jsonrpc,
                "id" => &mut envelope.id,
                "method" => &mut envelope.method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                _ => continue,
            };
            // An id that is `null` is there all the same.
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

/// What an id that is `null` means.
#[derive(Clone, Copy)]
enum Null {
    /// As if there were none: some servers write it into their notifications.
    None,
    /// Nothing. Whoever asks with it could not be answered.
    Wrong,
}

/// What can be seen of a message, up to where it is wrong.
#[derive(Default)]
struct Glance {
    id: Option<i64>,
    has_method: bool,
    has_outcome: bool,
}

impl<'de> Visitor<'de> for &mut Glance {
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
    /// Reads one message, or a batch of the revision that had them.
    pub fn read(bytes: &Bytes, limits: Limits) -> Result<Vec<Self>, MessageError> {
        Self::read_all(bytes, limits, Null::None)
    }

    /// Reads what a client sends: a request with an id that is `null` is none, and no notification either.
    pub(crate) fn read_of_client(bytes: &Bytes, limits: Limits) -> Result<Vec<Self>, MessageError> {
        Self::read_all(bytes, limits, Null::Wrong)
    }

    fn read_all(bytes: &Bytes, limits: Limits, null: Null) -> Result<Vec<Self>, MessageError> {
        let whole = Raw::new(bytes.clone(), limits)?;
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            let parts: Vec<&RawValue> = whole.look().map_err(|_| MessageError::Shape("a batch"))?;
            if parts.is_empty() {
                return Err(MessageError::Shape("a batch of nothing"));
            }
            return parts.into_iter().map(|part| Self::read_one(&whole.slice(part.get()), null)).collect();
        }
        Ok(vec![Self::read_one(&whole, null)?])
    }

    /// The request that a message answers which was refused, so that who asked need not wait for
    /// another one. A number is all that is taken from it. Where it is no JSON from some place on, such as
    /// behind a `NaN`, what stands before must say that it is an answer.
    pub(crate) fn refused_answer(bytes: &[u8]) -> Option<i64> {
        let mut glance = Glance::default();
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let whole = serde::Deserializer::deserialize_map(&mut json, &mut glance).is_ok();
        glance.id.filter(|_| !glance.has_method && (whole || glance.has_outcome))
    }

    fn read_one(message: &Raw, null: Null) -> Result<Self, MessageError> {
        let envelope = Envelope::of(message);
        let other_types = || MessageError::Shape("its members have other types");
        if envelope.jsonrpc.and_then(unquoted).as_deref() != Some("2.0") {
            return Err(MessageError::Shape("`jsonrpc` is not `2.0`"));
        }
        let method = envelope.method.map(|method| unquoted(method).ok_or_else(other_types)).transpose()?;
        let raw = |part: &str| message.slice(part);
        let named = envelope.id.filter(|id| *id != "null");
        if matches!(null, Null::Wrong) && method.is_some() && named.is_none() && envelope.id.is_some() {
            return Err(MessageError::Shape("its id is null"));
        }
        let id = named.map(Id::read).transpose()?;
        let params = envelope.params.map(raw);
        match (method, id, envelope.result, envelope.error) {
            (Some(method), Some(id), None, None) => Ok(Self::Request { id, method: method.into(), params }),
            (Some(method), None, None, None) => Ok(Self::Notification { method: method.into(), params }),
            (None, Some(id), Some(result), None) => Ok(Self::Response { id, outcome: Ok(raw(result)) }),
            (None, Some(id), None, Some(error)) => {
                let error: ErrorEnvelope<'_> = serde_json::from_str(error).map_err(|_| other_types())?;
                let data = error.data.map(|data| raw(data.get()));
                let error = RpcError { code: error.code, message: error.message.into(), data };
                Ok(Self::Response { id, outcome: Err(error) })
            }
            (None, None, None, Some(_)) => Err(MessageError::Shape("an error that answers nothing")),
            _ => Err(MessageError::Shape("it is neither request, notification nor answer")),
        }
    }

    /// The message in parts that follow each other: what a large result holds is not copied.
    pub fn to_parts(&self) -> Vec<Bytes> {
        match self {
            Self::Response { id, outcome: Ok(result) } if result.bytes().len() > SMALL => vec![
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.to_json()).into(),
                result.bytes().clone(),
                Bytes::from_static(b"}"),
            ],
            other => vec![other.to_bytes()],
        }
    }

    /// The message as bytes, without a line end.
    pub fn to_bytes(&self) -> Bytes {
        let body = match self {
            Self::Request { params, .. } | Self::Notification { params, .. } => params.as_ref(),
            Self::Response { outcome, .. } => outcome.as_ref().ok(),
        };
        let mut out = String::with_capacity(body.map_or(0, |body| body.get().len()) + 128);
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
                    member(&mut out, "params", params.get());
                }
            }
            Self::Notification { method, params } => {
                member(&mut out, "method", &quoted(method));
                if let Some(params) = params {
                    member(&mut out, "params", params.get());
                }
            }
            Self::Response { id, outcome: Ok(result) } => {
                member(&mut out, "id", &id.to_json());
                member(&mut out, "result", result.get());
            }
            Self::Response { id, outcome: Err(error) } => {
                member(&mut out, "id", &id.to_json());
                let mut body = format!("{{\"code\":{},\"message\":{}", error.code, quoted(&error.message));
                if let Some(data) = &error.data {
                    body.push_str(",\"data\":");
                    body.push_str(data.get());
                }
                body.push('}');
                member(&mut out, "error", &body);
            }
        }
        out.push('}');
        out.into()
    }
}

impl Id {
    fn read(text: &str) -> Result<Self, MessageError> {
        if text.starts_with('"') {
            if text.len() > LONGEST_ID {
                return Err(MessageError::Shape("its id is too long"));
            }
            let text = serde_json::from_str(text).map_err(|_| MessageError::Shape("its id is no text"))?;
            return Ok(Self::Text(text));
        }
        text.parse()
            .map(Self::Number)
            .map_err(|_| MessageError::Shape("its id is neither a text nor a whole number"))
    }

    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => quoted(text),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text has a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Message>, MessageError> {
        Message::read(&Bytes::copy_from_slice(text.as_bytes()), Limits::default())
    }

    #[test]
    fn whom_a_refused_answer_is_for() {
        let whom = |text: &str| Message::refused_answer(text.as_bytes());
        assert_eq!(whom(r#"{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}"#), Some(7));
        assert_eq!(whom(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#), Some(7));
        assert_eq!(whom(r#"{"jsonrpc":"2.0","id":7}"#), Some(7));
        for nobody in [
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"n":NaN}}"#,
            r#"{"jsonrpc":"2.0","id":7,"params":{"n":NaN},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":"7","result":{"n":NaN}}"#,
            r#"{"jsonrpc":"2.0","result":{"n":NaN},"id":7}"#,
            "npm WARN",
            "",
        ] {
            assert_eq!(whom(nobody), None, "{nobody}");
        }
    }

    /// What is in a message comes out as it went in.
    fn check(text: &str) {
        let messages = read(text).unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!(std::str::from_utf8(&messages[0].to_bytes()).unwrap(), text);
    }

    #[test]
    fn nothing_changes_on_the_way() {
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"z":1.0,"a":12345678901234567890123,"n":-0,"e":1E2}}"#,
        );
        check(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        check(r#"{"jsonrpc":"2.0","id":"a\"b","result":{"unknown":[1,{"deep":null}]}}"#);
        check(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no","data":{"k":1.10}}}"#);
    }

    #[test]
    fn batches_are_read() {
        let messages =
            read(r#"[{"jsonrpc":"2.0","id":1,"result":{}}, {"jsonrpc":"2.0","method":"n"}]"#).unwrap();
        assert_eq!(messages.len(), 2);
    }

    /// A server may mean a notification; a client that asks with it could not be answered.
    #[test]
    fn an_id_that_is_null() {
        let null = Bytes::from_static(br#"{"jsonrpc":"2.0","id":null,"method":"notifications/x"}"#);
        let all = |message: Result<Vec<Message>, MessageError>| message.map(|all| all.len());
        assert_eq!(all(Message::read(&null, Limits::default())), Ok(1));
        let refused = Message::read_of_client(&null, Limits::default()).unwrap_err();
        assert_eq!((refused.code(), refused.whose(&null)), (-32600, None));
        let none = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        assert_eq!(all(Message::read_of_client(&none, Limits::default())), Ok(1));
        let other = br#"{"jsonrpc":"1.0","id":"a","method":5}"#;
        assert_eq!(refused.whose(other), Some(Id::Text("a".into())));
        assert_eq!(refused.whose(b"[{}]"), None);
    }

    #[test]
    fn what_is_no_message() {
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
