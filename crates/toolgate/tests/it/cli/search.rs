//! Tool search: ranking, permissions, advice, and accuracy on labelled queries.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, OWNER, wait_until};
use crate::support::program::{Program, RunOutput};
use crate::support::test_server::testkit;

fn gold(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../eval").join(name)
}

fn eval(flags: &str) -> RunOutput {
    let (lines, tools) = (gold("gold.jsonl"), gold("tools.json"));
    let (lines, tools) = (lines.to_string_lossy(), tools.to_string_lossy());
    let mut arguments = vec!["eval", &lines, "--tools", &tools];
    arguments.extend(flags.split_whitespace());
    Program::new(&[]).run_list(&arguments)
}

/// Creates a project with a server and a caller that may see none of its tools.
fn project() -> Program {
    let server = json!({ "command": testkit(), "args": ["good"] });
    Program::new(&[
        ("mcp.json", &json!({ "servers": { "s": server } }).to_string()),
        (
            "toolgate.yaml",
            "callers: [{ id: owner, permissions: ['*:*'] }, { id: bob, permissions: ['shop:*'] }]\nregistries: { mcp: mcp.json }\n",
        ),
    ])
    .with("TOOLGATE_LOG", "off")
}

fn names(run: &RunOutput) -> Vec<String> {
    let list = run.json();
    list.as_array()
        .expect("a list")
        .iter()
        .map(|hit| hit["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// The project's own thresholds, with the default seed.
#[test]
fn the_labelled_queries_reach_the_threshold() {
    let run = eval("--suite core --json --min-tool-top1 0.86 --min-recall5 0.97 --min-top1 0.85");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run}");
    let report = run.json();
    assert_eq!((&report["n"], &report["tool"]["n"]), (&json!(320), &json!(235)));
    assert_eq!(report["suites"]["core"]["top1"], report["top1"]);
    for kind in ["none", "ask"] {
        let precision = report[kind]["precision"].as_f64().unwrap();
        assert!(precision > 0.5 && precision <= 1.0, "{report}");
    }
    let run = eval("--suite core --catalog-size 20 --json --min-top1 0.91");
    assert_eq!(run.code, 0, "{run}");
    // The other sets: the figures reached, not all of them the goals (docs/search.md).
    let (lines, tools) = (gold("calibration.jsonl"), gold("calibration_tools.json"));
    let flags = ["--json", "--min-top1", "0.92", "--min-none-recall", "0.85"];
    let run = Program::new(&[]).run_list(
        &[&["eval", &*lines.to_string_lossy(), "--tools", &*tools.to_string_lossy()], &flags[..]].concat(),
    );
    let report = run.json();
    let figure = |pointer: &str| report.pointer(pointer).and_then(Json::as_f64).expect(pointer);
    assert_eq!(run.code, 0, "{run}");
    assert!(figure("/none/precision") >= 0.95 && figure("/tool/asked") <= 0.04, "{report}");
    assert!(figure("/confidence/error") <= 0.05, "{report}");
    let (lines, tools) = (gold("everyday.jsonl"), gold("builtin_tools.json"));
    let run = Program::new(&[]).run_list(&[
        "eval",
        &lines.to_string_lossy(),
        "--tools",
        &tools.to_string_lossy(),
        "--min-top1",
        "0.84",
    ]);
    assert_eq!(run.code, 0, "{run}");
}

#[test]
fn a_missed_threshold_fails() {
    let run = eval("--suite core --min-top1 0.999 --min-recall5 0.1");
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.starts_with("below --min-top1 0.999: 0."), "{run}");
    assert!(run.stdout.contains("expected") && run.stdout.contains("suite core: 320 lines"), "{run}");
    // A kind without queries does not reach its threshold.
    let program =
        Program::new(&[("gold.jsonl", "{\"query\": \"x\", \"kind\": \"none\"}\n"), ("tools.json", "[]")]);
    let run = program.run("eval gold.jsonl --tools tools.json --min-recall5 0.1");
    assert_eq!((run.code, run.stderr.as_str()), (1, "below --min-recall5 0.1: –\n"), "{run}");
}

#[test]
fn invalid_query_files_are_rejected() {
    let program = Program::new(&[
        ("bad.jsonl", "\n{\"query\": \"x\", \"kind\": \"tool\"}\n{\"query\": 3}\n"),
        ("other.jsonl", "{\"query\": \"x\", \"kind\": \"tool\", \"catalog\": \"c\"}\n"),
        ("empty.jsonl", "\n"),
        ("tools.json", "{\"catalogs\": {\"a\": [], \"b\": []}}"),
        ("no-tools.json", "{}"),
    ]);
    for (arguments, expected) in [
        ("eval bad.jsonl --tools tools.json", "bad.jsonl:3: "),
        ("eval other.jsonl --tools tools.json", "line 1 names an unknown catalog: `c`"),
        ("eval other.jsonl --tools no-tools.json", "no-tools.json contains no tools"),
        ("eval empty.jsonl --tools tools.json", "empty.jsonl contains no queries to measure"),
        ("eval none.jsonl", "none.jsonl"),
    ] {
        let run = program.run(arguments);
        assert_eq!(run.code, 1, "{run}");
        assert!(run.stderr.contains(expected), "{run}");
    }
}

#[test]
fn tools_of_a_project_are_measured() {
    let program = project();
    program.write(
        "gold.jsonl",
        "{\"query\": \"use echo for 'hello'\", \"kind\": \"tool\", \"tools\": [\"echo\"]}\n\
         {\"query\": \"why is the sea salty?\", \"kind\": \"none\"}\n",
    );
    let report = program.run("eval gold.jsonl --json").json();
    assert_eq!(
        (&report["n"], &report["recall5"], &report["none"]["recall"]),
        (&json!(2), &json!(1.0), &json!(1.0))
    );
    let report = program.run("eval gold.jsonl --json --as bob").json();
    assert_eq!(report["recall5"], json!(0.0), "bob does not know of it");
}

#[test]
fn tools_are_searched() {
    let program = project();
    let run = program.run("tools search --json echo");
    assert_eq!(run.code, 0, "{run}");
    assert_eq!(run.json()[0], json!({ "name": "echo", "score": 1.0 }));
    assert_eq!(names(&program.run("tools search --json --limit 1 a picture")), ["picture"]);
    let run = program.run("tools search --json --decide write a poem about the sea");
    let choice = run.json();
    assert_eq!((&choice["decision"], &choice["tool"]), (&json!("none"), &Json::Null), "{run}");
    assert!(choice["confidence"].as_f64().unwrap() > 0.5, "{run}");
    let run = program.run("tools search echo");
    assert!(run.stdout.starts_with("1.00 ██████████ echo"), "{run}");
    assert!(run.stdout.contains("use echo (100 % sure)"), "{run}");
    let run = program.run("tools search write a poem about the sea");
    assert!(run.stdout.contains("no tool is needed"), "{run}");
    assert_eq!(program.run("tools search").code, 2);
}

#[test]
fn search_hides_tools_the_caller_may_not_see() {
    let program = project();
    assert_eq!(names(&program.run("tools search --json --as bob echo a message")), Vec::<String>::new());
    let choice = program.run("tools search --json --decide --as bob echo").json();
    assert_eq!((&choice["tool"], &choice["hits"]), (&Json::Null, &json!([])), "{choice}");
}

#[test]
fn search_over_http_follows_changes() {
    let server = json!({ "command": testkit(), "args": ["good"] });
    let callers = json!([
        { "id": "owner", "permissions": ["*:*"] },
        { "id": "low", "permissions": ["shop:*"], "api_key": "low-key" },
    ]);
    let config =
        json!({ "callers": callers, "registries": { "tools": "tools/tools.json", "mcp": "mcp.json" } });
    let program = Program::new(&[
        ("toolgate.yaml", &config.to_string()),
        ("tools/tools.json", "{\"tools\": []}\n"),
        ("tools/search.py", ""),
        ("mcp.json", &json!({ "servers": { "s": server } }).to_string()),
    ]);
    let gateway = Gateway::serve(program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER));
    let found =
        |words: &str, key: &str| gateway.get(&format!("/v1/tools/search?q={words}&limit=1"), key).json();
    let answer = found("echo", OWNER);
    assert_eq!(
        (&answer["tools"][0]["name"], &answer["decision"]),
        (&json!("echo"), &json!("tool")),
        "{answer}"
    );
    assert_eq!((&answer["tool"], &answer["missing"]), (&json!("echo"), &json!([])));
    assert_eq!(found("echo", "low-key")["tools"], json!([]));
    assert_eq!(
        gateway.get("/v1/tools/search?q=x&colour=red", OWNER).status_and_code(),
        (400, "invalid_request".to_owned())
    );
    assert_eq!(gateway.get("/v1/tools/search", OWNER).status_and_code(), (404, "tool_not_found".to_owned()));
    // A tool named like a route is still a tool.
    let city =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let entry = json!({ "name": "search", "description": "Finds whales in the sea.", "input_schema": city });
    assert_eq!(gateway.post("/v1/tools", OWNER, &entry).status, 201);
    wait_until("it is found", || found("whales", OWNER)["tools"][0]["name"] == "search");
    assert_eq!(gateway.get("/v1/tools/search", OWNER).json()["name"], "search");
    let answer = found("find%20whales", OWNER);
    assert_eq!((&answer["decision"], &answer["missing"]), (&json!("ask"), &json!(["city"])), "{answer}");
    let gone = gateway.request("DELETE /v1/tools/search", &[&format!("X-API-Key: {OWNER}")], "");
    assert_eq!(gone.status, 204, "{gone:?}");
    wait_until("it is gone", || found("whales", OWNER)["tools"][0]["name"] != "search");
}
