//! Resolves the entries of files into servers, tools and settings.
//!
//! Applies defaults and checks the rules between keys and between entries. Invariant: only entries that pass every
//! rule are added to the [`ConfigBuilder`]; the problems of all others are reported.

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

use toolgate_types::limits::ResultLimits;
use toolgate_types::serve::CertificateMatch;
use toolgate_types::telemetry::OtlpCollector;
use toolgate_types::{
    AgentConfig, ApiSpec, AuditConfig, BuiltinConfig, CallLimits, Caller, CallerId, EgressConfig,
    HumanDuration, KeyHash, OnCollision, ServeConfig, ServerName, ServerSpec, ToolDefinition, ToolName,
    ToolSettings,
};

use crate::checklist::check_tool;
use crate::config::{Config, InputSpec, PolicyFile, RegistryPaths, input_variable};
use crate::context::Context;
use crate::file::{CollisionName, InputEntry, InputKindName, ServerEntry, ToolboxFile};
use crate::keys::{Spanned, join_quoted};
use crate::problem::Problem;
use crate::resolve::caching::CacheKeys;
use crate::resolve::server::ServerDefaults;
use crate::source::Span;

/// A tool or its settings, with cache keys that other entries may still complete.
struct PendingEntry<T> {
    value: T,
    caching: CacheKeys,
    span: Span,
}

/// Collects the parts of a [`Config`].
pub(crate) struct ConfigBuilder {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) registries: RegistryPaths,
    pub(crate) limits: CallLimits,
    pub(crate) servers: Vec<(ServerSpec, Span)>,
    apis: Vec<(ApiSpec, Span)>,
    tools: Vec<PendingEntry<ToolDefinition>>,
    settings: Vec<PendingEntry<ToolSettings>>,
    callers: Vec<(Caller, Span)>,
    caller_descriptions: BTreeMap<CallerId, String>,
    caller_keys: Vec<(CallerId, KeyHash)>,
    caller_certificates: Vec<(CallerId, CertificateMatch, Span)>,
    serve: ServeConfig,
    /// `None` until a policy file is named or found, even if that file is invalid.
    policy: Option<Option<PolicyFile>>,
    egress: EgressConfig,
    results: Option<ResultLimits>,
    builtins: BuiltinConfig,
    agent: AgentConfig,
    telemetry: Option<OtlpCollector>,
    /// Tools that must satisfy the full contract.
    full_contract: Vec<(ToolName, Span)>,
    audit: AuditConfig,
    profiles: profile::ProfilesBuilder,
    pub(crate) inputs: Vec<InputSpec>,
    /// Index of each tool in `tools`, and of its settings in `settings`.
    tool_at: HashMap<ToolName, usize>,
    settings_at: HashMap<ToolName, usize>,
    origins: BTreeMap<String, Span>,
}

impl ConfigBuilder {
    pub(crate) fn new() -> Self {
        let limits = CallLimits {
            max_concurrent: const { std::num::NonZeroU32::new(64).expect("64 is not zero") },
            default_timeout: HumanDuration::from_secs(30),
            max_output: toolgate_types::ByteSize::from_mib(4),
            on_collision: OnCollision::Qualify,
        };
        Self {
            name: None,
            description: None,
            registries: RegistryPaths::default(),
            limits,
            servers: Vec::new(),
            apis: Vec::new(),
            tools: Vec::new(),
            settings: Vec::new(),
            callers: Vec::new(),
            caller_descriptions: BTreeMap::new(),
            caller_keys: Vec::new(),
            caller_certificates: Vec::new(),
            serve: ServeConfig::default(),
            policy: None,
            egress: EgressConfig::default(),
            results: None,
            builtins: BuiltinConfig::default(),
            agent: AgentConfig::default(),
            telemetry: None,
            full_contract: Vec::new(),
            audit: AuditConfig::default(),
            profiles: profile::ProfilesBuilder::default(),
            inputs: Vec::new(),
            tool_at: HashMap::new(),
            settings_at: HashMap::new(),
            origins: BTreeMap::new(),
        }
    }

