//! Keys of Toolgate's own files, with the text of the reference page and the JSON Schemas.
//!
//! The doc comments on keys are user documentation. Invariant: this module defines the syntax of
//! files; the meaning of the values is in `resolve`.

pub(crate) mod agent;
pub(crate) mod profile;
pub(crate) mod serve;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};

use serde_json::{Map as JsonMap, Value as Json};
use toolgate_types::audit::DiskReserve;
use toolgate_types::caller::PermissionPattern;
use toolgate_types::network::Network;
use toolgate_types::SecretPattern;
use toolgate_types::serve::HostName;
use toolgate_types::tool::Permission;
use toolgate_types::{ByteSize, CallerId, ConfigString, HumanDuration, KeyHash, ServerName, ToolName};

use self::agent::AgentSection;
use self::profile::ProfileFile;
use self::serve::{AnonymousName, CertificateFile, JwtFile, ServeRateLimitFile, ServeTlsFile};
use crate::config::input_variable;
use crate::context::{Context, FileVariable, InputAnswer};
use crate::keys::{
    AnyValue, ConfigValue, KeyTable, NamedMap, OneOrMany, PassthroughMap, SchemaNode, Spanned, choice, keys,
};
use crate::node::Node;

keys! {
    /// `toolgate.yaml`, the project file. Environment variables override any key:
    /// `TOOLGATE__TOOLBOX__MAX_CONCURRENT=20`, `TOOLGATE__TOOLBOX__MCPS__0__MODE=dynamic`. List
    /// entries are addressed by index or by `name`.
    struct ProjectFile as "project file" {
        /// Name of the project, shown in listings.
        name: String,
        /// Purpose of the project.
        description: String,
        /// Files with variables for `${NAME}` references. The process environment takes precedence.
        /// Default: `.env` if it exists; files named here must exist.
        env_file ("envFile"): OneOrMany<String> = ".env",
        /// JSON files that hold tools and MCP servers. Commands may rewrite them.
        registries: RegistriesFile,
        /// Limits, tools and MCP servers.
        toolbox: ToolboxFile,
        /// Callers and their permissions. A caller not listed here has no access. Exception: `owner`, the
        /// local user of this machine, has full access unless an entry restricts it.
        callers: Vec<Spanned<CallerFile>>,
        /// Cedar policy file that permits or forbids calls, in addition to the permissions of the
        /// callers. Default: `policy.cedar` if it exists; a file named here must exist.
        policy: String = "policy.cedar",
        /// Strings that must not be sent to MCP servers.
        egress: EgressFile,
        /// Storage of large results. Without this key every result up to `max_output` is returned inline.
        results: ResultsFile,
        /// Enables the tool `request_human_input` and approvals requested by policy rules. Without this key
        /// `toolgate serve` asks no questions. See docs/builtins.md.
        human_input: HumanInputFile,
        /// Enables the tool `web_search` and selects its search engine. See docs/builtins.md.
        web_search: WebSearchFile,
        /// Limits of the tool `code_execution`, which runs code sent by callers. Enable it with
        /// `enabled: true`. See docs/builtins.md.
        code_execution: CodeExecutionFile,
        /// The agent of `toolgate run` and `toolgate chat`. See docs/agent.md.
        agent: AgentSection,
        /// OpenTelemetry collector for traces of calls. Without this key the standard variables apply:
        /// `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS` and
        /// `OTEL_SERVICE_NAME`. If none is set, no traces are exported.
        telemetry: TelemetryFile,
        /// HTTP APIs described by OpenAPI documents, by name. Each operation becomes a tool.
        openapi: NamedMap<ApiFile>,
        /// Profiles by name: views of the catalog for different kinds of clients. See docs/profiles.md.
        profiles: NamedMap<ProfileFile>,
        /// Listener, TLS, authentication and limits of `toolgate serve`.
        serve: ServeFile,
        /// The execution log.
        audit: AuditFile,
    }
}

