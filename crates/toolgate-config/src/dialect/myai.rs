//! A `myai.toolbox` tree: our toolbox under another root, beside the settings of its program.

use toolgate_types::OnCollision;

use crate::context::{Context, Whose};
use crate::file::ToolboxFile;
use crate::keys::{Read, keys};
use crate::node::Node;
use crate::settle::Draft;

keys! {
    /// The file of a `myai` program.
    struct MyaiRoot as "file" {
        /// Its tree.
        myai: MyaiFile; required,
    }
}

keys! {
    /// The tree, of which the toolbox is ours.
    struct MyaiFile as "myai" {
        /// Limits, tools and MCP servers.
        toolbox: ToolboxFile; required,
    }
}

pub(crate) fn read(node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.whose = Whose::Others;
    // Its document says that the last tool of a name wins.
    draft.limits.on_collision = OnCollision::LastWins;
    let toolbox = MyaiRoot::read(node, cx).and_then(|root| root.myai).and_then(|myai| myai.value.toolbox);
    if let Some(toolbox) = toolbox {
        draft.toolbox(toolbox.value, cx);
    }
}
