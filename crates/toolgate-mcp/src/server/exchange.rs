//! A request in progress: the messages sent to the client while it runs, and its response.
//!
//! Invariant: all messages come before the response, and dropping an exchange cancels the request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::RpcResult;
use super::client::{ClientHandle, ClientMessage};
use super::client_queue::MessageReceiver;
use super::incoming::{ServiceCall, SessionState};
use super::request_state::{StateScope, StateSigner, request_key};
use super::suspended::{ClientQuestion, SuspendedRequests};
use crate::RawJson;
use crate::message::{Message, MethodName, RequestId, RpcError};
use crate::revision::Revision;

/// Questions within this interval of each other are batched into one result; the first one waits at most
/// `MAX_BATCH_WAIT`. A busy server may take that long between two questions; people and models need seconds to answer,
/// so the wait does not matter to them.
const BATCH_WINDOW: Duration = Duration::from_millis(100);
const MAX_BATCH_WAIT: Duration = Duration::from_millis(500);
/// Open questions per client.
const MAX_OPEN_QUESTIONS: usize = 64;

pub(super) struct RunningRequest {
    pub(super) answer: BoxFuture<'static, RpcResult>,
    pub(super) step: AnswerStep,
    pub(super) messages: MessageReceiver,
}

/// Event of a running request.
enum RunningEvent {
    Message(ClientMessage),
    Answer(RpcResult),
}

impl RunningRequest {
    /// Returns the next event. The future of the answer must be polled while messages are awaited: it reads the response
    /// of the server, and with it the next messages.
    async fn event(&mut self) -> RunningEvent {
        tokio::select! {
            biased;
            message = self.messages.recv() => RunningEvent::Message(message),
            outcome = &mut self.answer => RunningEvent::Answer(outcome),
        }
    }

    fn take_step(&mut self) -> AnswerStep {
        std::mem::replace(&mut self.step, AnswerStep::None)
    }
}

/// Delivery of questions to the client.
pub(super) enum QuestionDelivery {
    /// On the stream of the request; the answer arrives as a separate message.
    OnStream(SessionState),
    /// As an `input_required` result; the answer arrives in a new request.
    AsResult {
        suspended_requests: Arc<SuspendedRequests>,
        caller: Arc<str>,
        method: MethodName,
        params: Option<RawJson>,
    },
}

/// Questions on a stream that wait for an answer.
#[derive(Default)]
pub(super) struct PendingQuestions {
    next: AtomicI64,
    pending: Mutex<HashMap<i64, oneshot::Sender<RpcResult>>>,
}

