//! Prefilters: skip a rule that cannot match a call, without evaluating it.
//!
//! Most calls match no rule, because the argument that a rule tests is absent or harmless. A prefilter holds the parts
//! of a rule's conditions that are cheap to check: comparisons of arguments and of tool attributes. It only ever says
//! that a rule does not match; Cedar decides everything else. Invariant: a skipped rule would have been false and would
//! not have failed. A prefilter evaluates in the same order as Cedar and stops at the first unknown, so an error behind
//! an unknown is never skipped.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use cedar_policy::PolicyId;
use serde_json::Value;

use super::entities::{find_leaf, leaf_string, path_segments};
use crate::decide::PolicyRequest;

/// Longer rules get no prefilter: their expressions can be nested as deeply as they are long.
const MAX_RULE_BYTES: usize = 1_024;

/// The prefilters of all rules, compiled at load time.
pub(super) type Prefilters = HashMap<PolicyId, Arc<RulePrefilter>>;

/// A rule's conditions, as far as they can be checked without Cedar.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RulePrefilter {
    /// Only Cedar can decide.
    Unknown,
    Not(Box<RulePrefilter>),
    And(Box<[RulePrefilter; 2]>),
    Or(Box<[RulePrefilter; 2]>),
    /// The argument is present.
    HasArgument(ArgumentRef),
    Like(Operand, Box<[String]>),
    Equal(Operand, Operand),
    Less(Operand, Operand),
    AtMost(Operand, Operand),
    /// The operand is `true`.
    IsTrue(Operand),
    /// The tool has this tag.
    HasTag(Operand),
}

/// A reference to an argument, by its path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArgumentRef {
    path: Vec<String>,
    /// Matches integers only, and compares them as such.
    as_number: bool,
}

/// One side of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Text(String),
    Number(i64),
    Bool(bool),
    Argument(ArgumentRef),
    Caller,
    Tool(String),
    Tainted,
}

/// The value of an operand in one call.
#[derive(Debug, PartialEq, Eq)]
enum OperandValue<'a> {
    Text(Cow<'a, str>),
    Number(i64),
    Bool(bool),
}

impl RulePrefilter {
    pub(super) fn from_policy(policy: &cedar_policy::Policy) -> Self {
        let short = policy.to_cedar().is_some_and(|text| text.len() <= MAX_RULE_BYTES);
        let json = if short { policy.to_json().ok() } else { None };
        let conditions = json.as_ref().and_then(|json| json["conditions"].as_array());
        conditions.and_then(|conditions| Self::from_conditions(conditions)).unwrap_or(Self::Unknown)
    }

    /// Combines conditions in order; `None` if there are none.
    fn from_conditions(conditions: &[Value]) -> Option<Self> {
        let one = |condition: &Value| {
            let body = Self::parse(&condition["body"]);
            if condition["kind"] == "when" { body } else { Self::Not(Box::new(body)) }
        };
        conditions.iter().map(one).reduce(|left, right| Self::And(Box::new([left, right])))
    }

    fn parse(expression: &Value) -> Self {
        Self::try_parse(expression).unwrap_or(Self::Unknown)
    }

    fn try_parse(expression: &Value) -> Option<Self> {
        let (operator, operands) = only_member(expression)?;
        let (left, right) = (&operands["left"], &operands["right"]);
        let both = || Box::new([Self::parse(left), Self::parse(right)]);
        let not = |prefilter| Some(Self::Not(Box::new(prefilter)));
        Some(match operator {
            "!" => Self::Not(Box::new(Self::parse(&operands["arg"]))),
            "&&" => Self::And(both()),
            "||" => Self::Or(both()),
            "==" => Self::Equal(Operand::parse(left)?, Operand::parse(right)?),
            "!=" => return not(Self::Equal(Operand::parse(left)?, Operand::parse(right)?)),
            "<" => Self::Less(Operand::parse(left)?, Operand::parse(right)?),
            "<=" => Self::AtMost(Operand::parse(left)?, Operand::parse(right)?),
            ">" => Self::Less(Operand::parse(right)?, Operand::parse(left)?),
            ">=" => Self::AtMost(Operand::parse(right)?, Operand::parse(left)?),
            "hasTag" => Self::HasArgument(ArgumentRef::parse(left, right)?),
            "like" => Self::Like(Operand::parse(left)?, pattern_pieces(&operands["pattern"])?),
            "contains" if attribute_access(left)? == ("resource", "tags") => {
                Self::HasTag(Operand::parse(right)?)
            }
            _ => Self::IsTrue(Operand::parse(expression)?),
        })
    }

    /// Returns true if the rule certainly does not match this call.
    pub(super) fn rules_out(&self, call: &PolicyRequest<'_>) -> bool {
        self.evaluate(call) == Some(false)
    }

