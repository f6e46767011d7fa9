//! Every key that our own files have, with its words for the reference page and the schema.
//!
//! The doc comments here are what users read. Invariant: this module says what may be written, not
//! what it means; meaning is in `settle`.

pub(crate) mod agent;
pub(crate) mod door;
pub(crate) mod profile;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};

use serde_json::{Map as JsonMap, Value as Json};
use toolgate_types::audit::Reserve;
use toolgate_types::caller::PermissionPattern;
use toolgate_types::door::HostName;
use toolgate_types::network::Network;
use toolgate_types::redact::Pattern;
use toolgate_types::tool::Permission;
use toolgate_types::{ByteSize, CallerId, HumanDuration, KeyHash, ServerName, Text, ToolName};

use self::agent::AgentSection;
use self::door::{AnonymousName, CertificateFile, DoorRateFile, DoorTlsFile, JwtFile};
use self::profile::ProfileFile;
use crate::config::variable_of_input;
use crate::context::{Context, FileVariable, Input};
use crate::keys::{At, Free, Handed, Named, OneOrMany, Read, SchemaNode, Table, choice, keys};
use crate::node::Node;

keys! {
    /// `toolgate.yaml`, the project file. Everything in it may be overridden by the environment:
    /// `TOOLGATE__TOOLBOX__MAX_CONCURRENT=20`, `TOOLGATE__TOOLBOX__MCPS__0__MODE=dynamic`; an entry
    /// of a list is named by its number or its `name`.
    struct ProjectFile as "project file" {
        /// A name for the project, for listings.
        name: String,
        /// What the project is for.
        description: String,
        /// Files with the variables that `${NAME}` may use, beside the environment, which counts
        /// more. Without this key `.env` is read where there is one; a file named here must exist.
        env_file ("envFile"): OneOrMany<String> = ".env",
        /// Tools and servers that are kept in JSON files, which commands may rewrite.
        registries: RegistriesFile,
        /// Limits, tools and MCP servers.
        toolbox: ToolboxFile,
        /// Who may call tools, and which. Whoever is not named here may do nothing, but for `owner`: the
        /// person at the machine, who may do everything unless an entry for it says otherwise.
        callers: Vec<At<CallerFile>>,
        /// The file with rules in Cedar that permit and forbid calls, beside the permissions of the
        /// callers. Without this key `policy.cedar` is read where there is one; a file named here must
        /// exist.
        policy: String = "policy.cedar",
        /// Texts that no call may carry to an MCP server.
        egress: EgressFile,
        /// What happens to results that are too large to be given whole. Without this key every result up
        /// to `max_output` is given whole.
        results: ResultsFile,
        /// How people are asked: by the tool `request_human_input`, which this key brings, and by rules that
        /// ask. Without it nobody is asked by `toolgate serve`. docs/builtins.md.
        human_input: HumanInputFile,
        /// Who searches the web for the tool `web_search`, which this key brings. docs/builtins.md.
        web_search: WebSearchFile,
        /// What code may use that callers bring along for the tool `code_execution`, which `enabled: true`
        /// brings. docs/builtins.md.
        code_execution: CodeExecutionFile,
        /// The agent of `toolgate run` and `toolgate chat`. docs/agent.md.
        agent: AgentSection,
        /// Where traces of calls go. Without this key the standard variables of OpenTelemetry count:
        /// `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS` and
        /// `OTEL_SERVICE_NAME`; without those too there are none.
        telemetry: TelemetryFile,
        /// HTTP APIs that OpenAPI documents describe, by their names: each operation is a tool.
        openapi: Named<ApiFile>,
        /// Views of what there is, by their names, each for a kind of client. docs/profiles.md.
        profiles: Named<ProfileFile>,
        /// The door of `toolgate serve`.
        serve: ServeFile,
        /// How calls are written down: the execution log.
        audit: AuditFile,
    }
}

