//! Redacts secrets in text: known values, strings with the shape of a key, `password: …`.
//!
//! This is the last step before a person or a log sees a line, so it works on text, not on fields: no field can be
//! forgotten. Invariant: linear in the text, never panics, and idempotent.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr_iter, memchr2_iter, memmem};

use toolgate_types::secret::MASK;
use toolgate_types::{Secret, SecretPattern};

mod evidence;
#[doc(hidden)]
pub mod fuzz;
mod keys;
mod known;
mod names;
mod prefilter;
pub mod sanitize;

pub use evidence::is_distinctive;
pub use known::KnownSecrets;
pub use names::looks_secret;
pub use prefilter::may_contain_secret;

use evidence::{Evidence, ValueStyle};
use known::find_unprepared;

/// Rounds of masking, at most. A mask can complete another secret: `token: a b` may be prose and `token: ***b` is not.
const MAX_ROUNDS: usize = 4;

/// Secrets to redact, besides strings with the shape of a key.
#[derive(Debug, Clone, Copy, Default)]
pub struct SecretSources<'a> {
    /// Known secrets.
    pub known: Option<&'a KnownSecrets>,
    /// More known secrets, from another source.
    pub more: Option<&'a KnownSecrets>,
    /// User-defined patterns.
    pub patterns: &'a [SecretPattern],
}

/// Replaces every secret with `***`: known values, user-defined patterns and well-known shapes.
pub fn mask_all<'t>(text: &'t str, sources: SecretSources<'_>) -> Cow<'t, str> {
    mask_rounds(text, |text, ranges| {
        for known in sources.known.into_iter().chain(sources.more) {
            known.find_in(text, ranges);
        }
        find_shapes(text, Evidence::Value, &looks_secret, ranges);
        for pattern in sources.patterns {
            ranges.extend(pattern.find_in(text));
        }
    })
}

/// Masks until there is nothing left to mask. This makes masking idempotent.
fn mask_rounds(text: &str, find: impl Fn(&str, &mut Vec<Range<usize>>)) -> Cow<'_, str> {
    let mut masked = Cow::Borrowed(text);
    for _ in 0..MAX_ROUNDS {
        let mut ranges = Vec::new();
        find(&masked, &mut ranges);
        ranges.retain(|range| &masked[range.clone()] != MASK);
        if ranges.is_empty() {
            break;
        }
        masked = Cow::Owned(apply_mask(&masked, &merge_ranges(ranges)));
    }
    masked
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

/// Replaces known secrets and strings that look like a secret with `***`, in logs and messages.
pub fn mask(text: &str, known: &[Secret]) -> String {
    let find = |text: &str, ranges: &mut Vec<Range<usize>>| {
        find_unprepared(text, known, ranges);
        find_shapes(text, Evidence::Value, &looks_secret, ranges);
    };
    mask_rounds(text, find).into_owned()
}

/// Like [`mask`], for text of a configuration: a value under the name of a secret is masked whatever it looks like.
pub fn mask_config(text: &str, known: &[Secret]) -> String {
    apply_mask(text, &config_secret_ranges(text, known))
}

/// Replaces only known secrets with `***`, for text of our own.
pub fn mask_known(text: &str, known: &[Secret]) -> String {
    let mut ranges = Vec::new();
    find_unprepared(text, known, &mut ranges);
    apply_mask(text, &merge_ranges(ranges))
}

