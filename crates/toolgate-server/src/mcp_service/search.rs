//! `search_tools`, `describe_tool` and `call_tool`: access to many tools through three.
//!
//! They show what the tool list would show to the same caller. A call through `call_tool` is a call of the tool itself,
//! in the execution log and everywhere else. Invariant: no query finds a tool the caller may not see.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_mcp::server::{RpcResult, adapt_result};
use toolgate_mcp::{RawJson, Revision, RpcError};
use toolgate_runtime::catalog::ListingOverrides;
use toolgate_runtime::{CatalogTool, ListFilter};
use toolgate_types::Profile;

use super::{McpCaller, McpService};
use crate::profile::{CALL_TOOL, DESCRIBE_TOOL, ProfileView, SEARCH_TOOLS};

/// Number of search results: default and maximum.
const DEFAULT_LIMIT: usize = 8;
const MAX_LIMIT: usize = 50;
/// Characters of a description shown per result.
const MAX_DESCRIPTION: usize = 400;

/// Definitions of the three tools.
pub(super) fn definitions(profile: &Profile) -> Vec<String> {
    let about = profile.description.as_ref().map(|text| format!(" Purpose: {text}")).unwrap_or_default();
    let text = |words: &str| json!({ "type": "string", "description": words });
    let object =
        json!({ "type": "object", "description": "Arguments of the tool, as shown by `describe_tool`." });
    // For providers that fill in only named properties, arguments are a JSON string.
    let arguments = if profile.wants_json_strings() {
        text("Arguments of the tool, as a string that holds a JSON object.")
    } else {
        object
    };
    let number = json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": format!("Maximum number of tools (default {DEFAULT_LIMIT}).") });
    let reads = json!({ "readOnlyHint": true, "openWorldHint": false });
    [
        json!({
            "name": SEARCH_TOOLS,
            "description": format!("Finds tools by what they do. Describe the task in a few words. Call the tools it finds with `{CALL_TOOL}`.{about}"),
            "inputSchema": { "type": "object", "properties": { "query": text("The task, in a few words."), "limit": number }, "required": ["query"] },
            "annotations": reads,
        }),
        json!({
            "name": DESCRIBE_TOOL,
            "description": "Returns the description and the input schema of a tool.",
            "inputSchema": { "type": "object", "properties": { "name": text("The name of the tool.") }, "required": ["name"] },
            "annotations": reads,
        }),
        json!({
            "name": CALL_TOOL,
            "description": format!("Calls a tool found by `{SEARCH_TOOLS}` and returns its result."),
            "inputSchema": { "type": "object", "properties": { "name": text("The name of the tool."), "arguments": arguments }, "required": ["name"] },
        }),
    ]
    .iter()
    .map(Value::to_string)
    .collect()
}

fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, message)
}

/// Reads the tool name and its arguments from the arguments of `call_tool`.
pub(super) fn call_tool_target(arguments: Option<&RawJson>) -> Result<(String, Option<RawJson>), RpcError> {
    let (mut name, mut inner) = (None, None);
    for (member, value) in arguments.iter().flat_map(|arguments| arguments.members()) {
        let part = || arguments.map(|arguments| arguments.slice(value));
        match &*member {
            "name" => name = part().and_then(|part| part.parse::<String>().ok()),
            "arguments" => inner = part().filter(|part| part.as_str() != "null"),
            _ => {}
        }
    }
    let name = name.ok_or_else(|| invalid(format!("`{CALL_TOOL}` needs `name`, the name of a tool")))?;
    // Some models send an object as a JSON string.
    let inner = match inner.map(|inner| (inner.parse::<String>(), inner)) {
        Some((Ok(text), _)) if text.trim().is_empty() => None,
        Some((Ok(text), _)) => {
            let read = RawJson::new(text.into(), toolgate_mcp::scan::ScanLimits::default());
            Some(read.map_err(|_| invalid("`arguments` is not an object"))?)
        }
        Some((Err(_), inner)) => Some(inner),
        None => None,
    };
    if inner.as_ref().is_some_and(|inner| !inner.as_str().trim_start().starts_with('{')) {
        return Err(invalid("`arguments` is not an object"));
    }
    Ok((name, inner))
}

