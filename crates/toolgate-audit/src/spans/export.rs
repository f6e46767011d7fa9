//! The way of spans to a collector: OTLP over HTTP, in JSON.
//!
//! Calls hand their spans over and go on; one task sends them in batches. Invariant: nobody waits for a
//! collector, what waits for one is bounded, and what does not fit is counted and told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use toolgate_types::telemetry::Collector;

use super::{Place, of};
use crate::record::{Begin, End};

/// Calls whose spans wait to be sent.
const MOST_WAITING: usize = 8_192;
/// Calls in one request.
const BATCH: usize = 256;
/// How long a batch waits for more.
const GATHER: Duration = Duration::from_secs(1);
/// How often a collector that is busy is asked.
const ATTEMPTS: u32 = 4;
/// The pause before the second time; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the end of a process waits for a collector.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Spans cannot be sent there.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A header cannot be sent.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// There is no client.
    #[error("spans cannot be sent")]
    Client(#[from] reqwest::Error),
}

/// The way to a collector.
#[derive(Debug)]
pub struct Exporter {
    waiting: mpsc::Sender<Vec<Value>>,
    dropped: Arc<AtomicU64>,
    /// Nothing, once it was closed.
    task: Mutex<Option<(oneshot::Sender<()>, JoinSet<()>)>>,
}

impl Exporter {
    /// Begins to send what is handed over. Needs a runtime of tokio.
    ///
    /// # Errors
    /// When what is sent with each request cannot be.
    pub fn start(target: Collector) -> Result<Self, TargetError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &target.headers {
            let bad = || TargetError::Header(name.clone());
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
        let (waiting, queue) = mpsc::channel(MOST_WAITING);
        let (stop, stopped) = oneshot::channel();
        let dropped = Arc::new(AtomicU64::new(0));
        let sender = Sender { client, target, dropped: Arc::clone(&dropped), told: 0 };
        let mut task = JoinSet::new();
        task.spawn(sender.run(queue, stopped));
        Ok(Self { waiting, dropped, task: Mutex::new(Some((stop, task))) })
    }

    /// Hands a call over. Where too many wait, it is left out.
    pub fn send(&self, begin: &Begin<'_>, end: &End<'_>, place: Place) {
        if self.waiting.try_send(of(begin, end, place)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends what waits, and ends. A collector that does not answer is not waited for long.
    pub async fn close(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((stop, mut task)) = task else { return };
        let _ = stop.send(());
        if timeout(LAST_WORDS, task.join_next()).await.is_err() {
            tracing::warn!("the collector of traces did not answer; the last spans are lost");
        }
    }
}

struct Sender {
    client: reqwest::Client,
    target: Collector,
    dropped: Arc<AtomicU64>,
    /// How many were told as left out.
    told: u64,
}

impl Sender {
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
            let full = Instant::now() + GATHER;
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
                super::text("service.name", &self.target.service_name),
                super::text("service.version", env!("CARGO_PKG_VERSION")),
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
                Ok(answer) if answer.status().is_success() => return self.tell_dropped(),
                Ok(answer) if may_pass(answer.status()) => why = format!("it answered {}", answer.status()),
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
        tracing::warn!("the collector of traces does not take spans: {why}");
        self.tell_dropped();
    }

    fn tell_dropped(&mut self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > self.told {
            tracing::warn!("spans of {} calls are lost", dropped - self.told);
            self.told = dropped;
        }
    }
}

/// What the specification lets one try again.
fn may_pass(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
