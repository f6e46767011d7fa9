//! Argument extraction: assigns the values in a sentence to the parameters of a tool, and lists the missing ones.
//!
//! A pure function of the sentence and the parameters. Values are assigned first to parameters that the sentence names,
//! then by their type. Invariant: nothing is invented. A value comes from the sentence or from the schema; otherwise
//! the parameter is missing.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::entry::{ToolEntry, ToolParameter, ToolPurpose, ValueKind};
use crate::values::{self, CalendarDate, SpanKind, ValueSpan};
use crate::words::{self, split, stem};

mod role;
mod value;

use role::ParameterRole;

/// Words allowed between a parameter's name and its value: `the port is 80`, `a file called x`.
const LINKING_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "be", "called", "equal", "equals", "is", "named", "number", "of", "set",
    "should", "the", "to", "with",
];

/// Words before a place or a name.
const PLACE_PREPOSITIONS: &[&str] = &["at", "for", "from", "in", "near", "of", "on"];
/// Words between a preposition and its noun.
const ARTICLES: &[&str] = &["a", "an", "my", "our", "the", "this", "your"];

/// Maximum number of words between a name and its value.
const MAX_WORDS_BETWEEN: usize = 3;

/// The arguments found in a sentence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExtractedArguments {
    /// Values by parameter name, in the order of the schema.
    pub values: Map<String, Value>,
    /// Required parameters without a value, in the order of the schema.
    pub missing: Vec<String>,
    /// Required parameters whose value may be in the sentence, but not in a recognised form.
    pub unclear: Vec<String>,
}

impl ExtractedArguments {
    /// Extracts the arguments of a tool from a sentence. `today` resolves relative days such as "tomorrow"; without it
    /// they stay as written.
    pub fn extract(sentence: &str, entry: &ToolEntry, today: Option<CalendarDate>) -> Self {
        ArgumentFiller::new(sentence, entry, today).finish()
    }
}

/// Assigns values to parameters, in several passes.
struct ArgumentFiller<'a> {
    sentence: &'a str,
    entry: &'a ToolEntry,
    today: Option<CalendarDate>,
    /// Words of the tool's own name and description.
    own: HashSet<String>,
    roles: Vec<ParameterRole>,
    spans: Vec<ValueSpan>,
    /// Span assigned to each parameter.
    assigned: Vec<Option<usize>>,
    taken: HashSet<usize>,
    values: Map<String, Value>,
}

impl<'a> ArgumentFiller<'a> {
    fn new(sentence: &'a str, entry: &'a ToolEntry, today: Option<CalendarDate>) -> Self {
        let own = own_words(entry);
        let mut spans = values::find_values(sentence);
        spans.extend(hyphenated_spans(sentence, entry, &spans));
        spans.sort_by_key(|span| span.range.start);
        // A name that is part of the tool's own words identifies the tool; it is not an argument.
        spans.retain(|span| {
            let is_own = split(&span.text).into_iter().all(|word| own.contains(&stem(word)));
            let is_name = matches!(span.kind, SpanKind::Name | SpanKind::Code);
            !is_own || !is_name || direction_before(sentence, span).is_some()
        });
        let roles = entry.parameters.iter().map(ParameterRole::from_parameter).collect();
        let assigned = vec![None; entry.parameters.len()];
        let mut filler = Self {
            sentence,
            entry,
            today,
            own,
            roles,
            spans,
            assigned,
            taken: HashSet::new(),
            values: Map::new(),
        };
        filler.fill_choices();
        filler.fill_assignments();
        filler.fill_named();
        filler.fill_by_role();
        filler.fill_lists();
        filler
    }

    /// Assigns enum values that occur in the sentence.
    fn fill_choices(&mut self) {
        for (at, parameter) in self.entry.parameters.iter().enumerate() {
            let ValueKind::OneOf(values) = &parameter.kind else { continue };
            let Some((value, range)) = value::find_choice(self.sentence, values) else { continue };
            for (at, span) in self.spans.iter_mut().enumerate() {
                if span.range.start < range.start
                    && range.end >= span.range.end
                    && range.start < span.range.end
                {
                    // `SF Psychologist`: the part before the enum value is still a value.
                    span.range.end = range.start;
                    span.text = self.sentence[span.range.clone()].trim().to_owned();
                } else if span.range.start < range.end && range.start < span.range.end {
                    self.taken.insert(at);
                }
            }
            self.values.insert(self.entry.parameters[at].name.clone(), value.clone());
        }
    }

    /// Assigns values that are written as in code: `a=2`.
    fn fill_assignments(&mut self) {
        for span in 0..self.spans.len() {
            let Some((name, value)) = self.spans[span].text.split_once('=') else { continue };
            let Some(kind) = values::find_values(value).pop().map(|found| found.kind) else { continue };
            let wanted = split(name);
            let mut open = (0..self.roles.len()).filter(|at| self.is_open(*at));
            let Some(at) = open.find(|at| split(&self.entry.parameters[*at].name) == wanted) else {
                continue;
            };
            if self.roles[at].accepts(&kind) {
                let range = self.spans[span].range.clone();
                self.spans[span] = ValueSpan { range, text: value.to_owned(), kind };
                self.assign(at, span);
            }
        }
    }

