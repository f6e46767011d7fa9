//! A line of the log: its number, its stamp, its body, and the hash that ties it to the line before.
//!
//! `hash` is the SHA-256 of the hash of the line before, as its 64 digits, followed by this line as it would
//! be without `hash`. The first line follows 64 zeros. Invariant: `seq` is the first member, `time` the second
//! and `hash` the last, so all three are found without parsing what is between.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use sha2::{Digest, Sha256};

/// A hash as it stands in a line: 64 hexadecimal digits.
pub(crate) type Hash = [u8; 64];

/// What the first line of a log follows.
pub(crate) const START: Hash = [b'0'; 64];

const SEQ: &[u8] = b"{\"seq\":";
const TIME: &[u8] = b",\"time\":\"";
const HASH: &[u8] = b",\"hash\":\"";
/// `,"hash":"…"}`.
const TAIL: usize = HASH.len() + 64 + 2;
/// `2026-11-15T14:44:20.123456Z`.
const STAMP: usize = 27;

/// Where a chain has got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of the last line; 0 before the first.
    pub(crate) seq: u64,
    /// Its hash.
    pub(crate) hash: Hash,
}

impl Head {
    pub(crate) const EMPTY: Self = Self { seq: 0, hash: START };

    /// Adds a line, with its end of line, to a buffer. `body` holds the members between `time` and `hash`.
    pub(crate) fn append(&mut self, at: Timestamp, body: &str, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        self.seq += 1;
        buffer.extend_from_slice(SEQ);
        digits(self.seq, &mut |digit| buffer.push(digit));
        buffer.extend_from_slice(TIME);
        stamp(at, buffer);
        buffer.extend_from_slice(b"\",");
        buffer.extend_from_slice(body.as_bytes());
        self.hash = follow(&self.hash, &buffer[start..]);
        buffer.extend_from_slice(HASH);
        buffer.extend_from_slice(&self.hash);
        buffer.extend_from_slice(b"\"}\n");
    }
}

/// The hash of a line, given without `hash` and without its last brace.
fn follow(before: &Hash, line: &[u8]) -> Hash {
    hex(&Sha256::new().chain_update(before).chain_update(line).chain_update(b"}").finalize())
}

/// A hash as its digits.
pub(crate) fn hex(bytes: &[u8]) -> Hash {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = START;
    for (pair, byte) in hash.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    hash
}

/// Gives the decimal digits of a number, one by one.
pub(crate) fn digits(number: u64, give: &mut impl FnMut(u8)) {
    if number >= 10 {
        digits(number / 10, give);
    }
    give(b'0' + (number % 10) as u8);
}

/// The parts of a line that the log itself relies on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) seq: u64,
    /// The stamp as it is written; stamps sort as texts.
    pub(crate) time: &'a str,
    pub(crate) hash: &'a Hash,
    /// All before `hash`.
    signed: &'a [u8],
    /// Where in it what follows `time` begins.
    body: usize,
}

impl<'a> Line<'a> {
    /// Looks at a line, given without its end. `None` when it is not one of ours.
    pub(crate) fn look(line: &'a [u8]) -> Option<Self> {
        let signed = &line[..line.len().checked_sub(TAIL)?];
        let hash = line[signed.len()..].strip_prefix(HASH)?.strip_suffix(b"\"}")?;
        let rest = signed.strip_prefix(SEQ)?;
        let digits = rest.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
        let seq = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        let time = rest[digits..].strip_prefix(TIME)?;
        let body = SEQ.len() + digits + TIME.len() + STAMP + 1;
        let time = std::str::from_utf8(time.get(..STAMP)?).ok()?;
        Some(Self { seq, time, hash: hash.try_into().ok()?, signed, body })
    }

    /// Whether it follows a line with this hash.
    pub(crate) fn follows(&self, before: &Hash) -> bool {
        follow(before, self.signed) == *self.hash
    }

    /// The members between `time` and `hash`, with the comma before them.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.signed.get(self.body..).unwrap_or_default()
    }

    /// When it was written.
    pub(crate) fn stamp(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }
}

