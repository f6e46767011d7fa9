//! Supported configuration dialects and their detection.
//!
//! A dialect translates its keys into ours and passes them to the [`ConfigBuilder`]; nothing after it knows the
//! dialect. To add one, add a file here, a variant of [`Dialect`] and a line in [`Dialect::read`].

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

use crate::context::{Context, FileOwner};
use crate::feature::servers::{ServerDefaults, ServerEntry};
use crate::keys::{ConfigValue, Spanned};
use crate::node::{MapEntry, Node, Value};
use crate::read::FileFormat;
use crate::resolve::ConfigBuilder;

/// A configuration dialect.
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
    /// Detects the dialect by file name if that is unambiguous, otherwise by the keys at the top. These
    /// differ between all dialects.
    pub(crate) fn detect(node: &Node, path: &Path) -> Option<Self> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        match name {
            // Our own files keep their dialect even if they are invalid.
            "toolgate.yaml" | "toolgate.yml" => return Some(Self::Project),
            "tools.json" => return Some(Self::Tools),
            _ if name.ends_with(".toml") => return Some(Self::Codex),
            _ => {}
        }
        Self::detect_by_keys(node).or(match name {
            "agent.yaml" | "agent.yml" => Some(Self::Agent),
            "mcp.json" | ".mcp.json" => Some(Self::Mcp),
            _ => None,
        })
    }

    fn detect_by_keys(node: &Node) -> Option<Self> {
        let Value::Map(entries) = &node.value else { return None };
        let has = |key: &str| entries.iter().any(|entry| entry.key == key);
        // Tools of other types than ours belong to an agent file.
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
        } else if mcp::SERVER_KEYS.iter().any(|root| has(root)) {
            Some(Self::Mcp)
        } else if has("instructions") || has("model") || of_an_agent() {
            Some(Self::Agent)
        } else if has("tools") {
            Some(Self::Tools)
        } else {
            None
        }
    }

    /// Returns the prefix of environment variables that override a file of this dialect. Registries have none:
    /// commands rewrite them, and they accompany a project file.
    pub(crate) fn override_prefix(self) -> Option<&'static str> {
        match self {
            Self::Project | Self::Agent => Some("TOOLGATE__"),
            Self::Myai => Some("APP_"),
            Self::Mcp | Self::Tools | Self::Codex | Self::Goose => None,
        }
    }

    /// Records a file that commands may change.
    pub(crate) fn record_registry(self, path: &Path, builder: &mut ConfigBuilder) {
        let json = matches!(FileFormat::of(&path.to_string_lossy()), FileFormat::Json);
        match self {
            Self::Tools if json => builder.registries.tools = Some(path.to_owned()),
            Self::Mcp if json => builder.registries.servers = Some(path.to_owned()),
            _ => {}
        }
    }

    pub(crate) fn read(self, node: &Node, builder: &mut ConfigBuilder, cx: &mut Context<'_>) {
        match self {
            Self::Project => project::read(node, builder, cx),
            Self::Agent => agent::read(node, builder, cx),
            Self::Myai => myai::read(node, builder, cx),
            Self::Mcp => mcp::read(node, builder, cx),
            Self::Tools => tools::read(node, builder, cx),
            Self::Codex => {
                add_translated_servers(codex::servers(node, cx), ServerDefaults::CODEX, builder, cx)
            }
            Self::Goose => {
                add_translated_servers(goose::servers(node, cx), ServerDefaults::GOOSE, builder, cx)
            }
        }
    }

    /// Returns the MCP servers of a file, with our keys and unresolved values.
    pub(crate) fn servers(self, node: &Node, cx: &mut Context<'_>) -> Vec<MapEntry> {
        match self {
            Self::Mcp => mcp::servers(node),
            Self::Codex => codex::servers(node, cx),
            Self::Goose => goose::servers(node, cx),
            Self::Agent => agent::servers(node, cx),
            Self::Project | Self::Myai | Self::Tools => Vec::new(),
        }
    }
}

/// Adds servers by name, already translated into our keys.
fn add_translated_servers(
    servers: Vec<MapEntry>,
    rules: ServerDefaults,
    builder: &mut ConfigBuilder,
    cx: &mut Context<'_>,
) {
    cx.file_owner = FileOwner::OtherProgram;
    cx.labels.push("servers".to_owned());
    for MapEntry { key, key_span, node } in servers {
        cx.next_name = Some(key.clone());
        let entry = ServerEntry::read(&node, cx);
        cx.next_name = None;
        if let Some(value) = entry {
            builder.add_keyed_server(&key, Spanned { value, span: node.span, key_span }, rules, cx);
        }
    }
    cx.labels.pop();
}