    fn evaluate(&self, call: &PolicyRequest<'_>) -> Option<bool> {
        let numbers = |left: &Operand, right: &Operand, compare: fn(&i64, &i64) -> bool| match (
            left.value(call)?,
            right.value(call)?,
        ) {
            (OperandValue::Number(left), OperandValue::Number(right)) => Some(compare(&left, &right)),
            _ => None,
        };
        match self {
            Self::Unknown => None,
            Self::Not(prefilter) => Some(!prefilter.evaluate(call)?),
            Self::And(both) => Some(both[0].evaluate(call)? && both[1].evaluate(call)?),
            Self::Or(both) => Some(both[0].evaluate(call)? || both[1].evaluate(call)?),
            Self::HasArgument(argument) => {
                Some(argument.leaf(call).is_some_and(|leaf| !argument.as_number || leaf.as_i64().is_some()))
            }
            Self::Like(operand, pieces) => match operand.value(call)? {
                OperandValue::Text(text) => Some(matches_pattern(&text, pieces)),
                _ => None,
            },
            Self::Equal(left, right) => Some(left.value(call)? == right.value(call)?),
            Self::Less(left, right) => numbers(left, right, i64::lt),
            Self::AtMost(left, right) => numbers(left, right, i64::le),
            Self::IsTrue(operand) => match operand.value(call)? {
                OperandValue::Bool(is) => Some(is),
                _ => None,
            },
            Self::HasTag(operand) => match operand.value(call)? {
                OperandValue::Text(text) => Some(call.tool.tags.iter().any(|tag| *tag == text)),
                _ => None,
            },
        }
    }
}

impl ArgumentRef {
    /// Parses `context.arguments` or `context.numbers` and the path in it.
    fn parse(set: &Value, path: &Value) -> Option<Self> {
        let as_number = match attribute_access(set)? {
            ("context", "arguments") => false,
            ("context", "numbers") => true,
            _ => return None,
        };
        Some(Self { path: path_segments(path["Value"].as_str()?), as_number })
    }

    fn leaf<'a>(&self, call: &PolicyRequest<'a>) -> Option<&'a Value> {
        find_leaf(call.arguments.value()?, &self.path)
    }
}

impl Operand {
    fn parse(expression: &Value) -> Option<Self> {
        match only_member(expression)? {
            ("Value", Value::String(text)) => Some(Self::Text(text.clone())),
            ("Value", Value::Bool(is)) => Some(Self::Bool(*is)),
            ("Value", Value::Number(number)) => Some(Self::Number(number.as_i64()?)),
            ("getTag", operands) => {
                ArgumentRef::parse(&operands["left"], &operands["right"]).map(Self::Argument)
            }
            (".", _) => match attribute_access(expression)? {
                ("principal", "id") => Some(Self::Caller),
                ("context", "tainted") => Some(Self::Tainted),
                ("resource", attribute) => Some(Self::Tool(attribute.to_owned())),
                _ => None,
            },
            _ => None,
        }
    }

    fn value<'a>(&'a self, call: &PolicyRequest<'a>) -> Option<OperandValue<'a>> {
        let text = |text: &'a str| Some(OperandValue::Text(text.into()));
        let tool = call.tool;
        match self {
            Self::Text(value) => text(value),
            Self::Number(number) => Some(OperandValue::Number(*number)),
            Self::Bool(is) => Some(OperandValue::Bool(*is)),
            Self::Argument(argument) if argument.as_number => {
                argument.leaf(call)?.as_i64().map(OperandValue::Number)
            }
            Self::Argument(argument) => Some(OperandValue::Text(leaf_string(argument.leaf(call)?))),
            Self::Caller => text(call.caller.id.as_str()),
            Self::Tainted => Some(OperandValue::Bool(call.tainted)),
            Self::Tool(attribute) => match attribute.as_str() {
                "name" => text(&tool.name),
                "original" => text(&tool.original),
                "server" => text(tool.server.as_deref().unwrap_or_default()),
                "risk" => text(tool.contract.risk.label()),
                "category" => text(tool.category.map_or("", toolgate_types::tool::Category::label)),
                "idempotent" => Some(OperandValue::Bool(tool.contract.idempotent)),
                "trusted" => Some(OperandValue::Bool(tool.trusted)),
                _ => None,
            },
        }
    }
}

/// The only member of an object; `None` if there are more.
fn only_member(expression: &Value) -> Option<(&str, &Value)> {
    let members = expression.as_object()?;
    let (name, value) = members.iter().next()?;
    (members.len() == 1).then_some((name, value))
}

/// Parses `variable.attribute`.
fn attribute_access(expression: &Value) -> Option<(&str, &str)> {
    let (".", access) = only_member(expression)? else { return None };
    Some((access["left"]["Var"].as_str()?, access["attr"].as_str()?))
}

/// The literal parts of a `like` pattern, between its wildcards.
fn pattern_pieces(pattern: &Value) -> Option<Box<[String]>> {
    let mut pieces = vec![String::new()];
    for piece in pattern.as_array()? {
        match piece {
            Value::String(star) if star == "Wildcard" => pieces.push(String::new()),
            piece => pieces.last_mut()?.push_str(piece["Literal"].as_str()?),
        }
    }
    Some(pieces.into())
}

/// Returns true if the string starts with the first piece, ends with the last, and contains the others in order.
fn matches_pattern(text: &str, pieces: &[String]) -> bool {
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
