//! Prompts of the conformance suite. They are the same in all revisions.

use std::sync::atomic::Ordering;

use rmcp::model::{ErrorData, GetPromptRequestParams, GetPromptResponse, ListPromptsResult};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

use crate::ask::{CallInterrupt, RequestRound, form_question};
use crate::from_wire;
use crate::server::FixtureServer;
use crate::tools::IMAGE;

pub(crate) fn list(fixture: &FixtureServer) -> ListPromptsResult {
    let argument =
        |name: &str, description: &str| json!({ "name": name, "description": description, "required": true });
    let mut prompts = vec![
        json!({ "name": "test_simple_prompt", "description": "One text." }),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "A text with its arguments in it.",
            "arguments": [argument("arg1", "The first."), argument("arg2", "The second.")],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "A resource, and a text about it.",
            "arguments": [argument("resourceUri", "What to embed.")],
        }),
        json!({ "name": "test_prompt_with_image", "description": "A picture, and a text about it." }),
        json!({ "name": "test_input_required_result_prompt", "description": "Asks for context first." }),
    ];
    if fixture.shared.more_prompts.load(Ordering::SeqCst) {
        prompts.push(json!({ "name": "test_prompt_that_comes_and_goes", "description": "Here for now." }));
    }
    from_wire(json!({ "resultType": "complete", "prompts": prompts }))
}

pub(crate) async fn get(
    fixture: &FixtureServer,
    request: GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, ErrorData> {
    let round = RequestRound {
        context,
        responses: request.input_responses,
        state: request.request_state,
        codec: &fixture.shared.codec,
    };
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    match messages(&round, &request.name, &arguments).await {
        Ok(messages) => {
            let messages: Vec<Value> =
                messages.into_iter().map(|content| json!({ "role": "user", "content": content })).collect();
            Ok(GetPromptResponse::Complete(from_wire(
                json!({ "resultType": "complete", "messages": messages }),
            )))
        }
        Err(CallInterrupt::InputRequired(questions)) => Ok((*questions).into()),
        Err(CallInterrupt::Failed(error)) => Err(error),
    }
}

/// Returns the contents of the messages.
async fn messages(
    round: &RequestRound<'_>,
    name: &str,
    arguments: &Value,
) -> Result<Vec<Value>, CallInterrupt> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    Ok(match name {
        "test_simple_prompt" | "test_prompt_that_comes_and_goes" => {
            vec![text("This is a simple prompt for testing.")]
        }
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            vec![text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => vec![
            json!({ "type": "resource", "resource": {
                "uri": argument("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            } }),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![
            json!({ "type": "image", "data": IMAGE, "mimeType": "image/png" }),
            text("Please analyze the image above."),
        ],
        "test_input_required_result_prompt" => {
            let question = form_question(
                "What context should the prompt use?",
                json!({ "context": { "type": "string" } }),
            );
            let answers = round.ask(&[("user_context", question)], None).await?;
            vec![text(&format!(
                "Use this context: {}",
                crate::ask::form_field(&answers["user_context"], "context")
            ))]
        }
        _ => return Err(ErrorData::invalid_params(format!("unknown prompt {name:?}"), None).into()),
    })
}
