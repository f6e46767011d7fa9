//! The Cedar entities of a call: the caller, the tool and its server, and the arguments.
//!
//! Invariant: the entities match the schema. A test checks this, so calls do not.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{Context, Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression};
use serde_json::Value;

use crate::decide::PolicyRequest;

/// A call with more arguments than this cannot be evaluated and is denied.
const MAX_ARGUMENTS: usize = 1_000;

pub(super) fn principal_and_resource(call: &PolicyRequest<'_>) -> (EntityUid, EntityUid) {
    let target = &ENTITY_TYPES.targets[call.tool.kind as usize];
    (uid(&ENTITY_TYPES.caller, call.caller.id.as_str()), uid(target, &call.tool.name))
}

pub(super) fn server_uid(call: &PolicyRequest<'_>) -> EntityUid {
    uid(&ENTITY_TYPES.server, call.tool.server.as_deref().unwrap_or_default())
}

/// The entities of the caller, its groups, the tool and its server.
pub(crate) fn caller_and_tool(call: &PolicyRequest<'_>) -> Result<Vec<Entity>, String> {
    let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
    let strings = |strings: &[String]| RestrictedExpression::new_set(strings.iter().map(|one| text(one)));
    let tool = call.tool;
    let (principal, resource) = principal_and_resource(call);
    let permissions: Vec<_> = call.caller.all_permissions().map(ToString::to_string).collect();
    let groups: Vec<_> = group_uids(call).collect();
    let server = server_uid(call);
    let entity = |uid, attributes: Vec<(&str, RestrictedExpression)>, parents| {
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
        Entity::new_with_tags(uid, attributes, parents, []).map_err(|error| error.to_string())
    };
    let mut entities = vec![
        entity(
            principal,
            vec![("id", text(call.caller.id.as_str())), ("permissions", strings(&permissions))],
            groups.clone(),
        )?,
        entity(
            resource,
            vec![
                ("name", text(&tool.name)),
                ("original", text(&tool.original)),
                ("server", text(tool.server.as_deref().unwrap_or_default())),
                ("risk", text(tool.contract.risk.label())),
                ("category", text(tool.category.map_or("", toolgate_types::tool::Category::label))),
                ("tags", strings(&tool.tags)),
                ("idempotent", RestrictedExpression::new_bool(tool.contract.idempotent)),
                ("trusted", RestrictedExpression::new_bool(tool.trusted)),
            ],
            vec![server.clone()],
        )?,
        Entity::with_uid(server),
    ];
    entities.extend(groups.into_iter().map(Entity::with_uid));
    Ok(entities)
}

/// The groups of the caller.
pub(super) fn group_uids(call: &PolicyRequest<'_>) -> impl Iterator<Item = EntityUid> {
    call.caller.groups.iter().map(|group| uid(&ENTITY_TYPES.group, group.name.as_str()))
}

/// The entities that hold the arguments, as strings and as numbers.
pub(crate) fn argument_entities(
    call: &PolicyRequest<'_>,
    uses: &ArgumentUses,
) -> Result<[Entity; 2], String> {
    let ArgumentTags { strings, numbers } = uses.tags(call)?;
    let entity = |uid: &EntityUid, tags: Vec<(String, RestrictedExpression)>| {
        Entity::new_with_tags(uid.clone(), [], [], tags).map_err(|error| error.to_string())
    };
    Ok([entity(&ENTITY_TYPES.arguments, strings)?, entity(&ENTITY_TYPES.numbers, numbers)?])
}

/// The set that a rule finds an argument in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArgumentSet {
    /// `context.arguments`.
    Strings,
    /// `context.numbers`.
    Numbers,
}

/// An argument that a rule refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ArgumentUse {
    /// The path as written in the rule.
    path: String,
    segments: Vec<String>,
    set: ArgumentSet,
}

/// The value of an argument, as a rule sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArgumentValue<'a> {
    Absent,
    Text(Cow<'a, str>),
    Number(i64),
    /// The rule cannot be evaluated: it expects another shape, or a number that the value is not.
    Mismatch,
}

impl ArgumentUse {
    pub(super) fn new(path: String, set: ArgumentSet) -> Self {
        Self { segments: path_segments(&path), path, set }
    }

