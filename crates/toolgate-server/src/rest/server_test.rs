//! `/v1/servers/test` and `/v1/servers/import`: tries a server without registering it, and registers pasted ones.
//!
//! Both make the gateway connect, or let it connect later, so the checks of a registration come first: programs, variables,
//! addresses. Invariant: a test changes nothing, and its number and time are bounded.

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use toolgate_runtime::runtime::ServerTest;
use toolgate_store::document::{EntryAction, EntryKind, EntryOp};
use toolgate_store::registry::{ChangePreview, Registry, RegistryChange};
use toolgate_types::ErrorCode;

use super::{changes, guard};
use crate::Gateway;
use crate::auth::{Authenticated, HttpError};
use crate::response::{self, Response};
use crate::route::AdmittedRequest;
use crate::routes::SERVERS_LOGS;

/// Time that a test takes at most. A program may download its package first.
const TEST_TIME: Duration = Duration::from_secs(60);
/// Servers in one pasted configuration.
const MAX_IMPORTED: usize = 100;

/// Connects to a server without registering it, and shows its offer.
pub(crate) async fn test(request: AdmittedRequest) -> Result<Response, HttpError> {
    let mut entry = changes::entry(&request)?;
    let name = changes::name_in(&entry)?;
    entry.shift_remove("name");
    let (gateway, auth) = (&request.gateway, &request.auth);
    let _call = gateway.begin_call()?;
    let registry = changes::registry(gateway)?;
    let op = checked_op(gateway, auth, registry, &name, entry).await?;
    let _permit = gateway.server_tests.try_acquire().map_err(|_| {
        let code = ErrorCode::Overloaded.label();
        HttpError::new(StatusCode::TOO_MANY_REQUESTS, code, "too many servers are being tested")
            .retry_after(Duration::from_secs(5))
    })?;
    let preview = registry.preview(op.into()).await;
    let ChangePreview { checked, notes } =
        preview.map_err(|refused| changes::registry_error(&refused, &name))?;
    let spec = checked.servers.iter().find(|spec| spec.name.as_str() == name).cloned();
    let spec = spec.ok_or_else(|| {
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", format!("`{name}` is disabled"))
    })?;
    tracing::info!(caller = %auth.caller.id, server = name, "a server is tested");
    let ServerTest { mut report, stderr } = Box::pin(gateway.runtime.test_server(spec, TEST_TIME)).await;
    report["notes"] = json!(notes);
    report["stderr"] = json!(auth.require(SERVERS_LOGS).is_ok().then_some(stderr));
    Ok(response::json(&report))
}

/// Makes an entry a change, and checks it as one that arrives over the network. An existing server is replaced.
async fn checked_op(
    gateway: &Gateway,
    auth: &Authenticated,
    registry: &Registry,
    name: &str,
    entry: Map<String, Json>,
) -> Result<EntryOp, HttpError> {
    let exists = gateway.stored_entry(EntryKind::Server, name).is_some();
    let action = if exists { EntryAction::Replace(entry) } else { EntryAction::Add(entry) };
    let mut op = EntryOp { kind: EntryKind::Server, name: name.to_owned(), action };
    changes::restore_masked(gateway, &mut op)?;
    if !auth.via_socket {
        let allowed = gateway.allowed.load_full();
        guard::check(&mut op, &auth.caller, &registry.state(), &allowed).await?;
    }
    Ok(op)
}

/// A configuration of any program that `toolgate import` knows, as text.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportBody {
    /// JSON, YAML or TOML.
    text: String,
    /// Registers the servers. Without it, the response shows the result of a trial.
    #[serde(default)]
    add: bool,
    /// Only these servers.
    names: Option<Vec<String>>,
    /// Replaces servers that exist.
    #[serde(default)]
    replace: bool,
}

/// Registers the servers of a pasted configuration, each on its own.
pub(crate) async fn import(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ImportBody { text, add, names, replace } = request.json()?;
    let (gateway, auth) = (&request.gateway, &request.auth);
    let _call = gateway.begin_call()?;
    let registry = changes::registry(gateway)?;
    let pasted = gateway.with_project(move |project| project.parse_servers(&text)).await?;
    let mut servers = pasted.servers;
    servers.retain(|(name, _)| names.as_ref().is_none_or(|names| names.contains(name)));
    if servers.len() > MAX_IMPORTED {
        let message = format!("the text has {} servers, more than {MAX_IMPORTED}", servers.len());
        return Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
            .hint("select some of them with `names`"));
    }
    let mut shown = Vec::new();
    for (name, entry) in servers {
        let exists = gateway.stored_entry(EntryKind::Server, &name).is_some();
        let masked = gateway.runtime.masked_entry(&entry);
        let outcome = if exists && !replace {
            Ok("skipped")
        } else {
            import_one(gateway, auth, registry, &name, entry, add).await
        };
        let (outcome, error) = match outcome {
            Ok("added") if exists => ("replaced", None),
            Ok(outcome) => (outcome, None),
            Err(error) => ("failed", Some(error.summary())),
        };
        shown.push(json!({
            "name": name, "entry": masked, "exists": exists, "outcome": outcome, "error": error }));
    }
    let document = json!({ "servers": shown, "notes": pasted.problems, "revision": registry.state().rev });
    Ok(gateway.with_etag(response::json(&document)))
}

/// Refuses pasted secrets. People paste the configuration of a client with its keys, and the file of the registry would
/// hold them in plain text.
fn check_secrets(gateway: &Gateway, name: &str, entry: &Map<String, Json>) -> Result<(), HttpError> {
    let places = gateway.runtime.secret_places(entry);
    if places.is_empty() {
        return Ok(());
    }
    let place = match places[0].strip_prefix("env.") {
        Some(variable) => format!(", set `\"credential\": {{\"env\": \"{variable}\"}}` in its entry"),
        None => String::new(),
    };
    let (places, are) =
        (places.join("`, `"), if places.len() == 1 { "is a secret: it" } else { "are secrets: they" });
    let message = format!("`{places}` {are} would be in the file of the registry in plain text");
    let hint = format!(
        "leave it out, add the server{place}, and run `toolgate credentials set {name}`; or run `toolgate import FILE` on \
         the machine of the gateway, to keep secrets in `.env`"
    );
    Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message).hint(hint))
}

async fn import_one(
    gateway: &Gateway,
    auth: &Authenticated,
    registry: &Registry,
    name: &str,
    entry: Map<String, Json>,
    add: bool,
) -> Result<&'static str, HttpError> {
    check_secrets(gateway, name, &entry)?;
    let change: RegistryChange = checked_op(gateway, auth, registry, name, entry).await?.into();
    let refused = |refused| changes::registry_error(&refused, name);
    if !add {
        return registry.preview(change).await.map(|_| "planned").map_err(refused);
    }
    registry.submit(change).await.map_err(refused)?;
    tracing::info!(caller = %auth.caller.id, server = name, "a server was imported");
    Ok("added")
}
