//! A conversation with one server: our requests and their answers, its requests and notifications.
//!
//! Requests are matched to answers by ids that are never used twice, so a late answer reaches
//! nobody. Invariant: the task that reads never waits for anyone; notifications reach the handler
//! in the order they came.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::Raw;
use crate::behind::Behind;
use crate::handshake::Peer;
use crate::link::{Incoming, Link, LinkError, Outgoing, Request};
use crate::message::{Id, Message, MessageError, RpcError};
use crate::oauth::{LOGINS, TokenSource};
use crate::params::Params;
use crate::scan::Limits;
use crate::transport::http::{Failure, Reply, Wire};

/// Requests of the server that are answered at the same time, and how long all of them are. Many clients may be
/// behind one session, each with questions that wait for a person; what one client keeps open is bounded where it is
/// asked.
const SERVER_REQUESTS: usize = 1_024;
const SERVER_REQUEST_BYTES: usize = 16 << 20;
/// How long a goodbye may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Questions of the server before it answers one of ours.
const MOST_ROUNDS: usize = 8;
/// Pages of one list.
const MOST_PAGES: usize = 1_000;

/// Who hears what a server says on its own.
pub trait Handler: Send + Sync + 'static {
    /// Something happened. Called in order; must not block.
    fn notification(&self, method: &str, params: Option<&Raw>);

    /// The server wants something: sampling, elicitation, roots.
    fn request(&self, method: &str, params: Option<Raw>) -> BoxFuture<'static, Result<Raw, RpcError>>;

    /// What the server may ask for: the capabilities that we declare.
    fn capabilities(&self) -> serde_json::Value {
        serde_json::json!({})
    }

    /// The server asks for something, whoever answers it.
    fn asked(&self) {}

    /// The server broke the protocol, or wrote something that is none.
    fn violation(&self, what: &str);
}

/// Why a request has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The server answered with an error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The connection, or this request on it, failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No answer came in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The server asked for something in return, and nobody answered.
    #[error("the server asks for something that nobody here answers: {0}")]
    Unanswered(RpcError),
    /// The answer is one that readers could understand differently, or none at all.
    #[error("the answer is refused: {0}")]
    Refused(MessageError),
    /// The answer is not what the protocol says.
    #[error("the answer to `{method}` is not what the protocol says: {what}")]
    Malformed {
        /// The request.
        method: String,
        /// What is wrong with it.
        what: String,
    },
}

type Answer = Result<Raw, RequestError>;

/// A result that is a question.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Question<'a> {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(borrow, default)]
    pub(crate) input_requests: Option<std::collections::BTreeMap<&'a str, Asked<'a>>>,
    #[serde(borrow, default)]
    request_state: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct Asked<'a> {
    pub(crate) method: String,
    #[serde(borrow, default)]
    pub(crate) params: Option<&'a RawValue>,
}

impl Question<'_> {
    pub(crate) fn is_one(&self) -> bool {
        self.result_type.as_deref() == Some("input_required")
    }
}

/// A conversation. Dropped with its last user, it ends the connection.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

struct Shared {
    mail: Arc<Mail>,
    /// The transport's tasks and ours; they end with the session.
    _tasks: JoinSet<()>,
}

/// Who waits for an answer.
struct Waiter {
    answer: oneshot::Sender<Answer>,
    client: Option<Arc<dyn Behind>>,
}

/// What the reading task shares with requests.
struct Mail {
    outbox: mpsc::Sender<Outgoing>,
    /// Where requests need no queue.
    wire: Option<Arc<Wire>>,
    next_id: AtomicI64,
    waiting: Mutex<HashMap<i64, Waiter>>,
    end: OnceLock<LinkError>,
    over: watch::Sender<bool>,
    peer: OnceLock<Peer>,
    tokens: OnceLock<Arc<TokenSource>>,
    over_http: bool,
    violations: AtomicU64,
    handler: Arc<dyn Handler>,
    limits: Limits,
}

impl Session {
    /// Starts to read from a link. `over_http` says that closing a request's stream cancels it.
    pub fn start(link: Link, over_http: bool, limits: Limits, handler: Arc<dyn Handler>) -> Self {
        let Link { outbox, inbox, wire, mut tasks } = link;
        let mail = Arc::new(Mail {
            outbox,
            wire,
            next_id: AtomicI64::new(1),
            waiting: Mutex::default(),
            end: OnceLock::new(),
            over: watch::Sender::new(false),
            peer: OnceLock::new(),
            tokens: OnceLock::new(),
            over_http,
            violations: AtomicU64::new(0),
            handler,
            limits,
        });
        tasks.spawn(read(Arc::clone(&mail), inbox));
        Self(Arc::new(Shared { mail, _tasks: tasks }))
    }

