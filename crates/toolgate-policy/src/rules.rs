//! The rules in `policy.cedar`. They can test the caller, the tool, its risk and the arguments.
//!
//! Rules are type-checked against the [schema](SCHEMA) at load time, and rejected if they fail. A `forbid` rule with
//! the annotation `@ask("…")` asks a person instead of denying. Invariant: an error while evaluating a rule denies the
//! call.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Authorizer, Decision as Cedar, Effect, PolicyId, PolicySet, Request, Schema, ValidationMode, Validator,
};
use miette::Diagnostic;
use sha2::{Digest, Sha256};

use crate::decide::{Action, PolicyRequest};
use crate::limits;

pub(crate) mod entities;
mod prefilter;

mod slice;

use entities::{ArgumentPaths, ENTITY_TYPES, argument_entities};
use prefilter::{Prefilters, RulePrefilter};
use slice::{PolicySlice, SliceCache};

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
    prefilters: Arc<Prefilters>,
    slices: Arc<SliceCache>,
    argument_paths: ArgumentPaths,
    version: Box<str>,
    warnings: Vec<RuleError>,
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
        let errors: Vec<_> =
            result.validation_errors().map(|error| type_error(error, error.policy_id(), &set)).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut version = String::from("sha256:");
        for byte in Sha256::digest(text) {
            let _ = write!(version, "{byte:02x}");
        }
        let warnings = result
            .validation_warnings()
            .map(|warning| type_error(warning, warning.policy_id(), &set))
            .collect();
        let argument_paths = ArgumentPaths::named_in(text);
        let prefilters = set
            .policies()
            .map(|policy| (policy.id().clone(), Arc::new(RulePrefilter::from_policy(policy))))
            .collect();
        Ok(Self {
            set,
            prefilters: Arc::new(prefilters),
            slices: Arc::default(),
            argument_paths,
            version: version.into(),
            warnings,
        })
    }

    /// Mistakes that do not prevent loading, such as a rule that can never apply.
    pub fn warnings(&self) -> &[RuleError] {
        &self.warnings
    }

    /// The callers that rules name. A caller with such an id may have more rights than its permissions.
    pub fn named_callers(&self) -> Vec<String> {
        let literals = self.set.policies().flat_map(cedar_policy::Policy::entity_literals);
        let callers = literals.filter(|uid| uid.type_name().to_string() == "Caller");
        callers.map(|uid| uid.id().unescaped().to_owned()).collect()
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
        let slice = self.slice(call, action);
        if slice.cannot_match(call) {
            return Ok(RuleOutcome::NoMatch);
        }
        self.evaluate_with_cedar(&slice, call)
    }

    fn slice(&self, call: &PolicyRequest<'_>, action: Action) -> Arc<PolicySlice> {
        self.slices.get(&self.set, &self.prefilters, call, action)
    }

    fn evaluate_with_cedar(
        &self,
        slice: &PolicySlice,
        call: &PolicyRequest<'_>,
    ) -> Result<RuleOutcome, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let [principal, action, resource] = slice.uids.clone();
        let context = ENTITY_TYPES.contexts[usize::from(call.tainted)].clone();
        let request =
            Request::new(principal, action, resource, context, None).map_err(|error| text(&error))?;
        let mut entities = slice.entities(call)?;
        if !self.argument_paths.is_empty() {
            let arguments = argument_entities(call, &self.argument_paths)?;
            entities = entities.add_entities(arguments, None).map_err(|error| text(&error))?;
        }
        let response = Authorizer::new().is_authorized(&request, &slice.set, &entities);
        let permitted_without_asks = || {
            let response = Authorizer::new().is_authorized(&request, &slice.without_asks, &entities);
            response.decision() == Cedar::Allow
        };
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(error.to_string());
        }
        let name = |id: &PolicyId| {
            let annotated = self.set.annotation(id, "id");
            annotated.map_or_else(|| id.to_string(), str::to_owned)
        };
        let decided: Vec<_> = response.diagnostics().reason().collect();
        let names = decided.iter().map(|id| name(id)).collect::<Vec<_>>();
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
            "the entity types are `Caller`, `Tool` and `Server`; the actions are `Action::\"call\"` and `Action::\"list\"`".to_owned(),
        );
    }
    error.help().map(|help| help.to_string()).filter(|help| !help.starts_with("did you mean"))
}

/// The byte range of a mistake: its first and narrowest label.
fn error_span(error: &impl Diagnostic) -> Option<std::ops::Range<usize>> {
    let label = error.labels()?.next()?;
    Some(label.offset()..label.offset() + label.len())
}