/// Returns true if a text contains a known secret, or a string that is a credential beyond doubt.
pub fn contains_credential(text: &str, known: &KnownSecrets) -> bool {
    let mut ranges = Vec::new();
    known.find_in(text, &mut ranges);
    if ranges.is_empty() {
        find_shapes(text, Evidence::Shape, &looks_secret, &mut ranges);
    }
    !ranges.is_empty()
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

/// Returns the ranges of secrets in text of a configuration: in order, without overlap, on character boundaries.
pub fn config_secret_ranges(text: &str, known: &[Secret]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    find_unprepared(text, known, &mut ranges);
    find_shapes(text, Evidence::Name, &looks_secret, &mut ranges);
    merge_ranges(ranges)
}

/// Like [`config_secret_ranges`], for a line of a configuration, where `NAME: value` in capitals sets an environment
/// variable. Any such variable may be a secret, so none is shown.
pub fn secret_ranges_of_line(line: &str, known: &[Secret]) -> Vec<Range<usize>> {
    let is_variable = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let mut ranges = Vec::new();
    find_unprepared(line, known, &mut ranges);
    scan_shapes(line, Evidence::Name, &|name: &str| looks_secret(name) || is_variable(name), &mut ranges);
    merge_ranges(ranges)
}

/// Finds secrets by their shape or their name.
fn find_shapes(
    text: &str,
    evidence: Evidence,
    is_secret: &impl Fn(&str) -> bool,
    ranges: &mut Vec<Range<usize>>,
) {
    if may_contain_secret(text) {
        scan_shapes(text, evidence, is_secret, ranges);
    }
}

fn scan_shapes(
    text: &str,
    evidence: Evidence,
    is_secret: &impl Fn(&str) -> bool,
    ranges: &mut Vec<Range<usize>>,
) {
    keys::find_keys(text, ranges);
    keys::find_private_keys(text, ranges);
    keys::find_webhooks(text, ranges);
    keys::find_telegram_keys(text, ranges);
    find_scheme_credentials(text, evidence, ranges);
    find_user_info(text, evidence, ranges);
    find_flag_values(text, evidence, ranges);
    for line in line_ranges(text) {
        find_assignments(text, line, evidence, is_secret, ranges);
    }
}

fn line_ranges(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let range = start..start + line.len();
        start = range.end;
        range
    })
}

/// Texts shorter than this are searched byte by byte: building a search table would cost more than it saves.
const SHORT_TEXT: usize = 512;

/// Returns true if `text` contains `part`.
pub fn contains(text: &str, part: &str) -> bool {
    occurrences(text.as_bytes(), part.as_bytes()).next().is_some()
}

/// Returns the positions of `part` in `text`; short texts may yield overlapping ones.
fn occurrences<'t>(text: &'t [u8], part: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    let short = text.len() < SHORT_TEXT;
    let first = part.first().copied().unwrap_or_default();
    let near = memchr_iter(first, if short { text } else { &[] }).filter(|at| text[*at..].starts_with(part));
    let far = (!short).then(|| memmem::find_iter(text, part)).into_iter().flatten();
    near.chain(far)
}

/// Finds the credential after `Bearer` or `Basic`.
fn find_scheme_credentials(text: &str, evidence: Evidence, ranges: &mut Vec<Range<usize>>) {
    // Search for the space after the scheme, which is rarer than any of its letters.
    for space in memchr_iter(b' ', text.as_bytes()) {
        let before = &text.as_bytes()[..space];
        let is_after = |scheme: &str| {
            let from = before.len().checked_sub(scheme.len());
            from.is_some_and(|from| before[from..].eq_ignore_ascii_case(scheme.as_bytes()))
        };
        let basic = match before.last() {
            Some(b'r' | b'R') if is_after("bearer") => false,
            Some(b'c' | b'C') if is_after("basic") => true,
            _ => continue,
        };
        let start = space + 1;
        let end = value_end(text, start, |c| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '}' | ']'));
        // `Bearer ${TOKEN}` contains no secret; a short word is prose.
        if end - start < MIN_CREDENTIAL_LENGTH {
            continue;
        }
        push_literals_if(text, start..end, ranges, |part| match evidence {
            Evidence::Name => true,
            _ if basic => evidence::is_basic_credential(part),
            _ => evidence::is_bearer_token(part, false, evidence),
        });
    }
}

/// Minimum length of a credential after its scheme.
const MIN_CREDENTIAL_LENGTH: usize = 8;