    /// Who the server is; known after the handshake.
    pub fn peer(&self) -> Option<&Peer> {
        self.0.mail.peer.get()
    }

    pub(crate) fn set_peer(&self, peer: Peer) {
        // Requests that follow do not wait in the queue.
        self.0.mail.wire.iter().for_each(|wire| wire.agree(peer.revision));
        let _ = self.0.mail.outbox.try_send(Outgoing::Revision(peer.revision));
        let _ = self.0.mail.peer.set(peer);
    }

    pub(crate) fn over_http(&self) -> bool {
        self.0.mail.over_http
    }

    /// Why the conversation is over, if it is.
    pub fn ended(&self) -> Option<&LinkError> {
        self.0.mail.end.get()
    }

    /// Waits for the end, and says why it came.
    pub async fn end(&self) -> LinkError {
        let mut over = self.0.mail.over.subscribe();
        let _ = over.wait_for(|over| *over).await;
        self.0.mail.why_ended()
    }

    /// Whether all requests that run for clients are this one's.
    pub fn serves_only(&self, client: u64) -> bool {
        let waiting = self.0.mail.lock();
        waiting.values().filter_map(|waiter| waiter.client.as_ref()).all(|other| other.identity() == client)
    }

    /// How often the server broke the protocol.
    pub fn violations(&self) -> u64 {
        self.0.mail.violations.load(Ordering::Relaxed)
    }

    /// Lets a person log in when the server wants it in the middle of the conversation.
    pub fn set_tokens(&self, tokens: Arc<TokenSource>) {
        let _ = self.0.mail.tokens.set(tokens);
    }

    /// Asks, and waits for the answer at most this long, not counting the time of a login. A caller
    /// who leaves cancels the request.
    pub async fn request(&self, method: &str, params: Params, within: Duration) -> Answer {
        let tokens = self.0.mail.tokens.get().filter(|tokens| tokens.has_person());
        // Who wants to log in for the handshake has to do so around it: it has its own time.
        match tokens.filter(|_| self.peer().is_some()) {
            None => self.exchange(method, params, within).await,
            Some(tokens) => Box::pin(self.exchange_with(tokens, method, params, within)).await,
        }
    }

