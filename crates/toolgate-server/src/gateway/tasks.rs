//! Tasks: which server has one, and whose it is.
//!
//! A task goes on after the call that began it; what is asked of it later goes to the server that has it. Only
//! the caller that began it finds it again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_mcp::serve::{Outcome, Request, in_words_of};
use toolgate_mcp::{Params, Raw, Revision, RpcError};
use toolgate_runtime::Runtime;
use toolgate_runtime::runtime::Ask;
use toolgate_types::ServerName;

use super::others::refused;
use super::{Gateway, Visitor, name_of};

/// The extension that has them in the newest revision.
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Tasks that are remembered.
const MOST: usize = 10_000;
/// Tasks on one page of a list.
const PAGE: usize = 50;

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

/// A task without what belongs to the answer that told of it.
fn bare(mut task: Value) -> Value {
    if let Some(task) = task.as_object_mut() {
        task.remove("_meta");
    }
    task
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
        // Who gave an id first has it: no server gets what belongs to a task of another.
        if !known.places.contains_key(&key) {
            known.places.insert(key.clone(), server);
            known.order.push_back(key);
        }
        if known.order.len() > MOST
            && let Some(oldest) = known.order.pop_front()
        {
            known.places.remove(&oldest);
        }
    }

    /// The tasks of a caller, the newest first.
    fn of(&self, visitor: &Visitor) -> Vec<(String, ServerName)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = visitor.caller.id.as_str();
        let own = known.order.iter().rev().filter(|(owner, _)| owner == caller);
        own.filter_map(|key| Some((key.1.clone(), known.places.get(key)?.clone()))).collect()
    }

    fn find(&self, visitor: &Visitor, id: &str) -> Option<ServerName> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.places.get(&(visitor.caller.id.to_string(), id.to_owned())).cloned()
    }
}

impl Gateway {
    /// The tasks of a caller, page by page: each is asked for at the server that has it. One that the server does
    /// not know any more is left out.
    async fn tasks(&self, visitor: &Visitor, request: &Request) -> Outcome {
        let start = match request.raw_member("cursor").filter(|cursor| cursor.get() != "null") {
            None => 0,
            Some(cursor) => {
                let bad = || RpcError::new(RpcError::INVALID_PARAMS, "the `cursor` is not one of ours");
                cursor.parse::<String>().ok().and_then(|at| at.parse::<usize>().ok()).ok_or_else(bad)?
            }
        };
        let own = self.tasks.of(visitor);
        let page = own.iter().skip(start).take(PAGE);
        let asked = page.map(async |(id, server)| {
            let params = Params::none().with("taskId", id);
            let along = request.along(&["cursor"]);
            self.runtime.pass(name_of(server), Ask::TaskGet, params, (&along, &request.trace)).await.ok()
        });
        let found = join_all(asked).await.into_iter().flatten();
        let tasks: Vec<Value> = found.filter_map(|task| task.parse().ok()).map(bare).collect();
        let mut result = json!({ "tasks": tasks });
        if start + PAGE < own.len() {
            result["nextCursor"] = (start + PAGE).to_string().into();
        }
        Ok(Raw::of(&result))
    }

    pub(super) async fn task(&self, visitor: &Visitor, request: Request) -> Outcome {
        // Only one revision has a list, and clients of the newest are told so before they get here.
        if &*request.method == "tasks/list" && request.client.revision() == Revision::V2025_11_25 {
            return self.tasks(visitor, &request).await;
        }
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
