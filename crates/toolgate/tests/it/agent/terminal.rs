//! The chat at a real terminal: line editing, streamed output, and approval with one key.

use serde_json::json;

use crate::agent::{ScriptedModel, call, project};
use crate::support::terminal::TerminalSession;
use crate::support::test_server::entry;

#[test]
fn a_chat_at_a_terminal() {
    let model = ScriptedModel::start(&json!([
        { "text": "Let me see.", "calls": [call("c1", "echo", json!({ "message": "hi" }))] },
        { "text": "It **works** now." },
        { "calls": [call("c2", "echo", json!({ "message": "hi" }))] },
        { "text": "You said no." },
    ]));
    let program = project(&model, &json!({ "registries": { "mcp": "mcp.json" } })).with("TERM", "xterm");
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program.write(
        "policy.cedar",
        "@id(\"care\") @ask(\"Shall it?\") forbid(principal, action == Action::\"call\", resource in Server::\"kit\");",
    );
    let mut screen = TerminalSession::open(&program, &["chat"]);
    screen.wait("› ", 1);
    screen.keys("say hx\u{7f}i\r");
    screen.wait("[y/N]", 1);
    screen.keys("y");
    screen.wait("It \u{1b}[1mworks\u{1b}[0m now.", 1);
    screen.wait("▸ [1] echo {\"message\":\"hi\"}", 1);
    screen.wait("✓ [1] echo · ", 1);
    screen.wait("2 turns", 1);
    // The arrow key recalls the previous line; any key other than `y` declines.
    screen.keys("\u{1b}[A");
    screen.wait("› say hi", 1);
    screen.keys("\r");
    screen.wait("[y/N]", 2);
    screen.keys("x");
    screen.wait("You said no.", 1);
    screen.wait("✗ [2] echo", 1);
    screen.keys("/cost\r");
    screen.wait("4 turns · 2 calls", 1);
    // An end of input before the prompt is lost.
    screen.wait_for_prompt();
    screen.keys("\u{4}");
    let status = screen.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", screen.shown());
    assert_eq!(program.read(".toolgate/chat_history"), "say hi\n/cost\n");
    let prompt = model.seen()[0]["messages"][1]["content"].as_str().unwrap().to_owned();
    assert_eq!(prompt, "say hi");
    assert!(model.seen()[3].to_string().contains("said no"), "the model gets the refusal");
}

#[test]
fn lines_are_edited_at_a_terminal() {
    let model = ScriptedModel::start(&json!([]));
    let program = project(&model, &json!({})).with("TERM", "xterm");
    program.write(".toolgate/chat_history", "/from-before\n");
    let mut screen = TerminalSession::open(&program, &["chat"]);
    // An unknown command shows the line without asking the model.
    for (keys, line) in [
        ("/grüß\r", "/grüß"),
        ("/helo\u{1b}[Dl\r", "/hello"),
        ("x/home\u{1}\u{1b}[3~\r", "/home"),
        ("/end\u{1}\u{5}ing\r", "/ending"),
        ("/big old\u{17}\u{17}/word\r", "/word"),
        ("/rub\u{7f}\u{7f}\r", "/r"),
        ("/kill\u{2}\u{2}\u{b}\r", "/ki"),
        ("gone\u{15}/start\r", "/start"),
        ("\u{1b}[A\u{1b}[A\u{1b}[B2\r", "/start2"),
        ("\u{10}\u{10}\u{e}3\r", "/start23"),
    ] {
        screen.wait_for_prompt();
        screen.keys(keys);
        screen.wait(&format!("unknown command `{line}`"), 1);
    }
    screen.wait_for_prompt();
    screen.keys("cancelled\u{3}");
    screen.wait("cancelled", 1);
    // Keys typed ahead are not lost.
    screen.wait_for_prompt();
    screen.keys("/first\r/second\r");
    screen.wait("unknown command `/second`", 1);
    screen.wait_for_prompt();
    screen.keys("\u{4}");
    let status = screen.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", screen.shown());
    let history = program.read(".toolgate/chat_history");
    assert!(history.starts_with("/from-before\n/grüß\n/hello\n"), "{history}");
    assert!(!history.contains("cancelled"), "{history}");
}

