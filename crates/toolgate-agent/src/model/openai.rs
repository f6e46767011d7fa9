//! OpenAI's chat completions API, which other model servers implement, too.

use serde_json::{Map, Value as Json, json};
use toolgate_types::agent::{ModelProvider, ModelSpec};

use super::client::ModelClient;
use super::{
    Message, ModelError, ModelRequest, Part, ReplyBuilder, StopReason, StreamEvent, TokenUsage, ToolOutput,
    ToolSpec, names,
};

pub(super) fn body(spec: &ModelSpec, request: &ModelRequest, tools: &[ToolSpec]) -> Json {
    // Other servers do not know files.
    let takes_files = matches!(spec.provider, ModelProvider::Openai | ModelProvider::Azure);
    let mut messages = Vec::new();
    if !request.instructions.is_empty() {
        messages.push(json!({ "role": "system", "content": request.instructions }));
    }
    request.messages.iter().for_each(|message| push_message(message, takes_files, &mut messages));
    let mut body = json!({ "model": spec.name, "messages": messages });
    // Other servers know only the older name.
    let is_openai =
        spec.provider == ModelProvider::Azure || spec.url.expose().starts_with("https://api.openai.com");
    let limit_key = if is_openai { "max_completion_tokens" } else { "max_tokens" };
    body[limit_key] = request.limits.max_tokens(spec).into();
    if let Some(temperature) = request.limits.temperature(spec) {
        body["temperature"] = temperature.into();
    }
    if !request.limits.stop.is_empty() {
        body["stop"] = request.limits.stop.clone().into();
    }
    if !tools.is_empty() {
        body["tools"] = tools.iter().map(tool_json).collect();
    }
    if spec.stream {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    body
}

fn tool_json(tool: &ToolSpec) -> Json {
    json!({ "type": "function", "function": {
        "name": names::provider_name(&tool.name), "description": tool.description, "parameters": parameters(tool),
    } })
}

/// Returns the schema of a tool. Providers require an object.
pub(super) fn parameters(tool: &ToolSpec) -> Json {
    let mut schema: Map<String, Json> = tool.schema.parse().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    Json::Object(schema)
}

fn push_message(message: &Message, takes_files: bool, out: &mut Vec<Json>) {
    match message {
        Message::User { parts } => {
            out.push(json!({ "role": "user", "content": content(parts, takes_files) }))
        }
        Message::Assistant { text, calls } => {
            let mut message = json!({ "role": "assistant", "content": text });
            if !calls.is_empty() {
                let call = |call: &super::ToolCall| {
                    let arguments = Json::Object(call.arguments.to_object()).to_string();
                    json!({ "id": call.id, "type": "function",
                        "function": { "name": names::provider_name(&call.name), "arguments": arguments } })
                };
                message["tool_calls"] = calls.iter().map(call).collect();
            }
            out.push(message);
        }
        Message::Tools { results } => {
            // Tool results are text in this API; images and audio follow in a message of the user.
            let mut media = Vec::new();
            for result in results {
                let (text, rest) = split_media(result);
                out.push(json!({ "role": "tool", "tool_call_id": result.id, "content": text }));
                media.extend(rest);
            }
            if !media.is_empty() {
                out.push(json!({ "role": "user", "content": content(&media, takes_files) }));
            }
        }
    }
}

/// Splits a tool result into its text and its images, audio and documents.
fn split_media(result: &ToolOutput) -> (String, Vec<Part>) {
    let (mut text, mut rest) = (Vec::new(), Vec::new());
    for part in &result.parts {
        match part {
            Part::Text { text: words } => text.push(words.clone()),
            Part::Image { mime, .. } | Part::Audio { mime, .. } | Part::Document { mime, .. } => {
                text.push(format!("[{mime}, in the next message]"));
                rest.push(Part::Text { text: format!("From the tool {}:", result.name) });
                rest.push(part.clone());
            }
        }
    }
    (text.join("\n"), rest)
}

fn content(parts: &[Part], takes_files: bool) -> Json {
    if let [Part::Text { text }] = parts {
        return text.as_str().into();
    }
    parts.iter().map(|part| part_json(part, takes_files)).collect()
}

fn part_json(part: &Part, takes_files: bool) -> Json {
    let unsupported =
        |mime: &str| json!({ "type": "text", "text": format!("[{mime}, not supported by this model]") });
    match part {
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image { mime, data } => {
            json!({ "type": "image_url", "image_url": { "url": format!("data:{mime};base64,{data}") } })
        }
        Part::Audio { mime, data } => match audio_format(mime) {
            Some(format) => {
                json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } })
            }
            None => unsupported(mime),
        },
        Part::Document { mime, name, data } if takes_files => {
            let data = format!("data:{mime};base64,{data}");
            json!({ "type": "file", "file": { "filename": name, "file_data": data } })
        }
        Part::Document { mime, .. } => unsupported(mime),
    }
}

