//! What the tools are called, and what they take.
//!
//! Those that are about the newest era alone are there in a server of the older ones too: they ask in
//! their own way. Only what needs the library's tasks is left out.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::server::Fixture;

/// Tools without arguments, with what they do.
const PLAIN: [(&str, &str); 27] = [
    ("test_simple_text", "Says one thing."),
    ("test_image_content", "Gives a picture."),
    ("test_audio_content", "Gives a sound."),
    ("test_embedded_resource", "Gives a resource."),
    ("test_multiple_content_types", "Gives a text, a picture and a resource."),
    ("test_tool_with_logging", "Logs three times on the way."),
    ("test_error_handling", "Fails."),
    ("test_tool_with_progress", "Tells three times how far it is."),
    ("test_elicitation_sep1034_defaults", "Asks for values that have defaults."),
    ("test_elicitation_sep1330_enums", "Asks for choices of every kind."),
    ("test_reconnection", "Takes its time."),
    ("test_trigger_tool_change", "Changes the list of tools."),
    ("test_trigger_prompt_change", "Changes the list of prompts."),
    ("test_trigger_resource_change", "Changes the resource that is watched."),
    ("test_missing_capability", "Needs a client that can sample."),
    ("test_streaming_elicitation", "Asks before it answers."),
    ("test_logging_tool", "Logs, where that is wanted."),
    ("test_input_required_result_elicitation", "Asks for a name."),
    ("test_input_required_result_sampling", "Asks the model."),
    ("test_input_required_result_list_roots", "Asks for the roots."),
    ("test_input_required_result_request_state", "Asks, and knows its state again."),
    ("test_input_required_result_multiple_inputs", "Asks three things at once."),
    ("test_input_required_result_multi_round", "Asks two things in turn."),
    ("test_input_required_result_tampered_state", "Asks, and refuses a state that is not its own."),
    ("test_input_required_result_capabilities", "Asks what this client can be asked."),
    ("protocol_error_job", "Breaks while it works."),
    ("multi_input", "Asks two things while it works."),
];

pub(crate) fn all(fixture: &Fixture) -> Vec<Value> {
    let mut tools: Vec<Value> = PLAIN.iter().map(|(name, about)| tool(name, about, json!({}), &[])).collect();
    let text = || json!({ "type": "string" });
    tools.extend([
        tool("test_sampling", "Asks the model this.", json!({ "prompt": text() }), &["prompt"]),
        tool("test_elicitation", "Asks the person this.", json!({ "message": text() }), &["message"]),
        tool(
            "test_custom_header",
            "Has an argument that is a header too.",
            json!({ "region": { "type": "string", "x-mcp-header": "Region" } }),
            &["region"],
        ),
        tool("greet", "Greets.", json!({ "name": text() }), &["name"]),
        tool(
            "slow_compute",
            "Works for so many seconds.",
            json!({ "seconds": { "type": "number" }, "label": text() }),
            &[],
        ),
        tool("confirm_delete", "Asks before it deletes.", json!({ "filename": text() }), &[]),
        schema_of_2020(),
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
        tools.push(tool("test_tool_that_comes_and_goes", "Is not always there.", json!({}), &[]));
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

/// A schema with the words that a careless reader loses.
fn schema_of_2020() -> Value {
    json!({ "name": "json_schema_2020_12_tool", "description": "Has a schema of JSON Schema 2020-12.", "inputSchema": {
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
