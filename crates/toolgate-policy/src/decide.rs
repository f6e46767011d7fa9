//! The single policy decision, used by lists, searches, calls and `toolgate policy`.
//!
//! A caller may use a tool if it has every permission that the tool requires or a rule permits the call, and no rule
//! forbids it. A caller sees the tools that it may use, and no others.

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use serde::Serialize;
use toolgate_json::CallArguments;
use toolgate_types::Caller;
use toolgate_types::tool::{Category, Permission, ToolContract};

use crate::grant::{Grant, PERMISSIONS, Question};
use crate::rules::{RuleOutcome, RuleSet};

/// The kinds of things that callers use. Each is an entity type of the Cedar schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TargetKind {
    #[default]
    Tool,
    Resource,
    Prompt,
}

/// The attributes of a tool, resource or prompt that the policy decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAttributes {
    pub kind: TargetKind,
    /// The name that callers use; the URI of a resource.
    pub name: String,
    /// The name on its server.
    pub original: String,
    /// `None` for local tools.
    pub server: Option<String>,
    /// The permissions required to use it. Empty: every caller may use it.
    pub permissions: Vec<Permission>,
    pub contract: ToolContract,
    pub category: Option<Category>,
    pub tags: Vec<String>,
    /// True if its server is trusted.
    pub trusted: bool,
    /// The hash that identifies the tool's definition; `None` for local tools.
    pub definition: Option<Box<str>>,
}

/// A call to decide on.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequest<'a> {
    pub caller: &'a Caller,
    pub tool: &'a ToolAttributes,
    pub arguments: &'a CallArguments,
    /// True if text from an untrusted server reached this session.
    pub tainted: bool,
    /// The time of the call. Passed in, because the policy has no clock.
    pub now: SystemTime,
}

/// The action a decision is about, as in the Cedar schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    List,
    Call,
    Read,
    Get,
}

impl Action {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Call => "call",
            Self::Read => "read",
            Self::Get => "get",
        }
    }

    /// The action that uses a target.
    fn to_use(kind: TargetKind) -> Self {
        match kind {
            TargetKind::Tool => Self::Call,
            TargetKind::Resource => Self::Read,
            TargetKind::Prompt => Self::Get,
        }
    }
}

/// The result of a policy decision.
#[derive(Debug)]
pub enum Decision {
    Allow(Grant),
    /// A person has to approve the call.
    Ask(Box<Question>),
    Deny(Denied),
}

/// The reason for a denial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denied {
    /// True if the caller may know that the tool exists.
    pub visible: bool,
    /// The permissions the caller lacks.
    pub missing: Vec<Permission>,
    /// The ids of the rules that forbid the call.
    pub forbidden_by: Vec<String>,
    /// The evaluation error, if the rules could not be evaluated.
    pub failed: Option<String>,
}

/// Recorded as the granting rule if permissions allowed the call and no rule did.
static PERMISSIONS_LABEL: LazyLock<Arc<[String]>> = LazyLock::new(|| Arc::new([PERMISSIONS.to_owned()]));

/// The permissions check together with the optional rule set.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Option<RuleSet>,
}

impl Policy {
    pub fn new(rules: Option<RuleSet>) -> Self {
        Self { rules }
    }

    /// Identifies this policy: the hash of its rules, or `permissions`.
    pub fn version(&self) -> &str {
        self.rules.as_ref().map_or(PERMISSIONS, RuleSet::version)
    }

    /// Returns true if a decision may depend on the taint of a session.
    pub fn may_read_taint(&self) -> bool {
        self.rules.as_ref().is_some_and(RuleSet::may_read_taint)
    }

    pub fn decide(&self, call: &PolicyRequest<'_>) -> Decision {
        let missing = self.missing_permissions(call);
        let outcome = self.evaluate_rules(call, Action::to_use(call.tool.kind));
        let mut denied =
            Denied { visible: false, missing: Vec::new(), forbidden_by: Vec::new(), failed: None };
        match (outcome, missing.is_empty()) {
            (RuleOutcome::Permit(rules), _) => return self.grant(call, rules.into()),
            (RuleOutcome::NoMatch, true) => return self.grant(call, Arc::clone(&PERMISSIONS_LABEL)),
            (RuleOutcome::Ask { rules, text, permitted }, has_permissions)
                if has_permissions || permitted =>
            {
                return Decision::Ask(Box::new(Question::new(call, text, rules, self.version())));
            }
            (RuleOutcome::NoMatch | RuleOutcome::Ask { .. }, _) => denied.missing = missing,
            (RuleOutcome::Forbid(rules), _) => denied.forbidden_by = rules,
            (RuleOutcome::Failed(error), _) => denied.failed = Some(error),
        }
        denied.visible = self.may_learn_of(call, denied.failed.is_some());
        Decision::Deny(denied)
    }

    /// Returns true if a caller sees the tool in lists and searches: it has every permission that the tool requires, or
    /// a rule lets it list or call the tool, and no rule forbids listing it.
    pub fn may_see(&self, call: &PolicyRequest<'_>) -> bool {
        let permitted_by_rule = || {
            let outcome = self.evaluate_rules(call, Action::to_use(call.tool.kind));
            matches!(outcome, RuleOutcome::Permit(_) | RuleOutcome::Ask { permitted: true, .. })
        };
        match self.evaluate_rules(call, Action::List) {
            RuleOutcome::Permit(_) => true,
            RuleOutcome::NoMatch | RuleOutcome::Ask { .. } => {
                self.missing_permissions(call).is_empty() || permitted_by_rule()
            }
            RuleOutcome::Forbid(_) | RuleOutcome::Failed(_) => false,
        }
    }

    /// Returns true if the denial of a call may tell the caller that the tool exists: the caller sees it, or has another
    /// permission on its server, so that it learns the one that it lacks.
    fn may_learn_of(&self, call: &PolicyRequest<'_>, failed: bool) -> bool {
        match self.evaluate_rules(call, Action::List) {
            RuleOutcome::Permit(_) => true,
            RuleOutcome::NoMatch | RuleOutcome::Ask { .. } => {
                has_related_permission(call) || self.missing_permissions(call).is_empty()
            }
            RuleOutcome::Forbid(_) => false,
            // The rules failed for the call as well: a caller with a related permission may learn of that.
            RuleOutcome::Failed(_) => failed && has_related_permission(call),
        }
    }

    /// The groups through which these rules decided on a caller.
    pub fn deciding_groups(&self, rules: &[String], caller: &Caller) -> Vec<String> {
        self.rules.as_ref().map(|set| set.deciding_groups(rules, caller)).unwrap_or_default()
    }

    fn missing_permissions(&self, call: &PolicyRequest<'_>) -> Vec<Permission> {
        call.tool
            .permissions
            .iter()
            .filter(|permission| !call.caller.has_permission(permission))
            .cloned()
            .collect()
    }

    fn evaluate_rules(&self, call: &PolicyRequest<'_>, action: Action) -> RuleOutcome {
        self.rules.as_ref().map_or(RuleOutcome::NoMatch, |rules| rules.evaluate(call, action))
    }

    fn grant(&self, call: &PolicyRequest<'_>, rules: Arc<[String]>) -> Decision {
        Decision::Allow(Grant::new(&call.caller.id, rules))
    }
}

/// Returns true if the caller has any permission on the tool's resource.
fn has_related_permission(call: &PolicyRequest<'_>) -> bool {
    call.tool.permissions.iter().any(|permission| call.caller.has_any_permission_on(permission))
}

#[cfg(test)]
mod tests;
