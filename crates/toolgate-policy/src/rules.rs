//! `policy.cedar`: rules that see the caller, the tool, its risk and the arguments.
//!
//! Rules are checked against the [schema](SCHEMA) when they are loaded; one that does not type-check is
//! refused. A `forbid` with the annotation `@ask("…")` asks a person in place of denying. Invariant: an
//! error in evaluating a rule denies.

use std::fmt::Write as _;
use std::str::FromStr;

use cedar_policy::{
    Authorizer, Context, Decision as Cedar, Effect, Entities, Entity, EntityId, EntityTypeName, EntityUid,
    PolicyId, PolicySet, Request, RestrictedExpression, Schema, ValidationMode, Validator,
};
use miette::Diagnostic;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::decide::{Action, Call};
use crate::shape;

/// The types that rules are checked against.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// Arguments beyond this many cannot be judged, and what cannot be judged is denied.
const MOST_ARGUMENTS: usize = 1_000;

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
    /// The same without those that ask: what they let through is what a yes lets through.
    without_asks: PolicySet,
    schema: Schema,
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
        let result = Validator::new(schema.clone()).validate(&set, ValidationMode::Strict);
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
        let asks = |policy: &&cedar_policy::Policy| policy.annotation("ask").is_some();
        let others = set.policies().filter(|policy| !asks(policy)).cloned();
        let without_asks = PolicySet::from_policies(others).expect("they were in a set before");
        Ok(Self { set, without_asks, schema, version: version.into(), warnings })
    }

    /// What is odd about them and wrong with none, such as a rule that can never apply.
    pub fn warnings(&self) -> &[RuleError] {
        &self.warnings
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
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let (principal, resource) = (uid("Caller", call.caller.id.as_str()), uid("Tool", &call.subject.name));
        let arguments = uid("Arguments", "this");
        let context = Context::from_pairs([
            ("tainted".to_owned(), RestrictedExpression::new_bool(call.tainted)),
            ("arguments".to_owned(), RestrictedExpression::new_entity_uid(arguments.clone())),
            ("numbers".to_owned(), RestrictedExpression::new_entity_uid(uid("Numbers", "this"))),
        ])
        .map_err(|error| text(&error))?;
        let action = uid("Action", action.label());
        let request = Request::new(principal.clone(), action, resource.clone(), context, None)
            .map_err(|error| text(&error))?;
        let entities = self.entities(call, principal, resource, arguments)?;
        let response = Authorizer::new().is_authorized(&request, &self.set, &entities);
        let permitted_else = || {
            let response = Authorizer::new().is_authorized(&request, &self.without_asks, &entities);
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

    fn entities(
        &self,
        call: &Call<'_>,
        principal: EntityUid,
        resource: EntityUid,
        arguments: EntityUid,
    ) -> Result<Entities, String> {
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let texts = |texts: &[String]| RestrictedExpression::new_set(texts.iter().map(|one| text(one)));
        let subject = call.subject;
        let permissions: Vec<_> = call.caller.permissions.iter().map(ToString::to_string).collect();
        let server = uid("Server", subject.server.as_deref().unwrap_or_default());
        let mut leaves = Leaves::default();
        let value = call.arguments.value().ok_or("the arguments cannot be read")?;
        leaves.collect("", value)?;
        let entity = |uid, attributes: Vec<(&str, RestrictedExpression)>, parents, tags| {
            let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
            Entity::new_with_tags(uid, attributes, parents, tags).map_err(|error| error.to_string())
        };
        let all = vec![
            entity(
                principal,
                vec![("id", text(call.caller.id.as_str())), ("permissions", texts(&permissions))],
                vec![],
                vec![],
            )?,
            entity(
                resource,
                vec![
                    ("name", text(&subject.name)),
                    ("original", text(&subject.original)),
                    ("server", text(subject.server.as_deref().unwrap_or_default())),
                    ("risk", text(subject.contract.risk.label())),
                    ("category", text(subject.category.map_or("", toolgate_types::tool::Category::label))),
                    ("tags", texts(&subject.tags)),
                    ("idempotent", RestrictedExpression::new_bool(subject.contract.idempotent)),
                    ("trusted", RestrictedExpression::new_bool(subject.trusted)),
                ],
                vec![server.clone()],
                vec![],
            )?,
            Entity::with_uid(server),
            entity(arguments, vec![], vec![], leaves.texts)?,
            entity(uid("Numbers", "this"), vec![], vec![], leaves.numbers)?,
        ];
        Entities::from_entities(all, Some(&self.schema)).map_err(|error| error.to_string())
    }
}

/// The arguments as rules see them: each leaf by its way, `to.0.address`, as a text and, where it is a
/// whole number, as that.
#[derive(Default)]
struct Leaves {
    texts: Vec<(String, RestrictedExpression)>,
    numbers: Vec<(String, RestrictedExpression)>,
}

impl Leaves {
    fn collect(&mut self, way: &str, value: &Value) -> Result<(), String> {
        if self.texts.len() >= MOST_ARGUMENTS {
            return Err(format!("there are more than {MOST_ARGUMENTS} arguments to judge"));
        }
        let step = |name: &str| {
            // A name that holds a point must not pass for a way.
            let name = name.replace('\\', "\\\\").replace('.', "\\.");
            if way.is_empty() { name } else { format!("{way}.{name}") }
        };
        match value {
            Value::Object(members) => {
                members.iter().try_for_each(|(name, member)| self.collect(&step(name), member))
            }
            Value::Array(items) => {
                items.iter().enumerate().try_for_each(|(at, item)| self.collect(&step(&at.to_string()), item))
            }
            leaf => {
                let text = leaf.as_str().map_or_else(|| leaf.to_string(), str::to_owned);
                self.texts.push((way.to_owned(), RestrictedExpression::new_string(text)));
                if let Some(number) = leaf.as_i64() {
                    self.numbers.push((way.to_owned(), RestrictedExpression::new_long(number)));
                }
                Ok(())
            }
        }
    }
}

fn uid(kind: &str, id: &str) -> EntityUid {
    let kind = EntityTypeName::from_str(kind).expect("the kinds are ours");
    EntityUid::from_type_name_and_id(kind, EntityId::new(id))
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
