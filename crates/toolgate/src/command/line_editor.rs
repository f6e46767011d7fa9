//! Line editor of the chat: `rustyline` on a terminal, plain lines otherwise.
//!
//! Invariant: the terminal mode is restored after each line; the history file is private to the user and limited in
//! size.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;
use rustyline::history::{History as _, MemHistory};
use rustyline::{Behavior, Config, Editor};
use toolgate_state::StateDir;

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
    editor: Option<Editor<(), MemHistory>>,
    file: PathBuf,
}

impl LineEditor {
    pub(crate) fn new(file: PathBuf) -> Self {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let editor = if is_terminal { open_editor(&file) } else { None };
        Self { editor, file }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.editor.is_some()
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, prompt: &str) -> LineInput {
        let Some(editor) = &mut self.editor else {
            let mut line = String::new();
            return match std::io::stdin().lock().read_line(&mut line) {
                Ok(1..) => LineInput::Line(line.trim_end().to_owned()),
                _ => LineInput::End,
            };
        };
        match editor.readline(prompt) {
            Ok(line) => {
                if !line.trim().is_empty() && editor.add_history_entry(&line).unwrap_or(false) {
                    write_history(&self.file, editor.history());
                }
                LineInput::Line(line)
            }
            Err(ReadlineError::Interrupted) => LineInput::Nothing,
            Err(_) => LineInput::End,
        }
    }
}

/// Returns an editor with the history of earlier chats, or nothing if there is no terminal to draw on.
fn open_editor(file: &Path) -> Option<Editor<(), MemHistory>> {
    // The library draws on stdout. If stdout is redirected, it must draw on the terminal instead of into the output.
    let behavior = if std::io::stdout().is_terminal() {
        Behavior::Stdio
    } else {
        fs_err::File::open("/dev/tty").ok()?;
        Behavior::PreferTerm
    };
    let config = Config::builder().behavior(behavior).max_history_size(MAX_LINES).ok()?.build();
    let history = read_history(file, &config);
    Editor::with_history(config, history).ok()
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
