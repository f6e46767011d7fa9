//! Replays recorded calls against other rules and reports the decisions that change.
//!
//! Tools are the current ones; callers and policy differ. Invariant: nothing is called and no one is asked.
//! Decisions that may depend on arguments missing from the record are reported as uncertain.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;
use toolgate_audit as audit;
use toolgate_json::CallArguments;
use toolgate_policy::decide::PolicyRequest;
use toolgate_policy::{Decision, Policy, TargetKind, ToolAttributes};
use toolgate_types::Caller;
use toolgate_types::secret::MASK;
use toolgate_upstream::RawJson;

use crate::catalog::{CatalogTool, server_item};
use crate::results::URI_PREFIX;
use crate::runtime::{AccessRules, Runtime};

/// A decision of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    Allow,
    Ask,
    Deny,
}

impl DecisionKind {
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    /// The recorded decision. `None` if the call ended before it was decided on.
    fn from_record(call: &audit::LoggedCall) -> Option<Self> {
        let begin = call.begin.as_ref()?;
        match begin.decision.as_str() {
            "allow" if begin.asked.is_some() => Some(Self::Ask),
            "allow" => Some(Self::Allow),
            "deny" if begin.not_approved => Some(Self::Ask),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }
}

/// Recorded calls of one caller and tool whose decision changes in the same way.
#[derive(Debug, Clone, Serialize)]
pub struct DecisionChange {
    pub caller: String,
    pub tool: String,
    /// The recorded decision.
    pub from: DecisionKind,
    /// The decision under the other policy.
    pub to: DecisionKind,
    /// True if the record has all arguments the policy looks at.
    pub certain: bool,
    /// Number of calls.
    pub count: u64,
    /// Names of the rules that decide now.
    pub rules: Vec<String>,
    /// Id of one of the calls.
    pub call: String,
}

/// Result of a replay.
#[derive(Debug, Default, Serialize)]
pub struct ReplayReport {
    /// Calls that were decided again.
    pub replayed: u64,
    /// Replayed calls whose arguments are missing or redacted in the record.
    pub uncertain: u64,
    /// Calls that were skipped because their tool or caller no longer exists.
    pub gone: u64,
    /// Decisions that change.
    pub flips: Vec<DecisionChange>,
}

impl Runtime {
    /// Decides recorded calls again with other rules. If they have no `owner`, it is the one with every permission.
    pub fn replay(
        &self,
        rules: &AccessRules,
        calls: impl Iterator<Item = std::io::Result<audit::LoggedCall>>,
    ) -> std::io::Result<ReplayReport> {
        let catalog = self.catalog();
        let owner = Caller::owner();
        let mut replay = ReplayReport::default();
        let mut flips: BTreeMap<_, DecisionChange> = BTreeMap::new();
        for call in calls {
            let call = call?;
            let (Some(from), Some(begin)) = (DecisionKind::from_record(&call), &call.begin) else { continue };
            let is_owner = begin.caller == Caller::OWNER;
            let caller = rules.caller(&begin.caller).or(is_owner.then_some(&owner));
            let subject = match begin.operation.as_str() {
                "tool" => catalog.resolve(&begin.tool).map(|tool| tool.subject()),
                "resource" | "subscription" => self.recorded_item(begin, TargetKind::Resource),
                "prompt" => self.recorded_item(begin, TargetKind::Prompt),
                // Completions are decided like their prompt or resource, tasks like their call, lists item by item.
                _ => continue,
            };
            let (Some(subject), Some(caller)) = (subject, caller) else {
                replay.gone += 1;
                continue;
            };
            let recorded = begin.arguments.as_ref().map(|arguments| arguments.get());
            let certain = recorded.is_some_and(|arguments| !arguments.contains(MASK));
            let arguments = RawJson::from_trusted(recorded.unwrap_or("{}").to_owned()).into();
            let (to, rules) = decide(&rules.policy, caller, &subject, &arguments, begin.tainted);
            replay.replayed += 1;
            replay.uncertain += u64::from(!certain);
            if from == to {
                continue;
            }
            let key = (from, to, begin.caller.clone(), begin.tool.clone(), !certain);
            let change = flips.entry(key).or_insert_with(|| DecisionChange {
                caller: begin.caller.clone(),
                tool: begin.tool.clone(),
                from,
                to,
                certain,
                count: 0,
                rules,
                call: begin.call.clone(),
            });
            change.count += 1;
        }
        replay.flips = flips.into_values().collect();
        Ok(replay)
    }
}

impl Runtime {
    /// The resource or prompt of a record.
    fn recorded_item(&self, begin: &audit::BeginRecord, kind: TargetKind) -> Option<ToolAttributes> {
        match &begin.server {
            Some(server) => Some(server_item(self.sources.server(server)?.spec(), kind, &begin.tool)),
            None if begin.tool.starts_with(URI_PREFIX) => {
                Some(CatalogTool::for_stored_result(&begin.tool).subject())
            }
            None => None,
        }
    }
}

pub(crate) fn decide(
    policy: &Policy,
    caller: &Caller,
    subject: &ToolAttributes,
    arguments: &CallArguments,
    tainted: bool,
) -> (DecisionKind, Vec<String>) {
    match policy.decide(&PolicyRequest { caller, tool: subject, arguments, tainted, now: SystemTime::now() })
    {
        Decision::Allow(grant) => (DecisionKind::Allow, grant.rules().to_vec()),
        Decision::Ask(question) => (DecisionKind::Ask, question.rules().to_vec()),
        Decision::Deny(denied) => (DecisionKind::Deny, denied.forbidden_by),
    }
}
