//! Incremental parser for server-sent events.
//!
//! WHATWG rules: lines end with CR, LF or CRLF, a comment starts with a colon, `data` may have many lines, `id` stays
//! in effect until the next one, an unfinished event at the end is dropped. Invariant: no I/O and no clock; chunk
//! boundaries do not matter; at most one event of the maximum size is buffered.

use std::time::Duration;

use bytes::Bytes;
use memchr::memchr2;

/// Maximum length of an event type or id.
pub(crate) const LABEL_BYTES: usize = 4096;
/// Longest name of a known field, and length of the byte order mark.
const NAME_BYTES: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Event type; `None` for `message`.
    pub kind: Option<Box<str>>,
    /// Data, possibly empty.
    pub data: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {0} bytes")]
pub struct EventTooLarge(pub usize);

/// Parses one event stream.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    line_state: LineState,
    /// Field name so far.
    name: Vec<u8>,
    /// Field value so far, except for `data`.
    value: Vec<u8>,
    /// The previous line ended with CR, so a following LF belongs to it.
    after_cr: bool,
    /// True until the first byte that is not part of a byte order mark.
    at_start: bool,
    kind: Option<Box<str>>,
    data: Vec<u8>,
    /// True if the event has a `data` field, even an empty one.
    has_data: bool,
    next_id: Option<Box<str>>,
    id: Option<Box<str>>,
    retry: Option<Duration>,
}

/// Position in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    Name,
    /// After the colon, where one space is skipped.
    Colon,
    Value(FieldKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Data,
    Event,
    Id,
    Retry,
    /// Comment or unknown field.
    Ignored,
}

impl SseParser {
    /// Creates a parser with a limit on the data bytes of an event.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line_state: LineState::Name,
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

    /// Consumes bytes and appends complete events to `events`.
    ///
    /// After an error the parser must not be used again.
    pub fn feed(&mut self, mut bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
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
            bytes = match self.line_state {
                LineState::Name => self.take_name(bytes),
                LineState::Colon => {
                    self.line_state = LineState::Value(self.field());
                    &bytes[usize::from(byte == b' ')..]
                }
                LineState::Value(field) => self.take_value(field, bytes)?,
            };
        }
        Ok(())
    }

    /// Id of the last event, for `Last-Event-ID`.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Reconnect delay requested by the server.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Bytes buffered for the incomplete event.
    pub(crate) fn held_bytes(&self) -> usize {
        self.name.len() + self.value.len() + self.data.len()
    }

    fn take_name<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if bytes[0] == b':' {
            self.line_state = LineState::Colon;
        } else if self.name.len() <= NAME_BYTES {
            // One extra byte is kept, so that a longer name does not match a known one.
            self.name.push(bytes[0]);
        }
        if self.at_start && self.name == b"\xEF\xBB\xBF" {
            self.name.clear();
            self.at_start = false;
        }
        &bytes[1..]
    }

    fn take_value<'b>(&mut self, field: FieldKind, bytes: &'b [u8]) -> Result<&'b [u8], EventTooLarge> {
        let (value, rest) = bytes.split_at(memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len()));
        match field {
            FieldKind::Data => {
                if self.data.len() + value.len() > self.limit {
                    return Err(EventTooLarge(self.limit));
                }
                self.data.extend_from_slice(value);
            }
            FieldKind::Event | FieldKind::Id | FieldKind::Retry => {
                if self.value.len() + value.len() > LABEL_BYTES {
                    return Err(EventTooLarge(self.limit));
                }
                self.value.extend_from_slice(value);
            }
            FieldKind::Ignored => {}
        }
        Ok(rest)
    }

    /// Returns the field for the name before the colon. Starts a new line of data if there is one already.
    fn field(&mut self) -> FieldKind {
        self.at_start = false;
        let field = match self.name.as_slice() {
            b"data" => FieldKind::Data,
            b"event" => FieldKind::Event,
            b"id" => FieldKind::Id,
            b"retry" => FieldKind::Retry,
            _ => FieldKind::Ignored,
        };
        if field == FieldKind::Data {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
        }
        field
    }

    fn end_line(&mut self, events: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
        let field = match self.line_state {
            LineState::Name if self.name.is_empty() => {
                self.at_start = false;
                self.end_event(events);
                return Ok(());
            }
            LineState::Name | LineState::Colon => self.field(),
            LineState::Value(field) => field,
        };
        self.name.clear();
        self.line_state = LineState::Name;
        let value = String::from_utf8_lossy(&self.value);
        match field {
            FieldKind::Event => self.kind = Some(value.into()),
            // An id with a NUL cannot be sent back in a header.
            FieldKind::Id if !value.contains('\0') => self.next_id = Some(value.into()),
            FieldKind::Retry if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                // A number that overflows is ignored.
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
        self.value.clear();
        // Counts the newlines of empty data lines too.
        if self.data.len() > self.limit { Err(EventTooLarge(self.limit)) } else { Ok(()) }
    }

    fn end_event(&mut self, events: &mut Vec<SseEvent>) {
        self.id.clone_from(&self.next_id);
        let kind = self.kind.take().filter(|kind| !kind.is_empty() && &**kind != "message");
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push(SseEvent { kind, data: data.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Outcome = (Vec<(String, String)>, Option<String>, Option<u64>, bool);

    /// Parses chunks with a limit of 64 bytes.
    fn read(chunks: &[&[u8]]) -> Outcome {
        let mut parser = SseParser::new(64);
        let mut events = Vec::new();
        let failed = chunks.iter().try_for_each(|chunk| parser.feed(chunk, &mut events)).is_err();
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
        let chunks: [&[u8]; 16] = [
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
        let chunk = prop::sample::select(chunks.to_vec());
        prop::collection::vec(chunk, 0..40).prop_map(|chunks| chunks.concat())
    }

    proptest! {
        #[test]
        fn where_it_is_cut_changes_nothing(stream in stream(), cuts in prop::collection::vec(0_usize..400, 0..12)) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([stream.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let chunks: Vec<_> = starts.zip(ends).map(|(start, end)| &stream[start..end]).collect();
            let single: Vec<_> = stream.chunks(1).collect();
            prop_assert_eq!(read(&chunks), read(&[&stream]));
            prop_assert_eq!(read(&single), read(&[&stream]));
        }

        #[test]
        fn any_bytes_are_bounded(stream in any::<Vec<u8>>()) {
            let (events, ..) = read(&[&stream]);
            prop_assert!(events.iter().all(|(_, data)| data.len() <= 64 * 3));
        }
    }
}
