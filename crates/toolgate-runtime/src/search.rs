//! Search: the index beside the catalog, and what of it a caller is told.
//!
//! The index is made when somebody first searches, and brought up to date when the catalog has become another: entries
//! that did not change are left as they are. Invariant: no call waits for it, and nobody is told of a tool that the
//! lists would not show.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use toolgate_search::{Choice, Entry, Hit, Index, Parameter};
use toolgate_types::Caller;

use crate::catalog::{Catalog, CatalogTool, ToolState};
use crate::runtime::Runtime;

/// An index, and the catalog it is of.
#[derive(Default)]
pub(crate) struct Searching(RwLock<Indexed>);

#[derive(Default)]
struct Indexed {
    catalog: Arc<Catalog>,
    index: Index,
}

impl Runtime {
    /// The tools that fit some words, of those that a caller may know of and call; the best first. Takes processor time
    /// alone: microseconds, and at the first time as long as it takes to read all tools.
    pub fn search(&self, caller: &Caller, words: &str, limit: usize) -> Vec<Hit> {
        self.search_among(caller, words, limit, |_| true)
    }

    /// The same among the tools of these names alone.
    pub fn search_among(
        &self,
        caller: &Caller,
        words: &str,
        limit: usize,
        named: impl Fn(&str) -> bool,
    ) -> Vec<Hit> {
        let indexed = self.indexed();
        let is_shown = |entry: &Entry| named(&entry.name) && self.is_shown(&indexed.catalog, caller, entry);
        indexed.index.search_among(words, limit, is_shown)
    }

    /// What to do with some words: which tool to use, none, or to ask the person first.
    pub fn choose(&self, caller: &Caller, words: &str) -> Choice {
        let indexed = self.indexed();
        indexed.index.choose_among(words, |entry| self.is_shown(&indexed.catalog, caller, entry))
    }

    fn is_shown(&self, catalog: &Catalog, caller: &Caller, entry: &Entry) -> bool {
        catalog.resolve(&entry.name).is_some_and(|tool| self.may_see(caller, tool))
    }

    /// The index of the catalog that is in use.
    fn indexed(&self) -> RwLockReadGuard<'_, Indexed> {
        let lock = &self.searching.0;
        loop {
            let catalog = self.catalog();
            let indexed = lock.read().unwrap_or_else(PoisonError::into_inner);
            if Arc::ptr_eq(&indexed.catalog, &catalog) {
                return indexed;
            }
            drop(indexed);
            lock.write().unwrap_or_else(PoisonError::into_inner).follow(&catalog);
        }
    }
}

impl Indexed {
    /// Brings the index up to date. Whoever comes second finds it done.
    fn follow(&mut self, catalog: &Arc<Catalog>) {
        if Arc::ptr_eq(&self.catalog, catalog) {
            return;
        }
        let before = std::mem::replace(&mut self.catalog, Arc::clone(catalog));
        let is_ready = |catalog: &Catalog, name: &str| shown(catalog, name).is_some();
        for tool in before.tools().filter(|tool| !is_ready(catalog, &tool.name)) {
            self.index.remove(&tool.name);
        }
        for tool in catalog.tools().filter(|tool| tool.state == ToolState::Ready) {
            if !shown(&before, &tool.name).is_some_and(|old| reads_as(old, tool)) {
                self.index.put(tool.entry());
            }
        }
    }
}

/// The tool that is listed under a name.
fn shown<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Arc<CatalogTool>> {
    catalog.resolve(name).filter(|tool| tool.name == name && tool.state == ToolState::Ready)
}

/// Whether two tools have the same entry.
fn reads_as(one: &CatalogTool, other: &CatalogTool) -> bool {
    let examples = |tool: &CatalogTool| {
        tool.source.as_ref().map(|source| {
            source.examples.iter().map(|example| example.description.clone()).collect::<Vec<_>>()
        })
    };
    (&one.server, &one.title, &one.description, &one.tags)
        == (&other.server, &other.title, &other.description, &other.tags)
        && one.input_schema == other.input_schema
        && examples(one) == examples(other)
}

impl CatalogTool {
    /// What search knows of it.
    pub fn entry(&self) -> Entry {
        let mut description = self.description.clone();
        if !self.tags.is_empty() {
            description = format!("{description} {}", self.tags.join(", "));
        }
        let examples = self.source.iter().flat_map(|source| &source.examples);
        Entry {
            name: self.name.clone(),
            server: self.server.as_ref().map(ToString::to_string),
            title: self.title.clone(),
            description,
            parameters: Parameter::all_of(&self.input_schema.parse().unwrap_or_default()),
            examples: examples.map(|example| example.description.clone()).collect(),
        }
    }
}
