//! Files of Toolgate: the sections at the top of each. The keys of a section are in [`crate::feature`].
//!
//! The order of the sections here is their order on the reference page.

use crate::feature::agent::AgentSection;
use crate::feature::audit::AuditFile;
use crate::feature::callers::CallerFile;
use crate::feature::cluster::ClusterFile;
use crate::feature::code_execution::CodeExecutionFile;
use crate::feature::credentials::CredentialsFile;
use crate::feature::egress::EgressFile;
use crate::feature::groups::GroupFile;
use crate::feature::human_input::HumanInputFile;
use crate::feature::inputs::InputEntry;
use crate::feature::openapi::ApiFile;
use crate::feature::profiles::ProfileFile;
use crate::feature::registries::RegistriesFile;
use crate::feature::results::ResultsFile;
use crate::feature::serve::ServeFile;
use crate::feature::servers::ServerEntry;
use crate::feature::telemetry::TelemetryFile;
use crate::feature::toolbox::ToolboxFile;
use crate::feature::tools::{ContractName, ToolFile};
use crate::feature::web_search::WebSearchFile;
use crate::keys::{NamedMap, OneOrMany, Spanned, keys};

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
        /// Groups of callers, by name. See docs/policy.md.
        groups: NamedMap<GroupFile>,
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
        /// Encryption of stored credentials.
        credentials: CredentialsFile,
        /// Listener, TLS, authentication and limits of `toolgate serve`.
        serve: ServeFile,
        /// Several replicas that share their state in PostgreSQL. See docs/cluster.md.
        cluster: ClusterFile,
        /// The execution log.
        audit: AuditFile,
    }
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
    /// `mcp.json`: MCP servers, in the format of VS Code (`servers`, `inputs`), of Claude and Cursor
    /// (`mcpServers`) or of the skill executor (`mcp_servers`). The three keys are equivalent.
    struct McpFile as "mcp.json" {
        /// Values to ask the user for. `${input:ID}` refers to them.
        inputs: Vec<Spanned<InputEntry>>,
        /// MCP servers by name.
        servers ("mcpServers", "mcp_servers"): NamedMap<ServerEntry>; required,
    }
}
