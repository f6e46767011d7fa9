//! Prefilter: decides quickly whether a text can contain a secret by its shape.
//!
//! Nearly every text contains none, and is then neither copied nor analysed further. The text may also be the content
//! of a JSON string, as long as it contains no `\u…` or `\/`: a letter may then belong to the escape before it, and a
//! quote has a backslash. Invariant: no false negatives. If there is a secret by its shape or its name in the text or in
//! the string it encodes, this filter returns true. Linear in the text, without allocation.

use std::ops::Range;

use wide::u8x16;

use crate::keys::{
    DISCORD_ID, DISCORD_SIGNATURE, DISCORD_TIME, IS_KEY_BYTE, KEY_PREFIXES, MIN_KEY_LENGTH, WEBHOOKS,
    is_private_key_block, telegram_key_at,
};
use crate::names::looks_secret;

/// Returns true if the text, or the string it encodes in JSON without `\u` and `\/`, may contain a secret by its shape.
pub fn may_contain_secret(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(last) = bytes.last_chunk::<WINDOW>() else { return may_contain_secret_short(text) };
    let mut probe = ShapeProbe { text, flag_end: 0 };
    let mut from = 0;
    while let Some(window) = bytes[from..].first_chunk::<WIDE_WINDOW>() {
        let [one, two, three, four] = [0, BLOCK, 2 * BLOCK, 3 * BLOCK].map(|at| {
            let block = window[at..].first_chunk().expect("a wide window holds four");
            signs_in(block)
        });
        // One test for all four blocks: most of them contain no sign.
        if (one | two | three | four).to_bitmask() != 0 {
            let bits = |signs: u8x16, block: usize| u64::from(signs.to_bitmask()) << (block * BLOCK);
            if probe.any_shape_at(from, bits(one, 0) | bits(two, 1) | bits(three, 2) | bits(four, 3)) {
                return true;
            }
        }
        from += WIDE_BLOCK;
    }
    while let Some(window) = bytes[from..].first_chunk::<WINDOW>() {
        if probe.any_shape_at(from, signs_in(window).to_bitmask().into()) {
            return true;
        }
        from += BLOCK;
    }
    // The rest, whose window overlaps the last block, and then the bytes that no window covers.
    let end = bytes.len() - LOOKAHEAD;
    let rest = signs_in(last).to_bitmask() >> (from + BLOCK - end);
    probe.any_shape_at(from, rest.into()) || probe.any_shape_in(end..bytes.len())
}

/// Like [`may_contain_secret`], for a text shorter than one window.
fn may_contain_secret_short(text: &str) -> bool {
    if text.len() < MIN_VALUE_LENGTH {
        return false;
    }
    let signs = text.bytes().fold(0, |signs, byte| signs | SIGNS[usize::from(byte)]);
    let possible = if text.len() < MIN_KEY_LENGTH.min(MIN_SCHEME_LENGTH) { VALUE_SIGN } else { u8::MAX };
    signs & possible != 0 && ShapeProbe { text, flag_end: 0 }.any_shape_in(0..text.len())
}

/// Minimum length of a name with its value: `pin:1`.
const MIN_VALUE_LENGTH: usize = 5;
/// Minimum length of a scheme with its credential: `basic ` and eight characters.
const MIN_SCHEME_LENGTH: usize = 14;

/// Sign of a value: the `:` or `=` before it, or the dashes of a flag. Every text with a secret contains a sign.
const VALUE_SIGN: u8 = 1;
/// Sign of a key or credential: `-`, `_` and `.`, `I`, `J` and `K` for prefixes without those, the first letter of a
/// scheme.
const KEY_SIGN: u8 = 2;

