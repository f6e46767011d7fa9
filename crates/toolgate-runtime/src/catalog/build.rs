//! Builds a catalog: selects tools, applies settings, and assigns names.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use toolgate_types::server::ToolMode;
use toolgate_types::tool::{Category, Permission, RiskLevel, SettingsMode, ToolContract};
use toolgate_types::{
    HumanDuration, OnCollision, ServerName, ServerSpec, ToolDefinition, ToolLimits, ToolName, ToolSettings,
};
use toolgate_upstream::invoke::RemoteTool;
use toolgate_upstream::offer::{OfferedTool, ServerOffer, canonical_definition};
use toolgate_upstream::{BuiltinTool, RawJson};

use super::names::{self, NamePrefix, describe_source, normalize_name, qualified_name, skeletons};
use super::{
    Catalog, CatalogBuild, CatalogError, CatalogEvent, CatalogInputs, CatalogTool, DefinitionChange,
    EventLevel, QuarantineCause, SEPARATOR, ToolState, Upstream,
};
use crate::pins::{Drift, DriftClass, NewPin, Pin, PinRoom};

pub(super) struct CatalogBuilder<'a> {
    pub(super) inputs: &'a CatalogInputs<'a>,
    tools: Vec<Arc<CatalogTool>>,
    /// Owners of bare names, by confusable skeleton.
    owners: HashMap<String, NameOwner>,
    /// Beginnings of names that belong to one server or API: `{server}__`.
    prefixes: Vec<(ServerName, NamePrefix)>,
    events: Vec<CatalogEvent>,
    errors: Vec<CatalogError>,
    pins: Vec<NewPin>,
    /// Room for pins of servers with new ones.
    pin_room: HashMap<ServerName, PinRoom>,
    changes: Vec<DefinitionChange>,
    /// The server whose tools are being added.
    current_server: Option<ServerName>,
    /// Its newly quarantined tools.
    quarantined: usize,
}

/// Quarantined tools of one server that are logged one by one.
const MAX_QUARANTINE_EVENTS: usize = 10;

/// Owner of a bare name.
#[derive(Clone)]
enum NameOwner {
    /// A tool, by its index.
    Tool(usize),
    /// A pinned tool of a server that is unavailable.
    Absent(ServerName),
}

impl<'a> CatalogBuilder<'a> {
    pub(super) fn new(inputs: &'a CatalogInputs<'a>) -> Self {
        let servers = inputs.servers.iter().map(|(spec, _)| &spec.name);
        let sources = servers.chain(inputs.apis.iter().map(|(spec, _)| &spec.name));
        Self {
            inputs,
            tools: Vec::new(),
            owners: HashMap::new(),
            prefixes: sources.map(|source| (source.clone(), NamePrefix::of(source))).collect(),
            events: Vec::new(),
            errors: Vec::new(),
            pins: Vec::new(),
            pin_room: HashMap::new(),
            changes: Vec::new(),
            current_server: None,
            quarantined: 0,
        }
    }

    pub(super) fn add_own(&mut self, tool: &Arc<ToolDefinition>) {
        let before = self.inputs.previous.and_then(|previous| previous.resolve(tool.name.as_str()));
        let same = |before: &&Arc<CatalogTool>| {
            before.name == tool.name.as_str()
                && before.source.as_ref().is_some_and(|source| Arc::ptr_eq(source, tool))
        };
        let is_foreign = self.foreign_prefix(&skeletons(tool.name.as_str()), None).is_some();
        let state = match &tool.deprecated {
            Some(deprecated) if deprecated.is_removed(self.inputs.today) => {
                ToolState::Removed { reason: format!("it was removed after {}", deprecated.removal_date) }
            }
            _ => ToolState::Ready,
        };
        if let Some(before) = before.filter(same).filter(|before| !is_foreign && before.state == state) {
            return self.add_tool(tool.name.to_string(), Arc::clone(before));
        }
        self.add_tool(
            tool.name.to_string(),
            Arc::new(CatalogTool {
                source: Some(Arc::clone(tool)),
                name: if is_foreign { names::own_name(&tool.name) } else { tool.name.to_string() },
                server: None,
                original: tool.name.to_string(),
                distinct_name: None,
                title: None,
                description: tool.description.clone(),
                input_schema: RawJson::from_value(&tool.input_schema),
                output_schema: tool.output_schema.as_ref().map(RawJson::from_value),
                contract: tool.as_ref().into(),
                category: tool.category,
                tags: tool.tags.clone(),
                definition: None,
                hash: None,
                limits: tool.limits,
                permissions: tool.required_permissions(),
                rate_limit: tool.rate_limit,
                cache_ttl: tool.cache_ttl,
                response_time: tool.response_time,
                deprecated: tool.deprecated.clone(),
                follow_ups: tool.follow_ups.clone().into(),
                trusted: true,
                declared_read_only: false,
                strict_output: true,
                upstream: Upstream::Script(Arc::clone(tool)),
                compiled: Arc::default(),
                shared_state: OnceLock::new(),
                state,
            }),
        );
    }

