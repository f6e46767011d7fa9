//! The one linear pass over every message before anything is parsed: size, depth, duplicate keys.
//!
//! Parsers disagree about what a duplicate key, a lone surrogate or `1e400` means; what two readers
//! could understand differently is refused here. Invariant: linear in time, no recursion, and what
//! passes is JSON of at most [`Limits::depth`] levels.

use std::borrow::Cow;
use std::collections::HashSet;

use super::ends::Ends;

/// What a message may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub size: usize,
    /// Levels of nesting.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { size: 4 << 20, depth: 64 }
    }
}

/// Why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// It is larger than allowed.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// It is nested deeper than allowed.
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
    /// An object has a key twice.
    #[error("the key `{0}` is given twice")]
    DuplicateKey(String),
    /// A number is too large for any reader.
    #[error("a number is out of range at byte {0}")]
    Number(usize),
    /// Half of a surrogate pair, which is no character.
    #[error("half of a character at byte {0}")]
    Surrogate(usize),
    /// It is not UTF-8.
    #[error("not UTF-8 from byte {0} on")]
    Utf8(usize),
    /// It is not JSON.
    #[error("not JSON at byte {0}")]
    Syntax(usize),
}

/// Keys of small objects are compared one by one; from here on a set is quicker.
const FEW_KEYS: usize = 16;

/// Checks a whole text.
pub fn scan(bytes: &[u8], limits: Limits) -> Result<(), ScanError> {
    if bytes.len() > limits.size {
        return Err(ScanError::TooLarge(limits.size));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ScanError::Utf8(error.valid_up_to()))?;
    scan_text(text, limits)
}

/// Checks a whole text that is not too large.
pub(super) fn scan_text(text: &str, limits: Limits) -> Result<(), ScanError> {
    let scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        ends: Ends::new(text.as_bytes()),
        at: 0,
        depth: limits.depth,
        frames: Vec::with_capacity(8),
        keys: Vec::with_capacity(16),
    };
    scanner.run()
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    ends: Ends<'a>,
    at: usize,
    depth: usize,
    frames: Vec<Frame<'a>>,
    /// The keys of all open objects, innermost last.
    keys: Vec<Cow<'a, str>>,
}

