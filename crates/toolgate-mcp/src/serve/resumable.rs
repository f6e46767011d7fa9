//! Streams that a client can come back to: what is said during a request of a session, and its answer.
//!
//! A connection that breaks is no wish of the client's. Every event has an id, and whoever asks for what came after
//! it gets that, as long as it is kept; a request that nobody comes back to is cancelled. Invariant: what is kept is
//! bounded, in all and of each; a stream is given to the guest and the session it was made for, and to no other.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::exchange::{Exchange, Next};
use super::http::{HEARTBEAT, framed};
use super::session;
use crate::message::Message;
use crate::revision::Revision;

/// How long a request goes on without its client, and how long its end is kept.
const WAITS: Duration = Duration::from_secs(30);
/// When a client should come back, in milliseconds.
const RETRY_MS: u32 = 500;
/// Streams that are kept, in all and of one guest.
const MOST: usize = 4_096;
const MOST_EACH: usize = 256;
/// What is kept of one stream beside what was not read yet, and what may wait to be read before it is held up.
const MOST_EVENTS: usize = 256;
const MOST_BYTES: usize = 256 << 10;
/// What is kept of all of them. Beyond it nothing is kept that was read.
const MOST_IN_ALL: usize = 64 << 20;

/// Whose a stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) guest: Box<str>,
    pub(super) session: Box<str>,
}

/// What came after an event.
pub(super) enum Rest {
    /// This, and what is still to come.
    Events(BoxStream<'static, Bytes>),
    /// It was the last one.
    Nothing,
}

/// All streams that can be come back to.
#[derive(Default)]
pub(super) struct Streams {
    all: Mutex<HashMap<Box<str>, Arc<Stream>>>,
    pumps: Mutex<JoinSet<()>>,
    bytes: Arc<AtomicUsize>,
}

/// One of them.
struct Stream {
    number: Box<str>,
    owner: Owner,
    state: Mutex<State>,
    changes: watch::Sender<()>,
    /// What all streams keep together.
    bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// The number of the first event that is kept, and the events from there on.
    first: u64,
    events: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the first event that nobody has read.
    unread: u64,
    over: bool,
    /// Who reads; nobody is zero.
    reader: u64,
    /// Since when nobody does.
    left: Option<Instant>,
}

/// Numbers for readers.
static READERS: AtomicU64 = AtomicU64::new(0);

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Stream>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the rest of a request go on by itself, and gives what its client reads of it. `guard` is kept as long as
    /// it runs. Where no more streams are kept it ends with its connection.
    pub(super) fn begin(
        self: &Arc<Self>,
        owner: Owner,
        first: Option<Message>,
        exchange: Exchange,
        left: impl Future<Output = ()> + Send + 'static,
        guard: impl Send + 'static,
    ) -> BoxStream<'static, Bytes> {
        let primed = exchange.revision >= Revision::V2025_11_25;
        let stream = Arc::new(Stream::new(owner, Arc::clone(&self.bytes)));
        if primed {
            // An event without a message: whoever loses the connection from here on knows what to ask for.
            stream.push(|id| format!("id: {id}\nretry: {RETRY_MS}\ndata: \n\n").into());
        }
        match first {
            Some(first) => stream.say(&first),
            None if !primed => stream.push(|_| Bytes::from_static(b":\n\n")),
            None => {}
        }
        let kept = self.keep(&stream);
        let (streams, pumped) = (Arc::downgrade(self), Arc::clone(&stream));
        let mut pumps = self.pumps.lock().unwrap_or_else(PoisonError::into_inner);
        while pumps.try_join_next().is_some() {}
        let read = read(&stream, 0);
        pumps.spawn(async move {
            pump(&pumped, exchange, left, if kept { WAITS } else { Duration::ZERO }).await;
            drop(guard);
            if kept {
                sleep(WAITS).await;
                let gone = streams.upgrade().and_then(|streams| streams.lock().remove(&pumped.number));
                drop(gone);
            }
        });
        read
    }

    /// Makes a stream one that can be found, where there is room.
    fn keep(&self, stream: &Arc<Stream>) -> bool {
        let mut all = self.lock();
        let own = all.values().filter(|other| other.owner.guest == stream.owner.guest).count();
        if all.len() >= MOST || own >= MOST_EACH {
            return false;
        }
        all.insert(stream.number.clone(), Arc::clone(stream));
        true
    }

    /// What came after an event. Who reads the stream already does so no more.
    pub(super) fn resume(&self, owner: &Owner, last: &str) -> Option<Rest> {
        let (number, event) = last.rsplit_once('-')?;
        let event: u64 = event.parse().ok()?;
        let stream = self.lock().get(number).filter(|stream| stream.owner == *owner).cloned()?;
        let (end, over) = {
            let state = stream.lock();
            (state.next(), state.over)
        };
        let next = event.checked_add(1).filter(|next| *next <= end)?;
        Some(if over && next == end { Rest::Nothing } else { Rest::Events(read(&stream, next)) })
    }

    /// Ends the streams of a session.
    pub(super) fn end(&self, session: &str) {
        let mut all = self.lock();
        let gone: Vec<_> = all.extract_if(|_, stream| &*stream.owner.session == session).collect();
        drop(all);
        for (_, stream) in gone {
            stream.end();
        }
    }
}

