//! MCP servers: entries of `toolbox.mcps`, `mcp.json` and the files of other programs.

pub(crate) mod auth;
pub(crate) mod oauth;
pub(crate) mod tls;
pub(crate) mod transport;

use std::collections::HashMap;
use std::num::NonZeroU32;

use serde_json::{Map as JsonMap, Value as Json};
use toolgate_types::network::Network;
use toolgate_types::server::{
    ConnectionPolicy, Isolation, Placement, ProtocolRevision, StartupMode, ToolFilter, ToolMode, Transport,
};
use toolgate_types::{ConfigString, HumanDuration, Secret, ServerName, ServerSpec, ToolLimits};

use self::auth::{AuthName, CredentialFile, resolve_auth};
use self::oauth::OauthFile;
use self::tls::TlsFile;
use self::transport::{EncodingName, TransportName, resolve_transport};
use crate::context::{Context, FileVariable};
use crate::feature::env_file::read_env_files;
use crate::keys::{
    ConfigValue, KeyTable, NamedMap, OneOrMany, PassthroughMap, Spanned, choice, into_value, into_values,
    keys, read_by_parsing,
};
use crate::node::Node;
use crate::problem::Problem;
use crate::resolve::ConfigBuilder;
use crate::source::Span;

keys! {
    /// An MCP server: a program to start (`command` or `server`) or a URL (`url`).
    struct ServerFile as "MCP server" {
        /// Name of the server: the first half of `{server}__{tool}`. In `mcp.json` the key is the name.
        name: ServerName,
        /// Purpose of the server.
        description: String,
        /// `false` disables the server and keeps the entry.
        enabled: bool = "true",
        /// Transport. Default: `stdio` for a program, `websocket` for a `ws://` or `wss://` URL, otherwise
        /// `http`, and `sse` if the server refuses that.
        transport ("type"): TransportName,
        /// Program to start, looked up in `PATH`. No shell is involved.
        command: ConfigString,
        /// Arguments of the program.
        args: Vec<Spanned<ConfigString>>,
        /// Package to run in place of `command`: `@scope/name` runs with `npx -y`, any other name with
        /// `uvx`, or with `pipx run` if `uvx` is not installed. `args` follow it.
        server: ConfigString,
        /// Environment variables of the program. It gets these, a few harmless ones (`PATH`, `HOME`, …), and those that
        /// say how the network is reached: proxies, certificate authorities, settings of `uv`, `pip` and `npm` without
        /// tokens and passwords of registries. `null` removes one. It does not get the rest of your environment.
        /// `{caller}` in a value is the ID of the caller that the process belongs to, percent-encoded, such as for a file of
        /// its own.
        env: NamedMap<Option<ConfigString>>,
        /// Files with more environment variables. `env` takes precedence.
        env_file ("envFile"): OneOrMany<String>,
        /// Working folder, relative to the project.
        cwd: String = ".",
        /// Encoding of the program's output: a name of the Encoding Standard, such as `windows-1252`.
        encoding: EncodingName = "utf-8",
        /// URL of the server.
        url: ConfigString,
        /// Headers sent with every request, such as `Authorization: Bearer ${TOKEN}`.
        headers: NamedMap<ConfigString>,
        /// Networks the server, and the URLs of its login, may be in, in addition to the public internet, such as
        /// `10.1.0.0/16`. Addresses are checked on every connection. Default: the network of an address in `url`; a
        /// name may lead to a private network, but not to this machine or to a link-local address. Entries that are
        /// registered over HTTP get `serve.allow_networks`.
        allow_networks: Vec<Spanned<Network>>,
        /// OAuth settings. Most servers that require a login need none. Log in with
        /// `toolgate servers login NAME`.
        oauth: OauthFile,
        /// Owner of the credentials: `shared` uses those of this entry, or the login of the owner, for all callers.
        /// With `caller`, each caller logs in (`toolgate servers login NAME --as CALLER`) or stores its own credential
        /// (`toolgate credentials set`), and gets a connection of its own. See docs/credentials.md.
        auth: AuthName = "shared",
        /// Place of a stored credential.
        credential: CredentialFile,
        /// With `auth: caller`, sends the token that the caller showed to the gateway. Allowed only if the URL of this
        /// server is an `audience` in `serve.jwt`, and done only if the token names it as one.
        forward: bool = "false",
        /// Certificates of a private CA, for an `https://` or `wss://` URL.
        tls: TlsFile,
        /// Timeout of connecting, including the handshake. The default is 1 minute for `npx`, `uvx` and
        /// `pipx`, since they may download a package first.
        timeout: HumanDuration = "10s",
        /// Maximum silence on an event stream.
        sse_read_timeout: HumanDuration = "5m",
        /// Ends the session on the server when Toolgate disconnects.
        terminate_on_close: bool = "true",
        /// Timeout of one request.
        request_timeout: HumanDuration = "60s",
        /// Owner of a connection to the server, and of its child process: each `caller`, each `session` of a caller, or
        /// `shared` by all. A caller never sees state that another one left in the server.
        isolation: IsolationName = "caller",
        /// Place of the processes of a `stdio` server in a cluster: with `each`, every replica starts its own. Required
        /// in a cluster, because only you know if they need common state.
        placement: PlacementName,
        /// Idle time of a connection of a caller, and of its child process, until it is closed.
        idle_timeout: HumanDuration = "10m",
        /// Maximum number of connections that callers have to the server at once, besides the one that its lists are
        /// read from. At the limit the least recently used idle one is closed; if all are in use, calls queue, and the
        /// caller with the fewest connections is served first.
        max_connections: NonZeroU32 = "32",
        /// Protocol revision to speak. `auto` negotiates it: the newest one that the server has, or one with sessions
        /// for a client that can only be asked in a session.
        protocol: ProtocolName = "auto",
        /// Trusts the annotations of the server's tools (read-only, idempotent). A server can claim anything, so
        /// the default is `false`.
        trusted: bool = "false",
        /// With `false`, nothing the server offers is used until `toolgate servers approve NAME`. This also
        /// applies to later additions.
        approved: bool = "true",
        /// Results that do not match the output schema of their tool: `strict` fails the call with
        /// `invalid_output`, `warn` returns the result with a warning. With `mode: strict` it is always
        /// `strict`.
        output_validation: OutputValidationName = "warn",
        /// Discovers the server's tools.
        load_tools: bool = "true",
        /// Discovers the server's prompts.
        load_prompts: bool = "true",
        /// Prompts that may be used. Default: all.
        prompts: Vec<Spanned<String>>,
        /// Configuration passed to the server as JSON in the environment variable `MCP_CONFIG`.
        config: PassthroughMap,
        /// Tools without settings: `strict` refuses them, `dynamic` accepts them with
        /// `default_tool_config`. Required in `toolbox.mcps`; elsewhere the default is `dynamic` with the
        /// built-in limits.
        mode: ModeName,
        /// Limits for tools without settings. Required with `mode: dynamic`.
        default_tool_config: DefaultToolFile,
        /// The only tools that may be used. Default: all.
        tool_allowlist: Vec<Spanned<String>>,
        /// Tools that may not be used.
        tool_denylist: Vec<Spanned<String>>,
        /// `required`, `eager` and `optional` connect at startup, `lazy` on first use. If a `required` server fails,
        /// Toolgate does not start; the others are retried. The start waits at most 20 seconds for an `eager` server,
        /// and two for an `optional` one. In `agent.yaml` the default is `lazy`, in a `myai` tree `required`.
        startup: StartupName = "eager",
    }
}

