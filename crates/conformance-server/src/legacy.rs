//! Behaviour of a server that predates the newest revision.
//!
//! The library supports all revisions; if some are disabled, it rejects them with errors of the newest. A really old
//! server reacts differently: to it `server/discover` is an unknown method, and over HTTP an unknown version is a bad
//! request. Invariant: no response from here contains a revision, or an error code, of the newest.

use rmcp::model::{ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, ProtocolVersion};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::{Value, json};

/// Revisions with a handshake.
pub(crate) fn legacy_versions() -> &'static [ProtocolVersion] {
    ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25)
}

/// Returns the error for a request with this version header; `None` if the version is supported.
pub(crate) fn version_error(version: Option<&str>) -> Option<Value> {
    let version = version?;
    let known = legacy_versions();
    if known.iter().any(|known| known.as_str() == version) {
        return None;
    }
    let list: Vec<&str> = known.iter().map(ProtocolVersion::as_str).collect();
    let message =
        format!("Bad Request: Unsupported protocol version (supported versions: {})", list.join(", "));
    Some(json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": message } }))
}

/// Transport whose server does not know `server/discover`.
pub(crate) struct LegacyTransport<T> {
    inner: T,
}

impl<T> LegacyTransport<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner }
    }
}

impl<T: rmcp::transport::Transport<RoleServer>> rmcp::transport::Transport<RoleServer>
    for LegacyTransport<T>
{
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            match self.inner.receive().await? {
                JsonRpcMessage::Request(request)
                    if matches!(request.request, ClientRequest::DiscoverRequest(_)) =>
                {
                    let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None);
                    self.inner.send(JsonRpcMessage::error(unknown, Some(request.id))).await.ok()?;
                }
                message => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[test]
fn rejects_versions_without_handshake() {
    let code = |version| version_error(Some(version)).map(|refusal| refusal["error"]["code"].clone());
    assert_eq!(code("2026-07-28"), Some(json!(-32000)));
    assert_eq!(code("2025-11-25"), None);
    assert_eq!(code("2024-11-05"), None);
    assert_eq!(version_error(None), None);
}
