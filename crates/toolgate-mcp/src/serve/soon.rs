//! How one request over HTTP is answered: with JSON where its answer comes soon and alone, else with a stream.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::timeout;

use super::exchange::{Exchange, Next};
use super::http::{HEARTBEAT, Reply, event, status};
use crate::message::{Message, RpcError};

/// A request that takes longer than this gets a stream, so that those in between see that it lives.
const PATIENCE: Duration = Duration::from_secs(5);

/// What there is of a request after a while.
pub(super) enum Soon<L> {
    /// Its answer.
    Reply(Reply),
    /// What was said first, and the rest of it.
    Stream(Option<Message>, Box<Exchange>, L),
}

/// The answer to one request, as JSON, where it comes soon and alone.
pub(super) async fn soon<L: Future<Output = ()> + Send + Unpin>(
    mut exchange: Exchange,
    takes_events: bool,
    mut left: L,
) -> Soon<L> {
    loop {
        tokio::select! {
            biased;
            next = timeout(PATIENCE, exchange.next()) => match next {
                Ok(Next::End(message, code)) => {
                    return Soon::Reply(Reply::message(status(exchange.revision, code), &message));
                }
                Ok(Next::Said(message)) if takes_events => {
                    return Soon::Stream(Some(message), Box::new(exchange), left);
                }
                Err(_) if takes_events => return Soon::Stream(None, Box::new(exchange), left),
                Ok(Next::Said(_)) | Err(_) => {}
            },
            () = &mut left => {
                let error = RpcError::new(-32800, "the request was cancelled");
                return Soon::Reply(Reply::error(200, Some(&exchange.id), error));
            }
        }
    }
}

/// The rest of a request that ends with its connection.
pub(super) fn streamed(first: Option<Message>, exchange: Box<Exchange>) -> Reply {
    // A comment shows whoever is in between that there is an answer on its way.
    let begin = first.as_ref().map_or_else(|| Bytes::from_static(b":\n\n"), event);
    let rest = stream::unfold(Some(exchange), |exchange| async move {
        let mut exchange = exchange?;
        Some(match timeout(HEARTBEAT, exchange.next()).await {
            Ok(Next::Said(message)) => (event(&message), Some(exchange)),
            Ok(Next::End(message, _)) => (event(&message), None),
            Err(_) => (Bytes::from_static(b":\n\n"), Some(exchange)),
        })
    });
    Reply::events(Box::pin(stream::once(std::future::ready(begin)).chain(rest)))
}