impl State {
    /// The number of the next event.
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl Stream {
    fn new(owner: Owner, bytes: Arc<AtomicUsize>) -> Self {
        Self {
            number: session::unguessable().into(),
            owner,
            state: Mutex::default(),
            changes: watch::Sender::new(()),
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: impl FnOnce(&str) -> Bytes) {
        let mut state = self.lock();
        let event = event(&format!("{}-{}", self.number, state.next()));
        state.bytes += event.len();
        self.bytes.fetch_add(event.len(), Ordering::Relaxed);
        state.events.push_back(event);
        self.forget(&mut state);
        drop(state);
        self.changes.send_replace(());
    }

    fn say(&self, message: &Message) {
        self.push(|id| {
            let mut event = format!("id: {id}\n").into_bytes();
            event.extend_from_slice(&framed(&message.to_bytes()));
            event.into()
        });
    }

    /// Drops the oldest events that were read, where there are too many.
    fn forget(&self, state: &mut State) {
        let too_many = |state: &State| {
            state.events.len() > MOST_EVENTS
                || state.bytes > MOST_BYTES && state.events.len() > 1
                || self.bytes.load(Ordering::Relaxed) > MOST_IN_ALL
        };
        while state.first < state.unread && too_many(state) {
            let Some(event) = state.events.pop_front() else { break };
            state.first += 1;
            state.bytes -= event.len();
            self.bytes.fetch_sub(event.len(), Ordering::Relaxed);
        }
    }

    /// Whether there is room for what comes next: some for who is away, one event at least for who reads.
    fn has_room(&self) -> bool {
        let state = self.lock();
        let unread = state.next().saturating_sub(state.unread);
        if unread == 0 && state.reader != 0 {
            return true;
        }
        unread < MOST_EVENTS as u64
            && state.bytes < MOST_BYTES
            && self.bytes.load(Ordering::Relaxed) < MOST_IN_ALL
    }

    fn end(&self) {
        self.lock().over = true;
        self.changes.send_replace(());
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.bytes.fetch_sub(state.bytes, Ordering::Relaxed);
    }
}

/// Runs a request to its end: its own, its client's, or that of the time for which nobody reads.
async fn pump(
    stream: &Stream,
    mut exchange: Exchange,
    left: impl Future<Output = ()> + Send,
    patience: Duration,
) {
    let mut changes = stream.changes.subscribe();
    tokio::pin!(left);
    loop {
        changes.mark_unchanged();
        let has_room = stream.has_room();
        let (over, alone) = {
            let state = stream.lock();
            (state.over, state.left)
        };
        if over {
            return;
        }
        let alone = async {
            match alone {
                Some(since) => sleep_until(since + patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = &mut left => break,
            next = exchange.next(), if has_room => match next {
                Next::Said(message) => stream.say(&message),
                Next::End(message, _) => {
                    stream.say(&message);
                    break;
                }
            },
            _ = changes.changed() => {}
            () = alone => break,
        }
    }
    stream.end();
}

/// Who reads a stream; nobody does any more when it is dropped.
struct Reader {
    stream: Arc<Stream>,
    number: u64,
    next: u64,
    changes: watch::Receiver<()>,
}

fn read(stream: &Arc<Stream>, next: u64) -> BoxStream<'static, Bytes> {
    let number = READERS.fetch_add(1, Ordering::Relaxed) + 1;
    let mut state = stream.lock();
    (state.reader, state.left, state.unread) = (number, None, next);
    drop(state);
    let changes = stream.changes.subscribe();
    stream.changes.send_replace(());
    let reader = Reader { stream: Arc::clone(stream), number, next, changes };
    Box::pin(stream::unfold(reader, |mut reader| async move {
        let event = reader.event().await?;
        Some((event, reader))
    }))
}

impl Reader {
    /// The next event, or a sign of life; nothing at the end, and where somebody else reads.
    async fn event(&mut self) -> Option<Bytes> {
        loop {
            self.changes.mark_unchanged();
            {
                let mut state = self.stream.lock();
                if state.reader != self.number {
                    return None;
                }
                self.next = self.next.max(state.first);
                let at = usize::try_from(self.next - state.first).ok()?;
                if let Some(event) = state.events.get(at).cloned() {
                    self.next += 1;
                    state.unread = self.next;
                    self.stream.forget(&mut state);
                    drop(state);
                    self.stream.changes.send_replace(());
                    return Some(event);
                }
                if state.over {
                    return None;
                }
            }
            match timeout(HEARTBEAT, self.changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.stream.lock();
        if state.reader == self.number {
            state.reader = 0;
            state.left = Some(Instant::now());
        }
        drop(state);
        self.stream.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests;
