//! Reads a single key or a line at the terminal, for questions to a person.
//!
//! Invariant: the terminal mode is restored afterwards, and input from before the question never answers it: not a key that
//! was typed ahead, and not one that is part of a word or a paste.

use std::io::Write as _;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};

use crate::cli::ColorMode;
use crate::output::{BOLD, Output};

/// Maximum length of a typed line. A terminal in line mode delivers at most 4 KiB at a time.
const MAX_LINE: usize = 64 << 10;

/// Time without a key after that a person is taken to have stopped typing.
const TYPING_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Keys that follow each other faster than this are one input, such as a word or a paste.
const SAME_INPUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Asks and waits for one key: `y` is yes, everything else is no. If the person is typing, it waits for the end of that
/// before it asks.
pub(crate) fn yes(text: &str) -> bool {
    let output = Output::new(false, ColorMode::Auto);
    let raw = RawMode::new();
    output.message(text);
    let mut key = None;
    if raw.is_some() {
        if is_typed_within(&Timespec::default()) {
            wait_for_pause();
        }
        loop {
            output.message(&format!(" {BOLD}[y/N]{BOLD:#} "));
            key = read_byte();
            if key.is_none() || !is_typed_within(&SAME_INPUT) {
                break;
            }
            wait_for_pause();
            output.message("\n  one key answers: y approves");
        }
    } else {
        output.message(&format!(" {BOLD}[y/N]{BOLD:#} "));
    }
    drop(raw);
    let yes = matches!(key, Some(b'y' | b'Y'));
    output.message(if yes { "yes\n" } else { "no\n" });
    yes
}

/// Asks and waits for a line: `y` or `yes` is yes, everything else is no.
pub(crate) fn yes_line(question: &str) -> bool {
    discard_pending();
    let _ = std::io::stderr().lock().write_all(question.as_bytes());
    read_line().is_some_and(|line| matches!(line.as_str(), "y" | "Y" | "yes"))
}

/// Reads a line, without the white space around it. `None` if stdin is closed or the line is too long.
pub(crate) fn read_line() -> Option<String> {
    let mut line = Vec::new();
    loop {
        match read_byte() {
            None if line.is_empty() => return None,
            None | Some(b'\n') => break,
            Some(_) if line.len() >= MAX_LINE => return None,
            Some(byte) => line.push(byte),
        }
    }
    Some(String::from_utf8_lossy(&line).trim().to_owned())
}

/// Returns true if a key can be read within this time.
fn is_typed_within(time: &Timespec) -> bool {
    let stdin = std::io::stdin();
    matches!(poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(time)), Ok(1..))
}

/// Discards input until the person stops typing.
fn wait_for_pause() {
    loop {
        discard_pending();
        if !is_typed_within(&TYPING_PAUSE) {
            return;
        }
        // At the end of input, reading is possible and returns nothing.
        if read_byte().is_none() {
            return;
        }
    }
}

/// Discards input that was typed before. Call it before a question is shown.
pub(crate) fn discard_pending() {
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
}

/// Reads one byte past the buffer of stdin: it could hold input from before, and would keep input for the next question.
fn read_byte() -> Option<u8> {
    let mut byte = [0];
    loop {
        match rustix::io::read(std::io::stdin(), &mut byte) {
            Ok(1) => return Some(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
}

/// Raw mode of the terminal in which Ctrl-C stays a signal, restored on drop.
struct RawMode(Termios);

impl RawMode {
    fn new() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
        let _ = std::io::stderr().flush();
    }
}
