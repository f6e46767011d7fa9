//! `toolgate policy test`: replays logged calls against other rules.

use serde_json::json;

use crate::support::program::Program;
use crate::support::test_server::testkit;

const CALLERS: &str = "callers: [{ id: ann, permissions: ['s:*'] }, { id: bob, permissions: ['s:fail'] }]\nregistries: { mcp: mcp.json }\n";

/// Creates a project where `ann` called three times, once with a secret, and `bob` once, which was denied.
fn project() -> Program {
    let server = json!({ "command": testkit(), "args": ["good"] });
    let program = Program::new(&[
        ("mcp.json", &json!({ "servers": { "s": server } }).to_string()),
        ("toolgate.yaml", CALLERS),
    ]);
    let program = program.with("TOOLGATE_LOG", "off");
    for (call, code) in [
        ("echo message=small --as ann", 0),
        ("echo message=large --as ann", 0),
        ("echo message=large password=hunter2hunter2 --as ann", 0),
        ("echo message=small --as bob", 1),
    ] {
        let run = program.run(&format!("tools call {call}"));
        assert_eq!(run.code, code, "{run}");
    }
    program
}

fn test(program: &Program, rules: &str, flags: &str) -> (i32, String) {
    program.write("candidate.cedar", rules);
    let run = program.run(&format!("policy test candidate.cedar {flags}"));
    // Ids differ between runs.
    let without_id = |line: &str| line.split_once(", for example ").map_or(line, |(text, _)| text).to_owned();
    (run.code, run.stdout.lines().map(without_id).collect::<Vec<_>>().join("\n"))
}

#[test]
fn equal_rules_change_nothing() {
    let program = project();
    let (code, output) = test(&program, r#"forbid(principal == Caller::"eve", action, resource);"#, "");
    assert_eq!(
        (code, output.as_str()),
        (
            0,
            "4 calls: 0 would change, 4 would not; 1 with incomplete arguments in the record, of which 0 would change"
        )
    );
}

#[test]
fn changed_decisions_are_listed_by_caller() {
    let program = project();
    let rules = r#"
        @id("no-large") forbid(principal, action == Action::"call", resource)
          when { context.arguments.hasTag("message") && context.arguments.getTag("message") == "large" };
        @id("bob-too") permit(principal == Caller::"bob", action, resource);
    "#;
    let (code, output) = test(&program, rules, "");
    insta::assert_snapshot!(format!("{code}\n{output}"), @"
    1
    allow → deny  ann  echo  1 call by no-large
    allow → deny  ann  echo  1 call by no-large, uncertain: the record does not have all arguments
    deny → allow  bob  echo  1 call by bob-too
    4 calls: 3 would change, 1 would not; 1 with incomplete arguments in the record, of which 1 would change
    ");
    let (code, output) = test(&program, rules, "--caller bob");
    assert_eq!(code, 1, "{output}");
    assert!(
        output.starts_with("deny → allow  bob  echo  1 call by bob-too\n1 call: 1 would change"),
        "{output}"
    );
    assert_eq!(test(&program, rules, "--tool fail").0, 0);
    assert_eq!(test(&program, rules, "--since 2099-01-01").0, 0);
    let asks = r#"@id("sure") @ask("Sure?") forbid(principal == Caller::"ann", action == Action::"call", resource);"#;
    program.write("candidate.cedar", asks);
    let document = program.run("policy test candidate.cedar --json").json();
    assert_eq!(
        (&document["replayed"], &document["uncertain"], &document["gone"]),
        (&json!(4), &json!(1), &json!(0))
    );
    let flips = document["flips"].as_array().expect("a list");
    assert_eq!(flips.len(), 2);
    assert_eq!(
        (&flips[0]["from"], &flips[0]["to"], &flips[0]["count"]),
        (&json!("allow"), &json!("ask"), &json!(2))
    );
    assert_eq!((&flips[1]["certain"], &flips[0]["rules"]), (&json!(false), &json!(["sure"])));
    assert!(document["policy"].as_str().is_some_and(|version| version.starts_with("sha256:")));
}

/// A declined approval counts as `ask`: the same rule changes nothing.
#[test]
fn a_declined_approval_still_counts_as_ask() {
    let program = project();
    let asks = r#"@ask("Sure?") forbid(principal, action == Action::"call", resource == Tool::"fail");"#;
    program.write("policy.cedar", asks);
    program.run("tools call fail --as ann");
    let (code, output) = test(&program, asks, "--tool fail");
    assert_eq!(code, 0, "{output}");
    assert!(output.starts_with("1 call: 0 would change"), "{output}");
}

#[test]
fn removed_tools_and_callers_are_skipped() {
    let program = project();
    program.write("toolgate.yaml", CALLERS.replace("bob", "eve"));
    let (code, output) = test(&program, "permit(principal, action, resource);", "");
    assert_eq!(code, 0, "{output}");
    assert!(output.ends_with("1 call skipped: the tool or the caller no longer exists"), "{output}");
}

#[test]
fn invalid_rules_are_rejected() {
    let program = project();
    program.write(
        "candidate.cedar",
        "permit(principal, action, resource)\n  when { resource.colour == \"red\" };",
    );
    let run = program.run("policy test candidate.cedar");
    assert_eq!((run.code, run.stdout.as_str()), (78, ""), "{run}");
    assert!(run.stderr.contains("candidate.cedar:2:"), "{run}");
    let run = program.run("policy test nowhere.cedar --json");
    assert_eq!((run.code, &run.json()["ok"]), (78, &json!(false)), "{run}");
}

/// A call that needed approval and did not get it is recognised by a field of its record.
#[test]
fn refused_approvals_are_recognised() {
    let server = json!({ "command": testkit(), "args": ["good"] });
    let asks = r#"@id("sure") @ask("Sure?") forbid(principal, action == Action::"call", resource);"#;
    let program = Program::new(&[
        ("mcp.json", &json!({ "servers": { "s": server } }).to_string()),
        ("toolgate.yaml", CALLERS),
        ("policy.cedar", asks),
    ])
    .with("TOOLGATE_LOG", "off");
    assert_eq!(program.run("tools call echo message=x --as ann").code, 1, "there is no one to approve it");
    let record = program.run("log --json").json();
    assert_eq!(
        (&record["begin"]["decision"], &record["begin"]["not_approved"]),
        (&json!("deny"), &json!(true))
    );
    assert_eq!(test(&program, asks, "").0, 0, "the same question");
    let (code, output) = test(&program, "", "");
    assert!(code == 1 && output.starts_with("ask → allow  ann  echo  1 call"), "{output}");
}

/// Of a refused call, long arguments are not recorded, so its decision is uncertain.
#[test]
fn refused_calls_with_long_arguments_are_uncertain() {
    let program = project();
    let run = program.run(&format!("tools call echo message={} --as bob", "x".repeat(5_000)));
    assert_eq!(run.code, 1, "{run}");
    let rules = r#"@id("bob-too") permit(principal == Caller::"bob", action, resource);"#;
    let (code, output) = test(&program, rules, "");
    insta::assert_snapshot!(format!("{code}\n{output}"), @"
    1
    deny → allow  bob  echo  1 call by bob-too
    deny → allow  bob  echo  1 call by bob-too, uncertain: the record does not have all arguments
    5 calls: 2 would change, 3 would not; 2 with incomplete arguments in the record, of which 1 would change
    ");
}
