//! Line editor: with history on a terminal, plain lines otherwise.
//!
//! Invariant: the terminal mode is restored after each line; the history file is private to the user and limited in
//! size.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::command::agent::keys::RawMode;

/// Lines kept in the history.
const MAX_LINES: usize = 500;
/// Characters of a line.
const MAX_CHARS: usize = 64 << 10;

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
    is_terminal: bool,
    file: PathBuf,
    lines: Vec<String>,
}

/// A line being edited.
#[derive(Debug, Default)]
struct LineBuffer {
    text: Vec<char>,
    at: usize,
}

/// Effect of a key on a line.
#[derive(Debug, PartialEq, Eq)]
enum KeyEffect {
    Go,
    Enter,
    Cancel,
    End,
    Older,
    Newer,
}

impl LineEditor {
    pub(crate) fn new(file: PathBuf) -> Self {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let text =
            if is_terminal { fs_err::read_to_string(&file).unwrap_or_default() } else { String::new() };
        Self { is_terminal, file, lines: text.lines().map(str::to_owned).collect() }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, prompt: &str) -> LineInput {
        if !self.is_terminal {
            let mut line = String::new();
            return match std::io::stdin().lock().read_line(&mut line) {
                Ok(1..) => LineInput::Line(line.trim_end().to_owned()),
                _ => LineInput::End,
            };
        }
        let typed = self.typed(prompt);
        if let LineInput::Line(line) = &typed
            && !line.trim().is_empty()
            && self.lines.last() != Some(line)
        {
            self.lines.push(line.clone());
            self.keep();
        }
        typed
    }

    fn typed(&mut self, prompt: &str) -> LineInput {
        let Some(_raw) = RawMode::keys() else { return LineInput::End };
        let (mut line, mut place) = (LineBuffer::default(), self.lines.len());
        loop {
            show(prompt, &line);
            match line.key(&mut std::io::stdin().lock()) {
                KeyEffect::Go => {}
                KeyEffect::Enter => {
                    echo("\n");
                    return LineInput::Line(line.text.iter().collect());
                }
                KeyEffect::Cancel => {
                    echo("\n");
                    return LineInput::Nothing;
                }
                KeyEffect::End => {
                    echo("\n");
                    return LineInput::End;
                }
                step @ (KeyEffect::Older | KeyEffect::Newer) => {
                    place = match step {
                        KeyEffect::Older => place.saturating_sub(1),
                        _ => (place + 1).min(self.lines.len()),
                    };
                    line = self.lines.get(place).map(|kept| LineBuffer::of(kept)).unwrap_or_default();
                }
            }
        }
    }

    fn keep(&mut self) {
        let over = self.lines.len().saturating_sub(MAX_LINES);
        self.lines.drain(..over);
        let text = self.lines.join("\n") + "\n";
        let file =
            std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&self.file);
        // The chat works without a history, so write errors are ignored.
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }
}

impl LineBuffer {
    fn of(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        Self { at: text.len(), text }
    }

    /// Handles the next key.
    fn key(&mut self, keys: &mut impl std::io::Read) -> KeyEffect {
        let Some(byte) = next(keys) else { return KeyEffect::End };
        match byte {
            b'\r' | b'\n' => return KeyEffect::Enter,
            3 => return KeyEffect::Cancel,
            4 if self.text.is_empty() => return KeyEffect::End,
            4 => self.delete(),
            1 => self.at = 0,
            5 => self.at = self.text.len(),
            2 => self.at = self.at.saturating_sub(1),
            6 => self.at = (self.at + 1).min(self.text.len()),
            11 => self.text.truncate(self.at),
            16 => return KeyEffect::Older,
            14 => return KeyEffect::Newer,
            21 => drop(self.text.drain(..std::mem::take(&mut self.at))),
            23 => self.rub_out_word(),
            8 | 127 => self.rub_out(),
            27 => return self.escape(keys),
            ..32 => {}
            first => self.put(first, keys),
        }
        KeyEffect::Go
    }

