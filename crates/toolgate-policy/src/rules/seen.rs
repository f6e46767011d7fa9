//! What rules see of a call: the caller, the tool and its server, and the arguments.
//!
//! Invariant: it is what the schema says, which is tested, and not looked at again with every call.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{Context, Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression};
use serde_json::Value;

use crate::decide::Call;

/// Arguments beyond this many cannot be judged, and what cannot be judged is denied.
const MOST_ARGUMENTS: usize = 1_000;

pub(super) fn parties(call: &Call<'_>) -> (EntityUid, EntityUid) {
    (uid(&KINDS.caller, call.caller.id.as_str()), uid(&KINDS.tool, &call.subject.name))
}

/// The caller, the tool and its server, as the schema describes them.
pub(crate) fn entities(call: &Call<'_>) -> Result<Vec<Entity>, String> {
    let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
    let texts = |texts: &[String]| RestrictedExpression::new_set(texts.iter().map(|one| text(one)));
    let subject = call.subject;
    let (principal, resource) = parties(call);
    let permissions: Vec<_> = call.caller.permissions.iter().map(ToString::to_string).collect();
    let server = uid(&KINDS.server, subject.server.as_deref().unwrap_or_default());
    let entity = |uid, attributes: Vec<(&str, RestrictedExpression)>, parents| {
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
        Entity::new_with_tags(uid, attributes, parents, []).map_err(|error| error.to_string())
    };
    Ok(vec![
        entity(
            principal,
            vec![("id", text(call.caller.id.as_str())), ("permissions", texts(&permissions))],
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
        )?,
        Entity::with_uid(server),
    ])
}

/// The arguments, as the schema describes them.
pub(crate) fn arguments(call: &Call<'_>, ways: &Ways) -> Result<[Entity; 2], String> {
    let Leaves { texts, numbers } = ways.leaves(call)?;
    let entity = |uid: &EntityUid, tags: Vec<(String, RestrictedExpression)>| {
        Entity::new_with_tags(uid.clone(), [], [], tags).map_err(|error| error.to_string())
    };
    Ok([entity(&KINDS.arguments, texts)?, entity(&KINDS.numbers, numbers)?])
}

/// The arguments that rules look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ways {
    /// Any: a rule works out which.
    Any,
    /// These: each as it is written, and as the steps that lead to it.
    Named(Vec<(String, Vec<String>)>),
}

impl Ways {
    /// Those that rules name in `hasTag` and `getTag`. Looked for in the text: a tree of rules is as deep as
    /// they are long, and going down it takes a stack that is.
    pub(super) fn of(rules: &str) -> Self {
        let mut named = Vec::new();
        for tag in ["hasTag", "getTag"] {
            for (at, _) in rules.match_indices(tag) {
                // What only looks like one, in a string or a comment, does no harm: it is one more.
                match literal(&rules[at + tag.len()..]) {
                    Some(way) => named.push(way.to_owned()),
                    None => return Self::Any,
                }
            }
        }
        named.sort();
        named.dedup();
        Self::Named(
            named.into_iter().map(|way| (steps(&way), way)).map(|(steps, way)| (way, steps)).collect(),
        )
    }

    /// Whether rules look at no argument.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Named(named) if named.is_empty())
    }

    fn leaves(&self, call: &Call<'_>) -> Result<Leaves, String> {
        let mut leaves = Leaves::default();
        let value = || call.arguments.value().ok_or("the arguments cannot be read");
        match self {
            Self::Any => leaves.collect("", value()?)?,
            Self::Named(named) => {
                let value = value()?;
                for (way, steps) in named {
                    if let Some(leaf) = leaf(value, steps) {
                        leaves.add(way, leaf);
                    }
                }
            }
        }
        Ok(leaves)
    }
}

/// What a way leads to, where that is no list and no object.
pub(super) fn leaf<'a>(value: &'a Value, steps: &[String]) -> Option<&'a Value> {
    let found = steps.iter().try_fold(value, |at, step| match at {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(index(step)?),
        _ => None,
    });
    found.filter(|found| !found.is_object() && !found.is_array())
}

