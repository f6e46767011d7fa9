//! Bodies: by length, in chunks, or until the connection closes.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;

use crate::head::BodyLength;

/// Longest line with the size of a chunk, extensions included.
const MAX_SIZE_LINE: usize = 256;
/// Longest trailer, all lines together.
const MAX_TRAILER: usize = 8 << 10;

/// The framing of a body is invalid, so the end of the message is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid chunk in the body")]
pub struct FramingError;

/// The next part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyPart {
    Data(Bytes),
    /// The buffer holds no further data of the body.
    NeedMore,
    End,
}

/// Position in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyReader {
    /// Bytes left.
    Length(u64),
    ChunkSize,
    /// Bytes left of the chunk.
    ChunkData(u64),
    /// The CRLF after a chunk.
    ChunkEnd,
    /// Bytes of trailer lines read so far.
    Trailer(usize),
    UntilClose,
    Done,
}

impl From<BodyLength> for BodyReader {
    fn from(length: BodyLength) -> Self {
        match length {
            BodyLength::Empty | BodyLength::Length(0) => Self::Done,
            BodyLength::Length(length) => Self::Length(length),
            BodyLength::Chunked => Self::ChunkSize,
            BodyLength::UntilClose => Self::UntilClose,
        }
    }
}

impl BodyReader {
    /// Bytes that are known to follow, as a hint for the size of the next read.
    pub(crate) fn expected(self) -> u64 {
        match self {
            Self::Length(left) | Self::ChunkData(left) => left,
            _ => 0,
        }
    }

    /// Takes the next part of the body from the buffer.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<BodyPart, FramingError> {
        loop {
            match self {
                Self::Done => return Ok(BodyPart::End),
                Self::Length(left) | Self::ChunkData(left) => {
                    let part = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                    if part == 0 {
                        return Ok(BodyPart::NeedMore);
                    }
                    *left -= part as u64;
                    if *left == 0 {
                        *self = if matches!(self, Self::Length(_)) { Self::Done } else { Self::ChunkEnd };
                    }
                    return Ok(BodyPart::Data(buffer.split_to(part).freeze()));
                }
                Self::UntilClose if buffer.is_empty() => return Ok(BodyPart::NeedMore),
                Self::UntilClose => return Ok(BodyPart::Data(buffer.split().freeze())),
                Self::ChunkEnd => {
                    if buffer.len() < 2 {
                        return Ok(BodyPart::NeedMore);
                    }
                    if !buffer.starts_with(b"\r\n") {
                        return Err(FramingError);
                    }
                    buffer.advance(2);
                    *self = Self::ChunkSize;
                }
                Self::ChunkSize => {
                    let Some(line) = line_length(buffer, MAX_SIZE_LINE)? else {
                        return Ok(BodyPart::NeedMore);
                    };
                    let size = chunk_size(&buffer[..line])?;
                    buffer.advance(line + 2);
                    *self = if size == 0 { Self::Trailer(0) } else { Self::ChunkData(size) };
                }
                Self::Trailer(before) => {
                    let room = MAX_TRAILER - (*before).min(MAX_TRAILER);
                    let Some(line) = line_length(buffer, room)? else { return Ok(BodyPart::NeedMore) };
                    buffer.advance(line + 2);
                    *self = if line == 0 { Self::Done } else { Self::Trailer(*before + line + 2) };
                }
            }
        }
    }
}

/// Length of the line at the start of the buffer, without its CRLF. `None` if it is not complete.
fn line_length(buffer: &[u8], max: usize) -> Result<Option<usize>, FramingError> {
    let Some(end) = memchr(b'\n', &buffer[..buffer.len().min(max + 2)]) else {
        return if buffer.len() >= max + 2 { Err(FramingError) } else { Ok(None) };
    };
    let line = buffer[..end].strip_suffix(b"\r").ok_or(FramingError)?;
    // A carriage return within a line ends it for some parsers.
    if memchr(b'\r', line).is_some() { Err(FramingError) } else { Ok(Some(line.len())) }
}

/// Parses the size of a chunk, with an optional extension after `;`.
fn chunk_size(line: &[u8]) -> Result<u64, FramingError> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let extension = rest.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
    if digits.is_empty() || digits.len() > 16 || extension.is_some_and(|byte| *byte != b';') {
        return Err(FramingError);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| FramingError)?;
    u64::from_str_radix(digits, 16).map_err(|_| FramingError)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A body and the bytes after it.
    type BodyAndRest = (Vec<u8>, Vec<u8>);

    /// Reads a body that arrives in parts of this size. Returns the body and the bytes after it.
    fn read(text: &[u8], part: usize) -> Result<Option<BodyAndRest>, FramingError> {
        let (mut reader, mut buffer, mut body) = (BodyReader::ChunkSize, BytesMut::new(), Vec::new());
        let mut parts = text.chunks(part);
        loop {
            match reader.next(&mut buffer)? {
                BodyPart::Data(data) => body.extend_from_slice(&data),
                BodyPart::End => {
                    let mut rest = buffer.to_vec();
                    parts.for_each(|part| rest.extend_from_slice(part));
                    return Ok(Some((body, rest)));
                }
                BodyPart::NeedMore => match parts.next() {
                    Some(part) => buffer.extend_from_slice(part),
                    None => return Ok(None),
                },
            }
        }
    }

    #[test]
    fn reads_chunks() {
        for part in [1, 2, 3, 100] {
            let body = b"3;x=\"y\"\r\na\nb\r\n00a \r\n0123456789\r\n0\r\nX: y\r\n\r\nGET /";
            assert_eq!(read(body, part), Ok(Some((b"a\nb0123456789".to_vec(), b"GET /".to_vec()))));
            assert_eq!(read(b"0\r\n\r\n", part), Ok(Some((vec![], vec![]))));
            assert_eq!(read(b"5\r\nabc", part), Ok(None));
        }
    }

    #[test]
    fn rejects_invalid_chunks() {
        let long = format!("1;{}\r\n", "x".repeat(1_000));
        let trailer = format!("0\r\n{}", "X: y\r\n".repeat(2_000));
        for bad in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            "1\nx",
            "1\r\nxx\r\n",
            "1\r\nx\n\n",
            "1 2\r\nx",
            "11111111111111111\r\n",
            "0\r\nX: y\n\r\n",
            "0\r\n\n",
            "1;a\rb\r\nx",
            &long,
            &trailer,
        ] {
            for part in [1, 7, 10_000] {
                assert_eq!(read(bad.as_bytes(), part), Err(FramingError), "{bad:?} in parts of {part}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_as_it_was_sent(body in prop::collection::vec(any::<u8>(), 0..300), size in 1..50_usize, part in 1..60_usize) {
            let mut text = Vec::new();
            for chunk in body.chunks(size) {
                text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\nrest");
            prop_assert_eq!(read(&text, part), Ok(Some((body, b"rest".to_vec()))));
        }

        #[test]
        fn any_bytes_end(text in prop::collection::vec(any::<u8>(), 0..300), part in 1..60_usize) {
            // All parts must lead to the same result.
            prop_assert_eq!(read(&text, part), read(&text, 1_000));
        }
    }
}
