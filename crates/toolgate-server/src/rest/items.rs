//! `/v1/resources`, `/v1/prompts` and `/v1/results`: what servers offer besides tools, and stored results.
//!
//! Invariant: every read and every prompt is an operation of the runtime, decided and recorded like a tool call.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use toolgate_json::{CallArguments, RawJson};
use toolgate_runtime::results::URI_PREFIX;
use toolgate_runtime::{ListRequest, Operation, VisibleItem};

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;

/// Filter of resources and prompts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemQuery {
    server: Option<String>,
}

/// A resource to read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadQuery {
    uri: String,
    server: Option<String>,
}

/// A prompt to get.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptBody {
    /// Name of the prompt on its server.
    name: String,
    /// Name of the server. Without it, the first server with such a prompt.
    server: Option<String>,
    /// Arguments of the prompt. MCP allows only strings.
    #[serde(default)]
    arguments: Map<String, Json>,
}

pub(crate) async fn list_resources(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ItemQuery { server } = request.query()?;
    let (runtime, caller) = (&request.gateway.runtime, &request.auth.caller);
    let lists = super::tools::list_filter(&request).await;
    let document = runtime.list(caller, list_request(&request, "resources/list"), || {
        let shown = |items: Vec<VisibleItem>| shown_items(items, server.as_deref(), "uri");
        json!({
            "resources": shown(runtime.visible_resources(caller, &lists)),
            "templates": shown(runtime.visible_templates(caller, &lists)),
        })
    });
    Ok(response::json(&document.await))
}

pub(crate) async fn list_prompts(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ItemQuery { server } = request.query()?;
    let (runtime, caller) = (&request.gateway.runtime, &request.auth.caller);
    let lists = super::tools::list_filter(&request).await;
    let document = runtime.list(
        caller,
        list_request(&request, "prompts/list"),
        || json!({ "prompts": shown_items(runtime.visible_prompts(caller, &lists), server.as_deref(), "name") }),
    );
    Ok(response::json(&document.await))
}

pub(crate) async fn read_resource(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ReadQuery { uri, server } = request.query()?;
    execute(&request, Operation::resource(uri, server)).await
}

pub(crate) async fn read_result(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    execute(&request, Operation::resource(format!("{URI_PREFIX}{id}"), None)).await
}

pub(crate) async fn get_prompt(request: AdmittedRequest) -> Result<Response, HttpError> {
    let PromptBody { name, server, arguments } = request.json()?;
    if arguments.values().any(|value| !value.is_string()) {
        return Err(HttpError::invalid("an argument of the prompt is not a string"));
    }
    let lists = super::tools::list_filter(&request).await;
    let visible = || request.gateway.runtime.visible_prompts(&request.auth.caller, &lists).into_iter();
    let server =
        server.or_else(|| visible().find(|prompt| prompt.item.id == name).map(|prompt| prompt.server));
    let arguments = CallArguments::from(RawJson::from_value(&arguments));
    // A prompt that no server has is looked for all the same, so that the attempt is recorded.
    execute(&request, Operation::prompt(server.unwrap_or_default(), name, arguments)).await
}

async fn execute(request: &AdmittedRequest, mut operation: Operation) -> Result<Response, HttpError> {
    let (gateway, auth) = (&request.gateway, &request.auth);
    operation.origin.access = auth.access();
    let _call = gateway.begin_call()?;
    let outcome = gateway.runtime.execute(&auth.caller, operation.with_trace(auth.trace.clone())).await;
    let mut response =
        response::call_result(&outcome, response::envelope(&gateway.runtime, &auth.caller, &outcome));
    response.body_mut().set_request_ids(&auth.trace);
    Ok(response)
}

/// A list, as it is recorded.
pub(crate) fn list_request<'a>(request: &'a AdmittedRequest, name: &'a str) -> ListRequest<'a> {
    let arguments = RawJson::from_trusted("{}".to_owned());
    ListRequest { name, arguments, trace: &request.auth.trace, session: None }
}

fn shown_items(items: Vec<VisibleItem>, server: Option<&str>, id: &str) -> Vec<Json> {
    let items = items.into_iter().filter(|shown| server.is_none_or(|server| server == shown.server));
    let shown = |VisibleItem { server, item }: VisibleItem| {
        let mut shown = json!({ "server": server, "title": item.title, "description": item.description,
            "definition": item.definition });
        shown[id] = item.id.into();
        shown
    };
    items.map(shown).collect()
}
