//! Arguments: what of a sentence goes where, and what is missing.
//!
//! A pure function of the words and of what a tool takes. Values that stand in the sentence are given to the
//! parameters they fit: those that the sentence names first, the others by what they are. Invariant: nothing is made
//! up. A value comes from the words or from the schema; what is in neither is missing.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::entry::{Entry, Kind, Parameter};
use crate::said::{self, Date, Said, Span};
use crate::words::{self, split, stem};

mod role;
mod value;

use role::Role;

/// Words between a parameter's name and its value: `the port is 80`, `a file called x`.
const BETWEEN: &[&str] = &[
    "a", "an", "and", "are", "as", "be", "called", "equal", "equals", "is", "named", "number", "of", "set",
    "should", "the", "to", "with",
];

/// How many words a name and its value may be apart.
const MOST_BETWEEN: usize = 3;

/// What a sentence gives to a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arguments {
    /// The values that it holds, by the names of parameters, in the order of the schema.
    pub values: Map<String, Value>,
    /// Required parameters for which it holds none, in the order of the schema.
    pub missing: Vec<String>,
    /// Required parameters of which the words alone do not say whether they hold them.
    pub unclear: Vec<String>,
}

impl Arguments {
    /// What a sentence gives to a tool. `today` is for those who say "tomorrow"; without it such a day stays as it was
    /// said.
    pub fn of(sentence: &str, entry: &Entry, today: Option<Date>) -> Self {
        Filling::new(sentence, entry, today).finish()
    }
}

/// Parameters that are being filled.
struct Filling<'a> {
    sentence: &'a str,
    entry: &'a Entry,
    today: Option<Date>,
    /// The words that the tool has itself.
    own: HashSet<String>,
    roles: Vec<Role>,
    spans: Vec<Span>,
    /// By parameter, the span it got.
    given: Vec<Option<usize>>,
    taken: HashSet<usize>,
    values: Map<String, Value>,
}

impl<'a> Filling<'a> {
    fn new(sentence: &'a str, entry: &'a Entry, today: Option<Date>) -> Self {
        let own = own_words(entry);
        let mut spans = said::spans(sentence);
        spans.extend(joined(sentence, entry, &spans));
        spans.sort_by_key(|span| span.range.start);
        // A name that the tool has itself says which tool is meant, not what it should be given.
        spans.retain(|span| {
            let is_own = split(&span.text).into_iter().all(|word| own.contains(&stem(word)));
            let is_name = matches!(span.said, Said::Name | Said::Code);
            !is_own || !is_name || toward(sentence, span).is_some()
        });
        let roles = entry.parameters.iter().map(Role::of).collect();
        let given = vec![None; entry.parameters.len()];
        let mut filling = Self {
            sentence,
            entry,
            today,
            own,
            roles,
            spans,
            given,
            taken: HashSet::new(),
            values: Map::new(),
        };
        filling.choices();
        filling.named();
        filling.fitting();
        filling.lists();
        filling
    }

    /// Values out of a list, where one of them was said.
    fn choices(&mut self) {
        for (at, parameter) in self.entry.parameters.iter().enumerate() {
            let Kind::OneOf(values) = &parameter.kind else { continue };
            let Some((value, range)) = value::chosen(self.sentence, values) else { continue };
            for (at, span) in self.spans.iter_mut().enumerate() {
                if span.range.start < range.start
                    && range.end >= span.range.end
                    && range.start < span.range.end
                {
                    // `SF Psychologist`: what is before the choice is a value still.
                    span.range.end = range.start;
                    span.text = self.sentence[span.range.clone()].trim().to_owned();
                } else if span.range.start < range.end && range.start < span.range.end {
                    self.taken.insert(at);
                }
            }
            self.values.insert(self.entry.parameters[at].name.clone(), value.clone());
        }
    }

    /// Values that stand after the name of a parameter.
    fn named(&mut self) {
        for span in 0..self.spans.len() {
            if self.taken.contains(&span) {
                continue;
            }
            let before = &self.sentence[..self.spans[span].range.start];
            let open = (0..self.roles.len()).filter(|at| self.is_open(*at));
            let fits = open.filter(|at| self.roles[*at].takes(&self.spans[span].said));
            let named = fits.filter_map(|at| Some((distance(before, &self.entry.parameters[at].name)?, at)));
            if let Some((_, at)) = named.min() {
                self.give(at, span);
            }
        }
    }

    /// What is left, to the required parameters that it fits: the particular before the general.
    fn fitting(&mut self) {
        let mut order: Vec<usize> =
            (0..self.roles.len()).filter(|at| self.entry.parameters[*at].required).collect();
        order.sort_by_key(|at| self.roles[*at]);
        for at in order {
            if !self.is_open(at) {
                continue;
            }
            let free = (0..self.spans.len()).filter(|span| !self.taken.contains(span));
            let fits: Vec<usize> =
                free.filter(|span| self.roles[at].takes(&self.spans[*span].said)).collect();
            let wanted = Toward::of(&self.entry.parameters[at].name);
            let pointed = fits
                .iter()
                .find(|span| wanted.is_some() && wanted == toward(self.sentence, &self.spans[**span]));
            let other = fits
                .iter()
                .find(|span| wanted.is_none() || toward(self.sentence, &self.spans[**span]).is_none());
            if let Some(span) = pointed.or(other).copied() {
                self.give(at, span);
            }
        }
    }

