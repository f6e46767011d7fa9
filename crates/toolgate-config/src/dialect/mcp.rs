//! `mcp.json` of VS Code (`servers`, `inputs`), Claude and Cursor (`mcpServers`) and the skill
//! executor (`mcp_servers`).

use crate::context::{Context, FileOwner};
use crate::feature::servers::ServerDefaults;
use crate::file::McpFile;
use crate::keys::ConfigValue;
use crate::node::{MapEntry, Node, ScalarKind, Value};
use crate::resolve::ConfigBuilder;

/// Keys that may hold the map of servers.
pub(crate) const SERVER_KEYS: [&str; 3] = ["servers", "mcpServers", "mcp_servers"];

pub(crate) fn read(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    cx.file_owner = FileOwner::OtherProgram;
    let mut node = node.clone();
    for root in roots(&mut node) {
        for server in root {
            server.node = normalize_enabled(&server.node);
        }
    }
    for input in inputs(&mut node) {
        simplify_options(input);
    }
    let Some(file) = McpFile::read(&node, cx) else { return };
    for input in file.inputs.into_iter().flat_map(|at| at.value) {
        builder.add_input(input.value, cx);
    }
    for (name, entry) in file.servers.into_iter().flat_map(|at| at.value.0) {
        builder.add_keyed_server(&name, entry, ServerDefaults::REGISTRY, cx);
    }
}

/// Returns every server with unresolved values.
pub(crate) fn servers(node: &Node) -> Vec<MapEntry> {
    let mut node = node.clone();
    let servers = roots(&mut node).flat_map(|root| root.iter());
    servers.map(|server| MapEntry { node: normalize_enabled(&server.node), ..server.clone() }).collect()
}

fn roots(node: &mut Node) -> impl Iterator<Item = &mut Vec<MapEntry>> {
    let top = match &mut node.value {
        Value::Map(top) => top.as_mut_slice(),
        _ => &mut [],
    };
    top.iter_mut().filter(|entry| SERVER_KEYS.contains(&entry.key.as_str())).filter_map(|entry| {
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

/// Replaces VS Code's `{label, value}` options by their value.
fn simplify_options(input: &mut Node) {
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

/// Rewrites `disabled: true`, used by some clients, to `enabled: false`.
fn normalize_enabled(server: &Node) -> Node {
    let mut server = server.clone();
    let Value::Map(keys) = &mut server.value else { return server };
    for key in keys.iter_mut().filter(|entry| entry.key == "disabled") {
        if let Value::Scalar(scalar) = &mut key.node.value
            && scalar.kind == ScalarKind::Bool
        {
            key.key = "enabled".to_owned();
            scalar.text = (scalar.text != "true").to_string();
        }
    }
    server
}
