//! Arguments for connecting other programs and importing their servers.

use clap::{Args, ValueEnum};
use toolgate_config::ClientProgram;
use toolgate_types::profile::ProfileName;

#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// Program to connect
    #[arg(value_name = "CLIENT")]
    pub(crate) client: ConnectClient,
    /// URL of a running gateway [default: the client starts `toolgate stdio` itself]
    #[arg(long, value_name = "URL", conflicts_with = "remove", value_parser = web_address)]
    pub(crate) http: Option<String>,
    /// Profile of toolgate.yaml that selects the tools [default: none]
    #[arg(long, value_name = "NAME", conflicts_with = "remove")]
    pub(crate) profile: Option<ProfileName>,
    /// Config of the client to change: yours, or that of the current folder
    #[arg(long, value_name = "WHOM", default_value = "user")]
    pub(crate) scope: ConnectScope,
    /// Name of the server entry
    #[arg(long, default_value = "toolgate")]
    pub(crate) name: String,
    /// Remove the entry
    #[arg(long)]
    pub(crate) remove: bool,
    /// Overwrite or remove an entry that does not belong to Toolgate
    #[arg(long)]
    pub(crate) force: bool,
    /// Move the servers of the client to mcp.json, so that it reaches them only through Toolgate
    #[arg(long, conflicts_with = "remove")]
    pub(crate) take_over: bool,
    /// With --take-over: overwrite servers of the same name in mcp.json
    #[arg(long, requires = "take_over")]
    pub(crate) replace: bool,
    /// Undo the last --take-over of the client
    #[arg(long, conflicts_with_all = ["remove", "take_over", "http", "profile"])]
    pub(crate) undo: bool,
    /// Show the difference, write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ConnectClient {
    #[value(name = "vscode")]
    VsCode,
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    Codex,
    Gemini,
    Windsurf,
    Zed,
    Cline,
    Goose,
}

impl ConnectClient {
    pub(crate) fn client(self) -> ClientProgram {
        match self {
            Self::VsCode => ClientProgram::VsCode,
            Self::ClaudeCode => ClientProgram::ClaudeCode,
            Self::ClaudeDesktop => ClientProgram::ClaudeDesktop,
            Self::Cursor => ClientProgram::Cursor,
            Self::Codex => ClientProgram::Codex,
            Self::Gemini => ClientProgram::Gemini,
            Self::Windsurf => ClientProgram::Windsurf,
            Self::Zed => ClientProgram::Zed,
            Self::Cline => ClientProgram::Cline,
            Self::Goose => ClientProgram::Goose,
        }
    }

    /// Returns the client, if it can be connected.
    pub(crate) fn find(client: ClientProgram) -> Option<Self> {
        Self::value_variants().iter().copied().find(|known| known.client() == client)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ConnectScope {
    User,
    Project,
}

fn web_address(text: &str) -> Result<String, String> {
    let known = text.starts_with("http://") || text.starts_with("https://");
    if known { Ok(text.to_owned()) } else { Err("the URL must start with http:// or https://".to_owned()) }
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// File, or one of: vscode, claude-desktop, claude-code, cursor, codex, gemini, windsurf, zed, cline,
    /// goose, holodeck
    #[arg(value_name = "FILE|CLIENT", required_unless_present = "all")]
    pub(crate) from: Option<String>,
    /// Import from every client that is configured here
    #[arg(long, conflicts_with = "from")]
    pub(crate) all: bool,
    /// Move the servers: remove them from the client, and add Toolgate there
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Show the result, write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite servers of the same name, which are skipped otherwise
    #[arg(long)]
    pub(crate) replace: bool,
}
