//! An MCP server: where it is, how it is started, what may be used of it.
//!
//! Every dialect of configuration becomes this one form. Invariant: a `ServerSpec` can be connected
//! to as it is; nothing in it is left to be parsed, looked up or defaulted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::oauth::Oauth;
use crate::{HumanDuration, Secret, ServerName, Text, ToolLimits};

/// Programs that run a package, and download it the first time.
const DOWNLOADERS: [&str; 5] = ["npx", "uvx", "pipx", "bunx", "pnpx"];

/// One MCP server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerSpec {
    /// Its name in the configuration.
    pub name: ServerName,
    /// What it is for, in the words of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How to reach it.
    #[serde(flatten)]
    pub transport: Transport,
    /// When it is connected, and what it means when that fails.
    pub startup: Startup,
    /// What happens to its tools that have no settings of their own.
    #[serde(flatten)]
    pub mode: ToolMode,
    /// Which of its tools may be used.
    #[serde(flatten)]
    pub tools: ToolFilter,
    /// Whether what its tools promise of themselves counts: that they only read, or may be repeated.
    pub trusted: bool,
    /// Whether its tools may be used before a person has looked at them.
    pub approved: bool,
    /// Whether a result that does not fit its tool's schema is refused.
    #[serde(rename = "output_validation", serialize_with = "output_validation")]
    pub strict_output: bool,
    /// Whether its tools are discovered.
    pub load_tools: bool,
    /// Whether its prompts are discovered.
    pub load_prompts: bool,
    /// The prompts that may be used; all where it is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<Vec<String>>,
    /// How long connecting and the handshake may take.
    pub timeout: HumanDuration,
    /// How long one request may take.
    pub request_timeout: HumanDuration,
    /// JSON that the server gets in its `MCP_CONFIG` variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Secret>,
}

/// As the configuration writes it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn output_validation<S: serde::Serializer>(strict: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *strict { "strict" } else { "warn" })
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "transport", rename_all = "snake_case")]
pub enum Transport {
    /// A child process that speaks on its standard input and output.
    Stdio(Stdio),
    /// The HTTP+SSE transport of the first protocol revision.
    Sse(Remote),
    /// A WebSocket.
    Websocket(Remote),
    /// Streamable HTTP.
    Http(Remote),
}

impl Transport {
    /// Its name in configuration, logs and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Sse(_) => "sse",
            Self::Websocket(_) => "websocket",
            Self::Http(_) => "http",
        }
    }

    /// Where the server is, for messages: its address or its command line.
    pub fn place(&self) -> String {
        match self {
            Self::Stdio(stdio) => {
                let words = std::iter::once(&stdio.command).chain(&stdio.args).map(Text::shown);
                words.collect::<Vec<_>>().join(" ")
            }
            Self::Sse(remote) | Self::Websocket(remote) | Self::Http(remote) => remote.url.shown().to_owned(),
        }
    }
}

/// A server that is a child process. No shell is involved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stdio {
    /// The program, looked up on `PATH` unless it holds a `/`.
    pub command: Text,
    /// Its arguments.
    pub args: Vec<Text>,
    /// Its environment, beside the few variables that every child gets; `None` keeps one away.
    pub env: BTreeMap<String, Option<Text>>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// The encoding of its output.
    pub encoding: Encoding,
    /// What is started where `command` is not to be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
}

impl Stdio {
    /// Whether the program may have to download a package before the server starts.
    pub fn downloads(&self) -> bool {
        let command = self.command.expose();
        DOWNLOADERS.contains(&command.rsplit('/').next().unwrap_or(command))
    }
}

/// Another program that does the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fallback {
    /// The program.
    pub command: Text,
    /// All of its arguments.
    pub args: Vec<Text>,
}

/// A server at an address.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remote {
    /// Where it is.
    pub url: Text,
    /// Headers of every request.
    pub headers: BTreeMap<String, Text>,
    /// How it is logged in to, where the configuration says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth: Option<Oauth>,
    /// Whom to trust beside the authorities of the platform, and who we are.
    #[serde(skip_serializing_if = "Tls::is_default")]
    pub tls: Tls,
    /// How long a stream may be silent.
    pub sse_read_timeout: HumanDuration,
    /// Whether the session is ended on the server when we are done.
    pub terminate_on_close: bool,
}

/// `tls` of a server: files with certificates, in PEM.
///
/// They are read when a connection is made, so that renewed ones are used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// Authorities to trust, beside those of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Who we are.
    #[serde(flatten)]
    pub identity: Option<Identity>,
    /// What the authorities in `ca` have revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<PathBuf>,
}

impl Tls {
    /// Whether there is nothing but the platform.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A certificate of ours with its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// The certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// Its private key; it may be in the same file.
    pub key: PathBuf,
}

/// The encoding of a child's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Encoding {
    /// UTF-8, as the protocol says.
    #[serde(rename = "utf-8")]
    Utf8,
    /// ISO 8859-1, of some older programs.
    #[serde(rename = "latin-1")]
    Latin1,
}

/// When a server is connected, and what it means when that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Startup {
    /// At start; the start fails without it.
    Required,
    /// At start; without it the rest goes on and it is tried again in the background.
    Optional,
    /// On first use.
    Lazy,
}

/// What happens to tools that a server offers and the configuration does not name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ToolMode {
    /// They are refused.
    Strict,
    /// They are taken, with these limits.
    Dynamic {
        /// For what a tool's own settings leave open.
        default_tool_config: ToolLimits,
    },
}

/// Which tools of a server may be used.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ToolFilter {
    /// Only these, where it is given.
    #[serde(rename = "tool_allowlist", skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Never these.
    #[serde(rename = "tool_denylist", skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}
