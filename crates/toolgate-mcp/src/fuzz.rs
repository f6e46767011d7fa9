//! Entry points for the fuzz targets: each feeds arbitrary bytes to one parser and checks its invariants.
//!
//! Parsers with short rules have a second, simple implementation here for whole inputs; both must agree. The first two
//! bytes of an input determine how the rest is split into chunks, which must not change the result.

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
use toolgate_types::server::OutputEncoding;

use crate::link::{Link, LinkError, LinkEvent};
use crate::scan::{ScanError, ScanLimits};
use crate::transport::events::{LABEL_BYTES, SseParser};
use crate::transport::{lines, websocket};

/// OAuth metadata and challenges: the result concerns only the server and the issuer that were asked for.
pub fn oauth(bytes: &[u8]) {
    crate::client::oauth::fuzz_discovery(bytes);
}

/// JSON scanner: accepts exactly what a strict `serde_json` accepts.
pub fn scan(bytes: &[u8]) {
    // Smaller than the inputs the fuzzer generates, so that it reaches the limit.
    let limits = ScanLimits { size: 2 << 10, depth: 64 };
    let scanned = crate::scan::scan(bytes, limits);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde::de::DeserializeSeed::deserialize(StrictJson(limits.depth), &mut reader);
    let parsed = parsed.and_then(|()| reader.end());
    match (&scanned, &parsed) {
        // Near the largest representable number the two round differently.
        (Ok(()), Err(error)) if error.to_string().contains("number out of range") => {}
        (Err(ScanError::Number(_)), Ok(())) => {}
        (Err(ScanError::TooLarge(_)), _) => {
            assert!(bytes.len() > limits.size, "small, but rejected as too large")
        }
        _ => assert_eq!(scanned.is_ok(), parsed.is_ok(), "{scanned:?}, and serde_json {parsed:?}"),
    }
    if scanned.is_ok() {
        assert!(bytes.len() <= limits.size, "too large, but accepted");
        let raw: &RawValue = serde_json::from_slice(bytes).expect("accepted JSON can be forwarded");
        assert_eq!(raw.get().as_bytes(), bytes.trim_ascii(), "forwarded unchanged");
    }
}

/// Accepts JSON up to a depth, without duplicate keys.
#[derive(Clone, Copy)]
struct StrictJson(usize);

