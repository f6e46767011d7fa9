//! `/v1/human-input` and `/v1/approvals`: open questions to people, and their answers.
//!
//! Invariant: a caller cannot answer its own question or approve its own call, nor those of callers that it created or
//! that have the same creator. The local user always may. A question states its masked and shortened values.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_runtime::questions::{
    Answer, AnswerError, HumanReply, QuestionEnd, QuestionKind, QueuedQuestion, masked_parts,
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

/// Selection of questions. Without a state, those that are open.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionQuery {
    #[serde(default)]
    state: QuestionState,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum QuestionState {
    #[default]
    Open,
    Ended,
    All,
}

/// Questions in a response: default and maximum.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

pub(crate) async fn inputs(request: AdmittedRequest) -> Result<Response, HttpError> {
    list(&request, QuestionKind::HumanInput, "questions")
}

pub(crate) async fn approvals(request: AdmittedRequest) -> Result<Response, HttpError> {
    list(&request, QuestionKind::Approval, "approvals")
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

/// Lists open questions, oldest first, then those that have ended, newest first.
fn list(request: &AdmittedRequest, kind: QuestionKind, member: &str) -> Result<Response, HttpError> {
    let QuestionQuery { state, limit } = request.query()?;
    let gateway = &request.gateway;
    let limit = limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let questions = gateway.questions.as_ref();
    let open = questions.filter(|_| state != QuestionState::Ended).map(|it| it.list(Some(kind)));
    let ended = questions.filter(|_| state != QuestionState::Open).map(|it| it.ended(kind));
    let open = open.into_iter().flatten().map(|question| redacted_question(gateway, &question, None, false));
    let ended = ended.into_iter().flatten();
    let ended = ended.map(|(question, end)| redacted_question(gateway, &question, Some(&end), false));
    // All open ones: each waits for a person, and their number is bounded.
    let shown: Vec<Json> = open.chain(ended.take(limit)).collect();
    Ok(response::json(&json!({ member: shown })))
}

fn one(gateway: &Gateway, kind: QuestionKind, id: &str) -> Result<Response, HttpError> {
    let questions = gateway.questions.as_ref();
    let open = || questions?.get(id).map(|question| (question, None));
    let ended = || questions?.get_ended(id).map(|(question, end)| (question, Some(end)));
    let found = open().or_else(ended).filter(|(question, _)| question.details.kind == kind);
    let (question, end) = found.ok_or_else(|| answer_error(AnswerError::NotOpen(id.to_owned())))?;
    Ok(response::json(&redacted_question(gateway, &question, end.as_ref(), true)))
}

/// Renders a question with secrets masked. `masked` lists them, and `shortened` tells if long strings are shortened;
/// `full` adds the whole call, and the arguments without shortened strings.
fn redacted_question(
    gateway: &Gateway,
    question: &QueuedQuestion,
    end: Option<&QuestionEnd>,
    full: bool,
) -> Json {
    let mut posted = json!(question.details);
    posted["text"] = gateway.runtime.redact(&question.details.text).into();
    posted["state"] = end.map_or("open", |end| end.state.label()).into();
    posted["endedAt"] = json!(end.map(|end| &end.at));
    posted["by"] = json!(end.and_then(|end| end.by.as_ref()));
    let Some(arguments) = question.arguments() else { return posted };
    let masked_text = gateway.runtime.redact(&arguments.text);
    let mut masked = masked_parts(&arguments.text, &masked_text);
    posted["arguments"] = masked_text.as_str().into();
    posted["shortened"] = arguments.full.is_some().into();
    if full {
        let complete = arguments.full.as_ref().map(|complete| gateway.runtime.redact(complete));
        if let (Some(complete), Some(masked_complete)) = (&arguments.full, &complete) {
            masked = masked_parts(complete, masked_complete);
            posted["fullArguments"] = masked_complete.as_str().into();
        }
        let shown = complete.as_ref().unwrap_or(&masked_text);
        posted["call"] = json!({
            "tool": question.details.tool,
            "server": question.details.context.server,
            "original": question.details.context.original,
            "correlation": question.details.context.correlation,
            "arguments": serde_json::from_str(shown).unwrap_or_else(|_| Json::from(shown.as_str())),
            "bytes": arguments.bytes,
        });
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
