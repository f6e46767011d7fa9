//! Lines of heads that end without a carriage return, found in what a client sends.
//!
//! The reader of HTTP takes such a line for a whole one, others take it for a part of the line before it; whoever
//! stands between two that differ can smuggle a request past the first of them. So the bytes are followed beside the
//! reader, as far as that takes: which of them are heads, and how long the bodies between them are. What the reader
//! itself refuses is of no interest here. Invariant: a connection on which such a line came is read no further.

use memchr::memchr;

/// A line that ends in a line feed alone, or a length that cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BareLine;

/// The longest line that says how long a body is. A longer one is none that anybody writes.
const LONGEST: usize = 256;

/// Follows what a client sends.
#[derive(Debug, Default)]
pub(super) struct Lines {
    at: At,
    /// The line that has begun, as far as it is of interest.
    line: Vec<u8>,
    /// What the head says that comes.
    head: Head,
}

/// What the next byte belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Head,
    /// So much is left of a body, or of one of its parts.
    Body { left: u64, chunked: bool },
    /// The line with the length of the next part.
    Length,
    /// The lines behind the last part.
    Trailer,
    /// What follows a request for another protocol: that, or a head if it was not granted.
    Other,
    /// Another protocol.
    Gone,
}

#[derive(Debug, Default, Clone, Copy)]
struct Head {
    lines: usize,
    length: u64,
    chunked: bool,
    upgrade: bool,
}

impl Lines {
    /// Follows the next bytes.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<(), BareLine> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            match self.at {
                At::Gone => return Ok(()),
                // So begin frames of a WebSocket, and no head, nor the empty lines that may come before one.
                At::Other if matches!(first, 0x00..=0x09 | 0x80..) => self.at = At::Gone,
                At::Other => self.at = At::Head,
                At::Body { left, chunked } => {
                    let part = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    rest = &rest[part..];
                    self.at = match (left - part as u64, chunked) {
                        (0, true) => At::Length,
                        (0, false) => At::Head,
                        (left, chunked) => At::Body { left, chunked },
                    };
                }
                At::Head | At::Length | At::Trailer => {
                    let Some(end) = memchr(b'\n', rest) else {
                        self.keep(rest);
                        return Ok(());
                    };
                    // Most lines come whole.
                    if self.line.is_empty() {
                        self.line_ended(&rest[..end])?;
                    } else {
                        self.keep(&rest[..end]);
                        let line = std::mem::take(&mut self.line);
                        self.line_ended(&line)?;
                    }
                    rest = &rest[end + 1..];
                }
            }
        }
        Ok(())
    }

    /// Remembers a line, or its beginning and its last byte.
    fn keep(&mut self, part: &[u8]) {
        let room = LONGEST.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() > room
            && let (Some(kept), Some(last)) = (self.line.last_mut(), part.last())
        {
            *kept = *last;
        }
    }

    fn line_ended(&mut self, line: &[u8]) -> Result<(), BareLine> {
        let line = line.strip_suffix(b"\r").ok_or(BareLine)?;
        let empty = line.is_empty();
        self.at = match self.at {
            At::Head if empty => self.head_ended(),
            At::Head => {
                self.head.take(line)?;
                At::Head
            }
            At::Length => match chunk(line)? {
                0 => At::Trailer,
                // The part, and the end of its line.
                length => At::Body { left: length.saturating_add(2), chunked: true },
            },
            At::Trailer if empty => At::Head,
            at => at,
        };
        Ok(())
    }

    fn head_ended(&mut self) -> At {
        let head = std::mem::take(&mut self.head);
        match head {
            // Empty lines may come before a head.
            Head { lines: 0, .. } => At::Head,
            Head { chunked: true, .. } => At::Length,
            Head { length: 1.., .. } => At::Body { left: head.length, chunked: false },
            Head { upgrade: true, .. } => At::Other,
            _ => At::Head,
        }
    }
}