keys! {
    /// An HTTP API that a document of OpenAPI 3.0 or 3.1 describes. docs/openapi.md says what becomes of it.
    struct ApiFile as "API" {
        /// The document, in JSON or YAML: a file, seen from the project folder, or an address with `https` or
        /// `http`, which is asked at every start; what came last is kept in `.toolgate/openapi`.
        document: Text; required,
        /// Where the API is, in place of the first of the document's `servers`. A document that comes from an
        /// address can name no other host than its own; this can.
        base_url: Text,
        /// Values for the variables of the document's first server.
        variables: Named<String>,
        /// The operations that become tools: those that fit every list that is given. Without it all do.
        include: OperationsFile,
        /// Operations that do not: those that fit any of the lists.
        exclude: OperationsFile,
        /// Credentials, by the names of the document's `securitySchemes`, as variables: `${PETS_TOKEN}`. For `basic`
        /// it is `user:password`. Never shown.
        auth: Named<Text>,
        /// Headers of every request. Never shown.
        headers: Named<Text>,
        /// How long one call may take.
        timeout: HumanDuration,
        /// What stands before the name of each tool, such as `pets_`.
        prefix: String,
        /// The API and its document must be on the internet. Those in these networks may be used, too, such as
        /// `127.0.0.0/8`. Every address is looked at when a connection is made.
        allow_networks: Vec<At<Network>>,
        /// What becomes of a result that does not fit the schema of its operation.
        output_validation: OutputValidationName = "warn",
    }
}

keys! {
    /// Operations of an OpenAPI document. `*` stands for any text.
    struct OperationsFile as "operations" {
        /// By `operationId`.
        operations: OneOrMany<String>,
        /// By tag.
        tags: OneOrMany<String>,
        /// By method, such as `GET`.
        methods: OneOrMany<String>,
        /// By path, such as `/pets/*`.
        paths: OneOrMany<String>,
    }
}

keys! {
    /// How calls are written down. `toolgate log` reads it, docs/log.md describes it.
    struct AuditFile as "audit" {
        /// The folder of the log, seen from the project folder.
        folder: String = ".toolgate/log",
        /// What of arguments and of output is written down in full, each; of a longer one the beginning,
        /// the length, and the SHA-256 of what is not there.
        max_body: ByteSize = "1MiB",
        /// How old the last record of a file gets before the file is removed.
        keep: HumanDuration = "30d",
        /// Whether calls that may be repeated go on when the disk is full. Other calls are refused then,
        /// whatever this says.
        on_full: OnFullName = "deny",
        /// Room on the disk that is kept so that a call which was sent can be written to its end when the
        /// disk fills up meanwhile; never more than a 64th of the disk. `none` keeps no room.
        reserve: Reserve = "64MiB",
        /// Regular expressions for secrets of your own: what fits one is not written down. They are matched in
        /// linear time, so they know no look-around and no references to groups.
        redact: Vec<At<Pattern>>,
    }
}

choice! {
    /// What becomes of calls that may be repeated when the disk is full.
    enum OnFullName as "a way to go on when the disk is full" {
        /// They are refused.
        Deny = "deny",
        /// They are made, and written down when there is room again.
        Allow = "allow",
    }
}

keys! {
    /// A collector of OpenTelemetry that takes OTLP over HTTP, in JSON. Spans hold names, times and errors;
    /// arguments and results stay in the execution log.
    struct TelemetryFile as "telemetry" {
        /// Where the collector is, such as `http://localhost:4318`; `/v1/traces` is added where the address has
        /// no path.
        otlp_endpoint: Text; required,
        /// What it wants to see with each request.
        headers: Named<Text>,
        /// What this service is called there.
        service_name: String = "toolgate",
        /// How long one request may take.
        timeout: HumanDuration = "10s",
    }
}

keys! {
    /// Results that are too large to be given whole are kept as resources, `toolgate://results/…`: the
    /// caller gets a preview, and the tool `read_result` reads the rest, which every caller may use on what
    /// is its own.
    struct ResultsFile as "results" {
        /// The largest result that is given whole.
        max_inline: ByteSize = "64KiB",
        /// How long larger ones are kept.
        keep: HumanDuration = "1h",
        /// What all of them may take on the disk; the oldest go first.
        max_disk: ByteSize = "256MiB",
    }
}

keys! {
    /// Questions to people wait where they can be answered: at the terminal of `toolgate tools call`, and for
    /// `toolgate serve` by `toolgate questions` and over HTTP.
    struct HumanInputFile as "human_input" {
        /// How long a person has to answer.
        timeout: HumanDuration = "10m",
    }
}

