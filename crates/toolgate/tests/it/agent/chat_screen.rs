//! The chat as a person sees it: the screen of a terminal, at two sizes, with a scripted model.

use serde_json::{Value as Json, json};

use crate::agent::{ScriptedModel, call, project};
use crate::support::program::Program;
use crate::support::terminal::{TerminalSession, TerminalSize};
use crate::support::test_server::entry;

const SMALL: TerminalSize = (24, 80);
const LARGE: TerminalSize = (40, 120);

/// Creates a project with the tools of `testkit good`, of which `echo` needs approval.
fn with_kit(model: &ScriptedModel, agent: &Json) -> Program {
    let more = json!({ "registries": { "mcp": "mcp.json" }, "agent": agent });
    let program = project(model, &more).with("TERM", "xterm");
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program.write(
        "policy.cedar",
        "@id(\"care\") @ask(\"Shall it?\") forbid(principal, action == Action::\"call\", resource == Tool::\"echo\");",
    );
    program
}

fn without_tools(model: &ScriptedModel) -> Program {
    project(model, &json!({})).with("TERM", "xterm")
}

fn open(program: &Program, size: TerminalSize) -> TerminalSession {
    let screen = TerminalSession::open_sized(program, &["chat"], "", size);
    screen.wait_for_prompt();
    screen
}

/// Ends the chat.
fn leave(mut screen: TerminalSession) {
    screen.wait_for_prompt();
    screen.keys("\u{4}");
    assert_eq!(screen.child.wait().expect("it ends").code(), Some(0), "{}", screen.scrollback());
}

/// The last message of the user in a request to the model.
fn last_message(model: &ScriptedModel, turn: usize) -> String {
    let seen = model.seen();
    let messages = seen[turn]["messages"].as_array().expect("messages");
    let user = messages.iter().rev().find(|message| message["role"] == "user");
    user.expect("a message")["content"].as_str().expect("a text").to_owned()
}

fn echo(id: &str, message: &str) -> Json {
    call(id, "echo", json!({ "message": message }))
}

#[test]
fn a_long_prompt_is_shown_once_at_any_width() {
    for (size, other) in [(SMALL, (24, 60)), (LARGE, (40, 72))] {
        let model = ScriptedModel::start(&json!([{ "text": "Thanks." }]));
        let program = without_tools(&model);
        let mut screen = open(&program, size);
        let words: Vec<String> = (0..60).map(|n| format!("word{n}")).collect();
        let text = words.join(" ");
        // Key by key, as a person types.
        for key in text.chars() {
            screen.keys(&key.to_string());
        }
        // Rows lose the space at their end.
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        let expected = dense(&text);
        let is_once = |shown: &str| dense(shown).matches(&expected).count() == 1;
        screen.wait_that("the whole prompt once", is_once);
        let rows = screen.rows();
        let first = rows.iter().position(|row| row.starts_with("› word0")).expect("the prompt");
        let columns = usize::from(size.1);
        assert!(rows[first].chars().count() >= columns - 1, "rows are full: {rows:?}");
        // The start of the line can be edited, and the rest moves.
        screen.keys("\u{1}well, ");
        screen.wait_screen("› well, word0 word1");
        screen.wait_that("the whole prompt once", is_once);
        screen.keys("\u{5}!");
        screen.wait_screen("word59!");
        screen.resize(other);
        screen.wait_that("the prompt at the new width", |shown| {
            let rows: Vec<&str> = shown.lines().collect();
            let first = rows.iter().rposition(|row| row.starts_with("› well, word0"));
            let is_full = |row: &str| row.chars().count() + 1 >= usize::from(other.1);
            first.is_some_and(|first| is_full(rows[first]) && dense(shown).contains("word59!"))
        });
        screen.keys("\r");
        screen.wait_screen("Thanks.");
        assert_eq!(last_message(&model, 0), format!("well, {text}!"));
        leave(screen);
    }
}

#[test]
fn history_is_searched_and_names_are_completed() {
    for size in [SMALL, LARGE] {
        let model =
            ScriptedModel::start(&json!([{ "text": "One." }, { "text": "Two." }, { "text": "Three." }]));
        let program = with_kit(&model, &json!({}));
        let mut screen = open(&program, size);
        for (line, answer) in [("the red fox\r", "One."), ("a blue bird\r", "Two.")] {
            screen.keys(line);
            screen.wait_screen(answer);
            screen.wait_for_prompt();
        }
        screen.keys("\u{12}red");
        screen.wait_screen("the red fox");
        screen.keys("\r");
        screen.wait_screen("Three.");
        assert_eq!(last_message(&model, 2), "the red fox");
        screen.wait_for_prompt();
        screen.keys("/why ec\t\r");
        screen.wait_screen("owner and echo");
        screen.wait_for_prompt();
        screen.keys("/too\t pict\r");
        screen.wait_that("the tools with a word", |shown| {
            shown.lines().any(|row| row == "picture") && !shown.lines().any(|row| row == "environment")
        });
        screen.wait_for_prompt();
        screen.keys("call pict\t");
        screen.wait_screen("› call picture");
        screen.keys("\u{3}");
        leave(screen);
    }
}

