//! Shared test helpers: entries, changes and a minimal validator.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Map, Value as Json, json};
use toolgate_store::document::{EntryAction, EntryKind, EntryOp, RegistryDocument};
use toolgate_store::file::RegistryPaths;
use toolgate_store::registry::{
    CheckFn, CheckInput, CheckedRegistry, PublishFn, RegistryChange, RegistryProblem, RegistryProblems,
};
use toolgate_types::ToolDefinition;
use toolgate_types::tool::ScriptSpec;

pub(crate) fn map(value: Json) -> Map<String, Json> {
    value.as_object().expect("an object").clone()
}

pub(crate) fn tool(version: u64) -> Map<String, Json> {
    map(json!({ "description": format!("version {version}"), "input_schema": { "type": "object" } }))
}

pub(crate) fn op(kind: EntryKind, name: &str, act: EntryAction) -> EntryOp {
    EntryOp { kind, name: name.to_owned(), action: act }
}

pub(crate) fn add(name: &str) -> EntryOp {
    op(EntryKind::Tool, name, EntryAction::Add(tool(1)))
}

pub(crate) fn change(op: EntryOp) -> RegistryChange {
    op.into()
}

pub(crate) fn paths(folder: &Path) -> RegistryPaths {
    RegistryPaths { tools: Some(folder.join("tools.json")), servers: Some(folder.join("mcp.json")) }
}

/// Returns a validator that rejects descriptions containing `bad`.
pub(crate) fn check() -> CheckFn {
    Arc::new(|candidate: CheckInput<'_>| {
        let problem =
            |message: String| RegistryProblems(vec![RegistryProblem { message, place: None, hint: None }]);
        let text = candidate.texts.tools.as_deref().unwrap_or("{}");
        let document =
            RegistryDocument::parse(EntryKind::Tool, text).map_err(|error| problem(error.to_string()))?;
        let mut tools = Vec::new();
        for name in document.names() {
            let entry = document.entry(name).expect("it has a name");
            if entry.contains("bad") {
                return Err(problem(format!("tool `{name}` is bad")));
            }
            tools.push(Arc::new(definition(name, entry)));
        }
        if let Some(text) = &candidate.texts.servers {
            RegistryDocument::parse(EntryKind::Server, text).map_err(|error| problem(error.to_string()))?;
        }
        Ok(CheckedRegistry { tools, ..CheckedRegistry::default() })
    })
}

fn definition(name: &str, entry: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.parse().expect("a name"),
        description: entry.to_owned(),
        version: "1".to_owned(),
        input_schema: serde_json::value::RawValue::from_string("{}".to_owned()).expect("it is JSON"),
        output_schema: None,
        script: ScriptSpec::new("x"),
        limits: toolgate_types::ToolLimits::default(),
        permissions: Vec::new(),
        category: None,
        response_time: None,
        cache_ttl: None,
        idempotent: false,
        examples: Vec::new(),
        tags: Vec::new(),
        rate_limit: None,
        deprecated: None,
        follow_ups: Vec::new(),
        contract: toolgate_types::tool::ContractLevel::Standard,
    }
}

/// Publishes to nothing.
pub(crate) fn nowhere() -> PublishFn {
    Arc::new(|_| async {}.boxed())
}
