//! `agent.yaml` of HoloDeck: tools of `type: mcp` are MCP servers, tools of `type: function` are the project's
//! own tools.

use crate::context::{Context, FileOwner};
use crate::feature::agent::model::{ModelFile, add_model_secrets};
use crate::feature::agent::{AgentSection, AnsweringName, BudgetsFile, InstructionsSource};
use crate::feature::servers::{ServerDefaults, ServerEntry};
use crate::feature::tools::ToolFile;
use crate::keys::{AnyValue, ConfigValue, SchemaNode, Spanned, keys};
use crate::node::{MapEntry, Node, ScalarKind, Value};
use crate::problem::Problem;
use crate::resolve::ConfigBuilder;

keys! {
    /// `agent.yaml`.
    struct AgentFile as "agent file" {
        /// Name of the agent.
        name: String,
        /// Purpose of the agent.
        description: String,
        /// Language model.
        model: ModelFile,
        /// System instructions: `inline`, or `file` with a path relative to the folder of this file.
        instructions: InstructionsSource,
        /// Tools: MCP servers (`type: mcp`), functions (`type: function`), and name patterns of tools the agent may
        /// use, with `*` for any string.
        tools: Vec<Spanned<AnyValue>>,
        /// Prompts of MCP servers to include in the instructions, as `server/prompt`.
        prompts: Vec<Spanned<String>>,
        /// URIs of MCP resources to include from the start.
        resources: Vec<Spanned<String>>,
        /// Folders with skills. Default: `skills` if it exists.
        skills: Vec<Spanned<String>>,
        /// Limits of one run. The run ends when the first is reached.
        budgets: BudgetsFile,
        /// Sampling requests of MCP servers (requests for a model completion): `deny` declines them, `ask` lets a
        /// person answer, `model` the model.
        sampling: AnsweringName = "deny",
        /// Elicitation requests of MCP servers (requests for user input during a call): `deny` declines them, `ask`
        /// lets a person answer, `model` the model.
        elicitation: AnsweringName = "deny",
    }
}

keys! {
    /// A Python function.
    struct FunctionFile as "function tool" {
        /// Name of the tool.
        name: toolgate_types::ToolName; required,
        /// Purpose of the tool.
        description: String; required,
        /// Python file, relative to `agent.yaml`.
        file: String; required,
        /// Function in that file.
        function: String; required,
        /// Arguments: a JSON Schema, or a map from names to schemas.
        parameters: SchemaNode,
    }
}

pub(crate) fn read(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    cx.file_owner = FileOwner::OtherProgram;
    add_model_secrets(node, cx);
    let node = &without_unset_key(node, cx);
    let Some(file) = AgentFile::read(node, cx) else { return };
    builder.set_title(file.name, file.description);
    let agent = AgentSection {
        model: file.model,
        instructions: file.instructions,
        prompts: file.prompts,
        resources: file.resources,
        skills: file.skills,
        budgets: file.budgets,
        sampling: file.sampling,
        elicitation: file.elicitation,
        ..AgentSection::empty(node.span)
    };
    builder.set_agent(agent, cx);
    cx.labels.push("agent file".to_owned());
    for tool in file.tools.into_iter().flat_map(|at| at.value) {
        if let Some(pattern) = tool.value.0.as_text() {
            builder.allow_agent_tool(pattern);
            continue;
        }
        let (rest, kind) = tool.value.0.without("type");
        match kind.as_ref().and_then(|entry| entry.node.as_text()) {
            Some("mcp") => read_server(&rest, builder, cx),
            Some("function") => read_function(&rest, builder, cx),
            Some(other) => {
                let span = kind.as_ref().map_or(tool.span, |entry| entry.node.span);
                let name = rest.get("name").and_then(Node::as_text).map(|name| format!(" `{name}`"));
                let message = format!("tool{} of type `{other}` is not used", name.unwrap_or_default());
                cx.push(Problem::note(span, message));
            }
            None => {
                cx.error(tool.span, "missing key `type` in tool", "write `type: mcp` or `type: function`")
            }
        }
    }
    cx.labels.pop();
}

/// Removes a model key whose variable is not set. Commands that only use the tools need no key, and commands that
/// use the model report the missing key themselves.
fn without_unset_key(node: &Node, cx: &Context<'_>) -> Node {
    let mut node = node.clone();
    let Value::Map(entries) = &mut node.value else { return node };
    for model in entries.iter_mut().filter(|entry| entry.key == "model") {
        let Value::Map(keys) = &mut model.node.value else { continue };
        let unset = |key: &MapEntry| {
            let text = key.node.as_text().and_then(|text| text.strip_prefix("${")?.strip_suffix('}'));
            matches!(key.key.as_str(), "key" | "api_key")
                && text.is_some_and(|name| cx.variable(name).is_none())
        };
        keys.retain(|key| !unset(key));
    }
    node
}

