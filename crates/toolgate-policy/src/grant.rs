//! The proof that a call was decided on, and the proof that its arguments fit.
//!
//! Only a decision makes a [`Grant`], only a schema turns it into an [`Input`], and a tool can be invoked
//! with nothing else. So a way around the policy does not compile:
//!
//! ```compile_fail
//! let grant = toolgate_policy::Grant { caller, tool: "rm".into(), rules, asked: None };
//! ```

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use sha2::{Digest, Sha256};
use toolgate_types::CallerId;
use toolgate_types::json::Raw;

/// A decision that says yes to one call.
#[derive(Debug)]
pub struct Grant {
    /// Who calls.
    caller: CallerId,
    /// The tool.
    tool: Box<str>,
    /// What said yes: permissions, or rules by their names.
    rules: Arc<[String]>,
    /// Who was asked, where somebody was.
    asked: Option<String>,
}

impl Grant {
    pub(crate) fn new(caller: &CallerId, tool: &str, rules: Arc<[String]>) -> Self {
        Self { caller: caller.clone(), tool: tool.into(), rules, asked: None }
    }

    /// What said yes, for the record.
    pub fn rules(&self) -> &Arc<[String]> {
        &self.rules
    }

    /// Who was asked, where somebody was.
    pub fn asked(&self) -> Option<&str> {
        self.asked.as_deref()
    }

    pub(crate) fn with(self, arguments: Raw) -> Input {
        Input { grant: self, arguments }
    }
}

/// Arguments that a caller may use a tool with, and that fit the tool's schema.
#[derive(Debug)]
pub struct Input {
    grant: Grant,
    arguments: Raw,
}

impl Input {
    /// The tool.
    pub fn tool(&self) -> &str {
        &self.grant.tool
    }

    /// Who calls.
    pub fn caller(&self) -> &CallerId {
        &self.grant.caller
    }

    /// The arguments, as they came.
    pub fn arguments(&self) -> &Raw {
        &self.arguments
    }

    /// What said yes.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }
}

/// How long a person may take to answer.
const VALID: Duration = Duration::from_secs(600);

/// A call that somebody has to be asked about. Bound to exactly this call, and used up by the answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Who calls.
    pub caller: CallerId,
    /// The tool.
    pub tool: Box<str>,
    /// What the rule asks.
    pub text: String,
    /// The arguments, for the person to read.
    pub arguments: Raw,
    /// What tells these arguments from any others.
    pub arguments_digest: String,
    /// The definition that was decided on.
    pub definition: Option<Box<str>>,
    /// The rules that were decided by.
    pub policy: Box<str>,
    #[serde(skip)]
    asked_at: SystemTime,
    #[serde(skip)]
    rules: Vec<String>,
}

/// What must still be so when an answer comes.
#[derive(Debug, Clone, Copy)]
pub struct Approved<'a> {
    /// Who said yes.
    pub by: &'a str,
    /// The definition as it is now.
    pub definition: Option<&'a str>,
    /// The rules as they are now.
    pub policy: &'a str,
    /// When.
    pub now: SystemTime,
}

/// Why a yes does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// It came too late.
    #[error("the approval came after {} minutes", VALID.as_secs() / 60)]
    Late,
    /// The tool is not what it was.
    #[error("the tool has changed since it was asked about")]
    Definition,
    /// The rules are not what they were.
    #[error("the policy has changed since it was asked about")]
    Policy,
}

impl Question {
    pub(crate) fn new(
        call: &crate::decide::Call<'_>,
        text: String,
        rules: Vec<String>,
        policy: &str,
    ) -> Self {
        Self {
            caller: call.caller.id.clone(),
            tool: call.subject.name.as_str().into(),
            text,
            arguments: call.arguments.raw().clone(),
            arguments_digest: digest(call.arguments.raw()),
            definition: call.subject.definition.clone(),
            policy: policy.into(),
            asked_at: call.now,
            rules,
        }
    }

    /// The rules that ask, by their names.
    pub fn rules(&self) -> &[String] {
        &self.rules
    }

    /// A person said yes. Used up by it: the same yes cannot count twice.
    ///
    /// # Errors
    /// When it came too late, or what was asked about has changed.
    pub fn approved(self, yes: Approved<'_>) -> Result<Grant, Stale> {
        if yes.now.duration_since(self.asked_at).unwrap_or_default() > VALID {
            return Err(Stale::Late);
        }
        if yes.definition != self.definition.as_deref() {
            return Err(Stale::Definition);
        }
        if yes.policy != &*self.policy {
            return Err(Stale::Policy);
        }
        Ok(Grant {
            caller: self.caller,
            tool: self.tool,
            rules: self.rules.into(),
            asked: Some(yes.by.to_owned()),
        })
    }
}

/// What tells arguments from any others, down to the byte.
pub fn digest(arguments: &Raw) -> String {
    Sha256::digest(arguments.bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
