//! The agent without a model: the real executable, real tools, no key and no network.

use serde_json::json;

use crate::agent::events;
use crate::program::Program;
use crate::servers::entry;

/// The quickstart's tools, with as much time as they want.
fn quickstart() -> Program {
    let read = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart");
        fs_err::read_to_string(folder.join(name)).expect("it is in the repository")
    };
    // Only what is meant to be late is late, however busy the machine is.
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
fn a_tool_is_found_filled_and_called() {
    let program = quickstart();
    let run = program.run_list(&["run", "count the words of 'to be or not to be'"]);
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.contains("\"words\": 6") || run.stdout.contains("\"words\":6"), "{run}");
    assert!(run.stderr.contains("word_count {\"text\":\"to be or not to be\"}"), "{run}");
    // The road is that of every call.
    let log = program.run("log --json");
    assert!(log.stdout.contains("\"word_count\""), "{log}");
}

/// Asked as people ask, and not as the tool is described.
#[test]
fn a_question_about_a_quotation_is_for_the_tool_that_takes_it() {
    let run = quickstart().run_list(&["run", "how many words are in 'the quick brown fox'"]);
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.replace(' ', "").contains("\"words\":4"), "{run}");
}

#[test]
fn what_needs_no_tool_is_answered_as_such() {
    let run = quickstart().run_list(&["run", "why is the sky blue?"]);
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.starts_with("This request needs no tool"), "{run}");
}

#[test]
fn what_is_missing_is_asked_of_the_person() {
    let program = quickstart();
    let run = program.run_list(&["run", "--json", "word_count"]);
    let asked = events(&run).into_iter().find(|event| event["event"] == "call");
    let asked = asked.unwrap_or_else(|| panic!("nothing was called: {run}"));
    assert_eq!(asked["tool"], "request_human_input", "{run}");
    assert!(asked.to_string().contains("For `word_count` I need `text`"), "{run}");
    // Nobody is there, and nothing is made up.
    let last = events(&run).pop().expect("there is an end");
    assert!(
        last["answer"].as_str().unwrap_or_default().starts_with("`word_count` was not called: "),
        "{run}"
    );
}
