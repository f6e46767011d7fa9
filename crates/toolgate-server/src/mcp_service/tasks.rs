//! Tasks: requests for tool calls that go on after their first reply.
//!
//! The runtime knows the server and the caller of each task; only the caller that started a task can find it.

use futures_util::future::join_all;
use serde_json::{Value, json};
use toolgate_mcp::server::{ClientRequest, RpcResult};
use toolgate_mcp::{RawJson, Revision, RpcError};
use toolgate_runtime::{Operation, TaskMethod};
use toolgate_types::ErrorCode;

use super::items::rpc_result;
use super::{McpCaller, McpService};

/// Extension that defines tasks in the newest revision.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Tasks per page.
const PAGE: usize = 50;

/// Removes `_meta`, which belongs to the response and not to the task.
fn without_meta(mut task: Value) -> Value {
    if let Some(task) = task.as_object_mut() {
        task.remove("_meta");
    }
    task
}

impl McpService {
    /// Lists the tasks of a caller. Each is fetched from its server; tasks unknown to their server are left out.
    async fn list_tasks(&self, mcp_caller: &McpCaller, request: &ClientRequest) -> RpcResult {
        let start = match request.raw_member("cursor").filter(|cursor| cursor.as_str() != "null") {
            None => 0,
            Some(cursor) => {
                let bad = || RpcError::new(RpcError::INVALID_PARAMS, "invalid `cursor`");
                cursor.parse::<String>().ok().and_then(|at| at.parse::<usize>().ok()).ok_or_else(bad)?
            }
        };
        let tasks = |service: &Self, caller: &McpCaller, _: &_| service.runtime.tasks_of(&caller.caller);
        let own = self.list(mcp_caller, request, tasks).await;
        let page = own.iter().skip(start).take(PAGE);
        let asked = page.map(async |id| {
            let operation =
                self.task_operation(mcp_caller, request, id.clone(), TaskMethod::Get, &["cursor"]);
            self.runtime.execute(&mcp_caller.caller, operation).await.reply
        });
        let found = join_all(asked).await.into_iter().flatten();
        let tasks: Vec<Value> = found.filter_map(|task| task.parse().ok()).map(without_meta).collect();
        let mut result = json!({ "tasks": tasks });
        if start + PAGE < own.len() {
            result["nextCursor"] = (start + PAGE).to_string().into();
        }
        Ok(RawJson::from_value(&result))
    }

    pub(super) async fn task_request(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        // Only one revision has `tasks/list`; clients of the newest are rejected before they get here.
        if &*request.method == "tasks/list" && request.client.revision() == Revision::V2025_11_25 {
            return self.list_tasks(mcp_caller, &request).await;
        }
        let method = match &*request.method {
            "tasks/get" => TaskMethod::Get,
            "tasks/result" => TaskMethod::Result,
            "tasks/update" => TaskMethod::Update,
            "tasks/cancel" => TaskMethod::Cancel,
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(RpcError::new(
                    RpcError::METHOD_NOT_FOUND,
                    format!("there is no method `{other}`"),
                ));
            }
        };
        if !request.client.revision().has_handshake() && !request.client.has_extension(EXTENSION) {
            return Err(RpcError {
                data: Some(RawJson::from_value(
                    &json!({ "requiredCapabilities": { "extensions": { EXTENSION: {} } } }),
                )),
                ..RpcError::new(
                    RpcError::MISSING_CAPABILITY,
                    "the client did not declare the tasks extension",
                )
            });
        }
        let id: String = request.member("taskId")?;
        let operation = self.task_operation(mcp_caller, &request, id.clone(), method, &["taskId"]);
        let outcome = self.runtime.execute(&mcp_caller.caller, operation).await;
        if outcome.result.error.as_ref().is_some_and(|error| error.code == ErrorCode::NotFound) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no task `{id}`")));
        }
        rpc_result(outcome, request.client.revision())
    }

    fn task_operation(
        &self,
        mcp_caller: &McpCaller,
        request: &ClientRequest,
        id: String,
        method: TaskMethod,
        known: &[&str],
    ) -> Operation {
        let Operation { target, arguments, .. } = Operation::task(id, method);
        self.operation(mcp_caller, request, (target, arguments), known)
    }
}
