//! What a server of the older revisions does not know.
//!
//! The library knows all revisions, and when it is told to leave some out it refuses them in the words of
//! the newest. A server that is older than those has other words: to it `server/discover` is any unknown
//! method, and over HTTP a version it has not heard of is a bad request.
//! Invariant: no answer from here names a revision, or a code, of the newest.

use rmcp::model::{ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, ProtocolVersion};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::{Value, json};

/// The revisions with a handshake.
pub(crate) fn versions() -> &'static [ProtocolVersion] {
    ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25)
}

/// What is said to a request with this version in its header, if it is none of ours.
pub(crate) fn refusal(version: Option<&str>) -> Option<Value> {
    let version = version?;
    let known = versions();
    if known.iter().any(|known| known.as_str() == version) {
        return None;
    }
    let list: Vec<&str> = known.iter().map(ProtocolVersion::as_str).collect();
    let message =
        format!("Bad Request: Unsupported protocol version (supported versions: {})", list.join(", "));
    Some(json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": message } }))
}

/// A transport whose server does not hear of `server/discover`.
pub(crate) struct Transport<T> {
    inner: T,
}

impl<T> Transport<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner }
    }
}

impl<T: rmcp::transport::Transport<RoleServer>> rmcp::transport::Transport<RoleServer> for Transport<T> {
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
fn versions_of_the_newest_era_are_refused() {
    let code = |version| refusal(Some(version)).map(|refusal| refusal["error"]["code"].clone());
    assert_eq!(code("2026-07-28"), Some(json!(-32000)));
    assert_eq!(code("2025-11-25"), None);
    assert_eq!(code("2024-11-05"), None);
    assert_eq!(refusal(None), None);
}
