//! The hash chain: a line of the log has a sequence number, a timestamp, a body, and a hash over the line before.
//!
//! `hash` is the hash of the previous line's hash, as 64 hexadecimal digits, followed by this line without its `hash`
//! member. The first line follows 64 zeros. Long lines are hashed with BLAKE3 and say so in the member before `hash`;
//! all others with SHA-256 (docs/dev/decisions/log-hash.md). Invariant: `seq` is the first member, `time` the second and
//! `hash` the last, so all three are found without parsing the members in between.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use sha2::{Digest, Sha256};

use crate::part_buffer::PartBuffer;

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

/// Last member before `hash` of lines that are hashed with BLAKE3. Quotes in strings are escaped, so no other line ends
/// like this.
const BLAKE3: &[u8] = b",\"hashed_with\":\"blake3\"";
/// Longer lines and bodies are hashed with BLAKE3, the faster function from here on; shorter ones with SHA-256.
const MAX_SHA256_BYTES: usize = 4 << 10;

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
    pub(crate) fn append(&mut self, at: Timestamp, body: &PartBuffer, buffer: &mut PartBuffer) {
        let start = buffer.end();
        self.seq += 1;
        buffer.extend(SEQ);
        buffer.extend(decimal(self.seq, &mut [0; MAX_DIGITS]).as_bytes());
        buffer.extend(TIME);
        buffer.extend(&timestamp_text(at));
        buffer.extend(b"\",");
        buffer.append(body);
        let function = HashFunction::for_length(body.len());
        if function == HashFunction::Blake3 {
            buffer.extend(BLAKE3);
        }
        self.hash = next_hash(function, &self.hash, buffer.parts_from(start));
        buffer.extend(HASH);
        buffer.extend(&self.hash);
        buffer.extend(b"\"}\n");
    }
}

/// A hash function of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashFunction {
    Sha256,
    Blake3,
}

impl HashFunction {
    /// Returns the function for a text of this length.
    pub(crate) fn for_length(bytes: usize) -> Self {
        if bytes > MAX_SHA256_BYTES { Self::Blake3 } else { Self::Sha256 }
    }

    /// Hashes parts as if they were one text.
    pub(crate) fn digest<'a>(self, parts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
        match self {
            Self::Sha256 => {
                let mut hash = Sha256::new();
                parts.into_iter().for_each(|part| hash.update(part));
                hex(&hash.finalize())
            }
            Self::Blake3 => {
                let mut hash = blake3::Hasher::new();
                for part in parts {
                    hash.update(part);
                }
                hex(hash.finalize().as_bytes())
            }
        }
    }
}

/// Hashes a line, given without its `hash` member and closing brace.
fn next_hash<'a>(function: HashFunction, before: &'a Hash, line: impl Iterator<Item = &'a [u8]>) -> Hash {
    function.digest(std::iter::once(&before[..]).chain(line).chain([&b"}"[..]]))
}

/// Encodes a digest of 32 bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> Hash {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = GENESIS_HASH;
    for (pair, byte) in hash.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    hash
}

/// Number of digits of the largest number.
pub(crate) const MAX_DIGITS: usize = 20;

/// Formats a number in a buffer, without allocating.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; MAX_DIGITS]) -> &str {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return std::str::from_utf8(&digits[start..]).unwrap_or_default();
        }
    }
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
        let function =
            if self.signed.ends_with(BLAKE3) { HashFunction::Blake3 } else { HashFunction::Sha256 };
        next_hash(function, before, [self.signed].into_iter()) == *self.hash
    }

    /// Returns the members between `time` and `hash`, starting with a comma.
    pub(crate) fn members(&self) -> &'a [u8] {
        self.signed.get(self.body..).unwrap_or_default()
    }

    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }
}

/// Formats a timestamp: UTC, microseconds, always 27 characters, so that timestamps sort as strings.
fn timestamp_text(at: Timestamp) -> [u8; TIMESTAMP_LENGTH] {
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
    text
}

/// Formats a timestamp as in a line.
pub(crate) fn format_timestamp(at: Timestamp) -> String {
    String::from_utf8_lossy(&timestamp_text(at)).into_owned()
}

/// Returns the UTC day of a timestamp.
pub(crate) fn utc_day(at: Timestamp) -> Date {
    Offset::UTC.to_datetime(at).date()
}

