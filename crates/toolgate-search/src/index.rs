//! The index: stores tool entries and ranks them for a query.
//!
//! Entries are updated in place, so that a change costs in proportion to the entry, not to the index. Invariant: a tool
//! named in full ranks first, whatever else the query says; equal scores keep insertion order.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::entry::{ToolEntry, ToolPurpose};
use crate::lexical::{LexicalIndex, WeightedTerms};
use crate::masks::mask_query;
use crate::model::Embedding;
use crate::values::remove_quotations;
use crate::words;

/// Maximum bytes of a query that are read. A longer query is a document, and its beginning states the request.
const MAX_QUERY_BYTES: usize = 4_096;

/// Maximum bytes of a description that are embedded. The rest is about details and blurs the meaning.
const MAX_DESCRIPTION_BYTES: usize = 400;
/// Maximum bytes of a parameter description that are embedded.
const MAX_PARAMETER_BYTES: usize = 100;
/// Weight of the parameters in an entry's embedding; name and description have weight 1.
const PARAMETER_WEIGHT: f32 = 0.4;
/// Weight of the lexical score; the embedding has weight 1. Between 0.6 and 1.0 the results differ in one query in a
/// hundred.
const LEXICAL_WEIGHT: f32 = 0.8;
/// Score that any two texts reach by chance. Lower scores are no match.
const CHANCE_SCORE: f32 = 0.05;
/// Maximum number of examples per entry.
const MAX_EXAMPLES: usize = 8;

/// Separates the server from the tool in a name.
const SEPARATOR: &str = "__";

/// A searchable index of tools.
#[derive(Debug, Default)]
pub struct ToolIndex {
    /// By slot number; `None` if the slot is free.
    slots: Vec<Option<IndexSlot>>,
    names: HashMap<String, usize>,
    /// Slots by [`folded`] name, with and without the server prefix.
    folded: HashMap<String, Vec<usize>>,
    free: Vec<usize>,
    /// Slots of tools with a purpose.
    purposes: Vec<(usize, ToolPurpose)>,
    /// Number of insertions so far.
    inserted: u64,
    lexical: LexicalIndex,
}

#[derive(Debug)]
struct IndexSlot {
    entry: ToolEntry,
    /// Insertion order.
    order: u64,
    /// Embedding of the entry; `None` if the model knows none of its words.
    embedding: Option<Embedding>,
    examples: Box<[Embedding]>,
}

/// An entry with everything that is computed from its texts. Computing it is nearly all the work of adding it.
pub struct PreparedEntry {
    entry: ToolEntry,
    terms: WeightedTerms,
    embedding: Option<Embedding>,
    examples: Box<[Embedding]>,
}

impl From<ToolEntry> for PreparedEntry {
    fn from(entry: ToolEntry) -> Self {
        let examples = entry.examples.iter().take(MAX_EXAMPLES);
        let examples = examples.filter_map(|example| Embedding::embed(&mask_query(example))).collect();
        let (terms, embedding) = (WeightedTerms::of(&entry), embed_entry(&entry));
        Self { entry, terms, embedding, examples }
    }
}

/// An entry with its score, ordered as in the results.
pub(crate) struct RankedEntry<'a> {
    pub(crate) score: f32,
    /// Similarity of the embeddings.
    pub(crate) cosine: f32,
    /// Share of the query that the words of the entry cover.
    pub(crate) coverage: f32,
    order: u64,
    pub(crate) entry: &'a ToolEntry,
}

impl Ord for RankedEntry<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for RankedEntry<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedEntry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RankedEntry<'_> {}

/// A tool that matches a query.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    pub name: String,
    /// Score from 0, no match, to 1, which only a tool named in full gets.
    pub score: f32,
}

impl From<&RankedEntry<'_>> for SearchHit {
    fn from(ranked: &RankedEntry<'_>) -> Self {
        Self { name: ranked.entry.name.clone(), score: ranked.score }
    }
}

impl ToolIndex {
    /// Builds an index. If two entries have the same name, the later one wins.
    pub fn new(entries: impl IntoIterator<Item = ToolEntry>) -> Self {
        let mut index = Self::default();
        entries.into_iter().for_each(|entry| index.put(entry));
        index
    }

    /// Adds an entry, replacing the one with the same name.
    pub fn put(&mut self, entry: ToolEntry) {
        self.put_prepared(entry.into());
    }

