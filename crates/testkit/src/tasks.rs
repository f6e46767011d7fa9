//! Tasks of the revision that had them in its core: every call becomes one, which is never done.

use std::sync::Mutex;

use serde_json::{Value, json};

/// What each of them was called with; their ids have its place, behind a word of this process.
static ALL: Mutex<Vec<Value>> = Mutex::new(Vec::new());

pub(crate) fn knows(method: &str) -> bool {
    matches!(method, "tools/call" | "tasks/get" | "tasks/cancel")
}

pub(crate) fn answer(method: &str, params: &Value) -> Result<Value, (i64, String)> {
    let mut all = ALL.lock().expect("nobody panics with it");
    if method == "tools/call" {
        all.push(params["arguments"].clone());
        return Ok(json!({ "task": task(all.len(), "working", "") }));
    }
    let id = params["taskId"].as_str().unwrap_or_default();
    let number = id.strip_prefix(&prefix()).and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
    let said = number.checked_sub(1).and_then(|at| all.get_mut(at));
    let Some(said) = said.filter(|said| !said.is_null()) else {
        return Err((-32602, format!("there is no task {id}")));
    };
    let message = said["message"].as_str().unwrap_or_default().to_owned();
    if method == "tasks/cancel" {
        *said = Value::Null;
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
