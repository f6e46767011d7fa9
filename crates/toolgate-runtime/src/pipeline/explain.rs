//! Explains how the policy would decide on a call.

use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;
use toolgate_policy::{Decision, TargetKind};
use toolgate_types::Caller;

use super::{Operation, OperationTarget, policy_request};
use crate::runtime::Runtime;

/// A decision with everything that led to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `allow`, `deny` or `ask`.
    pub decision: &'static str,
    /// True if the caller may know that the tool exists.
    pub visible: bool,
    /// Permissions the tool requires.
    pub permissions: Vec<PermissionCheck>,
    /// Names of the deciding rules; `permissions` if the permissions decided, `profiles` if the tool is in none of the
    /// caller's profiles.
    pub rules: Vec<String>,
    /// Groups of the caller that these rules name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// Question that a person would be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Error of the policy evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Version (hash) of the policy.
    pub policy: String,
    /// Reason for the quarantine of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

/// A required permission.
#[derive(Debug, Serialize)]
pub struct PermissionCheck {
    pub permission: String,
    /// True if the caller has it.
    #[serde(rename = "given")]
    pub granted: bool,
    /// Group of the caller that grants it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
}

impl Runtime {
    /// Explains how the policy would decide on a call. Calls nothing and asks no one.
    pub fn explain(&self, caller: &Caller, operation: &Operation) -> Option<Explanation> {
        let access = self.rules_for(operation);
        let tool = match &operation.target {
            OperationTarget::Tool(name) => Arc::clone(self.catalog().resolve(name)?),
            OperationTarget::FrontEndTool(tool) => Arc::clone(tool),
            _ => Arc::new(self.resolve_item(&access, caller, operation).ok()?),
        };
        let subject = tool.subject();
        let session = operation.origin.session.as_ref();
        let tainted = self.access.taint.contains(&caller.id, session, Instant::now());
        let call = policy_request(caller, &subject, &operation.arguments, tainted);
        let is_tool = tool.target_kind() == TargetKind::Tool;
        let is_within = !is_tool || self.access.is_in_profiles(caller, &tool);
        let (decision, rules, question, failed) = match access.policy.decide(&call) {
            _ if !is_within => ("deny", vec!["profiles".to_owned()], None, None),
            Decision::Allow(grant) => ("allow", grant.rules().to_vec(), None, None),
            Decision::Ask(question) => ("ask", question.rules().to_vec(), Some(question.text.clone()), None),
            Decision::Deny(denied) => ("deny", denied.forbidden_by, None, denied.failed),
        };
        let check = |permission: &toolgate_types::tool::Permission| PermissionCheck {
            permission: permission.to_string(),
            granted: caller.has_permission(permission),
            through: caller.granting_group(permission).map(ToString::to_string),
        };
        Some(Explanation {
            decision,
            visible: is_within && access.policy.may_see(&call),
            permissions: subject.permissions.iter().map(check).collect(),
            through: access.policy.deciding_groups(&rules, caller),
            rules,
            question,
            failed,
            policy: access.policy.version().to_owned(),
            held_back: tool.state.reason().map(str::to_owned),
        })
    }
}