keys! {
    /// Limits for tools of a server without settings of their own.
    struct DefaultToolFile as "default_tool_config" {
        /// Maximum number of concurrent calls of one tool.
        max_instances: NonZeroU32 = "5",
        /// Timeout of one call.
        timeout: HumanDuration,
        /// Allows concurrent calls.
        parallel_capable: bool = "true",
    }
}

choice! {
    /// Handling of tools that a server offers and the configuration does not name.
    enum ModeName as "a mode" {
        /// They are refused.
        Strict = "strict",
        /// They are accepted, with the server's `default_tool_config`.
        Dynamic = "dynamic",
    }
}

choice! {
    /// Handling of results that do not match the output schema of their tool.
    enum OutputValidationName as "an output validation mode" {
        /// The call fails with `invalid_output`.
        Strict = "strict",
        /// The result passes, with a warning in its hints.
        Warn = "warn",
    }
}

choice! {
    /// Owner of a connection to a server.
    enum IsolationName as "an isolation mode" {
        /// Each caller has its own connection.
        Caller = "caller",
        /// Each session of a caller has its own connection.
        Session = "session",
        /// All callers share one connection.
        Shared = "shared",
    }
}

choice! {
    /// Place of the processes of a server in a cluster.
    enum PlacementName as "a placement" {
        /// Each replica has its own.
        Each = "each",
    }
}