    async fn exchange_with(
        &self,
        tokens: &TokenSource,
        method: &str,
        params: Params,
        within: Duration,
    ) -> Answer {
        let mut logins = 0;
        loop {
            match self.exchange(method, params.clone(), within).await {
                Err(RequestError::Link(LinkError::Login(demand))) if logins < LOGINS => {
                    let login = tokens.login(Some(&demand)).await;
                    login.map_err(|error| LinkError::LoginFailed(Arc::new(error)))?;
                    logins += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn exchange(&self, method: &str, mut params: Params, within: Duration) -> Answer {
        let mail = &self.0.mail;
        let client = params.client().cloned();
        if let Some(peer) = mail.peer.get() {
            match &client {
                Some(client) => peer.describe_client(&mut params, &**client),
                None => peer.describe_us(&mut params, &mail.handler.capabilities()),
            }
        }
        let id = mail.next_id.fetch_add(1, Ordering::Relaxed);
        if client.as_ref().is_some_and(|client| client.wants_progress()) {
            params.meta("progressToken", &id);
        }
        let (sender, answer) = oneshot::channel();
        mail.lock().insert(id, Waiter { answer: sender, client });
        let cancelled = AtomicBool::new(true);
        let _guard = Waiting { mail, id, method, cancelled: &cancelled };
        if let Some(end) = mail.end.get() {
            return Err(end.clone().into());
        }
        let trace = params.told_trace();
        let bytes = params.to_request(id, method).into();
        let name = params.text("name").or_else(|| params.text("uri")).or_else(|| params.text("taskId"));
        let mirrored = std::mem::take(&mut params.mirrored);
        let request = Request { id, method: method.into(), name, mirrored, trace, bytes };
        let exchange = async {
            match &mail.wire {
                Some(wire) => {
                    if let Some(answer) = mail.answered(wire, request).await? {
                        return answer;
                    }
                }
                None => {
                    let sent = mail.outbox.send(Outgoing::Request(request)).await;
                    sent.map_err(|_| mail.why_ended())?;
                }
            }
            answer.await.unwrap_or_else(|_| Err(mail.why_ended().into()))
        };
        let outcome = match tokio::time::timeout(within, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => return Err(RequestError::TimedOut(within)),
        };
        cancelled.store(false, Ordering::Relaxed);
        outcome
    }

    /// Says goodbye, and waits a moment for the transport to pass it on.
    pub async fn close(&self) {
        if self.ended().is_none() && self.0.mail.outbox.try_send(Outgoing::Close).is_ok() {
            let _ = tokio::time::timeout(FAREWELL, self.end()).await;
        }
    }

    /// Asks, and answers what the server wants to know before it answers: in the newest revision a
    /// result may be a question. `within` is for each round.
    pub async fn ask(&self, method: &str, params: Params, within: Duration) -> Answer {
        if params.client().is_some_and(|client| client.takes_questions()) {
            return self.request(method, params, within).await;
        }
        let mut next = params.clone();
        for _ in 0..MOST_ROUNDS {
            let result = self.request(method, next, within).await?;
            // A look at the text is quick, and few results are questions.
            if !result.get().contains("input_required") {
                return Ok(result);
            }
            let Some(question) = result.look::<Question<'_>>().ok().filter(Question::is_one) else {
                return Ok(result);
            };
            let answers = self.answers(&result, &question, params.client()).await?;
            next = params.clone().with_raw("inputResponses", answers);
            if let Some(state) = question.request_state {
                next = next.with_raw("requestState", result.slice(state.get()));
            }
        }
        let what = format!("it asked {MOST_ROUNDS} times in a row");
        Err(RequestError::Malformed { method: method.to_owned(), what })
    }

    async fn answers(
        &self,
        result: &Raw,
        question: &Question<'_>,
        client: Option<&Arc<dyn Behind>>,
    ) -> Answer {
        let mut answers = serde_json::Map::new();
        for (key, asked) in question.input_requests.iter().flatten() {
            let params = asked.params.map(|params| result.slice(params.get()));
            let outcome = match client {
                Some(client) => client.ask(&asked.method, params).await,
                None => self.0.mail.handler.request(&asked.method, params).await,
            };
            let answer = outcome.map_err(RequestError::Unanswered)?;
            answers.insert((*key).to_owned(), answer.parse().unwrap_or_default());
        }
        Ok(Raw::of(&answers))
    }

    pub(crate) fn our_capabilities(&self) -> serde_json::Value {
        self.0.mail.handler.capabilities()
    }

    /// Tells the server something.
    pub async fn notify(&self, method: &str, params: Params) -> Result<(), RequestError> {
        let bytes = Message::Notification { method: method.into(), params: params.to_raw() }.to_bytes();
        let mail = &self.0.mail;
        mail.wire.iter().for_each(|wire| wire.will_note());
        mail.outbox.send(Outgoing::Other(bytes)).await.map_err(|_| mail.why_ended().into())
    }

    /// All pages of a list: `tools/list` gives the `tools` of every page.
    pub async fn list(&self, method: &str, key: &str, within: Duration) -> Result<Vec<Raw>, RequestError> {
        let malformed = |what: String| RequestError::Malformed { method: method.to_owned(), what };
        let mut items = Vec::new();
        let mut cursor: Option<Raw> = None;
        let mut seen: Vec<Raw> = Vec::new();
        for _ in 0..MOST_PAGES {
            let params =
                cursor.take().map_or_else(Params::none, |cursor| Params::none().with_raw("cursor", cursor));
            let page = self.request(method, params, within).await?;
            let members: HashMap<&str, &RawValue> =
                page.look().map_err(|_| malformed("it is not an object".to_owned()))?;
            let list = members.get(key).ok_or_else(|| malformed(format!("`{key}` is missing")))?;
            let list: Vec<&RawValue> =
                Deserialize::deserialize(*list).map_err(|_| malformed(format!("`{key}` is not a list")))?;
            items.extend(list.into_iter().map(|item| page.slice(item.get())));
            match members.get("nextCursor").filter(|cursor| cursor.get() != "null") {
                None => return Ok(items),
                Some(next) => {
                    let next = page.slice(next.get());
                    // A server that gives the same page for ever must not keep us for ever.
                    if seen.contains(&next) {
                        return Err(malformed("its pages go round in a circle".to_owned()));
                    }
                    seen.push(next.clone());
                    cursor = Some(next);
                }
            }
        }
        Err(malformed(format!("it has more than {MOST_PAGES} pages")))
    }
}

/// Takes a request out of the books when its caller is done with it, or has left.
struct Waiting<'a> {
    mail: &'a Mail,
    id: i64,
    method: &'a str,
    cancelled: &'a AtomicBool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.mail.lock().remove(&self.id);
        // The handshake cannot be cancelled; the connection is closed in its place.
        if !self.cancelled.load(Ordering::Relaxed) || self.method == "initialize" {
            return;
        }
        let handshake = self.mail.peer.get().is_some_and(|peer| peer.revision.has_handshake());
        if handshake || !self.mail.over_http {
            let params =
                Params::none().with("requestId", &self.id).with("reason", &"nobody waits for it any more");
            let method = "notifications/cancelled".into();
            let bytes = Message::Notification { method, params: params.to_raw() }.to_bytes();
            let _ = self.mail.outbox.try_send(Outgoing::Other(bytes));
        }
        let _ = self.mail.outbox.try_send(Outgoing::Cancel(self.id));
    }
}

impl Mail {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn why_ended(&self) -> LinkError {
        self.end.get().cloned().unwrap_or(LinkError::Closed)
    }

