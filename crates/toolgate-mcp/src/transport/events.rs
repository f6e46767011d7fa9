//! Server-sent events, read piece by piece.
//!
//! The rules are those of the WHATWG: lines end with CR, LF or both, a comment starts with a colon,
//! `data` may have many lines, `id` stays until the next one, half an event at the end is dropped.
//! Invariant: no I/O and no clock; how the bytes are cut into pieces changes nothing; never more
//! than one event of the allowed size is held.

use std::time::Duration;

use bytes::Bytes;
use memchr::memchr2;

/// An event type or an id may be this long.
pub(crate) const LABEL_BYTES: usize = 4096;
/// Every field we know has a name of at most this length, and so has the byte order mark.
const NAME_BYTES: usize = 5;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its type, where it is not `message`.
    pub kind: Option<Box<str>>,
    /// Its data, which may be empty.
    pub data: Bytes,
}

/// An event is larger than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {0} bytes")]
pub struct EventTooLarge(pub usize);

/// Reads events out of a stream.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    place: Place,
    /// The start of the line, up to its colon.
    name: Vec<u8>,
    /// The value of the line, where it is not data.
    value: Vec<u8>,
    /// The line before ended with CR, so that an LF now belongs to it.
    after_cr: bool,
    /// Nothing but a byte order mark was seen.
    at_start: bool,
    kind: Option<Box<str>>,
    data: Vec<u8>,
    /// Whether the event has data, be it empty.
    has_data: bool,
    next_id: Option<Box<str>>,
    id: Option<Box<str>>,
    retry: Option<Duration>,
}

/// Where in a line we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    /// Behind the colon, where one space does not count.
    Colon,
    Value(Field),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
    /// A comment, or a field that nobody knows.
    Ignored,
}

