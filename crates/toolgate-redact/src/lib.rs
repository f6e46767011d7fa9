//! Redacts secrets in text: known values, strings with the shape of a key, `password: …`.
//!
//! This is the last step before a person or a log sees a line, so it works on text, not on fields: no field can be
//! forgotten. Invariant: linear in the text, never panics, and idempotent.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr_iter, memchr2, memchr2_iter, memmem};

use toolgate_types::secret::MASK;
use toolgate_types::{Secret, SecretPattern};

mod prefilter;
pub mod sanitize;

pub use prefilter::may_contain_secret;

/// Known secrets shorter than this are ignored: masking every `a` would make the message unreadable.
const MIN_KNOWN_LENGTH: usize = 4;

/// Words that mark a name as that of a secret, anywhere in the name.
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

/// Words that do so at the end of a name only. Elsewhere they mean something else: `compass`, `path`.
const SECRET_SUFFIXES: [&str; 8] = ["auth", "key", "pass", "pat", "pin", "jwt", "otp", "sig"];
/// Names that end in one of [`SECRET_SUFFIXES`] but hold no secret.
const HARMLESS_KEYS: [&str; 13] = [
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

/// Endings of names that contain one of [`SECRET_WORDS`] but hold a cursor, a count or a type: `next_page_token`,
/// `nextPageToken`, `token_count`. Written without `_`, since names may be in camel case.
const HARMLESS_SUFFIXES: [&str; 18] = [
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

/// Key prefixes of well-known providers, with the minimum number of characters that follow.
const KEY_PREFIXES: [(&str, usize); 22] = [
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

/// Minimum length of a key with one of these prefixes. Most words are shorter, which rules them out at once.
const MIN_KEY_LENGTH: usize = {
    let mut shortest = usize::MAX;
    let mut index = 0;
    while index < KEY_PREFIXES.len() {
        let length = KEY_PREFIXES[index].0.len() + KEY_PREFIXES[index].1;
        shortest = if length < shortest { length } else { shortest };
        index += 1;
    }
    shortest
};

/// Fragments of [`SECRET_WORDS`]: every word contains one of them, few other names do.
const WORD_FRAGMENTS: [&str; 10] =
    ["oke", "ecr", "ass", "pwd", "key", "auth", "cred", "cook", "bear", "gnat"];

/// Bit-parallel (Shift-And) automaton of all [`WORD_FRAGMENTS`]: a mask per letter, the first bits and the last bits of
/// the fragments. Only the low five bits of a byte count, so case is ignored and other characters alias letters.
const FRAGMENT_BITS: ([u64; 32], u64, u64) = {
    let (mut letters, mut first, mut last) = ([0; 32], 0, 0);
    let (mut bit, mut index) = (1_u64, 0);
    while index < WORD_FRAGMENTS.len() {
        let part = WORD_FRAGMENTS[index].as_bytes();
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

/// Returns true if a key, header, flag or variable of this name usually holds a secret. Called for every name in
/// redacted text, so most names are ruled out by a cheap prefilter.
pub fn looks_secret(name: &str) -> bool {
    let (letters, first, last) = &FRAGMENT_BITS;
    let bytes = name.as_bytes();
    let (mut found, mut state) = (0, 0);
    for byte in bytes {
        // Advance all partial matches by one letter, start new ones, and drop those that this letter does not continue.
        state = (state << 1 | first) & letters[usize::from(byte & 31)];
        found |= state & last;
    }
    let ends = bytes.last_chunk::<3>().is_some_and(|[one, two, three]| {
        let end = [one | 0x20, two | 0x20, three | 0x20];
        matches!(&end, b"uth" | b"key" | b"ass" | b"pat" | b"pin" | b"jwt" | b"otp" | b"sig")
    });
    (ends || found != 0) && check_secret_name(name)
}

/// Exact check behind the prefilter. Allocates only for names longer than 64 bytes.
fn check_secret_name(name: &str) -> bool {
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
    // `…_ENV_VAR` holds the name of a variable, `author_…` data about a person.
    if name.ends_with(b"_env_var") || name.starts_with(b"author_") {
        return false;
    }
    // The part before a harmless suffix may still name a secret. Every harmless suffix has a `k` or a `g`.
    let may_match = memchr2(b'k', b'g', name).is_some();
    let stripped = HARMLESS_SUFFIXES.iter().filter(|_| may_match).find_map(|end| strip_suffix(name, end));
    let name = stripped.unwrap_or(name);
    let ends = |end: &str| name.ends_with(end.as_bytes());
    let last = name.rsplit(|byte| *byte == b'_').next().unwrap_or_default();
    let ends_secret = SECRET_SUFFIXES.iter().any(|end| end.as_bytes() == last)
        && !HARMLESS_KEYS.iter().any(|key| ends(key));
    let word_at = |at: usize| SECRET_WORDS.iter().any(|word| name[at..].starts_with(word.as_bytes()));
    ends_secret || (0..name.len()).any(word_at)
}

/// Strips a suffix from a name, ignoring every `_` in the name. `None` if the name does not end in it.
fn strip_suffix<'a>(name: &'a [u8], end: &str) -> Option<&'a [u8]> {
    let mut rest = name;
    for wanted in end.bytes().rev() {
        while let [before @ .., b'_'] = rest {
            rest = before;
        }
        rest = rest.strip_suffix(&[wanted])?;
    }
    Some(rest)
}

/// Secrets to redact, besides strings with the shape of a key.
#[derive(Debug, Clone, Copy, Default)]
pub struct SecretSources<'a> {
    /// Known secrets.
    pub known: &'a [Secret],
    /// More known secrets, from another source.
    pub more: &'a [Secret],
    /// User-defined patterns.
    pub patterns: &'a [SecretPattern],
}

/// Replaces every secret with `***`: known values, user-defined patterns and well-known shapes.
pub fn mask_all<'t>(text: &'t str, sources: SecretSources<'_>) -> Cow<'t, str> {
    let mut ranges = secret_ranges(text, sources.known);
    find_known(text, sources.more, &mut ranges);
    for pattern in sources.patterns {
        ranges.extend(pattern.find_in(text));
    }
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(apply_mask(text, &merge_ranges(ranges)))
}

/// Returns the text on one line, with a dot for every character that a terminal would interpret or hide: escapes,
/// direction changes, zero-width characters.
pub fn printable(text: &str) -> String {
    let replace = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_unprintable(c) => '·',
        c => c,
    };
    text.chars().map(replace).collect()
}

/// Returns true if a terminal interprets or hides the character.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Replaces known secrets and strings with the shape of a secret with `***`.
pub fn mask(text: &str, known: &[Secret]) -> String {
    apply_mask(text, &secret_ranges(text, known))
}

/// Replaces only known secrets with `***`, for text of our own.
pub fn mask_known(text: &str, known: &[Secret]) -> String {
    let mut ranges = Vec::new();
    find_known(text, known, &mut ranges);
    apply_mask(text, &merge_ranges(ranges))
}

fn apply_mask(text: &str, ranges: &[Range<usize>]) -> String {
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

/// Returns the ranges of secrets: in order, without overlap, on character boundaries.
pub fn secret_ranges(text: &str, known: &[Secret]) -> Vec<Range<usize>> {
    if may_contain_secret(text) {
        return find_ranges(text, known, looks_secret);
    }
    let mut ranges = Vec::new();
    find_known(text, known, &mut ranges);
    merge_ranges(ranges)
}

/// Like [`secret_ranges`], for a line of a configuration, where `NAME: value` in capitals sets an environment variable.
/// Any such variable may be a secret, so none is shown.
pub fn secret_ranges_of_line(line: &str, known: &[Secret]) -> Vec<Range<usize>> {
    let is_variable = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    find_ranges(line, known, |name| looks_secret(name) || is_variable(name))
}

fn find_ranges(text: &str, known: &[Secret], is_secret: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    find_known(text, known, &mut ranges);
    find_keys(text, &mut ranges);
    find_scheme_credentials(text, &mut ranges);
    find_user_info(text, &mut ranges);
    find_flag_values(text, &mut ranges);
    for line in line_ranges(text) {
        find_assignments(text, line, &is_secret, &mut ranges);
    }
    merge_ranges(ranges)
}

fn line_ranges(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let range = start..start + line.len();
        start = range.end;
        range
    })
}