impl Head {
    fn take(&mut self, line: &[u8]) -> Result<(), BareLine> {
        self.lines += 1;
        let Some(colon) = memchr(b':', line).filter(|_| self.lines > 1) else { return Ok(()) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let framing = ["content-length", "transfer-encoding", "upgrade"];
        if !framing.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
            return Ok(());
        }
        // Where it ends is not known, and nobody writes so much.
        if line.len() + 1 >= LONGEST {
            return Err(BareLine);
        }
        match name.first() {
            Some(b'c' | b'C') => {
                // The reader takes `5, 5`, too; then the two would not mean the same.
                let digits = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                self.length = digits.ok_or(BareLine)?;
            }
            Some(b't' | b'T') => self.chunked = true,
            _ => self.upgrade = true,
        }
        Ok(())
    }
}

/// How long a part is.
fn chunk(line: &[u8]) -> Result<u64, BareLine> {
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    // What is no number is refused by the reader; here nothing can be followed behind it.
    let digits = std::str::from_utf8(&line[..digits]).map_err(|_| BareLine)?;
    u64::from_str_radix(digits, 16).map_err(|_| BareLine)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same whole, and byte by byte.
    fn check(text: &str, due: Result<(), BareLine>) {
        assert_eq!(Lines::default().follow(text.as_bytes()), due, "{text:?}");
        let mut lines = Lines::default();
        let parts = text.as_bytes().iter().try_for_each(|byte| lines.follow(std::slice::from_ref(byte)));
        assert_eq!(parts, due, "byte by byte: {text:?}");
    }

    #[test]
    fn heads_and_what_is_between_them() {
        for good in [
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\na\nb\n\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;x=\"y\"\r\na\nb\r\n1\r\n\n\r\n0\r\nX: y\r\n\r\nGET /",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\u{1}\n\n\n",
            "GET / HTTP/1.1\r\nX-Odd: content-length\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            check(good, Ok(()));
        }
        let long = format!("GET / HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(1_000));
        check(&long, Ok(()));
        for bad in [
            "GET / HTTP/1.1\n",
            "\n",
            "GET / HTTP/1.1\r\nHost: x\n",
            "GET / HTTP/1.1\r\nHost: x\r\n\n",
            "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\nGET / HTTP/1.1\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\nGET / HTTP/1.1\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n",
            // Another protocol that was asked for, and not granted.
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\n",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\r\n!GET / HTTP/1.1\n",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n!GET / HTTP/1.1\n",
            "POST / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\n",
            // Lengths that the reader may understand, and who follows it not.
            "POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n",
            "POST / HTTP/1.1\r\nContent-Length: five\r\n",
        ] {
            check(bad, Err(BareLine));
        }
        check(&format!("GET / HTTP/1.1\r\nX-Long: {}\n", "x".repeat(1_000)), Err(BareLine));
        check(&format!("GET / HTTP/1.1\r\nContent-Length: {}5\r\n", " ".repeat(1_000)), Err(BareLine));
    }

    proptest! {
        #[test]
        fn bodies_may_hold_anything(bodies in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)), 0..6), cut in 1..40_usize) {
            let mut bytes = Vec::new();
            for (chunked, body) in &bodies {
                bytes.extend_from_slice(b"POST / HTTP/1.1\r\n");
                if *chunked {
                    bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    for part in body.chunks(7) {
                        bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                        bytes.extend_from_slice(part);
                        bytes.extend_from_slice(b"\r\n");
                    }
                    bytes.extend_from_slice(b"0\r\n\r\n");
                } else {
                    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                    bytes.extend_from_slice(body);
                }
            }
            let mut lines = Lines::default();
            prop_assert_eq!(bytes.chunks(cut).try_for_each(|part| lines.follow(part)), Ok(()));
            prop_assert_eq!(lines.follow(b"GET / HTTP/1.1\n"), Err(BareLine));
        }
    }
}
