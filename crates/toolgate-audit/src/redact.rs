//! Redaction: the one way for a text from outside into a line.
//!
//! Texts are looked at as they mean, not as JSON writes them, so an escape hides nothing. In JSON the name of
//! a member counts too: what stands under `password`, below it, or after `--password` in a list is not shown
//! whatever it looks like. Invariant: linear in the text; the result is JSON on one line.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memchr2;
use toolgate_types::Secret;
use toolgate_types::redact::{Pattern, Sought, holds, looks_secret, mask_sought};
use toolgate_types::secret::MASK;

use crate::fields::{At, SecretFields};

/// Below this length a text without a sign holds none of the shapes of keys that providers use.
const SHORTEST_SHAPE: usize = 19;

/// Below this length nothing follows `basic ` that is taken for a credential.
const SHORTEST_SCHEME: usize = 14;

/// Shorter ones are not looked for: masking every `a` would hide the record.
const SHORTEST_KNOWN: usize = 4;

/// Knows what must not be shown.
#[derive(Debug)]
pub struct Redactor {
    /// With all their spellings. It grows: what was secret stays so.
    known: RwLock<Arc<Vec<Secret>>>,
    patterns: Vec<Pattern>,
}

impl Redactor {
    /// Knows these secrets, and what fits these patterns, beside the common shapes of keys.
    pub fn new(known: Vec<Secret>, patterns: Vec<Pattern>) -> Self {
        let redactor = Self { known: RwLock::default(), patterns };
        redactor.learn(&known);
        redactor
    }

    /// Knows these as well, from now on.
    pub fn learn(&self, secrets: &[Secret]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = |secret: &&Secret| {
            let text = secret.expose();
            text.len() >= SHORTEST_KNOWN && !known.iter().any(|known| known.expose() == text)
        };
        let new: Vec<Secret> = secrets.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            let spelled: Vec<_> = new.iter().flat_map(spelled).collect();
            *known = Arc::new(known.iter().cloned().chain(new).chain(spelled).collect());
        }
    }

    /// The secrets that are known now.
    pub(crate) fn known(&self) -> Arc<Vec<Secret>> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A JSON text that says the same and shows nothing that must not be.
    pub fn json(&self, json: &str) -> String {
        let mut out = String::with_capacity(json.len());
        self.with(&self.known(), &[]).json(json, &SecretFields::default(), &mut out);
        out
    }

    /// With what is known, and more secrets, those of one call.
    pub(crate) fn with<'a>(&'a self, known: &'a [Secret], more: &'a [Secret]) -> Redaction<'a> {
        Redaction { known, more, patterns: &self.patterns }
    }
}

/// How a secret is spelled inside of an address, and in JSON that is itself a text.
fn spelled(secret: &Secret) -> impl Iterator<Item = Secret> + use<> {
    let plain = secret.expose();
    let mut address = String::with_capacity(plain.len());
    for byte in plain.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            address.push(char::from(byte));
        } else {
            address.push_str(&format!("%{byte:02X}"));
        }
    }
    let quoted = serde_json::to_string(plain).unwrap_or_default();
    let quoted = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let others = [address.as_str(), quoted].map(|text| (text != plain).then(|| Secret::new(text)));
    others.into_iter().flatten()
}

/// What must not be shown of one call.
#[derive(Clone, Copy)]
pub(crate) struct Redaction<'a> {
    known: &'a [Secret],
    more: &'a [Secret],
    patterns: &'a [Pattern],
}

impl Redaction<'_> {
    /// Adds a text as a JSON string.
    pub(crate) fn text(&self, text: &str, out: &mut String) {
        quote(&self.masked(text), out);
    }

    pub(crate) fn masked<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let spaced = text.len() >= SHORTEST_SCHEME;
        let sign = |byte: &u8| matches!(byte, b':' | b'=' | b'-' | b'_') || spaced && *byte == b' ';
        let plain = text.len() < SHORTEST_SHAPE && !text.as_bytes().iter().any(sign);
        if plain && !self.knows(text) {
            return Cow::Borrowed(text);
        }
        let Self { known, more, patterns } = *self;
        mask_sought(text, Sought { known, more, patterns })
    }

    fn knows(&self, text: &str) -> bool {
        self.known.iter().chain(self.more).any(|secret| holds(text, secret.expose()))
            || self.patterns.iter().any(|pattern| pattern.fits(text))
    }

    /// Adds a JSON value, with its strings redacted and without the space between its parts. What is not JSON
    /// is added as a string. `fields` says which parts are secret whatever they look like.
    pub(crate) fn json(&self, json: &str, fields: &SecretFields, out: &mut String) {
        let start = out.len();
        if Walk::new(*self, json, fields, out).run().is_none() {
            out.truncate(start);
            self.text(json, out);
        }
    }
}

