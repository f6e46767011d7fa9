//! `/ws`: MCP over a WebSocket, one message per text frame, subprotocol `mcp`.

use std::sync::Arc;

use axum::response::Response;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use toolgate_mcp::transport::websocket;

use crate::auth::HttpError;
use crate::mcp_service::McpCaller;
use crate::response;
use crate::route::AdmittedRequest;

pub(crate) async fn open(request: AdmittedRequest) -> Result<Response, HttpError> {
    let profile = request.profile()?;
    let AdmittedRequest { gateway, auth, parts, .. } = request;
    let headers = &parts.headers;
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_handshake(headers)).cloned();
    let key = key.ok_or_else(|| {
        HttpError::new(
            StatusCode::UPGRADE_REQUIRED,
            "upgrade_required",
            "this endpoint requires a WebSocket upgrade",
        )
        .hint("use `/mcp` for requests over HTTP")
    })?;
    let offered = has_token(headers, header::SEC_WEBSOCKET_PROTOCOL, "mcp");
    let upgrade = hyper::upgrade::on(Request::from_parts(parts, ()));
    let serving = Arc::clone(&gateway);
    let mcp_caller = McpCaller::new(&auth.caller).with_profile(profile);
    gateway.mcp.spawn_websocket(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let link = websocket::accept(TokioIo::new(upgraded), serving.mcp.message_limits).await;
        tokio::select! {
            () = serving.mcp.serve_link(mcp_caller, link) => {}
            () = serving.authenticator.wait_for_expiry(auth.lifetime) => {}
        }
    })?;
    let mut response = response::empty(StatusCode::SWITCHING_PROTOCOLS);
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
    has_token(headers, header::UPGRADE, "websocket")
        && has_token(headers, header::CONNECTION, "upgrade")
        && has_token(headers, header::SEC_WEBSOCKET_VERSION, "13")
}

/// Returns true if a comma-separated header contains a token.
fn has_token(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name);
    let mut words = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    words.any(|one| one.trim().eq_ignore_ascii_case(word))
}