    /// Looks the argument up.
    pub(super) fn find<'a>(&self, arguments: &'a Value) -> ArgumentValue<'a> {
        let mut at = arguments;
        for step in &self.segments {
            let inner = match at {
                Value::Object(members) => match members.get(step) {
                    // The rule expects a list here.
                    None if list_index(step).is_some() => return ArgumentValue::Mismatch,
                    member => member,
                },
                Value::Array(items) => match list_index(step) {
                    Some(index) => items.get(index),
                    None => return ArgumentValue::Mismatch,
                },
                Value::Null => None,
                _ => return ArgumentValue::Mismatch,
            };
            let Some(inner) = inner else { return ArgumentValue::Absent };
            at = inner;
        }
        match self.set {
            ArgumentSet::Strings => leaf_text(at).map_or(ArgumentValue::Mismatch, ArgumentValue::Text),
            ArgumentSet::Numbers if at.is_null() => ArgumentValue::Absent,
            ArgumentSet::Numbers => whole_number(at).map_or(ArgumentValue::Mismatch, ArgumentValue::Number),
        }
    }
}

/// The arguments that rules refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArgumentUses {
    /// Any argument: a rule computes the path.
    Any,
    Named(Vec<ArgumentUse>),
}

impl ArgumentUses {
    /// Collects the paths in `hasTag` and `getTag`. Searches the source instead of the syntax tree: the tree is as deep
    /// as the rules are long, and recursion over it could overflow the stack.
    pub(super) fn in_rules(rules: &str) -> Self {
        let mut named = Vec::new();
        for tag in ["hasTag", "getTag"] {
            for (at, _) in rules.match_indices(tag) {
                // A match inside a string or a comment only adds a harmless extra path.
                let Some(path) = string_argument(&rules[at + tag.len()..]) else { return Self::Any };
                let receiver = rules[..at].trim_end().trim_end_matches(['.', ' ', ']', '"']);
                let sets = match receiver {
                    _ if receiver.ends_with("numbers") => &[ArgumentSet::Numbers][..],
                    _ if receiver.ends_with("arguments") => &[ArgumentSet::Strings],
                    _ => &[ArgumentSet::Strings, ArgumentSet::Numbers],
                };
                named.extend(sets.iter().map(|set| ArgumentUse::new(path.clone(), *set)));
            }
        }
        named.sort();
        named.dedup();
        Self::Named(named)
    }

    /// The arguments that any of several rules refers to.
    pub(super) fn merged<'a>(rules: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Vec::new();
        for uses in rules {
            match uses {
                Self::Any => return Self::Any,
                Self::Named(named) => all.extend(named.iter().cloned()),
            }
        }
        all.sort();
        all.dedup();
        Self::Named(all)
    }

    /// Returns true if rules refer to no argument.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Named(named) if named.is_empty())
    }

    /// Returns true if one of the arguments has a shape that the rule does not expect.
    pub(super) fn has_mismatch(&self, call: &PolicyRequest<'_>) -> bool {
        match (self, call.arguments.value()) {
            (Self::Named(named), Some(value)) => {
                named.iter().any(|one| one.find(value) == ArgumentValue::Mismatch)
            }
            // Evaluating such rules fails if a value has no tag.
            (Self::Any, _) | (_, None) => false,
        }
    }

    fn tags(&self, call: &PolicyRequest<'_>) -> Result<ArgumentTags, String> {
        let mut tags = ArgumentTags::default();
        let value = call.arguments.value().ok_or("the arguments are not valid JSON")?;
        match self {
            Self::Any => tags.collect(None, value)?,
            Self::Named(named) => named.iter().for_each(|one| tags.add(&one.path, one.find(value))),
        }
        Ok(tags)
    }
}

/// A scalar as the string that rules compare with. A number has one spelling, whatever the caller wrote. `None` for
/// lists and objects, and for numbers that have no exact value here.
fn leaf_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => match (whole_number(value), number.as_f64()) {
            (Some(whole), _) => Some(whole.to_string().into()),
            (None, Some(part)) if part.abs() < MAX_EXACT => Some(part.to_string().into()),
            (None, _) => None,
        },
        Value::Array(_) | Value::Object(_) => None,
        word => Some(word.to_string().into()),
    }
}

/// The value of a whole number of 64 bits, in any spelling: `7`, `7.0`, `70e-1`.
fn whole_number(value: &Value) -> Option<i64> {
    let spelled = || value.as_f64().filter(|number| number.abs() < MAX_EXACT && number.fract() == 0.0);
    #[expect(clippy::cast_possible_truncation, reason = "it is a whole number below 2^53")]
    value.as_i64().or_else(|| spelled().map(|number| number as i64))
}

/// Floating-point numbers below this are exact if they are whole: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Parses an array index, in the only spelling that [`ArgumentTags`] produces.
fn list_index(segment: &str) -> Option<usize> {
    segment.parse().ok().filter(|index: &usize| index.to_string() == segment)
}