/// Typing while a question appears does not answer it.
#[test]
fn a_word_answers_no_approval() {
    let model = ScriptedModel::start(&json!([
        { "calls": [call("c1", "echo", json!({ "message": "hi" }))] },
        { "text": "Done." },
    ]));
    let program = project(&model, &json!({ "registries": { "mcp": "mcp.json" } })).with("TERM", "xterm");
    program.write("mcp.json", json!({ "servers": { "kit": entry("good") } }).to_string());
    program.write(
        "policy.cedar",
        "@id(\"care\") @ask(\"Shall it?\") forbid(principal, action == Action::\"call\", resource in Server::\"kit\");",
    );
    let mut screen = TerminalSession::open(&program, &["chat"]);
    screen.wait("› ", 1);
    screen.keys("say hi\r");
    screen.wait("[y/N]", 1);
    screen.keys("yes, and then\n");
    screen.wait("one key answers", 1);
    screen.wait("[y/N]", 2);
    assert_eq!(model.seen().len(), 1, "nothing was called");
    screen.keys("y");
    screen.wait("Done.", 1);
    screen.wait("✓ [1] echo", 1);
    screen.wait_for_prompt();
    screen.keys("\u{4}");
    assert_eq!(screen.child.wait().expect("it ends").code(), Some(0), "{}", screen.shown());
}

#[test]
fn several_lines_are_one_message() {
    let model = ScriptedModel::start(&json!([{ "text": "One." }, { "text": "Two." }, { "text": "Three." }]));
    let program = project(&model, &json!({})).with("TERM", "xterm");
    let mut screen = TerminalSession::open(&program, &["chat"]);
    screen.wait_for_prompt();
    screen.keys("\u{1b}[200~first\nsecond\nthird\u{1b}[201~");
    screen.wait("third", 1);
    screen.keys("\r");
    screen.wait("One.", 1);
    screen.wait_for_prompt();
    screen.keys("begin\\\rend\r");
    screen.wait("Two.", 1);
    let content = |turn: usize| {
        let seen = model.seen()[turn].clone();
        let messages = seen["messages"].as_array().expect("messages").clone();
        messages.last().expect("a message")["content"].as_str().expect("a text").to_owned()
    };
    assert_eq!((content(0).as_str(), content(1).as_str()), ("first\nsecond\nthird", "begin\nend"));
    // A new chat has no messages of the one before.
    screen.wait_for_prompt();
    screen.keys("/ne\t\r");
    screen.wait("run ", 2);
    screen.wait_for_prompt();
    screen.keys("hello\r");
    screen.wait("Three.", 1);
    assert!(!model.seen()[2].to_string().contains("begin"), "{}", model.seen()[2]);
    screen.wait_for_prompt();
    screen.keys("\u{4}");
    assert_eq!(screen.child.wait().expect("it ends").code(), Some(0), "{}", screen.shown());
}

/// The wait for the model is drawn until its first words.
#[test]
fn the_wait_for_the_model_is_drawn() {
    let model = ScriptedModel::start(&json!([{ "text": "At last.", "delay_ms": 1500 }]));
    let program = project(&model, &json!({})).with("TERM", "xterm");
    let mut screen = TerminalSession::open(&program, &["chat"]);
    screen.wait_for_prompt();
    screen.keys("hello\r");
    screen.wait(" 1 s", 1);
    screen.wait("\r\u{1b}[KAt last.", 1);
    screen.wait_for_prompt();
    screen.keys("\u{4}");
    assert_eq!(screen.child.wait().expect("it ends").code(), Some(0), "{}", screen.shown());
}