/// Finds the password in `https://user:password@host`.
fn find_user_info(text: &str, evidence: Evidence, ranges: &mut Vec<Range<usize>>) {
    for at in memchr_iter(b':', text.as_bytes()).filter(|at| text[*at..].starts_with("://")) {
        let start = at + 3;
        let end = value_end(text, start, |c| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\''));
        if let Some(host) = text[start..end].rfind('@') {
            let colon = text[start..start + host].find(':').map(|colon| start + colon + 1);
            // Without a password, the user may be a token.
            push_literals_if(text, colon.unwrap_or(start)..start + host, ranges, |part| match colon {
                Some(_) => evidence::is_url_password(part, evidence),
                None => evidence == Evidence::Name || evidence::is_random(part),
            });
        }
    }
}

/// Finds the value after `--token`, in a command line or a list of arguments.
fn find_flag_values(text: &str, evidence: Evidence, ranges: &mut Vec<Range<usize>>) {
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
            let value = SecretValue {
                strength: names::name_strength(&text[name..end]),
                style: ValueStyle {
                    tight: text[end..].starts_with('='),
                    listed: text[end..between].contains([',', '"', '\'']),
                    ..ValueStyle::default()
                },
                scheme: None,
            };
            end = unquoted_end(text, between, |c| {
                c.is_whitespace() || matches!(c, ',' | '"' | '\'' | ']' | '}')
            });
            push_value(text, between..end, value, evidence, ranges);
        }
    }
}

/// The name and the surroundings of a value.
#[derive(Debug, Clone, Copy)]
struct SecretValue {
    strength: names::NameStrength,
    style: ValueStyle,
    /// Authentication scheme before the value.
    scheme: Option<&'static str>,
}

/// Adds the parts of a value that have enough evidence. Returns true if it added any.
fn push_value(
    text: &str,
    range: Range<usize>,
    value: SecretValue,
    evidence: Evidence,
    ranges: &mut Vec<Range<usize>>,
) -> bool {
    let before = ranges.len();
    let SecretValue { strength, style, scheme } = value;
    if evidence == Evidence::Name {
        push_literals(text, range, ranges);
        return true;
    }
    let whole = &text[range.clone()];
    if !whole.contains(char::is_whitespace) {
        push_literals_if(text, range, ranges, |part| match scheme {
            Some("basic ") => evidence::is_basic_credential(part) || evidence::is_random(part),
            Some(_) => part.len() >= MIN_CREDENTIAL_LENGTH && evidence::is_bearer_token(part, true, evidence),
            None => evidence::is_secret_word(part, strength, style, evidence),
        });
    } else if evidence::is_passphrase(whole, strength, style, evidence) {
        push_literals(text, range, ranges);
    } else {
        let mut word_start = range.start;
        for word in whole.split_inclusive(char::is_whitespace) {
            // `session=…;` in a cookie.
            let name = word.find('=').map_or(0, |at| at + 1);
            let unquoted = word[name..].trim_start_matches(['"', '\'']);
            let start = word_start + word.len() - unquoted.len();
            let secret = unquoted.trim_end().trim_end_matches(['"', '\'', ';', ',']);
            if evidence::is_secret_among_words(secret) {
                push_literals(text, start..start + secret.len(), ranges);
            }
            word_start += word.len();
        }
    }
    ranges.len() > before
}

/// Values longer than this are not searched for names of secrets: that would take quadratic time.
const MAX_NESTED_LENGTH: usize = 256;

