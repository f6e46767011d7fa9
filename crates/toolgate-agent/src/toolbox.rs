//! Selects the tools offered to a model, and runs the agent's own tools.
//!
//! The tools that match the task are offered; the model finds the rest with `search_tools`. Invariant: a tool is
//! offered only if the caller may see it and the agent may use it. Offering grants nothing: calls go through the
//! pipeline, those of the agent's own tools too.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use toolgate_json::RawJson;
use toolgate_runtime::code_mode::{self, CODE_EXECUTION, FIND_FUNCTIONS, FunctionSet, RUN_CODE};
use toolgate_runtime::questions::{QuestionQueue, REQUEST_HUMAN_INPUT, input_tool};
use toolgate_runtime::results::READ_RESULT;
use toolgate_runtime::{
    BuiltinCall, BuiltinResult, BuiltinTool, CallOrigin, CallOutcome, CatalogTool, ListFilter, Operation,
    OperationTarget, Runtime, SessionId, ToolState, VisibleItem,
};
use toolgate_types::agent::AgentExposure;
use toolgate_types::{Caller, wildcard};

use crate::content;
use crate::model::{Part, ToolSpec};
use crate::run::RunPerson;
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
/// Bytes of signatures and descriptions that are offered at once. Programs find the functions of more with a search.
const MAX_STUB_BYTES: usize = 8 << 10;
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
    /// Lists that servers have for the caller.
    pub(crate) lists: &'a ListFilter,
    pub(crate) allowed: &'a [String],
    pub(crate) exposure: AgentExposure,
    pub(crate) skills: &'a SkillSet,
    /// Questions to the person at the terminal of the run.
    pub(crate) questions: Option<&'a Arc<QuestionQueue>>,
}

/// Result of an agent tool.
pub(crate) struct AgentToolResult {
    pub(crate) parts: Vec<Part>,
    pub(crate) failed: bool,
    /// Tools to offer to the model from now on.
    pub(crate) found: Vec<String>,
}

/// Text of an agent tool, and the tools it found.
type FoundText = (String, Vec<String>);

/// Everything that an agent tool works with. It is owned, because the pipeline runs the tool.
pub(crate) struct AgentToolContext {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) caller: Caller,
    pub(crate) allowed: Vec<String>,
    pub(crate) exposure: AgentExposure,
    pub(crate) skills: SkillSet,
    /// The run, as the session of the operation.
    pub(crate) session: SessionId,
    pub(crate) person: Option<RunPerson>,
    /// Lists that servers have for the caller.
    pub(crate) lists: ListFilter,
}

impl AgentToolContext {
    /// Runs an agent tool through the pipeline.
    pub(crate) async fn run(self, name: &str, arguments: &Json) -> AgentToolResult {
        let approver = self.person.as_ref().map(|person| person.approver.clone());
        let origin = CallOrigin { session: Some(self.session.clone()), approver, ..CallOrigin::default() };
        if name == READ_RESOURCE {
            let Some(uri) = arguments["uri"].as_str() else {
                let text = "error invalid_arguments: `uri` must be a string".to_owned();
                return AgentToolResult { parts: vec![Part::Text { text }], failed: true, found: Vec::new() };
            };
            let operation = Operation::resource(uri, arguments["server"].as_str().map(str::to_owned));
            let outcome = self.runtime.execute_boxed(&self.caller, operation.with_origin(origin)).await;
            return resource_result(&self.runtime, &self.caller, &outcome);
        }
        let (runtime, caller) = (Arc::clone(&self.runtime), self.caller.clone());
        let found = Arc::new(Mutex::new(Vec::new()));
        let tool = self.into_tool(name, Arc::clone(&found));
        let target = OperationTarget::FrontEndTool(Arc::new(tool));
        let operation = Operation::new(target, RawJson::from_value(arguments)).with_origin(origin);
        let outcome = runtime.execute_boxed(&caller, operation).await;
        let failed = outcome.result.error.is_some();
        let parts = content::outcome_parts(&outcome, &runtime.agent_hints(&caller, &outcome), usize::MAX);
        let found = std::mem::take(&mut *found.lock());
        AgentToolResult { parts, failed, found }
    }

