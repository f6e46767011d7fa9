//! Conversion of values in a sentence to the types of a schema.
//!
//! Invariant: a value has the type of its parameter, or there is none.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Number, Value};

use crate::entry::ValueKind;
use crate::values::{CalendarDate, SpanKind, TimeOfDay, ValueSpan};
use crate::words::{is_content_word, split, stem};

/// Converts a value in the sentence to a type.
pub(super) fn convert(span: &ValueSpan, kind: &ValueKind, today: Option<CalendarDate>) -> Option<Value> {
    match kind {
        ValueKind::Text => Some(Value::from(text(span, today))),
        ValueKind::Integer => match span.kind {
            SpanKind::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Some(Value::from(number as i64))
            }
            _ => None,
        },
        ValueKind::Number => match span.kind {
            SpanKind::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Some(Value::from(number as i64))
            }
            SpanKind::Number(number) => Number::from_f64(number).map(Value::Number),
            _ => None,
        },
        _ => None,
    }
}

/// Formats dates and times as ISO 8601, and leaves everything else as written.
fn text(span: &ValueSpan, today: Option<CalendarDate>) -> String {
    match span.kind {
        SpanKind::Date(day) => {
            // A date with a year does not depend on today.
            let from = today.unwrap_or(CalendarDate { year: 1970, month: 1, day: 1 });
            let date = from.resolve(day).filter(|_| today.is_some() || day.is_complete());
            date.map_or_else(|| span.text.clone(), |date| date.to_string())
        }
        SpanKind::Time(TimeOfDay { hour, minute }) => format!("{hour:02}:{minute:02}"),
        _ => span.text.clone(),
    }
}

/// Finds the enum value that occurs in a sentence, and its range. Longer ones win: `read-only` before `read`.
pub(super) fn find_choice<'a>(sentence: &str, values: &'a [Value]) -> Option<(&'a Value, Range<usize>)> {
    let said: Vec<(String, Range<usize>)> = locate_words(sentence);
    let mut found: Vec<(usize, &Value, Range<usize>)> = Vec::new();
    for value in values {
        let wanted: Vec<String> = match value {
            Value::String(text) => split(text).into_iter().map(stem).collect(),
            Value::Number(number) => vec![number.to_string()],
            _ => continue,
        };
        if wanted.is_empty() {
            continue;
        }
        let mut windows = said.windows(wanted.len());
        if let Some(window) = windows.find(|window| window.iter().map(|(word, _)| word).eq(&wanted)) {
            let range = window[0].1.start..window[window.len() - 1].1.end;
            found.push((wanted.len(), value, range));
        }
    }
    let longest = found.iter().map(|(length, ..)| *length).max()?;
    let mut longest = found.into_iter().filter(|(length, ..)| *length == longest);
    let (_, value, range) = longest.next()?;
    // If two of them occur, the choice is ambiguous.
    longest.next().is_none().then_some((value, range))
}

/// Returns the stemmed words of a sentence with their ranges.
fn locate_words(sentence: &str) -> Vec<(String, Range<usize>)> {
    let mut found = Vec::new();
    let mut begin = None;
    for (at, letter) in sentence.char_indices().chain([(sentence.len(), ' ')]) {
        match (letter.is_alphanumeric(), begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                let words = split(&sentence[from..at]);
                found.extend(words.into_iter().map(|word| (stem(word), from..at)));
                begin = None;
            }
            _ => {}
        }
    }
    found
}

/// Returns the free text of a sentence: `search the web for cats` gives `cats`. Polite words and the tool's own words
/// at the start are skipped. Text after a colon is returned as a whole: `count the words of this: to be or not`.
pub(super) fn free_text(sentence: &str, own: &HashSet<String>) -> Option<String> {
    let is_idle = |word: &str| {
        let words = split(word);
        words.iter().all(|word| !is_content_word(word) || own.contains(&stem(word.clone())))
    };
    if let Some((before, after)) = sentence.split_once(": ")
        && before.split_whitespace().nth(1).is_some()
        && !after.trim().is_empty()
    {
        return Some(after.trim().to_owned());
    }
    let mut rest = sentence.trim();
    while let Some(word) = rest.split_whitespace().next() {
        if !is_idle(word) {
            break;
        }
        rest = rest[word.len()..].trim_start();
    }
    let rest = rest.trim_end_matches(['?', '!', '.', ' ']);
    (!rest.is_empty()).then(|| rest.to_owned())
}
