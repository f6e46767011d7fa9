//! `tools.json`: the project's own tools, with our keys or those of `contract`.

use std::path::Path;

use crate::context::{Context, FileOwner};
use crate::dialect::contract;
use crate::file::ToolsFile;
use crate::keys::ConfigValue;
use crate::node::{Node, Value};
use crate::resolve::ConfigBuilder;

pub(crate) fn read(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    cx.file_owner = FileOwner::Toolgate;
    let folder = cx.source_folder(node.span);
    let mut node = node.clone();
    for tool in tools_of(&mut node) {
        if let Some(ours) = contract::translate(tool, cx) {
            *tool = ours;
        }
    }
    let Some(file) = ToolsFile::read(&node, cx) else { return };
    for mut tool in file.tools.into_iter().flat_map(|at| at.value) {
        tool.value.contract = tool.value.contract.or(file.contract.clone());
        builder.add_tool(tool.value, Path::new(&folder), cx);
    }
}

fn tools_of(node: &mut Node) -> &mut [Node] {
    let Value::Map(top) = &mut node.value else { return &mut [] };
    match top.iter_mut().find(|entry| entry.key == "tools").map(|entry| &mut entry.node.value) {
        Some(Value::List(tools)) => tools,
        _ => &mut [],
    }
}
