//! Resources of the conformance suite.

use rmcp::model::{ErrorData, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResponse};
use serde_json::{Value, json};

use crate::from_wire;
use crate::tools::IMAGE;

/// URI of the resource that `test_trigger_resource_change` changes.
pub(crate) const WATCHED: &str = "test://watched-resource";

pub(crate) fn list() -> ListResourcesResult {
    let resource = |uri: &str, name: &str, kind: &str| json!({ "uri": uri, "name": name, "description": format!("A resource for tests: {name}."), "mimeType": kind });
    from_wire(json!({ "resultType": "complete", "resources": [
        resource("test://static-text", "static text", "text/plain"),
        resource("test://static-binary", "static binary", "image/png"),
        resource(WATCHED, "watched", "text/plain"),
    ] }))
}

pub(crate) fn templates() -> ListResourceTemplatesResult {
    from_wire(json!({ "resultType": "complete", "resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Data of the item with this id.",
        "mimeType": "application/json",
    }] }))
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let text = |kind: &str, text: &str| json!({ "uri": uri, "mimeType": kind, "text": text });
    let content = match uri {
        "test://static-text" => text("text/plain", "This is the content of the static text resource."),
        "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": IMAGE }),
        WATCHED => text("text/plain", "This is watched."),
        _ => {
            let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
            let unknown = || ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": uri })));
            let data = template_data(id.ok_or_else(unknown)?);
            text("application/json", &data.to_string())
        }
    };
    Ok(ReadResourceResponse::Complete(from_wire(json!({ "resultType": "complete", "contents": [content] }))))
}

fn template_data(id: &str) -> Value {
    json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") })
}
