//! The chat at a real terminal: lines that are edited, words as they come, one key for a rule that asks.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

use crate::agent::{ScriptedModel, call, project};
use crate::door::until;
use crate::program::Program;
use crate::servers::entry;

/// A program at a terminal, and what it has shown there.
pub(crate) struct Screen {
    pub(crate) child: Child,
    master: std::fs::File,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    pub(crate) fn open(program: &Program, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&master).expect("it is ours");
        unlockpt(&master).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let open = || {
            let path = name.to_str().expect("a path");
            let file = fs_err::OpenOptions::new().read(true).write(true).open(path).expect("it opens");
            Stdio::from(file.into_parts().0)
        };
        let mut command = program.command(arguments);
        let child =
            command.stdin(open()).stdout(open()).stderr(open()).spawn().expect("the executable starts");
        drop(command);
        let master = std::fs::File::from(master);
        let (shown, mut screen) =
            (Arc::<Mutex<String>>::default(), master.try_clone().expect("it can be read"));
        let kept = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut part) {
                kept.lock().expect("nobody panics").push_str(&String::from_utf8_lossy(&part[..read]));
            }
        });
        Self { child, master, shown }
    }

    pub(crate) fn shown(&self) -> String {
        self.shown.lock().expect("nobody panics").clone()
    }

    /// Waits until something was shown as often as this.
    pub(crate) fn wait(&self, text: &str, times: usize) {
        until(&format!("{text:?}, {times} times"), || self.shown().matches(text).count() >= times);
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("it can be typed");
    }
}

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
    let mut screen = Screen::open(&program, &["chat"]);
    screen.wait("› ", 1);
    screen.keys("say hx\u{7f}i\r");
    screen.wait("[y/N]", 1);
    screen.keys("y");
    screen.wait("It \u{1b}[1mworks\u{1b}[0m now.", 1);
    screen.wait("✓ [1] echo {\"message\":\"hi\"} · ", 1);
    screen.wait("2 turns", 1);
    // What was typed before comes back; another key than `y` is no.
    screen.keys("\u{1b}[A");
    screen.wait("› say hi", 2);
    screen.keys("\r");
    screen.wait("[y/N]", 2);
    screen.keys("x");
    screen.wait("You said no.", 1);
    screen.wait("✗ [2] echo", 1);
    screen.keys("/cost\r");
    screen.wait("4 turns · 2 calls", 1);
    // An end that comes before somebody reads is lost.
    until("the next line", || screen.shown().ends_with("› "));
    screen.keys("\u{4}");
    let status = screen.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", screen.shown());
    assert_eq!(program.read(".toolgate/chat_history"), "say hi\n/cost\n");
    let asked = model.seen()[0]["messages"][1]["content"].as_str().unwrap().to_owned();
    assert_eq!(asked, "say hi");
    assert!(model.seen()[3].to_string().contains("said no"), "the model is told");
}