keys! {
    /// A search engine. What it finds is written by others, so it is not trusted.
    struct WebSearchFile as "web_search" {
        /// Who searches.
        provider: ProviderName; required,
        /// Where it is. `searxng` needs the address of an instance; the others are where they are.
        url: Text,
        /// The key that `brave` and `tavily` want; best as `${NAME}`.
        key: Text,
        /// The most results of one search, up to 20.
        max_results: NonZeroU32 = "10",
        /// How long a search may take.
        timeout: HumanDuration = "15s",
    }
}

choice! {
    /// Who searches.
    enum ProviderName as "a search engine" {
        /// An instance of SearXNG that answers in JSON.
        Searxng = "searxng",
        /// Brave Search.
        Brave = "brave",
        /// Tavily.
        Tavily = "tavily",
        /// The page of DuckDuckGo without scripts. It wants no key, and takes few questions from programs.
        Duckduckgo = "duckduckgo",
    }
}

keys! {
    /// Code in Python or for the shell that callers bring along. Each call has a folder of its own, which is gone
    /// with it.
    struct CodeExecutionFile as "code_execution" {
        /// Whether the tool is there.
        enabled: bool = "false",
        /// Whether the kernel (Landlock and seccomp) keeps the code from every file but those of its own folder and
        /// the programs of the system, which it may read, and from the network. Where the kernel cannot, nothing is
        /// run. Without it the code may do what Toolgate may do.
        sandbox: bool = "true",
        /// How long it may run.
        timeout: HumanDuration = "30s",
        /// The memory that all its processes together may hold.
        max_memory: ByteSize = "512MiB",
        /// What it may write to stdout, and to stderr.
        max_output: ByteSize = "1MiB",
        /// How many processes it may have at the same time.
        max_processes: NonZeroU32 = "32",
        /// What the files that it writes may take together.
        max_disk: ByteSize = "64MiB",
        /// The Python that runs it, such as that of a virtual environment.
        python: Text = "python3",
        /// Files and folders that it may read in the sandbox beside those of the system, seen from the project folder.
        read: Vec<At<String>>,
    }
}

keys! {
    /// How `toolgate serve` keeps the door.
    struct ServeFile as "serve" {
        /// Where it listens, as address and port. Whoever is on this machine can knock; with `0.0.0.0` the
        /// whole network can.
        listen: SocketAddr = "127.0.0.1:7332",
        /// Names under which it is reached, beside `localhost` and the address it listens on, such as
        /// `tools.example.com`. A request for any other name is refused.
        hosts: Vec<At<HostName>>,
        /// The largest request.
        max_body: ByteSize = "4MiB",
        /// Connections at the same time; fewer where the system lets the process open fewer files.
        max_connections: NonZeroU32 = "2000",
        /// Those of one address.
        max_connections_per_address: NonZeroU32 = "1000",
        /// MCP servers that are registered over HTTP must be on the internet. Those in these networks may be
        /// registered, too, such as `10.1.0.0/16`. What this project's files say is not asked about that.
        allow_networks: Vec<At<Network>>,
        /// MCP servers that are registered over HTTP and run on this machine may run these programs, as `command`
        /// names them, and no others. Without it they may run any. What this project's files say is not asked about
        /// that.
        allow_commands: Vec<At<String>>,
        /// The certificate by which it is known. Without it there is no TLS.
        tls: DoorTlsFile,
        /// The address under which the world knows it, such as `https://tools.example.com`, for who is told
        /// where to log in. Without it that is the host of each request.
        url: Text,
        /// Issuers whose tokens (JWT) say who somebody is.
        jwt: Vec<At<JwtFile>>,
        /// From where the caller `anonymous` may come, who says nothing of itself.
        anonymous: AnonymousName = "loopback",
        /// How many requests there may be.
        rate_limit: DoorRateFile,
    }
}

keys! {
    /// Texts that no argument may carry to an MCP server; a call that holds one does not leave.
    struct EgressFile as "egress" {
        /// Texts that you put where nobody has a reason to read them: one in a call shows that somebody
        /// did. Each has at least 8 characters; none is ever shown.
        canaries: Vec<At<Text>>,
        /// Whether to look for secrets as well: the values of variables, headers and other secrets of this
        /// configuration, and what has the shape of a credential.
        secrets: bool = "false",
    }
}

