//! Flags of what other programs have: connecting them, and taking over what they know.

use clap::{Args, ValueEnum};
use toolgate_config::Client;
use toolgate_types::profile::ProfileName;

#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The program to connect
    #[arg(value_name = "CLIENT")]
    pub(crate) client: ConnectClient,
    /// Let it send requests to this address, instead of starting a process
    #[arg(long, value_name = "URL", conflicts_with = "remove", value_parser = web_address)]
    pub(crate) http: Option<String>,
    /// Let it see a profile of toolgate.yaml
    #[arg(long, value_name = "NAME", conflicts_with = "remove")]
    pub(crate) profile: Option<ProfileName>,
    /// For you everywhere, or for all who work in the current folder
    #[arg(long, value_name = "WHOM", default_value = "user")]
    pub(crate) scope: ConnectScope,
    /// The name of the entry
    #[arg(long, default_value = "toolgate")]
    pub(crate) name: String,
    /// Take the entry out again
    #[arg(long)]
    pub(crate) remove: bool,
    /// Overwrite or take out an entry that is not Toolgate's
    #[arg(long)]
    pub(crate) force: bool,
    /// Show the difference, and write nothing
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
}

impl ConnectClient {
    pub(crate) fn client(self) -> Client {
        match self {
            Self::VsCode => Client::VsCode,
            Self::ClaudeCode => Client::ClaudeCode,
            Self::ClaudeDesktop => Client::ClaudeDesktop,
            Self::Cursor => Client::Cursor,
            Self::Codex => Client::Codex,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ConnectScope {
    User,
    Project,
}

fn web_address(text: &str) -> Result<String, String> {
    let known = text.starts_with("http://") || text.starts_with("https://");
    if known { Ok(text.to_owned()) } else { Err("an address starts with http:// or https://".to_owned()) }
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// A file, or one of: vscode, claude-desktop, claude-code, cursor, codex, goose, holodeck
    #[arg(value_name = "FILE|CLIENT")]
    pub(crate) from: String,
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite servers of the same name; they are left alone otherwise
    #[arg(long)]
    pub(crate) replace: bool,
}
