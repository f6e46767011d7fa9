//! Compares prefilters with Cedar itself.

use std::time::SystemTime;

use proptest::prelude::*;
use serde_json::json;
use toolgate_json::{CallArguments, RawJson};
use toolgate_types::Caller;
use toolgate_types::tool::{Category, RiskLevel, ToolContract};

use super::*;
use crate::decide::{Action, ToolAttributes};
use crate::rules::{RuleOutcome, RuleSet};

/// The caller and the tool of every test.
fn caller_and_tool() -> (Caller, ToolAttributes) {
    let subject = ToolAttributes {
        kind: Default::default(),
        name: "pay".to_owned(),
        original: "pay_now".to_owned(),
        server: Some("bank".to_owned()),
        permissions: vec!["cards:create".parse().unwrap()],
        contract: ToolContract {
            version: "1".to_owned(),
            risk: RiskLevel::High,
            idempotent: false,
            cacheable: false,
        },
        category: Some(Category::Mutation),
        tags: vec!["money".to_owned()],
        trusted: true,
        definition: None,
    };
    (Caller::new("ann".parse().unwrap(), Vec::new()), subject)
}

/// Cedar's outcome, and true if the prefilters would have skipped the evaluation.
fn evaluate_both(rules: &RuleSet, arguments: Value, tainted: bool) -> (Result<RuleOutcome, String>, bool) {
    let (caller, subject) = caller_and_tool();
    let arguments = CallArguments::from(RawJson::from_value(&arguments));
    let now = SystemTime::UNIX_EPOCH;
    let call = PolicyRequest { caller: &caller, tool: &subject, arguments: &arguments, tainted, now };
    let slice = rules.slice(&call, Action::Call);
    let outcome = rules.evaluate_with_cedar(&slice, [&slice.set, &slice.without_asks], &call);
    (outcome, slice.cannot_match(&call))
}

fn when(condition: &str) -> RuleSet {
    let rule = format!("forbid (principal, action, resource) when {{ {condition} }};");
    RuleSet::new(&rule).unwrap_or_else(|errors| panic!("{condition}: {errors:?}"))
}

