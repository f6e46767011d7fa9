//! Finds what must not be shown in a line of text: known secrets, key shapes, `password: …`.
//!
//! This is the last thing that happens to a line before a person or a log sees it, so it works on
//! text, not on fields: nothing can be forgotten. Invariant: linear in the text, never panics,
//! and masking a masked line changes nothing.

use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;

use memchr::{memchr_iter, memchr2, memchr2_iter, memmem};
use regex::{Regex, RegexBuilder};
use serde::{Serialize, Serializer};

use crate::secret::{MASK, Secret};

mod look;

pub use look::may_hold_secret;

/// Known secrets shorter than this are not looked for: masking every `a` would hide the message.
const SHORTEST_KNOWN: usize = 4;

/// Words in a name that say its value is a secret.
const SECRET_WORDS: [&str; 21] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "apikey",
    "api_key",
    "access_key",
    "private_key",
    "authorization",
    "credential",
    "cookie",
    "bearer",
    "signature",
    "auth_key",
    "account_key",
    "accountkey",
    "subscription_key",
    "shared_key",
    "passcode",
];

/// Last words of a name that say so too. Inside of a name they mean something else: `compass`, `path`.
const SECRET_ENDS: [&str; 8] = ["auth", "key", "pass", "pat", "pin", "jwt", "otp", "sig"];
/// Names that end in a word of [`SECRET_ENDS`] and hold nothing to hide.
const INNOCENT_KEYS: [&str; 13] = [
    "public_key",
    "primary_key",
    "foreign_key",
    "sort_key",
    "partition_key",
    "idempotency_key",
    "cache_key",
    "group_key",
    "issue_key",
    "object_key",
    "project_key",
    "routing_key",
    "row_key",
];

/// Ends of names that hold a word of [`SECRET_WORDS`] and tell where a list goes on, how much was used, or
/// what something takes: `next_page_token`, `nextPageToken`, `token_count`. Without `_`, as some write them so.
const INNOCENT_ENDS: [&str; 18] = [
    "tokens",
    "pagetoken",
    "nexttoken",
    "continuationtoken",
    "continuetoken",
    "cursortoken",
    "resumetoken",
    "synctoken",
    "progresstoken",
    "tokencount",
    "tokentype",
    "tokenlimit",
    "tokenusage",
    "tokenbudget",
    "tokenizer",
    "functionsignature",
    "methodsignature",
    "typesignature",
];

/// Prefixes that providers give their keys, with the fewest characters that follow.
const KEY_SHAPES: [(&str, usize); 22] = [
    ("sk-", 16),
    ("sk_live_", 8),
    ("sk_test_", 8),
    ("rk_live_", 8),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghu_", 16),
    ("ghs_", 16),
    ("ghr_", 16),
    ("github_pat_", 16),
    ("glpat-", 12),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xoxa-", 8),
    ("xapp-", 8),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("eyJ", 20),
    ("npm_", 20),
    ("pypi-", 20),
    ("hf_", 16),
];

/// The fewest characters of a key of these shapes. Most words are shorter and need no closer look.
const SHORTEST_SHAPE: usize = {
    let mut shortest = usize::MAX;
    let mut index = 0;
    while index < KEY_SHAPES.len() {
        let length = KEY_SHAPES[index].0.len() + KEY_SHAPES[index].1;
        shortest = if length < shortest { length } else { shortest };
        index += 1;
    }
    shortest
};

/// Parts of the words of [`SECRET_WORDS`], at least one of each and such as few other names have.
const TELLING: [&str; 10] = ["oke", "ecr", "ass", "pwd", "key", "auth", "cred", "cook", "bear", "gnat"];

/// The places in all of [`TELLING`] together, a bit for each: where a letter stands, where parts begin and where they
/// end. Of a letter only its place in the alphabet counts, and other characters are taken for letters.
const PLACES: ([u64; 32], u64, u64) = {
    let (mut letters, mut first, mut last) = ([0; 32], 0, 0);
    let (mut bit, mut index) = (1_u64, 0);
    while index < TELLING.len() {
        let part = TELLING[index].as_bytes();
        first |= bit;
        let mut at = 0;
        while at < part.len() {
            letters[(part[at] & 31) as usize] |= bit;
            last |= if at + 1 == part.len() { bit } else { 0 };
            bit <<= 1;
            at += 1;
        }
        index += 1;
    }
    (letters, first, last)
};

