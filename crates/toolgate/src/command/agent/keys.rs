//! Reads a single key or a line at the terminal, for questions to a person.
//!
//! Invariant: the terminal mode is restored afterwards; one question at a time reads the terminal, and one that was
//! withdrawn stops reading; input from before the question never answers it: not a key that was typed ahead, and not one
//! that is part of a word or a paste.

use std::cell::RefCell;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
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

/// Interval at that a reader checks if its question was withdrawn.
const WITHDRAWAL_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

const PASTE_ON: &str = "\u{1b}[?2004h";
const PASTE_OFF: &str = "\u{1b}[?2004l";

/// Held while something reads the terminal.
static READER: Mutex<()> = Mutex::new(());
/// True while [`QuietMode`] asks the terminal to mark pasted text.
static MARKS_PASTES: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Set when the question that this thread asks is withdrawn.
    static WITHDRAWN: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Waits until no question reads the terminal.
pub(crate) fn lock_terminal() -> MutexGuard<'static, ()> {
    READER.lock()
}

/// Asks a question as the only reader of the terminal. Once `withdrawn` is set, reading ends like at the end of input.
pub(crate) fn ask_alone<T>(withdrawn: &Arc<AtomicBool>, ask: impl FnOnce() -> Option<T>) -> Option<T> {
    let _reader = lock_terminal();
    if withdrawn.load(Ordering::Relaxed) {
        return None;
    }
    WITHDRAWN.set(Some(Arc::clone(withdrawn)));
    let answer = ask();
    WITHDRAWN.set(None);
    answer
}

fn is_withdrawn() -> bool {
    WITHDRAWN.with_borrow(|withdrawn| withdrawn.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// A key that answers a question, and the words that show the answer.
pub(crate) type KeyChoice<T> = (u8, &'static str, T);

/// Asks and waits for one key: `y` is yes, everything else is no.
pub(crate) fn yes(text: &str) -> Option<bool> {
    choose(text, &[(b'y', "yes", true)], ("no", false))
}

/// Asks and waits for one key. If the person is typing, it waits for the end of that before it asks. `None` if the
/// question was withdrawn.
pub(crate) fn choose<T: Copy>(text: &str, choices: &[KeyChoice<T>], other: (&str, T)) -> Option<T> {
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
    if is_withdrawn() {
        output.message("withdrawn\n");
        return None;
    }
    let chosen = choices.iter().find(|(choice, ..)| key.is_some_and(|key| key.eq_ignore_ascii_case(choice)));
    let (words, answer) = chosen.map_or(other, |(_, words, answer)| (*words, *answer));
    output.message(&format!("{words}\n"));
    Some(answer)
}

/// Asks and waits for a line: `y` or `yes` is yes, everything else is no.
pub(crate) fn yes_line(question: &str) -> bool {
    discard_pending();
    let _ = std::io::stderr().lock().write_all(question.as_bytes());
    read_line().is_some_and(|line| matches!(line.as_str(), "y" | "Y" | "yes"))
}

/// Reads a line, without the white space around it. `None` if stdin is closed or the line is too long.
pub(crate) fn read_line() -> Option<String> {
    let _mode = LineMode::new();
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
/// `None` at the end of input, and once the question is withdrawn.
fn read_byte() -> Option<u8> {
    let mut byte = [0];
    loop {
        while !is_typed_within(&WITHDRAWAL_CHECK) {
            if is_withdrawn() {
                return None;
            }
        }
        match rustix::io::read(std::io::stdin(), &mut byte) {
            Ok(1) => return Some(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
}

/// Sets modes of the terminal and restores the earlier ones on drop.
struct ModeGuard(Termios);

impl ModeGuard {
    /// Changes the modes. `None` if stdin is not a terminal.
    fn set(change: impl FnOnce(&mut Termios)) -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut modes = before.clone();
        change(&mut modes);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &modes).ok()?;
        Some(Self(before))
    }
}

impl Drop for ModeGuard {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
        let _ = std::io::stderr().flush();
    }
}

/// Raw mode, except that Ctrl-C stays a signal.
struct RawMode(#[expect(dead_code, reason = "restores the modes on drop")] ModeGuard);

impl RawMode {
    fn new() -> Option<Self> {
        let raw = |modes: &mut Termios| {
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        };
        ModeGuard::set(raw).map(Self)
    }
}

/// Line mode with echo, for a line that is typed while [`QuietMode`] holds.
struct LineMode(#[expect(dead_code, reason = "restores the modes on drop")] Option<ModeGuard>);

impl LineMode {
    fn new() -> Self {
        if MARKS_PASTES.load(Ordering::Relaxed) {
            write_control(PASTE_OFF);
        }
        let line = |modes: &mut Termios| modes.local_modes |= LocalModes::ICANON | LocalModes::ECHO;
        Self(ModeGuard::set(line))
    }
}

impl Drop for LineMode {
    fn drop(&mut self) {
        if MARKS_PASTES.load(Ordering::Relaxed) {
            write_control(PASTE_ON);
        }
    }
}

/// Keeps keys that are typed ahead for the next line, and does not echo them into the output. Pasted text is marked, so
/// that the next line takes it as a whole. Ctrl-C stays a signal.
pub(crate) struct QuietMode(#[expect(dead_code, reason = "restores the modes on drop")] RawMode);

impl QuietMode {
    /// `None` if there is no terminal.
    pub(crate) fn new() -> Option<Self> {
        let raw = RawMode::new()?;
        MARKS_PASTES.store(true, Ordering::Relaxed);
        write_control(PASTE_ON);
        Some(Self(raw))
    }
}

impl Drop for QuietMode {
    fn drop(&mut self) {
        MARKS_PASTES.store(false, Ordering::Relaxed);
        write_control(PASTE_OFF);
    }
}

fn write_control(sequence: &str) {
    let _ = std::io::stderr().lock().write_all(sequence.as_bytes());
}
