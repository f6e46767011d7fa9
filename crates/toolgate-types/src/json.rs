//! A piece of JSON as the bytes it came in: the spelling of numbers and the order of keys survive.
//!
//! Invariant: what a [`Raw`] holds was [scanned](mod@scan).

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use bytestring::ByteString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

mod ends;
mod members;
pub mod scan;

pub use ends::Ends;
pub use members::{members_of, unquoted};
use scan::{Limits, ScanError, scan_text};

/// The name of a member.
pub type Name = ByteString;

/// JSON that was scanned, shared without being copied.
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(ByteString);

impl Raw {
    /// Scans a text.
    pub fn new(bytes: Bytes, limits: Limits) -> Result<Self, ScanError> {
        if bytes.len() > limits.size {
            return Err(ScanError::TooLarge(limits.size));
        }
        let text = ByteString::try_from(bytes).map_err(|error| ScanError::Utf8(error.valid_up_to()))?;
        scan_text(&text, limits)?;
        Ok(Self(text))
    }

    /// The JSON of a value of ours.
    pub fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_string(value).expect("our own values have a JSON form").into())
    }

    /// A text that we put together from parts that are JSON.
    pub fn trusted(text: String) -> Self {
        debug_assert!(serde_json::from_str::<&RawValue>(&text).is_ok(), "parts of JSON make JSON");
        Self(text.into())
    }

    /// The text.
    pub fn get(&self) -> &str {
        &self.0
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    /// A typed look inside.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// A typed look inside that borrows.
    pub fn look<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The members of an object, in their order; none where it is not an object.
    pub fn members(&self) -> Vec<(Cow<'_, str>, &str)> {
        members_of(self.get())
    }

    /// The same, each to be kept on its own: nothing is copied.
    pub fn parts(&self) -> Vec<(Name, Self)> {
        let name = |name: Cow<'_, str>| match name {
            Cow::Borrowed(name) => self.0.slice_ref(name),
            Cow::Owned(name) => name.into(),
        };
        self.members().into_iter().map(|(member, value)| (name(member), self.slice(value))).collect()
    }

    /// A part of this text, found by a look inside.
    pub fn slice(&self, part: &str) -> Self {
        Self(self.0.slice_ref(part))
    }
}

/// Adds a text as a JSON string, spelled as `serde_json` does.
pub fn quote(text: &str, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 2);
    out.push('"');
    let bytes = text.as_bytes();
    let (mut from, mut ends) = (0, Ends::new(bytes));
    while from < bytes.len() {
        let end = ends.from(from);
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

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.get()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Arguments of a call: the bytes they came in, and what they say, read when it is first asked for.
#[derive(Debug, Clone)]
pub struct Arguments {
    raw: Raw,
    value: OnceLock<Option<Value>>,
}

impl Arguments {
    /// None at all.
    pub fn none() -> Self {
        Raw(ByteString::from_static("{}")).into()
    }

    /// As they came.
    pub fn raw(&self) -> &Raw {
        &self.raw
    }

    /// What they say; `None` where that cannot be read.
    pub fn value(&self) -> Option<&Value> {
        self.value.get_or_init(|| self.raw.parse().ok()).as_ref()
    }
}

impl From<Raw> for Arguments {
    fn from(raw: Raw) -> Self {
        Self { raw, value: OnceLock::new() }
    }
}

#[test]
fn a_text_is_spelled_as_others_spell_it() {
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
