//! An MCP server: its transport, its tools and its limits.
//!
//! Every dialect of configuration is converted to this one form. Invariant: a `ServerSpec` is complete; connecting
//! needs no further parsing, lookup or defaults.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;

use crate::network::Network;
use crate::oauth::OauthConfig;
use crate::{ConfigString, HumanDuration, Secret, ServerName, ToolLimits};

/// Package runners; they may download a package on first use.
const DOWNLOADERS: [&str; 5] = ["npx", "uvx", "pipx", "bunx", "pnpx"];

/// Shorter settings are not masked elsewhere: they are words such as `debug`.
const MIN_SECRET_LENGTH: usize = 6;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerSpec {
    /// Name in the configuration.
    pub name: ServerName,
    /// Purpose of the server, as described in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Transport and its settings.
    #[serde(flatten)]
    pub transport: Transport,
    /// Time of connecting, and the effect of a failure.
    pub startup: StartupMode,
    /// Handling of tools without settings of their own.
    #[serde(flatten)]
    pub mode: ToolMode,
    /// Tools that may be used.
    #[serde(flatten)]
    pub tools: ToolFilter,
    /// Trust the annotations of its tools, such as read-only and idempotent.
    pub trusted: bool,
    /// Allow its tools before a person has approved their definitions.
    pub approved: bool,
    /// Reject results that do not match their tool's output schema, instead of only warning.
    #[serde(rename = "output_validation", serialize_with = "output_validation")]
    pub strict_output: bool,
    /// True if its tools are discovered.
    pub load_tools: bool,
    /// True if its prompts are discovered.
    pub load_prompts: bool,
    /// Prompts that may be used. `None` allows all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<Vec<String>>,
    /// Deadline of connecting, handshake included.
    pub timeout: HumanDuration,
    /// Deadline of one request.
    pub request_timeout: HumanDuration,
    /// Connections to the server, and the protocol revision on them.
    #[serde(flatten)]
    pub connections: ConnectionPolicy,
    /// JSON passed to the server in the environment variable `MCP_CONFIG`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Secret>,
    /// Credentials that the server gets.
    #[serde(flatten)]
    pub auth: AuthPolicy,
}

/// Serializes the flag as the configuration spells it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn output_validation<S: serde::Serializer>(strict: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *strict { "strict" } else { "warn" })
}

/// Transport of a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "transport", rename_all = "snake_case")]
pub enum Transport {
    /// Child process that speaks MCP on stdin and stdout.
    Stdio(StdioTransport),
    /// HTTP+SSE, the transport of the first protocol revision.
    Sse(RemoteTransport),
    Websocket(RemoteTransport),
    /// Streamable HTTP.
    Http(RemoteTransport),
}

impl Transport {
    /// Name in configuration, logs and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Sse(_) => "sse",
            Self::Websocket(_) => "websocket",
            Self::Http(_) => "http",
        }
    }

    /// Returns the strings of the settings that are not shown, and their words, so that they can be masked in the
    /// output of the server.
    pub fn secrets(&self) -> Vec<Secret> {
        let hidden: Vec<&ConfigString> = match self {
            Self::Stdio(stdio) => stdio.args.iter().chain(stdio.env.values().flatten()).collect(),
            Self::Sse(remote) | Self::Websocket(remote) | Self::Http(remote) => {
                std::iter::once(&remote.url).chain(remote.headers.values()).collect()
            }
        };
        let mut secrets = Vec::new();
        for text in hidden.into_iter().filter(|text| text.expose() != text.redacted()) {
            let words = text.expose().split([' ', '=', '@', '/', ':', '?', '&']);
            let words = words.filter(|word| !text.redacted().contains(word)).chain([text.expose()]);
            secrets.extend(words.filter(|word| word.len() >= MIN_SECRET_LENGTH).map(Secret::new));
        }
        secrets
    }

    /// Redacted URL or command line, for messages.
    pub fn location(&self) -> String {
        match self {
            Self::Stdio(stdio) => {
                let words = std::iter::once(&stdio.command).chain(&stdio.args).map(ConfigString::redacted);
                words.collect::<Vec<_>>().join(" ")
            }
            Self::Sse(remote) | Self::Websocket(remote) | Self::Http(remote) => {
                remote.url.redacted().to_owned()
            }
        }
    }
}

