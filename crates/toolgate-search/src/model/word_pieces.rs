//! Word pieces: splits a text into the parts of words that the model knows, longest match first.
//!
//! WordPiece as in BERT: lower case without accents, punctuation and Chinese characters separate, continuations marked
//! by `##`. Invariant: the work per word is bounded, whatever it contains.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The word pieces, one per line; the line number is the index of the piece.
const VOCABULARY: &str = include_str!("../../model/vocabulary.txt");

/// Marks the continuation of a word.
const REST: &str = "##";

/// Maximum length of a word in characters; longer ones are unknown.
const MAX_WORD_LENGTH: usize = 100;

pub(super) struct WordPieces {
    begins: HashMap<&'static str, u16>,
    rests: HashMap<&'static str, u16>,
    /// Length of the longest piece in bytes.
    longest: usize,
}

impl WordPieces {
    pub(super) fn read() -> Self {
        let mut pieces = Self { begins: HashMap::with_capacity(32_768), rests: HashMap::new(), longest: 0 };
        for (number, piece) in (0_u16..).zip(VOCABULARY.lines()) {
            let (known, piece) = match piece.strip_prefix(REST) {
                Some(rest) if !rest.is_empty() => (&mut pieces.rests, rest),
                _ => (&mut pieces.begins, piece),
            };
            known.insert(piece, number);
            pieces.longest = pieces.longest.max(piece.len());
        }
        pieces
    }

    pub(super) fn count(&self) -> usize {
        self.begins.len() + self.rests.len()
    }

    /// Passes every known piece of a text to `take`, until that returns false.
    pub(super) fn for_each_piece(&self, text: &str, mut take: impl FnMut(usize) -> bool) {
        let mut word = String::new();
        let mut goes_on = true;
        let plain = text.nfd().filter(|letter| !is_combining_mark(*letter)).flat_map(char::to_lowercase);
        for letter in plain {
            if is_alone(letter) {
                goes_on = goes_on && self.word(&word, &mut take);
                goes_on = goes_on && self.word(letter.encode_utf8(&mut [0; 4]), &mut take);
                word.clear();
            } else if letter.is_whitespace() {
                goes_on = goes_on && self.word(&word, &mut take);
                word.clear();
            } else if !letter.is_control() {
                word.push(letter);
            }
            if !goes_on {
                return;
            }
        }
        self.word(&word, &mut take);
    }

    /// Passes the pieces of one word to `take`. A word that cannot be split into known pieces has none.
    fn word(&self, word: &str, take: &mut impl FnMut(usize) -> bool) -> bool {
        if word.is_empty() || word.chars().count() > MAX_WORD_LENGTH {
            return true;
        }
        let mut found = [0_u16; MAX_WORD_LENGTH];
        let (mut count, mut begin) = (0, 0);
        while begin < word.len() {
            let known = if begin == 0 { &self.begins } else { &self.rests };
            let most = word.floor_char_boundary((begin + self.longest).min(word.len()));
            let ends = (begin + 1..=most).rev().filter(|end| word.is_char_boundary(*end));
            let longest = ends
                .map(|end| (end, &word[begin..end]))
                .find_map(|(end, piece)| Some((end, *known.get(piece)?)));
            let Some((end, piece)) = longest else { return true };
            found[count] = piece;
            count += 1;
            begin = end;
        }
        found[..count].iter().all(|piece| take(usize::from(*piece)))
    }
}

/// Returns true if a character is a word by itself.
fn is_alone(letter: char) -> bool {
    let chinese =
        matches!(letter, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2fa1f}');
    letter.is_ascii_punctuation() || chinese || is_punctuation(letter)
}

/// Returns true for punctuation of other scripts.
fn is_punctuation(letter: char) -> bool {
    matches!(letter, '¡' | '§' | '«' | '¶' | '·' | '»' | '¿'
        | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}'
        | '\u{3014}'..='\u{301f}' | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff20}' | '\u{ff3b}'..='\u{ff3d}'
        | '\u{ff5f}'..='\u{ff65}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the pieces of a text by name.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let pieces = WordPieces::read();
        let names: Vec<&str> = VOCABULARY.lines().collect();
        let mut found = Vec::new();
        pieces.for_each_piece(text, |piece| {
            found.push(names[piece]);
            true
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn splits_texts_into_known_pieces() {
        check("Read the FILE!", &["read", "the", "file", "!"]);
        check("Café", &["cafe"]);
        check("embeddings", &["em", "##bed", "##ding", "##s"]);
        check("日本", &["日", "本"]);
        check("a\u{0}b c", &["ab", "c"]);
        check("", &[]);
        check(&"x".repeat(MAX_WORD_LENGTH + 1), &[]);
    }

    #[test]
    fn stops_when_take_returns_false() {
        let mut count = 0;
        WordPieces::read().for_each_piece("one two three four", |_| {
            count += 1;
            count < 2
        });
        assert_eq!(count, 2);
    }
}