/// Finds known secrets.
fn find_known(text: &str, known: &[Secret], ranges: &mut Vec<Range<usize>>) {
    for secret in known {
        let value = secret.expose();
        if value.len() >= MIN_KNOWN_LENGTH {
            ranges.extend(occurrences(text, value).map(|start| start..start + value.len()));
        }
    }
}

/// Texts shorter than this are searched byte by byte: building a search table would cost more than it saves.
const SHORT_TEXT: usize = 512;

/// Returns true if `text` contains `part`.
pub fn contains(text: &str, part: &str) -> bool {
    occurrences(text, part).next().is_some()
}

/// Returns the positions of `part` in `text`; short texts may yield overlapping ones.
fn occurrences<'t>(text: &'t str, part: &'t str) -> impl Iterator<Item = usize> + 't {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let short = text.len() < SHORT_TEXT;
    let first = part.first().copied().unwrap_or_default();
    let near = memchr_iter(first, if short { text } else { &[] }).filter(|at| text[*at..].starts_with(part));
    let far = (!short).then(|| memmem::find_iter(text, part)).into_iter().flatten();
    near.chain(far)
}

/// True for bytes that can be part of a key.
const IS_KEY_BYTE: [bool; 256] = {
    let mut part = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let ascii = byte as u8;
        part[byte] = ascii.is_ascii_alphanumeric() || matches!(ascii, b'_' | b'-' | b'.');
        byte += 1;
    }
    part
};

