//! Resumable streams: the messages of a request in a session, and its response.
//!
//! A broken connection does not mean that the client gave up. Every event has an id, and a client that reconnects with
//! `Last-Event-ID` gets the events after it, as long as they are buffered. A request whose client does not reconnect is
//! cancelled. Invariant: buffers are bounded, per stream and in total; a stream is readable only by the caller and
//! session that it was created for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::exchange::{ExchangeEvent, RequestExchange};
use super::http::{KEEPALIVE_INTERVAL, sse_event};
use super::session;
use crate::message::Message;
use crate::revision::Revision;

/// Time a request keeps running without a reader, and time a finished stream stays available.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);
/// Reconnect delay suggested to the client.
const RETRY_MS: u32 = 500;
/// Registered streams, in total and per caller.
const MAX_STREAMS: usize = 4_096;
const MAX_STREAMS_PER_CALLER: usize = 256;
/// Buffer limits of one stream. Events that were read are evicted beyond them; with that many unread ones the request
/// is paused.
const MAX_EVENTS: usize = 256;
const MAX_BUFFERED_BYTES: usize = 256 << 10;
/// Buffer limit over all streams. Beyond it, events that were read are not kept.
const MAX_TOTAL_BYTES: usize = 64 << 20;

/// Caller and session that may read a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamOwner {
    pub(super) caller: Box<str>,
    pub(super) session: Box<str>,
}

/// Result of resuming a stream.
pub(super) enum ResumeOutcome {
    /// Events after the given one, and the ones still to come.
    Events(BoxStream<'static, Bytes>),
    /// The given event was the last one.
    Finished,
}

/// Registry of resumable streams.
#[derive(Default)]
pub(super) struct ResumableStreams {
    all: Mutex<HashMap<Box<str>, Arc<ResumableStream>>>,
    tasks: Mutex<JoinSet<()>>,
    bytes: Arc<AtomicUsize>,
}

/// Event buffer of one request.
struct ResumableStream {
    id: Box<str>,
    owner: StreamOwner,
    state: Mutex<StreamBuffer>,
    changes: watch::Sender<()>,
    /// Bytes buffered by all streams.
    bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct StreamBuffer {
    /// Sequence number of the first buffered event.
    first: u64,
    events: VecDeque<Bytes>,
    bytes: usize,
    /// Sequence number of the first unread event.
    unread: u64,
    ended: bool,
    /// Id of the current reader; zero if there is none.
    reader: u64,
    /// Time since the stream has no reader.
    unread_since: Option<Instant>,
}

/// Last reader id.
static LAST_READER_ID: AtomicU64 = AtomicU64::new(0);

impl ResumableStreams {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<ResumableStream>>> {
        self.all.lock()
    }

    /// Runs the rest of a request in the background and returns its events. `guard` is dropped when the request ends.
    /// If no more streams can be registered, the request ends with its connection.
    pub(super) fn start(
        self: &Arc<Self>,
        owner: StreamOwner,
        first: Option<Message>,
        exchange: RequestExchange,
        cancelled: impl Future<Output = ()> + Send + 'static,
        guard: impl Send + 'static,
    ) -> BoxStream<'static, Bytes> {
        let resumable = exchange.revision >= Revision::V2025_11_25;
        let stream = Arc::new(ResumableStream::new(owner, Arc::clone(&self.bytes)));
        if resumable {
            // An event without a message gives the client an id to resume from right away.
            stream.push(|id| format!("id: {id}\nretry: {RETRY_MS}\ndata: \n\n").into());
        }
        match first {
            Some(first) => stream.push_message(&first),
            None if !resumable => stream.push(|_| Bytes::from_static(b":\n\n")),
            None => {}
        }
        let registered = self.register(&stream);
        let (streams, running) = (Arc::downgrade(self), Arc::clone(&stream));
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        let read = read(&stream, 0);
        tasks.spawn(async move {
            run_exchange(
                &running,
                exchange,
                cancelled,
                if registered { RESUME_TIMEOUT } else { Duration::ZERO },
            )
            .await;
            drop(guard);
            if registered {
                sleep(RESUME_TIMEOUT).await;
                let removed = streams.upgrade().and_then(|streams| streams.lock().remove(&running.id));
                drop(removed);
            }
        });
        read
    }

    /// Registers a stream; returns false if there is no room.
    fn register(&self, stream: &Arc<ResumableStream>) -> bool {
        let mut all = self.lock();
        let of_caller = all.values().filter(|other| other.owner.caller == stream.owner.caller).count();
        if all.len() >= MAX_STREAMS || of_caller >= MAX_STREAMS_PER_CALLER {
            return false;
        }
        all.insert(stream.id.clone(), Arc::clone(stream));
        true
    }

    /// Resumes a stream after an event. The previous reader, if any, is detached.
    pub(super) fn resume(&self, owner: &StreamOwner, last: &str) -> Option<ResumeOutcome> {
        let (id, event) = last.rsplit_once('-')?;
        let event: u64 = event.parse().ok()?;
        let stream = self.lock().get(id).filter(|stream| stream.owner == *owner).cloned()?;
        let (end, ended) = {
            let state = stream.lock();
            (state.next(), state.ended)
        };
        let next = event.checked_add(1).filter(|next| *next <= end)?;
        Some(if ended && next == end {
            ResumeOutcome::Finished
        } else {
            ResumeOutcome::Events(read(&stream, next))
        })
    }

