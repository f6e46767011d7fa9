//! Validates every message in one linear pass before anything is parsed: size, depth, duplicate keys.
//!
//! Parsers disagree about the meaning of a duplicate key, an unpaired surrogate or `1e400`. Input that two readers
//! could understand differently is rejected here. Invariant: linear time, no recursion, and accepted input is JSON of
//! at most [`ScanLimits::depth`] levels.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::long_strings::{LongString, MIN_LENGTH, StringEscapes};
use crate::string_ends::StringEnds;

/// Limits of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// Maximum bytes.
    pub size: usize,
    /// Maximum levels of nesting.
    pub depth: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { size: 4 << 20, depth: 64 }
    }
}

/// Reason why input is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Larger than the limit.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// Nested deeper than the limit.
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
    /// An object contains a key twice.
    #[error("duplicate key `{0}`")]
    DuplicateKey(String),
    /// A number overflows a 64-bit float.
    #[error("number out of range at byte {0}")]
    Number(usize),
    /// Half of a UTF-16 surrogate pair, which is not a character.
    #[error("unpaired surrogate at byte {0}")]
    Surrogate(usize),
    /// Not UTF-8.
    #[error("invalid UTF-8 at byte {0}")]
    Utf8(usize),
    /// Not JSON.
    #[error("invalid JSON at byte {0}")]
    Syntax(usize),
}

/// Keys of small objects are compared one by one; above this number a hash set is faster.
const FEW_KEYS: usize = 16;

/// Validates a whole message.
pub fn scan(bytes: &[u8], limits: ScanLimits) -> Result<(), ScanError> {
    if bytes.len() > limits.size {
        return Err(ScanError::TooLarge(limits.size));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ScanError::Utf8(error.valid_up_to()))?;
    scan_str(text, limits).map(drop)
}

/// Validates a whole message whose size was checked. Returns its long strings.
pub(super) fn scan_str(text: &str, limits: ScanLimits) -> Result<Vec<LongString>, ScanError> {
    let scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        ends: StringEnds::new(text.as_bytes()),
        at: 0,
        depth: limits.depth,
        frames: Vec::with_capacity(8),
        keys: Vec::with_capacity(16),
        long_strings: Vec::new(),
    };
    scanner.run()
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    ends: StringEnds<'a>,
    at: usize,
    depth: usize,
    frames: Vec<OpenContainer<'a>>,
    /// The keys of all open objects, innermost last.
    keys: Vec<Cow<'a, str>>,
    long_strings: Vec<LongString>,
}

