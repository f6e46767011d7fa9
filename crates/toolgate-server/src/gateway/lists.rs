//! Lists: what a caller may have, as clients are told of it.
//!
//! The list of tools is written once for each caller and catalog, in the words of each era and with all its pages.
//! Invariant: definitions are given as their servers wrote them, but for the name.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use toolgate_mcp::serve::{Outcome, Request};
use toolgate_mcp::{Raw, RpcError};
use toolgate_runtime::catalog::SEPARATOR;
use toolgate_runtime::{Catalog, CatalogTool, Offer, Offered};
use toolgate_types::Profile;
use toolgate_types::profile::{Exposure, ProfileName, Selection, ShownAs};

use super::{Gateway, LISTS_HOLD, Visitor, search};

/// Elements of one page.
const PAGE: usize = 1_000;
/// Lists that are kept, and how long all of them are together.
const MOST_KEPT: usize = 256;
const MOST_BYTES: usize = 64 << 20;

/// A list, page by page.
pub(super) type Pages = Arc<[Raw]>;

/// Lists of tools that were written.
#[derive(Default)]
pub(super) struct Lists(Mutex<HashMap<Key, Written>>);

/// A list, and what it was made of.
struct Written {
    catalog: Arc<Catalog>,
    profile: Option<Arc<Profile>>,
    pages: Pages,
}

/// For whom, by which profile, and whether in the words of the newest revision.
type Key = (String, Option<ProfileName>, bool);

impl Lists {
    fn get(&self, key: &Key, catalog: &Arc<Catalog>, profile: Option<&Arc<Profile>>) -> Option<Pages> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = kept.get(key).filter(|written| Arc::ptr_eq(&written.catalog, catalog))?;
        let same = match (&written.profile, profile) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same.then(|| Arc::clone(&written.pages))
    }

    fn put(&self, key: Key, written: Written) {
        let bytes = |pages: &Pages| pages.iter().map(|page| page.get().len()).sum::<usize>();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&key);
        let all: usize = kept.values().map(|written| bytes(&written.pages)).sum();
        if kept.len() >= MOST_KEPT || all + bytes(&written.pages) > MOST_BYTES {
            kept.clear();
        }
        kept.insert(key, written);
    }
}

impl Gateway {
    /// The tools of a caller, as the result of `tools/list`.
    pub(super) fn tools(&self, visitor: &Visitor, request: &Request) -> Outcome {
        let newest = !request.client.revision().has_handshake();
        let pages = self.tool_pages(visitor, self.profile(visitor)?.as_ref(), newest);
        let begin = begin(request)?;
        match pages.get(begin / PAGE) {
            Some(page) if begin.is_multiple_of(PAGE) => Ok(page.clone()),
            Some(_) => Err(not_ours()),
            // There were more when it was given out.
            None => Ok(written("tools", &[], None, newest)),
        }
    }

    /// All pages, which are written once.
    fn tool_pages(&self, visitor: &Visitor, profile: Option<&Arc<Profile>>, newest: bool) -> Pages {
        let catalog = self.runtime.catalog();
        // One caller may come with more or less, by the token that it has.
        let name = profile.map(|profile| profile.name.clone());
        let key = (serde_json::json!(*visitor.caller).to_string(), name, newest);
        if let Some(pages) = self.lists.get(&key, &catalog, profile) {
            return pages;
        }
        let pages = paged("tools", self.listed(visitor, &catalog, profile), newest);
        self.lists.put(key, Written { catalog, profile: profile.cloned(), pages: Arc::clone(&pages) });
        pages
    }

    /// The tools of a caller, as elements of a list.
    fn listed<'a>(
        &'a self,
        visitor: &'a Visitor,
        catalog: &'a Catalog,
        profile: Option<&Arc<Profile>>,
    ) -> Box<dyn Iterator<Item = String> + 'a> {
        let may_see = |tool: &CatalogTool| self.runtime.may_see(&visitor.caller, tool);
        match profile {
            None => Box::new(catalog.listed(may_see)),
            Some(profile) if profile.exposure == Exposure::Search => {
                Box::new(search::definitions(profile).into_iter())
            }
            Some(profile) => {
                let view = self.view(profile);
                let ready: Vec<_> = view.ready().map(Arc::clone).collect();
                let seen = ready.into_iter().filter(move |shown| may_see(&shown.tool));
                Box::new(seen.map(|shown| shown.definition.clone()))
            }
        }
    }

    /// The tools of a caller, to see whether they changed.
    pub(super) fn seen_tools(&self, visitor: &Visitor) -> Pages {
        match self.profile(visitor) {
            Ok(profile) => self.tool_pages(visitor, profile.as_ref(), true),
            Err(_) => Arc::default(),
        }
    }

    pub(super) fn prompts(&self, visitor: &Visitor, request: &Request) -> Outcome {
        let named = self.named_prompts(visitor).into_iter();
        page(
            "prompts",
            named.map(|(name, _, prompt)| renamed(&prompt.definition, Some(&name), None)),
            request,
        )
    }

    /// The prompts of a caller: the name that clients use, the server, and the prompt. The first server of the
    /// configuration has a bare name.
    pub(super) fn named_prompts(&self, visitor: &Visitor) -> Vec<(String, String, Offered)> {
        let (mut taken, mut all) = (HashSet::new(), Vec::new());
        let Ok(profile) = self.profile(visitor) else { return all };
        for (server, offer) in self.runtime.offers() {
            if !visitor.may_have(&server, "prompts") {
                continue;
            }
            for prompt in offer.prompts.iter().filter(|prompt| prompt.fault.is_none()) {
                let qualified = format!("{server}{SEPARATOR}{}", prompt.id);
                let names = [prompt.id.as_str(), &qualified];
                let Some((words, mut prompt)) =
                    chosen(profile.as_deref().map(|it| &it.prompts), &names, prompt)
                else {
                    continue;
                };
                let name = words.and_then(|words| words.name.clone()).unwrap_or_else(|| prompt.id.clone());
                let name = if taken.insert(name.clone()) { name } else { qualified };
                if let Some(words) = words {
                    prompt.definition =
                        Raw::trusted(renamed(&prompt.definition, None, words.description.as_deref()));
                }
                all.push((name, server.clone(), prompt));
            }
        }
        all
    }

    pub(super) fn resources(&self, visitor: &Visitor, request: &Request) -> Outcome {
        page("resources", self.held(visitor, |offer| &offer.resources).into_iter(), request)
    }

    pub(super) fn templates(&self, visitor: &Visitor, request: &Request) -> Outcome {
        page("resourceTemplates", self.held(visitor, |offer| &offer.templates).into_iter(), request)
    }

    /// Definitions, each address once: the first server of the configuration has it.
    pub(super) fn held(&self, visitor: &Visitor, of: impl Fn(&Offer) -> &Arc<[Offered]>) -> Vec<String> {
        let (mut taken, mut all) = (HashSet::new(), Vec::new());
        let Ok(profile) = self.profile(visitor) else { return all };
        for (server, offer) in self.runtime.offers() {
            if !visitor.may_have(&server, "resources") {
                continue;
            }
            for one in of(&offer).iter().filter(|one| one.fault.is_none()) {
                let selection = profile.as_deref().map(|profile| &profile.resources);
                let Some((words, one)) = chosen(selection, &[&one.id], one) else { continue };
                if taken.insert(one.id.clone()) {
                    all.push(match words {
                        Some(ShownAs { name, description }) => {
                            renamed(&one.definition, name.as_deref(), description.as_deref())
                        }
                        None => one.definition.get().to_owned(),
                    });
                }
            }
        }
        all
    }
}

