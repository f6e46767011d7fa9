//! `mcp.json` of VS Code (`servers`, `inputs`), Claude and Cursor (`mcpServers`) and the skill
//! executor (`mcp_servers`).

use crate::context::{Context, Whose};
use crate::file::McpFile;
use crate::keys::Read;
use crate::node::{Entry, Kind, Node, Value};
use crate::settle::Draft;
use crate::settle::server::ServerRules;

/// The names that the map of servers goes by.
pub(crate) const ROOTS: [&str; 3] = ["servers", "mcpServers", "mcp_servers"];

pub(crate) fn read(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.whose = Whose::Others;
    let mut node = node.clone();
    for root in roots(&mut node) {
        for server in root {
            server.node = positive(&server.node);
        }
    }
    for input in inputs(&mut node) {
        plain_options(input);
    }
    let Some(file) = McpFile::read(&node, cx) else { return };
    for input in file.inputs.into_iter().flat_map(|at| at.value) {
        draft.input(input.value, cx);
    }
    for (name, entry) in file.servers.into_iter().flat_map(|at| at.value.0) {
        draft.keyed_server(&name, entry, ServerRules::REGISTRY, cx);
    }
}

/// Every server, values as they were written.
pub(crate) fn servers(node: &Node) -> Vec<Entry> {
    let mut node = node.clone();
    let servers = roots(&mut node).flat_map(|root| root.iter());
    servers.map(|server| Entry { node: positive(&server.node), ..server.clone() }).collect()
}

fn roots(node: &mut Node) -> impl Iterator<Item = &mut Vec<Entry>> {
    let top = match &mut node.value {
        Value::Map(top) => top.as_mut_slice(),
        _ => &mut [],
    };
    top.iter_mut().filter(|entry| ROOTS.contains(&entry.key.as_str())).filter_map(|entry| {
        match &mut entry.node.value {
            Value::Map(servers) => Some(servers),
            _ => None,
        }
    })
}

fn inputs(node: &mut Node) -> &mut [Node] {
    let Value::Map(top) = &mut node.value else { return &mut [] };
    match top.iter_mut().find(|entry| entry.key == "inputs").map(|entry| &mut entry.node.value) {
        Some(Value::List(inputs)) => inputs,
        _ => &mut [],
    }
}

/// `{label, value}`, as VS Code takes it for an option, is its value.
fn plain_options(input: &mut Node) {
    let Value::Map(keys) = &mut input.value else { return };
    for key in keys.iter_mut().filter(|entry| entry.key == "options") {
        let Value::List(options) = &mut key.node.value else { continue };
        for option in options {
            if let Some(value) = option.get("value").cloned() {
                *option = value;
            }
        }
    }
}

/// `disabled: true`, as some clients write it, is `enabled: false`.
fn positive(server: &Node) -> Node {
    let mut server = server.clone();
    let Value::Map(keys) = &mut server.value else { return server };
    for key in keys.iter_mut().filter(|entry| entry.key == "disabled") {
        if let Value::Scalar(scalar) = &mut key.node.value
            && scalar.kind == Kind::Bool
        {
            key.key = "enabled".to_owned();
            scalar.text = (scalar.text != "true").to_string();
        }
    }
    server
}