keys! {
    /// An HTTP API described by an OpenAPI 3.0 or 3.1 document. See docs/openapi.md.
    struct ApiFile as "API" {
        /// OpenAPI document in JSON or YAML: a file relative to the project folder, or an `https` or `http` URL.
        /// A URL is fetched at every start; the last copy is cached in `.toolgate/openapi`.
        document: ConfigString; required,
        /// Base URL of the API. Default: the first entry of `servers` in the document. A document fetched from a
        /// URL can only name its own host; this key can name any.
        base_url: ConfigString,
        /// Values for the variables of the document's first server entry.
        variables: NamedMap<String>,
        /// Operations that become tools. An operation must match every list given here. Default: all.
        include: OperationsFile,
        /// Operations to leave out. An operation that matches any list given here is excluded.
        exclude: OperationsFile,
        /// Credentials by name of the document's `securitySchemes`, as variables: `${PETS_TOKEN}`. For `basic`:
        /// `user:password`. Never shown.
        auth: NamedMap<ConfigString>,
        /// Headers sent with every request. Never shown.
        headers: NamedMap<ConfigString>,
        /// Timeout of one call.
        timeout: HumanDuration,
        /// Prefix of every tool name, such as `pets_`.
        prefix: String,
        /// Networks the API and its document may be in, in addition to the public internet, such as
        /// `127.0.0.0/8`. Addresses are checked on every connection.
        allow_networks: Vec<Spanned<Network>>,
        /// Results that do not match the schema of their operation: `strict` fails the call with `invalid_output`,
        /// `warn` returns the result with a warning.
        output_validation: OutputValidationName = "warn",
    }
}

keys! {
    /// Selects operations of an OpenAPI document. `*` matches any string.
    struct OperationsFile as "operations" {
        /// Match by `operationId`.
        operations: OneOrMany<String>,
        /// Match by tag.
        tags: OneOrMany<String>,
        /// Match by method, such as `GET`.
        methods: OneOrMany<String>,
        /// Match by path, such as `/pets/*`.
        paths: OneOrMany<String>,
    }
}

keys! {
    /// The execution log. `toolgate log` reads it; docs/log.md describes it.
    struct AuditFile as "audit" {
        /// Folder of the log, relative to the project folder.
        folder: String = ".toolgate/log",
        /// Bytes of arguments, and of output, kept per call. Longer bodies are truncated; length and SHA-256 of
        /// the rest are recorded.
        max_body: ByteSize = "1MiB",
        /// Retention: a log file is deleted when its last record is older than this.
        keep: HumanDuration = "30d",
        /// Idempotent calls while the disk is full: `deny` refuses them, `allow` executes them and records them once
        /// there is space again. Other calls are always refused while the disk is full.
        on_full: OnFullName = "deny",
        /// Disk space reserved so that calls already sent can still be recorded when the disk fills up; at most
        /// 1/64 of the disk. `none` reserves no space.
        reserve: DiskReserve = "64MiB",
        /// Regular expressions for your own secrets; matches are redacted from the log. Matching takes linear
        /// time, so look-around and backreferences are not supported.
        redact: Vec<Spanned<SecretPattern>>,
    }
}

choice! {
    /// Handling of idempotent calls while the disk is full.
    enum OnFullName as "a disk-full action" {
        /// Refuses the call.
        Deny = "deny",
        /// Executes the call and records it once there is space again.
        Allow = "allow",
    }
}

keys! {
    /// An OpenTelemetry collector that accepts OTLP over HTTP in JSON. Spans contain names, times and errors;
    /// arguments and results stay in the execution log.
    struct TelemetryFile as "telemetry" {
        /// URL of the collector, such as `http://localhost:4318`. `/v1/traces` is appended if the URL has no path.
        otlp_endpoint: ConfigString; required,
        /// Headers sent with every request.
        headers: NamedMap<ConfigString>,
        /// Service name reported to the collector.
        service_name: String = "toolgate",
        /// Timeout of one request.
        timeout: HumanDuration = "10s",
    }
}

