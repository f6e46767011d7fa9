//! Proof that a call was allowed, and proof that its arguments are valid.
//!
//! Only a decision creates a [`Grant`], only a schema turns it into an [`Input`], and a tool can be invoked only with
//! an `Input`. Bypassing the policy does not compile:
//!
//! ```compile_fail
//! # fn f(caller: toolgate_types::CallerId, rules: std::sync::Arc<[String]>) {
//! let grant = toolgate_policy::Grant { caller, rules, approved_by: None };
//! # }
//! ```

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use sha2::{Digest, Sha256};
use toolgate_json::RawJson;
use toolgate_types::CallerId;

/// Stands for the granting rule if permissions allowed a call and no rule did.
pub(crate) const PERMISSIONS: &str = "permissions";

/// Permission for one call.
#[derive(Debug)]
pub struct Grant {
    caller: CallerId,
    /// The ids of the rules that permitted the call, or [`PERMISSIONS`].
    rules: Arc<[String]>,
    /// The person who approved the call, if approval was required.
    approved_by: Option<String>,
}

impl Grant {
    pub(crate) fn new(caller: &CallerId, rules: Arc<[String]>) -> Self {
        Self { caller: caller.clone(), rules, approved_by: None }
    }

    /// The ids of the rules that permitted the call, for the execution log.
    pub fn rules(&self) -> &Arc<[String]> {
        &self.rules
    }

    /// The same ids in one string, separated by spaces.
    pub fn rules_text(&self) -> Cow<'static, str> {
        match &*self.rules {
            [rule] if rule == PERMISSIONS => PERMISSIONS.into(),
            rules => rules.join(" ").into(),
        }
    }

    /// The person who approved the call, if approval was required.
    pub fn approved_by(&self) -> Option<&str> {
        self.approved_by.as_deref()
    }

    pub(crate) fn into_input(self, arguments: RawJson) -> Input {
        Input { grant: self, arguments }
    }
}

/// Arguments that the caller may use the tool with and that match the tool's schema.
#[derive(Debug)]
pub struct Input {
    grant: Grant,
    arguments: RawJson,
}

impl Input {
    pub fn caller(&self) -> &CallerId {
        &self.grant.caller
    }

    /// The arguments, byte for byte as received.
    pub fn arguments(&self) -> &RawJson {
        &self.arguments
    }

    pub fn grant(&self) -> &Grant {
        &self.grant
    }
}

/// The time a person has to answer.
const APPROVAL_VALIDITY: Duration = Duration::from_secs(600);

/// A call that a person has to approve. Bound to this exact call and consumed by the answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub caller: CallerId,
    pub tool: Box<str>,
    /// The question text of the rule.
    pub text: String,
    /// The arguments, for the person to read.
    pub arguments: RawJson,
    /// The SHA-256 of the arguments.
    pub arguments_digest: String,
    /// The hash of the tool definition at the time of the decision.
    pub definition: Option<Box<str>>,
    /// The policy version at the time of the decision.
    pub policy: Box<str>,
    #[serde(skip)]
    asked_at: SystemTime,
    #[serde(skip)]
    rules: Vec<String>,
}

/// A person's approval, with the state it has to be checked against.
#[derive(Debug, Clone, Copy)]
pub struct Approval<'a> {
    /// The person who approved.
    pub by: &'a str,
    /// The hash of the tool definition now.
    pub definition: Option<&'a str>,
    /// The policy version now.
    pub policy: &'a str,
    pub now: SystemTime,
}

/// The reason an approval is no longer valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StaleApproval {
    #[error("the approval came too late: it expires after {} minutes", APPROVAL_VALIDITY.as_secs() / 60)]
    Late,
    #[error("the tool has changed since approval was requested")]
    Definition,
    #[error("the policy has changed since approval was requested")]
    Policy,
}

impl Question {
    pub(crate) fn new(
        call: &crate::decide::PolicyRequest<'_>,
        text: String,
        rules: Vec<String>,
        policy: &str,
    ) -> Self {
        Self {
            caller: call.caller.id.clone(),
            tool: call.tool.name.as_str().into(),
            text,
            arguments: call.arguments.raw().clone(),
            arguments_digest: digest_arguments(call.arguments.raw()),
            definition: call.tool.definition.clone(),
            policy: policy.into(),
            asked_at: call.now,
            rules,
        }
    }

    /// The ids of the rules that require approval.
    pub fn rules(&self) -> &[String] {
        &self.rules
    }

    /// Turns an approval into a grant. Consumes the question, so one approval cannot be used twice.
    ///
    /// # Errors
    /// If the approval came too late, or the tool or the policy has changed since the question.
    pub fn approve(self, approval: Approval<'_>) -> Result<Grant, StaleApproval> {
        if approval.now.duration_since(self.asked_at).unwrap_or_default() > APPROVAL_VALIDITY {
            return Err(StaleApproval::Late);
        }
        if approval.definition != self.definition.as_deref() {
            return Err(StaleApproval::Definition);
        }
        if approval.policy != &*self.policy {
            return Err(StaleApproval::Policy);
        }
        Ok(Grant { caller: self.caller, rules: self.rules.into(), approved_by: Some(approval.by.to_owned()) })
    }
}

/// The SHA-256 of the arguments, byte for byte.
pub fn digest_arguments(arguments: &RawJson) -> String {
    Sha256::digest(arguments.bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
