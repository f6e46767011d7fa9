//! Endpoints that register, change and remove tools and servers.
//!
//! Every change goes through the queue of the registry. Here it gets its name, the checks of its content, and its response.
//! Invariant: a successful response means the change is on disk and in use.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use serde_json::{Map, Value as Json, json};
use toolgate_store::document::{EntryAction, EntryError, EntryKind, EntryOp};
use toolgate_store::registry::{
    ChangeError, CommittedChange, Registry, RegistryChange, RegistryProblem, RegistryProblems,
};
use toolgate_store::store::Revision;

use super::guard;
use crate::auth::HttpError;
use crate::response::{ErrorDetails, Response};
use crate::route::AdmittedRequest;
use crate::{Gateway, response};

pub(crate) async fn add_tool(request: AdmittedRequest) -> Result<Response, HttpError> {
    let entry = entry(&request)?;
    let name = name_in(&entry)?;
    submit(&request, EntryOp { kind: EntryKind::Tool, name, action: EntryAction::Add(entry) }).await
}

pub(crate) async fn add_server(request: AdmittedRequest) -> Result<Response, HttpError> {
    let mut entry = entry(&request)?;
    let name = name_in(&entry)?;
    // In the file, the name is the key of the entry.
    entry.shift_remove("name");
    submit(&request, EntryOp { kind: EntryKind::Server, name, action: EntryAction::Add(entry) }).await
}

pub(crate) async fn change_tool(request: AdmittedRequest) -> Result<Response, HttpError> {
    change_one(&request, EntryKind::Tool, request.parameter()?).await
}

/// Changes a tool whose name is a fixed part of the route: `execute` or `search`.
pub(crate) async fn change_routed(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parts.uri.path().rsplit('/').next().unwrap_or_default();
    change_one(&request, EntryKind::Tool, name.to_owned()).await
}

pub(crate) async fn change_server(request: AdmittedRequest) -> Result<Response, HttpError> {
    change_one(&request, EntryKind::Server, request.parameter()?).await
}

impl Gateway {
    /// Returns an entry as it is written in a registry file; `None` if it is defined elsewhere.
    pub(crate) fn stored_entry(&self, kind: EntryKind, name: &str) -> Option<Map<String, Json>> {
        self.registry.as_ref()?.state().documents.get(kind)?.entry_value(name)
    }

    /// Adds the current registry revision as the `ETag`.
    pub(crate) fn with_etag(&self, mut response: Response) -> Response {
        if let Some(registry) = &self.registry {
            response::set_etag(&mut response, registry.state().rev);
        }
        response
    }
}

async fn change_one(request: &AdmittedRequest, kind: EntryKind, name: String) -> Result<Response, HttpError> {
    let method = &request.parts.method;
    let action = if method == Method::DELETE {
        EntryAction::Remove
    } else {
        let mut entry = entry(request)?;
        if kind == EntryKind::Server
            && let Some(body_name) = entry.shift_remove("name")
            && body_name != name.as_str()
        {
            return Err(registry_error(
                &EntryError::NameMismatch { name, found: format!("`{body_name}`") }.into(),
                "",
            ));
        }
        if method == Method::PUT { EntryAction::Replace(entry) } else { EntryAction::Patch(entry) }
    };
    submit(request, EntryOp { kind, name, action }).await
}

