//! The endpoint on a link: lines, a WebSocket, or the events of the first revision.
//!
//! One client, one conversation; what runs in it ends with it. A client may make a handshake or speak the newest
//! revision, request by request. Invariant: the loop that reads waits for no request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::begin::{Came, Face, Initialize, Keeping, check_meta, stranger};
use super::exchange::{Exchange, Next};
use super::http::{Belongs, cancelled};
use super::session::{Kept, Ticket};
use super::{Endpoint, Guest as _, Service, negotiated};
use crate::link::{Incoming, Link, Outgoing};
use crate::message::{Id, Message, RpcError};
use crate::revision::Revision;

/// Requests of one client that run at once.
const MOST_AT_ONCE: usize = 256;
/// How long a client that has sent its last message may read on: `echo … | server` closes the pipe behind its
/// question. Less than what programs are given to end by themselves.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What a conversation knows.
struct Conversation {
    out: mpsc::Sender<Outgoing>,
    kept: Arc<Kept>,
    face: Option<Face>,
    running: HashMap<Id, AbortHandle>,
    tasks: JoinSet<Id>,
    /// Those among them that end only with the client.
    listening: Vec<AbortHandle>,
    /// What the client hears that belongs to no request.
    hearing: JoinSet<()>,
}

impl<S: Service> Endpoint<S> {
    /// Serves one client until it leaves. What still runs a moment later is cancelled.
    pub async fn converse(self: &Arc<Self>, guest: S::Guest, link: Link) {
        let Link { outbox, mut inbox, tasks: transport, .. } = link;
        let mut conversation = Conversation {
            out: outbox,
            kept: Arc::default(),
            face: None,
            running: HashMap::new(),
            tasks: JoinSet::new(),
            listening: Vec::new(),
            hearing: JoinSet::new(),
        };
        loop {
            let incoming = tokio::select! {
                incoming = inbox.recv() => incoming,
                Some(ended) = conversation.tasks.join_next() => {
                    if let Ok(id) = ended {
                        conversation.running.remove(&id);
                    }
                    continue;
                }
            };
            match incoming {
                Some(Incoming::Message(bytes) | Incoming::During(_, bytes)) => {
                    self.take(&guest, &mut conversation, &bytes).await;
                }
                Some(Incoming::Noise(start)) => {
                    let error = format!("no message: {}", start.escape_ascii());
                    conversation.refuse(-32700, &error).await;
                }
                Some(Incoming::Failed(..)) => {}
                Some(Incoming::Closed(_)) | None => break,
            }
        }
        conversation.end(transport).await;
    }

    async fn take(self: &Arc<Self>, guest: &S::Guest, conversation: &mut Conversation, bytes: &Bytes) {
        let messages = match Message::read_of_client(bytes, self.limits) {
            Ok(messages) => messages,
            Err(error) => {
                let why = RpcError::new(error.code(), error.to_string());
                return match error.whose(bytes) {
                    Some(id) => conversation.send(&Message::Response { id, outcome: Err(why) }).await,
                    None => conversation.refuse(why.code, &why.message).await,
                };
            }
        };
        for message in messages {
            match message {
                Message::Request { id, method, params } => {
                    let came = Came::new(id, method, params, &Belongs::Unknown);
                    self.request(guest, conversation, came).await;
                }
                Message::Response { id, outcome } => conversation.kept.pending.answered(&id, outcome),
                Message::Notification { method, params } if &*method == "notifications/cancelled" => {
                    if let Some(running) =
                        params.as_ref().and_then(cancelled).and_then(|id| conversation.running.remove(&id))
                    {
                        running.abort();
                    }
                }
                Message::Notification { .. } => {}
            }
        }
    }

