//! `policy.cedar`: rules that see the caller, the tool, its risk and the arguments.
//!
//! Rules are checked against the [schema](SCHEMA) when they are loaded; one that does not type-check is
//! refused. A `forbid` with the annotation `@ask("…")` asks a person in place of denying. Invariant: an
//! error in evaluating a rule denies.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Authorizer, Decision as Cedar, Effect, PolicyId, PolicySet, Request, Schema, ValidationMode, Validator,
};
use miette::Diagnostic;
use sha2::{Digest, Sha256};

use crate::decide::{Action, Call};
use crate::shape;

mod guard;
pub(crate) mod seen;
mod slice;

use guard::{Guard, Guards};
use seen::{KINDS, Ways, arguments};
use slice::{Slice, Slices};

/// The types that rules are checked against.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// Rules that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleError {
    /// What is wrong with them.
    pub message: String,
    /// The way out, where there is one.
    pub hint: Option<String>,
    /// Where, in bytes of the text.
    pub at: Option<std::ops::Range<usize>>,
}

/// Loaded rules.
#[derive(Clone)]
pub struct Rules {
    set: PolicySet,
    guards: Arc<Guards>,
    slices: Arc<Slices>,
    ways: Ways,
    version: Box<str>,
    warnings: Vec<RuleError>,
}

/// What rules say of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// These permit it.
    Permit(Vec<String>),
    /// No rule permits or forbids it.
    Silent,
    /// These forbid it unless somebody says yes to the question; without them another may permit it.
    Ask { rules: Vec<String>, text: String, permitted: bool },
    /// These forbid it.
    Forbid(Vec<String>),
    /// They cannot be evaluated.
    Failed(String),
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Rules {
    /// Reads and checks rules; every mistake is told.
    ///
    /// # Errors
    /// When they cannot be parsed or do not type-check.
    pub fn new(text: &str) -> Result<Self, Vec<RuleError>> {
        shape::check(text).map_err(|error| vec![error])?;
        let (schema, _) = Schema::from_cedarschema_str(SCHEMA).expect("the schema is ours");
        let set =
            PolicySet::from_str(text).map_err(|errors| errors.iter().map(parse_error).collect::<Vec<_>>())?;
        let result = Validator::new(schema).validate(&set, ValidationMode::Strict);
        let wrong: Vec<_> =
            result.validation_errors().map(|error| type_error(error, error.policy_id(), &set)).collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let mut version = String::from("sha256:");
        for byte in Sha256::digest(text) {
            let _ = write!(version, "{byte:02x}");
        }
        let warnings = result
            .validation_warnings()
            .map(|warning| type_error(warning, warning.policy_id(), &set))
            .collect();
        let ways = Ways::of(text);
        let guards =
            set.policies().map(|policy| (policy.id().clone(), Arc::new(Guard::of(policy)))).collect();
        Ok(Self {
            set,
            guards: Arc::new(guards),
            slices: Arc::default(),
            ways,
            version: version.into(),
            warnings,
        })
    }

    /// What is odd about them and wrong with none, such as a rule that can never apply.
    pub fn warnings(&self) -> &[RuleError] {
        &self.warnings
    }

    /// The callers that rules name: whoever has such an id may have more than its permissions.
    pub fn callers(&self) -> Vec<String> {
        let literals = self.set.policies().flat_map(cedar_policy::Policy::entity_literals);
        let callers = literals.filter(|uid| uid.type_name().to_string() == "Caller");
        callers.map(|uid| uid.id().unescaped().to_owned()).collect()
    }

    /// What tells these rules from any others.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn rule(&self, call: &Call<'_>, action: Action) -> Ruling {
        match self.evaluate(call, action) {
            Ok(ruling) => ruling,
            Err(error) => Ruling::Failed(error),
        }
    }

    fn evaluate(&self, call: &Call<'_>, action: Action) -> Result<Ruling, String> {
        let slice = self.slice(call, action);
        if slice.is_silent_on(call) {
            return Ok(Ruling::Silent);
        }
        self.evaluate_all(&slice, call)
    }

    fn slice(&self, call: &Call<'_>, action: Action) -> Arc<Slice> {
        self.slices.get(&self.set, &self.guards, call, action)
    }

    fn evaluate_all(&self, slice: &Slice, call: &Call<'_>) -> Result<Ruling, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let [principal, action, resource] = slice.uids.clone();
        let context = KINDS.contexts[usize::from(call.tainted)].clone();
        let request =
            Request::new(principal, action, resource, context, None).map_err(|error| text(&error))?;
        let mut entities = slice.parties(call)?;
        if !self.ways.is_empty() {
            let arguments = arguments(call, &self.ways)?;
            entities = entities.add_entities(arguments, None).map_err(|error| text(&error))?;
        }
        let response = Authorizer::new().is_authorized(&request, &slice.set, &entities);
        let permitted_else = || {
            let response = Authorizer::new().is_authorized(&request, &slice.without_asks, &entities);
            response.decision() == Cedar::Allow
        };
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(error.to_string());
        }
        let name = |id: &PolicyId| {
            let given = self.set.annotation(id, "id");
            given.map_or_else(|| id.to_string(), str::to_owned)
        };
        let decided: Vec<_> = response.diagnostics().reason().collect();
        let names = decided.iter().map(|id| name(id)).collect::<Vec<_>>();
        let forbids = decided
            .iter()
            .any(|id| self.set.policy(id).is_some_and(|policy| policy.effect() == Effect::Forbid));
        Ok(match response.decision() {
            Cedar::Allow => Ruling::Permit(names),
            Cedar::Deny if !forbids => Ruling::Silent,
            Cedar::Deny => {
                let questions: Option<Vec<_>> =
                    decided.iter().map(|id| self.set.annotation(id, "ask")).collect();
                match questions {
                    Some(questions) => {
                        Ruling::Ask { rules: names, text: questions.join(" "), permitted: permitted_else() }
                    }
                    None => Ruling::Forbid(names),
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
    RuleError { message, hint: help(error), at: place(error) }
}

/// A mistake with the name that the rule was given: its number says nothing to who wrote it.
fn type_error(error: &impl Diagnostic, id: &PolicyId, set: &PolicySet) -> RuleError {
    let text = error.to_string();
    let message = text.strip_prefix(&format!("for policy `{id}`, ")).unwrap_or(&text);
    let message = match set.annotation(id, "id") {
        Some(name) => format!("{message}, in rule `{name}`"),
        None => message.to_owned(),
    };
    RuleError { message, hint: help(error), at: place(error) }
}

/// The advice of Cedar, but for its guesses, which differ from run to run.
fn help(error: &impl Diagnostic) -> Option<String> {
    if error.to_string().contains("unrecognized") {
        return Some(
            "there is `Caller`, `Tool` and `Server`, `Action::\"call\"` and `Action::\"list\"`".to_owned(),
        );
    }
    error.help().map(|help| help.to_string()).filter(|help| !help.starts_with("did you mean"))
}

/// Where a mistake is: at its first label, the narrowest that there is.
fn place(error: &impl Diagnostic) -> Option<std::ops::Range<usize>> {
    let label = error.labels()?.next()?;
    Some(label.offset()..label.offset() + label.len())
}
