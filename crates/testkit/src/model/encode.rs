//! Encodes a turn in each protocol, in the shapes that real servers send.

use serde_json::{Value, json};

use super::ModelProtocol;

/// Encodes a turn as one complete response.
pub(super) fn response(protocol: ModelProtocol, turn: &Value) -> Value {
    let text = turn["text"].as_str().unwrap_or_default();
    match protocol {
        ModelProtocol::OpenAi => {
            let calls: Vec<_> =
                calls(turn).map(|(_, call)| open_ai_call(call, arguments_json(call))).collect();
            let mut message = json!({ "role": "assistant", "content": text, "refusal": refusal_text(turn) });
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            json!({ "id": "chatcmpl-1", "object": "chat.completion", "model": "scripted",
                "choices": [{ "index": 0, "message": message, "finish_reason": open_ai_stop(turn) }],
                "usage": open_ai_usage(turn) })
        }
        ModelProtocol::Anthropic => {
            let mut content = Vec::new();
            if !text.is_empty() {
                content.push(json!({ "type": "text", "text": text }));
            }
            content.extend(calls(turn).map(|(_, call)| {
                json!({ "type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"] })
            }));
            json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": content,
                "stop_reason": anthropic_stop(turn), "usage": anthropic_usage(turn) })
        }
        ModelProtocol::Gemini => {
            let mut parts = Vec::new();
            if !text.is_empty() {
                parts.push(json!({ "text": text }));
            }
            parts.extend(calls(turn).map(|(_, call)| gemini_call(call)));
            gemini(turn, &parts, true)
        }
    }
}

/// Encodes a turn as a stream of server-sent events.
pub(super) fn events(protocol: ModelProtocol, turn: &Value) -> Vec<String> {
    let pieces = chunks(turn["text"].as_str().unwrap_or_default());
    let data = |value: &Value| format!("data: {value}\n\n");
    let named =
        |value: &Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default());
    let mut events = Vec::new();
    match protocol {
        ModelProtocol::OpenAi => {
            let chunk = |delta: Value, reason: Value| {
                data(&json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "scripted",
                    "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }], "usage": null }))
            };
            events.push(chunk(json!({ "role": "assistant", "content": "" }), Value::Null));
            events.extend(pieces.iter().map(|piece| chunk(json!({ "content": piece }), Value::Null)));
            if let Some(words) = refusal_text(turn) {
                events.push(chunk(json!({ "refusal": words }), Value::Null));
            }
            for (at, call) in calls(turn) {
                let mut first = open_ai_call(call, String::new());
                first["index"] = at.into();
                events.push(chunk(json!({ "tool_calls": [first] }), Value::Null));
                for piece in self::chunks(&arguments_json(call)) {
                    let delta =
                        json!({ "tool_calls": [{ "index": at, "function": { "arguments": piece } }] });
                    events.push(chunk(delta, Value::Null));
                }
            }
            events.push(chunk(json!({}), open_ai_stop(turn)));
            events.push(data(&json!({ "choices": [], "usage": open_ai_usage(turn) })));
            events.push("data: [DONE]\n\n".to_owned());
        }
        ModelProtocol::Anthropic => {
            let usage = anthropic_usage(turn);
            let start = json!({ "type": "message", "role": "assistant", "content": [], "usage": usage });
            events.push(named(&json!({ "type": "message_start", "message": start })));
            events.push(named(&json!({ "type": "ping" })));
            let mut at = 0;
            let mut block = |start: Value, deltas: Vec<Value>| {
                events.push(named(
                    &json!({ "type": "content_block_start", "index": at, "content_block": start }),
                ));
                for delta in deltas {
                    events
                        .push(named(&json!({ "type": "content_block_delta", "index": at, "delta": delta })));
                }
                events.push(named(&json!({ "type": "content_block_stop", "index": at })));
                at += 1;
            };
            if !pieces.is_empty() {
                let deltas = pieces.iter().map(|piece| json!({ "type": "text_delta", "text": piece }));
                block(json!({ "type": "text", "text": "" }), deltas.collect());
            }
            for (_, call) in calls(turn) {
                let start =
                    json!({ "type": "tool_use", "id": call["id"], "name": call["name"], "input": {} });
                let deltas = self::chunks(&arguments_json(call));
                let delta = |piece: String| json!({ "type": "input_json_delta", "partial_json": piece });
                block(start, deltas.into_iter().map(delta).collect());
            }
            let delta = json!({ "stop_reason": anthropic_stop(turn), "stop_sequence": null });
            let output = json!({ "output_tokens": usage["output_tokens"] });
            events.push(named(&json!({ "type": "message_delta", "delta": delta, "usage": output })));
            events.push(named(&json!({ "type": "message_stop" })));
        }
        ModelProtocol::Gemini => {
            events.extend(pieces.iter().map(|piece| data(&gemini(turn, &[json!({ "text": piece })], false))));
            let parts: Vec<_> = calls(turn).map(|(_, call)| gemini_call(call)).collect();
            events.push(data(&gemini(turn, &parts, true)));
        }
    }
    events
}