    /// Ends all streams of a session.
    pub(super) fn end(&self, session: &str) {
        let mut all = self.lock();
        let removed: Vec<_> = all.extract_if(|_, stream| &*stream.owner.session == session).collect();
        drop(all);
        for (_, stream) in removed {
            stream.end();
        }
    }
}

impl StreamBuffer {
    /// Sequence number of the next event.
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl ResumableStream {
    fn new(owner: StreamOwner, bytes: Arc<AtomicUsize>) -> Self {
        Self {
            id: session::random_id().into(),
            owner,
            state: Mutex::default(),
            changes: watch::Sender::new(()),
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, StreamBuffer> {
        self.state.lock()
    }

    fn push(&self, event: impl FnOnce(&str) -> Bytes) {
        let mut state = self.lock();
        let event = event(&format!("{}-{}", self.id, state.next()));
        state.bytes += event.len();
        self.bytes.fetch_add(event.len(), Ordering::Relaxed);
        state.events.push_back(event);
        self.evict_read(&mut state);
        drop(state);
        self.changes.send_replace(());
    }

    fn push_message(&self, message: &Message) {
        self.push(|id| {
            let mut event = format!("id: {id}\n").into_bytes();
            event.extend_from_slice(&sse_event(&message.to_bytes()));
            event.into()
        });
    }

    /// Evicts the oldest events that were read while the buffer is over its limits.
    fn evict_read(&self, state: &mut StreamBuffer) {
        let too_many = |state: &StreamBuffer| {
            state.events.len() > MAX_EVENTS
                || state.bytes > MAX_BUFFERED_BYTES && state.events.len() > 1
                || self.bytes.load(Ordering::Relaxed) > MAX_TOTAL_BYTES
        };
        while state.first < state.unread && too_many(state) {
            let Some(event) = state.events.pop_front() else { break };
            state.first += 1;
            state.bytes -= event.len();
            self.bytes.fetch_sub(event.len(), Ordering::Relaxed);
        }
    }

    /// True if the next event may be produced: within the limits without a reader, always one with a reader.
    fn has_room(&self) -> bool {
        let state = self.lock();
        let unread = state.next().saturating_sub(state.unread);
        if unread == 0 && state.reader != 0 {
            return true;
        }
        unread < MAX_EVENTS as u64
            && state.bytes < MAX_BUFFERED_BYTES
            && self.bytes.load(Ordering::Relaxed) < MAX_TOTAL_BYTES
    }

    fn end(&self) {
        self.lock().ended = true;
        self.changes.send_replace(());
    }
}

impl Drop for ResumableStream {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.bytes.fetch_sub(state.bytes, Ordering::Relaxed);
    }
}

/// Runs a request until it completes, is cancelled, or has had no reader for too long.
async fn run_exchange(
    stream: &ResumableStream,
    mut exchange: RequestExchange,
    cancelled: impl Future<Output = ()> + Send,
    patience: Duration,
) {
    let mut changes = stream.changes.subscribe();
    tokio::pin!(cancelled);
    loop {
        changes.mark_unchanged();
        let has_room = stream.has_room();
        let (ended, unread_since) = {
            let state = stream.lock();
            (state.ended, state.unread_since)
        };
        if ended {
            return;
        }
        let abandoned = async {
            match unread_since {
                Some(since) => sleep_until(since + patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = &mut cancelled => break,
            next = exchange.next(), if has_room => match next {
                ExchangeEvent::Message(message) => stream.push_message(&message),
                ExchangeEvent::End(message, _) => {
                    stream.push_message(&message);
                    break;
                }
            },
            _ = changes.changed() => {}
            () = abandoned => break,
        }
    }
    stream.end();
}

/// Reader of a stream; detaches on drop.
struct StreamReader {
    stream: Arc<ResumableStream>,
    id: u64,
    next: u64,
    changes: watch::Receiver<()>,
}

fn read(stream: &Arc<ResumableStream>, next: u64) -> BoxStream<'static, Bytes> {
    let id = LAST_READER_ID.fetch_add(1, Ordering::Relaxed) + 1;
    let mut state = stream.lock();
    (state.reader, state.unread_since, state.unread) = (id, None, next);
    drop(state);
    let changes = stream.changes.subscribe();
    stream.changes.send_replace(());
    let reader = StreamReader { stream: Arc::clone(stream), id, next, changes };
    Box::pin(stream::unfold(reader, |mut reader| async move {
        let event = reader.event().await?;
        Some((event, reader))
    }))
}

impl StreamReader {
    /// Returns the next event or a keep-alive comment; `None` at the end, or if another reader took over.
    async fn event(&mut self) -> Option<Bytes> {
        loop {
            self.changes.mark_unchanged();
            {
                let mut state = self.stream.lock();
                if state.reader != self.id {
                    return None;
                }
                self.next = self.next.max(state.first);
                let at = usize::try_from(self.next - state.first).ok()?;
                if let Some(event) = state.events.get(at).cloned() {
                    self.next += 1;
                    state.unread = self.next;
                    self.stream.evict_read(&mut state);
                    drop(state);
                    self.stream.changes.send_replace(());
                    return Some(event);
                }
                if state.ended {
                    return None;
                }
            }
            match timeout(KEEPALIVE_INTERVAL, self.changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.stream.lock();
        if state.reader == self.id {
            state.reader = 0;
            state.unread_since = Some(Instant::now());
        }
        drop(state);
        self.stream.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests;
