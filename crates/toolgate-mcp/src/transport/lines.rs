//! One message per line, over the pipes of a child process.
//!
//! Children print more than messages: warnings of package managers, colours, logs. Such lines are
//! passed over and reported as [`Incoming::Noise`]. Invariant: reading and writing are two tasks
//! that share nothing, so a child that answers before it reads on cannot block itself and us.

use std::future::pending;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::TryFutureExt;
use memchr::{memchr, memchr2};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolgate_types::server::Encoding;

use crate::link::{Incoming, Link, LinkError, Outgoing, QUEUE, Request};
use crate::scan::{Limits, ScanError, scan};

/// Bytes read at a time.
pub(crate) const CHUNK: usize = 64 << 10;
/// What is shown of a line that is no message.
pub(crate) const EXCERPT: usize = 256;
/// A child that does not read any more may still have something to say, for so long.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Speaks over a pair of pipes.
pub fn open(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    encoding: Encoding,
    limits: Limits,
) -> Link {
    let (outbox, outgoing) = mpsc::channel(QUEUE);
    let (incoming, inbox) = mpsc::channel(QUEUE);
    let (broken, deaf) = oneshot::channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        if let Err(error) = write(writer, outgoing).await {
            let _ = broken.send(error);
        }
    });
    tasks.spawn(async move {
        let lines = Lines { reader, buffer: Vec::new(), start: 0, from: 0, encoding, limits };
        let why = lines.run(&incoming, deaf).await;
        let _ = incoming.send(Incoming::Closed(why)).await;
    });
    Link::new(outbox, inbox, tasks)
}

async fn write(
    mut writer: impl AsyncWrite + Send + Unpin,
    mut outgoing: mpsc::Receiver<Outgoing>,
) -> std::io::Result<()> {
    while let Some(next) = outgoing.recv().await {
        match next {
            Outgoing::Request(Request { bytes, .. }) | Outgoing::Other(bytes) => {
                let mut line = one_line(bytes).chain(&b"\n"[..]);
                writer.write_all_buf(&mut line).await?;
                writer.flush().await?;
            }
            Outgoing::Close => break,
            Outgoing::Cancel(_) | Outgoing::Revision(_) => {}
        }
    }
    // The end of its input is how a child is asked to leave.
    writer.shutdown().await
}

/// JSON may have line ends between its values, and nowhere else.
fn one_line(bytes: Bytes) -> Bytes {
    if memchr2(b'\n', b'\r', &bytes).is_none() {
        return bytes;
    }
    bytes.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Everything before this was passed on.
    start: usize,
    /// Everything before this has no line end.
    from: usize,
    encoding: Encoding,
    limits: Limits,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    async fn run(
        mut self,
        incoming: &mpsc::Sender<Incoming>,
        deaf: oneshot::Receiver<std::io::Error>,
    ) -> LinkError {
        // A writer that ended in peace says nothing.
        let deaf = deaf.or_else(|_| pending::<Result<_, ()>>());
        tokio::pin!(deaf);
        loop {
            let end = tokio::select! {
                end = self.read(incoming) => end,
                Ok(error) = &mut deaf => {
                    let end = timeout(LAST_WORDS, self.read_on(incoming)).await;
                    return end.unwrap_or_else(|_| LinkError::Io(format!("the server does not read any more: {error}")));
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn read_on(&mut self, incoming: &mpsc::Sender<Incoming>) -> LinkError {
        loop {
            if let Some(end) = self.read(incoming).await {
                return end;
            }
        }
    }

    /// Reads once and passes on every whole line. Can be dropped while it waits to read or to pass
    /// on: a line leaves the buffer in the moment in which it is passed on.
    async fn read(&mut self, incoming: &mpsc::Sender<Incoming>) -> Option<LinkError> {
        while let Some(at) = memchr(b'\n', &self.buffer[self.from..]).map(|at| self.from + at) {
            let Ok(room) = incoming.reserve().await else { return Some(LinkError::Closed) };
            if at - self.start > self.limits.size + 1 {
                return Some(LinkError::TooLarge(self.limits.size));
            }
            match self.take_line(at) {
                Ok(Some(line)) => room.send(line),
                Ok(None) => {}
                Err(error) => return Some(error),
            }
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        self.from = self.buffer.len();
        // One byte more than allowed, for the CR of a line of exactly the allowed size.
        if self.buffer.len() > self.limits.size + 1 {
            return Some(LinkError::TooLarge(self.limits.size));
        }
        self.buffer.reserve(CHUNK);
        let mut chunk = (&mut self.reader).take(CHUNK as u64);
        match chunk.read_buf(&mut self.buffer).await {
            Ok(0) => Some(LinkError::Closed),
            Ok(_) => None,
            Err(error) => Some(LinkError::Io(format!("the output of the server cannot be read: {error}"))),
        }
    }

    /// Takes the line that ends at `at` out of the buffer.
    fn take_line(&mut self, at: usize) -> Result<Option<Incoming>, LinkError> {
        let line = if self.start == 0 && at > CHUNK {
            // Large: the buffer becomes the line, and what is behind it is small.
            let rest = self.buffer.split_off(at + 1);
            self.from = 0;
            Bytes::from(std::mem::replace(&mut self.buffer, rest))
        } else {
            let line = Bytes::copy_from_slice(&self.buffer[self.start..at]);
            (self.start, self.from) = (at + 1, at + 1);
            line
        };
        let line = line.slice_ref(line.trim_ascii());
        if line.is_empty() {
            return Ok(None);
        }
        let line = match self.encoding {
            Encoding::Utf8 => line,
            Encoding::Latin1 => line.iter().map(|&byte| char::from(byte)).collect::<String>().into(),
        };
        if line.len() > self.limits.size {
            return Err(LinkError::TooLarge(self.limits.size));
        }
        if is_message(&line, self.limits) {
            return Ok(Some(Incoming::Message(line)));
        }
        Ok(Some(Incoming::Noise(Bytes::copy_from_slice(&line[..line.len().min(EXCERPT)]))))
    }
}

/// Whether a line is worth reading as a message, found out without reading all of it twice: a batch
/// is rare and starts as many log lines do, so it alone is scanned.
fn is_message(line: &[u8], limits: Limits) -> bool {
    match (line.first(), line.last()) {
        (Some(b'{'), Some(b'}')) => std::str::from_utf8(line).is_ok(),
        (Some(b'['), Some(b']')) => {
            !matches!(scan(line, limits), Err(ScanError::Syntax(_) | ScanError::Utf8(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