/// Finds the value in `api_key: value`, `"token": "value"`, `--password=value`, `?apiKey=value`.
fn find_assignments(
    text: &str,
    line: Range<usize>,
    evidence: Evidence,
    is_secret: &impl Fn(&str) -> bool,
    ranges: &mut Vec<Range<usize>>,
) {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let mut masked = line.start;
    // End of the last value that was searched word by word.
    let mut searched = line.start;
    let unindented = text[line.clone()].trim_start_matches([' ', '\t', '-', '"', '\'']);
    let indent_end = line.end - unindented.len();
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
        let tight = sign == "=" && start == at + 1 && before.len() == at - line.start;
        let quote = text[start..].chars().next().filter(|c| matches!(c, '"' | '\''));
        start += usize::from(quote.is_some());
        // The scheme in `Authorization: Bearer …` is not secret; the credential after it is.
        let scheme =
            ["bearer ", "basic "].into_iter().find(|scheme| starts_with_ignore_case(&text[start..], scheme));
        start += scheme.map_or(0, str::len);
        let alone = line.start + before.len() - name.len() <= indent_end;
        let end = match quote {
            // The value around this one was searched already: only the next word is of interest.
            _ if at < searched => {
                let word = &text[start..line.end];
                let limit = word.char_indices().nth(MAX_NESTED_LENGTH).map_or(word.len(), |(at, _)| at);
                let stops =
                    |c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']' | '&' | '"' | '\'' | '`');
                start + word[..limit].find(stops).unwrap_or(limit)
            }
            Some(quote) => quote_end(text, start, quote),
            // A line of YAML or of a `.env` file: spaces and commas are part of the value.
            None if alone => start + text[start..line.end].trim_end().len(),
            None if sign == ":" => unquoted_end(text, start, |c| matches!(c, ',' | '}' | ']' | '"' | '`')),
            None => unquoted_end(text, start, |c| {
                c.is_whitespace() || matches!(c, ',' | '}' | ']' | '&' | '"' | '\'' | '`')
            }),
        };
        let end = start + text[start..end].trim_end().len();
        let added = !matches!(&text[start..end], "{" | "[" | "|" | ">" | "null" | "~") && {
            let style = ValueStyle { quoted: quote.is_some(), tight, alone, listed: false };
            let strength = names::name_strength(name);
            push_value(text, start..end, SecretValue { strength, style, scheme }, evidence, ranges)
        };
        if added || evidence == Evidence::Name {
            masked = end;
        } else if text[start..end].contains(char::is_whitespace) {
            searched = searched.max(end);
        } else if end - start > MAX_NESTED_LENGTH {
            masked = end;
        }
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
    push_literals_if(text, value, ranges, |_| true);
}

