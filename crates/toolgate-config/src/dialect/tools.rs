//! `tools.json`: the project's own tools, in our own words or those of `contract`.

use std::path::Path;

use crate::context::{Context, Whose};
use crate::dialect::contract;
use crate::file::ToolsFile;
use crate::keys::Read;
use crate::node::{Node, Value};
use crate::settle::Draft;

pub(crate) fn read(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.whose = Whose::Ours;
    let folder = cx.folder(node.span);
    let mut node = node.clone();
    for tool in tools_of(&mut node) {
        if let Some(ours) = contract::translate(tool, cx) {
            *tool = ours;
        }
    }
    let Some(file) = ToolsFile::read(&node, cx) else { return };
    for mut tool in file.tools.into_iter().flat_map(|at| at.value) {
        tool.value.contract = tool.value.contract.or(file.contract.clone());
        draft.tool(tool.value, Path::new(&folder), cx);
    }
}

fn tools_of(node: &mut Node) -> &mut [Node] {
    let Value::Map(top) = &mut node.value else { return &mut [] };
    match top.iter_mut().find(|entry| entry.key == "tools").map(|entry| &mut entry.node.value) {
        Some(Value::List(tools)) => tools,
        _ => &mut [],
    }
}
