//! Prefilter: decides quickly whether a text can contain a secret by its shape.
//!
//! Nearly every text contains none, and is then neither copied nor analysed further. The text may also be the content
//! of a JSON string, as long as it contains no `\u…` or `\/`: a letter may then belong to the escape before it, and a
//! quote has a backslash. Invariant: no false negatives. If [`super::secret_ranges`] finds a secret (known ones aside)
//! in the text or in the string it encodes, this filter returns true. Linear in the text, without allocation.

use std::ops::Range;

use super::{IS_KEY_BYTE, KEY_PREFIXES, MIN_KEY_LENGTH, looks_secret};

/// Returns true if the text, or the string it encodes in JSON without `\u` and `\/`, may contain a secret by its shape.
pub fn may_contain_secret(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(last) = bytes.last_chunk::<WINDOW>() else { return may_contain_secret_short(text) };
    let mut probe = ShapeProbe { text, flag_end: 0 };
    let mut from = 0;
    while let Some(window) = bytes[from..].first_chunk::<WINDOW>() {
        if has_sign(window) && probe.any_shape_in(from..from + BLOCK) {
            return true;
        }
        from += BLOCK;
    }
    // The rest, whose window overlaps the last block, and then the bytes that no window covers.
    let end = bytes.len() - LOOKAHEAD;
    has_sign(last) && probe.any_shape_in(from..end) || probe.any_shape_in(end..bytes.len())
}

/// Like [`may_contain_secret`], for a text shorter than one window.
fn may_contain_secret_short(text: &str) -> bool {
    let signs = text.bytes().fold(0, |signs, byte| signs | SIGNS[usize::from(byte)]);
    let possible = if text.len() < MIN_KEY_LENGTH { VALUE_SIGN } else { u8::MAX };
    signs & possible != 0 && ShapeProbe { text, flag_end: 0 }.any_shape_in(0..text.len())
}

/// Sign of a value: the `:` or `=` before it, or the dashes of a flag. Every text with a secret contains a sign.
const VALUE_SIGN: u8 = 1;
/// Sign of a key or credential: `-` and `_`, `I` and `J` for prefixes without those, the first letter of a scheme.
const KEY_SIGN: u8 = 2;

/// Signs by byte.
const SIGNS: [u8; 256] = {
    let mut signs = [0; 256];
    let (all, mut index) = (b":=-_IJbB", 0);
    while index < all.len() {
        signs[all[index] as usize] = if index < 3 { VALUE_SIGN | KEY_SIGN } else { KEY_SIGN };
        index += 1;
    }
    signs
};

/// Positions of a long text checked at a time, and the bytes needed for that.
const BLOCK: usize = 16;
const WINDOW: usize = BLOCK + LOOKAHEAD;
const LOOKAHEAD: usize = 2;

/// Returns true if one of [`SIGNS`] is in a block; a `b` only if the letters after it may be those of a scheme. Free of
/// branches, so that the compiler vectorizes it; for the same reason some letters alias others.
fn has_sign(window: &[u8; WINDOW]) -> bool {
    let mut found = 0_u8;
    for at in 0..BLOCK {
        let [one, two, three] = [window[at], window[at + 1], window[at + 2]];
        let is = |byte: u8, expected: u8| u8::from(byte == expected);
        // `bea` and `bas` in any case. `bac` and a few more match too: a false positive only costs time.
        let scheme = is(one | 0x20, b'b') & is(two | 0x24, b'e') & is(three | 0x32, b's');
        let capital = u8::from(one.wrapping_sub(b'I') < 2);
        // `-` and `=` differ in this bit only.
        let sign = is(one | 0x10, b'=') | is(one, b':') | is(one, b'_');
        found |= scheme | capital | sign;
    }
    found != 0
}

/// Returns true if the text before a `:` or `=` ends in the name of a secret.
fn ends_in_secret_name(before: &str) -> bool {
    let bytes = before.as_bytes();
    // Skip spaces, quotes, backslashes (of an escaped quote), and bytes that may be part of a Unicode space.
    let space = |byte: &u8| matches!(byte, 0..=b' ' | b'"' | b'\'' | b'\\' | 0x80..);
    let end = bytes.iter().rposition(|byte| !space(byte)).map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|byte| !is_name_byte(byte)).map_or(0, |last| last + 1);
    let name = &before[start..end];
    if looks_secret(name) {
        return true;
    }
    // `\nkey` may be a line that starts with `key`; so also check the name without the letter of an escape.
    let escaped = start > 0 && bytes[start - 1] == b'\\' && !name.is_empty();
    escaped && (name.len() == 1 || looks_secret(&name[1..]))
}

