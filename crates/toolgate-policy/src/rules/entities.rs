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
    (uid(&ENTITY_TYPES.caller, call.caller.id.as_str()), uid(&ENTITY_TYPES.tool, &call.tool.name))
}

/// The entities of the caller, the tool and its server.
pub(crate) fn caller_and_tool(call: &PolicyRequest<'_>) -> Result<Vec<Entity>, String> {
    let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
    let strings = |strings: &[String]| RestrictedExpression::new_set(strings.iter().map(|one| text(one)));
    let tool = call.tool;
    let (principal, resource) = principal_and_resource(call);
    let permissions: Vec<_> = call.caller.permissions.iter().map(ToString::to_string).collect();
    let server = uid(&ENTITY_TYPES.server, tool.server.as_deref().unwrap_or_default());
    let entity = |uid, attributes: Vec<(&str, RestrictedExpression)>, parents| {
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
        Entity::new_with_tags(uid, attributes, parents, []).map_err(|error| error.to_string())
    };
    Ok(vec![
        entity(
            principal,
            vec![("id", text(call.caller.id.as_str())), ("permissions", strings(&permissions))],
            vec![],
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
    ])
}

/// The entities that hold the arguments, as strings and as numbers.
pub(crate) fn argument_entities(
    call: &PolicyRequest<'_>,
    paths: &ArgumentPaths,
) -> Result<[Entity; 2], String> {
    let ArgumentLeaves { strings, numbers } = paths.leaves(call)?;
    let entity = |uid: &EntityUid, tags: Vec<(String, RestrictedExpression)>| {
        Entity::new_with_tags(uid.clone(), [], [], tags).map_err(|error| error.to_string())
    };
    Ok([entity(&ENTITY_TYPES.arguments, strings)?, entity(&ENTITY_TYPES.numbers, numbers)?])
}

/// The arguments that rules refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArgumentPaths {
    /// All arguments: a rule computes the path.
    Any,
    /// These paths, each as written and split into segments.
    Named(Vec<(String, Vec<String>)>),
}

impl ArgumentPaths {
    /// Collects the paths in `hasTag` and `getTag`. Searches the source instead of the syntax tree: the tree is as deep
    /// as the rules are long, and recursion over it could overflow the stack.
    pub(super) fn named_in(rules: &str) -> Self {
        let mut named = Vec::new();
        for tag in ["hasTag", "getTag"] {
            for (at, _) in rules.match_indices(tag) {
                // A match inside a string or a comment only adds a harmless extra path.
                match string_argument(&rules[at + tag.len()..]) {
                    Some(path) => named.push(path.to_owned()),
                    None => return Self::Any,
                }
            }
        }
        named.sort();
        named.dedup();
        Self::Named(
            named
                .into_iter()
                .map(|path| (path_segments(&path), path))
                .map(|(segments, path)| (path, segments))
                .collect(),
        )
    }

    /// Returns true if rules refer to no argument.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Named(named) if named.is_empty())
    }

    fn leaves(&self, call: &PolicyRequest<'_>) -> Result<ArgumentLeaves, String> {
        let mut leaves = ArgumentLeaves::default();
        let value = || call.arguments.value().ok_or("the arguments are not valid JSON");
        match self {
            Self::Any => leaves.collect("", value()?)?,
            Self::Named(named) => {
                let value = value()?;
                for (path, segments) in named {
                    if let Some(leaf) = find_leaf(value, segments) {
                        leaves.add(path, leaf);
                    }
                }
            }
        }
        Ok(leaves)
    }
}

/// The value at a path, unless it is an array or an object.
pub(super) fn find_leaf<'a>(value: &'a Value, segments: &[String]) -> Option<&'a Value> {
    let found = segments.iter().try_fold(value, |at, step| match at {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(list_index(step)?),
        _ => None,
    });
    found.filter(|found| !found.is_object() && !found.is_array())
}

/// A leaf as the string that rules compare with.
pub(super) fn leaf_string(leaf: &Value) -> Cow<'_, str> {
    leaf.as_str().map_or_else(|| leaf.to_string().into(), Into::into)
}

/// Parses an array index, in the only spelling that [`ArgumentLeaves`] produces.
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

/// The string in `("…")`, if it is the only argument and contains no escape.
fn string_argument(rest: &str) -> Option<&str> {
    let (text, rest) =
        rest.trim_start().strip_prefix('(')?.trim_start().strip_prefix('"')?.split_once('"')?;
    (rest.trim_start().starts_with(')') && !text.contains('\\')).then_some(text)
}

/// The arguments as rules see them: each leaf by its path, such as `to.0.address`, as a string and, if it is an
/// integer, also as a number.
#[derive(Default)]
struct ArgumentLeaves {
    strings: Vec<(String, RestrictedExpression)>,
    numbers: Vec<(String, RestrictedExpression)>,
}

impl ArgumentLeaves {
    fn collect(&mut self, path: &str, value: &Value) -> Result<(), String> {
        if self.strings.len() >= MAX_ARGUMENTS {
            return Err(format!("more than {MAX_ARGUMENTS} arguments"));
        }
        let child = |name: &str| {
            // Escaped, so that a name that contains a dot cannot pose as a path.
            let name = name.replace('\\', "\\\\").replace('.', "\\.");
            if path.is_empty() { name } else { format!("{path}.{name}") }
        };
        match value {
            Value::Object(members) => {
                members.iter().try_for_each(|(name, member)| self.collect(&child(name), member))
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| self.collect(&child(&at.to_string()), item)),
            leaf => {
                self.add(path, leaf);
                Ok(())
            }
        }
    }

    fn add(&mut self, path: &str, leaf: &Value) {
        self.strings
            .push((path.to_owned(), RestrictedExpression::new_string(leaf_string(leaf).into_owned())));
        if let Some(number) = leaf.as_i64() {
            self.numbers.push((path.to_owned(), RestrictedExpression::new_long(number)));
        }
    }
}

/// The entity types of the schema, parsed once.
pub(super) struct EntityTypes {
    caller: EntityTypeName,
    tool: EntityTypeName,
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
        tool: entity_type("Tool"),
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
fn finds_the_argument_paths_in_rules() {
    let named = |paths: &[&str]| {
        ArgumentPaths::Named(paths.iter().map(|path| ((*path).to_owned(), path_segments(path))).collect())
    };
    assert_eq!(ArgumentPaths::named_in("permit(principal, action, resource);"), named(&[]));
    let two = r#"context.arguments.hasTag("to.0.a") && context.arguments.getTag ( "to.0.a" ) == "x"
        || context.numbers.hasTag("n")"#;
    assert_eq!(ArgumentPaths::named_in(two), named(&["n", "to.0.a"]));
    for computed in [
        "context.arguments.hasTag(resource.name)",
        r#"context.arguments.hasTag(if true then "a" else "b")"#,
        r#"context.arguments.hasTag("a\u{62}")"#,
        "context.arguments.hasTag( // which\n\"a\")",
    ] {
        assert_eq!(ArgumentPaths::named_in(computed), ArgumentPaths::Any, "{computed}");
    }
    assert_eq!(path_segments(r"a\.b.0.c\\d"), ["a.b", "0", r"c\d"]);
}
