//! Google Gemini's `generateContent`.

use serde_json::{Value as Json, json};
use toolgate_types::agent::ModelSpec;

use super::client::Client;
use super::openai::parameters;
use super::{Draft, Heard, Message, ModelError, ModelErrorKind, Part, Request, Stop, ToolCall, Usage, names};

/// What an id begins with that we gave.
const OURS: &str = "call-";

pub(super) fn body(spec: &ModelSpec, request: &Request) -> Json {
    let contents: Vec<Json> = request.messages.iter().map(said).collect();
    let mut body =
        json!({ "contents": contents, "generationConfig": { "maxOutputTokens": spec.max_tokens } });
    if !request.instructions.is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": request.instructions }] });
    }
    if let Some(temperature) = spec.temperature {
        body["generationConfig"]["temperature"] = temperature.into();
    }
    if !request.tools.is_empty() {
        let declare = |tool: &super::ToolSpec| {
            json!({ "name": names::shown(&tool.name), "description": tool.description,
                "parametersJsonSchema": parameters(tool) })
        };
        body["tools"] =
            json!([{ "functionDeclarations": request.tools.iter().map(declare).collect::<Vec<_>>() }]);
    }
    body
}

fn said(message: &Message) -> Json {
    match message {
        Message::User { parts } => {
            json!({ "role": "user", "parts": parts.iter().map(part).collect::<Vec<_>>() })
        }
        Message::Assistant { text, calls } => {
            let mut parts = Vec::new();
            if !text.is_empty() || calls.is_empty() {
                parts.push(json!({ "text": text }));
            }
            parts.extend(calls.iter().map(call));
            json!({ "role": "model", "parts": parts })
        }
        Message::Tools { results } => {
            let (mut parts, mut shown) = (Vec::new(), Vec::new());
            for result in results {
                let mut words = Vec::new();
                for one in &result.parts {
                    match one {
                        Part::Text { text } => words.push(text.as_str()),
                        other => shown.push(part(other)),
                    }
                }
                let key = if result.failed { "error" } else { "output" };
                let mut response =
                    json!({ "name": names::shown(&result.name), "response": { key: words.join("\n") } });
                if !result.id.starts_with(OURS) {
                    response["id"] = result.id.as_str().into();
                }
                parts.push(json!({ "functionResponse": response }));
            }
            parts.extend(shown);
            json!({ "role": "user", "parts": parts })
        }
    }
}

fn call(call: &ToolCall) -> Json {
    let mut function = json!({ "name": names::shown(&call.name), "args": call.arguments.object() });
    if !call.id.starts_with(OURS) {
        function["id"] = call.id.as_str().into();
    }
    let mut part = json!({ "functionCall": function });
    // Newer models refuse a call of theirs that comes back without it.
    if let Some(seal) = &call.seal {
        part["thoughtSignature"] = seal.as_str().into();
    }
    part
}

fn part(part: &Part) -> Json {
    match part {
        Part::Text { text } => json!({ "text": text }),
        Part::Image { mime, data } | Part::Audio { mime, data } => {
            json!({ "inlineData": { "mimeType": mime, "data": data } })
        }
    }
}

/// An answer, or a piece of it, which has the same form. Its end is the end of the stream.
pub(super) fn piece(
    answer: &Json,
    draft: &mut Draft,
    client: &Client,
    heard: &mut (dyn FnMut(Heard) + Send),
) -> Result<bool, ModelError> {
    if !answer["error"].is_null() {
        return Err(client.error(None, &answer["error"], None));
    }
    if let Some(usage) = usage(&answer["usageMetadata"]) {
        draft.usage = Some(usage);
    }
    if let Some(reason) = answer["promptFeedback"]["blockReason"].as_str() {
        draft.stop = Some(Stop::Refused(format!("it was blocked: {}", reason.to_ascii_lowercase())));
        return Ok(false);
    }
    let candidate = &answer["candidates"][0];
    for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
        if part["thought"] == true {
            continue;
        }
        if let Some(text) = part["text"].as_str() {
            draft.say(text, heard)?;
        }
        if let Some(function) = part.get("functionCall") {
            // Each comes as a whole.
            let call = draft.call(draft.calls.len() as u64)?;
            call.id = function["id"].as_str().unwrap_or_default().to_owned();
            call.name = function["name"].as_str().unwrap_or_default().chars().take(256).collect();
            call.seal = part["thoughtSignature"].as_str().map(str::to_owned);
            if !function["args"].is_null() {
                call.argue(&function["args"].to_string())?;
            }
            heard(Heard::Call(call.name.clone()));
        }
    }
    match candidate["finishReason"].as_str() {
        None => {}
        Some("STOP") => draft.stop = Some(Stop::Done),
        Some("MAX_TOKENS") => draft.stop = Some(Stop::Length),
        Some("MALFORMED_FUNCTION_CALL") => {
            let message = "the model wrote a call that its provider could not read";
            return Err(ModelError::new(ModelErrorKind::Overloaded, message));
        }
        Some(reason) => {
            draft.stop = Some(Stop::Refused(format!("it stopped: {}", reason.to_ascii_lowercase())));
        }
    }
    Ok(false)
}

fn usage(told: &Json) -> Option<Usage> {
    let count = |key: &str| told[key].as_u64().unwrap_or(0);
    Some(Usage {
        input_tokens: told["promptTokenCount"].as_u64()?,
        cached_tokens: count("cachedContentTokenCount"),
        output_tokens: count("candidatesTokenCount") + count("thoughtsTokenCount"),
        reckoned: false,
    })
}