keys! {
    /// Large results are stored as resources (`toolgate://results/…`). The caller gets a preview and reads the
    /// rest with the tool `read_result`. Every caller may read its own results.
    struct ResultsFile as "results" {
        /// Largest result returned inline.
        max_inline: ByteSize = "64KiB",
        /// Retention of stored results.
        keep: HumanDuration = "1h",
        /// Disk space for all stored results. The oldest are deleted first.
        max_disk: ByteSize = "256MiB",
    }
}

keys! {
    /// Questions to people. They are answered at the terminal of `toolgate tools call`; for `toolgate serve`,
    /// with `toolgate questions` or over HTTP.
    struct HumanInputFile as "human_input" {
        /// Time to answer a question.
        timeout: HumanDuration = "10m",
    }
}

keys! {
    /// A search engine. Its results are third-party content and are treated as untrusted.
    struct WebSearchFile as "web_search" {
        /// Search engine to use.
        provider: ProviderName; required,
        /// URL of the search engine. Required for `searxng`; the others have a default.
        url: ConfigString,
        /// API key, required for `brave` and `tavily`. Preferably `${NAME}`.
        key: ConfigString,
        /// Maximum number of results per search, at most 20.
        max_results: NonZeroU32 = "10",
        /// Timeout of one search.
        timeout: HumanDuration = "15s",
    }
}

choice! {
    /// A search engine.
    enum ProviderName as "a search engine" {
        /// A SearXNG instance with the JSON format enabled.
        Searxng = "searxng",
        /// Brave Search.
        Brave = "brave",
        /// Tavily.
        Tavily = "tavily",
        /// DuckDuckGo's HTML page. Needs no key, but limits automated queries.
        Duckduckgo = "duckduckgo",
    }
}

keys! {
    /// Python or shell code sent by callers. Each call runs in its own temporary folder.
    struct CodeExecutionFile as "code_execution" {
        /// Enables the tool.
        enabled: bool = "false",
        /// Sandboxes the code with Landlock and seccomp: no network, and no files except its own folder and
        /// (read-only) system programs. If the kernel does not support this, the call fails. With `false` the code
        /// has the same rights as Toolgate.
        sandbox: bool = "true",
        /// Timeout of one run.
        timeout: HumanDuration = "30s",
        /// Memory of all processes of one run together.
        max_memory: ByteSize = "512MiB",
        /// Maximum output on stdout, and on stderr.
        max_output: ByteSize = "1MiB",
        /// Maximum number of concurrent processes.
        max_processes: NonZeroU32 = "32",
        /// Maximum total size of the files it writes.
        max_disk: ByteSize = "64MiB",
        /// Python interpreter, for example of a virtual environment.
        python: ConfigString = "python3",
        /// More files and folders readable in the sandbox, relative to the project folder.
        read: Vec<Spanned<String>>,
    }
}

keys! {
    /// Settings of `toolgate serve`.
    struct ServeFile as "serve" {
        /// IP address and port to listen on. The default accepts connections from this machine only;
        /// `0.0.0.0` accepts connections from the whole network.
        listen: SocketAddr = "127.0.0.1:7332",
        /// Host names of the gateway, such as `tools.example.com`, in addition to `localhost` and the listen
        /// address. Requests for other host names are refused.
        hosts: Vec<Spanned<HostName>>,
        /// Maximum size of a request body.
        max_body: ByteSize = "4MiB",
        /// Maximum number of concurrent connections; lower if the process may open fewer files.
        max_connections: NonZeroU32 = "2000",
        /// Maximum number of concurrent connections from one IP address.
        max_connections_per_address: NonZeroU32 = "1000",
        /// Networks of MCP servers that may be registered over HTTP, in addition to the public internet, such
        /// as `10.1.0.0/16`. Does not apply to servers configured in the project's files.
        allow_networks: Vec<Spanned<Network>>,
        /// Programs that MCP servers registered over HTTP may run on this machine, as written in `command`.
        /// Default: any program. Does not apply to servers configured in the project's files.
        allow_commands: Vec<Spanned<String>>,
        /// Certificate of the gateway. Without this key TLS is off.
        tls: ServeTlsFile,
        /// Public URL of the gateway, such as `https://tools.example.com`, used in login instructions to clients.
        /// Default: the host of each request.
        url: ConfigString,
        /// Token issuers whose JWTs authenticate callers.
        jwt: Vec<Spanned<JwtFile>>,
        /// Accepts unauthenticated requests as the caller `anonymous`: from this machine only and not through a proxy
        /// (`loopback`), or from any address (`everywhere`).
        anonymous: AnonymousName = "loopback",
        /// Rate limits of requests.
        rate_limit: ServeRateLimitFile,
    }
}