keys! {
    /// An agent, a program or a person that calls tools.
    struct CallerFile as "caller" {
        /// Who it is: letters, digits and `. _ - @ : /`.
        id: CallerId; required,
        /// What it is for.
        description: String,
        /// What it may do, as `resource:action`; `*` stands for any resource or any action. A tool of a
        /// server demands `{server}:{tool}`, one's own `tools:{name}`, where nothing else is said. Without
        /// this key it has only what a rule of the policy permits.
        permissions: Vec<At<PermissionPattern>>,
        /// The key by which `toolgate serve` knows it, as a variable: `${CI_KEY}`. Never shown.
        api_key: Text,
        /// In place of the key its SHA-256, as 64 hexadecimal digits: `printf %s KEY | sha256sum`.
        key_sha256: KeyHash,
        /// The certificate by which `toolgate serve` knows it, of an authority in `serve.tls.client_ca`.
        certificate: CertificateFile,
        /// The profile that it sees where it names none, such as at `/mcp`. Without it, it sees everything there, or
        /// the first of `profiles`.
        profile: String,
        /// The profiles that it may use, and no others: it has their tools alone, over REST too. Those that it may not
        /// use read like ones that are not there. Without it, it may use all.
        profiles: OneOrMany<String>,
    }
}

keys! {
    /// A registry that is named here must exist and be valid, or nothing starts.
    struct RegistriesFile as "registries" {
        /// The file with the project's own tools, such as `tools/tools.json`. Scripts are found
        /// beside it.
        tools: String,
        /// The file with MCP servers, such as `mcp.json`: the form of VS Code (`servers`), Claude and
        /// Cursor (`mcpServers`) or `mcp_servers`.
        mcp: String,
    }
}

keys! {
    /// Limits, tools and MCP servers.
    struct ToolboxFile as "toolbox" {
        /// Calls that may run at the same time, over all tools.
        max_concurrent: NonZeroU32 = "64",
        /// How long a call may take where neither its tool nor its server says so.
        default_timeout: HumanDuration = "30s",
        /// The largest result of one call.
        max_output: ByteSize = "4MiB",
        /// Who gets a name that two tools want. Every server's tool can always be called as
        /// `{server}__{tool}`.
        on_collision: CollisionName = "qualify",
        /// Settings for single tools, of one's own or of a server.
        tools: Vec<At<ToolSettingsFile>>,
        /// MCP servers.
        mcps: Vec<At<ServerEntry>>,
    }
}

choice! {
    /// Who gets a name that two tools want.
    enum CollisionName as "a way to settle collisions" {
        /// Own tools first, then servers in their order; later ones appear as `{server}__{tool}`.
        Qualify = "qualify",
        /// The last one gets the name.
        LastWins = "last_wins",
        /// Nothing starts.
        Error = "error",
    }
}

keys! {
    /// What is said about one tool, wherever it comes from. It counts more than its registry or its
    /// server's `default_tool_config`, field by field.
    struct ToolSettingsFile as "tool settings" {
        /// The tool.
        name: ToolName; required,
        /// Calls of it that may run at the same time.
        max_instances: NonZeroU32,
        /// How long one call may take.
        timeout: HumanDuration,
        /// Whether calls may overlap. By default those of MCP tools may, those of scripts may not.
        parallel_capable: bool,
        /// `strict` takes nothing from a server's `default_tool_config` for this tool.
        mode: ModeName,
        /// What a caller must be allowed to do, as `resource:action`. Without it a server's tool demands
        /// `{server}:{tool}`, and one's own `tools:{name}` where its registry says nothing either.
        permissions: Vec<At<Permission>>,
        /// What kind of tool it is. A query counts as harmless; a mutation is never cached.
        category: CategoryName,
        /// Whether calling it twice is as good as calling it once. Only such a tool is ever retried.
        idempotent: bool,
        /// Whether a result may be served again.
        cacheable: bool,
        /// For how long.
        cache_ttl: HumanDuration,
        /// How often one caller may call it.
        rate_limit: RateLimitFile,
        /// Words to find it by.
        tags: Vec<At<String>>,
        /// What often makes sense after it; callers are told.
        follow_ups: Vec<At<FollowUpFile>>,
    }
}

