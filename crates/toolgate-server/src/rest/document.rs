//! The table of operations as an OpenAPI document.

use std::sync::OnceLock;

use axum::response::Response;
use serde_json::{Map, Value as Json, json};

use super::operation::{Content, Need, Operation};
use super::operations;
use crate::answer;

/// What bodies hold, for people and programs.
const SCHEMAS: &str = include_str!("schemas.json");

pub(super) async fn show() -> Response {
    static DOCUMENT: OnceLock<Json> = OnceLock::new();
    answer::document(DOCUMENT.get_or_init(document))
}

fn document() -> Json {
    let mut paths = Map::new();
    for operation in operations::all() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = told(&operation);
    }
    let schemas: Json = serde_json::from_str(SCHEMAS).expect("it is part of the program");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Toolgate",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "The gate between AI agents and their tools.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
                "bearer": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn told(operation: &Operation) -> Json {
    let mut told = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [tag(operation)],
        "parameters": parameters(operation),
        "responses": responses(operation),
        "security": match operation.need {
            Need::Nothing => json!([]),
            _ => json!([{ "key": [] }, { "bearer": [] }]),
        },
    });
    if let Need::Permission(permission) = operation.need {
        told["x-permission"] = permission.into();
    }
    if let Some(schema) = operation.body {
        told["requestBody"] = json!({ "required": true, "content": content(schema) });
    }
    told
}

/// The part of its path that says what it is about.
fn tag(operation: &Operation) -> &'static str {
    match operation.path.split('/').nth(2) {
        Some(
            noun @ ("tools" | "servers" | "executions" | "policy" | "human-input" | "approvals" | "callers"),
        ) => noun,
        _ => "about",
    }
}

fn parameters(operation: &Operation) -> Vec<Json> {
    let text = json!({ "type": "string", "minLength": 1 });
    let in_path = operation
        .parameters()
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
    let in_query = operation.query.iter().map(|(name, kind, summary)| {
        let mut schema = json!({ "type": kind });
        if *kind == "integer" {
            schema["minimum"] = 0.into();
        }
        json!({ "name": name, "in": "query", "description": summary, "schema": schema })
    });
    let mut all: Vec<_> = in_path.chain(in_query).collect();
    if operation.conditional {
        let summary = "Only if the registry is still at this revision, which is the `ETag` of an answer.";
        all.push(json!({ "name": "If-Match", "in": "header", "description": summary, "schema": { "type": "string" } }));
    }
    all
}

fn responses(operation: &Operation) -> Json {
    let mut answers = Map::new();
    let good = match operation.content {
        Content::Json(schema) => json!({ "description": operation.summary, "content": content(schema) }),
        Content::Text(kind) => {
            json!({ "description": operation.summary, "content": { kind: { "schema": { "type": "string" } } } })
        }
        // The schema is that of one event.
        Content::Events => {
            let text = json!({ "type": "string" });
            let properties = json!({ "event": text, "data": text, "id": text });
            let event = json!({ "type": "object", "required": ["data"], "properties": properties });
            json!({ "description": operation.summary, "content": { "text/event-stream": { "schema": event } } })
        }
        Content::Empty => json!({ "description": operation.summary }),
    };
    answers.insert(operation.status.to_string(), good);
    for status in operation.refusals() {
        // Whether it is ready is said in the same words, whatever the answer is.
        let schema = if operation.id == "ready" && status == 503 { "Ready" } else { "Error" };
        let told = json!({ "description": reason(status), "content": content(schema) });
        answers.insert(status.to_string(), told);
    }
    Json::Object(answers)
}

fn content(schema: &str) -> Json {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

/// What an error means, by its status.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        400 => "The request is not one that can be taken.",
        401 => "The key is missing or wrong.",
        403 => "The caller may not, or the request is for another host.",
        404 => "There is no such thing, or the caller may not know of it.",
        408 => "The body came too slowly.",
        409 => "It is there already, or the files are wrong as they are.",
        412 => "It is not what was looked at any more.",
        413 => "The body is too large.",
        415 => "The body is not JSON, or compressed.",
        422 => "What the body says is refused; or the tool refuses its arguments, or says that it failed.",
        429 => "Too many; `Retry-After` says when to come again.",
        503 => "Something that should work does not now.",
        504 => "The tool took too long.",
        507 => "The result is too large.",
        _ => "It failed.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference leads somewhere, and nothing is there that nobody refers to.
    #[test]
    fn schemas_and_their_names() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for name in schemas.keys() {
            assert!(text.contains(&format!("\"#/components/schemas/{name}\"")), "nobody refers to {name}");
        }
        for rest in text.split("#/components/schemas/").skip(1) {
            let name = rest.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "there is no schema {name}");
        }
    }

    #[test]
    fn every_status_has_a_reason() {
        for operation in operations::all() {
            for status in operation.refusals() {
                assert_ne!(reason(status), reason(0), "{status} of {}", operation.id);
            }
        }
    }
}
