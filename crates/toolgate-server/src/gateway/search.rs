//! `search_tools`, `describe_tool` and `call_tool`: how a client comes to many tools where it is given three.
//!
//! They show what the list would show, to whom it would show it; a call that goes by `call_tool` is a call of the tool
//! itself, in the log as everywhere. Invariant: what a visitor may not see is found by no words.

use serde_json::{Value, json};
use toolgate_mcp::serve::{Outcome, in_words_of};
use toolgate_mcp::{Raw, Revision, RpcError};
use toolgate_types::Profile;

use super::{Gateway, Visitor};
use crate::profile::{CALL_TOOL, DESCRIBE_TOOL, SEARCH_TOOLS, View};

/// Tools that a search gives where nothing else is said, and at most.
const USUAL: usize = 8;
const MOST: usize = 50;
/// What of a description is shown for each.
const SHOWN: usize = 400;

/// The tools that a client is given, as elements of a list.
pub(super) fn definitions(profile: &Profile) -> Vec<String> {
    let about =
        profile.description.as_ref().map(|text| format!(" What they are for: {text}")).unwrap_or_default();
    let text = |words: &str| json!({ "type": "string", "description": words });
    let object = json!({ "type": "object", "description": "What the tool takes, as `describe_tool` says." });
    // A provider that fills in only what is named gets the text of the object.
    let arguments = if profile.takes_text() {
        text("What the tool takes, as the text of a JSON object.")
    } else {
        object
    };
    let number = json!({ "type": "integer", "minimum": 1, "maximum": MOST, "description": format!("How many tools at most; {USUAL} where it is left out.") });
    let reads = json!({ "readOnlyHint": true, "openWorldHint": false });
    [
        json!({
            "name": SEARCH_TOOLS,
            "description": format!("Finds tools by what they do. Describe the task in a few words. Each tool that is found can be called with `{CALL_TOOL}`.{about}"),
            "inputSchema": { "type": "object", "properties": { "query": text("What is to be done."), "limit": number }, "required": ["query"] },
            "annotations": reads,
        }),
        json!({
            "name": DESCRIBE_TOOL,
            "description": "Says what a tool does and what it takes.",
            "inputSchema": { "type": "object", "properties": { "name": text("The name of the tool.") }, "required": ["name"] },
            "annotations": reads,
        }),
        json!({
            "name": CALL_TOOL,
            "description": format!("Calls a tool that `{SEARCH_TOOLS}` has found, and gives its result."),
            "inputSchema": { "type": "object", "properties": { "name": text("The name of the tool."), "arguments": arguments }, "required": ["name"] },
        }),
    ]
    .iter()
    .map(Value::to_string)
    .collect()
}

fn invalid(what: impl Into<String>) -> RpcError {
    RpcError::new(RpcError::INVALID_PARAMS, what)
}

/// The tool that `call_tool` is to call, and with what.
pub(super) fn inner(arguments: Option<&Raw>) -> Result<(String, Option<Raw>), RpcError> {
    let (mut name, mut inner) = (None, None);
    for (member, value) in arguments.iter().flat_map(|arguments| arguments.members()) {
        let part = || arguments.map(|arguments| arguments.slice(value));
        match &*member {
            "name" => name = part().and_then(|part| part.parse::<String>().ok()),
            "arguments" => inner = part().filter(|part| part.get() != "null"),
            _ => {}
        }
    }
    let name = name.ok_or_else(|| invalid(format!("`{CALL_TOOL}` needs `name`, the name of a tool")))?;
    // Some models write an object as its text.
    let inner = match inner.map(|inner| (inner.parse::<String>(), inner)) {
        Some((Ok(text), _)) if text.trim().is_empty() => None,
        Some((Ok(text), _)) => {
            let read = Raw::new(text.into(), toolgate_mcp::scan::Limits::default());
            Some(read.map_err(|_| invalid("`arguments` is not an object"))?)
        }
        Some((Err(_), inner)) => Some(inner),
        None => None,
    };
    if inner.as_ref().is_some_and(|inner| !inner.get().trim_start().starts_with('{')) {
        return Err(invalid("`arguments` is not an object"));
    }
    Ok((name, inner))
}

impl Gateway {
    pub(super) fn search(
        &self,
        visitor: &Visitor,
        view: &View,
        arguments: Option<&Raw>,
        revision: Revision,
    ) -> Outcome {
        let arguments: Value = arguments.and_then(|arguments| arguments.parse().ok()).unwrap_or_default();
        let query = arguments["query"].as_str().filter(|query| !query.trim().is_empty());
        let query =
            query.ok_or_else(|| invalid(format!("`{SEARCH_TOOLS}` needs `query`, what is to be done")))?;
        let limit = arguments["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(USUAL).clamp(1, MOST);
        let found = view.search(query, limit, |tool| self.runtime.may_see(&visitor.caller, tool));
        let tools: Vec<_> = found
            .iter()
            .map(|shown| {
                let mut description: String = shown.description.chars().take(SHOWN).collect();
                if description.len() < shown.description.len() {
                    description.push('…');
                }
                json!({ "name": shown.name, "description": description })
            })
            .collect();
        Ok(said(json!({ "tools": tools }), revision))
    }

    pub(super) fn describe(
        &self,
        visitor: &Visitor,
        view: &View,
        arguments: Option<&Raw>,
        revision: Revision,
    ) -> Outcome {
        let arguments: Value = arguments.and_then(|arguments| arguments.parse().ok()).unwrap_or_default();
        let name = arguments["name"].as_str();
        let name =
            name.ok_or_else(|| invalid(format!("`{DESCRIBE_TOOL}` needs `name`, the name of a tool")))?;
        let shown = view.ready().find(|shown| shown.name == name);
        let shown = shown.filter(|shown| self.runtime.may_see(&visitor.caller, &shown.tool));
        let shown = shown.ok_or_else(|| invalid(format!("there is no tool `{name}`")))?;
        Ok(said(serde_json::from_str(&shown.definition).unwrap_or_default(), revision))
    }
}

/// A result that says the same to models and to programs.
fn said(value: Value, revision: Revision) -> Raw {
    let content = json!([{ "type": "text", "text": value.to_string() }]);
    in_words_of(revision, Raw::of(&json!({ "content": content, "structuredContent": value })))
}

#[test]
fn what_call_tool_is_to_call() {
    let read = |text: &str| {
        let read = inner(Some(&Raw::trusted(text.to_owned())));
        read.map(|(name, inner)| (name, inner.map(|inner| inner.get().to_owned())))
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
    assert!(read("{}").is_err() && inner(None).is_err());
}
