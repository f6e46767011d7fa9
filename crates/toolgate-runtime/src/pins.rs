//! Pins: the definitions of servers' tools as first seen or last approved.
//!
//! A harmless server can change its tool definitions later (a "rug pull"). Definitions are therefore pinned, and
//! changes are compared with the pin; see [`Drift`]. Invariant: a pin changes only by a person's approval or a
//! compatible change. Pins use the server's own tool names, not the names shown to callers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_types::ServerName;
use toolgate_upstream::offer::{OfferedTool, canonical_definition};

use crate::catalog::normalize_name;

mod drift;
pub mod file;
mod queue;
mod store;

pub use drift::{Drift, DriftClass};
pub use file::{LockError, LockFile};
pub(crate) use store::PinStore;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinSet {
    servers: BTreeMap<String, ServerPins>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPins {
    /// True if a person has approved the server as a whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    approved: bool,
    /// By the server's own tool names.
    #[serde(default)]
    tools: BTreeMap<String, Pin>,
}

/// A pinned definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Hash of the definition.
    pub hash: Box<str>,
    /// The definition, for comparison and review.
    pub definition: Value,
}

/// A pin to add or update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPin {
    pub server: ServerName,
    /// The server's own name of the tool.
    pub tool: String,
    pub pin: Pin,
    /// Hash of the pin to replace. If the current pin has another hash, it stays.
    pub replaces: Option<Box<str>>,
}

impl From<&OfferedTool> for Pin {
    fn from(tool: &OfferedTool) -> Self {
        Self { hash: tool.hash.clone(), definition: canonical_definition(&tool.definition) }
    }
}

impl PinSet {
    pub fn get(&self, server: &ServerName, tool: &str) -> Option<&Pin> {
        self.servers.get(server.as_str())?.tools.get(tool)
    }

    /// Names of a server's pinned tools.
    pub fn tool_names(&self, server: &ServerName) -> impl Iterator<Item = &str> {
        self.servers.get(server.as_str()).into_iter().flat_map(|pins| pins.tools.keys().map(String::as_str))
    }

    /// Returns true if the server cannot have the tool with this bare name: both the tool and the server are known, and
    /// the tool belongs to another server.
    pub fn rules_out(&self, server: &str, tool: &str) -> bool {
        let has = |pins: &ServerPins| pins.tools.keys().any(|name| normalize_name(name) == tool);
        let known = self.servers.get(server).filter(|pins| !pins.tools.is_empty());
        known.is_some_and(|pins| !has(pins)) && self.servers.values().any(has)
    }

    /// Returns true if a person has approved the server as a whole.
    pub fn is_approved(&self, server: &ServerName) -> bool {
        self.servers.get(server.as_str()).is_some_and(|pins| pins.approved)
    }

    /// Adds pins. A pin that another process changed in the meantime stays.
    pub fn add(&mut self, new: impl IntoIterator<Item = NewPin>) {
        for NewPin { server, tool, pin, replaces } in new {
            let tools = &mut self.servers.entry(server.as_str().to_owned()).or_default().tools;
            if tools.get(&tool).map(|pin| &pin.hash) == replaces.as_ref() {
                tools.insert(tool, pin);
            }
        }
    }

    /// Approves a server as a whole, and these definitions.
    pub fn approve(&mut self, server: &ServerName, tools: impl IntoIterator<Item = (String, Pin)>) {
        let pins = self.servers.entry(server.as_str().to_owned()).or_default();
        pins.approved = true;
        pins.tools.extend(tools);
    }
}