impl Parser {
    /// A parser for one stream whose events have at most so many bytes of data.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            place: Place::Name,
            name: Vec::with_capacity(NAME_BYTES + 1),
            value: Vec::new(),
            after_cr: false,
            at_start: true,
            kind: None,
            data: Vec::new(),
            has_data: false,
            next_id: None,
            id: None,
            retry: None,
        }
    }

    /// Takes the next bytes; whole events are added to `events`.
    ///
    /// After an error the stream is of no use any more.
    pub fn feed(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), EventTooLarge> {
        while let Some(&byte) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            if byte == b'\n' || byte == b'\r' {
                self.after_cr = byte == b'\r';
                self.end_line(events)?;
                bytes = &bytes[1..];
                continue;
            }
            bytes = match self.place {
                Place::Name => self.take_name(bytes),
                Place::Colon => {
                    self.place = Place::Value(self.field());
                    &bytes[usize::from(byte == b' ')..]
                }
                Place::Value(field) => self.take_value(field, bytes)?,
            };
        }
        Ok(())
    }

    /// The id of the last event, with which a stream can be taken up again.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// How long the server wants us to wait before we take the stream up again.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// What is held of the event that is not whole yet.
    pub(crate) fn held_bytes(&self) -> usize {
        self.name.len() + self.value.len() + self.data.len()
    }

    fn take_name<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if bytes[0] == b':' {
            self.place = Place::Colon;
        } else if self.name.len() <= NAME_BYTES {
            // One byte too many is kept, so that a longer name is not taken for a known one.
            self.name.push(bytes[0]);
        }
        if self.at_start && self.name == b"\xEF\xBB\xBF" {
            self.name.clear();
            self.at_start = false;
        }
        &bytes[1..]
    }

    fn take_value<'b>(&mut self, field: Field, bytes: &'b [u8]) -> Result<&'b [u8], EventTooLarge> {
        let (value, rest) = bytes.split_at(memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len()));
        match field {
            Field::Data => {
                if self.data.len() + value.len() > self.limit {
                    return Err(EventTooLarge(self.limit));
                }
                self.data.extend_from_slice(value);
            }
            Field::Event | Field::Id | Field::Retry => {
                if self.value.len() + value.len() > LABEL_BYTES {
                    return Err(EventTooLarge(self.limit));
                }
                self.value.extend_from_slice(value);
            }
            Field::Ignored => {}
        }
        Ok(rest)
    }

    /// The field of the name in front of the colon. The first line of data is not set off from one
    /// before it.
    fn field(&mut self) -> Field {
        self.at_start = false;
        let field = match self.name.as_slice() {
            b"data" => Field::Data,
            b"event" => Field::Event,
            b"id" => Field::Id,
            b"retry" => Field::Retry,
            _ => Field::Ignored,
        };
        if field == Field::Data {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
        }
        field
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), EventTooLarge> {
        let field = match self.place {
            Place::Name if self.name.is_empty() => {
                self.at_start = false;
                self.end_event(events);
                return Ok(());
            }
            Place::Name | Place::Colon => self.field(),
            Place::Value(field) => field,
        };
        self.name.clear();
        self.place = Place::Name;
        let value = String::from_utf8_lossy(&self.value);
        match field {
            Field::Event => self.kind = Some(value.into()),
            // An id with a NUL could not be sent back.
            Field::Id if !value.contains('\0') => self.next_id = Some(value.into()),
            Field::Retry if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                // More milliseconds than any clock has are no wish to be kept.
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
        self.value.clear();
        // Empty lines of data would otherwise grow without being counted.
        if self.data.len() > self.limit { Err(EventTooLarge(self.limit)) } else { Ok(()) }
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        self.id.clone_from(&self.next_id);
        let kind = self.kind.take().filter(|kind| !kind.is_empty() && &**kind != "message");
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push(Event { kind, data: data.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Outcome = (Vec<(String, String)>, Option<String>, Option<u64>, bool);

    /// What comes out of pieces, with a limit of 64 bytes.
    fn read(pieces: &[&[u8]]) -> Outcome {
        let mut parser = Parser::new(64);
        let mut events = Vec::new();
        let failed = pieces.iter().try_for_each(|piece| parser.feed(piece, &mut events)).is_err();
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let events =
            events.iter().map(|event| (event.kind.clone().unwrap_or_default().into(), text(&event.data)));
        let retry = parser.retry().map(|retry| retry.as_millis() as u64);
        (events.collect(), parser.id().map(str::to_owned), retry, failed)
    }

    fn check(stream: &str, expected: &[(&str, &str)], id: Option<&str>) {
        let (events, last, _, failed) = read(&[stream.as_bytes()]);
        let expected: Vec<_> =
            expected.iter().map(|(kind, data)| ((*kind).to_owned(), (*data).to_owned())).collect();
        assert_eq!((events, last.as_deref(), failed), (expected, id, false), "{stream:?}");
    }

    #[test]
    fn events() {
        check("data: a\n\n", &[("", "a")], None);
        check("data:a\r\rdata: b\r\n\r\ndata:  c\n\n", &[("", "a"), ("", "b"), ("", " c")], None);
        check("data: one\ndata: two\ndata\ndata:\n\n", &[("", "one\ntwo\n\n")], None);
        check("event: endpoint\ndata: /m?id=1\n\n", &[("endpoint", "/m?id=1")], None);
        check("event: message\ndata: x\n\ndata: y\n\n", &[("", "x"), ("", "y")], None);
        check("\u{feff}data: x\n\n", &[("", "x")], None);
        check("data: x\n\n\u{feff}data: y\n\n", &[("", "x")], None);
        check(": ping\n\n:\n\nunknown: z\ndatax: z\nDATA: z\n\n", &[], None);
        check("event: lonely\n\ndata: x\n\n", &[("", "x")], None);
        check("data: half\n", &[], None);
        check("data: a:b: c\n\n", &[("", "a:b: c")], None);
    }

    #[test]
    fn ids() {
        check("id: 1\ndata: a\n\nid: 2\ndata: half", &[("", "a")], Some("1"));
        check("id: 1\n\n", &[], Some("1"));
        check("id: 1\ndata:\n\ndata: b\n\n", &[("", ""), ("", "b")], Some("1"));
        check("id: 1\n\nid: a\0b\n\n", &[], Some("1"));
        check("id: 1\n\nid\n\n", &[], Some(""));
    }

    #[test]
    fn retries() {
        assert_eq!(read(&[b"retry: 1500\n"]).2, Some(1500));
        assert_eq!(read(&[b"retry: 15\nretry: soon\nretry: -1\nretry:\n"]).2, Some(15));
        assert_eq!(read(&[b"retry: 15\nretry: 99999999999999999999\n"]).2, Some(15));
    }

    #[test]
    fn limits() {
        let failed = |text: String| read(&[text.as_bytes()]).3;
        assert!(!failed(format!("data: {}\n\n", "a".repeat(64))));
        assert!(failed(format!("data: {}", "a".repeat(65))));
        assert!(failed(format!("data: {}\ndata: {}\n", "a".repeat(40), "a".repeat(40))));
        assert!(failed("data\n".repeat(100)));
        assert!(failed(format!("id: {}", "a".repeat(LABEL_BYTES + 1))));
        assert!(!failed(format!(": {}\n{}: 1\n", "a".repeat(1 << 20), "b".repeat(1 << 20))));
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let pieces: [&[u8]; 16] = [
            b"data",
            b"data: ",
            b"id: ",
            b"event:",
            b"retry: 7",
            b":",
            b" ",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\xEF\xBB\xBF",
            b"\xEF",
            b"abc",
            b"\0",
            b"0123456789012345678901234567890",
        ];
        let piece = prop::sample::select(pieces.to_vec());
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn where_it_is_cut_changes_nothing(stream in stream(), cuts in prop::collection::vec(0_usize..400, 0..12)) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([stream.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let pieces: Vec<_> = starts.zip(ends).map(|(start, end)| &stream[start..end]).collect();
            let single: Vec<_> = stream.chunks(1).collect();
            prop_assert_eq!(read(&pieces), read(&[&stream]));
            prop_assert_eq!(read(&single), read(&[&stream]));
        }

        #[test]
        fn any_bytes_are_bounded(stream in any::<Vec<u8>>()) {
            let (events, ..) = read(&[&stream]);
            prop_assert!(events.iter().all(|(_, data)| data.len() <= 64 * 3));
        }
    }
}