    /// Adds a prepared entry, replacing the one with the same name.
    pub fn put_prepared(&mut self, PreparedEntry { entry, terms, embedding, examples }: PreparedEntry) {
        let order = self.remove_ordered(&entry.name).unwrap_or(self.inserted);
        self.inserted += 1;
        let at = self.free.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(None);
        }
        self.lexical.put(at, terms);
        for name in folded_names(&entry.name) {
            self.folded.entry(name).or_default().push(at);
        }
        self.names.insert(entry.name.clone(), at);
        self.purposes.extend(entry.purpose().map(|purpose| (at, purpose)));
        self.slots[at] = Some(IndexSlot { entry, order, embedding, examples });
    }

    /// Removes an entry. Returns true if it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.remove_ordered(name).is_some()
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&ToolEntry> {
        let at = self.names.get(name)?;
        self.slots[*at].as_ref().map(|slot| &slot.entry)
    }

    /// Returns the entries with a purpose.
    pub(crate) fn with_purpose(&self, purpose: ToolPurpose) -> impl Iterator<Item = &ToolEntry> {
        let slots = self.purposes.iter().filter(move |(_, its)| *its == purpose);
        slots.filter_map(|(slot, _)| self.slots[*slot].as_ref().map(|slot| &slot.entry))
    }

    /// Returns the entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &ToolEntry> {
        self.slots.iter().flatten().map(|slot| &slot.entry)
    }

    /// Returns the matching entries, best first.
    pub fn search(&self, query: &str, limit: usize) -> Vec<SearchHit> {
        self.search_among(query, limit, |_| true)
    }

    /// Searches only the entries that are visible to the caller.
    pub fn search_among(
        &self,
        query: &str,
        limit: usize,
        is_visible: impl Fn(&ToolEntry) -> bool,
    ) -> Vec<SearchHit> {
        self.rank(&ParsedQuery::new(query), limit, is_visible)
    }

    pub(crate) fn rank(
        &self,
        query: &ParsedQuery<'_>,
        limit: usize,
        is_visible: impl Fn(&ToolEntry) -> bool,
    ) -> Vec<SearchHit> {
        self.ranked(query, limit, is_visible).iter().map(SearchHit::from).collect()
    }

    /// Returns the matching entries, best first, with the parts of their score.
    pub(crate) fn ranked<'a>(
        &'a self,
        query: &ParsedQuery<'_>,
        limit: usize,
        is_visible: impl Fn(&ToolEntry) -> bool,
    ) -> Vec<RankedEntry<'a>> {
        let coverage = self.lexical.coverage(&query.plain);
        let named = self.named_slots(query.text);
        let mut found: Vec<RankedEntry<'_>> = Vec::new();
        for (at, (slot, coverage)) in self.slots.iter().zip(coverage).enumerate() {
            let Some(IndexSlot { entry, order, embedding, examples }) = slot else { continue };
            let cosine = query.embedding.as_ref().map_or(0.0, |wanted| {
                let all = embedding.iter().chain(examples);
                all.map(|vector| wanted.cosine(vector)).fold(0.0, f32::max)
            });
            let fused = (cosine + LEXICAL_WEIGHT * coverage) / (1.0 + LEXICAL_WEIGHT);
            let score = if named.contains(&at) { 1.0 } else { fused };
            if score > CHANCE_SCORE {
                found.push(RankedEntry { score, cosine, coverage, order: *order, entry });
            }
        }
        // Checking visibility costs more than everything else, so only the best entries are checked.
        let mut found = BinaryHeap::from(found);
        let best = std::iter::from_fn(|| found.pop()).filter(|ranked| is_visible(ranked.entry));
        best.take(limit).collect()
    }

    /// Returns the slots of entries that the query names: it is the name, or contains it as a compound word.
    pub(crate) fn named_slots(&self, query: &str) -> Vec<usize> {
        let of = |name: &str| self.folded.get(&folded(name)).cloned().unwrap_or_default();
        let mut named_slots = of(query);
        for word in query.split(|letter: char| letter.is_whitespace() || "\"'`,;:!?()[]".contains(letter)) {
            let word = word.trim_end_matches('.');
            if words::split(word).len() > 1 {
                named_slots.extend(of(word));
            }
        }
        named_slots
    }

    fn remove_ordered(&mut self, name: &str) -> Option<u64> {
        let at = self.names.remove(name)?;
        let slot = self.slots[at].take()?;
        self.lexical.remove(at);
        self.purposes.retain(|(slot, _)| *slot != at);
        for name in folded_names(name) {
            if let Some(slots) = self.folded.get_mut(&name) {
                slots.retain(|slot| *slot != at);
                if slots.is_empty() {
                    self.folded.remove(&name);
                }
            }
        }
        self.free.push(at);
        Some(slot.order)
    }
}

/// Embeds an entry: name and description as one text, weighted with the text of its parameters.
fn embed_entry(entry: &ToolEntry) -> Option<Embedding> {
    let ToolEntry { name, server, title, description, parameters, .. } = entry;
    let spaced = |name: &str| words::split(name).join(" ");
    let mut text = String::new();
    if let Some(server) = server {
        text.push_str(&spaced(server));
        text.push_str(": ");
    }
    text.push_str(&spaced(name));
    text.push_str(". ");
    if let Some(title) = title {
        text.push_str(title);
        text.push_str(". ");
    }
    text.push_str(truncate(description, MAX_DESCRIPTION_BYTES));
    let mut parameter_text = String::new();
    for parameter in parameters {
        parameter_text.push_str(&spaced(&parameter.name));
        parameter_text.push(' ');
        parameter_text.push_str(truncate(&parameter.description, MAX_PARAMETER_BYTES));
        parameter_text.push_str(". ");
    }
    Embedding::weighted_mean(&[(1.0, &text), (PARAMETER_WEIGHT, &parameter_text)])
}

/// A query, parsed once.
pub(crate) struct ParsedQuery<'a> {
    pub(crate) text: &'a str,
    /// The text without quotations, and with URLs, paths and the like replaced by words.
    pub(crate) plain: String,
    pub(crate) embedding: Option<Embedding>,
}

impl<'a> ParsedQuery<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let text = truncate(text, MAX_QUERY_BYTES);
        let plain = mask_query(&remove_quotations(text));
        let embedding = Embedding::embed(&plain);
        Self { text, plain, embedding }
    }
}

/// Normalises the spelling of a name for comparison.
fn folded(name: &str) -> String {
    words::split(name).join("_")
}

/// Returns the normalised names of an entry: the full one, and the one without the server prefix.
fn folded_names(name: &str) -> Vec<String> {
    let own = name.split_once(SEPARATOR).map(|(_, own)| folded(own));
    let mut all = vec![folded(name)];
    all.extend(own);
    all.dedup();
    all
}

/// Truncates a text at a character boundary.
fn truncate(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests;