impl StrictJson {
    fn inner<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("too deep"))
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for StrictJson {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
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

/// Result of parsing an event stream.
#[derive(Debug, PartialEq, Eq)]
struct ParsedEvents {
    /// Type and data.
    events: Vec<(Option<String>, Vec<u8>)>,
    id: Option<String>,
    retry: Option<Duration>,
    too_large: bool,
}

/// Size limit of an event.
const EVENT_BYTES: usize = 64;

/// SSE parser.
pub fn events(bytes: &[u8]) {
    let (plan, stream) = ChunkPlan::of(bytes);
    let whole = read_events(&[stream]);
    assert_eq!(read_events(&stream.chunks(1).collect::<Vec<_>>()), whole, "split after every byte");
    assert_eq!(read_events(&plan.chunks(stream)), whole, "split into chunks");
    let (plain, unfinished) = plain_events(stream);
    if whole.too_large {
        let count = whole.events.len();
        assert_eq!(whole.events, plain.events[..count]);
        let refused = plain.events.get(count).map_or(&unfinished, |(_, data)| data);
        assert!(refused.len() > EVENT_BYTES, "small, but rejected as too large: {refused:?}");
    } else {
        assert!(whole.events.iter().all(|(_, data)| data.len() <= EVENT_BYTES), "too large, but accepted");
        assert_eq!(whole, plain);
    }
}

fn read_events(chunks: &[&[u8]]) -> ParsedEvents {
    let mut parser = SseParser::new(EVENT_BYTES);
    let mut events = Vec::new();
    let too_large = chunks.iter().any(|chunk| {
        let refused = parser.feed(chunk, &mut events).is_err();
        // Data and the newline that may follow it, a label, and the name of its field.
        assert!(parser.held_bytes() <= EVENT_BYTES + 1 + LABEL_BYTES + 8, "more than one event is buffered");
        refused
    });
    let events = events.into_iter().map(|event| (event.kind.map(String::from), event.data.to_vec()));
    ParsedEvents {
        events: events.collect(),
        id: parser.id().map(str::to_owned),
        retry: parser.retry(),
        too_large,
    }
}

/// WHATWG rules without a size limit; also returns the data of the unfinished event.
fn plain_events(stream: &[u8]) -> (ParsedEvents, Vec<u8>) {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut found = ParsedEvents { events: Vec::new(), id: None, retry: None, too_large: false };
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

/// Event of a link.
#[derive(Debug, PartialEq, Eq)]
enum LinkOutput {
    Message(Vec<u8>),
    Noise(Vec<u8>),
    TooLarge,
    End,
}

/// Line reader, as on the output of a child process.
pub fn lines(bytes: &[u8]) {
    let (plan, output) = ChunkPlan::of(bytes);
    let encoding =
        if plan.0.is_multiple_of(2) { OutputEncoding::Utf8 } else { OutputEncoding::Named("windows-1252") };
    // Lines longer than one read take another code path, but are too long for the fuzzer to find. So for some inputs
    // a zero byte stands for many spaces; three of them exceed the line limit.
    let mut expanded = output.to_vec();
    if plan.0 & 0xF0 == 0 {
        expanded.clear();
        for (index, part) in output.split(|&byte| byte == 0).take(5).enumerate() {
            expanded.resize(expanded.len() + if index == 0 { 0 } else { 40 << 10 }, b' ');
            expanded.extend_from_slice(part);
        }
    }
    let limits = ScanLimits { size: 100_000, depth: 8 };
    let (plain, passed) = plain_lines(&expanded, encoding, limits);
    for plan in [plan, ChunkPlan::NONE] {
        let read_bytes = Arc::new(AtomicUsize::new(0));
        let pipe =
            ChunkedStream { bytes: expanded.clone(), at: 0, plan, read_bytes: Arc::clone(&read_bytes) };
        let seen = receive(|| lines::open(pipe, tokio::io::sink(), encoding, limits));
        assert_eq!(seen, plain);
        let held = read_bytes.load(Ordering::Relaxed) - passed;
        assert!(held <= limits.size + 2 + lines::CHUNK, "{held} bytes were read for one line");
    }
}

/// Splits a whole output into lines; also returns the bytes consumed before its end or the first line that is too long.
fn plain_lines(output: &[u8], encoding: OutputEncoding, limits: ScanLimits) -> (Vec<LinkOutput>, usize) {
    let (mut seen, mut passed) = (Vec::new(), 0);
    while let Some(length) = memchr::memchr(b'\n', &output[passed..]) {
        let (line, bytes) = (&output[passed..passed + length], length);
        let mut length = length;
        let text = match encoding {
            OutputEncoding::Utf8 => line.trim_ascii().to_vec(),
            OutputEncoding::Named(_) => {
                let (decoded, _) = encoding_rs::WINDOWS_1252.decode_without_bom_handling(line);
                length = decoded.len();
                decoded.trim_ascii().as_bytes().to_vec()
            }
        };
        if length > limits.size + 1 || text.len() > limits.size {
            seen.push(LinkOutput::TooLarge);
            return (seen, passed);
        }
        passed += bytes + 1;
        let is_message = match (text.first(), text.last()) {
            (Some(b'{'), Some(b'}')) if std::str::from_utf8(&text).is_ok() => true,
            (Some(b'{'), _) => memchr::memmem::find(&text, b"\"jsonrpc\"").is_some(),
            (Some(b'['), Some(b']')) => {
                !matches!(crate::scan::scan(&text, limits), Err(ScanError::Syntax(_) | ScanError::Utf8(_)))
            }
            _ => false,
        };
        if is_message {
            seen.push(LinkOutput::Message(text));
        } else if !text.is_empty() {
            seen.push(LinkOutput::Noise(text[..text.len().min(lines::EXCERPT_BYTES)].to_vec()));
        }
    }
    let too_large = output.len() - passed > limits.size + 1;
    seen.push(if too_large { LinkOutput::TooLarge } else { LinkOutput::End });
    (seen, passed)
}

/// WebSocket reader.
pub fn websocket(bytes: &[u8]) {
    let (plan, frames) = ChunkPlan::of(bytes);
    let limits = ScanLimits { size: 1 << 10, depth: 8 };
    let read = |plan: ChunkPlan| {
        let pipe = ChunkedStream { bytes: frames.to_vec(), at: 0, plan, read_bytes: Arc::default() };
        receive(|| {
            let config = websocket::config(limits);
            let socket = WebSocketStream::from_raw_socket(
                Box::new(pipe) as Box<dyn websocket::ByteStream>,
                Role::Client,
                Some(config),
            );
            // The socket is already connected, so there is nothing to wait for.
            let socket = futures_util::FutureExt::now_or_never(socket).expect("the socket is ready at once");
            websocket::spawn_link(socket, websocket::PING_INTERVAL, limits)
        })
    };
    let whole = read(ChunkPlan::NONE);
    assert_eq!(read(plan), whole, "split into chunks");
    for output in &whole {
        match output {
            LinkOutput::Message(text) => assert!(text.len() <= limits.size && matches!(text[0], b'{' | b'[')),
            LinkOutput::Noise(text) => {
                let first = text.first().expect("empty messages are skipped");
                assert!(
                    !first.is_ascii_whitespace() && !matches!(first, b'{' | b'['),
                    "a message, but reported as noise"
                );
                assert!(text.len() <= lines::EXCERPT_BYTES);
            }
            LinkOutput::TooLarge | LinkOutput::End => {}
        }
    }
}

/// Collects all events of a link.
fn receive(open: impl FnOnce() -> Link) -> Vec<LinkOutput> {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        Builder::new_current_thread().enable_time().build().expect("a runtime without I/O can be built")
    });
    RUNTIME.block_on(async {
        let mut link = open();
        let mut seen = Vec::new();
        loop {
            let next = link.inbox.recv().await.expect("a link reports its end");
            seen.push(match next {
                LinkEvent::Message(bytes) | LinkEvent::StreamMessage(_, bytes) => {
                    LinkOutput::Message(bytes.to_vec())
                }
                LinkEvent::Noise(bytes) => LinkOutput::Noise(bytes.to_vec()),
                LinkEvent::Failed(..) => panic!("no request was sent"),
                LinkEvent::Closed(LinkError::TooLarge(_)) => LinkOutput::TooLarge,
                LinkEvent::Closed(_) => LinkOutput::End,
            });
            if matches!(seen.last(), Some(LinkOutput::TooLarge | LinkOutput::End)) {
                return seen;
            }
        }
    })
}

