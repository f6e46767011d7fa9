//! Exports spans to a collector: OTLP over HTTP, in JSON.
//!
//! Calls enqueue their spans and go on; one task sends them in batches. Invariant: no call waits for the collector, the
//! queue is bounded, and spans that do not fit are dropped, counted and reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use toolgate_types::telemetry::OtlpCollector;

use super::{SpanContext, build_spans};
use crate::record::{CallBegin, CallEnd};

/// Maximum number of calls whose spans are queued.
const MAX_QUEUED: usize = 8_192;
/// Maximum number of calls per request.
const BATCH: usize = 256;
/// Time a batch waits for more calls.
const BATCH_WINDOW: Duration = Duration::from_secs(1);
/// Maximum number of attempts per request.
const ATTEMPTS: u32 = 4;
/// First retry delay; it doubles with every retry.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum time to flush spans on shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The exporter cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// A header name or value is invalid.
    #[error("the header `{0}` has an invalid name or value")]
    Header(String),
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client for spans")]
    Client(#[from] reqwest::Error),
}

/// Sends spans to a collector in the background.
#[derive(Debug)]
pub struct SpanExporter {
    waiting: mpsc::Sender<Vec<Value>>,
    dropped: Arc<AtomicU64>,
    /// `None` once closed.
    task: Mutex<Option<(oneshot::Sender<()>, JoinSet<()>)>>,
}

impl SpanExporter {
    /// Starts the background task. Requires a tokio runtime.
    ///
    /// # Errors
    /// If a configured header is invalid or the HTTP client cannot be created.
    pub fn start(target: OtlpCollector) -> Result<Self, ExporterError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &target.headers {
            let bad = || ExporterError::Header(name.clone());
            let mut sent = HeaderValue::from_str(value.expose()).map_err(|_| bad())?;
            sent.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, sent);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .timeout(target.timeout.get())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let (waiting, queue) = mpsc::channel(MAX_QUEUED);
        let (stop, stopped) = oneshot::channel();
        let dropped = Arc::new(AtomicU64::new(0));
        let sender = SpanSender { client, target, dropped: Arc::clone(&dropped), reported: 0 };
        let mut task = JoinSet::new();
        task.spawn(sender.run(queue, stopped));
        Ok(Self { waiting, dropped, task: Mutex::new(Some((stop, task))) })
    }

    /// Enqueues the spans of a call, or drops them if the queue is full.
    pub fn send(&self, begin: &CallBegin<'_>, end: &CallEnd<'_>, place: SpanContext) {
        if self.waiting.try_send(build_spans(begin, end, place)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Flushes the queue and stops. Waits only briefly for a collector that does not respond.
    pub async fn close(&self) {
        let task = self.task.lock().take();
        let Some((stop, mut task)) = task else { return };
        let _ = stop.send(());
        if timeout(SHUTDOWN_TIMEOUT, task.join_next()).await.is_err() {
            tracing::warn!("the trace collector did not respond on shutdown; the last spans are lost");
        }
    }
}

struct SpanSender {
    client: reqwest::Client,
    target: OtlpCollector,
    dropped: Arc<AtomicU64>,
    /// Number of dropped calls already reported.
    reported: u64,
}

impl SpanSender {
    async fn run(mut self, mut queue: mpsc::Receiver<Vec<Value>>, mut stopped: oneshot::Receiver<()>) {
        let mut last = false;
        while !last {
            let mut batch = Vec::new();
            tokio::select! {
                first = queue.recv() => match first {
                    Some(first) => batch.push(first),
                    None => last = true,
                },
                _ = &mut stopped => last = true,
            }
            let full = Instant::now() + BATCH_WINDOW;
            while !last && batch.len() < BATCH {
                tokio::select! {
                    next = timeout_at(full, queue.recv()) => match next {
                        Ok(Some(next)) => batch.push(next),
                        Ok(None) => last = true,
                        Err(_) => break,
                    },
                    _ = &mut stopped => last = true,
                }
            }
            if last {
                while let Ok(next) = queue.try_recv() {
                    batch.push(next);
                }
            }
            for part in batch.chunks(BATCH) {
                self.deliver(part).await;
            }
        }
    }

    async fn deliver(&mut self, calls: &[Vec<Value>]) {
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": [
                super::string_attribute("service.name", &self.target.service_name),
                super::string_attribute("service.version", env!("CARGO_PKG_VERSION")),
            ] },
            "scopeSpans": [{
                "scope": { "name": "toolgate", "version": env!("CARGO_PKG_VERSION") },
                "spans": calls.iter().flatten().collect::<Vec<_>>(),
            }],
        }] });
        let body = bytes::Bytes::from(body.to_string());
        let mut pause = PAUSE;
        let mut why = String::new();
        for attempt in 1..=ATTEMPTS {
            match self.client.post(&self.target.endpoint).body(body.clone()).send().await {
                Ok(answer) if answer.status().is_success() => return self.report_dropped(),
                Ok(answer) if is_retryable(answer.status()) => {
                    why = format!("it answered {}", answer.status())
                }
                Ok(answer) => {
                    why = format!("it answered {}", answer.status());
                    break;
                }
                Err(error) => why = error.without_url().to_string(),
            }
            if attempt < ATTEMPTS {
                sleep(pause).await;
                pause *= 2;
            }
        }
        self.dropped.fetch_add(calls.len() as u64, Ordering::Relaxed);
        tracing::warn!("the trace collector rejects spans: {why}");
        self.report_dropped();
    }

    fn report_dropped(&mut self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > self.reported {
            tracing::warn!("dropped the spans of {} calls", dropped - self.reported);
            self.reported = dropped;
        }
    }
}

/// Returns true for status codes that the OTLP specification declares retryable.
fn is_retryable(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