keys! {
    /// Strings that must not be sent to MCP servers. A call whose arguments contain one is refused.
    struct EgressFile as "egress" {
        /// Canary strings. Plant them in places no tool should read: a call that contains one reveals that a tool
        /// did. At least 8 characters each; never shown.
        canaries: Vec<Spanned<ConfigString>>,
        /// Also refuses calls that contain secrets: values of variables, headers and other secrets of this
        /// configuration, and strings that look like credentials.
        secrets: bool = "false",
    }
}

keys! {
    /// An agent, program or person that calls tools.
    struct CallerFile as "caller" {
        /// Id of the caller: letters, digits and `. _ - @ : /`.
        id: CallerId; required,
        /// Purpose of the caller.
        description: String,
        /// Permissions as `resource:action`; `*` matches any resource or action. By default a tool requires
        /// `{server}:{tool}`, a tool of this project `tools:{name}`. Without this key the caller may only make
        /// calls permitted by the policy file.
        permissions: Vec<Spanned<PermissionPattern>>,
        /// API key of the caller, as a variable: `${CI_KEY}`. Never shown.
        api_key: ConfigString,
        /// SHA-256 of the API key, in place of `api_key`: 64 hexadecimal digits from `printf %s KEY | sha256sum`.
        key_sha256: KeyHash,
        /// Client certificate of the caller, issued by an authority in `serve.tls.client_ca`.
        certificate: CertificateFile,
        /// Profile used when a request names none, as at `/mcp`. Default: the first of `profiles`, otherwise the
        /// whole catalog.
        profile: String,
        /// Profiles the caller may use. It is limited to their tools, over REST too; other profiles look
        /// nonexistent. Default: all profiles.
        profiles: OneOrMany<String>,
    }
}

keys! {
    /// Files with tools and MCP servers. A file named here must exist and be valid, otherwise Toolgate does not
    /// start.
    struct RegistriesFile as "registries" {
        /// File with the project's own tools, such as `tools/tools.json`. Script paths are relative to its folder.
        tools: String,
        /// File with MCP servers, such as `mcp.json`, in the format of VS Code (`servers`), Claude and Cursor
        /// (`mcpServers`) or with the key `mcp_servers`.
        mcp: String,
    }
}

keys! {
    /// Limits, tools and MCP servers.
    struct ToolboxFile as "toolbox" {
        /// Maximum number of concurrent calls, over all tools.
        max_concurrent: NonZeroU32 = "64",
        /// Timeout of a call if neither its tool nor its server sets one.
        default_timeout: HumanDuration = "30s",
        /// Maximum size of the result of one call.
        max_output: ByteSize = "4MiB",
        /// Tools with the same name. `qualify`: the project's own tools win, then servers in order; others are listed
        /// as `{server}__{tool}`. `last_wins`: the last one wins. `error`: Toolgate does not start. A server's tool
        /// can always be called as `{server}__{tool}`.
        on_collision: CollisionName = "qualify",
        /// Settings for single tools, of this project or of a server.
        tools: Vec<Spanned<ToolSettingsFile>>,
        /// MCP servers.
        mcps: Vec<Spanned<ServerEntry>>,
    }
}

