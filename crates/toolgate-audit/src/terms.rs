//! The members of a record that calls are searched by, as hashes.
//!
//! Members are read from the line as written, without parsing JSON: their order is fixed, and the bodies come last,
//! because they can be large. Invariant: the hash of a member in a line equals that of the same value in a filter.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use memchr::memchr2;

/// A member that filters select by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TermField {
    Call,
    Caller,
    Tool,
    Operation,
    Session,
    Correlation,
    Trace,
    Server,
    Decision,
    Rule,
    /// The status of a call, and the code of its error.
    Status,
    /// The caller together with the tool: most blocks have either, and few have a call with both.
    CallerAndTool,
}

/// Hashes a value as written in a line, without its quotation marks.
pub(crate) fn term(field: TermField, value: &[u8]) -> u64 {
    mix(hash_bytes(field as u64 + 1, value))
}

/// Combines the terms of a caller and of a tool.
pub(crate) fn caller_and_tool(caller: u64, tool: u64) -> u64 {
    mix(caller ^ tool.rotate_left(17) ^ TermField::CallerAndTool as u64)
}

/// Hashes a string of a filter.
pub(crate) fn term_of(field: TermField, value: &str) -> u64 {
    let quoted = super::read::quoted(value);
    term(field, &quoted.as_bytes()[1..quoted.len() - 1])
}

/// A fast hash that is the same in every version. It protects from damage and chance, not from forgery.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = seed.wrapping_mul(FACTOR) ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain([&last]) {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        hash ^= hash >> 29;
    }
    hash
}

/// Spreads the entropy of a hash over all of its bits.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Values by term. A query of a long log looks up each call that crosses the border of a block.
pub(crate) type TermMap<V> = HashMap<u64, V, BuildHasherDefault<TermHasher>>;

/// Takes a term as its own hash: its bits are mixed already.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TermHasher(u64);

impl Hasher for TermHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = mix(hash_bytes(self.0, bytes));
    }

    fn write_u64(&mut self, term: u64) {
        self.0 = term;
    }
}

/// A begin or an end, as far as it is searched by.
#[derive(Debug, Default)]
pub(crate) struct RecordTerms {
    pub(crate) is_begin: bool,
    /// Term of the call id.
    pub(crate) call: u64,
    /// Terms of members that both records of a call have, and of members of the end.
    pub(crate) own: Vec<u64>,
    /// Terms of members that only the begin has.
    pub(crate) begin: Vec<u64>,
    /// Duration of the call; 0 in a begin.
    pub(crate) micros: u64,
}

impl RecordTerms {
    /// Reads the members between `time` and `hash` of a line. Returns false if the record is not one of a call.
    pub(crate) fn read(&mut self, members: &[u8]) -> bool {
        self.own.clear();
        self.begin.clear();
        (self.call, self.micros) = (0, 0);
        let (mut caller, mut tool) = (None, None);
        let mut members = RecordMembers(members);
        self.is_begin = match members.next() {
            Some((b"kind", b"\"begin\"")) => true,
            Some((b"kind", b"\"end\"")) => false,
            _ => return false,
        };
        for (name, value) in members {
            let text = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
            match name {
                b"call" => {
                    self.call = term(TermField::Call, text);
                    self.own.push(self.call);
                }
                b"caller" => self.own.push(*caller.insert(term(TermField::Caller, text))),
                b"tool" => self.own.push(*tool.insert(term(TermField::Tool, text))),
                b"operation" => self.own.push(term(TermField::Operation, text)),
                b"session" => self.own.push(term(TermField::Session, text)),
                b"correlation" => self.begin.push(term(TermField::Correlation, text)),
                b"trace" => self.begin.push(term(TermField::Trace, text)),
                b"server" => self.begin.push(term(TermField::Server, text)),
                b"decision" => self.begin.push(term(TermField::Decision, text)),
                b"rules" => {
                    let rules = strings(value);
                    self.begin.extend(rules.map(|rule| term(TermField::Rule, rule)));
                }
                b"status" => self.own.push(term(TermField::Status, text)),
                b"error" => {
                    self.own.extend(error_code(value).map(|code| term(TermField::Status, code)));
                }
                b"micros" => {
                    let number = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                    // A duration that cannot be read may be long.
                    self.micros = number.unwrap_or(u64::MAX);
                }
                b"arguments" | b"arguments_cut" | b"stages" | b"output" | b"output_cut" => break,
                _ => {}
            }
        }
        if let (Some(caller), Some(tool)) = (caller, tool) {
            self.own.push(caller_and_tool(caller, tool));
        }
        self.call != 0
    }
}