    /// The tool as the pipeline runs it.
    fn into_tool(self, name: &str, found: Arc<Mutex<Vec<String>>>) -> CatalogTool {
        let permission = RUN_PERMISSION.parse().expect("a valid permission");
        if name == REQUEST_HUMAN_INPUT
            && let Some(person) = &self.person
        {
            return CatalogTool::for_front_end(input_tool(&person.questions), permission);
        }
        let toolbox = self.toolbox();
        let spec = toolbox.agent_tools().into_iter().find(|spec| spec.name == name);
        let spec = spec.unwrap_or_else(|| search_tools(0));
        let (context, tool) = (Arc::new(self), name.to_owned());
        let run = move |call: BuiltinCall| -> BoxFuture<'static, BuiltinResult> {
            let (context, tool, found) = (Arc::clone(&context), tool.clone(), Arc::clone(&found));
            Box::pin(async move {
                let arguments: Json = call.arguments.parse().map_err(|error| error.to_string())?;
                let (text, tools) = context.toolbox().run_local(&tool, &arguments)?;
                *found.lock() = tools;
                Ok(RawJson::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))
            })
        };
        let name = name.parse().expect("names of agent tools are valid");
        let builtin = BuiltinTool::query(name, spec.description, spec.schema, run);
        CatalogTool::for_front_end(builtin, permission)
    }

    fn toolbox(&self) -> Toolbox<'_> {
        let Self { runtime, caller, allowed, exposure, skills, person, lists, .. } = self;
        let questions = person.as_ref().map(|person| &person.questions);
        Toolbox { runtime, caller, lists, allowed, exposure: *exposure, skills, questions }
    }
}

/// Permission that callers need for the agent's own tools: the one that starts runs.
const RUN_PERMISSION: &str = "runs:start";

