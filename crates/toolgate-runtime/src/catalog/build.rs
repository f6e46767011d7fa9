//! Making a catalog: whom to take, with which limits, under which name.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use toolgate_types::server::ToolMode;
use toolgate_types::tool::{Contract, Permission, Risk, SettingsMode};
use toolgate_types::{
    HumanDuration, OnCollision, ServerName, ServerSpec, ToolDefinition, ToolLimits, ToolName, ToolSettings,
};
use toolgate_upstream::invoke::Address;
use toolgate_upstream::offer::{Offer, OfferedTool, canonical};
use toolgate_upstream::{Builtin, Raw};

use super::names::{self, looks, normalised, qualified, source};
use super::{
    Built, Catalog, CatalogError, CatalogTool, Changed, Event, Level, Parts, SEPARATOR, ToolState, Upstream,
    Why,
};
use crate::pins::{Drift, DriftClass, NewPin, Pin};

pub(super) struct Builder<'a> {
    pub(super) parts: &'a Parts<'a>,
    tools: Vec<Arc<CatalogTool>>,
    /// Who has a bare name, by what it looks like.
    owners: HashMap<String, Owner>,
    events: Vec<Event>,
    errors: Vec<CatalogError>,
    pins: Vec<NewPin>,
    changed: Vec<Changed>,
}

/// Who has a bare name.
#[derive(Clone)]
enum Owner {
    /// A tool, by its place.
    Tool(usize),
    /// A tool that a server had when it was last there.
    Absent(ServerName),
}

impl<'a> Builder<'a> {
    pub(super) fn new(parts: &'a Parts<'a>) -> Self {
        Self {
            parts,
            tools: Vec::new(),
            owners: HashMap::new(),
            events: Vec::new(),
            errors: Vec::new(),
            pins: Vec::new(),
            changed: Vec::new(),
        }
    }

    pub(super) fn own(&mut self, tool: &Arc<ToolDefinition>) {
        let before = self.parts.previous.and_then(|previous| previous.resolve(tool.name.as_str()));
        let same = |before: &&Arc<CatalogTool>| {
            before.name == tool.name.as_str()
                && before.source.as_ref().is_some_and(|source| Arc::ptr_eq(source, tool))
        };
        if let Some(before) = before.filter(same) {
            return self.claim(tool.name.to_string(), Arc::clone(before));
        }
        self.claim(
            tool.name.to_string(),
            Arc::new(CatalogTool {
                source: Some(Arc::clone(tool)),
                name: tool.name.to_string(),
                server: None,
                original: tool.name.to_string(),
                title: None,
                description: tool.description.clone(),
                input_schema: Raw::of(&tool.input_schema),
                output_schema: tool.output_schema.as_ref().map(Raw::of),
                contract: tool.as_ref().into(),
                category: tool.category,
                tags: tool.tags.clone(),
                definition: None,
                hash: None,
                limits: tool.limits,
                permissions: demanded(&tool.permissions, "tools", tool.name.as_str()),
                rate_limit: tool.rate_limit,
                cache_ttl: tool.cache_ttl,
                response_time: tool.response_time,
                deprecated: tool.deprecated.clone(),
                follow_ups: tool.follow_ups.clone(),
                trusted: true,
                strict_output: true,
                upstream: Upstream::Script(Arc::clone(tool)),
                compiled: Arc::default(),
                guard: OnceLock::new(),
                state: ToolState::Ready,
            }),
        );
    }

    pub(super) fn builtin(&mut self, tool: &Arc<Builtin>) {
        let settings = self.settings(tool.name.as_str());
        self.claim(
            tool.name.to_string(),
            Arc::new(CatalogTool {
                source: None,
                name: tool.name.to_string(),
                server: None,
                original: tool.name.to_string(),
                title: None,
                description: tool.description.clone(),
                input_schema: tool.input_schema.clone(),
                output_schema: tool.output_schema.clone(),
                contract: Contract {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    risk: Some(settings.category.unwrap_or(tool.category)).into(),
                    idempotent: settings.idempotent.unwrap_or(tool.idempotent),
                    cacheable: settings.cache_ttl.is_some(),
                },
                category: Some(settings.category.unwrap_or(tool.category)),
                tags: if settings.tags.is_empty() { tool.tags.clone() } else { settings.tags },
                definition: None,
                hash: None,
                limits: settings.limits.or(ToolLimits {
                    parallel_capable: Some(true),
                    timeout: tool.timeout,
                    ..ToolLimits::default()
                }),
                permissions: demanded(&settings.permissions, "tools", tool.name.as_str()),
                rate_limit: settings.rate_limit,
                cache_ttl: settings.cache_ttl,
                response_time: tool.response_time,
                deprecated: None,
                follow_ups: settings.follow_ups,
                trusted: !tool.reaches_out,
                strict_output: true,
                upstream: Upstream::Builtin(Arc::clone(tool)),
                compiled: Arc::default(),
                guard: OnceLock::new(),
                state: ToolState::Ready,
            }),
        );
    }

