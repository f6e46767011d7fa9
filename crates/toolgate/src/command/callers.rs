//! `toolgate callers list|add|update|remove|keys`: callers and their API keys.
//!
//! A running gateway of the project makes the change; without one, the key file is changed directly.

use anyhow::anyhow;
use serde_json::{Map, Value as Json, json};
use toolgate_app::socket::{self, Method, StatusCode};
use toolgate_app::{NewCaller, ProjectCallers};
use toolgate_config::{Config, load};
use toolgate_redact::printable;

use crate::cli::{
    AddCallerArgs, AddKeyArgs, CallerArgs, CallersCommand, KeysCommand, ProjectArgs, RevokeKeyArgs,
    RotateKeyArgs, UpdateCallerArgs,
};
use crate::output::{BOLD, DIM, Output, error_or_hint, error_with_hint};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

pub(crate) fn run(command: &CallersCommand, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let (method, path, body) = request(command);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response =
        tokio.block_on(socket::send_request(&project.state_folder(), method, &path, body.as_ref()))?;
    let document = match response {
        Some((status, document)) => {
            // The gateway lists the callers that it could read.
            if let (CallersCommand::List, Err(error)) =
                (command, project.state_folder().caller_store().read())
            {
                let reason = printable(&error.with_cause());
                output.message(&format!("warning: callers with a created key are missing: {reason}\n"));
            }
            response_or_error(status, document)?
        }
        None => {
            let loaded = load(&project.folder, project.file.as_deref(), &owner_key::environment());
            let Some(config) = loaded.config else {
                output.message(&loaded.report.render());
                return Ok(INVALID_CONFIG);
            };
            run_locally(command, &config, project)?
        }
    };
    print_result(command, &document, output)
}

/// Returns the request that makes the running gateway execute the command.
fn request(command: &CallersCommand) -> (Method, String, Option<Json>) {
    let one = |id: &str| format!("/v1/callers/{}", socket::encode_segment(id));
    match command {
        CallersCommand::List => (Method::GET, "/v1/callers".to_owned(), None),
        CallersCommand::Add(AddCallerArgs { id, description, permissions, groups, expires }) => {
            let body = json!({ "id": id, "description": description, "permissions": permissions,
                "groups": groups, "expires": expires });
            (Method::POST, "/v1/callers".to_owned(), Some(body))
        }
        CallersCommand::Update(UpdateCallerArgs { id, permissions, groups, description }) => {
            let mut body = Map::new();
            body.extend(permissions.as_ref().map(|it| ("permissions".to_owned(), json!(it))));
            body.extend(groups.as_ref().map(|it| ("groups".to_owned(), json!(it))));
            let description = description.as_ref().map(|it| Some(it).filter(|it| !it.is_empty()));
            body.extend(description.map(|it| ("description".to_owned(), json!(it))));
            (Method::PATCH, one(id), Some(Json::Object(body)))
        }
        CallersCommand::Remove(CallerArgs { id }) => (Method::DELETE, one(id), None),
        CallersCommand::Keys(KeysCommand::List(CallerArgs { id })) => {
            (Method::GET, format!("{}/keys", one(id)), None)
        }
        CallersCommand::Keys(KeysCommand::Add(AddKeyArgs { id, name, expires })) => {
            let body = json!({ "name": name, "expires": expires });
            (Method::POST, format!("{}/keys", one(id)), Some(body))
        }
        CallersCommand::Keys(KeysCommand::Rotate(RotateKeyArgs { id, name, overlap, expires })) => {
            let body = json!({ "name": name, "overlap": overlap, "expires": expires });
            (Method::POST, format!("{}/keys/rotate", one(id)), Some(body))
        }
        CallersCommand::Keys(KeysCommand::Revoke(RevokeKeyArgs { id, name })) => {
            (Method::POST, format!("{}/keys/revoke", one(id)), Some(json!({ "name": name })))
        }
    }
}

/// Returns the response of the gateway, or its error.
fn response_or_error(status: StatusCode, document: Json) -> anyhow::Result<Json> {
    if status.is_success() {
        return Ok(document);
    }
    let text = |key: &str| document["error"][key].as_str().map(ToOwned::to_owned);
    let message = text("message").unwrap_or_else(|| format!("the gateway responded with {status}"));
    Err(match text("hint") {
        Some(hint) => error_with_hint(message, hint),
        None => anyhow!(message),
    })
}