/// Server that is a child process, started without a shell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StdioTransport {
    /// Program, looked up on `PATH` unless it contains a `/`.
    pub command: ConfigString,
    pub args: Vec<ConfigString>,
    /// Environment variables, besides the few that every child process gets. `None` removes a variable.
    pub env: BTreeMap<String, Option<ConfigString>>,
    /// Working folder.
    pub cwd: PathBuf,
    /// Encoding of its output.
    pub encoding: OutputEncoding,
    /// Command started if `command` is not found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackCommand>,
}

impl StdioTransport {
    /// Placeholder in `env` for the ID of the caller.
    pub const CALLER: &str = "{caller}";

    /// Returns true if the environment of the program depends on the caller.
    pub fn is_per_caller(&self) -> bool {
        self.env.values().flatten().any(|value| value.expose().contains(Self::CALLER))
    }

    /// Returns true if the program may download a package before the server starts.
    pub fn may_download(&self) -> bool {
        let command = self.command.expose();
        DOWNLOADERS.contains(&command.rsplit('/').next().unwrap_or(command))
    }
}

/// Alternative command with the same effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FallbackCommand {
    pub command: ConfigString,
    /// All arguments; those of the first command are not used.
    pub args: Vec<ConfigString>,
}

/// Server reached over the network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RemoteTransport {
    pub url: ConfigString,
    /// Headers of every request.
    pub headers: BTreeMap<String, ConfigString>,
    /// OAuth settings, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OauthConfig>,
    /// Additional certificate authorities, and our client certificate.
    #[serde(skip_serializing_if = "UpstreamTls::is_default")]
    pub tls: UpstreamTls,
    /// Networks it may be in, besides the public internet. `None`: the URL decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_networks: Option<Vec<Network>>,
    /// Longest time without an event on a stream before it counts as dead.
    pub sse_read_timeout: HumanDuration,
    /// True if the session on the server is ended (HTTP `DELETE`) when we disconnect.
    pub terminate_on_close: bool,
    /// True if the configuration does not name the transport: HTTP+SSE is tried if Streamable HTTP is refused.
    #[serde(skip)]
    pub may_be_sse: bool,
}

/// `tls` of a server: PEM files.
///
/// Read for every new connection, so that renewed certificates take effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UpstreamTls {
    /// Authorities to trust, besides those of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Our client certificate.
    #[serde(flatten)]
    pub identity: Option<ClientIdentity>,
    /// Certificate revocation list of the authorities in `ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<PathBuf>,
}

impl UpstreamTls {
    /// True if only the platform's authorities are used.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Client certificate and key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientIdentity {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key; may be in the same file.
    pub key: PathBuf,
}

/// Rules for the connections to a server: their owners, number and lifetime.
///
/// Values that equal the default are not serialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ConnectionPolicy {
    /// Owners of connections.
    #[serde(skip_serializing_if = "Isolation::is_default")]
    pub isolation: Isolation,
    /// Idle time of a connection of a caller until it is closed.
    #[serde(skip_serializing_if = "is_default_idle_timeout")]
    pub idle_timeout: HumanDuration,
    /// Maximum number of connections of callers, besides the one that the lists are read from.
    #[serde(skip_serializing_if = "is_default_max_connections")]
    pub max_connections: NonZeroU32,
    /// Protocol revision. `None` negotiates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolRevision>,
    /// Place of its processes in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

const DEFAULT_IDLE_TIMEOUT: HumanDuration = HumanDuration::from_secs(600);
const DEFAULT_MAX_CONNECTIONS: NonZeroU32 = NonZeroU32::new(32).expect("not zero");

impl Default for ConnectionPolicy {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            protocol: None,
            placement: None,
        }
    }
}