/// Pseudo-random chunk lengths.
#[derive(Clone, Copy)]
struct ChunkPlan(u64);

impl ChunkPlan {
    /// One chunk.
    const NONE: Self = Self(u64::MAX);

    fn of(bytes: &[u8]) -> (Self, &[u8]) {
        match bytes {
            [one, two, rest @ ..] => (Self(u64::from(*one) << 8 | u64::from(*two)), rest),
            rest => (Self(0), rest),
        }
    }

    /// Length of the next chunk: mostly a few bytes, sometimes many.
    fn next(&mut self) -> usize {
        if self.0 == Self::NONE.0 {
            return usize::MAX;
        }
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = self.0 >> 33;
        (1 + random % (1 << ((random >> 8) % 18))) as usize
    }

    fn chunks(mut self, mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut chunks = Vec::new();
        while !bytes.is_empty() {
            let (chunk, rest) = bytes.split_at(self.next().min(bytes.len()));
            chunks.push(chunk);
            bytes = rest;
        }
        chunks
    }
}

/// Stream that returns its bytes in chunks and discards what is written to it.
struct ChunkedStream {
    bytes: Vec<u8>,
    at: usize,
    plan: ChunkPlan,
    /// Number of bytes read from it.
    read_bytes: Arc<AtomicUsize>,
}

impl AsyncRead for ChunkedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let length = self.plan.next().min(into.remaining()).min(self.bytes.len() - self.at);
        into.put_slice(&self.bytes[self.at..self.at + length]);
        self.at += length;
        self.read_bytes.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ChunkedStream {
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
