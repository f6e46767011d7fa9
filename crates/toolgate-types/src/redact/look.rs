//! A quick look at a text: whether it can hold one of the shapes that are masked.
//!
//! Nearly every text holds none, and is then neither copied nor read with care. The text may also be one as JSON
//! spells it between its quotes, as long as nothing in it is spelled `\u…` or `\/`: a letter may then belong to the
//! escape before it, and a quote has a backslash. Invariant: what [`super::secret_ranges`] finds without known
//! secrets, in the text or in what it spells, is held possible here; linear in the text, and takes no memory.

use std::ops::Range;

use super::{KEY_SHAPES, PART_OF_KEY, SHORTEST_SHAPE, looks_secret};

/// Whether the text, or what it spells in JSON without `\u` and `\/`, may hold a secret by its shape.
pub fn may_hold_secret(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(last) = bytes.last_chunk::<WINDOW>() else { return short(text) };
    let mut look = Look { text, flag_end: 0 };
    let mut from = 0;
    while let Some(window) = bytes[from..].first_chunk::<WINDOW>() {
        if has_sign(window) && look.at_any(from..from + BLOCK) {
            return true;
        }
        from += BLOCK;
    }
    // What is left, with some of what was looked at already, and then what no window covers.
    let end = bytes.len() - AHEAD;
    has_sign(last) && look.at_any(from..end) || look.at_any(end..bytes.len())
}

/// The same of a text that is too short for most shapes.
fn short(text: &str) -> bool {
    let signs = text.bytes().fold(0, |signs, byte| signs | SIGNS[usize::from(byte)]);
    let possible = if text.len() < SHORTEST_SHAPE { VALUE } else { u8::MAX };
    signs & possible != 0 && Look { text, flag_end: 0 }.at_any(0..text.len())
}

/// What every text with a shape has. Of a value: `:` and `=` before it, or the dashes of a flag.
const VALUE: u8 = 1;
/// Of a key or a credential: `-` and `_`, `I` and `J` in keys without those, the first letter of a scheme.
const KEY: u8 = 2;

/// What a byte is a sign of.
const SIGNS: [u8; 256] = {
    let mut signs = [0; 256];
    let (all, mut index) = (b":=-_IJbB", 0);
    while index < all.len() {
        signs[all[index] as usize] = if index < 3 { VALUE | KEY } else { KEY };
        index += 1;
    }
    signs
};

/// How many places of a long text are looked at together, and what is looked at for that.
const BLOCK: usize = 16;
const WINDOW: usize = BLOCK + AHEAD;
const AHEAD: usize = 2;

/// Whether one of [`SIGNS`] is in a block, followed by what may follow it in a scheme. Without a branch, so that an
/// instruction looks at many places; for the same reason some letters are taken for others.
fn has_sign(window: &[u8; WINDOW]) -> bool {
    let mut found = 0_u8;
    for at in 0..BLOCK {
        let [one, two, three] = [window[at], window[at + 1], window[at + 2]];
        let is = |byte: u8, expected: u8| u8::from(byte == expected);
        // `bea` and `bas`, with or without capitals; `bac` and some more are no harm.
        let scheme = is(one | 0x20, b'b') & is(two | 0x24, b'e') & is(three | 0x32, b's');
        let capital = u8::from(one.wrapping_sub(b'I') < 2);
        // A dash is a `=` but for this bit.
        let sign = is(one | 0x10, b'=') | is(one, b':') | is(one, b'_');
        found |= scheme | capital | sign;
    }
    found != 0
}

/// Whether what stands before a `:` or `=` ends in the name of a secret.
fn names_secret(before: &str) -> bool {
    let bytes = before.as_bytes();
    // Beside spaces and quotes: a backslash that may belong to a quote, and all that may be a space elsewhere.
    let space = |byte: &u8| matches!(byte, 0..=b' ' | b'"' | b'\'' | b'\\' | 0x80..);
    let end = bytes.iter().rposition(|byte| !space(byte)).map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|byte| !is_name(byte)).map_or(0, |last| last + 1);
    let name = &before[start..end];
    if looks_secret(name) {
        return true;
    }
    // `\nkey` may be a line that begins with `key`, and `key\t` one that ends with it.
    let escaped = start > 0 && bytes[start - 1] == b'\\' && !name.is_empty();
    escaped && (name.len() == 1 || looks_secret(&name[1..]))
}

/// Whether this is `://user:password@`, or the beginning of it.
fn user_info(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"://") else { return false };
    let end = |byte: &&u8| !matches!(byte, b'\t'..=b'\r' | b' ' | b'/' | b'?' | b'#' | b'"' | b'\'');
    rest.iter().take_while(end).any(|byte| *byte == b'@')
}

/// A closer look.
struct Look<'a> {
    text: &'a str,
    /// Where the last flag ends that was looked at.
    flag_end: usize,
}