    /// Records where values were written.
    pub(crate) fn record_origins(&mut self, path: &str, written: Vec<(&'static str, Span)>) {
        self.origins.extend(written.into_iter().map(|(key, span)| (format!("{path}.{key}"), span)));
    }

    pub(crate) fn set_title(&mut self, name: Option<Spanned<String>>, description: Option<Spanned<String>>) {
        for (key, at) in [("name", &name), ("description", &description)] {
            self.origins.extend(at.iter().map(|at| (key.to_owned(), at.span)));
        }
        self.name = into_value(name);
        self.description = into_value(description);
    }

    pub(crate) fn add_toolbox(&mut self, toolbox: ToolboxFile, cx: &mut Context<'_>) {
        let mut written = toolbox.value_spans();
        written.retain(|(key, _)| !matches!(*key, "tools" | "mcps"));
        self.record_origins("limits", written);
        let limits = &mut self.limits;
        limits.max_concurrent = toolbox.max_concurrent.map_or(limits.max_concurrent, |at| at.value);
        limits.default_timeout = toolbox.default_timeout.map_or(limits.default_timeout, |at| at.value);
        limits.max_output = toolbox.max_output.map_or(limits.max_output, |at| at.value);
        limits.on_collision = toolbox.on_collision.map_or(limits.on_collision, |at| match at.value {
            CollisionName::Qualify => OnCollision::Qualify,
            CollisionName::LastWins => OnCollision::LastWins,
            CollisionName::Error => OnCollision::Error,
        });
        for settings in into_values(toolbox.tools).unwrap_or_default() {
            self.add_settings(settings, cx);
        }
        for entry in into_values(toolbox.mcps).unwrap_or_default() {
            self.add_named_server(entry, ServerDefaults::TOOLBOX, cx);
        }
    }

    /// Adds a server whose entry contains its name.
    pub(crate) fn add_named_server(
        &mut self,
        mut entry: ServerEntry,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) {
        match entry.file.name.take() {
            Some(name) => self.add_server(entry, name, rules, cx),
            None if entry.file.present_keys.contains(&"name") => {}
            None => cx.error(entry.file.span, "missing key `name` in MCP server", "give the server a name"),
        }
    }

    /// Adds a server whose key is its name.
    pub(crate) fn add_keyed_server(
        &mut self,
        key: &str,
        entry: Spanned<ServerEntry>,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) {
        if let Some(name) = &entry.value.file.name {
            let message = format!("`name` in MCP server `{key}` is not used");
            cx.push(Problem::note(name.key_span, message).hint("its key is its name"));
        }
        let span = entry.key_span;
        match key.parse() {
            Ok(value) => self.add_server(entry.value, Spanned { value, span, key_span: span }, rules, cx),
            Err(error) => cx.error(span, format!("`{key}` is not a server's name"), format!("{error}")),
        }
    }

    pub(crate) fn add_input(&mut self, InputEntry { file, answered }: InputEntry, cx: &mut Context<'_>) {
        let Some(id) = file.id else { return };
        let pick = file.r#type.is_some_and(|at| at.value == InputKindName::PickString);
        let options = into_values(file.options).unwrap_or_default();
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
                join_quoted(&options, "or"),
                input_variable(&id.value)
            );
            cx.error(id.span, message, hint);
        }
        if self.inputs.iter().any(|input| input.id == id.value) {
            cx.error(id.span, format!("input `{}` is declared twice", id.value), "keep one of the two");
        }
        self.inputs.push(InputSpec {
            description: into_value(file.description).unwrap_or_else(|| id.value.clone()),
            password: file.password.is_some_and(|at| at.value),
            options: if pick { options } else { Vec::new() },
            answered,
            id: id.value,
        });
    }

    /// Checks the rules between entries and builds the configuration.
    pub(crate) fn finish(mut self, files: Vec<String>, cx: &mut Context<'_>) -> Config {
        self.check_unique_prefixes(cx);
        self.apply_settings(cx);
        self.check_client_ca(cx);
        if self.results.is_some() {
            self.grant_read_result();
        }
        let profiles = self.finish_profiles(cx);
        let spans = self.origins;
        let origins = spans.iter().map(|(path, span)| (path.clone(), cx.sources.location(*span))).collect();
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
            telemetry: self.telemetry.or_else(|| telemetry::collector_from_environment(cx)),
            audit: self.audit,
            profiles,
            secrets: Vec::new(),
            inputs: self.inputs,
            variables: cx.variables_used(),
            origins,
        };
        for (tool, span) in &self.full_contract {
            for rule in check_tool(&config, tool).into_iter().filter(|rule| !rule.met) {
                let place = spans.get(&format!("tools.{tool}.{}", rule.rule)).unwrap_or(span);
                let message = format!("tool `{tool}` does not satisfy the contract: `{}`", rule.rule);
                cx.error(*place, message, format!("required: {}", rule.detail));
            }
        }
        config
    }

    /// Reports servers and APIs whose tools would have the same prefix before `__`.
    fn check_unique_prefixes(&self, cx: &mut Context<'_>) {
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
            cx.error(span, message, format!("the other is at {}; rename one", cx.sources.location(place)));
        }
    }
}

/// Drops the location of a value.
pub(crate) fn into_value<T>(written: Option<Spanned<T>>) -> Option<T> {
    written.map(|at| at.value)
}

/// Drops the locations of a list and its items.
pub(crate) fn into_values<T>(written: Option<Spanned<Vec<Spanned<T>>>>) -> Option<Vec<T>> {
    written.map(|at| at.value.into_iter().map(|at| at.value).collect())
}
