//! Google Gemini's `generateContent`.

use serde_json::{Value as Json, json};
use toolgate_types::agent::ModelSpec;

use super::client::ModelClient;
use super::openai::parameters;
use super::{
    Message, ModelError, ModelErrorKind, ModelRequest, Part, ReplyBuilder, StopReason, StreamEvent,
    TokenUsage, ToolCall, ToolSpec, names,
};

/// Prefix of call ids that we made up, because the model sent none.
const GENERATED_ID_PREFIX: &str = "call-";

pub(super) fn body(spec: &ModelSpec, request: &ModelRequest, tools: &[ToolSpec]) -> Json {
    let contents: Vec<Json> = request.messages.iter().map(message_json).collect();
    let mut body = json!({ "contents": contents, "generationConfig": { "maxOutputTokens": request.limits.max_tokens(spec) } });
    if !request.instructions.is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": request.instructions }] });
    }
    if let Some(temperature) = request.limits.temperature(spec) {
        body["generationConfig"]["temperature"] = temperature.into();
    }
    if !request.limits.stop.is_empty() {
        body["generationConfig"]["stopSequences"] = request.limits.stop.clone().into();
    }
    if !tools.is_empty() {
        let declare = |tool: &ToolSpec| {
            json!({ "name": names::provider_name(&tool.name), "description": tool.description,
                "parametersJsonSchema": parameters(tool) })
        };
        body["tools"] = json!([{ "functionDeclarations": tools.iter().map(declare).collect::<Vec<_>>() }]);
    }
    body
}

fn message_json(message: &Message) -> Json {
    match message {
        Message::User { parts } => {
            json!({ "role": "user", "parts": parts.iter().map(part_json).collect::<Vec<_>>() })
        }
        Message::Assistant { text, calls } => {
            let mut parts = Vec::new();
            if !text.is_empty() || calls.is_empty() {
                parts.push(json!({ "text": text }));
            }
            parts.extend(calls.iter().map(call_json));
            json!({ "role": "model", "parts": parts })
        }
        Message::Tools { results } => {
            let (mut parts, mut media) = (Vec::new(), Vec::new());
            for result in results {
                let mut words = Vec::new();
                for one in &result.parts {
                    match one {
                        Part::Text { text } => words.push(text.as_str()),
                        other => media.push(part_json(other)),
                    }
                }
                let key = if result.failed { "error" } else { "output" };
                let mut response = json!({ "name": names::provider_name(&result.name), "response": { key: words.join("\n") } });
                if !result.id.starts_with(GENERATED_ID_PREFIX) {
                    response["id"] = result.id.as_str().into();
                }
                parts.push(json!({ "functionResponse": response }));
            }
            parts.extend(media);
            json!({ "role": "user", "parts": parts })
        }
    }
}

fn call_json(call: &ToolCall) -> Json {
    let mut function =
        json!({ "name": names::provider_name(&call.name), "args": call.arguments.to_object() });
    if !call.id.starts_with(GENERATED_ID_PREFIX) {
        function["id"] = call.id.as_str().into();
    }
    let mut part = json!({ "functionCall": function });
    // Newer models reject one of their calls without its signature.
    if let Some(seal) = &call.signature {
        part["thoughtSignature"] = seal.as_str().into();
    }
    part
}

fn part_json(part: &Part) -> Json {
    match part {
        Part::Text { text } => json!({ "text": text }),
        Part::Image { mime, data } | Part::Audio { mime, data } | Part::Document { mime, data, .. } => {
            json!({ "inlineData": { "mimeType": mime, "data": data } })
        }
    }
}

/// Handles a response, or one event of a stream, which has the same form. The stream has no end marker.
pub(super) fn read_response(
    answer: &Json,
    reply: &mut ReplyBuilder,
    client: &ModelClient,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<bool, ModelError> {
    if !answer["error"].is_null() {
        return Err(client.classify_error(None, &answer["error"], None));
    }
    if let Some(usage) = usage(&answer["usageMetadata"]) {
        reply.usage = Some(usage);
    }
    if let Some(reason) = answer["promptFeedback"]["blockReason"].as_str() {
        reply.stop =
            Some(StopReason::Refused(format!("the prompt was blocked: {}", reason.to_ascii_lowercase())));
        return Ok(false);
    }
    let candidate = &answer["candidates"][0];
    for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
        if part["thought"] == true {
            continue;
        }
        if let Some(text) = part["text"].as_str() {
            reply.push_text(text, on_event)?;
        }
        if let Some(function) = part.get("functionCall") {
            // Calls are not split over events.
            let call = reply.call_mut(reply.calls.len() as u64)?;
            call.id = function["id"].as_str().unwrap_or_default().to_owned();
            call.name = function["name"].as_str().unwrap_or_default().chars().take(256).collect();
            call.signature = part["thoughtSignature"].as_str().map(str::to_owned);
            if !function["args"].is_null() {
                call.push_arguments(&function["args"].to_string())?;
            }
            on_event(StreamEvent::Call(call.name.clone()));
        }
    }
    match candidate["finishReason"].as_str() {
        None => {}
        Some("STOP") => reply.stop = Some(StopReason::Done),
        Some("MAX_TOKENS") => reply.stop = Some(StopReason::Length),
        Some("MALFORMED_FUNCTION_CALL") => {
            let message = "the model produced a malformed function call";
            return Err(ModelError::new(ModelErrorKind::Overloaded, message));
        }
        Some(reason) => {
            reply.stop = Some(StopReason::Refused(format!(
                "stopped by the provider: {}",
                reason.to_ascii_lowercase()
            )));
        }
    }
    Ok(false)
}

fn usage(report: &Json) -> Option<TokenUsage> {
    let count = |key: &str| report[key].as_u64().unwrap_or(0);
    Some(TokenUsage {
        input_tokens: report["promptTokenCount"].as_u64()?,
        cached_tokens: count("cachedContentTokenCount"),
        output_tokens: count("candidatesTokenCount") + count("thoughtsTokenCount"),
        estimated: false,
    })
}
