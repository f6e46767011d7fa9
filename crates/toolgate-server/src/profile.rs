//! Profiles: the tools of the catalog a profile selects, with the names and schemas its clients see.
//!
//! A [`ProfileView`] is built once per catalog and profile, and cached. Invariant: the name of a tool depends on the
//! catalog and the profile, never on the caller. Tools outside the view cannot be called through it.

mod rename;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use toolgate_mcp::RawJson;
use toolgate_runtime::catalog::{ListingOverrides, SEPARATOR};
use toolgate_runtime::code_mode::{FIND_FUNCTIONS, RUN_CODE};
use toolgate_runtime::provider_schema::{ArgumentMapping, adapt_definition, safe_name, short_hash};
use toolgate_runtime::search::{LiveIndex, SearchableTool, ToolSnapshot};
use toolgate_runtime::{Catalog, CatalogTool, ServerOffer, ToolState};
use toolgate_search::ToolEntry;
use toolgate_types::Profile;
use toolgate_types::profile::ToolExposure;

/// Tool that searches for tools, in profiles with `exposure: search`.
pub const SEARCH_TOOLS: &str = "search_tools";
/// Tool that returns the definition of a tool.
pub const DESCRIBE_TOOL: &str = "describe_tool";
/// Tool that calls another tool.
pub const CALL_TOOL: &str = "call_tool";

/// A tool as a profile shows it.
#[derive(Debug)]
pub struct ProfileTool {
    /// Name shown to clients.
    pub name: String,
    /// Description shown to clients.
    pub description: String,
    pub tool: Arc<CatalogTool>,
    /// Notes for operators about changes to the definition.
    pub notes: Vec<String>,
    /// Definition as an entry of a tool list.
    pub definition: String,
    /// True if clients see the original input schema.
    pub(crate) has_original_schema: bool,
    /// Maps arguments back to the original schema.
    mapping: ArgumentMapping,
}

impl ProfileTool {
    /// Converts arguments from the shown schema to the original one.
    pub(crate) fn arguments(&self, shown: RawJson) -> RawJson {
        if self.mapping.is_empty() {
            return shown;
        }
        match shown.parse::<Value>() {
            Ok(value) => RawJson::from_value(&self.mapping.restore(value)),
            Err(_) => shown,
        }
    }
}

/// A profile applied to a catalog.
#[derive(Debug)]
pub struct ProfileView {
    pub profile: Arc<Profile>,
    pub(crate) catalog: Arc<Catalog>,
    tools: Vec<Arc<ProfileTool>>,
    /// Positions by shown name, and by catalog name.
    shown: HashMap<String, usize>,
    own: HashMap<String, usize>,
    /// Shared with the views of other catalogs.
    index: Arc<LiveIndex<Self>>,
}

impl ProfileView {
    /// Builds a view. Unchanged tools are taken from the previous view.
    pub fn new(catalog: &Arc<Catalog>, profile: &Arc<Profile>, before: Option<&Self>) -> Self {
        let before = before.filter(|view| *view.profile == **profile);
        let mut view = Self {
            profile: Arc::clone(profile),
            catalog: Arc::clone(catalog),
            tools: Vec::new(),
            shown: HashMap::new(),
            own: HashMap::new(),
            index: before.map(|view| Arc::clone(&view.index)).unwrap_or_default(),
        };
        let selected: Vec<_> =
            catalog.tools().filter_map(|tool| Some((tool, select(profile, tool)?))).collect();
        for (at, name) in assign_names(profile, &selected).into_iter().enumerate() {
            let (tool, overrides) = &selected[at];
            let old = before
                .and_then(|view| view.by_catalog_name(&tool.name))
                .filter(|old| old.name == name && is_shown_alike(&old.tool, tool));
            let shown = match old {
                Some(old) if Arc::ptr_eq(&old.tool, tool) => Arc::clone(old),
                Some(old) => Arc::new(old.with_tool(tool)),
                None => Arc::new(adapt_tool(profile, tool, name, overrides.description.as_deref())),
            };
            view.shown.insert(shown.name.clone(), view.tools.len());
            view.own.insert(tool.name.clone(), view.tools.len());
            view.tools.push(shown);
        }
        view
    }