    /// Asks without the queues. The answer, where it did not have to take them all the same.
    async fn answered(&self, wire: &Arc<Wire>, request: Request) -> Result<Option<Answer>, LinkError> {
        let id = request.id;
        let bytes = match wire.ask(request).await {
            Ok(Reply::Whole(bytes)) => bytes,
            Ok(Reply::Queued) => return Ok(None),
            Err(Failure::Request(error)) => return Err(error),
            Err(Failure::Session(error)) => {
                self.close(error.clone());
                return Err(error);
            }
        };
        let read = Message::read(&bytes, self.limits).map(<[Message; 1]>::try_from);
        match read {
            Ok(Ok([Message::Response { id: Id::Number(to), outcome }])) if to == id => {
                Ok(Some(outcome.map_err(Into::into)))
            }
            _ => wire.queue(id, bytes).await.map(|()| None),
        }
    }

    fn violation(&self, what: &str) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        self.handler.violation(what);
    }

    fn deliver(&self, id: i64, answer: Answer) {
        let waiting = self.lock().remove(&id);
        match waiting {
            Some(waiter) => drop(waiter.answer.send(answer)),
            None => self.violation("an answer that nobody waits for"),
        }
    }

    /// The client that something concerns: that of the request on whose stream it came, else the only one there is.
    fn concerned(&self, during: Option<i64>) -> Option<Arc<dyn Behind>> {
        let waiting = self.lock();
        if let Some(id) = during {
            return waiting.get(&id)?.client.clone();
        }
        // A request of our own can be meant as well, but such a one makes no server ask.
        let mut clients = waiting.values().filter_map(|waiter| waiter.client.as_ref());
        let first = clients.next()?;
        clients.all(|other| other.identity() == first.identity()).then(|| Arc::clone(first))
    }

    fn client_of(&self, id: i64) -> Option<Arc<dyn Behind>> {
        self.lock().get(&id)?.client.clone()
    }

    fn has_clients(&self) -> bool {
        self.lock().values().any(|waiter| waiter.client.is_some())
    }

    /// Every caller hears of the end at once.
    fn close(&self, why: LinkError) {
        let _ = self.end.set(why.clone());
        self.over.send_replace(true);
        let waiting = std::mem::take(&mut *self.lock());
        for waiter in waiting.into_values() {
            let _ = waiter.answer.send(Err(why.clone().into()));
        }
    }
}

/// What the server asked for and has no answer to yet.
#[derive(Default)]
struct Answering {
    tasks: JoinSet<()>,
    by_id: HashMap<Id, AbortHandle>,
    bytes: Arc<AtomicUsize>,
}

/// The bytes of a question, as long as it is open.
struct Held {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

impl Answering {
    /// Room for another question, if there is.
    fn hold(&self, params: Option<&Raw>) -> Option<Held> {
        let own = params.map_or(0, |params| params.get().len());
        let fits = self.bytes.load(Ordering::Relaxed) + own <= SERVER_REQUEST_BYTES;
        if self.tasks.len() >= SERVER_REQUESTS || !fits {
            return None;
        }
        self.bytes.fetch_add(own, Ordering::Relaxed);
        Some(Held { all: Arc::clone(&self.bytes), own })
    }

