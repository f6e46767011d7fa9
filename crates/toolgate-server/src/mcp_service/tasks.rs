//! Tasks: the server and the caller of each.
//!
//! A task outlives the call that started it; later requests for it go to the same server. Only the caller that started
//! a task can find it.

use std::collections::{HashMap, VecDeque};

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_mcp::server::{ClientRequest, RpcResult, adapt_result};
use toolgate_mcp::{Params, RawJson, Revision, RpcError};
use toolgate_runtime::Runtime;
use toolgate_runtime::runtime::RequestKind;
use toolgate_types::ServerName;

use super::forward::rpc_error;
use super::{McpCaller, McpService, name_of};

/// Extension that defines tasks in the newest revision.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Tasks in the registry. The oldest are forgotten first.
const MAX_TASKS: usize = 10_000;
/// Tasks per page.
const PAGE: usize = 50;

/// Maps tasks to their servers.
#[derive(Default)]
pub(super) struct TaskRegistry(Mutex<TaskTable>);

#[derive(Default)]
struct TaskTable {
    servers: HashMap<(String, String), ServerName>,
    order: VecDeque<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskReply {
    #[serde(default)]
    task: Option<TaskRef>,
    #[serde(default)]
    task_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskRef {
    task_id: String,
}

/// Removes `_meta`, which belongs to the response and not to the task.
fn without_meta(mut task: Value) -> Value {
    if let Some(task) = task.as_object_mut() {
        task.remove("_meta");
    }
    task
}

impl TaskRegistry {
    /// Records the task a reply refers to, if any.
    pub(super) fn record(
        &self,
        mcp_caller: &McpCaller,
        runtime: &Runtime,
        tool: &str,
        reply: Option<&RawJson>,
    ) {
        let Some(reply) = reply.filter(|reply| reply.as_str().contains("\"taskId\"")) else { return };
        let Ok(begun) = reply.parse::<TaskReply>() else { return };
        let Some(id) = begun.task.map(|task| task.task_id).or(begun.task_id) else { return };
        let catalog = runtime.catalog();
        let Some(server) = catalog.resolve(tool).and_then(|tool| tool.server.clone()) else { return };
        let mut table = self.0.lock();
        let key = (mcp_caller.caller.id.to_string(), id);
        // The first server to use an id keeps it, so that no server receives requests for a task of another.
        if !table.servers.contains_key(&key) {
            table.servers.insert(key.clone(), server);
            table.order.push_back(key);
        }
        if table.order.len() > MAX_TASKS
            && let Some(oldest) = table.order.pop_front()
        {
            table.servers.remove(&oldest);
        }
    }

    /// Tasks of a caller, newest first.
    fn tasks_of(&self, mcp_caller: &McpCaller) -> Vec<(String, ServerName)> {
        let table = self.0.lock();
        let caller = mcp_caller.caller.id.as_str();
        let own = table.order.iter().rev().filter(|(owner, _)| owner == caller);
        own.filter_map(|key| Some((key.1.clone(), table.servers.get(key)?.clone()))).collect()
    }

    fn find(&self, mcp_caller: &McpCaller, id: &str) -> Option<ServerName> {
        let table = self.0.lock();
        table.servers.get(&(mcp_caller.caller.id.to_string(), id.to_owned())).cloned()
    }
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
        let own = self.task_registry.tasks_of(mcp_caller);
        let page = own.iter().skip(start).take(PAGE);
        let asked = page.map(async |(id, server)| {
            let params = Params::none().with("taskId", id);
            let along = request.forwarded(&["cursor"]);
            self.runtime
                .forward(name_of(server), RequestKind::TaskGet, params, (&along, &request.trace))
                .await
                .ok()
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
        let what = match &*request.method {
            "tasks/get" => RequestKind::TaskGet,
            "tasks/result" => RequestKind::TaskResult,
            "tasks/update" => RequestKind::TaskUpdate,
            "tasks/cancel" => RequestKind::TaskCancel,
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
        let server = self.task_registry.find(mcp_caller, &id);
        let server = server
            .ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, format!("there is no task `{id}`")))?;
        let params = Params::none().with("taskId", &id);
        let along = request.forwarded(&["taskId"]);
        let forwarded = self.runtime.forward(name_of(&server), what, params, (&along, &request.trace)).await;
        let revision = request.client.revision();
        forwarded.map(|result| adapt_result(revision, result)).map_err(|error| rpc_error(error, revision))
    }
}
