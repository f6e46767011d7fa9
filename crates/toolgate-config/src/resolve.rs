//! Order of resolution, and the checks between features.
//!
//! A feature in [`crate::feature`] resolves its own keys and adds the result to the [`ConfigBuilder`]. Invariant: only
//! entries that pass every rule are added; the problems of all others are reported.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use toolgate_types::limits::ResultLimits;
use toolgate_types::serve::CertificateMatch;
use toolgate_types::server::{Transport, is_same_audience};
use toolgate_types::telemetry::OtlpCollector;
use toolgate_types::{
    AgentConfig, ApiSpec, BuiltinConfig, CallLimits, Caller, CallerId, EgressConfig, Group, KeyHash,
    ServeConfig, ServerName, ServerSpec, ToolDefinition, ToolName, ToolSettings,
};

use crate::checklist::check_tool;
use crate::config::Config;
use crate::context::Context;
use crate::feature::agent::AgentSection;
use crate::feature::agent::model::add_model_secrets;
use crate::feature::audit::AuditConfig;
use crate::feature::callers::add_key_secrets;
use crate::feature::cluster::{ClusterConfig, add_cluster_secrets};
use crate::feature::credentials::{CredentialKey, add_store_key_secret};
use crate::feature::egress::add_canary_secrets;
use crate::feature::inputs::InputSpec;
use crate::feature::openapi::add_api_secrets;
use crate::feature::policy::PolicyFile;
use crate::feature::profiles::ProfilesBuilder;
use crate::feature::registries::RegistryPaths;
use crate::feature::servers::ServerDefaults;
use crate::feature::telemetry::collector_from_environment;
use crate::feature::tools::PendingEntry;
use crate::feature::web_search::add_key_secret;
use crate::file::ProjectFile;
use crate::keys::{Spanned, into_value};
use crate::node::Node;
use crate::problem::Problem;
use crate::self_listing;
use crate::source::Span;

/// Registers the secrets of a project file. Must come before any problem is reported: a problem shows the line it is
/// in, and that line may hold a secret.
pub(crate) fn add_project_secrets(project: &Node, cx: &mut Context<'_>) {
    let mut add = |key: &str, add_secrets: fn(&Node, &mut Context<'_>)| {
        if let Some(section) = project.get(key) {
            add_secrets(section, cx);
        }
    };
    add("egress", add_canary_secrets);
    add("callers", add_key_secrets);
    add("openapi", add_api_secrets);
    add("web_search", add_key_secret);
    add("credentials", add_store_key_secret);
    add("cluster", add_cluster_secrets);
    add("agent", add_model_secrets);
}

/// Resources of the permissions that manage the gateway, and of its own tools. A server with such a name would turn the
/// permission for one of its tools into one of these.
const RESERVED_NAMES: [&str; 9] =
    ["approvals", "callers", "executions", "human_input", "metrics", "policy", "runs", "servers", "tools"];

/// Collects the parts of a [`Config`].
#[derive(Default)]
pub(crate) struct ConfigBuilder {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) registries: RegistryPaths,
    pub(crate) limits: CallLimits,
    pub(crate) servers: Vec<(ServerSpec, Span)>,
    pub(crate) apis: Vec<(ApiSpec, Span)>,
    pub(crate) tools: Vec<PendingEntry<ToolDefinition>>,
    /// Places of `exposure: code`.
    pub(crate) code_exposures: Vec<Span>,
    pub(crate) settings: Vec<PendingEntry<ToolSettings>>,
    pub(crate) groups: Vec<Arc<Group>>,
    pub(crate) callers: Vec<(Caller, Span)>,
    pub(crate) caller_descriptions: BTreeMap<CallerId, String>,
    pub(crate) caller_keys: Vec<(CallerId, KeyHash)>,
    pub(crate) caller_certificates: Vec<(CallerId, CertificateMatch, Span)>,
    pub(crate) serve: ServeConfig,
    /// `None` until a policy file is named or found, even if that file is invalid.
    pub(crate) policy: Option<Option<PolicyFile>>,
    pub(crate) egress: EgressConfig,
    pub(crate) results: Option<ResultLimits>,
    pub(crate) builtins: BuiltinConfig,
    pub(crate) agent: AgentConfig,
    pub(crate) telemetry: Option<OtlpCollector>,
    /// Tools that must satisfy the full contract.
    pub(crate) full_contract: Vec<(ToolName, Span)>,
    pub(crate) audit: AuditConfig,
    pub(crate) credential_key: CredentialKey,
    pub(crate) cluster: Option<(ClusterConfig, Span)>,
    pub(crate) profiles: ProfilesBuilder,
    pub(crate) inputs: Vec<InputSpec>,
    /// Index of each tool in `tools`, and of its settings in `settings`.
    pub(crate) tool_at: HashMap<ToolName, usize>,
    pub(crate) settings_at: HashMap<ToolName, usize>,
    pub(crate) origins: BTreeMap<String, Span>,
    /// True if each tool of the project needs settings.
    pub(crate) strict_own_tools: bool,
}

