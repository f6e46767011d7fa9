//! A `myai.toolbox` tree: our toolbox below another root, next to that program's own settings. Local tools are entries of
//! `tools/tools.json`, and each needs settings in the toolbox.

use toolgate_types::OnCollision;

use crate::context::{Context, FileOwner};
use crate::dialect::Dialect;
use crate::feature::servers::ServerDefaults;
use crate::feature::toolbox::ToolboxFile;
use crate::feature::tools::PendingEntry;
use crate::keys::{ConfigValue, keys};
use crate::load::{TOOL_REGISTRIES, parse};
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
        builder.add_toolbox(toolbox.value, ServerDefaults::MYAI, cx);
    }
    builder.strict_own_tools = true;
    add_local_tools(builder, cx);
}

/// Adds the local tools of the project: the entries of its `tools.json`.
fn add_local_tools(builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
    let [inside, beside] = TOOL_REGISTRIES.map(|name| cx.project.join(name));
    let Some(path) = [&inside, &beside].into_iter().find(|path| cx.has_file(path)) else {
        builder.registries.tools = Some(inside);
        return;
    };
    let Some(node) = parse(path, cx) else { return };
    Dialect::Tools.record_registry(path, builder);
    Dialect::Tools.read(&node, builder, cx);
}

impl ConfigBuilder {
    /// Reports local tools without settings in a `myai` tree, where local tools are always strict. A tool with
    /// `max_instances` there runs that many calls at a time.
    pub(crate) fn check_own_settings(&mut self, cx: &mut Context<'_>) {
        for PendingEntry { value: tool, span, .. } in self.tools.iter_mut().filter(|_| self.strict_own_tools)
        {
            let Some(settings) = self.settings_at.get(&tool.name).map(|at| &self.settings[*at].value) else {
                let message = format!("Local tool '{}' is not configured in the toolbox", tool.name);
                cx.error(*span, message, "add it to `myai.toolbox.tools`; local tools are always strict");
                continue;
            };
            if settings.limits.max_instances.is_some() {
                tool.limits.parallel_capable.get_or_insert(true);
            }
        }
    }
}
