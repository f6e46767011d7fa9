//! The messages of Anthropic.

use serde_json::{Value as Json, json};
use toolgate_types::agent::ModelSpec;

use super::client::Client;
use super::openai::parameters;
use super::{Draft, Heard, Message, ModelError, Part, Request, Stop, ToolOutput, ToolSpec, Usage, names};

/// The pictures it can see.
const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

pub(super) fn body(spec: &ModelSpec, request: &Request) -> Json {
    let messages: Vec<Json> = request.messages.iter().map(said).collect();
    let mut body = json!({ "model": spec.name, "max_tokens": spec.max_tokens, "messages": messages });
    if !request.instructions.is_empty() {
        body["system"] = request.instructions.as_str().into();
    }
    if let Some(temperature) = spec.temperature {
        body["temperature"] = temperature.into();
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            json!({ "name": names::shown(&tool.name), "description": tool.description,
                "input_schema": parameters(tool) })
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if spec.stream {
        body["stream"] = true.into();
    }
    body
}

fn said(message: &Message) -> Json {
    match message {
        Message::User { parts } => {
            json!({ "role": "user", "content": parts.iter().map(part).collect::<Vec<_>>() })
        }
        Message::Assistant { text, calls } => {
            let mut blocks = Vec::new();
            // A text that is empty is refused.
            if !text.trim().is_empty() {
                blocks.push(json!({ "type": "text", "text": text.trim_end() }));
            }
            blocks.extend(calls.iter().map(|call| {
                json!({ "type": "tool_use", "id": id(&call.id), "name": names::shown(&call.name),
                    "input": call.arguments.object() })
            }));
            if blocks.is_empty() {
                blocks.push(json!({ "type": "text", "text": "…" }));
            }
            json!({ "role": "assistant", "content": blocks })
        }
        Message::Tools { results } => {
            let result = |result: &ToolOutput| {
                json!({ "type": "tool_result", "tool_use_id": id(&result.id), "is_error": result.failed,
                    "content": result.parts.iter().map(part).collect::<Vec<_>>() })
            };
            json!({ "role": "user", "content": results.iter().map(result).collect::<Vec<_>>() })
        }
    }
}

/// An id with the characters that are taken; one of another protocol may have more.
fn id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn part(part: &Part) -> Json {
    match part {
        Part::Text { text } if text.is_empty() => json!({ "type": "text", "text": "(nothing)" }),
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image { mime, data } if PICTURES.contains(&mime.as_str()) => {
            json!({ "type": "image", "source": { "type": "base64", "media_type": mime, "data": data } })
        }
        Part::Image { mime, .. } => {
            json!({ "type": "text", "text": format!("[{mime}, which this model cannot see]") })
        }
        Part::Audio { mime, .. } => {
            json!({ "type": "text", "text": format!("[{mime}, which this model cannot hear]") })
        }
    }
}

/// An event of an answer; whether it was the last.
pub(super) fn event(
    event: &Json,
    draft: &mut Draft,
    client: &Client,
    heard: &mut (dyn FnMut(Heard) + Send),
) -> Result<bool, ModelError> {
    match event["type"].as_str().unwrap_or_default() {
        "message_start" => draft.usage = usage(&event["message"]["usage"], draft.usage),
        "content_block_start" => block(event["index"].as_u64(), &event["content_block"], draft, heard)?,
        "content_block_delta" => {
            let delta = &event["delta"];
            match (delta["type"].as_str(), event["index"].as_u64()) {
                (Some("text_delta"), _) => draft.say(delta["text"].as_str().unwrap_or_default(), heard)?,
                (Some("input_json_delta"), Some(number)) => {
                    draft.call(number)?.argue(delta["partial_json"].as_str().unwrap_or_default())?;
                }
                // What it thinks is its own.
                _ => {}
            }
        }
        "message_delta" => {
            draft.usage = usage(&event["usage"], draft.usage);
            if let Some(reason) = event["delta"]["stop_reason"].as_str() {
                draft.stop = Some(stop(reason));
            }
        }
        "message_stop" => return Ok(true),
        "error" => return Err(client.error(None, &event["error"], None)),
        // `ping`, the end of a block, and what is yet to be invented.
        _ => {}
    }
    Ok(false)
}

/// An answer as a whole.
pub(super) fn whole(
    answer: &Json,
    draft: &mut Draft,
    client: &Client,
    heard: &mut (dyn FnMut(Heard) + Send),
) -> Result<(), ModelError> {
    if answer["type"] == "error" {
        return Err(client.error(None, &answer["error"], None));
    }
    let blocks = answer["content"].as_array().ok_or_else(|| client.unreadable("there is no `content`"))?;
    for (number, one) in blocks.iter().enumerate() {
        block(Some(number as u64), one, draft, heard)?;
    }
    draft.usage = usage(&answer["usage"], None);
    draft.stop = answer["stop_reason"].as_str().map(stop);
    Ok(())
}

fn block(
    number: Option<u64>,
    block: &Json,
    draft: &mut Draft,
    heard: &mut (dyn FnMut(Heard) + Send),
) -> Result<(), ModelError> {
    match (block["type"].as_str(), number) {
        (Some("text"), _) => draft.say(block["text"].as_str().unwrap_or_default(), heard)?,
        (Some("tool_use"), Some(number)) => {
            let call = draft.call(number)?;
            call.id = block["id"].as_str().unwrap_or_default().to_owned();
            call.name = block["name"].as_str().unwrap_or_default().chars().take(256).collect();
            heard(Heard::Call(call.name.clone()));
            // Empty where it comes piece by piece.
            if block["input"].as_object().is_some_and(|input| !input.is_empty()) {
                call.argue(&block["input"].to_string())?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn stop(reason: &str) -> Stop {
    match reason {
        "tool_use" => Stop::Calls,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "refusal" => Stop::Refused(String::new()),
        _ => Stop::Done,
    }
}

/// What was used: what was read is told at the start, what was written at the end.
fn usage(told: &Json, before: Option<Usage>) -> Option<Usage> {
    let count = |key: &str| told[key].as_u64();
    let before_or_none = before.unwrap_or_default();
    if count("input_tokens").is_none() && count("output_tokens").is_none() {
        return before;
    }
    let cached = count("cache_read_input_tokens").unwrap_or(before_or_none.cached_tokens);
    let written = count("cache_creation_input_tokens").unwrap_or(0);
    Some(Usage {
        input_tokens: count("input_tokens")
            .map_or(before_or_none.input_tokens, |fresh| fresh + cached + written),
        cached_tokens: cached,
        output_tokens: count("output_tokens").unwrap_or(before_or_none.output_tokens),
        reckoned: false,
    })
}
