//! Escaping of every value on a page.
//!
//! Names, descriptions and results come from servers and callers. The markup characters become entities, and characters
//! that a reader cannot see, or that reorder the text around them, become marks such as `⟦U+202E⟧`. The result is safe
//! in text and in quoted attributes. Invariant: no output contains a control, bidirectional or zero-width character but
//! tab and line feed.

use std::fmt::{self, Write};

/// The escaper of all templates, set in `askama.toml`.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageEscaper;

impl askama::filters::Escaper for PageEscaper {
    fn write_escaped_str<W: Write>(&self, mut to: W, text: &str) -> fmt::Result {
        let mut rest = 0;
        for (at, character) in text.char_indices() {
            let entity = match character {
                '&' => "&amp;",
                '<' => "&lt;",
                '>' => "&gt;",
                '"' => "&quot;",
                '\'' => "&#39;",
                // A carriage return before a line feed is part of a line break.
                '\r' if text[at + 1..].starts_with('\n') => "",
                character if is_hidden(character) => {
                    to.write_str(&text[rest..at])?;
                    write!(to, "⟦U+{:04X}⟧", u32::from(character))?;
                    rest = at + character.len_utf8();
                    continue;
                }
                _ => continue,
            };
            to.write_str(&text[rest..at])?;
            to.write_str(entity)?;
            rest = at + character.len_utf8();
        }
        to.write_str(&text[rest..])
    }
}

/// Returns true for characters that a page shows as a mark.
pub fn is_hidden(character: char) -> bool {
    match character {
        '\t' | '\n' => false,
        character if character.is_control() => true,
        // Soft hyphen, combining grapheme joiner, Arabic letter mark, Hangul fillers, Khmer vowels without a shape,
        // Mongolian selectors, spaces without a width, marks of direction, invisible operators, variation selectors, the
        // byte order mark, interlinear annotations, and the tag characters.
        '\u{00AD}'
        | '\u{034F}'
        | '\u{061C}'
        | '\u{115F}'
        | '\u{1160}'
        | '\u{17B4}'
        | '\u{17B5}'
        | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{3164}'
        | '\u{FE00}'..='\u{FE0E}'
        | '\u{FEFF}'
        | '\u{FFA0}'
        | '\u{FFF9}'..='\u{FFFB}'
        | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}' => true,
        _ => false,
    }
}

/// Replaces hidden characters of JSON by their escapes, so that a form sends back the same value.
pub fn json_for_form(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if is_hidden(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use askama::filters::Escaper as _;

    use super::*;

    fn check(text: &str, expected: &str) {
        let mut escaped = String::new();
        PageEscaper.write_escaped_str(&mut escaped, text).expect("a string takes any text");
        assert_eq!(escaped, expected);
    }

    #[test]
    fn markup_and_hidden_characters_are_escaped() {
        check("plain ü 漢字 😀\tx\ny", "plain ü 漢字 😀\tx\ny");
        check("<b a=\"1\" c='2'>&", "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;");
        check("a\u{202E}b\u{200B}\u{1b}[31m", "a⟦U+202E⟧b⟦U+200B⟧⟦U+001B⟧[31m");
        check("line\r\nnext\rodd", "line\nnext⟦U+000D⟧odd");
        check("\u{E0041}\u{FEFF}", "⟦U+E0041⟧⟦U+FEFF⟧");
    }

    #[test]
    fn json_of_a_form_has_the_same_value() {
        let value = serde_json::json!({ "a\u{202E}": "x\u{200B}\u{E0041}\u{7f} ü" });
        let shown = json_for_form(&value.to_string());
        assert!(!shown.chars().any(is_hidden), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
    }
}
