//! The members of an object, found in a text that is JSON.
//!
//! Whoever gets here was scanned or is our own, so nothing is checked again: strings are skipped, brackets are counted,
//! and what is between is left as it is. Invariant: a text that is no JSON gives wrong members or none, and nothing
//! worse.

use std::borrow::Cow;

use memchr::memchr;

use super::ends::Ends;

/// From here on a string is long.
const LONG: usize = 128;

/// The members of an object, in their order, each value as it is written; none where the text is no object.
pub fn members_of(text: &str) -> Vec<(Cow<'_, str>, &str)> {
    let mut walk = Walk { text, at: 0, ends: Ends::new(text.as_bytes()) };
    let mut members = Vec::with_capacity(8);
    walk.space();
    if !walk.takes(b'{') {
        return members;
    }
    loop {
        walk.space();
        let Some(name) = walk.name() else { return members };
        walk.space();
        if !walk.takes(b':') {
            return members;
        }
        walk.space();
        let Some(value) = walk.value() else { return members };
        members.push((name, value));
        walk.space();
        if !walk.takes(b',') {
            return members;
        }
    }
}

/// What a text says that is written as a JSON string, without a copy where nothing in it is escaped; `None` where it is
/// no string.
pub fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.as_bytes().contains(&b'\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

struct Walk<'a> {
    text: &'a str,
    at: usize,
    ends: Ends<'a>,
}

impl<'a> Walk<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn name(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return None;
        }
        self.string();
        unquoted(self.text.get(start..self.at)?)
    }

    fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => self.nested(),
            _ => self.scalar(),
        }
        self.text.get(start..self.at).filter(|value| !value.is_empty())
    }

    /// From a quote to behind the one that ends it.
    fn string(&mut self) {
        let bytes = self.text.as_bytes();
        let mut at = self.at + 1;
        // Most strings are short; what is set up for a search pays off in long ones.
        while at < self.at + LONG {
            at = self.ends.from(at);
            match bytes.get(at) {
                Some(b'"') => return self.at = at + 1,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => return self.at = bytes.len(),
            }
        }
        // From here on the quotes alone are looked for: an even number of backslashes before one leaves it as it is.
        while let Some(found) = memchr(b'"', bytes.get(at..).unwrap_or_default()) {
            let before = &bytes[at..at + found];
            at += found + 1;
            if before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0 {
                return self.at = at;
            }
        }
        self.at = bytes.len();
    }

    /// From a bracket to behind the one that ends it.
    fn nested(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string();
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

    fn scalar(&mut self) {
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

    /// The same by a parser.
    fn parsed(text: &str) -> Vec<(String, String)> {
        let Ok(Value::Object(all)) = serde_json::from_str(text) else { return Vec::new() };
        let values: std::collections::HashMap<String, &RawValue> = serde_json::from_str(text).unwrap();
        all.keys().map(|name| (name.clone(), values[name].get().to_owned())).collect()
    }

    fn found(text: &str) -> Vec<(String, String)> {
        members_of(text).into_iter().map(|(name, value)| (name.into_owned(), value.to_owned())).collect()
    }

    #[test]
    fn members_as_they_are_written() {
        let text = "\n{ \"a\" :1.0,\"b\\\"}\": [ {\"x\":\"]\"} , 2 ] ,\"\":\"\\\\\",\"d\":{},\"e\" : null\t,\"f\":\"ü\\n\" } ";
        assert_eq!(
            found(text),
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
            assert!(members_of(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn what_a_string_says() {
        assert_eq!(unquoted(r#""a b""#), Some(Cow::Borrowed("a b")));
        assert_eq!(unquoted(r#""a\n\u00fc""#).as_deref(), Some("a\nü"));
        for none in ["7", "\"", "", "{}", r#""\x""#] {
            assert_eq!(unquoted(none), None, "{none}");
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
        fn what_a_parser_finds(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            prop_assert_eq!(found(&text), parsed(&text));
        }

        #[test]
        fn nothing_makes_it_panic(text in "[a\"\\\\{}\\[\\],: ü7]{0,24}|\"[a\\\\ü]{120,140}[a\"\\\\]{0,9}") {
            let _ = members_of(&text);
        }
    }
}