/// An array or object that is not closed yet.
struct OpenContainer<'a> {
    object: bool,
    /// Index of its first key in [`Scanner::keys`].
    first_key: usize,
    /// Its keys, once there are more than [`FEW_KEYS`].
    set: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> Scanner<'a> {
    fn run(mut self) -> Result<Vec<LongString>, ScanError> {
        self.skip_space();
        self.scan_value()?;
        loop {
            self.skip_space();
            let Some(frame) = self.frames.last() else {
                return if self.at == self.bytes.len() {
                    Ok(self.long_strings)
                } else {
                    Err(self.syntax_error())
                };
            };
            let object = frame.object;
            match self.bytes.get(self.at) {
                Some(b',') => {
                    self.at += 1;
                    self.skip_space();
                    if object {
                        self.scan_key()?;
                    }
                    self.scan_value()?;
                }
                Some(b'}') if object => self.close_frame(),
                Some(b']') if !object => self.close_frame(),
                _ => return Err(self.syntax_error()),
            }
        }
    }

    /// Scans a value; of an array or object, only its start and its first item.
    fn scan_value(&mut self) -> Result<(), ScanError> {
        loop {
            match self.bytes.get(self.at) {
                Some(b'{') => {
                    self.open_frame(true)?;
                    self.skip_space();
                    if self.bytes.get(self.at) == Some(&b'}') {
                        self.close_frame();
                        return Ok(());
                    }
                    self.scan_key()?;
                }
                Some(b'[') => {
                    self.open_frame(false)?;
                    self.skip_space();
                    if self.bytes.get(self.at) == Some(&b']') {
                        self.close_frame();
                        return Ok(());
                    }
                }
                Some(b'"') => return self.skip_string(),
                Some(b't') => return self.expect_literal("true"),
                Some(b'f') => return self.expect_literal("false"),
                Some(b'n') => return self.expect_literal("null"),
                Some(b'-' | b'0'..=b'9') => return self.scan_number(),
                _ => return Err(self.syntax_error()),
            }
        }
    }

    fn open_frame(&mut self, object: bool) -> Result<(), ScanError> {
        if self.frames.len() >= self.depth {
            return Err(ScanError::TooDeep(self.depth));
        }
        self.frames.push(OpenContainer { object, first_key: self.keys.len(), set: None });
        self.at += 1;
        Ok(())
    }

    fn close_frame(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.keys.truncate(frame.first_key);
        }
        self.at += 1;
    }

    /// Scans a key and its colon, up to the value.
    fn scan_key(&mut self) -> Result<(), ScanError> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.syntax_error());
        }
        let key = self.parse_string()?;
        let frame = self.frames.last_mut().expect("keys stand in objects");
        let known = &self.keys[frame.first_key..];
        if known.len() == FEW_KEYS && frame.set.is_none() {
            frame.set = Some(known.iter().cloned().collect());
        }
        let twice = match &mut frame.set {
            Some(set) => !set.insert(key.clone()),
            None => known.contains(&key),
        };
        if twice {
            return Err(ScanError::DuplicateKey(key.chars().take(64).collect()));
        }
        if frame.set.is_none() {
            self.keys.push(key);
        }
        self.skip_space();
        if self.bytes.get(self.at) != Some(&b':') {
            return Err(self.syntax_error());
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// Skips a string value; its content does not matter here.
    fn skip_string(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        let mut at = self.ends.find_from(self.at + 1);
        let mut escapes = StringEscapes::None;
        loop {
            match self.bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    if self.at - start >= MIN_LENGTH {
                        let base = self.bytes.as_ptr().addr();
                        let (start, end) = (base + start, base + self.at);
                        self.long_strings.push(LongString { start, end, escapes });
                    }
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at = at;
                    escapes = escapes.max(StringEscapes::of(self.bytes.get(at + 1).copied()));
                    let (_, length) = self.parse_escape(at)?;
                    at = self.ends.find_from(at + length);
                }
                _ => {
                    self.at = at;
                    return Err(self.syntax_error());
                }
            }
        }
    }

    /// Returns the content of a string; borrows if it contains no escapes.
    fn parse_string(&mut self) -> Result<Cow<'a, str>, ScanError> {
        let start = self.at + 1;
        let at = self.ends.find_from(start);
        match self.bytes.get(at) {
            Some(b'"') => {
                self.at = at + 1;
                Ok(Cow::Borrowed(&self.text[start..at]))
            }
            Some(b'\\') => self.parse_escaped(start, at),
            _ => {
                self.at = at;
                Err(self.syntax_error())
            }
        }
    }

    fn parse_escaped(&mut self, start: usize, from: usize) -> Result<Cow<'a, str>, ScanError> {
        let mut out = self.text[start..from].to_owned();
        let mut at = from;
        let mut plain = from;
        loop {
            match self.bytes.get(at) {
                Some(b'"') => {
                    out.push_str(&self.text[plain..at]);
                    self.at = at + 1;
                    return Ok(Cow::Owned(out));
                }
                Some(b'\\') => {
                    out.push_str(&self.text[plain..at]);
                    self.at = at;
                    let (c, length) = self.parse_escape(at)?;
                    out.push(c);
                    at += length;
                    plain = at;
                }
                Some(0..0x20) | None => {
                    self.at = at;
                    return Err(self.syntax_error());
                }
                Some(_) => at += 1,
            }
        }
    }

    /// Returns the character of an escape sequence and the length of the sequence.
    fn parse_escape(&self, at: usize) -> Result<(char, usize), ScanError> {
        let c = match self.bytes.get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.parse_unicode_escape(at),
            _ => return Err(ScanError::Syntax(at)),
        };
        Ok((c, 2))
    }

    fn parse_unicode_escape(&self, at: usize) -> Result<(char, usize), ScanError> {
        let unit = |at: usize| {
            let digits =
                self.bytes.get(at + 2..at + 6).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
            let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            let starts = self.bytes.get(at..at + 2) == Some(b"\\u");
            digits.filter(|_| starts).and_then(|digits| u16::from_str_radix(digits, 16).ok())
        };
        let first = unit(at).ok_or(ScanError::Syntax(at))?;
        if let Some(c) = char::from_u32(u32::from(first)) {
            return Ok((c, 6));
        }
        let pair = unit(at + 6).and_then(|second| char::decode_utf16([first, second]).next()?.ok());
        pair.map(|c| (c, 12)).ok_or(ScanError::Surrogate(at))
    }

    fn expect_literal(&mut self, word: &str) -> Result<(), ScanError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.syntax_error());
        }
        self.at += word.len();
        Ok(())
    }

    fn scan_number(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        let mut at = start + usize::from(self.bytes[start] == b'-');
        let digits =
            |from: usize| from + self.bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = digits(at);
        // JSON forbids leading zeros.
        if whole == at || (self.bytes[at] == b'0' && whole > at + 1) {
            return Err(ScanError::Syntax(start));
        }
        at = whole;
        let mut plain = true;
        if self.bytes.get(at) == Some(&b'.') {
            let end = digits(at + 1);
            if end == at + 1 {
                return Err(ScanError::Syntax(start));
            }
            (at, plain) = (end, false);
        }
        if matches!(self.bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.bytes.get(at + 1), Some(b'+' | b'-')));
            let end = digits(at + 1 + sign);
            if end == at + 1 + sign {
                return Err(ScanError::Syntax(start));
            }
            (at, plain) = (end, false);
        }
        // A number of up to 300 digits cannot overflow; only the rare rest is worth a conversion.
        let risky = !plain || at - start > 300;
        if risky && !self.text[start..at].parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(ScanError::Number(start));
        }
        self.at = at;
        Ok(())
    }

    fn skip_space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn syntax_error(&self) -> ScanError {
        ScanError::Syntax(self.at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn check(text: &str, expected: Result<(), ScanError>) {
        assert_eq!(scan(text.as_bytes(), ScanLimits::default()), expected, "{}", &text[..text.len().min(80)]);
    }

    #[test]
    fn accepts_valid_json() {
        for text in [
            "{}",
            " [1, -0, 1.0, 1E2, 12345678901234567890123] ",
            r#"{"a":{"a":[]},"b":"\u00e9\ud83d\ude00"}"#,
        ] {
            check(text, Ok(()));
        }
    }

    #[test]
    fn rejects_ambiguous_json() {
        check(r#"{"a":1,"a":2}"#, Err(ScanError::DuplicateKey("a".to_owned())));
        check(r#"{"a":1,"\u0061":2}"#, Err(ScanError::DuplicateKey("a".to_owned())));
        check(r#"{"x":{"k":1,"k":2}}"#, Err(ScanError::DuplicateKey("k".to_owned())));
        check("1e400", Err(ScanError::Number(0)));
        check(r#""\ud800""#, Err(ScanError::Surrogate(1)));
        check(r#""\ud800\u0041""#, Err(ScanError::Surrogate(1)));
        let many: Vec<_> = (0..40).chain([7]).map(|n| format!("\"k{n}\":0")).collect();
        check(&format!("{{{}}}", many.join(",")), Err(ScanError::DuplicateKey("k7".to_owned())));
    }

    #[test]
    fn enforces_limits() {
        check(&"[".repeat(100_000), Err(ScanError::TooDeep(64)));
        check(&format!("{}{}", "[".repeat(64), "]".repeat(64)), Ok(()));
        check(&format!("\"{}\"", "a".repeat(5 << 20)), Err(ScanError::TooLarge(4 << 20)));
        assert_eq!(scan(b"\"\xff\"", ScanLimits::default()), Err(ScanError::Utf8(1)));
    }

    #[test]
    fn rejects_invalid_json() {
        for text in [
            "", "{", "[1,]", "{\"a\"}", "{a:1}", "01", "1.", "NaN", "nul", "\"\n\"", "[1}", "1 2", "\"\\x\"",
            "-",
        ] {
            assert!(
                matches!(scan(text.as_bytes(), ScanLimits::default()), Err(ScanError::Syntax(_))),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in r#"([\[\]{}:,0-9a\\"ue. -]|true|null){0,24}"#) {
            let ours = scan(text.as_bytes(), ScanLimits::default());
            let theirs = serde_json::from_str::<Value>(&text).is_ok();
            match ours {
                Ok(()) => prop_assert!(theirs),
                Err(ScanError::DuplicateKey(_)) => {}
                Err(_) => prop_assert!(!theirs, "{:?}", ours),
            }
        }

        #[test]
        fn accepts_output_of_serde_json(value in any::<Vec<(String, f64, bool)>>()) {
            let text = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(scan(text.as_bytes(), ScanLimits::default()), Ok(()));
        }
    }
}
