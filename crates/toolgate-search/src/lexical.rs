//! The lexical half: BM25 over the words of a tool, where words of its name count more than those around it.
//!
//! Invariant: an entry that is taken out leaves nothing behind, so an index that was changed a thousand times
//! answers as one that was built anew.

use std::collections::HashMap;

use serde_json::Value;

use crate::entry::{Entry, Kind, Parameter};
use crate::words::terms;

/// How soon a repeated word stops to count, and how much a long text is held against it: the figures that BM25 is
/// used with everywhere. Texts of tools are short, and their lengths say little.
const SATURATION: f32 = 1.2;
const LENGTH: f32 = 0.4;

/// How much one occurrence counts, by where it stands. A name is chosen with care; a parameter often has the
/// words of something else.
const OF_NAME: f32 = 3.0;
const OF_TITLE: f32 = 2.0;
const OF_DESCRIPTION: f32 = 1.0;
const OF_EXAMPLES: f32 = 1.0;
const OF_PARAMETERS: f32 = 0.5;

/// How many words more a query is held to than it has. One of a word or two says less than its words do.
const UNSAID: f32 = 0.5;

/// Words of one text that are read. A description beyond this is no description.
const MOST_WORDS: usize = 2_000;

/// Which words stand in which entry.
#[derive(Debug, Default)]
pub(crate) struct Lexical {
    postings: HashMap<Box<str>, Vec<Posting>>,
    /// By slot; empty where nothing is.
    documents: Vec<Document>,
    count: usize,
    total_length: f64,
}

#[derive(Debug, Default)]
struct Document {
    terms: Vec<Box<str>>,
    length: f32,
}

#[derive(Debug)]
struct Posting {
    slot: u32,
    weight: f32,
}

/// What parameters and their members are called, what is said of them, and the values they may have.
fn words_of(parameters: &[Parameter], add: &mut impl FnMut(&str)) {
    for parameter in parameters {
        add(&parameter.name);
        add(&parameter.description);
        if let Kind::OneOf(values) = &parameter.kind {
            values.iter().filter_map(Value::as_str).for_each(&mut *add);
        }
        words_of(parameter.kind.members(), add);
    }
}

impl Lexical {
    /// Puts an entry into a slot, which is empty.
    pub(crate) fn put(&mut self, slot: usize, entry: &Entry) {
        let mut weights: HashMap<String, f32> = HashMap::new();
        let mut length = 0.0;
        let mut add = |text: &str, weight: f32| {
            for term in terms(text).into_iter().take(MOST_WORDS) {
                *weights.entry(term).or_default() += weight;
                length += weight;
            }
        };
        add(&entry.name, OF_NAME);
        add(entry.server.as_deref().unwrap_or_default(), OF_DESCRIPTION);
        add(entry.title.as_deref().unwrap_or_default(), OF_TITLE);
        add(&entry.description, OF_DESCRIPTION);
        entry.examples.iter().for_each(|example| add(example, OF_EXAMPLES));
        words_of(&entry.parameters, &mut |text| add(text, OF_PARAMETERS));
        let mut document = Document { terms: Vec::with_capacity(weights.len()), length };
        let at = u32::try_from(slot).expect("there are fewer tools than that");
        for (term, weight) in weights {
            let term = term.into_boxed_str();
            self.postings.entry(term.clone()).or_default().push(Posting { slot: at, weight });
            document.terms.push(term);
        }
        if self.documents.len() <= slot {
            self.documents.resize_with(slot + 1, Document::default);
        }
        self.documents[slot] = document;
        self.count += 1;
        self.total_length += f64::from(length);
    }

    /// Empties a slot.
    pub(crate) fn remove(&mut self, slot: usize) {
        let document = std::mem::take(&mut self.documents[slot]);
        for term in document.terms {
            let postings = self.postings.get_mut(&term).expect("a term of an entry has postings");
            postings.retain(|posting| posting.slot as usize != slot);
            if postings.is_empty() {
                self.postings.remove(&term);
            }
        }
        self.count -= 1;
        self.total_length -= f64::from(document.length);
    }

    /// How much of a query each slot covers: its BM25 score, as a part of what the query could score at most. Words
    /// that no entry has count as rare ones, so a query that is mostly about something else covers little.
    pub(crate) fn coverage(&self, query: &str) -> Vec<f32> {
        let mut scores = vec![0.0; self.documents.len()];
        let mut wanted = terms(query);
        wanted.truncate(MOST_WORDS);
        wanted.sort_unstable();
        wanted.dedup();
        let average = (self.total_length / self.count.max(1) as f64) as f32;
        let mut best = UNSAID * self.rarity(0) * (SATURATION + 1.0);
        for term in &wanted {
            let postings = self.postings.get(term.as_str()).map(Vec::as_slice).unwrap_or_default();
            let rarity = self.rarity(postings.len());
            best += rarity * (SATURATION + 1.0);
            for Posting { slot, weight } in postings {
                let length = 1.0 - LENGTH + LENGTH * self.documents[*slot as usize].length / average.max(1.0);
                scores[*slot as usize] +=
                    rarity * weight * (SATURATION + 1.0) / (weight + SATURATION * length);
            }
        }
        if best > 0.0 {
            scores.iter_mut().for_each(|score| *score /= best);
        }
        scores
    }

    fn rarity(&self, with_it: usize) -> f32 {
        let (all, with_it) = (self.count as f32, with_it as f32);
        (1.0 + (all - with_it + 0.5) / (with_it + 0.5)).ln()
    }
}