    pub(super) fn add_builtin(&mut self, tool: &Arc<BuiltinTool>) {
        let settings = self.settings_for(tool.name.as_str());
        self.add_tool(
            tool.name.to_string(),
            Arc::new(CatalogTool {
                source: None,
                name: tool.name.to_string(),
                server: None,
                original: tool.name.to_string(),
                distinct_name: None,
                title: None,
                description: tool.description.clone(),
                input_schema: tool.input_schema.clone(),
                output_schema: tool.output_schema.clone(),
                contract: ToolContract {
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
                permissions: match settings.permissions {
                    configured if tool.own_data && configured.is_empty() => configured,
                    configured => required_permissions(&configured, "tools", tool.name.as_str()),
                },
                rate_limit: settings.rate_limit,
                cache_ttl: settings.cache_ttl,
                response_time: tool.response_time,
                deprecated: None,
                follow_ups: settings.follow_ups.into(),
                trusted: !tool.open_world,
                declared_read_only: false,
                strict_output: true,
                upstream: Upstream::Builtin(Arc::clone(tool)),
                compiled: Arc::default(),
                shared_state: OnceLock::new(),
                state: ToolState::Ready,
            }),
        );
    }

    /// The operator's settings of a tool, or empty ones.
    pub(super) fn settings_for(&self, name: &str) -> ToolSettings {
        let configured = self.inputs.settings.iter().find(|settings| settings.name.as_str() == name).cloned();
        // Tools with an invalid name are quarantined, so their settings do not matter.
        configured.unwrap_or_else(|| {
            ToolSettings::new(name.parse().unwrap_or_else(|_| "none".parse().expect("a valid name")))
        })
    }

    /// Reserves the names of an unavailable server, so that no other server can take them over while it is down.
    pub(super) fn reserve_names(&mut self, spec: &ServerSpec) {
        for original in self.inputs.pins.tool_names(&spec.name).filter(|name| is_allowed(spec, name)) {
            for skeleton in skeletons(original) {
                self.owners.entry(skeleton).or_insert_with(|| NameOwner::Absent(spec.name.clone()));
            }
        }
    }

    pub(super) fn add_server(&mut self, spec: &ServerSpec, offer: &ServerOffer) {
        let server = &spec.name;
        self.current_server = Some(server.clone());
        if spec.load_tools && offer.tools.is_empty() {
            let location = spec.transport.location();
            let problem =
                if offer.has_listed_tools { "returned no tools" } else { "has not listed its tools yet" };
            self.add_event(EventLevel::Warning, format!("MCP server '{server}' at {location} {problem}"));
        }
        let allowed = || offer.tools.iter().filter(|offered| is_allowed(spec, &offered.name));
        let CatalogInputs { previous, pins, .. } = self.inputs;
        let mut names = names::distinct_names(
            allowed().map(|offered| offered.name.as_str()),
            |name| Some(previous.as_ref()?.server_tool(server, name)?.original.as_str()),
            |original| pins.get(server, original).is_some(),
        );
        let listed: HashSet<String> = names.values().cloned().collect();
        for offered in allowed() {
            let Some(name) = names.remove(offered.name.as_str()) else {
                self.add_event(EventLevel::Warning, format!("Tool '{}' from MCP '{server}' has the same name as another of its tools and is skipped", offered.name));
                continue;
            };
            if name != normalize_name(&offered.name) {
                let message = format!(
                    "Tool '{}' from MCP '{server}' is named '{name}': another of its tools is named '{}'",
                    offered.name,
                    normalize_name(&offered.name)
                );
                self.add_event(EventLevel::Warning, message);
            }
            self.add_offered(spec, offered, &offer.version, name);
        }
        if let Some(more) = std::mem::take(&mut self.quarantined).checked_sub(MAX_QUARANTINE_EVENTS + 1) {
            let message = format!(
                "{} more tools from MCP '{server}' are quarantined; `toolgate servers show {server}` lists them",
                more + 1
            );
            self.add_event(EventLevel::Error, message);
        }
        for settings in self.inputs.settings {
            let name = settings.name.as_str();
            let was_listed = previous.is_some_and(|before| before.server_tool(server, name).is_some());
            if was_listed && !listed.contains(name) {
                let message = format!(
                    "Tool '{}' was configured but is no longer available from MCP server '{server}'",
                    settings.name
                );
                self.add_event(EventLevel::Warning, message);
            }
        }
        self.current_server = None;
    }

    /// Warns at startup about settings for tools that no server offers: a misspelt name, or a tool removed since the
    /// last start. Skipped if a server is unavailable, since it may have the tools.
    pub(super) fn warn_unused_settings(&mut self) {
        let CatalogInputs { own, settings, servers, apis, pins, previous, .. } = self.inputs;
        let available: Vec<_> =
            servers.iter().filter_map(|(spec, offer)| Some((&spec.name, (*offer)?))).collect();
        if previous.is_some() || available.is_empty() || available.len() < servers.len() {
            return;
        }
        for name in settings.iter().map(|settings| &settings.name) {
            let offers = |offer: &ServerOffer| {
                offer.tools.iter().any(|tool| normalize_name(&tool.name) == name.as_str())
            };
            let is_api_tool = apis.iter().filter_map(|(_, found)| found.offer.as_ref()).any(offers);
            let is_local = own.iter().any(|tool| tool.name == *name) || is_api_tool;
            if is_local || available.iter().any(|(_, offer)| offers(offer)) {
                continue;
            }
            let owner = available.iter().find(|(server, _)| {
                pins.tool_names(server).any(|pinned| normalize_name(pinned) == name.as_str())
            });
            let message = match owner.or(if available.len() == 1 { available.first() } else { None }) {
                Some((server, _)) => format!(
                    "Tool '{name}' was configured but is no longer available from MCP server '{server}'"
                ),
                None => format!("Tool '{name}' was configured but is available from no MCP server"),
            };
            self.add_event(EventLevel::Warning, message);
        }
    }

    fn add_offered(&mut self, spec: &ServerSpec, offered: &OfferedTool, version: &str, name: String) {
        let server = &spec.name;
        let Some((limits, mut state)) = self.apply_settings(spec, offered, &name) else { return };
        if let Some(fault) = &offered.fault {
            let pin = self.inputs.pins.get(server, &offered.name);
            // Such a tool is pinned only if a person has approved exactly this definition.
            let is_approved = pin.is_some_and(|pin| pin.hash == offered.hash);
            let rejected = self.rejected_state(server, offered).filter(|_| !is_approved);
            if offered.is_malformed {
                state = quarantined(QuarantineCause::Faulty, fault.clone());
            } else if let (ToolState::Ready, Some(rejected)) = (&state, rejected) {
                state = rejected;
            } else if state == ToolState::Ready && !is_approved {
                let approve = approval_command(server);
                state = quarantined(QuarantineCause::NotApproved, format!("{fault}; {approve}"));
            }
        } else if name.parse::<ToolName>().is_err() {
            state = quarantined(
                QuarantineCause::Faulty,
                "its name is empty or longer than 128 characters".to_owned(),
            );
        } else if state == ToolState::Ready {
            state = self.check_pin(&spec.name, offered, spec.approved, matches!(spec.mode, ToolMode::Strict));
        }
        if let ToolState::Quarantined { reason, cause } = &state
            && *cause != QuarantineCause::NotConfigured
            && !self.was_quarantined(server, &name, reason)
        {
            self.quarantined += 1;
            if self.quarantined <= MAX_QUARANTINE_EVENTS {
                self.add_event(
                    EventLevel::Error,
                    format!("Tool '{name}' from MCP '{server}' is quarantined: {reason}"),
                );
            }
        }
        // A pinned definition was seen before, perhaps by another command: `tools show` repeats the notes.
        let is_new = self.inputs.pins.get(server, &offered.name).is_none_or(|pin| pin.hash != offered.hash);
        if state == ToolState::Ready && is_new {
            for note in &offered.notes {
                self.add_event(EventLevel::Warning, format!("Tool '{name}' from MCP '{server}': {note}"));
            }
        }
        let settings = self.settings_for(&name);
        let tool = CatalogTool {
            source: None,
            name: format!("{}{SEPARATOR}{name}", server.prefix()),
            server: Some(server.clone()),
            original: offered.name.clone(),
            distinct_name: (name != normalize_name(&offered.name)).then(|| name.as_str().into()),
            title: offered.title.clone(),
            description: offered.description.clone(),
            input_schema: offered.input_schema.clone(),
            output_schema: offered.output_schema.clone(),
            contract: tool_contract(spec, offered, &settings, version),
            declared_read_only: is_declared_read_only(offered, &settings),
            category: settings.category,
            tags: settings.tags,
            definition: Some(offered.definition.clone()),
            hash: Some(offered.hash.clone()),
            limits,
            permissions: required_permissions(
                &settings.permissions,
                &server.prefix(),
                &Permission::tool_action(&name),
            ),
            rate_limit: settings.rate_limit,
            cache_ttl: settings.cache_ttl,
            response_time: None,
            deprecated: None,
            follow_ups: settings.follow_ups.into(),
            trusted: spec.trusted,
            strict_output: spec.strict_output || matches!(spec.mode, ToolMode::Strict),
            upstream: Upstream::Server(RemoteTool {
                name: offered.name.as_str().into(),
                mirrors: offered.mirrors.clone(),
            }),
            compiled: Arc::default(),
            shared_state: OnceLock::new(),
            state,
        };
        self.add_tool(name, Arc::new(tool));
    }

    /// Returns true if the tool was quarantined before for the same reason, so that this is no news.
    fn was_quarantined(&self, server: &ServerName, name: &str, reason: &str) -> bool {
        let qualified = format!("{}{SEPARATOR}{name}", server.prefix());
        let before = self.inputs.previous.and_then(|previous| previous.resolve(&qualified));
        before.is_some_and(|tool| {
            matches!(&tool.state, ToolState::Quarantined { reason: before, .. } if before == reason)
                && tool.server.as_ref() == Some(server)
        })
    }

    /// Limits and state of a tool according to the configuration. `None` if the tool is an error at startup.
    fn apply_settings(
        &mut self,
        spec: &ServerSpec,
        offered: &OfferedTool,
        name: &str,
    ) -> Option<(ToolLimits, ToolState)> {
        let server = &spec.name;
        let settings = self.inputs.settings.iter().find(|settings| settings.name.as_str() == name);
        Some(match (&spec.mode, settings) {
            (ToolMode::Strict, Some(settings)) => {
                self.add_event(
                    EventLevel::Debug,
                    format!(
                        "Tool '{name}' registered with explicit configuration: {}",
                        LimitsDisplay(settings.limits)
                    ),
                );
                (settings.limits, ToolState::Ready)
            }
            (ToolMode::Strict, None) => {
                let configured = self.inputs.settings.iter().map(|settings| settings.name.to_string());
                let error = CatalogError::NotConfigured {
                    tool: offered.name.clone(),
                    server: server.clone(),
                    configured: configured.collect(),
                };
                if self.inputs.previous.is_none() {
                    self.errors.push(error);
                    return None;
                }
                self.add_event(EventLevel::Error, error.to_string());
                let reason = "it is not configured, and its server is strict".to_owned();
                (ToolLimits::default(), quarantined(QuarantineCause::NotConfigured, reason))
            }
            (ToolMode::Dynamic { default_tool_config }, Some(settings)) => {
                let strict = settings.mode == Some(SettingsMode::Strict);
                let merged = if strict { settings.limits } else { settings.limits.or(*default_tool_config) };
                self.add_event(
                    EventLevel::Debug,
                    format!(
                        "Tool '{name}' configuration merged: explicit={}, default={}, final={}",
                        LimitsDisplay(settings.limits),
                        LimitsDisplay(*default_tool_config),
                        LimitsDisplay(merged)
                    ),
                );
                (merged, ToolState::Ready)
            }
            (ToolMode::Dynamic { default_tool_config }, None) => {
                let before = self.inputs.previous.and_then(|before| before.server_tool(server, name));
                let before = before.filter(|before| before.original == offered.name);
                // A tool that was there before, with the same limits, is no news.
                if before.is_none_or(|before| before.limits != *default_tool_config) {
                    let is_new = self.inputs.previous.is_some() && before.is_none();
                    self.add_event(EventLevel::Info, if is_new {
                        format!("New tool '{name}' discovered from MCP server '{server}', registering with default configuration")
                    } else {
                        format!("Tool '{name}' from MCP '{server}' not explicitly configured, using default configuration")
                    });
                }
                (*default_tool_config, ToolState::Ready)
            }
        })
    }

    /// The state of a tool with a definition that a person rejected.
    fn rejected_state(&self, server: &ServerName, offered: &OfferedTool) -> Option<ToolState> {
        let rejection = self.inputs.pins.rejection(server, &offered.name, &offered.hash)?;
        let reason = format!(
            "{} rejected its definition; `toolgate servers approve {server} TOOL` approves it nevertheless",
            rejection.by
        );
        Some(quarantined(QuarantineCause::Rejected, reason))
    }

    /// Compares a tool with its pin. Pins it if it is new and approved, or changed compatibly.
    pub(super) fn check_pin(
        &mut self,
        server: &ServerName,
        offered: &OfferedTool,
        approved: bool,
        strict: bool,
    ) -> ToolState {
        let approve = approval_command(server);
        let pin = self.inputs.pins.get(server, &offered.name);
        if pin.is_some_and(|pin| pin.hash == offered.hash) {
            return ToolState::Ready;
        }
        if let Some(rejected) = self.rejected_state(server, offered) {
            return rejected;
        }
        if let Some(pin) = pin {
            let drift =
                Drift::between(&pin.definition.to_value(), &canonical_definition(&offered.definition));
            let held_back = drift.class != DriftClass::Compatible || strict;
            self.changes.push(DefinitionChange {
                server: server.clone(),
                tool: offered.name.clone(),
                old_hash: pin.hash.clone(),
                new_hash: offered.hash.clone(),
                class: drift.class,
                quarantined: held_back,
            });
            if held_back {
                return quarantined(QuarantineCause::Changed, format!("{drift}; {approve}"));
            }
            self.add_event(EventLevel::Info, format!("Tool '{}' from MCP '{server}': {drift}", offered.name));
        } else if !approved {
            return quarantined(QuarantineCause::NotApproved, format!("it is not approved; {approve}"));
        } else if let Some(sign) = offered.suspicion {
            return quarantined(QuarantineCause::NotApproved, format!("it {sign}; {approve}"));
        } else if self.inputs.pins.needs_review(server) {
            let why = "it is new, and pins of its server were removed";
            return quarantined(QuarantineCause::NotApproved, format!("{why}; {approve}"));
        }
        if self.inputs.holds_new {
            let cause = if pin.is_some() { QuarantineCause::Changed } else { QuarantineCause::NotApproved };
            let why = "its definition is new, and cannot be pinned while the database of the cluster is unavailable";
            return quarantined(cause, why.to_owned());
        }
        let new = Pin::from(offered);
        let room = self.pin_room.entry(server.clone()).or_insert_with(|| self.inputs.pins.room(server));
        if !room.take(&new) {
            let cause = if pin.is_some() { QuarantineCause::Changed } else { QuarantineCause::NotApproved };
            let why = "its server has offered too many tools to pin them all";
            return quarantined(cause, format!("{why}; {approve}"));
        }
        self.pins.push(NewPin {
            server: server.clone(),
            tool: offered.name.clone(),
            pin: new,
            replaces: pin.map(|pin| pin.hash.clone()),
        });
        ToolState::Ready
    }

    /// Adds a tool, under its bare name if the collision rules allow it, otherwise under its qualified name.
    pub(super) fn add_tool(&mut self, bare: String, mut tool: Arc<CatalogTool>) {
        // The original spelling counts as well, since normalization hides look-alikes from other alphabets.
        let mut skeletons_of_name = skeletons(&bare).to_vec();
        if bare != tool.original {
            skeletons_of_name.extend(names::skeletons(&tool.original));
        }
        let owner = skeletons_of_name.iter().find_map(|skeleton| self.owners.get(skeleton)).cloned();
        let before = self.inputs.previous.and_then(|previous| previous.name_owner(&bare));
        let other_owner =
            before.filter(|before| before.server != tool.server || before.original != tool.original);
        let foreign = self.foreign_prefix(&skeletons_of_name, tool.server.as_ref()).cloned();
        let gets_name = match (owner, other_owner) {
            // A quarantined tool takes no name from a callable one. A removed tool keeps its name: a call of it must not
            // reach a tool of a server.
            _ if matches!(tool.state, ToolState::Quarantined { .. }) => false,
            _ if foreign.is_some() => {
                // Offered now or not: a call of this name is meant for that server.
                let server = foreign.as_ref().map_or("", ServerName::as_str);
                self.reject_name(&bare, &tool, &format!("names with this prefix belong to '{server}'"))
            }
            (_, Some(before)) => {
                let why = format!(
                    "the name belongs to {}, and owners change only at startup",
                    describe_source(before)
                );
                self.reject_name(&bare, &tool, &why)
            }
            (None, _) => true,
            (Some(NameOwner::Absent(server)), _) if tool.server.as_ref() == Some(&server) => true,
            (Some(NameOwner::Absent(server)), _) => self.reject_name(
                &bare,
                &tool,
                &format!("the name is reserved for MCP '{server}', which is unavailable"),
            ),
            // Look-alike names within one server do not mislead anyone about the server that is called.
            (Some(NameOwner::Tool(first)), _)
                if self.tools[first].server == tool.server && self.tools[first].name != bare =>
            {
                true
            }
            (Some(NameOwner::Tool(first)), _) => self.resolve_collision(first, &bare, &tool),
        };
        if gets_name {
            let index = self.tools.len();
            self.owners
                .extend(skeletons_of_name.into_iter().map(|skeleton| (skeleton, NameOwner::Tool(index))));
            if tool.name != bare {
                Arc::get_mut(&mut tool).expect("a reused tool already has its name").name = bare;
            }
        }
        self.tools.push(tool);
    }

    /// The other server that a name belongs to because of its prefix.
    fn foreign_prefix(&self, skeletons: &[String], own: Option<&ServerName>) -> Option<&ServerName> {
        let foreign = |(server, prefix): &&(ServerName, NamePrefix)| {
            Some(server) != own && skeletons.iter().any(|skeleton| prefix.is_start_of(skeleton))
        };
        self.prefixes.iter().find(foreign).map(|(server, _)| server)
    }

    fn reject_name(&mut self, bare: &str, tool: &CatalogTool, why: &str) -> bool {
        let before = self.inputs.previous.and_then(|previous| previous.resolve(&tool.name));
        let id = |tool: &CatalogTool| (tool.name.clone(), tool.server.clone(), tool.original.clone());
        if before.is_some_and(|before| id(before) == id(tool)) {
            return false;
        }
        let message =
            format!("Tool '{bare}' of {} is listed as '{}': {why}", describe_source(tool), tool.name);
        self.add_event(EventLevel::Warning, message);
        false
    }

    /// Resolves a collision of equal or look-alike names. Returns true if the second tool gets the name.
    fn resolve_collision(&mut self, first: usize, bare: &str, tool: &CatalogTool) -> bool {
        let (owner, claimant) = (describe_source(&self.tools[first]), describe_source(tool));
        match self.inputs.on_collision {
            OnCollision::LastWins if self.inputs.previous.is_none() => {
                self.add_event(
                    EventLevel::Warning,
                    format!("Tool '{bare}' of {claimant} replaces the one of {owner}"),
                );
                let name = qualified_name(&self.tools[first]);
                Arc::get_mut(&mut self.tools[first]).expect("all tools are new at startup").name = name;
                true
            }
            OnCollision::Error if self.inputs.previous.is_none() => {
                let name = bare.to_owned();
                self.errors.push(CatalogError::Collision { name, first: owner, second: claimant });
                false
            }
            // After startup no tool loses its name, and no collision stops the process.
            OnCollision::Qualify | OnCollision::LastWins | OnCollision::Error => {
                let same = self.tools[first].name == bare;
                let name = &self.tools[first].name;
                let why = if same {
                    format!("the name is taken by {owner}")
                } else {
                    format!("it looks like '{name}' of {owner}")
                };
                self.reject_name(bare, tool, &why)
            }
        }
    }

    pub(super) fn add_event(&mut self, level: EventLevel, message: String) {
        self.events.push(CatalogEvent { server: self.current_server.clone(), level, message });
    }

    pub(super) fn finish(self) -> Result<CatalogBuild, Vec<CatalogError>> {
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        // Precedence: caller-facing names, then qualified names, then bare names of quarantined tools, whose callers
        // get the reason for the quarantine.
        let mut names = HashMap::new();
        for (index, tool) in self.tools.iter().enumerate() {
            names.insert(tool.name.as_str().into(), index);
        }
        for (index, tool) in self.tools.iter().enumerate() {
            names.entry(qualified_name(tool).into()).or_insert(index);
        }
        for (index, tool) in self.tools.iter().enumerate() {
            let bare = tool.bare_name();
            if tool.state != ToolState::Ready
                && self.foreign_prefix(&skeletons(&bare), tool.server.as_ref()).is_none()
            {
                names.entry(bare.into()).or_insert(index);
            }
        }
        let keep_compiled = |mut tool: Arc<CatalogTool>| {
            let before = self.inputs.previous.and_then(|previous| previous.resolve(&tool.name));
            if let (Some(before), Some(tool)) = (before, Arc::get_mut(&mut tool))
                && tool.has_same_compiled(before)
            {
                tool.compiled = Arc::clone(&before.compiled);
            }
            tool
        };
        let tools = self.tools.into_iter().map(keep_compiled).collect();
        let reported = self.events.iter().map(CatalogEvent::digest).collect();
        let catalog = Catalog { tools, names, reported, ..Catalog::default() };
        Ok(CatalogBuild { catalog, events: self.events, pins: self.pins, changes: self.changes })
    }
}

fn is_allowed(spec: &ServerSpec, tool: &str) -> bool {
    let listed = |names: &[String]| names.iter().any(|name| name == tool);
    spec.tools.allow.as_deref().is_none_or(listed) && !listed(&spec.tools.deny)
}

pub(super) fn quarantined(cause: QuarantineCause, reason: String) -> ToolState {
    ToolState::Quarantined { cause, reason }
}

/// Required permissions: those from the settings, otherwise `{server}:{tool}`.
pub(super) fn required_permissions(
    configured: &[Permission],
    resource: &str,
    action: &str,
) -> Vec<Permission> {
    match configured {
        [] => {
            let default = format!("{resource}:{action}").parse();
            // Tools with an invalid name are quarantined, and require a permission that no caller has.
            vec![default.unwrap_or_else(|_| "none:none".parse().expect("a valid permission"))]
        }
        configured => configured.to_vec(),
    }
}

/// The contract of a server's tool. The operator's settings come first; annotations of the server count only if it is
/// trusted; otherwise the worst case applies.
fn tool_contract(
    spec: &ServerSpec,
    offered: &OfferedTool,
    settings: &ToolSettings,
    version: &str,
) -> ToolContract {
    let annotations = offered.annotations;
    let (risk, idempotent) = match (annotations.read_only_hint, annotations.destructive_hint) {
        _ if !spec.trusted => (RiskLevel::High, false),
        (Some(true), _) => (RiskLevel::Low, true),
        (_, Some(false)) => (RiskLevel::Medium, annotations.idempotent_hint == Some(true)),
        _ => (RiskLevel::High, annotations.idempotent_hint == Some(true)),
    };
    ToolContract {
        version: version.to_owned(),
        risk: settings.category.map_or(risk, |category| Some(category).into()),
        idempotent: settings.idempotent.unwrap_or(idempotent),
        cacheable: settings.cache_ttl.is_some(),
    }
}

/// Returns true if the server declares the tool read-only and no setting contradicts that. Counts for untrusted
/// servers too: a false claim weakens only the record of the server's own call.
fn is_declared_read_only(offered: &OfferedTool, settings: &ToolSettings) -> bool {
    let changes_data = matches!(settings.category, Some(Category::Mutation | Category::Generation));
    offered.annotations.read_only_hint == Some(true) && settings.idempotent != Some(false) && !changes_data
}

/// Formats limits for the log.
pub(super) struct LimitsDisplay(pub(super) ToolLimits);

impl fmt::Display for LimitsDisplay {
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

/// The command that releases a quarantined tool.
fn approval_command(server: &ServerName) -> String {
    format!("run `toolgate servers approve {server}` to review and approve it")
}