    fn tidy(&mut self) {
        let mut ended = false;
        while self.tasks.try_join_next().is_some() {
            ended = true;
        }
        if ended {
            self.by_id.retain(|_, task| !task.is_finished());
        }
    }

    /// The server does not wait for it any more.
    fn cancel(&mut self, params: Option<&Raw>) {
        let id = params.and_then(crate::serve::cancelled);
        if let Some(task) = id.and_then(|id| self.by_id.remove(&id)) {
            task.abort();
        }
    }
}

/// Reads until the link ends.
async fn read(mail: Arc<Mail>, mut inbox: mpsc::Receiver<Incoming>) {
    let mut answering = Answering::default();
    let end = loop {
        match inbox.recv().await {
            Some(Incoming::Message(bytes)) => take_all(&mail, &bytes, None, &mut answering),
            Some(Incoming::During(id, bytes)) => take_all(&mail, &bytes, Some(id), &mut answering),
            Some(Incoming::Noise(start)) => mail.violation(&format!("no message: {}", start.escape_ascii())),
            Some(Incoming::Failed(id, error)) => mail.deliver(id, Err(error.into())),
            Some(Incoming::Closed(error)) => break error,
            None => break LinkError::Closed,
        }
        answering.tidy();
    };
    mail.close(end);
}

fn take_all(mail: &Arc<Mail>, bytes: &Bytes, during: Option<i64>, answering: &mut Answering) {
    match Message::read(bytes, mail.limits) {
        Ok(messages) => messages.into_iter().for_each(|message| take(mail, message, during, answering)),
        Err(error) => {
            mail.violation(&error.to_string());
            if let Some(id) = Message::refused_answer(bytes) {
                mail.deliver(id, Err(RequestError::Refused(error)));
            }
        }
    }
}

fn take(mail: &Arc<Mail>, message: Message, during: Option<i64>, answering: &mut Answering) {
    match message {
        Message::Response { id: Id::Number(id), outcome } => mail.deliver(id, outcome.map_err(Into::into)),
        Message::Response { id: Id::Text(_), .. } => mail.violation("an answer to an id that we never used"),
        Message::Notification { method, params } if &*method == "notifications/cancelled" => {
            answering.cancel(params.as_ref());
        }
        Message::Notification { method, params } => {
            let client = match &*method {
                "notifications/progress" => params.as_ref().and_then(token).and_then(|id| mail.client_of(id)),
                "notifications/message" | "notifications/elicitation/complete" => mail.concerned(during),
                _ => None,
            };
            match client {
                Some(client) => client.hear(&method, params.as_ref()),
                None => mail.handler.notification(&method, params.as_ref()),
            }
        }
        Message::Request { id, method, params } => {
            if &*method == "ping" {
                return answer(mail, id, Ok(Raw::of(&serde_json::json!({}))));
            }
            let Some(held) = answering.hold(params.as_ref()) else {
                let busy = Err(RpcError::new(-32603, "too many requests at once"));
                return answer(mail, id, busy);
            };
            mail.handler.asked();
            let client = mail.concerned(during);
            if client.is_none() && mail.has_clients() {
                let nobody = "several clients have requests here, and this does not say which one is meant";
                return answer(mail, id, Err(RpcError::new(-32603, nobody)));
            }
            let (mail, asked) = (Arc::clone(mail), id.clone());
            let task = answering.tasks.spawn(async move {
                let _held = held;
                let outcome = match client {
                    Some(client) => client.ask(&method, params).await,
                    None => mail.handler.request(&method, params).await,
                };
                answer(&mail, id, outcome);
            });
            answering.by_id.insert(asked, task);
        }
    }
}

/// The request that a notification of progress is about.
fn token(params: &Raw) -> Option<i64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: i64,
    }
    params.parse::<Progress>().ok().map(|progress| progress.progress_token)
}

/// An answer to the server. Where it does not read, it does not get one.
fn answer(mail: &Mail, id: Id, outcome: Result<Raw, RpcError>) {
    let _ = mail.outbox.try_send(Outgoing::Other(Message::Response { id, outcome }.to_bytes()));
}

#[cfg(test)]
mod tests;
