//! Prefilters: skip a rule that cannot match a call, without evaluating it.
//!
//! Most calls match no rule, because the argument that a rule tests is absent or harmless. A prefilter holds the parts
//! of a rule's conditions that are cheap to check: comparisons of arguments and of tool attributes. It only ever says
//! that a rule does not match; Cedar decides everything else. Invariant: a skipped rule would have been false and would
//! not have failed. A prefilter evaluates in the same order as Cedar and stops at the first unknown, so an error behind
//! an unknown is never skipped.

use std::borrow::Cow;

use cedar_policy::PolicyId;
use serde_json::Value;

use super::entities::{ArgumentSet, ArgumentUse, ArgumentUses, ArgumentValue};
use crate::decide::PolicyRequest;

/// Longer rules get no prefilter: their expressions can be nested as deeply as they are long.
const MAX_RULE_BYTES: usize = 1_024;

/// The parts of a rule that are evaluated without Cedar.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) id: PolicyId,
    prefilter: RulePrefilter,
    pub(super) arguments: ArgumentUses,
}

impl CompiledRule {
    pub(super) fn new(policy: &cedar_policy::Policy) -> Self {
        let arguments = policy.to_cedar().map_or(ArgumentUses::Any, |text| ArgumentUses::in_rules(&text));
        Self { id: policy.id().clone(), prefilter: RulePrefilter::from_policy(policy), arguments }
    }

    /// Returns true if the rule matches no call of this tool by this caller, for any arguments and taint.
    pub(super) fn rules_out_all(&self, call: &PolicyRequest<'_>) -> bool {
        self.prefilter.evaluate(call, KnownFacts::CallerAndTool) == Some(false)
    }

    /// Returns true if the rule certainly does not match this call.
    pub(super) fn rules_out(&self, call: &PolicyRequest<'_>) -> bool {
        self.prefilter.evaluate(call, KnownFacts::All) == Some(false)
    }

    /// Returns true if the rule might match this call, and an argument has a shape that the rule does not expect.
    pub(super) fn has_mismatch(&self, call: &PolicyRequest<'_>) -> bool {
        self.arguments.has_mismatch(call) && !self.rules_out(call)
    }
}

/// A rule's conditions, as far as they can be checked without Cedar.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RulePrefilter {
    /// Only Cedar can decide.
    Unknown,
    Not(Box<RulePrefilter>),
    And(Box<[RulePrefilter; 2]>),
    Or(Box<[RulePrefilter; 2]>),
    /// The argument is present.
    HasArgument(ArgumentUse),
    /// The tool belongs to this server.
    InServer(String),
    /// The caller is in this group.
    InGroup(String),
    Like(Operand, Box<[String]>),
    Equal(Operand, Operand),
    Less(Operand, Operand),
    AtMost(Operand, Operand),
    /// The operand is `true`.
    IsTrue(Operand),
    /// The tool has this tag.
    HasTag(Operand),
}

/// The facts about a call that a prefilter may use. All others are unknown to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownFacts {
    /// The caller's id, its groups and the tool: they are the same for many calls.
    CallerAndTool,
    All,
}