    /// All tools of the profile, including quarantined ones.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ProfileTool>> {
        self.tools.iter()
    }

    /// Tools that can be called.
    pub fn ready(&self) -> impl Iterator<Item = &Arc<ProfileTool>> {
        self.tools.iter().filter(|shown| shown.tool.state == ToolState::Ready)
    }

    /// Finds a tool by the name shown to clients.
    pub fn find(&self, name: &str) -> Option<&Arc<ProfileTool>> {
        self.shown.get(name).map(|at| &self.tools[*at])
    }

    /// Finds a tool by its name in the catalog.
    pub fn by_catalog_name(&self, own: &str) -> Option<&Arc<ProfileTool>> {
        self.own.get(own).map(|at| &self.tools[*at])
    }

    /// Patterns of the profile that match no tool of the catalog.
    pub fn unmatched_patterns(&self) -> Vec<&str> {
        let names: Vec<_> = self.catalog.tools().flat_map(|tool| tool.names()).collect();
        let is_matched =
            |pattern: &&str| names.iter().any(|name| toolgate_types::wildcard::matches(pattern, name));
        self.profile.tools.patterns().filter(|pattern| !is_matched(pattern)).collect()
    }

    /// Returns true if the profile includes anything of a server.
    pub(crate) fn includes_server(&self, server: &str, offer: &ServerOffer) -> bool {
        let of_it =
            |shown: &Arc<ProfileTool>| shown.tool.server.as_ref().is_some_and(|it| it.as_str() == server);
        let Profile { prompts, resources, .. } = &*self.profile;
        let prompt = |id: &str| prompts.contains(&[id, &format!("{server}{SEPARATOR}{id}")]);
        self.tools.iter().any(of_it)
            || offer.prompts.iter().any(|one| prompt(&one.id))
            || offer.resources.iter().chain(&*offer.templates).any(|one| resources.contains(&[&one.id]))
    }

    /// Searches the callable tools, best match first, among those for which `may_see` is true.
    pub(crate) fn search(
        self: &Arc<Self>,
        query: &str,
        limit: usize,
        may_see: impl Fn(&CatalogTool) -> bool,
    ) -> Vec<&Arc<ProfileTool>> {
        let seen = |entry: &ToolEntry| self.find(&entry.name).is_some_and(|shown| may_see(&shown.tool));
        let hits = self.index.read(self).search_among(query, limit, seen);
        hits.iter().filter_map(|hit| self.find(&hit.name)).collect()
    }

    /// Updates the search index ahead of the next search, if the profile has one.
    pub(crate) fn prepare(self: &Arc<Self>) {
        if self.profile.exposure != ToolExposure::Full {
            self.index.set_prepared();
            self.index.update(self);
        }
    }

    /// Returns true if the view was built from these inputs.
    pub(crate) fn is_current(&self, catalog: &Arc<Catalog>, profile: &Arc<Profile>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog) && Arc::ptr_eq(&self.profile, profile)
    }
}

/// Overrides of a tool in a profile; `None` if the tool is not part of it.
fn select(profile: &Profile, tool: &CatalogTool) -> Option<toolgate_types::profile::DisplayOverride> {
    let overrides = || {
        let names = tool.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        profile.tools.override_for(&names).cloned().unwrap_or_default()
    };
    tool.is_in_profile(profile).then(overrides)
}

