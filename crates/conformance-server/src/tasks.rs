//! Tools that run as tasks, for clients that support the tasks extension.
//!
//! For other clients they run within the call, except those that work only as tasks.

use std::time::Duration;

use futures_util::future::try_join;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, CreateTaskResult, ErrorData, TASKS_EXTENSION_ID,
};
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::ask::{CallInterrupt, form_field, form_question};
use crate::from_wire;
use crate::tools::{ToolCall, call_result, text, text_result};

/// Duration of a job.
const JOB_DURATION: Duration = Duration::from_millis(300);

/// Runs the tool if it is one of these; otherwise returns `None`.
pub(crate) async fn run(call: &ToolCall<'_>, name: &str) -> Result<Option<CallToolResponse>, CallInterrupt> {
    let as_task = call.round.is_modern() && call.round.capabilities().supports_tasks();
    let response = match name {
        "slow_compute" => {
            let time = Duration::from_secs_f64(call.number("seconds").clamp(0.0, 600.0));
            let words = format!("Computed {}", call.text("label", "something"));
            if as_task {
                spawn(call, move |task| Box::pin(compute(task, time, words)))
            } else {
                sleep(time).await;
                text_result(&words)
            }
        }
        "failing_job" => {
            require_tasks(call)?;
            spawn(call, |_| {
                Box::pin(async {
                    sleep(JOB_DURATION).await;
                    Ok(call_result(&[text("The job failed.")], true))
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
                text_result(&deletion_text(&file, &answers["confirm"]))
            }
        }
        "multi_input" => {
            let (one, other) = (name_form("And the one?"), name_form("And the other?"));
            if as_task {
                spawn(call, move |task| Box::pin(two_names(task, one, other)))
            } else {
                let answers = call.round.ask(&[("one", one), ("other", other)], None).await?;
                text_result(&both_names(&answers["one"], &answers["other"]))
            }
        }
        "test_tool_with_task" => {
            require_tasks(call)?;
            let answers = call.round.ask(&[("user_name", name_form("What is your name?"))], None).await?;
            let words = format!("Worked for {}", form_field(&answers["user_name"], "name"));
            spawn(call, move |task| Box::pin(compute(task, JOB_DURATION, words)))
        }
        _ => return Ok(None),
    };
    Ok(Some(response))
}

fn spawn(call: &ToolCall<'_>, work: impl FnOnce(TaskContext) -> TaskFuture) -> CallToolResponse {
    let options = TaskOptions::new().with_poll_interval_ms(100);
    CreateTaskResult::new(call.fixture.shared.tasks.spawn(options, work)).into()
}

fn require_tasks(call: &ToolCall<'_>) -> Result<(), ErrorData> {
    if call.round.capabilities().supports_tasks() {
        return Ok(());
    }
    let needed: ClientCapabilities = from_wire(json!({ "extensions": { TASKS_EXTENSION_ID: {} } }));
    Err(ErrorData::missing_required_client_capability(needed))
}

/// Works until done or cancelled.
async fn compute(task: TaskContext, time: Duration, words: String) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = sleep(time) => Ok(call_result(&[text(&words)], false)),
        () = task.cancelled() => Err(TaskExit::Cancelled),
    }
}

async fn delete(task: TaskContext, file: String) -> Result<CallToolResult, TaskExit> {
    let answer = task.request_input("confirm", from_wire(confirmation(&file))).await?;
    Ok(call_result(&[text(&deletion_text(&file, &answer))], false))
}

async fn two_names(task: TaskContext, one: Value, other: Value) -> Result<CallToolResult, TaskExit> {
    let asked =
        try_join(task.request_input("one", from_wire(one)), task.request_input("other", from_wire(other)))
            .await?;
    Ok(call_result(&[text(&both_names(&asked.0, &asked.1))], false))
}

fn confirmation(file: &str) -> Value {
    form_question(&format!("Delete {file}?"), json!({ "confirm": { "type": "boolean" } }))
}

fn name_form(message: &str) -> Value {
    form_question(message, json!({ "name": { "type": "string" } }))
}

fn deletion_text(file: &str, answer: &Value) -> String {
    let done = answer["content"]["confirm"] == true;
    format!("{file} was {}", if done { "deleted, or would have been" } else { "kept" })
}

fn both_names(one: &Value, other: &Value) -> String {
    format!("{} and {}", form_field(one, "name"), form_field(other, "name"))
}
