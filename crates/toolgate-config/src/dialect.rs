//! The shapes that people bring, and how each is told from the others.
//!
//! A dialect turns its own keys into ours and hands them to the [`Draft`]; nothing after it knows
//! where they came from. A new dialect is a file here, a variant of [`Dialect`] and a line in
//! [`Dialect::read`].

pub(crate) mod agent;
pub(crate) mod codex;
pub(crate) mod goose;
pub(crate) mod mcp;
pub(crate) mod myai;
pub(crate) mod project;
pub(crate) mod tools;

use crate::context::{Context, Whose};
use crate::file::ServerEntry;
use crate::keys::Read;
use crate::node::{Entry, Node, Value};
use crate::settle::Draft;

/// A shape of configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `toolgate.yaml`.
    Project,
    /// `agent.yaml` of HoloDeck.
    Agent,
    /// A `myai.toolbox` tree.
    Myai,
    /// `mcp.json` of VS Code, Claude, Cursor and others.
    Mcp,
    /// `tools.json`.
    Tools,
    /// `config.toml` of Codex.
    Codex,
    /// `config.yaml` of goose.
    Goose,
}

impl Dialect {
    /// By the keys at the top, which no two dialects share.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        let Value::Map(entries) = &node.value else { return None };
        let has = |key: &str| entries.iter().any(|entry| entry.key == key);
        let list_of = |key: &str, inner: &str| match node.get(key).map(|node| &node.value) {
            Some(Value::List(items)) => items.iter().any(|item| item.get(inner).is_some()),
            _ => false,
        };
        if has("toolbox") || has("registries") {
            Some(Self::Project)
        } else if has("myai") {
            Some(Self::Myai)
        } else if has("extensions") {
            Some(Self::Goose)
        } else if has("servers") || has("mcpServers") {
            Some(Self::Mcp)
        } else if has("mcp_servers") {
            Some(if codex::is_codex(node) { Self::Codex } else { Self::Mcp })
        } else if has("instructions")
            || has("model")
            || list_of("tools", "type") && !list_of("tools", "input_schema")
        {
            Some(Self::Agent)
        } else if has("tools") {
            Some(Self::Tools)
        } else {
            None
        }
    }

    /// The prefix of the environment variables that override a file of this shape.
    pub(crate) fn override_prefix(self) -> &'static str {
        if self == Self::Myai { "APP_" } else { "TOOLGATE__" }
    }

    /// Adds a file of this shape to the draft.
    pub(crate) fn read(self, node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
        match self {
            Self::Project => project::read(node, draft, cx),
            Self::Agent => agent::read(node, draft, cx),
            Self::Myai => myai::read(node, draft, cx),
            Self::Mcp => mcp::read(node, draft, cx),
            Self::Tools => tools::read(node, draft, cx),
            Self::Codex | Self::Goose => {
                cx.whose = Whose::Others;
                for entry in self.servers(node, cx) {
                    server(entry, draft, cx);
                }
            }
        }
    }

    /// The MCP servers in a file of this shape: in our own keys, values as they were written.
    pub(crate) fn servers(self, node: &Node, cx: &mut Context<'_>) -> Vec<Entry> {
        match self {
            Self::Mcp => mcp::servers(node),
            Self::Codex => codex::servers(node, cx),
            Self::Goose => goose::servers(node, cx),
            Self::Agent => agent::servers(node, cx),
            Self::Project | Self::Myai | Self::Tools => Vec::new(),
        }
    }
}

/// A server whose key is its name, in our own keys.
fn server(Entry { key, key_span, node }: Entry, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.next_name = Some(key.clone());
    let entry = ServerEntry::read(&node, cx);
    cx.next_name = None;
    if let Some(entry) = entry {
        draft.keyed_server(entry, key, key_span, cx);
    }
}
