//! Lexical search: BM25 over the words of a tool, with a higher weight for words of its name.
//!
//! Invariant: a removed entry leaves nothing behind, so an index changed a thousand times gives the same results as one
//! built from scratch.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::entry::{ToolEntry, ToolParameter, ValueKind};
use crate::words::{index_terms, query_terms};

/// The BM25 parameters k1 and b. k1 has its usual value; b is lower than usual, because descriptions of tools are short
/// and their length says little.
const SATURATION: f32 = 1.2;
const LENGTH: f32 = 0.4;

/// Weights of an occurrence by field. Names are chosen carefully; parameters often contain words of unrelated things.
const NAME_WEIGHT: f32 = 3.0;
const TITLE_WEIGHT: f32 = 2.0;
const DESCRIPTION_WEIGHT: f32 = 1.0;
const EXAMPLE_WEIGHT: f32 = 1.0;
const PARAMETER_WEIGHT: f32 = 0.5;

/// Added to the number of query words, so that a query of one or two words cannot score too high.
const EXTRA_QUERY_WORDS: f32 = 0.5;

/// Maximum number of words read per text. A longer description is not one.
const MAX_WORDS: usize = 2_000;

/// An inverted index of words to entries.
#[derive(Debug, Default)]
pub(crate) struct LexicalIndex {
    /// Numbers of the terms, so that an entry holds a number per term and not its text.
    numbers: HashMap<Arc<str>, u32>,
    /// By number of the term; empty for free numbers.
    terms: Vec<TermPostings>,
    free: Vec<u32>,
    /// By slot; empty for free slots.
    documents: Vec<DocumentTerms>,
    count: usize,
    total_length: f64,
}

#[derive(Debug)]
struct TermPostings {
    term: Arc<str>,
    postings: Vec<Posting>,
}

/// The terms of an entry, with their weights.
pub(crate) struct WeightedTerms {
    weights: HashMap<String, f32>,
    length: f32,
}

#[derive(Debug, Default)]
struct DocumentTerms {
    terms: Box<[u32]>,
    length: f32,
}

#[derive(Debug)]
struct Posting {
    slot: u32,
    weight: f32,
}

/// Passes the names, descriptions and enum values of parameters and their members to `add`.
fn visit_parameter_texts(parameters: &[ToolParameter], add: &mut impl FnMut(&str)) {
    for parameter in parameters {
        add(&parameter.name);
        add(&parameter.description);
        if let ValueKind::OneOf(values) = &parameter.kind {
            values.iter().filter_map(Value::as_str).for_each(&mut *add);
        }
        visit_parameter_texts(parameter.kind.members(), add);
    }
}

impl WeightedTerms {
    /// Splits the texts of an entry.
    pub(crate) fn of(entry: &ToolEntry) -> Self {
        let mut weights: HashMap<String, f32> = HashMap::new();
        let mut length = 0.0;
        let mut add = |text: &str, weight: f32| {
            for term in index_terms(text).into_iter().take(MAX_WORDS) {
                *weights.entry(term).or_default() += weight;
                length += weight;
            }
        };
        add(&entry.name, NAME_WEIGHT);
        add(entry.server.as_deref().unwrap_or_default(), DESCRIPTION_WEIGHT);
        add(entry.title.as_deref().unwrap_or_default(), TITLE_WEIGHT);
        add(&entry.description, DESCRIPTION_WEIGHT);
        entry.examples.iter().for_each(|example| add(example, EXAMPLE_WEIGHT));
        visit_parameter_texts(&entry.parameters, &mut |text| add(text, PARAMETER_WEIGHT));
        Self { weights, length }
    }
}

impl LexicalIndex {
    /// Adds an entry to a free slot.
    pub(crate) fn put(&mut self, slot: usize, WeightedTerms { weights, length }: WeightedTerms) {
        let at = u32::try_from(slot).expect("there are fewer tools than that");
        let mut numbers = Vec::with_capacity(weights.len());
        for (term, weight) in weights {
            let number = self.number(&term);
            self.terms[number as usize].postings.push(Posting { slot: at, weight });
            numbers.push(number);
        }
        if self.documents.len() <= slot {
            self.documents.resize_with(slot + 1, DocumentTerms::default);
        }
        self.documents[slot] = DocumentTerms { terms: numbers.into(), length };
        self.count += 1;
        self.total_length += f64::from(length);
    }

    /// Returns the number of a term. A new term gets one.
    fn number(&mut self, term: &str) -> u32 {
        if let Some(number) = self.numbers.get(term) {
            return *number;
        }
        let term: Arc<str> = term.into();
        let postings = TermPostings { term: Arc::clone(&term), postings: Vec::new() };
        let number = match self.free.pop() {
            Some(number) => {
                self.terms[number as usize] = postings;
                number
            }
            None => {
                self.terms.push(postings);
                u32::try_from(self.terms.len() - 1).expect("there are fewer words than that")
            }
        };
        self.numbers.insert(term, number);
        number
    }

    /// Removes the entry of a slot.
    pub(crate) fn remove(&mut self, slot: usize) {
        let document = std::mem::take(&mut self.documents[slot]);
        for number in document.terms {
            let TermPostings { term, postings } = &mut self.terms[number as usize];
            postings.retain(|posting| posting.slot as usize != slot);
            if postings.is_empty() {
                self.numbers.remove(term);
                self.free.push(number);
            }
        }
        self.count -= 1;
        self.total_length -= f64::from(document.length);
    }

    fn postings(&self, term: &str) -> &[Posting] {
        self.numbers.get(term).map_or(&[], |number| &self.terms[*number as usize].postings)
    }

    /// Returns the coverage of the query by each slot: its BM25 score divided by the best possible score. Unknown words
    /// count as rare ones, so a query that is mostly about something else has low coverage.
    pub(crate) fn coverage(&self, query: &str) -> Vec<f32> {
        let mut scores = vec![0.0; self.documents.len()];
        let mut wanted = query_terms(query, |term| self.numbers.contains_key(term));
        wanted.truncate(MAX_WORDS);
        wanted.sort_unstable();
        wanted.dedup();
        let average = (self.total_length / self.count.max(1) as f64) as f32;
        let mut best = EXTRA_QUERY_WORDS * self.inverse_document_frequency(0) * (SATURATION + 1.0);
        for term in &wanted {
            let postings = self.postings(term);
            let inverse_document_frequency = self.inverse_document_frequency(postings.len());
            best += inverse_document_frequency * (SATURATION + 1.0);
            for Posting { slot, weight } in postings {
                let length = 1.0 - LENGTH + LENGTH * self.documents[*slot as usize].length / average.max(1.0);
                scores[*slot as usize] +=
                    inverse_document_frequency * weight * (SATURATION + 1.0) / (weight + SATURATION * length);
            }
        }
        if best > 0.0 {
            scores.iter_mut().for_each(|score| *score /= best);
        }
        scores
    }

    fn inverse_document_frequency(&self, with_it: usize) -> f32 {
        // Inverse document frequency, as in BM25.
        let (all, with_it) = (self.count as f32, with_it as f32);
        (1.0 + (all - with_it + 0.5) / (with_it + 0.5)).ln()
    }
}
