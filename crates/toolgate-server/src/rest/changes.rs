//! Tools and servers that are registered, changed and removed over HTTP.
//!
//! A change goes through the registry's queue like any other; here it gets its name, its caller's right to make it, and
//! its answer. Invariant: what is answered with success is safe on the disk and in use.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use serde_json::{Map, Value as Json, json};
use toolgate_store::document::{Act, Kind, Op, Unfit};
use toolgate_store::registry::{Change, Done, Problem, Problems, Refused, Registry};
use toolgate_store::store::Rev;

use super::{Guest, SERVERS_WRITE, TOOLS_WRITE, guard, tools};
use crate::Door;
use crate::admit::Refusal;
use crate::answer::Details;
use crate::{answer, body};

pub(crate) async fn add_tool(
    State(door): State<Arc<Door>>,
    guest: Guest,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    guest.demand(TOOLS_WRITE)?;
    let entry = entry(&door, &headers, body).await?;
    let name = name_in(&entry)?;
    door.change(&guest, &headers, Op { kind: Kind::Tool, name, act: Act::Add(entry) }).await
}

pub(crate) async fn add_server(
    State(door): State<Arc<Door>>,
    guest: Guest,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    guest.demand(SERVERS_WRITE)?;
    let mut entry = entry(&door, &headers, body).await?;
    let name = name_in(&entry)?;
    // In its file the name is the key.
    entry.shift_remove("name");
    door.change(&guest, &headers, Op { kind: Kind::Server, name, act: Act::Add(entry) }).await
}

pub(crate) async fn change_tool(
    State(door): State<Arc<Door>>,
    guest: Guest,
    method: Method,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    door.change_one(&guest, Kind::Tool, method, tools::path(name)?, headers, body).await
}

/// Changes a tool whose name is part of the route, as that of `execute` and of `search` is.
pub(crate) async fn change_routed(
    State(door): State<Arc<Door>>,
    guest: Guest,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    door.change_one(
        &guest,
        Kind::Tool,
        method,
        uri.path().rsplit('/').next().unwrap_or_default().to_owned(),
        headers,
        body,
    )
    .await
}

pub(crate) async fn change_server(
    State(door): State<Arc<Door>>,
    guest: Guest,
    method: Method,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    door.change_one(&guest, Kind::Server, method, tools::path(name)?, headers, body).await
}

impl Door {
    /// An answer that tells of the registry as it is now.
    pub(crate) fn tagged(&self, mut response: Response) -> Response {
        if let Some(registry) = self.registry() {
            answer::tagged(&mut response, registry.state().rev);
        }
        response
    }

    async fn change_one(
        &self,
        guest: &Guest,
        kind: Kind,
        method: Method,
        name: String,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response, Refusal> {
        guest.demand(if kind == Kind::Tool { TOOLS_WRITE } else { SERVERS_WRITE })?;
        let act = if method == Method::DELETE {
            Act::Remove
        } else {
            let mut entry = entry(self, &headers, body).await?;
            if kind == Kind::Server
                && let Some(own) = entry.shift_remove("name")
                && own != name.as_str()
            {
                return Err(refusal(&Unfit::OtherName { name, found: format!("`{own}`") }.into(), ""));
            }
            if method == Method::PUT { Act::Replace(entry) } else { Act::Patch(entry) }
        };
        self.change(guest, &headers, Op { kind, name, act }).await
    }

    /// Makes a change, and tells what came of it.
    async fn change(&self, guest: &Guest, headers: &HeaderMap, op: Op) -> Result<Response, Refusal> {
        let _counted = self.let_in()?;
        let registry = self.registry().ok_or_else(|| {
            Refusal::unavailable("nothing can be changed here")
                .hint("the output of `toolgate serve` says why")
        })?;
        if !guest.at_machine {
            guard::check(&op, &guest.caller, &registry.state(), &self.allowed).await?;
        }
        let expect = expected(headers, registry)?;
        let (kind, name) = (op.kind, op.name.clone());
        let (status, removed) = match op.act {
            Act::Add(_) => (StatusCode::CREATED, false),
            Act::Replace(_) | Act::Patch(_) => (StatusCode::OK, false),
            Act::Remove => (StatusCode::NO_CONTENT, true),
        };
        let outcome = registry.submit(Change { expect, op }).await;
        let Done { rev, notes } = outcome.map_err(|refused| refusal(&refused, &name))?;
        tracing::info!(caller = %guest.caller.id, "{} `{name}` was changed, revision {rev}", kind.label());
        if removed {
            let mut response = status.into_response();
            answer::tagged(&mut response, rev);
            return Ok(response);
        }
        let mut document = json!({ "name": name, "revision": rev, "notes": notes });
        match kind {
            Kind::Tool => {
                let catalog = self.runtime.catalog();
                let tool = catalog.resolve(&name).filter(|tool| self.runtime.may_see(&guest.caller, tool));
                document["tool"] = json!(tool.map(AsRef::as_ref));
            }
            Kind::Server => {
                self.arrival(&name).await;
                document["server"] = json!(self.status(&name));
            }
        }
        let mut response = answer::with_status(status, &document);
        answer::tagged(&mut response, rev);
        let place = format!("/v1/{}/{name}", if kind == Kind::Tool { "tools" } else { "servers" });
        if let (StatusCode::CREATED, Ok(place)) = (status, HeaderValue::from_str(&place)) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        Ok(response)
    }
}

/// The entry that a body holds.
async fn entry(door: &Door, headers: &HeaderMap, body: Body) -> Result<Map<String, Json>, Refusal> {
    let raw = body::read(headers, body, door.max_body).await?;
    serde_json::from_str(raw.get()).map_err(|_| Refusal::invalid("the body is not an object"))
}

fn name_in(entry: &Map<String, Json>) -> Result<String, Refusal> {
    let name = entry.get("name").and_then(Json::as_str);
    name.map(ToOwned::to_owned).ok_or_else(|| {
        let message = "the entry has no `name`";
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message).hint("add it")
    })
}

