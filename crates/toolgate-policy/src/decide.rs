//! The single policy decision, used by lists, searches, calls and `toolgate policy`.
//!
//! A caller may use a tool if it has every permission that the tool requires or a rule permits the call, and no rule
//! forbids it. A tool on which the caller has no related permission is invisible to it.

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use serde::Serialize;
use toolgate_json::CallArguments;
use toolgate_types::Caller;
use toolgate_types::tool::{Category, Permission, ToolContract};

use crate::grant::{Grant, Question};
use crate::rules::{RuleOutcome, RuleSet};

/// The attributes of a tool that the policy decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAttributes {
    pub name: String,
    /// The tool's name on its server.
    pub original: String,
    /// `None` for local tools.
    pub server: Option<String>,
    /// The permissions required to call it; never empty.
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
}

impl Action {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Call => "call",
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
static PERMISSIONS_LABEL: LazyLock<Arc<[String]>> = LazyLock::new(|| Arc::new(["permissions".to_owned()]));

/// The permissions check together with the optional rule set.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Option<RuleSet>,
}

impl Policy {
    pub fn new(rules: Option<RuleSet>) -> Self {
        Self { rules }
    }

    /// Identifies this policy: the hash of its rules, or `permissions`.
    pub fn version(&self) -> &str {
        self.rules.as_ref().map_or("permissions", RuleSet::version)
    }

    pub fn decide(&self, call: &PolicyRequest<'_>) -> Decision {
        let missing = self.missing_permissions(call);
        let outcome = self.evaluate_rules(call, Action::Call);
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
        // A caller with a related permission may learn that the evaluation failed.
        denied.visible =
            if denied.failed.is_some() { has_related_permission(call) } else { self.may_see(call) };
        Decision::Deny(denied)
    }

    /// Returns true if a caller may know that the tool exists: it has a related permission or a rule lets it list the
    /// tool, and no rule forbids listing it.
    pub fn may_see(&self, call: &PolicyRequest<'_>) -> bool {
        match self.evaluate_rules(call, Action::List) {
            RuleOutcome::Permit(_) => true,
            RuleOutcome::NoMatch | RuleOutcome::Ask { .. } => has_related_permission(call),
            RuleOutcome::Forbid(_) | RuleOutcome::Failed(_) => false,
        }
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
        Decision::Allow(Grant::new(&call.caller.id, &call.tool.name, rules))
    }
}

/// Returns true if the caller has any permission on the tool's resource.
fn has_related_permission(call: &PolicyRequest<'_>) -> bool {
    call.tool.permissions.iter().any(|permission| call.caller.has_any_permission_on(permission))
}

#[cfg(test)]
mod tests;
