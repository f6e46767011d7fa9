//! `/ws`: MCP over a WebSocket, one message per text frame, subprotocol `mcp`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use toolgate_mcp::transport::websocket;

use crate::Door;
use crate::admit::Refusal;
use crate::gateway::Visitor;
use crate::rest::Guest;

pub(crate) async fn open(
    State(door): State<Arc<Door>>,
    guest: Guest,
    mut request: Request,
) -> Result<Response, Refusal> {
    let profile = door.profile(&guest, request.uri())?;
    let headers = request.headers();
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_handshake(headers)).cloned();
    let key = key.ok_or_else(|| {
        Refusal::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", "this is the address of a WebSocket")
            .hint("`/mcp` takes requests over HTTP")
    })?;
    let offered = lists(headers, header::SEC_WEBSOCKET_PROTOCOL, "mcp");
    let upgrade = hyper::upgrade::on(&mut request);
    let conversing = Arc::clone(&door);
    let visitor = Visitor::new(&guest.caller).seeing(profile);
    door.converse_aside(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let link = websocket::accept(TokioIo::new(upgraded), conversing.wire).await;
        tokio::select! {
            () = conversing.mcp.converse(visitor, link) => {}
            () = conversing.gate.over(guest.standing) => {}
        }
    })?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let accept = websocket::accept_key(key.as_bytes());
    headers.extend(HeaderValue::from_str(&accept).ok().map(|accept| (header::SEC_WEBSOCKET_ACCEPT, accept)));
    if offered {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("mcp"));
    }
    Ok(response)
}

fn is_handshake(headers: &HeaderMap) -> bool {
    lists(headers, header::UPGRADE, "websocket")
        && lists(headers, header::CONNECTION, "upgrade")
        && lists(headers, header::SEC_WEBSOCKET_VERSION, "13")
}

/// Whether a word is among those that a header lists.
fn lists(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name);
    let mut words = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    words.any(|one| one.trim().eq_ignore_ascii_case(word))
}
