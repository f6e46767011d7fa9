//! Policy files: found by default, named, or rejected with every mistake.

use crate::LoadOutcome;
use crate::test_support::{config, errors, loaded, messages};

const GOOD: &str = "permit(principal == Caller::\"ann\", action, resource);\n";

#[test]
fn finds_default_policy_in_any_dialect() {
    for (file, text) in [
        ("toolgate.yaml", "name: x\n"),
        ("agent.yaml", "name: x\ninstructions: y\n"),
        ("mcp.json", r#"{"servers": {}}"#),
    ] {
        let config = config(&loaded(&[(file, text), ("policy.cedar", GOOD)], &[]));
        assert_eq!(config["policy"]["path"], "policy.cedar", "{file}");
        assert!(config["policy"]["version"].as_str().unwrap().starts_with("sha256:"));
        assert!(config["files"].as_array().unwrap().contains(&"policy.cedar".into()), "{file}");
    }
}

#[test]
fn named_policy_replaces_default() {
    let files = [
        ("toolgate.yaml", "policy: rules/all.cedar\n"),
        ("rules/all.cedar", GOOD),
        ("policy.cedar", "this is not read"),
    ];
    let loaded = loaded(&files, &[]);
    assert_eq!(config(&loaded)["policy"]["path"], "rules/all.cedar");
    assert_eq!(config(&loaded)["origins"]["policy"], "toolgate.yaml:1:9");
}

#[test]
fn missing_policy_is_an_error() {
    let messages = errors(&loaded(&[("toolgate.yaml", "policy: none.cedar\n")], &[]));
    assert_eq!(
        messages,
        [
            "toolgate.yaml:1:9 the policy `none.cedar` does not exist (create it, or remove it here; paths start \
             at the project folder)"
        ]
    );
    let messages = errors(&loaded(&[("toolgate.yaml", "name: x\n"), ("policy.cedar/x", "")], &[]));
    assert_eq!(messages, ["`policy.cedar` cannot be read: it is a folder"]);
}

/// Returns the messages about these rules.
fn check_rules(text: &str) -> String {
    let loaded: LoadOutcome = loaded(&[("toolgate.yaml", "name: x\n"), ("policy.cedar", text)], &[]);
    assert_eq!(loaded.config.is_some(), !loaded.report.has_errors());
    messages(&loaded)
}

#[test]
fn reports_syntax_errors() {
    insta::assert_snapshot!(check_rules("permit(principal, action, resource);\n\nforbid(principal, action, resource"), @"error policy.cedar:3:35 unexpected end of input (see docs/policy.md)");
    insta::assert_snapshot!(check_rules("permit(principal, action);\npermit(principal, action, resource) when { 1 + };\n"), @"error policy.cedar:2:48 unexpected token `}` (see docs/policy.md)");
    insta::assert_snapshot!(check_rules("permit(principal, action, ressource);\npermitt(principal, action, resource);\n"), @"
    error policy.cedar:1:27 found an invalid variable in the policy scope: ressource (policy scopes must contain a `principal`, `action`, and `resource` element in that order)
    error policy.cedar:2:1 invalid policy effect: permitt (effect must be either `permit` or `forbid`)
    ");
    assert_eq!(check_rules("// No rules yet.\n"), "");
}

#[test]
fn reports_every_type_error() {
    let text = r#"// First a good one.
permit(principal, action, resource);
@id("red")
forbid(principal, action, resource)
  when { resource.colour == "red" };
forbid(principal, action == Action::"calls", resource);
forbid(principal == User::"ann", action, resource);
forbid(principal, action, resource) when { context.numbers.getTag("amount") > 100 };
forbid(principal, action, resource) when { resource.name > 3 };
"#;
    insta::assert_snapshot!(check_rules(text), @r#"
    error policy.cedar:5:10 attribute `colour` on entity type `Tool` not found, in rule `red` (see docs/policy.md)
    error policy.cedar:6:29 unrecognized action `Action::"calls"` (the entity types are `Caller`, `Group`, `Tool`, `Resource`, `Prompt` and `Server`; the actions are `Action::"call"` (tools), `Action::"read"` (resources), `Action::"get"` (prompts) and `Action::"list"`)
    error policy.cedar:7:21 unrecognized entity type `User` (the entity types are `Caller`, `Group`, `Tool`, `Resource`, `Prompt` and `Server`; the actions are `Action::"call"` (tools), `Action::"read"` (resources), `Action::"get"` (prompts) and `Action::"list"`)
    error policy.cedar:8:44 unable to guarantee safety of access to tag `"amount"` on entity type `Numbers` (try testing for the tag's presence with `.hasTag("amount") && ..`)
    error policy.cedar:9:44 unexpected type: expected Long but saw String (see docs/policy.md)
    "#);
}

/// May be intended, but deserves a warning: such a `forbid` forbids nothing.
#[test]
fn warns_about_rules_that_never_apply() {
    insta::assert_snapshot!(check_rules("@id(\"x\") forbid(principal, action, resource == Server::\"x\");\n"), @"
    warning policy.cedar:1:1 unable to find an applicable action given the policy scope constraints, in rule `x` (try replacing `==` with `in` in the resource clause)
    warning policy.cedar:1:1 policy is impossible: the policy expression evaluates to false for all valid requests, in rule `x` (see docs/policy.md)
    warning policy.cedar:1:48 rule `x` can never fire: there is no server `x` (`toolgate servers` lists the servers)
    ");
    insta::assert_snapshot!(check_rules("forbid(principal, action, resource) when { context.tainted };\n"), @"warning policy.cedar:1:44 a rule can never fire: every server is trusted, so nothing can taint a session (remove `trusted` from servers whose content others write)");
}

/// Cedar's parser would overflow the stack.
#[test]
fn rejects_deeply_nested_rules() {
    let deep = format!("permit(principal, action, resource) when {{ {}", "(".repeat(100_000));
    insta::assert_snapshot!(check_rules(&deep), @"error policy.cedar:1:59 more than 16 nested brackets (split it into several rules, or use sets)");
}