/// Whether a key, header, flag or variable of this name usually holds a secret. Called for every name in what
/// is redacted, and most of them are seen to be innocent without a closer look.
pub fn looks_secret(name: &str) -> bool {
    let (letters, first, last) = &PLACES;
    let bytes = name.as_bytes();
    let (mut found, mut places) = (0, 0);
    for byte in bytes {
        // All places that the letters before this one lead to, and where this letter stands.
        places = (places << 1 | first) & letters[usize::from(byte & 31)];
        found |= places & last;
    }
    let ends = bytes.last_chunk::<3>().is_some_and(|[one, two, three]| {
        let end = [one | 0x20, two | 0x20, three | 0x20];
        matches!(&end, b"uth" | b"key" | b"ass" | b"pat" | b"pin" | b"jwt" | b"otp" | b"sig")
    });
    (ends || found != 0) && is_secret_name(name)
}

/// The closer look. It takes no memory for a name of usual length.
fn is_secret_name(name: &str) -> bool {
    let mut short = [0; 64];
    let mut long = Vec::new();
    let lower = match short.get_mut(..name.len()) {
        Some(short) => short,
        None => {
            long.resize(name.len(), 0);
            &mut long[..]
        }
    };
    for (lower, byte) in lower.iter_mut().zip(name.bytes()) {
        *lower = if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    }
    let name = &*lower;
    // The name of a variable that holds it, and who wrote something.
    if name.ends_with(b"_env_var") || name.starts_with(b"author_") {
        return false;
    }
    // What stands before an innocent end may still be the name of a secret. Each of them has a `k` or a `g`.
    let may_be = memchr2(b'k', b'g', name).is_some();
    let innocent = INNOCENT_ENDS.iter().filter(|_| may_be).find_map(|end| without_end(name, end));
    let name = innocent.unwrap_or(name);
    let ends = |end: &str| name.ends_with(end.as_bytes());
    let last = name.rsplit(|byte| *byte == b'_').next().unwrap_or_default();
    let ends_secret =
        SECRET_ENDS.iter().any(|end| end.as_bytes() == last) && !INNOCENT_KEYS.iter().any(|key| ends(key));
    let word_at = |at: usize| SECRET_WORDS.iter().any(|word| name[at..].starts_with(word.as_bytes()));
    ends_secret || (0..name.len()).any(word_at)
}

/// A name without its end, where it has that end; the `_` in the name do not count.
fn without_end<'a>(name: &'a [u8], end: &str) -> Option<&'a [u8]> {
    let mut rest = name;
    for wanted in end.bytes().rev() {
        while let [before @ .., b'_'] = rest {
            rest = before;
        }
        rest = rest.strip_suffix(&[wanted])?;
    }
    Some(rest)
}

/// The longest pattern, in bytes.
const LONGEST_PATTERN: usize = 1_000;
/// The compiled size of one pattern.
const LARGEST_PATTERN: usize = 1 << 20;

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is too long.
    #[error("a pattern has at most {LONGEST_PATTERN} bytes")]
    TooLong,
    /// It would be everywhere.
    #[error("it fits the empty text, so it would be everywhere; ask for at least one character")]
    Empty,
    /// It cannot be read, or matched in linear time and little memory.
    #[error("{0}")]
    Malformed(String),
}

/// A shape of secrets of one's own: a regular expression that is matched in linear time.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > LONGEST_PATTERN {
            return Err(PatternError::TooLong);
        }
        let built =
            RegexBuilder::new(text).size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN).build();
        // The last line says what is wrong; the ones before point at it, which takes a page of its own.
        let wrong = |error: regex::Error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            PatternError::Malformed(last.strip_prefix("error: ").unwrap_or(last).to_owned())
        };
        let regex = built.map_err(wrong)?;
        if regex.is_match("") { Err(PatternError::Empty) } else { Ok(Self(regex)) }
    }
}