/// Text that is typed or pasted while the agent works stays out of its output, and is the next message.
#[test]
fn type_ahead_is_the_next_message() {
    for size in [SMALL, LARGE] {
        let folder = tempfile::tempdir().expect("a folder");
        let go = folder.path().join("go");
        let model = ScriptedModel::start(&json!([
            { "text": "The first words of a long answer, and the rest.", "waits": go },
            { "text": "Second." },
        ]));
        let program = without_tools(&model);
        let mut screen = open(&program, size);
        screen.keys("hello\r");
        // The first half is shown while the second is not there yet.
        screen.wait_screen("The first");
        screen.keys("\u{1b}[200~one\rtwo\rthree\u{1b}[201~");
        fs_err::write(&go, "").expect("it is written");
        screen.wait_screen("and the rest.");
        screen.wait_screen("three");
        let shown = screen.screen();
        assert!(shown.contains("The first words of a long answer, and the rest.\n"), "{shown}");
        screen.keys("\r");
        screen.wait_screen("Second.");
        assert_eq!(last_message(&model, 1), "one\ntwo\nthree");
        leave(screen);
    }
}

#[test]
fn an_approval_holds_once_for_a_call_or_for_a_tool() {
    for size in [SMALL, LARGE] {
        let model = ScriptedModel::start(&json!([
            { "calls": [echo("c1", "one")] }, { "text": "First." },
            { "calls": [echo("c2", "one"), echo("c3", "one"), echo("c4", "two")] }, { "text": "Second." },
            { "calls": [echo("c5", "three")] }, { "text": "Third." },
            { "calls": [echo("c6", "four")] }, { "text": "Fourth." },
        ]));
        let program = with_kit(&model, &json!({}));
        let mut screen = open(&program, size);
        screen.keys("go\r");
        screen.wait_screen("[y/N]");
        assert!(screen.screen().contains("c this call, t this tool for the session"), "{}", screen.screen());
        screen.keys("y");
        screen.wait_screen("First.");
        screen.wait_for_prompt();
        // Once: the same call is asked for again. Then this call holds for the session, and another one does not.
        screen.keys("go on\r");
        screen.wait("[y/N]", 2);
        screen.keys("c");
        screen.wait("[y/N]", 3);
        screen.keys("t");
        screen.wait_screen("Second.");
        screen.wait_for_prompt();
        screen.keys("more\r");
        screen.wait_screen("Third.");
        screen.wait_for_prompt();
        let shown = screen.scrollback();
        assert_eq!(shown.matches("[y/N]").count(), 3, "{shown}");
        // Questions and answers stay.
        for text in [
            "owner wants to call echo with {\"message\":\"one\"}",
            "[y/N] yes\n",
            "[y/N] yes, this call for the session",
            "owner wants to call echo with {\"message\":\"two\"}",
            "[y/N] yes, this tool for the session",
            "✓ [5] echo",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        // A new chat is a new session.
        screen.keys("/new\r");
        screen.wait_for_prompt();
        screen.keys("again\r");
        screen.wait("[y/N]", 4);
        screen.keys("n");
        screen.wait_screen("Fourth.");
        leave(screen);
        let log = program.run("log --json");
        let by: Vec<Json> = log
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Json>(line).expect("a record"))
            .map(|record| record["begin"]["asked"].clone())
            .collect();
        let (person, session) = ("the person at the terminal", "the person at the terminal, for the session");
        let count = |who: &str| by.iter().filter(|by| **by == who).count();
        assert_eq!((count(person), count(session)), (3, 2), "{log}");
    }
}

#[test]
fn a_tool_can_be_refused_for_the_session() {
    let model = ScriptedModel::start(&json!([
        { "calls": [echo("c1", "one")] }, { "calls": [echo("c2", "two")] }, { "text": "It is not allowed." },
    ]));
    let program = with_kit(&model, &json!({}));
    let mut screen = open(&program, SMALL);
    screen.keys("go\r");
    screen.wait_screen("[y/N]");
    screen.keys("x");
    screen.wait_screen("It is not allowed.");
    let shown = screen.scrollback();
    assert_eq!(shown.matches("[y/N]").count(), 1, "{shown}");
    assert!(shown.contains("✗ [1] echo") && shown.contains("✗ [2] echo"), "{shown}");
    assert!(model.seen()[2].to_string().contains("for the session said no"), "{}", model.seen()[2]);
    leave(screen);
}

