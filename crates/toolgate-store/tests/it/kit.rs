//! Entries, changes and a check that is as strict as it needs to be.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Map, Value as Json, json};
use toolgate_store::document::{Act, Document, Kind, Op};
use toolgate_store::file::Paths;
use toolgate_store::registry::{Candidate, Change, Check, Checked, Problem, Problems, Publish};
use toolgate_types::ToolDefinition;
use toolgate_types::tool::Script;

pub(crate) fn map(value: Json) -> Map<String, Json> {
    value.as_object().expect("an object").clone()
}

pub(crate) fn tool(version: u64) -> Map<String, Json> {
    map(json!({ "description": format!("version {version}"), "input_schema": { "type": "object" } }))
}

pub(crate) fn op(kind: Kind, name: &str, act: Act) -> Op {
    Op { kind, name: name.to_owned(), act }
}

pub(crate) fn add(name: &str) -> Op {
    op(Kind::Tool, name, Act::Add(tool(1)))
}

pub(crate) fn change(op: Op) -> Change {
    Change { expect: None, op }
}

pub(crate) fn paths(folder: &Path) -> Paths {
    Paths { tools: Some(folder.join("tools.json")), servers: Some(folder.join("mcp.json")) }
}

/// Descriptions must not say `bad`; the rest is as it is.
pub(crate) fn check() -> Check {
    Arc::new(|candidate: Candidate<'_>| {
        let problem = |message: String| Problems(vec![Problem { message, place: None, hint: None }]);
        let text = candidate.texts.tools.as_deref().unwrap_or("{}");
        let document = Document::parse(Kind::Tool, text).map_err(|error| problem(error.to_string()))?;
        let mut tools = Vec::new();
        for name in document.names() {
            let entry = document.entry(name).expect("it has a name");
            if entry.contains("bad") {
                return Err(problem(format!("tool `{name}` is bad")));
            }
            tools.push(Arc::new(definition(name)));
        }
        if let Some(text) = &candidate.texts.servers {
            Document::parse(Kind::Server, text).map_err(|error| problem(error.to_string()))?;
        }
        Ok(Checked { tools, ..Checked::default() })
    })
}

fn definition(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.parse().expect("a name"),
        description: String::new(),
        version: "1".to_owned(),
        input_schema: serde_json::value::RawValue::from_string("{}".to_owned()).expect("it is JSON"),
        output_schema: None,
        script: Script::new("x"),
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
        contract: toolgate_types::tool::Level::Standard,
    }
}

/// Nobody uses it.
pub(crate) fn nowhere() -> Publish {
    Arc::new(|_| async {}.boxed())
}
