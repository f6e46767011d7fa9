//! Open streams and WebSockets per caller.
//!
//! Each holds memory and a connection for as long as its client likes. Invariant: one caller cannot take those of all
//! others; a closed stream is not counted.
//!
//! The event stream that answers a request is not counted, because it ends with the request. The limits of the request
//! apply: slots and queues of the tool, its deadline, open questions and resumable streams per caller, and connections.
//! A permit would have to be acquired before the call, and almost every request accepts events.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::StatusCode;
use http::header::{self, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolgate_mcp::server::{HttpReply, ReplyBody};
use toolgate_types::{CallerId, ErrorCode, ServeConfig};

use crate::Gateway;
use crate::auth::{Authenticated, HttpError};
use crate::response::{Response, ResponseBody};

/// Time until a refused client may try again.
const RETRY_AFTER: Duration = Duration::from_secs(15);

/// Streams that are open, by caller.
pub(crate) struct StreamLimits {
    max_per_caller: AtomicU32,
    open: Arc<Mutex<HashMap<CallerId, u32>>>,
}

impl StreamLimits {
    pub(crate) fn new(config: &ServeConfig) -> Self {
        Self { max_per_caller: config.max_streams_per_caller.get().into(), open: Arc::default() }
    }

    /// Takes over a changed limit. Streams over it stay open.
    pub(crate) fn replace(&self, config: &ServeConfig) {
        self.max_per_caller.store(config.max_streams_per_caller.get(), Ordering::Relaxed);
    }

    /// Counts one more stream of a caller, until the permit is dropped.
    ///
    /// # Errors
    /// The caller has too many.
    pub(crate) fn acquire(&self, caller: &CallerId) -> Result<StreamPermit, HttpError> {
        let most = self.max_per_caller.load(Ordering::Relaxed);
        StreamPermit::acquire(&self.open, caller, most).map_err(|count| {
            let message = format!("this caller has {count} open streams, which is the limit");
            HttpError::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Overloaded.label(), message)
                .hint("close one first; `serve.max_streams_per_caller` sets the limit")
        })
    }
}

/// Streams of one kind that all callers may have open together. One caller may have a quarter of them.
pub(crate) struct StreamSlots {
    all: Arc<Semaphore>,
    max_share: u32,
    shares: Arc<Mutex<HashMap<CallerId, u32>>>,
}

impl StreamSlots {
    pub(crate) fn new(max_streams: u16) -> Self {
        let all = Arc::new(Semaphore::new(max_streams.into()));
        Self { all, max_share: u32::from(max_streams / 4).max(1), shares: Arc::default() }
    }

    fn reserve(&self, caller: &CallerId) -> Result<(OwnedSemaphorePermit, StreamPermit), HttpError> {
        let refused = |message: &str| {
            HttpError::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::Overloaded.label(), message)
                .retry_after(RETRY_AFTER)
        };
        let share = StreamPermit::acquire(&self.shares, caller, self.max_share);
        let share = share.map_err(|_| refused("this caller has too many streams of this kind open"))?;
        let slot = Arc::clone(&self.all).try_acquire_owned();
        Ok((slot.map_err(|_| refused("too many streams are open"))?, share))
    }
}

/// A stream of a kind that counts for its caller, until dropped.
pub(crate) struct ReservedStream {
    _slot: (OwnedSemaphorePermit, StreamPermit),
    _permit: StreamPermit,
}

impl Gateway {
    /// Reserves a stream of a kind for a caller.
    ///
    /// # Errors
    /// This caller, or all callers together, have too many.
    pub(crate) fn reserve_stream(
        &self,
        slots: &StreamSlots,
        caller: &CallerId,
    ) -> Result<ReservedStream, HttpError> {
        Ok(ReservedStream { _slot: slots.reserve(caller)?, _permit: self.streams.acquire(caller)? })
    }

    /// Renders events as a response that ends with the gateway, and with the credential that opened it.
    pub(crate) fn event_stream(
        self: &Arc<Self>,
        auth: &Authenticated,
        events: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Response {
        let (shared, lifetime) = (Arc::clone(self), auth.lifetime.clone());
        let closing = async move {
            tokio::select! {
                () = shared.lifecycle.closing() => {}
                () = shared.authenticator.wait_for_expiry(lifetime) => {}
            }
        };
        let mut response = Response::new(ResponseBody::from_stream(events.take_until(Box::pin(closing))));
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// Counts as an open stream until dropped.
pub(crate) struct StreamPermit {
    caller: CallerId,
    open: Arc<Mutex<HashMap<CallerId, u32>>>,
}

impl StreamPermit {
    /// Counts one more stream of a caller. The error is the number of its streams, if there are as many as allowed.
    fn acquire(open: &Arc<Mutex<HashMap<CallerId, u32>>>, caller: &CallerId, most: u32) -> Result<Self, u32> {
        let mut counts = open.lock();
        let count = counts.entry(caller.clone()).or_default();
        if *count >= most {
            return Err(*count);
        }
        *count += 1;
        Ok(Self { caller: caller.clone(), open: Arc::clone(open) })
    }

    /// Keeps the permit until the stream of a reply ends. A reply without a stream releases it.
    pub(crate) fn hold(self, reply: HttpReply) -> HttpReply {
        let ReplyBody::Events(events) = reply.body else { return reply };
        let events = events.map(move |event| {
            let _permit = &self;
            event
        });
        HttpReply { body: ReplyBody::Events(Box::pin(events)), ..reply }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        match open.get_mut(&self.caller) {
            Some(1) | None => drop(open.remove(&self.caller)),
            Some(count) => *count -= 1,
        }
    }
}

#[test]
fn streams_are_limited_per_caller() {
    let config = ServeConfig { max_streams_per_caller: 2.try_into().unwrap(), ..ServeConfig::default() };
    let limits = StreamLimits::new(&config);
    let acquire = |caller: &str| limits.acquire(&caller.parse().unwrap());
    let first = acquire("ann").ok();
    let second = acquire("ann").ok();
    assert!(first.is_some() && second.is_some() && acquire("ann").is_err());
    assert!(acquire("bob").is_ok(), "bob has streams of his own");
    drop(first);
    assert!(acquire("ann").is_ok());
    drop(second);
    assert!(limits.open.lock().is_empty());
}

#[test]
fn one_caller_cannot_take_the_streams_of_all() {
    let slots = StreamSlots::new(8);
    let [ann, bob] = ["ann", "bob"].map(|id| id.parse::<CallerId>().unwrap());
    let of_ann: Vec<_> = (0..2).map(|_| slots.reserve(&ann).ok()).collect();
    assert!(of_ann.iter().all(Option::is_some));
    assert!(slots.reserve(&ann).is_err_and(|error| error.status == StatusCode::TOO_MANY_REQUESTS));
    let of_bob = slots.reserve(&bob);
    assert!(of_bob.is_ok());
    drop(of_ann);
    assert!(slots.reserve(&ann).is_ok());
    assert_eq!(slots.shares.lock().len(), 1, "callers without streams are forgotten");
}
