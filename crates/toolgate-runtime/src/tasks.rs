//! Tasks: tool calls that go on after their first reply.
//!
//! A task outlives the call that started it; later requests for it go to the same server. Each request is decided like
//! the call was, so a caller that lost the right to the tool loses its tasks. Invariant: only the caller that started a
//! task can find it.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde::Deserialize;
use toolgate_json::CallArguments;
use toolgate_types::{CallerId, ServerName};
use toolgate_upstream::RawJson;

/// Tasks that are remembered. The oldest are forgotten first.
const MAX_TASKS: usize = 10_000;
/// Bytes of all remembered arguments.
const MAX_ARGUMENT_BYTES: usize = 32 << 20;

/// A task and the call that started it.
#[derive(Debug, Clone)]
pub(crate) struct TaskOrigin {
    pub(crate) server: ServerName,
    /// Session of the call. It may have its own connection to the server.
    pub(crate) session: Option<Box<str>>,
    /// Name of the tool, as callers know it.
    pub(crate) tool: String,
    /// Arguments of the call, for the policy.
    pub(crate) arguments: CallArguments,
    /// Name of the approver, if the call needed approval.
    pub(crate) approved_by: Option<String>,
}

/// All tasks, by caller and id.
#[derive(Debug, Default)]
pub(crate) struct TaskRegistry(Mutex<TaskTable>);

type TaskKey = (CallerId, String);

#[derive(Debug, Default)]
struct TaskTable {
    tasks: HashMap<TaskKey, TaskOrigin>,
    order: VecDeque<TaskKey>,
    argument_bytes: usize,
}

impl TaskTable {
    fn remove_oldest(&mut self) {
        if let Some(task) = self.order.pop_front().and_then(|oldest| self.tasks.remove(&oldest)) {
            self.argument_bytes -= task.arguments.raw().bytes().len();
        }
    }
}

impl TaskRegistry {
    /// Remembers a task. The first server to use an id keeps it, so that no server receives requests for a task of
    /// another.
    pub(crate) fn insert(&self, caller: &CallerId, id: String, task: TaskOrigin) {
        let mut table = self.0.lock();
        let key = (caller.clone(), id);
        if table.tasks.contains_key(&key) {
            return;
        }
        table.argument_bytes += task.arguments.raw().bytes().len();
        table.tasks.insert(key.clone(), task);
        table.order.push_back(key);
        while table.order.len() > MAX_TASKS || table.argument_bytes > MAX_ARGUMENT_BYTES {
            table.remove_oldest();
        }
    }

    pub(crate) fn find(&self, caller: &CallerId, id: &str) -> Option<TaskOrigin> {
        self.0.lock().tasks.get(&(caller.clone(), id.to_owned())).cloned()
    }

    /// Ids of the tasks of a caller, newest first.
    pub(crate) fn ids_of(&self, caller: &CallerId) -> Vec<String> {
        let table = self.0.lock();
        table.order.iter().rev().filter(|(owner, _)| owner == caller).map(|(_, id)| id.clone()).collect()
    }
}

/// Returns the id of the task that a reply started, if it did.
pub(crate) fn started_task(reply: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TaskReply {
        #[serde(default)]
        task: Option<TaskReference>,
        #[serde(default)]
        task_id: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TaskReference {
        task_id: String,
    }
    if !reply.as_str().contains("\"taskId\"") {
        return None;
    }
    let reply: TaskReply = reply.parse().ok()?;
    reply.task.map(|task| task.task_id).or(reply.task_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_belong_to_their_caller_and_are_bounded() {
        let (registry, ann) = (TaskRegistry::default(), "ann".parse::<CallerId>().unwrap());
        let task = |server: &str, bytes: usize| TaskOrigin {
            server: server.parse().unwrap(),
            session: None,
            tool: "t".to_owned(),
            arguments: RawJson::from_value(&serde_json::json!({ "x": "y".repeat(bytes) })).into(),
            approved_by: None,
        };
        registry.insert(&ann, "1".to_owned(), task("a", 1));
        registry.insert(&ann, "1".to_owned(), task("b", 1));
        let server = |id: &str| registry.find(&ann, id).map(|task| task.server.to_string());
        assert_eq!(server("1").as_deref(), Some("a"), "the first server keeps the id");
        assert!(registry.find(&"bob".parse().unwrap(), "1").is_none());
        registry.insert(&ann, "2".to_owned(), task("a", MAX_ARGUMENT_BYTES - 100));
        assert_eq!(registry.ids_of(&ann), ["2", "1"]);
        registry.insert(&ann, "3".to_owned(), task("a", 200));
        assert_eq!(registry.ids_of(&ann), ["3"], "the oldest are forgotten, by bytes");
        for number in 0..MAX_TASKS {
            registry.insert(&ann, format!("n{number}"), task("a", 1));
        }
        assert_eq!(registry.ids_of(&ann).len(), MAX_TASKS);
        assert!(server("3").is_none(), "and by number");
    }

    #[test]
    fn finds_the_task_of_a_reply() {
        let started = |text: &str| started_task(&RawJson::from_trusted(text.to_owned()));
        assert_eq!(started(r#"{"task":{"taskId":"a"}}"#).as_deref(), Some("a"));
        assert_eq!(started(r#"{"resultType":"task","taskId":"b"}"#).as_deref(), Some("b"));
        assert_eq!(started(r#"{"content":[]}"#), None);
    }
}
