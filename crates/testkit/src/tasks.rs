//! Tasks as the core of revision 2025-11-25 has them: every call becomes a task that never finishes.

use std::sync::Mutex;

use serde_json::{Value, json};

/// Arguments of each task, by number. The task ID is the process ID and this number.
static TASK_ARGUMENTS: Mutex<Vec<Value>> = Mutex::new(Vec::new());

pub(crate) fn handles(method: &str) -> bool {
    matches!(method, "tools/call" | "tasks/get" | "tasks/cancel")
}

pub(crate) fn answer(method: &str, params: &Value) -> Result<Value, (i64, String)> {
    let mut all = TASK_ARGUMENTS.lock().expect("the lock is not poisoned");
    if method == "tools/call" {
        all.push(params["arguments"].clone());
        return Ok(json!({ "task": task(all.len(), "working", "") }));
    }
    let id = params["taskId"].as_str().unwrap_or_default();
    let number = id.strip_prefix(&prefix()).and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
    let task_arguments = number.checked_sub(1).and_then(|at| all.get_mut(at));
    let Some(task_arguments) = task_arguments.filter(|arguments| !arguments.is_null()) else {
        return Err((-32602, format!("there is no task {id}")));
    };
    let message = task_arguments["message"].as_str().unwrap_or_default().to_owned();
    if method == "tasks/cancel" {
        *task_arguments = Value::Null;
        return Ok(task(number, "cancelled", &message));
    }
    Ok(task(number, "working", &message))
}

fn prefix() -> String {
    format!("task-{}-", std::process::id())
}

fn task(number: usize, status: &str, message: &str) -> Value {
    json!({ "taskId": format!("{}{number}", prefix()), "status": status, "statusMessage": message,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": null })
}