/// Returns the tools of `type: mcp` with unresolved values. HoloDeck's own configuration lists them under
/// `mcp_servers`.
pub(crate) fn servers(node: &Node, cx: &mut Context<'_>) -> Vec<MapEntry> {
    let mut servers = Vec::new();
    for key in ["tools", "mcp_servers"] {
        let Some(Value::List(items)) = node.get(key).map(|list| &list.value) else { continue };
        for item in items {
            let (rest, kind) = item.without("type");
            let (rest, name) = rest.without("name");
            let name_text =
                name.as_ref().and_then(|entry| entry.node.as_text()).unwrap_or_default().to_owned();
            match kind.as_ref().and_then(|entry| entry.node.as_text()) {
                Some("mcp") | None if name.is_some() => {
                    let key_span = name.map_or(item.span, |name| name.node.span);
                    servers.push(MapEntry { key: name_text, key_span, node: with_allowlist(&rest) });
                }
                kind => {
                    let kind = kind.unwrap_or("unknown");
                    let message = format!("tool `{name_text}` of type `{kind}` is not an MCP server");
                    cx.push(Problem::note(item.span, message));
                }
            }
        }
    }
    servers
}

fn read_server(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    let Some(mut entry) = ServerEntry::read(&with_allowlist(node), cx) else { return };
    let file = &mut entry.file;
    // Relative arguments start at the folder of the file, which may differ from the project folder.
    let folder = cx.source_folder(node.span);
    if file.cwd.is_none() && file.url.is_none() && folder != cx.project {
        let (value, span) = (folder.display().to_string(), node.span);
        file.cwd = Some(Spanned { value, span, key_span: span });
    }
    builder.add_named_server(entry, ServerDefaults::AGENT, cx);
}

/// Copies `config.allowed_tools` to `tool_allowlist`. The server still gets it with the rest of `config`.
fn with_allowlist(server: &Node) -> Node {
    let mut server = server.clone();
    let Some((rest, Some(allowed))) = server.get("config").map(|config| config.without("allowed_tools"))
    else {
        return server;
    };
    // A `config` with nothing else in it was not meant for a server with a URL.
    if server.get("url").is_some() && rest.value == Value::Map(Vec::new()) {
        server = server.without("config").0;
    }
    if let Value::Map(keys) = &mut server.value
        && !keys.iter().any(|key| key.key == "tool_allowlist")
    {
        keys.push(MapEntry { key: "tool_allowlist".to_owned(), ..allowed });
    }
    server
}

fn read_function(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    let folder = cx.source_folder(node.span);
    let Some(file) = FunctionFile::read(node, cx) else { return };
    let span = node.span;
    let schema = file.parameters.map(|at| to_object_schema(at.value.0));
    let schema = schema.unwrap_or_else(|| Node { span, value: Value::Map(vec![object_type(span)]) });
    // Built as a `tools.json` entry, so that both are resolved by the same code.
    let tool = ToolFile {
        name: file.name,
        description: file.description,
        script_path: file.file,
        entrypoint: file.function,
        input_schema: Some(Spanned { value: SchemaNode(schema), span, key_span: span }),
        ..ToolFile::empty(span)
    };
    builder.add_tool(tool, &folder, cx);
}

fn object_type(span: crate::source::Span) -> MapEntry {
    MapEntry { key: "type".to_owned(), key_span: span, node: Node::string(span, "object") }
}

/// Converts a map from names to schemas into the `properties` of an object schema.
fn to_object_schema(node: Node) -> Node {
    if node.get("properties").is_some()
        || node.get("type").is_some_and(|kind| kind.as_text() == Some("object"))
    {
        return node;
    }
    let span = node.span;
    let Value::Map(mut arguments) = node.value else { return node };
    let mut required = Vec::new();
    for argument in &mut arguments {
        // Here `required` is a flag of the argument; in a JSON Schema it is a list on the object.
        let flag = argument.node.get("required").and_then(Node::as_text).map(str::to_owned);
        if let Some(flag) = flag.filter(|flag| flag.parse::<bool>().is_ok()) {
            argument.node = argument.node.without("required").0;
            if flag == "true" {
                required.push(Node::scalar(argument.key_span, ScalarKind::String, argument.key.clone()));
            }
        }
    }
    let entry =
        |key: &str, value| MapEntry { key: key.to_owned(), key_span: span, node: Node { span, value } };
    let entries = vec![
        object_type(span),
        entry("properties", Value::Map(arguments)),
        entry("required", Value::List(required)),
    ];
    Node { span, value: Value::Map(entries) }
}
