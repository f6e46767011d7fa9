//! The protocol of OpenAI's chat completions, which most servers of models speak.

use serde_json::{Map, Value as Json, json};
use toolgate_types::agent::{ModelProvider, ModelSpec};

use super::client::Client;
use super::{Draft, Heard, Message, ModelError, Part, Request, Stop, ToolOutput, ToolSpec, Usage, names};

pub(super) fn body(spec: &ModelSpec, request: &Request) -> Json {
    let mut messages = Vec::new();
    if !request.instructions.is_empty() {
        messages.push(json!({ "role": "system", "content": request.instructions }));
    }
    request.messages.iter().for_each(|message| said(message, &mut messages));
    let mut body = json!({ "model": spec.name, "messages": messages });
    // The older name is the one that other servers know.
    let theirs =
        spec.provider == ModelProvider::Azure || spec.url.expose().starts_with("https://api.openai.com");
    let most = if theirs { "max_completion_tokens" } else { "max_tokens" };
    body[most] = spec.max_tokens.into();
    if let Some(temperature) = spec.temperature {
        body["temperature"] = temperature.into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if spec.stream {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    body
}

fn tool(tool: &ToolSpec) -> Json {
    json!({ "type": "function", "function": {
        "name": names::shown(&tool.name), "description": tool.description, "parameters": parameters(tool),
    } })
}

/// A schema that every protocol takes: an object at the top, and no choice between objects there.
pub(super) fn parameters(tool: &ToolSpec) -> Json {
    let mut schema: Map<String, Json> = tool.schema.parse().unwrap_or_default();
    for key in ["$schema", "$id", "oneOf", "anyOf", "allOf", "not", "if", "then", "else", "examples"] {
        schema.remove(key);
    }
    schema.insert("type".to_owned(), "object".into());
    schema.entry("properties").or_insert_with(|| json!({}));
    Json::Object(schema)
}

fn said(message: &Message, out: &mut Vec<Json>) {
    match message {
        Message::User { parts } => out.push(json!({ "role": "user", "content": content(parts) })),
        Message::Assistant { text, calls } => {
            let mut said = json!({ "role": "assistant", "content": text });
            if !calls.is_empty() {
                let call = |call: &super::ToolCall| {
                    let arguments = Json::Object(call.arguments.object()).to_string();
                    json!({ "id": call.id, "type": "function",
                        "function": { "name": names::shown(&call.name), "arguments": arguments } })
                };
                said["tool_calls"] = calls.iter().map(call).collect();
            }
            out.push(said);
        }
        Message::Tools { results } => {
            // Results are words in this protocol; what is to be seen or heard follows as if the person showed it.
            let mut shown = Vec::new();
            for result in results {
                let (text, rest) = in_words(result);
                out.push(json!({ "role": "tool", "tool_call_id": result.id, "content": text }));
                shown.extend(rest);
            }
            if !shown.is_empty() {
                out.push(json!({ "role": "user", "content": content(&shown) }));
            }
        }
    }
}

/// What a tool gave in words, and what cannot be said in words.
fn in_words(result: &ToolOutput) -> (String, Vec<Part>) {
    let (mut text, mut rest) = (Vec::new(), Vec::new());
    for part in &result.parts {
        match part {
            Part::Text { text: words } => text.push(words.clone()),
            Part::Image { mime, .. } | Part::Audio { mime, .. } => {
                text.push(format!("[{mime}, which follows]"));
                rest.push(Part::Text { text: format!("From the tool {}:", result.name) });
                rest.push(part.clone());
            }
        }
    }
    (text.join("\n"), rest)
}

fn content(parts: &[Part]) -> Json {
    if let [Part::Text { text }] = parts {
        return text.as_str().into();
    }
    parts.iter().map(part).collect()
}

fn part(part: &Part) -> Json {
    match part {
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image { mime, data } => {
            json!({ "type": "image_url", "image_url": { "url": format!("data:{mime};base64,{data}") } })
        }
        Part::Audio { mime, data } => match sound(mime) {
            Some(format) => {
                json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } })
            }
            None => json!({ "type": "text", "text": format!("[{mime}, which this model cannot hear]") }),
        },
    }
}

fn sound(mime: &str) -> Option<&'static str> {
    match mime {
        "audio/wav" | "audio/x-wav" | "audio/wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        _ => None,
    }
}

/// A piece of an answer.
pub(super) fn piece(
    event: &Json,
    draft: &mut Draft,
    client: &Client,
    heard: &mut (dyn FnMut(Heard) + Send),
) -> Result<bool, ModelError> {
    take(event, "delta", draft, client, heard)?;
    // The end is `[DONE]`, after what was used.
    Ok(false)
}

/// An answer as a whole.
pub(super) fn whole(
    answer: &Json,
    draft: &mut Draft,
    client: &Client,
    heard: &mut (dyn FnMut(Heard) + Send),
) -> Result<(), ModelError> {
    take(answer, "message", draft, client, heard)?;
    if !answer["choices"].is_array() {
        return Err(client.unreadable("there are no `choices`"));
    }
    Ok(())
}

fn take(
    answer: &Json,
    key: &str,
    draft: &mut Draft,
    client: &Client,
    heard: &mut (dyn FnMut(Heard) + Send),
) -> Result<(), ModelError> {
    if !answer["error"].is_null() {
        return Err(client.error(None, &answer["error"], None));
    }
    if let Some(usage) = usage(&answer["usage"]) {
        draft.usage = Some(usage);
    }
    // What says what was used has no choices; more than one was not asked for.
    let choice = &answer["choices"][0];
    let said = &choice[key];
    draft.say(said["content"].as_str().unwrap_or_default(), heard)?;
    if let Some(words) = said["refusal"].as_str().filter(|words| !words.is_empty()) {
        let before = match draft.stop.take() {
            Some(Stop::Refused(before)) => before,
            _ => String::new(),
        };
        draft.stop = Some(Stop::Refused(before + words));
    }
    for (at, call) in said["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let number = call["index"].as_u64().unwrap_or(at as u64);
        let draft = draft.call(number)?;
        if let Some(id) = call["id"].as_str().filter(|id| !id.is_empty()) {
            draft.id = id.to_owned();
        }
        if let Some(name) = call["function"]["name"].as_str().filter(|name| !name.is_empty()) {
            draft.name = name.chars().take(256).collect();
            heard(Heard::Call(draft.name.clone()));
        }
        match &call["function"]["arguments"] {
            Json::String(text) => draft.argue(text)?,
            Json::Null => {}
            // Some servers give the object itself.
            other => draft.argue(&other.to_string())?,
        }
    }
    match (choice["finish_reason"].as_str(), &draft.stop) {
        (None, _) | (Some(_), Some(Stop::Refused(_))) => {}
        (Some("length"), _) => draft.stop = Some(Stop::Length),
        (Some("tool_calls" | "function_call"), _) => draft.stop = Some(Stop::Calls),
        (Some("content_filter"), _) => {
            draft.stop = Some(Stop::Refused("the filter of the provider stopped it".to_owned()));
        }
        (Some(_), _) => draft.stop = Some(Stop::Done),
    }
    Ok(())
}

fn usage(usage: &Json) -> Option<Usage> {
    Some(Usage {
        input_tokens: usage["prompt_tokens"].as_u64()?,
        cached_tokens: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0),
        output_tokens: usage["completion_tokens"].as_u64().unwrap_or(0),
        reckoned: false,
    })
}