/// The revision that a change depends on: that in `If-Match`. One that is not ours is that of no registry.
fn expected(headers: &HeaderMap, registry: &Registry) -> Result<Option<Rev>, Refusal> {
    let current = registry.state().rev;
    let mut given = headers.get_all(header::IF_MATCH).iter().peekable();
    if given.peek().is_none() {
        return Ok(None);
    }
    let own = format!("\"{current}\"");
    for value in given {
        for tag in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            if tag == "*" {
                return Ok(None);
            }
            if tag == own {
                return Ok(Some(current));
            }
        }
    }
    Err(refusal(&Refused::Conflict { current }, ""))
}

/// Why a change was not made, with all that is wrong.
fn refusal(refused: &Refused, name: &str) -> Refusal {
    let status = match refused {
        Refused::Unfit(Unfit::Exists { .. } | Unfit::File(_)) | Refused::Unreadable(_) => {
            StatusCode::CONFLICT
        }
        Refused::Unfit(Unfit::Missing { .. }) => StatusCode::NOT_FOUND,
        Refused::Unfit(Unfit::OtherName { .. }) | Refused::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Refused::Conflict { .. } => StatusCode::PRECONDITION_FAILED,
        Refused::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let (message, problems, hint) = match refused {
        Refused::Invalid(Problems(problems)) => {
            (format!("`{name}` is refused, and nothing was changed"), problems.clone(), None)
        }
        Refused::Unreadable(Problems(problems)) => {
            let message = "the files are not in order, and nothing was changed".to_owned();
            (message, problems.clone(), Some("whoever wrote to them has to mend them"))
        }
        Refused::Unavailable(error) => {
            let problem = Problem { message: error.0.to_string(), place: None, hint: None };
            (refused.to_string(), vec![problem], Some("nothing was changed; try again later"))
        }
        Refused::Unfit(Unfit::Exists { .. }) => {
            (refused.to_string(), Vec::new(), Some("PUT or PATCH changes it"))
        }
        Refused::Unfit(Unfit::Missing { .. }) => {
            let hint = "POST makes it; what the project file itself names is changed there";
            (refused.to_string(), Vec::new(), Some(hint))
        }
        Refused::Unfit(Unfit::File(_)) => {
            let hint = "`registries` in toolgate.yaml names the files that hold tools and servers";
            (refused.to_string(), Vec::new(), Some(hint))
        }
        refused => (refused.to_string(), Vec::new(), None),
    };
    let revision = match refused {
        Refused::Conflict { current } => Some(*current),
        _ => None,
    };
    let details = Some(Box::new(Details { problems, revision }));
    let refusal = Refusal::new(status, refused.code(), message);
    Refusal { hint: hint.map(ToOwned::to_owned), details, ..refusal }
}
