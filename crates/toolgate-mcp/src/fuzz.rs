//! Doors for the fuzz targets: each gives any bytes to one reader and checks what must hold.
//!
//! Where the rules of a reader fit on a screen they stand here a second time, plainly and for a whole
//! input: both must come to the same. The first two bytes of an input say how the rest is cut into
//! pieces, which must change nothing.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use toolgate_types::server::Encoding;

use crate::link::{Incoming, Link, LinkError};
use crate::scan::{Limits, ScanError};
use crate::transport::events::{LABEL_BYTES, Parser};
use crate::transport::{lines, websocket};

/// Any bytes as a message: taken exactly when `serde_json`, made strict, takes it.
pub fn scan(bytes: &[u8]) {
    // Smaller than what the fuzzer tries by itself, so that it comes to the limit.
    let limits = Limits { size: 2 << 10, depth: 64 };
    let ours = crate::scan::scan(bytes, limits);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let theirs = serde::de::DeserializeSeed::deserialize(Strict(limits.depth), &mut reader);
    let theirs = theirs.and_then(|()| reader.end());
    match (&ours, &theirs) {
        // Next to the largest number there is, the two round differently.
        (Ok(()), Err(error)) if error.to_string().contains("number out of range") => {}
        (Err(ScanError::Number(_)), Ok(())) => {}
        (Err(ScanError::TooLarge(_)), _) => assert!(bytes.len() > limits.size, "small, and too large"),
        _ => assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?}, and serde_json {theirs:?}"),
    }
    if ours.is_ok() {
        assert!(bytes.len() <= limits.size, "too large, and taken");
        let raw: &RawValue = serde_json::from_slice(bytes).expect("what is taken can be forwarded");
        assert_eq!(raw.get().as_bytes(), bytes.trim_ascii(), "forwarded as it came");
    }
}

/// Takes JSON of at most so many levels, without a key that is given twice.
#[derive(Clone, Copy)]
struct Strict(usize);

impl Strict {
    fn inner<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("too deep"))
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while list.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !keys.insert(key) {
                return Err(A::Error::custom("a key is given twice"));
            }
            map.next_value_seed(inner)?;
        }
        Ok(())
    }
}

/// What comes out of a stream of events.
#[derive(Debug, PartialEq, Eq)]
struct Events {
    /// Type and data of each.
    events: Vec<(Option<String>, Vec<u8>)>,
    id: Option<String>,
    retry: Option<Duration>,
    too_large: bool,
}

/// An event may have so many bytes.
const EVENT_BYTES: usize = 64;

/// Any bytes as a stream of events.
pub fn events(bytes: &[u8]) {
    let (cuts, stream) = Cuts::of(bytes);
    let whole = read_events(&[stream]);
    assert_eq!(read_events(&stream.chunks(1).collect::<Vec<_>>()), whole, "cut after every byte");
    assert_eq!(read_events(&cuts.pieces(stream)), whole, "cut into pieces");
    let (plain, unfinished) = plain_events(stream);
    if whole.too_large {
        let count = whole.events.len();
        assert_eq!(whole.events, plain.events[..count]);
        let refused = plain.events.get(count).map_or(&unfinished, |(_, data)| data);
        assert!(refused.len() > EVENT_BYTES, "small, and too large: {refused:?}");
    } else {
        assert!(whole.events.iter().all(|(_, data)| data.len() <= EVENT_BYTES), "too large, and taken");
        assert_eq!(whole, plain);
    }
}

fn read_events(pieces: &[&[u8]]) -> Events {
    let mut parser = Parser::new(EVENT_BYTES);
    let mut events = Vec::new();
    let too_large = pieces.iter().any(|piece| {
        let refused = parser.feed(piece, &mut events).is_err();
        // Data with the line end that may follow it, a label, and the name of its field.
        assert!(parser.held_bytes() <= EVENT_BYTES + 1 + LABEL_BYTES + 8, "more is held than one event");
        refused
    });
    let events = events.into_iter().map(|event| (event.kind.map(String::from), event.data.to_vec()));
    Events { events: events.collect(), id: parser.id().map(str::to_owned), retry: parser.retry(), too_large }
}

