//! Prompts, resources, completions and log levels: turns requests into operations, and outcomes into responses.

use serde::Deserialize;
use toolgate_json::CallArguments;
use toolgate_mcp::server::{ClientRequest, RpcResult, adapt_result};
use toolgate_mcp::{RawJson, Revision, RpcError};
use toolgate_runtime::pipeline::RESOURCE_NOT_FOUND;
use toolgate_runtime::{CallOrigin, CallOutcome, CompletionTarget, Operation, OperationTarget};
use toolgate_types::ErrorCode;

use super::{McpCaller, McpService};

pub(super) fn no_resource(uri: &str, revision: Revision) -> RpcError {
    let code = if revision.has_handshake() { RESOURCE_NOT_FOUND } else { RpcError::INVALID_PARAMS };
    let uri: String = uri.chars().take(512).collect();
    RpcError {
        data: Some(RawJson::from_value(&serde_json::json!({ "uri": uri }))),
        ..RpcError::new(code, format!("there is no resource `{uri}`"))
    }
}

/// Converts the outcome of an operation that is not a tool call.
pub(super) fn rpc_result(outcome: CallOutcome, revision: Revision) -> RpcResult {
    match (outcome.result.error, outcome.rpc_error, outcome.reply) {
        (None, _, Some(reply)) => Ok(adapt_result(revision, reply)),
        (None, _, None) => Ok(adapt_result(revision, RawJson::from_value(&serde_json::json!({})))),
        // Errors of the server are passed on unchanged, except for a code that only older revisions have.
        (Some(_), Some(mut error), _) => {
            if error.code == RESOURCE_NOT_FOUND && !revision.has_handshake() {
                error.code = RpcError::INVALID_PARAMS;
            }
            Err(error)
        }
        (Some(error), None, _) => {
            let code = match error.code {
                ErrorCode::NotFound | ErrorCode::ToolNotFound | ErrorCode::InvalidArguments => {
                    RpcError::INVALID_PARAMS
                }
                _ => INTERNAL_ERROR,
            };
            Err(RpcError::new(code, error.message))
        }
    }
}

/// JSON-RPC error code for failures that the client cannot correct.
const INTERNAL_ERROR: i64 = -32603;

impl McpService {
    /// Builds an operation from a request. `known` names the parameters that the operation has itself.
    pub(super) fn operation(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        (target, arguments): (OperationTarget, CallArguments),
        known: &[&str],
    ) -> Operation {
        let origin = CallOrigin {
            session: request.session.as_deref().map(super::issued_session),
            forwarded: request.forwarded(known),
            client_approves: mcp_caller.client_approves,
            access: mcp_caller.access.clone(),
            ..CallOrigin::default()
        };
        Operation::new(target, arguments).with_trace(request.trace.clone()).with_origin(origin)
    }