choice! {
    /// Resolution of name collisions between tools.
    enum CollisionName as "a collision rule" {
        /// The project's own tools win, then servers in order; later ones are listed as `{server}__{tool}`.
        Qualify = "qualify",
        /// The last one wins.
        LastWins = "last_wins",
        /// A collision is an error and Toolgate does not start.
        Error = "error",
    }
}

keys! {
    /// Settings of one tool. Each key overrides the tool's registry entry and its server's
    /// `default_tool_config`.
    struct ToolSettingsFile as "tool settings" {
        /// Name of the tool.
        name: ToolName; required,
        /// Maximum number of concurrent calls of this tool.
        max_instances: NonZeroU32,
        /// Timeout of one call.
        timeout: HumanDuration,
        /// Allows concurrent calls. Default: `true` for MCP tools, `false` for scripts.
        parallel_capable: bool,
        /// With `strict`, the server's `default_tool_config` does not apply to this tool.
        mode: ModeName,
        /// Permissions a caller needs, as `resource:action`. Default: `{server}:{tool}`; for a tool of this
        /// project the permissions in its registry, otherwise `tools:{name}`.
        permissions: Vec<Spanned<Permission>>,
        /// Kind of operation. A `query` is treated as read-only; a `mutation` is never cached.
        category: CategoryName,
        /// Marks calls as safe to repeat. Only idempotent tools are retried.
        idempotent: bool,
        /// Allows caching of results.
        cacheable: bool,
        /// Lifetime of a cached result.
        cache_ttl: HumanDuration,
        /// Rate limit per caller.
        rate_limit: RateLimitFile,
        /// Keywords for tool search.
        tags: Vec<Spanned<String>>,
        /// Suggested next steps, returned to callers as hints.
        follow_ups: Vec<Spanned<FollowUpFile>>,
    }
}

keys! {
    /// A suggested next step after a tool.
    struct FollowUpFile as "follow-up" {
        /// Name of the next tool, or a short name of the action.
        action: String; required,
        /// Urgency of the step.
        priority: PriorityName = "medium",
        /// Purpose of the step.
        description: String,
        /// Steps that must come first.
        after: Vec<Spanned<String>>,
    }
}

choice! {
    /// Urgency of a step.
    enum PriorityName as "a priority" {
        /// Do it immediately.
        Critical = "critical",
        /// Do it soon.
        High = "high",
        /// Do it in turn.
        Medium = "medium",
        /// Do it when there is time.
        Low = "low",
    }
}

choice! {
    /// OAuth grant used to obtain a token.
    enum GrantName as "a grant" {
        /// A person logs in with a browser.
        AuthorizationCode = "authorization_code",
        /// Toolgate authenticates as the client, without a person.
        ClientCredentials = "client_credentials",
    }
}

keys! {
    /// OAuth 2.1 login to a server. Without `client_id`, Toolgate registers itself as a client.
    struct OauthFile as "oauth" {
        /// OAuth grant: `authorization_code` logs a person in with a browser, `client_credentials` authenticates
        /// Toolgate as the client.
        grant: GrantName = "authorization_code",
        /// Client id, if a client is already registered.
        client_id ("clientId"): ConfigString,
        /// Client secret.
        client_secret ("clientSecret"): ConfigString,
        /// Private key of the client in PEM, in place of `client_secret`, for `client_credentials`.
        private_key: ConfigString,
        /// `https://` URL of a client metadata document, for authorization servers that support it. Used if
        /// there is no `client_id`.
        client_metadata_url: ConfigString,
        /// Scopes to request, in addition to those the server asks for.
        scopes: Vec<Spanned<String>>,
        /// Local port for the browser redirect. Default: any free port.
        redirect_port ("callbackPort"): NonZeroU16,
    }
}