    /// All that is left and fits, to the required lists: `read a.txt and b.txt`.
    fn lists(&mut self) {
        for parameter in self.entry.parameters.iter().filter(|parameter| parameter.required) {
            let Kind::List(inner) = &parameter.kind else { continue };
            let one = Parameter {
                name: singular(&parameter.name),
                kind: inner.as_ref().clone(),
                ..parameter.clone()
            };
            let role = Role::of(&one);
            let free = self.spans.iter().enumerate().filter(|(at, _)| !self.taken.contains(at));
            let fits = free.filter(|(_, span)| role.takes(&span.said));
            let found: Vec<(usize, Value)> =
                fits.filter_map(|(at, span)| Some((at, value::of(span, inner, self.today)?))).collect();
            if !found.is_empty() {
                self.taken.extend(found.iter().map(|(at, _)| *at));
                let values: Vec<Value> = found.into_iter().map(|(_, value)| value).collect();
                self.values.insert(parameter.name.clone(), Value::from(values));
            }
        }
    }

    fn is_open(&self, at: usize) -> bool {
        self.given[at].is_none() && !self.values.contains_key(&self.entry.parameters[at].name)
    }

    fn give(&mut self, at: usize, span: usize) {
        let parameter = &self.entry.parameters[at];
        if let Some(value) = value::of(&self.spans[span], &parameter.kind, self.today) {
            self.values.insert(parameter.name.clone(), value);
            self.given[at] = Some(span);
            self.taken.insert(span);
        }
    }

    fn finish(mut self) -> Arguments {
        let (mut missing, mut unclear) = (Vec::new(), Vec::new());
        for (at, parameter) in self.entry.parameters.iter().enumerate() {
            if !parameter.required || self.values.contains_key(&parameter.name) {
                continue;
            }
            match self.roles[at] {
                Role::Words if self.is_only_words(at) => match value::rest(self.sentence, &self.own) {
                    Some(rest) => {
                        self.values.insert(parameter.name.clone(), Value::from(rest));
                    }
                    None => missing.push(parameter.name.clone()),
                },
                Role::Words | Role::Count | Role::Many | Role::Choice | Role::Flag => {
                    unclear.push(parameter.name.clone())
                }
                role if self.is_hinted(role) => unclear.push(parameter.name.clone()),
                _ => missing.push(parameter.name.clone()),
            }
        }
        let names = self.entry.parameters.iter().map(|parameter| &parameter.name);
        let values = names.filter_map(|name| Some((name.clone(), self.values.remove(name)?))).collect();
        Arguments { values, missing, unclear }
    }

    fn is_hinted(&self, role: Role) -> bool {
        let mut free = self.spans.iter().enumerate().filter(|(at, _)| !self.taken.contains(at));
        free.any(|(_, span)| role.hints_at(&span.said))
    }

    /// Whether a parameter is the one that takes what people say in words of their own.
    fn is_only_words(&self, at: usize) -> bool {
        let parameters = self.entry.parameters.iter().zip(&self.roles).enumerate();
        let mut others = parameters
            .filter(|(other, (parameter, role))| *other != at && parameter.required && **role == Role::Words);
        others.next().is_none()
    }
}

/// The name of one of many.
fn singular(name: &str) -> String {
    name.strip_suffix('s').unwrap_or(name).to_owned()
}

/// Words with a hyphen right after the name of a parameter: `the namespace red-team`. Elsewhere they are words.
fn joined(sentence: &str, entry: &Entry, spans: &[Span]) -> Vec<Span> {
    let words = said::words(sentence);
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let text = pair[1].bare();
        let name = stem(pair[0].lower());
        let is_named =
            entry.parameters.iter().any(|one| split(&one.name).pop().is_some_and(|last| stem(last) == name));
        let range = pair[1].begin..pair[1].begin + pair[1].text.len();
        let is_new = spans.iter().all(|span| span.range.end <= range.start || range.end <= span.range.start);
        if text.contains('-') && is_named && is_new {
            found.push(Span { range, text: text.to_owned(), said: Said::Code });
        }
    }
    found
}

/// Where a value points to by the word before it.
fn toward(sentence: &str, span: &Span) -> Option<Toward> {
    Toward::of(sentence[..span.range.start].split_whitespace().next_back()?)
}

/// Two ends of a way, or of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Toward {
    From,
    To,
}

impl Toward {
    fn of(name: &str) -> Option<Self> {
        split(name).iter().find_map(|word| match word.as_str() {
            "from" | "origin" | "source" | "start" | "base" | "departure" | "starting" => Some(Self::From),
            "to" | "destination" | "target" | "end" | "until" | "arrival" | "ending" => Some(Self::To),
            _ => None,
        })
    }
}

/// How many words are between the name of a parameter and the end of a text, where it stands there.
fn distance(before: &str, name: &str) -> Option<usize> {
    let wanted: Vec<String> = split(name).into_iter().map(stem).collect();
    let last = wanted.last()?;
    let said = split(before);
    for (apart, word) in said.iter().rev().enumerate().take(MOST_BETWEEN + 1) {
        if stem(word.clone()) == *last && words::is_said(word) {
            // The more of the name was said, the nearer it is: `order id` before `id`.
            let more = said[..said.len() - apart].iter().rev().zip(wanted.iter().rev());
            let same = more.take_while(|(said, wanted)| stem((*said).clone()) == **wanted).count();
            return Some((apart + 1) * 8 - same.min(7));
        }
        if !BETWEEN.contains(&word.as_str()) {
            return None;
        }
    }
    None
}

/// The words that a tool has itself.
fn own_words(entry: &Entry) -> HashSet<String> {
    let texts = [&entry.name, &entry.description].into_iter().chain(&entry.title).chain(&entry.server);
    texts.flat_map(|text| split(text)).map(stem).collect()
}

#[cfg(test)]
mod tests;
