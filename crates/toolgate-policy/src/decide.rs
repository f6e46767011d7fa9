//! The one decision: for lists, searches, calls and whoever asks why.
//!
//! A caller may use a tool when it was given every permission that the tool demands, or a rule permits it;
//! and no rule forbids it. A tool that a caller has nothing to do with is not there for it.

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use serde::Serialize;
use toolgate_types::Caller;
use toolgate_types::json::Arguments;
use toolgate_types::tool::{Category, Contract, Permission};

use crate::grant::{Grant, Question};
use crate::rules::{Rules, Ruling};

/// What is known of a tool when it is decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The name callers use.
    pub name: String,
    /// Its name on its server.
    pub original: String,
    /// The server it comes from; `None` for one's own.
    pub server: Option<String>,
    /// What it demands; never empty.
    pub permissions: Vec<Permission>,
    /// What may be done with it.
    pub contract: Contract,
    /// What kind of tool it is.
    pub category: Option<Category>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Whether its server is trusted.
    pub trusted: bool,
    /// What tells its definition from every other; `None` for one's own.
    pub definition: Option<Box<str>>,
}

/// A call to decide on.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Who calls.
    pub caller: &'a Caller,
    /// What is called.
    pub subject: &'a Subject,
    /// With what.
    pub arguments: &'a Arguments,
    /// Whether something from an untrusted server was read before in this session.
    pub tainted: bool,
    /// When.
    pub now: SystemTime,
}

/// What is decided on.
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

/// Yes, no, or somebody has to be asked.
#[derive(Debug)]
pub enum Decision {
    /// Yes.
    Allow(Grant),
    /// Somebody has to be asked.
    Ask(Box<Question>),
    /// No.
    Deny(Denied),
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denied {
    /// Whether the caller may know that there is such a tool.
    pub visible: bool,
    /// The permissions that are missing.
    pub missing: Vec<Permission>,
    /// The rules that forbid it, by their names.
    pub forbidden_by: Vec<String>,
    /// Why it could not be decided, where that is so.
    pub failed: Option<String>,
}

/// What said yes where no rule did.
static PERMISSIONS: LazyLock<Arc<[String]>> = LazyLock::new(|| Arc::new(["permissions".to_owned()]));

/// Permissions and rules.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Option<Rules>,
}

impl Policy {
    /// With rules, or with permissions alone.
    pub fn new(rules: Option<Rules>) -> Self {
        Self { rules }
    }

    /// What tells this policy from any other.
    pub fn version(&self) -> &str {
        self.rules.as_ref().map_or("permissions", Rules::version)
    }

    /// Decides on a call.
    pub fn decide(&self, call: &Call<'_>) -> Decision {
        let missing = self.missing(call);
        let ruling = self.ruling(call, Action::Call);
        let mut denied =
            Denied { visible: false, missing: Vec::new(), forbidden_by: Vec::new(), failed: None };
        match (ruling, missing.is_empty()) {
            (Ruling::Permit(rules), _) => return self.grant(call, rules.into()),
            (Ruling::Silent, true) => return self.grant(call, Arc::clone(&PERMISSIONS)),
            (Ruling::Ask { rules, text, permitted }, given) if given || permitted => {
                return Decision::Ask(Box::new(Question::new(call, text, rules, self.version())));
            }
            (Ruling::Silent | Ruling::Ask { .. }, _) => denied.missing = missing,
            (Ruling::Forbid(rules), _) => denied.forbidden_by = rules,
            (Ruling::Failed(why), _) => denied.failed = Some(why),
        }
        // Who was given something on it may know that it could not be decided.
        denied.visible = if denied.failed.is_some() { knows_of(call) } else { self.may_see(call) };
        Decision::Deny(denied)
    }

    /// Whether a caller may know that there is such a tool: it was given something on what the tool is
    /// about, or a rule lets it list the tool; and no rule keeps it from that.
    pub fn may_see(&self, call: &Call<'_>) -> bool {
        match self.ruling(call, Action::List) {
            Ruling::Permit(_) => true,
            Ruling::Silent | Ruling::Ask { .. } => knows_of(call),
            Ruling::Forbid(_) | Ruling::Failed(_) => false,
        }
    }

    fn missing(&self, call: &Call<'_>) -> Vec<Permission> {
        call.subject.permissions.iter().filter(|permission| !call.caller.has(permission)).cloned().collect()
    }

    fn ruling(&self, call: &Call<'_>, action: Action) -> Ruling {
        self.rules.as_ref().map_or(Ruling::Silent, |rules| rules.rule(call, action))
    }

    fn grant(&self, call: &Call<'_>, rules: Arc<[String]>) -> Decision {
        Decision::Allow(Grant::new(&call.caller.id, &call.subject.name, rules))
    }
}

/// Whether the caller was given anything on what the tool is about.
fn knows_of(call: &Call<'_>) -> bool {
    call.subject.permissions.iter().any(|permission| call.caller.knows_of(permission))
}

#[cfg(test)]
mod tests;
