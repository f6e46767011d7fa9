//! Plain JSON: copies a value that evidently holds no secret, as most short values do.
//!
//! Invariant: the copy equals the output of the walk over the value. In doubt, nothing is copied.

use toolgate_json::StringEnds;
use toolgate_redact::{looks_secret, may_contain_secret};

use super::read_scalar;

/// Maximum depth of a copied value: one bit per open bracket, and one below them.
const MAX_DEPTH: u32 = u64::BITS - 1;

/// Appends a value without the whitespace between its parts. Returns false and appends nothing if it may hold a secret,
/// by a shape or by a name; if a string has an escape; or if the text is not JSON.
pub(super) fn copy_plain(json: &str, out: &mut String) -> bool {
    let start = out.len();
    let copied = !may_contain_secret(json) && copy_parts(json, out).is_some();
    if !copied {
        out.truncate(start);
    }
    copied
}

fn copy_parts(json: &str, out: &mut String) -> Option<()> {
    let bytes = json.as_bytes();
    let mut ends = StringEnds::new(bytes);
    // The open brackets: 1 for an object, 0 for an array, below a 1 for the whole value.
    let mut open = 1_u64;
    let mut name_next = false;
    let (mut at, mut values) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        if open == 1 && !byte.is_ascii_whitespace() {
            values += 1;
            if values > 1 {
                return None;
            }
        }
        let start = at;
        at += 1;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            b'{' | b'[' => {
                if name_next || open.ilog2() == MAX_DEPTH {
                    return None;
                }
                name_next = byte == b'{';
                open = open << 1 | u64::from(name_next);
            }
            b'}' | b']' => {
                if open == 1 || (open & 1 == 1) != (byte == b'}') {
                    return None;
                }
                open >>= 1;
                name_next = false;
            }
            b',' | b':' => {
                if open == 1 {
                    return None;
                }
                name_next = byte == b',' && open & 1 == 1;
            }
            b'"' => {
                let end = ends.find_from(at);
                // An escape or a control character.
                if bytes.get(end) != Some(&b'"') {
                    return None;
                }
                let text = &json[at..end];
                // A name decides about its value, and so may a flag or a name beside a `value`.
                let decides = match std::mem::take(&mut name_next) {
                    true => text == "value" || looks_secret(text),
                    false => text.starts_with('-'),
                };
                if decides {
                    return None;
                }
                at = end + 1;
            }
            _ => {
                if name_next {
                    return None;
                }
                at = start + read_scalar(&json[start..])?.len();
            }
        }
        out.push_str(&json[start..at]);
    }
    (values == 1 && open == 1).then_some(())
}