/// Adds a text as a JSON string, as it is.
fn quote(text: &str, out: &mut String) {
    let plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
    if text.as_bytes().iter().all(plain) {
        out.reserve(text.len() + 2);
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::to_string(text).expect("a text has a JSON form"));
    }
}

/// An object or a list that is open.
struct Level {
    object: bool,
    /// Everything in it stands under the name of a secret.
    hidden: bool,
    /// The next string is the name of a member.
    name_next: bool,
    /// The value that follows stands under the name of a secret.
    secret_next: bool,
    /// The value that follows names something: `{"name": "Authorization", "value": …}`.
    names_next: bool,
    /// `value` in this object belongs to the name of a secret.
    named: bool,
    /// What the schema says of it, and of the value that follows.
    at: At,
    at_next: At,
}

struct Walk<'a> {
    redactor: Redaction<'a>,
    fields: &'a SecretFields,
    json: &'a str,
    at: usize,
    out: &'a mut String,
    levels: Vec<Level>,
}

impl<'a> Walk<'a> {
    fn new(redactor: Redaction<'a>, json: &'a str, fields: &'a SecretFields, out: &'a mut String) -> Self {
        Self { redactor, fields, json, at: 0, out, levels: Vec::new() }
    }

    /// `None` when it is not JSON. What is checked is what keeps the line whole: strings end, brackets match,
    /// there is one value. The rest was checked where the text came in.
    fn run(mut self) -> Option<()> {
        let bytes = self.json.as_bytes();
        let mut values = 0;
        while let Some(&byte) = bytes.get(self.at) {
            if self.levels.is_empty() && !byte.is_ascii_whitespace() {
                values += 1;
                if values > 1 {
                    return None;
                }
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'{' | b'[' => {
                    let hidden = self.is_hidden();
                    let object = byte == b'{';
                    let at =
                        self.levels.last().map_or_else(|| self.fields.start(), |level| level.at_next.clone());
                    let at_next = if object { At::new() } else { self.fields.items(&at) };
                    self.after_value(false);
                    self.levels.push(Level {
                        object,
                        hidden,
                        name_next: object,
                        secret_next: false,
                        names_next: false,
                        named: false,
                        at,
                        at_next,
                    });
                    self.keep(byte);
                }
                b'}' | b']' => {
                    if self.levels.pop()?.object != (byte == b'}') {
                        return None;
                    }
                    self.keep(byte);
                }
                b',' => {
                    let level = self.levels.last_mut()?;
                    level.name_next = level.object;
                    self.keep(byte);
                }
                b':' => {
                    self.levels.last()?;
                    self.keep(byte);
                }
                b'"' => self.string()?,
                _ => self.scalar()?,
            }
        }
        (values == 1 && self.levels.is_empty()).then_some(())
    }

    fn keep(&mut self, byte: u8) {
        self.out.push(char::from(byte));
        self.at += 1;
    }

    fn is_hidden(&self) -> bool {
        match self.levels.last() {
            Some(level) => level.hidden || level.secret_next || self.fields.is_hidden(&level.at_next),
            None => self.fields.is_hidden(&self.fields.start()),
        }
    }

    /// A value was passed; whether the next one in a list is a secret, it may have said.
    fn after_value(&mut self, secret_next: bool) {
        if let Some(level) = self.levels.last_mut() {
            level.secret_next = secret_next;
            level.names_next = false;
        }
    }

    fn string(&mut self) -> Option<()> {
        let start = self.at + 1;
        let bytes = self.json.as_bytes();
        let mut end = start;
        let mut escaped = false;
        loop {
            end += memchr2(b'"', b'\\', bytes.get(end..)?)?;
            if bytes[end] == b'"' {
                break;
            }
            escaped = true;
            end += 2;
        }
        let literal = &self.json[start..end];
        self.at = end + 1;
        let text = if escaped {
            // A half of a pair of surrogates has no meaning as a text; what it looks like still has.
            serde_json::from_str(&self.json[start - 1..=end])
                .unwrap_or_else(|_| Cow::Owned(literal.to_owned()))
        } else {
            Cow::Borrowed(literal)
        };
        let hidden = self.is_hidden();
        let level = self.levels.last_mut();
        if let Some(level) = level.filter(|level| level.name_next) {
            level.name_next = false;
            level.secret_next = looks_secret(&text) && !names(&text) || level.named && &*text == "value";
            level.names_next = names(&text);
            level.at_next = self.fields.member(&level.at, &text);
        } else {
            let level = self.levels.last_mut();
            let flag = level.as_ref().is_some_and(|level| !level.object) && text.starts_with('-');
            if let Some(level) = level.filter(|level| level.object && level.names_next) {
                level.named |= looks_secret(&text);
            }
            self.after_value(flag && !text.contains(['=', ' ']) && looks_secret(&text));
            if hidden && !text.is_empty() {
                self.out.push('"');
                self.out.push_str(MASK);
                self.out.push('"');
                return Some(());
            }
        }
        match self.redactor.masked(&text) {
            // As it came, escapes and all.
            Cow::Borrowed(_) => {
                // Without an early end it is done many bytes at a time.
                if literal.bytes().fold(false, |found, byte| found | (byte < 0x20)) {
                    quote(&text, self.out);
                } else {
                    self.out.push_str(&self.json[start - 1..=end]);
                }
            }
            masked => quote(&masked, self.out),
        }
        Some(())
    }