/// An open list or object.
struct Frame<'a> {
    object: bool,
    /// Where its keys start.
    first_key: usize,
    /// Its keys, once they are many.
    set: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> Scanner<'a> {
    fn run(mut self) -> Result<(), ScanError> {
        self.space();
        self.value()?;
        loop {
            self.space();
            let Some(frame) = self.frames.last() else {
                return if self.at == self.bytes.len() { Ok(()) } else { Err(self.syntax()) };
            };
            let object = frame.object;
            match self.bytes.get(self.at) {
                Some(b',') => {
                    self.at += 1;
                    self.space();
                    if object {
                        self.key()?;
                    }
                    self.value()?;
                }
                Some(b'}') if object => self.close(),
                Some(b']') if !object => self.close(),
                _ => return Err(self.syntax()),
            }
        }
    }

    /// A value; of a list or object, its start with the first item.
    fn value(&mut self) -> Result<(), ScanError> {
        loop {
            match self.bytes.get(self.at) {
                Some(b'{') => {
                    self.open(true)?;
                    self.space();
                    if self.bytes.get(self.at) == Some(&b'}') {
                        self.close();
                        return Ok(());
                    }
                    self.key()?;
                }
                Some(b'[') => {
                    self.open(false)?;
                    self.space();
                    if self.bytes.get(self.at) == Some(&b']') {
                        self.close();
                        return Ok(());
                    }
                }
                Some(b'"') => return self.text(),
                Some(b't') => return self.word("true"),
                Some(b'f') => return self.word("false"),
                Some(b'n') => return self.word("null"),
                Some(b'-' | b'0'..=b'9') => return self.number(),
                _ => return Err(self.syntax()),
            }
        }
    }

    fn open(&mut self, object: bool) -> Result<(), ScanError> {
        if self.frames.len() >= self.depth {
            return Err(ScanError::TooDeep(self.depth));
        }
        self.frames.push(Frame { object, first_key: self.keys.len(), set: None });
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.keys.truncate(frame.first_key);
        }
        self.at += 1;
    }

    /// A key with its colon, up to its value.
    fn key(&mut self) -> Result<(), ScanError> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.syntax());
        }
        let key = self.string()?;
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
        self.space();
        if self.bytes.get(self.at) != Some(&b':') {
            return Err(self.syntax());
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// A string that is a value: what it says is of no interest here.
    fn text(&mut self) -> Result<(), ScanError> {
        let mut at = self.ends.from(self.at + 1);
        loop {
            match self.bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at = at;
                    let (_, length) = self.escape(at)?;
                    at = self.ends.from(at + length);
                }
                _ => {
                    self.at = at;
                    return Err(self.syntax());
                }
            }
        }
    }

    /// The content of a string, without escapes where it has none.
    fn string(&mut self) -> Result<Cow<'a, str>, ScanError> {
        let start = self.at + 1;
        let at = self.ends.from(start);
        match self.bytes.get(at) {
            Some(b'"') => {
                self.at = at + 1;
                Ok(Cow::Borrowed(&self.text[start..at]))
            }
            Some(b'\\') => self.escaped(start, at),
            _ => {
                self.at = at;
                Err(self.syntax())
            }
        }
    }

    fn escaped(&mut self, start: usize, from: usize) -> Result<Cow<'a, str>, ScanError> {
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
                    let (c, length) = self.escape(at)?;
                    out.push(c);
                    at += length;
                    plain = at;
                }
                Some(0..0x20) | None => {
                    self.at = at;
                    return Err(self.syntax());
                }
                Some(_) => at += 1,
            }
        }
    }

    /// The character of an escape and its length.
    fn escape(&self, at: usize) -> Result<(char, usize), ScanError> {
        let c = match self.bytes.get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(at),
            _ => return Err(ScanError::Syntax(at)),
        };
        Ok((c, 2))
    }

    fn unicode(&self, at: usize) -> Result<(char, usize), ScanError> {
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

    fn word(&mut self, word: &str) -> Result<(), ScanError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.syntax());
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        let mut at = start + usize::from(self.bytes[start] == b'-');
        let digits =
            |from: usize| from + self.bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = digits(at);
        // No number starts with a zero that has more digits behind it.
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
        // Up to 300 digits cannot overflow; only the rare rest is worth a conversion.
        let risky = !plain || at - start > 300;
        if risky && !self.text[start..at].parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(ScanError::Number(start));
        }
        self.at = at;
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn syntax(&self) -> ScanError {
        ScanError::Syntax(self.at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn check(text: &str, expected: Result<(), ScanError>) {
        assert_eq!(scan(text.as_bytes(), Limits::default()), expected, "{}", &text[..text.len().min(80)]);
    }

    #[test]
    fn what_passes() {
        for text in [
            "{}",
            " [1, -0, 1.0, 1E2, 12345678901234567890123] ",
            r#"{"a":{"a":[]},"b":"\u00e9\ud83d\ude00"}"#,
        ] {
            check(text, Ok(()));
        }
    }

    #[test]
    fn what_readers_would_understand_differently() {
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
    fn limits() {
        check(&"[".repeat(100_000), Err(ScanError::TooDeep(64)));
        check(&format!("{}{}", "[".repeat(64), "]".repeat(64)), Ok(()));
        check(&format!("\"{}\"", "a".repeat(5 << 20)), Err(ScanError::TooLarge(4 << 20)));
        assert_eq!(scan(b"\"\xff\"", Limits::default()), Err(ScanError::Utf8(1)));
    }

    #[test]
    fn what_is_not_json() {
        for text in [
            "", "{", "[1,]", "{\"a\"}", "{a:1}", "01", "1.", "NaN", "nul", "\"\n\"", "[1}", "1 2", "\"\\x\"",
            "-",
        ] {
            assert!(
                matches!(scan(text.as_bytes(), Limits::default()), Err(ScanError::Syntax(_))),
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in r#"([\[\]{}:,0-9a\\"ue. -]|true|null){0,24}"#) {
            let ours = scan(text.as_bytes(), Limits::default());
            let theirs = serde_json::from_str::<Value>(&text).is_ok();
            match ours {
                Ok(()) => prop_assert!(theirs),
                Err(ScanError::DuplicateKey(_)) => {}
                Err(_) => prop_assert!(!theirs, "{:?}", ours),
            }
        }

        #[test]
        fn takes_what_serde_json_writes(value in any::<Vec<(String, f64, bool)>>()) {
            let text = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(scan(text.as_bytes(), Limits::default()), Ok(()));
        }
    }
}