impl ConfigBuilder {
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

    /// Resolves the sections of a project file. Registries come last: their servers and tools follow those of the
    /// toolbox.
    pub(crate) fn add_project(&mut self, file: ProjectFile, cx: &mut Context<'_>) {
        self.set_title(file.name, file.description);
        for (name, group) in file.groups.into_iter().flat_map(|at| at.value.0) {
            self.add_group(&name, group, cx);
        }
        for caller in file.callers.into_iter().flat_map(|at| at.value) {
            self.add_caller(caller.value, cx);
        }
        if let Some(policy) = file.policy {
            self.load_named_policy(&policy, cx);
        }
        if let Some(egress) = file.egress {
            self.set_egress(egress.value, cx);
        }
        // Without the section, too: skills are found by default.
        let agent = file.agent.map_or_else(|| AgentSection::empty(file.span), |at| at.value);
        self.set_agent(agent, cx);
        if let Some(telemetry) = file.telemetry {
            self.set_telemetry(telemetry.value, cx);
        }
        if let Some(results) = file.results {
            self.set_results(results.value);
        }
        for (name, api) in file.openapi.into_iter().flat_map(|at| at.value.0) {
            self.add_api(&name, api, cx);
        }
        // Profiles without `hints` take those of the toolbox.
        if let Some(hints) = file.toolbox.as_ref().and_then(|toolbox| toolbox.value.hints.as_ref()) {
            self.set_hints(hints);
        }
        for (name, profile) in file.profiles.into_iter().flat_map(|at| at.value.0) {
            self.add_profile(&name, profile, cx);
        }
        if let Some(human_input) = file.human_input {
            self.set_human_input(human_input.value);
        }
        if let Some(web_search) = file.web_search {
            self.set_web_search(web_search.value, cx);
        }
        if let Some(code_execution) = file.code_execution {
            self.set_code_execution(code_execution.value, cx);
        }
        if let Some(serve) = file.serve {
            self.set_serve(serve.value, cx);
        }
        if let Some(credentials) = file.credentials {
            self.set_credentials(credentials, cx);
        }
        if let Some(cluster) = file.cluster {
            self.set_cluster(cluster, cx);
        }
        if let Some(audit) = file.audit {
            self.set_audit(audit.value);
        }
        if let Some(toolbox) = file.toolbox {
            self.add_toolbox(toolbox.value, ServerDefaults::TOOLBOX, cx);
        }
        if let Some(registries) = file.registries {
            self.add_registries(registries.value, cx);
        }
    }

    /// Reports programs without the tool that runs them.
    fn check_code_exposures(&self, cx: &mut Context<'_>) {
        if self.builtins.code_execution.is_none() {
            for span in &self.code_exposures {
                let message = "`exposure: code` needs the tool `code_execution`, which is not enabled";
                cx.error(*span, message, "add `code_execution: {enabled: true}` to toolgate.yaml");
            }
        }
    }

