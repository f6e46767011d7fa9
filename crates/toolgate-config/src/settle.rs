//! What was written becomes what it means: entries of files turn into servers and tools.
//!
//! Defaults, rules between keys and rules between entries live here. Invariant: only what passed
//! every rule gets into the [`Draft`]; what did not was told.

pub(crate) mod agent;
mod api;
mod audit;
mod builtins;
mod caching;
mod caller;
mod egress;
mod json_schema;
mod oauth;
pub(crate) mod policy;
mod profile;
mod results;
mod serve;
pub(crate) mod server;
mod settings;
mod telemetry;
mod tls;
pub(crate) mod tool;

use std::collections::{BTreeMap, HashMap};

use toolgate_types::door::CertificateMatch;
use toolgate_types::limits::ResultLimits;
use toolgate_types::telemetry::Collector;
use toolgate_types::{
    AgentRules, ApiSpec, AuditRules, BuiltinRules, Caller, CallerId, DoorRules, EgressRules, HumanDuration,
    KeyHash, Limits, OnCollision, ServerName, ServerSpec, ToolDefinition, ToolName, ToolSettings,
};

use crate::checklist::checklist;
use crate::config::{Config, InputSpec, PolicyFile, Registries, variable_of_input};
use crate::context::Context;
use crate::file::{CollisionName, InputEntry, InputKindName, ServerEntry, ToolboxFile};
use crate::keys::{At, listed};
use crate::problem::Problem;
use crate::settle::caching::Caching;
use crate::settle::server::ServerRules;
use crate::source::Span;

/// A tool, or settings of one, with what other entries may still have a say in.
struct Drafted<T> {
    value: T,
    caching: Caching,
    span: Span,
}

/// A configuration on its way to being checked.
pub(crate) struct Draft {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) registries: Registries,
    pub(crate) limits: Limits,
    pub(crate) servers: Vec<(ServerSpec, Span)>,
    apis: Vec<(ApiSpec, Span)>,
    tools: Vec<Drafted<ToolDefinition>>,
    settings: Vec<Drafted<ToolSettings>>,
    callers: Vec<(Caller, Span)>,
    caller_descriptions: BTreeMap<CallerId, String>,
    caller_keys: Vec<(CallerId, KeyHash)>,
    caller_certificates: Vec<(CallerId, CertificateMatch, Span)>,
    serve: DoorRules,
    /// `None` until a file was named or found, whatever is wrong with it.
    policy: Option<Option<PolicyFile>>,
    egress: EgressRules,
    results: Option<ResultLimits>,
    builtins: BuiltinRules,
    agent: AgentRules,
    telemetry: Option<Collector>,
    /// Tools that have to keep all of the contract.
    full: Vec<(ToolName, Span)>,
    audit: AuditRules,
    profiles: profile::Drafts,
    pub(crate) inputs: Vec<InputSpec>,
    /// Where each tool is in `tools`, and where each has its settings in `settings`.
    tool_at: HashMap<ToolName, usize>,
    settings_at: HashMap<ToolName, usize>,
    origins: BTreeMap<String, Span>,
}

impl Draft {
    pub(crate) fn new() -> Self {
        let limits = Limits {
            max_concurrent: const { std::num::NonZeroU32::new(64).expect("64 is not zero") },
            default_timeout: HumanDuration::from_secs(30),
            max_output: toolgate_types::ByteSize::from_mib(4),
            on_collision: OnCollision::Qualify,
        };
        Self {
            name: None,
            description: None,
            registries: Registries::default(),
            limits,
            servers: Vec::new(),
            apis: Vec::new(),
            tools: Vec::new(),
            settings: Vec::new(),
            callers: Vec::new(),
            caller_descriptions: BTreeMap::new(),
            caller_keys: Vec::new(),
            caller_certificates: Vec::new(),
            serve: DoorRules::default(),
            policy: None,
            egress: EgressRules::default(),
            results: None,
            builtins: BuiltinRules::default(),
            agent: AgentRules::default(),
            telemetry: None,
            full: Vec::new(),
            audit: AuditRules::default(),
            profiles: profile::Drafts::default(),
            inputs: Vec::new(),
            tool_at: HashMap::new(),
            settings_at: HashMap::new(),
            origins: BTreeMap::new(),
        }
    }