/// Something that is part of a selection, and as what it is shown.
fn chosen<'a>(
    selection: Option<&'a Selection>,
    names: &[&str],
    one: &Offered,
) -> Option<(Option<&'a ShownAs>, Offered)> {
    let Some(selection) = selection else { return Some((None, one.clone())) };
    selection.has(names).then(|| (selection.shown_as(names), one.clone()))
}

/// A definition under another name, or in other words.
fn renamed(definition: &Raw, name: Option<&str>, description: Option<&str>) -> String {
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

/// Where the page begins that a request asks for.
fn begin(request: &Request) -> Result<usize, RpcError> {
    let Some(cursor) = request.raw_member("cursor") else { return Ok(0) };
    let cursor = cursor.parse::<String>().ok().and_then(|cursor| cursor.parse::<usize>().ok());
    cursor.ok_or_else(not_ours)
}

fn not_ours() -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, "the `cursor` is not one of ours")
}

/// One page of a list.
fn page(key: &str, all: impl Iterator<Item = String>, request: &Request) -> Outcome {
    let begin = begin(request)?;
    let mut shown: Vec<String> = all.skip(begin).take(PAGE + 1).collect();
    let next = (shown.len() > PAGE).then(|| (begin + PAGE).to_string());
    shown.truncate(PAGE);
    Ok(written(key, &shown, next.as_deref(), !request.client.revision().has_handshake()))
}

/// All pages of a list; there is one, if only an empty one.
fn paged(key: &str, all: impl Iterator<Item = String>, newest: bool) -> Pages {
    let mut all = all.peekable();
    let (mut pages, mut begin) = (Vec::new(), 0);
    loop {
        let shown: Vec<String> = all.by_ref().take(PAGE).collect();
        begin += PAGE;
        let next = all.peek().is_some().then(|| begin.to_string());
        pages.push(written(key, &shown, next.as_deref(), newest));
        if next.is_none() {
            return pages.into();
        }
    }
}

fn written(key: &str, shown: &[String], next: Option<&str>, newest: bool) -> Raw {
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
        // What a list holds depends on who asks.
        let hold = LISTS_HOLD.as_millis();
        let _ = write!(out, ",\"resultType\":\"complete\",\"ttlMs\":{hold},\"cacheScope\":\"private\"");
    }
    out.push('}');
    Raw::trusted(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_list() {
        let check = |count: usize, due: &[(usize, Option<&str>)]| {
            let pages = paged("tools", (0..count).map(|number| number.to_string()), false);
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
    fn lists_are_kept_as_long_as_there_is_room() {
        let (lists, catalog) = (Lists::default(), Arc::new(Catalog::default()));
        let key = |number: usize| (number.to_string(), None, true);
        let put = |number: usize, bytes: usize| {
            let pages = [Raw::trusted(format!("\"{}\"", "x".repeat(bytes)))].into();
            lists.put(key(number), Written { catalog: Arc::clone(&catalog), profile: None, pages });
        };
        let kept = || lists.0.lock().unwrap().len();
        put(0, 1);
        let first = lists.get(&key(0), &catalog, None).unwrap();
        assert!(Arc::ptr_eq(&first, &lists.get(&key(0), &catalog, None).unwrap()), "written once");
        assert!(lists.get(&key(0), &Arc::new(Catalog::default()), None).is_none(), "another catalog");
        assert!(lists.get(&key(1), &catalog, None).is_none());
        (0..MOST_KEPT).for_each(|number| put(number, 1));
        assert_eq!(kept(), MOST_KEPT);
        put(MOST_KEPT, 1);
        assert_eq!(kept(), 1);
        put(0, MOST_BYTES / 2);
        put(0, MOST_BYTES / 2);
        assert_eq!(kept(), 2, "in place of itself");
        put(1, MOST_BYTES / 2);
        assert_eq!(kept(), 1, "they would be too long together");
    }
}