/// Signs by byte.
const SIGNS: [u8; 256] = {
    let mut signs = [0; 256];
    let (all, mut index) = (b":=-_.IJKbB", 0);
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
/// Four blocks at a time are faster: most of them contain no sign.
const WIDE_BLOCK: usize = 4 * BLOCK;
const WIDE_WINDOW: usize = WIDE_BLOCK + LOOKAHEAD;

/// Returns the places of [`SIGNS`] in a block; a `b` only if the letters after it may be those of a scheme, and a dot
/// only within a word. A capital is marked at the byte before it, and only if both may be part of a key prefix: single
/// capitals are frequent in base64.
#[inline]
fn signs_in(window: &[u8; WINDOW]) -> u8x16 {
    let load = |at: usize| u8x16::new(window[at..at + BLOCK].try_into().expect("a window is longer"));
    let (one, two, three) = (load(0), load(1), load(2));
    let is = |bytes: u8x16, expected: u8| bytes.simd_eq(u8x16::splat(expected));
    let with = |bytes: u8x16, bits: u8| bytes | u8x16::splat(bits);
    // `bea` and `bas` in any case. `bac` and a few more match too: a false positive only costs time.
    let scheme = is(with(one, 0x20), b'b') & is(with(two, 0x24), b'e') & is(with(three, 0x32), b's');
    let capital = is(with(one, IS_A_OR_S.0), IS_A_OR_S.1) & is(with(two, IS_I_OR_K.0), IS_I_OR_K.1)
        | is(one, b'y') & is(two, b'J');
    let dot = is(one, b'.') & two.max(u8x16::splat(b'-')).simd_eq(two);
    // `-` and `=` differ in this bit only.
    let sign = is(with(one, 0x10), b'=') | is(one, b':') | is(one, b'_');
    scheme | capital | dot | sign
}

/// Bits to set before a comparison, and the expected byte. `C` and `Q` match too.
const IS_A_OR_S: (u8, u8) = (0x12, b'S');
const IS_I_OR_K: (u8, u8) = (0x02, b'K');

/// [`signs_in`] finds the capital of every key prefix.
const _: () = {
    let mut index = 0;
    while index < KEY_PREFIXES.len() {
        let (prefix, at) = (KEY_PREFIXES[index].0.as_bytes(), PREFIX_SIGNS[index]);
        if prefix[at].is_ascii_uppercase() {
            let (before, capital) = (prefix[at - 1], prefix[at]);
            let pair = before | IS_A_OR_S.0 == IS_A_OR_S.1 && capital | IS_I_OR_K.0 == IS_I_OR_K.1;
            assert!(pair || before == b'y' && capital == b'J');
        }
        index += 1;
    }
};

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
    /// Returns true if there is a shape around any of the signs in the block at `from`.
    #[inline]
    fn any_shape_at(&mut self, from: usize, mut signs: u64) -> bool {
        let bytes = self.text.as_bytes();
        while signs != 0 {
            let at = from + signs.trailing_zeros() as usize;
            // Any other byte is the one before a capital.
            let at = at + usize::from(SIGNS[usize::from(bytes[at])] == 0);
            if self.is_shape_at(at, bytes[at]) {
                return true;
            }
            signs &= signs - 1;
        }
        false
    }

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
            b':' | b'=' => {
                ends_in_secret_name(&self.text[..at])
                    || sign == b':' && (is_user_info(&bytes[at..]) || telegram_key_at(bytes, at).is_some())
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') && self.is_secret_flag(at) => true,
            b'-' | b'_' => {
                is_key_at(bytes, at)
                    || sign == b'-' && bytes.get(at + 1) == Some(&b'-') && is_private_key_block(&bytes[at..])
            }
            b'.' => is_key_at(bytes, at) || is_discord_token_at(bytes, at) || is_webhook_at(bytes, at),
            b'I'..=b'K' => is_key_at(bytes, at),
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

/// Sets of [`KEY_PREFIXES`], one bit each, by a byte at or before the sign.
struct PrefixSets {
    sign: [u128; 128],
    before: [u128; 128],
    /// By the byte two before the sign. Prefixes without one are in every set.
    second: [u128; 128],
    without_second: u128,
}

static PREFIX_SETS: PrefixSets = {
    let mut sets = PrefixSets { sign: [0; 128], before: [0; 128], second: [0; 128], without_second: 0 };
    let mut index = 0;
    while index < KEY_PREFIXES.len() {
        let (prefix, at) = (KEY_PREFIXES[index].0.as_bytes(), PREFIX_SIGNS[index]);
        sets.sign[prefix[at] as usize] |= 1 << index;
        sets.before[prefix[at - 1] as usize] |= 1 << index;
        if at >= 2 {
            sets.second[prefix[at - 2] as usize] |= 1 << index;
        } else {
            sets.without_second |= 1 << index;
        }
        index += 1;
    }
    let mut byte = 0;
    while byte < sets.second.len() {
        sets.second[byte] |= sets.without_second;
        byte += 1;
    }
    sets
};

impl PrefixSets {
    /// Returns the prefixes that may have their sign at `at`. Nearly always none.
    #[inline]
    fn candidates(&self, bytes: &[u8], at: usize) -> u128 {
        let of = |set: &[u128; 128], byte: u8| set.get(usize::from(byte)).copied();
        let Some(before) = at.checked_sub(1) else { return 0 };
        let second = at.checked_sub(2).and_then(|second| of(&self.second, bytes[second]));
        of(&self.sign, bytes[at]).unwrap_or_default()
            & of(&self.before, bytes[before]).unwrap_or_default()
            & second.unwrap_or(self.without_second)
    }
}

/// Returns true if a dot is the first one in the token of a Discord bot.
fn is_discord_token_at(bytes: &[u8], at: usize) -> bool {
    let is_run =
        |run: Option<&[u8]>| run.is_some_and(|run| run.iter().all(|byte| IS_KEY_BYTE[usize::from(*byte)]));
    let second = at + 1 + DISCORD_TIME;
    bytes.get(second) == Some(&b'.')
        && is_run(bytes.get(second + 1..second + 1 + DISCORD_SIGNATURE))
        && is_run(at.checked_sub(DISCORD_ID.start).map(|start| &bytes[start..second]))
}

/// Returns true if a dot is the first one in the host of a webhook.
fn is_webhook_at(bytes: &[u8], at: usize) -> bool {
    let may_be_host = bytes[at..].starts_with(b".slack") || bytes[at..].starts_with(b".com/api/");
    may_be_host
        && WEBHOOKS.iter().any(|webhook| {
            let dot = webhook.find('.').unwrap_or_default();
            at.checked_sub(dot).is_some_and(|start| bytes[start..].starts_with(webhook.as_bytes()))
        })
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

/// Offset of the sign in each key prefix: the first `-`, `_` or `.`, or else the first `I`, `J` or `K`.
const PREFIX_SIGNS: [usize; KEY_PREFIXES.len()] = {
    let mut signs = [0; KEY_PREFIXES.len()];
    let mut index = 0;
    while index < signs.len() {
        let prefix = KEY_PREFIXES[index].0.as_bytes();
        while signs[index] < prefix.len() && !matches!(prefix[signs[index]], b'-' | b'_' | b'.') {
            signs[index] += 1;
        }
        if signs[index] == prefix.len() {
            signs[index] = 0;
            while !matches!(prefix[signs[index]], b'I' | b'J' | b'K') {
                signs[index] += 1;
            }
        }
        index += 1;
    }
    signs
};

/// Minimum number of key characters after the first sign of a prefix.
const MIN_AFTER_SIGN: usize = {
    let mut shortest = usize::MAX;
    let mut index = 0;
    while index < KEY_PREFIXES.len() {
        let (prefix, body) = KEY_PREFIXES[index];
        let after = prefix.len() + body.min_length() - PREFIX_SIGNS[index] - 1;
        shortest = if after < shortest { after } else { shortest };
        index += 1;
    }
    shortest
};

/// Returns true if the sign at `at` is the first one in the prefix of a key.
#[inline]
fn is_key_at(bytes: &[u8], at: usize) -> bool {
    let candidates = PREFIX_SETS.candidates(bytes, at);
    let is_part = |byte: &u8| IS_KEY_BYTE[usize::from(*byte)];
    // Most words end before a key would.
    candidates != 0
        && bytes.get(at + 1..at + 1 + MIN_AFTER_SIGN).is_some_and(|after| after.iter().all(is_part))
        && has_prefix_at(bytes, at, candidates)
}

fn has_prefix_at(bytes: &[u8], at: usize, mut candidates: u128) -> bool {
    let is_part = |byte: &u8| IS_KEY_BYTE[usize::from(*byte)];
    while candidates != 0 {
        let index = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        let (prefix, body) = KEY_PREFIXES[index];
        let Some(start) = at.checked_sub(PREFIX_SIGNS[index]) else { continue };
        let key = &bytes[start..];
        // A key starts where the byte before it cannot be part of a key, or is the letter of an escape.
        let begins = || start == 0 || !is_part(&bytes[start - 1]) || start >= 2 && bytes[start - 2] == b'\\';
        if key.starts_with(prefix.as_bytes())
            && begins()
            && key.get(..prefix.len() + body.min_length()).is_some_and(|key| key.iter().all(is_part))
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Evidence;
    use crate::scan_shapes;

    /// Building blocks of test texts: parts of secrets, and what surrounds them.
    const PARTS: [&str; 86] = [
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
        "-----BEGIN ",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----END ",
        "1234567890:AA",
        "8fK2mQ9xL4vT7wZ1",
        "bcdefghijklmnopqrstuvwxyz0123456",
        "0123456789abcdef0123456789abcdef",
        "MTA2NzI5MzI1NzU4NDQ4NDM1Mg.GxYzAb.",
        "SG.",
        "SG.0123456789abcdefghijkl.",
        "ya29.",
        "hvs.",
        "SK",
        "tg_",
        "dop_v1_",
        "hooks.slack.com/services/",
        "Basic YW5uOmh1bnRlcjI=",
        "eyJhbGciOiJIUzI1NiJ9.",
        "AGE-SECRET-KEY-1",
        ".",
        "hunter2",
        "password: ",
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
            let mut ranges = Vec::new();
            scan_shapes(&text, Evidence::Name, &looks_secret, &mut ranges);
            scan_shapes(&text, Evidence::Value, &looks_secret, &mut ranges);
            let secret = !ranges.is_empty();
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
        for shape in [
            " Bearer abcdefgh",
            " bASIC abcdefgh",
            " AKIAABCDEFGHIJKLMNOP",
            " eyJabcdefghijklmnopqrst",
            " SK0123456789abcdef0123456789abcdef",
            " SG.0123456789abcdefghijkl.0123456789abcdefghijklmnopqrstuvwxyz",
            " hooks.slack.com/services/T0/B0/abc",
            " MTA2NzI5MzI1NzU4NDQ4NDM1Mg.GxYzAb.0123456789abcdefghijklmnopqrs",
            " 123456789:AA0123456789abcdefghijklmnopqrstuvw ",
            " -----BEGIN EC PRIVATE KEY----- ",
        ] {
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
