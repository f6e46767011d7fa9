//! Definitions of the tools.
//!
//! Tools that test the newest revision exist in a server of the older ones too: there they ask in the older way. Only
//! those that need the tasks extension are left out.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::server::FixtureServer;

/// Tools without arguments, with their descriptions.
const WITHOUT_ARGUMENTS: [(&str, &str); 27] = [
    ("test_simple_text", "Returns a text."),
    ("test_image_content", "Returns an image."),
    ("test_audio_content", "Returns a sound."),
    ("test_embedded_resource", "Returns a resource."),
    ("test_multiple_content_types", "Returns a text, an image and a resource."),
    ("test_tool_with_logging", "Logs three messages."),
    ("test_error_handling", "Fails."),
    ("test_tool_with_progress", "Reports progress three times."),
    ("test_elicitation_sep1034_defaults", "Asks for values that have defaults."),
    ("test_elicitation_sep1330_enums", "Asks for choices of every kind."),
    ("test_reconnection", "Takes some time."),
    ("test_trigger_tool_change", "Changes the list of tools."),
    ("test_trigger_prompt_change", "Changes the list of prompts."),
    ("test_trigger_resource_change", "Changes the watched resource."),
    ("test_missing_capability", "Requires a client that supports sampling."),
    ("test_streaming_elicitation", "Asks before it answers."),
    ("test_logging_tool", "Logs a message, if the client asked for logs."),
    ("test_input_required_result_elicitation", "Asks for a name."),
    ("test_input_required_result_sampling", "Asks the model."),
    ("test_input_required_result_list_roots", "Asks for the roots."),
    ("test_input_required_result_request_state", "Asks, and checks the returned state."),
    ("test_input_required_result_multiple_inputs", "Asks three questions at once."),
    ("test_input_required_result_multi_round", "Asks two questions in turn."),
    ("test_input_required_result_tampered_state", "Asks, and rejects a forged state."),
    ("test_input_required_result_capabilities", "Asks only questions that the client supports."),
    ("protocol_error_job", "Fails with a protocol error while it works."),
    ("multi_input", "Asks two questions while it works."),
];

pub(crate) fn all(fixture: &FixtureServer) -> Vec<Value> {
    let mut tools: Vec<Value> =
        WITHOUT_ARGUMENTS.iter().map(|(name, about)| tool(name, about, json!({}), &[])).collect();
    let text = || json!({ "type": "string" });
    tools.extend([
        tool(
            "test_sampling",
            "Passes the prompt to the client's model.",
            json!({ "prompt": text() }),
            &["prompt"],
        ),
        tool("test_elicitation", "Asks a person for input.", json!({ "message": text() }), &["message"]),
        tool(
            "test_custom_header",
            "Has an argument that is mirrored in a header.",
            json!({ "region": { "type": "string", "x-mcp-header": "Region" } }),
            &["region"],
        ),
        tool("greet", "Greets.", json!({ "name": text() }), &["name"]),
        tool(
            "slow_compute",
            "Works for a number of seconds.",
            json!({ "seconds": { "type": "number" }, "label": text() }),
            &[],
        ),
        tool("confirm_delete", "Asks before it deletes.", json!({ "filename": text() }), &[]),
        schema_2020_12_tool(),
    ]);
    if fixture.is_dual() {
        tools.push(tool("failing_job", "Fails after a while. Only as a task.", json!({}), &[]));
        tools.push(tool(
            "test_tool_with_task",
            "Asks for a name, then works. Only as a task.",
            json!({}),
            &[],
        ));
    }
    if fixture.shared.more_tools.load(Ordering::SeqCst) {
        tools.push(tool("test_tool_that_comes_and_goes", "Is listed only at times.", json!({}), &[]));
    }
    tools
}

fn tool(name: &str, about: &str, properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    json!({ "name": name, "description": about, "inputSchema": schema })
}

/// A tool with schema keywords that a careless client loses.
fn schema_2020_12_tool() -> Value {
    json!({ "name": "json_schema_2020_12_tool", "description": "Has a JSON Schema 2020-12 schema.", "inputSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    } })
}
