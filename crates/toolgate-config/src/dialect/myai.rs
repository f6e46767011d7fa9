//! A `myai.toolbox` tree: our toolbox below another root, next to that program's own settings.

use toolgate_types::OnCollision;

use crate::context::{Context, FileOwner};
use crate::feature::toolbox::ToolboxFile;
use crate::keys::{ConfigValue, keys};
use crate::node::Node;
use crate::resolve::ConfigBuilder;

keys! {
    /// Configuration file of a `myai` program.
    struct MyaiRoot as "file" {
        /// Root of the configuration.
        myai: MyaiFile; required,
    }
}

keys! {
    /// Root of the configuration. Toolgate uses the toolbox only.
    struct MyaiFile as "myai" {
        /// Limits, tools and MCP servers.
        toolbox: ToolboxFile; required,
    }
}

pub(crate) fn read(node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    cx.file_owner = FileOwner::OtherProgram;
    // The documentation of myai says that the last tool of a name wins.
    builder.limits.on_collision = OnCollision::LastWins;
    let toolbox = MyaiRoot::read(node, cx).and_then(|root| root.myai).and_then(|myai| myai.value.toolbox);
    if let Some(toolbox) = toolbox {
        builder.add_toolbox(toolbox.value, cx);
    }
}
