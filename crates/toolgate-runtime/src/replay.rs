//! Recorded calls against other rules: which would be decided otherwise, and for whom.
//!
//! The tools are those of the catalog and the callers those of the configuration, as they are now; only the rules
//! are others. Invariant: nothing is called and nobody is asked. What was decided over arguments that are not in
//! the record is told apart, since nobody can know.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;
use toolgate_audit as audit;
use toolgate_policy::decide::Call;
use toolgate_policy::{Decision, Policy};
use toolgate_types::Caller;
use toolgate_types::json::Arguments;
use toolgate_types::secret::MASK;
use toolgate_upstream::Raw;

use crate::runtime::Runtime;

/// How a call is decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It goes on.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It does not.
    Deny,
}

impl Verdict {
    /// Its name in listings.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    /// What was decided at the time. A call that did not get so far was not decided on.
    fn recorded(call: &audit::Call) -> Option<Self> {
        let begin = call.begin.as_ref()?;
        let error = call.end.as_ref().and_then(|end| end.error.as_ref());
        match begin.decision.as_str() {
            "allow" if begin.asked.is_some() => Some(Self::Ask),
            "allow" => Some(Self::Allow),
            "deny" if error.is_some_and(|error| error.message.starts_with(NOBODY)) => Some(Self::Ask),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }
}

/// How the answer to a call begins that somebody was asked about and nobody said yes to.
pub(crate) const NOBODY: &str = "nobody said yes to";

/// Calls that would be decided otherwise, all in the same way.
#[derive(Debug, Clone, Serialize)]
pub struct Flip {
    /// Who called.
    pub caller: String,
    /// What was called.
    pub tool: String,
    /// What was decided.
    pub from: Verdict,
    /// What would be.
    pub to: Verdict,
    /// Whether all that was judged is in the record.
    pub certain: bool,
    /// How many calls.
    pub count: u64,
    /// The rules that decide now, by their names.
    pub rules: Vec<String>,
    /// One of the calls, by its id.
    pub call: String,
}

/// What came of a replay.
#[derive(Debug, Default, Serialize)]
pub struct Replay {
    /// Calls that were decided on again.
    pub replayed: u64,
    /// Those of them whose arguments are not in the record as they were.
    pub uncertain: u64,
    /// Calls that could not be: their tool or their caller is not there any more.
    pub gone: u64,
    /// What would be decided otherwise.
    pub flips: Vec<Flip>,
}

impl Runtime {
    /// Decides on recorded calls by other rules. `owner` stands for a caller that the configuration does not name.
    pub fn replay(
        &self,
        policy: &Policy,
        owner: Option<&Caller>,
        calls: impl Iterator<Item = std::io::Result<audit::Call>>,
    ) -> std::io::Result<Replay> {
        let catalog = self.catalog();
        let mut replay = Replay::default();
        let mut flips: BTreeMap<_, Flip> = BTreeMap::new();
        for call in calls {
            let call = call?;
            let (Some(from), Some(begin)) = (Verdict::recorded(&call), &call.begin) else { continue };
            let caller =
                self.caller(&begin.caller).or(owner.filter(|owner| owner.id.as_str() == begin.caller));
            let (Some(tool), Some(caller)) = (catalog.resolve(&begin.tool), caller) else {
                replay.gone += 1;
                continue;
            };
            let recorded = begin.arguments.as_ref().map(|arguments| arguments.get());
            let certain = recorded.is_some_and(|arguments| !arguments.contains(MASK));
            let arguments = Raw::trusted(recorded.unwrap_or("{}").to_owned()).into();
            let (to, rules) = decide(policy, caller, &tool.subject(), &arguments);
            replay.replayed += 1;
            replay.uncertain += u64::from(!certain);
            if from == to {
                continue;
            }
            let key = (from, to, begin.caller.clone(), begin.tool.clone(), !certain);
            let flip = flips.entry(key).or_insert_with(|| Flip {
                caller: begin.caller.clone(),
                tool: begin.tool.clone(),
                from,
                to,
                certain,
                count: 0,
                rules,
                call: begin.call.clone(),
            });
            flip.count += 1;
        }
        replay.flips = flips.into_values().collect();
        Ok(replay)
    }
}

fn decide(
    policy: &Policy,
    caller: &Caller,
    subject: &toolgate_policy::Subject,
    arguments: &Arguments,
) -> (Verdict, Vec<String>) {
    // Whether something untrusted was read before is not in the record; it counts as not.
    match policy.decide(&Call { caller, subject, arguments, tainted: false, now: SystemTime::now() }) {
        Decision::Allow(grant) => (Verdict::Allow, grant.rules().to_vec()),
        Decision::Ask(question) => (Verdict::Ask, question.rules().to_vec()),
        Decision::Deny(denied) => (Verdict::Deny, denied.forbidden_by),
    }
}
