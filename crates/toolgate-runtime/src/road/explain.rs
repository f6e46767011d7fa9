//! How a call would be decided, and why.

use serde::Serialize;
use toolgate_policy::Decision;
use toolgate_types::Caller;

use super::CallRequest;
use crate::catalog::ToolState;
use crate::runtime::Runtime;

/// A decision with all that led to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `allow`, `deny` or `ask`.
    pub decision: &'static str,
    /// Whether the caller may know that there is such a tool.
    pub visible: bool,
    /// What the tool demands, and whether the caller was given it.
    pub permissions: Vec<Demand>,
    /// The rules that decided, by their names; `permissions` where those did, `profiles` where the caller is bound to
    /// some that do not have the tool.
    pub rules: Vec<String>,
    /// What would be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Why it could not be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What tells this policy from any other.
    pub policy: String,
    /// Why the tool is held back from everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

/// A permission that a tool demands.
#[derive(Debug, Serialize)]
pub struct Demand {
    /// The permission.
    pub permission: String,
    /// Whether the caller was given it.
    pub given: bool,
}

impl Runtime {
    /// How a call would be decided, and why. Nothing is called and nobody is asked.
    pub fn explain(&self, caller: &Caller, request: &CallRequest) -> Option<Explanation> {
        let catalog = self.catalog();
        let tool = catalog.resolve(&request.name)?;
        let subject = tool.subject();
        let call = self.decided_on(caller, &subject, request);
        let is_within = self.is_within(caller, tool);
        let (decision, rules, question, failed) = match self.policy.decide(&call) {
            _ if !is_within => ("deny", vec!["profiles".to_owned()], None, None),
            Decision::Allow(grant) => ("allow", grant.rules().to_vec(), None, None),
            Decision::Ask(question) => ("ask", question.rules().to_vec(), Some(question.text.clone()), None),
            Decision::Deny(denied) => ("deny", denied.forbidden_by, None, denied.failed),
        };
        let demand = |permission: &toolgate_types::tool::Permission| Demand {
            permission: permission.to_string(),
            given: caller.has(permission),
        };
        Some(Explanation {
            decision,
            visible: is_within && self.policy.may_see(&call),
            permissions: subject.permissions.iter().map(demand).collect(),
            rules,
            question,
            failed,
            policy: self.policy.version().to_owned(),
            held_back: match &tool.state {
                ToolState::Ready => None,
                ToolState::Quarantined { reason, .. } => Some(reason.clone()),
            },
        })
    }
}
