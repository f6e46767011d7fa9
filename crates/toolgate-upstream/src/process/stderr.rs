//! The last lines a child said on its stderr.
//!
//! They explain most failures of a server, so they go into every error that concerns it. A child may
//! write without end: it is always read, and only the end is kept. Invariant: memory is bounded, and
//! what comes out is clean to show, whatever went in.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use toolgate_types::clean::is_hidden;

/// Bytes kept: a screen or two of any program's last words.
const KEPT_BYTES: usize = 64 * 1024;
/// Read at once: a whole pipe, so that a flood costs few wake-ups.
const READ_BYTES: usize = 64 * 1024;
/// The longest line shown; the rest of it helps nobody.
const LINE_CHARS: usize = 500;

/// The end of what a child wrote.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    /// The beginning is gone, and the first line with it.
    cut: bool,
    /// Bytes that were written in all.
    written: u64,
}

impl Tail {
    /// Reads until the end, keeping the last bytes.
    pub(crate) async fn fill(&self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match from.read(&mut buffer).await? {
                0 => return Ok(()),
                count => self.lock().push(&buffer[..count]),
            }
        }
    }

    /// How much was written so far.
    pub(crate) fn written(&self) -> u64 {
        self.lock().written
    }

    /// The last `count` lines, without control characters and empty lines.
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        self.lines_since(0, count)
    }

    /// The last `count` lines of what came after so much was written.
    pub(crate) fn lines_since(&self, written: u64, count: usize) -> Vec<String> {
        let (bytes, cut) = {
            let ring = self.lock();
            let new = usize::try_from(ring.written.saturating_sub(written)).unwrap_or(usize::MAX);
            let old = ring.bytes.len().saturating_sub(new);
            (ring.bytes.iter().skip(old).copied().collect::<Vec<u8>>(), ring.cut && old == 0)
        };
        let text = String::from_utf8_lossy(&bytes);
        // A progress bar ends its lines with `\r`.
        let mut lines: Vec<&str> = text.split(['\n', '\r']).collect();
        if cut && lines.len() > 1 {
            lines.remove(0);
        }
        let mut clean: Vec<String> =
            lines.iter().rev().map(|line| clean(line)).filter(|line| !line.is_empty()).take(count).collect();
        clean.reverse();
        clean
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Bytes cannot be left half-written in a way that matters.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        let excess = (self.bytes.len() + kept.len()).saturating_sub(KEPT_BYTES);
        self.cut |= excess > 0 || kept.len() < bytes.len();
        self.written += bytes.len() as u64;
        self.bytes.drain(..excess);
        self.bytes.extend(kept);
    }
}

/// One line as it may be shown: no escape sequence, no character that moves or hides others.
fn clean(line: &str) -> String {
    let mut shown = String::new();
    let mut chars = line.chars().peekable();
    let mut count = 0;
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next_if(|next| matches!(next, '[' | ']')) {
                // A colour or a movement: ends with a letter.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // A title or a link: ends with a bell, or with an escape and a backslash.
                Some(_) => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\\') {},
                None => {}
            },
            '\t' => shown.push(' '),
            c if is_hidden(c) => continue,
            c => shown.push(c),
        }
        count += 1;
        if count == LINE_CHARS {
            shown.push('…');
            break;
        }
    }
    shown.truncate(shown.trim_end().len());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &[&[u8]], count: usize, expected: &[&str]) {
        let tail = Tail::default();
        for bytes in written {
            tail.lock().push(bytes);
        }
        assert!(tail.lock().bytes.len() <= KEPT_BYTES);
        assert_eq!(tail.lines(count), expected);
    }

    #[test]
    fn the_last_lines_whole() {
        check(&[b"one\ntwo\nth", b"ree\n"], 2, &["two", "three"]);
        check(&[b"one\n\n\ntwo"], 9, &["one", "two"]);
        check(&[], 9, &[]);
        check(&[b"10%\r20%\r\n"], 1, &["20%"]);
    }

    #[test]
    fn what_came_after_a_moment() {
        let tail = Tail::default();
        tail.lock().push(b"of another\n");
        let moment = tail.written();
        assert!(tail.lines_since(moment, 9).is_empty());
        tail.lock().push(b"mine\n");
        assert_eq!(tail.lines_since(moment, 9), ["mine"]);
        tail.lock().push(&vec![b'z'; KEPT_BYTES]);
        assert_eq!(tail.lines_since(moment, 9).len(), 1);
    }

    #[test]
    fn what_would_deceive_is_gone() {
        check(&[b"\x1b[31mred\x1b[0m \x1b]0;title\x07plain\x00\x08\n"], 1, &["red plain"]);
        check(&["a\u{202e}b\u{200b}c\u{e0041}\td\n".as_bytes()], 1, &["abc d"]);
        check(&[b"caf\xe9\n"], 1, &["caf\u{fffd}"]);
        check(&[b"\x1b["], 1, &[]);
    }

    #[test]
    fn a_flood_keeps_its_end() {
        let line = [b'x'; 1000];
        let mut written: Vec<&[u8]> = Vec::new();
        for _ in 0..100 {
            written.extend([&line[..], b"\n"]);
        }
        written.push(b"the end\n");
        let long = format!("{}…", "x".repeat(LINE_CHARS));
        check(&written, 2, &[&long, "the end"]);
        let huge = vec![b'y'; 3 * KEPT_BYTES];
        check(&[&huge, b"\nlast"], 9, &["last"]);
        check(&[&huge], 9, &[&long.replace('x', "y")]);
    }
}
