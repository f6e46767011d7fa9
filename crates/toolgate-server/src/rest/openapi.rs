//! Renders the route table as an OpenAPI document.

use std::sync::OnceLock;

use serde_json::{Map, Value as Json, json};

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::{AdmittedRequest, ApiOperation, ResponseContent, Route};
use crate::routes::ROUTES;

/// Schemas of response bodies, and of request bodies that are entries of configuration files.
const SCHEMAS: &str = include_str!("schemas.json");

pub(crate) async fn show(_: AdmittedRequest) -> Result<Response, HttpError> {
    static DOCUMENT: OnceLock<Json> = OnceLock::new();
    Ok(response::json(DOCUMENT.get_or_init(document)))
}

fn document() -> Json {
    let mut paths = Map::new();
    for route in ROUTES.rows() {
        if let Some(operation) = &route.operation {
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            path[route.method.as_str().to_lowercase()] = operation_json(route, operation);
        }
    }
    let mut schemas: Json = serde_json::from_str(SCHEMAS).expect("schemas.json is valid JSON");
    for body in ROUTES.rows().iter().filter_map(|route| route.operation.as_ref()?.body) {
        if let Some(generate) = body.generate {
            schemas[body.name] = generate();
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Toolgate",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Gateway between AI agents and their tools.",
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

fn operation_json(route: &Route, operation: &ApiOperation) -> Json {
    let mut json = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [tag(route)],
        "parameters": parameters(route, operation),
        "responses": responses(route, operation),
        "security": if route.need.is_public() {
            json!([])
        } else {
            json!([{ "key": [] }, { "bearer": [] }])
        },
    });
    let permissions = route.need.permissions();
    if !permissions.is_empty() {
        json["x-permission"] = permissions.join(" ").into();
    }
    if let Some(body) = operation.body {
        json["requestBody"] = json!({ "required": true, "content": content(body.name) });
    }
    json
}

/// Tag of an operation: its resource in the path.
fn tag(route: &Route) -> &'static str {
    match route.path.split('/').nth(2) {
        Some(
            noun @ ("tools" | "servers" | "executions" | "figures" | "log" | "events" | "policy"
            | "human-input" | "approvals" | "callers" | "profiles" | "runs"),
        ) => noun,
        _ => "about",
    }
}

fn parameters(route: &Route, operation: &ApiOperation) -> Vec<Json> {
    let text = json!({ "type": "string", "minLength": 1 });
    let in_path = route
        .parameter()
        .into_iter()
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
        let summary = "Apply the change only if the registry is still at this revision (the `ETag` of an earlier response).";
        all.push(json!({ "name": "If-Match", "in": "header", "description": summary, "schema": { "type": "string" } }));
    }
    all
}

fn responses(route: &Route, operation: &ApiOperation) -> Json {
    let mut answers = Map::new();
    let success = match operation.content {
        ResponseContent::Json(schema) => {
            json!({ "description": operation.summary, "content": content(schema) })
        }
        ResponseContent::Text(kind) => {
            json!({ "description": operation.summary, "content": { kind: { "schema": { "type": "string" } } } })
        }
        // The schema describes one event.
        ResponseContent::Events => {
            let text = json!({ "type": "string" });
            let properties = json!({ "event": text, "data": text, "id": text });
            let event = json!({ "type": "object", "required": ["data"], "properties": properties });
            json!({ "description": operation.summary, "content": { "text/event-stream": { "schema": event } } })
        }
        ResponseContent::Empty => json!({ "description": operation.summary }),
    };
    answers.insert(operation.status.to_string(), success);
    for status in route.error_statuses(operation) {
        // `/readyz` has the same schema for both statuses.
        let schema = if operation.id == "ready" && status == 503 { "Ready" } else { "Error" };
        let error = json!({ "description": reason(status), "content": content(schema) });
        answers.insert(status.to_string(), error);
    }
    Json::Object(answers)
}

fn content(schema: &str) -> Json {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

/// Description of an error status.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid.",
        401 => "The credential is missing or invalid.",
        403 => "The caller lacks a permission, or the request is for an unknown host.",
        404 => "Not found, or not visible to the caller.",
        408 => "The request body arrived too slowly.",
        409 => "It already exists, its state does not allow this, or the registry files have errors.",
        412 => "It has changed since it was read.",
        413 => "The request body is too large.",
        415 => "The request body is not JSON, or is compressed.",
        422 => "The content of the body was rejected, the tool rejected its arguments, or the tool failed.",
        429 => "Too many requests; `Retry-After` says when to retry.",
        503 => "Temporarily unavailable.",
        504 => "The tool timed out.",
        507 => "The result is too large.",
        _ => "Failed.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference has a target, and every schema is referenced.
    #[test]
    fn every_schema_is_referenced_and_defined() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for name in schemas.keys() {
            assert!(text.contains(&format!("\"#/components/schemas/{name}\"")), "{name} is not referenced");
        }
        for rest in text.split("#/components/schemas/").skip(1) {
            let name = rest.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "schema {name} is missing");
        }
    }

    #[test]
    fn every_status_has_a_reason() {
        for route in ROUTES.rows() {
            for status in route.operation.iter().flat_map(|operation| route.error_statuses(operation)) {
                assert_ne!(reason(status), reason(0), "{status} of {route:?}");
            }
        }
    }
}
