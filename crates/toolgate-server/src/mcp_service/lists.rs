//! Lists of tools, prompts and resources, limited to those a caller may use.
//!
//! The tool list is rendered once per caller and catalog, for each protocol era and with all its pages. Invariant:
//! definitions are passed on as their servers wrote them, except for the name.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use toolgate_mcp::server::{ClientRequest, RpcResult};
use toolgate_mcp::{RawJson, RpcError};
use toolgate_runtime::catalog::{ListingOverrides, SEPARATOR};
use toolgate_runtime::{Catalog, CatalogTool, ListFilter, OfferedItem, VisibleItem};
use toolgate_types::Profile;
use toolgate_types::profile::{DisplayOverride, ProfileName, ProfileSelection, ToolExposure};

use super::{LIST_TTL, McpCaller, McpService, search};

/// Entries per page.
const PAGE: usize = 1_000;
/// Cached lists, and their total size.
const MAX_LISTS: usize = 256;
const MAX_BYTES: usize = 64 << 20;

/// A list, split into pages.
pub(super) type Pages = Arc<[RawJson]>;

/// A prompt under the name that a client sees.
pub(super) struct NamedPrompt {
    pub(super) name: String,
    pub(super) server: String,
    pub(super) prompt: OfferedItem,
}

/// Cache of rendered tool lists.
#[derive(Default)]
pub(super) struct ListCache(Mutex<HashMap<ListKey, CachedList>>);

/// A rendered list, with the inputs it was rendered from.
struct CachedList {
    catalog: Arc<Catalog>,
    profile: Option<Arc<Profile>>,
    pages: Pages,
}

/// Caller with permissions, profile, true for the newest revision, and the fingerprint of the lists of servers.
type ListKey = (String, Option<ProfileName>, bool, u64);

impl ListCache {
    fn get(&self, key: &ListKey, catalog: &Arc<Catalog>, profile: Option<&Arc<Profile>>) -> Option<Pages> {
        let lists = self.0.lock();
        let cached = lists.get(key).filter(|cached| Arc::ptr_eq(&cached.catalog, catalog))?;
        let same = match (&cached.profile, profile) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same.then(|| Arc::clone(&cached.pages))
    }

    fn put(&self, key: ListKey, cached: CachedList) {
        let bytes = |pages: &Pages| pages.iter().map(|page| page.as_str().len()).sum::<usize>();
        let mut lists = self.0.lock();
        lists.remove(&key);
        let all: usize = lists.values().map(|cached| bytes(&cached.pages)).sum();
        if lists.len() >= MAX_LISTS || all + bytes(&cached.pages) > MAX_BYTES {
            lists.clear();
        }
        lists.insert(key, cached);
    }
}

impl McpService {
    /// Handles `tools/list`.
    pub(super) fn tools(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        lists: &ListFilter,
    ) -> RpcResult {
        let newest = !request.client.revision().has_handshake();
        let pages = self.tool_pages(mcp_caller, self.profile(mcp_caller)?.as_ref(), lists, newest);
        let start = page_start(request)?;
        match pages.get(start / PAGE) {
            Some(page) if start.is_multiple_of(PAGE) => Ok(page.clone()),
            Some(_) => Err(invalid_cursor()),
            // The list had more pages when the cursor was issued.
            None => Ok(render_page("tools", &[], None, newest)),
        }
    }

    /// Returns all pages, from the cache if possible.
    fn tool_pages(
        &self,
        mcp_caller: &McpCaller,
        profile: Option<&Arc<Profile>>,
        lists: &ListFilter,
        newest: bool,
    ) -> Pages {
        let catalog = self.runtime.catalog();
        // The key includes the permissions: they may differ between two tokens of one caller.
        let name = profile.map(|profile| profile.name.clone());
        let key = (serde_json::json!(*mcp_caller.caller).to_string(), name, newest, lists.fingerprint());
        if let Some(pages) = self.list_cache.get(&key, &catalog, profile) {
            return pages;
        }
        let pages = render_pages("tools", self.list_entries(mcp_caller, &catalog, profile, lists), newest);
        self.list_cache
            .put(key, CachedList { catalog, profile: profile.cloned(), pages: Arc::clone(&pages) });
        pages
    }

