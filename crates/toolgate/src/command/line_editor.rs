//! Line editor of the chat: `rustyline` on a terminal, plain lines otherwise.
//!
//! Invariant: the terminal mode is restored after each line; the history file is private to the user and limited in
//! size.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{History as _, MemHistory};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, CompletionType, Config, Context, Editor, Helper};
use toolgate_state::StateDir;

use crate::command::agent::keys;

/// Lines kept in the history.
const MAX_LINES: usize = 500;
/// Bytes of the history that are read.
const MAX_BYTES: u64 = 4 << 20;

/// Result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineInput {
    Line(String),
    /// The line was discarded.
    Nothing,
    /// End of input.
    End,
}

pub(crate) struct LineEditor {
    /// `None` if stdin is not a terminal.
    editor: Option<Editor<ChatHelper, MemHistory>>,
    file: PathBuf,
}

/// Commands that Tab completes.
const COMMANDS: [&str; 12] = [
    "/clear", "/cost", "/exit", "/help", "/model", "/new", "/quit", "/resume", "/show ", "/tools", "/undo",
    "/why ",
];
/// Characters of a word that Tab completes to the name of a tool.
const MIN_TOOL_START: usize = 2;

/// Completes commands and tools, and continues lines that end with `\`.
#[derive(Default)]
struct ChatHelper {
    tools: Vec<String>,
}

impl ChatHelper {
    /// Returns the start of the word to complete, and its completions.
    fn completions(&self, before: &str) -> (usize, Vec<String>) {
        let is_command = before.starts_with('/') && !before.contains(char::is_whitespace);
        if is_command {
            let commands = COMMANDS.iter().filter(|command| command.starts_with(before));
            return (0, commands.map(|command| (*command).to_owned()).collect());
        }
        let at = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = before[at..].trim_start_matches('`');
        let at = before.len() - word.len();
        if word.len() < MIN_TOOL_START && !before.starts_with("/why ") {
            return (at, Vec::new());
        }
        (at, self.tools.iter().filter(|tool| tool.starts_with(word)).cloned().collect())
    }
}

impl Completer for ChatHelper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.completions(&line[..at]))
    }
}

impl Validator for ChatHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Highlighter for ChatHelper {}
impl Helper for ChatHelper {}

impl LineEditor {
    pub(crate) fn new(file: PathBuf) -> Self {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let editor = if is_terminal { open_editor(&file) } else { None };
        Self { editor, file }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.editor.is_some()
    }

    /// Sets the names of tools that Tab completes.
    pub(crate) fn complete_tools(&mut self, tools: Vec<String>) {
        if let Some(helper) = self.editor.as_mut().and_then(Editor::helper_mut) {
            helper.tools = tools;
        }
    }

    /// Reads the next line. At a terminal it begins with `draft`. Waits until no question reads the terminal.
    pub(crate) fn line(&mut self, prompt: &str, draft: &str) -> LineInput {
        let Some(editor) = &mut self.editor else {
            let mut line = String::new();
            return match std::io::stdin().lock().read_line(&mut line) {
                Ok(1..) => LineInput::Line(line.trim_end().to_owned()),
                _ => LineInput::End,
            };
        };
        let _reader = keys::lock_terminal();
        match editor.readline_with_initial(prompt, (draft, "")) {
            Ok(line) => {
                if !line.trim().is_empty() && editor.add_history_entry(&line).unwrap_or(false) {
                    write_history(&self.file, editor.history());
                }
                LineInput::Line(line.replace("\\\n", "\n"))
            }
            Err(ReadlineError::Interrupted) => LineInput::Nothing,
            Err(_) => LineInput::End,
        }
    }
}

/// Returns an editor with the history of earlier chats, or nothing if there is no terminal to draw on.
fn open_editor(file: &Path) -> Option<Editor<ChatHelper, MemHistory>> {
    // The library draws on stdout. If stdout is redirected, it must draw on the terminal instead of into the output.
    let behavior = if std::io::stdout().is_terminal() {
        Behavior::Stdio
    } else {
        fs_err::File::open("/dev/tty").ok()?;
        Behavior::PreferTerm
    };
    let config = Config::builder().behavior(behavior).completion_type(CompletionType::List);
    let config = config.max_history_size(MAX_LINES).ok()?.build();
    let history = read_history(file, &config);
    let mut editor = Editor::with_history(config, history).ok()?;
    editor.set_helper(Some(ChatHelper::default()));
    Some(editor)
}

fn read_history(file: &Path, config: &Config) -> MemHistory {
    let mut history = MemHistory::with_config(config);
    let (folder, name) = place(file);
    let bytes = StateDir::open(folder).and_then(|folder| folder.read(&name, MAX_BYTES)).unwrap_or_default();
    for line in String::from_utf8_lossy(&bytes).lines() {
        let _ = history.add(line);
    }
    history
}

/// Writes the history, one entry per line.
///
/// The file history of the library is not used: it changes the umask of the whole process while it opens the file.
fn write_history(file: &Path, history: &MemHistory) {
    // A pasted entry may have several lines.
    let text: String = history.into_iter().map(|entry| entry.replace(['\r', '\n'], " ") + "\n").collect();
    let (folder, name) = place(file);
    // The chat works without a history, so write errors are ignored.
    let _ = StateDir::create(folder).and_then(|folder| folder.replace_unsynced(&name, text.as_bytes()));
}

/// Folder and name of a file.
fn place(file: &Path) -> (&Path, String) {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (file.parent().unwrap_or(Path::new(".")), name)
}

#[test]
fn the_history_file_is_private_and_limited() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("chat_history");
    let config = Config::builder().max_history_size(3).expect("a number").build();
    let mut history = read_history(&file, &config);
    for line in ["a", "b", "b", "two\nlines", "c"] {
        history.add(line).expect("memory");
    }
    write_history(&file, &history);
    assert_eq!(fs_err::read_to_string(&file).expect("it was written"), "b\ntwo lines\nc\n");
    let mode = fs_err::metadata(&file).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(read_history(&file, &config).into_iter().collect::<Vec<_>>(), ["b", "two lines", "c"]);
}

#[test]
fn completes_commands_and_tools() {
    let helper = ChatHelper { tools: ["get_order", "get_invoice", "refund"].map(str::to_owned).to_vec() };
    let found = |before: &str| helper.completions(before);
    assert_eq!(found("/c"), (0, vec!["/clear".to_owned(), "/cost".to_owned()]));
    assert_eq!(found("/why get_o"), (5, vec!["get_order".to_owned()]));
    assert_eq!(found("/why "), (5, helper.tools.clone()));
    assert_eq!(found("call get_i"), (5, vec!["get_invoice".to_owned()]));
    assert_eq!(found("call `re"), (6, vec!["refund".to_owned()]));
    for text in ["why", "/tools x", "hello /c", "g", ""] {
        assert!(found(text).1.is_empty(), "{text}");
    }
}
