//! The rules in `policy.cedar`. They can test the caller, the tool, its risk and the arguments.
//!
//! Rules are type-checked against the [schema](SCHEMA) at load time, and rejected if they fail. A `forbid` rule with
//! the annotation `@ask("…")` asks a person instead of denying. Invariant: an error while evaluating a rule denies the
//! call, and a rule that cannot be evaluated because of the shape of an argument counts against the call.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Authorizer, Decision as Cedar, Effect, PolicyId, PolicySet, Request, Schema, ValidationMode, Validator,
};
use miette::Diagnostic;
use sha2::{Digest, Sha256};
use toolgate_types::Caller;

use crate::decide::{Action, PolicyRequest};
use crate::limits;

pub(crate) mod entities;
mod prefilter;
mod reach;

mod slice;

use entities::{ArgumentUses, ENTITY_TYPES, argument_entities};
pub use reach::ProjectFacts;
use slice::{PolicySlice, RuleIndex, SliceCache};

/// The Cedar schema that rules are type-checked against.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// A mistake in the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleError {
    pub message: String,
    /// The suggested fix.
    pub hint: Option<String>,
    /// The byte range of the mistake in the source.
    pub at: Option<std::ops::Range<usize>>,
}

/// Rules that were parsed and type-checked.
#[derive(Clone)]
pub struct RuleSet {
    set: PolicySet,
    index: Arc<RuleIndex>,
    slices: Arc<SliceCache>,
    arguments: ArgumentUses,
    /// True if a rule may decide by `context.tainted`.
    may_read_taint: bool,
    version: Box<str>,
    warnings: Vec<RuleError>,
}

/// The version of rules with this text. It identifies the text, valid or not.
pub fn text_version(text: &str) -> String {
    let mut version = String::from("sha256:");
    for byte in Sha256::digest(text) {
        let _ = write!(version, "{byte:02x}");
    }
    version
}

/// The result of evaluating all rules for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleOutcome {
    /// These rules permit the call.
    Permit(Vec<String>),
    /// No rule permits or forbids the call.
    NoMatch,
    /// These rules forbid the call unless a person approves it. `permitted` is true if the other rules permit it.
    Ask { rules: Vec<String>, text: String, permitted: bool },
    /// These rules forbid the call.
    Forbid(Vec<String>),
    /// The rules could not be evaluated.
    Failed(String),
}

impl std::fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("version", &self.version).finish_non_exhaustive()
    }
}