/// Finds keys by their prefix: `sk-…`, `ghp_…`, a JWT.
fn find_keys(text: &str, ranges: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| IS_KEY_BYTE[usize::from(*byte)];
    let mut start = 0;
    // The shortest possible key at `start` ends within this slice. A byte in it that cannot be part of a key rules out
    // every start before that byte.
    while let Some(shortest) = bytes.get(start..start + MIN_KEY_LENGTH) {
        if let Some(last) = shortest.iter().rposition(|byte| !is_part(byte)) {
            start += last + 1;
            continue;
        }
        let rest = &bytes[start + MIN_KEY_LENGTH..];
        let end = start + MIN_KEY_LENGTH + rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let key = &bytes[start..end];
        let shaped = |(prefix, rest): &(&str, usize)| {
            key.starts_with(prefix.as_bytes()) && key.len() >= prefix.len() + rest
        };
        if KEY_PREFIXES.iter().any(shaped) {
            ranges.push(start..end);
        }
        start = end + 1;
    }
}

/// Finds the credential after `Bearer` or `Basic`.
fn find_scheme_credentials(text: &str, ranges: &mut Vec<Range<usize>>) {
    // Search for the space after the scheme, which is rarer than any of its letters.
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
        // `Bearer ${TOKEN}` contains no secret; a short word is prose.
        if end - start >= 8 {
            push_literals(text, start..end, ranges);
        }
    }
}

/// Finds the password in `https://user:password@host`.
fn find_user_info(text: &str, ranges: &mut Vec<Range<usize>>) {
    for at in memchr_iter(b':', text.as_bytes()).filter(|at| text[*at..].starts_with("://")) {
        let start = at + 3;
        let end = value_end(text, start, |c| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\''));
        if let Some(host) = text[start..end].rfind('@') {
            let colon = text[start..start + host].find(':').map_or(start, |colon| start + colon + 1);
            push_literals(text, colon..start + host, ranges);
        }
    }
}

/// Finds the value after `--token`, in a command line or a list of arguments.
fn find_flag_values(text: &str, ranges: &mut Vec<Range<usize>>) {
    let mut end = 0;
    for at in memchr_iter(b'-', text.as_bytes()).filter(|at| text[*at..].starts_with("--")) {
        // Inside of a name or a run of dashes: already checked. Checking again would take quadratic time.
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
            push_literals(text, between..end, ranges);
        }
    }
}

/// Finds the value in `api_key: value`, `"token": "value"`, `--password=value`, `?apiKey=value`.
fn find_assignments(
    text: &str,
    line: Range<usize>,
    is_secret: &impl Fn(&str) -> bool,
    ranges: &mut Vec<Range<usize>>,
) {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let mut masked = line.start;
    for at in memchr2_iter(b':', b'=', &text.as_bytes()[line.clone()]) {
        let at = line.start + at;
        // Skip text that is masked already; rescanning `token=token=…` each time would take quadratic time.
        if at < masked {
            continue;
        }
        let before = text[line.start..at].trim_end().trim_end_matches(['"', '\'']);
        let name = &before[before.as_bytes().iter().rposition(|byte| !is_name(byte)).map_or(0, |i| i + 1)..];
        if !is_secret(name) {
            continue;
        }
        // `${TOKEN:-…}` refers to a secret but contains none.
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
        // The scheme in `Authorization: Bearer …` is not secret; the credential after it is.
        let scheme =
            ["bearer ", "basic "].into_iter().find(|scheme| starts_with_ignore_case(&text[start..], scheme));
        start += scheme.map_or(0, str::len);
        let alone =
            before[..before.len() - name.len()].trim_start_matches([' ', '\t', '-', '"', '\'']).is_empty();
        let end = match quote {
            Some(quote) => quote_end(text, start, quote),
            // A line of YAML or of a `.env` file: spaces and commas are part of the value.
            None if alone => start + text[start..line.end].trim_end().len(),
            None if sign == ":" => unquoted_end(text, start, |c| matches!(c, ',' | '}' | ']' | '"' | '`')),
            None => unquoted_end(text, start, |c| {
                c.is_whitespace() || matches!(c, ',' | '}' | ']' | '&' | '"' | '\'' | '`')
            }),
        };
        let end = start + text[start..end].trim_end().len();
        if !matches!(&text[start..end], "{" | "[" | "|" | ">" | "null" | "~") {
            push_literals(text, start..end, ranges);
        }
        masked = end;
    }
}

/// Returns the literal parts of a text: everything but `${NAME}`, with defaults included.
pub fn literal_parts(text: &str) -> Vec<&str> {
    let mut ranges = Vec::new();
    push_literals(text, 0..text.len(), &mut ranges);
    ranges.into_iter().map(|range| &text[range]).collect()
}

