//! Suggested actions in short form, for clients that pass whole results to a model.
//!
//! The JSON of declared steps depends on the tool alone, so it is built with the catalog. Invariant: the actions and
//! their order are those of the full hints, without the suggestions from statistics.

use std::borrow::Cow;

use toolgate_json::quote;
use toolgate_types::hints::Severity;
use toolgate_types::tool::FollowUp;

use super::{
    CallFacts, DECLARED_STEP, OWN_STEP, READ_REST, REPLACEMENT, error_action, shown_follow_ups,
    shown_replacement,
};
use crate::results::READ_RESULT;

/// Longest reason of a suggested action, in bytes.
const MAX_REASON_BYTES: usize = 80;

/// Declared next steps of a tool, and the JSON of each. Both depend on the tool alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct FollowUps {
    pub(super) steps: Vec<FollowUp>,
    pub(super) prepared: Vec<PreparedStep>,
}

/// Short form of a declared step, built with the catalog.
#[derive(Debug, Clone)]
pub(super) struct PreparedStep {
    reason: Box<str>,
    members: Box<str>,
}

impl From<Vec<FollowUp>> for FollowUps {
    fn from(steps: Vec<FollowUp>) -> Self {
        let prepare = |step: &FollowUp| {
            let reason = short_reason(step.description.as_deref().unwrap_or(DECLARED_STEP));
            PreparedStep { members: action_members(&step.action, &reason).into(), reason: reason.into() }
        };
        Self { prepared: steps.iter().map(prepare).collect(), steps }
    }
}

impl FollowUps {
    pub(crate) fn steps(&self) -> &[FollowUp] {
        &self.steps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// A suggested action in its short form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedAction<'a> {
    /// Name of a tool, or a word for the action.
    pub action: Cow<'a, str>,
    /// Reason of at most 80 bytes.
    pub reason: Cow<'a, str>,
    /// Members `next` and `reason` of a JSON object, if they were prepared for this action.
    pub members: Option<&'a str>,
}

impl SuggestedAction<'_> {
    /// Returns the members `next` and `reason` of a JSON object.
    pub fn json_members(&self) -> Cow<'_, str> {
        match self.members {
            Some(members) => members.into(),
            None => action_members(&self.action, &self.reason).into(),
        }
    }
}

fn action_members(action: &str, reason: &str) -> String {
    let mut out = String::with_capacity(action.len() + reason.len() + 24);
    out.push_str("\"next\":");
    quote(action, &mut out);
    out.push_str(",\"reason\":");
    quote(reason, &mut out);
    out
}

/// Truncates a reason on a character boundary.
fn short_reason(reason: &str) -> String {
    if reason.len() <= MAX_REASON_BYTES {
        return reason.to_owned();
    }
    let end = reason.floor_char_boundary(MAX_REASON_BYTES - '…'.len_utf8());
    format!("{}…", reason[..end].trim_end())
}

/// Returns the actions that follow from the call itself, in short form, in the order of the full hints. Usual next tools
/// are not among them: the caller knows its own habits.
pub(crate) fn suggested_actions<'a>(facts: &CallFacts<'_, 'a>) -> Vec<SuggestedAction<'a>> {
    let new = |action: &'a str, reason: &'a str| SuggestedAction {
        action: action.into(),
        reason: reason.into(),
        members: None,
    };
    let mut actions = Vec::new();
    if let Some(error) = facts.error {
        let (action, priority, reason) = error_action(error);
        actions.push((priority, new(action, reason)));
    }
    if let Some(replacement) = shown_replacement(facts) {
        actions.push((Severity::High, new(replacement.as_str(), REPLACEMENT)));
    }
    if facts.truncated.is_some_and(|truncated| truncated.uri.is_some()) {
        actions.push((Severity::High, new(READ_RESULT, READ_REST)));
    }
    if facts.error.is_none() {
        actions.extend(shown_follow_ups(facts).map(|(step, PreparedStep { reason, members })| {
            let members = Some(&**members);
            (step.priority, SuggestedAction { members, ..new(&step.action, reason) })
        }));
    }
    actions.extend(facts.own_hints.shown_actions(facts).map(|next| {
        let reason = short_reason(next.description.as_deref().unwrap_or(OWN_STEP));
        let action =
            SuggestedAction { action: next.action.clone().into(), reason: reason.into(), members: None };
        (next.priority, action)
    }));
    actions.sort_by_key(|(priority, _)| *priority);
    actions.into_iter().map(|(_, action)| action).collect()
}
