//! A search index that follows a changing set of tools.
//!
//! Invariant: `indexed` is locked for writing only while one group of prepared entries is added, and only one thread
//! updates at a time.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use toolgate_search::{PreparedEntry, ToolEntry, ToolIndex};

/// Entries that are added under one lock: less than a millisecond.
const GROUP: usize = 128;

/// With at most this many changed entries, a query updates the index itself, so that it finds new tools. More of them are
/// left to the background.
const MAX_INLINE_CHANGES: usize = 64;

/// A set of callable tools at one moment.
pub trait ToolSnapshot {
    type Tool: SearchableTool;

    fn tools(&self) -> impl Iterator<Item = &Arc<Self::Tool>>;
}

/// A tool that can be found.
pub trait SearchableTool {
    /// Its name, unique in a snapshot.
    fn name(&self) -> &str;
    fn entry(&self) -> ToolEntry;
    /// Returns true if two tools of the same name have the same entry.
    fn has_same_entry(&self, other: &Self) -> bool;
}

/// The index of the latest snapshot, or of one that is being replaced.
pub struct LiveIndex<S: ToolSnapshot> {
    /// Held by the thread that updates the index.
    updating: Mutex<()>,
    indexed: RwLock<IndexedTools<S>>,
    /// True if every change is followed by an update in the background.
    is_prepared: AtomicBool,
}

struct IndexedTools<S: ToolSnapshot> {
    /// The last snapshot that was indexed completely.
    snapshot: Option<Weak<S>>,
    tools: HashMap<Box<str>, Arc<S::Tool>>,
    index: ToolIndex,
}

/// The differences between the indexed tools and a snapshot.
struct SnapshotChanges<'a, T> {
    /// Names of tools that are gone.
    removed: Vec<Box<str>>,
    /// Tools with a new entry.
    changed: Vec<&'a Arc<T>>,
    /// New versions of tools with the same entry.
    replaced: Vec<&'a Arc<T>>,
}

/// The index, locked for reading.
pub struct IndexGuard<'a, S: ToolSnapshot>(RwLockReadGuard<'a, IndexedTools<S>>);

impl<S: ToolSnapshot> Deref for IndexGuard<'_, S> {
    type Target = ToolIndex;

    fn deref(&self) -> &ToolIndex {
        &self.0.index
    }
}

impl<S: ToolSnapshot> fmt::Debug for LiveIndex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveIndex").field("is_prepared", &self.is_prepared).finish_non_exhaustive()
    }
}

impl<S: ToolSnapshot> Default for LiveIndex<S> {
    fn default() -> Self {
        let indexed = IndexedTools { snapshot: None, tools: HashMap::new(), index: ToolIndex::default() };
        Self { updating: Mutex::default(), indexed: RwLock::new(indexed), is_prepared: AtomicBool::default() }
    }
}

impl<S: ToolSnapshot> LiveIndex<S> {
    /// Returns true if a snapshot was indexed completely.
    pub fn is_built(&self) -> bool {
        self.indexed.read().snapshot.is_some()
    }

    /// Promises that [`LiveIndex::update`] runs after each change.
    pub fn set_prepared(&self) {
        self.is_prepared.store(true, Ordering::Relaxed);
    }

    /// Locks the index for reading. It is up to date, unless many tools have changed and an update in the background
    /// will follow.
    pub fn read(&self, snapshot: &Arc<S>) -> IndexGuard<'_, S> {
        loop {
            let indexed = self.indexed.read();
            let may_lag = indexed.snapshot.is_some() && self.is_prepared.load(Ordering::Relaxed);
            if indexed.is_of(snapshot) {
                return IndexGuard(indexed);
            }
            if may_lag {
                let Some(_updating) = self.updating.try_lock() else { return IndexGuard(indexed) };
                let changes = indexed.changes(snapshot);
                if changes.removed.len() + changes.changed.len() > MAX_INLINE_CHANGES {
                    return IndexGuard(indexed);
                }
                drop(indexed);
                self.apply(snapshot, changes);
            } else {
                drop(indexed);
                self.update(snapshot);
            }
        }
    }

    /// Updates the index to a snapshot.
    pub fn update(&self, snapshot: &Arc<S>) {
        let _updating = self.updating.lock();
        let indexed = self.indexed.read();
        if indexed.is_of(snapshot) {
            return;
        }
        let changes = indexed.changes(snapshot);
        drop(indexed);
        self.apply(snapshot, changes);
    }

    /// Applies changes, group by group. The caller holds `updating`.
    fn apply(&self, snapshot: &Arc<S>, changes: SnapshotChanges<'_, S::Tool>) {
        for names in changes.removed.chunks(GROUP) {
            let mut indexed = self.indexed.write();
            for name in names {
                indexed.tools.remove(name);
                indexed.index.remove(name);
            }
        }
        for tools in changes.changed.chunks(GROUP) {
            let entries: Vec<PreparedEntry> = tools.iter().map(|tool| tool.entry().into()).collect();
            let mut indexed = self.indexed.write();
            for (tool, entry) in tools.iter().zip(entries) {
                indexed.index.put_prepared(entry);
                indexed.tools.insert(tool.name().into(), Arc::clone(tool));
            }
        }
        let mut indexed = self.indexed.write();
        for tool in changes.replaced {
            indexed.tools.insert(tool.name().into(), Arc::clone(tool));
        }
        indexed.snapshot = Some(Arc::downgrade(snapshot));
    }
}

