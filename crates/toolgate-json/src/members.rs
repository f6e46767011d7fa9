//! Finds the members of a JSON object without parsing their values.
//!
//! The input was scanned or is our own, so nothing is validated again: strings are skipped and brackets are counted.
//! Invariant: input that is not JSON yields wrong members or none, but never panics.

use std::borrow::Cow;

use memchr::memchr;

use crate::long_strings::LongStrings;
use crate::string_ends::StringEnds;

/// Number of members of most objects in messages.
pub(crate) const TYPICAL_MEMBERS: usize = 8;
/// Length from which a string counts as long.
const LONG_STRING: usize = 128;

/// Returns the members of an object in their order, each value as written; empty if the text is not an object.
pub fn object_members(text: &str) -> Vec<(Cow<'_, str>, &str)> {
    let mut members = Vec::with_capacity(TYPICAL_MEMBERS);
    members.extend(JsonMembers::new(text, LongStrings::default()));
    members
}

/// The members of an object in their order, each value as written.
pub struct JsonMembers<'a, 's> {
    parser: MemberParser<'a, 's>,
    /// True if another member follows.
    has_next: bool,
}

impl<'a, 's> JsonMembers<'a, 's> {
    /// Iterates over the members of a text whose long strings are known.
    pub(crate) fn new(text: &'a str, long_strings: LongStrings<'s>) -> Self {
        let mut parser = MemberParser { text, at: 0, ends: StringEnds::new(text.as_bytes()), long_strings };
        parser.skip_space();
        let has_next = parser.eat(b'{');
        Self { parser, has_next }
    }

    fn parse_member(&mut self) -> Option<(Cow<'a, str>, &'a str)> {
        let parser = &mut self.parser;
        parser.skip_space();
        let name = parser.parse_key()?;
        parser.skip_space();
        if !parser.eat(b':') {
            return None;
        }
        parser.skip_space();
        let value = parser.take_value()?;
        parser.skip_space();
        self.has_next = parser.eat(b',');
        Some((name, value))
    }
}

impl<'a> Iterator for JsonMembers<'a, '_> {
    type Item = (Cow<'a, str>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::take(&mut self.has_next) {
            return None;
        }
        self.parse_member()
    }
}

/// Decodes a JSON string; borrows if it contains no escapes. `None` if the text is not a JSON string.
pub fn unquote(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.as_bytes().contains(&b'\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

struct MemberParser<'a, 's> {
    text: &'a str,
    at: usize,
    ends: StringEnds<'a>,
    long_strings: LongStrings<'s>,
}

impl<'a> MemberParser<'a, '_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn parse_key(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return None;
        }
        self.skip_string();
        unquote(self.text.get(start..self.at)?)
    }

    fn take_value(&mut self) -> Option<&'a str> {
        let start = self.at;
        match self.peek()? {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_nested(),
            _ => self.skip_scalar(),
        }
        self.text.get(start..self.at).filter(|value| !value.is_empty())
    }

    /// Moves from an opening quote past the closing one.
    fn skip_string(&mut self) {
        if let Some((end, _)) = self.long_strings.find(self.text, self.at) {
            return self.at = end;
        }
        let bytes = self.text.as_bytes();
        let mut at = self.at + 1;
        // Most strings are short; the setup cost of `memchr` pays off only in long ones.
        while at < self.at + LONG_STRING {
            at = self.ends.find_from(at);
            match bytes.get(at) {
                Some(b'"') => return self.at = at + 1,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => return self.at = bytes.len(),
            }
        }
        // From here on, search for quotes alone. A quote ends the string if an even number of backslashes precedes it.
        while let Some(found) = memchr(b'"', bytes.get(at..).unwrap_or_default()) {
            let before = &bytes[at..at + found];
            at += found + 1;
            if before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0 {
                return self.at = at;
            }
        }
        self.at = bytes.len();
    }

    /// Moves from an opening bracket past the closing one.
    fn skip_nested(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 1 => return self.at += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    fn skip_scalar(&mut self) {
        while let Some(byte) = self.peek()
            && !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')
        {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    /// Reference implementation by a parser.
    fn members_by_parser(text: &str) -> Vec<(String, String)> {
        let Ok(Value::Object(all)) = serde_json::from_str(text) else { return Vec::new() };
        let values: std::collections::HashMap<String, &RawValue> = serde_json::from_str(text).unwrap();
        all.keys().map(|name| (name.clone(), values[name].get().to_owned())).collect()
    }

    fn members_by_scan(text: &str) -> Vec<(String, String)> {
        object_members(text).into_iter().map(|(name, value)| (name.into_owned(), value.to_owned())).collect()
    }

    #[test]
    fn keeps_values_as_written() {
        let text = "\n{ \"a\" :1.0,\"b\\\"}\": [ {\"x\":\"]\"} , 2 ] ,\"\":\"\\\\\",\"d\":{},\"e\" : null\t,\"f\":\"ü\\n\" } ";
        assert_eq!(
            members_by_scan(text),
            [
                ("a", "1.0"),
                ("b\"}", "[ {\"x\":\"]\"} , 2 ]"),
                ("", "\"\\\\\""),
                ("d", "{}"),
                ("e", "null"),
                ("f", "\"ü\\n\"")
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        for none in ["", "[]", "{}", " { } ", "\"{\"", "7", "null"] {
            assert!(object_members(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn unquotes_strings() {
        assert_eq!(unquote(r#""a b""#), Some(Cow::Borrowed("a b")));
        assert_eq!(unquote(r#""a\n\u00fc""#).as_deref(), Some("a\nü"));
        for none in ["7", "\"", "", "{}", r#""\x""#] {
            assert_eq!(unquote(none), None, "{none}");
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a\"\\\\{}\\[\\],: \n\u{0}ü]{0,8}".prop_map(Value::from),
            "[a\"\\\\ \n]{100,300}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map("[a\"\\\\{}ü]{0,4}", inner, 0..4)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_parser(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            prop_assert_eq!(members_by_scan(&text), members_by_parser(&text));
        }

        #[test]
        fn never_panics(text in "[a\"\\\\{}\\[\\],: ü7]{0,24}|\"[a\\\\ü]{120,140}[a\"\\\\]{0,9}") {
            let _ = object_members(&text);
        }
    }
}
