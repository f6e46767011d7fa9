//! `/v1/human-input` and `/v1/approvals`: open questions to people, and their answers.
//!
//! Invariant: a caller cannot answer its own question or approve its own call. The local user always may.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_runtime::questions::{Answer, AnswerError, HumanReply, QuestionKind, QueuedQuestion};
use toolgate_types::ErrorCode;

use super::{APPROVALS_ANSWER, APPROVALS_READ, Authenticated, HUMAN_INPUT_ANSWER, HUMAN_INPUT_READ, tools};
use crate::Gateway;
use crate::auth::HttpError;
use crate::{body, response};

/// Name of the local user in answers.
const SOCKET_USER: &str = "the person at the machine";
/// Maximum length of a reason.
const MAX_REASON: usize = 2_000;

type Id = Result<Path<String>, PathRejection>;

pub(crate) async fn inputs(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
) -> Result<Response, HttpError> {
    auth.require(HUMAN_INPUT_READ)?;
    Ok(list(&gateway, QuestionKind::HumanInput, "questions"))
}

pub(crate) async fn approvals(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
) -> Result<Response, HttpError> {
    auth.require(APPROVALS_READ)?;
    Ok(list(&gateway, QuestionKind::Approval, "approvals"))
}

pub(crate) async fn input(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
    id: Id,
) -> Result<Response, HttpError> {
    auth.require(HUMAN_INPUT_READ)?;
    one(&gateway, QuestionKind::HumanInput, &tools::path(id)?)
}

pub(crate) async fn approval(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
    id: Id,
) -> Result<Response, HttpError> {
    auth.require(APPROVALS_READ)?;
    one(&gateway, QuestionKind::Approval, &tools::path(id)?)
}

/// Request body: an answer, or a refusal with a reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    answer: Option<Json>,
    #[serde(default)]
    decline: bool,
    reason: Option<String>,
}

/// Request body of an approval: yes or no.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalAnswer {
    approve: bool,
}

pub(crate) async fn answer_input(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpError> {
    auth.require(HUMAN_INPUT_ANSWER)?;
    let id = tools::path(id)?;
    let body: AnswerBody = read(&gateway, &headers, body).await?;
    let answer = match body {
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
    submit_answer(&gateway, &auth, &id, QuestionKind::HumanInput, answer)
}

pub(crate) async fn answer_approval(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpError> {
    auth.require(APPROVALS_ANSWER)?;
    let id = tools::path(id)?;
    let ApprovalAnswer { approve } = read(&gateway, &headers, body).await?;
    submit_answer(&gateway, &auth, &id, QuestionKind::Approval, Answer::Value(json!(approve)))
}

async fn read<T: for<'a> Deserialize<'a>>(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, HttpError> {
    let raw = body::read_json(headers, body, gateway.max_body).await?;
    serde_json::from_str(raw.as_str()).map_err(|error| HttpError::invalid(error.to_string()))
}

fn list(gateway: &Gateway, kind: QuestionKind, member: &str) -> Response {
    let open = gateway.questions().map(|questions| questions.list(Some(kind))).unwrap_or_default();
    let open: Vec<Json> = open.iter().map(|question| redacted_question(gateway, question)).collect();
    response::json(&json!({ member: open }))
}

fn one(gateway: &Gateway, kind: QuestionKind, id: &str) -> Result<Response, HttpError> {
    let question =
        gateway.questions().and_then(|questions| questions.get(id)).filter(|one| one.details.kind == kind);
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
    gateway: &Gateway,
    auth: &Authenticated,
    id: &str,
    kind: QuestionKind,
    answer: Answer,
) -> Result<Response, HttpError> {
    let questions = gateway.questions().ok_or_else(|| answer_error(AnswerError::NotOpen(id.to_owned())))?;
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
