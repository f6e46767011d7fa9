//! What a call says of tools, in the names of a profile.
//!
//! Hints name tools to call next, messages the one that was called. Invariant: no tool is named that is not in the
//! profile, and those that are go by the names that the client knows.

use std::fmt::Write as _;

use serde::Serialize;
use toolgate_runtime::Called;
use toolgate_types::hints::{AgentHints, NextAction};
use toolgate_types::{CallError, ErrorCode};

use super::{ShownTool, View};

/// Suggestions that are told in words.
const MOST_TOLD: usize = 3;

impl View {
    /// Puts the names of the profile in the place of the catalog's.
    pub(crate) fn retell(&self, called: &mut Called, tool: Option<&ShownTool>) {
        self.hints(&mut called.result.agent_hints);
        let Some(error) = &mut called.result.error else { return };
        if let Some(tool) = tool.filter(|tool| tool.name != tool.tool.name) {
            rename(error, &tool.tool.name, &tool.name);
        }
        if error.code == ErrorCode::DeprecatedRemoved {
            error.hint = error.hint.take().and_then(|hint| self.hint(&hint));
        }
    }

    /// A hint with the names of the profile between its backticks; none where it names what is not part of it.
    fn hint(&self, hint: &str) -> Option<String> {
        let mut parts: Vec<String> = hint.split('`').map(str::to_owned).collect();
        let all = parts.iter_mut().skip(1).step_by(2).all(|name| self.action(name));
        all.then(|| parts.join("`"))
    }

    fn hints(&self, hints: &mut AgentHints) {
        hints.suggested_next_actions.retain_mut(|next| self.action(&mut next.action));
        for next in &mut hints.suggested_next_actions {
            next.prerequisites.retain_mut(|action| self.action(action));
        }
        hints.dependencies.retain_mut(|one| {
            one.depends_on.retain_mut(|action| self.action(action));
            self.action(&mut one.action)
        });
        hints.preference_alignment.retain_mut(|one| self.action(&mut one.action));
        for warning in &mut hints.warnings {
            for id in &mut warning.related_ids {
                let before = id.clone();
                if self.action(id) && before != *id {
                    let fix = warning.suggested_fix.as_mut();
                    fix.into_iter()
                        .for_each(|fix| *fix = fix.replace(&format!("`{before}`"), &format!("`{id}`")));
                }
            }
        }
    }

    /// Puts the name of a tool in its place; `false` where the tool is not part of the profile. What is no tool is a
    /// word for what to do, and stays.
    fn action(&self, action: &mut String) -> bool {
        match self.catalog.resolve(action) {
            None => true,
            Some(tool) => match self.of(&tool.name) {
                Some(shown) => {
                    action.clone_from(&shown.name);
                    true
                }
                None => false,
            },
        }
    }
}

/// The tool under another name, wherever a message names it.
fn rename(error: &mut CallError, from: &str, to: &str) {
    let renamed = |text: &str| text.replace(&format!("`{from}`"), &format!("`{to}`"));
    error.message = renamed(&error.message);
    // A command of the operator's has no place before a model that knows the tool under another name.
    let hint = error.hint.take().filter(|hint| !hint.contains(&format!("tools show {from}")));
    error.hint = hint.map(|hint| renamed(&hint));
}

/// A value that is written as one word.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Hints in a few words, for models that are given the text of results and no more.
pub(crate) fn in_words(hints: &AgentHints) -> String {
    let mut out = format!(
        "Hints: confidence {}, source quality {}, valid: {}.",
        hints.confidence.get(),
        word(&hints.source_quality),
        word(&hints.validity_period)
    );
    for warning in &hints.warnings {
        let fix = warning.suggested_fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
        let _ = write!(out, "\nWarning: {}{fix}.", warning.message);
    }
    for risk in &hints.risk_factors {
        let _ = write!(out, "\nRisk: {}.", risk.description);
    }
    for NextAction { action, description, .. } in hints.suggested_next_actions.iter().take(MOST_TOLD) {
        let text = description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        let _ = write!(out, "\nNext: `{action}`{text}.");
    }
    out
}
