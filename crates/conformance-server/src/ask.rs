//! Questions to the client during a call, in both eras.
//!
//! In revisions with a handshake, a question is a request to the client, and the call waits. In the newest there is no
//! such request: the call ends with its questions, and the client repeats it with the answers. The code of a tool is
//! the same for both: `ask(…).await?` either returns the answers or ends the call.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use rmcp::model::{
    ClientCapabilities, ErrorData, InputRequest, InputRequiredResult, InputResponses, ProtocolVersion,
    RequestStateCodec, ServerRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

use crate::from_wire;

/// Reason why a call ends without a result.
pub(crate) enum CallInterrupt {
    /// It needs input from the client.
    InputRequired(Box<InputRequiredResult>),
    Failed(ErrorData),
}

impl From<ErrorData> for CallInterrupt {
    fn from(error: ErrorData) -> Self {
        Self::Failed(error)
    }
}

/// Key and question; the question is `method` and `params`, as on the wire.
pub(crate) type Question = (&'static str, Value);

/// One request that may ask questions, with the answers and the state of the previous round.
pub(crate) struct RequestRound<'a> {
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) responses: Option<InputResponses>,
    pub(crate) state: Option<String>,
    pub(crate) codec: &'a RequestStateCodec,
}

impl RequestRound<'_> {
    /// Returns true if the request uses the newest revision, in which every request states its version.
    pub(crate) fn is_modern(&self) -> bool {
        let version = self.context.meta.protocol_version();
        version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
    }

    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        self.context.client_capabilities().unwrap_or_default()
    }

    /// Decodes the state of the previous round, if any. A forged state ends the call.
    pub(crate) fn open_state(&self) -> Result<Option<Value>, CallInterrupt> {
        let Some(state) = &self.state else { return Ok(None) };
        let decoded = self.codec.open_json(state);
        decoded
            .map(Some)
            .map_err(|_| CallInterrupt::Failed(ErrorData::invalid_params("requestState is not ours", None)))
    }

    /// Asks all questions at once. The client returns `state` with the answers.
    pub(crate) async fn ask(
        &self,
        questions: &[Question],
        state: Option<Value>,
    ) -> Result<BTreeMap<String, Value>, CallInterrupt> {
        let missing: serde_json::Map<String, Value> = questions
            .iter()
            .filter_map(|(_, question)| required_capability(question))
            .filter(|name| !declares(&self.capabilities(), name))
            .map(|name| (name.to_owned(), json!({})))
            .collect();
        if !missing.is_empty() {
            return Err(
                ErrorData::missing_required_client_capability(from_wire(Value::Object(missing))).into()
            );
        }
        if self.is_modern() {
            self.ask_in_result(questions, state)
        } else {
            self.ask_in_request(questions).await
        }
    }

    fn ask_in_result(
        &self,
        questions: &[Question],
        state: Option<Value>,
    ) -> Result<BTreeMap<String, Value>, CallInterrupt> {
        let answer = |key: &str| self.responses.as_ref()?.get(key).filter(|answer| answer.is_object());
        let answers: BTreeMap<String, Value> =
            questions.iter().filter_map(|(key, _)| Some(((*key).to_owned(), answer(key)?.clone()))).collect();
        if answers.len() == questions.len() {
            return Ok(answers);
        }
        let requests = questions.iter().map(|(key, request)| ((*key).to_owned(), from_wire(request.clone())));
        let state = state.map(|state| self.codec.seal_json(&state).expect("JSON is JSON"));
        Err(CallInterrupt::InputRequired(Box::new(InputRequiredResult::new(Some(requests.collect()), state))))
    }

    async fn ask_in_request(&self, questions: &[Question]) -> Result<BTreeMap<String, Value>, CallInterrupt> {
        let requests = questions.iter().map(async |(key, question)| {
            let request = match from_wire(question.clone()) {
                InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
                InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
                InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
                _ => unreachable!("questions are of these three kinds"),
            };
            let failed = |why: String| ErrorData::internal_error(why, None);
            let answer =
                self.context.peer.send_request(request).await.map_err(|error| failed(error.to_string()))?;
            let answer = serde_json::to_value(answer).map_err(|error| failed(error.to_string()))?;
            Ok(((*key).to_owned(), answer))
        });
        try_join_all(requests).await.map(BTreeMap::from_iter).map_err(CallInterrupt::Failed)
    }
}

/// Returns the client capability that a question requires.
pub(crate) fn required_capability(question: &Value) -> Option<&'static str> {
    match question["method"].as_str()? {
        "elicitation/create" => Some("elicitation"),
        "sampling/createMessage" => Some("sampling"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

pub(crate) fn declares(capabilities: &ClientCapabilities, name: &str) -> bool {
    serde_json::to_value(capabilities).is_ok_and(|all| all.get(name).is_some())
}

/// Creates an elicitation: asks a person for an object with these properties.
pub(crate) fn form_question(message: &str, properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(|all| all.keys()).collect();
    let schema = json!({ "type": "object", "required": required, "properties": properties });
    json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": schema } })
}

/// Creates a sampling request: asks the client's model.
pub(crate) fn sampling_question(prompt: &str, max_tokens: u32) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": max_tokens } })
}

/// Creates a request for the folders the client works in.
pub(crate) fn roots_question() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// Returns a field of a form that a person filled in.
pub(crate) fn form_field<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer["content"][name].as_str().unwrap_or("unknown")
}