keys! {
    /// A step that often makes sense after a tool.
    struct FollowUpFile as "follow-up" {
        /// The tool, or a word for what to do.
        action: String; required,
        /// How urgent it is.
        priority: PriorityName = "medium",
        /// What it is for.
        description: String,
        /// What has to come before it.
        after: Vec<At<String>>,
    }
}

choice! {
    /// How urgent a step is.
    enum PriorityName as "a priority" {
        /// At once.
        Critical = "critical",
        /// Soon.
        High = "high",
        /// In its turn.
        Medium = "medium",
        /// When there is time.
        Low = "low",
    }
}

choice! {
    /// How a token is come by.
    enum GrantName as "a grant" {
        /// A person logs in with a browser.
        AuthorizationCode = "authorization_code",
        /// Toolgate logs in by itself, as the client.
        ClientCredentials = "client_credentials",
    }
}

keys! {
    /// How a server is logged in to with OAuth 2.1. Without a client, Toolgate registers itself.
    struct OauthFile as "oauth" {
        /// How a token is come by.
        grant: GrantName = "authorization_code",
        /// The client, where one was registered beforehand.
        client_id ("clientId"): Text,
        /// Its secret.
        client_secret ("clientSecret"): Text,
        /// Its private key as PEM, in the place of a secret, for `client_credentials`.
        private_key: Text,
        /// The `https://` address of a document that describes the client, for authorization
        /// servers that read it there. Used where there is no `client_id`.
        client_metadata_url: Text,
        /// What is asked for, beside what the server asks for.
        scopes: Vec<At<String>>,
        /// The port of this machine to which the browser comes back. Without it: any that is free.
        redirect_port ("callbackPort"): NonZeroU16,
    }
}

keys! {
    /// Certificates of a private authority, as files in PEM. Paths start at the project folder. A file that
    /// is replaced is used from the next connection on, without a restart.
    struct TlsFile as "tls" {
        /// The authorities to trust, beside those of the platform.
        ca: Text,
        /// The certificate that Toolgate shows to a server that wants one, with those between it and its
        /// authority.
        cert: Text,
        /// The private key of `cert`; it may be in the same file.
        key: Text,
        /// The revocation lists of the authorities in `ca`. Their servers are refused when they are on it,
        /// and when their authority has no list here or one that is out of date.
        crl: Text,
    }
}

keys! {
    /// Limits for the tools of a server that have no settings of their own.
    struct DefaultToolFile as "default_tool_config" {
        /// Calls of one tool that may run at the same time.
        max_instances: NonZeroU32 = "5",
        /// How long one call may take.
        timeout: HumanDuration,
        /// Whether calls may overlap.
        parallel_capable: bool = "true",
    }
}

choice! {
    /// What happens to tools that a server offers and the configuration does not name.
    enum ModeName as "a mode" {
        /// They are refused.
        Strict = "strict",
        /// They are taken, with the server's `default_tool_config`.
        Dynamic = "dynamic",
    }
}

choice! {
    /// What becomes of a result that does not fit the schema its tool promised.
    enum OutputValidationName as "a way to validate output" {
        /// The call fails with `invalid_output`.
        Strict = "strict",
        /// The result passes, with a warning in its hints.
        Warn = "warn",
    }
}

choice! {
    /// How a server is reached.
    enum TransportName as "a transport" {
        /// A child process.
        Stdio = "stdio",
        /// HTTP with server-sent events, of the first protocol revision.
        Sse = "sse",
        /// A WebSocket.
        Websocket = "websocket" | "ws",
        /// Streamable HTTP.
        Http = "http" | "streamable_http" | "streamable-http" | "streamableHttp",
    }
}

choice! {
    /// When a server is connected.
    enum StartupName as "a way to start" {
        /// At start; nothing starts without it.
        Required = "required",
        /// At start; without it the rest goes on, and it is tried again.
        Optional = "optional",
        /// On first use.
        Lazy = "lazy",
    }
}

choice! {
    /// The encoding of a child's output.
    enum EncodingName as "an encoding" {
        /// As the protocol says.
        Utf8 = "utf-8" | "utf8" | "UTF-8",
        /// ISO 8859-1.
        Latin1 = "latin-1" | "latin1" | "iso-8859-1",
    }
}