impl Pattern {
    /// Whether it fits a part of a text.
    pub fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

/// What is looked for beside the shapes that everybody's secrets have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sought<'a> {
    /// Secrets that are known.
    pub known: &'a [Secret],
    /// Some more of them.
    pub more: &'a [Secret],
    /// Shapes of one's own.
    pub patterns: &'a [Pattern],
}

/// The text with `***` in the place of everything that is looked for.
pub fn mask_sought<'t>(text: &'t str, sought: Sought<'_>) -> Cow<'t, str> {
    let mut ranges = secret_ranges(text, sought.known);
    known_values(text, sought.more, &mut ranges);
    for Pattern(regex) in sought.patterns {
        ranges.extend(regex.find_iter(text).map(|found| found.range()));
    }
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(masked(text, &merge(ranges)))
}

/// The text on one line, with a dot for every character that a terminal would obey or hide: escapes,
/// changes of direction, marks of no width.
pub fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_unseen(c) => '·',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Whether a terminal obeys or hides the character.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with `***` in the place of everything that must not be shown.
pub fn mask(text: &str, known: &[Secret]) -> String {
    masked(text, &secret_ranges(text, known))
}

/// The text with `***` in the place of known secrets alone, for texts of our own making.
pub fn mask_known(text: &str, known: &[Secret]) -> String {
    let mut ranges = Vec::new();
    known_values(text, known, &mut ranges);
    masked(text, &merge(ranges))
}

fn masked(text: &str, ranges: &[Range<usize>]) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut end = 0;
    for range in ranges {
        masked.push_str(&text[end..range.start]);
        masked.push_str(MASK);
        end = range.end;
    }
    masked.push_str(&text[end..]);
    masked
}

/// Where the secrets are: in order, without overlap, on character boundaries.
pub fn secret_ranges(text: &str, known: &[Secret]) -> Vec<Range<usize>> {
    if may_hold_secret(text) {
        return ranges(text, known, looks_secret);
    }
    let mut ranges = Vec::new();
    known_values(text, known, &mut ranges);
    merge(ranges)
}

/// The same for a line of a configuration, where `NAME: value` in capitals sets a variable of a program.
/// What such a variable is for is anybody's guess, so none is shown.
pub fn secret_ranges_of_line(line: &str, known: &[Secret]) -> Vec<Range<usize>> {
    let is_variable = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    ranges(line, known, |name| looks_secret(name) || is_variable(name))
}

fn ranges(text: &str, known: &[Secret], is_secret: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    known_values(text, known, &mut ranges);
    key_shapes(text, &mut ranges);
    after_scheme(text, &mut ranges);
    user_info(text, &mut ranges);
    flag_values(text, &mut ranges);
    for line in lines(text) {
        assignments(text, line, &is_secret, &mut ranges);
    }
    merge(ranges)
}

fn lines(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let range = start..start + line.len();
        start = range.end;
        range
    })
}

/// What is known to be a secret, wherever it turns up.
fn known_values(text: &str, known: &[Secret], ranges: &mut Vec<Range<usize>>) {
    for secret in known {
        let value = secret.expose();
        if value.len() >= SHORTEST_KNOWN {
            ranges.extend(occurrences(text, value).map(|start| start..start + value.len()));
        }
    }
}

/// Texts of fewer bytes are looked through byte by byte: a table for the search would cost more than it saves.
const SHORT: usize = 512;

/// Whether a text is part of another.
pub fn holds(text: &str, part: &str) -> bool {
    occurrences(text, part).next().is_some()
}

/// Where a text stands in another; places may overlap.
fn occurrences<'t>(text: &'t str, part: &'t str) -> impl Iterator<Item = usize> + 't {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let short = text.len() < SHORT;
    let first = part.first().copied().unwrap_or_default();
    let near = memchr_iter(first, if short { text } else { &[] }).filter(|at| text[*at..].starts_with(part));
    let far = (!short).then(|| memmem::find_iter(text, part)).into_iter().flatten();
    near.chain(far)
}

