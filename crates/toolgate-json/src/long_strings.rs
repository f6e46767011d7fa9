//! The long strings of a scanned text: where they end, and how they are escaped.
//!
//! The scan reads every byte, so later passes skip the content of a long string instead of searching for its end again.
//! Invariant: places are addresses, so they hold for every slice of the same bytes and for no other text. They are
//! compared, never dereferenced.

use memchr::memmem;

/// Minimum length of a string that is listed.
pub(crate) const MIN_LENGTH: usize = 1 << 10;

/// Escape sequences in the raw form of a JSON string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StringEscapes {
    None,
    /// Only escapes that have no other spelling: `\n`, `\"`, `\\` and the like.
    Canonical,
    /// Also others: `\u0061`, `\/`.
    Other,
}

impl StringEscapes {
    /// The kind of an escape, by the byte after the backslash.
    pub fn of(byte: Option<u8>) -> Self {
        match byte {
            Some(b'n' | b'"' | b'\\' | b't' | b'r' | b'b' | b'f') => Self::Canonical,
            _ => Self::Other,
        }
    }
}

/// A long string.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongString {
    /// Address of the opening quote.
    pub(crate) start: usize,
    /// Address after the closing quote.
    pub(crate) end: usize,
    pub(crate) escapes: StringEscapes,
}

/// The long strings of a text, in order. Keys of objects are not listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct LongStrings<'a>(pub(crate) &'a [LongString]);

impl LongStrings<'_> {
    /// Returns the end of the string whose opening quote is at `at`, after its closing quote, and its escapes. `None` if
    /// it is not a long string.
    #[inline]
    pub fn find(&self, text: &str, at: usize) -> Option<(usize, StringEscapes)> {
        if self.0.is_empty() {
            return None;
        }
        let base = text.as_ptr().addr();
        let index = self.0.binary_search_by_key(&(base + at), |string| string.start).ok()?;
        let LongString { end, escapes, .. } = self.0[index];
        // The text may be a part of the string.
        (end <= base + text.len()).then(|| (end - base, escapes))
    }

    /// Returns true if a part of the text outside of long strings contains `needle`.
    pub(crate) fn rest_contains(&self, text: &str, needle: &str) -> bool {
        let (base, bytes) = (text.as_ptr().addr(), text.as_bytes());
        let contains = |part: &[u8]| memmem::find(part, needle.as_bytes()).is_some();
        let first = self.0.partition_point(|string| string.start < base);
        let mut from = 0;
        for string in self.0[first..].iter().take_while(|string| string.end <= base + text.len()) {
            if contains(&bytes[from..string.start - base]) {
                return true;
            }
            from = string.end - base;
        }
        contains(&bytes[from..])
    }
}