keys! {
    /// An MCP server: a program to start (`command` or `server`) or an address (`url`).
    struct ServerFile as "MCP server" {
        /// Its name: the first half of `{server}__{tool}`. In `mcp.json` the key is the name.
        name: ServerName,
        /// What it is for.
        description: String,
        /// `false` keeps the entry and leaves the server out.
        enabled: bool = "true",
        /// How it is reached. Without it: `stdio` for a program, `websocket` for a `ws://` address,
        /// `http` for any other.
        transport ("type"): TransportName,
        /// The program to start, looked up on `PATH`. No shell is involved.
        command: Text,
        /// Its arguments.
        args: Vec<At<Text>>,
        /// A package in the place of `command`: `@scope/name` runs through `npx -y`, any other name
        /// through `uvx`, or through `pipx run` where there is no `uvx`. `args` follow it.
        server: Text,
        /// Variables for the program. It sees these and a few harmless ones, not yours.
        env: Named<Option<Text>>,
        /// A file with more of them; `env` counts more.
        env_file ("envFile"): OneOrMany<String>,
        /// Its working folder, relative to the project.
        cwd: String = ".",
        /// The encoding of its output.
        encoding: EncodingName = "utf-8",
        /// Its address.
        url: Text,
        /// Headers of every request, such as `Authorization: Bearer ${TOKEN}`.
        headers: Named<Text>,
        /// How it is logged in to, where that needs saying: a server that wants a login mostly says
        /// itself how. `toolgate servers login NAME` does it.
        oauth: OauthFile,
        /// Certificates of a private authority, for an address with `https://` or `wss://`.
        tls: TlsFile,
        /// How long connecting and the handshake may take. The default is a minute for `npx`, `uvx`
        /// and `pipx`, which may have to download first.
        timeout: HumanDuration = "10s",
        /// How long an event stream may be silent.
        sse_read_timeout: HumanDuration = "5m",
        /// Whether its session is ended when we are done.
        terminate_on_close: bool = "true",
        /// How long one request may take.
        request_timeout: HumanDuration = "60s",
        /// Whether what its tools promise of themselves counts: that they only read, that they may
        /// be repeated. A server can promise anything, so by default it does not.
        trusted: bool = "false",
        /// With `false` nothing of it is used before `toolgate servers approve NAME`, neither now
        /// nor what it adds later.
        approved: bool = "true",
        /// What becomes of a result that does not fit the schema its tool promised: `strict` fails the
        /// call with `invalid_output`, `warn` lets it pass with a warning. With `mode: strict` it is
        /// always `strict`.
        output_validation: OutputValidationName = "warn",
        /// Whether its tools are discovered.
        load_tools: bool = "true",
        /// Whether its prompts are discovered.
        load_prompts: bool = "true",
        /// The prompts that may be used. Without it: all.
        prompts: Vec<At<String>>,
        /// Anything for the server itself: it gets this as JSON in the variable `MCP_CONFIG`.
        config: Handed,
        /// What happens to its tools that have no settings: `strict` refuses them, `dynamic` takes
        /// them with `default_tool_config`. Required in `toolbox.mcps`; elsewhere `dynamic` with
        /// the built-in limits.
        mode: ModeName,
        /// Limits for those tools. Required with `mode: dynamic`.
        default_tool_config: DefaultToolFile,
        /// The only tools of it that may be used.
        tool_allowlist: Vec<At<String>>,
        /// Tools of it that may not be used.
        tool_denylist: Vec<At<String>>,
        /// When it is connected. The default is `required`, in `agent.yaml` `lazy`.
        startup: StartupName = "required",
    }
}

/// A server with the variables of its `env_file`, which its other keys may use.
#[derive(Debug, Clone)]
pub(crate) struct ServerEntry {
    pub(crate) file: ServerFile,
    pub(crate) env_file: HashMap<String, FileVariable>,
}

