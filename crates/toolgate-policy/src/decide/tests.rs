//! Tables of caller, tool and rules, with the expected decision.

use serde_json::json;
use toolgate_json::RawJson;
use toolgate_types::tool::RiskLevel;

use super::*;

fn caller(permissions: &[&str]) -> Caller {
    let permissions = permissions.iter().map(|text| text.parse().unwrap()).collect();
    Caller::new("ann".parse().unwrap(), permissions)
}

fn subject(name: &str, permissions: &[&str]) -> ToolAttributes {
    ToolAttributes {
        kind: Default::default(),
        name: name.to_owned(),
        original: name.to_owned(),
        server: Some("bank".to_owned()),
        permissions: permissions.iter().map(|text| text.parse().unwrap()).collect(),
        contract: ToolContract {
            version: "1".to_owned(),
            risk: RiskLevel::High,
            idempotent: false,
            cacheable: false,
        },
        category: Some(Category::Mutation),
        tags: vec!["money".to_owned()],
        trusted: false,
        definition: Some("sha256:1".into()),
    }
}

/// The decision as a short string.
fn decide_outcome(rules: &str, permissions: &[&str], arguments: serde_json::Value, tainted: bool) -> String {
    let policy = Policy::new((!rules.is_empty()).then(|| RuleSet::new(rules).unwrap()));
    let (caller, subject, arguments) = (
        caller(permissions),
        subject("pay", &["cards:create"]),
        CallArguments::from(RawJson::from_value(&arguments)),
    );
    let call = PolicyRequest {
        caller: &caller,
        tool: &subject,
        arguments: &arguments,
        tainted,
        now: SystemTime::UNIX_EPOCH,
    };
    match policy.decide(&call) {
        Decision::Allow(grant) => format!("allow by {}", grant.rules().join(" ")),
        Decision::Ask(question) => format!("ask: {}", question.text),
        Decision::Deny(Denied { visible, missing, forbidden_by, failed }) => {
            let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
            let seen = if visible { "seen" } else { "unseen" };
            let failed = if failed.is_some() { " failed" } else { "" };
            format!(
                "deny {seen}, missing [{}], forbidden by [{}]{failed}",
                missing.join(" "),
                forbidden_by.join(" ")
            )
        }
    }
}

fn check(rules: &str, permissions: &[&str], expected: &str) {
    assert_eq!(decide_outcome(rules, permissions, json!({}), false), expected, "{rules} {permissions:?}");
}

#[test]
fn decides_by_permissions_without_rules() {
    check("", &[], "deny unseen, missing [cards:create], forbidden by []");
    check("", &["cards:create"], "allow by permissions");
    check("", &["*:*"], "allow by permissions");
    check("", &["cards:read"], "deny seen, missing [cards:create], forbidden by []");
    check("", &["decks:*"], "deny unseen, missing [cards:create], forbidden by []");
}

