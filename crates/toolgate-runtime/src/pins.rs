//! Pins: what servers said of their tools when these were first seen, or last approved.
//!
//! A server that was harmless when somebody looked at it can describe its tools in another way
//! tomorrow. So a definition is remembered, and one that changes is compared with what it was; see
//! [`Drift`]. Invariant: a pin is changed by a person, by a change that cannot hurt, and by nothing
//! else; the name a tool is shown under plays no part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_types::ServerName;
use toolgate_upstream::offer::{OfferedTool, canonical};

use crate::catalog::normalised;

mod drift;
pub mod file;
mod queue;

pub use drift::{Drift, DriftClass};
pub use file::{LockError, LockFile};
pub(crate) use queue::Queue;

/// All pins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    servers: BTreeMap<String, ServerPins>,
}

/// The pins of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPins {
    /// Whether a person has approved the server as a whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    approved: bool,
    /// By the names that the server gives them.
    #[serde(default)]
    tools: BTreeMap<String, Pin>,
}

/// A definition as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// What tells it from every other.
    pub hash: Box<str>,
    /// The definition, to compare with and for people to read.
    pub definition: Value,
}

/// A pin to be made, or made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPin {
    /// The server.
    pub server: ServerName,
    /// The tool's name there.
    pub tool: String,
    /// The pin.
    pub pin: Pin,
    /// The hash of the one it replaces. Where another stands there by now, that one stays.
    pub replaces: Option<Box<str>>,
}

impl From<&OfferedTool> for Pin {
    fn from(tool: &OfferedTool) -> Self {
        Self { hash: tool.hash.clone(), definition: canonical(&tool.definition) }
    }
}

impl Pins {
    /// The pin of a tool.
    pub fn get(&self, server: &ServerName, tool: &str) -> Option<&Pin> {
        self.servers.get(server.as_str())?.tools.get(tool)
    }

    /// The names of a server's tools that are pinned.
    pub fn names(&self, server: &ServerName) -> impl Iterator<Item = &str> {
        self.servers.get(server.as_str()).into_iter().flat_map(|pins| pins.tools.keys().map(String::as_str))
    }

    /// Whether a server can be left alone when a tool is asked for by its bare name: the tool is known, and
    /// so is the server, and it is none of its tools.
    pub fn rule_out(&self, server: &str, tool: &str) -> bool {
        let has = |pins: &ServerPins| pins.tools.keys().any(|name| normalised(name) == tool);
        let known = self.servers.get(server).filter(|pins| !pins.tools.is_empty());
        known.is_some_and(|pins| !has(pins)) && self.servers.values().any(has)
    }

    /// Whether a person has approved a server as a whole.
    pub fn approves(&self, server: &ServerName) -> bool {
        self.servers.get(server.as_str()).is_some_and(|pins| pins.approved)
    }

    /// Remembers what was seen. Where somebody else has pinned something else by now, theirs stays.
    pub fn remember(&mut self, new: impl IntoIterator<Item = NewPin>) {
        for NewPin { server, tool, pin, replaces } in new {
            let tools = &mut self.servers.entry(server.as_str().to_owned()).or_default().tools;
            if tools.get(&tool).map(|pin| &pin.hash) == replaces.as_ref() {
                tools.insert(tool, pin);
            }
        }
    }

    /// What a person approves: a server, with these definitions.
    pub fn approve(&mut self, server: &ServerName, tools: impl IntoIterator<Item = (String, Pin)>) {
        let pins = self.servers.entry(server.as_str().to_owned()).or_default();
        pins.approved = true;
        pins.tools.extend(tools);
    }
}
