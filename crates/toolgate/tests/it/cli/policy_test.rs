//! `toolgate policy test`: what other rules would have decided about the calls that were made.

use serde_json::json;

use crate::program::Program;
use crate::servers::testkit;

const CALLERS: &str = "callers: [{ id: ann, permissions: ['s:*'] }, { id: bob, permissions: ['s:fail'] }]\nregistries: { mcp: mcp.json }\n";

/// A project in which ann called three times, once with a secret, and bob once, which was refused.
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
    // Ids differ from run to run.
    let without_id = |line: &str| line.split_once(", for example ").map_or(line, |(text, _)| text).to_owned();
    (run.code, run.stdout.lines().map(without_id).collect::<Vec<_>>().join("\n"))
}

#[test]
fn rules_that_change_nothing() {
    let program = project();
    let (code, told) = test(&program, r#"forbid(principal == Caller::"eve", action, resource);"#, "");
    assert_eq!(
        (code, told.as_str()),
        (
            0,
            "4 calls: 0 would change, 4 would not; 1 with incomplete arguments in the record, of which 0 would change"
        )
    );
}

#[test]
fn what_would_flip_and_for_whom() {
    let program = project();
    let rules = r#"
        @id("no-large") forbid(principal, action == Action::"call", resource)
          when { context.arguments.hasTag("message") && context.arguments.getTag("message") == "large" };
        @id("bob-too") permit(principal == Caller::"bob", action, resource);
    "#;
    let (code, told) = test(&program, rules, "");
    insta::assert_snapshot!(format!("{code}\n{told}"), @"
    1
    allow → deny  ann  echo  1 call by no-large
    allow → deny  ann  echo  1 call by no-large, uncertain: the record does not have all arguments
    deny → allow  bob  echo  1 call by bob-too
    4 calls: 3 would change, 1 would not; 1 with incomplete arguments in the record, of which 1 would change
    ");
    let (code, told) = test(&program, rules, "--caller bob");
    assert_eq!(code, 1, "{told}");
    assert!(told.starts_with("deny → allow  bob  echo  1 call by bob-too\n1 call: 1 would change"), "{told}");
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

/// What was asked about and answered with no was asked about: with the same rule nothing flips.
#[test]
fn a_question_stays_a_question() {
    let program = project();
    let asks = r#"@ask("Sure?") forbid(principal, action == Action::"call", resource == Tool::"fail");"#;
    program.write("policy.cedar", asks);
    program.run("tools call fail --as ann");
    let (code, told) = test(&program, asks, "--tool fail");
    assert_eq!(code, 0, "{told}");
    assert!(told.starts_with("1 call: 0 would change"), "{told}");
}

#[test]
fn what_is_gone_is_passed_over() {
    let program = project();
    program.write("toolgate.yaml", CALLERS.replace("bob", "eve"));
    let (code, told) = test(&program, "permit(principal, action, resource);", "");
    assert_eq!(code, 0, "{told}");
    assert!(told.ends_with("1 call skipped: the tool or the caller no longer exists"), "{told}");
}

#[test]
fn rules_that_are_wrong() {
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
