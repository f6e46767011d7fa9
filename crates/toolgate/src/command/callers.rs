//! `toolgate callers list|add|remove`: who may call, and keys for who is to come.
//!
//! The server that runs for the project does it, where one runs; without one it is done in the file of keys.

use anyhow::anyhow;
use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json};
use toolgate_config::{Config, Environment, load};
use toolgate_server::keys::KeyStore;
use toolgate_types::Caller;

use crate::cli::{AddCallerArgs, CallerArgs, CallersCommand, Project};
use crate::command::socket;
use crate::output::{BOLD, DIM, Output, hinted};
use crate::{DONE, REFUSED};

pub(crate) fn run(command: &CallersCommand, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let path = match command {
        CallersCommand::List | CallersCommand::Add(_) => "/v1/callers".to_owned(),
        CallersCommand::Remove(CallerArgs { id }) => format!("/v1/callers/{}", socket::encoded(id)),
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
    let asked = tokio.block_on(socket::request_of(&project.folder, method, &path, body.as_ref()))?;
    let document = match asked {
        Some((status, document)) => answered(status, document)?,
        None => {
            let loaded = load(&project.folder, project.file.as_deref(), &Environment::of_process());
            let Some(config) = loaded.config else {
                output.message(&loaded.report.render());
                return Ok(REFUSED);
            };
            alone(command, &config, project)?
        }
    };
    tell(command, &document, output)
}

/// What the server said, or why it did not do it.
fn answered(status: StatusCode, document: Json) -> anyhow::Result<Json> {
    if status.is_success() {
        return Ok(document);
    }
    let text = |key: &str| document["error"][key].as_str().map(ToOwned::to_owned);
    let message = text("message").unwrap_or_else(|| format!("the running server answers {status}"));
    Err(match text("hint") {
        Some(hint) => hinted(message, hint),
        None => anyhow!(message),
    })
}

/// The same without a server.
fn alone(command: &CallersCommand, config: &Config, project: &Project) -> anyhow::Result<Json> {
    let store = KeyStore::new(&project.folder.join(".toolgate"));
    let failed = |error: toolgate_server::keys::KeyError| hinted(error.to_string(), error.hint());
    let named =
        |id: &str| id == Caller::OWNER || config.callers.iter().any(|caller| caller.id.as_str() == id);
    let configured = |id: &str| {
        hinted(format!("caller `{id}` is what the configuration says"), "change it in toolgate.yaml")
    };
    match command {
        CallersCommand::List => {
            let mut callers = config.callers.clone();
            if callers.iter().all(|caller| caller.id.as_str() != Caller::OWNER) {
                callers.push(Caller::owner());
            }
            callers.sort_by(|one, other| one.id.cmp(&other.id));
            let from_files = callers.iter().map(|caller| {
                let mut document =
                    json!({ "id": caller.id, "permissions": caller.permissions, "source": "configuration" });
                if let Some(description) = config.caller_descriptions.get(&caller.id) {
                    document["description"] = json!(description);
                }
                document
            });
            let kept = store.callers().map_err(failed)?;
            let made = kept.iter().filter(|kept| !named(kept.id.as_str())).map(|kept| {
                let mut document = json!({ "id": kept.id, "permissions": kept.permissions, "source": "made",
                    "created": kept.created, "by": kept.by });
                if let Some(description) = &kept.description {
                    document["description"] = json!(description);
                }
                document
            });
            Ok(json!({ "callers": from_files.chain(made).collect::<Vec<_>>() }))
        }
        CallersCommand::Add(AddCallerArgs { id, description, permissions }) => {
            if named(id) || id == Caller::ANONYMOUS {
                return Err(configured(id));
            }
            let wrong = |text: &str, error: String| anyhow!("`{text}`: {error}");
            let caller = Caller {
                id: id.parse().map_err(|error| wrong(id, format!("{error}")))?,
                permissions: permissions
                    .iter()
                    .map(|text| text.parse().map_err(|error| wrong(text, format!("{error}"))))
                    .collect::<Result<_, _>>()?,
            };
            let now = jiff::Timestamp::now();
            let (kept, key) = store.add(&caller, description.clone(), Caller::OWNER, now).map_err(failed)?;
            Ok(json!({ "caller": { "id": kept.id, "permissions": kept.permissions, "source": "made",
                "created": kept.created, "by": kept.by }, "key": key.expose() }))
        }
        CallersCommand::Remove(CallerArgs { id }) => {
            if named(id) {
                return Err(configured(id));
            }
            let unknown = || anyhow!("there is no caller `{id}`; `toolgate callers list` shows them all");
            let id = id.parse().map_err(|_| unknown())?;
            if store.remove(&id).map_err(failed)? { Ok(Json::Null) } else { Err(unknown()) }
        }
    }
}

fn tell(command: &CallersCommand, document: &Json, output: &Output) -> anyhow::Result<u8> {
    let text = |of: &Json, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    match command {
        CallersCommand::List if output.json => output.document(document)?,
        CallersCommand::List => {
            for caller in document["callers"].as_array().into_iter().flatten() {
                let permissions: Vec<_> =
                    caller["permissions"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
                let given =
                    if permissions.is_empty() { "(nothing)".to_owned() } else { permissions.join(" ") };
                let (id, about) = (text(caller, "id"), text(caller, "description"));
                let from = match text(caller, "created") {
                    created if created.is_empty() => "toolgate.yaml".to_owned(),
                    created => format!("made {created} by {}", text(caller, "by")),
                };
                let about = if about.is_empty() { about } else { format!(" · {about}") };
                output.result(&format!("{BOLD}{id}{BOLD:#}  {given}{about}  {DIM}{from}{DIM:#}\n"));
            }
        }
        CallersCommand::Add(_) if output.json => output.document(document)?,
        CallersCommand::Add(AddCallerArgs { id, .. }) => {
            let key = text(document, "key");
            output.result(&format!("the key of {BOLD}{id}{BOLD:#}, which is shown this once:\n  {key}\n"));
            output.next("send it as `X-API-Key`, or as `Authorization: Bearer`; only its hash is kept");
        }
        CallersCommand::Remove(CallerArgs { id }) if output.json => {
            output.document(&json!({ "id": id, "removed": true }))?;
        }
        CallersCommand::Remove(CallerArgs { id }) => {
            output.result(&format!("{BOLD}{id}{BOLD:#} is removed; its key counts no more\n"));
        }
    }
    Ok(DONE)
}