choice! {
    /// Revision of the Model Context Protocol.
    enum ProtocolName as "a protocol revision" {
        /// The revision is negotiated.
        Auto = "auto",
        /// The first revision.
        V2024_11_05 = "2024-11-05",
        /// The first revision with Streamable HTTP.
        V2025_03_26 = "2025-03-26",
        /// The first revision with elicitation.
        V2025_06_18 = "2025-06-18",
        /// The newest revision with sessions.
        V2025_11_25 = "2025-11-25",
        /// The newest revision.
        V2026_07_28 = "2026-07-28",
    }
}

choice! {
    /// Startup behavior of a server.
    enum StartupName as "a startup mode" {
        /// Connected at startup. If that fails, Toolgate does not start.
        Required = "required",
        /// Connected at startup; the start waits 20 seconds at most. If that fails, Toolgate starts without it and retries.
        Eager = "eager",
        /// Connected at startup; the start waits two seconds at most. If that fails, Toolgate retries.
        Optional = "optional",
        /// Connected on first use. Its tools are those of the last connection.
        Lazy = "lazy",
    }
}

read_by_parsing! {
    ServerName: "a server's name", { "type": "string", "minLength": 1, "maxLength": 64 };
}

/// A server with the variables of its `env_file`. Its other keys may refer to them.
#[derive(Debug, Clone)]
pub(crate) struct ServerEntry {
    pub(crate) file: ServerFile,
    pub(crate) env_file: HashMap<String, FileVariable>,
}

impl ConfigValue for ServerEntry {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        cx.add_server_secrets(node);
        let problems_before = cx.problems.len();
        cx.server_env = read_env_files(node, cx).unwrap_or_default();
        let file = ServerFile::read(node, cx);
        let env_file = std::mem::take(&mut cx.server_env);
        let file = file?;
        // Must come before any problem is rendered: the problem shows the line that holds the value.
        for (name, at) in file.env.iter().flat_map(|at| &at.value.0) {
            if let Some(text) = &at.value {
                cx.add_secret(name, text.expose());
            }
        }
        for (name, at) in file.headers.iter().flat_map(|at| &at.value.0) {
            cx.add_secret(name, at.value.expose());
        }
        // A disabled server needs neither its variables nor its files.
        if file.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            cx.problems.truncate(problems_before);
        }
        Some(Self { file, env_file })
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        ServerFile::schema(parts)
    }

    fn label() -> String {
        ServerFile::label()
    }

    fn tables(out: &mut Vec<KeyTable>) {
        ServerFile::tables(out);
    }
}

/// Defaults that depend on the file, so that each file keeps the defaults of the program it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerDefaults {
    startup: StartupMode,
    mode_required: bool,
    /// `None`: the default, which is longer for programs that may download a package first.
    timeout: Option<HumanDuration>,
    request_timeout: HumanDuration,
}