impl Look<'_> {
    /// Whether there is a shape around any of the signs in a part of the text.
    fn at_any(&mut self, places: Range<usize>) -> bool {
        let is_sign = |byte: &u8| SIGNS[usize::from(*byte)] != 0;
        let mut part = &self.text.as_bytes()[places.clone()];
        while let Some(found) = part.iter().position(is_sign) {
            let at = places.end - part.len() + found;
            if self.at(at, part[found]) {
                return true;
            }
            part = &part[found + 1..];
        }
        false
    }

    /// Whether there is a shape around a sign.
    #[inline]
    fn at(&mut self, at: usize, sign: u8) -> bool {
        let bytes = self.text.as_bytes();
        match sign {
            b':' | b'=' => names_secret(&self.text[..at]) || user_info(&bytes[at..]),
            b'-' if bytes.get(at + 1) == Some(&b'-') && self.is_flag(at) => true,
            b'-' | b'_' => bytes[..at].last_chunk().is_some_and(ends_prefix) && is_key(bytes, at),
            b'I' | b'J' => is_key(bytes, at),
            _ => matches!(bytes.get(at + 1), Some(b'a' | b'A' | b'e' | b'E')) && is_scheme(&bytes[at..]),
        }
    }

    /// Whether two dashes begin a flag that takes a secret.
    fn is_flag(&mut self, at: usize) -> bool {
        // Inside of a name, or of a line of dashes: looked at already, and every time would be too often.
        if at < self.flag_end {
            return false;
        }
        let name = at + 2;
        let rest = &self.text.as_bytes()[name..];
        self.flag_end = name + rest.iter().position(|byte| !is_name(byte)).unwrap_or(rest.len());
        looks_secret(&self.text[name..self.flag_end])
    }
}

fn is_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The last letters before the first `-` or `_` of a prefix of keys.
fn ends_prefix(letters: &[u8; 2]) -> bool {
    matches!(letters, b"sk" | b"rk" | b"hp" | b"ho" | b"hu" | b"hs" | b"hr" | b"ub" | b"hf" | b"pm")
        || matches!(letters, b"at" | b"xb" | b"xp" | b"xa" | b"pp" | b"pi")
}

/// Whether this is `Bearer ` or `Basic `, and something that is no short word.
fn is_scheme(bytes: &[u8]) -> bool {
    let stops = |byte: &u8| matches!(byte, b' ' | b'"' | b'\'' | b',' | b'}' | b']');
    [&b"bearer "[..], b"basic "].into_iter().any(|scheme| {
        let Some((start, rest)) = bytes.split_at_checked(scheme.len()) else { return false };
        let value = rest.get(..8);
        start.eq_ignore_ascii_case(scheme) && value.is_some_and(|value| !value.iter().any(stops))
    })
}

/// Where the prefixes of keys have their first `-`, `_`, `I` or `J`, by which they are found.
const PREFIX_SIGNS: [usize; KEY_SHAPES.len()] = {
    let mut signs = [0; KEY_SHAPES.len()];
    let mut index = 0;
    while index < signs.len() {
        let prefix = KEY_SHAPES[index].0.as_bytes();
        while !matches!(prefix[signs[index]], b'-' | b'_' | b'I' | b'J') {
            signs[index] += 1;
        }
        index += 1;
    }
    signs
};

/// Whether a place is the first in the prefix of a key that has such a sign.
fn is_key(bytes: &[u8], at: usize) -> bool {
    let is_part = |byte: &u8| PART_OF_KEY[usize::from(*byte)];
    KEY_SHAPES.iter().zip(PREFIX_SIGNS).any(|((prefix, rest), sign)| {
        let Some(start) = at.checked_sub(sign) else { return false };
        let key = &bytes[start..];
        // A key follows nothing that could be part of it; but the letter of an escape could.
        let begins = start == 0 || !is_part(&bytes[start - 1]) || start >= 2 && bytes[start - 2] == b'\\';
        key.starts_with(prefix.as_bytes())
            && begins
            && key.get(..prefix.len() + rest).is_some_and(|key| key.iter().all(is_part))
    })
}

#[cfg(test)]
mod tests {
    use super::super::ranges;
    use super::*;

    /// What texts are made of here: the parts of secrets, and what stands around them.
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

    /// Numbers that look like chance and are the same each time.
    fn below(state: &mut u64, bound: usize) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*state >> 33).unwrap() % bound
    }

    fn spelled(text: &str) -> String {
        let json = serde_json::to_string(text).unwrap();
        json[1..json.len() - 1].to_owned()
    }

    #[test]
    fn whatever_is_found_was_held_possible() {
        let mut state = 17;
        let mut found = 0;
        for _ in 0..300_000 {
            let parts = below(&mut state, 12);
            let text: String = (0..parts).map(|_| PARTS[below(&mut state, PARTS.len())]).collect();
            let spelled = spelled(&text);
            let secret = !ranges(&text, &[], looks_secret).is_empty();
            found += usize::from(secret);
            assert!(!secret || may_hold_secret(&text), "{text:?}");
            assert!(!secret || spelled.contains("\\u") || may_hold_secret(&spelled), "{spelled:?}");
        }
        assert!((30_000..270_000).contains(&found), "{found} are too few, or too many to mean anything");
    }

    /// The bytes around a shape decide where a long text is cut into blocks.
    #[test]
    fn a_shape_at_any_place_of_a_long_text() {
        for shape in
            [" Bearer abcdefgh", " bASIC abcdefgh", " AKIAABCDEFGHIJKLMNOP", " eyJabcdefghijklmnopqrst"]
        {
            for before in 0..100 {
                for after in [0, 1, 40, 70] {
                    let text = format!("{}{shape}{}", "x".repeat(before), " x".repeat(after));
                    assert!(may_hold_secret(&text), "{text}");
                }
            }
        }
    }

    #[test]
    fn what_passes() {
        for text in [
            "019a8b4e-7f3e-7abc-9def-0123456789ab",
            "sha256:2e1751d23bb0ba2eb3bb0df15766ecd393a09ceec929f0c8a7f7310a75529a1d",
            "a basic idea, and a clearer one; a risk-free task-list -- or not, in snake_case, \\n\\\"quoted\\\": too",
            "see https://example.test/a?b=c&d=e at 05:26:55, I think: IAN was there",
            r#"{\"rows\":[{\"id\":1,\"name\":\"x\",\"created_at\":\"2026-11-16T05:26:55Z\"}]}"#,
        ] {
            assert!(!may_hold_secret(text), "{text}");
        }
    }
}
