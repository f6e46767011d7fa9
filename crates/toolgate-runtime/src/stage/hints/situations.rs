//! Situations with the suggestions that a careful person would make, compared with ours.
//!
//! Each line of `situations.jsonl` describes a call, the habits of the caller, and `careful`: the actions
//! in order. Written before they were compared. Invariant: every difference fails.

use std::collections::BTreeMap;

use serde::Deserialize;
use toolgate_types::CallerId;
use toolgate_upstream::RawJson;

use super::tests::{contract, facts};
use super::*;
use crate::tool_stats::NextToolStats;

const SITUATIONS: &str = include_str!("situations.jsonl");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Situation {
    situation: String,
    #[serde(default)]
    risk: Option<String>,
    /// Tools that this caller used next, with counts.
    #[serde(default)]
    next: BTreeMap<String, u64>,
    /// Times that it used various other tools next, each one once.
    #[serde(default)]
    other: u64,
    #[serde(default)]
    follow_ups: Vec<String>,
    /// Actions suggested by the tool itself.
    #[serde(default)]
    own: Vec<String>,
    #[serde(default)]
    hidden: Vec<String>,
    #[serde(default)]
    gone: Vec<String>,
    #[serde(default)]
    destructive: Vec<String>,
    #[serde(default)]
    replacement: Option<String>,
    /// `stored` or `lost`.
    #[serde(default)]
    truncated: Option<String>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    stage: Option<String>,
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    repeatable: bool,
    #[serde(default)]
    retry_after_ms: Option<u64>,
    careful: Vec<String>,
}

impl Situation {
    /// Returns the names of our suggestions, all and in the brief form.
    fn suggestions(&self) -> (Vec<String>, Vec<String>) {
        let risk = match self.risk.as_deref() {
            Some("low") => RiskLevel::Low,
            Some("medium") => RiskLevel::Medium,
            _ => RiskLevel::High,
        };
        let contract = ToolContract { risk, ..contract() };
        let steps = self.follow_ups.iter().map(|action| FollowUp {
            action: action.clone(),
            priority: Severity::Medium,
            description: None,
            after: Vec::new(),
        });
        let follow_ups = FollowUps::from(steps.collect::<Vec<_>>());
        let own = self.own.iter().map(|action| json!({ "action": action, "priority": "medium" }));
        let own = json!({ "agentHints": { "suggestedNextActions": own.collect::<Vec<_>>() } });
        let deprecated = self.replacement.as_ref().map(|name| Deprecation {
            replacement: name.parse().unwrap(),
            since: "1.0.0".to_owned(),
            removal_date: "2099-01-01".to_owned(),
            announced: None,
        });
        let truncated = self.truncated.as_ref().map(|how| TruncatedResult {
            uri: (how == "stored").then(|| "toolgate://results/1".to_owned()),
            shown: 1,
            total: 10,
        });
        let error = self.error();
        let is_listed = |list: &[String], name: &str| list.iter().any(|one| one == name);
        let facts = CallFacts {
            is_visible: &|name| (!is_listed(&self.gone, name)).then(|| !is_listed(&self.hidden, name)),
            may_destroy: &|name| is_listed(&self.destructive, name),
            next_tools: self.next_tools(),
            follow_ups: &follow_ups,
            deprecated: deprecated.as_ref(),
            truncated: truncated.as_ref(),
            error: error.as_ref(),
            own_hints: OwnHints::parse(&RawJson::from_value(&own)),
            ..facts(&contract)
        };
        let all = attach(&facts).suggested_next_actions.into_iter().map(|one| one.action).collect();
        let brief = suggested_actions(&facts).into_iter().map(|one| one.action.into_owned()).collect();
        (all, brief)
    }

    /// Lets the caller use the tools after `find`, in a session per time.
    fn next_tools(&self) -> NextTools {
        let (stats, caller) = (NextToolStats::default(), "ann".parse::<CallerId>().unwrap());
        let others = (0..self.other).map(|at| (format!("other_{}", at % 40), 1));
        let next = self.next.iter().map(|(tool, count)| (tool.clone(), *count)).chain(others);
        let times = next.flat_map(|(tool, count)| std::iter::repeat_n(tool, usize::try_from(count).unwrap()));
        for (session, tool) in times.enumerate() {
            let session = session.to_string();
            stats.record(&caller, Some(&session), "find");
            stats.record(&caller, Some(&session), &tool);
        }
        stats.often(&caller, "find")
    }

    fn error(&self) -> Option<CallError> {
        let code = self.code.as_deref()?;
        let code = ErrorCode::ALL.into_iter().find(|known| known.label() == code).expect("a known code");
        let stage = match self.stage.as_deref() {
            Some("resolve") => Stage::Resolve,
            Some("authorize") => Stage::Authorize,
            Some("validate_input") => Stage::ValidateInput,
            Some("rate_limit") => Stage::RateLimit,
            Some("slots") => Stage::Slots,
            Some("validate_output") => Stage::ValidateOutput,
            _ => Stage::Invoke,
        };
        let outcome = match self.outcome.as_deref() {
            Some("not_started") => ExecutionState::NotStarted,
            Some("finished") => ExecutionState::Finished,
            _ => ExecutionState::Unknown,
        };
        let mut error = CallError::new(code, stage, "no").with_outcome(outcome);
        error.repeatable = self.repeatable;
        error.retry_after = self.retry_after_ms.map(Duration::from_millis);
        Some(error)
    }
}

#[test]
fn suggestions_are_those_of_a_careful_person() {
    let situations: Vec<Situation> =
        SITUATIONS.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(situations.len() >= 40, "{}", situations.len());
    let mut differences = Vec::new();
    for situation in &situations {
        let (ours, brief) = situation.suggestions();
        if ours != situation.careful {
            differences.push(format!(
                "{}\n  careful: {:?}\n  ours:    {ours:?}",
                situation.situation, situation.careful
            ));
        }
        // The brief form is the same without habits.
        let without_habits = ours.iter().filter(|action| !situation.is_habit(action));
        assert!(without_habits.eq(brief.iter()), "{}: {brief:?}", situation.situation);
    }
    assert!(
        differences.is_empty(),
        "{} of {}:\n{}",
        differences.len(),
        situations.len(),
        differences.join("\n")
    );
}

impl Situation {
    fn is_habit(&self, action: &str) -> bool {
        let is_named = |list: &[String]| list.iter().any(|one| one == action);
        self.next.contains_key(action) && !is_named(&self.follow_ups) && !is_named(&self.own)
    }
}
