//! Tasks: which server has one, and whose it is.
//!
//! A task goes on after the call that began it; what is asked of it later goes to the server that has it. Only
//! the caller that began it finds it again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::json;
use toolgate_mcp::serve::{Outcome, Request, in_words_of};
use toolgate_mcp::{Params, Raw, RpcError};
use toolgate_runtime::Runtime;
use toolgate_runtime::runtime::Ask;
use toolgate_types::ServerName;

use super::others::refused;
use super::{Gateway, Visitor, name_of};

/// The extension that has them in the newest revision.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Tasks that are remembered.
const MOST: usize = 10_000;

/// Where tasks are.
#[derive(Default)]
pub(super) struct Tasks(Mutex<Known>);

#[derive(Default)]
struct Known {
    places: HashMap<(String, String), ServerName>,
    order: VecDeque<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    #[serde(default)]
    task: Option<Task>,
    #[serde(default)]
    task_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    task_id: String,
}

impl Tasks {
    /// Remembers the task that a reply tells of.
    pub(super) fn learn(&self, visitor: &Visitor, runtime: &Runtime, tool: &str, reply: Option<&Raw>) {
        let Some(reply) = reply.filter(|reply| reply.get().contains("\"taskId\"")) else { return };
        let Ok(begun) = reply.parse::<Begun>() else { return };
        let Some(id) = begun.task.map(|task| task.task_id).or(begun.task_id) else { return };
        let catalog = runtime.catalog();
        let Some(server) = catalog.resolve(tool).and_then(|tool| tool.server.clone()) else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (visitor.caller.id.to_string(), id);
        if known.places.insert(key.clone(), server).is_none() {
            known.order.push_back(key);
        }
        if known.order.len() > MOST
            && let Some(oldest) = known.order.pop_front()
        {
            known.places.remove(&oldest);
        }
    }

    fn find(&self, visitor: &Visitor, id: &str) -> Option<ServerName> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.places.get(&(visitor.caller.id.to_string(), id.to_owned())).cloned()
    }
}

impl Gateway {
    pub(super) async fn task(&self, visitor: &Visitor, request: Request) -> Outcome {
        let what = match &*request.method {
            "tasks/get" => Ask::TaskGet,
            "tasks/result" => Ask::TaskResult,
            "tasks/update" => Ask::TaskUpdate,
            "tasks/cancel" => Ask::TaskCancel,
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(RpcError::new(
                    RpcError::METHOD_NOT_FOUND,
                    format!("there is no method `{other}`"),
                ));
            }
        };
        if !request.client.revision().has_handshake() && !request.client.extends(EXTENSION) {
            return Err(RpcError {
                data: Some(Raw::of(&json!({ "requiredCapabilities": { "extensions": { EXTENSION: {} } } }))),
                ..RpcError::new(
                    RpcError::MISSING_CAPABILITY,
                    "the client did not declare that it knows of tasks",
                )
            });
        }
        let id: String = request.member("taskId")?;
        let server = self.tasks.find(visitor, &id);
        let server = server
            .ok_or_else(|| RpcError::new(RpcError::INVALID_PARAMS, format!("there is no task `{id}`")))?;
        let params = Params::none().with("taskId", &id);
        let along = request.along(&["taskId"]);
        let passed = self.runtime.pass(name_of(&server), what, params, (&along, &request.trace)).await;
        let revision = request.client.revision();
        passed.map(|result| in_words_of(revision, result)).map_err(|error| refused(error, revision))
    }
}