/// Like [`push_literals`], for parts that meet a condition.
fn push_literals_if(
    text: &str,
    value: Range<usize>,
    ranges: &mut Vec<Range<usize>>,
    meets: impl Fn(&str) -> bool,
) {
    let mut start = value.start;
    let mut open = 0_usize;
    let mut push = |range: Range<usize>| {
        let part = &text[range.clone()];
        // `default` is a placeholder in our own hints.
        if !part.is_empty() && part != "default" && part != MASK && meets(part) {
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

    /// Checks a text of a log, and of a configuration.
    fn check(text: &str, expected: &str) {
        assert_eq!(mask(text, &[]), expected);
        check_config(text, expected);
    }

    fn check_config(text: &str, expected: &str) {
        assert_eq!(mask_config(text, &[]), expected);
    }

    #[test]
    fn masks_every_kind_of_secret() {
        check("api_key: abc123def", "api_key: ***");
        check(r#""GITHUB_TOKEN": "abc123def","#, r#""GITHUB_TOKEN": "***","#);
        check("args: [--password=hunter2]", "args: [--password=***]");
        check("https://x.test/mcp?apiKey=123456&a=b", "https://x.test/mcp?apiKey=***&a=b");
        check("https://ann:hunter2@x.test/", "https://ann:***@x.test/");
        check("Authorization: Bearer abcdefghij", "Authorization: Bearer ***");
        check("X-Note: bearer abcdefghij12", "X-Note: bearer ***");
        check("saw sk-abcdefghijklmnop1234 there", "saw *** there");
        check("ghp_abcdefghijklmnop1234", "***");
        check("AKIAABCDEFGHIJKLMNOP", "***");
        check("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "***");
        check("DB_PASSWORD=hunter2", "DB_PASSWORD=***");
        check(r#""args": ["--token", "abcdef", "-v"]"#, r#""args": ["--token", "***", "-v"]"#);
        check("args: [--api-key, abcdef, 8080]", "args: [--api-key, ***, 8080]");
        check("x Basic YW5uOmh1bnRlcjI= y", "x Basic *** y");
    }

    #[test]
    fn masks_private_keys() {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";
        let key = format!("-----BEGIN RSA PRIVATE KEY-----\n{line}\n{line}\n-----END RSA PRIVATE KEY-----");
        check(&format!("a\n{key}\nb"), "a\n***\nb");
        check(&format!("a {} b", key.replace('\n', " ")), "a *** b");
        check(&format!("a {} b", key.replace('\n', "\\n")), "a *** b");
        check(&format!("a\n{}", &key[..70]), "a\n***");
        check(&format!("{key}{key} and {key}"), "*** and ***");
        let prose = "-----BEGIN PRIVATE KEY----- starts a key and -----END PRIVATE KEY----- ends it";
        check(prose, prose);
        check(&format!("{prose} {key}"), &format!("{prose} ***"));
    }

    #[test]
    fn masks_whole_value_only() {
        check("password: correct horse, battery", "password: ***");
        check("{ password: correct-horse1, mode: strict }", "{ password: ***, mode: strict }");
        check(r#"{"password": "a\"b123", "mode": 1}"#, r#"{"password": "***", "mode": 1}"#);
        check("x DB_PASS=abc1 SORT_KEY=b", "x DB_PASS=*** SORT_KEY=b");
        check("`https://x.test/?token=abc123` is not it", "`https://x.test/?token=***` is not it");
        check("token: abc123${A}def456", "token: ***${A}***");
        check("token: ${A:-abc123}", "token: ${A:-***}");
        check("token: ${A:-${B:-abc123}}", "token: ${A:-${B:-***}}");
        check("token: ${input:key}", "token: ${input:key}");
        check("https://ann:${A}@x.test/", "https://ann:${A}@x.test/");
        check("--token ${A} --token=${B}c12345", "--token ${A} --token=${B}***");
        check("bearer ${A:-abcdefgh1}", "bearer ${A:-***}");
        check("password: ***hunter2", "password: ***");
    }

    /// A configuration needs no evidence besides the name.
    #[test]
    fn masks_values_by_name_in_configurations() {
        check_config("api_key: abc", "api_key: ***");
        check_config("- api_key: a b # why", "- api_key: ***");
        check_config("{ password: correct horse, mode: strict }", "{ password: ***, mode: strict }");
        check_config("DB_PASS=a GITHUB_PAT=b", "DB_PASS=***");
        check_config("X-Note: bearer abcdefghij", "X-Note: bearer ***");
        check_config("cookie: chocolate chip", "cookie: ***");
        check_config("https://token@x.test/", "https://***@x.test/");
        check_config("--token a --key=${B}c", "--token *** --key=${B}***");
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
    fn egress_demands_more_evidence_than_the_log() {
        let known = KnownSecrets::new(&[Secret::new("swordfish")]);
        for (text, masked, refused) in [
            ("password: hunter2", true, true),
            ("password=hunter", true, false),
            ("password=Hunter2026", true, true),
            ("passphrase: \"correct horse battery staple\"", true, true),
            ("API_TOKEN=plainENVsecret01", true, true),
            ("signature=48c43751d8ebaf44e9845d9cfc2fcfe54731749775573adcef07bea24d8bf8c8", true, true),
            ("token: abc123", true, false),
            ("token: 8fK2mQ9xL4vT7wZ1", true, true),
            ("pin: 4711", true, false),
            ("Bearer abcdefghij12", true, false),
            ("Bearer 8fK2mQ9xL4vT7wZ1", true, true),
            ("https://ann:password@x.test", true, false),
            ("https://ann:hunter2@x.test", true, true),
            ("AKIAABCDEFGHIJKLMNOP", true, true),
            ("c3dvcmRmaXNo", false, true),
            ("a basic understanding of physics", false, false),
        ] {
            assert_eq!(mask(text, &[]) != text, masked, "{text}");
            assert_eq!(contains_credential(text, &known), refused, "{text}");
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
        let parts = [
            "-",
            "--a",
            "token=",
            "token: ",
            "://",
            "= ",
            "password: a ",
            "token: \"",
            "%41",
            "eyJ.",
            "bearer ",
        ];
        for part in parts.into_iter().chain([
            "-----BEGIN PRIVATE KEY-----",
            "pin=",
            "key='",
            "token: a1,",
            "a.bcdefg.",
        ]) {
            for indent in ["", " "] {
                let text = indent.repeat(1 << 17) + &part.repeat((1 << 18) / part.len());
                assert!(!mask(&text, &[Secret::new("swordfish")]).is_empty());
            }
        }
    }

    #[test]
    fn masks_user_defined_patterns() {
        let patterns = ["ACME-[0-9]{6}", "(?i)patient [a-z]+"].map(|text| text.parse().unwrap());
        let [known, more] = ["hunter22", "swordfish"].map(|text| KnownSecrets::new(&[Secret::new(text)]));
        let sources = SecretSources { known: Some(&known), more: Some(&more), patterns: &patterns };
        assert_eq!(
            mask_all("ACME-123456, Patient Smith, hunter22, swordfish, ACME-1", sources),
            "***, ***, ***, ***, ACME-1"
        );
    }

    proptest! {
        #[test]
        fn masking_is_idempotent(
            text in "(\\PC|\n|token: |password: |password=|Bearer |://|sk-|--token |abc123|the |, |\"|\\*\\*\\*|[a-z ]{1,9}){0,40}",
            known in "[a-z]{4,8}",
        ) {
            let known = [Secret::new(known)];
            let once = mask(&text, &known);
            prop_assert_eq!(mask(&once, &known), once);
        }

        #[test]
        fn no_encoding_of_a_known_secret_survives(
            secret in "[a-zA-Z0-9 /+%\"\\\\üß€-]{6,24}",
            // A percent sign before the secret would be part of another encoding.
            before in "[ -$&-~]{0,6}",
            after in "[ -~]{0,6}",
            lower in any::<bool>(),
            all in any::<bool>(),
        ) {
            use base64::Engine;
            use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
            let known = [Secret::new(secret.as_str())];
            let prepared = KnownSecrets::new(&known);
            let whole = format!("{before}{secret}{after}");
            let percent = |byte: u8| match byte {
                byte if byte.is_ascii_alphanumeric() && !all => char::from(byte).to_string(),
                byte if lower => format!("%{byte:02x}"),
                byte => format!("%{byte:02X}"),
            };
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            let json = serde_json::to_string(&secret).unwrap();
            let inner = |encoded: String, decode: &dyn Fn(&str) -> Option<Vec<u8>>| {
                let masked = mask(&encoded, &known);
                // Any part that is left must not decode to the secret, in any alignment.
                for part in masked.split("***") {
                    for skipped in 0..part.len().min(4) {
                        let end = skipped + (part.len() - skipped) / 4 * 4;
                        let decoded = decode(&part[skipped..end]).unwrap_or_default();
                        prop_assert!(memmem::find(&decoded, secret.as_bytes()).is_none(), "{masked}");
                    }
                }
                prop_assert!(masked != encoded, "{encoded}");
                prop_assert_eq!(mask_all(&encoded, SecretSources { known: Some(&prepared), ..SecretSources::default() }), masked);
                Ok(())
            };
            inner(BASE64_STANDARD.encode(&whole), &|text| BASE64_STANDARD.decode(text).ok())?;
            inner(BASE64_URL_SAFE_NO_PAD.encode(&whole), &|text| BASE64_URL_SAFE_NO_PAD.decode(text).ok())?;
            for text in [secret.clone(), secret.bytes().map(percent).collect(), secret.replace(' ', "+"), hex.clone(), hex.to_uppercase(), json[1..json.len() - 1].to_owned()] {
                for text in [text.clone(), format!("{before}{text}"), format!("x={text}&y"), format!("{text} {text}")] {
                    let masked = mask(&text, &known);
                    prop_assert!(masked.contains(MASK), "{text}");
                    prop_assert!(prepared.may_be_in(&text), "{text}");
                    prop_assert!(!contains(&masked, &secret), "{masked}");
                }
            }
        }
    }
}
