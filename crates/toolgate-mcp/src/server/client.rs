//! Client of one request: its capabilities, notifications to it, requests to it.
//!
//! Messages to the client go through one queue, in order; the task that serves the request reads it. Invariant: a
//! client that does not read misses notifications and blocks nothing else.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::RpcResult;
use super::client_queue::MessageSender;
use crate::RawJson;
use crate::downstream::{DownstreamClient, UserWait};
use crate::input_required::InputRequired;
use crate::message::{Message, MethodName, RequestId, RpcError, method_name, quoted};
use crate::revision::Revision;

/// Messages queued for one request.
pub(super) const QUEUE: usize = 256;
/// Time a client has to answer one request of a server.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// Message to a client while its request runs.
pub(super) enum ClientMessage {
    Notification(Message),
    Request {
        method: MethodName,
        params: Option<RawJson>,
        answer: oneshot::Sender<RpcResult>,
        sent_id: SentId,
    },
}

/// Id of a request to the client; set when it is sent.
pub(super) type SentId = Arc<OnceLock<RequestId>>;

/// Client of a request.
pub struct ClientHandle {
    pub(super) identity: u64,
    pub(super) revision: Revision,
    pub(super) capabilities: Arc<Value>,
    pub(super) progress: Option<RawJson>,
    pub(super) log_level: Option<Box<str>>,
    pub(super) roots_version: u64,
    pub(super) out: MessageSender,
    /// Created with the first question.
    pub(super) user_wait: OnceLock<Arc<UserWait>>,
    /// Capability that a server needed and the client did not declare, in the form in which it is declared.
    pub(super) missing_capability: OnceLock<Value>,
}

/// Reason for not sending a request to the client.
struct MissingCapability {
    /// Capability the client would have to declare.
    required: Value,
    /// Error for the server.
    error: RpcError,
}

/// Sends `notifications/cancelled` to the client if the server stops waiting before the client answered.
struct CancelOnDrop {
    out: MessageSender,
    sent_id: SentId,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(id) = self.sent_id.get() else { return };
        let params = format!(
            "{{\"requestId\":{},\"reason\":\"the server no longer waits for the answer\"}}",
            id.to_json()
        );
        let method = "notifications/cancelled".into();
        let cancelled = Message::Notification { method, params: Some(RawJson::from_trusted(params)) };
        let _ = self.out.try_send(ClientMessage::Notification(cancelled));
    }
}

impl ClientHandle {
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// True if the client declared the capability, for example `elicitation`.
    pub fn has_capability(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|declared| !declared.is_null())
    }

    /// True if the client declared the extension.
    pub fn has_extension(&self, extension: &str) -> bool {
        self.capabilities.get("extensions").is_some_and(|all| all.get(extension).is_some())
    }

    /// Returns true if a result asks for input that needs an undeclared capability; it must not be passed on.
    pub(super) fn lacks_requested_capability(&self, result: &RawJson) -> bool {
        let Some(question) =
            result.parse_borrowed::<InputRequired<'_>>().ok().filter(InputRequired::is_input_required)
        else {
            return false;
        };
        let mut input_requests = question.input_requests.iter().flatten();
        let missing = input_requests.find_map(|(_, input)| {
            self.missing_capability_for(
                &input.method,
                input.params.map(|params| result.slice(params.get())).as_ref(),
            )
        });
        missing.is_some_and(|missing| self.missing_capability.set(missing.required).is_ok())
    }

    /// Returns the capability that a request needs and the client did not declare.
    fn missing_capability_for(&self, method: &str, params: Option<&RawJson>) -> Option<MissingCapability> {
        #[derive(serde::Deserialize)]
        struct Params {
            mode: Option<String>,
        }
        let capability = method.split('/').next().unwrap_or_default();
        let known = matches!(method, "sampling/createMessage" | "elicitation/create" | "roots/list");
        if !known || !self.has_capability(capability) {
            return Some(MissingCapability {
                required: json!({ capability: {} }),
                error: RpcError::new(
                    RpcError::METHOD_NOT_FOUND,
                    format!("the client does not offer `{capability}`"),
                ),
            });
        }
        if capability != "elicitation" {
            return None;
        }
        let mode = params.and_then(|params| params.parse::<Params>().ok()?.mode);
        let mode = mode.as_deref().unwrap_or("form");
        let declares = |mode: &str| self.capabilities["elicitation"].get(mode).is_some();
        // Clients of revisions before URL mode declare no mode and support forms.
        let takes = declares(mode) || mode == "form" && !declares("url");
        (!takes).then(|| MissingCapability {
            required: json!({ capability: { mode: {} } }),
            error: RpcError::new(
                RpcError::INVALID_PARAMS,
                format!("the client does not offer `elicitation` with the mode `{mode}`"),
            ),
        })
    }

    fn send_notification(&self, method: &str, params: Option<RawJson>) {
        let notification = Message::Notification { method: method_name(method), params };
        if self.out.try_send(ClientMessage::Notification(notification)).is_err() {
            tracing::debug!(method, "notification dropped: the client does not read");
        }
    }

    /// Replaces the progress token by the one that the client chose.
    fn with_client_token(&self, params: &RawJson) -> Option<RawJson> {
        let token = self.progress.as_ref()?;
        let mut out = String::from("{");
        for (name, value) in params.members() {
            out.push_str(if out.len() > 1 { "," } else { "" });
            out.push_str(&quoted(&name));
            out.push(':');
            out.push_str(if name == "progressToken" { token.as_str() } else { value });
        }
        out.push('}');
        Some(RawJson::from_trusted(out))
    }
}

