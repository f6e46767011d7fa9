//! `toolgate callers list|add|remove`: callers and their API keys.
//!
//! A running gateway of the project makes the change; without one, the key file is changed directly.

use anyhow::anyhow;
use serde_json::{Value as Json, json};
use toolgate_app::socket::{self, Method, StatusCode};
use toolgate_app::{NewCaller, ProjectCallers};
use toolgate_config::{Config, load};
use toolgate_redact::printable;

use crate::cli::{AddCallerArgs, CallerArgs, CallersCommand, ProjectArgs};
use crate::output::{BOLD, DIM, Output, error_or_hint, error_with_hint};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

pub(crate) fn run(command: &CallersCommand, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let path = match command {
        CallersCommand::List | CallersCommand::Add(_) => "/v1/callers".to_owned(),
        CallersCommand::Remove(CallerArgs { id }) => format!("/v1/callers/{}", socket::encode_segment(id)),
    };
    let (method, body) = match command {
        CallersCommand::List => (Method::GET, None),
        CallersCommand::Add(AddCallerArgs { id, description, permissions }) => {
            let body = json!({ "id": id, "description": description, "permissions": permissions });
            (Method::POST, Some(body))
        }
        CallersCommand::Remove(_) => (Method::DELETE, None),
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response =
        tokio.block_on(socket::send_request(&project.state_folder(), method, &path, body.as_ref()))?;
    let document = match response {
        Some((status, document)) => {
            // The gateway lists the callers that it could read.
            if let (CallersCommand::List, Err(error)) =
                (command, project.state_folder().key_store().callers())
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
    let callers = ProjectCallers::new(config, &project.state_folder());
    let document = match command {
        CallersCommand::List => callers.list().map(|callers| json!({ "callers": callers })),
        CallersCommand::Add(AddCallerArgs { id, description, permissions }) => callers
            .add(NewCaller { id, description: description.as_deref(), permissions })
            .map(|(caller, key)| json!({ "caller": caller, "key": key.expose() })),
        CallersCommand::Remove(CallerArgs { id }) => callers.remove(id).map(|()| Json::Null),
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
        CallersCommand::Remove(CallerArgs { id }) if output.json => {
            output.document(&json!({ "id": id, "removed": true }))?;
        }
        CallersCommand::Remove(CallerArgs { id }) => {
            output.result(&format!("removed {BOLD}{}{BOLD:#}; its key is revoked\n", printable(id)));
        }
    }
    Ok(DONE)
}