/// Splits a path at its dots. A backslash escapes a dot that belongs to a name.
pub(super) fn path_segments(path: &str) -> Vec<String> {
    let (mut segments, mut chars) = (vec![String::new()], path.chars());
    while let Some(c) = chars.next() {
        match c {
            '.' => segments.push(String::new()),
            '\\' => segments.last_mut().expect("never empty").extend(chars.next()),
            c => segments.last_mut().expect("never empty").push(c),
        }
    }
    segments
}

/// The string in `("…")`, if it is the only argument. Of the escapes, only the backslash itself is known.
fn string_argument(rest: &str) -> Option<String> {
    let rest = rest.trim_start().strip_prefix('(')?.trim_start().strip_prefix('"')?;
    let (mut text, mut chars) = (String::new(), rest.char_indices());
    loop {
        match chars.next()? {
            (at, '"') => return rest[at + 1..].trim_start().starts_with(')').then_some(text),
            (_, '\\') if chars.next()?.1 == '\\' => text.push('\\'),
            (_, '\\') => return None,
            (_, c) => text.push(c),
        }
    }
}

/// The arguments as rules see them: each leaf by its path, such as `to.0.address`, as a string and, if it is a whole
/// number, also as a number.
#[derive(Default)]
struct ArgumentTags {
    strings: Vec<(String, RestrictedExpression)>,
    numbers: Vec<(String, RestrictedExpression)>,
}

impl ArgumentTags {
    /// Collects all leaves. Fails on a list, an object or a number without a tag: a rule that computes its path might be
    /// about it. `path` is `None` for the arguments themselves: an empty path is that of a member without a name.
    fn collect(&mut self, path: Option<&str>, value: &Value) -> Result<(), String> {
        if self.strings.len() >= MAX_ARGUMENTS {
            return Err(format!("more than {MAX_ARGUMENTS} arguments"));
        }
        let child = |name: &str| {
            // Escaped, so that a name that contains a dot cannot pose as a path.
            let name = name.replace('\\', "\\\\").replace('.', "\\.");
            path.map_or_else(|| name.clone(), |path| format!("{path}.{name}"))
        };
        match value {
            Value::Object(members) if path.is_none() => {
                members.iter().try_for_each(|(name, member)| self.collect(Some(&child(name)), member))
            }
            Value::Array(_) | Value::Object(_) => {
                let path = path.unwrap_or_default();
                Err(format!("a rule computes the name of an argument, and `{path}` is not a single value"))
            }
            leaf => {
                let path = path.unwrap_or_default();
                let text = leaf_text(leaf).ok_or_else(|| format!("`{path}` is not a number of 64 bits"))?;
                self.add(path, ArgumentValue::Text(text));
                whole_number(leaf).into_iter().for_each(|n| self.add(path, ArgumentValue::Number(n)));
                Ok(())
            }
        }
    }

    fn add(&mut self, path: &str, value: ArgumentValue<'_>) {
        match value {
            ArgumentValue::Text(text) => {
                let text = RestrictedExpression::new_string(text.into_owned());
                self.strings.push((path.to_owned(), text));
            }
            ArgumentValue::Number(number) => {
                self.numbers.push((path.to_owned(), RestrictedExpression::new_long(number)));
            }
            ArgumentValue::Absent | ArgumentValue::Mismatch => {}
        }
    }
}

/// The entity types of the schema, parsed once.
pub(super) struct EntityTypes {
    caller: EntityTypeName,
    group: EntityTypeName,
    /// By [`TargetKind`](crate::TargetKind).
    targets: [EntityTypeName; 3],
    server: EntityTypeName,
    pub(super) action: EntityTypeName,
    arguments: EntityUid,
    numbers: EntityUid,
    /// The context of an untainted session, then that of a tainted one.
    pub(super) contexts: [Context; 2],
}

pub(super) static ENTITY_TYPES: LazyLock<EntityTypes> = LazyLock::new(|| {
    let entity_type = |name| EntityTypeName::from_str(name).expect("the built-in entity types are valid");
    let (arguments, numbers) = (uid(&entity_type("Arguments"), "this"), uid(&entity_type("Numbers"), "this"));
    let context = |tainted| {
        let members = [
            ("tainted".to_owned(), RestrictedExpression::new_bool(tainted)),
            ("arguments".to_owned(), RestrictedExpression::new_entity_uid(arguments.clone())),
            ("numbers".to_owned(), RestrictedExpression::new_entity_uid(numbers.clone())),
        ];
        Context::from_pairs(members).expect("the keys are unique")
    };
    EntityTypes {
        caller: entity_type("Caller"),
        group: entity_type("Group"),
        targets: ["Tool", "Resource", "Prompt"].map(entity_type),
        server: entity_type("Server"),
        action: entity_type("Action"),
        contexts: [false, true].map(context),
        arguments,
        numbers,
    }
});

