//! Pages that tell a reader to type something: every line is typed into a shell, and its output is compared.
//!
//! In a page, a block `console` has commands (`$ …`) and their output, in which `…` stands for any text. A block with
//! `file=PATH` in its first line is a file that the reader writes. A block `console,terminal=NAME` runs in a terminal of
//! its own, until the end of the page. A block `console,untyped` is not typed: it needs programs that tests do not have.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use regex::Regex;

use crate::support::program::{HANG_TIMEOUT, Program};
use crate::support::third_party::text;

/// The address in the pages. Every test gets a free port instead.
const PORT: &str = "7332";

/// A fenced block of a page.
#[derive(Debug)]
pub(crate) struct Block {
    /// The words of its first line.
    info: Vec<String>,
    pub(crate) lines: Vec<String>,
}

impl Block {
    /// Returns the first word of the first line.
    pub(crate) fn language(&self) -> &str {
        self.info.first().map_or("", String::as_str)
    }

    /// Returns true if the first line has a word.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.info.iter().any(|own| own == word)
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.info.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The commands, each with its output.
    pub(crate) fn commands(&self) -> Vec<(String, Vec<String>)> {
        let mut commands: Vec<(String, Vec<String>)> = Vec::new();
        for line in &self.lines {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((command.to_owned(), Vec::new()));
            } else if let Some((command, output)) = commands.last_mut() {
                match command.strip_suffix('\\') {
                    Some(_) if output.is_empty() => {
                        command.push('\n');
                        command.push_str(line);
                    }
                    _ => output.push(line.clone()),
                }
            }
        }
        commands
    }
}