keys! {
    /// Certificates of a private certificate authority (CA), as PEM files. Paths are relative to the project
    /// folder. Replaced files take effect on the next connection, without a restart.
    struct TlsFile as "tls" {
        /// Additional trusted CAs.
        ca: ConfigString,
        /// Client certificate, with its intermediate certificates, for servers that require one.
        cert: ConfigString,
        /// Private key of `cert`. It may be in the same file.
        key: ConfigString,
        /// Certificate revocation lists of the CAs in `ca`. A server is refused if its certificate is revoked, or
        /// if its CA has no current list here.
        crl: ConfigString,
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
    /// Transport of an MCP server.
    enum TransportName as "a transport" {
        /// A child process.
        Stdio = "stdio",
        /// HTTP with server-sent events, of the first protocol revision (deprecated).
        Sse = "sse",
        /// A WebSocket.
        Websocket = "websocket" | "ws",
        /// Streamable HTTP.
        Http = "http" | "streamable_http" | "streamable-http" | "streamableHttp",
    }
}

choice! {
    /// Startup behavior of a server.
    enum StartupName as "a startup mode" {
        /// Connected at startup. If that fails, Toolgate does not start.
        Required = "required",
        /// Connected at startup. If that fails, Toolgate starts without it and retries.
        Optional = "optional",
        /// Connected on first use.
        Lazy = "lazy",
    }
}

choice! {
    /// Encoding of a child process's output.
    enum EncodingName as "an encoding" {
        /// UTF-8, as the protocol requires.
        Utf8 = "utf-8" | "utf8" | "UTF-8",
        /// ISO 8859-1.
        Latin1 = "latin-1" | "latin1" | "iso-8859-1",
    }
}

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
        /// `http`.
        transport ("type"): TransportName,
        /// Program to start, looked up in `PATH`. No shell is involved.
        command: ConfigString,
        /// Arguments of the program.
        args: Vec<Spanned<ConfigString>>,
        /// Package to run in place of `command`: `@scope/name` runs with `npx -y`, any other name with
        /// `uvx`, or with `pipx run` if `uvx` is not installed. `args` follow it.
        server: ConfigString,
        /// Environment variables of the program. It gets these and a few harmless ones, not your environment.
        env: NamedMap<Option<ConfigString>>,
        /// Files with more environment variables. `env` takes precedence.
        env_file ("envFile"): OneOrMany<String>,
        /// Working folder, relative to the project.
        cwd: String = ".",
        /// Encoding of the program's output.
        encoding: EncodingName = "utf-8",
        /// URL of the server.
        url: ConfigString,
        /// Headers sent with every request, such as `Authorization: Bearer ${TOKEN}`.
        headers: NamedMap<ConfigString>,
        /// OAuth settings. Most servers that require a login need none. Log in with
        /// `toolgate servers login NAME`.
        oauth: OauthFile,
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
        /// `required` and `optional` connect at startup, `lazy` on first use. If a `required` server fails, Toolgate
        /// does not start; an `optional` one is retried. In `agent.yaml` the default is `lazy`.
        startup: StartupName = "required",
    }
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

/// Reads the files of `env_file` before the rest of the map, since the rest may refer to their
/// variables. Returns `None` if the key is absent.
pub(crate) fn read_env_files(node: &Node, cx: &mut Context<'_>) -> Option<HashMap<String, FileVariable>> {
    let named = node.get("env_file").or_else(|| node.get("envFile"))?;
    // Problems with the value itself are reported when the key is read with the others.
    let problems_before = cx.problems.len();
    let paths = OneOrMany::<String>::read(named, cx);
    cx.problems.truncate(problems_before);
    let mut variables = HashMap::new();
    for path in paths.into_iter().flat_map(|paths| paths.0) {
        let file = cx.project.join(&path.value);
        if file.is_file() {
            variables.extend(cx.read_env_file(&file).unwrap_or_default());
        } else {
            let message = format!("the file `{}` does not exist", path.value);
            cx.error(path.span, message, "create it, or remove it here; paths start at the project folder");
        }
    }
    Some(variables)
}

