//! The catalog: every tool under the name callers use, with its limits and its state.
//!
//! A pure function makes it from own tools, servers and settings. Invariant: who owns a bare name
//! depends on the configuration and never on which server answered first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use toolgate_types::server::ToolMode;
use toolgate_types::tool::SettingsMode;
use toolgate_types::{
    HumanDuration, OnCollision, ServerName, ServerSpec, ToolDefinition, ToolLimits, ToolName, ToolSettings,
};
use toolgate_upstream::Raw;
use toolgate_upstream::mirror::Mirror;
use toolgate_upstream::offer::{Offer, OfferedTool};

/// What stands between a server's prefix and a tool's name.
pub const SEPARATOR: &str = "__";

/// All tools.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By the name they are shown under, in the order of the configuration.
    tools: Vec<Arc<CatalogTool>>,
    names: HashMap<Box<str>, usize>,
}

/// One tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogTool {
    /// The name callers use.
    pub name: String,
    /// The server it comes from; `None` for one's own.
    pub server: Option<ServerName>,
    /// Its name on the server.
    #[serde(skip)]
    pub original: String,
    /// Its title for people.
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: Raw,
    /// Its limits.
    #[serde(skip)]
    pub limits: ToolLimits,
    /// The arguments that are mirrored in headers.
    #[serde(skip)]
    pub mirrors: Vec<Mirror>,
    /// Whether it can be called.
    #[serde(flatten)]
    pub state: ToolState,
}

/// Whether a tool can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolState {
    /// It can.
    Ready,
    /// It cannot, because of what it is.
    Quarantined(String),
}

impl Serialize for ToolState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("ToolState", 2)?;
        let (state, reason) = match self {
            Self::Ready => ("ready", None),
            Self::Quarantined(reason) => ("quarantined", Some(reason)),
        };
        fields.serialize_field("state", state)?;
        fields.serialize_field("reason", &reason)?;
        fields.end()
    }
}

/// Something worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// How important it is.
    pub level: Level,
    /// What happened.
    pub message: String,
}

/// How important an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Somebody has to act.
    Error,
    /// Somebody should look.
    Warning,
    /// Good to know.
    Info,
    /// For who looks closely.
    Debug,
}

/// Why there can be no catalog. The start fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A strict server offers a tool that has no settings.
    #[error(
        "Tool '{tool}' from MCP server '{server}' is not configured in the toolbox.

MCP Server: {server}
Mode: strict
Missing Tool: {tool}

Configured tools: [{}]

To resolve:
1. Add the tool to myai.toolbox.tools in your configuration, OR
2. Change the MCP server mode to 'dynamic' and provide default_tool_config",
        configured.join(", ")
    )]
    NotConfigured {
        /// The tool.
        tool: String,
        /// Its server.
        server: ServerName,
        /// The tools that are configured.
        configured: Vec<String>,
    },
    /// Two tools want one name, and the configuration says that this is an error.
    #[error("two tools are called `{name}`: {first} and {second}")]
    Collision {
        /// The name.
        name: String,
        /// Who has it.
        first: String,
        /// Who wants it too.
        second: String,
    },
}

/// What a catalog is made of.
pub struct Parts<'a> {
    /// Own tools.
    pub own: &'a [ToolDefinition],
    /// What the operator says about single tools.
    pub settings: &'a [ToolSettings],
    /// The servers that answered, in the order of the configuration, with what they offer.
    pub servers: &'a [(&'a ServerSpec, &'a Offer)],
    /// Who gets a name that two tools want.
    pub on_collision: OnCollision,
    /// The catalog before, to know what is new and what is gone.
    pub previous: Option<&'a Catalog>,
}

impl Catalog {
    /// Makes the catalog. At the first time a strict server's unknown tool is an error; later it is
    /// quarantined, and the rest goes on.
    pub fn build(parts: &Parts<'_>) -> Result<(Self, Vec<Event>), Vec<CatalogError>> {
        let mut builder = Builder {
            parts,
            tools: Vec::new(),
            owners: BTreeMap::new(),
            events: Vec::new(),
            errors: Vec::new(),
        };
        for tool in parts.own {
            builder.own(tool);
        }
        for (spec, offer) in parts.servers {
            builder.server(spec, offer);
        }
        builder.finish()
    }

