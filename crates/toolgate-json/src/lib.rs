//! Raw JSON, kept as the bytes received: the spelling of numbers and the order of keys survive.
//!
//! Invariant: the content of a [`RawJson`] was [scanned](mod@scan).

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use bytestring::ByteString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

mod long_strings;
mod members;
pub mod scan;
mod string_ends;

use long_strings::LongString;
pub use long_strings::{LongStrings, StringEscapes};
use members::TYPICAL_MEMBERS;
pub use members::{JsonMembers, object_members, unquote};
use scan::{ScanError, ScanLimits, scan_str};
pub use string_ends::StringEnds;

/// Longest text that is searched byte by byte.
const SHORT_TEXT: usize = 48;

/// Key of an object member.
pub type MemberName = ByteString;

/// JSON that was scanned. Clones share the bytes.
#[derive(Clone)]
pub struct RawJson {
    text: ByteString,
    /// Of long values only, so that most of them stay small.
    extra: Option<Arc<JsonExtra>>,
}

/// Facts about a text besides its bytes.
#[derive(Debug, Default)]
struct JsonExtra {
    /// The long strings of the bytes that the text is a slice of.
    long_strings: Arc<[LongString]>,
    appended: Option<AppendedMember>,
}

/// A member at the end of an object that is not in its text.
#[derive(Debug)]
struct AppendedMember {
    /// The member with the closing brace, in place of the closing brace of the text.
    tail: ByteString,
    /// Everything in one piece, once it was asked for.
    whole: OnceLock<ByteString>,
}

impl RawJson {
    /// Scans the bytes.
    pub fn new(bytes: Bytes, limits: ScanLimits) -> Result<Self, ScanError> {
        if bytes.len() > limits.size {
            return Err(ScanError::TooLarge(limits.size));
        }
        let text = ByteString::try_from(bytes).map_err(|error| ScanError::Utf8(error.valid_up_to()))?;
        let long_strings = scan_str(&text, limits)?;
        let extra = || Arc::new(JsonExtra { long_strings: long_strings.as_slice().into(), appended: None });
        let extra = (!long_strings.is_empty()).then(extra);
        Ok(Self { text, extra })
    }

    fn from_text(text: ByteString) -> Self {
        Self { text, extra: None }
    }

    /// Serializes one of our own values.
    pub fn from_value(value: &impl Serialize) -> Self {
        Self::from_text(serde_json::to_string(value).expect("our own values have a JSON form").into())
    }

    /// Wraps a string assembled from parts that are JSON. Not scanned again.
    pub fn from_trusted(text: String) -> Self {
        debug_assert!(serde_json::from_str::<&RawValue>(&text).is_ok(), "parts of JSON make JSON");
        Self::from_text(text.into())
    }

    pub fn as_str(&self) -> &str {
        self.whole()
    }

    pub fn bytes(&self) -> &Bytes {
        self.whole().as_bytes()
    }

    fn appended(&self) -> Option<&AppendedMember> {
        self.extra.as_ref()?.appended.as_ref()
    }

    /// The long strings of the text without an appended member.
    fn scanned_strings(&self) -> LongStrings<'_> {
        LongStrings(self.extra.as_ref().map_or(&[], |extra| &extra.long_strings))
    }

    /// The text in one piece. Copied once if a member was appended.
    fn whole(&self) -> &ByteString {
        let Some(appended) = self.appended() else { return &self.text };
        appended.whole.get_or_init(|| [self.before_tail(), &appended.tail].concat().into())
    }

    /// The text before an appended member: without its closing brace.
    fn before_tail(&self) -> &str {
        match self.appended() {
            Some(_) => self.text.trim_end().strip_suffix('}').unwrap_or(&self.text),
            None => &self.text,
        }
    }

    /// Returns the bytes in consecutive parts; nothing is copied.
    pub fn parts(&self) -> (Bytes, Option<Bytes>) {
        let text = self.text.slice_ref(self.before_tail()).into_bytes();
        (text, self.appended().map(|appended| appended.tail.as_bytes().clone()))
    }

    /// Adds a member at the end of an object, without a copy of the object. `None` if this is not an object, or if a
    /// member was added before. The object must not have this member.
    pub fn with_member(&self, name: &str, value: &str) -> Option<Self> {
        let inner = self.text.trim_end().strip_suffix('}').filter(|_| self.appended().is_none())?;
        let is_empty = inner.trim_start().strip_prefix('{')?.trim_start().is_empty();
        let mut tail = String::with_capacity(name.len() + value.len() + 8);
        tail.push_str(if is_empty { "" } else { "," });
        quote(name, &mut tail);
        tail.push(':');
        tail.push_str(value);
        tail.push('}');
        let long_strings =
            self.extra.as_ref().map(|extra| Arc::clone(&extra.long_strings)).unwrap_or_default();
        let appended = Some(AppendedMember { tail: tail.into(), whole: OnceLock::new() });
        Some(Self { text: self.text.clone(), extra: Some(Arc::new(JsonExtra { long_strings, appended })) })
    }

    /// The long strings of the text in one piece.
    pub fn long_strings(&self) -> LongStrings<'_> {
        if self.appended().is_some() { LongStrings::default() } else { self.scanned_strings() }
    }

    /// Returns true if a part occurs in the text outside of strings of 1 KiB and more: a quick test for the name of a
    /// member or for a short value.
    pub fn contains_short(&self, part: &str) -> bool {
        self.scanned_strings().rest_contains(self.before_tail(), part)
            || self.appended().is_some_and(|appended| appended.tail.contains(part))
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }

    /// Like [`RawJson::parse`], but the value may borrow from this JSON.
    pub fn parse_borrowed<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }

    /// Returns the members of an object in their order; empty if this is not an object.
    pub fn members(&self) -> Vec<(Cow<'_, str>, &str)> {
        let mut members = Vec::with_capacity(TYPICAL_MEMBERS);
        members.extend(self.iter_members());
        members
    }

    /// Iterates over the members of an object in their order.
    pub fn iter_members(&self) -> JsonMembers<'_, '_> {
        JsonMembers::new(self.as_str(), self.long_strings())
    }

    /// Returns the members as values that share these bytes: nothing is copied.
    pub fn shared_members(&self) -> Vec<(MemberName, Self)> {
        let name = |name: Cow<'_, str>| match name {
            Cow::Borrowed(name) => self.whole().slice_ref(name),
            Cow::Owned(name) => name.into(),
        };
        let mut members = Vec::with_capacity(TYPICAL_MEMBERS);
        members.extend(self.iter_members().map(|(member, value)| (name(member), self.slice(value))));
        members
    }

    /// Returns a copy that does not keep the bytes in memory that this is a part of.
    pub fn to_unshared(&self) -> Self {
        Self::from_text(self.as_str().into())
    }

    /// Returns a part of this JSON without copying it. `part` must be a slice of this string.
    pub fn slice(&self, part: &str) -> Self {
        // A short part has no long strings.
        let is_long = part.len() >= long_strings::MIN_LENGTH && self.appended().is_none();
        let extra = self.extra.clone().filter(|_| is_long);
        Self { text: self.whole().slice_ref(part), extra }
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}