    /// Tool definitions visible to a caller.
    fn list_entries<'a>(
        &'a self,
        mcp_caller: &'a McpCaller,
        catalog: &'a Catalog,
        profile: Option<&Arc<Profile>>,
        lists: &'a ListFilter,
    ) -> Box<dyn Iterator<Item = String> + 'a> {
        let may_see =
            |tool: &CatalogTool| lists.shows(tool) && self.runtime.may_see(&mcp_caller.caller, tool);
        let logins = self.login_tools(mcp_caller, profile, lists).into_iter();
        let logins = logins.map(|tool| tool.listed_definition(&ListingOverrides::default()));
        match profile {
            None => Box::new(catalog.ready_definitions(may_see).chain(logins)),
            Some(profile) if profile.exposure == ToolExposure::Search => {
                Box::new(search::definitions(profile).into_iter())
            }
            Some(profile) if self.shows_programs(mcp_caller, &self.view(profile)) => {
                let entries = self.program_entries(mcp_caller, &self.view(profile), lists);
                Box::new(entries.into_iter().chain(logins))
            }
            Some(profile) => {
                let view = self.view(profile);
                let ready: Vec<_> = view.ready().map(Arc::clone).collect();
                let seen = ready.into_iter().filter(move |shown| may_see(&shown.tool));
                Box::new(seen.map(|shown| shown.definition.clone()).chain(logins))
            }
        }
    }

    /// Tools that log the caller in, for the servers in its profile.
    pub(super) fn login_tools(
        &self,
        mcp_caller: &McpCaller,
        profile: Option<&Arc<Profile>>,
        lists: &ListFilter,
    ) -> Vec<Arc<CatalogTool>> {
        let mut tools = self.runtime.login_tools(&mcp_caller.caller, lists);
        tools.retain(|login| profile.is_none_or(|profile| self.has_server_of(profile, login)));
        tools
    }

    /// Returns true if a profile shows any tool of the server of a login.
    pub(super) fn has_server_of(&self, profile: &Arc<Profile>, login: &CatalogTool) -> bool {
        self.view(profile).ready().any(|shown| shown.tool.server == login.server)
    }

    /// Tool pages of a caller, to detect changes.
    pub(super) fn visible_tool_pages(&self, mcp_caller: &McpCaller) -> Pages {
        match self.profile(mcp_caller) {
            Ok(profile) => self.tool_pages(mcp_caller, profile.as_ref(), &ListFilter::default(), true),
            Err(_) => Arc::default(),
        }
    }

    pub(super) fn prompts(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        lists: &ListFilter,
    ) -> RpcResult {
        let named = self.named_prompts(mcp_caller, lists).into_iter();
        page_result(
            "prompts",
            named.map(|shown| with_overrides(&shown.prompt.definition, Some(&shown.name), None)),
            request,
        )
    }

    /// Prompts of a caller. If two servers offer the same name, the first one configured keeps it, and the other gets a
    /// qualified name.
    pub(super) fn named_prompts(&self, mcp_caller: &McpCaller, lists: &ListFilter) -> Vec<NamedPrompt> {
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        let Ok(profile) = self.profile(mcp_caller) else { return all };
        let servers = self.runtime.servers();
        // `{server}__…` belongs to that server alone, so that no other server takes the place of its prompts.
        let is_of_other = |server: &str, name: &str| {
            let owner = name.split_once(SEPARATOR).map(|(owner, _)| owner);
            owner.is_some_and(|owner| owner != server && servers.iter().any(|known| known.name == owner))
        };
        for VisibleItem { server, item } in self.runtime.visible_prompts(&mcp_caller.caller, lists) {
            let qualified = format!("{server}{SEPARATOR}{}", item.id);
            let names = [item.id.as_str(), &qualified];
            let Some((overrides, mut prompt)) =
                select(profile.as_deref().map(|it| &it.prompts), &names, &item)
            else {
                continue;
            };
            let name =
                overrides.and_then(|overrides| overrides.name.clone()).unwrap_or_else(|| prompt.id.clone());
            let is_free = overrides.is_some() || !is_of_other(&server, &name);
            let name = if is_free && seen.insert(name.clone()) { name } else { qualified };
            if let Some(overrides) = overrides {
                prompt.definition = RawJson::from_trusted(with_overrides(
                    &prompt.definition,
                    None,
                    overrides.description.as_deref(),
                ));
            }
            all.push(NamedPrompt { name, server, prompt });
        }
        all
    }

    pub(super) fn resources(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        lists: &ListFilter,
    ) -> RpcResult {
        page_result(
            "resources",
            self.resource_definitions(mcp_caller, self.runtime.visible_resources(&mcp_caller.caller, lists))
                .into_iter(),
            request,
        )
    }

    pub(super) fn templates(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        lists: &ListFilter,
    ) -> RpcResult {
        page_result(
            "resourceTemplates",
            self.resource_definitions(mcp_caller, self.runtime.visible_templates(&mcp_caller.caller, lists))
                .into_iter(),
            request,
        )
    }

    /// Definitions by unique URI. If two servers offer the same URI, the first one configured wins.
    pub(super) fn resource_definitions(
        &self,
        mcp_caller: &McpCaller,
        visible: Vec<VisibleItem>,
    ) -> Vec<String> {
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        let Ok(profile) = self.profile(mcp_caller) else { return all };
        for VisibleItem { item, .. } in visible {
            let selection = profile.as_deref().map(|profile| &profile.resources);
            let Some((overrides, one)) = select(selection, &[&item.id], &item) else { continue };
            if seen.insert(one.id.clone()) {
                all.push(match overrides {
                    Some(DisplayOverride { name, description }) => {
                        with_overrides(&one.definition, name.as_deref(), description.as_deref())
                    }
                    None => one.definition.as_str().to_owned(),
                });
            }
        }
        all
    }
}