    pub(super) async fn prompt(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        let name: String = request.member("name")?;
        let lists = self.list_filter(mcp_caller, &request).await;
        let shown = self.named_prompts(mcp_caller, &lists).into_iter().find(|shown| shown.name == name);
        // A prompt that the client does not see is looked for all the same, so that the attempt is recorded.
        let hidden = shown.is_none();
        let target = match shown {
            Some(shown) => OperationTarget::Prompt { server: shown.server, name: shown.prompt.id },
            None => OperationTarget::Prompt { server: String::new(), name },
        };
        let arguments = request.raw_member("arguments").filter(|arguments| arguments.as_str() != "null");
        if arguments.as_ref().is_some_and(|arguments| !arguments.as_str().trim_start().starts_with('{')) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "`arguments` is not an object"));
        }
        let arguments = arguments.map_or_else(CallArguments::empty, CallArguments::from);
        let mut operation = self.operation(mcp_caller, &request, (target, arguments), &["name", "arguments"]);
        operation.origin.hidden = hidden;
        let outcome = self.runtime.execute(&mcp_caller.caller, operation).await;
        mcp_caller.record_missing(&outcome);
        rpc_result(outcome, request.client.revision())
    }

    pub(super) async fn resource(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        let uri: String = request.member("uri")?;
        let revision = request.client.revision();
        let Operation { target, arguments, .. } = Operation::resource(uri.clone(), None);
        let mut operation = self.operation(mcp_caller, &request, (target, arguments), &["uri"]);
        operation.origin.profile = self.profile(mcp_caller)?;
        let outcome = self.runtime.execute(&mcp_caller.caller, operation).await;
        mcp_caller.record_missing(&outcome);
        if outcome.result.error.as_ref().is_some_and(|error| error.code == ErrorCode::NotFound) {
            return Err(no_resource(&uri, revision));
        }
        rpc_result(outcome, revision).map(|result| with_cache_hints(result, revision))
    }

    pub(super) async fn complete(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        #[derive(Deserialize)]
        struct Reference {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            name: Option<String>,
            #[serde(default)]
            uri: Option<String>,
        }
        let bad =
            || RpcError::new(RpcError::INVALID_PARAMS, "`ref` must name a prompt or a resource template");
        let reference: Reference =
            request.raw_member("ref").and_then(|raw| raw.parse().ok()).ok_or_else(bad)?;
        let lists = self.list_filter(mcp_caller, &request).await;
        // A prompt that the client does not see is looked for all the same, so that the attempt is recorded.
        let mut hidden = false;
        let target = match (reference.kind.as_str(), reference.name, reference.uri) {
            ("ref/prompt", Some(name), _) => {
                let shown =
                    self.named_prompts(mcp_caller, &lists).into_iter().find(|shown| shown.name == name);
                hidden = shown.is_none();
                match shown {
                    Some(shown) => CompletionTarget::Prompt { server: shown.server, name: shown.prompt.id },
                    None => CompletionTarget::Prompt { server: String::new(), name },
                }
            }
            ("ref/resource", _, Some(uri)) => CompletionTarget::Resource { uri },
            _ => return Err(bad()),
        };
        // Everything but the reference goes to the server, and the policy sees it.
        let mut arguments = serde_json::Map::new();
        for name in ["argument", "context"] {
            if let Some(value) = request.raw_member(name) {
                arguments.insert(name.to_owned(), value.parse().map_err(|_| bad())?);
            }
        }
        let arguments = CallArguments::from(RawJson::from_value(&arguments));
        let target = (OperationTarget::Completion(target), arguments);
        let mut operation = self.operation(mcp_caller, &request, target, &["ref", "argument", "context"]);
        operation.origin.profile = self.profile(mcp_caller)?;
        operation.origin.hidden = hidden;
        let outcome = self.runtime.execute(&mcp_caller.caller, operation).await;
        mcp_caller.record_missing(&outcome);
        if outcome.result.error.as_ref().is_some_and(|error| error.code == ErrorCode::NotFound) {
            return Err(bad());
        }
        rpc_result(outcome, request.client.revision())
    }

    /// Sets the log level of the client on every server that logs.
    pub(super) async fn set_level(&self, mcp_caller: &McpCaller, request: &ClientRequest) -> RpcResult {
        let level: String = request.member("level")?;
        let (caller, session) = (&mcp_caller.caller.id, request.session.as_deref());
        self.runtime.set_log_level(caller, session, &level).await;
        Ok(RawJson::from_value(&serde_json::json!({})))
    }
}

/// Adds the cache lifetime and scope that the newest revision requires. Always private, even if the server says public,
/// because the result was given to this caller.
fn with_cache_hints(result: RawJson, revision: Revision) -> RawJson {
    if revision.has_handshake() {
        return result;
    }
    let members = result.members();
    let mut out = String::from("{");
    let mut ttl = "0";
    for (name, value) in &members {
        match &**name {
            "ttlMs" => ttl = value,
            "cacheScope" => {}
            _ => {
                out.push_str(&format!("{}:{},", serde_json::Value::from(&**name), value));
            }
        }
    }
    out.push_str(&format!("\"ttlMs\":{ttl},\"cacheScope\":\"private\"}}"));
    RawJson::from_trusted(out)
}
