//! What was said: the values that stand in a sentence, such as numbers, dates, addresses and names.
//!
//! One pass over the words of a text, which looks for the most particular thing first. Invariant: spans do not
//! overlap, stand in the order of the text, and what is no value is in none.

use std::ops::Range;

use crate::masks::{Mask, bare};

mod calendar;

pub use calendar::{Clock, Date, Day};

/// A value in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Where it stands.
    pub range: Range<usize>,
    /// It, without quotes and punctuation around it.
    pub text: String,
    /// What it is.
    pub said: Said,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A number.
    Number(f64),
    /// A day.
    Date(Day),
    /// A time of day.
    Time(Clock),
    /// An address of the web.
    Url,
    /// An address of mail.
    Email,
    /// A file or a folder.
    Path,
    /// What stands in quotes.
    Quoted,
    /// What is written as no word is: identifiers, selectors, versions.
    Code,
    /// A name: words that begin with capitals where no sentence does.
    Name,
}

/// A word with its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) begin: usize,
}

impl<'a> Word<'a> {
    /// It, without punctuation.
    pub(crate) fn bare(self) -> &'a str {
        bare(self.text)
    }

    /// Without punctuation and in lower case.
    pub(crate) fn lower(self) -> String {
        self.bare().to_lowercase()
    }

    fn end(self) -> usize {
        self.begin + self.text.len()
    }

    fn ends_sentence(self) -> bool {
        self.text.ends_with(['.', '!', '?', ':']) && self.text.len() > 2
    }
}

/// The words of a text, as spaces part them.
pub(crate) fn words(text: &str) -> Vec<Word<'_>> {
    let begin = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| Word { text: word, begin: begin(word) }).collect()
}

/// The values in a text.
pub fn spans(text: &str) -> Vec<Span> {
    let quoted = quotations(text);
    let touches = |word: &Word<'_>| {
        quoted.iter().any(|span| word.begin < span.range.end && span.range.start < word.end())
    };
    let words = words(text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if touches(&words[at]) {
            at += 1;
            continue;
        }
        // A value does not reach into quotes.
        let most = words[at..].iter().position(touches).unwrap_or(words.len() - at);
        let Some((count, said)) = said(&words[at..at + most], at == 0 || words[at - 1].ends_sentence())
        else {
            at += 1;
            continue;
        };
        found.push(span(text, &words[at..at + count], said));
        at += count;
    }
    found.extend(quoted);
    found.sort_by_key(|span| span.range.start);
    found
}

