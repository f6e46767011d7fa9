//! Pins: the definitions of servers' tools as first seen or last approved.
//!
//! A harmless server can change its tool definitions later (a "rug pull"). Definitions are therefore pinned, and
//! changes are compared with the pin; see [`Drift`]. Invariant: a pin changes only by a person's approval or a
//! compatible change. Pins use the server's own tool names, not the names shown to callers.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

/// Pins of one server that are made without a person: their number, as many as one list may have, and the size of their
/// definitions. A server could otherwise fill memory and disk by offering new names at every change.
const MAX_PINS: usize = 10_000;
const MAX_PIN_BYTES: usize = 16 << 20;

/// The pins that a server may still get without a person.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PinRoom {
    names: usize,
    bytes: usize,
}

impl PinRoom {
    /// Takes room for a pin. Returns false if there is too little.
    pub(crate) fn take(&mut self, pin: &Pin) -> bool {
        let bytes = pin.size_bytes();
        let fits = self.names > 0 && self.bytes >= bytes;
        if fits {
            (self.names, self.bytes) = (self.names - 1, self.bytes - bytes);
        }
        fits
    }
}

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
    /// True if new tools need approval, because pins of tools that were no longer offered have been removed. A removed
    /// tool that comes back must not be taken for a harmless new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    review_new: bool,
    /// By the server's own tool names.
    #[serde(default)]
    tools: BTreeMap<String, Pin>,
    /// Definitions that a person rejected, by the server's own tool names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    rejected: BTreeMap<String, Rejection>,
}

/// A definition that a person rejected. Another definition of the tool is not concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// Hash of the definition.
    pub hash: Box<str>,
    pub at: String,
    /// Name of the person.
    pub by: String,
}

/// A pinned definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Hash of the definition.
    pub hash: Box<str>,
    /// The definition, for comparison and review.
    pub definition: PinnedDefinition,
}

/// A definition in canonical form, kept as JSON text: parsed, ten thousand of them take 40 MiB, and hardly any is read
/// again. Clones share the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedDefinition(Arc<str>);

impl PinnedDefinition {
    pub fn new(canonical: &Value) -> Self {
        Self(canonical.to_string().into())
    }

    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).expect("it was written from a value")
    }
}

impl Serialize for PinnedDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PinnedDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::new(&value))
    }
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

impl Pin {
    fn size_bytes(&self) -> usize {
        self.hash.len() + self.definition.0.len()
    }
}

impl From<&OfferedTool> for Pin {
    fn from(tool: &OfferedTool) -> Self {
        Self {
            hash: tool.hash.clone(),
            definition: PinnedDefinition::new(&canonical_definition(&tool.definition)),
        }
    }
}

impl PinSet {
    pub fn get(&self, server: &ServerName, tool: &str) -> Option<&Pin> {
        self.servers.get(server.as_str())?.tools.get(tool)
    }

