//! Asking the client for something in the middle of a call, in both eras.
//!
//! Where the revision has a handshake, the question is a request to the client and the call waits. In the
//! newest there is no such request: the call ends with its questions, and comes again with the answers.
//! The code of a tool is the same for both: `ask(…).await?` either gives the answers or ends the call.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use rmcp::model::{
    ClientCapabilities, ErrorData, InputRequest, InputRequiredResult, InputResponses, ProtocolVersion,
    RequestStateCodec, ServerRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

use crate::typed;

/// Why a call goes no further for now.
pub(crate) enum Stop {
    /// It asked.
    Asked(Box<InputRequiredResult>),
    Failed(ErrorData),
}

impl From<ErrorData> for Stop {
    fn from(error: ErrorData) -> Self {
        Self::Failed(error)
    }
}

/// A question: `method` and `params`, as on the wire.
pub(crate) type Question = (&'static str, Value);

/// One request that may ask, with what came along from the round before.
pub(crate) struct Round<'a> {
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) responses: Option<InputResponses>,
    pub(crate) state: Option<String>,
    pub(crate) codec: &'a RequestStateCodec,
}

impl Round<'_> {
    /// Whether this request is of the newest era: those say their version each time.
    pub(crate) fn is_modern(&self) -> bool {
        let version = self.context.meta.protocol_version();
        version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
    }

    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        self.context.client_capabilities().unwrap_or_default()
    }

    /// The state of the round before, if there is one. A state that is not ours ends the call.
    pub(crate) fn sealed(&self) -> Result<Option<Value>, Stop> {
        let Some(state) = &self.state else { return Ok(None) };
        let opened = self.codec.open_json(state);
        opened
            .map(Some)
            .map_err(|_| Stop::Failed(ErrorData::invalid_params("requestState is not ours", None)))
    }

    /// Asks all of these at once. `state` comes back with the answers.
    pub(crate) async fn ask(
        &self,
        questions: &[Question],
        state: Option<Value>,
    ) -> Result<BTreeMap<String, Value>, Stop> {
        let missing: serde_json::Map<String, Value> = questions
            .iter()
            .filter_map(|(_, question)| capability(question))
            .filter(|name| !declares(&self.capabilities(), name))
            .map(|name| (name.to_owned(), json!({})))
            .collect();
        if !missing.is_empty() {
            return Err(ErrorData::missing_required_client_capability(typed(Value::Object(missing))).into());
        }
        if self.is_modern() { self.ask_again_later(questions, state) } else { self.ask_now(questions).await }
    }

    fn ask_again_later(
        &self,
        questions: &[Question],
        state: Option<Value>,
    ) -> Result<BTreeMap<String, Value>, Stop> {
        let answer = |key: &str| self.responses.as_ref()?.get(key).filter(|answer| answer.is_object());
        let answers: BTreeMap<String, Value> =
            questions.iter().filter_map(|(key, _)| Some(((*key).to_owned(), answer(key)?.clone()))).collect();
        if answers.len() == questions.len() {
            return Ok(answers);
        }
        let requests = questions.iter().map(|(key, request)| ((*key).to_owned(), typed(request.clone())));
        let state = state.map(|state| self.codec.seal_json(&state).expect("JSON is JSON"));
        Err(Stop::Asked(Box::new(InputRequiredResult::new(Some(requests.collect()), state))))
    }

    async fn ask_now(&self, questions: &[Question]) -> Result<BTreeMap<String, Value>, Stop> {
        let asked = questions.iter().map(async |(key, question)| {
            let request = match typed(question.clone()) {
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
        try_join_all(asked).await.map(BTreeMap::from_iter).map_err(Stop::Failed)
    }
}

/// What a client must be able to do to be asked this.
pub(crate) fn capability(question: &Value) -> Option<&'static str> {
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

/// Asks the person for an object with these properties.
pub(crate) fn form(message: &str, properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(|all| all.keys()).collect();
    let schema = json!({ "type": "object", "required": required, "properties": properties });
    json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": schema } })
}

/// Asks the model.
pub(crate) fn sample(prompt: &str, max_tokens: u32) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": max_tokens } })
}

/// Asks for the folders that the client works in.
pub(crate) fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// A field of what a person filled in.
pub(crate) fn field<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer["content"][name].as_str().unwrap_or("nobody")
}