#[test]
fn prefilters_evaluate_simple_conditions() {
    let (yes, no, unknown) = ("applies", "ruled out", "unknown");
    let arguments =
        json!({ "path": "/etc/passwd", "n": 7, "on": true, "to": [{ "a.b": "x" }], "none": null });
    let (caller, subject) = caller_and_tool();
    let arguments = CallArguments::from(RawJson::from_value(&arguments));
    let call = PolicyRequest {
        caller: &caller,
        tool: &subject,
        arguments: &arguments,
        tainted: true,
        now: SystemTime::UNIX_EPOCH,
    };
    for (condition, expected) in [
        (r#"context.arguments.hasTag("path")"#, yes),
        (r#"context.arguments.hasTag("to.0.a\\.b")"#, yes),
        (r#"context.arguments.hasTag("to")"#, unknown),
        (r#"context.arguments.hasTag("none")"#, yes),
        (r#"context.numbers.hasTag("n")"#, yes),
        (r#"context.numbers.hasTag("path")"#, unknown),
        (r#"context.arguments.hasTag("path") && context.arguments.getTag("path") like "/etc/*""#, yes),
        (r#"context.arguments.hasTag("path") && context.arguments.getTag("path") like "*/shadow""#, no),
        (r#"context.arguments.hasTag("path") && context.arguments.getTag("path") like "/*c/*s*d""#, yes),
        (r#"context.arguments.hasTag("path") && context.arguments.getTag("path") like "/etc/passwd/*""#, no),
        (r#"context.arguments.hasTag("n") && context.arguments.getTag("n") == "7""#, yes),
        (r#"context.numbers.hasTag("n") && context.numbers.getTag("n") > 7"#, no),
        (r#"context.numbers.hasTag("n") && context.numbers.getTag("n") >= 7"#, yes),
        (r#"context.numbers.hasTag("n") && context.numbers.getTag("n") < 7"#, no),
        (r#"context.numbers.hasTag("n") && context.numbers.getTag("n") <= 7"#, yes),
        (r#"context.numbers.hasTag("n") && context.numbers.getTag("n") != 7"#, no),
        (r#"context.numbers.hasTag("n") && context.numbers.getTag("n") + 1 == 8"#, unknown),
        (r#"resource.risk == "low""#, no),
        (r#"resource.name == "pay" && resource.original == "pay_now" && resource.server == "bank""#, yes),
        (r#"resource.category == "query""#, no),
        (r#"resource.tags.contains("money")"#, yes),
        (r#"resource.tags.contains("food")"#, no),
        ("resource.trusted && context.tainted", yes),
        ("resource.idempotent", no),
        (r#"principal.id == "bob" || context.tainted"#, yes),
        (r#"!(principal.id == "ann")"#, no),
        (r#"resource in Server::"bank""#, yes),
        // A false condition behind an unknown rules out nothing: Cedar may fail at the unknown.
        (r#"context.tainted && principal == Caller::"x" && false"#, unknown),
        (r#"resource.risk == "low" && resource in Server::"bank""#, no),
        (r#"if context.tainted then false else true"#, unknown),
    ] {
        let rules = when(condition);
        let prefilter = RulePrefilter::from_policy(rules.set.policies().next().unwrap());
        let known = match prefilter.evaluate(&call, KnownFacts::All) {
            Some(true) => yes,
            Some(false) => no,
            None => unknown,
        };
        assert_eq!(known, expected, "{condition}: {prefilter:?}");
    }
    let unless = RuleSet::new(r#"permit (principal, action, resource) unless { context.tainted };"#).unwrap();
    assert!(evaluate_both(&unless, json!({}), true).1);
    let always = RuleSet::new("permit (principal, action, resource);").unwrap();
    assert!(!evaluate_both(&always, json!({}), true).1);
    let unreadable = CallArguments::from(RawJson::from_trusted("{\"n\":1e999}".to_owned()));
    let call = PolicyRequest { arguments: &unreadable, ..call };
    let rules = when(r#"context.arguments.hasTag("path")"#);
    assert!(!rules.slice(&call, Action::Call).cannot_match(&call));
    let long = when(&vec!["context.tainted"; 200].join(" && "));
    assert_eq!(RulePrefilter::from_policy(long.set.policies().next().unwrap()), RulePrefilter::Unknown);
}

/// Conditions that type-check, both known and unknown to prefilters.
fn condition() -> impl Strategy<Value = String> {
    let tag = prop_oneof![Just("a"), Just("b"), Just("c.0"), Just("c")];
    let word = || prop_oneof![Just(""), Just("x"), Just("xy"), Just("7"), Just("true"), Just("*"), Just("ä")];
    let compare = prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let pattern =
        proptest::collection::vec(prop_oneof![Just("*"), Just("x"), Just("y"), Just(r"\*"), Just("ä")], 0..5);
    let atom = prop_oneof![
        tag.clone().prop_map(|tag| format!("context.arguments.hasTag(\"{tag}\")")),
        tag.clone().prop_map(|tag| format!("context.numbers.hasTag(\"{tag}\")")),
        (tag.clone(), word()).prop_map(|(tag, word)| format!(
            "(context.arguments.hasTag(\"{tag}\") && context.arguments.getTag(\"{tag}\") == \"{word}\")"
        )),
        (tag.clone(), pattern).prop_map(|(tag, pattern)| format!(
            "(context.arguments.hasTag(\"{tag}\") && context.arguments.getTag(\"{tag}\") like \"{}\")",
            pattern.concat()
        )),
        (tag, compare, -8..8_i64).prop_map(|(tag, compare, number)| format!(
            "(context.numbers.hasTag(\"{tag}\") && context.numbers.getTag(\"{tag}\") {compare} {number})"
        )),
        // The multiplication overflows, which is an evaluation error.
        Just(
            "(context.numbers.hasTag(\"a\") && context.numbers.getTag(\"a\") * 9223372036854775807 > 3)"
                .to_owned()
        ),
        Just("context.tainted".to_owned()),
        Just("resource.trusted".to_owned()),
        Just("resource.risk != \"high\"".to_owned()),
        Just("resource.tags.contains(\"money\")".to_owned()),
        Just("resource in Server::\"bank\"".to_owned()),
        Just("principal.id == \"ann\"".to_owned()),
        Just("principal == Caller::\"bob\"".to_owned()),
    ];
    atom.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left} && {right})")),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left} || {right})")),
            inner.clone().prop_map(|one| format!("!({one})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("(if {a} then {b} else {c})")),
        ]
    })
}

fn argument() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-9..9_i64).prop_map(Value::from),
        prop_oneof![Just(""), Just("x"), Just("xxy"), Just("yx*"), Just("xäy"), Just("7")]
            .prop_map(Value::from),
        Just(json!(1.5)),
        Just(json!(true)),
        Just(json!(null)),
        Just(json!(["x", 3])),
        Just(json!([])),
        Just(json!({ "0": "xy" })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_skipped_rule_would_not_have_matched(
        condition in condition(),
        calls in proptest::collection::vec(
            (proptest::collection::hash_map("[abc]", argument(), 0..4), any::<bool>()), 12),
    ) {
        // Some conditions never type-check, such as those that are always false.
        let rule = format!("@ask(\"?\") forbid (principal, action, resource) when {{ {condition} }};");
        let Ok(rules) = RuleSet::new(&rule) else { return Ok(()) };
        for (arguments, tainted) in calls {
            let arguments = json!(arguments);
            let (outcome, skipped) = evaluate_both(&rules, arguments.clone(), tainted);
            prop_assert!(!skipped || outcome == Ok(RuleOutcome::NoMatch), "{rule} on {arguments}: {outcome:?}");
        }
    }
}