/// Adds the literal parts of a value. `${TOKEN}` refers to a secret and contains none, but the rest of `${TOKEN:-abc}`
/// and of `abc${TOKEN}` may be one.
fn push_literals(text: &str, value: Range<usize>, ranges: &mut Vec<Range<usize>>) {
    let mut start = value.start;
    let mut open = 0_usize;
    let mut push = |range: Range<usize>| {
        let part = &text[range.clone()];
        // `default` is a placeholder in our own hints; a part that starts with the mask is masked already.
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
            // `${env:NAME}` and `${input:id}` contain names only.
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

/// Returns the end of a quoted value. In double quotes, `\"` does not end it.
fn quote_end(text: &str, start: usize, quote: char) -> usize {
    let mut escaped = false;
    let ends = |c: char| {
        let end = !escaped && c == quote || c == '\n';
        escaped = !escaped && quote == '"' && c == '\\';
        end
    };
    text[start..].find(ends).map_or(text.len(), |length| start + length)
}

/// Returns the end of an unquoted value, on its line. The `}` of a `${NAME}` in it does not end it.
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

fn starts_with_ignore_case(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn merge_ranges(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
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
    fn masks_every_kind_of_secret() {
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
    fn masks_whole_value_only() {
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
    fn leaves_harmless_text() {
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
    fn replaces_unprintable_characters() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\u{200b}d\ne\tf ä €"), "a·[2Jb·c·d e f ä €");
    }

    #[test]
    fn masks_known_values() {
        assert_eq!(mask("saw hunter22 here", &[Secret::new("hunter22")]), "saw *** here");
        assert_eq!(mask("a cat", &[Secret::new("a")]), "a cat");
    }

    /// Regression: dashes and `token=` once took quadratic time, which is minutes for such a line.
    #[test]
    fn masks_long_lines_in_linear_time() {
        for part in ["-", "--a", "token=", "token: ", "://", "= "] {
            let text = part.repeat((1 << 18) / part.len());
            assert!(!mask(&text, &[]).is_empty());
        }
    }

    /// Simplest implementation of [`looks_secret`], as a reference.
    fn looks_secret_reference(name: &str) -> bool {
        let name = name.to_ascii_lowercase().replace('-', "_");
        if name.ends_with("_env_var") || name.starts_with("author_") {
            return false;
        }
        // The shortest suffix that is harmless without its `_`.
        let harmless = |at: &usize| HARMLESS_SUFFIXES.contains(&name[*at..].replace('_', "").as_str());
        let ends: Vec<_> = name.char_indices().map(|(at, _)| at).filter(harmless).collect();
        let name = ends.last().map_or(name.as_str(), |at| &name[..*at]);
        let last = name.rsplit('_').next().unwrap_or_default();
        let ends_secret =
            SECRET_SUFFIXES.contains(&last) && !HARMLESS_KEYS.iter().any(|key| name.ends_with(key));
        ends_secret || SECRET_WORDS.iter().any(|word| name.contains(word))
    }

    #[test]
    fn tells_secret_names_from_harmless_ones() {
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
    fn masks_user_defined_patterns() {
        let patterns = ["ACME-[0-9]{6}", "(?i)patient [a-z]+"].map(|text| text.parse().unwrap());
        let known = [Secret::new("hunter22")];
        let sources = SecretSources { known: &known, more: &[Secret::new("swordfish")], patterns: &patterns };
        assert_eq!(
            mask_all("ACME-123456, Patient Smith, hunter22, swordfish, ACME-1", sources),
            "***, ***, ***, ***, ACME-1"
        );
    }

    #[test]
    fn agrees_with_reference_on_known_words() {
        for word in
            SECRET_WORDS.into_iter().chain(SECRET_SUFFIXES).chain(HARMLESS_KEYS).chain(HARMLESS_SUFFIXES)
        {
            for name in [word.to_owned(), format!("My-{word}"), format!("{word}_x"), format!("author_{word}")]
            {
                for name in [name.clone(), name.to_uppercase(), format!("{}{name}", "x".repeat(70))] {
                    assert_eq!(looks_secret(&name), looks_secret_reference(&name), "{name}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_reference(name in "(token|KEY|auth|or|_|-|pass|word|ä|x{0,40}|s|env_var|api|public|next|page|Count){0,6}") {
            prop_assert_eq!(looks_secret(&name), looks_secret_reference(&name));
        }

        #[test]
        fn masking_is_idempotent(text in "(\\PC|\n|token: |Bearer |://|sk-){0,60}", known in "[a-z]{4,8}") {
            let known = [Secret::new(known)];
            let once = mask(&text, &known);
            prop_assert_eq!(mask(&once, &known), once);
        }
    }
}