/// A caller sees the tools that it may call, and no others.
#[test]
fn lists_show_what_may_be_called() {
    let sees = |rules: &str, permissions: &[&str], required: &[&str]| {
        let policy = Policy::new((!rules.is_empty()).then(|| RuleSet::new(rules).unwrap()));
        policy.may_see(&PolicyRequest {
            caller: &caller(permissions),
            tool: &subject("pay", required),
            arguments: &CallArguments::empty(),
            tainted: false,
            now: SystemTime::UNIX_EPOCH,
        })
    };
    let one: &[&str] = &["cards:create"];
    assert!(sees("", &["cards:create"], one) && sees("", &["cards:*"], one) && sees("", &["*:create"], one));
    assert!(!sees("", &[], one) && !sees("", &["cards:read"], one) && !sees("", &["*:read"], one));
    assert!(!sees("", &["cards:create"], &["cards:create", "cards:pay"]), "every permission counts");
    assert!(sees("", &[], &[]), "a tool that requires none");
    let rule = |effect: &str, action: &str| {
        format!(r#"{effect}(principal, action == Action::"{action}", resource);"#)
    };
    assert!(sees(&rule("permit", "call"), &[], one) && sees(&rule("permit", "list"), &[], one));
    assert!(sees(&rule("forbid", "call"), &["*:*"], one), "the rule may forbid some calls only");
    assert!(!sees(&rule("forbid", "list"), &["*:*"], one));
    let asks = format!("@ask(\"?\") {}", rule("forbid", "call"));
    assert!(sees(&asks, &["*:*"], one) && !sees(&asks, &["cards:read"], one));
    assert!(sees(&format!("{asks} {}", rule("permit", "call")), &[], one));
}

#[test]
fn rules_permit_and_forbid() {
    let permit = r#"@id("payers") permit(principal == Caller::"ann", action == Action::"call", resource == Tool::"pay");"#;
    let forbid =
        r#"@id("no-money") forbid(principal, action, resource) when { resource.tags.contains("money") };"#;
    check(permit, &[], "allow by payers");
    check(
        &permit.replace("\"pay\"", "\"look\""),
        &[],
        "deny unseen, missing [cards:create], forbidden by []",
    );
    check(forbid, &["*:*"], "deny unseen, missing [], forbidden by [no-money]");
    check(&format!("{permit}{forbid}"), &["*:*"], "deny unseen, missing [], forbidden by [no-money]");
    let calls_only =
        forbid.replace("(principal, action, resource)", r#"(principal, action == Action::"call", resource)"#);
    check(&calls_only, &["*:*"], "deny seen, missing [], forbidden by [no-money]");
}

#[test]
fn rules_see_server_risk_arguments_and_taint() {
    let when = |condition: &str| {
        format!(r#"@id("r") forbid(principal, action == Action::"call", resource) when {{ {condition} }};"#)
    };
    let cases = [
        (r#"resource in Server::"bank""#, true),
        (r#"resource in Server::"shop""#, false),
        (r#"resource.risk == "high" && !resource.trusted"#, true),
        (r#"context.numbers.hasTag("amount") && context.numbers.getTag("amount") > 100"#, true),
        (r#"context.numbers.hasTag("amount") && context.numbers.getTag("amount") > 1000"#, false),
        (
            r#"context.arguments.hasTag("to.0.iban") && context.arguments.getTag("to.0.iban") like "DE*""#,
            true,
        ),
        (r#"context.tainted"#, true),
        (r#"principal.permissions.contains("*:*")"#, true),
    ];
    for (condition, forbids) in cases {
        let outcome = decide_outcome(
            &when(condition),
            &["*:*"],
            json!({ "amount": 500, "to": [{ "iban": "DE1" }] }),
            true,
        );
        assert_eq!(outcome.starts_with("deny"), forbids, "{condition}: {outcome}");
    }
}

/// A name that contains a dot cannot pose as a path.
#[test]
fn dotted_names_are_not_paths() {
    let rule = r#"@id("r") forbid(principal, action == Action::"call", resource) when { context.arguments.hasTag("to.iban") && context.arguments.getTag("to.iban") == "evil" };"#;
    for arguments in [
        json!({ "to": { "iban": "evil" }, "to.iban": "good" }),
        json!({ "to.iban": "good", "to": { "iban": "evil" } }),
    ] {
        let outcome = decide_outcome(rule, &["*:*"], arguments, false);
        assert!(outcome.starts_with("deny"), "{outcome}");
    }
    assert!(decide_outcome(rule, &["*:*"], json!({ "to.iban": "evil" }), false).starts_with("allow"));
}

/// A member without a name cannot pose as a path, and cannot replace another argument.
#[test]
fn nameless_members_are_not_paths() {
    let computed = r#"
        @id("system") forbid(principal, action == Action::"call", resource) when {
            context.arguments.hasTag(if resource.trusted then "path" else "path") &&
            context.arguments.getTag(if resource.trusted then "path" else "path") like "/etc/*" };
    "#;
    let decide = |arguments| decide_outcome(computed, &["cards:*"], arguments, false);
    let both = json!({ "path": "/etc/passwd", "": "/tmp" });
    assert_eq!(decide(both), "deny seen, missing [], forbidden by [system]");
    assert_eq!(decide(json!({ "": "/etc/passwd" })), "allow by permissions");
    // A nested object has no tag, so the rule cannot be evaluated.
    let nested = json!({ "path": "/tmp", "": { "path": "/etc/passwd" } });
    assert_eq!(decide(nested), "deny seen, missing [], forbidden by [] failed");
}

#[test]
fn evaluation_errors_deny() {
    // The overflow is an evaluation error that no type check finds.
    let overflow = r#"permit(principal, action, resource) when { context.numbers.hasTag("n") && context.numbers.getTag("n") + 9223372036854775807 > 0 };"#;
    let outcome = decide_outcome(overflow, &["*:*"], json!({ "n": 5 }), false);
    assert!(outcome.ends_with("failed"), "{outcome}");
    let many: Vec<_> = (0..2_000).collect();
    let any = "permit(principal, action, resource) when { context.arguments.hasTag(resource.name) };";
    let outcome = decide_outcome(any, &["*:*"], json!({ "many": many }), false);
    assert!(outcome.ends_with("failed"), "{outcome}");
    let outcome =
        decide_outcome("permit(principal, action, resource);", &["*:*"], json!({ "many": many }), false);
    assert_eq!(outcome, "allow by policy0", "no rule refers to the arguments");
}

#[test]
fn rejects_rules_that_do_not_type_check() {
    for (rules, why) in [
        ("permit(principal, action, resource", "unexpected end"),
        (r#"permit(principal, action, resource) when { resource.colour == "red" };"#, "colour"),
        (r#"permit(principal, action, resource) when { resource.name > 3 };"#, "type"),
        (r#"permit(principal == User::"ann", action, resource);"#, "User"),
    ] {
        let errors = RuleSet::new(rules).unwrap_err();
        assert!(errors.iter().any(|error| error.message.contains(why)), "{rules}: {errors:?}");
    }
}

#[test]
fn an_approval_is_bound_to_its_call_and_used_once() {
    use crate::grant::{Approval, StaleApproval};
    use std::time::Duration;
    let rules = r#"@id("big") @ask("Pay that much?") forbid(principal, action == Action::"call", resource) when { context.numbers.hasTag("amount") && context.numbers.getTag("amount") > 100 };"#;
    assert_eq!(decide_outcome(rules, &["*:*"], json!({ "amount": 50 }), false), "allow by permissions");
    assert_eq!(decide_outcome(rules, &["*:*"], json!({ "amount": 500 }), false), "ask: Pay that much?");
    assert_eq!(
        decide_outcome(rules, &[], json!({ "amount": 500 }), false),
        "deny unseen, missing [cards:create], forbidden by []"
    );
    // Approval is required even if another rule permits the call.
    let permitted = format!("permit(principal, action, resource); {rules}");
    assert_eq!(decide_outcome(&permitted, &[], json!({ "amount": 500 }), false), "ask: Pay that much?");
    let policy = Policy::new(Some(RuleSet::new(rules).unwrap()));
    let answer = |yes: Approval<'_>| {
        let (caller, subject, arguments) = (
            caller(&["*:*"]),
            subject("pay", &["cards:create"]),
            CallArguments::from(RawJson::from_value(&json!({ "amount": 500 }))),
        );
        let call = PolicyRequest {
            caller: &caller,
            tool: &subject,
            arguments: &arguments,
            tainted: false,
            now: SystemTime::UNIX_EPOCH,
        };
        let Decision::Ask(question) = policy.decide(&call) else { panic!("the rule asks") };
        question.approve(yes).map(|grant| grant.approved_by().map(str::to_owned))
    };
    let later = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let yes = Approval { by: "bob", definition: Some("sha256:1"), policy: policy.version(), now: later(60) };
    assert_eq!(answer(yes), Ok(Some("bob".to_owned())));
    assert_eq!(answer(Approval { now: later(601), ..yes }), Err(StaleApproval::Late));
    assert_eq!(answer(Approval { definition: Some("sha256:2"), ..yes }), Err(StaleApproval::Definition));
    assert_eq!(answer(Approval { policy: "other", ..yes }), Err(StaleApproval::Policy));
}

/// A rule that cannot be evaluated because of the shape of an argument counts against the call.
#[test]
fn unexpected_shapes_do_not_slip_past_a_rule() {
    let rule = |annotation: &str, effect: &str, condition: &str| {
        format!(
            r#"@id("r") {annotation} {effect}(principal, action == Action::"call", resource) when {{ {condition} }};"#
        )
    };
    let is_x = r#"context.arguments.hasTag("to") && context.arguments.getTag("to") == "x""#;
    let large = r#"context.numbers.hasTag("n") && context.numbers.getTag("n") > 100"#;
    let nested =
        r#"context.arguments.hasTag("to.0.iban") && context.arguments.getTag("to.0.iban") like "DE*""#;
    let spelled = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for (condition, arguments, denied) in [
        (is_x, r#"{"to":"y"}"#, false),
        (is_x, "{}", false),
        (is_x, r#"{"to":["x"]}"#, true),
        (is_x, r#"{"to":{"address":"x"}}"#, true),
        (is_x, r#"{"to":[]}"#, true),
        (large, r#"{"n":100}"#, false),
        (large, r#"{"n":1e2}"#, false),
        (large, "{}", false),
        (large, r#"{"n":null}"#, false),
        (large, r#"{"n":1e7}"#, true),
        (large, r#"{"n":10000010e-1}"#, true),
        (large, r#"{"n":100.5}"#, true),
        (large, r#"{"n":1e30}"#, true),
        (large, r#"{"n":18446744073709551615}"#, true),
        (large, r#"{"n":99999999999999999999999}"#, true),
        (large, r#"{"n":"5000"}"#, true),
        (large, r#"{"n":[5000]}"#, true),
        (nested, r#"{"to":[{"iban":"FR1"}]}"#, false),
        (nested, r#"{"to":[]}"#, false),
        (nested, r#"{"to":"DE1"}"#, true),
        (nested, r#"{"to":{"iban":"DE1"}}"#, true),
        (nested, r#"{"to":[["DE1"]]}"#, true),
        (nested, r#"{"to":[{"iban":["DE1"]}]}"#, true),
    ] {
        let outcome = |annotation: &str, effect: &str| {
            decide_outcome(&rule(annotation, effect, condition), &["*:*"], spelled(arguments), false)
        };
        let expected =
            if denied { "deny seen, missing [], forbidden by [r]" } else { "allow by permissions" };
        assert_eq!(outcome("", "forbid"), expected, "{condition} on {arguments}");
        let expected = if denied { "ask: Go on?" } else { "allow by permissions" };
        assert_eq!(outcome(r#"@ask("Go on?")"#, "forbid"), expected, "{condition} on {arguments}");
        let permitted = decide_outcome(&rule("", "permit", condition), &[], spelled(arguments), false);
        let matches = [r#"{"n":1e7}"#, r#"{"n":10000010e-1}"#].contains(&arguments);
        assert_eq!(permitted.starts_with("allow"), matches, "{condition} on {arguments}: {permitted}");
    }
    // A rule that cannot match for another reason does not count.
    for elsewhere in [r#"resource in Server::"shop" && "#, r#"resource.name == "look" && "#] {
        let rules = rule("", "forbid", &format!("{elsewhere}{is_x}"));
        let outcome = decide_outcome(&rules, &["*:*"], json!({ "to": ["x"] }), false);
        assert_eq!(outcome, "allow by permissions", "{rules}");
    }
    let scope = rule("", "forbid", is_x).replace("resource)", r#"resource in Server::"shop")"#);
    assert_eq!(decide_outcome(&scope, &["*:*"], json!({ "to": ["x"] }), false), "allow by permissions");
    // A question does not replace a rule that forbids.
    let both = format!(
        "{}{}",
        rule(r#"@ask("Go on?")"#, "forbid", is_x),
        rule("", "forbid", "true").replace("\"r\"", "\"no\"")
    );
    let outcome = decide_outcome(&both, &["*:*"], json!({ "to": ["x"] }), false);
    assert_eq!(outcome, "deny seen, missing [], forbidden by [no]");
    // A rule that computes the name of an argument might be about any of them.
    let computed = rule("", "forbid", r#"context.arguments.hasTag(resource.name)"#);
    assert_eq!(decide_outcome(&computed, &["*:*"], json!({ "a": 1 }), false), "allow by permissions");
    assert!(decide_outcome(&computed, &["*:*"], json!({ "pay": ["x"] }), false).ends_with("failed"));
}

/// The examples in docs/policy.md, with their ids.
fn examples() -> Vec<(&'static str, &'static str)> {
    let page = include_str!("../../../../docs/policy.md");
    let blocks = page.split("```cedar\n").skip(1).map(|block| block.split("```").next().unwrap());
    let id = |rules: &'static str| rules.split('"').nth(1).unwrap();
    blocks.map(|rules| (id(rules), rules)).collect()
}

#[test]
fn the_docs_contain_the_schema_and_valid_rules() {
    assert!(include_str!("../../../../docs/policy.md").contains(crate::rules::SCHEMA));
    for (id, rules) in examples() {
        let loaded = RuleSet::new(rules).unwrap_or_else(|errors| panic!("{id}: {errors:?}"));
        assert!(loaded.warnings().is_empty(), "{id}: {:?}", loaded.warnings());
    }
    assert_eq!(examples().len(), 5);
}

/// The examples decide as docs/policy.md says.
#[test]
fn the_examples_in_the_docs_decide_as_described() {
    let example = |id: &str, permissions: &[&str], arguments: serde_json::Value, tainted: bool| {
        let rules = examples().into_iter().find(|(known, _)| *known == id).unwrap().1;
        // The test's only tool stands in for the tools of the page.
        let rules = rules.replace("Server::\"files\"", "Server::\"bank\"").replace("\"admin\"", "\"money\"");
        decide_outcome(&rules, permissions, arguments, tainted)
    };
    let owner: &[&str] = &["*:*"];
    insta::assert_snapshot!(example("assistant-reads", &[], json!({}), false), @"deny unseen, missing [cards:create], forbidden by []");
    for (path, allowed) in [
        (json!("/workspace/a"), true),
        (json!("/workspace/../etc/passwd"), false),
        (json!("/etc/passwd"), false),
        (json!(["/etc/passwd"]), false),
        (json!({ "0": "/workspace/a" }), false),
        (json!([]), false),
        (json!(7), false),
        (json!(null), false),
    ] {
        let outcome = example("only-the-workspace", owner, json!({ "path": path }), false);
        assert_eq!(outcome.starts_with("allow"), allowed, "{path}: {outcome}");
        assert!(allowed || outcome.contains("forbidden by [only-the-workspace]"), "{path}: {outcome}");
    }
    let spelled = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for (amount, allowed) in [
        (json!(100), true),
        (spelled("1e2"), true),
        (spelled("1000e-1"), true),
        (json!(101), false),
        (spelled("1e7"), false),
        (spelled("10000010e-1"), false),
        (spelled("100000000000000000000"), false),
        (spelled("1e300"), false),
        (json!(0.5), false),
        (json!("5"), false),
        (json!([5]), false),
        (json!({ "value": 5 }), false),
        (json!(true), false),
        (json!(null), false),
    ] {
        let outcome = example("large-payments", owner, json!({ "amount": amount }), false);
        assert_eq!(outcome.starts_with("allow"), allowed, "{amount}: {outcome}");
        assert!(allowed || outcome.starts_with("ask: This pays"), "{outcome}");
    }
    assert!(example("changes-after-untrusted-text", owner, json!({}), true).starts_with("ask: Something"));
    assert!(example("changes-after-untrusted-text", owner, json!({}), false).starts_with("allow"));
    insta::assert_snapshot!(example("admin-tools", &["cards:create"], json!({}), false), @"deny unseen, missing [], forbidden by [admin-tools]");
    assert!(example("admin-tools", owner, json!({}), false).starts_with("allow"));
}

#[test]
fn entities_match_the_schema() {
    let (schema, _) = cedar_policy::Schema::from_cedarschema_str(crate::rules::SCHEMA).unwrap();
    let arguments = RawJson::from_value(&json!({ "to": "a", "amount": 5, "part": 0.5, "none": null }));
    let call = PolicyRequest {
        caller: &caller(&["*:*"]),
        tool: &subject("pay", &["cards:create"]),
        arguments: &arguments.into(),
        tainted: true,
        now: SystemTime::UNIX_EPOCH,
    };
    use crate::rules::entities::{ArgumentUses, argument_entities, caller_and_tool};
    let seen = caller_and_tool(&call)
        .unwrap()
        .into_iter()
        .chain(argument_entities(&call, &ArgumentUses::Any).unwrap());
    cedar_policy::Entities::from_entities(seen, Some(&schema)).unwrap();
}

proptest::proptest! {
    /// Skipping rules that cannot match, and arguments that no rule refers to, changes no decision.
    #[test]
    fn rules_decide_by_scope_and_conditions(
        rules in proptest::collection::vec((0..3usize, 0..3usize, 0..2usize, 0..4i64), 1..6),
        amount in 0..4i64,
    ) {
        let principals = ["principal", "principal == Caller::\"ann\"", "principal == Caller::\"bob\""];
        let resources = ["resource", "resource == Tool::\"pay\"", "resource == Tool::\"look\""];
        let text = |(principal, resource, effect, most): &(usize, usize, usize, i64)| format!(
            "{}({}, action, {}) when {{ context.numbers.hasTag(\"n\") && context.numbers.getTag(\"n\") > {most} }};",
            ["permit", "forbid"][*effect], principals[*principal], resources[*resource],
        );
        let outcome = decide_outcome(&rules.iter().map(text).collect::<String>(), &[], json!({ "n": amount, "x": [1] }), false);
        let applies = |effect| rules.iter().any(|rule| rule.0 < 2 && rule.1 < 2 && rule.2 == effect && amount > rule.3);
        let expected = match (applies(1), applies(0)) {
            (true, _) => "deny unseen, missing [], forbidden by [p",
            (false, true) => "allow by p",
            (false, false) => "deny unseen, missing [cards:create], forbidden by []",
        };
        proptest::prop_assert!(outcome.starts_with(expected), "{} and not {}", outcome, expected);
    }
}

#[test]
fn rules_and_permissions_can_name_groups() {
    use std::sync::Arc;
    use toolgate_types::Group;
    let rules = r#"
        @id("ops-may-pay") permit(principal in Group::"ops", action, resource);
        @id("no-contractors") forbid(principal, action, resource) when { principal in Group::"contractors" };"#;
    let policy = Policy::new(Some(RuleSet::new(rules).unwrap()));
    let (tool, arguments) = (subject("pay", &["cards:create"]), CallArguments::empty());
    let decide = |groups: &[(&str, &[&str])]| {
        let group = |(name, permissions): &(&str, &[&str])| {
            let permissions = permissions.iter().map(|text| text.parse().unwrap()).collect();
            Arc::new(Group { name: name.parse().unwrap(), permissions })
        };
        let ann = Caller { groups: groups.iter().map(group).collect(), ..caller(&[]) };
        let now = SystemTime::UNIX_EPOCH;
        let call = PolicyRequest { caller: &ann, tool: &tool, arguments: &arguments, tainted: false, now };
        match policy.decide(&call) {
            Decision::Allow(grant) => {
                let groups = policy.deciding_groups(grant.rules(), &ann);
                format!("allow by {} through [{}]", grant.rules().join(" "), groups.join(" "))
            }
            Decision::Deny(denied) => format!("deny by [{}]", denied.forbidden_by.join(" ")),
            Decision::Ask(_) => unreachable!("no rule asks"),
        }
    };
    assert_eq!(decide(&[]), "deny by []");
    assert_eq!(decide(&[("dev", &[]), ("ops", &[])]), "allow by ops-may-pay through [ops]");
    // The same caller, in other groups: nothing is reused.
    assert_eq!(decide(&[("dev", &[])]), "deny by []");
    assert_eq!(decide(&[("dev", &["cards:*"])]), "allow by permissions through []");
    assert_eq!(decide(&[("ops", &[]), ("contractors", &[])]), "deny by [no-contractors]");
}
