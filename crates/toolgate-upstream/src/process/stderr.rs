//! The last lines of a child's stderr.
//!
//! They explain most failures of a server, so they are part of every error about it. A child may write without limit:
//! everything is read, and only the end is kept. Invariant: memory is bounded, and the lines are safe to display, for
//! any input.

use std::collections::VecDeque;
use std::io;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt};
use toolgate_redact::sanitize::is_hidden;

/// Bytes kept, enough for a screen or two.
const MAX_TAIL_BYTES: usize = 64 * 1024;
/// Bytes per read: a whole pipe buffer, so that a flood causes few wake-ups.
const READ_CHUNK_BYTES: usize = 64 * 1024;
/// The longest line shown.
const MAX_LINE_CHARS: usize = 500;

/// The end of a child's stderr.
#[derive(Debug, Default)]
pub(crate) struct StderrTail {
    ring: Mutex<RingBuffer>,
}

#[derive(Debug, Default)]
struct RingBuffer {
    bytes: VecDeque<u8>,
    /// True if the beginning was discarded, so the first line may be incomplete.
    cut: bool,
    /// All bytes written, including discarded ones.
    written: u64,
}

impl StderrTail {
    /// Reads until end of file, and keeps the last bytes.
    pub(crate) async fn fill(&self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = vec![0; READ_CHUNK_BYTES];
        loop {
            match from.read(&mut buffer).await? {
                0 => return Ok(()),
                count => self.lock().push(&buffer[..count]),
            }
        }
    }

    /// All bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.lock().written
    }

    /// The last `count` lines, without control characters and empty lines.
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        self.lines_since(0, count)
    }

    /// The last `count` lines after the first `written` bytes.
    pub(crate) fn lines_since(&self, written: u64, count: usize) -> Vec<String> {
        let (bytes, cut) = {
            let ring = self.lock();
            let new = usize::try_from(ring.written.saturating_sub(written)).unwrap_or(usize::MAX);
            let old = ring.bytes.len().saturating_sub(new);
            (ring.bytes.iter().skip(old).copied().collect::<Vec<u8>>(), ring.cut && old == 0)
        };
        let text = String::from_utf8_lossy(&bytes);
        // Progress bars end their lines with `\r`.
        let mut lines: Vec<&str> = text.split(['\n', '\r']).collect();
        if cut && lines.len() > 1 {
            lines.remove(0);
        }
        let mut clean: Vec<String> =
            lines.iter().rev().map(|line| clean(line)).filter(|line| !line.is_empty()).take(count).collect();
        clean.reverse();
        clean
    }

    fn lock(&self) -> MutexGuard<'_, RingBuffer> {
        // The buffer stays usable even if a panic interrupted a write.
        self.ring.lock()
    }
}

impl RingBuffer {
    fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(MAX_TAIL_BYTES)..];
        let excess = (self.bytes.len() + kept.len()).saturating_sub(MAX_TAIL_BYTES);
        self.cut |= excess > 0 || kept.len() < bytes.len();
        self.written += bytes.len() as u64;
        self.bytes.drain(..excess);
        self.bytes.extend(kept);
    }
}

/// Cleans a line for display: removes escape sequences, and characters that move or hide others.
fn clean(line: &str) -> String {
    let mut shown = String::new();
    let mut chars = line.chars().peekable();
    let mut count = 0;
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next_if(|next| matches!(next, '[' | ']')) {
                // CSI (color, cursor movement): ends with a letter.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // OSC (title, link): ends with BEL, or with ESC and a backslash.
                Some(_) => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\\') {},
                None => {}
            },
            '\t' => shown.push(' '),
            c if is_hidden(c) => continue,
            c => shown.push(c),
        }
        count += 1;
        if count == MAX_LINE_CHARS {
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
        let tail = StderrTail::default();
        for bytes in written {
            tail.lock().push(bytes);
        }
        assert!(tail.lock().bytes.len() <= MAX_TAIL_BYTES);
        assert_eq!(tail.lines(count), expected);
    }

    #[test]
    fn returns_the_last_complete_lines() {
        check(&[b"one\ntwo\nth", b"ree\n"], 2, &["two", "three"]);
        check(&[b"one\n\n\ntwo"], 9, &["one", "two"]);
        check(&[], 9, &[]);
        check(&[b"10%\r20%\r\n"], 1, &["20%"]);
    }

    #[test]
    fn returns_lines_since_an_offset() {
        let tail = StderrTail::default();
        tail.lock().push(b"of another\n");
        let offset = tail.written();
        assert!(tail.lines_since(offset, 9).is_empty());
        tail.lock().push(b"mine\n");
        assert_eq!(tail.lines_since(offset, 9), ["mine"]);
        tail.lock().push(&vec![b'z'; MAX_TAIL_BYTES]);
        assert_eq!(tail.lines_since(offset, 9).len(), 1);
    }

    #[test]
    fn removes_escapes_and_invisible_characters() {
        check(&[b"\x1b[31mred\x1b[0m \x1b]0;title\x07plain\x00\x08\n"], 1, &["red plain"]);
        check(&["a\u{202e}b\u{200b}c\u{e0041}\td\n".as_bytes()], 1, &["abc d"]);
        check(&[b"caf\xe9\n"], 1, &["caf\u{fffd}"]);
        check(&[b"\x1b["], 1, &[]);
    }

    #[test]
    fn a_flood_keeps_only_its_end() {
        let line = [b'x'; 1000];
        let mut written: Vec<&[u8]> = Vec::new();
        for _ in 0..100 {
            written.extend([&line[..], b"\n"]);
        }
        written.push(b"the end\n");
        let long = format!("{}…", "x".repeat(MAX_LINE_CHARS));
        check(&written, 2, &[&long, "the end"]);
        let huge = vec![b'y'; 3 * MAX_TAIL_BYTES];
        check(&[&huge, b"\nlast"], 9, &["last"]);
        check(&[&huge], 9, &[&long.replace('x', "y")]);
    }
}
