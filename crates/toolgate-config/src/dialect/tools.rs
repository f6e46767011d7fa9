//! `tools.json`: the project's own tools.

use std::path::Path;

use crate::context::{Context, Whose};
use crate::file::ToolsFile;
use crate::keys::Read;
use crate::node::Node;
use crate::settle::Draft;

pub(crate) fn read(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.whose = Whose::Ours;
    let folder = cx.folder(node.span);
    let Some(file) = ToolsFile::read(node, cx) else { return };
    for tool in file.tools.into_iter().flat_map(|at| at.value) {
        draft.tool(tool.value, Path::new(&folder), cx);
    }
}