    /// Keeps where values came from, for those that were written.
    pub(crate) fn origins(&mut self, path: &str, written: Vec<(&'static str, Span)>) {
        self.origins.extend(written.into_iter().map(|(key, span)| (format!("{path}.{key}"), span)));
    }

    /// The name and the description of the project.
    pub(crate) fn title(&mut self, name: Option<At<String>>, description: Option<At<String>>) {
        for (key, at) in [("name", &name), ("description", &description)] {
            self.origins.extend(at.iter().map(|at| (key.to_owned(), at.span)));
        }
        self.name = value(name);
        self.description = value(description);
    }

    pub(crate) fn toolbox(&mut self, toolbox: ToolboxFile, cx: &mut Context<'_>) {
        let mut written = toolbox.written();
        written.retain(|(key, _)| !matches!(*key, "tools" | "mcps"));
        self.origins("limits", written);
        let limits = &mut self.limits;
        limits.max_concurrent = toolbox.max_concurrent.map_or(limits.max_concurrent, |at| at.value);
        limits.default_timeout = toolbox.default_timeout.map_or(limits.default_timeout, |at| at.value);
        limits.max_output = toolbox.max_output.map_or(limits.max_output, |at| at.value);
        limits.on_collision = toolbox.on_collision.map_or(limits.on_collision, |at| match at.value {
            CollisionName::Qualify => OnCollision::Qualify,
            CollisionName::LastWins => OnCollision::LastWins,
            CollisionName::Error => OnCollision::Error,
        });
        for settings in values(toolbox.tools).unwrap_or_default() {
            self.settings(settings, cx);
        }
        for entry in values(toolbox.mcps).unwrap_or_default() {
            self.named_server(entry, ServerRules::TOOLBOX, cx);
        }
    }

    /// A server whose entry holds its name.
    pub(crate) fn named_server(&mut self, mut entry: ServerEntry, rules: ServerRules, cx: &mut Context<'_>) {
        match entry.file.name.take() {
            Some(name) => self.server(entry, name, rules, cx),
            None if entry.file.given.contains(&"name") => {}
            None => cx.error(entry.file.span, "missing key `name` in MCP server", "give the server a name"),
        }
    }

    /// A server whose key is its name.
    pub(crate) fn keyed_server(
        &mut self,
        key: &str,
        entry: At<ServerEntry>,
        rules: ServerRules,
        cx: &mut Context<'_>,
    ) {
        if let Some(name) = &entry.value.file.name {
            let message = format!("`name` in MCP server `{key}` is not used");
            cx.push(Problem::note(name.key_span, message).hint("its key is its name"));
        }
        let span = entry.key_span;
        match key.parse() {
            Ok(value) => self.server(entry.value, At { value, span, key_span: span }, rules, cx),
            Err(error) => cx.error(span, format!("`{key}` is not a server's name"), format!("{error}")),
        }
    }

    pub(crate) fn input(&mut self, InputEntry { file, answered }: InputEntry, cx: &mut Context<'_>) {
        let Some(id) = file.id else { return };
        let pick = file.r#type.is_some_and(|at| at.value == InputKindName::PickString);
        let options = values(file.options).unwrap_or_default();
        if pick && options.is_empty() {
            let message = format!("input `{}` has nothing to choose from", id.value);
            cx.error(id.span, message, "add `options`, or make it a `promptString`");
        }
        let answer =
            cx.inputs.iter().find(|input| input.id == id.value).and_then(|input| input.value.as_ref());
        if pick && !options.is_empty() && answer.is_some_and(|answer| !options.contains(answer)) {
            let message = format!("the answer to input `{}` is none of its options", id.value);
            let options: Vec<_> = options.iter().map(String::as_str).collect();
            let hint = format!(
                "one of {} is expected, by `default` or by `{}`",
                listed(&options, "or"),
                variable_of_input(&id.value)
            );
            cx.error(id.span, message, hint);
        }
        if self.inputs.iter().any(|input| input.id == id.value) {
            cx.error(id.span, format!("input `{}` is declared twice", id.value), "keep one of the two");
        }
        self.inputs.push(InputSpec {
            description: value(file.description).unwrap_or_else(|| id.value.clone()),
            password: file.password.is_some_and(|at| at.value),
            options: if pick { options } else { Vec::new() },
            answered,
            id: id.value,
        });
    }

    /// The rules between entries, and the end of drafting.
    pub(crate) fn finish(mut self, files: Vec<String>, cx: &mut Context<'_>) -> Config {
        self.servers_apart(cx);
        self.settings_over_tools(cx);
        self.certificates_can_be_shown(cx);
        if self.results.is_some() {
            self.own_results_for_all();
        }
        let profiles = self.profiles_fit(cx);
        let spans = self.origins;
        let origins = spans.iter().map(|(path, span)| (path.clone(), cx.sources.place(*span))).collect();
        let config = Config {
            project: cx.project.clone(),
            name: self.name,
            description: self.description,
            files,
            registries: self.registries,
            limits: self.limits,
            servers: self.servers.into_iter().map(|(server, _)| server).collect(),
            apis: self.apis.into_iter().map(|(api, _)| api).collect(),
            tools: self.tools.into_iter().map(|tool| tool.value).collect(),
            tool_settings: self.settings.into_iter().map(|settings| settings.value).collect(),
            callers: self.callers.into_iter().map(|(caller, _)| caller).collect(),
            caller_descriptions: self.caller_descriptions,
            caller_keys: self.caller_keys,
            caller_certificates: self.caller_certificates.into_iter().map(|(id, is, _)| (id, is)).collect(),
            serve: self.serve,
            policy: self.policy.flatten(),
            egress: self.egress,
            results: self.results,
            builtins: self.builtins,
            agent: self.agent,
            telemetry: self.telemetry.or_else(|| telemetry::of_environment(cx)),
            audit: self.audit,
            profiles,
            secrets: Vec::new(),
            inputs: self.inputs,
            variables: cx.variables_used(),
            origins,
        };
        for (tool, span) in &self.full {
            for rule in checklist(&config, tool).into_iter().filter(|rule| !rule.met) {
                let place = spans.get(&format!("tools.{tool}.{}", rule.rule)).unwrap_or(span);
                let message = format!("tool `{tool}` does not keep the contract: `{}`", rule.rule);
                cx.error(*place, message, format!("it asks for: {}", rule.detail));
            }
        }
        config
    }

    /// Two servers must differ in what is before the `__` of their tools, and so must APIs.
    fn servers_apart(&self, cx: &mut Context<'_>) {
        let mut seen: HashMap<String, (bool, &ServerName, Span)> = HashMap::new();
        let servers = self.servers.iter().map(|(server, span)| (false, &server.name, *span));
        let apis = self.apis.iter().map(|(api, span)| (true, &api.name, *span));
        for (is_api, name, span) in servers.chain(apis) {
            let Some((also_api, first, place)) = seen.insert(name.prefix(), (is_api, name, span)) else {
                continue;
            };
            let kind = |is_api| if is_api { "API" } else { "MCP server" };
            let message = match (is_api, also_api) {
                (false, false) if first == name => format!("MCP server `{name}` is configured twice"),
                (false, false) => {
                    format!("MCP servers `{first}` and `{name}` would share the prefix of their tools")
                }
                _ => format!(
                    "{} `{name}` and {} `{first}` would share the prefix of their tools",
                    kind(is_api),
                    kind(also_api)
                ),
            };
            cx.error(span, message, format!("the other is at {}; rename one", cx.sources.place(place)));
        }
    }
}

/// What was written, without its place.
pub(crate) fn value<T>(written: Option<At<T>>) -> Option<T> {
    written.map(|at| at.value)
}

/// The items of a list that was written, without their places.
pub(crate) fn values<T>(written: Option<At<Vec<At<T>>>>) -> Option<Vec<T>> {
    written.map(|at| at.value.into_iter().map(|at| at.value).collect())
}