pub(super) fn uid(entity_type: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(entity_type.clone(), EntityId::new(id))
}

#[test]
fn finds_the_arguments_that_rules_use() {
    use ArgumentSet::{Numbers, Strings};
    let named = |uses: &[(&str, ArgumentSet)]| {
        ArgumentUses::Named(
            uses.iter().map(|(path, set)| ArgumentUse::new((*path).to_owned(), *set)).collect(),
        )
    };
    assert_eq!(ArgumentUses::in_rules("permit(principal, action, resource);"), named(&[]));
    let two = r#"context.arguments.hasTag("to.0.a") && context.arguments . getTag ( "to.0.a" ) == "x"
        || context["numbers"].hasTag("n") || context.arguments.hasTag("x\\.y")"#;
    assert_eq!(
        ArgumentUses::in_rules(two),
        named(&[("n", Numbers), ("to.0.a", Strings), (r"x\.y", Strings)])
    );
    let unknown = r#"(if context.tainted then context.arguments else context.arguments).hasTag("n")"#;
    assert_eq!(ArgumentUses::in_rules(unknown), named(&[("n", Strings), ("n", Numbers)]));
    for computed in [
        "context.arguments.hasTag(resource.name)",
        r#"context.arguments.hasTag(if true then "a" else "b")"#,
        r#"context.arguments.hasTag("a\u{62}")"#,
        "context.arguments.hasTag( // which\n\"a\")",
    ] {
        assert_eq!(ArgumentUses::in_rules(computed), ArgumentUses::Any, "{computed}");
    }
    assert_eq!(path_segments(r"a\.b.0.c\\d"), ["a.b", "0", r"c\d"]);
}

#[test]
fn finds_arguments_of_every_shape() {
    let found = |path: &str, set, text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        format!("{:?}", ArgumentUse::new(path.to_owned(), set).find(&value))
    };
    let number = |text: &str| found("n", ArgumentSet::Numbers, &format!("{{\"n\":{text}}}"));
    for (text, expected) in [
        ("7", "Number(7)"),
        ("7.0", "Number(7)"),
        ("1e7", "Number(10000000)"),
        ("10000010e-1", "Number(1000001)"),
        ("-0.0", "Number(0)"),
        ("9223372036854775807", "Number(9223372036854775807)"),
        ("null", "Absent"),
        ("9223372036854775808", "Mismatch"),
        ("1e30", "Mismatch"),
        ("9007199254740993.0", "Mismatch"),
        ("0.5", "Mismatch"),
        ("\"7\"", "Mismatch"),
        ("true", "Mismatch"),
        ("[7]", "Mismatch"),
        ("{}", "Mismatch"),
    ] {
        assert_eq!(number(text), expected, "{text}");
    }
    let string = |path: &str, text: &str| found(path, ArgumentSet::Strings, text);
    for (path, text, expected) in [
        ("to", r#"{"to":"x"}"#, r#"Text("x")"#),
        ("to", r#"{"to":70e-1}"#, r#"Text("7")"#),
        ("to", r#"{"to":5e-1}"#, r#"Text("0.5")"#),
        ("to", r#"{"to":null}"#, r#"Text("null")"#),
        ("to", "{}", "Absent"),
        ("to", r#"{"to":["x"]}"#, "Mismatch"),
        ("to", r#"{"to":{"a":"x"}}"#, "Mismatch"),
        ("to", r#"{"to":1e30}"#, "Mismatch"),
        ("to.0.a", r#"{"to":[{"a":"x"}]}"#, r#"Text("x")"#),
        ("to.0.a", r#"{"to":[]}"#, "Absent"),
        ("to.0.a", r#"{"to":null}"#, "Absent"),
        ("to.0.a", r#"{"to":"x"}"#, "Mismatch"),
        ("to.0.a", r#"{"to":{"a":"x"}}"#, "Mismatch"),
        ("to.0.a", r#"{"to":["x"]}"#, "Mismatch"),
        ("to.a", r#"{"to":[{"a":"x"}]}"#, "Mismatch"),
    ] {
        assert_eq!(string(path, text), expected, "{path} in {text}");
    }
}
