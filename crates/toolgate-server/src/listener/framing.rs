//! Detects ambiguous request framing: bare line feeds in heads, and unusual body lengths.
//!
//! The HTTP parser accepts a line that ends in a bare LF; other parsers treat it as part of the line before. A client
//! between two such parsers can smuggle a request past the first. So this check follows the byte stream next to the
//! parser, as far as needed to know heads from bodies. Errors that the parser itself rejects are ignored here.
//! Invariant: a connection with ambiguous framing is not read any further.

use memchr::memchr;

/// A line that ends in a bare line feed, or a body length that cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FramingError;

/// Maximum length of a line that defines the body length. Real clients never send longer ones.
const MAX_LINE_BYTES: usize = 256;

/// Follows the bytes a client sends.
#[derive(Debug, Default)]
pub(super) struct FramingCheck {
    state: FramingState,
    /// Start of the current line, as far as relevant.
    line: Vec<u8>,
    /// Framing of the current head.
    head: HeadFraming,
}

/// Part of the stream the next byte belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FramingState {
    #[default]
    Head,
    /// A body, or a chunk of one, with the number of bytes left.
    Body { left: u64, chunked: bool },
    /// The line with the size of the next chunk.
    ChunkSize,
    /// Trailer lines after the last chunk.
    Trailer,
    /// After an upgrade request: another protocol, or a head if the upgrade was rejected.
    AfterUpgrade,
    /// Another protocol.
    Upgraded,
}

#[derive(Debug, Default, Clone, Copy)]
struct HeadFraming {
    lines: usize,
    length: u64,
    chunked: bool,
    upgrade: bool,
}

impl FramingCheck {
    /// Checks the next bytes.
    pub(super) fn check(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            match self.state {
                FramingState::Upgraded => return Ok(()),
                // WebSocket frames start like this. Heads do not, nor do the empty lines that may precede one.
                FramingState::AfterUpgrade if matches!(first, 0x00..=0x09 | 0x80..) => {
                    self.state = FramingState::Upgraded
                }
                FramingState::AfterUpgrade => self.state = FramingState::Head,
                FramingState::Body { left, chunked } => {
                    let part = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    rest = &rest[part..];
                    self.state = match (left - part as u64, chunked) {
                        (0, true) => FramingState::ChunkSize,
                        (0, false) => FramingState::Head,
                        (left, chunked) => FramingState::Body { left, chunked },
                    };
                }
                FramingState::Head | FramingState::ChunkSize | FramingState::Trailer => {
                    let Some(end) = memchr(b'\n', rest) else {
                        self.buffer_line(rest);
                        return Ok(());
                    };
                    // Usually a line arrives whole.
                    if self.line.is_empty() {
                        self.end_line(&rest[..end])?;
                    } else {
                        self.buffer_line(&rest[..end]);
                        let line = std::mem::take(&mut self.line);
                        self.end_line(&line)?;
                    }
                    rest = &rest[end + 1..];
                }
            }
        }
        Ok(())
    }

    /// Buffers a line. Of an overlong line it keeps the start and the last byte.
    fn buffer_line(&mut self, part: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() > room
            && let (Some(kept), Some(last)) = (self.line.last_mut(), part.last())
        {
            *kept = *last;
        }
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), FramingError> {
        let line = line.strip_suffix(b"\r").ok_or(FramingError)?;
        let empty = line.is_empty();
        self.state = match self.state {
            FramingState::Head if empty => self.end_head(),
            FramingState::Head => {
                self.head.read_header(line)?;
                FramingState::Head
            }
            FramingState::ChunkSize => match chunk_size(line)? {
                0 => FramingState::Trailer,
                // The chunk, plus its CRLF.
                length => FramingState::Body { left: length.saturating_add(2), chunked: true },
            },
            FramingState::Trailer if empty => FramingState::Head,
            state => state,
        };
        Ok(())
    }

    fn end_head(&mut self) -> FramingState {
        let head = std::mem::take(&mut self.head);
        match head {
            // Empty lines may precede a head.
            HeadFraming { lines: 0, .. } => FramingState::Head,
            HeadFraming { chunked: true, .. } => FramingState::ChunkSize,
            HeadFraming { length: 1.., .. } => FramingState::Body { left: head.length, chunked: false },
            HeadFraming { upgrade: true, .. } => FramingState::AfterUpgrade,
            _ => FramingState::Head,
        }
    }
}

