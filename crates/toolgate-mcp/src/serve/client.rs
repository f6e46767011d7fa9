//! The client behind one request: what it declared, what it hears, what it is asked.
//!
//! Whatever it is told or asked goes through one queue, in order; whoever serves the request reads it.
//! Invariant: a client that does not read loses what it could have heard, and holds up nobody.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Outcome;
use crate::Raw;
use crate::behind::{Behind, Thought};
use crate::message::{Id, Message, RpcError, quoted};
use crate::revision::Revision;
use crate::session::Question;

/// What waits to be told of one request.
pub(super) const QUEUE: usize = 256;
/// How long a client may think about one question.
pub(super) const THINKING: Duration = Duration::from_secs(600);

/// What is said to a client while its request runs.
pub(super) enum Said {
    /// A notification.
    Notification(Message),
    /// A question, and where its answer goes.
    Question { method: Box<str>, params: Option<Raw>, answer: oneshot::Sender<Outcome>, asked: Asked },
}

/// The id under which a client was asked, once it was.
pub(super) type Asked = Arc<OnceLock<Id>>;

/// The client behind a request.
pub struct Client {
    pub(super) identity: u64,
    pub(super) revision: Revision,
    pub(super) capabilities: Value,
    pub(super) progress: Option<Raw>,
    pub(super) log_level: Option<Box<str>>,
    pub(super) out: mpsc::Sender<Said>,
    pub(super) thought: Arc<Thought>,
    /// What a server asked for that the client did not declare, as it would have declared it.
    pub(super) lacked: OnceLock<Value>,
}

/// Why a client is not asked.
struct Lacks {
    /// What it would have to declare.
    due: Value,
    /// What the server is told.
    error: RpcError,
}

/// Tells a client that its answer is of no use any more, when nobody waits for it and it has not come.
struct Withdrawal {
    out: mpsc::Sender<Said>,
    asked: Asked,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        let Some(id) = self.asked.get() else { return };
        let params =
            format!("{{\"requestId\":{},\"reason\":\"nobody waits for it any more\"}}", id.to_json());
        let method = "notifications/cancelled".into();
        let told = Message::Notification { method, params: Some(Raw::trusted(params)) };
        let _ = self.out.try_send(Said::Notification(told));
    }
}

impl Client {
    /// The revision it speaks.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether it declared a capability, such as `elicitation`.
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(|declared| !declared.is_null())
    }

    /// Whether it declared an extension.
    pub fn extends(&self, extension: &str) -> bool {
        self.capabilities.get("extensions").is_some_and(|all| all.get(extension).is_some())
    }

    /// Whether a result asks for what the client did not declare, and must not be asked for.
    pub(super) fn is_asked_too_much(&self, result: &Raw) -> bool {
        // A look at the text is quick, and few results are questions.
        if memmem::find(result.get().as_bytes(), b"input_required").is_none() {
            return false;
        }
        let Some(question) = result.look::<Question<'_>>().ok().filter(Question::is_one) else {
            return false;
        };
        let mut asked = question.input_requests.iter().flatten();
        let lacks = asked.find_map(|(_, asked)| {
            self.lacks(&asked.method, asked.params.map(|params| result.slice(params.get())).as_ref())
        });
        lacks.is_some_and(|lacks| self.lacked.set(lacks.due).is_ok())
    }

    /// What it would have to declare to be asked this, where it did not.
    fn lacks(&self, method: &str, params: Option<&Raw>) -> Option<Lacks> {
        #[derive(serde::Deserialize)]
        struct Params {
            mode: Option<String>,
        }
        let capability = method.split('/').next().unwrap_or_default();
        let known = matches!(method, "sampling/createMessage" | "elicitation/create" | "roots/list");
        if !known || !self.has(capability) {
            return Some(Lacks {
                due: json!({ capability: {} }),
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
        // Before there were two ways of asking, there was the form.
        let takes = declares(mode) || mode == "form" && !declares("url");
        (!takes).then(|| Lacks {
            due: json!({ capability: { mode: {} } }),
            error: RpcError::new(
                RpcError::INVALID_PARAMS,
                format!("the client does not offer `elicitation` with the mode `{mode}`"),
            ),
        })
    }

    fn tell(&self, method: &str, params: Option<Raw>) {
        let notification = Message::Notification { method: method.into(), params };
        if self.out.try_send(Said::Notification(notification)).is_err() {
            tracing::debug!(method, "a client that does not read misses a notification");
        }
    }

    /// Progress under the name that the client gave it.
    fn renamed(&self, params: &Raw) -> Option<Raw> {
        let token = self.progress.as_ref()?;
        let mut out = String::from("{");
        for (name, value) in params.members() {
            out.push_str(if out.len() > 1 { "," } else { "" });
            out.push_str(&quoted(&name));
            out.push(':');
            out.push_str(if name == "progressToken" { token.get() } else { value });
        }
        out.push('}');
        Some(Raw::trusted(out))
    }
}

/// Levels of a log, from the one that says most.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

fn rank(level: &str) -> usize {
    LEVELS.iter().position(|known| *known == level).unwrap_or(0)
}

pub(super) fn is_level(level: &str) -> bool {
    LEVELS.contains(&level)
}

fn level_of(params: &Raw) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
    }
    params.parse::<Line>().ok().map(|line| line.level)
}

impl Behind for Client {
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

    fn hear(&self, method: &str, params: Option<&Raw>) {
        match (method, params) {
            ("notifications/progress", Some(params)) => {
                if let Some(params) = self.renamed(params) {
                    self.tell(method, Some(params));
                }
            }
            ("notifications/message", Some(params)) => {
                let wanted = match &self.log_level {
                    Some(level) => level_of(params).is_some_and(|said| rank(&said) >= rank(level)),
                    // Before the newest revision a client that sets no level gets what the server sends.
                    None => self.revision.has_handshake(),
                };
                if wanted {
                    self.tell(method, Some(params.clone()));
                }
            }
            _ => self.tell(method, params.cloned()),
        }
    }

    fn ask(&self, method: &str, params: Option<Raw>) -> BoxFuture<'static, Outcome> {
        if let Some(Lacks { due, error }) = self.lacks(method, params.as_ref()) {
            let _ = self.lacked.set(due);
            return Box::pin(async { Err(error) });
        }
        let (answer, answered) = oneshot::channel();
        let mut withdrawal = Withdrawal { out: self.out.clone(), asked: Asked::default() };
        let asked = Arc::clone(&withdrawal.asked);
        let question = Said::Question { method: method.into(), params, answer, asked };
        let (out, thought) = (self.out.clone(), Arc::clone(&self.thought));
        Box::pin(async move {
            let _open = thought.begin();
            let gone = || RpcError::new(-32603, "the client has left");
            let exchange = async {
                out.send(question).await.map_err(|_| gone())?;
                let answer = answered.await;
                withdrawal.asked = Asked::default();
                answer.unwrap_or_else(|_| Err(gone()))
            };
            let late = |_| Err(RpcError::new(-32603, "the client did not answer in time"));
            timeout(THINKING, exchange).await.unwrap_or_else(late)
        })
    }

    fn takes_questions(&self) -> bool {
        !self.revision.has_handshake()
    }

    fn thought(&self) -> Duration {
        self.thought.total()
    }
}

#[cfg(test)]
mod tests;
