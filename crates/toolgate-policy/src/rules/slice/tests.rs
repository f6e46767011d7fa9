//! Slices decide like all rules together.

use proptest::prelude::*;
use serde_json::json;
use toolgate_json::{CallArguments, RawJson};
use toolgate_types::tool::{Category, RiskLevel, ToolContract};

use super::*;
use crate::rules::{RuleOutcome, RuleSet};

const EFFECTS: [&str; 3] = ["permit", "forbid", "@ask(\"sure\") forbid"];
const PRINCIPALS: [&str; 6] = [
    "principal",
    "principal == Caller::\"ann\"",
    "principal == Caller::\"bob\"",
    "principal in Caller::\"ann\"",
    "principal in Group::\"ops\"",
    "principal is Caller in Group::\"ops\"",
];
const ACTIONS: [&str; 4] = [
    "action",
    "action == Action::\"call\"",
    "action == Action::\"list\"",
    "action in [Action::\"call\", Action::\"list\"]",
];
const RESOURCES: [&str; 6] = [
    "resource",
    "resource == Tool::\"pay\"",
    "resource == Tool::\"look\"",
    "resource in Server::\"bank\"",
    "resource in Server::\"shop\"",
    "resource is Tool",
];
const CONDITIONS: [&str; 12] = [
    "",
    "when { resource.name == \"pay\" }",
    "when { resource.risk == \"low\" }",
    "when { resource.tags.contains(\"money\") }",
    "when { principal.id == \"ann\" && context.tainted }",
    "when { context.tainted && resource.name == \"pay\" }",
    "unless { resource.trusted || resource.server == \"shop\" }",
    "when { context.arguments.hasTag(\"to\") && context.arguments.getTag(\"to\") == \"x\" }",
    "when { resource.name like \"p*\" && context.numbers.hasTag(\"n\") && context.numbers.getTag(\"n\") > 3 }",
    "when { context.numbers.getTag(\"n\") > 3 }",
    "when { principal in Group::\"ops\" && resource.risk == \"high\" }",
    "when { resource in Server::\"bank\" } unless { resource.idempotent }",
];

/// Evaluates rules without an index and without their conditions: all of them, or those with a matching scope. An
/// argument of an unexpected shape counts only against rules in scope.
fn evaluate_all(
    rules: &RuleSet,
    call: &PolicyRequest<'_>,
    action: Action,
    in_scope: bool,
) -> Result<RuleOutcome, String> {
    let (principal, resource) = principal_and_resource(call);
    let uids = [principal, uid(&ENTITY_TYPES.action, action.label()), resource];
    let groups: Vec<_> = group_uids(call).collect();
    let fits = |rule: &&IndexedRule| !in_scope || rule.matches_scope(&uids, &groups, &server_uid(call));
    let all: Vec<_> = rules.index.rules.iter().filter(fits).collect();
    rules.evaluate_slice(&PolicySlice::of_rules(&all, true, call, action), call)
}

/// The order of rules does not matter.
fn sorted(outcome: Result<RuleOutcome, String>) -> Result<RuleOutcome, ()> {
    let sort = |mut rules: Vec<String>| {
        rules.sort();
        rules
    };
    Ok(match outcome.map_err(drop)? {
        RuleOutcome::Permit(rules) => RuleOutcome::Permit(sort(rules)),
        RuleOutcome::Forbid(rules) => RuleOutcome::Forbid(sort(rules)),
        RuleOutcome::Ask { rules, text, permitted } => {
            let text = sort(text.split(' ').map(str::to_owned).collect()).join(" ");
            RuleOutcome::Ask { rules: sort(rules), text, permitted }
        }
        outcome => outcome,
    })
}

fn tool(name: &str, server: &str, tagged: bool, risk: RiskLevel) -> ToolAttributes {
    ToolAttributes {
        kind: crate::TargetKind::Tool,
        name: name.to_owned(),
        original: name.to_owned(),
        server: Some(server.to_owned()),
        permissions: Vec::new(),
        contract: ToolContract { version: String::new(), risk, idempotent: tagged, cacheable: false },
        category: Some(Category::Mutation),
        tags: if tagged { vec!["money".to_owned()] } else { Vec::new() },
        trusted: !tagged,
        definition: None,
    }
}

fn rule() -> impl Strategy<Value = String> {
    let pick = |from: &'static [&'static str]| proptest::sample::select(from);
    (pick(&EFFECTS), pick(&PRINCIPALS), pick(&ACTIONS), pick(&RESOURCES), pick(&CONDITIONS)).prop_map(
        |(effect, principal, action, resource, condition)| {
            format!("{effect}({principal}, {action}, {resource}) {condition};")
        },
    )
}

/// Callers with their groups. The groups of `ann` change from call to call.
const CALLERS: [(&str, &str); 4] = [("ann", "ops"), ("ann", ""), ("bob", "dev"), ("eve", "ops")];

fn in_group(name: &str) -> Vec<Arc<Group>> {
    let group = name.parse().map(|name| Arc::new(Group { name, permissions: Vec::new() }));
    group.into_iter().collect()
}

proptest! {
    // Each case checks 72 calls.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn slices_decide_like_all_rules(rules in proptest::collection::vec(rule(), 1..12), tainted: bool) {
        // Some conditions do not type-check for some actions.
        let Ok(rules) = RuleSet::new(&rules.join("\n")) else { return Ok(()) };
        // The second tool named `pay` takes the place of the first one.
        let tools = [
            tool("pay", "bank", true, RiskLevel::High),
            tool("look", "shop", false, RiskLevel::Low),
            tool("pay", "shop", false, RiskLevel::Low),
        ];
        for (tool, caller) in tools.iter().flat_map(|tool| CALLERS.map(|caller| (tool, caller))) {
            let (id, group) = caller;
            let caller = Caller { groups: in_group(group), ..Caller::new(id.parse().unwrap(), Vec::new()) };
            for (arguments, fit) in [
                (json!({}), true),
                (json!({ "to": "x", "n": 4 }), true),
                (json!({ "to": ["x"], "n": "four" }), false),
            ] {
                let arguments = CallArguments::from(RawJson::from_value(&arguments));
                let now = std::time::SystemTime::UNIX_EPOCH;
                let call = PolicyRequest { caller: &caller, tool, arguments: &arguments, tainted, now };
                for action in [Action::Call, Action::List] {
                    let sliced = sorted(rules.try_evaluate(&call, action));
                    prop_assert_eq!(sliced, sorted(evaluate_all(&rules, &call, action, !fit)), "{:?} {:?}", tool, action);
                }
            }
        }
    }
}

#[test]
fn slices_hold_only_rules_that_can_match() {
    let mut text = String::from("permit(principal, action, resource) when { resource.name == \"pay\" };\n");
    for n in 0..100 {
        text.push_str(&format!("forbid(principal, action, resource == Tool::\"t{n}\");\n"));
        text.push_str(&format!("forbid(principal == Caller::\"c{n}\", action, resource);\n"));
        text.push_str(&format!(
            "forbid(principal, action, resource) when {{ resource.name == \"n{n}\" }};\n"
        ));
    }
    let rules = RuleSet::new(&text).unwrap();
    let caller = Caller::new("ann".parse().unwrap(), Vec::new());
    let (tool, arguments) = (tool("pay", "bank", true, RiskLevel::High), CallArguments::empty());
    let now = std::time::SystemTime::UNIX_EPOCH;
    let call = PolicyRequest { caller: &caller, tool: &tool, arguments: &arguments, tainted: false, now };
    assert_eq!(rules.slice(&call, Action::Call).rules.len(), 1);
}
