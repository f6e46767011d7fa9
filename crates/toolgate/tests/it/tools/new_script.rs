//! `toolgate tools new`: from a new script to tested examples.

use serde_json::{Value as Json, json};

use crate::support::gateway::wait_until;
use crate::support::program::Program;
use crate::support::scripts::{call, project, write_script};

#[test]
fn from_a_template_to_a_tested_tool() {
    let program = Program::new(&[]);
    assert_eq!(program.run("init").code, 0);
    let before = program.read("tools/tools.json");
    for (language, file) in [("python", "shout.py"), ("sh", "whisper.sh")] {
        let name = file.split('.').next().expect("a name");
        let run = program.run(&format!("tools new {name} --lang {language}"));
        assert_eq!(run.code, 0, "{run}");
        assert!(run.stderr.contains(&format!("wrote tools/{file}")), "{run}");
        assert!(run.stderr.contains(&format!("`toolgate tools call {name} text=hello`")), "{run}");
        // The suggested commands work.
        assert_eq!(
            call(&program, name, &json!({ "text": "hello" }))["data"],
            json!({ "text": "hello", "length": 5 })
        );
    }
    // Existing entries stay unchanged.
    let after = program.read("tools/tools.json");
    assert!(after.starts_with(before.split("\n  ]").next().expect("the tools")), "{after}");
    assert_eq!(program.run("check").code, 0);
    // One tool promises to be fast, which Python may miss on a busy machine.
    wait_until("all examples hold", || {
        let run = program.run("tools test");
        assert!(run.stderr.contains("no examples: disk_usage"), "{run}");
        run.code == 0 && run.stdout.lines().last() == Some("3 passed, 0 failed")
    });

    write_script(
        &program,
        "shout.py",
        "def run(args):\n  return {'text': args['text'].upper(), 'length': 5}\n",
    );
    let run = program.run("tools test shout");
    assert_eq!(run.code, 1, "{run}");
    for line in [
        "FAILED shout: A short text",
        r#"    expected {"text":"hello","length":5}"#,
        r#"    got      {"text":"HELLO","length":5}"#,
        "0 passed, 1 failed",
    ] {
        assert!(run.stdout.contains(line), "{line}: {run}");
    }
    assert_eq!(program.run("tools test whisper").code, 0, "the other is not concerned");
}

#[test]
fn nothing_is_overwritten() {
    let program = Program::new(&[]);
    program.run("init");
    program.write("tools/mine.py", "# mine\n");
    let before = program.files();
    for (arguments, code, expected) in [
        ("tools new mine", 1, "tools/mine.py was not written"),
        ("tools new word_count", 1, "tool `word_count` already exists"),
        ("tools new ../../out", 1, "invalid tool name"),
        ("tools new other --if-revision 0000000000000000", 1, ""),
        ("tools new other --lang cobol", 2, "cobol"),
    ] {
        let run = program.run(arguments);
        assert_eq!(run.code, code, "{arguments}: {run}");
        assert!(run.stderr.contains(expected), "{arguments}: {run}");
    }
    assert_eq!(program.files(), before);
    let refused = project(&[("tool.py", "", json!({ "timeout": "soon" }))]);
    assert_eq!(refused.run("tools new other").code, 78);
    let quoted = program.run_list(&["tools", "new", "quoted", "--description", "Says \"\"\"it\"\"\".\n\\"]);
    assert_eq!(quoted.code, 0, "{quoted}");
    assert_eq!(program.run("tools test quoted").code, 0, "a description cannot break the script");
    let document = program.run("tools new other --json").json();
    assert_eq!((&document["ok"], &document["name"]), (&json!(true), &json!("other")));
}

#[test]
fn examples_as_json() {
    let example = |description: &str, params: Json, expected: Json| json!({ "description": description, "params": params, "expected_result": expected });
    let examples = json!([
        example("a number", json!({ "give": 1 }), json!(1.0)),
        example("a text", json!({ "give": "a" }), json!("a")),
        example("a list", json!({ "give": [1, { "b": null }] }), json!([1, { "b": null }])),
        example("another", json!({ "give": { "a": 1, "b": 2 } }), json!({ "a": 1 })),
        { "description": "anything", "params": { "give": 7 } },
        { "description": "nothing", "params": {} },
    ]);
    let program =
        project(&[("tool.py", "def run(args):\n  return args['give']", json!({ "examples": examples }))]);
    let run = program.run("tools test --json");
    let document = run.json();
    assert_eq!((run.code, &document["passed"], &document["failed"]), (1, &json!(4), &json!(2)), "{run}");
    let passed: Vec<_> =
        document["examples"].as_array().expect("a list").iter().map(|one| &one["passed"]).collect();
    assert_eq!(passed, [true, true, true, false, true, false], "{run}");
    assert_eq!(document["examples"][3]["got"], json!({ "a": 1, "b": 2 }));
    assert_eq!(document["examples"][5]["error"], "tool_execution_error: KeyError: 'give'");
    let run = program.run("tools test nothing");
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("`nothing` is not one of your own tools"), "{run}");
}