impl RuleSet {
    /// Parses and type-checks rules. Reports every mistake, not just the first.
    ///
    /// # Errors
    /// If the rules cannot be parsed or do not type-check.
    pub fn new(text: &str) -> Result<Self, Vec<RuleError>> {
        limits::check(text).map_err(|error| vec![error])?;
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA).expect("the built-in schema is valid");
        let set =
            PolicySet::from_str(text).map_err(|errors| errors.iter().map(parse_error).collect::<Vec<_>>())?;
        let result = Validator::new(schema).validate(&set, ValidationMode::Strict);
        let mut errors: Vec<_> =
            result.validation_errors().map(|error| type_error(error, error.policy_id(), &set)).collect();
        // One mistake can be reported for tools, resources and prompts. They have the same attributes, so the report
        // for tools is enough.
        errors
            .sort_by_key(|error| error.message.contains("`Resource`") || error.message.contains("`Prompt`"));
        let mut places = HashSet::new();
        errors.retain(|error| error.at.is_none() || places.insert(error.at.clone()));
        if !errors.is_empty() {
            return Err(errors);
        }
        let warnings = result
            .validation_warnings()
            .map(|warning| type_error(warning, warning.policy_id(), &set))
            .collect();
        Ok(Self {
            index: Arc::new(RuleIndex::new(&set)),
            set,
            slices: Arc::default(),
            arguments: ArgumentUses::in_rules(text),
            // An escape may spell it, too.
            may_read_taint: text.contains("tainted") || text.contains("\\u"),
            version: text_version(text).into(),
            warnings,
        })
    }

    /// Number of rules.
    pub fn rule_count(&self) -> usize {
        self.set.policies().count()
    }

    /// Mistakes that do not prevent loading, such as a rule that can never apply.
    pub fn warnings(&self) -> &[RuleError] {
        &self.warnings
    }

    /// Returns true if a rule asks a person.
    pub fn asks(&self) -> bool {
        self.set.policies().any(|policy| policy.annotation("ask").is_some())
    }

    /// Returns true if a rule may decide by `context.tainted`.
    pub fn may_read_taint(&self) -> bool {
        self.may_read_taint
    }

    /// The callers that rules name. A caller with such an id may have more rights than its permissions.
    pub fn named_callers(&self) -> Vec<String> {
        self.set.policies().flat_map(|policy| named_entities(policy, "Caller")).collect()
    }

    /// The groups of a caller that these rules name, without repetition. A rule may have decided because of them.
    pub(crate) fn deciding_groups(&self, rules: &[String], caller: &Caller) -> Vec<String> {
        let decided = self.set.policies().filter(|policy| rules.contains(&self.rule_name(policy.id())));
        let mut groups: Vec<_> = decided.flat_map(|policy| named_entities(policy, "Group")).collect();
        groups.retain(|group| caller.is_in_group(group));
        groups.sort();
        groups.dedup();
        groups
    }

    /// The SHA-256 of the source.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn evaluate(&self, call: &PolicyRequest<'_>, action: Action) -> RuleOutcome {
        match self.try_evaluate(call, action) {
            Ok(ruling) => ruling,
            Err(error) => RuleOutcome::Failed(error),
        }
    }

    fn try_evaluate(&self, call: &PolicyRequest<'_>, action: Action) -> Result<RuleOutcome, String> {
        self.evaluate_slice(&self.slice(call, action), call)
    }

    fn slice(&self, call: &PolicyRequest<'_>, action: Action) -> Arc<PolicySlice> {
        self.slices.get(&self.index, call, action)
    }

    fn evaluate_slice(&self, slice: &PolicySlice, call: &PolicyRequest<'_>) -> Result<RuleOutcome, String> {
        if slice.cannot_match(call) {
            return Ok(RuleOutcome::NoMatch);
        }
        let mismatched = slice.mismatched(call);
        if mismatched.is_empty() {
            return self.evaluate_with_cedar(slice, [&slice.set, &slice.without_asks], call);
        }
        let without = |set: &PolicySet| {
            let policies = set.policies().filter(|policy| !mismatched.contains(&policy.id())).cloned();
            PolicySet::from_policies(policies).map_err(|error| error.to_string())
        };
        let sets = [without(&slice.set)?, without(&slice.without_asks)?];
        let outcome = self.evaluate_with_cedar(slice, sets.each_ref(), call)?;
        Ok(self.with_mismatched(outcome, &mismatched))
    }

    /// Adds the rules that refer to an argument with an unexpected shape. Such a rule counts against the call: a
    /// `forbid` applies, a `permit` does not.
    fn with_mismatched(&self, outcome: RuleOutcome, mismatched: &[&PolicyId]) -> RuleOutcome {
        let is_forbid =
            |id: &&&PolicyId| self.set.policy(id).is_none_or(|policy| policy.effect() == Effect::Forbid);
        let (asks, forbids): (Vec<_>, Vec<_>) =
            mismatched.iter().filter(is_forbid).partition(|id| self.set.annotation(id, "ask").is_some());
        let names = |ids: &[&&PolicyId]| ids.iter().map(|id| self.rule_name(id)).collect::<Vec<_>>();
        match outcome {
            RuleOutcome::Failed(_) => outcome,
            RuleOutcome::Forbid(mut rules) => {
                rules.extend(names(&forbids));
                RuleOutcome::Forbid(rules)
            }
            _ if !forbids.is_empty() => RuleOutcome::Forbid(names(&forbids)),
            outcome if asks.is_empty() => outcome,
            outcome => {
                let (mut rules, text, permitted) = match outcome {
                    RuleOutcome::Ask { rules, text, permitted } => (rules, Some(text), permitted),
                    outcome => (Vec::new(), None, matches!(outcome, RuleOutcome::Permit(_))),
                };
                rules.extend(names(&asks));
                let questions = asks.iter().filter_map(|id| self.set.annotation(id, "ask"));
                let text: Vec<_> = text.as_deref().into_iter().chain(questions).collect();
                RuleOutcome::Ask { rules, text: text.join(" "), permitted }
            }
        }
    }

    /// The name of a rule: its `@id`, otherwise its number.
    fn rule_name(&self, id: &PolicyId) -> String {
        self.set.annotation(id, "id").map_or_else(|| id.to_string(), str::to_owned)
    }

    fn evaluate_with_cedar(
        &self,
        slice: &PolicySlice,
        [set, without_asks]: [&PolicySet; 2],
        call: &PolicyRequest<'_>,
    ) -> Result<RuleOutcome, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let [principal, action, resource] = slice.uids.clone();
        let context = ENTITY_TYPES.contexts[usize::from(call.tainted)].clone();
        let request =
            Request::new(principal, action, resource, context, None).map_err(|error| text(&error))?;
        let mut entities = slice.entities(call)?;
        if !self.arguments.is_empty() {
            let uses = match (&self.arguments, &slice.arguments) {
                (ArgumentUses::Named(_), in_slice @ ArgumentUses::Named(_)) => in_slice,
                // A rule computes its paths: arguments without a tag make every call fail, in every slice.
                (all, _) => all,
            };
            let arguments = argument_entities(call, uses)?;
            entities = entities.add_entities(arguments, None).map_err(|error| text(&error))?;
        }
        let response = Authorizer::new().is_authorized(&request, set, &entities);
        let permitted_without_asks = || {
            let response = Authorizer::new().is_authorized(&request, without_asks, &entities);
            response.decision() == Cedar::Allow
        };
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(error.to_string());
        }
        let decided: Vec<_> = response.diagnostics().reason().collect();
        let names = decided.iter().map(|id| self.rule_name(id)).collect::<Vec<_>>();
        let forbids = decided
            .iter()
            .any(|id| self.set.policy(id).is_some_and(|policy| policy.effect() == Effect::Forbid));
        Ok(match response.decision() {
            Cedar::Allow => RuleOutcome::Permit(names),
            Cedar::Deny if !forbids => RuleOutcome::NoMatch,
            Cedar::Deny => {
                let questions: Option<Vec<_>> =
                    decided.iter().map(|id| self.set.annotation(id, "ask")).collect();
                match questions {
                    Some(questions) => RuleOutcome::Ask {
                        rules: names,
                        text: questions.join(" "),
                        permitted: permitted_without_asks(),
                    },
                    None => RuleOutcome::Forbid(names),
                }
            }
        })
    }
}