/// Returns true if the bytes start with `://user:password@`.
fn is_user_info(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"://") else { return false };
    let end = |byte: &&u8| !matches!(byte, b'\t'..=b'\r' | b' ' | b'/' | b'?' | b'#' | b'"' | b'\'');
    rest.iter().take_while(end).any(|byte| *byte == b'@')
}

/// Precise check around a sign.
struct ShapeProbe<'a> {
    text: &'a str,
    /// End of the last flag that was checked.
    flag_end: usize,
}

impl ShapeProbe<'_> {
    /// Returns true if there is a shape around any sign in a range of the text.
    fn any_shape_in(&mut self, places: Range<usize>) -> bool {
        let is_sign = |byte: &u8| SIGNS[usize::from(*byte)] != 0;
        let mut part = &self.text.as_bytes()[places.clone()];
        while let Some(found) = part.iter().position(is_sign) {
            let at = places.end - part.len() + found;
            if self.is_shape_at(at, part[found]) {
                return true;
            }
            part = &part[found + 1..];
        }
        false
    }

    /// Returns true if there is a shape around one sign.
    #[inline]
    fn is_shape_at(&mut self, at: usize, sign: u8) -> bool {
        let bytes = self.text.as_bytes();
        match sign {
            b':' | b'=' => ends_in_secret_name(&self.text[..at]) || is_user_info(&bytes[at..]),
            b'-' if bytes.get(at + 1) == Some(&b'-') && self.is_secret_flag(at) => true,
            b'-' | b'_' => bytes[..at].last_chunk().is_some_and(ends_prefix) && is_key_at(bytes, at),
            b'I' | b'J' => is_key_at(bytes, at),
            _ => matches!(bytes.get(at + 1), Some(b'a' | b'A' | b'e' | b'E')) && is_credential(&bytes[at..]),
        }
    }

    /// Returns true if two dashes start a flag that takes a secret.
    fn is_secret_flag(&mut self, at: usize) -> bool {
        // Inside of a name or a run of dashes: already checked. Checking again would take quadratic time.
        if at < self.flag_end {
            return false;
        }
        let name = at + 2;
        let rest = &self.text.as_bytes()[name..];
        self.flag_end = name + rest.iter().position(|byte| !is_name_byte(byte)).unwrap_or(rest.len());
        looks_secret(&self.text[name..self.flag_end])
    }
}

fn is_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Returns true for the last letters before the first `-` or `_` of a key prefix.
fn ends_prefix(letters: &[u8; 2]) -> bool {
    matches!(letters, b"sk" | b"rk" | b"hp" | b"ho" | b"hu" | b"hs" | b"hr" | b"ub" | b"hf" | b"pm")
        || matches!(letters, b"at" | b"xb" | b"xp" | b"xa" | b"pp" | b"pi")
}

/// Returns true if the bytes start with `Bearer ` or `Basic `, followed by more than a short word.
fn is_credential(bytes: &[u8]) -> bool {
    let stops = |byte: &u8| matches!(byte, b' ' | b'"' | b'\'' | b',' | b'}' | b']');
    [&b"bearer "[..], b"basic "].into_iter().any(|scheme| {
        let Some((start, rest)) = bytes.split_at_checked(scheme.len()) else { return false };
        let value = rest.get(..8);
        start.eq_ignore_ascii_case(scheme) && value.is_some_and(|value| !value.iter().any(stops))
    })
}

/// Offset of the first `-`, `_`, `I` or `J` in each key prefix.
const PREFIX_SIGNS: [usize; KEY_PREFIXES.len()] = {
    let mut signs = [0; KEY_PREFIXES.len()];
    let mut index = 0;
    while index < signs.len() {
        let prefix = KEY_PREFIXES[index].0.as_bytes();
        while !matches!(prefix[signs[index]], b'-' | b'_' | b'I' | b'J') {
            signs[index] += 1;
        }
        index += 1;
    }
    signs
};

