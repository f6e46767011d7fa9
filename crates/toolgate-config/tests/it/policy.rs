//! `policy.cedar`: found, named, refused with every mistake.

use toolgate_config::Loaded;

use super::{config, errors, loaded, told};

const GOOD: &str = "permit(principal == Caller::\"ann\", action, resource);\n";

#[test]
fn it_is_found_beside_any_project_file() {
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
fn a_named_one_is_read_in_its_place() {
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
fn one_that_is_not_there_is_an_error() {
    let told = errors(&loaded(&[("toolgate.yaml", "policy: none.cedar\n")], &[]));
    assert_eq!(
        told,
        [
            "toolgate.yaml:1:9 the policy `none.cedar` does not exist (create it, or remove it here; paths start \
             at the project folder)"
        ]
    );
    let told = errors(&loaded(&[("toolgate.yaml", "name: x\n"), ("policy.cedar/x", "")], &[]));
    assert_eq!(told, ["`policy.cedar` cannot be read: it is a folder"]);
}

/// What is told of these rules.
fn rules(text: &str) -> String {
    let loaded: Loaded = loaded(&[("toolgate.yaml", "name: x\n"), ("policy.cedar", text)], &[]);
    assert_eq!(loaded.config.is_some(), !loaded.report.has_errors());
    told(&loaded)
}

#[test]
fn rules_that_do_not_parse() {
    insta::assert_snapshot!(rules("permit(principal, action, resource);\n\nforbid(principal, action, resource"), @"error policy.cedar:3:35 unexpected end of input (docs/policy.md shows what rules can say)");
    insta::assert_snapshot!(rules("permit(principal, action);\npermit(principal, action, resource) when { 1 + };\n"), @"error policy.cedar:2:48 unexpected token `}` (docs/policy.md shows what rules can say)");
    insta::assert_snapshot!(rules("permit(principal, action, ressource);\npermitt(principal, action, resource);\n"), @"
    error policy.cedar:1:27 found an invalid variable in the policy scope: ressource (policy scopes must contain a `principal`, `action`, and `resource` element in that order)
    error policy.cedar:2:1 invalid policy effect: permitt (effect must be either `permit` or `forbid`)
    ");
    assert_eq!(rules("// No rules yet.\n"), "");
}

#[test]
fn every_rule_that_does_not_type_check() {
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
    insta::assert_snapshot!(rules(text), @r#"
    error policy.cedar:5:10 attribute `colour` on entity type `Tool` not found, in rule `red` (docs/policy.md shows what rules can say)
    error policy.cedar:6:29 unrecognized action `Action::"calls"` (there is `Caller`, `Tool` and `Server`, `Action::"call"` and `Action::"list"`)
    error policy.cedar:7:21 unrecognized entity type `User` (there is `Caller`, `Tool` and `Server`, `Action::"call"` and `Action::"list"`)
    error policy.cedar:8:44 unable to guarantee safety of access to tag `"amount"` on entity type `Numbers` (try testing for the tag's presence with `.hasTag("amount") && ..`)
    error policy.cedar:9:44 unexpected type: expected Long but saw String (docs/policy.md shows what rules can say)
    "#);
}

/// It may be meant, and is worth a word: a `forbid` like this forbids nothing.
#[test]
fn a_rule_that_can_never_apply_is_a_warning() {
    insta::assert_snapshot!(rules("@id(\"x\") forbid(principal, action, resource == Server::\"x\");\n"), @"
    warning policy.cedar:1:1 unable to find an applicable action given the policy scope constraints, in rule `x` (try replacing `==` with `in` in the resource clause)
    warning policy.cedar:1:1 policy is impossible: the policy expression evaluates to false for all valid requests, in rule `x` (docs/policy.md shows what rules can say)
    ");
}

/// The parser of Cedar would use up the stack.
#[test]
fn rules_that_are_too_deep_are_told() {
    let deep = format!("permit(principal, action, resource) when {{ {}", "(".repeat(100_000));
    insta::assert_snapshot!(rules(&deep), @"error policy.cedar:1:59 more than 16 brackets in brackets (make more rules of it, or use sets)");
}
