//! Whether a rule can be left out of a decision, told without evaluating it.
//!
//! Most calls are such that no rule applies to them: the argument that a rule is about is not there, or is a harmless
//! one. A guard is what can be read off a rule's conditions: comparisons of arguments and of what the tool is. It only
//! ever says that a rule does not apply; whatever else is the case, Cedar decides. Invariant: a rule that is left out
//! would have been false, and would not have failed. What a guard does not know it passes on, in the order in which
//! Cedar evaluates, so an error behind an unknown is never skipped.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use cedar_policy::PolicyId;
use serde_json::Value;

use super::seen::{leaf, steps, text};
use crate::decide::Call;

/// Rules beyond this many bytes have none: what they say is nested as deep as they are long.
const LONGEST: usize = 1_024;

/// The guards of rules, read once.
pub(super) type Guards = HashMap<PolicyId, Arc<Guard>>;

/// What is known of a rule's conditions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// Cedar has to say.
    Unknown,
    Not(Box<Guard>),
    And(Box<[Guard; 2]>),
    Or(Box<[Guard; 2]>),
    /// There is such an argument.
    There(Argument),
    Like(Term, Box<[String]>),
    Equal(Term, Term),
    Less(Term, Term),
    AtMost(Term, Term),
    /// It is true.
    Is(Term),
    /// One of the tool's tags.
    Tagged(Term),
}

/// An argument, by the steps that lead to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument {
    steps: Vec<String>,
    /// Only where it is a whole number, as that.
    number: bool,
}

/// What is compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Term {
    Text(String),
    Number(i64),
    Bool(bool),
    Argument(Argument),
    Caller,
    Tool(String),
    Tainted,
}

/// What a term is in one call.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    Text(Cow<'a, str>),
    Number(i64),
    Bool(bool),
}

impl Guard {
    /// Of a rule.
    pub(super) fn of(policy: &cedar_policy::Policy) -> Self {
        let short = policy.to_cedar().is_some_and(|text| text.len() <= LONGEST);
        let json = if short { policy.to_json().ok() } else { None };
        let conditions = json.as_ref().and_then(|json| json["conditions"].as_array());
        conditions.and_then(|conditions| Self::all(conditions)).unwrap_or(Self::Unknown)
    }

    /// Conditions in their order; none at all where there is none.
    fn all(conditions: &[Value]) -> Option<Self> {
        let one = |condition: &Value| {
            let body = Self::read(&condition["body"]);
            if condition["kind"] == "when" { body } else { Self::Not(Box::new(body)) }
        };
        conditions.iter().map(one).reduce(|left, right| Self::And(Box::new([left, right])))
    }

    fn read(expression: &Value) -> Self {
        Self::known(expression).unwrap_or(Self::Unknown)
    }

    fn known(expression: &Value) -> Option<Self> {
        let (operator, operands) = only(expression)?;
        let (left, right) = (&operands["left"], &operands["right"]);
        let guards = || Box::new([Self::read(left), Self::read(right)]);
        let not = |guard| Some(Self::Not(Box::new(guard)));
        Some(match operator {
            "!" => Self::Not(Box::new(Self::read(&operands["arg"]))),
            "&&" => Self::And(guards()),
            "||" => Self::Or(guards()),
            "==" => Self::Equal(Term::read(left)?, Term::read(right)?),
            "!=" => return not(Self::Equal(Term::read(left)?, Term::read(right)?)),
            "<" => Self::Less(Term::read(left)?, Term::read(right)?),
            "<=" => Self::AtMost(Term::read(left)?, Term::read(right)?),
            ">" => Self::Less(Term::read(right)?, Term::read(left)?),
            ">=" => Self::AtMost(Term::read(right)?, Term::read(left)?),
            "hasTag" => Self::There(Argument::read(left, right)?),
            "like" => Self::Like(Term::read(left)?, pieces(&operands["pattern"])?),
            "contains" if path(left)? == ("resource", "tags") => Self::Tagged(Term::read(right)?),
            _ => Self::Is(Term::read(expression)?),
        })
    }

    /// Whether the rule does not apply to this call, for sure.
    pub(super) fn rules_out(&self, call: &Call<'_>) -> bool {
        self.holds(call) == Some(false)
    }