    /// Assigns values that follow the name of a parameter.
    fn fill_named(&mut self) {
        for span in 0..self.spans.len() {
            if self.taken.contains(&span) {
                continue;
            }
            let before = &self.sentence[..self.spans[span].range.start];
            let open = (0..self.roles.len()).filter(|at| self.is_open(*at));
            let fits = open.filter(|at| self.roles[*at].accepts(&self.spans[span].kind));
            let named =
                fits.filter_map(|at| Some((name_distance(before, &self.entry.parameters[at].name)?, at)));
            if let Some((_, at)) = named.min() {
                self.assign(at, span);
            }
        }
    }

    /// Assigns the remaining values to required parameters by role, specific roles before general ones.
    fn fill_by_role(&mut self) {
        let mut order: Vec<usize> =
            (0..self.roles.len()).filter(|at| self.entry.parameters[*at].required).collect();
        order.sort_by_key(|at| self.roles[*at]);
        for at in order {
            if !self.is_open(at) {
                continue;
            }
            let free = (0..self.spans.len()).filter(|span| !self.taken.contains(span));
            let fits: Vec<usize> =
                free.filter(|span| self.roles[at].accepts(&self.spans[*span].kind)).collect();
            let wanted = Direction::from_name(&self.entry.parameters[at].name);
            let pointed = fits.iter().find(|span| {
                wanted.is_some() && wanted == direction_before(self.sentence, &self.spans[**span])
            });
            let other = fits.iter().find(|span| {
                wanted.is_none() || direction_before(self.sentence, &self.spans[**span]).is_none()
            });
            if let Some(span) = pointed.or(other).copied() {
                self.assign(at, span);
            }
        }
    }

    /// Assigns all remaining values that fit to required lists: `read a.txt and b.txt`.
    fn fill_lists(&mut self) {
        for parameter in self.entry.parameters.iter().filter(|parameter| parameter.required) {
            let ValueKind::List(inner) = &parameter.kind else { continue };
            let one = ToolParameter {
                name: singular(&parameter.name),
                kind: inner.as_ref().clone(),
                ..parameter.clone()
            };
            let role = ParameterRole::from_parameter(&one);
            let free = self.spans.iter().enumerate().filter(|(at, _)| !self.taken.contains(at));
            let fits = free.filter(|(_, span)| role.accepts(&span.kind));
            let found: Vec<(usize, Value)> =
                fits.filter_map(|(at, span)| Some((at, value::convert(span, inner, self.today)?))).collect();
            if !found.is_empty() {
                self.taken.extend(found.iter().map(|(at, _)| *at));
                let values: Vec<Value> = found.into_iter().map(|(_, value)| value).collect();
                self.values.insert(parameter.name.clone(), Value::from(values));
            }
        }
    }

    fn is_open(&self, at: usize) -> bool {
        self.assigned[at].is_none() && !self.values.contains_key(&self.entry.parameters[at].name)
    }

    fn assign(&mut self, at: usize, span: usize) {
        let parameter = &self.entry.parameters[at];
        if let Some(value) = value::convert(&self.spans[span], &parameter.kind, self.today) {
            self.values.insert(parameter.name.clone(), value);
            self.assigned[at] = Some(span);
            self.taken.insert(span);
        }
    }

    fn finish(mut self) -> ExtractedArguments {
        let (mut missing, mut unclear) = (Vec::new(), Vec::new());
        let purpose = self.entry.purpose();
        for (at, parameter) in self.entry.parameters.iter().enumerate() {
            if !parameter.required || self.values.contains_key(&parameter.name) {
                continue;
            }
            match self.roles[at] {
                // Nothing in a sentence is a program, unless it is quoted.
                ParameterRole::Words if purpose == Some(ToolPurpose::ExecuteCode) => {
                    missing.push(parameter.name.clone());
                }
                ParameterRole::Words
                    if purpose == Some(ToolPurpose::SearchWeb) && is_question(self.sentence) =>
                {
                    let question = self.sentence.trim().trim_end_matches(['?', '!', '.', ' ']);
                    self.values.insert(parameter.name.clone(), Value::from(question));
                }
                ParameterRole::Words if self.is_only_words(at) => {
                    match value::free_text(self.sentence, &self.own) {
                        Some(rest) => {
                            self.values.insert(parameter.name.clone(), Value::from(rest));
                        }
                        None => missing.push(parameter.name.clone()),
                    }
                }
                ParameterRole::Words
                | ParameterRole::Count
                | ParameterRole::Many
                | ParameterRole::Choice
                | ParameterRole::Flag => unclear.push(parameter.name.clone()),
                role if self.is_hinted(role) || self.is_named_in_words(role) => {
                    unclear.push(parameter.name.clone());
                }
                _ => missing.push(parameter.name.clone()),
            }
        }
        let names = self.entry.parameters.iter().map(|parameter| &parameter.name);
        let values = names.filter_map(|name| Some((name.clone(), self.values.remove(name)?))).collect();
        ExtractedArguments { values, missing, unclear }
    }

