//! Finds the values in a sentence, such as numbers, dates, URLs and names.
//!
//! One pass over the words, which tries the most specific kind first. Invariant: spans do not overlap and are in the
//! order of the text, and words that are not values are in no span.

use std::ops::Range;

use crate::masks::{MaskKind, bare};

mod calendar;

pub use calendar::{CalendarDate, DateExpression, TimeOfDay};

/// A value in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueSpan {
    /// Byte range.
    pub range: Range<usize>,
    /// The value without quotes and punctuation around it.
    pub text: String,
    pub kind: SpanKind,
}

/// The kind of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanKind {
    Number(f64),
    /// A day.
    Date(DateExpression),
    /// A time of day.
    Time(TimeOfDay),
    Url,
    Email,
    /// A file or a folder.
    Path,
    /// Text in quotes.
    Quoted,
    /// A token that is not a natural word: identifiers, selectors, versions.
    Code,
    /// A name: capitalised words that do not start a sentence.
    Name,
}

/// A word and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextWord<'a> {
    pub(crate) text: &'a str,
    pub(crate) begin: usize,
}

impl<'a> TextWord<'a> {
    /// Returns the word without punctuation.
    pub(crate) fn bare(self) -> &'a str {
        bare(self.text)
    }

    /// Returns the word without punctuation, in lower case.
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

/// Splits a text at white space.
pub(crate) fn split_words(text: &str) -> Vec<TextWord<'_>> {
    let begin = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| TextWord { text: word, begin: begin(word) }).collect()
}

/// Finds the values in a text.
pub fn find_values(text: &str) -> Vec<ValueSpan> {
    let quoted = find_quotations(text);
    let touches = |word: &TextWord<'_>| {
        quoted.iter().any(|span| word.begin < span.range.end && span.range.start < word.end())
    };
    let words = split_words(text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if touches(&words[at]) {
            at += 1;
            continue;
        }
        // A value does not extend into quotes.
        let most = words[at..].iter().position(touches).unwrap_or(words.len() - at);
        let Some((count, said)) =
            parse_value(&words[at..at + most], at == 0 || words[at - 1].ends_sentence())
        else {
            at += 1;
            continue;
        };
        found.push(make_span(text, &words[at..at + count], said));
        at += count;
    }
    found.extend(quoted);
    found.sort_by_key(|span| span.range.start);
    found
}

