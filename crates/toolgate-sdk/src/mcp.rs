//! Tools in the words of MCP: what a list says of them, and how a call has ended.
//!
//! Data stays data: hints and metadata stand in `_meta`, so that a client which knows nothing of them loses nothing.
//! Invariant: pure functions of values.

use serde_json::{Value, json};
use toolgate_types::tool::Category;

use crate::definition::Definition;
use crate::tool::{CallResult, Tool};
use crate::tools::Tools;

/// Where the contract of a tool stands in its entry of a list.
pub const CONTRACT: &str = "toolgate/contract";
/// Where hints, metadata and the error stand in a result.
pub const RESULT: &str = "toolgate/result";

/// The result of `tools/list`. All tools are on one page: a program has few.
pub(crate) fn list(tools: &Tools) -> Value {
    let entries: Vec<_> = tools.all().map(entry).collect();
    json!({ "tools": entries, "ttlMs": 0, "cacheScope": "public" })
}

fn entry(tool: &Tool) -> Value {
    let definition = tool.definition();
    let Definition { name, description, input_schema, output_schema, .. } = definition;
    let reads = matches!(definition.category, Category::Query | Category::Analysis);
    json!({
        "name": name,
        "description": description,
        "inputSchema": input_schema,
        "outputSchema": output_schema,
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": definition.category == Category::Mutation,
            "idempotentHint": definition.idempotent,
        },
        "_meta": { CONTRACT: contract(definition) },
    })
}

/// What the entry does not say otherwise.
fn contract(definition: &Definition) -> Value {
    let mut contract = serde_json::to_value(definition).unwrap_or_default();
    if let Some(members) = contract.as_object_mut() {
        members
            .retain(|name, _| !matches!(&**name, "name" | "description" | "input_schema" | "output_schema"));
    }
    contract
}

/// The result of `tools/call`.
pub(crate) fn result(result: &CallResult) -> Value {
    let mut beside = serde_json::to_value(result).unwrap_or_default();
    if let Some(members) = beside.as_object_mut() {
        members.retain(|name, value| name != "data" && !value.is_null());
    }
    match (&result.data, &result.error) {
        (Some(data), _) => json!({
            // The same as text, for clients older than structured results.
            "content": [{ "type": "text", "text": data.to_string() }],
            "structuredContent": data,
            "isError": false,
            "_meta": { RESULT: beside },
        }),
        (None, error) => {
            let hint = error.as_ref().and_then(|error| error.hint.as_ref());
            let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            let message = error.as_ref().map(ToString::to_string).unwrap_or_default();
            json!({
                "content": [{ "type": "text", "text": format!("{message}{hint}") }],
                "isError": true,
                "_meta": { RESULT: beside },
            })
        }
    }
}
