//! Short forms of times, durations, sizes and JSON, for templates.

use std::borrow::Borrow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value as Json;

/// Characters of a part of a URL that need no escape.
const URL_PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Longest body that a page shows. REST returns the rest.
pub const MAX_SHOWN: usize = 48 << 10;

/// Encodes a part of a path or of a query.
pub fn url(part: &str) -> String {
    utf8_percent_encode(part, URL_PART).to_string()
}

/// Date and time of an RFC 3339 string: `11-18 19:54:07`. Other strings stay.
pub fn clock(time: &str) -> String {
    let known = time.is_ascii() && time.len() >= 20 && time.as_bytes()[10] == b'T';
    if known { time[5..19].replace('T', " ") } else { time.to_owned() }
}

/// A duration with three digits: `840 µs`, `12.4 ms`, `3.07 s`, `4 min`.
pub fn micros(micros: impl Borrow<u64>) -> String {
    let micros = *micros.borrow();
    let value = micros as f64;
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", digits(value / 1e3)),
        1_000_000..120_000_000 => format!("{} s", digits(value / 1e6)),
        120_000_000..7_200_000_000 => format!("{} min", micros / 60_000_000),
        7_200_000_000..172_800_000_000 => format!("{} h", micros / 3_600_000_000),
        _ => format!("{} d", micros / 86_400_000_000),
    }
}

pub fn millis(millis: impl Borrow<u64>) -> String {
    micros(millis.borrow().saturating_mul(1_000))
}

/// A size: `512 B`, `4.2 kB`, `1.3 MB`.
pub fn bytes(bytes: impl Borrow<u64>) -> String {
    let bytes = *bytes.borrow();
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", digits(value / 1e6)),
        _ => format!("{} GB", digits(value / 1e9)),
    }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Indented JSON, truncated to [`MAX_SHOWN`].
pub fn pretty(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        value => cut(serde_json::to_string_pretty(value).unwrap_or_default(), MAX_SHOWN),
    }
}

/// Truncates a text at a character, and says how much is missing.
pub fn cut(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let end = text.floor_char_boundary(limit);
    let missing = text.len() - end;
    text.truncate(end);
    text.push_str(&format!("\n… {} more", bytes(missing as u64)));
    text
}

/// A text on one line, with at most `limit` characters.
pub fn brief(text: &str, limit: usize) -> String {
    let mut short = String::new();
    let mut left = limit;
    for word in text.split_whitespace() {
        let space = usize::from(!short.is_empty());
        let room = left.saturating_sub(space);
        let length = word.chars().take(room + 1).count();
        if length > room {
            if room > 1 {
                short.extend((space > 0).then_some(' '));
                short.extend(word.chars().take(room));
            }
            short.push('…');
            break;
        }
        short.extend((space > 0).then_some(' '));
        short.push_str(word);
        left = room - length;
    }
    short
}

/// JSON on one line, with at most `limit` characters.
pub fn inline(value: &Json, limit: usize) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => brief(text, limit),
        // Only the beginning is shown, so the rest is not written either.
        value => brief(&cut(value.to_string(), limit * 4 + 8), limit),
    }
}

#[test]
fn short_forms() {
    let times = [0, 999, 1_234, 56_789, 999_999, 3_070_000, 240_000_000, 7_200_000_000, 400_000_000_000];
    let shown: Vec<_> = times.into_iter().map(micros).collect();
    assert_eq!(shown.join(", "), "0 µs, 999 µs, 1.23 ms, 56.8 ms, 1000 ms, 3.07 s, 4 min, 2 h, 4 d");
    assert_eq!([12, 4_200, 1_300_000].map(bytes).join(", "), "12 B, 4.20 kB, 1.30 MB");
    assert_eq!(clock("2026-11-18T19:54:07.123456Z"), "11-18 19:54:07");
    assert_eq!(clock("soon"), "soon");
    assert_eq!(url("a b/ü"), "a%20b%2F%C3%BC");
    assert_eq!(brief("  first\n second", 80), "first second");
    assert_eq!(
        [brief("üüüü", 2), brief("first second", 8), brief("first second", 6)],
        ["üü…", "first se…", "first…"]
    );
    assert_eq!([brief("", 5), brief(" x ", 1)], ["", "x"]);
    assert_eq!(cut("üü".repeat(2), 3), "ü\n… 6 B more");
}
