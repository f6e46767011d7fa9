//! `registries`: JSON files with tools and MCP servers.

use std::path::PathBuf;

use crate::context::Context;
use crate::dialect::Dialect;
use crate::keys::{Spanned, keys};
use crate::resolve::ConfigBuilder;

keys! {
    /// Files with tools and MCP servers. A file named here must exist and be valid, otherwise Toolgate does not
    /// start.
    struct RegistriesFile as "registries" {
        /// File with the project's own tools, such as `tools/tools.json`. Script paths are relative to its folder.
        tools: String,
        /// File with MCP servers, such as `mcp.json`, in the format of VS Code (`servers`), Claude and Cursor
        /// (`mcpServers`) or with the key `mcp_servers`.
        mcp: String,
    }
}

/// Registry files that commands may change. They may not exist yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryPaths {
    /// File with the project's own tools.
    pub tools: Option<PathBuf>,
    /// File with MCP servers, in JSON.
    pub servers: Option<PathBuf>,
}

impl ConfigBuilder {
    pub(crate) fn add_registries(&mut self, file: RegistriesFile, cx: &mut Context<'_>) {
        if let Some(tools) = file.tools {
            read_registry(&tools, Dialect::Tools, self, cx);
        }
        if let Some(mcp) = file.mcp {
            read_registry(&mcp, Dialect::Mcp, self, cx);
        }
    }
}

/// Reads a registry named in the project file. It must exist and have the expected content.
fn read_registry(
    named: &Spanned<String>,
    dialect: Dialect,
    builder: &mut ConfigBuilder,
    cx: &mut Context<'_>,
) {
    let path = cx.project.join(&named.value);
    if !cx.has_file(&path) {
        let what = if path.is_dir() { "is a folder" } else { "does not exist" };
        let message = format!("the registry `{}` {what}", named.value);
        return cx.error(
            named.span,
            message,
            "create it, or let `toolgate init` write a project to start from",
        );
    }
    let Some(node) = crate::load::parse(&path, cx) else { return };
    // Servers may be in the configuration file of another program.
    let dialect = match Dialect::detect(&node, &path) {
        Some(other @ (Dialect::Codex | Dialect::Goose)) if dialect == Dialect::Mcp => other,
        _ => dialect,
    };
    dialect.record_registry(&path, builder);
    dialect.read(&node, builder, cx);
}

#[cfg(test)]
mod tests {
    use crate::test_support::{loaded, messages};

    #[test]
    fn named_registry_must_exist_and_be_valid() {
        let text = "registries: {tools: tools/tools.json, mcp: mcp.json}";
        insta::assert_snapshot!(messages(&loaded(&[("toolgate.yaml", text)], &[])), @"
        error toolgate.yaml:1:21 the registry `tools/tools.json` does not exist (create it, or let `toolgate init` write a project to start from)
        error toolgate.yaml:1:44 the registry `mcp.json` does not exist (create it, or let `toolgate init` write a project to start from)
        ");
        let files =
            [("toolgate.yaml", text), ("tools/tools.json", "{\"tools\": ["), ("mcp.json", "\u{feff}{}")];
        insta::assert_snapshot!(messages(&loaded(&files, &[])), @"
        error tools/tools.json:1:11 not valid JSON: unterminated array (this is never closed)
        error mcp.json:1:1 the file starts with a byte order mark (save it as UTF-8 without a byte order mark)
        ");
    }
}
