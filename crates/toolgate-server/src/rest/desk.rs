//! `/v1/human-input` and `/v1/approvals`: the questions that wait for a person, and the answers.
//!
//! Invariant: whoever asks, or would call, is not who answers; the person at the machine always may.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_runtime::desk::{Answer, AnswerError, Kind, Question, Reply};
use toolgate_types::ErrorCode;

use super::{APPROVALS_ANSWER, APPROVALS_READ, Guest, HUMAN_INPUT_ANSWER, HUMAN_INPUT_READ, tools};
use crate::Door;
use crate::admit::Refusal;
use crate::{answer, body};

/// Who answers by the socket.
const AT_MACHINE: &str = "the person at the machine";
/// The longest reason.
const LONGEST_REASON: usize = 2_000;

type Id = Result<Path<String>, PathRejection>;

pub(crate) async fn inputs(State(door): State<Arc<Door>>, guest: Guest) -> Result<Response, Refusal> {
    guest.demand(HUMAN_INPUT_READ)?;
    Ok(list(&door, Kind::HumanInput, "questions"))
}

pub(crate) async fn approvals(State(door): State<Arc<Door>>, guest: Guest) -> Result<Response, Refusal> {
    guest.demand(APPROVALS_READ)?;
    Ok(list(&door, Kind::Approval, "approvals"))
}

pub(crate) async fn input(State(door): State<Arc<Door>>, guest: Guest, id: Id) -> Result<Response, Refusal> {
    guest.demand(HUMAN_INPUT_READ)?;
    one(&door, Kind::HumanInput, &tools::path(id)?)
}

pub(crate) async fn approval(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Id,
) -> Result<Response, Refusal> {
    guest.demand(APPROVALS_READ)?;
    one(&door, Kind::Approval, &tools::path(id)?)
}

/// An answer, or that there is none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    answer: Option<Json>,
    #[serde(default)]
    decline: bool,
    reason: Option<String>,
}

/// Yes or no.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    approve: bool,
}

pub(crate) async fn answer_input(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    guest.demand(HUMAN_INPUT_ANSWER)?;
    let id = tools::path(id)?;
    let said: Said = read(&door, &headers, body).await?;
    let answer = match said {
        Said { answer: Some(answer), decline: false, reason: None } => Answer::Given(answer),
        Said { answer: None, decline: true, reason } => {
            if reason.as_ref().is_some_and(|reason| reason.len() > LONGEST_REASON) {
                return Err(Refusal::invalid(format!("`reason` has more than {LONGEST_REASON} bytes")));
            }
            Answer::Declined(reason)
        }
        _ => {
            let hint = r#"send `{"answer": …}`, or `{"decline": true, "reason": …}`"#;
            return Err(Refusal::invalid("the body is no answer").hint(hint));
        }
    };
    settle(&door, &guest, &id, Kind::HumanInput, answer)
}

pub(crate) async fn answer_approval(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    guest.demand(APPROVALS_ANSWER)?;
    let id = tools::path(id)?;
    let Decided { approve } = read(&door, &headers, body).await?;
    settle(&door, &guest, &id, Kind::Approval, Answer::Given(json!(approve)))
}

async fn read<T: for<'a> Deserialize<'a>>(
    door: &Door,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Refusal> {
    let raw = body::read(headers, body, door.max_body).await?;
    serde_json::from_str(raw.get()).map_err(|error| Refusal::invalid(error.to_string()))
}

fn list(door: &Door, kind: Kind, member: &str) -> Response {
    let open = door.desk().map(|desk| desk.list(Some(kind))).unwrap_or_default();
    let open: Vec<Json> = open.iter().map(|question| shown(door, question)).collect();
    answer::document(&json!({ member: open }))
}

fn one(door: &Door, kind: Kind, id: &str) -> Result<Response, Refusal> {
    let question = door.desk().and_then(|desk| desk.get(id)).filter(|one| one.posted.kind == kind);
    let question = question.ok_or_else(|| refusal(AnswerError::Absent(id.to_owned())))?;
    Ok(answer::document(&shown(door, &question)))
}

/// A question without what must not be shown.
fn shown(door: &Door, question: &Question) -> Json {
    let mut posted = json!(question.posted);
    for member in ["text", "arguments"] {
        if let Some(text) = posted[member].as_str() {
            posted[member] = door.runtime.masked(text).into();
        }
    }
    posted
}

fn settle(door: &Door, guest: &Guest, id: &str, kind: Kind, answer: Answer) -> Result<Response, Refusal> {
    let desk = door.desk().ok_or_else(|| refusal(AnswerError::Absent(id.to_owned())))?;
    let (by, caller) = if guest.at_machine {
        (AT_MACHINE.to_owned(), None)
    } else {
        (guest.caller.id.to_string(), Some(&guest.caller.id))
    };
    desk.answer(id, kind, Reply { answer, by: by.clone() }, caller).map_err(refusal)?;
    Ok(crate::answer::document(&json!({ "id": id, "answered": true, "by": by })))
}

fn refusal(error: AnswerError) -> Refusal {
    let message = error.to_string();
    match error {
        AnswerError::Absent(_) => Refusal::not_found(message),
        AnswerError::Own => Refusal::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message),
        AnswerError::Misfit(_) => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::InvalidArguments.label(), message)
        }
    }
}