    /// Definitions of a server's pinned tools.
    pub fn definitions(&self, server: &ServerName) -> impl Iterator<Item = Value> {
        let pins = self.servers.get(server.as_str()).into_iter();
        pins.flat_map(|pins| pins.tools.values().map(|pin| pin.definition.to_value()))
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

    /// The rejection of a definition, if a person rejected it.
    pub fn rejection(&self, server: &ServerName, tool: &str, hash: &str) -> Option<&Rejection> {
        let rejection = self.servers.get(server.as_str())?.rejected.get(tool)?;
        (*rejection.hash == *hash).then_some(rejection)
    }

    /// Rejects definitions. A later rejection of a tool replaces an earlier one.
    pub fn reject(&mut self, server: &ServerName, tools: impl IntoIterator<Item = (String, Rejection)>) {
        let pins = self.servers.entry(server.as_str().to_owned()).or_default();
        for (tool, rejection) in tools {
            if pins.rejected.len() < MAX_PINS || pins.rejected.contains_key(&tool) {
                pins.rejected.insert(tool, rejection);
            }
        }
    }

    /// Returns true if new tools of the server need approval.
    pub fn needs_review(&self, server: &ServerName) -> bool {
        self.servers.get(server.as_str()).is_some_and(|pins| pins.review_new)
    }

    /// The room for further pins of a server.
    pub(crate) fn room(&self, server: &ServerName) -> PinRoom {
        let pins = self.servers.get(server.as_str()).into_iter().flat_map(|pins| &pins.tools);
        let mut room = PinRoom { names: MAX_PINS, bytes: MAX_PIN_BYTES };
        for (name, pin) in pins {
            room.names = room.names.saturating_sub(1);
            room.bytes = room.bytes.saturating_sub(name.len() + pin.size_bytes());
        }
        room
    }

    /// Adds pins. A pin that another process changed in the meantime stays.
    pub fn add(&mut self, new: impl IntoIterator<Item = NewPin>) {
        for NewPin { server, tool, pin, replaces } in new {
            let tools = &mut self.servers.entry(server.as_str().to_owned()).or_default().tools;
            // Several processes may add pins, each within the room that it sees.
            let fits = tools.len() < MAX_PINS || tools.contains_key(&tool);
            if fits && tools.get(&tool).map(|pin| &pin.hash) == replaces.as_ref() {
                tools.insert(tool, pin);
            }
        }
    }

    /// Approves a server as a whole, and these definitions. If the server has used up half of its room, pins of tools
    /// that it no longer offers are removed, and new tools need approval from then on.
    pub fn approve(
        &mut self,
        server: &ServerName,
        tools: impl IntoIterator<Item = (String, Pin)>,
        offered: &HashSet<String>,
    ) {
        let room = self.room(server);
        let pins = self.servers.entry(server.as_str().to_owned()).or_default();
        pins.approved = true;
        for (name, pin) in tools {
            pins.rejected.remove(&name);
            pins.tools.insert(name, pin);
        }
        if room.names < MAX_PINS / 2 || room.bytes < MAX_PIN_BYTES / 2 {
            let before = pins.tools.len();
            pins.tools.retain(|name, _| offered.contains(name));
            pins.review_new |= pins.tools.len() < before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(bytes: usize) -> Pin {
        Pin { hash: "h".into(), definition: PinnedDefinition::new(&Value::from("x".repeat(bytes))) }
    }

    fn new(server: &ServerName, names: std::ops::Range<usize>) -> impl Iterator<Item = NewPin> {
        let server = server.clone();
        names.map(move |n| NewPin {
            server: server.clone(),
            tool: format!("t{n}"),
            pin: pin(1),
            replaces: None,
        })
    }

    #[test]
    fn pins_of_a_server_are_bounded() {
        let server: ServerName = "s".parse().unwrap();
        let mut pins = PinSet::default();
        pins.add(new(&server, 0..MAX_PINS - 1));
        let mut room = pins.room(&server);
        assert!(room.take(&pin(1)) && !room.take(&pin(1)), "room for one more name");
        assert!(!pins.room(&server).take(&pin(MAX_PIN_BYTES)), "but not of any size");
        pins.add(new(&server, MAX_PINS..2 * MAX_PINS));
        assert_eq!(pins.tool_names(&server).count(), MAX_PINS);
        assert!(pins.room(&"other".parse().unwrap()).take(&pin(1)), "each server has its own room");
    }

    #[test]
    fn a_rejection_holds_for_one_definition_until_it_is_approved() {
        let server: ServerName = "s".parse().unwrap();
        let rejection = |hash: &str| Rejection { hash: hash.into(), at: String::new(), by: "ann".to_owned() };
        let mut pins = PinSet::default();
        pins.reject(&server, [("t".to_owned(), rejection("h"))]);
        assert!(pins.rejection(&server, "t", "h").is_some() && !pins.is_approved(&server));
        assert!(
            pins.rejection(&server, "t", "other").is_none() && pins.rejection(&server, "u", "h").is_none()
        );
        let text = serde_json::to_string(&pins.servers).unwrap();
        assert_eq!(serde_json::from_str::<BTreeMap<String, ServerPins>>(&text).unwrap(), pins.servers);
        pins.approve(&server, [("t".to_owned(), pin(1))], &HashSet::new());
        assert!(pins.rejection(&server, "t", "h").is_none());
    }

    #[test]
    fn an_approval_makes_room_and_new_tools_need_one_then() {
        let server: ServerName = "s".parse().unwrap();
        let mut pins = PinSet::default();
        pins.add(new(&server, 0..10));
        let offered: HashSet<String> = ["t1".to_owned(), "new".to_owned()].into();
        pins.approve(&server, [("new".to_owned(), pin(1))], &offered);
        assert_eq!(pins.tool_names(&server).count(), 11, "few pins stay, offered or not");
        assert!(!pins.needs_review(&server));
        pins.add(new(&server, 10..MAX_PINS));
        pins.approve(&server, [], &offered);
        assert_eq!(pins.tool_names(&server).collect::<Vec<_>>(), ["new", "t1"]);
        assert!(pins.needs_review(&server), "a removed tool could come back as another one");
    }
}
