//! The shapes that people bring, and how each is told from the others.
//!
//! A dialect turns its own keys into ours and hands them to the [`Draft`]; nothing after it knows
//! where they came from. A new dialect is a file here, a variant of [`Dialect`] and a line in
//! [`Dialect::read`].

pub(crate) mod agent;
pub(crate) mod codex;
pub(crate) mod contract;
pub(crate) mod goose;
pub(crate) mod mcp;
pub(crate) mod myai;
pub(crate) mod project;
pub(crate) mod tools;

use std::ffi::OsStr;
use std::path::Path;

use crate::context::{Context, Whose};
use crate::file::ServerEntry;
use crate::keys::{At, Read};
use crate::node::{Entry, Node, Value};
use crate::read::Format;
use crate::settle::Draft;
use crate::settle::server::ServerRules;

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
    /// What a file is: by its name where that says enough, else by the keys at its top, which no two
    /// dialects share.
    pub(crate) fn of(node: &Node, path: &Path) -> Option<Self> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        match name {
            // Our own files, whatever is wrong with them.
            "toolgate.yaml" | "toolgate.yml" => return Some(Self::Project),
            "tools.json" => return Some(Self::Tools),
            _ if name.ends_with(".toml") => return Some(Self::Codex),
            _ => {}
        }
        Self::by_shape(node).or(match name {
            "agent.yaml" | "agent.yml" => Some(Self::Agent),
            "mcp.json" | ".mcp.json" => Some(Self::Mcp),
            _ => None,
        })
    }

    fn by_shape(node: &Node) -> Option<Self> {
        let Value::Map(entries) = &node.value else { return None };
        let has = |key: &str| entries.iter().any(|entry| entry.key == key);
        // Tools of other types than ours are those of an agent.
        let foreign =
            |tool: &Node| tool.get("type").and_then(Node::as_text).is_some_and(|kind| kind != "local");
        let of_an_agent = || match node.get("tools").map(|tools| &tools.value) {
            Some(Value::List(tools)) => tools.iter().any(foreign),
            _ => false,
        };
        if has("toolbox") || has("registries") {
            Some(Self::Project)
        } else if has("myai") {
            Some(Self::Myai)
        } else if has("extensions") {
            Some(Self::Goose)
        } else if mcp::ROOTS.iter().any(|root| has(root)) {
            Some(Self::Mcp)
        } else if has("instructions") || has("model") || of_an_agent() {
            Some(Self::Agent)
        } else if has("tools") {
            Some(Self::Tools)
        } else {
            None
        }
    }

    /// The prefix of the environment variables that override a file of this shape. Registries have none:
    /// they are rewritten by commands, and stand beside a project file.
    pub(crate) fn override_prefix(self) -> Option<&'static str> {
        match self {
            Self::Project | Self::Agent => Some("TOOLGATE__"),
            Self::Myai => Some("APP_"),
            Self::Mcp | Self::Tools | Self::Codex | Self::Goose => None,
        }
    }

    /// Takes note of a file that commands may change.
    pub(crate) fn register(self, path: &Path, draft: &mut Draft) {
        let json = matches!(Format::of(&path.to_string_lossy()), Format::Json);
        match self {
            Self::Tools if json => draft.registries.tools = Some(path.to_owned()),
            Self::Mcp if json => draft.registries.servers = Some(path.to_owned()),
            _ => {}
        }
    }

    /// Adds a file of this shape to the draft.
    pub(crate) fn read(self, node: &Node, draft: &mut Draft, cx: &mut Context<'_>) {
        match self {
            Self::Project => project::read(node, draft, cx),
            Self::Agent => agent::read(node, draft, cx),
            Self::Myai => myai::read(node, draft, cx),
            Self::Mcp => mcp::read(node, draft, cx),
            Self::Tools => tools::read(node, draft, cx),
            Self::Codex => translated(codex::servers(node, cx), ServerRules::CODEX, draft, cx),
            Self::Goose => translated(goose::servers(node, cx), ServerRules::GOOSE, draft, cx),
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

/// Servers by their names, in our own keys.
fn translated(servers: Vec<Entry>, rules: ServerRules, draft: &mut Draft, cx: &mut Context<'_>) {
    cx.whose = Whose::Others;
    cx.labels.push("servers".to_owned());
    for Entry { key, key_span, node } in servers {
        cx.next_name = Some(key.clone());
        let entry = ServerEntry::read(&node, cx);
        cx.next_name = None;
        if let Some(value) = entry {
            draft.keyed_server(&key, At { value, span: node.span, key_span }, rules, cx);
        }
    }
    cx.labels.pop();
}
