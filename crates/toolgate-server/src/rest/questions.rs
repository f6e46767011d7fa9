//! `/v1/human-input` and `/v1/approvals`: open questions to people, and their answers.
//!
//! Invariant: a caller cannot answer its own question or approve its own call, nor those of callers that it created or
//! that have the same creator. The local user always may. A question states its masked and shortened values.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_runtime::questions::{
    Answer, AnswerError, HumanReply, QuestionKind, QueuedQuestion, masked_parts,
};
use toolgate_types::{CallerId, ErrorCode};

use crate::auth::HttpError;
use crate::response::Response;
use crate::route::AdmittedRequest;
use crate::{Gateway, response};

/// Name of the local user in answers.
pub(crate) const SOCKET_USER: &str = "the person at the machine";
/// Maximum length of a reason.
const MAX_REASON: usize = 2_000;

pub(crate) async fn inputs(request: AdmittedRequest) -> Result<Response, HttpError> {
    Ok(list(&request.gateway, QuestionKind::HumanInput, "questions"))
}

pub(crate) async fn approvals(request: AdmittedRequest) -> Result<Response, HttpError> {
    Ok(list(&request.gateway, QuestionKind::Approval, "approvals"))
}

pub(crate) async fn input(request: AdmittedRequest) -> Result<Response, HttpError> {
    one(&request.gateway, QuestionKind::HumanInput, &request.parameter()?)
}

pub(crate) async fn approval(request: AdmittedRequest) -> Result<Response, HttpError> {
    one(&request.gateway, QuestionKind::Approval, &request.parameter()?)
}

/// An answer, or `decline` with a reason.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerBody {
    answer: Option<Json>,
    #[serde(default)]
    decline: bool,
    #[schemars(length(max = MAX_REASON))]
    reason: Option<String>,
}

/// The answer to an approval: yes or no.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalAnswer {
    approve: bool,
}

pub(crate) async fn answer_input(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let answer = match request.json()? {
        AnswerBody { answer: Some(answer), decline: false, reason: None } => Answer::Value(answer),
        AnswerBody { answer: None, decline: true, reason } => {
            if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
                return Err(HttpError::invalid(format!("`reason` has more than {MAX_REASON} bytes")));
            }
            Answer::Declined(reason)
        }
        _ => {
            let hint = r#"send `{"answer": …}`, or `{"decline": true, "reason": …}`"#;
            return Err(HttpError::invalid("the body is not an answer").hint(hint));
        }
    };
    submit_answer(&request, &id, QuestionKind::HumanInput, answer)
}

pub(crate) async fn answer_approval(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let ApprovalAnswer { approve } = request.json()?;
    submit_answer(&request, &id, QuestionKind::Approval, Answer::Value(json!(approve)))
}

fn list(gateway: &Gateway, kind: QuestionKind, member: &str) -> Response {
    let open = gateway.questions.as_ref().map(|questions| questions.list(Some(kind))).unwrap_or_default();
    let open: Vec<Json> = open.iter().map(|question| redacted_question(gateway, question, false)).collect();
    response::json(&json!({ member: open }))
}

fn one(gateway: &Gateway, kind: QuestionKind, id: &str) -> Result<Response, HttpError> {
    let question = gateway
        .questions
        .as_ref()
        .and_then(|questions| questions.get(id))
        .filter(|one| one.details.kind == kind);
    let question = question.ok_or_else(|| answer_error(AnswerError::NotOpen(id.to_owned())))?;
    Ok(response::json(&redacted_question(gateway, &question, true)))
}

/// Renders a question with secrets masked. `masked` lists them, and `shortened` tells if long strings are shortened;
/// `full` adds the arguments without shortened strings.
fn redacted_question(gateway: &Gateway, question: &QueuedQuestion, full: bool) -> Json {
    let mut posted = json!(question.details);
    posted["text"] = gateway.runtime.redact(&question.details.text).into();
    let Some(arguments) = question.arguments() else { return posted };
    let masked_text = gateway.runtime.redact(&arguments.text);
    let mut masked = masked_parts(&arguments.text, &masked_text);
    posted["arguments"] = masked_text.into();
    posted["shortened"] = arguments.full.is_some().into();
    if let (true, Some(complete)) = (full, &arguments.full) {
        let masked_text = gateway.runtime.redact(complete);
        masked = masked_parts(complete, &masked_text);
        posted["fullArguments"] = masked_text.into();
    }
    if masked.is_empty() {
        // With the hash, a person could guess short secrets.
        posted["argumentsSha256"] = arguments.sha256.as_str().into();
    } else {
        posted["masked"] = json!(masked);
    }
    posted
}

fn submit_answer(
    request: &AdmittedRequest,
    id: &str,
    kind: QuestionKind,
    answer: Answer,
) -> Result<Response, HttpError> {
    let (gateway, auth) = (&request.gateway, &request.auth);
    let questions =
        gateway.questions.as_ref().ok_or_else(|| answer_error(AnswerError::NotOpen(id.to_owned())))?;
    let by = if auth.via_socket { SOCKET_USER.to_owned() } else { auth.caller.id.to_string() };
    let is_own = |asking: &CallerId| {
        !auth.via_socket && gateway.authenticator.have_same_origin(asking, &auth.caller.id)
    };
    questions.answer(id, kind, HumanReply { answer, by: by.clone() }, is_own).map_err(answer_error)?;
    Ok(crate::response::json(&json!({ "id": id, "answered": true, "by": by })))
}

fn answer_error(error: AnswerError) -> HttpError {
    let message = error.to_string();
    match error {
        AnswerError::NotOpen(_) => HttpError::not_found(message),
        AnswerError::OwnQuestion => {
            HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message)
        }
        AnswerError::InvalidAnswer(_) => {
            HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::InvalidArguments.label(), message)
        }
    }
}
