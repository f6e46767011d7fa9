//! Profiles at the gateway: what a visitor sees, and how what it asks for finds its way.
//!
//! Which profile counts is looked up for each request, so a change of the configuration counts from the next one on.
//! Invariant: there is one road to a tool, whatever name it goes by here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use toolgate_mcp::serve::{Outcome, Request};
use toolgate_mcp::{Raw, RpcError};
use toolgate_runtime::Called;
use toolgate_types::Profile;
use toolgate_types::profile::{Exposure, HintsPlace, ProfileName};

use super::{Gateway, Visitor};
use crate::profile::{CALL_TOOL, DESCRIBE_TOOL, SEARCH_TOOLS, ShownTool, View, in_words};

/// Views that were made, by the names of their profiles.
#[derive(Default)]
pub(super) struct Views(Mutex<HashMap<ProfileName, Arc<View>>>);

/// Where a call goes.
pub(super) enum Way {
    /// Down the road.
    Road(Sent),
    /// Nowhere: it is answered here.
    Answered(Outcome),
}

/// A call in the words of the catalog.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) arguments: Option<Raw>,
    /// Whether the tool is no part of the profile.
    pub(super) hidden: bool,
    /// The profile, and the tool in it, where there is one.
    pub(super) seen: Option<(Arc<View>, Option<Arc<ShownTool>>)>,
}

impl Sent {
    /// Tells what came of it in the words of the profile; says what is to stand beside the result as text.
    pub(super) fn retell(&self, called: &mut Called) -> Option<String> {
        let (view, shown) = self.seen.as_ref()?;
        view.retell(called, shown.as_deref());
        (view.profile.hints == HintsPlace::Text).then(|| in_words(&called.result.agent_hints))
    }
}

impl Gateway {
    /// The profile that a visitor sees; `None` is everything.
    pub(super) fn profile(&self, visitor: &Visitor) -> Result<Option<Arc<Profile>>, RpcError> {
        let profiles = self.runtime.profiles();
        let found = profiles.of(&visitor.caller.id, visitor.profile.as_ref().map(ProfileName::as_str));
        let gone = |_| RpcError::new(-32600, "there is no such profile any more");
        found.map(|profile| profile.cloned()).map_err(gone)
    }

    /// What a profile makes of the catalog as it is now.
    pub(super) fn view(&self, profile: &Arc<Profile>) -> Arc<View> {
        let catalog = self.runtime.catalog();
        let lock = || self.views.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lock().get(&profile.name).cloned();
        if let Some(view) = before.as_ref().filter(|view| view.is_of(&catalog, profile)) {
            return Arc::clone(view);
        }
        // Outside of the lock: it takes its time, and two that make the same do no harm.
        let view = Arc::new(View::new(&catalog, profile, before.as_deref()));
        let mut views = lock();
        let there = self.runtime.profiles();
        views.retain(|name, _| there.all.iter().any(|profile| profile.name == *name));
        views.insert(profile.name.clone(), Arc::clone(&view));
        view
    }

    /// Makes the views of all profiles.
    pub(crate) fn prepare(&self) {
        for profile in &self.runtime.profiles().all {
            self.view(profile).prepare();
        }
    }

    /// The tool that a visitor means by a name.
    pub(super) fn meant(&self, visitor: &Visitor, name: &str) -> Option<(Arc<View>, Arc<ShownTool>)> {
        let view = self.view(&self.profile(visitor).ok()??);
        let shown = Arc::clone(view.find(name)?);
        Some((view, shown))
    }

    /// Where a call goes: by the names of the catalog, in the tool's own words.
    pub(super) fn way(
        &self,
        visitor: &Visitor,
        request: &Request,
        name: String,
        arguments: Option<Raw>,
    ) -> Result<Way, RpcError> {
        let Some(profile) = self.profile(visitor)? else {
            return Ok(Way::Road(Sent { name, arguments, ..Sent::default() }));
        };
        let view = self.view(&profile);
        if profile.exposure == Exposure::Search {
            let revision = request.client.revision();
            match name.as_str() {
                SEARCH_TOOLS => {
                    return Ok(Way::Answered(self.search(visitor, &view, arguments.as_ref(), revision)));
                }
                DESCRIBE_TOOL => {
                    return Ok(Way::Answered(self.describe(visitor, &view, arguments.as_ref(), revision)));
                }
                CALL_TOOL => {
                    let (name, arguments) = super::search::inner(arguments.as_ref())?;
                    return Ok(Way::Road(road(view, name, arguments)));
                }
                _ => {}
            }
        }
        Ok(Way::Road(road(view, name, arguments)))
    }
}

fn road(view: Arc<View>, name: String, arguments: Option<Raw>) -> Sent {
    match view.find(&name).map(Arc::clone) {
        Some(shown) => Sent {
            name: shown.tool.name.clone(),
            arguments: arguments.map(|arguments| shown.arguments(arguments)),
            hidden: false,
            seen: Some((view, Some(shown))),
        },
        None => Sent { name, arguments, hidden: true, seen: Some((view, None)) },
    }
}

/// A result with a text beside what it says.
pub(super) fn with_text(result: &Raw, text: &str) -> Raw {
    let block = serde_json::json!({ "type": "text", "text": text });
    let mut out = String::with_capacity(result.get().len() + text.len() + 64);
    let members = result.members();
    if members.iter().all(|(name, _)| name != "content") {
        return result.clone();
    }
    out.push('{');
    for (at, (name, value)) in members.iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        out.push_str(&serde_json::Value::from(&**name).to_string());
        out.push(':');
        match value.trim_end().strip_suffix(']') {
            Some(list) if name == "content" => {
                out.push_str(list);
                let is_empty = list.trim_start_matches('[').trim().is_empty();
                out.push_str(&format!("{}{block}]", if is_empty { "" } else { "," }));
            }
            _ => out.push_str(value),
        }
    }
    out.push('}');
    Raw::trusted(out)
}

#[test]
fn a_text_stands_last() {
    let check = |result: &str, due: &str| {
        assert_eq!(with_text(&Raw::trusted(result.to_owned()), "x").get(), due);
    };
    let block = r#"{"type":"text","text":"x"}"#;
    check(r#"{"content":[ ],"a":1.0}"#, &format!(r#"{{"content":[ {block}],"a":1.0}}"#));
    check(
        r#"{"content":[{"type":"text","text":"]"}] }"#,
        &format!(r#"{{"content":[{{"type":"text","text":"]"}},{block}]}}"#),
    );
    check(r#"{"task":{}}"#, r#"{"task":{}}"#);
}
