//! What a model sees of the tools: those that fit the task, and those of the agent itself.
//!
//! A few tools are found by the words of the task, the rest by `search_tools`. Invariant: nothing is shown that the
//! caller may not know of, or that the agent is not given; what is shown is only shown, and a call goes down the road.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_runtime::desk::REQUEST_HUMAN_INPUT;
use toolgate_runtime::results::READ_RESULT;
use toolgate_runtime::runtime::Ask;
use toolgate_runtime::{CatalogTool, Params, Runtime, ToolState};
use toolgate_types::Caller;
use toolgate_types::json::Raw;
use toolgate_types::tool::Permission;

use crate::content;
use crate::model::{Part, ToolSpec};
use crate::skills::Skills;

/// The tool that finds others.
pub const SEARCH_TOOLS: &str = "search_tools";
/// The tools that find and read what servers have beside tools.
pub const LIST_RESOURCES: &str = "list_resources";
/// Reads one.
pub const READ_RESOURCE: &str = "read_resource";
/// Reads the instructions of a skill.
pub const LOAD_SKILL: &str = "load_skill";
/// Reads a file of a skill.
pub const READ_SKILL_FILE: &str = "read_skill_file";
/// Tools that one search gives.
const MOST_FOUND: usize = 10;
/// Resources that are listed at once.
const MOST_LISTED: usize = 100;
/// Bytes of a description that a model is shown.
const LONGEST_DESCRIPTION: usize = 1_024;

/// Tools as one caller sees them, for one agent.
pub(crate) struct Toolbox<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) caller: &'a Caller,
    pub(crate) allowed: &'a [String],
    pub(crate) skills: &'a Skills,
}

/// What a tool of the agent gives.
pub(crate) struct Own {
    pub(crate) parts: Vec<Part>,
    pub(crate) failed: bool,
    /// Tools that the model sees from now on.
    pub(crate) found: Vec<String>,
    /// Whether it is of a server that nobody vouches for.
    pub(crate) untrusted: bool,
}

impl Own {
    fn say(text: impl Into<String>) -> Self {
        Self {
            parts: vec![Part::Text { text: text.into() }],
            failed: false,
            found: Vec::new(),
            untrusted: false,
        }
    }

    fn fail(text: impl Into<String>) -> Self {
        Self { failed: true, ..Self::say(text) }
    }
}

/// Whether a tool is one of the agent itself.
pub(crate) fn is_own(name: &str) -> bool {
    [SEARCH_TOOLS, LIST_RESOURCES, READ_RESOURCE, LOAD_SKILL, READ_SKILL_FILE].contains(&name)
}

impl Toolbox<'_> {
    /// Whether the agent may use a tool, as far as its own list says.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.allowed.is_empty() || self.allowed.iter().any(|pattern| fits(pattern, name))
    }

    fn visible(&self) -> Vec<Arc<CatalogTool>> {
        let catalog = self.runtime.catalog();
        let good = |tool: &&Arc<CatalogTool>| {
            tool.state == ToolState::Ready
                && self.allows(&tool.name)
                && self.runtime.may_see(self.caller, tool)
        };
        catalog.tools().filter(good).cloned().collect()
    }

    /// The names of those that fit some words, the best first.
    fn search(&self, words: &str, most: usize) -> Vec<String> {
        let hits = self.runtime.search_among(self.caller, words, most, |name| self.allows(name));
        hits.into_iter().map(|hit| hit.name).collect()
    }

    /// What the model sees: all tools where they are few, else those that fit the words, those it found, and the way
    /// to the others.
    pub(crate) fn shown(&self, words: &str, found: &[String], most: usize) -> Vec<ToolSpec> {
        let visible = self.visible();
        let mut shown: Vec<ToolSpec> = Vec::new();
        if visible.len() <= most {
            shown.extend(visible.iter().map(|tool| spec(tool)));
        } else {
            let fitting = self.search(words, most);
            let always = [REQUEST_HUMAN_INPUT, READ_RESULT];
            let wanted = |tool: &&Arc<CatalogTool>| {
                fitting.contains(&tool.name)
                    || found.contains(&tool.name)
                    || always.contains(&tool.name.as_str())
            };
            shown.extend(visible.iter().filter(wanted).map(|tool| spec(tool)));
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

    /// Runs a tool of the agent itself.
    pub(crate) async fn own(&self, name: &str, arguments: &Json) -> Own {
        match name {
            SEARCH_TOOLS => self.find(arguments),
            LIST_RESOURCES => self.list_resources(arguments),
            READ_RESOURCE => self.read_resource(arguments).await,
            LOAD_SKILL => told(self.skills.load(arguments["name"].as_str().unwrap_or_default())),
            _ => {
                let field = |name: &str| arguments[name].as_str().unwrap_or_default();
                told(self.skills.file(field("skill"), field("path")))
            }
        }
    }

    fn find(&self, arguments: &Json) -> Own {
        #[derive(Deserialize)]
        struct Wanted {
            query: String,
        }
        let Ok(Wanted { query }) = Wanted::deserialize(arguments) else {
            return Own::fail("error invalid_arguments: `query` is a text");
        };
        let visible = self.visible();
        let found = self.search(&query, MOST_FOUND);
        if found.is_empty() {
            return Own::say("nothing fits; try other words, or do without a tool");
        }
        let line = |name: &String| {
            let tool = visible.iter().find(|tool| tool.name == *name);
            let about = tool.map(|tool| short(&tool.description, 200)).unwrap_or_default();
            format!("{name}: {about}")
        };
        let text = found.iter().map(line).collect::<Vec<_>>().join("\n");
        Own { found, ..Own::say(format!("these can be called from now on:\n{text}")) }
    }

    fn may_have(&self, server: &str) -> bool {
        format!("{server}:resources")
            .parse::<Permission>()
            .is_ok_and(|permission| self.caller.has(&permission))
    }

    fn has_resources(&self) -> bool {
        let any = |(server, offer): &(String, toolgate_runtime::Offer)| {
            self.may_have(server) && !(offer.resources.is_empty() && offer.templates.is_empty())
        };
        self.runtime.offers().iter().any(any)
    }

    fn list_resources(&self, arguments: &Json) -> Own {
        let wanted = arguments["server"].as_str();
        let mut lines = Vec::new();
        for (server, offer) in self.runtime.offers() {
            if !self.may_have(&server) || wanted.is_some_and(|wanted| wanted != server) {
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
                        short(&one.description, 200)
                    ));
                }
            }
        }
        let of = lines.len();
        lines.truncate(MOST_LISTED);
        if of > MOST_LISTED {
            lines.push(format!("and {} more; name a `server`", of - MOST_LISTED));
        }
        Own::say(if lines.is_empty() { "there are none".to_owned() } else { lines.join("\n") })
    }

    /// A resource, of the server that lists it, or else of those that may have it.
    pub(crate) async fn read_resource(&self, arguments: &Json) -> Own {
        let Some(uri) = arguments["uri"].as_str() else {
            return Own::fail("error invalid_arguments: `uri` is a text");
        };
        let mut holders: Vec<(usize, String)> = Vec::new();
        for (server, offer) in self.runtime.offers() {
            if !self.may_have(&server) || arguments["server"].as_str().is_some_and(|wanted| wanted != server)
            {
                continue;
            }
            let lists = offer.resources.iter().any(|one| one.id == uri && one.fault.is_none());
            if lists || !offer.templates.is_empty() || !offer.resources.is_empty() {
                holders.push((usize::from(!lists), server));
            }
        }
        holders.sort();
        let mut last = format!("error: there is no resource `{uri}`");
        for (_, server) in holders {
            match self.runtime.ask(&server, Ask::Resource, Params::none().with("uri", &uri)).await {
                Ok(reply) => {
                    let reply: Json = reply.parse().unwrap_or_default();
                    let contents = reply["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
                    let mut parts: Vec<Part> = contents.iter().map(content::resource).collect();
                    if parts.is_empty() {
                        parts.push(Part::Text { text: "(nothing)".to_owned() });
                    }
                    let untrusted = !self.runtime.trusts(&server);
                    return Own { parts, failed: false, found: Vec::new(), untrusted };
                }
                Err(error) => last = format!("error: {error}"),
            }
        }
        Own::fail(last)
    }
}