fn audio_format(mime: &str) -> Option<&'static str> {
    match mime {
        "audio/wav" | "audio/x-wav" | "audio/wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}

/// Handles one event of a streamed response.
pub(super) fn read_event(
    event: &Json,
    reply: &mut ReplyBuilder,
    client: &ModelClient,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<bool, ModelError> {
    read_choice(event, "delta", reply, client, on_event)?;
    // The stream ends with `[DONE]`, which comes after the usage.
    Ok(false)
}

/// Handles a response that is not streamed.
pub(super) fn read_response(
    answer: &Json,
    reply: &mut ReplyBuilder,
    client: &ModelClient,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<(), ModelError> {
    read_choice(answer, "message", reply, client, on_event)?;
    if !answer["choices"].is_array() {
        return Err(client.malformed("there are no `choices`"));
    }
    Ok(())
}

fn read_choice(
    answer: &Json,
    key: &str,
    reply: &mut ReplyBuilder,
    client: &ModelClient,
    on_event: &mut (dyn FnMut(StreamEvent) + Send),
) -> Result<(), ModelError> {
    if !answer["error"].is_null() {
        return Err(client.classify_error(None, &answer["error"], None));
    }
    if let Some(usage) = usage(&answer["usage"]) {
        reply.usage = Some(usage);
    }
    // The event with the usage has no choices. Only one choice was requested.
    let choice = &answer["choices"][0];
    let message = &choice[key];
    reply.push_text(message["content"].as_str().unwrap_or_default(), on_event)?;
    if let Some(words) = message["refusal"].as_str().filter(|words| !words.is_empty()) {
        let before = match reply.stop.take() {
            Some(StopReason::Refused(before)) => before,
            _ => String::new(),
        };
        reply.stop = Some(StopReason::Refused(before + words));
    }
    for (at, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let number = call["index"].as_u64().unwrap_or(at as u64);
        let reply = reply.call_mut(number)?;
        if let Some(id) = call["id"].as_str().filter(|id| !id.is_empty()) {
            reply.id = id.to_owned();
        }
        if let Some(name) = call["function"]["name"].as_str().filter(|name| !name.is_empty()) {
            reply.name = name.chars().take(256).collect();
            on_event(StreamEvent::Call(reply.name.clone()));
        }
        match &call["function"]["arguments"] {
            Json::String(text) => reply.push_arguments(text)?,
            Json::Null => {}
            // Some servers send the object itself instead of a string.
            other => reply.push_arguments(&other.to_string())?,
        }
    }
    match (choice["finish_reason"].as_str(), &reply.stop) {
        (None, _) | (Some(_), Some(StopReason::Refused(_))) => {}
        (Some("length"), _) => reply.stop = Some(StopReason::Length),
        (Some("tool_calls" | "function_call"), _) => reply.stop = Some(StopReason::Calls),
        (Some("content_filter"), _) => {
            reply.stop =
                Some(StopReason::Refused("stopped by the content filter of the provider".to_owned()));
        }
        (Some(_), _) => reply.stop = Some(StopReason::Done),
    }
    Ok(())
}

fn usage(usage: &Json) -> Option<TokenUsage> {
    Some(TokenUsage {
        input_tokens: usage["prompt_tokens"].as_u64()?,
        cached_tokens: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0),
        output_tokens: usage["completion_tokens"].as_u64().unwrap_or(0),
        estimated: false,
    })
}
