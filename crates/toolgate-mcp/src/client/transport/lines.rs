//! One message per line, over the pipes of a child process.
//!
//! Child processes also print other lines: warnings of package managers, colours, logs. Those are skipped and reported
//! as [`LinkEvent::Noise`]. A line that names `jsonrpc` is a message even if it is damaged, so that the request that it
//! answers does not wait in vain. Invariant: reading and writing are separate tasks, so a child that writes before it reads
//! cannot cause a deadlock.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use encoding_rs::{Decoder, Encoding};
use futures_util::TryFutureExt;
use memchr::{memchr, memchr2, memmem};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolgate_types::server::OutputEncoding;

use crate::client::list_size::{LargeList, MAX_LIST_BYTES, PendingLists, reserve_large_list};
use crate::link::{Link, LinkCommand, LinkError, LinkEvent, OutgoingRequest, QUEUE_CAPACITY};
use crate::scan::{ScanError, ScanLimits, scan};

/// Bytes per read.
pub(crate) const CHUNK: usize = 64 << 10;
/// Part of a skipped line that is reported.
pub(crate) const EXCERPT_BYTES: usize = 256;
/// After a write error, remaining output is read for this long.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Opens a link over a pair of pipes.
pub fn open(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    encoding: OutputEncoding,
    limits: ScanLimits,
) -> Link {
    let (outbox, outgoing) = mpsc::channel(QUEUE_CAPACITY);
    let (incoming, inbox) = mpsc::channel(QUEUE_CAPACITY);
    let (failed, write_error) = oneshot::channel();
    let mut tasks = JoinSet::new();
    let lists = Arc::<PendingLists>::default();
    let pending_lists = lists.subscribe();
    tasks.spawn(async move {
        if let Err(error) = write(writer, outgoing).await {
            let _ = failed.send(error);
        }
    });
    tasks.spawn(async move {
        let lines = LineReader {
            reader,
            buffer: Vec::new(),
            delivered: 0,
            scanned: 0,
            decoder: decoder(encoding),
            limits,
            pending_lists,
            large: None,
        };
        let reason = lines.run(&incoming, write_error).await;
        let _ = incoming.send(LinkEvent::Closed(reason)).await;
    });
    Link { lists, ..Link::new(outbox, inbox, tasks) }
}

async fn write(
    mut writer: impl AsyncWrite + Send + Unpin,
    mut outgoing: mpsc::Receiver<LinkCommand>,
) -> std::io::Result<()> {
    while let Some(next) = outgoing.recv().await {
        match next {
            LinkCommand::Request(OutgoingRequest { bytes, .. }) | LinkCommand::Message(bytes) => {
                let mut line = one_line(bytes).chain(&b"\n"[..]);
                writer.write_all_buf(&mut line).await?;
                writer.flush().await?;
            }
            LinkCommand::Close => break,
            LinkCommand::Cancel(_) | LinkCommand::Revision(_) => {}
        }
    }
    // Closing its stdin asks the child process to exit.
    writer.shutdown().await
}

/// Returns the decoder of an encoding, with a buffer for undecoded bytes. The line breaks of some encodings differ from
/// those of UTF-8, so the output is decoded before it is split.
fn decoder(encoding: OutputEncoding) -> Option<(Decoder, Vec<u8>)> {
    let OutputEncoding::Named(name) = encoding else { return None };
    let encoding = Encoding::for_label(name.as_bytes()).filter(|known| *known != encoding_rs::UTF_8)?;
    Some((encoding.new_decoder_without_bom_handling(), Vec::new()))
}

/// Appends the decoded bytes to the buffer. Bytes that are not valid become U+FFFD.
fn decode(decoder: &mut Decoder, encoded: &mut Vec<u8>, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    // At most three times the size of a chunk.
    let most = decoder.max_utf8_buffer_length(encoded.len()).unwrap_or(encoded.len() * 4 + 16);
    buffer.resize(start + most, 0);
    let (_, read, written, _) = decoder.decode_to_utf8(encoded, &mut buffer[start..], false);
    buffer.truncate(start + written);
    encoded.drain(..read);
}