    async fn request(self: &Arc<Self>, guest: &S::Guest, conversation: &mut Conversation, came: Came) {
        let newest = came.meta.version.is_some();
        if &*came.method == "initialize" && !newest {
            return self.meet(guest, conversation, came).await;
        }
        let refusal = if conversation.running.len() >= MOST_AT_ONCE {
            Some(RpcError::new(-32603, "too many requests at once"))
        } else if conversation.running.contains_key(&came.id) {
            Some(RpcError::new(-32600, "a request with this id runs already"))
        } else if !newest && conversation.face.is_none() && &*came.method != "ping" {
            let error = check_meta(&came.meta).err();
            error.filter(|_| came.meta.is_there || &*came.method == "server/discover").or_else(|| {
                Some(RpcError::new(
                    -32600,
                    "begin with `initialize`, or say in `_meta` which revision this is",
                ))
            })
        } else {
            None
        };
        if let Some(error) = refusal {
            return conversation.send(&Message::Response { id: came.id, outcome: Err(error) }).await;
        }
        let (id, out) = (came.id.clone(), conversation.out.clone());
        let listens = newest && &*came.method == "subscriptions/listen";
        let task = if listens {
            let (endpoint, guest) = (Arc::clone(self), guest.clone());
            conversation.tasks.spawn(async move {
                match endpoint.listen(&guest, &came.id, came.params.as_ref()).await {
                    Ok(messages) => pump(messages, &out).await,
                    Err(error) => {
                        send(&out, &Message::Response { id: came.id.clone(), outcome: Err(error) }).await
                    }
                }
                came.id
            })
        } else {
            let exchange = if newest {
                self.begin(guest, came)
            } else {
                let face = conversation.face.clone().unwrap_or_else(|| conversation.unmet());
                self.begin_with(guest, &face, came)
            };
            conversation.tasks.spawn(run(exchange, out))
        };
        if listens {
            conversation.listening.retain(|listening| !listening.is_finished());
            conversation.listening.push(task.clone());
        }
        conversation.running.insert(id, task);
    }

    /// The handshake. What changes is told from then on.
    async fn meet(self: &Arc<Self>, guest: &S::Guest, conversation: &mut Conversation, came: Came) {
        let asked = match Initialize::read(came.params.as_ref()) {
            Ok(asked) => asked,
            Err(error) => {
                return conversation.send(&Message::Response { id: came.id, outcome: Err(error) }).await;
            }
        };
        let revision = negotiated(asked.protocol_version.as_deref());
        let ticket = Ticket::new(guest.id(), revision, asked.capabilities);
        let face = Face {
            revision,
            identity: ticket.identity(),
            session: Some(ticket.number),
            capabilities: ticket.capabilities,
            keeping: Keeping::Own(Arc::clone(&conversation.kept)),
        };
        let result = Message::Response { id: came.id, outcome: Ok(self.initialized(guest, revision)) };
        conversation.send(&result).await;
        let heard = self.heard(guest, face.keeping.clone());
        conversation.face = Some(face);
        conversation.hearing.shutdown().await;
        let out = conversation.out.clone();
        conversation.hearing.spawn(async move { pump(heard, &out).await });
    }
}

impl Conversation {
    /// A client that has not said who it is.
    fn unmet(&self) -> Face {
        Face {
            revision: Revision::NEWEST_WITH_HANDSHAKE,
            capabilities: serde_json::json!({}),
            identity: stranger(),
            session: None,
            keeping: Keeping::Own(Arc::clone(&self.kept)),
        }
    }

    /// Lets what is asked for already be answered, then ends the rest.
    async fn end(mut self, mut transport: JoinSet<()>) {
        self.listening.iter().for_each(AbortHandle::abort);
        self.hearing.shutdown().await;
        let answers = async {
            while self.tasks.join_next().await.is_some() {}
            let _ = self.out.send(Outgoing::Close).await;
            // The end of what was written is the end of the writer.
            while transport.join_next().await.is_some() {}
        };
        let _ = timeout(LAST_ANSWERS, answers).await;
        self.tasks.shutdown().await;
    }

    async fn send(&self, message: &Message) {
        send(&self.out, message).await;
    }

    async fn refuse(&self, code: i64, why: &str) {
        let error =
            serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": why } });
        let _ = self.out.send(Outgoing::Other(error.to_string().into())).await;
    }
}

async fn send(out: &mpsc::Sender<Outgoing>, message: &Message) {
    let _ = out.send(Outgoing::Other(message.to_bytes())).await;
}

async fn pump(mut messages: futures_util::stream::BoxStream<'static, Message>, out: &mpsc::Sender<Outgoing>) {
    while let Some(message) = messages.next().await {
        if out.send(Outgoing::Other(message.to_bytes())).await.is_err() {
            return;
        }
    }
}

async fn run(mut exchange: Exchange, out: mpsc::Sender<Outgoing>) -> Id {
    loop {
        match exchange.next().await {
            Next::Said(message) => send(&out, &message).await,
            Next::End(message, _) => {
                send(&out, &message).await;
                return exchange.id;
            }
        }
    }
}
