//! `/v1/callers`: who there is, and keys for who is to come.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use toolgate_types::Caller;

use super::{CALLERS_READ, CALLERS_WRITE, Guest, tools};
use crate::admit::Refusal;
use crate::{Door, answer, body};

/// Patterns of one caller, and letters of what it is for.
const MOST_PERMISSIONS: usize = 1000;
const LONGEST_DESCRIPTION: usize = 1000;

/// A caller to be made.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    id: String,
    description: Option<String>,
    #[serde(default)]
    permissions: Vec<String>,
}

pub(crate) async fn list(State(door): State<Arc<Door>>, guest: Guest) -> Result<Response, Refusal> {
    guest.demand(CALLERS_READ)?;
    Ok(answer::document(&json!({ "callers": door.gate.everybody() })))
}

pub(crate) async fn show(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    guest.demand(CALLERS_READ)?;
    let id = tools::path(id)?;
    let found = door.gate.somebody(&id);
    Ok(answer::document(&found.ok_or_else(|| Refusal::not_found(format!("there is no caller `{id}`")))?))
}

/// Makes a caller. The answer is the only one that ever shows its key.
pub(crate) async fn add(
    State(door): State<Arc<Door>>,
    guest: Guest,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    guest.demand(CALLERS_WRITE)?;
    let raw = body::read(&headers, body, door.max_body).await?;
    let New { id, description, permissions } =
        serde_json::from_str(raw.get()).map_err(|error| Refusal::invalid(error.to_string()))?;
    let unprocessable = |message: String| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
    let id = id.parse().map_err(|error| unprocessable(format!("`{id}` is no id: {error}")))?;
    if permissions.len() > MOST_PERMISSIONS
        || description.as_ref().is_some_and(|it| it.len() > LONGEST_DESCRIPTION)
    {
        let message = format!(
            "a caller has up to {MOST_PERMISSIONS} permissions and a description of {LONGEST_DESCRIPTION} letters"
        );
        return Err(unprocessable(message));
    }
    let pattern = |text: &String| text.parse().map_err(|error| unprocessable(format!("`{text}`: {error}")));
    let permissions = permissions.iter().map(pattern).collect::<Result<_, _>>()?;
    let caller = Caller { id, permissions };
    let runtime = Arc::clone(&door.runtime);
    let (made, key) = on_disk(move || door.gate.make(&guest, &caller, description)).await?;
    // Only a hash of it is kept, so this is the moment to know what must not be shown from now on.
    runtime.learn(std::slice::from_ref(&key));
    let place = made["id"].as_str().map(|id| format!("/v1/callers/{}", encoded(id)));
    let mut response =
        answer::with_status(StatusCode::CREATED, &json!({ "caller": made, "key": key.expose() }));
    if let Some(place) = place.and_then(|place| HeaderValue::from_str(&place).ok()) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// Takes a caller away: its key counts no more.
pub(crate) async fn remove(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    guest.demand(CALLERS_WRITE)?;
    let id = tools::path(id)?;
    on_disk(move || door.gate.unmake(&guest, &id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Waits for the disk where nobody else has to.
async fn on_disk<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(change).await {
        Ok(done) => done,
        Err(error) => {
            tracing::error!("a change of callers ended badly: {error}");
            Err(Refusal::unavailable("callers cannot be changed"))
        }
    }
}

/// An id as one part of a path.
fn encoded(id: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    id.bytes().map(byte).collect()
}