/// Encodes an error response.
pub(super) fn error_body(protocol: ModelProtocol, status: u64, turn: &Value) -> Value {
    let message = turn["error"].as_str().unwrap_or("the script says no");
    let code = turn["code"].as_str().unwrap_or("scripted_error");
    match protocol {
        ModelProtocol::OpenAi => json!({ "error": { "message": message, "type": "error", "code": code } }),
        ModelProtocol::Anthropic => json!({ "type": "error", "error": { "type": code, "message": message } }),
        ModelProtocol::Gemini => json!([{ "error": { "code": status, "message": message, "status": code } }]),
    }
}

fn calls(turn: &Value) -> impl Iterator<Item = (usize, &Value)> {
    turn["calls"].as_array().into_iter().flatten().enumerate()
}

/// Returns the arguments as a string. A script may give a string that is not JSON, to test broken arguments.
fn arguments_json(call: &Value) -> String {
    match &call["arguments"] {
        Value::String(text) => text.clone(),
        Value::Null => "{}".to_owned(),
        other => other.to_string(),
    }
}

/// Splits a text into chunks of a few characters.
fn chunks(text: &str) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(7).map(|piece| piece.iter().collect()).collect()
}

fn refusal_text(turn: &Value) -> Option<&str> {
    (turn["stop"] == "refused").then_some("I will not do that.")
}

fn count(turn: &Value, key: &str, or: u64) -> u64 {
    turn["usage"][key].as_u64().unwrap_or(or)
}

fn open_ai_call(call: &Value, arguments: String) -> Value {
    json!({ "id": call["id"], "type": "function", "function": { "name": call["name"], "arguments": arguments } })
}

fn open_ai_stop(turn: &Value) -> Value {
    match turn["stop"].as_str() {
        Some("length") => "length".into(),
        None if calls(turn).next().is_some() => "tool_calls".into(),
        _ => "stop".into(),
    }
}

fn open_ai_usage(turn: &Value) -> Value {
    if turn["usage"] == false {
        return Value::Null;
    }
    json!({ "prompt_tokens": count(turn, "input", 100), "completion_tokens": count(turn, "output", 10),
        "total_tokens": 0, "prompt_tokens_details": { "cached_tokens": count(turn, "cached", 0) } })
}

fn anthropic_stop(turn: &Value) -> Value {
    match turn["stop"].as_str() {
        Some("length") => "max_tokens".into(),
        Some("refused") => "refusal".into(),
        None if calls(turn).next().is_some() => "tool_use".into(),
        _ => "end_turn".into(),
    }
}

fn anthropic_usage(turn: &Value) -> Value {
    let cached = count(turn, "cached", 0);
    json!({ "input_tokens": count(turn, "input", 100) - cached, "output_tokens": count(turn, "output", 10),
        "cache_read_input_tokens": cached })
}

fn gemini_call(call: &Value) -> Value {
    json!({ "functionCall": { "name": call["name"], "args": call["arguments"] }, "thoughtSignature": "c2VhbA==" })
}

fn gemini(turn: &Value, parts: &[Value], last: bool) -> Value {
    let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
    if last {
        candidate["finishReason"] = match turn["stop"].as_str() {
            Some("length") => "MAX_TOKENS".into(),
            Some("refused") => "SAFETY".into(),
            _ => "STOP".into(),
        };
    }
    json!({ "candidates": [candidate], "modelVersion": "scripted", "usageMetadata": {
        "promptTokenCount": count(turn, "input", 100), "candidatesTokenCount": count(turn, "output", 10),
        "cachedContentTokenCount": count(turn, "cached", 0) } })
}
