//! First response to a request over HTTP: JSON if the result comes soon and without notifications, otherwise a stream.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::timeout;

use super::exchange::{ExchangeEvent, RequestExchange};
use super::http::{HttpReply, KEEPALIVE_INTERVAL, message_event, status};
use crate::message::{Message, RpcError};

/// Requests that take longer get a stream, so that proxies see activity.
const STREAM_AFTER: Duration = Duration::from_secs(5);

/// Decision between a JSON response and a stream.
pub(super) enum FirstResponse<L> {
    Reply(HttpReply),
    /// First message, and the rest of the request.
    Stream(Option<Message>, Box<RequestExchange>, L),
}

/// Waits for the response, the first message or the timeout.
pub(super) async fn first_response<L: Future<Output = ()> + Send + Unpin>(
    mut exchange: RequestExchange,
    accepts_events: bool,
    mut cancelled: L,
) -> FirstResponse<L> {
    loop {
        tokio::select! {
            biased;
            next = timeout(STREAM_AFTER, exchange.next()) => match next {
                Ok(ExchangeEvent::End(message, code)) => {
                    return FirstResponse::Reply(HttpReply::message(status(exchange.revision, code), &message));
                }
                Ok(ExchangeEvent::Message(message)) if accepts_events => {
                    return FirstResponse::Stream(Some(message), Box::new(exchange), cancelled);
                }
                Err(_) if accepts_events => return FirstResponse::Stream(None, Box::new(exchange), cancelled),
                Ok(ExchangeEvent::Message(_)) | Err(_) => {}
            },
            () = &mut cancelled => {
                let error = RpcError::new(-32800, "the request was cancelled");
                return FirstResponse::Reply(HttpReply::error(200, Some(&exchange.id), error));
            }
        }
    }
}

/// Streams the rest of a request. Closing the connection cancels it.
pub(super) fn stream_reply(first: Option<Message>, exchange: Box<RequestExchange>) -> HttpReply {
    // A comment, so that proxies see the response start at once.
    let begin = first.as_ref().map_or_else(|| Bytes::from_static(b":\n\n"), message_event);
    let rest = stream::unfold(Some(exchange), |exchange| async move {
        let mut exchange = exchange?;
        Some(match timeout(KEEPALIVE_INTERVAL, exchange.next()).await {
            Ok(ExchangeEvent::Message(message)) => (message_event(&message), Some(exchange)),
            Ok(ExchangeEvent::End(message, _)) => (message_event(&message), None),
            Err(_) => (Bytes::from_static(b":\n\n"), Some(exchange)),
        })
    });
    HttpReply::events(Box::pin(stream::once(std::future::ready(begin)).chain(rest)))
}