/// One side of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Text(String),
    Number(i64),
    Bool(bool),
    Argument(ArgumentUse),
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
            "hasTag" => Self::HasArgument(parse_argument(left, right)?),
            "in" if left["Var"] == "resource" => {
                let entity = &right["Value"]["__entity"];
                let is_server = entity["type"] == "Server";
                Self::InServer(entity["id"].as_str().filter(|_| is_server)?.to_owned())
            }
            "in" if left["Var"] == "principal" => {
                let entity = &right["Value"]["__entity"];
                let is_group = entity["type"] == "Group";
                Self::InGroup(entity["id"].as_str().filter(|_| is_group)?.to_owned())
            }
            "like" => Self::Like(Operand::parse(left)?, pattern_pieces(&operands["pattern"])?),
            "contains" if attribute_access(left)? == ("resource", "tags") => {
                Self::HasTag(Operand::parse(right)?)
            }
            _ => Self::IsTrue(Operand::parse(expression)?),
        })
    }

    fn evaluate(&self, call: &PolicyRequest<'_>, facts: KnownFacts) -> Option<bool> {
        let numbers = |left: &Operand, right: &Operand, compare: fn(&i64, &i64) -> bool| match (
            left.value(call, facts)?,
            right.value(call, facts)?,
        ) {
            (OperandValue::Number(left), OperandValue::Number(right)) => Some(compare(&left, &right)),
            _ => None,
        };
        match self {
            Self::Unknown => None,
            Self::Not(prefilter) => Some(!prefilter.evaluate(call, facts)?),
            Self::And(both) => Some(both[0].evaluate(call, facts)? && both[1].evaluate(call, facts)?),
            Self::Or(both) => Some(both[0].evaluate(call, facts)? || both[1].evaluate(call, facts)?),
            Self::HasArgument(_) if facts != KnownFacts::All => None,
            Self::HasArgument(argument) => match argument.find(call.arguments.value()?) {
                ArgumentValue::Absent => Some(false),
                ArgumentValue::Text(_) | ArgumentValue::Number(_) => Some(true),
                ArgumentValue::Mismatch => None,
            },
            Self::InServer(server) => Some(call.tool.server.as_ref() == Some(server)),
            Self::InGroup(group) => Some(call.caller.is_in_group(group)),
            Self::Like(operand, pieces) => match operand.value(call, facts)? {
                OperandValue::Text(text) => Some(matches_pattern(&text, pieces)),
                _ => None,
            },
            Self::Equal(left, right) => Some(left.value(call, facts)? == right.value(call, facts)?),
            Self::Less(left, right) => numbers(left, right, i64::lt),
            Self::AtMost(left, right) => numbers(left, right, i64::le),
            Self::IsTrue(operand) => match operand.value(call, facts)? {
                OperandValue::Bool(is) => Some(is),
                _ => None,
            },
            Self::HasTag(operand) => match operand.value(call, facts)? {
                OperandValue::Text(text) => Some(call.tool.tags.iter().any(|tag| *tag == text)),
                _ => None,
            },
        }
    }
}

/// Parses `context.arguments` or `context.numbers` and the path in it.
fn parse_argument(set: &Value, path: &Value) -> Option<ArgumentUse> {
    let set = match attribute_access(set)? {
        ("context", "arguments") => ArgumentSet::Strings,
        ("context", "numbers") => ArgumentSet::Numbers,
        _ => return None,
    };
    Some(ArgumentUse::new(path["Value"].as_str()?.to_owned(), set))
}

impl Operand {
    fn parse(expression: &Value) -> Option<Self> {
        match only_member(expression)? {
            ("Value", Value::String(text)) => Some(Self::Text(text.clone())),
            ("Value", Value::Bool(is)) => Some(Self::Bool(*is)),
            ("Value", Value::Number(number)) => Some(Self::Number(number.as_i64()?)),
            ("getTag", operands) => parse_argument(&operands["left"], &operands["right"]).map(Self::Argument),
            (".", _) => match attribute_access(expression)? {
                ("principal", "id") => Some(Self::Caller),
                ("context", "tainted") => Some(Self::Tainted),
                ("resource", attribute) => Some(Self::Tool(attribute.to_owned())),
                _ => None,
            },
            _ => None,
        }
    }

    fn value<'a>(&'a self, call: &PolicyRequest<'a>, facts: KnownFacts) -> Option<OperandValue<'a>> {
        let text = |text: &'a str| Some(OperandValue::Text(text.into()));
        let tool = call.tool;
        match self {
            Self::Text(value) => text(value),
            Self::Number(number) => Some(OperandValue::Number(*number)),
            Self::Bool(is) => Some(OperandValue::Bool(*is)),
            Self::Argument(_) | Self::Tainted if facts != KnownFacts::All => None,
            Self::Argument(argument) => match argument.find(call.arguments.value()?) {
                ArgumentValue::Text(text) => Some(OperandValue::Text(text)),
                ArgumentValue::Number(number) => Some(OperandValue::Number(number)),
                ArgumentValue::Absent | ArgumentValue::Mismatch => None,
            },
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