/// Converts the outcome of a resource read.
fn resource_result(runtime: &Runtime, caller: &Caller, outcome: &CallOutcome) -> AgentToolResult {
    if outcome.result.error.is_some() {
        let parts = content::outcome_parts(outcome, &runtime.agent_hints(caller, outcome), usize::MAX);
        return AgentToolResult { parts, failed: true, found: Vec::new() };
    }
    let reply: Json = outcome.reply.as_ref().and_then(|reply| reply.parse().ok()).unwrap_or_default();
    let contents = reply["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut parts: Vec<Part> = contents.iter().map(content::resource_part).collect();
    if parts.is_empty() {
        parts.push(Part::Text { text: "(nothing)".to_owned() });
    }
    AgentToolResult { parts, failed: false, found: Vec::new() }
}

/// Returns true if the name is that of an agent tool.
pub(crate) fn is_agent_tool(name: &str) -> bool {
    [SEARCH_TOOLS, LIST_RESOURCES, READ_RESOURCE, LOAD_SKILL, READ_SKILL_FILE].contains(&name)
}

impl Toolbox<'_> {
    /// Returns true if the `tools` list of the agent allows this tool. An empty list allows all. Stored results can always
    /// be read: they are those of calls that were allowed.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.allowed.is_empty()
            || name == READ_RESULT
            || self.allowed.iter().any(|pattern| wildcard::matches(pattern, name))
    }

    /// Returns true if the agent runs this tool itself, in place of one in the catalog.
    pub(crate) fn runs_itself(&self, name: &str) -> bool {
        is_agent_tool(name)
            || name == FIND_FUNCTIONS && self.runs_programs()
            || self.questions.is_some() && name == REQUEST_HUMAN_INPUT
    }

    /// Returns true if the model calls tools in programs. Callers that may not run code get the tools themselves.
    pub(crate) fn runs_programs(&self) -> bool {
        self.exposure == AgentExposure::Code
            && self.allows(CODE_EXECUTION)
            && self
                .runtime
                .catalog()
                .resolve(CODE_EXECUTION)
                .is_some_and(|tool| tool.state == ToolState::Ready && self.runtime.may_see(self.caller, tool))
    }

    /// The tools as functions of a program. Questions and stored results are not part of it.
    pub(crate) fn functions(&self) -> FunctionSet {
        let left_out = [REQUEST_HUMAN_INPUT, READ_RESULT, CODE_EXECUTION];
        let tools = self.visible_tools().into_iter().filter(|tool| !left_out.contains(&tool.name.as_str()));
        FunctionSet::new(tools.map(|tool| (tool.name.clone(), tool.description.clone(), tool)))
    }

    /// Tools that run programs and find functions, and those that are not functions.
    fn program_tools(&self) -> Vec<ToolSpec> {
        let functions = self.functions();
        let stubs = functions.stubs(MAX_STUB_BYTES);
        let schema = RawJson::from_value(&code_mode::input_schema());
        let description = code_mode::run_code_description(stubs.as_deref());
        let mut shown = vec![ToolSpec { name: RUN_CODE.to_owned(), description, schema }];
        if stubs.is_none() {
            shown.push(find_functions(functions.all().len()));
        }
        let direct = [REQUEST_HUMAN_INPUT, READ_RESULT];
        let visible = self.visible_tools();
        let direct = visible.iter().filter(|tool| direct.contains(&tool.name.as_str()));
        shown.extend(direct.map(|tool| tool_spec(tool)));
        shown
    }

    fn visible_tools(&self) -> Vec<Arc<CatalogTool>> {
        let catalog = self.runtime.catalog();
        let good = |tool: &&Arc<CatalogTool>| {
            tool.state == ToolState::Ready
                && self.allows(&tool.name)
                && self.lists.shows(tool)
                && self.runtime.may_see(self.caller, tool)
        };
        catalog.tools().filter(good).cloned().collect()
    }

    /// Returns the names of matching tools, best first.
    fn search_names(&self, words: &str, most: usize) -> Vec<String> {
        let hits =
            self.runtime.search_among((self.caller, self.lists), words, most, |name| self.allows(name));
        hits.into_iter().map(|hit| hit.name).collect()
    }

    /// Returns the tools to offer: all if they are few; otherwise those that match the task, those found earlier, and
    /// `search_tools` for the others.
    pub(crate) fn offered_tools(&self, words: &str, found: &[String], most: usize) -> Vec<ToolSpec> {
        let visible = self.visible_tools();
        let mut shown: Vec<ToolSpec> = Vec::new();
        let all_fit = self.exposure != AgentExposure::Search && visible.len() <= most;
        if self.runs_programs() {
            shown = self.program_tools();
        } else if all_fit || self.exposure == AgentExposure::Full {
            shown.extend(visible.iter().map(|tool| tool_spec(tool)));
        } else {
            let matches = if self.exposure == AgentExposure::Search { 0 } else { most };
            let fitting = self.search_names(words, matches);
            let always = [REQUEST_HUMAN_INPUT, READ_RESULT];
            let wanted = |tool: &&Arc<CatalogTool>| {
                fitting.contains(&tool.name)
                    || found.contains(&tool.name)
                    || always.contains(&tool.name.as_str())
            };
            shown.extend(visible.iter().filter(wanted).map(|tool| tool_spec(tool)));
            shown.push(search_tools(visible.len()));
        }
        if let Some(questions) = self.questions
            && self.allows(REQUEST_HUMAN_INPUT)
            && !shown.iter().any(|tool| tool.name == REQUEST_HUMAN_INPUT)
        {
            let tool = input_tool(questions);
            let name = REQUEST_HUMAN_INPUT.to_owned();
            shown.push(ToolSpec { name, description: tool.description, schema: tool.input_schema });
        }
        if self.has_resources() {
            shown.extend(resource_tools());
        }
        if !self.skills.is_empty() {
            shown.extend(skill_tools(self.skills));
        }
        shown
    }

    /// Definitions of the agent's own tools.
    fn agent_tools(&self) -> Vec<ToolSpec> {
        let search = [search_tools(0), find_functions(0)].into_iter();
        search.chain(resource_tools()).chain(skill_tools(self.skills)).collect()
    }

    /// Runs an agent tool that needs no server. Its arguments match its schema.
    fn run_local(&self, name: &str, arguments: &Json) -> Result<FoundText, String> {
        let field = |name: &str| arguments[name].as_str().unwrap_or_default();
        Ok(match name {
            SEARCH_TOOLS => self.find_tools(field("query")),
            FIND_FUNCTIONS => (self.find_functions(field("query")), Vec::new()),
            LIST_RESOURCES => (self.list_resources(arguments), Vec::new()),
            LOAD_SKILL => (self.skills.load(field("name"))?, Vec::new()),
            _ => (self.skills.read_file(field("skill"), field("path"))?, Vec::new()),
        })
    }

    fn find_tools(&self, query: &str) -> FoundText {
        let visible = self.visible_tools();
        let found = self.search_names(query, MAX_FOUND);
        if found.is_empty() {
            let text = "no tool matches; try other words, or answer without a tool";
            return (text.to_owned(), Vec::new());
        }
        let line = |name: &String| {
            let tool = visible.iter().find(|tool| tool.name == *name);
            let about = tool.map(|tool| truncate(&tool.description, 200)).unwrap_or_default();
            format!("{name}: {about}")
        };
        let text = found.iter().map(line).collect::<Vec<_>>().join("\n");
        (format!("these tools can be called from now on:\n{text}"), found)
    }

    /// Returns signatures and descriptions of matching functions.
    fn find_functions(&self, query: &str) -> String {
        let functions = self.functions();
        let found = self.search_names(query, MAX_FOUND);
        let stubs: Vec<String> =
            found.iter().filter_map(|name| functions.of_tool(name)).map(|function| function.stub()).collect();
        if stubs.is_empty() { "no function matches; try other words".to_owned() } else { stubs.join("\n") }
    }

    fn has_resources(&self) -> bool {
        !self.runtime.visible_resources(self.caller, self.lists).is_empty()
            || !self.runtime.visible_templates(self.caller, self.lists).is_empty()
    }

    fn list_resources(&self, arguments: &Json) -> String {
        let wanted = arguments["server"].as_str();
        let mut lines = Vec::new();
        let resources =
            self.runtime.visible_resources(self.caller, self.lists).into_iter().map(|shown| ("", shown));
        let templates = self.runtime.visible_templates(self.caller, self.lists).into_iter();
        for (kind, VisibleItem { server, item }) in
            resources.chain(templates.map(|shown| ("template ", shown)))
        {
            if wanted.is_none_or(|wanted| wanted == server) {
                let about = truncate(&item.description, 200);
                lines.push(format!("{server}: {kind}{} · {} · {about}", item.id, item.title));
            }
        }
        let total = lines.len();
        lines.truncate(MAX_LISTED);
        if total > MAX_LISTED {
            lines.push(format!("and {} more; pass `server` to list fewer", total - MAX_LISTED));
        }
        if lines.is_empty() { "no resources".to_owned() } else { lines.join("\n") }
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

fn find_functions(all: usize) -> ToolSpec {
    let schema = json!({ "type": "object", "required": ["query"], "additionalProperties": false, "properties": {
        "query": { "type": "string", "description": "What the function should do, in a few words." } } });
    let about = format!("Finds functions for `{RUN_CODE}` by what they do. There are {all}.");
    agent_tool_spec(FIND_FUNCTIONS, about, &schema)
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