impl Read for ServerEntry {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        cx.keep_secrets_of_server(node);
        let told = cx.problems.len();
        cx.server_env = env_files(node, cx).unwrap_or_default();
        let file = ServerFile::read(node, cx);
        let env_file = std::mem::take(&mut cx.server_env);
        let file = file?;
        // Before anything is told about the lines they stand in.
        for (name, at) in file.env.iter().flat_map(|at| &at.value.0) {
            if let Some(text) = &at.value {
                cx.keep_secret(name, text.expose());
            }
        }
        for (name, at) in file.headers.iter().flat_map(|at| &at.value.0) {
            cx.keep_secret(name, at.value.expose());
        }
        // A server that is left out needs neither its variables nor its files.
        if file.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            cx.problems.truncate(told);
        }
        Some(Self { file, env_file })
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        ServerFile::schema(parts)
    }

    fn label() -> String {
        ServerFile::label()
    }

    fn tables(out: &mut Vec<Table>) {
        ServerFile::tables(out);
    }
}

/// Reads the files that `env_file` names before the rest of the map, since the rest may refer to
/// their variables. `None` where there is no such key.
pub(crate) fn env_files(node: &Node, cx: &mut Context<'_>) -> Option<HashMap<String, FileVariable>> {
    let named = node.get("env_file").or_else(|| node.get("envFile"))?;
    // What is wrong with the value itself is told when the key is read with the others.
    let told = cx.problems.len();
    let paths = OneOrMany::<String>::read(named, cx);
    cx.problems.truncate(told);
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
        /// What the tools have to say of themselves, where they do not say it each.
        contract: ContractName = "standard",
        /// The tools.
        tools: Vec<At<ToolFile>>; required,
    }
}

keys! {
    /// A tool of one's own: a script beside `tools.json`, and this entry.
    struct ToolFile as "tool" {
        /// Its name: letters, digits, `_`, `.` and `-`.
        name: ToolName; required,
        /// What it has to say of itself. Without this key: what its file says.
        contract: ContractName,
        /// What it does, when to use it, what it returns. Models choose by this text.
        description: String; required,
        /// What it is. There is one kind: `local`, a script.
        r#type: ToolKindName = "local",
        /// Its version.
        version: String = "1.0.0",
        /// The JSON Schema of its arguments.
        input_schema ("inputSchema", "parameters", "inputs"): SchemaNode; required,
        /// The JSON Schema of its result.
        output_schema ("outputSchema", "outputs"): SchemaNode,
        /// Where its program is.
        config: ScriptFile,
        /// The same, without `config` around it.
        script_path: String,
        /// The same, without `config` around it.
        entrypoint ("function"): String,
        /// Variables for its program. It sees these and a few harmless ones, not yours.
        env: Named<Option<Text>>,
        /// The memory that each process of its program may use; `32MiB` at least.
        max_memory ("maxMemory"): ByteSize = "1GiB",
        /// How long one call may take.
        timeout: HumanDuration,
        /// Calls of it that may run at the same time, where it is `parallel_capable`.
        max_instances: NonZeroU32 = "5",
        /// Whether calls may overlap.
        parallel_capable ("parallelCapable"): bool = "false",
        /// What a caller must be allowed to do, as `resource:action`.
        permissions: Vec<At<Permission>>,
        /// What kind of tool it is. A mutation is never cached.
        category: CategoryName,
        /// How fast it usually answers; without `timeout` a call may take 1 s, 10 s or 120 s.
        response_time ("responseTime"): ResponseTimeName,
        /// Whether a result may be served again.
        cacheable: bool = "false",
        /// For how long.
        cache_ttl ("cacheTTL", "cacheTtl"): HumanDuration,
        /// Whether calling it twice is as good as calling it once. Only such a tool is ever retried.
        idempotent: bool = "false",
        /// Calls with their results.
        examples: Vec<At<ExampleFile>>,
        /// Words to find it by.
        tags: Vec<At<String>>,
        /// How often one caller may call it.
        rate_limit ("rateLimit"): RateLimitFile,
        /// What follows it, where it is on its way out.
        deprecated: DeprecationFile,
        /// What often makes sense after it; callers are told.
        follow_ups ("followUps"): Vec<At<FollowUpFile>>,
    }
}

choice! {
    /// What a tool has to say of itself.
    enum ContractName as "a contract" {
        /// Its name, its description and the schema of its arguments; the rest has defaults.
        Standard = "standard",
        /// Everything, as `toolgate check --contract full` lists it. A tool that leaves something out is
        /// refused.
        Full = "full",
    }
}

