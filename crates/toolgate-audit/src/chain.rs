//! The hash chain: a line of the log has a sequence number, a timestamp, a body, and a hash over the line before.
//!
//! `hash` is the SHA-256 of the previous line's hash, as 64 hexadecimal digits, followed by this line without its
//! `hash` member. The first line follows 64 zeros. Invariant: `seq` is the first member, `time` the second and `hash`
//! the last, so all three are found without parsing the members in between.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use sha2::{Digest, Sha256};

/// A hash as written in a line: 64 hexadecimal digits.
pub(crate) type Hash = [u8; 64];

/// Previous hash of the first line.
pub(crate) const GENESIS_HASH: Hash = [b'0'; 64];

const SEQ: &[u8] = b"{\"seq\":";
const TIME: &[u8] = b",\"time\":\"";
const HASH: &[u8] = b",\"hash\":\"";
/// `,"hash":"…"}`.
const TAIL_LENGTH: usize = HASH.len() + 64 + 2;
/// `2026-11-15T14:44:20.123456Z`.
const TIMESTAMP_LENGTH: usize = 27;

/// The end of a hash chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainHead {
    /// Sequence number of the last line; 0 if the log is empty.
    pub(crate) seq: u64,
    /// Hash of the last line.
    pub(crate) hash: Hash,
}

impl ChainHead {
    pub(crate) const EMPTY: Self = Self { seq: 0, hash: GENESIS_HASH };

    /// Appends a line to `buffer`, newline included. `body` holds the members between `time` and `hash`.
    pub(crate) fn append(&mut self, at: Timestamp, body: &str, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        self.seq += 1;
        buffer.extend_from_slice(SEQ);
        write_digits(self.seq, &mut |digit| buffer.push(digit));
        buffer.extend_from_slice(TIME);
        write_timestamp(at, buffer);
        buffer.extend_from_slice(b"\",");
        buffer.extend_from_slice(body.as_bytes());
        self.hash = next_hash(&self.hash, &buffer[start..]);
        buffer.extend_from_slice(HASH);
        buffer.extend_from_slice(&self.hash);
        buffer.extend_from_slice(b"\"}\n");
    }
}

/// Hashes a line, given without its `hash` member and closing brace.
fn next_hash(before: &Hash, line: &[u8]) -> Hash {
    hex(&Sha256::new().chain_update(before).chain_update(line).chain_update(b"}").finalize())
}

/// Encodes a SHA-256 digest as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> Hash {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = GENESIS_HASH;
    for (pair, byte) in hash.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    hash
}

/// Passes the decimal digits of a number to `give`, one by one, without allocating.
pub(crate) fn write_digits(number: u64, give: &mut impl FnMut(u8)) {
    if number >= 10 {
        write_digits(number / 10, give);
    }
    give(b'0' + (number % 10) as u8);
}

/// The framing of a line: the members that the log itself relies on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordLine<'a> {
    pub(crate) seq: u64,
    /// Timestamp as written; timestamps sort as strings.
    pub(crate) time: &'a str,
    pub(crate) hash: &'a Hash,
    /// Everything before `hash`, which is the part that is hashed.
    signed: &'a [u8],
    /// Offset in `signed` of the members after `time`.
    body: usize,
}

impl<'a> RecordLine<'a> {
    /// Parses a line, given without its newline. Returns `None` if it is not a record.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let signed = &line[..line.len().checked_sub(TAIL_LENGTH)?];
        let hash = line[signed.len()..].strip_prefix(HASH)?.strip_suffix(b"\"}")?;
        let rest = signed.strip_prefix(SEQ)?;
        let digits = rest.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
        let seq = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        let time = rest[digits..].strip_prefix(TIME)?;
        let body = SEQ.len() + digits + TIME.len() + TIMESTAMP_LENGTH + 1;
        let time = std::str::from_utf8(time.get(..TIMESTAMP_LENGTH)?).ok()?;
        Some(Self { seq, time, hash: hash.try_into().ok()?, signed, body })
    }

    /// Returns true if the hash is correct for a previous line with hash `before`.
    pub(crate) fn follows(&self, before: &Hash) -> bool {
        next_hash(before, self.signed) == *self.hash
    }

    /// Returns the members between `time` and `hash`, starting with a comma.
    pub(crate) fn members(&self) -> &'a [u8] {
        self.signed.get(self.body..).unwrap_or_default()
    }

    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }
}

/// Writes a timestamp: UTC, microseconds, always 27 characters, so that timestamps sort as strings.
fn write_timestamp(at: Timestamp, buffer: &mut Vec<u8>) {
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

/// Formats a timestamp as in a line.
pub(crate) fn format_timestamp(at: Timestamp) -> String {
    let mut buffer = Vec::with_capacity(TIMESTAMP_LENGTH);
    write_timestamp(at, &mut buffer);
    String::from_utf8(buffer).unwrap_or_default()
}

/// Returns the UTC day of a timestamp.
pub(crate) fn utc_day(at: Timestamp) -> Date {
    Offset::UTC.to_datetime(at).date()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_record_follows_the_first() {
        let at: Timestamp = "2026-11-15T14:44:20.000123456Z".parse().unwrap();
        let (mut head, mut buffer) = (ChainHead::EMPTY, Vec::new());
        head.append(at, r#""kind":"a""#, &mut buffer);
        head.append(at, r#""kind":"b""#, &mut buffer);
        let text = String::from_utf8(buffer).unwrap();
        let lines: Vec<_> = text.lines().map(|line| RecordLine::parse(line.as_bytes()).unwrap()).collect();
        assert!(text.starts_with(r#"{"seq":1,"time":"2026-11-15T14:44:20.000123Z","kind":"a","hash":""#));
        assert!(
            lines[0].follows(&GENESIS_HASH)
                && lines[1].follows(lines[0].hash)
                && !lines[1].follows(&GENESIS_HASH)
        );
        assert_eq!((lines[1].seq, head.hash), (2, *lines[1].hash));
        assert_eq!(lines[0].timestamp().unwrap().as_microsecond(), at.as_microsecond());
    }

    /// Computes the hash the way `docs/log.md` documents it: `printf '%s%s' "$before" "$line" | sha256sum`.
    #[test]
    fn hash_matches_the_documentation() {
        let (mut head, mut buffer) = (ChainHead::EMPTY, Vec::new());
        head.append(Timestamp::UNIX_EPOCH, r#""kind":"a""#, &mut buffer);
        let text =
            format!("{}{}", "0".repeat(64), r#"{"seq":1,"time":"1970-01-01T00:00:00.000000Z","kind":"a"}"#);
        assert_eq!(head.hash, hex(&Sha256::digest(text)));
    }

    #[test]
    fn timestamps_and_numbers_match_the_standard_formatting() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let at = Timestamp::from_microsecond(random.i64(0..250_000_000_000_000_000)).unwrap();
            assert_eq!(format_timestamp(at), format!("{at:.6}"));
            let number = random.u64(..) >> random.u32(..64);
            let mut text = String::new();
            write_digits(number, &mut |digit| text.push(char::from(digit)));
            assert_eq!(text, number.to_string());
        }
    }

    #[test]
    fn truncated_lines_are_not_records() {
        let (mut head, mut buffer) = (ChainHead::EMPTY, Vec::new());
        head.append(Timestamp::UNIX_EPOCH, r#""kind":"a""#, &mut buffer);
        let line = buffer.strip_suffix(b"\n").unwrap();
        for end in 0..line.len() {
            assert!(RecordLine::parse(&line[..end]).is_none(), "{end}");
        }
        assert!(RecordLine::parse(&[0; 200]).is_none());
    }
}