impl PendingQuestions {
    fn ask(&self, question: ClientQuestion) -> Option<Message> {
        let mut pending = self.pending.lock();
        pending.retain(|_, answer| !answer.is_closed());
        if pending.len() >= MAX_OPEN_QUESTIONS {
            let busy = RpcError::new(-32603, "too many questions are open");
            let _ = question.answer.send(Err(busy));
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        pending.insert(id, question.answer);
        let _ = question.sent_id.set(RequestId::Number(id));
        Some(Message::Request { id: RequestId::Number(id), method: question.method, params: question.params })
    }

    /// Delivers the client's answer. An unknown id is ignored.
    pub(super) fn resolve(&self, id: &RequestId, outcome: RpcResult) {
        let RequestId::Number(id) = id else { return };
        let found = self.pending.lock().remove(id);
        if let Some(answer) = found {
            let _ = answer.send(outcome);
        }
    }
}

/// Step between the answer of the service and the response.
pub(super) enum AnswerStep {
    None,
    /// Setting a log level succeeds even if no server supports it.
    LogLevel,
    /// Newest revision: the `requestState` of a server is sealed for the client.
    Seal(StateSeal),
}

/// Signs the state in an answer, and checks that the client can provide the input that the answer asks for.
pub(super) struct StateSeal {
    pub(super) client: Arc<ClientHandle>,
    pub(super) states: Arc<StateSigner>,
    pub(super) caller: Arc<str>,
    pub(super) method: MethodName,
    pub(super) params: Option<RawJson>,
}

impl AnswerStep {
    fn apply(self, answer: RpcResult) -> RpcResult {
        match (self, answer) {
            (Self::LogLevel, Err(error)) if error.code == RpcError::METHOD_NOT_FOUND => {
                Ok(RawJson::from_value(&json!({})))
            }
            (Self::Seal(seal), answer) => seal.apply(answer),
            (_, answer) => answer,
        }
    }
}

impl StateSeal {
    fn apply(self, answer: RpcResult) -> RpcResult {
        let result = answer.map_err(|error| missing_capability_error(&self.client, error))?;
        // Few results ask for input, and all others stay as they are.
        if !result.contains_short("input_required") {
            return Ok(result);
        }
        if self.client.lacks_requested_capability(&result) {
            let error = RpcError::new(-32603, "the server asks for an undeclared capability");
            return Err(missing_capability_error(&self.client, error));
        }
        let scope = StateScope { caller: &self.caller, method: &self.method, params: self.params.as_ref() };
        Ok(self.states.sign(scope, result))
    }
}

/// Replaces an error by [`RpcError::MISSING_CAPABILITY`] if a server needed a capability that the client did not
/// declare.
fn missing_capability_error(client: &ClientHandle, error: RpcError) -> RpcError {
    let Some(missing_capability) = client.missing_capability.get() else { return error };
    let capability = missing_capability
        .as_object()
        .and_then(|missing_capability| missing_capability.keys().next())
        .map_or("", String::as_str);
    RpcError {
        data: Some(RawJson::from_value(&json!({ "requiredCapabilities": missing_capability }))),
        ..RpcError::new(
            RpcError::MISSING_CAPABILITY,
            format!("the request needs `{capability}`, which the client did not declare"),
        )
    }
}

/// A call that waits for its answer.
struct PendingCall {
    call: Option<ServiceCall>,
    step: AnswerStep,
    messages: MessageReceiver,
}

/// A decoded request: the call that the service answers, if there is one, and all that is sent to the client.
pub struct RequestExchange {
    pub(super) id: RequestId,
    pub(super) revision: Revision,
    pub(super) delivery: QuestionDelivery,
    pending: Option<PendingCall>,
    pub(super) running: Option<RunningRequest>,
    /// Response; held back until all messages are sent.
    end: Option<RpcResult>,
}

/// Event of a request in progress.
pub(super) enum ExchangeEvent {
    /// Message to the client.
    Message(Message),
    /// Response, with its error code if it is an error.
    End(Message, Option<i64>),
}

impl RequestExchange {
    pub(super) fn new(id: RequestId, revision: Revision, delivery: QuestionDelivery) -> Self {
        Self { id, revision, delivery, pending: None, running: None, end: None }
    }

    /// Adds the call that the service answers.
    pub(super) fn with_call(self, call: ServiceCall, step: AnswerStep, messages: MessageReceiver) -> Self {
        Self { pending: Some(PendingCall { call: Some(call), step, messages }), ..self }
    }

    /// Creates an exchange whose answer is under way.
    pub(super) fn running(
        id: RequestId,
        revision: Revision,
        delivery: QuestionDelivery,
        running: RunningRequest,
    ) -> Self {
        Self { running: Some(running), ..Self::new(id, revision, delivery) }
    }

    /// Creates an exchange that already has its response.
    pub(super) fn completed(
        id: RequestId,
        revision: Revision,
        delivery: QuestionDelivery,
        outcome: RpcResult,
    ) -> Self {
        Self { end: Some(outcome), ..Self::new(id, revision, delivery) }
    }

    /// Takes the call that the service must [answer](Self::answer). `None` if the exchange needs no service.
    pub fn take_call(&mut self) -> Option<ServiceCall> {
        self.pending.as_mut()?.call.take()
    }

    /// Answers the call. The future runs while the response is driven, and is dropped if the request is cancelled.
    ///
    /// Boxed by the caller: the future of a call has several KiB, and each move would copy it.
    pub fn answer(&mut self, answer: BoxFuture<'static, RpcResult>) {
        let Some(PendingCall { step, messages, .. }) = self.pending.take() else { return };
        self.running = Some(RunningRequest { answer, step, messages });
    }

