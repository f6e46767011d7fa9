//! Selects the tools offered to a model, and runs the agent's own tools.
//!
//! The tools that match the task are offered; the model finds the rest with `search_tools`. Invariant: a tool is
//! offered only if the caller may see it and the agent may use it. Offering grants nothing: calls go through the
//! pipeline.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_json::RawJson;
use toolgate_runtime::questions::REQUEST_HUMAN_INPUT;
use toolgate_runtime::results::READ_RESULT;
use toolgate_runtime::runtime::RequestKind;
use toolgate_runtime::{CatalogTool, Params, Runtime, ToolState};
use toolgate_types::tool::Permission;
use toolgate_types::{Caller, wildcard};

use crate::content;
use crate::model::{Part, ToolSpec};
use crate::skills::SkillSet;

/// Agent tool that finds other tools.
pub const SEARCH_TOOLS: &str = "search_tools";
/// Agent tool that lists the resources of the servers.
pub const LIST_RESOURCES: &str = "list_resources";
/// Agent tool that reads one resource.
pub const READ_RESOURCE: &str = "read_resource";
/// Agent tool that reads the instructions of a skill.
pub const LOAD_SKILL: &str = "load_skill";
/// Agent tool that reads a file of a skill.
pub const READ_SKILL_FILE: &str = "read_skill_file";
/// Tools returned by one search.
const MAX_FOUND: usize = 10;
/// Resources listed by one call.
const MAX_LISTED: usize = 100;
/// Bytes of a tool description passed to the model.
const MAX_DESCRIPTION_BYTES: usize = 1_024;

/// The tools of one agent, as visible to one caller.
pub(crate) struct Toolbox<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) caller: &'a Caller,
    pub(crate) allowed: &'a [String],
    pub(crate) skills: &'a SkillSet,
}

/// Result of an agent tool.
pub(crate) struct AgentToolResult {
    pub(crate) parts: Vec<Part>,
    pub(crate) failed: bool,
    /// Tools to offer to the model from now on.
    pub(crate) found: Vec<String>,
    /// True if the content comes from an untrusted server.
    pub(crate) untrusted: bool,
}

impl AgentToolResult {
    fn text(text: impl Into<String>) -> Self {
        Self {
            parts: vec![Part::Text { text: text.into() }],
            failed: false,
            found: Vec::new(),
            untrusted: false,
        }
    }

    fn error(text: impl Into<String>) -> Self {
        Self { failed: true, ..Self::text(text) }
    }
}

/// Returns true if the name is that of an agent tool.
pub(crate) fn is_agent_tool(name: &str) -> bool {
    [SEARCH_TOOLS, LIST_RESOURCES, READ_RESOURCE, LOAD_SKILL, READ_SKILL_FILE].contains(&name)
}