    /// A number, `true`, `false`, `null`.
    fn scalar(&mut self) -> Option<()> {
        let rest = &self.json[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.'));
        let text = &rest[..end.unwrap_or(rest.len())];
        serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
        let number = !matches!(text, "true" | "false" | "null");
        if number && (self.is_hidden() || self.redactor.knows(text)) {
            self.out.push('"');
            self.out.push_str(MASK);
            self.out.push('"');
        } else {
            self.out.push_str(text);
        }
        self.at += text.len();
        self.after_value(false);
        Some(())
    }
}

/// Members that say what the `value` beside them is.
fn names(member: &str) -> bool {
    matches!(member, "name" | "key" | "header")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redacted(json: &str) -> String {
        let known = vec![Secret::new("hun\"ter\n22"), Secret::new("98765432")];
        let patterns = vec!["ACME-[0-9]+".parse().unwrap()];
        let mut out = String::new();
        let redactor = Redactor::new(known, patterns);
        redactor.with(&redactor.known(), &[Secret::new("swordfish")]).json(
            json,
            &SecretFields::default(),
            &mut out,
        );
        out
    }

    fn check(json: &str, expected: &str) {
        assert_eq!(redacted(json), expected);
    }

    #[test]
    fn under_the_name_of_a_secret() {
        check(r#"{"password": "abc", "mode": 1}"#, r#"{"password":"***","mode":1}"#);
        check(r#"{"pass\u0077ord": "abc"}"#, r#"{"pass\u0077ord":"***"}"#);
        check(
            r#"{"api_key": ["a", {"b": "c"}, 5], "x": ["a"]}"#,
            r#"{"api_key":["***",{"b":"***"},"***"],"x":["a"]}"#,
        );
        check(
            r#"{"token": 12345, "secret": null, "max_tokens": 5}"#,
            r#"{"token":"***","secret":null,"max_tokens":5}"#,
        );
        check(r#"["--token", "abc", "--verbose", "x", 7]"#, r#"["--token","***","--verbose","x",7]"#);
        check(r#"["--token=abc", "x"]"#, r#"["--token=***","x"]"#);
        check(
            r#"[{"name": "Authorization", "value": "abc"}, {"name": "Accept", "value": "abc"}]"#,
            r#"[{"name":"Authorization","value":"***"},{"name":"Accept","value":"abc"}]"#,
        );
        check(r#"{"key": "color", "value": "red"}"#, r#"{"key":"color","value":"red"}"#);
    }

    #[test]
    fn known_ones_and_shapes_anywhere() {
        check(r#"{"a": "saw hun\"ter\n22"}"#, r#"{"a":"saw ***"}"#);
        check(r#"{"a": "saw \u0068un\u0022ter\n22"}"#, r#"{"a":"saw ***"}"#);
        check(r#"{"a": 98765432, "98765432": 1}"#, r#"{"a":"***","***":1}"#);
        check(r#""Bearer abcdefghij""#, r#""Bearer ***""#);
        check(r#"{"url": "https://ann:pw@x.test/"}"#, r#"{"url":"https://ann:***@x.test/"}"#);
        check(r#"["AKIAABCDEFGHIJKLMNOP"]"#, r#"["***"]"#);
    }

    #[test]
    fn of_ones_own() {
        check(r#"["ACME-1", "x ACME-22.", {"ACME-3": 1}, "ACME-"]"#, r#"["***","x ***.",{"***":1},"ACME-"]"#);
        check(r#"{"a": "a swordfish"}"#, r#"{"a":"a ***"}"#);
    }

    #[test]
    fn a_known_one_in_an_address_and_in_json_that_is_a_text() {
        check(r#""https://x.test/?q=hun%22ter%0A22&a=1""#, r#""https://x.test/?q=***&a=1""#);
        check(r#""{\"a\":\"hun\\\"ter\\n22\"}""#, r#""{\"a\":\"***\"}""#);
    }

    #[test]
    fn what_a_schema_calls_secret() {
        let schema = serde_json::json!({ "properties": {
            "a": { "x-secret": true },
            "list": { "items": { "properties": { "pin": { "format": "password" } } } },
        } });
        let fields = SecretFields::of(&schema);
        let json =
            r#"{"a":{"b":["x",1,true,null,""]},"list":[{"pin":12,"mode":12},{"p\u0069n":"z"}],"b":"x"}"#;
        let mut out = String::new();
        Redactor::new(Vec::new(), Vec::new()).with(&[], &[]).json(json, &fields, &mut out);
        let expected = r#"{"a":{"b":["***","***",true,null,""]},"list":[{"pin":"***","mode":12},{"p\u0069n":"***"}],"b":"x"}"#;
        assert_eq!(out, expected);
        let whole = SecretFields::of(&serde_json::json!({ "writeOnly": true }));
        for (json, expected) in [(r#""x""#, r#""***""#), ("[1]", r#"["***"]"#)] {
            let mut out = String::new();
            Redactor::new(Vec::new(), Vec::new()).with(&[], &[]).json(json, &whole, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn what_stays() {
        for json in
            [r#"{"a":[1,-2.50e3,true,null,{}],"b":"ä\n\ud800"}"#, "[]", "5", r#""""#, r#"{"password":""}"#]
        {
            check(json, json);
        }
        check("{ \"a\" :\n 1 }", r#"{"a":1}"#);
    }

    #[test]
    fn what_is_not_json_is_a_text() {
        for (text, expected) in [
            ("{", r#""{""#),
            ("[}", r#""[}""#),
            ("1 2", r#""1 2""#),
            ("", r#""""#),
            ("\"a", r#""\"a""#),
            ("nul", r#""nul""#),
            ("password: abc", r#""password: ***""#),
        ] {
            check(text, expected);
        }
    }

    const SECRETS: [&str; 4] = ["hun\"ter\\22", "98765432", "line\nbreak", "grüße-an-alle"];

    /// Values with secrets in their texts, names and numbers.
    fn value() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let text = prop_oneof![
            "[a-z:= ]{0,8}",
            (0..SECRETS.len(), "[a-z\"\\\\ ]{0,3}", "[a-z\"\n ]{0,3}")
                .prop_map(|(at, before, after)| format!("{before}{}{after}", SECRETS[at])),
            Just("ACME-77".to_owned()),
        ];
        let leaf = prop_oneof![
            text.clone().prop_map(Value::from),
            Just(Value::from(98_765_432)),
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    /// Lists and leaves; names may become the same once they are masked.
    fn parts(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Array(items) => 1 + items.iter().map(parts).sum::<usize>(),
            serde_json::Value::Object(_) => 1,
            _ => 1,
        }
    }

    fn texts(value: &serde_json::Value) -> Vec<String> {
        match value {
            serde_json::Value::Array(items) => items.iter().flat_map(texts).collect(),
            serde_json::Value::Object(members) => {
                members.iter().flat_map(|(name, value)| [vec![name.clone()], texts(value)].concat()).collect()
            }
            other => vec![other.as_str().map_or_else(|| other.to_string(), str::to_owned)],
        }
    }

    proptest! {
        /// The short way says what the long way says.
        #[test]
        fn short_texts_are_masked_like_long_ones(text in "(Basic |bearer |AKIA|sk|key|token|[a-z0-9 :=_-]){0,20}") {
            let mut out = String::new();
            Redactor::new(Vec::new(), Vec::new()).with(&[], &[]).text(&text, &mut out);
            prop_assert_eq!(out, serde_json::to_string(&mask_sought(&text, Sought::default())).unwrap());
        }

        /// Wherever secrets stand in a value, none is in the line, and the line is JSON of the same shape.
        #[test]
        fn never_a_secret(value in value()) {
            let mut out = String::new();
            let known = SECRETS.map(Secret::new).to_vec();
            let patterns = vec!["ACME-[0-9]+".parse().unwrap()];
            let json = value.to_string();
            out.push_str(&Redactor::new(known, patterns).json(&json));
            let parsed: serde_json::Value = serde_json::from_str(&out).unwrap();
            prop_assert_eq!(parts(&parsed), parts(&value), "{}", out);
            for text in texts(&parsed) {
                for secret in SECRETS.into_iter().chain(["ACME-77"]) {
                    prop_assert!(!text.contains(secret), "{} in {}", secret, out);
                }
            }
        }

        #[test]
        fn always_one_line_of_json(text in "([\\[\\]{}\",:0-9 a\\\\\n]|token|--key|\"a\":|\\PC){0,40}") {
            let out = redacted(&text);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok() || serde_json::from_str::<serde_json::Value>(&text).is_err(), "{}", out);
            prop_assert!(!out.contains('\n'));
        }
    }
}