impl<S: ToolSnapshot> IndexedTools<S> {
    fn is_of(&self, snapshot: &Arc<S>) -> bool {
        self.snapshot.as_ref().is_some_and(|indexed| std::ptr::eq(indexed.as_ptr(), Arc::as_ptr(snapshot)))
    }

    fn changes<'a>(&self, snapshot: &'a S) -> SnapshotChanges<'a, S::Tool> {
        let mut names = HashSet::with_capacity(self.tools.len());
        let (mut changed, mut replaced) = (Vec::new(), Vec::new());
        for tool in snapshot.tools() {
            names.insert(tool.name());
            match self.tools.get(tool.name()) {
                Some(indexed) if Arc::ptr_eq(indexed, tool) => {}
                Some(indexed) if indexed.has_same_entry(tool) => replaced.push(tool),
                _ => changed.push(tool),
            }
        }
        let removed = self.tools.keys().filter(|name| !names.contains(&***name)).cloned().collect();
        SnapshotChanges { removed, changed, replaced }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words(Vec<Arc<Tool>>);

    struct Tool(&'static str, &'static str);

    impl ToolSnapshot for Words {
        type Tool = Tool;

        fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
            self.0.iter()
        }
    }

    impl SearchableTool for Tool {
        fn name(&self) -> &str {
            self.0
        }

        fn entry(&self) -> ToolEntry {
            ToolEntry { name: self.0.to_owned(), description: self.1.to_owned(), ..ToolEntry::default() }
        }

        fn has_same_entry(&self, other: &Self) -> bool {
            self.1 == other.1
        }
    }

    fn words(tools: &[(&'static str, &'static str)]) -> Arc<Words> {
        Arc::new(Words(tools.iter().map(|(name, text)| Arc::new(Tool(name, text))).collect()))
    }

    fn best(index: &LiveIndex<Words>, snapshot: &Arc<Words>, query: &str) -> Option<String> {
        index.read(snapshot).search(query, 1).pop().map(|hit| hit.name)
    }

    #[test]
    fn small_changes_are_found_at_once() {
        for prepared in [false, true] {
            let index = LiveIndex::default();
            if prepared {
                index.set_prepared();
            }
            let before = words(&[("read_file", "Read a file"), ("play", "Play a song")]);
            assert_eq!(best(&index, &before, "read a file").as_deref(), Some("read_file"));
            let after = words(&[("play", "Play a film"), ("pay", "Pay an invoice")]);
            assert_eq!(best(&index, &after, "read a file"), None, "removed");
            assert_eq!(best(&index, &after, "pay the invoice").as_deref(), Some("pay"), "added");
            assert_eq!(best(&index, &after, "film").as_deref(), Some("play"), "changed");
            assert_eq!(index.read(&after).len(), 2);
        }
    }

    #[test]
    fn large_changes_are_left_to_the_background() {
        let index = LiveIndex::default();
        let names: Vec<&'static str> =
            (0..=MAX_INLINE_CHANGES).map(|n| &*Box::leak(format!("tool_{n}").into_boxed_str())).collect();
        let (one, many) = (
            words(&[("play", "Play a song")]),
            words(&names.iter().map(|name| (*name, "Pay")).collect::<Vec<_>>()),
        );
        assert_eq!(index.read(&one).len(), 1);
        index.set_prepared();
        assert_eq!(index.read(&many).len(), 1, "the old index answers");
        index.update(&many);
        assert_eq!(index.read(&many).len(), names.len());
    }

    #[test]
    fn queries_do_not_wait_for_an_update() {
        let index = LiveIndex::default();
        let (one, two) = (words(&[("play", "Play a song")]), words(&[("pay", "Pay")]));
        index.set_prepared();
        assert_eq!(index.read(&one).len(), 1);
        let updating = index.updating.lock();
        assert_eq!(best(&index, &two, "play").as_deref(), Some("play"));
        drop(updating);
        assert_eq!(best(&index, &two, "pay").as_deref(), Some("pay"));
    }
}
