//! Encodes tools and results for MCP.
//!
//! Hints and metadata are in `_meta`, so that clients that do not know them still get plain data. Invariant: pure
//! functions.

use serde_json::{Value, json};
use toolgate_types::tool::Category;

use crate::definition::Definition;
use crate::tool::{CallResult, Tool};
use crate::tools::Tools;

/// Key in `_meta` of a listed tool that holds its contract.
pub const CONTRACT_KEY: &str = "toolgate/contract";
/// Key in `_meta` of a result that holds hints, metadata and the error.
pub const RESULT_KEY: &str = "toolgate/result";

/// Encodes the result of `tools/list`. There is only one page, since a program has few tools.
pub(crate) fn list_result(tools: &Tools) -> Value {
    let entries: Vec<_> = tools.all().map(list_entry).collect();
    json!({ "tools": entries, "ttlMs": 0, "cacheScope": "public" })
}

fn list_entry(tool: &Tool) -> Value {
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
        "_meta": { CONTRACT_KEY: contract(definition) },
    })
}

/// Returns the part of the definition that the MCP fields of the entry do not express.
fn contract(definition: &Definition) -> Value {
    let mut contract = serde_json::to_value(definition).unwrap_or_default();
    if let Some(members) = contract.as_object_mut() {
        members
            .retain(|name, _| !matches!(&**name, "name" | "description" | "input_schema" | "output_schema"));
    }
    contract
}

/// Encodes the result of `tools/call`.
pub(crate) fn call_result(result: &CallResult) -> Value {
    let mut extra = serde_json::to_value(result).unwrap_or_default();
    if let Some(members) = extra.as_object_mut() {
        members.retain(|name, value| name != "data" && !value.is_null());
    }
    match (&result.data, &result.error) {
        (Some(data), _) => json!({
            // The same as text, for clients that predate structured results.
            "content": [{ "type": "text", "text": data.to_string() }],
            "structuredContent": data,
            "isError": false,
            "_meta": { RESULT_KEY: extra },
        }),
        (None, error) => {
            let hint = error.as_ref().and_then(|error| error.hint.as_ref());
            let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            let message = error.as_ref().map(ToString::to_string).unwrap_or_default();
            json!({
                "content": [{ "type": "text", "text": format!("{message}{hint}") }],
                "isError": true,
                "_meta": { RESULT_KEY: extra },
            })
        }
    }
}
