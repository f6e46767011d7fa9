//! Compares the access of all callers under two sets of rules.
//!
//! Tools are those of the current catalog, and calls have no arguments: rules about arguments show in a replay of
//! recorded calls. Invariant: nothing is called and no one is asked.

use std::sync::Arc;

use serde::Serialize;
use toolgate_json::CallArguments;
use toolgate_types::{Caller, Group, Profiles};

use crate::catalog::CatalogTool;
use crate::replay::{DecisionKind, decide};
use crate::runtime::{AccessRules, Runtime};

/// Everything that decides about tools.
#[derive(Debug, Clone, Copy)]
pub struct AccessView<'a> {
    pub rules: &'a AccessRules,
    pub profiles: &'a Profiles,
    pub groups: &'a [Arc<Group>],
}

/// A tool that a caller gains or loses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessChange {
    /// Id of the caller; `None` for a caller that only a group makes a member, such as by a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The group, in place of a caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    pub tool: String,
    pub from: DecisionKind,
    pub to: DecisionKind,
}

impl Runtime {
    /// The decisions on calls of these tools without arguments, by the rules in use. One row per caller.
    pub fn access_matrix(&self, callers: &[Caller], tools: &[&CatalogTool]) -> Vec<Vec<DecisionKind>> {
        let (rules, profiles) = (self.access_rules(), self.profiles());
        let view = AccessView { rules: &rules, profiles: &profiles, groups: &[] };
        let row = |caller: &Caller| tools.iter().map(|tool| level(view, Some(caller), tool)).collect();
        callers.iter().map(row).collect()
    }

    /// Returns the tools that callers, and members of groups, gain or lose.
    pub fn compare_access(&self, before: AccessView<'_>, after: AccessView<'_>) -> Vec<AccessChange> {
        let catalog = self.catalog();
        let owner = Caller::owner();
        let mut ids: Vec<&str> = vec![Caller::OWNER];
        for caller in before.rules.callers.iter().chain(&after.rules.callers) {
            if !ids.contains(&caller.id.as_str()) {
                ids.push(caller.id.as_str());
            }
        }
        let find = |view: AccessView<'_>, id: &str| {
            view.rules.caller(id).cloned().or_else(|| (id == Caller::OWNER).then(|| owner.clone()))
        };
        let mut changes = Vec::new();
        for id in ids {
            let (old, new) = (find(before, id), find(after, id));
            for tool in catalog.tools() {
                let (from, to) = (level(before, old.as_ref(), tool), level(after, new.as_ref(), tool));
                if from != to {
                    let (caller, tool) = (Some(id.to_owned()), tool.name.clone());
                    changes.push(AccessChange { caller, group: None, tool, from, to });
                }
            }
        }
        let mut names: Vec<&str> = Vec::new();
        for group in before.groups.iter().chain(after.groups) {
            if !names.contains(&group.name.as_str()) {
                names.push(group.name.as_str());
            }
        }
        for name in names {
            let (old, new) = (member_of(before, name), member_of(after, name));
            for tool in catalog.tools() {
                let (from, to) = (level(before, old.as_ref(), tool), level(after, new.as_ref(), tool));
                if from != to {
                    let (group, tool) = (Some(name.to_owned()), tool.name.clone());
                    changes.push(AccessChange { caller: None, group, tool, from, to });
                }
            }
        }
        changes
    }
}

fn member_of(view: AccessView<'_>, name: &str) -> Option<Caller> {
    view.groups.iter().find(|group| group.name.as_str() == name).map(any_member)
}

/// A caller without permissions of its own that is in one group.
pub fn any_member(group: &Arc<Group>) -> Caller {
    let id = "any-member".parse().expect("a valid id");
    Caller { groups: vec![Arc::clone(group)], ..Caller::new(id, Vec::new()) }
}

/// The decision on a call without arguments.
fn level(view: AccessView<'_>, caller: Option<&Caller>, tool: &CatalogTool) -> DecisionKind {
    let Some(caller) = caller else { return DecisionKind::Deny };
    let is_within = match view.profiles.bound_profiles(&caller.id) {
        None => true,
        Some(mut profiles) => profiles.any(|profile| tool.is_in_profile(profile)),
    };
    if !is_within {
        return DecisionKind::Deny;
    }
    decide(&view.rules.policy, caller, &tool.subject(), &CallArguments::empty(), false).0
}
