//! The tools that work as tasks of the extension, for clients that know it.
//!
//! For others they do the same while the call waits, but for those that are tasks or nothing.

use std::time::Duration;

use futures_util::future::try_join;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, CreateTaskResult, ErrorData, TASKS_EXTENSION_ID,
};
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::ask::{Stop, field, form};
use crate::tools::{Call, outcome, said, text};
use crate::typed;

/// How long a job takes that takes a while.
const A_WHILE: Duration = Duration::from_millis(300);

/// Runs the tool, if it is one of these.
pub(crate) async fn run(call: &Call<'_>, name: &str) -> Result<Option<CallToolResponse>, Stop> {
    let as_task = call.round.is_modern() && call.round.capabilities().supports_tasks();
    let response = match name {
        "slow_compute" => {
            let time = Duration::from_secs_f64(call.number("seconds").clamp(0.0, 600.0));
            let words = format!("Computed {}", call.text("label", "something"));
            if as_task {
                spawn(call, move |task| Box::pin(compute(task, time, words)))
            } else {
                sleep(time).await;
                said(&words)
            }
        }
        "failing_job" => {
            needs_tasks(call)?;
            spawn(call, |_| {
                Box::pin(async {
                    sleep(A_WHILE).await;
                    Ok(outcome(&[text("The job failed.")], true))
                })
            })
        }
        "protocol_error_job" => {
            let broken = || ErrorData::internal_error("the job broke", None);
            if !as_task {
                return Err(broken().into());
            }
            spawn(call, move |_| Box::pin(async move { Err(TaskExit::Error(broken())) }))
        }
        "confirm_delete" => {
            let file = call.text("filename", "everything").to_owned();
            if as_task {
                spawn(call, move |task| Box::pin(delete(task, file)))
            } else {
                let answers = call.round.ask(&[("confirm", confirmation(&file))], None).await?;
                said(&deleted(&file, &answers["confirm"]))
            }
        }
        "multi_input" => {
            let (one, other) = (name_form("And the one?"), name_form("And the other?"));
            if as_task {
                spawn(call, move |task| Box::pin(two_names(task, one, other)))
            } else {
                let answers = call.round.ask(&[("one", one), ("other", other)], None).await?;
                said(&both(&answers["one"], &answers["other"]))
            }
        }
        "test_tool_with_task" => {
            needs_tasks(call)?;
            let answers = call.round.ask(&[("user_name", name_form("What is your name?"))], None).await?;
            let words = format!("Worked for {}", field(&answers["user_name"], "name"));
            spawn(call, move |task| Box::pin(compute(task, A_WHILE, words)))
        }
        _ => return Ok(None),
    };
    Ok(Some(response))
}

fn spawn(call: &Call<'_>, work: impl FnOnce(TaskContext) -> TaskFuture) -> CallToolResponse {
    let options = TaskOptions::new().with_poll_interval_ms(100);
    CreateTaskResult::new(call.fixture.shared.tasks.spawn(options, work)).into()
}

fn needs_tasks(call: &Call<'_>) -> Result<(), ErrorData> {
    if call.round.capabilities().supports_tasks() {
        return Ok(());
    }
    let needed: ClientCapabilities = typed(json!({ "extensions": { TASKS_EXTENSION_ID: {} } }));
    Err(ErrorData::missing_required_client_capability(needed))
}

/// Works until it is done or cancelled.
async fn compute(task: TaskContext, time: Duration, words: String) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = sleep(time) => Ok(outcome(&[text(&words)], false)),
        () = task.cancelled() => Err(TaskExit::Cancelled),
    }
}

async fn delete(task: TaskContext, file: String) -> Result<CallToolResult, TaskExit> {
    let answer = task.request_input("confirm", typed(confirmation(&file))).await?;
    Ok(outcome(&[text(&deleted(&file, &answer))], false))
}

async fn two_names(task: TaskContext, one: Value, other: Value) -> Result<CallToolResult, TaskExit> {
    let asked =
        try_join(task.request_input("one", typed(one)), task.request_input("other", typed(other))).await?;
    Ok(outcome(&[text(&both(&asked.0, &asked.1))], false))
}

fn confirmation(file: &str) -> Value {
    form(&format!("Delete {file}?"), json!({ "confirm": { "type": "boolean" } }))
}

fn name_form(message: &str) -> Value {
    form(message, json!({ "name": { "type": "string" } }))
}

fn deleted(file: &str, answer: &Value) -> String {
    let done = answer["content"]["confirm"] == true;
    format!("{file} was {}", if done { "deleted, or would have been" } else { "kept" })
}

fn both(one: &Value, other: &Value) -> String {
    format!("{} and {}", field(one, "name"), field(other, "name"))
}
