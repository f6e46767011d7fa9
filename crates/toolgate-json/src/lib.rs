//! Raw JSON, kept as the bytes received: the spelling of numbers and the order of keys survive.
//!
//! Invariant: the content of a [`RawJson`] was [scanned](mod@scan).

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use bytestring::ByteString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

mod members;
pub mod scan;
mod string_ends;

pub use members::{object_members, unquote};
use scan::{ScanError, ScanLimits, scan_str};
pub use string_ends::StringEnds;

/// Key of an object member.
pub type MemberName = ByteString;

/// JSON that was scanned. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(ByteString);

impl RawJson {
    /// Scans the bytes.
    pub fn new(bytes: Bytes, limits: ScanLimits) -> Result<Self, ScanError> {
        if bytes.len() > limits.size {
            return Err(ScanError::TooLarge(limits.size));
        }
        let text = ByteString::try_from(bytes).map_err(|error| ScanError::Utf8(error.valid_up_to()))?;
        scan_str(&text, limits)?;
        Ok(Self(text))
    }

    /// Serializes one of our own values.
    pub fn from_value(value: &impl Serialize) -> Self {
        Self(serde_json::to_string(value).expect("our own values have a JSON form").into())
    }

    /// Wraps a string assembled from parts that are JSON. Not scanned again.
    pub fn from_trusted(text: String) -> Self {
        debug_assert!(serde_json::from_str::<&RawValue>(&text).is_ok(), "parts of JSON make JSON");
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Like [`RawJson::parse`], but the value may borrow from this JSON.
    pub fn parse_borrowed<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Returns the members of an object in their order; empty if this is not an object.
    pub fn members(&self) -> Vec<(Cow<'_, str>, &str)> {
        object_members(self.as_str())
    }

    /// Returns the members as values that share these bytes: nothing is copied.
    pub fn shared_members(&self) -> Vec<(MemberName, Self)> {
        let name = |name: Cow<'_, str>| match name {
            Cow::Borrowed(name) => self.0.slice_ref(name),
            Cow::Owned(name) => name.into(),
        };
        self.members().into_iter().map(|(member, value)| (name(member), self.slice(value))).collect()
    }

    /// Returns a part of this JSON without copying it. `part` must be a slice of this string.
    pub fn slice(&self, part: &str) -> Self {
        Self(self.0.slice_ref(part))
    }
}

/// Appends a string as a JSON string, escaped exactly as `serde_json` does.
pub fn quote(text: &str, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 2);
    out.push('"');
    let bytes = text.as_bytes();
    let (mut from, mut ends) = (0, StringEnds::new(bytes));
    while from < bytes.len() {
        let end = ends.find_from(from);
        out.push_str(&text[from..end]);
        let Some(&byte) = bytes.get(end) else { break };
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            byte => {
                out.push_str("\\u00");
                out.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
            }
        }
        from = end + 1;
    }
    out.push('"');
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.as_str()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Arguments of a call: the raw JSON, and the value, parsed on first use.
#[derive(Debug, Clone)]
pub struct CallArguments {
    raw: RawJson,
    value: OnceLock<Option<Value>>,
}

impl CallArguments {
    /// An empty object.
    pub fn empty() -> Self {
        RawJson(ByteString::from_static("{}")).into()
    }

    pub fn raw(&self) -> &RawJson {
        &self.raw
    }

    /// Returns the parsed value; `None` if it cannot be parsed.
    pub fn value(&self) -> Option<&Value> {
        self.value.get_or_init(|| self.raw.parse().ok()).as_ref()
    }
}

impl From<RawJson> for CallArguments {
    fn from(raw: RawJson) -> Self {
        Self { raw, value: OnceLock::new() }
    }
}

#[test]
fn quotes_like_serde_json() {
    let every: String = (0..0x250).filter_map(char::from_u32).collect();
    for length in [0, 1, 7, 8, 9, 31, 32, 33, 40, 64, 70, 100, 200] {
        for at in 0..=length {
            for part in ["", "\"", "\\", "\n", "\u{1f}", "\u{7f}", "ä", &every] {
                let text = format!("{}{part}{}", "x".repeat(at), "y".repeat(length - at));
                let mut out = String::new();
                quote(&text, &mut out);
                assert_eq!(out, serde_json::to_string(&text).unwrap());
            }
        }
    }
}