    /// What the operator says of a tool.
    pub(super) fn settings(&self, name: &str) -> ToolSettings {
        let said = self.parts.settings.iter().find(|settings| settings.name.as_str() == name).cloned();
        // A name that is none is held back, and its settings say nothing.
        said.unwrap_or_else(|| {
            ToolSettings::new(name.parse().unwrap_or_else(|_| "none".parse().expect("it is a name")))
        })
    }

    /// A server that is not there keeps the names that it had, so that nobody else can take them
    /// by answering while it is away.
    pub(super) fn absent(&mut self, spec: &ServerSpec) {
        for original in self.parts.pins.names(&spec.name).filter(|name| may_be_used(spec, name)) {
            for look in looks(original) {
                self.owners.entry(look).or_insert_with(|| Owner::Absent(spec.name.clone()));
            }
        }
    }

    pub(super) fn server(&mut self, spec: &ServerSpec, offer: &Offer) {
        let server = &spec.name;
        if spec.load_tools && offer.tools.is_empty() {
            let place = spec.transport.place();
            self.event(Level::Warning, format!("MCP server '{server}' at {place} returned no tools"));
        }
        let mut seen: HashSet<String> = HashSet::new();
        for offered in offer.tools.iter().filter(|offered| may_be_used(spec, &offered.name)) {
            let name = normalised(&offered.name);
            if !seen.insert(name.clone()) {
                self.event(Level::Warning, format!("Tool '{}' from MCP '{server}' has the same name as another of its tools and is left out", offered.name));
                continue;
            }
            self.offered(spec, offered, &offer.version, name);
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

    /// Settings for tools that nobody offers, at the start: a server changed while we were away, or a
    /// name is misspelt. A server that is not there may have them.
    pub(super) fn unclaimed_settings(&mut self) {
        let Parts { own, settings, servers, apis, pins, previous, .. } = self.parts;
        let there: Vec<_> =
            servers.iter().filter_map(|(spec, offer)| Some((&spec.name, (*offer)?))).collect();
        if previous.is_some() || there.is_empty() || there.len() < servers.len() {
            return;
        }
        for name in settings.iter().map(|settings| &settings.name) {
            let offers =
                |offer: &Offer| offer.tools.iter().any(|tool| normalised(&tool.name) == name.as_str());
            let of_an_api = apis.iter().filter_map(|(_, found)| found.offer.as_ref()).any(offers);
            let of_ours = own.iter().any(|tool| tool.name == *name) || of_an_api;
            if of_ours || there.iter().any(|(_, offer)| offers(offer)) {
                continue;
            }
            let had = there
                .iter()
                .find(|(server, _)| pins.names(server).any(|had| normalised(had) == name.as_str()));
            let message = match had.or(if there.len() == 1 { there.first() } else { None }) {
                Some((server, _)) => format!(
                    "Tool '{name}' was configured but is no longer available from MCP server '{server}'"
                ),
                None => format!("Tool '{name}' was configured but is available from no MCP server"),
            };
            self.event(Level::Warning, message);
        }
    }

    fn offered(&mut self, spec: &ServerSpec, offered: &OfferedTool, version: &str, name: String) {
        let server = &spec.name;
        let Some((limits, mut state)) = self.configured(spec, offered, &name) else { return };
        if let Some(fault) = &offered.fault {
            state = held(Why::Faulty, fault.clone());
        } else if name.parse::<ToolName>().is_err() {
            state = held(Why::Faulty, "its name is empty or longer than 128 characters".to_owned());
        } else if state == ToolState::Ready {
            state = self.trusted(&spec.name, offered, spec.approved, matches!(spec.mode, ToolMode::Strict));
        }
        if let ToolState::Quarantined { reason, why } = &state
            && *why != Why::NotConfigured
        {
            self.event(Level::Error, format!("Tool '{name}' from MCP '{server}' is held back: {reason}"));
        }
        let settings = self.settings(&name);
        let tool = CatalogTool {
            source: None,
            name: format!("{}{SEPARATOR}{name}", server.prefix()),
            server: Some(server.clone()),
            original: offered.name.clone(),
            title: offered.title.clone(),
            description: offered.description.clone(),
            input_schema: offered.input_schema.clone(),
            output_schema: offered.output_schema.clone(),
            contract: contract(spec, offered, &settings, version),
            category: settings.category,
            tags: settings.tags,
            definition: Some(offered.definition.clone()),
            hash: Some(offered.hash.clone()),
            limits,
            permissions: demanded(&settings.permissions, &server.prefix(), &name),
            rate_limit: settings.rate_limit,
            cache_ttl: settings.cache_ttl,
            response_time: None,
            deprecated: None,
            follow_ups: settings.follow_ups,
            trusted: spec.trusted,
            strict_output: spec.strict_output || matches!(spec.mode, ToolMode::Strict),
            upstream: Upstream::Server(Address {
                name: offered.name.clone(),
                mirrors: offered.mirrors.clone(),
            }),
            compiled: Arc::default(),
            guard: OnceLock::new(),
            state,
        };
        self.claim(name, Arc::new(tool));
    }

    /// What the configuration says of a tool; `None` where it must not be there at all.
    fn configured(
        &mut self,
        spec: &ServerSpec,
        offered: &OfferedTool,
        name: &str,
    ) -> Option<(ToolLimits, ToolState)> {
        let server = &spec.name;
        let settings = self.parts.settings.iter().find(|settings| settings.name.as_str() == name);
        Some(match (&spec.mode, settings) {
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
                let configured = self.parts.settings.iter().map(|settings| settings.name.to_string());
                let error = CatalogError::NotConfigured {
                    tool: offered.name.clone(),
                    server: server.clone(),
                    configured: configured.collect(),
                };
                if self.parts.previous.is_none() {
                    self.errors.push(error);
                    return None;
                }
                self.event(Level::Error, error.to_string());
                let reason = "it is not configured, and its server is strict".to_owned();
                (ToolLimits::default(), held(Why::NotConfigured, reason))
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
        })
    }

    /// Whether a tool is the one that was approved or first seen, and what is remembered of it.
    pub(super) fn trusted(
        &mut self,
        server: &ServerName,
        offered: &OfferedTool,
        approved: bool,
        strict: bool,
    ) -> ToolState {
        let approve = format!("`toolgate servers approve {server}` shows it and lets it through");
        let pin = self.parts.pins.get(server, &offered.name);
        if pin.is_some_and(|pin| pin.hash == offered.hash) {
            return ToolState::Ready;
        }
        if let Some(pin) = pin {
            let drift = Drift::between(&pin.definition, &canonical(&offered.definition));
            let held_back = drift.class != DriftClass::Compatible || strict;
            self.changed.push(Changed {
                server: server.clone(),
                tool: offered.name.clone(),
                was: pin.hash.clone(),
                is: offered.hash.clone(),
                class: drift.class,
                held_back,
            });
            if held_back {
                return held(Why::Changed, format!("{drift}; {approve}"));
            }
            self.event(Level::Info, format!("Tool '{}' from MCP '{server}': {drift}", offered.name));
        } else if !approved {
            return held(Why::NotApproved, format!("it is not approved; {approve}"));
        } else if let Some(sign) = offered.suspicion {
            return held(Why::NotApproved, format!("it {sign}; {approve}"));
        }
        self.pins.push(NewPin {
            server: server.clone(),
            tool: offered.name.clone(),
            pin: Pin::from(offered),
            replaces: pin.map(|pin| pin.hash.clone()),
        });
        ToolState::Ready
    }

    /// Gives a tool its bare name, if the rules say so; it has its qualified one already.
    pub(super) fn claim(&mut self, bare: String, mut tool: Arc<CatalogTool>) {
        // A look-alike from another alphabet is found by how its server spells it.
        let mut looks = looks(&bare).to_vec();
        if bare != tool.original {
            looks.extend(names::looks(&tool.original));
        }
        let owner = looks.iter().find_map(|look| self.owners.get(look)).cloned();
        let before = self.parts.previous.and_then(|previous| previous.owner(&bare));
        let moved = before.filter(|before| before.server != tool.server || before.original != tool.original);
        let takes = match (owner, moved) {
            // A tool that cannot be called takes no name from one that can.
            _ if tool.state != ToolState::Ready => false,
            (_, Some(before)) => {
                let why = format!("{} had the name, and names change hands only at a start", source(before));
                self.refuse(&bare, &tool, &why)
            }
            (None, _) => true,
            (Some(Owner::Absent(server)), _) if tool.server.as_ref() == Some(&server) => true,
            (Some(Owner::Absent(server)), _) => {
                self.refuse(&bare, &tool, &format!("MCP '{server}' has the name, and is not there"))
            }
            // What one server calls alike misleads nobody about whom it calls.
            (Some(Owner::Tool(first)), _)
                if self.tools[first].server == tool.server && self.tools[first].name != bare =>
            {
                true
            }
            (Some(Owner::Tool(first)), _) => self.clash(first, &bare, &tool),
        };
        if takes {
            let at = self.tools.len();
            self.owners.extend(looks.into_iter().map(|look| (look, Owner::Tool(at))));
            if tool.name != bare {
                Arc::get_mut(&mut tool).expect("one that was there before has its name").name = bare;
            }
        }
        self.tools.push(tool);
    }

    fn refuse(&mut self, bare: &str, tool: &CatalogTool, why: &str) -> bool {
        let message = format!("Tool '{bare}' of {} is called '{}': {why}", source(tool), tool.name);
        self.event(Level::Warning, message);
        false
    }

    /// Two tools want one name, or names that look alike. Says whether the second gets it.
    fn clash(&mut self, first: usize, bare: &str, tool: &CatalogTool) -> bool {
        let (has, wants) = (source(&self.tools[first]), source(tool));
        match self.parts.on_collision {
            OnCollision::LastWins if self.parts.previous.is_none() => {
                self.event(Level::Warning, format!("Tool '{bare}' of {wants} replaces the one of {has}"));
                let name = qualified(&self.tools[first]);
                Arc::get_mut(&mut self.tools[first]).expect("at the start all of them are new").name = name;
                true
            }
            OnCollision::Error if self.parts.previous.is_none() => {
                let name = bare.to_owned();
                self.errors.push(CatalogError::Collision { name, first: has, second: wants });
                false
            }
            // After the start nobody takes a name from anybody, and nothing ends the process.
            OnCollision::Qualify | OnCollision::LastWins | OnCollision::Error => {
                let same = self.tools[first].name == bare;
                let name = &self.tools[first].name;
                let why = if same {
                    format!("{has} has the name")
                } else {
                    format!("{has} has '{name}', which looks the same")
                };
                self.refuse(bare, tool, &why)
            }
        }
    }

    pub(super) fn event(&mut self, level: Level, message: String) {
        self.events.push(Event { level, message });
    }

    pub(super) fn finish(self) -> Result<Built, Vec<CatalogError>> {
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        // A shown name counts more than somebody else's qualified one, and that more than the bare
        // name of a tool that is held back, whose caller should hear why.
        let mut names = HashMap::new();
        for (at, tool) in self.tools.iter().enumerate() {
            names.insert(tool.name.as_str().into(), at);
        }
        for (at, tool) in self.tools.iter().enumerate() {
            names.entry(qualified(tool).into()).or_insert(at);
        }
        for (at, tool) in self.tools.iter().enumerate() {
            if tool.state != ToolState::Ready {
                names.entry(normalised(&tool.original).into()).or_insert(at);
            }
        }
        let keep_compiled = |mut tool: Arc<CatalogTool>| {
            let before = self.parts.previous.and_then(|previous| previous.resolve(&tool.name));
            if let (Some(before), Some(tool)) = (before, Arc::get_mut(&mut tool))
                && tool.compiles_as(before)
            {
                tool.compiled = Arc::clone(&before.compiled);
            }
            tool
        };
        let tools = self.tools.into_iter().map(keep_compiled).collect();
        let catalog = Catalog { tools, names, ..Catalog::default() };
        Ok(Built { catalog, events: self.events, pins: self.pins, changed: self.changed })
    }
}

fn may_be_used(spec: &ServerSpec, tool: &str) -> bool {
    let listed = |names: &[String]| names.iter().any(|name| name == tool);
    spec.tools.allow.as_deref().is_none_or(listed) && !listed(&spec.tools.deny)
}

pub(super) fn held(why: Why, reason: String) -> ToolState {
    ToolState::Quarantined { why, reason }
}

/// What a tool demands: what is said of it, else a permission of its own, `{server}:{tool}`.
pub(super) fn demanded(said: &[Permission], resource: &str, action: &str) -> Vec<Permission> {
    match said {
        [] => {
            let own = format!("{resource}:{action}").parse();
            // A name that is none is held back, and demands what nobody has.
            vec![own.unwrap_or_else(|_| "none:none".parse().expect("it is a permission"))]
        }
        said => said.to_vec(),
    }
}

/// What may be done with a server's tool: what the operator says; else the worst is assumed, unless the
/// operator trusts what the server says.
fn contract(spec: &ServerSpec, offered: &OfferedTool, settings: &ToolSettings, version: &str) -> Contract {
    let says = offered.annotations;
    let (risk, idempotent) = match (says.read_only_hint, says.destructive_hint) {
        _ if !spec.trusted => (Risk::High, false),
        (Some(true), _) => (Risk::Low, true),
        (_, Some(false)) => (Risk::Medium, says.idempotent_hint == Some(true)),
        _ => (Risk::High, says.idempotent_hint == Some(true)),
    };
    Contract {
        version: version.to_owned(),
        risk: settings.category.map_or(risk, |category| Some(category).into()),
        idempotent: settings.idempotent.unwrap_or(idempotent),
        cacheable: settings.cache_ttl.is_some(),
    }
}

/// Limits as the log shows them.
pub(super) struct Shown(pub(super) ToolLimits);

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