/// Whether a byte can be part of a key.
const PART_OF_KEY: [bool; 256] = {
    let mut part = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let ascii = byte as u8;
        part[byte] = ascii.is_ascii_alphanumeric() || matches!(ascii, b'_' | b'-' | b'.');
        byte += 1;
    }
    part
};

/// `sk-…`, `ghp_…`, a JWT.
fn key_shapes(text: &str, ranges: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| PART_OF_KEY[usize::from(*byte)];
    let mut start = 0;
    // The shortest key that begins here would end there: where it does not, most bytes between need no look.
    while let Some(shortest) = bytes.get(start..start + SHORTEST_SHAPE) {
        if let Some(last) = shortest.iter().rposition(|byte| !is_part(byte)) {
            start += last + 1;
            continue;
        }
        let rest = &bytes[start + SHORTEST_SHAPE..];
        let end = start + SHORTEST_SHAPE + rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let key = &bytes[start..end];
        let shaped = |(prefix, rest): &(&str, usize)| {
            key.starts_with(prefix.as_bytes()) && key.len() >= prefix.len() + rest
        };
        if KEY_SHAPES.iter().any(shaped) {
            ranges.push(start..end);
        }
        start = end + 1;
    }
}

/// The credential after `Bearer` or `Basic`.
fn after_scheme(text: &str, ranges: &mut Vec<Range<usize>>) {
    // Found by the space at its end, which is rarer than any letter of it.
    for space in memchr_iter(b' ', text.as_bytes()) {
        let before = &text.as_bytes()[..space];
        let is_after = |scheme: &str| {
            let from = before.len().checked_sub(scheme.len());
            from.is_some_and(|from| before[from..].eq_ignore_ascii_case(scheme.as_bytes()))
        };
        if !matches!(before.last(), Some(b'r' | b'R' | b'c' | b'C'))
            || !["bearer", "basic"].into_iter().any(is_after)
        {
            continue;
        }
        let start = space + 1;
        let end = value_end(text, start, |c| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '}' | ']'));
        // `Bearer ${TOKEN}` names a secret and holds none; a short word is English.
        if end - start >= 8 {
            literals(text, start..end, ranges);
        }
    }
}

/// The password in `https://user:password@host`.
fn user_info(text: &str, ranges: &mut Vec<Range<usize>>) {
    for at in memchr_iter(b':', text.as_bytes()).filter(|at| text[*at..].starts_with("://")) {
        let start = at + 3;
        let end = value_end(text, start, |c| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\''));
        if let Some(host) = text[start..end].rfind('@') {
            let colon = text[start..start + host].find(':').map_or(start, |colon| start + colon + 1);
            literals(text, colon..start + host, ranges);
        }
    }
}