choice! {
    /// What a tool is.
    enum ToolKindName as "a kind of tool" {
        /// A script.
        Local = "local",
    }
}

keys! {
    /// Where a tool's program is.
    struct ScriptFile as "tool config" {
        /// The script, beside `tools.json` or in a folder there. Without it: the tool's name with `.py`.
        script_path ("scriptPath"): String,
        /// The function in it, for a Python file.
        entrypoint ("function"): String = "run",
    }
}

choice! {
    /// What kind of tool it is.
    enum CategoryName as "a category" {
        /// Reads.
        Query = "query",
        /// Changes something.
        Mutation = "mutation",
        /// Works out something from what it is given.
        Analysis = "analysis",
        /// Makes something new.
        Generation = "generation",
    }
}

choice! {
    /// How fast a tool usually answers.
    enum ResponseTimeName as "a response time" {
        /// Under 100 ms.
        Fast = "fast",
        /// Up to a second.
        Medium = "medium",
        /// Longer.
        Slow = "slow",
    }
}

keys! {
    /// A call with its result, for readers and for tests.
    struct ExampleFile as "example" {
        /// What it shows.
        description: String; required,
        /// The arguments.
        params: Free; required,
        /// The result.
        expected_result ("expectedResult"): Free,
    }
}

keys! {
    /// How often one caller may call a tool.
    struct RateLimitFile as "rate_limit" {
        /// Calls per window.
        max_calls ("maxCalls"): NonZeroU32; required,
        /// The length of the window in milliseconds.
        window_ms ("windowMs"): NonZeroU32; required,
    }
}

keys! {
    /// A tool on its way out.
    struct DeprecationFile as "deprecated" {
        /// The version since which it is.
        since: String; required,
        /// The tool to use in its place.
        replacement: ToolName; required,
        /// The day after which it is refused, as `YYYY-MM-DD`.
        removal_date ("removalDate"): String; required,
    }
}

keys! {
    /// `mcp.json`: MCP servers, in the form of VS Code (`servers`, `inputs`), of Claude and Cursor
    /// (`mcpServers`) or of the skill executor (`mcp_servers`). The three keys mean the same.
    struct McpFile as "mcp.json" {
        /// What `${input:ID}` asks the person for.
        inputs: Vec<At<InputEntry>>,
        /// The servers by name.
        servers ("mcpServers", "mcp_servers"): Named<ServerEntry>; required,
    }
}

keys! {
    /// Something the person is asked for when a server starts. The variable `TOOLGATE_INPUT_ID`
    /// (the id in capitals, `-` as `_`) answers it without asking.
    struct InputFile as "input" {
        /// What `${input:ID}` refers to.
        id: String; required,
        /// How it is asked for.
        r#type: InputKindName = "promptString",
        /// The question.
        description: String,
        /// The answer where none is given.
        default: String,
        /// Whether the answer is hidden while it is typed.
        password: bool = "false",
        /// The answers to choose from, for `pickString`.
        options: Vec<At<String>>,
    }
}

/// An input with the answer it has already. Servers are read after it and may refer to it.
#[derive(Debug, Clone)]
pub(crate) struct InputEntry {
    pub(crate) file: InputFile,
    pub(crate) answered: bool,
}

impl Read for InputEntry {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let file = InputFile::read(node, cx)?;
        let id = file.id.as_ref()?.value.clone();
        let given = cx.variable(&variable_of_input(&id)).map(|(value, _)| value.to_owned());
        let value = given.or_else(|| file.default.as_ref().map(|at| at.value.clone()));
        let answered = value.is_some();
        if let Some(value) = value.as_deref().filter(|_| file.password.as_ref().is_some_and(|at| at.value)) {
            cx.hide(value);
        }
        cx.inputs.push(Input { id, value });
        Some(Self { file, answered })
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        InputFile::schema(parts)
    }

    fn label() -> String {
        InputFile::label()
    }

    fn tables(out: &mut Vec<Table>) {
        InputFile::tables(out);
    }
}

choice! {
    /// How an input is asked for.
    enum InputKindName as "a kind of input" {
        /// A line of text.
        PromptString = "promptString",
        /// One of `options`.
        PickString = "pickString",
        /// A command of the editor that wrote the file; here it is a line of text.
        Command = "command",
    }
}
