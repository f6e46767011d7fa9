//! Stored results: stored by one process, read by another.

use serde_json::{Value as Json, json};

use crate::support::program::Program;
use crate::support::test_server::testkit;

fn project(results: Json) -> Program {
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off");
    let server = json!({ "name": "bank", "command": testkit(), "args": ["good"], "mode": "dynamic",
        "default_tool_config": { "max_instances": 5, "timeout": "60s" } });
    let callers =
        json!([{ "id": "ann", "permissions": ["bank:*"] }, { "id": "bob", "permissions": ["bank:*"] }]);
    let project = json!({ "toolbox": { "mcps": [server] }, "results": results, "callers": callers });
    program.write("toolgate.yaml", project.to_string());
    program
}

/// Returns a text of many lines, of which the last is distinct.
fn large() -> String {
    let lines: Vec<_> = (0..500).map(|line| format!("line {line} of the report")).collect();
    format!("{}\nthe needle is here", lines.join("\n"))
}

fn call(program: &Program, more: &str) -> Json {
    let arguments = json!({ "text": large() }).to_string();
    let words = ["tools", "call", "bank__echo", "--json", "--args", &arguments];
    program.run_list(&words.into_iter().chain(more.split_whitespace()).collect::<Vec<_>>()).json()
}

#[test]
fn stored_by_one_process_and_read_by_another() {
    let program = project(json!({ "max_inline": "1KiB" }));
    let envelope = call(&program, "--as ann");
    let content = envelope["data"].as_array().expect("content");
    assert_eq!(content[0]["text"].as_str().map(str::len), Some(1024), "{envelope}");
    let uri = content[1]["uri"].as_str().expect("a link");
    let next = &envelope["agentHints"]["suggestedNextActions"][0];
    assert_eq!((next["action"].as_str(), next["data"]["uri"].as_str()), (Some("read_result"), Some(uri)));

    let read = |more: &str| program.run(&format!("tools call read_result uri={uri} --json {more}"));
    let found = read("pointer=/text grep=needle context=1 --as ann");
    assert_eq!(found.json()["data"]["matches"], 1, "{found}");
    let plain = program.run(&format!("tools call read_result uri={uri} pointer=/text grep=needle --as ann"));
    assert_eq!(plain.stdout, "501: the needle is here\n", "{plain}");
    let page = read("offset=100 length=10 --as ann");
    assert_eq!(page.json()["data"]["nextOffset"], 110, "{page}");
    let text = page.json()["content"][0]["text"].as_str().map(str::len);
    assert_eq!(text, Some(10), "the text is beside the place: {page}");
    let other_callers = read("--as bob");
    assert_eq!(other_callers.json()["error"]["code"], "tool_execution_error", "{other_callers}");
    assert!(other_callers.stdout.contains("there is no stored result"), "{other_callers}");

    let logged = program.run("log --tool echo --json");
    assert!(logged.stdout.contains("the needle is here"), "the log has all of it: {logged}");
    let whole = call(&program, "--as ann --whole");
    assert!(whole["data"][0]["text"].as_str().is_some_and(|text| text.contains("the needle is here")));
}

#[test]
fn stored_results_expire_and_are_limited() {
    let program = project(json!({ "max_inline": "1KiB", "keep": "1ms" }));
    let envelope = call(&program, "--as ann");
    let uri = envelope["data"][1]["uri"].as_str().expect("a link");
    let gone = program.run(&format!("tools call read_result uri={uri} --json --as ann"));
    assert!(gone.stdout.contains("there is no stored result"), "{gone}");

    let program = project(json!({ "max_inline": "1KiB", "max_disk": "2KiB" }));
    let envelope = call(&program, "--as ann");
    assert_eq!(envelope["data"].as_array().map(Vec::len), Some(2));
    assert!(envelope["data"][1]["uri"].is_null(), "it is larger than all may be: {envelope}");
    assert!(envelope.to_string().contains("the rest could not be stored"));
}

#[test]
fn the_owner_reads_them_as_resources() {
    let program = project(json!({ "max_inline": "1KiB" }));
    let envelope = call(&program, "");
    let uri = envelope["data"][1]["uri"].as_str().expect("a link");
    let read = program.run(&format!("resources read toolgate {uri} --json"));
    assert!(read.stdout.contains("the needle is here"), "{read}");
    assert!(read.stdout.contains("application/json"), "{read}");
}

#[test]
fn without_the_config_results_are_complete() {
    let program = project(Json::Null);
    let path = program.path("toolgate.yaml");
    let text = fs_err::read_to_string(&path).expect("a text").replace(r#","results":null"#, "");
    fs_err::write(&path, text).expect("it can be written");
    let envelope = call(&program, "--as ann");
    assert!(
        envelope["data"][0]["text"].as_str().is_some_and(|text| text.contains("the needle is here")),
        "{envelope}"
    );
    let listed = program.run("tools list --json");
    assert!(!listed.stdout.contains("read_result"), "{listed}");
}