impl Toolbox<'_> {
    /// Returns true if the `tools` list of the agent allows this tool. An empty list allows all.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.allowed.is_empty() || self.allowed.iter().any(|pattern| wildcard::matches(pattern, name))
    }

    fn visible_tools(&self) -> Vec<Arc<CatalogTool>> {
        let catalog = self.runtime.catalog();
        let good = |tool: &&Arc<CatalogTool>| {
            tool.state == ToolState::Ready
                && self.allows(&tool.name)
                && self.runtime.may_see(self.caller, tool)
        };
        catalog.tools().filter(good).cloned().collect()
    }

    /// Returns the names of matching tools, best first.
    fn search_names(&self, words: &str, most: usize) -> Vec<String> {
        let hits = self.runtime.search_among(self.caller, words, most, |name| self.allows(name));
        hits.into_iter().map(|hit| hit.name).collect()
    }

    /// Returns the tools to offer: all if they are few; otherwise those that match the task, those found earlier, and
    /// `search_tools` for the others.
    pub(crate) fn offered_tools(&self, words: &str, found: &[String], most: usize) -> Vec<ToolSpec> {
        let visible = self.visible_tools();
        let mut shown: Vec<ToolSpec> = Vec::new();
        if visible.len() <= most {
            shown.extend(visible.iter().map(|tool| tool_spec(tool)));
        } else {
            let fitting = self.search_names(words, most);
            let always = [REQUEST_HUMAN_INPUT, READ_RESULT];
            let wanted = |tool: &&Arc<CatalogTool>| {
                fitting.contains(&tool.name)
                    || found.contains(&tool.name)
                    || always.contains(&tool.name.as_str())
            };
            shown.extend(visible.iter().filter(wanted).map(|tool| tool_spec(tool)));
            shown.push(search_tools(visible.len()));
        }
        if self.has_resources() {
            shown.extend(resource_tools());
        }
        if !self.skills.is_empty() {
            shown.extend(skill_tools(self.skills));
        }
        shown
    }

    pub(crate) async fn run_agent_tool(&self, name: &str, arguments: &Json) -> AgentToolResult {
        match name {
            SEARCH_TOOLS => self.find_tools(arguments),
            LIST_RESOURCES => self.list_resources(arguments),
            READ_RESOURCE => self.read_resource(arguments).await,
            LOAD_SKILL => from_result(self.skills.load(arguments["name"].as_str().unwrap_or_default())),
            _ => {
                let field = |name: &str| arguments[name].as_str().unwrap_or_default();
                from_result(self.skills.read_file(field("skill"), field("path")))
            }
        }
    }

    fn find_tools(&self, arguments: &Json) -> AgentToolResult {
        #[derive(Deserialize)]
        struct SearchArguments {
            query: String,
        }
        let Ok(SearchArguments { query }) = SearchArguments::deserialize(arguments) else {
            return AgentToolResult::error("error invalid_arguments: `query` must be a string");
        };
        let visible = self.visible_tools();
        let found = self.search_names(&query, MAX_FOUND);
        if found.is_empty() {
            return AgentToolResult::text("no tool matches; try other words, or answer without a tool");
        }
        let line = |name: &String| {
            let tool = visible.iter().find(|tool| tool.name == *name);
            let about = tool.map(|tool| truncate(&tool.description, 200)).unwrap_or_default();
            format!("{name}: {about}")
        };
        let text = found.iter().map(line).collect::<Vec<_>>().join("\n");
        AgentToolResult {
            found,
            ..AgentToolResult::text(format!("these tools can be called from now on:\n{text}"))
        }
    }

    fn may_read_resources(&self, server: &str) -> bool {
        format!("{server}:resources")
            .parse::<Permission>()
            .is_ok_and(|permission| self.caller.has_permission(&permission))
    }

    fn has_resources(&self) -> bool {
        let any = |(server, offer): &(String, toolgate_runtime::ServerOffer)| {
            self.may_read_resources(server) && !(offer.resources.is_empty() && offer.templates.is_empty())
        };
        self.runtime.offers().iter().any(any)
    }

    fn list_resources(&self, arguments: &Json) -> AgentToolResult {
        let wanted = arguments["server"].as_str();
        let mut lines = Vec::new();
        for (server, offer) in self.runtime.offers() {
            if !self.may_read_resources(&server) || wanted.is_some_and(|wanted| wanted != server) {
                continue;
            }
            for (kind, one) in offer
                .resources
                .iter()
                .map(|one| ("", one))
                .chain(offer.templates.iter().map(|one| ("template ", one)))
            {
                if one.fault.is_none() {
                    lines.push(format!(
                        "{server}: {kind}{} · {} · {}",
                        one.id,
                        one.title,
                        truncate(&one.description, 200)
                    ));
                }
            }
        }
        let total = lines.len();
        lines.truncate(MAX_LISTED);
        if total > MAX_LISTED {
            lines.push(format!("and {} more; pass `server` to list fewer", total - MAX_LISTED));
        }
        AgentToolResult::text(if lines.is_empty() { "no resources".to_owned() } else { lines.join("\n") })
    }

    /// Reads a resource. Servers that list the URI are tried first, then all others that offer resources.
    pub(crate) async fn read_resource(&self, arguments: &Json) -> AgentToolResult {
        let Some(uri) = arguments["uri"].as_str() else {
            return AgentToolResult::error("error invalid_arguments: `uri` must be a string");
        };
        let mut holders: Vec<(usize, String)> = Vec::new();
        for (server, offer) in self.runtime.offers() {
            if !self.may_read_resources(&server)
                || arguments["server"].as_str().is_some_and(|wanted| wanted != server)
            {
                continue;
            }
            let lists = offer.resources.iter().any(|one| one.id == uri && one.fault.is_none());
            if lists || !offer.templates.is_empty() || !offer.resources.is_empty() {
                holders.push((usize::from(!lists), server));
            }
        }
        holders.sort();
        let mut last = format!("error: no such resource: `{uri}`");
        for (_, server) in holders {
            match self.runtime.request(&server, RequestKind::Resource, Params::none().with("uri", &uri)).await
            {
                Ok(reply) => {
                    let reply: Json = reply.parse().unwrap_or_default();
                    let contents = reply["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
                    let mut parts: Vec<Part> = contents.iter().map(content::resource_part).collect();
                    if parts.is_empty() {
                        parts.push(Part::Text { text: "(nothing)".to_owned() });
                    }
                    let untrusted = !self.runtime.is_trusted(&server);
                    return AgentToolResult { parts, failed: false, found: Vec::new(), untrusted };
                }
                Err(error) => last = format!("error: {error}"),
            }
        }
        AgentToolResult::error(last)
    }
}