/// A leaf as rules read it.
pub(super) fn text(leaf: &Value) -> Cow<'_, str> {
    leaf.as_str().map_or_else(|| leaf.to_string().into(), Into::into)
}

/// A place in a list, spelled as [`Leaves`] spells it.
fn index(step: &str) -> Option<usize> {
    step.parse().ok().filter(|index: &usize| index.to_string() == step)
}

/// The steps of a way, at its points; one after `\\` is part of a name.
pub(super) fn steps(way: &str) -> Vec<String> {
    let (mut steps, mut chars) = (vec![String::new()], way.chars());
    while let Some(c) = chars.next() {
        match c {
            '.' => steps.push(String::new()),
            '\\' => steps.last_mut().expect("there is one").extend(chars.next()),
            c => steps.last_mut().expect("there is one").push(c),
        }
    }
    steps
}

/// The text in `("…")`, where that is all there is and nothing in it is escaped.
fn literal(rest: &str) -> Option<&str> {
    let (text, rest) =
        rest.trim_start().strip_prefix('(')?.trim_start().strip_prefix('"')?.split_once('"')?;
    (rest.trim_start().starts_with(')') && !text.contains('\\')).then_some(text)
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
                self.add(way, leaf);
                Ok(())
            }
        }
    }

    fn add(&mut self, way: &str, leaf: &Value) {
        self.texts.push((way.to_owned(), RestrictedExpression::new_string(text(leaf).into_owned())));
        if let Some(number) = leaf.as_i64() {
            self.numbers.push((way.to_owned(), RestrictedExpression::new_long(number)));
        }
    }
}

/// The names of the schema, read once.
pub(super) struct Kinds {
    caller: EntityTypeName,
    tool: EntityTypeName,
    server: EntityTypeName,
    pub(super) action: EntityTypeName,
    arguments: EntityUid,
    numbers: EntityUid,
    /// Where nothing untrusted was read, and where something was.
    pub(super) contexts: [Context; 2],
}

pub(super) static KINDS: LazyLock<Kinds> = LazyLock::new(|| {
    let kind = |name| EntityTypeName::from_str(name).expect("the kinds are ours");
    let (arguments, numbers) = (uid(&kind("Arguments"), "this"), uid(&kind("Numbers"), "this"));
    let context = |tainted| {
        let members = [
            ("tainted".to_owned(), RestrictedExpression::new_bool(tainted)),
            ("arguments".to_owned(), RestrictedExpression::new_entity_uid(arguments.clone())),
            ("numbers".to_owned(), RestrictedExpression::new_entity_uid(numbers.clone())),
        ];
        Context::from_pairs(members).expect("each has a name of its own")
    };
    Kinds {
        caller: kind("Caller"),
        tool: kind("Tool"),
        server: kind("Server"),
        action: kind("Action"),
        contexts: [false, true].map(context),
        arguments,
        numbers,
    }
});

pub(super) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

#[test]
fn the_arguments_that_rules_name() {
    let named = |ways: &[&str]| Ways::Named(ways.iter().map(|way| ((*way).to_owned(), steps(way))).collect());
    assert_eq!(Ways::of("permit(principal, action, resource);"), named(&[]));
    let two = r#"context.arguments.hasTag("to.0.a") && context.arguments.getTag ( "to.0.a" ) == "x"
        || context.numbers.hasTag("n")"#;
    assert_eq!(Ways::of(two), named(&["n", "to.0.a"]));
    for worked_out in [
        "context.arguments.hasTag(resource.name)",
        r#"context.arguments.hasTag(if true then "a" else "b")"#,
        r#"context.arguments.hasTag("a\u{62}")"#,
        "context.arguments.hasTag( // which\n\"a\")",
    ] {
        assert_eq!(Ways::of(worked_out), Ways::Any, "{worked_out}");
    }
    assert_eq!(steps(r"a\.b.0.c\\d"), ["a.b", "0", r"c\d"]);
}