/// Returns an offer with its overrides if it is part of the selection.
fn select<'a>(
    selection: Option<&'a ProfileSelection>,
    names: &[&str],
    one: &OfferedItem,
) -> Option<(Option<&'a DisplayOverride>, OfferedItem)> {
    let Some(selection) = selection else { return Some((None, one.clone())) };
    selection.contains(names).then(|| (selection.override_for(names), one.clone()))
}

/// Replaces name and description in a definition.
fn with_overrides(definition: &RawJson, name: Option<&str>, description: Option<&str>) -> String {
    let mut others = vec![("name", name), ("description", description)];
    let mut out = String::from("{");
    for (member, value) in definition.members() {
        out.push_str(if out.len() > 1 { "," } else { "" });
        let _ = write!(out, "{}:", serde_json::Value::from(&*member));
        let other = others.iter_mut().find(|(of, _)| *of == member).and_then(|(_, other)| other.take());
        match other {
            Some(other) => drop(write!(out, "{}", serde_json::Value::from(other))),
            None => out.push_str(value),
        }
    }
    for (member, other) in others {
        if let Some(other) = other {
            let comma = if out.len() > 1 { "," } else { "" };
            let _ = write!(out, "{comma}\"{member}\":{}", serde_json::Value::from(other));
        }
    }
    out.push('}');
    out
}

/// Reads the cursor of a request.
fn page_start(request: &ClientRequest) -> Result<usize, RpcError> {
    let Some(cursor) = request.raw_member("cursor") else { return Ok(0) };
    let cursor = cursor.parse::<String>().ok().and_then(|cursor| cursor.parse::<usize>().ok());
    cursor.ok_or_else(invalid_cursor)
}

fn invalid_cursor() -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, "invalid `cursor`")
}

