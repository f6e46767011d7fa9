//! Lists: what a caller may have, as clients are told of it.
//!
//! The list of tools is written once for each caller and catalog, in the words of each era. Invariant: definitions
//! are given as their servers wrote them, but for the name.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use toolgate_mcp::serve::{Outcome, Request};
use toolgate_mcp::{Raw, RpcError};
use toolgate_runtime::Catalog;
use toolgate_runtime::catalog::SEPARATOR;
use toolgate_runtime::{Offer, Offered};

use super::{Gateway, LISTS_HOLD, Visitor};

/// Elements of one page.
const PAGE: usize = 1_000;
/// Callers whose lists are kept.
const MOST_KEPT: usize = 256;

/// Lists of tools that were written: of which catalog, for whom, and whether in the words of the newest revision.
#[derive(Default)]
pub(super) struct Lists(Mutex<HashMap<(String, bool), Written>>);

type Written = (Arc<Catalog>, Raw);

impl Gateway {
    /// The tools of a caller, as the result of `tools/list`.
    pub(super) fn tools(&self, visitor: &Visitor, request: &Request) -> Outcome {
        let newest = !request.client.revision().has_handshake();
        if request.raw_member("cursor").is_none() {
            let (list, is_whole) = self.first_tools(visitor, newest);
            if is_whole {
                return Ok(list);
            }
        }
        let catalog = self.runtime.catalog();
        let listed = catalog.listed(|tool| self.runtime.may_see(&visitor.caller, tool));
        page("tools", listed, request)
    }

    /// The first page, which is written once, and whether it is the only one.
    fn first_tools(&self, visitor: &Visitor, newest: bool) -> (Raw, bool) {
        let catalog = self.runtime.catalog();
        // One caller may come with more or less, by the token that it has.
        let key = (serde_json::json!(*visitor.caller).to_string(), newest);
        let mut kept = self.lists.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, list)) = kept.get(&key)
            && Arc::ptr_eq(of, &catalog)
        {
            return (list.clone(), true);
        }
        let shown: Vec<String> =
            catalog.listed(|tool| self.runtime.may_see(&visitor.caller, tool)).take(PAGE + 1).collect();
        let list = written("tools", &shown, None, newest);
        if shown.len() > PAGE {
            return (list, false);
        }
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(key, (catalog, list.clone()));
        (list, true)
    }

    /// The tools of a caller in one text, to see whether they changed.
    pub(super) fn seen_tools(&self, visitor: &Visitor) -> Raw {
        self.first_tools(visitor, true).0
    }

    pub(super) fn prompts(&self, visitor: &Visitor, request: &Request) -> Outcome {
        let named = self.named_prompts(visitor).into_iter();
        page("prompts", named.map(|(name, _, prompt)| renamed(&prompt.definition, &name)), request)
    }

    /// The prompts of a caller: the name that clients use, the server, and the prompt. The first server of the
    /// configuration has a bare name.
    pub(super) fn named_prompts(&self, visitor: &Visitor) -> Vec<(String, String, Offered)> {
        let (mut taken, mut all) = (HashSet::new(), Vec::new());
        for (server, offer) in self.runtime.offers() {
            if !visitor.may_have(&server, "prompts") {
                continue;
            }
            for prompt in offer.prompts.iter().filter(|prompt| prompt.fault.is_none()) {
                let name = if taken.insert(prompt.id.clone()) {
                    prompt.id.clone()
                } else {
                    format!("{server}{SEPARATOR}{}", prompt.id)
                };
                all.push((name, server.clone(), prompt.clone()));
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
        for (server, offer) in self.runtime.offers() {
            if visitor.may_have(&server, "resources") {
                let good = of(&offer).iter().filter(|one| one.fault.is_none());
                let new = good.filter(|one| taken.insert(one.id.clone()));
                all.extend(new.map(|one| one.definition.get().to_owned()));
            }
        }
        all
    }
}

/// A definition under another name.
fn renamed(definition: &Raw, name: &str) -> String {
    let mut out = String::from("{");
    for (member, value) in definition.members() {
        out.push_str(if out.len() > 1 { "," } else { "" });
        let _ = write!(out, "{}:", serde_json::Value::from(member.as_str()));
        if member == "name" {
            let _ = write!(out, "{}", serde_json::Value::from(name));
        } else {
            out.push_str(value.get());
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
