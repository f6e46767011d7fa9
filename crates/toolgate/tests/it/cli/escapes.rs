//! Text of servers, callers and tasks forges no line and controls no terminal, in every command that shows it.

use serde_json::json;

use crate::support::program::{Program, RunOutput};
use crate::support::test_server::{entry, project};

/// Clears the screen, reverses the text, writes in black, and forges a line of the log.
const EVIL: &str = "evil\u{1b}[2J\u{202e}\u{1b}[30m\nFORGED 2026-01-01T00:00:00.000Z  transfer by owner  1 ms  success\u{1b}[30m";

/// Removes the styles of Toolgate itself.
fn without_styles(text: &str) -> String {
    let styles = ["0", "1", "2", "1;31", "31", "1;32", "32", "1;33", "33", "1;36", "36", "35", "34"];
    styles.iter().fold(text.to_owned(), |text, style| text.replace(&format!("\u{1b}[{style}m"), ""))
}

/// Runs a command with colours, as at a terminal, and checks its output. Returns the output without styles.
fn run_checked(program: &Program, command: &[&str]) -> RunOutput {
    let arguments: Vec<&str> = ["--color", "always"].into_iter().chain(command.iter().copied()).collect();
    let mut run = program.run_list(&arguments);
    assert_ne!(run.code, 2, "not a command: {arguments:?}: {run}");
    for text in [&mut run.stdout, &mut run.stderr] {
        *text = without_styles(text);
        let bad = text
            .chars()
            .find(|c| c.is_control() && !matches!(c, '\n' | '\t') || ('\u{202a}'..='\u{202e}').contains(c));
        assert_eq!(bad, None, "{arguments:?}: {text:?}");
        let forged = text.lines().find(|line| line.trim_start().starts_with("FORGED"));
        // The lines of a result are its own.
        let is_result = command.get(1).is_some_and(|verb| ["call", "read", "get"].contains(verb));
        assert!(forged.is_none() || is_result, "{arguments:?}: {text:?}");
    }
    run
}

#[test]
fn no_command_prints_escapes_or_forged_lines() {
    let program = project(json!({ "s": entry("escapes") }));
    let listed = program.run("tools list --json").json();
    let names: Vec<_> = listed.as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    let name = |at: usize| names[at].as_str().expect("a name");
    // A real run, whose task is hostile.
    run_checked(&program, &["run", EVIL]);
    let runs = program.run("runs --json").json();
    let run = runs[0]["run"].as_str().expect("the id of a run");
    let prompts = program.run("prompts list --json").json();
    let prompt = prompts[0]["name"].as_str().unwrap_or("greet");
    let commands: Vec<Vec<&str>> = vec![
        vec!["check"],
        vec!["servers"],
        vec!["servers", "show", "s"],
        vec!["servers", "approve", "s", "--yes"],
        vec!["tools", "list"],
        vec!["tools", "show", name(0)],
        vec!["tools", "call", name(0), "--args", "{\"message\":\"\\u001b[2J\"}"],
        vec!["tools", "call", name(2), "--args", "{}", "--trace"],
        vec!["tools", "call", "s__fail", "--args", "{}"],
        vec!["tools", "call", EVIL, "--args", "{}"],
        vec!["tools", "search", "echo"],
        vec!["prompts", "list"],
        vec!["prompts", "get", "s", prompt, "who=you"],
        vec!["prompts", "get", "s", EVIL],
        vec!["resources", "list"],
        vec!["resources", "read", "s", "test://one"],
        vec!["why", "owner", name(0)],
        vec!["why", EVIL, EVIL],
        vec!["log"],
        vec!["log", "stats"],
        vec!["log", "show", EVIL],
        vec!["runs"],
        vec!["runs", "show", run],
        vec!["runs", "show", EVIL],
        vec!["callers", "list"],
        vec!["callers", "remove", EVIL],
        vec!["servers", "show", EVIL],
        vec!["servers", "login", EVIL],
        vec!["servers", "remove", EVIL, "--yes"],
        vec!["questions"],
        vec!["-C", EVIL, "check"],
    ];
    let mut shown = 0;
    for command in commands {
        let run = run_checked(&program, &command);
        shown += usize::from(run.stdout.contains("·[2J") || run.stderr.contains("·[2J"));
    }
    assert!(shown > 10, "only {shown} commands showed a hostile text");
    // One line per record.
    let records = program.run("log --json").stdout.lines().count();
    let log = run_checked(&program, &["log"]);
    assert!(log.stdout.contains("FORGED"), "{log}");
    assert_eq!(log.stdout.lines().count(), records, "{log}");
}