/// Returns the number of the UTC day since 1970: a quick way to compare the days of timestamps.
pub(crate) fn utc_day_number(at: Timestamp) -> i64 {
    // Before 1970 the fraction is negative as well.
    let second = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
    second.div_euclid(24 * 60 * 60)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::part_buffer::SharedPart;

    fn append(head: &mut ChainHead, at: Timestamp, body: &str, buffer: &mut PartBuffer) {
        head.append(at, &body.to_owned().into(), buffer);
    }

    #[test]
    fn second_record_follows_the_first() {
        let at: Timestamp = "2026-11-15T14:44:20.000123456Z".parse().unwrap();
        let (mut head, mut buffer) = (ChainHead::EMPTY, PartBuffer::default());
        append(&mut head, at, r#""kind":"a""#, &mut buffer);
        append(&mut head, at, r#""kind":"b""#, &mut buffer);
        let text = buffer.to_text();
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

    /// Computes the hash the way `docs/log.md` documents it: `printf '%s%s' "$before" "$line" | sha256sum`, or `b3sum`.
    #[test]
    fn hash_matches_the_documentation() {
        let (mut head, mut buffer) = (ChainHead::EMPTY, PartBuffer::default());
        append(&mut head, Timestamp::UNIX_EPOCH, r#""kind":"a""#, &mut buffer);
        let text =
            format!("{}{}", "0".repeat(64), r#"{"seq":1,"time":"1970-01-01T00:00:00.000000Z","kind":"a"}"#);
        assert_eq!(head.hash, hex(&Sha256::digest(text)));
        let (before, long) = (String::from_utf8(head.hash.to_vec()).unwrap(), "x".repeat(5_000));
        append(&mut head, Timestamp::UNIX_EPOCH, &format!(r#""kind":"{long}""#), &mut buffer);
        let text = format!(
            r#"{before}{{"seq":2,"time":"1970-01-01T00:00:00.000000Z","kind":"{long}","hashed_with":"blake3"}}"#
        );
        assert_eq!(head.hash, hex(blake3::hash(text.as_bytes()).as_bytes()));
    }

    /// A line may follow one with another hash function, and its body may be shared or copied.
    #[test]
    fn long_and_short_records_form_one_chain() {
        let shared = |length: usize| SharedPart { after: 8, bytes: Bytes::from(vec![b'x'; length]) };
        let bodies = [10, MAX_SHA256_BYTES - 9, MAX_SHA256_BYTES - 8, 100_000, 10]
            .map(|length| PartBuffer::new(r#""kind":"""#.to_owned(), vec![shared(length)]));
        let (mut heads, mut buffers) =
            ([ChainHead::EMPTY; 2], [PartBuffer::default(), PartBuffer::default()]);
        for mut body in bodies {
            heads[0].append(Timestamp::UNIX_EPOCH, &body, &mut buffers[0]);
            body.unshare();
            heads[1].append(Timestamp::UNIX_EPOCH, &body, &mut buffers[1]);
        }
        let text = buffers[0].to_text();
        assert_eq!((heads[0], &text), (heads[1], &buffers[1].to_text()));
        let mut before = GENESIS_HASH;
        let mut functions = String::new();
        for line in text.lines() {
            let parsed = RecordLine::parse(line.as_bytes()).unwrap();
            assert!(parsed.follows(&before), "{}", parsed.seq);
            // A change is noticed, also one of the member that names the function.
            for (old, new) in [("xx", "xy"), (r#","hashed_with":"blake3""#, "")] {
                let changed = line.replacen(old, new, 1);
                let follows = RecordLine::parse(changed.as_bytes()).unwrap().follows(&before);
                assert_eq!(follows, changed == line, "{old}");
            }
            before = *parsed.hash;
            functions.push(if line.contains("blake3") { 'b' } else { 's' });
        }
        assert_eq!(functions, "ssbbs");
    }

    #[test]
    fn timestamps_and_numbers_match_the_standard_formatting() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let at = Timestamp::from_microsecond(random.i64(0..250_000_000_000_000_000)).unwrap();
            assert_eq!(format_timestamp(at), format!("{at:.6}"));
            let before = Timestamp::from_microsecond(-at.as_microsecond() / 200).unwrap();
            for at in [at, before] {
                let days = utc_day(at).since(Date::constant(1970, 1, 1)).unwrap().get_days();
                assert_eq!(utc_day_number(at), i64::from(days), "{at}");
            }
            let number = random.u64(..) >> random.u32(..64);
            assert_eq!(decimal(number, &mut [0; MAX_DIGITS]), number.to_string());
        }
        for number in [0, 9, 10, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; MAX_DIGITS]), number.to_string());
        }
    }

    #[test]
    fn truncated_lines_are_not_records() {
        let (mut head, mut buffer) = (ChainHead::EMPTY, PartBuffer::default());
        append(&mut head, Timestamp::UNIX_EPOCH, r#""kind":"a""#, &mut buffer);
        let buffer = buffer.to_vec();
        let line = buffer.strip_suffix(b"\n").unwrap();
        for end in 0..line.len() {
            assert!(RecordLine::parse(&line[..end]).is_none(), "{end}");
        }
        assert!(RecordLine::parse(&[0; 200]).is_none());
    }
}
