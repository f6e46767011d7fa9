//! HTTP+SSE, the transport of the first revision: one stream for all that the server says, and an
//! address of its choice for all that we say.
//!
//! Invariant: that address is of the same origin, or the server is refused: our headers go there.

use std::sync::Arc;

use reqwest::Method;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::Url;

use super::http::body::{Body, Patience, Stream};
use super::http::client::{Client, EVENTS, Refusal, content_type, excerpt};
use super::http::{Answers, Wire, drive};
use super::{OpenError, RemoteOptions, shown};
use crate::link::{Incoming, Link, LinkError, QUEUE};
use crate::scan::Limits;

/// Opens the stream and waits for the address, both within `connect_timeout`.
pub async fn open(options: RemoteOptions, limits: Limits) -> Result<Link, OpenError> {
    let client = Arc::new(Client::new(options)?);
    let beginning = timeout(client.options.connect_timeout, begin(&client, limits)).await;
    let (target, mut stream) = beginning.map_err(|_| LinkError::Silent)??;
    let (incoming, inbox) = mpsc::channel(QUEUE);
    let wire = Arc::new(Wire::new(client, target, Answers::Elsewhere, limits, incoming.clone()));
    let (outbox, outgoing) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(Arc::clone(&wire), outgoing));
    tasks.spawn(async move {
        let end = wire.relay_all(&mut stream).await.err().unwrap_or(LinkError::Closed);
        let _ = incoming.send(Incoming::Closed(end)).await;
    });
    Ok(Link::new(outbox, inbox, tasks))
}

/// The stream, and where the server wants our messages.
async fn begin(client: &Arc<Client>, limits: Limits) -> Result<(Url, Stream), LinkError> {
    let url = &client.options.url;
    let response = client.send(Method::GET, url, EVENTS, || client.headers(), None).await?;
    if !response.status().is_success() {
        return Err(Refusal::read(response).await.into());
    }
    let kind = content_type(response.headers());
    if kind != EVENTS {
        let (kind, shown) = (excerpt(kind.as_bytes()), &client.shown);
        return Err(LinkError::Io(format!(
            "`{shown}` answers with `{kind}` where a stream of events is due"
        )));
    }
    let mut stream = Stream::new(Body::new(client, response, Patience::Listening), limits.size);
    loop {
        let Some(event) = stream.next().await? else { return Err(LinkError::Closed) };
        if event.kind.as_deref() == Some("endpoint") {
            return Ok((endpoint(url, &event.data)?, stream));
        }
    }
}

fn endpoint(url: &Url, data: &[u8]) -> Result<Url, LinkError> {
    let text = std::str::from_utf8(data).ok();
    let target = text.and_then(|text| url.join(text.trim()).ok());
    let target = target
        .ok_or_else(|| LinkError::Io("the server names no valid address for our messages".to_owned()))?;
    if target.origin() != url.origin() {
        let elsewhere = shown(&target);
        let what =
            format!("the server wants our messages at `{elsewhere}`, which is another origin than its own");
        return Err(LinkError::Io(what));
    }
    Ok(target)
}

#[cfg(test)]
mod tests;