fn span(text: &str, words: &[Word<'_>], said: Said) -> Span {
    let (first, last) = (words[0], words[words.len() - 1]);
    let range = first.begin..last.end();
    Span { text: bare(&text[range.clone()]).to_owned(), range, said }
}

/// The value that words begin with, and how many of them it takes.
fn said(words: &[Word<'_>], begins_sentence: bool) -> Option<(usize, Said)> {
    let word = words[0].bare();
    if let Some(mask) = Mask::of(words[0].text) {
        return Some((
            1,
            match mask {
                Mask::Email => Said::Email,
                Mask::Url => Said::Url,
                Mask::Path | Mask::File => Said::Path,
            },
        ));
    }
    if let Some((count, clock)) = calendar::clock(words) {
        return Some((count, Said::Time(clock)));
    }
    if let Some((count, day)) = calendar::day(words) {
        return Some((count, Said::Date(day)));
    }
    if let Some(count) = street(words) {
        return Some((count, Said::Name));
    }
    if let Some(number) = number(word) {
        return Some((1, Said::Number(number)));
    }
    if is_code(word) {
        return Some((1, Said::Code));
    }
    name(words, begins_sentence).map(|count| (count, Said::Name))
}

/// A number in figures, with a currency or a unit that is stuck to it, or a small one in words.
pub(crate) fn number(word: &str) -> Option<f64> {
    const WORDS: [&str; 19] = [
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
    ];
    let lower = word.to_ascii_lowercase();
    if let Some(at) = WORDS.iter().position(|known| *known == lower) {
        return Some((at + 2) as f64);
    }
    let figures = lower.trim_start_matches(['$', '€', '£', '#', '+']).trim_end_matches(['%', '€', '$', '°']);
    let is_number = figures.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        && figures.bytes().all(|letter| letter.is_ascii_digit() || b".,-".contains(&letter));
    let is_grouped = figures
        .split(',')
        .skip(1)
        .all(|group| group.split('.').next().is_some_and(|digits| digits.len() == 3));
    let plain = if is_grouped { figures.replace(',', "") } else { return None };
    is_number.then(|| plain.parse().ok()).flatten()
}

/// How many words an address takes that begins with the number of a house.
fn street(words: &[Word<'_>]) -> Option<usize> {
    const STREETS: [&str; 14] = [
        "street",
        "st",
        "avenue",
        "ave",
        "road",
        "rd",
        "lane",
        "ln",
        "boulevard",
        "blvd",
        "drive",
        "dr",
        "way",
        "square",
    ];
    let is_house =
        words[0].bare().bytes().all(|letter| letter.is_ascii_digit()) && !words[0].bare().is_empty();
    let rest = words.get(1..).filter(|rest| is_house && !rest.is_empty())?;
    let named = rest.iter().take(4).take_while(|word| word.bare().starts_with(char::is_uppercase)).count();
    let is_street = rest[..named].iter().any(|word| STREETS.contains(&word.lower().as_str()));
    is_street.then(|| 1 + name(rest, false).unwrap_or(named).max(named))
}

/// Whether a word is written as none of a language is.
fn is_code(word: &str) -> bool {
    let mut letters = word.chars();
    let Some(first) = letters.next() else { return false };
    let rest = letters.as_str();
    let selector = matches!(first, '#' | '.' | '@' | '$') && rest.starts_with(char::is_alphanumeric);
    let digits = word.contains(|letter: char| letter.is_ascii_digit());
    let letters = word.contains(char::is_alphabetic);
    let hump =
        word.as_bytes().windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let joined = ['_', '/', '\\', '='].iter().any(|sign| rest.contains(*sign));
    let ordinal = word.trim_start_matches(|letter: char| letter.is_ascii_digit()).len() == 2 && digits;
    selector
        || (digits && letters && !ordinal && !is_counted(word))
        || hump
        || (joined && letters)
        || (digits && !letters && word.len() > 1)
}

/// Whether a word is a number with what it counts: `20-sided`.
fn is_counted(word: &str) -> bool {
    word.split_once('-').is_some_and(|(number, what)| {
        number.bytes().all(|letter| letter.is_ascii_digit())
            && what.bytes().all(|letter| letter.is_ascii_lowercase())
    })
}

/// How many words a name takes that begins here.
fn name(words: &[Word<'_>], begins_sentence: bool) -> Option<usize> {
    let is_capital = |word: &Word<'_>| {
        let text = word.bare();
        text.starts_with(char::is_uppercase)
            && !["I", "I'm", "I'd", "I've", "I'll", "Hi", "Hello"].contains(&text)
            && !text.starts_with("I'")
    };
    if !is_capital(&words[0]) {
        return None;
    }
    let mut count = 1;
    while count < words.len() && !words[count - 1].ends_sentence() {
        let parted = words[count - 1].text.ends_with([',', ';']);
        let short = words[count].bare();
        // `Berkeley, CA` is one name, `Ann, Bob` are two.
        let is_state = short.len() == 2 && short.bytes().all(|letter| letter.is_ascii_uppercase());
        if !is_capital(&words[count])
            || calendar::is_month_or_day(&words[count].lower())
            || is_code(short)
            || (parted && !is_state)
        {
            break;
        }
        count += 1;
    }
    // The first word of a sentence has its capital for another reason.
    let all_capitals = words[0].bare().len() > 1 && !words[0].bare().contains(char::is_lowercase);
    (!begins_sentence || all_capitals).then_some(count)
}

/// A text without what it quotes. Words that somebody quotes are what something is done with, and say nothing of what
/// is to be done; a single one is the name of something as often.
pub(crate) fn unquoted(text: &str) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for span in quotations(text).iter().filter(|span| span.text.split_whitespace().nth(1).is_some()) {
        out.push_str(&text[at..span.range.start]);
        at = span.range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// What stands in quotes. An apostrophe within a word is none.
fn quotations(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut letters = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((begin, letter)) = letters.next() {
        let closing = match letter {
            '“' | '”' => '”',
            '‘' => '’',
            '"' | '\'' | '`' => letter,
            _ => {
                before = letter;
                continue;
            }
        };
        let content = begin + letter.len_utf8();
        let end = (!before.is_alphanumeric()).then(|| closed(&text[content..], closing)).flatten();
        before = letter;
        let Some(length) = end.filter(|length| *length > 0) else { continue };
        let end = content + length;
        found.push(Span {
            range: begin..end + closing.len_utf8(),
            text: text[content..end].to_owned(),
            said: Said::Quoted,
        });
        while letters.next_if(|(at, _)| *at <= end).is_some() {}
    }
    found
}

/// Where a quotation ends: at a sign that no letter follows.
fn closed(text: &str, closing: char) -> Option<usize> {
    let ends = text.match_indices(closing).map(|(at, _)| at);
    let follows = |at: &usize| text[at + closing.len_utf8()..].chars().next();
    ends.into_iter().find(|at| !follows(at).is_some_and(char::is_alphanumeric))
}

#[cfg(test)]
mod tests;
