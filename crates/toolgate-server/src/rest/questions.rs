//! `/v1/human-input` and `/v1/approvals`: open questions to people, and their answers.
//!
//! Invariant: a caller cannot answer its own question or approve its own call. The local user always may.

use axum::response::Response;
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_runtime::questions::{Answer, AnswerError, HumanReply, QuestionKind, QueuedQuestion};
use toolgate_types::ErrorCode;

use crate::auth::HttpError;
use crate::route::AdmittedRequest;
use crate::{Gateway, response};

/// Name of the local user in answers.
const SOCKET_USER: &str = "the person at the machine";
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
    let open: Vec<Json> = open.iter().map(|question| redacted_question(gateway, question)).collect();
    response::json(&json!({ member: open }))
}

fn one(gateway: &Gateway, kind: QuestionKind, id: &str) -> Result<Response, HttpError> {
    let question = gateway
        .questions
        .as_ref()
        .and_then(|questions| questions.get(id))
        .filter(|one| one.details.kind == kind);
    let question = question.ok_or_else(|| answer_error(AnswerError::NotOpen(id.to_owned())))?;
    Ok(response::json(&redacted_question(gateway, &question)))
}

/// Renders a question with secrets redacted.
fn redacted_question(gateway: &Gateway, question: &QueuedQuestion) -> Json {
    let mut posted = json!(question.details);
    for member in ["text", "arguments"] {
        if let Some(text) = posted[member].as_str() {
            posted[member] = gateway.runtime.redact(text).into();
        }
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
    let (by, caller) = if auth.via_socket {
        (SOCKET_USER.to_owned(), None)
    } else {
        (auth.caller.id.to_string(), Some(&auth.caller.id))
    };
    questions.answer(id, kind, HumanReply { answer, by: by.clone() }, caller).map_err(answer_error)?;
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