/// Writes a stamp: UTC, to the microsecond, always 27 characters, so that stamps sort as texts.
fn stamp(at: Timestamp, buffer: &mut Vec<u8>) {
    let at = Offset::UTC.to_datetime(at);
    let (date, time) = (at.date(), at.time());
    let micros = time.subsec_nanosecond().unsigned_abs() / 1000;
    let year = u32::from(date.year().unsigned_abs());
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let mut pair = |at: usize, value: u32| {
        text[at] += (value / 10 % 10) as u8;
        text[at + 1] += (value % 10) as u8;
    };
    pair(0, year / 100);
    pair(2, year);
    pair(5, date.month().unsigned_abs().into());
    pair(8, date.day().unsigned_abs().into());
    pair(11, time.hour().unsigned_abs().into());
    pair(14, time.minute().unsigned_abs().into());
    pair(17, time.second().unsigned_abs().into());
    pair(20, micros / 10_000);
    pair(22, micros / 100);
    pair(24, micros);
    buffer.extend_from_slice(&text);
}

/// A stamp as it stands in a line.
pub(crate) fn stamp_text(at: Timestamp) -> String {
    let mut buffer = Vec::with_capacity(STAMP);
    stamp(at, &mut buffer);
    String::from_utf8(buffer).unwrap_or_default()
}

/// The day that a stamp belongs to, in UTC.
pub(crate) fn day(at: Timestamp) -> Date {
    Offset::UTC.to_datetime(at).date()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_two() {
        let at: Timestamp = "2026-11-15T14:44:20.000123456Z".parse().unwrap();
        let (mut head, mut buffer) = (Head::EMPTY, Vec::new());
        head.append(at, r#""kind":"a""#, &mut buffer);
        head.append(at, r#""kind":"b""#, &mut buffer);
        let text = String::from_utf8(buffer).unwrap();
        let lines: Vec<_> = text.lines().map(|line| Line::look(line.as_bytes()).unwrap()).collect();
        assert!(text.starts_with(r#"{"seq":1,"time":"2026-11-15T14:44:20.000123Z","kind":"a","hash":""#));
        assert!(lines[0].follows(&START) && lines[1].follows(lines[0].hash) && !lines[1].follows(&START));
        assert_eq!((lines[1].seq, head.hash), (2, *lines[1].hash));
        assert_eq!(lines[0].stamp().unwrap().as_microsecond(), at.as_microsecond());
    }

    /// What `docs/log.md` says, computed another way: `printf '%s%s' "$before" "$line" | sha256sum`.
    #[test]
    fn the_hash_is_that_of_the_documented_text() {
        let (mut head, mut buffer) = (Head::EMPTY, Vec::new());
        head.append(Timestamp::UNIX_EPOCH, r#""kind":"a""#, &mut buffer);
        let text =
            format!("{}{}", "0".repeat(64), r#"{"seq":1,"time":"1970-01-01T00:00:00.000000Z","kind":"a"}"#);
        assert_eq!(head.hash, hex(&Sha256::digest(text)));
    }

    #[test]
    fn stamps_and_numbers_are_those_of_others() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let at = Timestamp::from_microsecond(random.i64(0..250_000_000_000_000_000)).unwrap();
            assert_eq!(stamp_text(at), format!("{at:.6}"));
            let number = random.u64(..) >> random.u32(..64);
            let mut text = String::new();
            digits(number, &mut |digit| text.push(char::from(digit)));
            assert_eq!(text, number.to_string());
        }
    }

    #[test]
    fn what_is_not_a_line() {
        let (mut head, mut buffer) = (Head::EMPTY, Vec::new());
        head.append(Timestamp::UNIX_EPOCH, r#""kind":"a""#, &mut buffer);
        let line = buffer.strip_suffix(b"\n").unwrap();
        for end in 0..line.len() {
            assert!(Line::look(&line[..end]).is_none(), "{end}");
        }
        assert!(Line::look(&[0; 200]).is_none());
    }
}