/// Appends a string as a JSON string, escaped exactly as `serde_json` does.
pub fn quote(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    escape(text, out);
    out.push('"');
}

/// Like [`quote`], but without the quotes: for a string that is written in parts.
pub fn escape(text: &str, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    // The setup of a search in blocks takes longer than a look at a few bytes.
    let is_plain = |byte: &u8| !matches!(byte, 0..0x20 | b'"' | b'\\');
    if bytes.len() <= SHORT_TEXT && bytes.iter().all(is_plain) {
        return out.push_str(text);
    }
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
        RawJson::from_text(ByteString::from_static("{}")).into()
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

#[cfg(test)]
fn scanned(text: &str) -> RawJson {
    RawJson::new(Bytes::copy_from_slice(text.as_bytes()), ScanLimits::default()).unwrap()
}

/// Members and slices are the same whether the long strings are known or not.
#[test]
fn long_strings_are_skipped() {
    let long = |escape: &str| format!("{}{escape}{}", "}]\\\\".repeat(400), "x".repeat(500));
    let [plain, escaped, other] = ["", "\\\"", "\\u0061"].map(long);
    let text = format!(
        r#" {{"a":"{plain}", "b" : [{{"c":"{escaped}"}}, "short"],"{plain}":1,"d":"{other}","resultType":"x"}} "#
    );
    let json = scanned(&text);
    assert_eq!(json.members(), object_members(&text));
    assert_eq!(json.scanned_strings().0.len(), 3, "a key is not listed");
    let inner = json.slice(json.members()[1].1);
    assert_eq!(
        inner.slice(&inner.as_str()[1..inner.as_str().len() - 10]).members(),
        object_members(&inner.as_str()[1..])
    );
    let escapes = |json: &RawJson, part: &str| {
        let at = json.as_str().find(part).unwrap() - 1;
        let (end, escapes) = json.long_strings().find(json.as_str(), at).unwrap();
        assert_eq!(&json.as_str()[at + 1..end - 1], part);
        escapes
    };
    use StringEscapes::{Canonical, Other};
    assert_eq!(
        [escapes(&json, &plain), escapes(&inner, &escaped), escapes(&json, &other)],
        [Canonical, Canonical, Other]
    );
    assert!(
        json.contains_short("resultType") && json.contains_short("short") && inner.contains_short("\"c\"")
    );
    assert!(!inner.contains_short("xxx") && !inner.contains_short("resultType"));
    // A slice that starts or ends within a long string.
    for range in [10..2_500, 10..100, 1_000..4_000] {
        let part = json.slice(&json.as_str()[range]);
        assert_eq!(part.members(), object_members(part.as_str()));
        let _ = part.contains_short("x");
    }
}

#[test]
fn appended_member_is_part_of_the_object() {
    let long = "x".repeat(2_000);
    for (text, expected) in [
        (" {} ".to_owned(), r#" {"m":[1]}"#.to_owned()),
        ("{ }".to_owned(), r#"{ "m":[1]}"#.to_owned()),
        (r#"{"a":"}"}"#.to_owned(), r#"{"a":"}","m":[1]}"#.to_owned()),
        (format!(r#"{{"a":"{long}" }}"#), format!(r#"{{"a":"{long}" ,"m":[1]}}"#)),
    ] {
        let json = scanned(&text);
        let more = json.with_member("m", "[1]").unwrap();
        let (start, tail) = more.parts();
        assert_eq!([start.as_ref(), tail.unwrap().as_ref()].concat(), expected.as_bytes());
        assert!(json.bytes().as_ptr_range().contains(&start.as_ptr()), "it is not copied");
        assert!(more.contains_short("\"m\"") && !more.contains_short("xxx") && !json.contains_short("\"m\""));
        assert_eq!(more.as_str(), expected);
        assert_eq!(more.members(), object_members(&expected));
        assert_eq!(more.slice(more.members().last().unwrap().1).as_str(), "[1]");
        assert!(more == scanned(&expected) && more != json && more.with_member("n", "2").is_none());
        assert_eq!(json.parts(), (json.bytes().clone(), None));
    }
    for other in ["[]", "1", "\"{}\""] {
        assert!(scanned(other).with_member("m", "1").is_none(), "{other}");
    }
}