/// The rules of the WHATWG without a limit, and the data of the event that is not finished.
fn plain_events(stream: &[u8]) -> (Events, Vec<u8>) {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut found = Events { events: Vec::new(), id: None, retry: None, too_large: false };
    let (mut kind, mut data, mut next_id): (_, Option<Vec<u8>>, _) = (None, None, None);
    let mut rest = stream;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let (line, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let (name, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if name == b"data" {
            match &mut data {
                None => data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            }
        }
        if end.is_none() {
            return (found, data.unwrap_or_default());
        }
        let text = String::from_utf8_lossy(value).into_owned();
        match name {
            b"event" => kind = Some(text).filter(|kind| !kind.is_empty() && kind != "message"),
            b"id" if !text.contains('\0') => next_id = Some(text),
            b"retry" if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                found.retry = text.parse().ok().map(Duration::from_millis).or(found.retry);
            }
            _ => {}
        }
        if line.is_empty() {
            let kind = kind.take();
            found.events.extend(data.take().map(|data| (kind, data)));
            found.id.clone_from(&next_id);
        }
        rest = behind.strip_prefix(b"\r\n").unwrap_or(&behind[1..]);
    }
}

/// What a link gives.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Message(Vec<u8>),
    Noise(Vec<u8>),
    TooLarge,
    End,
}

/// Any bytes as the output of a child.
pub fn lines(bytes: &[u8]) {
    let (cuts, output) = Cuts::of(bytes);
    let encoding = if cuts.0.is_multiple_of(2) { Encoding::Utf8 } else { Encoding::Latin1 };
    // A line longer than what is read at once takes another road. Such lines are too long for the fuzzer
    // to find, so now and then a zero stands for many spaces; three of them are more than a line may have.
    let mut grown = output.to_vec();
    if cuts.0 & 0xF0 == 0 {
        grown.clear();
        for (index, part) in output.split(|&byte| byte == 0).take(5).enumerate() {
            grown.resize(grown.len() + if index == 0 { 0 } else { 40 << 10 }, b' ');
            grown.extend_from_slice(part);
        }
    }
    let limits = Limits { size: 100_000, depth: 8 };
    let (plain, passed) = plain_lines(&grown, encoding, limits);
    for cuts in [cuts, Cuts::NONE] {
        let given = Arc::new(AtomicUsize::new(0));
        let pipe = Pipe { bytes: grown.clone(), at: 0, cuts, given: Arc::clone(&given) };
        let seen = receive(|| lines::open(pipe, tokio::io::sink(), encoding, limits));
        assert_eq!(seen, plain);
        let held = given.load(Ordering::Relaxed) - passed;
        assert!(held <= limits.size + 2 + lines::CHUNK, "{held} bytes were read for one line");
    }
}

/// The lines of a whole output, and how much of it was passed on before its end or the line that is
/// too long.
fn plain_lines(output: &[u8], encoding: Encoding, limits: Limits) -> (Vec<Seen>, usize) {
    let (mut seen, mut passed) = (Vec::new(), 0);
    while let Some(length) = memchr::memchr(b'\n', &output[passed..]) {
        let line = &output[passed..passed + length];
        let text = match encoding {
            Encoding::Utf8 => line.trim_ascii().to_vec(),
            Encoding::Latin1 => {
                line.trim_ascii().iter().map(|&byte| char::from(byte)).collect::<String>().into()
            }
        };
        if line.len() > limits.size + 1 || text.len() > limits.size {
            seen.push(Seen::TooLarge);
            return (seen, passed);
        }
        passed += length + 1;
        let is_message = match (text.first(), text.last()) {
            (Some(b'{'), Some(b'}')) => std::str::from_utf8(&text).is_ok(),
            (Some(b'['), Some(b']')) => {
                !matches!(crate::scan::scan(&text, limits), Err(ScanError::Syntax(_) | ScanError::Utf8(_)))
            }
            _ => false,
        };
        if is_message {
            seen.push(Seen::Message(text));
        } else if !text.is_empty() {
            seen.push(Seen::Noise(text[..text.len().min(lines::EXCERPT)].to_vec()));
        }
    }
    let too_large = output.len() - passed > limits.size + 1;
    seen.push(if too_large { Seen::TooLarge } else { Seen::End });
    (seen, passed)
}