/// Returns true if the sign at `at` is the first one in the prefix of a key.
fn is_key_at(bytes: &[u8], at: usize) -> bool {
    let is_part = |byte: &u8| IS_KEY_BYTE[usize::from(*byte)];
    KEY_PREFIXES.iter().zip(PREFIX_SIGNS).any(|((prefix, rest), sign)| {
        let Some(start) = at.checked_sub(sign) else { return false };
        let key = &bytes[start..];
        // A key starts where the byte before it cannot be part of a key, or is the letter of an escape.
        let begins = start == 0 || !is_part(&bytes[start - 1]) || start >= 2 && bytes[start - 2] == b'\\';
        key.starts_with(prefix.as_bytes())
            && begins
            && key.get(..prefix.len() + rest).is_some_and(|key| key.iter().all(is_part))
    })
}

#[cfg(test)]
mod tests {
    use super::super::find_ranges;
    use super::*;

    /// Building blocks of test texts: parts of secrets, and what surrounds them.
    const PARTS: [&str; 64] = [
        "bearer",
        "Bearer ",
        "BASIC ",
        "basic ",
        "beaRer",
        "sk-",
        "sk_live_",
        "rk_live_",
        "ghp_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "xapp-",
        "AKIA",
        "ASIA",
        "AIza",
        "eyJ",
        "npm_",
        "pypi-",
        "hf_",
        "token",
        "KEY",
        "key",
        "password",
        "pin",
        "auth",
        "api_key",
        "author_",
        "page",
        "--",
        "-",
        "_",
        ":",
        "=",
        "://",
        "@",
        "/",
        "\"",
        "'",
        "\\",
        "\n",
        "\t",
        "\r",
        "\u{8}",
        "\u{c}",
        "\u{b}",
        "\u{1}",
        " ",
        "  ",
        "\u{a0}",
        "\u{2028}",
        "ä",
        "${",
        "}",
        ",",
        "abcdefgh",
        "ABCDEFGHIJKLMNOP",
        "0123456789abcdef",
        "x",
        "n",
        "t",
        "a word of some",
        "lines\nand lines",
    ];

    /// Deterministic pseudo-random number below `bound`.
    fn next_below(state: &mut u64, bound: usize) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*state >> 33).unwrap() % bound
    }

    fn escape_as_json(text: &str) -> String {
        let json = serde_json::to_string(text).unwrap();
        json[1..json.len() - 1].to_owned()
    }

    #[test]
    fn has_no_false_negatives() {
        let mut state = 17;
        let mut found = 0;
        for _ in 0..300_000 {
            let parts = next_below(&mut state, 12);
            let text: String = (0..parts).map(|_| PARTS[next_below(&mut state, PARTS.len())]).collect();
            let escaped = escape_as_json(&text);
            let secret = !find_ranges(&text, &[], looks_secret).is_empty();
            found += usize::from(secret);
            assert!(!secret || may_contain_secret(&text), "{text:?}");
            assert!(!secret || escaped.contains("\\u") || may_contain_secret(&escaped), "{escaped:?}");
        }
        assert!(
            (30_000..270_000).contains(&found),
            "{found} texts with a secret: the sample is too one-sided"
        );
    }

    /// A shape may straddle the blocks of a long text at any offset.
    #[test]
    fn finds_shape_at_every_offset() {
        for shape in
            [" Bearer abcdefgh", " bASIC abcdefgh", " AKIAABCDEFGHIJKLMNOP", " eyJabcdefghijklmnopqrst"]
        {
            for before in 0..100 {
                for after in [0, 1, 40, 70] {
                    let text = format!("{}{shape}{}", "x".repeat(before), " x".repeat(after));
                    assert!(may_contain_secret(&text), "{text}");
                }
            }
        }
    }

    #[test]
    fn passes_harmless_text() {
        for text in [
            "019a8b4e-7f3e-7abc-9def-0123456789ab",
            "sha256:2e1751d23bb0ba2eb3bb0df15766ecd393a09ceec929f0c8a7f7310a75529a1d",
            "a basic idea, and a clearer one; a risk-free task-list -- or not, in snake_case, \\n\\\"quoted\\\": too",
            "see https://example.test/a?b=c&d=e at 05:26:55, I think: IAN was there",
            r#"{\"rows\":[{\"id\":1,\"name\":\"x\",\"created_at\":\"2026-11-16T05:26:55Z\"}]}"#,
        ] {
            assert!(!may_contain_secret(text), "{text}");
        }
    }
}