/// Returns the code of an `error`: its first member.
pub(crate) fn error_code(error: &[u8]) -> Option<&[u8]> {
    value_at(error.strip_prefix(b"{\"code\":")?)?.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Iterates over the members between `time` and `hash` of a line. Large bodies are left out.
pub(crate) fn record_members(members: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    RecordMembers(members)
}

/// Iterates over members written as `,"name":value`.
struct RecordMembers<'a>(&'a [u8]);

impl<'a> Iterator for RecordMembers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.strip_prefix(b",\"")?;
        // Names have no escapes.
        let end = memchr::memchr(b'"', rest)?;
        let (name, rest) = (&rest[..end], rest[end + 1..].strip_prefix(b":")?);
        if matches!(name, b"arguments" | b"output") {
            // The value can be large, and nothing after it is needed.
            self.0 = &[];
            return Some((name, &[]));
        }
        let value = value_at(rest)?;
        self.0 = &rest[value.len()..];
        Some((name, value))
    }
}

/// Returns the JSON value at the start of a text.
fn value_at(text: &[u8]) -> Option<&[u8]> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match *text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'[' | b'{' => (depth, at) = (depth + 1, at + 1),
            b']' | b'}' | b',' if depth == 0 => return Some(&text[..at]),
            b']' | b'}' => (depth, at) = (depth - 1, at + 1),
            _ => at += 1,
        }
        if depth == 0 && text.get(at).is_none_or(|next| matches!(next, b',' | b']' | b'}')) {
            return Some(&text[..at]);
        }
    }
}

/// Returns the offset after the string that starts at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Iterates over the strings of an array, without their quotation marks.
fn strings(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += memchr::memchr(b'"', array.get(at..)?)?;
        let end = string_end(array, at)?;
        let text = &array[at + 1..end - 1];
        at = end;
        Some(text)
    })
}

#[test]
fn reads_the_members_of_both_records() {
    let of = |fields: &[(TermField, &str)]| {
        let mut terms: Vec<_> = fields.iter().map(|(field, value)| term_of(*field, value)).collect();
        let find = |wanted| fields.iter().find(|(field, _)| *field == wanted);
        if let (Some(caller), Some(tool)) = (find(TermField::Caller), find(TermField::Tool)) {
            terms.push(caller_and_tool(term_of(caller.0, caller.1), term_of(tool.0, tool.1)));
        }
        terms.sort_unstable();
        terms
    };
    let mut record = RecordTerms::default();
    let begin = r#","kind":"begin","call":"a\"b","caller":"ann","tool":"t","operation":"list","session":"s","correlation":"c","correlation_from_client":false,"trace":"x","server":"files","decision":"deny","rules":["r 1","r\\2"],"arguments":{"caller":"eve"}"#;
    assert!(record.read(begin.as_bytes()) && record.is_begin);
    let both = [
        (TermField::Call, "a\"b"),
        (TermField::Caller, "ann"),
        (TermField::Tool, "t"),
        (TermField::Operation, "list"),
        (TermField::Session, "s"),
    ];
    record.own.sort_unstable();
    record.begin.sort_unstable();
    assert_eq!(record.own, of(&both));
    let expected = [
        (TermField::Correlation, "c"),
        (TermField::Trace, "x"),
        (TermField::Server, "files"),
        (TermField::Decision, "deny"),
        (TermField::Rule, "r 1"),
        (TermField::Rule, "r\\2"),
    ];
    assert_eq!(record.begin, of(&expected));
    let end = r#","kind":"end","call":"c","caller":"ann","tool":"t","status":"error","error":{"code":"timeout","stage":"invoke","message":"no \"code\":\"x\""},"attempts":1,"cached":false,"micros":1234,"stages":[["resolve",1]],"output":1"#;
    assert!(record.read(end.as_bytes()) && !record.is_begin);
    let expected = [
        (TermField::Call, "c"),
        (TermField::Caller, "ann"),
        (TermField::Tool, "t"),
        (TermField::Status, "error"),
        (TermField::Status, "timeout"),
    ];
    record.own.sort_unstable();
    assert_eq!((record.own.clone(), record.micros), (of(&expected), 1234));
    for other in [r#","kind":"start","version":"1""#, r#","kind":"begin","call":""#, ""] {
        assert!(!record.read(other.as_bytes()), "{other}");
    }
}