impl ServerDefaults {
    /// `mcp.json`.
    pub(crate) const REGISTRY: Self = Self {
        startup: StartupMode::Eager,
        mode_required: false,
        timeout: None,
        request_timeout: HumanDuration::from_secs(60),
    };
    /// `toolbox.mcps`.
    pub(crate) const TOOLBOX: Self = Self { mode_required: true, ..Self::REGISTRY };
    /// `myai.toolbox.mcps`. The documentation of myai says that it does not start without all its servers.
    pub(crate) const MYAI: Self = Self { startup: StartupMode::Required, ..Self::TOOLBOX };
    /// `type: mcp` in `agent.yaml`.
    pub(crate) const AGENT: Self = Self { startup: StartupMode::Lazy, ..Self::REGISTRY };
    /// goose continues without an extension that fails.
    pub(crate) const GOOSE: Self = Self {
        startup: StartupMode::Optional,
        request_timeout: HumanDuration::from_secs(300),
        ..Self::REGISTRY
    };
    /// Codex also continues without a server, unless it is `required`.
    pub(crate) const CODEX: Self = Self { timeout: Some(HumanDuration::from_secs(30)), ..Self::GOOSE };
}

impl ConfigBuilder {
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

    /// Adds a server, or reports its problems.
    fn add_server(
        &mut self,
        entry: ServerEntry,
        name: Spanned<ServerName>,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) {
        cx.labels.push(format!("MCP server `{}`", name.value));
        self.build_server(entry, name, rules, cx);
        cx.labels.pop();
    }

    fn build_server(
        &mut self,
        entry: ServerEntry,
        Spanned { value: name, span, .. }: Spanned<ServerName>,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) {
        let ServerEntry { mut file, env_file } = entry;
        if file.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            return cx.push(Problem::note(span, format!("MCP server `{name}` is not enabled")));
        }
        // `command` and `args` derived from `server` have its location as their origin.
        if let Some(package) = &file.server {
            let keys = ["command", "args"].map(|key| (key, package.span));
            self.record_origins(&format!("servers.{name}"), keys.to_vec());
        }
        self.record_origins(&format!("servers.{name}"), file.value_spans());
        let mode = self.resolve_mode(&mut file, &name, span, rules, cx);
        let Some(transport) = resolve_transport(&mut file, env_file, span, cx) else { return };
        let downloads = matches!(&transport, Transport::Stdio(stdio) if stdio.may_download());
        let auth = resolve_auth(&mut file, &transport, span, cx);
        let (Some(mode), Some(auth)) = (mode, auth) else { return };
        let strict_output = is_strict_output(file.output_validation.as_ref(), &mode, cx);
        let env_span = file.env.as_ref().map_or(span, |at| at.key_span);
        let connections = connection_policy(&mut file);
        if matches!(&transport, Transport::Stdio(stdio) if stdio.is_per_caller())
            && connections.isolation == Isolation::Shared
        {
            let message =
                format!("`{{caller}}` in `env` does not go with `isolation: shared`{}", cx.location_suffix());
            cx.error(env_span, message, "a process of all callers belongs to none; remove one of the two");
            return;
        }
        let spec = ServerSpec {
            description: into_value(file.description),
            transport,
            startup: file.startup.map_or(rules.startup, |at| match at.value {
                StartupName::Required => StartupMode::Required,
                StartupName::Eager => StartupMode::Eager,
                StartupName::Optional => StartupMode::Optional,
                StartupName::Lazy => StartupMode::Lazy,
            }),
            mode,
            tools: ToolFilter {
                allow: into_values(file.tool_allowlist),
                deny: into_values(file.tool_denylist).unwrap_or_default(),
            },
            trusted: file.trusted.is_some_and(|at| at.value),
            approved: file.approved.is_none_or(|at| at.value),
            strict_output,
            load_tools: file.load_tools.is_none_or(|at| at.value),
            load_prompts: file.load_prompts.is_none_or(|at| at.value),
            prompts: into_values(file.prompts),
            timeout: into_value(file.timeout)
                .or(rules.timeout)
                .unwrap_or(HumanDuration::from_secs(if downloads { 60 } else { 10 })),
            request_timeout: into_value(file.request_timeout).unwrap_or(rules.request_timeout),
            connections,
            config: file.config.map(|at| Secret::new(at.value.0.to_json().get())),
            auth,
            name,
        };
        self.servers.push((spec, span));
    }

    fn resolve_mode(
        &mut self,
        file: &mut ServerFile,
        name: &ServerName,
        span: Span,
        rules: ServerDefaults,
        cx: &mut Context<'_>,
    ) -> Option<ToolMode> {
        let defaults = into_value(file.default_tool_config.take());
        if let Some(defaults) = &defaults {
            self.record_origins(&format!("servers.{name}.default_tool_config"), defaults.value_spans());
        }
        let limits = defaults.map(|file| ToolLimits {
            max_instances: into_value(file.max_instances),
            timeout: into_value(file.timeout),
            parallel_capable: into_value(file.parallel_capable),
        });
        match (file.mode.as_ref().map(|at| at.value), limits) {
            (Some(ModeName::Strict), _) => Some(ToolMode::Strict),
            (Some(ModeName::Dynamic), Some(default_tool_config)) => {
                Some(ToolMode::Dynamic { default_tool_config })
            }
            // Present but invalid: the problem is already reported.
            (Some(ModeName::Dynamic), None) if file.present_keys.contains(&"default_tool_config") => None,
            (Some(ModeName::Dynamic), None) => {
                let place = file.mode.as_ref().map_or(span, |at| at.span);
                let message = format!(
                    "MCP server '{name}' is configured with mode='dynamic' but missing required field \
                     'default_tool_config'"
                );
                cx.error(place, message, "add `default_tool_config: { max_instances: 10, timeout: 30s }`");
                None
            }
            // Also present but invalid.
            (None, _) if file.present_keys.contains(&"mode") => None,
            (None, _) if rules.mode_required => {
                let message = format!("missing key `mode` in MCP server `{name}`");
                let hint = "write `mode: strict`, or `mode: dynamic` with `default_tool_config`";
                cx.error(span, message, hint);
                None
            }
            (None, limits) => Some(ToolMode::Dynamic { default_tool_config: limits.unwrap_or_default() }),
        }
    }
}