/// The word after `--token`, in a command line or a list of arguments.
fn flag_values(text: &str, ranges: &mut Vec<Range<usize>>) {
    let mut end = 0;
    for at in memchr_iter(b'-', text.as_bytes()).filter(|at| text[*at..].starts_with("--")) {
        // Inside of a name, or of a line of dashes: looked at already, and every time would be too often.
        if at < end {
            continue;
        }
        let name = at + 2;
        end = value_end(text, name, |c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
        let between = value_end(text, end, |c| !matches!(c, ' ' | ',' | '"' | '\'' | '='));
        if between > end && !text[between..].starts_with('-') && looks_secret(&text[name..end]) {
            end = unquoted_end(text, between, |c| {
                c.is_whitespace() || matches!(c, ',' | '"' | '\'' | ']' | '}')
            });
            literals(text, between..end, ranges);
        }
    }
}

/// The value in `api_key: value`, `"token": "value"`, `--password=value`, `?apiKey=value`.
fn assignments(
    text: &str,
    line: Range<usize>,
    is_secret: &impl Fn(&str) -> bool,
    ranges: &mut Vec<Range<usize>>,
) {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let mut masked = line.start;
    for at in memchr2_iter(b':', b'=', &text.as_bytes()[line.clone()]) {
        let at = line.start + at;
        // What is masked already says nothing more, and `token=token=…` would be read to its end each time.
        if at < masked {
            continue;
        }
        let before = text[line.start..at].trim_end().trim_end_matches(['"', '\'']);
        let name = &before[before.as_bytes().iter().rposition(|byte| !is_name(byte)).map_or(0, |i| i + 1)..];
        if !is_secret(name) {
            continue;
        }
        // `${TOKEN:-…}` names a secret and holds none.
        if before[..before.len() - name.len()].ends_with("${") {
            continue;
        }
        let sign = &text[at..=at];
        let after = &text[at + sign.len()..line.end];
        let mut start = at + sign.len() + (after.len() - after.trim_start().len());
        if start >= line.end || text[start..].starts_with("//") {
            continue;
        }
        let quote = text[start..].chars().next().filter(|c| matches!(c, '"' | '\''));
        start += usize::from(quote.is_some());
        // The scheme in `Authorization: Bearer …` is no secret; what follows it is.
        let scheme = ["bearer ", "basic "].into_iter().find(|scheme| starts_with(&text[start..], scheme));
        start += scheme.map_or(0, str::len);
        let alone =
            before[..before.len() - name.len()].trim_start_matches([' ', '\t', '-', '"', '\'']).is_empty();
        let end = match quote {
            Some(quote) => quote_end(text, start, quote),
            // A line of YAML or of `.env`: spaces and commas are part of the value.
            None if alone => start + text[start..line.end].trim_end().len(),
            None if sign == ":" => unquoted_end(text, start, |c| matches!(c, ',' | '}' | ']' | '"' | '`')),
            None => unquoted_end(text, start, |c| {
                c.is_whitespace() || matches!(c, ',' | '}' | ']' | '&' | '"' | '\'' | '`')
            }),
        };
        let end = start + text[start..end].trim_end().len();
        if !matches!(&text[start..end], "{" | "[" | "|" | ">" | "null" | "~") {
            literals(text, start..end, ranges);
        }
        masked = end;
    }
}

/// The parts of a text that are written out: what is left without `${NAME}`, defaults included.
pub fn literal_parts(text: &str) -> Vec<&str> {
    let mut ranges = Vec::new();
    literals(text, 0..text.len(), &mut ranges);
    ranges.into_iter().map(|range| &text[range]).collect()
}

/// The parts of a value that are written out. `${TOKEN}` names a secret and holds none, but the rest of
/// `${TOKEN:-abc}` and of `abc${TOKEN}` may be one.
fn literals(text: &str, value: Range<usize>, ranges: &mut Vec<Range<usize>>) {
    let mut start = value.start;
    let mut open = 0_usize;
    let mut push = |range: Range<usize>| {
        let part = &text[range.clone()];
        // `default` is our own word, in hints; what begins with a mask was masked before.
        if !part.is_empty() && part != "default" && !part.starts_with(MASK) {
            ranges.push(range);
        }
    };
    while start < value.end {
        let rest = &text[start..value.end];
        if let Some(reference) = rest.strip_prefix("${") {
            let name =
                reference.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(reference.len());
            let after = &reference[name..];
            // `${env:NAME}` and `${input:id}` are names through and through.
            let skipped = if after.starts_with(":-") {
                2
            } else {
                let part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
                after.find(|c: char| !part_of_name(c)).unwrap_or(after.len())
            };
            start += 2 + name + skipped;
            open += 1;
        } else if open > 0 && rest.starts_with('}') {
            open -= 1;
            start += 1;
        } else {
            let ends = |(at, c): &(usize, char)| (*c == '}' && open > 0) || rest[*at..].starts_with("${");
            let end = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
            push(start..start + end);
            start += end;
        }
    }
}

/// The end of what is quoted; a `\\"` inside of double quotes does not end it.
fn quote_end(text: &str, start: usize, quote: char) -> usize {
    let mut escaped = false;
    let ends = |c: char| {
        let end = !escaped && c == quote || c == '\n';
        escaped = !escaped && quote == '"' && c == '\\';
        end
    };
    text[start..].find(ends).map_or(text.len(), |length| start + length)
}

/// The end of a value without quotes, on its line. The `}` of a `${NAME}` in it does not end it.
fn unquoted_end(text: &str, start: usize, stops: impl Fn(char) -> bool) -> usize {
    let rest = &text[start..];
    let mut open = 0_usize;
    for (at, c) in rest.char_indices() {
        if c == '$' && rest[at..].starts_with("${") {
            open += 1;
        } else if c == '}' && open > 0 {
            open -= 1;
        } else if c == '\n' || (open == 0 && stops(c)) {
            return start + at;
        }
    }
    text.len()
}

fn value_end(text: &str, start: usize, stops: impl Fn(char) -> bool) -> usize {
    text[start..].find(stops).map_or(text.len(), |length| start + length)
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn merge(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(mask(text, &[]), expected);
    }

    #[test]
    fn twelve_kinds_of_secret() {
        check("api_key: abcdef", "api_key: ***");
        check(r#""GITHUB_TOKEN": "abc def","#, r#""GITHUB_TOKEN": "***","#);
        check("args: [--password=hunter2]", "args: [--password=***]");
        check("https://x.test/mcp?apiKey=12345&a=b", "https://x.test/mcp?apiKey=***&a=b");
        check("https://ann:hunter2@x.test/", "https://ann:***@x.test/");
        check("Authorization: Bearer abcdefghij", "Authorization: Bearer ***");
        check("X-Note: bearer abcdefghij", "X-Note: bearer ***");
        check("saw sk-abcdefghijklmnop1234 there", "saw *** there");
        check("ghp_abcdefghijklmnop1234", "***");
        check("AKIAABCDEFGHIJKLMNOP", "***");
        check("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "***");
        check("DB_PASSWORD=hunter2", "DB_PASSWORD=***");
        check(r#""args": ["--token", "abc", "-v"]"#, r#""args": ["--token", "***", "-v"]"#);
        check("args: [--api-key, abc, 8080]", "args: [--api-key, ***, 8080]");
    }

    #[test]
    fn the_whole_value_and_nothing_else() {
        check("password: correct horse, battery", "password: ***");
        check("- api_key: a b # why", "- api_key: ***");
        check("{ password: correct horse, mode: strict }", "{ password: ***, mode: strict }");
        check(r#"{"password": "a\"b", "mode": 1}"#, r#"{"password": "***", "mode": 1}"#);
        check("DB_PASS=a GITHUB_PAT=b", "DB_PASS=***");
        check("x DB_PASS=a SORT_KEY=b", "x DB_PASS=*** SORT_KEY=b");
        check("`https://x.test/?key=a` is not it", "`https://x.test/?key=***` is not it");
        check("token: abc${A}def", "token: ***${A}***");
        check("token: ${A:-abc}", "token: ${A:-***}");
        check("token: ${A:-${B:-abc}}", "token: ${A:-${B:-***}}");
        check("token: ${input:key}", "token: ${input:key}");
        check("https://ann:${A}@x.test/", "https://ann:${A}@x.test/");
        check("--token ${A} --key=${B}c", "--token ${A} --key=${B}***");
        check("bearer ${A:-abcdefgh}", "bearer ${A:-***}");
    }

    #[test]
    fn what_stays() {
        for text in [
            "api_key: ${API_KEY}",
            "Authorization: Bearer ${TOKEN}",
            "max_tokens: 1000",
            "author: Ann",
            "timeout: 30s",
            "bearer_token_env_var = \"MY_TOKEN\"",
            "secret:",
            "write `${TOKEN:-default}`",
            "--token --verbose",
            "url: https://example.test/mcp",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn what_a_terminal_would_obey() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\u{200b}d\ne\tf ä €"), "a·[2Jb·c·d e f ä €");
    }

    #[test]
    fn known_values_anywhere() {
        assert_eq!(mask("saw hunter22 here", &[Secret::new("hunter22")]), "saw *** here");
        assert_eq!(mask("a cat", &[Secret::new("a")]), "a cat");
    }

    /// Dashes and `token=` once took minutes here: time that grew with the square of the length.
    #[test]
    fn a_long_line_takes_no_longer_than_it_should() {
        for part in ["-", "--a", "token=", "token: ", "://", "= "] {
            let text = part.repeat((1 << 18) / part.len());
            assert!(!mask(&text, &[]).is_empty());
        }
    }

    /// What [`looks_secret`] means, said in the shortest way.
    fn plainly_secret(name: &str) -> bool {
        let name = name.to_ascii_lowercase().replace('-', "_");
        if name.ends_with("_env_var") || name.starts_with("author_") {
            return false;
        }
        // The shortest beginning whose rest is an innocent end.
        let innocent = |at: &usize| INNOCENT_ENDS.contains(&name[*at..].replace('_', "").as_str());
        let ends: Vec<_> = name.char_indices().map(|(at, _)| at).filter(innocent).collect();
        let name = ends.last().map_or(name.as_str(), |at| &name[..*at]);
        let last = name.rsplit('_').next().unwrap_or_default();
        let ends_secret = SECRET_ENDS.contains(&last) && !INNOCENT_KEYS.iter().any(|key| name.ends_with(key));
        ends_secret || SECRET_WORDS.iter().any(|word| name.contains(word))
    }

    #[test]
    fn names_that_only_sound_so() {
        for name in [
            "next_page_token",
            "nextPageToken",
            "pageToken",
            "NextToken",
            "continuation-token",
            "progressToken",
            "max_tokens",
            "token_count",
            "tokenType",
            "tokenizer",
            "cache_key",
            "issue_key",
            "function_signature",
            "bearer_token_env_var",
            "author_name",
        ] {
            assert!(!looks_secret(name), "{name}");
        }
        for name in [
            "token",
            "access_token",
            "accessToken",
            "session_token",
            "csrf-token",
            "password_page_token",
            "secret_token_count",
            "x-api-key",
            "OPENAI_KEY",
            "signature",
            "webhook_signature",
        ] {
            assert!(looks_secret(name), "{name}");
        }
    }

    #[test]
    fn patterns_of_ones_own() {
        let patterns = ["ACME-[0-9]{6}", "(?i)patient [a-z]+"].map(|text| text.parse().unwrap());
        let known = [Secret::new("hunter22")];
        let sought = Sought { known: &known, more: &[Secret::new("swordfish")], patterns: &patterns };
        assert_eq!(
            mask_sought("ACME-123456, Patient Smith, hunter22, swordfish, ACME-1", sought),
            "***, ***, ***, ***, ACME-1"
        );
    }

    #[test]
    fn what_is_no_pattern() {
        let wrong = |text: &str| text.parse::<Pattern>().unwrap_err().to_string();
        assert_eq!(wrong("a("), "unclosed group");
        assert_eq!(wrong("a*"), PatternError::Empty.to_string());
        assert_eq!(wrong(""), PatternError::Empty.to_string());
        assert_eq!(wrong(&"a".repeat(1_001)), PatternError::TooLong.to_string());
        assert!(wrong(r"(\w+)\1").contains("backreferences are not supported"));
        assert!(wrong("a{1000}{1000}").contains("size limit"), "{}", wrong("a{1000}{1000}"));
    }

    #[test]
    fn names_of_secrets() {
        for word in SECRET_WORDS.into_iter().chain(SECRET_ENDS).chain(INNOCENT_KEYS).chain(INNOCENT_ENDS) {
            for name in [word.to_owned(), format!("My-{word}"), format!("{word}_x"), format!("author_{word}")]
            {
                for name in [name.clone(), name.to_uppercase(), format!("{}{name}", "x".repeat(70))] {
                    assert_eq!(looks_secret(&name), plainly_secret(&name), "{name}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_as_it_is_said(name in "(token|KEY|auth|or|_|-|pass|word|ä|x{0,40}|s|env_var|api|public|next|page|Count){0,6}") {
            prop_assert_eq!(looks_secret(&name), plainly_secret(&name));
        }

        #[test]
        fn masking_twice_changes_nothing(text in "(\\PC|\n|token: |Bearer |://|sk-){0,60}", known in "[a-z]{4,8}") {
            let known = [Secret::new(known)];
            let once = mask(&text, &known);
            prop_assert_eq!(mask(&once, &known), once);
        }
    }
}