/// Ctrl-C withdraws a question; the keys after it belong to the prompt.
#[test]
fn ctrl_c_withdraws_a_question() {
    let model = ScriptedModel::start(&json!([{ "calls": [echo("c1", "one")] }, { "text": "Hello." }]));
    let program = with_kit(&model, &json!({}));
    let mut screen = open(&program, SMALL);
    screen.keys("go\r");
    screen.wait_screen("[y/N]");
    screen.interrupt();
    screen.wait_screen("withdrawn");
    screen.wait_for_prompt();
    screen.keys("yes, hello\r");
    screen.wait_screen("Hello.");
    assert_eq!(last_message(&model, 1), "yes, hello");
    leave(screen);
}

#[test]
fn markdown_fits_the_screen() {
    let text = "# Report\n\nA **bold** word, `code`, and [the docs](https://example.com/docs) in a paragraph that is longer \
                than a line of a small terminal, so that it is wrapped between words.\n\n\
                - a list item that is long enough to be wrapped onto a second line, which begins below its text\n\n\
                | Tool | What it does | Calls |\n|---|---|---:|\n\
                | echo | says back what it was told, as often as one likes, in the same words | 12 |\n\
                | fail | fails | 3 |\n\n```rust\nfn main() {}\n```\n";
    for size in [SMALL, LARGE] {
        let model = ScriptedModel::start(&json!([{ "text": text }]));
        let program = without_tools(&model);
        let mut screen = open(&program, size);
        screen.keys("report\r");
        screen.wait_screen("fn main() {}");
        screen.wait_for_prompt();
        let rows = screen.rows();
        let shown = rows.join("\n");
        assert!(rows.contains(&"Report".to_owned()), "{shown}");
        assert!(
            shown.replace('\n', " ").contains("and the docs (https://example.com/docs) in a paragraph"),
            "{shown}"
        );
        let words: Vec<&str> = shown.split_whitespace().collect();
        for word in ["paragraph", "terminal,", "wrapped", "second", "begins"] {
            assert!(words.contains(&word), "`{word}` is not torn: {shown}");
        }
        let item = rows.iter().position(|row| row.starts_with("- a list item")).expect("the item");
        if size == SMALL {
            assert!(rows[item + 1].starts_with("  "), "{shown}");
        }
        let head = rows.iter().find(|row| row.starts_with("Tool │ What it does")).expect("the table");
        let bars: Vec<usize> = head.char_indices().filter(|(_, c)| *c == '│').map(|(at, _)| at).collect();
        for row in rows.iter().filter(|row| row.contains("│")) {
            let found: Vec<usize> = row.char_indices().filter(|(_, c)| *c == '│').map(|(at, _)| at).collect();
            assert_eq!(found, bars, "columns are aligned: {shown}");
        }
        assert!(!shown.contains("**") && !shown.contains("](") && !shown.contains("|--"), "{shown}");
        leave(screen);
    }
}

/// Text of models and tools moves no cursor, sets no title and forges no line of Toolgate.
#[test]
fn hostile_text_stays_inert() {
    for size in [SMALL, LARGE] {
        let evil = "\u{1b}[2J\u{1b}[H\u{1b}]0;owned\u{7}\u{1b}[31;8mred\u{9b}5A\u{8}\u{8}\rover\u{202e}x";
        let model = ScriptedModel::start(&json!([
            { "text": format!("before {evil} after"), "calls": [echo("c1", evil)] },
            { "calls": [call("c2", "fail", json!({}))] },
            { "text": "Done." },
        ]));
        let program = with_kit(&model, &json!({}));
        let mut screen = open(&program, size);
        screen.keys("go\r");
        screen.wait_screen("[y/N]");
        screen.keys("y");
        screen.wait_screen("Done.");
        screen.wait_for_prompt();
        let shown = screen.screen();
        assert!(shown.contains("/help") && shown.contains("› go"), "nothing was erased: {shown}");
        assert!(shown.lines().any(|row| row.contains("before") && row.contains("after")), "{shown}");
        for bytes in ["\u{1b}[2J", "\u{1b}]0;", "\u{9b}", "\u{7}", "\u{202e}", "\u{1b}[31;8m"] {
            assert!(!screen.shown().contains(bytes), "{bytes:?}: {:?}", screen.shown());
        }
        screen.keys("/show 1\r");
        screen.wait_screen("\"message\": ");
        assert!(!screen.shown().contains("\u{1b}[2J"), "{:?}", screen.shown());
        leave(screen);
    }
}

