//! Bodies: read to the end or event by event, with a bound on bytes and on silence.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderValue;
use tokio::time::{Instant, timeout_at};
use toolgate_types::gather::Gather;

use super::super::events::{Event, Parser};
use super::client::{Client, Response};
use crate::link::LinkError;

/// Bytes that complete no event count as signs of life for this many times the allowed silence.
pub(in crate::transport) const SIGNS_OF_LIFE: u32 = 10;

/// A silence that is as good as no bound, and small enough to be added to any time.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Who may be quiet for how long.
#[derive(Debug, Clone, Copy)]
pub(in crate::transport) enum Patience {
    /// A request waits: bytes alone do not count for ever.
    Request,
    /// Nobody waits: comments may keep the stream open.
    Listening,
}

/// A body that is being read.
pub(in crate::transport) struct Body {
    client: Arc<Client>,
    response: Response,
    patience: Patience,
    silent_at: Instant,
    mute_at: Instant,
}

impl Body {
    pub(in crate::transport) fn new(client: &Arc<Client>, response: Response, patience: Patience) -> Self {
        let now = Instant::now();
        let client = Arc::clone(client);
        let mut body = Self { client, response, patience, silent_at: now, mute_at: now };
        body.heard_bytes();
        body.heard();
        body
    }

    fn idle(&self) -> Duration {
        self.client.options.sse_read_timeout.min(LONGEST)
    }

    fn heard_bytes(&mut self) {
        self.silent_at = Instant::now() + self.idle();
    }

    fn heard(&mut self) {
        self.mute_at = Instant::now() + self.idle() * SIGNS_OF_LIFE;
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, LinkError> {
        let until = match self.patience {
            Patience::Request => self.silent_at.min(self.mute_at),
            Patience::Listening => self.silent_at,
        };
        let chunk = timeout_at(until, self.response.chunk()).await.map_err(|_| LinkError::Silent)?;
        self.heard_bytes();
        chunk.map_err(|error| self.client.explain(&error))
    }

    /// The whole body. What counts is what comes out of decompression, not what a header promises.
    pub(in crate::transport) async fn whole(mut self, limit: usize) -> Result<Bytes, LinkError> {
        let mut whole = Gather::new(limit);
        while let Some(chunk) = self.chunk().await? {
            whole.add(chunk).map_err(|_| LinkError::TooLarge(limit))?;
        }
        Ok(whole.finish())
    }
}

/// A body that is a stream of events.
pub(in crate::transport) struct Stream {
    body: Body,
    parser: Parser,
    ready: VecDeque<Event>,
    broken: Option<LinkError>,
    limit: usize,
    /// How many streams before this one, and this one, brought no event.
    pub(in crate::transport) barren: u32,
    /// Whether something of it, or of those before it, went by the queue.
    pub(in crate::transport) has_passed: bool,
    /// The id behind which this stream continues another.
    after: Option<HeaderValue>,
    /// The pause that was asked for on a stream before this one.
    retry: Option<Duration>,
}

impl Stream {
    pub(in crate::transport) fn new(body: Body, limit: usize) -> Self {
        Self {
            body,
            parser: Parser::new(limit),
            ready: VecDeque::new(),
            broken: None,
            limit,
            barren: 1,
            has_passed: false,
            after: None,
            retry: None,
        }
    }

    /// Remembers that this stream takes up another one.
    pub(in crate::transport) fn continues(&mut self, id: Option<HeaderValue>, ended: &Self) {
        self.after = id;
        self.barren = ended.barren + 1;
        self.retry = ended.retry();
        self.has_passed = ended.has_passed;
    }

    /// The pause that the server asks for before the stream is taken up again.
    pub(in crate::transport) fn retry(&self) -> Option<Duration> {
        self.parser.retry().or(self.retry)
    }

    /// The id with which this stream can be taken up again, where it can be sent back.
    pub(in crate::transport) fn resume_id(&self) -> Option<HeaderValue> {
        match self.parser.id().filter(|id| !id.is_empty()) {
            Some(id) => HeaderValue::from_bytes(id.as_bytes()).ok(),
            None => self.after.clone(),
        }
    }

    /// The next event, or the end.
    pub(in crate::transport) async fn next(&mut self) -> Result<Option<Event>, LinkError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if let Some(error) = self.broken.take() {
                return Err(error);
            }
            let Some(chunk) = self.body.chunk().await? else { return Ok(None) };
            let mut events = Vec::new();
            // Whole events in front of one that is too large are still events.
            self.broken =
                self.parser.feed(&chunk, &mut events).err().map(|_| LinkError::TooLarge(self.limit));
            if !events.is_empty() {
                self.body.heard();
                self.barren = 0;
            }
            self.ready.extend(events);
        }
    }
}
