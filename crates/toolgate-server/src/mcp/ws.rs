//! `/ws`: MCP over a WebSocket, one message per text frame, subprotocol `mcp`. Browsers and many libraries cannot send
//! headers here, so the key may also come as the subprotocol `bearer.KEY`, which is never selected.

use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use toolgate_http::server::OnUpgrade;
use toolgate_mcp::transport::websocket;

use crate::auth::{HttpError, LinkClient};
use crate::mcp_service::McpCaller;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;

pub(crate) async fn open(request: AdmittedRequest) -> Result<Response, HttpError> {
    let profile = request.profile()?;
    let AdmittedRequest { gateway, auth, mut parts, .. } = request;
    let upgrade = parts.extensions.remove::<OnUpgrade>();
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
    let permit = gateway.streams.acquire(&auth.caller.id)?;
    let offered = has_token(headers, header::SEC_WEBSOCKET_PROTOCOL, "mcp");
    let serving = Arc::clone(&gateway);
    let mcp_caller = McpCaller::new(&auth.caller).with_profile(profile);
    let client = LinkClient {
        gateway: Arc::clone(&gateway),
        caller: auth.caller.id.clone(),
        address: auth.address,
        counts_batches_only: false,
        lifetime: auth.lifetime.clone(),
    };
    gateway.mcp.spawn_session(async move {
        let _permit = permit;
        let accept = async {
            let stream = upgrade?.stream().await?;
            Some(websocket::accept(stream, serving.mcp.message_limits).await)
        };
        let link = tokio::select! {
            link = accept => link,
            () = serving.lifecycle.closing() => None,
        };
        let Some(link) = link else { return };
        tokio::select! {
            () = serving.mcp.serve_link(mcp_caller, link, Some(client)) => {}
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