impl HeadFraming {
    fn read_header(&mut self, line: &[u8]) -> Result<(), FramingError> {
        self.lines += 1;
        let Some(colon) = memchr(b':', line).filter(|_| self.lines > 1) else { return Ok(()) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let framing = ["content-length", "transfer-encoding", "upgrade"];
        if !framing.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
            return Ok(());
        }
        // The buffered line is truncated, so the value is unknown. Real clients never send that much.
        if line.len() + 1 >= MAX_LINE_BYTES {
            return Err(FramingError);
        }
        match name.first() {
            Some(b'c' | b'C') => {
                // The HTTP parser accepts `5, 5` as well; the two would then disagree.
                let digits = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                self.length = digits.ok_or(FramingError)?;
            }
            Some(b't' | b'T') => self.chunked = true,
            _ => self.upgrade = true,
        }
        Ok(())
    }
}

/// Parses the size of a chunk.
fn chunk_size(line: &[u8]) -> Result<u64, FramingError> {
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    // The HTTP parser rejects sizes that are not numbers; the stream cannot be followed after one.
    let digits = std::str::from_utf8(&line[..digits]).map_err(|_| FramingError)?;
    u64::from_str_radix(digits, 16).map_err(|_| FramingError)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the text whole, and byte by byte.
    fn assert_check(text: &str, due: Result<(), FramingError>) {
        assert_eq!(FramingCheck::default().check(text.as_bytes()), due, "{text:?}");
        let mut lines = FramingCheck::default();
        let parts = text.as_bytes().iter().try_for_each(|byte| lines.check(std::slice::from_ref(byte)));
        assert_eq!(parts, due, "byte by byte: {text:?}");
    }

    #[test]
    fn finds_bare_line_feeds_in_heads() {
        for good in [
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\na\nb\n\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;x=\"y\"\r\na\nb\r\n1\r\n\n\r\n0\r\nX: y\r\n\r\nGET /",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\u{1}\n\n\n",
            "GET / HTTP/1.1\r\nX-Odd: content-length\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_check(good, Ok(()));
        }
        let long = format!("GET / HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(1_000));
        assert_check(&long, Ok(()));
        for bad in [
            "GET / HTTP/1.1\n",
            "\n",
            "GET / HTTP/1.1\r\nHost: x\n",
            "GET / HTTP/1.1\r\nHost: x\r\n\n",
            "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\nGET / HTTP/1.1\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\nGET / HTTP/1.1\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n",
            // An upgrade that was requested, but not granted.
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\n",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\r\n!GET / HTTP/1.1\n",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n!GET / HTTP/1.1\n",
            "POST / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\n",
            // Lengths that the HTTP parser may accept, but this check does not.
            "POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n",
            "POST / HTTP/1.1\r\nContent-Length: five\r\n",
        ] {
            assert_check(bad, Err(FramingError));
        }
        assert_check(&format!("GET / HTTP/1.1\r\nX-Long: {}\n", "x".repeat(1_000)), Err(FramingError));
        assert_check(
            &format!("GET / HTTP/1.1\r\nContent-Length: {}5\r\n", " ".repeat(1_000)),
            Err(FramingError),
        );
    }

    proptest! {
        #[test]
        fn bodies_may_hold_any_bytes(bodies in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)), 0..6), cut in 1..40_usize) {
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
            let mut lines = FramingCheck::default();
            prop_assert_eq!(bytes.chunks(cut).try_for_each(|part| lines.check(part)), Ok(()));
            prop_assert_eq!(lines.check(b"GET / HTTP/1.1\n"), Err(FramingError));
        }
    }
}