    fn holds(&self, call: &Call<'_>) -> Option<bool> {
        let numbers = |left: &Term, right: &Term, compare: fn(&i64, &i64) -> bool| match (
            left.said(call)?,
            right.said(call)?,
        ) {
            (Said::Number(left), Said::Number(right)) => Some(compare(&left, &right)),
            _ => None,
        };
        match self {
            Self::Unknown => None,
            Self::Not(guard) => Some(!guard.holds(call)?),
            Self::And(both) => Some(both[0].holds(call)? && both[1].holds(call)?),
            Self::Or(both) => Some(both[0].holds(call)? || both[1].holds(call)?),
            Self::There(argument) => {
                Some(argument.leaf(call).is_some_and(|leaf| !argument.number || leaf.as_i64().is_some()))
            }
            Self::Like(term, pieces) => match term.said(call)? {
                Said::Text(text) => Some(is_like(&text, pieces)),
                _ => None,
            },
            Self::Equal(left, right) => Some(left.said(call)? == right.said(call)?),
            Self::Less(left, right) => numbers(left, right, i64::lt),
            Self::AtMost(left, right) => numbers(left, right, i64::le),
            Self::Is(term) => match term.said(call)? {
                Said::Bool(is) => Some(is),
                _ => None,
            },
            Self::Tagged(term) => match term.said(call)? {
                Said::Text(text) => Some(call.subject.tags.iter().any(|tag| *tag == text)),
                _ => None,
            },
        }
    }
}

impl Argument {
    /// `context.arguments` or `context.numbers`, and the way in it.
    fn read(of: &Value, way: &Value) -> Option<Self> {
        let number = match path(of)? {
            ("context", "arguments") => false,
            ("context", "numbers") => true,
            _ => return None,
        };
        Some(Self { steps: steps(way["Value"].as_str()?), number })
    }

    fn leaf<'a>(&self, call: &Call<'a>) -> Option<&'a Value> {
        leaf(call.arguments.value()?, &self.steps)
    }
}

impl Term {
    fn read(expression: &Value) -> Option<Self> {
        match only(expression)? {
            ("Value", Value::String(text)) => Some(Self::Text(text.clone())),
            ("Value", Value::Bool(is)) => Some(Self::Bool(*is)),
            ("Value", Value::Number(number)) => Some(Self::Number(number.as_i64()?)),
            ("getTag", operands) => Argument::read(&operands["left"], &operands["right"]).map(Self::Argument),
            (".", _) => match path(expression)? {
                ("principal", "id") => Some(Self::Caller),
                ("context", "tainted") => Some(Self::Tainted),
                ("resource", attribute) => Some(Self::Tool(attribute.to_owned())),
                _ => None,
            },
            _ => None,
        }
    }

    fn said<'a>(&'a self, call: &Call<'a>) -> Option<Said<'a>> {
        let text = |text: &'a str| Some(Said::Text(text.into()));
        let tool = call.subject;
        match self {
            Self::Text(value) => text(value),
            Self::Number(number) => Some(Said::Number(*number)),
            Self::Bool(is) => Some(Said::Bool(*is)),
            Self::Argument(argument) if argument.number => argument.leaf(call)?.as_i64().map(Said::Number),
            Self::Argument(argument) => Some(Said::Text(self::text(argument.leaf(call)?))),
            Self::Caller => text(call.caller.id.as_str()),
            Self::Tainted => Some(Said::Bool(call.tainted)),
            Self::Tool(attribute) => match attribute.as_str() {
                "name" => text(&tool.name),
                "original" => text(&tool.original),
                "server" => text(tool.server.as_deref().unwrap_or_default()),
                "risk" => text(tool.contract.risk.label()),
                "category" => text(tool.category.map_or("", toolgate_types::tool::Category::label)),
                "idempotent" => Some(Said::Bool(tool.contract.idempotent)),
                "trusted" => Some(Said::Bool(tool.trusted)),
                _ => None,
            },
        }
    }
}

/// The one member of an object.
fn only(expression: &Value) -> Option<(&str, &Value)> {
    let members = expression.as_object()?;
    let (name, value) = members.iter().next()?;
    (members.len() == 1).then_some((name, value))
}

/// `variable.attribute`.
fn path(expression: &Value) -> Option<(&str, &str)> {
    let (".", access) = only(expression)? else { return None };
    Some((access["left"]["Var"].as_str()?, access["attr"].as_str()?))
}

/// What stands between the stars of a pattern.
fn pieces(pattern: &Value) -> Option<Box<[String]>> {
    let mut pieces = vec![String::new()];
    for piece in pattern.as_array()? {
        match piece {
            Value::String(star) if star == "Wildcard" => pieces.push(String::new()),
            piece => pieces.last_mut()?.push_str(piece["Literal"].as_str()?),
        }
    }
    Some(pieces.into())
}

/// Whether a text begins with the first piece, ends with the last, and has the others between them in their order.
fn is_like(text: &str, pieces: &[String]) -> bool {
    let [first, between @ .., last] = pieces else { return pieces.first().is_some_and(|only| only == text) };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for piece in between {
        let Some((_, after)) = rest.split_once(piece.as_str()) else { return false };
        rest = after;
    }
    rest.ends_with(last.as_str())
}

#[cfg(test)]
mod tests;
