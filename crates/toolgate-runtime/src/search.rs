//! Tool search: the index of the catalog, filtered by what the caller may see.
//!
//! The gateway updates the index in the background after each change of the catalog; elsewhere the first search after a
//! change does. Texts are split and embedded without a lock, and added in small groups, so that a query waits at most
//! for one group. Invariants: a query waits for a whole build only if there is no index yet; a small change is found by
//! the next query; and a search never returns a tool that the listing would hide from the caller.

mod live_index;

use std::sync::Arc;

use toolgate_search::{SearchHit, ToolChoice, ToolEntry, ToolParameter};
use toolgate_types::Caller;

use crate::catalog::{Catalog, CatalogTool, ToolState};
use crate::runtime::{ListFilter, Runtime};
pub use live_index::{LiveIndex, SearchableTool, ToolSnapshot};

/// Maximum number of tools for an index that the first search builds. It takes some 30 ms, once, and index and model take
/// 14 MiB that a gateway without searches does not need.
const MAX_INLINE_BUILD: usize = 1_000;

impl Runtime {
    /// Returns the best matching tools that the caller may see and call. CPU-bound: microseconds, except for the first
    /// search if the index was not prepared.
    pub fn search(&self, caller: &Caller, lists: &ListFilter, query: &str, limit: usize) -> Vec<SearchHit> {
        self.search_among((caller, lists), query, limit, |_| true)
    }

    /// Like [`Runtime::search`], limited to tools whose name passes the filter.
    pub fn search_among(
        &self,
        (caller, lists): (&Caller, &ListFilter),
        query: &str,
        limit: usize,
        filter: impl Fn(&str) -> bool,
    ) -> Vec<SearchHit> {
        let catalog = self.catalog();
        let is_shown =
            |entry: &ToolEntry| filter(&entry.name) && self.is_visible(&catalog, (caller, lists), entry);
        self.catalog.search_index.read(&catalog).search_among(query, limit, is_shown)
    }

    /// Recommends what to do for a query: use a tool, use none, or ask the person first.
    pub fn choose(&self, caller: &Caller, lists: &ListFilter, query: &str) -> ToolChoice {
        let catalog = self.catalog();
        let is_shown = |entry: &ToolEntry| self.is_visible(&catalog, (caller, lists), entry);
        self.catalog.search_index.read(&catalog).choose_among(query, is_shown)
    }

    /// Updates the index ahead of the next search, so that it does not wait for large changes. CPU-bound: run it on a
    /// blocking thread, after each change of the catalog. The index of a small catalog is left to the first search.
    pub fn prepare_search(&self) {
        let (catalog, index) = (self.catalog(), &self.catalog.search_index);
        index.set_prepared();
        if index.is_built() || ToolSnapshot::tools(&*catalog).nth(MAX_INLINE_BUILD).is_some() {
            index.update(&catalog);
        }
    }

    /// The entry may be older than the catalog.
    fn is_visible(
        &self,
        catalog: &Catalog,
        (caller, lists): (&Caller, &ListFilter),
        entry: &ToolEntry,
    ) -> bool {
        listed_tool(catalog, &entry.name).is_some_and(|tool| lists.shows(tool) && self.may_see(caller, tool))
    }
}

impl ToolSnapshot for Catalog {
    type Tool = CatalogTool;

    fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        Catalog::tools(self).filter(|tool| tool.state == ToolState::Ready)
    }
}

impl SearchableTool for CatalogTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn entry(&self) -> ToolEntry {
        self.search_entry()
    }

    fn has_same_entry(&self, other: &Self) -> bool {
        let examples = |tool: &Self| {
            tool.source.as_ref().map(|source| {
                source.examples.iter().map(|example| example.description.clone()).collect::<Vec<_>>()
            })
        };
        (&self.server, &self.title, &self.description, &self.tags)
            == (&other.server, &other.title, &other.description, &other.tags)
            && self.input_schema == other.input_schema
            && examples(self) == examples(other)
    }
}

/// The callable tool that is listed under this name.
fn listed_tool<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Arc<CatalogTool>> {
    catalog.resolve(name).filter(|tool| tool.name == name && tool.state == ToolState::Ready)
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