    fn is_hinted(&self, role: ParameterRole) -> bool {
        let mut free = self.spans.iter().enumerate().filter(|(at, _)| !self.taken.contains(at));
        free.any(|(_, span)| role.hints_at(&span.kind))
    }

    /// Returns true if the sentence may have a place or a name in plain words: `the curtains in the kitchen`. Such words
    /// are no value, no part of the tool's own words, and follow a preposition.
    fn is_named_in_words(&self, role: ParameterRole) -> bool {
        if !matches!(role, ParameterRole::Place | ParameterRole::Name | ParameterRole::Handle) {
            return false;
        }
        let mut follows_preposition = false;
        for word in values::split_words(self.sentence) {
            let text = word.lower();
            let is_value = self.spans.iter().any(|span| span.range.contains(&word.begin));
            if PLACE_PREPOSITIONS.contains(&text.as_str()) {
                follows_preposition = true;
            } else if is_value || !split(&text).iter().any(|word| words::is_content_word(word)) {
                follows_preposition &= ARTICLES.contains(&text.as_str());
            } else if follows_preposition {
                if !split(&text).into_iter().all(|word| self.own.contains(&stem(word))) {
                    return true;
                }
                follows_preposition = false;
            }
        }
        false
    }

    /// Returns true if no other required parameter takes free text.
    fn is_only_words(&self, at: usize) -> bool {
        let parameters = self.entry.parameters.iter().zip(&self.roles).enumerate();
        let mut others = parameters.filter(|(other, (parameter, role))| {
            *other != at && parameter.required && **role == ParameterRole::Words
        });
        others.next().is_none()
    }
}

/// Returns true for a question, as opposed to a command such as `search the web for cats`.
fn is_question(sentence: &str) -> bool {
    const QUESTION_WORDS: &[&str] = &[
        "any", "are", "can", "did", "do", "does", "has", "have", "how", "is", "was", "were", "what", "when",
        "where", "which", "who", "whom", "whose", "why", "will",
    ];
    let first = split(sentence).into_iter().next();
    first.is_some_and(|word| QUESTION_WORDS.contains(&word.as_str()))
}

fn singular(name: &str) -> String {
    name.strip_suffix('s').unwrap_or(name).to_owned()
}

/// Finds hyphenated words right after the name of a parameter: `the namespace red-team`. Elsewhere they are plain
/// words.
fn hyphenated_spans(sentence: &str, entry: &ToolEntry, spans: &[ValueSpan]) -> Vec<ValueSpan> {
    let words = values::split_words(sentence);
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let text = pair[1].bare();
        let name = stem(pair[0].lower());
        let is_named =
            entry.parameters.iter().any(|one| split(&one.name).pop().is_some_and(|last| stem(last) == name));
        let range = pair[1].begin..pair[1].begin + pair[1].text.len();
        let is_new = spans.iter().all(|span| span.range.end <= range.start || range.end <= span.range.start);
        if text.contains('-') && is_named && is_new {
            found.push(ValueSpan { range, text: text.to_owned(), kind: SpanKind::Code });
        }
    }
    found
}

/// Returns the direction given by the word before a value.
fn direction_before(sentence: &str, span: &ValueSpan) -> Option<Direction> {
    Direction::from_name(sentence[..span.range.start].split_whitespace().next_back()?)
}

/// Start or end of a route or a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    From,
    To,
}

impl Direction {
    fn from_name(name: &str) -> Option<Self> {
        split(name).iter().find_map(|word| match word.as_str() {
            "from" | "origin" | "source" | "start" | "base" | "departure" | "starting" => Some(Self::From),
            "to" | "destination" | "target" | "end" | "until" | "arrival" | "ending" => Some(Self::To),
            _ => None,
        })
    }
}

/// Returns a distance between the name of a parameter and the end of the text, if the name occurs there.
fn name_distance(before: &str, name: &str) -> Option<usize> {
    let wanted: Vec<String> = split(name).into_iter().map(stem).collect();
    let last = wanted.last()?;
    let said = split(before);
    for (apart, word) in said.iter().rev().enumerate().take(MAX_WORDS_BETWEEN + 1) {
        if stem(word.clone()) == *last && words::is_content_word(word) {
            // The more words of the name match, the smaller the distance: `order id` beats `id`.
            let more = said[..said.len() - apart].iter().rev().zip(wanted.iter().rev());
            let same = more.take_while(|(said, wanted)| stem((*said).clone()) == **wanted).count();
            return Some((apart + 1) * 8 - same.min(7));
        }
        if !LINKING_WORDS.contains(&word.as_str()) {
            return None;
        }
    }
    None
}

/// Returns the stemmed words of a tool's name, title, description and server.
fn own_words(entry: &ToolEntry) -> HashSet<String> {
    let texts = [&entry.name, &entry.description].into_iter().chain(&entry.title).chain(&entry.server);
    texts.flat_map(|text| split(text)).map(stem).collect()
}

#[cfg(test)]
mod tests;
