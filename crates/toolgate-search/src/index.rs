//! The index: entries, and which of them fit a query.
//!
//! Changed in place, one entry at a time, so that a change costs what the entry costs and not what the index does.
//! Invariant: who is named in full comes first, whatever else the words say; equal scores keep the order in which the
//! entries came.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::entry::Entry;
use crate::lexical::Lexical;
use crate::masks::masked;
use crate::model::Vector;
use crate::said::unquoted;
use crate::words;

/// Bytes of a query that are read. What is longer is a document, and its beginning says what is wanted.
const MOST_QUERY: usize = 4_096;

/// Bytes of a description that say what a tool means. What follows is about details, and blurs it.
const MOST_DESCRIPTION: usize = 400;
/// The same of one parameter.
const MOST_OF_PARAMETER: usize = 100;
/// How much the parameters say of what a tool means, beside its name and description.
const OF_PARAMETERS: f32 = 0.4;
/// How much the words of a query count beside what it means. From 0.6 to 1.0 the results are the same but for one
/// query in a hundred.
const OF_WORDS: f32 = 0.8;
/// What any two texts have in common. Less is nothing.
const BY_CHANCE: f32 = 0.05;
/// Examples of one entry that count.
const MOST_EXAMPLES: usize = 8;

/// What stands between a server and its tool in a name.
const SEPARATOR: &str = "__";

/// Tools, ready to be searched.
#[derive(Debug, Default)]
pub struct Index {
    /// By slot, in the order they came; `None` where one was taken out.
    slots: Vec<Option<Slot>>,
    names: HashMap<String, usize>,
    /// By [`folded`] name, with and without the server before it.
    folded: HashMap<String, Vec<usize>>,
    free: Vec<usize>,
    /// Entries that ever came.
    came: u64,
    lexical: Lexical,
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    /// When it came, to keep the order.
    order: u64,
    /// What its text means; `None` where the model knows no word of it.
    meaning: Option<Vector>,
    /// What its examples mean.
    examples: Vec<Vector>,
}

/// An entry with its place in the order of results.
struct Ranked<'a> {
    score: f32,
    order: u64,
    entry: &'a Entry,
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked<'_> {}

/// A tool that fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Its name.
    pub name: String,
    /// How well it fits: from 0, not at all, to 1, which only a tool that is named in full has.
    pub score: f32,
}

