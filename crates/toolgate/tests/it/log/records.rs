//! Records: every call is logged, and later changes of the log are detected.

use serde_json::{Value as Json, json};

use crate::support::program::Program;
use crate::support::test_server::testkit;

fn project() -> Program {
    let server = json!({ "command": testkit(), "args": ["good"], "env": { "KEY": "${KEY}" } });
    let program = Program::new(&[("mcp.json", &json!({ "servers": { "s": server } }).to_string())]);
    program.with("TOOLGATE_LOG", "off").with("KEY", "correct-horse-battery")
}

fn calls(program: &Program, filter: &str) -> Vec<Json> {
    let run = program.run(&format!("log --json {filter}"));
    assert_eq!(run.code, 0, "{run}");
    run.stdout.lines().map(|line| serde_json::from_str(line).expect("one object on a line")).collect()
}

/// Returns each call as tool, decision and outcome.
fn summaries(calls: &[Json]) -> Vec<String> {
    let word = |value: &Json| value.as_str().unwrap_or("-").to_owned();
    let one = |call: &Json| {
        let (begin, end) = (&call["begin"], &call["end"]);
        format!(
            "{} {} {} {}",
            word(&begin["tool"]),
            word(&begin["decision"]),
            word(&end["status"]),
            word(&end["error"]["code"])
        )
    };
    calls.iter().map(one).collect()
}

#[test]
fn every_call_is_recorded() {
    let program = project();
    assert!(calls(&program, "").is_empty());
    for call in ["s__echo text=hello", "s__fail", "s__nothing", "s__echo --args {\"text\":\"x\"} --as nobody"]
    {
        program.run(&format!("tools call {call}"));
    }
    program.write("policy.cedar", r#"@id("never") forbid(principal, action == Action::"call", resource);"#);
    program.run("tools call s__echo text=no");
    let all = calls(&program, "");
    let expected = [
        "echo allow success -",
        "fail allow error tool_execution_error",
        "s__nothing undecided error tool_not_found",
        "echo deny error unauthorized",
    ];
    assert_eq!(summaries(&all), expected);
    let first = &all[0];
    assert_eq!((&first["begin"]["caller"], &first["begin"]["server"]), (&json!("owner"), &json!("s")));
    assert_eq!(first["begin"]["arguments"], json!({ "text": "hello" }));
    assert!(first["begin"]["definition"].as_str().is_some_and(|hash| hash.starts_with("sha256:")));
    assert!(first["end"]["output"].to_string().contains("hello"));
    assert_eq!(first["end"]["attempts"], 1);
    // Filters of `log`.
    assert_eq!(summaries(&calls(&program, "--status error --tool fail")), [expected[1]]);
    assert_eq!(summaries(&calls(&program, "--grep hello --since 1h")), [expected[0]]);
    assert!(calls(&program, "--until 2020-01-01").is_empty());
    let id = first["begin"]["call"].as_str().expect("an id");
    assert_eq!(program.run(&format!("log show {id} --json")).json()["begin"]["call"], id);
    assert_eq!(program.run("log show nothing").code, 1);
    let stats = program.run("log stats --json").json();
    assert_eq!(
        (&stats[0]["tool"], &stats[0]["stats"]["count"], &stats[0]["stats"]["errors"]),
        (&json!("echo"), &json!(2), &json!(1))
    );
    let csv = program.run("log export --csv").stdout;
    assert_eq!(csv.lines().count(), 5, "a head and four calls: {csv}");
    assert_eq!(program.read(".toolgate/.gitignore"), "*\n");
}

#[test]
fn tampering_is_detected() {
    let program = project();
    program.run("tools call s__echo text=one");
    program.run("tools call s__echo text=two");
    let run = program.run("log verify");
    assert_eq!((run.code, run.stdout.as_str()), (0, "the log is intact: 6 records, 0 faults\n"));
    let files = program.files();
    let (path, bytes) =
        files.iter().find(|(path, _)| path.extension().is_some_and(|end| end == "jsonl")).expect("the log");
    let text = String::from_utf8(bytes.clone()).expect("UTF-8").replacen("one", "ONE", 1);
    fs_err::write(path, text).expect("it can be written");
    let run = program.run("log verify");
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains(":2: the hash is wrong"), "{run}");
}

#[test]
fn secrets_are_masked() {
    let program = project();
    program.run("tools call s__echo text=my-correct-horse-battery-staple password=hunter2hunter2");
    let files = program.files();
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with(program.path(".toolgate"))) {
        let text = String::from_utf8_lossy(bytes);
        for secret in ["correct-horse-battery", "hunter2hunter2"] {
            assert!(!text.contains(secret), "{secret} is in {}", path.display());
        }
    }
    assert_eq!(calls(&program, "").len(), 1);
}

/// Two processes write concurrently, and no record is lost.
#[test]
fn processes_write_concurrently() {
    let program = project();
    std::thread::scope(|scope| {
        for n in 0..6 {
            let program = &program;
            scope.spawn(move || assert_eq!(program.run(&format!("tools call s__echo n={n}")).code, 0));
        }
    });
    assert_eq!(calls(&program, "").len(), 6);
    assert_eq!(
        program.run("log verify --json").json(),
        json!({ "records": 18, "faults": [], "whole": true })
    );
}

#[test]
fn a_call_that_cannot_be_recorded_is_not_made() {
    let program = project();
    program.write(".toolgate/log", "a file blocks the folder");
    let run = program.run("tools call s__echo text=x");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("cannot write the execution log, so no call is made"), "{run}");
}

/// `--since` takes durations and dates; invalid ones are rejected first.
#[test]
fn since_accepts_durations_and_dates() {
    let program = project();
    for (command, bad) in
        [("log --since", "tomorrow"), ("log --until", "2026-02-30"), ("log stats --since", "x")]
    {
        let run = program.run(&format!("{command} {bad}"));
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run}");
        assert!(
            run.stderr.contains(&format!("`{bad}` is neither a time such as 2026-11-15T08:00:00Z")),
            "{run}"
        );
    }
    program.run("tools call s__echo text=hello");
    for since in ["yesterday", "2h", "2026-11-15", "2026-11-15T08:00:00Z"] {
        assert_eq!(calls(&program, &format!("--since {since}")).len(), 1, "{since}");
    }
    assert!(calls(&program, "--until yesterday").is_empty());
}
