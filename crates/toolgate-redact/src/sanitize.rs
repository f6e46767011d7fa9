//! Removes or escapes hidden characters in text from servers.
//!
//! Control characters move a terminal's cursor; bidirectional, zero-width and tag characters hide text from people that
//! models still read. Invariant: the output contains none of them, and text without them is returned unchanged.

use std::borrow::Cow;

/// Returns true if a character is invisible, or changes the display of others.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        | '\u{180E}' => true,
        '\u{200B}'..='\u{200F}'
        | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{3164}'
        | '\u{FEFF}' => true,
        '\u{FE00}'..='\u{FE0F}' | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}' => true,
        '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}' => true,
        c => c.is_control(),
    }
}

/// Removes hidden characters.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if text.contains(is_hidden) {
        Cow::Owned(text.chars().filter(|c| !is_hidden(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Escapes every hidden character in JSON, which keeps its meaning. Outside of strings, JSON has none but line ends.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    let is_visible = |c: char| c.is_ascii_graphic() || c.is_ascii_whitespace() || !is_hidden(c);
    if text.chars().all(is_visible) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if is_visible(c) {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Cow::Owned(escaped)
}

/// Returns the first hidden character that is suspicious. Carriage returns, and the variation selectors and joiners of
/// emoji, are not.
pub fn first_hidden(text: &str) -> Option<char> {
    text.chars()
        .find(|c| is_hidden(*c) && *c != '\r' && !('\u{FE00}'..='\u{FE0F}').contains(c) && *c != '\u{200D}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_hidden_characters() {
        assert_eq!(sanitize("a\u{200B}b\u{202E}c\u{E0041}d\u{1b}[2Je\u{7f}f\r\ng"), "abcd[2Jef\ng");
        assert!(matches!(sanitize("plain β\n\ttext"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaping_keeps_json_meaning() {
        assert_eq!(
            escape_json("{\n\t\"a\u{202E}\": \"é\u{9b}\u{7f}\u{E0041}\"\r\n}"),
            "{\n\t\"a\\u202e\": \"é\\u009b\\u007f\\udb40\\udc41\"\r\n}"
        );
        assert!(matches!(escape_json("{ \"plain\": \"β\" }\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn emoji_are_not_suspicious() {
        assert_eq!(first_hidden("fine ✔\u{FE0F} 👩\u{200D}💻\r\n"), None);
        assert_eq!(first_hidden("a\u{200B}"), Some('\u{200B}'));
    }
}
