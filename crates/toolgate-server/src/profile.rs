//! What a profile makes of the catalog: which tools, under which names, in whose words.
//!
//! A [`View`] is made once for each catalog and profile, and kept. Invariant: the name of a tool depends on the catalog
//! and the profile, never on who asks; what is not in the view cannot be called through it.

mod dialect;
mod gemini;
mod inline;
mod names;
mod retell;
mod undo;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use toolgate_mcp::Raw;
use toolgate_runtime::catalog::{SEPARATOR, Words};
use toolgate_runtime::{Catalog, CatalogTool, Offer, ToolState};
use toolgate_search::{Entry, Index};
use toolgate_types::Profile;
use toolgate_types::profile::Exposure;

use dialect::written;
pub(crate) use retell::in_words;
use undo::Undo;

/// The tools that a client is given where it searches for the others.
pub const SEARCH_TOOLS: &str = "search_tools";
/// Says what a tool takes.
pub const DESCRIBE_TOOL: &str = "describe_tool";
/// Calls one.
pub const CALL_TOOL: &str = "call_tool";

/// A tool as a profile shows it.
#[derive(Debug)]
pub struct ShownTool {
    /// The name that clients use.
    pub name: String,
    /// What it does, as clients are told.
    pub description: String,
    /// The tool.
    pub tool: Arc<CatalogTool>,
    /// What people should know of how it is shown.
    pub notes: Vec<String>,
    /// Its definition as an element of a list.
    pub definition: String,
    /// Whether clients see the schema that the tool has.
    pub(crate) has_its_own_schema: bool,
    /// How arguments become what the tool takes.
    undo: Undo,
}

impl ShownTool {
    /// The arguments that the tool takes.
    pub(crate) fn arguments(&self, shown: Raw) -> Raw {
        if self.undo.is_empty() {
            return shown;
        }
        match shown.parse::<Value>() {
            Ok(value) => Raw::of(&self.undo.undone(value)),
            Err(_) => shown,
        }
    }
}

/// What a profile makes of a catalog.
#[derive(Debug)]
pub struct View {
    /// The profile.
    pub profile: Arc<Profile>,
    pub(crate) catalog: Arc<Catalog>,
    tools: Vec<Arc<ShownTool>>,
    /// By the names that clients use, and by those of the catalog.
    shown: HashMap<String, usize>,
    own: HashMap<String, usize>,
    index: OnceLock<Index>,
}

impl View {
    /// Makes a view. What did not change since the one before is taken over.
    pub fn new(catalog: &Arc<Catalog>, profile: &Arc<Profile>, before: Option<&Self>) -> Self {
        let before = before.filter(|view| *view.profile == **profile);
        let mut view = Self {
            profile: Arc::clone(profile),
            catalog: Arc::clone(catalog),
            tools: Vec::new(),
            shown: HashMap::new(),
            own: HashMap::new(),
            index: OnceLock::new(),
        };
        let chosen: Vec<_> =
            catalog.tools().filter_map(|tool| Some((tool, chosen(profile, tool)?))).collect();
        for (at, name) in named(profile, &chosen).into_iter().enumerate() {
            let (tool, words) = &chosen[at];
            let old = before
                .and_then(|view| view.of(&tool.name))
                .filter(|old| old.name == name && same(&old.tool, tool));
            let shown = match old {
                Some(old) if Arc::ptr_eq(&old.tool, tool) => Arc::clone(old),
                Some(old) => Arc::new(old.again(tool)),
                None => Arc::new(show(profile, tool, name, words.description.as_deref())),
            };
            view.shown.insert(shown.name.clone(), view.tools.len());
            view.own.insert(tool.name.clone(), view.tools.len());
            view.tools.push(shown);
        }
        view
    }

    /// The tools of it, those that are held back among them.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ShownTool>> {
        self.tools.iter()
    }

    /// Those that can be called.
    pub fn ready(&self) -> impl Iterator<Item = &Arc<ShownTool>> {
        self.tools.iter().filter(|shown| shown.tool.state == ToolState::Ready)
    }

    /// The tool that a client means.
    pub fn find(&self, name: &str) -> Option<&Arc<ShownTool>> {
        self.shown.get(name).map(|at| &self.tools[*at])
    }

    /// How a tool of the catalog is shown.
    pub fn of(&self, own: &str) -> Option<&Arc<ShownTool>> {
        self.own.get(own).map(|at| &self.tools[*at])
    }

    /// The words of the profile that fit no tool of the catalog.
    pub fn idle_words(&self) -> Vec<&str> {
        let names: Vec<_> = self.catalog.tools().flat_map(|tool| tool.names()).collect();
        let fits = |word: &&str| names.iter().any(|name| toolgate_types::wildcard::fits(word, name));
        self.profile.tools.words().filter(|word| !fits(word)).collect()
    }

    /// Whether anything of a server is part of it.
    pub(crate) fn has_of(&self, server: &str, offer: &Offer) -> bool {
        let of_it =
            |shown: &Arc<ShownTool>| shown.tool.server.as_ref().is_some_and(|it| it.as_str() == server);
        let Profile { prompts, resources, .. } = &*self.profile;
        let prompt = |id: &str| prompts.has(&[id, &format!("{server}{SEPARATOR}{id}")]);
        self.tools.iter().any(of_it)
            || offer.prompts.iter().any(|one| prompt(&one.id))
            || offer.resources.iter().chain(&*offer.templates).any(|one| resources.has(&[&one.id]))
    }

    /// The tools that fit a query, the best first, among those that can be called and `may_see` says.
    pub(crate) fn search(
        &self,
        query: &str,
        limit: usize,
        may_see: impl Fn(&CatalogTool) -> bool,
    ) -> Vec<&Arc<ShownTool>> {
        let seen = |entry: &Entry| self.find(&entry.name).is_some_and(|shown| may_see(&shown.tool));
        let hits = self.index().search_among(query, limit, seen);
        hits.iter().filter_map(|hit| self.find(&hit.name)).collect()
    }

    /// Makes what a search needs, where there will be one.
    pub(crate) fn prepare(&self) {
        if self.profile.exposure == Exposure::Search {
            self.index();
        }
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::new(self.ready().map(|shown| entry(shown))))
    }

    /// Whether the view was made of these.
    pub(crate) fn is_of(&self, catalog: &Arc<Catalog>, profile: &Arc<Profile>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog) && Arc::ptr_eq(&self.profile, profile)
    }
}

