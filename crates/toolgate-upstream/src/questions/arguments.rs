//! The arguments of a call, as a person sees them before approving it.
//!
//! Arguments are shown on one line, so that nothing can be moved out of sight, with hidden characters escaped. If they
//! are long, long strings are shortened. Invariant: every key and every value is shown, or its length and hash are.
//! Arguments that cannot be shown like that cannot be approved.

use serde::Serialize;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use toolgate_json::{RawJson, quote, unquote};
use toolgate_redact::sanitize::escape_json;

/// Bytes of arguments that a person is shown.
const MAX_SHOWN_BYTES: usize = 16 << 10;
/// Bytes of a string that are shown if the arguments are longer.
const MAX_STRING_BYTES: usize = 256;
/// Masked parts that are listed.
const MAX_MASKED_PARTS: usize = 100;

/// Arguments for a person to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownArguments {
    /// JSON on one line. Long strings are shortened if the whole is longer than 16 KiB.
    pub text: String,
    /// The arguments without shortened strings; `None` if `text` is complete.
    pub full: Option<String>,
    /// Length of the arguments as they were sent.
    pub bytes: usize,
    /// SHA-256 of the arguments as they were sent.
    pub sha256: String,
}

/// The arguments have too many keys or values to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "its arguments cannot be shown: {0} bytes, more than {kib} KiB even with long strings shortened",
    kib = MAX_SHOWN_BYTES >> 10
)]
pub struct NotShowable(pub usize);

impl ShownArguments {
    /// Renders arguments.
    ///
    /// # Errors
    /// If they are too large to be shown.
    pub fn new(arguments: &RawJson) -> Result<Self, NotShowable> {
        let (bytes, sha256) = (arguments.bytes().len(), digest(arguments.bytes()));
        let full = render(arguments.as_str(), usize::MAX);
        if full.len() <= MAX_SHOWN_BYTES {
            return Ok(Self { text: full, full: None, bytes, sha256 });
        }
        let text = render(arguments.as_str(), MAX_STRING_BYTES);
        if text.len() > MAX_SHOWN_BYTES {
            return Err(NotShowable(bytes));
        }
        Ok(Self { text, full: Some(full), bytes, sha256 })
    }
}

/// Renders JSON on one line, with strings of at most `max` bytes. Keys are never shortened.
fn render(text: &str, max: usize) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len().min(MAX_SHOWN_BYTES)), text);
    while let Some(c) = rest.chars().next() {
        let literal = if c == '"' { string_length(rest) } else { c.len_utf8() };
        let (part, after) = rest.split_at(literal);
        let is_key = || after.trim_start().starts_with(':');
        match unquote(part) {
            Some(string) if string.len() > max && !is_key() => {
                let head = &string[..string.floor_char_boundary(max)];
                let note = format!("{head}… ({} bytes, sha256 {})", string.len(), digest(string.as_bytes()));
                quote(&note, &mut out);
            }
            Some(_) => out.push_str(part),
            None if c.is_whitespace() => {}
            None => out.push_str(part),
        }
        rest = after;
    }
    escape_json(&out).into_owned()
}

/// Length of the string literal at the start, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value that is masked. Its hash is not given: it could be guessed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MaskedPart {
    /// JSON pointer to the value.
    pub path: String,
    /// Length of its JSON.
    pub bytes: usize,
}

/// Lists the values that differ between arguments and the same arguments with secrets masked.
pub fn masked_parts(shown: &str, masked: &str) -> Vec<MaskedPart> {
    if shown == masked {
        return Vec::new();
    }
    let mut parts = Vec::new();
    if let (Ok(before), Ok(after)) = (serde_json::from_str(shown), serde_json::from_str(masked)) {
        compare("", &before, &after, &mut parts);
    }
    // A mask that does not fit the structure, or too many of them: all of it counts as masked.
    if parts.is_empty() || parts.len() > MAX_MASKED_PARTS {
        parts = vec![MaskedPart { path: String::new(), bytes: shown.len() }];
    }
    parts
}

fn compare(path: &str, before: &Json, after: &Json, parts: &mut Vec<MaskedPart>) {
    match (before, after) {
        (Json::Array(one), Json::Array(two)) if one.len() == two.len() => {
            for (at, (one, two)) in one.iter().zip(two).enumerate() {
                compare(&format!("{path}/{at}"), one, two, parts);
            }
        }
        (Json::Object(one), Json::Object(two)) if one.len() == two.len() => {
            for ((original, one), (name, two)) in one.iter().zip(two) {
                let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                if original == name {
                    compare(&path, one, two, parts);
                } else {
                    parts.push(MaskedPart { path, bytes: original.len() + one.to_string().len() });
                }
            }
        }
        _ if before == after => {}
        _ => parts.push(MaskedPart { path: path.to_owned(), bytes: before.to_string().len() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(text: &str) -> Result<ShownArguments, NotShowable> {
        ShownArguments::new(&RawJson::from_trusted(text.to_owned()))
    }

    #[test]
    fn short_arguments_are_shown_as_they_are_on_one_line() {
        let text = "{ \"to\" :\n\n \"a b\\n\\\"c\", \"n\": 1e7,\t\"x\u{202e}y\": [\"\u{200b}\"] }";
        let arguments = shown(text).unwrap();
        assert_eq!(arguments.text, r#"{"to":"a b\n\"c","n":1e7,"x\u202ey":["\u200b"]}"#);
        assert_eq!((arguments.full, arguments.bytes), (None, text.len()));
    }

    #[test]
    fn padding_hides_no_key() {
        let padding = "x".repeat(1 << 20);
        let text = json!({ "a": padding, "to": "evil", "list": [padding, 7] }).to_string();
        let arguments = shown(&text).unwrap();
        let note = format!("… (1048576 bytes, sha256 {})", digest(padding.as_bytes()));
        assert!(
            arguments.text.contains(r#""to":"evil""#) && arguments.text.ends_with(",7]}"),
            "{}",
            arguments.text
        );
        assert_eq!(arguments.text.matches(&note).count(), 2, "{}", arguments.text);
        assert_eq!(arguments.full.as_deref(), Some(text.as_str()));
        assert_eq!(arguments.sha256, digest(text.as_bytes()));
        // White space does not count.
        assert_eq!(shown(&format!("{{\"a\":1{}}}", " ".repeat(1 << 20))).unwrap().text, r#"{"a":1}"#);
        // Many keys, or long ones, cannot be shown.
        let keys: serde_json::Map<_, _> = (0..5_000).map(|n| (n.to_string(), json!(n))).collect();
        assert!(shown(&json!(keys).to_string()).is_err());
        assert!(shown(&json!({ padding: 1 }).to_string()).is_err());
    }

    #[test]
    fn masked_values_are_listed() {
        let part = |path: &str, bytes| MaskedPart { path: path.to_owned(), bytes };
        let text = r#"{"to":"x","key":"secret","all":[1,{"a/b":"secret"}]}"#;
        assert_eq!(masked_parts(text, text), []);
        let masked = text.replace("secret", "***");
        assert_eq!(masked_parts(text, &masked), [part("/key", 8), part("/all/1/a~1b", 8)]);
        assert_eq!(masked_parts(text, "***"), [part("", text.len())]);
        assert_eq!(masked_parts(text, &text.replace("\"to\"", "\"***\"")), [part("/***", 5)], "a masked key");
    }
}
