//! Anthropic's messages API.

use serde_json::{Value as Json, json};
use toolgate_types::agent::ModelSpec;

use super::client::ModelClient;
use super::openai::parameters;
use super::{
    Message, ModelError, ModelRequest, PDF, Part, ReplyBuilder, StopReason, StreamEvent, TokenUsage,
    ToolOutput, ToolSpec, names,
};

/// Image types that the API accepts.
const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

pub(super) fn body(spec: &ModelSpec, request: &ModelRequest, tools: &[ToolSpec]) -> Json {
    let messages: Vec<Json> = request.messages.iter().map(message_json).collect();
    let mut body =
        json!({ "model": spec.name, "max_tokens": request.limits.max_tokens(spec), "messages": messages });
    if !request.instructions.is_empty() {
        body["system"] = request.instructions.as_str().into();
    }
    if let Some(temperature) = request.limits.temperature(spec) {
        body["temperature"] = temperature.into();
    }
    if !request.limits.stop.is_empty() {
        body["stop_sequences"] = request.limits.stop.clone().into();
    }
    if !tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            json!({ "name": names::provider_name(&tool.name), "description": tool.description,
                "input_schema": parameters(tool) })
        };
        body["tools"] = tools.iter().map(tool).collect();
    }
    if spec.stream {
        body["stream"] = true.into();
    }
    body
}

fn message_json(message: &Message) -> Json {
    match message {
        Message::User { parts } => {
            json!({ "role": "user", "content": parts.iter().map(part_json).collect::<Vec<_>>() })
        }
        Message::Assistant { text, calls } => {
            let mut blocks = Vec::new();
            // The API rejects empty text blocks.
            if !text.trim().is_empty() {
                blocks.push(json!({ "type": "text", "text": text.trim_end() }));
            }
            blocks.extend(calls.iter().map(|call| {
                json!({ "type": "tool_use", "id": valid_id(&call.id), "name": names::provider_name(&call.name),
                    "input": call.arguments.to_object() })
            }));
            if blocks.is_empty() {
                blocks.push(json!({ "type": "text", "text": "…" }));
            }
            json!({ "role": "assistant", "content": blocks })
        }
        Message::Tools { results } => {
            let result = |result: &ToolOutput| {
                json!({ "type": "tool_result", "tool_use_id": valid_id(&result.id), "is_error": result.failed,
                    "content": result.parts.iter().map(part_json).collect::<Vec<_>>() })
            };
            json!({ "role": "user", "content": results.iter().map(result).collect::<Vec<_>>() })
        }
    }
}

/// Replaces characters that the API rejects in ids; ids of other providers may contain them.
fn valid_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn part_json(part: &Part) -> Json {
    match part {
        Part::Text { text } if text.is_empty() => json!({ "type": "text", "text": "(nothing)" }),
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image { mime, data } if IMAGE_TYPES.contains(&mime.as_str()) => {
            json!({ "type": "image", "source": { "type": "base64", "media_type": mime, "data": data } })
        }
        Part::Image { mime, .. } => {
            json!({ "type": "text", "text": format!("[{mime}, not supported by this model]") })
        }
        Part::Document { mime, name, data } if mime == PDF => {
            json!({ "type": "document", "title": name,
                "source": { "type": "base64", "media_type": mime, "data": data } })
        }
        Part::Audio { mime, .. } | Part::Document { mime, .. } => {
            json!({ "type": "text", "text": format!("[{mime}, not supported by this model]") })
        }
    }
}

/// Handles one event of a streamed response. Returns true if it is the last one.
pub(super) fn read_event(
    event: &Json,
    reply: &mut ReplyBuilder,
    client: &ModelClient,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<bool, ModelError> {
    match event["type"].as_str().unwrap_or_default() {
        "message_start" => reply.usage = merge_usage(&event["message"]["usage"], reply.usage),
        "content_block_start" => {
            read_block(event["index"].as_u64(), &event["content_block"], reply, on_event)?
        }
        "content_block_delta" => {
            let delta = &event["delta"];
            match (delta["type"].as_str(), event["index"].as_u64()) {
                (Some("text_delta"), _) => {
                    reply.push_text(delta["text"].as_str().unwrap_or_default(), on_event)?
                }
                (Some("input_json_delta"), Some(number)) => {
                    reply
                        .call_mut(number)?
                        .push_arguments(delta["partial_json"].as_str().unwrap_or_default())?;
                }
                // Thinking is not part of the reply.
                _ => {}
            }
        }
        "message_delta" => {
            reply.usage = merge_usage(&event["usage"], reply.usage);
            if let Some(reason) = event["delta"]["stop_reason"].as_str() {
                reply.stop = Some(stop_reason(reason));
            }
        }
        "message_stop" => return Ok(true),
        "error" => return Err(client.classify_error(None, &event["error"], None)),
        // `ping`, the end of a block, and events of later versions.
        _ => {}
    }
    Ok(false)
}

/// Handles a response that is not streamed.
pub(super) fn read_response(
    answer: &Json,
    reply: &mut ReplyBuilder,
    client: &ModelClient,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<(), ModelError> {
    if answer["type"] == "error" {
        return Err(client.classify_error(None, &answer["error"], None));
    }
    let blocks = answer["content"].as_array().ok_or_else(|| client.malformed("there is no `content`"))?;
    for (number, one) in blocks.iter().enumerate() {
        read_block(Some(number as u64), one, reply, on_event)?;
    }
    reply.usage = merge_usage(&answer["usage"], None);
    reply.stop = answer["stop_reason"].as_str().map(stop_reason);
    Ok(())
}

fn read_block(
    number: Option<u64>,
    block: &Json,
    reply: &mut ReplyBuilder,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<(), ModelError> {
    match (block["type"].as_str(), number) {
        (Some("text"), _) => reply.push_text(block["text"].as_str().unwrap_or_default(), on_event)?,
        (Some("tool_use"), Some(number)) => {
            let call = reply.call_mut(number)?;
            call.id = block["id"].as_str().unwrap_or_default().to_owned();
            call.name = block["name"].as_str().unwrap_or_default().chars().take(256).collect();
            on_event(StreamEvent::Call(call.name.clone()));
            // In a stream, the input is empty here and follows in deltas.
            if block["input"].as_object().is_some_and(|input| !input.is_empty()) {
                call.push_arguments(&block["input"].to_string())?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::Calls,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refused(String::new()),
        _ => StopReason::Done,
    }
}

/// Merges a usage report. A stream reports input tokens at its start and output tokens at its end.
fn merge_usage(report: &Json, before: Option<TokenUsage>) -> Option<TokenUsage> {
    let count = |key: &str| report[key].as_u64();
    let earlier = before.unwrap_or_default();
    if count("input_tokens").is_none() && count("output_tokens").is_none() {
        return before;
    }
    let cached = count("cache_read_input_tokens").unwrap_or(earlier.cached_tokens);
    let written = count("cache_creation_input_tokens").unwrap_or(0);
    Some(TokenUsage {
        input_tokens: count("input_tokens").map_or(earlier.input_tokens, |fresh| fresh + cached + written),
        cached_tokens: cached,
        output_tokens: count("output_tokens").unwrap_or(earlier.output_tokens),
        estimated: false,
    })
}
