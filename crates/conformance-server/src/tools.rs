//! The tools that the suite calls: one row each in [`definitions`], one arm each in [`run`].

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

use crate::ask::{Round, Stop};
use crate::server::{Change, Fixture};
use crate::{tasks, typed};

/// A picture of one red pixel.
pub(crate) const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// A sound of no samples.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// The pause between two messages about one call: long enough to be seen apart.
const PAUSE: Duration = Duration::from_millis(50);

/// One call.
pub(crate) struct Call<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) round: Round<'a>,
    arguments: Value,
}

impl Call<'_> {
    /// An argument that is a text, or this.
    pub(crate) fn text<'b>(&'b self, name: &str, otherwise: &'b str) -> &'b str {
        self.arguments[name].as_str().unwrap_or(otherwise)
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.arguments[name].as_f64().unwrap_or_default()
    }

    async fn progress(&self, progress: f64) {
        if let Some(token) = self.round.context.meta.get_progress_token() {
            let step = ProgressNotificationParam::new(token, progress).with_total(100.0);
            // Who asked may be gone.
            let _ = self.round.context.peer.notify_progress(step).await;
        }
    }
}

pub(crate) fn list(fixture: &Fixture) -> ListToolsResult {
    typed(json!({ "resultType": "complete", "tools": definitions::all(fixture) }))
}

pub(crate) async fn call(
    fixture: &Fixture,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let round = Round {
        context,
        responses: request.input_responses,
        state: request.request_state,
        codec: &fixture.shared.codec,
    };
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    match run(&Call { fixture, round, arguments }, &request.name).await {
        Ok(response) => Ok(response),
        Err(Stop::Asked(questions)) => Ok((*questions).into()),
        Err(Stop::Failed(error)) => Err(error),
    }
}

async fn run(call: &Call<'_>, name: &str) -> Result<CallToolResponse, Stop> {
    Ok(match name {
        "test_simple_text" => said("This is a simple text response for testing."),
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
                logging::info(call, message).await;
                sleep(PAUSE).await;
            }
            said("It was logged.")
        }
        "test_logging_tool" => {
            logging::info(call, "the logging tool was called").await;
            said("It was logged, for whoever wanted to know.")
        }
        "test_tool_with_progress" => {
            for progress in [0.0, 50.0, 100.0] {
                call.progress(progress).await;
                sleep(PAUSE).await;
            }
            said("It is done.")
        }
        // The library does not let a tool close its stream, so this is only a tool that takes its time.
        "test_reconnection" => {
            sleep(PAUSE).await;
            said("Still here.")
        }
        "test_custom_header" => said(call.text("region", "nowhere")),
        "json_schema_2020_12_tool" => said(call.text("name", "nobody")),
        "greet" => said(&format!("Hello, {}!", call.text("name", "nobody"))),
        "test_trigger_tool_change" => changed(call, Change::Tools).await,
        "test_trigger_prompt_change" => changed(call, Change::Prompts).await,
        "test_trigger_resource_change" => changed(call, Change::Resource).await,
        "test_tool_that_comes_and_goes" => said("Here for now."),
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

async fn changed(call: &Call<'_>, change: Change) -> CallToolResponse {
    call.fixture.change(change).await;
    said("It has changed.")
}

/// A result of this content.
fn result(content: &[Value], is_error: bool) -> CallToolResponse {
    CallToolResponse::Complete(outcome(content, is_error))
}

/// The same, for what a task ends with.
pub(crate) fn outcome(content: &[Value], is_error: bool) -> CallToolResult {
    let mut result = json!({ "resultType": "complete", "content": content });
    if is_error {
        result["isError"] = json!(true);
    }
    typed(result)
}

/// A result that is one text.
pub(crate) fn said(words: &str) -> CallToolResponse {
    result(&[text(words)], false)
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