/// The ids of the entities of one type that a rule names.
pub(crate) fn named_entities(policy: &cedar_policy::Policy, kind: &str) -> Vec<String> {
    let literals = policy.entity_literals().into_iter();
    let named = literals.filter(|uid| uid.type_name().to_string() == kind);
    named.map(|uid| uid.id().unescaped().to_owned()).collect()
}

fn parse_error(error: &cedar_policy::ParseError) -> RuleError {
    use std::error::Error;
    let mut message = error.to_string();
    if let Some(source) = error.source() {
        message = format!("{message}: {source}");
    }
    RuleError { message, hint: hint(error), at: error_span(error) }
}

/// Converts a type error. Names the rule by its `@id`, because its number means nothing to its author.
fn type_error(error: &impl Diagnostic, id: &PolicyId, set: &PolicySet) -> RuleError {
    let text = error.to_string();
    let message = text.strip_prefix(&format!("for policy `{id}`, ")).unwrap_or(&text);
    let message = match set.annotation(id, "id") {
        Some(name) => format!("{message}, in rule `{name}`"),
        None => message.to_owned(),
    };
    RuleError { message, hint: hint(error), at: error_span(error) }
}

/// Cedar's advice, without its "did you mean" guesses, which differ from run to run.
fn hint(error: &impl Diagnostic) -> Option<String> {
    if error.to_string().contains("unrecognized") {
        return Some(
            "the entity types are `Caller`, `Group`, `Tool`, `Resource`, `Prompt` and `Server`; the actions are `Action::\"call\"` (tools), `Action::\"read\"` (resources), `Action::\"get\"` (prompts) and `Action::\"list\"`".to_owned(),
        );
    }
    error.help().map(|help| help.to_string()).filter(|help| !help.starts_with("did you mean"))
}

/// The byte range of a mistake: its first and narrowest label.
fn error_span(error: &impl Diagnostic) -> Option<std::ops::Range<usize>> {
    let label = error.labels()?.next()?;
    Some(label.offset()..label.offset() + label.len())
}