    /// Checks the rules between entries and builds the configuration.
    pub(crate) fn finish(mut self, files: Vec<String>, cx: &mut Context<'_>) -> Config {
        self.check_unique_prefixes(cx);
        self.check_self_listing(cx);
        self.apply_settings(cx);
        self.check_own_settings(cx);
        self.check_client_ca(cx);
        self.check_forwarding(cx);
        self.check_cluster(cx);
        self.check_policy_reach(cx);
        self.check_code_exposures(cx);
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
            tools: self.tools.into_iter().map(|tool| Arc::new(tool.value)).collect(),
            tool_settings: self.settings.into_iter().map(|settings| settings.value).collect(),
            groups: self.groups,
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
            telemetry: self.telemetry.or_else(|| collector_from_environment(cx)),
            audit: self.audit,
            credential_key: self.credential_key,
            cluster: self.cluster.map(|(cluster, _)| cluster),
            profiles,
            secrets: Vec::new(),
            inputs: self.inputs,
            variables: cx.variables_used(),
            origins,
        };
        for (tool, span) in &self.full_contract {
            let deprecated = config.tools.iter().find(|known| known.name == *tool);
            if deprecated.and_then(|tool| tool.deprecated.as_ref()).is_some_and(|at| at.announced.is_none()) {
                let place = spans.get(&format!("tools.{tool}.deprecated")).unwrap_or(span);
                let message = format!(
                    "the deprecation of tool `{tool}` has no `announced`: its notice counts from today"
                );
                let hint = "add `announced` with the day of the announcement, or the tool is refused 90 days before its removal";
                cx.push(Problem::warning(*place, message).hint(hint));
            }
            for rule in check_tool(&config, tool).into_iter().filter(|rule| !rule.met) {
                let place = spans.get(&format!("tools.{tool}.{}", rule.rule)).unwrap_or(span);
                let message = format!("tool `{tool}` does not satisfy the contract: `{}`", rule.rule);
                cx.error(*place, message, format!("required: {}", rule.detail));
            }
        }
        config
    }

    /// Reports certificates of callers if the gateway does not request client certificates.
    fn check_client_ca(&self, cx: &mut Context<'_>) {
        let asked = self.serve.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        for (id, _, span) in self.caller_certificates.iter().filter(|_| !asked) {
            let message = format!("caller `{id}` needs `client_ca` for its certificate");
            cx.error(*span, message, "add `serve.tls` with `client_ca`, the authority that issued it");
        }
    }

    /// Reports servers that are the gateway of this project.
    fn check_self_listing(&self, cx: &mut Context<'_>) {
        for (server, span) in &self.servers {
            if self_listing::is_own_gateway(&server.transport, &cx.project, &self.serve) {
                let message = format!("MCP server `{}` is the gateway of this project itself", server.name);
                cx.error(*span, message, self_listing::HINT);
            }
        }
    }

    /// Reports servers that would get tokens of callers, but are not their audience.
    fn check_forwarding(&self, cx: &mut Context<'_>) {
        for (server, span) in self.servers.iter().filter(|(server, _)| server.auth.forward) {
            let (Transport::Http(remote) | Transport::Sse(remote)) = &server.transport else { continue };
            let url = remote.url.expose();
            let is_audience = |audience: &String| is_same_audience(audience, url);
            let note =
                format!("MCP server `{}` gets the tokens that callers show to the gateway", server.name);
            cx.push(Problem::note(*span, note));
            if !self.serve.jwt.iter().any(|issuer| issuer.audience.iter().any(is_audience)) {
                let message =
                    format!("`forward` in MCP server `{}`, whose URL is no audience of tokens", server.name);
                let hint =
                    "add its URL to `audience` in `serve.jwt`, or use `grant: token_exchange` in `oauth`";
                cx.error(*span, message, hint);
            }
        }
    }

    /// Reports servers and APIs whose tools would have the same prefix before `__`, or one within the prefix of another.
    fn check_unique_prefixes(&self, cx: &mut Context<'_>) {
        let mut seen: HashMap<String, (bool, &ServerName, Span)> = HashMap::new();
        let servers = self.servers.iter().map(|(server, span)| (false, &server.name, *span));
        let apis = self.apis.iter().map(|(api, span)| (true, &api.name, *span));
        let all: Vec<_> = servers.chain(apis).collect();
        for (_, name, span) in
            all.iter().filter(|(_, name, _)| RESERVED_NAMES.contains(&name.prefix().as_str()))
        {
            let message = format!("`{name}` cannot name a server: `{name}:…` are permissions of the gateway");
            cx.error(
                *span,
                message,
                "choose another name; permissions of its tools would be permissions to manage",
            );
        }
        for (_, name, span) in &all {
            let prefix = name.prefix();
            let within = |(_, other, _): &&(bool, &ServerName, Span)| {
                prefix.strip_prefix(&other.prefix()).is_some_and(|rest| rest.starts_with("__"))
            };
            if let Some((_, other, place)) = all.iter().find(within) {
                let message = format!("the tools of `{name}` would have names of `{other}`: `{other}__…`");
                let hint = format!("the other is at {}; rename one", cx.sources.location(*place));
                cx.error(*span, message, hint);
            }
        }
        for (is_api, name, span) in all {
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
