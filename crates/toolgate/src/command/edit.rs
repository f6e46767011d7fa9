//! A line that is typed: at a terminal with what was typed before, elsewhere as it comes.
//!
//! Invariant: the terminal is as it was when a line is there; what was typed before is kept in a file that nobody else
//! may read, and bounded.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crate::command::agent::keys::Raw;

/// Lines that are kept.
const MOST_LINES: usize = 500;
/// Characters of a line.
const LONGEST: usize = 64 << 10;

/// What came of typing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Line(String),
    /// The line was thrown away.
    Nothing,
    /// Nobody types any more.
    End,
}

/// Reads lines.
pub(crate) struct Editor {
    lively: bool,
    file: PathBuf,
    lines: Vec<String>,
}

/// A line while it is typed.
#[derive(Debug, Default)]
struct Line {
    text: Vec<char>,
    at: usize,
}

/// What a key does to a line.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    Go,
    Enter,
    Cancel,
    End,
    Older,
    Newer,
}

impl Editor {
    pub(crate) fn new(file: PathBuf) -> Self {
        let lively = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let text = if lively { fs_err::read_to_string(&file).unwrap_or_default() } else { String::new() };
        Self { lively, file, lines: text.lines().map(str::to_owned).collect() }
    }

    pub(crate) fn is_lively(&self) -> bool {
        self.lively
    }

    /// The next line.
    pub(crate) fn line(&mut self, prompt: &str) -> Typed {
        if !self.lively {
            let mut line = String::new();
            return match std::io::stdin().lock().read_line(&mut line) {
                Ok(1..) => Typed::Line(line.trim_end().to_owned()),
                _ => Typed::End,
            };
        }
        let typed = self.typed(prompt);
        if let Typed::Line(line) = &typed
            && !line.trim().is_empty()
            && self.lines.last() != Some(line)
        {
            self.lines.push(line.clone());
            self.keep();
        }
        typed
    }

    fn typed(&mut self, prompt: &str) -> Typed {
        let Some(_raw) = Raw::keys() else { return Typed::End };
        let (mut line, mut place) = (Line::default(), self.lines.len());
        loop {
            show(prompt, &line);
            match line.key(&mut std::io::stdin().lock()) {
                Done::Go => {}
                Done::Enter => {
                    echo("\n");
                    return Typed::Line(line.text.iter().collect());
                }
                Done::Cancel => {
                    echo("\n");
                    return Typed::Nothing;
                }
                Done::End => {
                    echo("\n");
                    return Typed::End;
                }
                step @ (Done::Older | Done::Newer) => {
                    place = match step {
                        Done::Older => place.saturating_sub(1),
                        _ => (place + 1).min(self.lines.len()),
                    };
                    line = self.lines.get(place).map(|kept| Line::of(kept)).unwrap_or_default();
                }
            }
        }
    }

    fn keep(&mut self) {
        let over = self.lines.len().saturating_sub(MOST_LINES);
        self.lines.drain(..over);
        let text = self.lines.join("\n") + "\n";
        let file =
            std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&self.file);
        // A chat without a memory is still a chat.
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }
}

impl Line {
    fn of(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        Self { at: text.len(), text }
    }

    /// Takes the next key.
    fn key(&mut self, keys: &mut impl std::io::Read) -> Done {
        let Some(byte) = next(keys) else { return Done::End };
        match byte {
            b'\r' | b'\n' => return Done::Enter,
            3 => return Done::Cancel,
            4 if self.text.is_empty() => return Done::End,
            4 => self.delete(),
            1 => self.at = 0,
            5 => self.at = self.text.len(),
            2 => self.at = self.at.saturating_sub(1),
            6 => self.at = (self.at + 1).min(self.text.len()),
            11 => self.text.truncate(self.at),
            16 => return Done::Older,
            14 => return Done::Newer,
            21 => drop(self.text.drain(..std::mem::take(&mut self.at))),
            23 => self.rub_out_word(),
            8 | 127 => self.rub_out(),
            27 => return self.escape(keys),
            ..32 => {}
            first => self.put(first, keys),
        }
        Done::Go
    }

    /// A key with a name: arrows, home, end, delete.
    fn escape(&mut self, keys: &mut impl std::io::Read) -> Done {
        if !matches!(next(keys), Some(b'[' | b'O')) {
            return Done::Go;
        }
        match next(keys) {
            Some(b'A') => return Done::Older,
            Some(b'B') => return Done::Newer,
            Some(b'C') => self.at = (self.at + 1).min(self.text.len()),
            Some(b'D') => self.at = self.at.saturating_sub(1),
            Some(b'H') => self.at = 0,
            Some(b'F') => self.at = self.text.len(),
            // `3~` and the like.
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
        Done::Go
    }

    /// A character, whose first byte says how many there are.
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
        if let Some(character) = character.filter(|_| self.text.len() < LONGEST) {
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

/// The line as it is, with the cursor in its place.
fn show(prompt: &str, line: &Line) {
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
    let check = |keys: &[u8], text: &str, done: Done| {
        let (mut line, mut keys) = (Line::default(), keys);
        let mut last = Done::Go;
        while last == Done::Go {
            last = line.key(&mut keys);
        }
        assert_eq!((line.text.iter().collect::<String>().as_str(), &last), (text, &done));
    };
    check(b"hello\r", "hello", Done::Enter);
    check("grüß\r".as_bytes(), "grüß", Done::Enter);
    check(b"helo\x1b[Dl\r", "hello", Done::Enter);
    check(b"xhello\x01\x1b[3~\r", "hello", Done::Enter);
    check(b"hello big world\x17\x17\r", "hello ", Done::Enter);
    check(b"hello\x7f\x7f\r", "hel", Done::Enter);
    check(b"hello\x02\x02\x0b\r", "hel", Done::Enter);
    check(b"hello\x15\r", "", Done::Enter);
    check(b"hello\x03", "hello", Done::Cancel);
    check(b"\x04", "", Done::End);
    check(b"hel\x1b[A", "hel", Done::Older);
    check(b"hel\x1bOB", "hel", Done::Newer);
    check(b"a\x1b[5~b\r", "ab", Done::Enter);
}