#[test]
fn a_server_asks_field_by_field() {
    for size in [SMALL, LARGE] {
        let schema = json!({ "type": "object", "required": ["name", "size"], "properties": {
            "name": { "type": "string", "title": "Your name", "description": "As on the ticket.", "minLength": 2 },
            "size": { "type": "integer", "minimum": 1, "maximum": 9 },
            "colour": { "type": "string", "enum": ["red", "blue"], "default": "red" },
            "gift": { "type": "boolean" },
            "extras": { "type": "array", "items": { "enum": ["a", "b", "c"] } } } });
        let ask = call(
            "c1",
            "ask",
            json!({ "mode": "form", "message": "Which \u{1b}[2Jticket?", "schema": schema }),
        );
        let model = ScriptedModel::start(&json!([{ "calls": [ask] }, { "text": "Done." }]));
        let program = with_kit(&model, &json!({ "elicitation": "ask" }));
        let mut screen = open(&program, size);
        screen.keys("buy\r");
        for (prompt, typed) in [
            ("Your name (string):", "A\r"),
            ("is shorter than 2", "Ann\r"),
            ("size (integer):", "12\r"),
            ("12 is greater than", "7\r"),
            ("colour (number or name, optional) [red]:", "2\r"),
            ("gift (yes or no, optional):", "yes\r"),
            ("extras (numbers or names, separated by commas, optional):", "1, c\r"),
        ] {
            screen.wait_screen(prompt);
            screen.keys(typed);
        }
        screen.wait_screen("Done.");
        let shown = screen.scrollback();
        assert!(shown.contains("As on the ticket.") && shown.contains("2. blue"), "{shown}");
        let answer = model.seen()[1].to_string();
        let expected =
            r#"{\"name\":\"Ann\",\"size\":7,\"colour\":\"blue\",\"gift\":true,\"extras\":[\"a\",\"c\"]}"#;
        assert!(answer.contains(expected), "{answer}");
        leave(screen);
    }
}

#[test]
fn messages_are_taken_back_and_chats_resumed() {
    for size in [SMALL, LARGE] {
        let model = ScriptedModel::start(&json!([
            { "text": "Apples." }, { "text": "Pears." }, { "text": "Plums." }, { "text": "Figs." },
        ]));
        let program = without_tools(&model);
        let mut screen = open(&program, size);
        screen.keys("name a fruit\r");
        screen.wait_screen("Apples.");
        screen.wait_for_prompt();
        screen.keys("another\r");
        screen.wait_screen("Pears.");
        screen.wait_for_prompt();
        // The message comes back into the line, to be edited.
        screen.keys("/undo\r");
        screen.wait_screen("took the last message back");
        screen.wait_screen("› another");
        screen.keys(" one\r");
        screen.wait_screen("Plums.");
        let sent = model.seen()[2]["messages"].to_string();
        assert!(sent.contains("Apples.") && sent.contains("another one"), "{sent}");
        assert!(!sent.contains("Pears."), "{sent}");
        screen.wait_for_prompt();
        screen.keys("/model other-model\r");
        screen.wait_screen("the next turns go to other-model");
        screen.wait_for_prompt();
        screen.keys("/new\r");
        screen.wait_for_prompt();
        screen.keys("/resume\r");
        screen.wait_that("the list of chats", |shown| {
            shown.lines().any(|row| row.starts_with("  1 ") && row.ends_with("name a fruit"))
        });
        screen.wait_for_prompt();
        screen.keys("/resume 1\r");
        screen.wait_screen("› another one\nPlums.");
        screen.wait_for_prompt();
        screen.keys("/model other-model\r");
        screen.wait_for_prompt();
        screen.keys("the last one?\r");
        screen.wait_screen("Figs.");
        let sent = model.seen()[3].clone();
        assert_eq!(sent["model"], "other-model");
        let messages = sent["messages"].to_string();
        assert!(messages.contains("another one") && !messages.contains("Pears."), "{messages}");
        screen.wait_for_prompt();
        screen.keys("/cost\r");
        screen.wait_screen("4 turns");
        screen.wait_for_prompt();
        screen.keys("/clear\r");
        screen.wait_that("an empty screen", |shown| shown.trim() == "›");
        assert_eq!(screen.cursor(), (0, 2));
        leave(screen);
        let runs = program.run("runs --json").json();
        let id = runs[1]["run"].as_str().expect("an id");
        let shown = program.run(&format!("runs show {id}"));
        for text in ["the last message was taken back", "the next turns go to other-model", "> another one"] {
            assert!(shown.stdout.contains(text), "{text}: {shown}");
        }
    }
}