/// Renders the requested page.
fn page_result(key: &str, all: impl Iterator<Item = String>, request: &ClientRequest) -> RpcResult {
    let start = page_start(request)?;
    let mut shown: Vec<String> = all.skip(start).take(PAGE + 1).collect();
    let next = (shown.len() > PAGE).then(|| (start + PAGE).to_string());
    shown.truncate(PAGE);
    Ok(render_page(key, &shown, next.as_deref(), !request.client.revision().has_handshake()))
}

/// Renders all pages of a list; at least one.
fn render_pages(key: &str, all: impl Iterator<Item = String>, newest: bool) -> Pages {
    let mut all = all.peekable();
    let (mut pages, mut start) = (Vec::new(), 0);
    loop {
        let shown: Vec<String> = all.by_ref().take(PAGE).collect();
        start += PAGE;
        let next = all.peek().is_some().then(|| start.to_string());
        pages.push(render_page(key, &shown, next.as_deref(), newest));
        if next.is_none() {
            return pages.into();
        }
    }
}

fn render_page(key: &str, shown: &[String], next: Option<&str>, newest: bool) -> RawJson {
    let mut out = String::with_capacity(shown.iter().map(|one| one.len() + 1).sum::<usize>() + 128);
    let _ = write!(out, "{{\"{key}\":[");
    for (at, one) in shown.iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        out.push_str(one);
    }
    out.push(']');
    if let Some(next) = next {
        let _ = write!(out, ",\"nextCursor\":\"{next}\"");
    }
    if newest {
        // Lists depend on the caller.
        let hold = LIST_TTL.as_millis();
        let _ = write!(out, ",\"resultType\":\"complete\",\"ttlMs\":{hold},\"cacheScope\":\"private\"");
    }
    out.push('}');
    RawJson::from_trusted(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_lists_into_pages() {
        let check = |count: usize, due: &[(usize, Option<&str>)]| {
            let pages = render_pages("tools", (0..count).map(|number| number.to_string()), false);
            let pages: Vec<serde_json::Value> = pages.iter().map(|page| page.parse().unwrap()).collect();
            let shown: Vec<_> = pages
                .iter()
                .map(|page| (page["tools"].as_array().unwrap().len(), page["nextCursor"].as_str()))
                .collect();
            assert_eq!(shown, due, "{count}");
            let all = pages.iter().flat_map(|page| page["tools"].as_array().unwrap());
            assert!(all.map(|one| one.as_u64()).eq((0..count).map(|number| Some(number as u64))), "{count}");
        };
        check(0, &[(0, None)]);
        check(1_000, &[(1_000, None)]);
        check(1_001, &[(1_000, Some("1000")), (1, None)]);
        check(2_500, &[(1_000, Some("1000")), (1_000, Some("2000")), (500, None)]);
    }

    #[test]
    fn list_cache_is_bounded_by_count_and_bytes() {
        let (lists, catalog) = (ListCache::default(), Arc::new(Catalog::default()));
        let key = |number: usize| (number.to_string(), None, true, 0);
        let put = |number: usize, bytes: usize| {
            let pages = [RawJson::from_trusted(format!("\"{}\"", "x".repeat(bytes)))].into();
            lists.put(key(number), CachedList { catalog: Arc::clone(&catalog), profile: None, pages });
        };
        let count = || lists.0.lock().len();
        put(0, 1);
        let first = lists.get(&key(0), &catalog, None).unwrap();
        assert!(Arc::ptr_eq(&first, &lists.get(&key(0), &catalog, None).unwrap()), "written once");
        assert!(lists.get(&key(0), &Arc::new(Catalog::default()), None).is_none(), "another catalog");
        assert!(lists.get(&key(1), &catalog, None).is_none());
        (0..MAX_LISTS).for_each(|number| put(number, 1));
        assert_eq!(count(), MAX_LISTS);
        put(MAX_LISTS, 1);
        assert_eq!(count(), 1);
        put(0, MAX_BYTES / 2);
        put(0, MAX_BYTES / 2);
        assert_eq!(count(), 2, "in place of itself");
        put(1, MAX_BYTES / 2);
        assert_eq!(count(), 1, "they would be too long together");
    }
}
