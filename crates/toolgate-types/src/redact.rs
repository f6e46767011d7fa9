//! Finds what must not be shown in a line of text: known secrets, key shapes, `password: …`.
//!
//! This is the last thing that happens to a line before a person or a log sees it, so it works on
//! text, not on fields: nothing can be forgotten. Invariant: linear in the text, never panics,
//! and masking a masked line changes nothing.

use std::ops::Range;

use crate::secret::{MASK, Secret};

/// Known secrets shorter than this are not looked for: masking every `a` would hide the message.
const SHORTEST_KNOWN: usize = 4;

/// Words in a name that say its value is a secret.
const SECRET_WORDS: [&str; 16] = [
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

/// Whether a key, header, flag or variable of this name usually holds a secret.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    // `author` and `max_tokens` are the two innocent names that the words would catch.
    let innocent = name.ends_with("tokens") || name.ends_with("_env_var") || name.starts_with("author_");
    !innocent && (name == "auth" || name == "key" || SECRET_WORDS.iter().any(|word| name.contains(word)))
}

/// The text with `***` in the place of everything that must not be shown.
pub fn mask(text: &str, known: &[Secret]) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut end = 0;
    for range in secret_ranges(text, known) {
        masked.push_str(&text[end..range.start]);
        masked.push_str(MASK);
        end = range.end;
    }
    masked.push_str(&text[end..]);
    masked
}

/// Where the secrets are: in order, without overlap, on character boundaries.
pub fn secret_ranges(text: &str, known: &[Secret]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for secret in known {
        let value = secret.expose();
        if value.len() >= SHORTEST_KNOWN {
            ranges.extend(text.match_indices(value).map(|(start, found)| start..start + found.len()));
        }
    }
    key_shapes(text, &mut ranges);
    after_scheme(text, &mut ranges);
    user_info(text, &mut ranges);
    flag_values(text, &mut ranges);
    for line in lines(text) {
        assignments(text, line, &mut ranges);
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

/// `sk-…`, `ghp_…`, a JWT.
fn key_shapes(text: &str, ranges: &mut Vec<Range<usize>>) {
    let part_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut start = 0;
    for word in text.split_inclusive(|c: char| !part_of_key(c)) {
        let key = word.trim_end_matches(|c: char| !part_of_key(c));
        let shaped =
            |(prefix, rest): &(&str, usize)| key.starts_with(prefix) && key.len() >= prefix.len() + rest;
        if KEY_SHAPES.iter().any(shaped) {
            ranges.push(start..start + key.len());
        }
        start += word.len();
    }
}

/// The credential after `Bearer` or `Basic`.
fn after_scheme(text: &str, ranges: &mut Vec<Range<usize>>) {
    let lower = text.to_ascii_lowercase();
    for scheme in ["bearer ", "basic "] {
        for (start, _) in lower.match_indices(scheme) {
            let start = start + scheme.len();
            let end =
                value_end(text, start, |c| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '}' | ']'));
            // `Bearer ${TOKEN}` names a secret and holds none; a short word is English.
            if end - start >= 8 && !text[start..end].starts_with("${") {
                ranges.push(start..end);
            }
        }
    }
}

/// The password in `https://user:password@host`.
fn user_info(text: &str, ranges: &mut Vec<Range<usize>>) {
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let end = value_end(text, start, |c| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\''));
        if let Some(host) = text[start..end].rfind('@') {
            let colon = text[start..start + host].find(':').map_or(start, |colon| start + colon + 1);
            ranges.push(colon..start + host);
        }
    }
}

/// The word after `--token`, in a command line or a list of arguments.
fn flag_values(text: &str, ranges: &mut Vec<Range<usize>>) {
    let mut end = 0;
    for (at, _) in text.match_indices("--") {
        // Inside of a name, or of a line of dashes: looked at already, and every time would be too often.
        if at < end {
            continue;
        }
        let name = at + 2;
        end = value_end(text, name, |c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
        let between = value_end(text, end, |c| !matches!(c, ' ' | ',' | '"' | '\'' | '='));
        let stop =
            value_end(text, between, |c| c.is_whitespace() || matches!(c, ',' | '"' | '\'' | ']' | '}'));
        let value = &text[between..stop];
        let is_value =
            between > end && !value.is_empty() && !value.starts_with('-') && !value.starts_with("${");
        if is_value && value != MASK && looks_secret(&text[name..end]) {
            ranges.push(between..stop);
        }
    }
}

/// The value in `api_key: value`, `"token": "value"`, `--password=value`, `?apiKey=value`.
fn assignments(text: &str, line: Range<usize>, ranges: &mut Vec<Range<usize>>) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut masked = line.start;
    for (at, sign) in text[line.clone()].match_indices([':', '=']) {
        let at = line.start + at;
        // What is masked already says nothing more, and `token=token=…` would be read to its end each time.
        if at < masked {
            continue;
        }
        let before = text[line.start..at].trim_end().trim_end_matches(['"', '\'']);
        let name = &before[before.rfind(|c: char| !is_name(c)).map_or(0, |i| i + char_len(before, i))..];
        // `${TOKEN:-…}` names a secret and holds none.
        if before[..before.len() - name.len()].ends_with("${") {
            continue;
        }
        let after = &text[at + sign.len()..line.end];
        let mut start = at + sign.len() + (after.len() - after.trim_start().len());
        if start >= line.end || !looks_secret(name) || text[start..].starts_with("//") {
            continue;
        }
        let quote = text[start..].chars().next().filter(|c| matches!(c, '"' | '\''));
        start += usize::from(quote.is_some());
        // The scheme in `Authorization: Bearer …` is no secret; what follows it is.
        let scheme = ["bearer ", "basic "].into_iter().find(|scheme| starts_with(&text[start..], scheme));
        start += scheme.map_or(0, str::len);
        let end = match quote {
            Some(quote) => value_end(text, start, |c| c == quote || c == '\n'),
            None => value_end(text, start, |c| {
                c.is_whitespace() || matches!(c, ',' | '}' | ']' | '&' | '"' | '\'')
            }),
        };
        let value = &text[start..end];
        let names_a_secret = value.starts_with("${") || value == MASK;
        if !value.is_empty() && !names_a_secret && !matches!(value, "{" | "[" | "|" | ">" | "null" | "~") {
            ranges.push(start..end);
            masked = end;
        }
    }
}

fn value_end(text: &str, start: usize, stops: impl Fn(char) -> bool) -> usize {
    text[start..].find(stops).map_or(text.len(), |length| start + length)
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn char_len(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(0, char::len_utf8)
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

    proptest! {
        #[test]
        fn masking_twice_changes_nothing(text in "(\\PC|\n|token: |Bearer |://|sk-){0,60}", known in "[a-z]{4,8}") {
            let known = [Secret::new(known)];
            let once = mask(&text, &known);
            prop_assert_eq!(mask(&once, &known), once);
        }
    }
}