impl Index {
    /// An index of these entries. Of two that have one name the later counts.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut index = Self::default();
        entries.into_iter().for_each(|entry| index.put(entry));
        index
    }

    /// Puts an entry in, in the place of the one that has its name.
    pub fn put(&mut self, entry: Entry) {
        let order = self.remove_ordered(&entry.name).unwrap_or(self.came);
        self.came += 1;
        let at = self.free.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(None);
        }
        self.lexical.put(at, &entry);
        for name in foldings(&entry.name) {
            self.folded.entry(name).or_default().push(at);
        }
        self.names.insert(entry.name.clone(), at);
        let meaning = meaning(&entry);
        let examples = entry.examples.iter().take(MOST_EXAMPLES);
        let examples = examples.filter_map(|example| Vector::of(&masked(example))).collect();
        self.slots[at] = Some(Slot { entry, order, meaning, examples });
    }

    /// Takes an entry out, and says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.remove_ordered(name).is_some()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The entry of a name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        let at = self.names.get(name)?;
        self.slots[*at].as_ref().map(|slot| &slot.entry)
    }

    /// The entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten().map(|slot| &slot.entry)
    }

    /// The entries that fit a query, the best first; those that do not fit at all are left out.
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit> {
        self.search_among(query, limit, |_| true)
    }

    /// The same among the entries that are shown to who asks.
    pub fn search_among(&self, query: &str, limit: usize, shown: impl Fn(&Entry) -> bool) -> Vec<Hit> {
        self.ranked(&Query::new(query), limit, shown)
    }

    pub(crate) fn ranked(&self, query: &Query<'_>, limit: usize, shown: impl Fn(&Entry) -> bool) -> Vec<Hit> {
        let mut scores = self.lexical.coverage(&query.plain);
        self.fuse(query, &mut scores);
        for at in self.named(query.text) {
            scores[at] = 1.0;
        }
        let mut found: Vec<Ranked<'_>> = Vec::new();
        for (slot, score) in self.slots.iter().zip(scores) {
            if let Some(Slot { entry, order, .. }) = slot
                && score > BY_CHANCE
            {
                found.push(Ranked { score, order: *order, entry });
            }
        }
        // Who may see what takes longer to say than all the rest: it is asked of the best alone.
        let mut found = BinaryHeap::from(found);
        let best = std::iter::from_fn(|| found.pop()).filter(|ranked| shown(ranked.entry));
        best.take(limit).map(|ranked| Hit { name: ranked.entry.name.clone(), score: ranked.score }).collect()
    }

    /// Adds what a query means to the part of its words that is covered.
    fn fuse(&self, query: &Query<'_>, scores: &mut [f32]) {
        for (slot, score) in self.slots.iter().zip(scores) {
            let near = match (&query.meaning, slot) {
                (Some(wanted), Some(slot)) => {
                    let all = slot.meaning.iter().chain(&slot.examples);
                    all.map(|vector| wanted.nearness(vector)).fold(0.0, f32::max)
                }
                _ => 0.0,
            };
            *score = (near + OF_WORDS * *score) / (1.0 + OF_WORDS);
        }
    }

    /// The slots of the entries that a query names: it is the name, or holds it as one word that no sentence would.
    pub(crate) fn named(&self, query: &str) -> Vec<usize> {
        let of = |name: &str| self.folded.get(&folded(name)).cloned().unwrap_or_default();
        let mut named = of(query);
        for word in query.split(|letter: char| letter.is_whitespace() || "\"'`,;:!?()[]".contains(letter)) {
            let word = word.trim_end_matches('.');
            if words::split(word).len() > 1 {
                named.extend(of(word));
            }
        }
        named
    }

    fn remove_ordered(&mut self, name: &str) -> Option<u64> {
        let at = self.names.remove(name)?;
        let slot = self.slots[at].take()?;
        self.lexical.remove(at);
        for name in foldings(name) {
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

/// What an entry means: its name and description as one text, and beside it what its parameters say.
fn meaning(entry: &Entry) -> Option<Vector> {
    let Entry { name, server, title, description, parameters, .. } = entry;
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
    text.push_str(begin(description, MOST_DESCRIPTION));
    let mut taken = String::new();
    for parameter in parameters {
        taken.push_str(&spaced(&parameter.name));
        taken.push(' ');
        taken.push_str(begin(&parameter.description, MOST_OF_PARAMETER));
        taken.push_str(". ");
    }
    Vector::between(&[(1.0, &text), (OF_PARAMETERS, &taken)])
}

/// A query, read once.
pub(crate) struct Query<'a> {
    pub(crate) text: &'a str,
    /// Without quotations, addresses and the like.
    pub(crate) plain: String,
    pub(crate) meaning: Option<Vector>,
}

impl<'a> Query<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let text = begin(text, MOST_QUERY);
        let plain = masked(&unquoted(text));
        let meaning = Vector::of(&plain);
        Self { text, plain, meaning }
    }
}

/// A name in the one spelling in which names are compared.
fn folded(name: &str) -> String {
    words::split(name).join("_")
}

/// What a name is found by: itself, and the part that is the tool's own.
fn foldings(name: &str) -> Vec<String> {
    let own = name.split_once(SEPARATOR).map(|(_, own)| folded(own));
    let mut all = vec![folded(name)];
    all.extend(own);
    all.dedup();
    all
}

/// The beginning of a text, cut between letters.
fn begin(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests;
