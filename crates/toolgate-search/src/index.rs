//! The index: entries, and which of them fit a query.
//!
//! Changed in place, one entry at a time, so that a change costs what the entry costs and not what the index does.
//! Invariant: who is named in full comes first, whatever else the words say; equal scores keep the order in which the
//! entries came.

use std::collections::HashMap;

use crate::entry::Entry;
use crate::lexical::Lexical;
use crate::words;

/// Bytes of a query that are read. What is longer is a document, and its beginning says what is wanted.
const MOST_QUERY: usize = 4_096;

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
}

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
        self.slots[at] = Some(Slot { entry, order });
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
        let query = shortened(query);
        let mut scores = self.lexical.coverage(query);
        for at in self.named(query) {
            scores[at] = 1.0;
        }
        let mut found: Vec<(f32, u64, &Entry)> = Vec::new();
        for (slot, score) in self.slots.iter().zip(scores) {
            if let Some(Slot { entry, order }) = slot
                && score > 0.0
                && shown(entry)
            {
                found.push((score, *order, entry));
            }
        }
        found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        found.truncate(limit);
        found.into_iter().map(|(score, _, entry)| Hit { name: entry.name.clone(), score }).collect()
    }

    /// The slots of the entries that a query names: it is the name, or holds it as one word that no sentence would.
    fn named(&self, query: &str) -> Vec<usize> {
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

/// The beginning of a query, cut between letters.
fn shortened(query: &str) -> &str {
    &query[..query.floor_char_boundary(MOST_QUERY)]
}

#[cfg(test)]
mod tests;
