//! Tool search: the index of the catalog, filtered by what the caller may see.
//!
//! The index is built by the first search and updated incrementally when the catalog has changed. Invariants: no call
//! waits for the index, and a search never returns a tool that the listing would hide from the caller.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use toolgate_search::{SearchHit, ToolChoice, ToolEntry, ToolIndex, ToolParameter};
use toolgate_types::Caller;

use crate::catalog::{Catalog, CatalogTool, ToolState};
use crate::runtime::Runtime;

/// The index, with the catalog it was built from.
#[derive(Default)]
pub(crate) struct SearchIndex(RwLock<IndexedCatalog>);

#[derive(Default)]
struct IndexedCatalog {
    catalog: Arc<Catalog>,
    index: ToolIndex,
}

impl Runtime {
    /// Returns the best matching tools that the caller may see and call. CPU-bound: microseconds, except for the first
    /// search, which indexes all tools.
    pub fn search(&self, caller: &Caller, query: &str, limit: usize) -> Vec<SearchHit> {
        self.search_among(caller, query, limit, |_| true)
    }

    /// Like [`Runtime::search`], limited to tools whose name passes the filter.
    pub fn search_among(
        &self,
        caller: &Caller,
        query: &str,
        limit: usize,
        filter: impl Fn(&str) -> bool,
    ) -> Vec<SearchHit> {
        let indexed = self.up_to_date_index();
        let is_shown =
            |entry: &ToolEntry| filter(&entry.name) && self.is_visible(&indexed.catalog, caller, entry);
        indexed.index.search_among(query, limit, is_shown)
    }

    /// Recommends what to do for a query: use a tool, use none, or ask the person first.
    pub fn choose(&self, caller: &Caller, query: &str) -> ToolChoice {
        let indexed = self.up_to_date_index();
        indexed.index.choose_among(query, |entry| self.is_visible(&indexed.catalog, caller, entry))
    }

    fn is_visible(&self, catalog: &Catalog, caller: &Caller, entry: &ToolEntry) -> bool {
        catalog.resolve(&entry.name).is_some_and(|tool| self.may_see(caller, tool))
    }

    /// Locks the index for reading, after updating it to the current catalog.
    fn up_to_date_index(&self) -> RwLockReadGuard<'_, IndexedCatalog> {
        let lock = &self.catalog.search_index.0;
        loop {
            let catalog = self.catalog();
            let indexed = lock.read();
            if Arc::ptr_eq(&indexed.catalog, &catalog) {
                return indexed;
            }
            drop(indexed);
            lock.write().update(&catalog);
        }
    }
}

impl IndexedCatalog {
    /// Updates the index. Does nothing if another thread already did.
    fn update(&mut self, catalog: &Arc<Catalog>) {
        if Arc::ptr_eq(&self.catalog, catalog) {
            return;
        }
        let before = std::mem::replace(&mut self.catalog, Arc::clone(catalog));
        let is_ready = |catalog: &Catalog, name: &str| listed_tool(catalog, name).is_some();
        for tool in before.tools().filter(|tool| !is_ready(catalog, &tool.name)) {
            self.index.remove(&tool.name);
        }
        for tool in catalog.tools().filter(|tool| tool.state == ToolState::Ready) {
            if !listed_tool(&before, &tool.name).is_some_and(|old| has_same_entry(old, tool)) {
                self.index.put(tool.search_entry());
            }
        }
    }
}

/// The callable tool that is listed under this name.
fn listed_tool<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Arc<CatalogTool>> {
    catalog.resolve(name).filter(|tool| tool.name == name && tool.state == ToolState::Ready)
}

/// Returns true if two tools have the same search entry.
fn has_same_entry(one: &CatalogTool, other: &CatalogTool) -> bool {
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
    /// The tool's entry in the search index.
    pub fn search_entry(&self) -> ToolEntry {
        let mut description = self.description.clone();
        if !self.tags.is_empty() {
            description = format!("{description} {}", self.tags.join(", "));
        }
        let examples = self.source.iter().flat_map(|source| &source.examples);
        ToolEntry {
            name: self.name.clone(),
            server: self.server.as_ref().map(ToString::to_string),
            title: self.title.clone(),
            description,
            parameters: ToolParameter::from_schema(&self.input_schema.parse().unwrap_or_default()),
            examples: examples.map(|example| example.description.clone()).collect(),
        }
    }
}