/// Replaces line breaks, which in JSON occur only between tokens.
fn one_line(bytes: Bytes) -> Bytes {
    if memchr2(b'\n', b'\r', &bytes).is_none() {
        return bytes;
    }
    bytes.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

struct LineReader<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Bytes before this were delivered.
    delivered: usize,
    /// Bytes before this contain no newline.
    scanned: usize,
    /// Converts the output to UTF-8; `None` if it is UTF-8.
    decoder: Option<(Decoder, Vec<u8>)>,
    limits: ScanLimits,
    /// Number of list requests in progress.
    pending_lists: watch::Receiver<usize>,
    /// Held while a line over the limit is read.
    large: Option<LargeList>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    async fn run(
        mut self,
        incoming: &mpsc::Sender<LinkEvent>,
        write_error: oneshot::Receiver<std::io::Error>,
    ) -> LinkError {
        // A writer that ended without an error sends nothing.
        let write_error = write_error.or_else(|_| pending::<Result<_, ()>>());
        tokio::pin!(write_error);
        loop {
            let end = tokio::select! {
                end = self.read(incoming) => end,
                () = incoming.closed() => return LinkError::Closed,
                Ok(error) = &mut write_error => {
                    let end = timeout(DRAIN_TIMEOUT, self.read_on(incoming)).await;
                    return end.unwrap_or_else(|_| LinkError::Io(format!("cannot write to the server: {error}")));
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn read_on(&mut self, incoming: &mpsc::Sender<LinkEvent>) -> LinkError {
        loop {
            if let Some(end) = self.read(incoming).await {
                return end;
            }
        }
    }

    /// Reads once and delivers every complete line. Cancel-safe: a line leaves the buffer at the moment it is
    /// delivered.
    async fn read(&mut self, incoming: &mpsc::Sender<LinkEvent>) -> Option<LinkError> {
        while let Some(at) = memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at) {
            let Ok(room) = incoming.reserve().await else { return Some(LinkError::Closed) };
            if at - self.delivered > self.max_line_bytes() + 1 {
                return Some(LinkError::TooLarge(self.max_line_bytes()));
            }
            match self.take_line(at) {
                Ok(Some(line)) => room.send(line),
                Ok(None) => {}
                Err(error) => return Some(error),
            }
        }
        self.buffer.drain(..self.delivered);
        self.delivered = 0;
        self.scanned = self.buffer.len();
        // One byte more, for the CR of a line of exactly the maximum size.
        if self.buffer.len() > self.max_line_bytes() + 1 {
            return Some(LinkError::TooLarge(self.max_line_bytes()));
        }
        if self.buffer.len() <= self.limits.size + 1 {
            self.large = None;
        } else if self.large.is_none() {
            self.large = Some(reserve_large_list().await);
        }
        let mut chunk = (&mut self.reader).take(CHUNK as u64);
        let target = match &mut self.decoder {
            None => &mut self.buffer,
            Some((_, encoded)) => encoded,
        };
        target.reserve(CHUNK);
        let read = tokio::select! {
            read = chunk.read_buf(target) => read,
            // The request timed out: the rest of its response would be too large.
            _ = self.pending_lists.wait_for(|count| *count == 0), if self.large.is_some() => {
                return Some(LinkError::TooLarge(self.limits.size));
            }
        };
        if let Some((decoder, encoded)) = &mut self.decoder {
            decode(decoder, encoded, &mut self.buffer);
        }
        match read {
            Ok(0) => Some(LinkError::Closed),
            Ok(_) => None,
            Err(error) => Some(LinkError::Io(format!("cannot read the output of the server: {error}"))),
        }
    }

    /// Maximum size of a line: larger while a list is awaited.
    fn max_line_bytes(&self) -> usize {
        let awaits_list = *self.pending_lists.borrow() > 0;
        if awaits_list { self.limits.size.max(MAX_LIST_BYTES) } else { self.limits.size }
    }

    /// Removes the line that ends at `at` from the buffer.
    fn take_line(&mut self, at: usize) -> Result<Option<LinkEvent>, LinkError> {
        let line = if self.delivered == 0 && at > CHUNK {
            // Long line: hand over the buffer without copying; the rest after it is short.
            let rest = self.buffer.split_off(at + 1);
            self.scanned = 0;
            Bytes::from(std::mem::replace(&mut self.buffer, rest))
        } else {
            let line = Bytes::copy_from_slice(&self.buffer[self.delivered..at]);
            (self.delivered, self.scanned) = (at + 1, at + 1);
            line
        };
        let line = line.slice_ref(line.trim_ascii());
        if line.is_empty() {
            return Ok(None);
        }
        let size = self.max_line_bytes();
        if line.len() > size {
            return Err(LinkError::TooLarge(size));
        }
        if is_message(&line, ScanLimits { size, ..self.limits }) {
            return Ok(Some(LinkEvent::Message(line)));
        }
        Ok(Some(LinkEvent::Noise(Bytes::copy_from_slice(&line[..line.len().min(EXCERPT_BYTES)]))))
    }
}

/// Cheap check for a message without parsing it twice. Log lines often start with `[`, so only those are scanned;
/// batches are rare.
fn is_message(line: &[u8], limits: ScanLimits) -> bool {
    match (line.first(), line.last()) {
        (Some(b'{'), Some(b'}')) if std::str::from_utf8(line).is_ok() => true,
        // Damaged: a truncated line, or one with invalid characters.
        (Some(b'{'), _) => memmem::find(line, b"\"jsonrpc\"").is_some(),
        (Some(b'['), Some(b']')) => {
            !matches!(scan(line, limits), Err(ScanError::Syntax(_) | ScanError::Utf8(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