/// Any bytes as what a server sends over a WebSocket.
pub fn websocket(bytes: &[u8]) {
    let (cuts, frames) = Cuts::of(bytes);
    let limits = Limits { size: 1 << 10, depth: 8 };
    let read = |cuts: Cuts| {
        let pipe = Pipe { bytes: frames.to_vec(), at: 0, cuts, given: Arc::default() };
        receive(|| {
            let config = websocket::config(limits);
            let socket = WebSocketStream::from_raw_socket(
                Box::new(pipe) as Box<dyn websocket::Pipe>,
                Role::Client,
                Some(config),
            );
            // A connection that stands has nothing to wait for.
            let socket = futures_util::FutureExt::now_or_never(socket).expect("nothing is awaited");
            websocket::speak(socket, websocket::PING, limits)
        })
    };
    let whole = read(Cuts::NONE);
    assert_eq!(read(cuts), whole, "cut into pieces");
    for seen in &whole {
        match seen {
            Seen::Message(text) => assert!(text.len() <= limits.size && matches!(text[0], b'{' | b'[')),
            Seen::Noise(text) => {
                let first = text.first().expect("what is empty is passed over");
                assert!(
                    !first.is_ascii_whitespace() && !matches!(first, b'{' | b'['),
                    "a message, and noise"
                );
                assert!(text.len() <= lines::EXCERPT);
            }
            Seen::TooLarge | Seen::End => {}
        }
    }
}

/// Everything that comes out of a link, up to its end.
fn receive(open: impl FnOnce() -> Link) -> Vec<Seen> {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        Builder::new_current_thread().enable_time().build().expect("a runtime without I/O can be made")
    });
    RUNTIME.block_on(async {
        let mut link = open();
        let mut seen = Vec::new();
        loop {
            let next = link.inbox.recv().await.expect("a link says that it ends");
            seen.push(match next {
                Incoming::Message(bytes) | Incoming::During(_, bytes) => Seen::Message(bytes.to_vec()),
                Incoming::Noise(bytes) => Seen::Noise(bytes.to_vec()),
                Incoming::Failed(..) => panic!("nothing was asked"),
                Incoming::Closed(LinkError::TooLarge(_)) => Seen::TooLarge,
                Incoming::Closed(_) => Seen::End,
            });
            if matches!(seen.last(), Some(Seen::TooLarge | Seen::End)) {
                return seen;
            }
        }
    })
}

/// How an input is cut.
#[derive(Clone, Copy)]
struct Cuts(u64);

impl Cuts {
    /// Not at all.
    const NONE: Self = Self(u64::MAX);

    fn of(bytes: &[u8]) -> (Self, &[u8]) {
        match bytes {
            [one, two, rest @ ..] => (Self(u64::from(*one) << 8 | u64::from(*two)), rest),
            rest => (Self(0), rest),
        }
    }

    /// The length of the next piece: mostly a few bytes, now and then many.
    fn next(&mut self) -> usize {
        if self.0 == Self::NONE.0 {
            return usize::MAX;
        }
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = self.0 >> 33;
        (1 + random % (1 << ((random >> 8) % 18))) as usize
    }

    fn pieces(mut self, mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(self.next().min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// The other side of a connection: says what it has in pieces, and takes anything.
struct Pipe {
    bytes: Vec<u8>,
    at: usize,
    cuts: Cuts,
    /// How much of it was read.
    given: Arc<AtomicUsize>,
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let length = self.cuts.next().min(into.remaining()).min(self.bytes.len() - self.at);
        into.put_slice(&self.bytes[self.at..self.at + length]);
        self.at += length;
        self.given.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