/// Returns the rules for the connections to a server.
fn connection_policy(file: &mut ServerFile) -> ConnectionPolicy {
    let defaults = ConnectionPolicy::default();
    ConnectionPolicy {
        isolation: match into_value(file.isolation.take()) {
            None | Some(IsolationName::Caller) => Isolation::Caller,
            Some(IsolationName::Session) => Isolation::Session,
            Some(IsolationName::Shared) => Isolation::Shared,
        },
        idle_timeout: into_value(file.idle_timeout.take()).unwrap_or(defaults.idle_timeout),
        max_connections: into_value(file.max_connections.take()).unwrap_or(defaults.max_connections),
        protocol: match into_value(file.protocol.take()) {
            None | Some(ProtocolName::Auto) => None,
            Some(ProtocolName::V2024_11_05) => Some(ProtocolRevision::V2024_11_05),
            Some(ProtocolName::V2025_03_26) => Some(ProtocolRevision::V2025_03_26),
            Some(ProtocolName::V2025_06_18) => Some(ProtocolRevision::V2025_06_18),
            Some(ProtocolName::V2025_11_25) => Some(ProtocolRevision::V2025_11_25),
            Some(ProtocolName::V2026_07_28) => Some(ProtocolRevision::V2026_07_28),
        },
        placement: into_value(file.placement.take()).map(|PlacementName::Each| Placement::Each),
    }
}

/// Returns true if results that do not match their schema are rejected. With `mode: strict`, tools must keep to the
/// schemas they were configured with.
fn is_strict_output(
    written: Option<&Spanned<OutputValidationName>>,
    mode: &ToolMode,
    cx: &mut Context<'_>,
) -> bool {
    let strict = matches!(mode, ToolMode::Strict);
    match written {
        Some(at) if at.value == OutputValidationName::Warn && strict => {
            let message =
                format!("`output_validation: warn` does nothing with `mode: strict`{}", cx.location_suffix());
            cx.push(Problem::warning(at.span, message).hint("remove it, or use `mode: dynamic`"));
            true
        }
        Some(at) => strict || at.value == OutputValidationName::Strict,
        None => strict,
    }
}

#[cfg(test)]
mod tests;