/// Log levels, most verbose first.
const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

fn level_rank(level: &str) -> usize {
    LOG_LEVELS.iter().position(|known| *known == level).unwrap_or(0)
}

pub(super) fn is_level(level: &str) -> bool {
    LOG_LEVELS.contains(&level)
}

fn level_of(params: &RawJson) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
    }
    params.parse::<Line>().ok().map(|line| line.level)
}

impl DownstreamClient for ClientHandle {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn capabilities(&self) -> &Value {
        &self.capabilities
    }

    fn wants_progress(&self) -> bool {
        self.progress.is_some()
    }

    fn log_level(&self) -> Option<Box<str>> {
        self.log_level.clone()
    }

    fn roots_version(&self) -> u64 {
        self.roots_version
    }

    fn notify(&self, method: &str, params: Option<&RawJson>) {
        match (method, params) {
            ("notifications/progress", Some(params)) => {
                if let Some(params) = self.with_client_token(params) {
                    self.send_notification(method, Some(params));
                }
            }
            ("notifications/message", Some(params)) => {
                let wanted = match &self.log_level {
                    Some(level) => {
                        level_of(params).is_some_and(|sent| level_rank(&sent) >= level_rank(level))
                    }
                    // Before the newest revision, a client that sets no level gets all messages.
                    None => self.revision.has_handshake(),
                };
                if wanted {
                    self.send_notification(method, Some(params.clone()));
                }
            }
            _ => self.send_notification(method, params.cloned()),
        }
    }

    fn ask(&self, method: &str, params: Option<RawJson>) -> BoxFuture<'static, RpcResult> {
        if let Some(MissingCapability { required, error }) =
            self.missing_capability_for(method, params.as_ref())
        {
            let _ = self.missing_capability.set(required);
            return Box::pin(async { Err(error) });
        }
        let (answer, answered) = oneshot::channel();
        let mut cancel = CancelOnDrop { out: self.out.clone(), sent_id: SentId::default() };
        let sent_id = Arc::clone(&cancel.sent_id);
        let question = ClientMessage::Request { method: method.into(), params, answer, sent_id };
        let (out, user_wait) = (self.out.clone(), Arc::clone(self.user_wait.get_or_init(Arc::default)));
        Box::pin(async move {
            let _open = user_wait.start();
            let disconnected = || RpcError::new(-32603, "the client disconnected");
            let exchange = async {
                if !out.send(question).await {
                    return Err(disconnected());
                }
                let answer = answered.await;
                cancel.sent_id = SentId::default();
                answer.unwrap_or_else(|_| Err(disconnected()))
            };
            let timed_out = |_| Err(RpcError::new(-32603, "the client did not answer in time"));
            timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(timed_out)
        })
    }

    fn accepts_input_requests(&self) -> bool {
        !self.revision.has_handshake()
    }

    fn user_wait(&self) -> Duration {
        self.user_wait.get().map(|wait| wait.total()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