/// Submits a change and responds with its outcome.
async fn submit(request: &AdmittedRequest, mut op: EntryOp) -> Result<Response, HttpError> {
    let (gateway, auth) = (&request.gateway, &request.auth);
    let _call = gateway.begin_call()?;
    let registry = registry(gateway)?;
    restore_masked(gateway, &mut op)?;
    // The socket user can edit the files anyway.
    let authorize = if auth.via_socket {
        None
    } else {
        guard::check(&mut op, &auth.caller, &registry.state(), &gateway.allowed.load_full()).await?;
        Some(guard::tool_authorizer(&auth.caller))
    };
    let expect = expected(&request.parts.headers, registry)?;
    let (kind, name) = (op.kind, op.name.clone());
    let (status, removed) = match op.action {
        EntryAction::Add(_) => (StatusCode::CREATED, false),
        EntryAction::Replace(_) | EntryAction::Patch(_) => (StatusCode::OK, false),
        EntryAction::Remove => (StatusCode::NO_CONTENT, true),
    };
    let outcome = registry.submit(RegistryChange { expect, op, authorize }).await;
    let CommittedChange { rev, notes } = outcome.map_err(|refused| registry_error(&refused, &name))?;
    tracing::info!(caller = %auth.caller.id, "{} `{name}` was changed, revision {rev}", kind.label());
    if removed {
        let mut response = response::empty(status);
        response::set_etag(&mut response, rev);
        return Ok(response);
    }
    let mut document = json!({ "name": name, "revision": rev, "notes": notes });
    match kind {
        EntryKind::Tool => {
            let catalog = gateway.runtime.catalog();
            let tool = catalog.resolve(&name).filter(|tool| gateway.runtime.may_see(&auth.caller, tool));
            document["tool"] = json!(tool.map(AsRef::as_ref));
        }
        EntryKind::Server => {
            gateway.wait_until_ready(&name).await;
            let status = gateway.status(&name);
            document["server"] = json!(status.map(|status| gateway.server_document(&status, false)));
        }
    }
    let mut response = response::json_with_status(status, &document);
    response::set_etag(&mut response, rev);
    let location = format!("/v1/{}/{name}", if kind == EntryKind::Tool { "tools" } else { "servers" });
    if let (StatusCode::CREATED, Ok(location)) = (status, HeaderValue::from_str(&location)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

pub(super) fn registry(gateway: &Gateway) -> Result<&Registry, HttpError> {
    gateway.registry.as_ref().ok_or_else(|| {
        HttpError::unavailable("tools and servers cannot be changed on this gateway")
            .hint("see the output of `toolgate serve` for the reason")
    })
}

/// Puts the stored secrets back in place of masked strings: clients send back an entry that they got masked.
pub(super) fn restore_masked(gateway: &Gateway, op: &mut EntryOp) -> Result<(), HttpError> {
    let stored =
        if matches!(op.action, EntryAction::Add(_)) { None } else { gateway.stored_entry(op.kind, &op.name) };
    let merge = matches!(op.action, EntryAction::Patch(_));
    let (EntryAction::Add(entry) | EntryAction::Replace(entry) | EntryAction::Patch(entry)) = &mut op.action
    else {
        return Ok(());
    };
    gateway.runtime.restore_masked(entry, stored.as_ref(), merge).map_err(|error| {
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", error.to_string())
            .hint("send the value, or refer to a variable of the project as `${NAME}`")
    })
}

/// Reads an entry from the body.
pub(super) fn entry(request: &AdmittedRequest) -> Result<Map<String, Json>, HttpError> {
    let raw = request.raw_json()?;
    serde_json::from_str(raw.as_str()).map_err(|_| HttpError::invalid("the body is not an object"))
}

pub(super) fn name_in(entry: &Map<String, Json>) -> Result<String, HttpError> {
    let name = entry.get("name").and_then(Json::as_str);
    name.map(ToOwned::to_owned).ok_or_else(|| {
        let message = "the entry has no `name`";
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message).hint("add `name`")
    })
}

/// Reads the expected revision from `If-Match`. A tag that is not the current one is a conflict.
fn expected(headers: &HeaderMap, registry: &Registry) -> Result<Option<Revision>, HttpError> {
    let current = registry.state().rev;
    let mut given = headers.get_all(header::IF_MATCH).iter().peekable();
    if given.peek().is_none() {
        return Ok(None);
    }
    let body_name = format!("\"{current}\"");
    for value in given {
        for tag in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            if tag == "*" {
                return Ok(None);
            }
            if tag == body_name {
                return Ok(Some(current));
            }
        }
    }
    Err(registry_error(&ChangeError::Conflict { current }, ""))
}

/// Converts a rejected change to an HTTP error, with all problems found.
pub(super) fn registry_error(refused: &ChangeError, name: &str) -> HttpError {
    if let ChangeError::Unauthorized { missing } = refused {
        return HttpError::missing_permissions(missing);
    }
    let status = match refused {
        ChangeError::Entry(EntryError::Exists { .. } | EntryError::File(_))
        | ChangeError::FilesRejected(_) => StatusCode::CONFLICT,
        ChangeError::Entry(EntryError::Missing { .. }) => StatusCode::NOT_FOUND,
        ChangeError::Entry(EntryError::NameMismatch { .. }) | ChangeError::Invalid(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        ChangeError::Conflict { .. } => StatusCode::PRECONDITION_FAILED,
        ChangeError::Unauthorized { .. } => StatusCode::FORBIDDEN,
        ChangeError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let (message, problems, hint) = match refused {
        ChangeError::Invalid(RegistryProblems(problems)) => {
            (format!("`{name}` was rejected, and nothing was changed"), problems.clone(), None)
        }
        ChangeError::FilesRejected(RegistryProblems(problems)) => {
            let message = "the registry files have errors, and nothing was changed".to_owned();
            (message, problems.clone(), Some("fix the files, then try again"))
        }
        ChangeError::Unavailable(error) => {
            let problem = RegistryProblem { message: error.0.to_string(), place: None, hint: None };
            (refused.to_string(), vec![problem], Some("nothing was changed; try again later"))
        }
        ChangeError::Entry(EntryError::Exists { .. }) => {
            (refused.to_string(), Vec::new(), Some("use PUT or PATCH to change it"))
        }
        ChangeError::Entry(EntryError::Missing { .. }) => {
            let hint = "use POST to create it; entries of the project file are changed there";
            (refused.to_string(), Vec::new(), Some(hint))
        }
        ChangeError::Entry(EntryError::File(_)) => {
            let hint = "`registries` in toolgate.yaml names the files that hold tools and servers";
            (refused.to_string(), Vec::new(), Some(hint))
        }
        refused => (refused.to_string(), Vec::new(), None),
    };
    let revision = match refused {
        ChangeError::Conflict { current } => Some(*current),
        _ => None,
    };
    let details = Some(Box::new(ErrorDetails { problems, revision, ..ErrorDetails::default() }));
    let error = HttpError::new(status, refused.code(), message);
    HttpError { hint: hint.map(ToOwned::to_owned), details, ..error }
}