impl McpService {
    pub(super) fn search(
        &self,
        mcp_caller: &McpCaller,
        view: &Arc<ProfileView>,
        arguments: Option<&RawJson>,
        lists: &ListFilter,
        revision: Revision,
    ) -> RpcResult {
        let arguments: Value = arguments.and_then(|arguments| arguments.parse().ok()).unwrap_or_default();
        let query = arguments["query"].as_str().filter(|query| !query.trim().is_empty());
        let query = query
            .ok_or_else(|| invalid(format!("`{SEARCH_TOOLS}` needs `query`, a description of the task")))?;
        let limit = arguments["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let found = view
            .search(query, limit, |tool| lists.shows(tool) && self.runtime.may_see(&mcp_caller.caller, tool));
        // Without its login, no tool of a server is found, so the login is.
        let logins = self.login_tools(mcp_caller, Some(&view.profile), lists).into_iter();
        let logins = logins.map(|tool| json!({ "name": tool.name, "description": tool.description }));
        let tools: Vec<_> = found
            .iter()
            .map(|shown| {
                let mut description: String = shown.description.chars().take(MAX_DESCRIPTION).collect();
                if description.len() < shown.description.len() {
                    description.push('…');
                }
                json!({ "name": shown.name, "description": description })
            })
            .chain(logins)
            .collect();
        Ok(structured_result(json!({ "tools": tools }), revision))
    }

    pub(super) fn describe(
        &self,
        mcp_caller: &McpCaller,
        view: &ProfileView,
        arguments: Option<&RawJson>,
        lists: &ListFilter,
        revision: Revision,
    ) -> RpcResult {
        let arguments: Value = arguments.and_then(|arguments| arguments.parse().ok()).unwrap_or_default();
        let name = arguments["name"].as_str();
        let name =
            name.ok_or_else(|| invalid(format!("`{DESCRIBE_TOOL}` needs `name`, the name of a tool")))?;
        let shown = view.ready().find(|shown| shown.name == name);
        let may_see =
            |tool: &CatalogTool| lists.shows(tool) && self.runtime.may_see(&mcp_caller.caller, tool);
        let shown = shown.filter(|shown| may_see(&shown.tool));
        let mut logins = self.login_tools(mcp_caller, Some(&view.profile), lists).into_iter();
        if let Some(login) = logins.find(|login| login.name == name) {
            let definition = login.listed_definition(&ListingOverrides::default());
            return Ok(structured_result(serde_json::from_str(&definition).unwrap_or_default(), revision));
        }
        let shown = shown.ok_or_else(|| invalid(format!("there is no tool `{name}`")))?;
        Ok(structured_result(serde_json::from_str(&shown.definition).unwrap_or_default(), revision))
    }
}

/// Builds a result with the same value as text and as structured content.
pub(super) fn structured_result(value: Value, revision: Revision) -> RawJson {
    let content = json!([{ "type": "text", "text": value.to_string() }]);
    adapt_result(revision, RawJson::from_value(&json!({ "content": content, "structuredContent": value })))
}

#[test]
fn call_tool_accepts_objects_and_json_strings() {
    let read = |text: &str| {
        let read = call_tool_target(Some(&RawJson::from_trusted(text.to_owned())));
        read.map(|(name, inner)| (name, inner.map(|inner| inner.as_str().to_owned())))
            .map_err(|error| error.message)
    };
    let call = |arguments: Option<&str>| Ok(("a".to_owned(), arguments.map(str::to_owned)));
    assert_eq!(read(r#"{"name":"a","arguments":{"x":1.0}}"#), call(Some(r#"{"x":1.0}"#)));
    assert_eq!(read(r#"{"arguments":"{\"x\":1.0}","name":"a"}"#), call(Some(r#"{"x":1.0}"#)));
    assert_eq!(read(r#"{"name":"a","arguments":null}"#), call(None));
    assert_eq!(read(r#"{"name":"a","arguments":""}"#), call(None));
    for wrong in [
        r#"{"name":"a","arguments":[1]}"#,
        r#"{"name":"a","arguments":"x"}"#,
        r#"{"name":"a","arguments":"[1]"}"#,
    ] {
        assert_eq!(read(wrong), Err("`arguments` is not an object".to_owned()), "{wrong}");
    }
    assert!(read("{}").is_err() && call_tool_target(None).is_err());
}