fn make_span(text: &str, words: &[TextWord<'_>], said: SpanKind) -> ValueSpan {
    let (first, last) = (words[0], words[words.len() - 1]);
    let range = first.begin..last.end();
    ValueSpan { text: bare(&text[range.clone()]).to_owned(), range, kind: said }
}

/// Parses the value at the start of `words`, and returns the number of words it takes.
fn parse_value(words: &[TextWord<'_>], begins_sentence: bool) -> Option<(usize, SpanKind)> {
    let word = words[0].bare();
    if let Some(mask) = MaskKind::classify(words[0].text) {
        return Some((
            1,
            match mask {
                MaskKind::Email => SpanKind::Email,
                MaskKind::Url => SpanKind::Url,
                MaskKind::Path | MaskKind::File => SpanKind::Path,
            },
        ));
    }
    if let Some((count, clock)) = calendar::parse_time(words) {
        return Some((count, SpanKind::Time(clock)));
    }
    if let Some((count, day)) = calendar::parse_day(words) {
        return Some((count, SpanKind::Date(day)));
    }
    if let Some(count) = street_address_length(words) {
        return Some((count, SpanKind::Name));
    }
    if let Some(number) = parse_number(word) {
        return Some((1, SpanKind::Number(number)));
    }
    if is_code(word) {
        return Some((1, SpanKind::Code));
    }
    name_length(words, begins_sentence).map(|count| (count, SpanKind::Name))
}

/// Parses a number in digits, with an attached currency or unit, or a small one in words.
pub(crate) fn parse_number(word: &str) -> Option<f64> {
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
    let lower = without_unit(&lower);
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

/// Removes the unit that is attached to a number: `440hz`, `74-year-old`, `18th`.
fn without_unit(word: &str) -> &str {
    const UNITS: &[&str] = &[
        "a", "atm", "bar", "c", "cm", "db", "f", "ft", "g", "gb", "ghz", "h", "hp", "hr", "hz", "in", "j",
        "j/k", "k", "kb", "kg", "khz", "km", "km/h", "kw", "kwh", "l", "lb", "lbs", "m", "m/s", "m/s^2",
        "m^2", "m^3", "ma", "mb", "mg", "mhz", "mi", "min", "ml", "mm", "mph", "ms", "n", "nd", "nm", "oz",
        "pa", "pm", "px", "rd", "s", "sec", "st", "t", "tb", "th", "v", "w", "yd", "°c", "°f", "m²", "m³",
    ];
    let digits = word.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    if digits.is_empty() || digits.len() == word.len() {
        return word;
    }
    // The unit itself may have a digit: `m^3`.
    let number = word.find(|letter: char| letter.is_alphabetic() || letter == '°').unwrap_or(word.len());
    if UNITS.contains(&&word[number..]) {
        return &word[..number];
    }
    if is_counted(word) { word.split('-').next().unwrap_or(word) } else { word }
}

/// Returns the number of words of a street address that starts with a house number.
fn street_address_length(words: &[TextWord<'_>]) -> Option<usize> {
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
    is_street.then(|| 1 + name_length(rest, false).unwrap_or(named).max(named))
}

/// Returns true if a token is not a natural word.
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

/// Returns true for a number with the thing it counts: `20-sided`, `74-year-old`.
fn is_counted(word: &str) -> bool {
    word.split_once('-').is_some_and(|(number, unit)| {
        !number.is_empty()
            && number.bytes().all(|letter| letter.is_ascii_digit())
            && unit.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'-')
            && unit.starts_with(|first: char| first.is_ascii_lowercase())
    })
}

/// Returns the number of words of a name.
fn name_length(words: &[TextWord<'_>], begins_sentence: bool) -> Option<usize> {
    let is_capital = |word: &TextWord<'_>| {
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
    // The first word of a sentence is always capitalised, so it is no evidence of a name.
    let all_capitals = words[0].bare().len() > 1 && !words[0].bare().contains(char::is_lowercase);
    (!begins_sentence || all_capitals).then_some(count)
}

/// Removes quotations of two or more words. They are the object of a request and say nothing about the action; a single
/// quoted word is often the name of something.
pub(crate) fn remove_quotations(text: &str) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for span in find_quotations(text).iter().filter(|span| span.text.split_whitespace().nth(1).is_some()) {
        out.push_str(&text[at..span.range.start]);
        at = span.range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// Finds text in quotes. An apostrophe within a word is not a quote.
fn find_quotations(text: &str) -> Vec<ValueSpan> {
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
        let end =
            (!before.is_alphanumeric()).then(|| find_closing_quote(&text[content..], closing)).flatten();
        before = letter;
        let Some(length) = end.filter(|length| *length > 0) else { continue };
        let end = content + length;
        found.push(ValueSpan {
            range: begin..end + closing.len_utf8(),
            text: text[content..end].to_owned(),
            kind: SpanKind::Quoted,
        });
        while letters.next_if(|(at, _)| *at <= end).is_some() {}
    }
    found
}

/// Returns the offset of the closing quote: one that no letter follows.
fn find_closing_quote(text: &str, closing: char) -> Option<usize> {
    let ends = text.match_indices(closing).map(|(at, _)| at);
    let follows = |at: &usize| text[at + closing.len_utf8()..].chars().next();
    ends.into_iter().find(|at| !follows(at).is_some_and(char::is_alphanumeric))
}

#[cfg(test)]
mod tests;
