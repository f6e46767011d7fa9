//! Values: what was said, in the shape that a schema wants.
//!
//! Invariant: a value fits the kind of its parameter, or there is none.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Number, Value};

use crate::entry::Kind;
use crate::said::{Clock, Date, Said, Span};
use crate::words::{is_said, split, stem};

/// A value of a kind, made of what was said.
pub(super) fn of(span: &Span, kind: &Kind, today: Option<Date>) -> Option<Value> {
    match kind {
        Kind::Text => Some(Value::from(text(span, today))),
        Kind::Integer => match span.said {
            Said::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Some(Value::from(number as i64))
            }
            _ => None,
        },
        Kind::Number => match span.said {
            Said::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Some(Value::from(number as i64))
            }
            Said::Number(number) => Number::from_f64(number).map(Value::Number),
            _ => None,
        },
        _ => None,
    }
}

/// Days and times in the way that programs write them, all else as it was said.
fn text(span: &Span, today: Option<Date>) -> String {
    match span.said {
        Said::Date(day) => {
            // A day with its year is the same on every day.
            let from = today.unwrap_or(Date { year: 1970, month: 1, day: 1 });
            let date = from.meant(day).filter(|_| today.is_some() || day.is_complete());
            date.map_or_else(|| span.text.clone(), |date| date.to_string())
        }
        Said::Time(Clock { hour, minute }) => format!("{hour:02}:{minute:02}"),
        _ => span.text.clone(),
    }
}

/// The one of some values that a sentence holds, and where. Longer ones count first: `read-only` before `read`.
pub(super) fn chosen<'a>(sentence: &str, values: &'a [Value]) -> Option<(&'a Value, Range<usize>)> {
    let said: Vec<(String, Range<usize>)> = located(sentence);
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
    // Two of them were said: which is meant is not plain.
    longest.next().is_none().then_some((value, range))
}

/// The words of a sentence, endings cut, with their places.
fn located(sentence: &str) -> Vec<(String, Range<usize>)> {
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

/// What a sentence says beside what the tool is for: `search the web for cats` says `cats`. Politeness, and the words
/// that the tool has itself, are no part of it where they come first. What stands behind a colon is all of it:
/// `count the words of this: to be or not`.
pub(super) fn rest(sentence: &str, own: &HashSet<String>) -> Option<String> {
    let is_idle = |word: &str| {
        let words = split(word);
        words.iter().all(|word| !is_said(word) || own.contains(&stem(word.clone())))
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