/// Executes the command on the key file, without a gateway.
fn run_locally(command: &CallersCommand, config: &Config, project: &ProjectArgs) -> anyhow::Result<Json> {
    if config.cluster.is_some() {
        let hint = "start `toolgate serve` here, or run the command on the machine of a replica";
        return Err(error_with_hint(
            "the callers of a cluster are changed by its replicas, and none runs here",
            hint,
        ));
    }
    let callers = ProjectCallers::new(config, &project.state_folder());
    let document = match command {
        CallersCommand::List => callers.list().map(|callers| json!({ "callers": callers })),
        CallersCommand::Add(AddCallerArgs { id, description, permissions, groups, expires }) => {
            let (description, expires) = (description.as_deref(), expires.as_deref());
            let added = callers.add(NewCaller { id, description, permissions, groups, expires });
            added.map(|(caller, key)| json!({ "caller": caller, "key": key.expose() }))
        }
        CallersCommand::Update(UpdateCallerArgs { id, permissions, groups, description }) => {
            let description = description.as_deref();
            let changed = callers.update(id, permissions.as_deref(), groups.as_deref(), description);
            changed.map(|caller| json!(caller))
        }
        CallersCommand::Remove(CallerArgs { id }) => callers.remove(id).map(|()| Json::Null),
        CallersCommand::Keys(KeysCommand::List(CallerArgs { id })) => {
            callers.keys(id).map(|keys| json!({ "keys": keys }))
        }
        CallersCommand::Keys(KeysCommand::Add(AddKeyArgs { id, name, expires })) => callers
            .add_key(id, name, expires.as_deref())
            .map(|(record, key)| json!({ "record": record, "key": key.expose() })),
        CallersCommand::Keys(KeysCommand::Rotate(RotateKeyArgs { id, name, overlap, expires })) => callers
            .rotate_key(id, name, (expires.as_deref(), overlap.as_deref()))
            .map(|(record, old, key)| json!({ "record": record, "old": old, "key": key.expose() })),
        CallersCommand::Keys(KeysCommand::Revoke(RevokeKeyArgs { id, name })) => {
            callers.revoke_key(id, name).map(|()| Json::Null)
        }
    };
    document.map_err(|error| {
        let hint = error.hint();
        error_or_hint(error, hint)
    })
}

fn print_result(command: &CallersCommand, document: &Json, output: &Output) -> anyhow::Result<u8> {
    let text = |of: &Json, key: &str| printable(of[key].as_str().unwrap_or_default());
    match command {
        CallersCommand::List if output.json => output.document(document)?,
        CallersCommand::List => {
            for caller in document["callers"].as_array().into_iter().flatten() {
                let permissions: Vec<_> =
                    caller["permissions"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
                let given = if permissions.is_empty() {
                    "(nothing)".to_owned()
                } else {
                    printable(&permissions.join(" "))
                };
                let (id, about) = (text(caller, "id"), text(caller, "description"));
                let from = match text(caller, "created") {
                    created if created.is_empty() => "toolgate.yaml".to_owned(),
                    created => format!("created {created} by {}", text(caller, "by")),
                };
                let about = if about.is_empty() { about } else { format!(" · {about}") };
                output.result(&format!("{BOLD}{id}{BOLD:#}  {given}{about}  {DIM}{from}{DIM:#}\n"));
            }
        }
        CallersCommand::Add(_) if output.json => output.document(document)?,
        CallersCommand::Add(AddCallerArgs { id, .. }) => {
            let (id, key) = (printable(id), text(document, "key"));
            output.result(&format!("API key of {BOLD}{id}{BOLD:#} (shown only once):\n  {key}\n"));
            output
                .next_step("send the key as `X-API-Key` or `Authorization: Bearer`; only its hash is stored");
        }
        CallersCommand::Update(_) if output.json => output.document(document)?,
        CallersCommand::Update(UpdateCallerArgs { id, .. }) => {
            output.result(&format!("changed {BOLD}{}{BOLD:#}\n", printable(id)));
        }
        CallersCommand::Remove(CallerArgs { id }) if output.json => {
            output.document(&json!({ "id": id, "removed": true }))?;
        }
        CallersCommand::Remove(CallerArgs { id }) => {
            output.result(&format!("removed {BOLD}{}{BOLD:#}; its keys are revoked\n", printable(id)));
        }
        CallersCommand::Keys(command) => print_keys(command, document, output)?,
    }
    Ok(DONE)
}

fn print_keys(command: &KeysCommand, document: &Json, output: &Output) -> anyhow::Result<()> {
    let text = |of: &Json, key: &str| of[key].as_str().map(printable);
    match command {
        KeysCommand::Revoke(RevokeKeyArgs { id, name }) if output.json => {
            output.document(&json!({ "id": id, "name": name, "revoked": true }))?;
        }
        _ if output.json => output.document(document)?,
        KeysCommand::List(_) => {
            for key in document["keys"].as_array().into_iter().flatten() {
                let used = text(key, "lastUsed").map_or("never used".to_owned(), |at| format!("used {at}"));
                let expires = text(key, "expires").map(|at| format!(", expires {at}")).unwrap_or_default();
                let created = text(key, "created").map(|at| format!("created {at}")).unwrap_or_default();
                let name = text(key, "name").unwrap_or_default();
                output.result(&format!("{BOLD}{name}{BOLD:#}  {used}{expires}  {DIM}{created}{DIM:#}\n"));
            }
        }
        KeysCommand::Add(AddKeyArgs { id, .. }) | KeysCommand::Rotate(RotateKeyArgs { id, .. }) => {
            let name = text(&document["record"], "name").unwrap_or_default();
            let key = text(document, "key").unwrap_or_default();
            let id = printable(id);
            output.result(&format!("key {BOLD}{name}{BOLD:#} of {id} (shown only once):\n  {key}\n"));
            if let Some(end) = text(&document["old"], "expires") {
                output.result(&format!("the old key is valid until {end}\n"));
            }
        }
        KeysCommand::Revoke(RevokeKeyArgs { id, name }) => {
            let (id, name) = (printable(id), printable(name));
            output.result(&format!("revoked key {BOLD}{name}{BOLD:#} of {id}\n"));
        }
    }
    Ok(())
}