/// Assigns unique names. Names set by the operator come first, then those of the catalog.
fn assign_names(
    profile: &Profile,
    selected: &[(&Arc<CatalogTool>, toolgate_types::profile::DisplayOverride)],
) -> Vec<String> {
    let good = |name: &str| if profile.provider.is_some() { safe_name(name) } else { name.to_owned() };
    let mut taken: HashMap<String, usize> = HashMap::new();
    if profile.exposure == ToolExposure::Search {
        taken.extend([SEARCH_TOOLS, DESCRIBE_TOOL, CALL_TOOL].map(|name| (name.to_owned(), usize::MAX)));
    }
    if profile.exposure == ToolExposure::Code {
        taken.extend([RUN_CODE, FIND_FUNCTIONS].map(|name| (name.to_owned(), usize::MAX)));
    }
    let mut out = vec![String::new(); selected.len()];
    let given = selected.iter().enumerate().filter(|(_, (_, overrides))| overrides.name.is_some());
    let others = selected.iter().enumerate().filter(|(_, (_, overrides))| overrides.name.is_none());
    for (at, (tool, overrides)) in given.chain(others) {
        let mut name = good(overrides.name.as_deref().unwrap_or(&tool.name));
        // The suffix is derived from the catalog name, so it is stable.
        let mut more = tool.name.clone();
        while taken.contains_key(&name) {
            name =
                good(&format!("{}_{}", overrides.name.as_deref().unwrap_or(&tool.name), short_hash(&more)));
            more.push('_');
        }
        taken.insert(name.clone(), at);
        out[at] = name;
    }
    out
}

impl ToolSnapshot for ProfileView {
    type Tool = ProfileTool;

    fn tools(&self) -> impl Iterator<Item = &Arc<ProfileTool>> {
        self.ready()
    }
}

impl SearchableTool for ProfileTool {
    fn name(&self) -> &str {
        &self.name
    }

    /// All that the catalog knows, with the name and description of the profile.
    fn entry(&self) -> ToolEntry {
        let mut own = self.tool.search_entry();
        own.description = own.description.replacen(&self.tool.description, &self.description, 1);
        own.name.clone_from(&self.name);
        own
    }

    fn has_same_entry(&self, other: &Self) -> bool {
        self.description == other.description && self.tool.has_same_entry(&other.tool)
    }
}

/// Returns true if two versions of a tool are shown in the same way.
fn is_shown_alike(old: &CatalogTool, new: &CatalogTool) -> bool {
    (&old.definition, &old.input_schema, &old.output_schema, &old.description)
        == (&new.definition, &new.input_schema, &new.output_schema, &new.description)
}

fn adapt_tool(
    profile: &Profile,
    tool: &Arc<CatalogTool>,
    name: String,
    custom_description: Option<&str>,
) -> ProfileTool {
    let description = custom_description.unwrap_or(&tool.description);
    let Some(provider) = profile.provider else {
        let given =
            ListingOverrides { name: Some(&name), description: custom_description, input_schema: None };
        let definition = tool.listed_definition(&given);
        let (description, tool) = (description.to_owned(), Arc::clone(tool));
        return ProfileTool {
            name,
            description,
            tool,
            notes: Vec::new(),
            definition,
            has_original_schema: true,
            mapping: ArgumentMapping::default(),
        };
    };
    let schema: Value = tool.input_schema.parse().unwrap_or_default();
    let adapted = adapt_definition(description, &schema, provider);
    let changed = adapted.schema != schema;
    let text = adapted.schema.to_string();
    let given = ListingOverrides {
        name: Some(&name),
        description: (custom_description.is_some() || adapted.description != description)
            .then_some(adapted.description.as_str()),
        input_schema: changed.then_some(text.as_str()),
    };
    ProfileTool {
        definition: tool.listed_definition(&given),
        name,
        tool: Arc::clone(tool),
        notes: adapted.notes,
        has_original_schema: !changed,
        mapping: adapted.mapping,
        description: adapted.description,
    }
}

impl ProfileTool {
    /// Copies the shown form for another version of the same tool.
    fn with_tool(&self, tool: &Arc<CatalogTool>) -> Self {
        Self {
            name: self.name.clone(),
            description: self.description.clone(),
            tool: Arc::clone(tool),
            notes: self.notes.clone(),
            definition: self.definition.clone(),
            has_original_schema: self.has_original_schema,
            mapping: self.mapping.clone(),
        }
    }
}
