//! `agent.yaml` of HoloDeck: its tools of `type: mcp` are servers, those of `type: function` are
//! tools of one's own.

use crate::context::{Context, Whose};
use crate::file::agent::{AgentSection, AnsweringName, BudgetsFile, Instructions, ModelFile};
use crate::file::{ServerEntry, ToolFile};
use crate::keys::{At, Free, Read, SchemaNode, keys};
use crate::node::{Entry, Kind, Node, Value};
use crate::problem::Problem;
use crate::settle::Draft;
use crate::settle::agent::keep_secrets;
use crate::settle::server::ServerRules;

keys! {
    /// `agent.yaml`.
    struct AgentFile as "agent file" {
        /// The agent's name.
        name: String,
        /// What it is for.
        description: String,
        /// Its model.
        model: ModelFile,
        /// What it is told before everything else: `inline`, or `file`, seen from the folder of this file.
        instructions: Instructions,
        /// Its tools: MCP servers (`type: mcp`), functions (`type: function`), and names of tools that it may use, `*`
        /// standing for any text.
        tools: Vec<At<Free>>,
        /// Prompts of MCP servers whose texts are part of its instructions, as `server/prompt`.
        prompts: Vec<At<String>>,
        /// Resources of MCP servers that it is given from the start, by their addresses.
        resources: Vec<At<String>>,
        /// Folders with skills. Without this key `skills` is read where there is one.
        skills: Vec<At<String>>,
        /// What one run may use; whatever is reached first ends it.
        budgets: BudgetsFile,
        /// Who answers when an MCP server wants a text of a model.
        sampling: AnsweringName = "deny",
        /// Who answers when an MCP server asks a person in the middle of a call.
        elicitation: AnsweringName = "deny",
    }
}

keys! {
    /// A Python function.
    struct FunctionFile as "function tool" {
        /// Its name.
        name: toolgate_types::ToolName; required,
        /// What it does.
        description: String; required,
        /// The file, relative to `agent.yaml`.
        file: String; required,
        /// The function in it.
        function: String; required,
        /// Its arguments: a JSON Schema, or a map from names to schemas.
        parameters: SchemaNode,
    }
}

pub(crate) fn read(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.whose = Whose::Others;
    keep_secrets(node, cx);
    let node = &without_unset_key(node, cx);
    let Some(file) = AgentFile::read(node, cx) else { return };
    draft.title(file.name, file.description);
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
    draft.agent(agent, cx);
    cx.labels.push("agent file".to_owned());
    for tool in file.tools.into_iter().flat_map(|at| at.value) {
        if let Some(pattern) = tool.value.0.as_text() {
            draft.agent_may_use(pattern);
            continue;
        }
        let (rest, kind) = tool.value.0.without("type");
        match kind.as_ref().and_then(|entry| entry.node.as_text()) {
            Some("mcp") => server(&rest, draft, cx),
            Some("function") => function(&rest, draft, cx),
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

/// A model whose key is in a variable that is not set is one without a key: who only wants the tools needs none, and
/// who wants the model is told when it is used.
fn without_unset_key(node: &Node, cx: &Context<'_>) -> Node {
    let mut node = node.clone();
    let Value::Map(entries) = &mut node.value else { return node };
    for model in entries.iter_mut().filter(|entry| entry.key == "model") {
        let Value::Map(keys) = &mut model.node.value else { continue };
        let unset = |key: &Entry| {
            let text = key.node.as_text().and_then(|text| text.strip_prefix("${")?.strip_suffix('}'));
            matches!(key.key.as_str(), "key" | "api_key")
                && text.is_some_and(|name| cx.variable(name).is_none())
        };
        keys.retain(|key| !unset(key));
    }
    node
}

/// The tools of `type: mcp`, values as they were written. HoloDeck's own configuration has a list
/// of them under `mcp_servers`.
pub(crate) fn servers(node: &Node, cx: &mut Context<'_>) -> Vec<Entry> {
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
                    servers.push(Entry { key: name_text, key_span, node: with_allowlist(&rest) });
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

fn server(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    let Some(mut entry) = ServerEntry::read(&with_allowlist(node), cx) else { return };
    let file = &mut entry.file;
    // Relative arguments start at the folder of the file, which need not be the project's.
    let folder = cx.folder(node.span);
    if file.cwd.is_none() && file.url.is_none() && folder != cx.project {
        let (value, span) = (folder.display().to_string(), node.span);
        file.cwd = Some(At { value, span, key_span: span });
    }
    draft.named_server(entry, ServerRules::AGENT, cx);
}

/// `config.allowed_tools` goes to the server with the rest of `config`, and counts here too.
fn with_allowlist(server: &Node) -> Node {
    let mut server = server.clone();
    let Some((rest, Some(allowed))) = server.get("config").map(|config| config.without("allowed_tools"))
    else {
        return server;
    };
    // With nothing else in it, `config` was not meant for a server that has an address.
    if server.get("url").is_some() && rest.value == Value::Map(Vec::new()) {
        server = server.without("config").0;
    }
    if let Value::Map(keys) = &mut server.value
        && !keys.iter().any(|key| key.key == "tool_allowlist")
    {
        keys.push(Entry { key: "tool_allowlist".to_owned(), ..allowed });
    }
    server
}

fn function(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    let folder = cx.folder(node.span);
    let Some(file) = FunctionFile::read(node, cx) else { return };
    let span = node.span;
    let schema = file.parameters.map(|at| as_schema(at.value.0));
    let schema = schema.unwrap_or_else(|| Node { span, value: Value::Map(vec![object_type(span)]) });
    // The form of `tools.json`, so that both go the same way from here.
    let tool = ToolFile {
        name: file.name,
        description: file.description,
        script_path: file.file,
        entrypoint: file.function,
        input_schema: Some(At { value: SchemaNode(schema), span, key_span: span }),
        ..ToolFile::empty(span)
    };
    draft.tool(tool, &folder, cx);
}

fn object_type(span: crate::source::Span) -> Entry {
    Entry { key: "type".to_owned(), key_span: span, node: Node::string(span, "object") }
}

/// A map from names to schemas becomes the `properties` of an object.
fn as_schema(node: Node) -> Node {
    if node.get("properties").is_some()
        || node.get("type").is_some_and(|kind| kind.as_text() == Some("object"))
    {
        return node;
    }
    let span = node.span;
    let Value::Map(mut arguments) = node.value else { return node };
    let mut required = Vec::new();
    for argument in &mut arguments {
        // `required` is a flag of the argument here; in a JSON Schema it is a list of the object.
        let flag = argument.node.get("required").and_then(Node::as_text).map(str::to_owned);
        if let Some(flag) = flag.filter(|flag| flag.parse::<bool>().is_ok()) {
            argument.node = argument.node.without("required").0;
            if flag == "true" {
                required.push(Node::scalar(argument.key_span, Kind::String, argument.key.clone()));
            }
        }
    }
    let entry = |key: &str, value| Entry { key: key.to_owned(), key_span: span, node: Node { span, value } };
    let entries = vec![
        object_type(span),
        entry("properties", Value::Map(arguments)),
        entry("required", Value::List(required)),
    ];
    Node { span, value: Value::Map(entries) }
}