/// Returns the fenced blocks of a page. Those in a list are indented.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut indent) = (Vec::new(), None, 0);
    for line in page.lines() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                let info: Vec<_> = info.split([',', ' ']).map(str::to_owned).collect();
                open = Some(Block { info, lines: Vec::new() });
                indent = line.len() - line.trim_start().len();
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push(line.get(indent..).unwrap_or_default().to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// Returns the text of the only block of a page in a language.
pub(crate) fn block(page: &str, language: &str) -> String {
    let mut found: Vec<_> = blocks(page).into_iter().filter(|block| block.language() == language).collect();
    assert_eq!(found.len(), 1, "blocks of `{language}`");
    found.remove(0).lines.join("\n") + "\n"
}

/// A shell that keeps its folder and variables from one command to the next.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Shell {
    #[expect(clippy::disallowed_methods, reason = "the shell of the reader")]
    fn start(program: &Program, variables: &BTreeMap<&str, String>) -> Self {
        let mut command = Command::new("sh");
        command.current_dir(&program.project).env_clear().envs(variables).env("HOME", &program.home);
        // Both in one, in the order in which a reader sees them.
        command.args(["-c", "exec sh 2>&1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("`sh` is installed");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, stdin, lines }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the shell runs");
    }

    /// Types a command; returns its output.
    fn type_in(&mut self, command: &str) -> Vec<String> {
        const END: &str = "--- end of the output, code ";
        self.send(&format!("{command}\necho; echo '{END}'$?"));
        let mut output = Vec::new();
        loop {
            match self.lines.recv_timeout(2 * HANG_TIMEOUT) {
                Ok(line) if line.starts_with(END) => break,
                Ok(line) => output.push(line),
                Err(_) => panic!("`{command}` does not end; it printed {output:#?}"),
            }
        }
        // The empty line before the end.
        while output.last().is_some_and(String::is_empty) {
            output.pop();
        }
        output
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Turns expected lines into a pattern: `…` is any text, on a line of its own any lines.
fn pattern(expected: &[String]) -> Regex {
    let mut pattern = String::from(r"(?s)\A");
    for line in expected {
        if line.trim() == "…" {
            pattern.push_str(r"(?:.*\n)?");
        } else {
            let parts: Vec<_> = line.trim_end().split('…').map(regex::escape).collect();
            pattern.push_str(&parts.join("[^\n]*"));
            pattern.push_str("[ ]*\n");
        }
    }
    pattern.push_str(r"\z");
    Regex::new(&pattern).expect("an escaped pattern")
}

/// Progress of servers that start slowly, which depends on the machine.
fn is_progress(line: &str) -> bool {
    line.starts_with("waiting for ") || line.contains(" is still starting")
}

/// Writes an executable file.
pub(crate) fn write_program(path: &Path, content: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::write(path, content).expect("the folder is writable");
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Returns a port that is free now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

/// Types a page in a project. Programs in `~/bin` come first in its `PATH`; `toolgate` is there.
pub(crate) fn follow(page: &str, program: &Program, more: &[(&'static str, String)]) {
    let folder = program.path("~/bin");
    fs_err::create_dir_all(&folder).expect("the folder is writable");
    let toolgate = Path::new(env!("CARGO_BIN_EXE_toolgate"));
    std::os::unix::fs::symlink(toolgate, folder.join("toolgate")).expect("the folder is writable");
    let port = free_port();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut variables = BTreeMap::from([
        ("PATH", format!("{}:{path}", text(&folder))),
        ("TOOLGATE__SERVE__LISTEN", format!("127.0.0.1:{port}")),
        ("GIT_AUTHOR_NAME", "Ann".to_owned()),
        ("GIT_AUTHOR_EMAIL", "ann@example.com".to_owned()),
        ("GIT_COMMITTER_NAME", "Ann".to_owned()),
        ("GIT_COMMITTER_EMAIL", "ann@example.com".to_owned()),
    ]);
    variables.extend(more.iter().cloned());
    let adapt = |line: &str| line.replace(PORT, &port.to_string());
    let mut shell = Shell::start(program, &variables);
    let mut terminals = BTreeMap::new();
    let mut typed = 0;
    for block in blocks(page) {
        if let Some(file) = block.attribute("file") {
            let folder = PathBuf::from(shell.type_in("pwd").concat());
            let path =
                file.strip_prefix("~/").map_or_else(|| folder.join(file), |file| program.home.join(file));
            fs_err::create_dir_all(path.parent().expect("a file is in a folder")).expect("writable");
            fs_err::write(path, block.lines.join("\n") + "\n").expect("writable");
            continue;
        }
        if block.language() != "console" || block.is("untyped") {
            continue;
        }
        for (command, expected) in block.commands() {
            typed += 1;
            let expected: Vec<String> = expected.iter().map(|line| adapt(line)).collect();
            let Some(terminal) = block.attribute("terminal") else {
                let output = shell.type_in(&adapt(&command));
                let shown = output.iter().filter(|line| !is_progress(line));
                let shown = shown.map(|line| format!("{}\n", line.trim_end())).collect::<String>();
                assert!(
                    pattern(&expected).is_match(&shown),
                    "`{command}` printed\n{shown}\nand not\n{}\n",
                    expected.join("\n")
                );
                continue;
            };
            // Starts in the folder that the reader is in, and with the same variables.
            let exported = shell.type_in("export -p; echo \"cd '$PWD'\"").join("\n");
            let mut other = Shell::start(program, &variables);
            other.send(&exported);
            other.send(&format!("exec {}", adapt(&command)));
            for line in expected.iter().filter(|line| line.trim() != "…") {
                let wanted = pattern(std::slice::from_ref(line));
                let mut passed = Vec::new();
                loop {
                    match other.lines.recv_timeout(2 * HANG_TIMEOUT) {
                        Ok(shown) if wanted.is_match(&format!("{}\n", shown.trim_end())) => break,
                        Ok(shown) => passed.push(shown),
                        Err(_) => panic!("`{command}` did not print `{line}`, only {passed:#?}"),
                    }
                }
            }
            terminals.insert(terminal.to_owned(), other);
        }
    }
    assert!(typed > 1, "the page tells the reader to type something");
}
