//! Lists: what a caller may have, as clients are told of it.
//!
//! The list of tools is written once for each caller and catalog, in the words of each era. Invariant: definitions
//! are given as their servers wrote them, but for the name.

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
/// Callers whose lists are kept.
const MOST_KEPT: usize = 256;

/// Lists of tools that were written.
#[derive(Default)]
pub(super) struct Lists(Mutex<HashMap<Key, Written>>);

/// Of which catalog, by which profile, and what it says.
type Written = (Arc<Catalog>, Option<Arc<Profile>>, Raw);
/// For whom, by which profile, and whether in the words of the newest revision.
type Key = (String, Option<ProfileName>, bool);

impl Gateway {
    /// The tools of a caller, as the result of `tools/list`.
    pub(super) fn tools(&self, visitor: &Visitor, request: &Request) -> Outcome {
        let newest = !request.client.revision().has_handshake();
        let profile = self.profile(visitor)?;
        if request.raw_member("cursor").is_none() {
            let (list, is_whole) = self.first_tools(visitor, profile.as_ref(), newest);
            if is_whole {
                return Ok(list);
            }
        }
        let catalog = self.runtime.catalog();
        page("tools", self.listed(visitor, &catalog, profile.as_ref()), request)
    }

    /// The first page, which is written once, and whether it is the only one.
    fn first_tools(&self, visitor: &Visitor, profile: Option<&Arc<Profile>>, newest: bool) -> (Raw, bool) {
        let catalog = self.runtime.catalog();
        // One caller may come with more or less, by the token that it has.
        let name = profile.map(|profile| profile.name.clone());
        let key = (serde_json::json!(*visitor.caller).to_string(), name, newest);
        let same = |of: Option<&Arc<Profile>>| match (of, profile) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let mut kept = self.lists.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, by, list)) = kept.get(&key)
            && Arc::ptr_eq(of, &catalog)
            && same(by.as_ref())
        {
            return (list.clone(), true);
        }
        let shown: Vec<String> = self.listed(visitor, &catalog, profile).take(PAGE + 1).collect();
        let list = written("tools", &shown, None, newest);
        if shown.len() > PAGE {
            return (list, false);
        }
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        let by = profile.map(Arc::clone);
        kept.insert(key, (Arc::clone(&catalog), by, list.clone()));
        (list, true)
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

    /// The tools of a caller in one text, to see whether they changed.
    pub(super) fn seen_tools(&self, visitor: &Visitor) -> Raw {
        match self.profile(visitor) {
            Ok(profile) => self.first_tools(visitor, profile.as_ref(), true).0,
            Err(_) => Raw::of(&serde_json::Value::Null),
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
            None => out.push_str(value.get()),
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

/// One page of a list.
fn page(key: &str, all: impl Iterator<Item = String>, request: &Request) -> Outcome {
    let begin = match request.raw_member("cursor") {
        None => 0,
        Some(cursor) => {
            let cursor = cursor.parse::<String>().ok().and_then(|cursor| cursor.parse::<usize>().ok());
            cursor
                .ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, "the `cursor` is not one of ours"))?
        }
    };
    let mut shown: Vec<String> = all.skip(begin).take(PAGE + 1).collect();
    let next = (shown.len() > PAGE).then(|| (begin + PAGE).to_string());
    shown.truncate(PAGE);
    Ok(written(key, &shown, next.as_deref(), !request.client.revision().has_handshake()))
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