keys! {
    /// `tools/tools.json`: the project's own tools.
    struct ToolsFile as "tools file" {
        /// Contract of tools that do not set their own: `standard` requires name, description and input schema,
        /// `full` every key listed by `toolgate check --contract full`.
        contract: ContractName = "standard",
        /// The tools.
        tools: Vec<Spanned<ToolFile>>; required,
    }
}

keys! {
    /// A tool of this project: a script in the folder of `tools.json`, and this entry.
    struct ToolFile as "tool" {
        /// Name of the tool: letters, digits, `_`, `.` and `-`.
        name: ToolName; required,
        /// Contract the entry must satisfy. Default: the `contract` of the file.
        contract: ContractName,
        /// Purpose, use and result of the tool. Models choose tools by this text.
        description: String; required,
        /// Kind of tool. The only kind is `local`, a script.
        r#type: ToolKindName = "local",
        /// Version of the tool.
        version: String = "1.0.0",
        /// JSON Schema of the arguments.
        input_schema ("inputSchema", "parameters", "inputs"): SchemaNode; required,
        /// JSON Schema of the result.
        output_schema ("outputSchema", "outputs"): SchemaNode,
        /// Location of the script.
        config: ScriptFile,
        /// Same as `config.script_path`.
        script_path: String,
        /// Same as `config.entrypoint`.
        entrypoint ("function"): String,
        /// Environment variables of the script. It gets these and a few harmless ones, not your environment.
        env: NamedMap<Option<ConfigString>>,
        /// Memory limit of each process of the script; at least `32MiB`.
        max_memory ("maxMemory"): ByteSize = "1GiB",
        /// Timeout of one call.
        timeout: HumanDuration,
        /// Maximum number of concurrent calls if the tool is `parallel_capable`.
        max_instances: NonZeroU32 = "5",
        /// Allows concurrent calls.
        parallel_capable ("parallelCapable"): bool = "false",
        /// Permissions a caller needs, as `resource:action`.
        permissions: Vec<Spanned<Permission>>,
        /// Kind of operation. A `mutation` is never cached.
        category: CategoryName,
        /// Typical response time. If `timeout` is not set, it is 1 s (`fast`), 10 s (`medium`) or 120 s (`slow`).
        response_time ("responseTime"): ResponseTimeName,
        /// Allows caching of results.
        cacheable: bool = "false",
        /// Lifetime of a cached result.
        cache_ttl ("cacheTTL", "cacheTtl"): HumanDuration,
        /// Marks calls as safe to repeat. Only idempotent tools are retried.
        idempotent: bool = "false",
        /// Example calls with their results.
        examples: Vec<Spanned<ExampleFile>>,
        /// Keywords for tool search.
        tags: Vec<Spanned<String>>,
        /// Rate limit per caller.
        rate_limit ("rateLimit"): RateLimitFile,
        /// Marks the tool as deprecated and names its replacement.
        deprecated: DeprecationFile,
        /// Suggested next steps, returned to callers as hints.
        follow_ups ("followUps"): Vec<Spanned<FollowUpFile>>,
    }
}

choice! {
    /// Set of keys a tool must define.
    enum ContractName as "a contract" {
        /// Name, description and input schema are required; everything else has a default.
        Standard = "standard",
        /// Every key listed by `toolgate check --contract full` is required. A tool that lacks one is
        /// refused.
        Full = "full",
    }
}

choice! {
    /// Kind of tool.
    enum ToolKindName as "a kind of tool" {
        /// A script.
        Local = "local",
    }
}

keys! {
    /// Location of a tool's script.
    struct ScriptFile as "tool config" {
        /// Script file in the folder of `tools.json` or below it. Default: the tool's name with `.py`.
        script_path ("scriptPath"): String,
        /// Function to call in a Python script.
        entrypoint ("function"): String = "run",
    }
}

choice! {
    /// Kind of tool.
    enum CategoryName as "a category" {
        /// Only reads.
        Query = "query",
        /// Changes something.
        Mutation = "mutation",
        /// Computes a result from its arguments.
        Analysis = "analysis",
        /// Creates something new.
        Generation = "generation",
    }
}

