//! The agent without a model: the real executable, real tools, no key and no network.

use serde_json::json;

use crate::agent::events;
use crate::support::program::Program;
use crate::support::test_server::entry;

/// Creates a project with the tools of the quickstart and long timeouts.
fn quickstart() -> Program {
    let read = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart");
        fs_err::read_to_string(folder.join(name)).expect("it is in the repository")
    };
    // Timeouts must not depend on the load of the machine.
    let tools = read("tools/tools.json").replace(r#""response_time": "medium""#, r#""timeout": "50s""#);
    assert!(tools.contains("50s"), "the example has changed");
    let config = json!({ "registries": { "tools": "tools/tools.json", "mcp": "mcp.json" } });
    Program::new(&[
        ("toolgate.yaml", &config.to_string()),
        ("tools/tools.json", &tools),
        ("tools/word_count.py", &read("tools/word_count.py")),
        ("tools/disk_usage.sh", &read("tools/disk_usage.sh")),
        ("mcp.json", &json!({ "servers": { "kit": entry("good") } }).to_string()),
    ])
    .with("TOOLGATE_LOG", "off")
}

#[test]
fn finds_fills_and_calls_a_tool() {
    let program = quickstart();
    let run = program.run_list(&["run", "count the words of 'to be or not to be'"]);
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.contains("\"words\": 6") || run.stdout.contains("\"words\":6"), "{run}");
    assert!(run.stderr.contains("word_count {\"text\":\"to be or not to be\"}"), "{run}");
    // The call takes the same pipeline as every call.
    let log = program.run("log --json");
    assert!(log.stdout.contains("\"word_count\""), "{log}");
}

/// The task is worded as a user would, unlike the description of the tool.
#[test]
fn a_question_about_quoted_text_calls_the_tool_for_text() {
    let run = quickstart().run_list(&["run", "how many words are in 'the quick brown fox'"]);
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.replace(' ', "").contains("\"words\":4"), "{run}");
}

#[test]
fn a_task_without_a_tool_is_answered_directly() {
    let run = quickstart().run_list(&["run", "why is the sky blue?"]);
    assert_eq!(run.code, 1, "nothing was done: {run}");
    assert!(run.stdout.starts_with("This request needs no tool"), "{run}");
}

#[test]
fn missing_arguments_are_requested_from_the_user() {
    let program = quickstart();
    let run = program.run_list(&["run", "--json", "word_count"]);
    let call = events(&run).into_iter().find(|event| event["event"] == "call");
    let call = call.unwrap_or_else(|| panic!("nothing was called: {run}"));
    assert_eq!(call["tool"], "request_human_input", "{run}");
    assert!(call.to_string().contains("For `word_count` I need `text`"), "{run}");
    // No user is present, and the argument must not be invented.
    let last = events(&run).pop().expect("an ended event");
    assert!(
        last["answer"].as_str().unwrap_or_default().starts_with("`word_count` was not called: "),
        "{run}"
    );
}
