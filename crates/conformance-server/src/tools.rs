//! Tools of the conformance suite: one row each in [`definitions`], one arm each in [`run`].

pub(crate) mod definitions;
pub(crate) mod logging;
mod questions;

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, ListToolsResult,
    ProgressNotificationParam,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::ask::{CallInterrupt, RequestRound};
use crate::server::{FixtureServer, ServerChange};
use crate::{from_wire, tasks};

/// PNG image of one red pixel.
pub(crate) const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// WAV sound without samples.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// Pause between two messages of one call, long enough to tell them apart.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct ToolCall<'a> {
    pub(crate) fixture: &'a FixtureServer,
    pub(crate) round: RequestRound<'a>,
    arguments: Value,
}

impl ToolCall<'_> {
    /// Returns a string argument, or the default.
    pub(crate) fn text<'b>(&'b self, name: &str, default: &'b str) -> &'b str {
        self.arguments[name].as_str().unwrap_or(default)
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.arguments[name].as_f64().unwrap_or_default()
    }

    async fn progress(&self, progress: f64) {
        if let Some(token) = self.round.context.meta.get_progress_token() {
            let step = ProgressNotificationParam::new(token, progress).with_total(100.0);
            // The client may be gone.
            let _ = self.round.context.peer.notify_progress(step).await;
        }
    }
}

pub(crate) fn list(fixture: &FixtureServer) -> ListToolsResult {
    from_wire(json!({ "resultType": "complete", "tools": definitions::all(fixture) }))
}

pub(crate) async fn call(
    fixture: &FixtureServer,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let round = RequestRound {
        context,
        responses: request.input_responses,
        state: request.request_state,
        codec: &fixture.shared.codec,
    };
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    match run(&ToolCall { fixture, round, arguments }, &request.name).await {
        Ok(response) => Ok(response),
        Err(CallInterrupt::InputRequired(questions)) => Ok((*questions).into()),
        Err(CallInterrupt::Failed(error)) => Err(error),
    }
}

async fn run(call: &ToolCall<'_>, name: &str) -> Result<CallToolResponse, CallInterrupt> {
    Ok(match name {
        "test_simple_text" => text_result("This is a simple text response for testing."),
        "test_image_content" => result(&[image()], false),
        "test_audio_content" => {
            result(&[json!({ "type": "audio", "data": SOUND, "mimeType": "audio/wav" })], false)
        }
        "test_embedded_resource" => {
            let text = "This is an embedded resource content.";
            result(&[resource("test://embedded-resource", "text/plain", text)], false)
        }
        "test_multiple_content_types" => {
            let data = resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            );
            result(&[text("Multiple content types test:"), image(), data], false)
        }
        "test_error_handling" => {
            result(&[text("This tool intentionally returns an error for testing")], true)
        }
        "test_tool_with_logging" => {
            for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                logging::log_info(call, message).await;
                sleep(PAUSE).await;
            }
            text_result("It was logged.")
        }
        "test_logging_tool" => {
            logging::log_info(call, "the logging tool was called").await;
            text_result("It was logged, if the client asked for logs.")
        }
        "test_tool_with_progress" => {
            for progress in [0.0, 50.0, 100.0] {
                call.progress(progress).await;
                sleep(PAUSE).await;
            }
            text_result("It is done.")
        }
        // The library does not let a tool close its stream, so this tool only takes some time.
        "test_reconnection" => {
            sleep(PAUSE).await;
            text_result("Still here.")
        }
        "test_custom_header" => text_result(call.text("region", "nowhere")),
        "json_schema_2020_12_tool" => text_result(call.text("name", "unknown")),
        "greet" => text_result(&format!("Hello, {}!", call.text("name", "unknown"))),
        "test_trigger_tool_change" => trigger_change(call, ServerChange::Tools).await,
        "test_trigger_prompt_change" => trigger_change(call, ServerChange::Prompts).await,
        "test_trigger_resource_change" => trigger_change(call, ServerChange::Resource).await,
        "test_tool_that_comes_and_goes" => text_result("Here for now."),
        _ => {
            if let Some(response) = questions::run(call, name).await? {
                return Ok(response);
            }
            match tasks::run(call, name).await? {
                Some(response) => response,
                None => return Err(ErrorData::invalid_params(format!("unknown tool {name:?}"), None).into()),
            }
        }
    })
}

async fn trigger_change(call: &ToolCall<'_>, change: ServerChange) -> CallToolResponse {
    call.fixture.apply_change(change).await;
    text_result("It has changed.")
}

/// Returns a response with this content.
fn result(content: &[Value], is_error: bool) -> CallToolResponse {
    CallToolResponse::Complete(call_result(content, is_error))
}

/// Returns a result with this content, for a response or a task.
pub(crate) fn call_result(content: &[Value], is_error: bool) -> CallToolResult {
    let mut result = json!({ "resultType": "complete", "content": content });
    if is_error {
        result["isError"] = json!(true);
    }
    from_wire(result)
}

/// Returns a response with one text.
pub(crate) fn text_result(content: &str) -> CallToolResponse {
    result(&[text(content)], false)
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image() -> Value {
    json!({ "type": "image", "data": IMAGE, "mimeType": "image/png" })
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } })
}