choice! {
    /// Typical response time of a tool.
    enum ResponseTimeName as "a response time" {
        /// Under 100 ms.
        Fast = "fast",
        /// Up to a second.
        Medium = "medium",
        /// More than a second.
        Slow = "slow",
    }
}

keys! {
    /// An example call with its result, for documentation and tests.
    struct ExampleFile as "example" {
        /// Description of the example.
        description: String; required,
        /// Arguments of the call.
        params: AnyValue; required,
        /// Expected result.
        expected_result ("expectedResult"): AnyValue,
    }
}

keys! {
    /// Rate limit of a tool, per caller.
    struct RateLimitFile as "rate_limit" {
        /// Maximum number of calls per window.
        max_calls ("maxCalls"): NonZeroU32; required,
        /// Length of the window in milliseconds.
        window_ms ("windowMs"): NonZeroU32; required,
    }
}

keys! {
    /// Deprecation of a tool.
    struct DeprecationFile as "deprecated" {
        /// Version that deprecated the tool.
        since: String; required,
        /// Tool to use instead.
        replacement: ToolName; required,
        /// Date after which calls are refused, as `YYYY-MM-DD`.
        removal_date ("removalDate"): String; required,
    }
}

keys! {
    /// `mcp.json`: MCP servers, in the format of VS Code (`servers`, `inputs`), of Claude and Cursor
    /// (`mcpServers`) or of the skill executor (`mcp_servers`). The three keys are equivalent.
    struct McpFile as "mcp.json" {
        /// Values to ask the user for. `${input:ID}` refers to them.
        inputs: Vec<Spanned<InputEntry>>,
        /// MCP servers by name.
        servers ("mcpServers", "mcp_servers"): NamedMap<ServerEntry>; required,
    }
}

keys! {
    /// A value the user is asked for when a server starts. The environment variable `TOOLGATE_INPUT_ID`
    /// (the id in upper case, `-` as `_`) answers it without a prompt.
    struct InputFile as "input" {
        /// Id used in `${input:ID}`.
        id: String; required,
        /// Kind of prompt: one line of text (`promptString`) or a choice from `options` (`pickString`). `command` is
        /// treated as `promptString`.
        r#type: InputKindName = "promptString",
        /// Prompt text.
        description: String,
        /// Default answer.
        default: String,
        /// Hides the answer while it is typed.
        password: bool = "false",
        /// Allowed answers, for `pickString`.
        options: Vec<Spanned<String>>,
    }
}

/// An input with its answer, if it has one. Inputs are read before servers, which may refer to them.
#[derive(Debug, Clone)]
pub(crate) struct InputEntry {
    pub(crate) file: InputFile,
    pub(crate) answered: bool,
}

impl ConfigValue for InputEntry {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let file = InputFile::read(node, cx)?;
        let id = file.id.as_ref()?.value.clone();
        let from_variable = cx.variable(&input_variable(&id)).map(|(value, _)| value.to_owned());
        let value = from_variable.or_else(|| file.default.as_ref().map(|at| at.value.clone()));
        let answered = value.is_some();
        if let Some(value) = value.as_deref().filter(|_| file.password.as_ref().is_some_and(|at| at.value)) {
            cx.hide(value);
        }
        cx.inputs.push(InputAnswer { id, value });
        Some(Self { file, answered })
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        InputFile::schema(parts)
    }

    fn label() -> String {
        InputFile::label()
    }

    fn tables(out: &mut Vec<KeyTable>) {
        InputFile::tables(out);
    }
}

choice! {
    /// Kind of prompt.
    enum InputKindName as "a kind of input" {
        /// Free text, one line.
        PromptString = "promptString",
        /// A choice from `options`.
        PickString = "pickString",
        /// A command of the editor that wrote the file. Toolgate asks for one line of text instead.
        Command = "command",
    }
}