    /// Handles an escape sequence: arrows, home, end, delete.
    fn escape(&mut self, keys: &mut impl std::io::Read) -> KeyEffect {
        if !matches!(next(keys), Some(b'[' | b'O')) {
            return KeyEffect::Go;
        }
        match next(keys) {
            Some(b'A') => return KeyEffect::Older,
            Some(b'B') => return KeyEffect::Newer,
            Some(b'C') => self.at = (self.at + 1).min(self.text.len()),
            Some(b'D') => self.at = self.at.saturating_sub(1),
            Some(b'H') => self.at = 0,
            Some(b'F') => self.at = self.text.len(),
            // `3~` and similar.
            Some(digit @ b'0'..=b'9') => {
                while !matches!(next(keys), None | Some(b'~' | b'A'..=b'Z' | b'a'..=b'z')) {}
                match digit {
                    b'3' => self.delete(),
                    b'1' | b'7' => self.at = 0,
                    b'4' | b'8' => self.at = self.text.len(),
                    _ => {}
                }
            }
            _ => {}
        }
        KeyEffect::Go
    }

    /// Reads the rest of a UTF-8 character, given its first byte.
    fn put(&mut self, first: u8, keys: &mut impl std::io::Read) {
        let more = match first {
            0xC0..=0xDF => 1,
            0xE0..=0xEF => 2,
            0xF0..=0xF7 => 3,
            _ => 0,
        };
        let mut bytes = vec![first];
        bytes.extend((0..more).map_while(|_| next(keys)));
        let character = std::str::from_utf8(&bytes).ok().and_then(|text| text.chars().next());
        if let Some(character) = character.filter(|_| self.text.len() < MAX_CHARS) {
            self.text.insert(self.at, character);
            self.at += 1;
        }
    }

    fn rub_out(&mut self) {
        if self.at > 0 {
            self.at -= 1;
            self.text.remove(self.at);
        }
    }

    fn rub_out_word(&mut self) {
        while self.at > 0 && self.text[self.at - 1].is_whitespace() {
            self.rub_out();
        }
        while self.at > 0 && !self.text[self.at - 1].is_whitespace() {
            self.rub_out();
        }
    }

    fn delete(&mut self) {
        if self.at < self.text.len() {
            self.text.remove(self.at);
        }
    }
}

fn next(keys: &mut impl std::io::Read) -> Option<u8> {
    let mut byte = [0];
    keys.read_exact(&mut byte).ok().map(|()| byte[0])
}

/// Redraws the line and places the cursor.
fn show(prompt: &str, line: &LineBuffer) {
    let text: String = line.text.iter().collect();
    let back = line.text.len() - line.at;
    let back = if back > 0 { format!("\u{1b}[{back}D") } else { String::new() };
    echo(&format!("\r\u{1b}[K{prompt}{text}{back}"));
}

fn echo(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[test]
fn keys_make_a_line() {
    let check = |keys: &[u8], text: &str, done: KeyEffect| {
        let (mut line, mut keys) = (LineBuffer::default(), keys);
        let mut last = KeyEffect::Go;
        while last == KeyEffect::Go {
            last = line.key(&mut keys);
        }
        assert_eq!((line.text.iter().collect::<String>().as_str(), &last), (text, &done));
    };
    check(b"hello\r", "hello", KeyEffect::Enter);
    check("grüß\r".as_bytes(), "grüß", KeyEffect::Enter);
    check(b"helo\x1b[Dl\r", "hello", KeyEffect::Enter);
    check(b"xhello\x01\x1b[3~\r", "hello", KeyEffect::Enter);
    check(b"hello big world\x17\x17\r", "hello ", KeyEffect::Enter);
    check(b"hello\x7f\x7f\r", "hel", KeyEffect::Enter);
    check(b"hello\x02\x02\x0b\r", "hel", KeyEffect::Enter);
    check(b"hello\x15\r", "", KeyEffect::Enter);
    check(b"hello\x03", "hello", KeyEffect::Cancel);
    check(b"\x04", "", KeyEffect::End);
    check(b"hel\x1b[A", "hel", KeyEffect::Older);
    check(b"hel\x1bOB", "hel", KeyEffect::Newer);
    check(b"a\x1b[5~b\r", "ab", KeyEffect::Enter);
}