fn told(outcome: Result<String, String>) -> Own {
    match outcome {
        Ok(text) => Own::say(text),
        Err(why) => Own::fail(format!("error: {why}")),
    }
}

fn spec(tool: &CatalogTool) -> ToolSpec {
    ToolSpec {
        name: tool.name.clone(),
        description: short(&tool.description, LONGEST_DESCRIPTION),
        schema: tool.input_schema.clone(),
    }
}

fn short(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

fn own(name: &str, description: String, schema: &Json) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description, schema: Raw::of(schema) }
}

fn search_tools(all: usize) -> ToolSpec {
    let schema = json!({ "type": "object", "required": ["query"], "additionalProperties": false, "properties": {
        "query": { "type": "string", "description": "What the tool should do, in a few words." } } });
    let about = format!(
        "Finds tools by what they do. You see some of {all}; what is found can be called after that."
    );
    own(SEARCH_TOOLS, about, &schema)
}

fn resource_tools() -> [ToolSpec; 2] {
    let server = json!({ "type": "string", "description": "Only of this server." });
    let list = json!({ "type": "object", "additionalProperties": false, "properties": { "server": server } });
    let read = json!({ "type": "object", "required": ["uri"], "additionalProperties": false, "properties": {
        "uri": { "type": "string", "description": "Its address, as it is listed; a template is filled in." }, "server": server } });
    [
        own(
            LIST_RESOURCES,
            "Lists the resources that the servers have beside their tools.".to_owned(),
            &list,
        ),
        own(READ_RESOURCE, "Reads a resource by its address.".to_owned(), &read),
    ]
}

fn skill_tools(skills: &Skills) -> [ToolSpec; 2] {
    let names: Vec<_> = skills.names().collect();
    let name = json!({ "type": "string", "enum": names, "description": "The skill." });
    let load = json!({ "type": "object", "required": ["name"], "additionalProperties": false, "properties": { "name": name } });
    let file = json!({ "type": "object", "required": ["skill", "path"], "additionalProperties": false, "properties": {
        "skill": name, "path": { "type": "string", "description": "The file, as the skill names it." } } });
    let about = "Reads the instructions of a skill. Do so before you do what the skill is for.";
    let read = "Reads a file of a skill. A script among them is run by giving its text to `code_execution`.";
    [own(LOAD_SKILL, about.to_owned(), &load), own(READ_SKILL_FILE, read.to_owned(), &file)]
}

/// Whether a name fits a pattern, in which `*` stands for any text.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| fits(rest, &name[at..]))
        }),
    }
}

#[test]
fn patterns_stand_for_names() {
    for (pattern, name, fit) in [
        ("echo", "echo", true),
        ("echo", "echos", false),
        ("files__*", "files__read", true),
        ("*", "anything", true),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abcd", false),
    ] {
        assert_eq!(fits(pattern, name), fit, "{pattern} {name}");
    }
}