fn from_result(outcome: Result<String, String>) -> AgentToolResult {
    match outcome {
        Ok(text) => AgentToolResult::text(text),
        Err(why) => AgentToolResult::error(format!("error: {why}")),
    }
}

fn tool_spec(tool: &CatalogTool) -> ToolSpec {
    ToolSpec {
        name: tool.name.clone(),
        description: truncate(&tool.description, MAX_DESCRIPTION_BYTES),
        schema: tool.input_schema.clone(),
    }
}

fn truncate(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

fn agent_tool_spec(name: &str, description: String, schema: &Json) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description, schema: RawJson::from_value(schema) }
}

fn search_tools(all: usize) -> ToolSpec {
    let schema = json!({ "type": "object", "required": ["query"], "additionalProperties": false, "properties": {
        "query": { "type": "string", "description": "What the tool should do, in a few words." } } });
    let about = format!(
        "Searches tools by what they do. You see some of {all}; the tools it finds can be called afterwards."
    );
    agent_tool_spec(SEARCH_TOOLS, about, &schema)
}

fn resource_tools() -> [ToolSpec; 2] {
    let server = json!({ "type": "string", "description": "Limit to this server." });
    let list = json!({ "type": "object", "additionalProperties": false, "properties": { "server": server } });
    let read = json!({ "type": "object", "required": ["uri"], "additionalProperties": false, "properties": {
        "uri": { "type": "string", "description": "The URI as listed; fill in the variables of a template." }, "server": server } });
    [
        agent_tool_spec(
            LIST_RESOURCES,
            "Lists the resources that the servers offer beside their tools.".to_owned(),
            &list,
        ),
        agent_tool_spec(READ_RESOURCE, "Reads a resource by its URI.".to_owned(), &read),
    ]
}

fn skill_tools(skills: &SkillSet) -> [ToolSpec; 2] {
    let names: Vec<_> = skills.names().collect();
    let name = json!({ "type": "string", "enum": names, "description": "The skill." });
    let load = json!({ "type": "object", "required": ["name"], "additionalProperties": false, "properties": { "name": name } });
    let file = json!({ "type": "object", "required": ["skill", "path"], "additionalProperties": false, "properties": {
        "skill": name, "path": { "type": "string", "description": "Path of the file, as the skill names it." } } });
    let about = "Reads the instructions of a skill. Load a skill before you do what it is for.";
    let read = "Reads a file of a skill. To run a script, pass its text to `code_execution`.";
    [
        agent_tool_spec(LOAD_SKILL, about.to_owned(), &load),
        agent_tool_spec(READ_SKILL_FILE, read.to_owned(), &file),
    ]
}