    /// The tools, in the order of the configuration.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.tools.iter()
    }

    /// The tool that a name means: its shown name, or `{server}__{tool}`.
    pub fn resolve(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        self.names.get(name).map(|at| &self.tools[*at])
    }

    fn has_of(&self, server: &ServerName, original: &str) -> bool {
        self.tools.iter().any(|tool| tool.server.as_ref() == Some(server) && tool.original == original)
    }
}

struct Builder<'a> {
    parts: &'a Parts<'a>,
    tools: Vec<CatalogTool>,
    /// Who has a bare name.
    owners: BTreeMap<String, usize>,
    events: Vec<Event>,
    errors: Vec<CatalogError>,
}

impl Builder<'_> {
    fn own(&mut self, tool: &ToolDefinition) {
        let input_schema = Raw::of(&tool.input_schema);
        self.claim(
            tool.name.to_string(),
            CatalogTool {
                name: tool.name.to_string(),
                server: None,
                original: tool.name.to_string(),
                title: None,
                description: tool.description.clone(),
                input_schema,
                limits: tool.limits,
                mirrors: Vec::new(),
                state: ToolState::Ready,
            },
        );
    }

    fn server(&mut self, spec: &ServerSpec, offer: &Offer) {
        let server = &spec.name;
        if spec.load_tools && offer.tools.is_empty() {
            let place = spec.transport.place();
            self.event(Level::Warning, format!("MCP server '{server}' at {place} returned no tools"));
        }
        let mut seen: HashSet<String> = HashSet::new();
        for offered in &offer.tools {
            let allowed = spec.tools.allow.as_ref().is_none_or(|names| names.contains(&offered.name));
            if !allowed || spec.tools.deny.contains(&offered.name) {
                continue;
            }
            let name = normalised(&offered.name);
            if !seen.insert(name.clone()) {
                self.event(Level::Warning, format!("Tool '{}' from MCP '{server}' has the same name as another of its tools and is left out", offered.name));
                continue;
            }
            self.offered(spec, offered, name);
        }
        for settings in self.parts.settings {
            let gone =
                self.parts.previous.is_some_and(|before| before.has_of(server, settings.name.as_str()));
            if gone && !seen.contains(settings.name.as_str()) {
                let message = format!(
                    "Tool '{}' was configured but is no longer available from MCP server '{server}'",
                    settings.name
                );
                self.event(Level::Warning, message);
            }
        }
    }

    fn offered(&mut self, spec: &ServerSpec, offered: &OfferedTool, name: String) {
        let server = &spec.name;
        let settings = self.parts.settings.iter().find(|settings| settings.name.as_str() == name);
        let (limits, mut state) = match (&spec.mode, settings) {
            (ToolMode::Strict, Some(settings)) => {
                self.event(
                    Level::Debug,
                    format!(
                        "Tool '{name}' registered with explicit configuration: {}",
                        Shown(settings.limits)
                    ),
                );
                (settings.limits, ToolState::Ready)
            }
            (ToolMode::Strict, None) => {
                let error = CatalogError::NotConfigured {
                    tool: offered.name.clone(),
                    server: server.clone(),
                    configured: self
                        .parts
                        .settings
                        .iter()
                        .map(|settings| settings.name.to_string())
                        .collect(),
                };
                if self.parts.previous.is_none() {
                    self.errors.push(error);
                    return;
                }
                self.event(Level::Error, error.to_string());
                (
                    ToolLimits::default(),
                    ToolState::Quarantined("it is not configured, and its server is strict".to_owned()),
                )
            }
            (ToolMode::Dynamic { default_tool_config }, Some(settings)) => {
                let strict = settings.mode == Some(SettingsMode::Strict);
                let merged = if strict { settings.limits } else { settings.limits.or(*default_tool_config) };
                self.event(
                    Level::Debug,
                    format!(
                        "Tool '{name}' configuration merged: explicit={}, default={}, final={}",
                        Shown(settings.limits),
                        Shown(*default_tool_config),
                        Shown(merged)
                    ),
                );
                (merged, ToolState::Ready)
            }
            (ToolMode::Dynamic { default_tool_config }, None) => {
                let new = self.parts.previous.is_some_and(|before| !before.has_of(server, &offered.name));
                self.event(Level::Info, if new {
                    format!("New tool '{name}' discovered from MCP server '{server}', registering with default configuration")
                } else {
                    format!("Tool '{name}' from MCP '{server}' not explicitly configured, using default configuration")
                });
                (*default_tool_config, ToolState::Ready)
            }
        };
        if let Some(fault) = &offered.fault {
            self.event(Level::Error, format!("Tool '{name}' from MCP '{server}' is held back: {fault}"));
            state = ToolState::Quarantined(fault.clone());
        } else if name.parse::<ToolName>().is_err() {
            state = ToolState::Quarantined("its name is empty or longer than 128 characters".to_owned());
        }
        let tool = CatalogTool {
            name: format!("{}{SEPARATOR}{name}", server.prefix()),
            server: Some(server.clone()),
            original: offered.name.clone(),
            title: offered.title.clone(),
            description: offered.description.clone(),
            input_schema: offered.input_schema.clone(),
            limits,
            mirrors: offered.mirrors.clone(),
            state,
        };
        self.claim(name, tool);
    }

    /// Gives a tool its bare name, if the rules say so; it has its qualified one already.
    fn claim(&mut self, bare: String, mut tool: CatalogTool) {
        let at = self.tools.len();
        match self.owners.get(&bare).copied() {
            // A tool that cannot be called takes no name from one that can.
            _ if tool.state != ToolState::Ready => {}
            None => {
                self.owners.insert(bare.clone(), at);
                tool.name = bare;
            }
            Some(first) => {
                let (has, wants) = (source(&self.tools[first]), source(&tool));
                match self.parts.on_collision {
                    OnCollision::Qualify => {
                        let message =
                            format!("Tool '{bare}' of {wants} is called '{}': {has} has the name", tool.name);
                        self.event(Level::Warning, message);
                    }
                    OnCollision::LastWins => {
                        self.event(
                            Level::Warning,
                            format!("Tool '{bare}' of {wants} replaces the one of {has}"),
                        );
                        let qualified = qualified(&self.tools[first]);
                        self.tools[first].name = qualified;
                        self.owners.insert(bare.clone(), at);
                        tool.name = bare;
                    }
                    OnCollision::Error => {
                        self.errors.push(CatalogError::Collision { name: bare, first: has, second: wants })
                    }
                }
            }
        }
        self.tools.push(tool);
    }

    fn event(&mut self, level: Level, message: String) {
        self.events.push(Event { level, message });
    }

    fn finish(self) -> Result<(Catalog, Vec<Event>), Vec<CatalogError>> {
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let mut names = HashMap::new();
        for (at, tool) in self.tools.iter().enumerate() {
            names.entry(qualified(tool).into()).or_insert(at);
        }
        // A shown name counts more than somebody else's qualified one.
        for (at, tool) in self.tools.iter().enumerate() {
            names.insert(tool.name.as_str().into(), at);
        }
        Ok((Catalog { tools: self.tools.into_iter().map(Arc::new).collect(), names }, self.events))
    }
}

/// `{server}__{tool}`; an own tool that lost its name to a server keeps it behind `own__`.
fn qualified(tool: &CatalogTool) -> String {
    let prefix = tool.server.as_ref().map_or_else(|| "own".to_owned(), ServerName::prefix);
    format!("{prefix}{SEPARATOR}{}", normalised(&tool.original))
}

fn source(tool: &CatalogTool) -> String {
    tool.server.as_ref().map_or_else(|| "your own tools".to_owned(), |server| format!("MCP '{server}'"))
}

/// Every character that a tool's name cannot have becomes `-`.
fn normalised(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' })
        .collect()
}

/// Limits as the log shows them.
struct Shown(ToolLimits);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let ToolLimits { max_instances, timeout, .. } = self.0;
        let timeout = timeout.as_ref().map(HumanDuration::to_string);
        write!(
            f,
            "{{max_instances: {}, timeout: {}}}",
            value(max_instances.map(|n| n.to_string())),
            value(timeout)
        )
    }
}

#[cfg(test)]
mod tests;