    /// Returns the next event. `End` is the last one.
    pub(super) async fn next(&mut self) -> ExchangeEvent {
        loop {
            let Some(running) = &mut self.running else { return self.finish() };
            if self.end.is_some() {
                match running.messages.try_recv() {
                    Some(message) => {
                        if let Some(next) = self.take(message).await {
                            return next;
                        }
                    }
                    None => self.running = None,
                }
                continue;
            }
            match running.event().await {
                RunningEvent::Message(message) => {
                    if let Some(next) = self.take(message).await {
                        return next;
                    }
                }
                RunningEvent::Answer(outcome) => self.end = Some(running.take_step().apply(outcome)),
            }
        }
    }

    async fn take(&mut self, message: ClientMessage) -> Option<ExchangeEvent> {
        let question = match message {
            ClientMessage::Notification(message) => return Some(ExchangeEvent::Message(message)),
            ClientMessage::Request { method, params, answer, sent_id } => {
                ClientQuestion { method, params, answer, sent_id }
            }
        };
        if question.answer.is_closed() {
            return None;
        }
        match &self.delivery {
            QuestionDelivery::OnStream(state) => {
                state.get_or_create().pending.ask(question).map(ExchangeEvent::Message)
            }
            QuestionDelivery::AsResult { suspended_requests, caller, method, params } => {
                // Questions asked at about the same time are batched into one result.
                let mut running = self.running.take()?;
                let (mut questions, mut rest) = (vec![question], None);
                let latest = Instant::now() + MAX_BATCH_WAIT;
                let batch_end = || latest.min(Instant::now() + BATCH_WINDOW);
                while let Ok(event) = timeout_at(batch_end(), running.event()).await {
                    match event {
                        RunningEvent::Message(ClientMessage::Request { method, params, answer, sent_id }) => {
                            questions.push(ClientQuestion { method, params, answer, sent_id });
                        }
                        RunningEvent::Message(ClientMessage::Notification(message)) => {
                            rest = Some(message);
                            break;
                        }
                        // The call has ended without the answers.
                        RunningEvent::Answer(outcome) => {
                            self.end = Some(running.take_step().apply(outcome));
                            self.running = Some(running);
                            return None;
                        }
                    }
                }
                let outcome = suspended_requests.suspend(
                    caller,
                    &request_key(method, params.as_ref()),
                    running,
                    questions,
                );
                self.end = Some(outcome);
                rest.map(ExchangeEvent::Message)
            }
        }
    }

    fn finish(&mut self) -> ExchangeEvent {
        let already_ended = || Err(RpcError::new(-32603, "the request has ended"));
        let outcome = self.end.take().unwrap_or_else(already_ended);
        let code = outcome.as_ref().err().map(|error| error.code);
        ExchangeEvent::End(Message::Response { id: self.id.clone(), outcome }, code)
    }
}

#[tokio::test(start_paused = true)]
async fn batches_questions_asked_within_the_window() {
    for (pauses, together) in [(&[0, 60, 60][..], 3), (&[60, 110], 1), (&[0, 90, 90, 90, 90, 90, 90, 90], 6)]
    {
        let (sender, messages) = super::client_queue::message_queue(1);
        let ask = async move {
            let mut open = Vec::new();
            for pause in pauses {
                tokio::time::sleep(Duration::from_millis(*pause)).await;
                let (method, params, sent_id) = ("roots/list".into(), None, super::client::SentId::default());
                let (answer, answered) = oneshot::channel();
                open.push(answered);
                // The exchange ends before the last questions are sent.
                let _ = sender.send(ClientMessage::Request { method, params, answer, sent_id }).await;
            }
            std::future::pending().await
        };
        let (suspended_requests, caller, method) = (Arc::default(), "ann".into(), "tools/call".into());
        let delivery = QuestionDelivery::AsResult { suspended_requests, caller, method, params: None };
        // Questions arrive on the response of the server, so they are read only while the answer is polled.
        let running = RunningRequest { answer: Box::pin(ask), step: AnswerStep::None, messages };
        let mut exchange =
            RequestExchange::running(RequestId::Number(1), Revision::NEWEST, delivery, running);
        let next = exchange.next().await;
        let ExchangeEvent::End(Message::Response { outcome: Ok(result), .. }, None) = next else {
            panic!("no result")
        };
        let result: serde_json::Value = result.parse().unwrap();
        assert_eq!(result["inputRequests"].as_object().unwrap().len(), together, "{pauses:?}");
    }
}