/// Place of the processes of a server in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Each replica has its own.
    Each,
}

fn is_default_idle_timeout(timeout: &HumanDuration) -> bool {
    *timeout == DEFAULT_IDLE_TIMEOUT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_default_max_connections(count: &NonZeroU32) -> bool {
    *count == DEFAULT_MAX_CONNECTIONS
}

/// Owner of a connection to a server. Other owners never use it, so they do not see the state that it left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Each caller has its own.
    #[default]
    Caller,
    /// Each session of a caller has its own. Calls without a session use the one of the caller.
    Session,
    /// All callers share one.
    Shared,
}

impl Isolation {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Revision of the protocol, as the configuration names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ProtocolRevision {
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

/// Credentials of a server: the owner of them, and the place of a static one.
///
/// Values that equal the default are not serialized.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuthPolicy {
    /// Owner of the credentials.
    #[serde(rename = "auth", skip_serializing_if = "AuthMode::is_default")]
    pub mode: AuthMode,
    /// Place of a static credential. `None`: the header `Authorization`, as a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialTarget>,
    /// True if the server gets the token that the caller showed to the gateway.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forward: bool,
}

impl AuthPolicy {
    /// Returns true if each caller has its own credentials.
    pub fn is_per_caller(&self) -> bool {
        self.mode == AuthMode::Caller
    }
}

/// Returns true if an audience is the URL of a server. Only a trailing slash makes no difference.
pub fn is_same_audience(audience: &str, url: &str) -> bool {
    audience.trim_end_matches('/') == url.trim_end_matches('/')
}

/// Owner of the credentials that a server gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    /// All callers share those of the configuration, or the login of the owner.
    #[default]
    Shared,
    /// Each caller has its own.
    Caller,
}

impl AuthMode {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Place of a static credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialTarget {
    /// Header of every request.
    Header(String),
    /// Environment variable of the child process.
    Env(String),
}

/// Encoding of a child process's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OutputEncoding {
    /// UTF-8, as the protocol demands.
    #[serde(serialize_with = "utf_8")]
    Utf8,
    /// Another one, by its name in the Encoding Standard, such as `windows-1252`.
    Named(&'static str),
}

/// Serializes UTF-8 as the configuration spells it.
fn utf_8<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("utf-8")
}

/// Time of connecting, and the effect of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StartupMode {
    /// At startup; the gateway does not start without it.
    Required,
    /// At startup, with a wait for it; if it fails, the gateway starts without it and retries in the background.
    Eager,
    /// At startup, with a short wait; the gateway connects in the background.
    Optional,
    /// On first use.
    Lazy,
}

/// Handling of tools that a server offers and the configuration does not name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ToolMode {
    /// They are rejected.
    Strict,
    /// They are accepted, with these limits.
    Dynamic {
        /// Limits for every value that a tool's own settings leave open.
        default_tool_config: ToolLimits,
    },
}

/// Tools of a server that may be used.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ToolFilter {
    /// If given, only these.
    #[serde(rename = "tool_allowlist", skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Never these, even if allowed.
    #[serde(rename = "tool_denylist", skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_settings_are_secrets() {
        let env =
            [("MODE", ConfigString::plain("production")), ("KEY", ConfigString::hidden("plain-secret"))];
        let stdio = StdioTransport {
            command: ConfigString::plain("serve"),
            args: vec![
                ConfigString::new("--token=abcdefg", "--token=${TOKEN}"),
                ConfigString::plain("--verbose"),
            ],
            env: env.map(|(name, value)| (name.to_owned(), Some(value))).into(),
            cwd: PathBuf::new(),
            encoding: OutputEncoding::Utf8,
            fallback: None,
        };
        let secrets = Transport::Stdio(stdio).secrets();
        let secrets: Vec<_> = secrets.iter().map(Secret::expose).collect();
        assert_eq!(secrets, ["abcdefg", "--token=abcdefg", "plain-secret", "plain-secret"]);
    }
}
