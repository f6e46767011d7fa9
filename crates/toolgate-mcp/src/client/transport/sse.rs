//! HTTP+SSE, the transport of 2024-11-05: one stream for all messages of the server, and a URL chosen by the server for
//! ours.
//!
//! Invariant: that URL must have the same origin, because our headers are sent to it.

use std::sync::Arc;

use reqwest::Method;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::Url;

use super::http::body::{EventStream, IdlePolicy, ResponseBody};
use super::http::client::{EVENTS, ErrorResponse, HttpClient, content_type, excerpt};
use super::http::{HttpChannel, ResponseRouting, run_channel};
use super::{OpenError, RemoteOptions, redacted_url};
use crate::link::{Link, LinkError, LinkEvent, QUEUE_CAPACITY};
use crate::scan::ScanLimits;

/// Opens the stream and waits for the endpoint URL, both within `connect_timeout`.
pub async fn open(options: RemoteOptions, limits: ScanLimits) -> Result<Link, OpenError> {
    let client = Arc::new(HttpClient::new(options)?);
    let opened = timeout(client.options.connect_timeout, open_stream(&client, limits)).await;
    let (target, mut stream) = opened.map_err(|_| LinkError::IdleTimeout)??;
    let (incoming, inbox) = mpsc::channel(QUEUE_CAPACITY);
    let channel =
        Arc::new(HttpChannel::new(client, target, ResponseRouting::SharedStream, limits, incoming.clone()));
    let (outbox, outgoing) = mpsc::channel(QUEUE_CAPACITY);
    let mut tasks = JoinSet::new();
    tasks.spawn(run_channel(Arc::clone(&channel), outgoing));
    tasks.spawn(async move {
        let end = channel.relay_all(&mut stream).await.err().unwrap_or(LinkError::Closed);
        let _ = incoming.send(LinkEvent::Closed(end)).await;
    });
    Ok(Link::new(outbox, inbox, tasks))
}

/// Opens the stream and returns it with the URL for our messages.
async fn open_stream(client: &Arc<HttpClient>, limits: ScanLimits) -> Result<(Url, EventStream), LinkError> {
    let url = &client.options.url;
    let response = client.send(Method::GET, url, EVENTS, || client.headers(), None).await?;
    if !response.status().is_success() {
        return Err(ErrorResponse::read(response).await.into());
    }
    let kind = content_type(response.headers());
    if kind != EVENTS {
        let (kind, shown) = (excerpt(kind.as_bytes()), &client.shown);
        return Err(LinkError::Io(format!("`{shown}` answers with `{kind}` instead of an event stream")));
    }
    let mut stream =
        EventStream::new(ResponseBody::new(client, response, IdlePolicy::Listening), limits.size, false);
    loop {
        let Some(event) = stream.next().await? else { return Err(LinkError::Closed) };
        if event.kind.as_deref() == Some("endpoint") {
            return Ok((endpoint_url(url, &event.data)?, stream));
        }
    }
}

fn endpoint_url(url: &Url, data: &[u8]) -> Result<Url, LinkError> {
    let text = std::str::from_utf8(data).ok();
    let target = text.and_then(|text| url.join(text.trim()).ok());
    let target =
        target.ok_or_else(|| LinkError::Io("the server announced an invalid endpoint URL".to_owned()))?;
    if target.origin() != url.origin() {
        let elsewhere = redacted_url(&target);
        let what =
            format!("the server announced the endpoint URL `{elsewhere}`, which has a different origin");
        return Err(LinkError::Io(what));
    }
    Ok(target)
}

#[cfg(test)]
mod tests;
