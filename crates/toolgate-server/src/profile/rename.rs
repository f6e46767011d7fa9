//! Replaces catalog names by profile names in the outcome of a call.
//!
//! Hints name tools to call next, messages name the tool that was called. Invariant: the outcome names no tool outside
//! the profile, and all others by the names the client knows.

use toolgate_runtime::{CallOutcome, SuggestedAction};
use toolgate_types::hints::AgentHints;
use toolgate_types::{CallError, ErrorCode};

use super::{ProfileTool, ProfileView};

impl ProfileView {
    /// Replaces catalog names by profile names in the error of a call.
    pub(crate) fn rename_error(&self, called: &mut CallOutcome, tool: Option<&ProfileTool>) {
        let Some(error) = &mut called.result.error else { return };
        if let Some(tool) = tool.filter(|tool| tool.name != tool.tool.name) {
            rename(error, &tool.tool.name, &tool.name);
        }
        if error.code == ErrorCode::DeprecatedRemoved {
            error.hint = error.hint.take().and_then(|hint| self.rename_hint(&hint));
        }
    }

    /// Replaces the names between backticks. Returns `None` if one is not part of the profile.
    fn rename_hint(&self, hint: &str) -> Option<String> {
        let mut parts: Vec<String> = hint.split('`').map(str::to_owned).collect();
        let all = parts.iter_mut().skip(1).step_by(2).all(|name| self.rename_action(name));
        all.then(|| parts.join("`"))
    }

    /// Replaces catalog names by profile names in hints, and removes hints about other tools.
    pub(crate) fn rename_hints(&self, hints: &mut AgentHints) {
        hints.suggested_next_actions.retain_mut(|next| self.rename_action(&mut next.action));
        for next in &mut hints.suggested_next_actions {
            next.prerequisites.retain_mut(|action| self.rename_action(action));
        }
        hints.dependencies.retain_mut(|one| {
            one.depends_on.retain_mut(|action| self.rename_action(action));
            self.rename_action(&mut one.action)
        });
        hints.preference_alignment.retain_mut(|one| self.rename_action(&mut one.action));
        for warning in &mut hints.warnings {
            for id in &mut warning.related_ids {
                let before = id.clone();
                if self.rename_action(id) && before != *id {
                    let fix = warning.suggested_fix.as_mut();
                    fix.into_iter()
                        .for_each(|fix| *fix = fix.replace(&format!("`{before}`"), &format!("`{id}`")));
                }
            }
        }
    }

    /// Replaces catalog names by profile names in suggested actions, and removes actions that are other tools.
    pub(crate) fn rename_actions(&self, actions: &mut Vec<SuggestedAction<'_>>) {
        actions.retain_mut(|suggested| match self.catalog.resolve(&suggested.action) {
            None => true,
            Some(tool) => match self.by_catalog_name(&tool.name) {
                Some(shown) if *suggested.action == *shown.name => true,
                Some(shown) => {
                    suggested.action = shown.name.to_string().into();
                    // The prepared JSON has the name of the catalog.
                    suggested.members = None;
                    true
                }
                None => false,
            },
        });
    }

    /// Replaces the name of a tool. Returns false if the tool is not part of the profile. An action that is not a tool
    /// stays as it is.
    fn rename_action(&self, action: &mut String) -> bool {
        match self.catalog.resolve(action) {
            None => true,
            Some(tool) => match self.by_catalog_name(&tool.name) {
                Some(shown) => {
                    action.clone_from(&shown.name);
                    true
                }
                None => false,
            },
        }
    }
}

/// Replaces the name of a tool in an error.
fn rename(error: &mut CallError, from: &str, to: &str) {
    let renamed = |text: &str| text.replace(&format!("`{from}`"), &format!("`{to}`"));
    error.message = renamed(&error.message);
    // A CLI command with the catalog name is useless to a model that knows the tool by another name.
    let hint = error.hint.take().filter(|hint| !hint.contains(&format!("tools show {from}")));
    error.hint = hint.map(|hint| renamed(&hint));
}
