//! Response bodies, read whole or as events, with limits on size and idle time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::body_buffer::BodyBuffer;
use bytes::Bytes;
use reqwest::header::HeaderValue;
use tokio::time::{Instant, timeout_at};

use super::super::events::{SseEvent, SseParser};
use super::client::{HttpClient, HttpResponse};
use crate::client::list_size::{LargeList, MAX_LIST_BYTES, reserve_large_list};
use crate::link::LinkError;

/// Bytes that complete no event keep a stream open for this multiple of the idle timeout.
pub(in crate::client::transport) const KEEPALIVE_FACTOR: u32 = 10;

/// Effectively no timeout, yet small enough to add to any `Instant`.
const MAX_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Idle timeout rules of a stream.
#[derive(Debug, Clone, Copy)]
pub(in crate::client::transport) enum IdlePolicy {
    /// A request waits: bytes without events do not count forever.
    Request,
    /// No request waits: comments may keep the stream open.
    Listening,
}

pub(in crate::client::transport) struct ResponseBody {
    client: Arc<HttpClient>,
    response: HttpResponse,
    idle_policy: IdlePolicy,
    byte_deadline: Instant,
    event_deadline: Instant,
}

impl ResponseBody {
    pub(in crate::client::transport) fn new(
        client: &Arc<HttpClient>,
        response: HttpResponse,
        idle_policy: IdlePolicy,
    ) -> Self {
        let (now, client) = (Instant::now(), Arc::clone(client));
        let idle = client.options.sse_read_timeout.min(MAX_IDLE);
        let (byte_deadline, event_deadline) = (now + idle, now + idle * KEEPALIVE_FACTOR);
        Self { client, response, idle_policy, byte_deadline, event_deadline }
    }

    fn idle(&self) -> Duration {
        self.client.options.sse_read_timeout.min(MAX_IDLE)
    }

    fn reset_byte_timeout(&mut self) {
        self.byte_deadline = Instant::now() + self.idle();
    }

    fn reset_event_timeout(&mut self) {
        self.event_deadline = Instant::now() + self.idle() * KEEPALIVE_FACTOR;
    }

    /// From this time on the stream counts as idle.
    fn idle_deadline(&self) -> Instant {
        match self.idle_policy {
            IdlePolicy::Request => self.byte_deadline.min(self.event_deadline),
            IdlePolicy::Listening => self.byte_deadline,
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, LinkError> {
        let until = self.idle_deadline();
        let chunk = timeout_at(until, self.response.chunk()).await.map_err(|_| LinkError::IdleTimeout)?;
        if let Ok(Some(_)) = chunk {
            self.reset_byte_timeout();
        }
        chunk.map_err(|error| self.client.describe_error(&error))
    }

    /// Reads the whole body. The limit applies to the decompressed bytes, not to `Content-Length`; lists may be larger.
    pub(in crate::client::transport) async fn whole(
        mut self,
        limit: usize,
        is_list: bool,
    ) -> Result<Bytes, LinkError> {
        let most = if is_list { limit.max(MAX_LIST_BYTES) } else { limit };
        let mut large = None;
        if let Some(length) = self.response.body_length() {
            if length > most as u64 {
                return Err(LinkError::TooLarge(most));
            }
            if is_list && length > limit as u64 {
                self.reserve(&mut large).await;
            }
            return self.buffered().await;
        }
        let mut whole = BodyBuffer::new(most);
        while let Some(chunk) = self.chunk().await? {
            if is_list && whole.len() + chunk.len() > limit {
                self.reserve(&mut large).await;
            }
            whole.push(chunk).map_err(|_| LinkError::TooLarge(most))?;
        }
        Ok(whole.finish())
    }

    /// Reads a body of known length in one piece.
    async fn buffered(mut self) -> Result<Bytes, LinkError> {
        loop {
            let until = self.idle_deadline();
            let body = timeout_at(until, self.response.buffer_body()).await;
            self.reset_byte_timeout();
            let body = body.map_err(|_| LinkError::IdleTimeout)?;
            if let Some(body) = body.map_err(|error| self.client.describe_error(&error))? {
                return Ok(body);
            }
        }
    }

    /// Waits for permission to read a large list. The server is not to blame for the wait.
    async fn reserve(&mut self, large: &mut Option<LargeList>) {
        if large.is_none() {
            *large = Some(reserve_large_list().await);
            self.reset_byte_timeout();
            self.reset_event_timeout();
        }
    }
}

/// Response body that is an event stream.
pub(in crate::client::transport) struct EventStream {
    body: ResponseBody,
    parser: SseParser,
    ready: VecDeque<SseEvent>,
    error: Option<LinkError>,
    limit: usize,
    /// Events from this size on need permission; `None` if there are none.
    large_from: Option<usize>,
    large: Option<LargeList>,
    /// Consecutive streams without an event, including this one.
    pub(in crate::client::transport) empty_streams: u32,
    /// True if a message of this stream, or of the ones it continues, went through the queue.
    pub(in crate::client::transport) has_queued: bool,
    /// Event id after which this stream continues another one.
    after: Option<HeaderValue>,
    /// Reconnect delay requested on a previous stream.
    retry: Option<Duration>,
}

impl EventStream {
    /// Creates a stream with a limit for each event; the response to a list request may be larger.
    pub(in crate::client::transport) fn new(body: ResponseBody, limit: usize, is_list: bool) -> Self {
        let large_from = is_list.then_some(limit);
        let limit = if is_list { limit.max(MAX_LIST_BYTES) } else { limit };
        Self {
            large_from,
            large: None,
            body,
            parser: SseParser::new(limit),
            ready: VecDeque::new(),
            error: None,
            limit,
            empty_streams: 1,
            has_queued: false,
            after: None,
            retry: None,
        }
    }

    /// Marks this stream as the continuation of another one.
    pub(in crate::client::transport) fn continue_from(&mut self, id: Option<HeaderValue>, ended: &Self) {
        self.after = id;
        self.empty_streams = ended.empty_streams + 1;
        self.retry = ended.retry();
        self.has_queued = ended.has_queued;
    }

    /// Reconnect delay requested by the server.
    pub(in crate::client::transport) fn retry(&self) -> Option<Duration> {
        self.parser.retry().or(self.retry)
    }

    /// Event id to resume from, if it is a valid header value.
    pub(in crate::client::transport) fn resume_id(&self) -> Option<HeaderValue> {
        match self.parser.id().filter(|id| !id.is_empty()) {
            Some(id) => HeaderValue::from_bytes(id.as_bytes()).ok(),
            None => self.after.clone(),
        }
    }

    /// Returns the next event; `None` at the end.
    pub(in crate::client::transport) async fn next(&mut self) -> Result<Option<SseEvent>, LinkError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            let Some(chunk) = self.body.chunk().await? else { return Ok(None) };
            if self.large_from.is_some_and(|from| self.parser.held_bytes() + chunk.len() > from) {
                self.body.reserve(&mut self.large).await;
            }
            let mut events = Vec::new();
            // Complete events before the oversized one are still delivered.
            self.error = self.parser.feed(&chunk, &mut events).err().map(|_| LinkError::TooLarge(self.limit));
            if !events.is_empty() {
                self.body.reset_event_timeout();
                self.empty_streams = 0;
            }
            self.ready.extend(events);
        }
    }
}