/// As what a tool is part of a profile; `None` where it is not.
fn chosen(profile: &Profile, tool: &CatalogTool) -> Option<toolgate_types::profile::ShownAs> {
    let words = || {
        let names = tool.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        profile.tools.shown_as(&names).cloned().unwrap_or_default()
    };
    tool.is_part_of(profile).then(words)
}

/// The names of tools, each once: those that the operator gives count most, then the catalog's own.
fn named(profile: &Profile, chosen: &[(&Arc<CatalogTool>, toolgate_types::profile::ShownAs)]) -> Vec<String> {
    let good = |name: &str| if profile.provider.is_some() { names::safe(name) } else { name.to_owned() };
    let mut taken: HashMap<String, usize> = HashMap::new();
    if profile.exposure == Exposure::Search {
        taken.extend([SEARCH_TOOLS, DESCRIBE_TOOL, CALL_TOOL].map(|name| (name.to_owned(), usize::MAX)));
    }
    let mut out = vec![String::new(); chosen.len()];
    let given = chosen.iter().enumerate().filter(|(_, (_, words))| words.name.is_some());
    let others = chosen.iter().enumerate().filter(|(_, (_, words))| words.name.is_none());
    for (at, (tool, words)) in given.chain(others) {
        let mut name = good(words.name.as_deref().unwrap_or(&tool.name));
        // What tells it from the one that has the name is its own name, so it stays the same.
        let mut more = tool.name.clone();
        while taken.contains_key(&name) {
            name = good(&format!("{}_{}", words.name.as_deref().unwrap_or(&tool.name), names::mark(&more)));
            more.push('_');
        }
        taken.insert(name.clone(), at);
        out[at] = name;
    }
    out
}

/// What is known of a tool where it is searched for: all that the catalog knows, in the words of the profile.
fn entry(shown: &ShownTool) -> Entry {
    let mut own = shown.tool.entry();
    own.description = own.description.replacen(&shown.tool.description, &shown.description, 1);
    own.name.clone_from(&shown.name);
    own
}

/// Whether two definitions are shown the same way.
fn same(old: &CatalogTool, new: &CatalogTool) -> bool {
    (&old.definition, &old.input_schema, &old.output_schema, &old.description)
        == (&new.definition, &new.input_schema, &new.output_schema, &new.description)
}

fn show(profile: &Profile, tool: &Arc<CatalogTool>, name: String, words: Option<&str>) -> ShownTool {
    let description = words.unwrap_or(&tool.description);
    let Some(provider) = profile.provider else {
        let given = Words { name: Some(&name), description: words, input_schema: None };
        let definition = tool.listed_in(&given);
        let (description, tool) = (description.to_owned(), Arc::clone(tool));
        return ShownTool {
            name,
            description,
            tool,
            notes: Vec::new(),
            definition,
            has_its_own_schema: true,
            undo: Undo::default(),
        };
    };
    let schema: Value = tool.input_schema.parse().unwrap_or_default();
    let written = written(description, &schema, provider);
    let changed = written.schema != schema;
    let text = written.schema.to_string();
    let given = Words {
        name: Some(&name),
        description: (words.is_some() || written.description != description)
            .then_some(written.description.as_str()),
        input_schema: changed.then_some(text.as_str()),
    };
    ShownTool {
        definition: tool.listed_in(&given),
        name,
        tool: Arc::clone(tool),
        notes: written.notes,
        has_its_own_schema: !changed,
        undo: written.undo,
        description: written.description,
    }
}

impl ShownTool {
    /// The same for another version of the tool that is shown the same way.
    fn again(&self, tool: &Arc<CatalogTool>) -> Self {
        Self {
            name: self.name.clone(),
            description: self.description.clone(),
            tool: Arc::clone(tool),
            notes: self.notes.clone(),
            definition: self.definition.clone(),
            has_its_own_schema: self.has_its_own_schema,
            undo: self.undo.clone(),
        }
    }
}
