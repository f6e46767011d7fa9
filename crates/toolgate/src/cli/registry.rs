//! Arguments for changing tools and servers: add, update, approve, remove.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServersArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServersCommand>,
    /// Stay connected and print changes until Ctrl-C; with `--json` one object per line
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// List the servers with their state
    #[command(after_help = "Example:\n  toolgate servers list --json\n\nThe same as `toolgate servers`.")]
    List,
    /// Show the tools and recent stderr of a server
    #[command(after_help = "Example:\n  toolgate servers show files")]
    Show(ServerArgs),
    /// Approve changed and new tools of a server
    #[command(after_help = "\
Examples:
  toolgate servers approve tickets                 show the changes and ask
  toolgate servers approve tickets close_ticket    one tool
  toolgate servers approve tickets --yes           without a question, for scripts

Approved definitions are written to toolgate.lock; commit that file. Unusable definitions (hidden
characters, unsafe schemas) cannot be approved.

Exit codes: 0 approved or nothing to approve, 1 not approved, 78 invalid configuration.")]
    Approve(ApproveArgs),
    /// Reject changed and new tools of a server
    #[command(after_help = "\
Examples:
  toolgate servers reject tickets close_ticket        show the change and ask
  toolgate servers reject tickets close_ticket --yes  without a question, for scripts

A rejected definition stays quarantined until the server changes it again; `servers approve` with the name
of the tool approves it nevertheless. Rejections are written to toolgate.lock; commit that file.

Exit codes: 0 rejected or nothing to reject, 1 not rejected, 78 invalid configuration.")]
    Reject(ApproveArgs),
    /// Log in to a server with a browser
    #[command(after_help = "\
Examples:
  toolgate servers login tickets
  toolgate servers login tickets --as ann            for a server with `auth: caller`
  BROWSER=firefox toolgate servers login tickets

The login URL is also printed, for any browser on this machine. The command waits five minutes for the
login. Tokens are stored encrypted in .toolgate/credentials, and are refreshed automatically.

Exit codes: 0 logged in, 1 failed, 78 invalid configuration, 130 interrupted.")]
    Login(LoginArgs),
    /// Revoke and delete the stored tokens of a server
    #[command(after_help = "\
Examples:
  toolgate servers logout tickets
  toolgate servers logout tickets --as ann

Exit codes: 0 done, 1 failed, 78 invalid configuration.")]
    Logout(LoginArgs),
    /// Add a server to mcp.json
    #[command(after_help = "\
Examples:
  toolgate servers add files -- npx -y @modelcontextprotocol/server-filesystem .
  toolgate servers add tickets --url https://tickets.example.com/mcp \\
    --header 'Authorization=Bearer ${TOKEN}'
  toolgate servers add web --env 'API_KEY=${API_KEY}' --mode dynamic -- uvx web-server
  toolgate servers add web --from entry.json     the entry as written in mcp.json; `-` is stdin

`${VAR}` is written as it is, which keeps keys and tokens out of the file. Comments, order and
formatting of mcp.json are kept. An existing server is not changed.

Exit codes: 0 added, 1 rejected or not written, 2 wrong usage, 78 invalid configuration.")]
    Add(AddServerArgs),
    /// Change a server in mcp.json
    #[command(after_help = "\
Examples:
  toolgate servers update web --set request_timeout=10s
  toolgate servers update web --set 'env.API_KEY=${API_KEY}' --unset env.OLD_KEY
  toolgate servers update web --from entry.json     replace the entry

Exit codes: 0 changed, 1 rejected or not written, 2 wrong usage, 78 invalid configuration.")]
    Update(UpdateArgs),
    /// Remove a server from mcp.json
    #[command(after_help = "\
Examples:
  toolgate servers remove web
  toolgate servers remove web --yes    without a question, for scripts

Exit codes: 0 removed, 1 not removed, 2 wrong usage, 78 invalid configuration.")]
    Remove(RemoveArgs),
}

/// Options of every change.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Change only if the registry is at this revision, as printed by an earlier change [default: any]
    #[arg(long, value_name = "REVISION")]
    pub(crate) if_revision: Option<toolgate_store::store::Revision>,
}

#[derive(Debug, Args)]
pub(crate) struct AddServerArgs {
    /// Name of the server
    pub(crate) name: String,
    /// Read the entry from a file with a JSON object, or from stdin with `-`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "command"])]
    pub(crate) from: Option<PathBuf>,
    /// URL of a server that is reached over HTTP
    #[arg(long, conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// Header sent with every request; can be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "url")]
    pub(crate) headers: Vec<String>,
    /// Environment variable of the server process; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Allow all tools (dynamic) or only configured ones (strict) [default: as configured]
    #[arg(long, value_parser = ["dynamic", "strict"])]
    pub(crate) mode: Option<String>,
    /// Set any other key of the entry; the value is parsed as JSON if possible; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Command that starts the server, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AddToolArgs {
    /// Python file (`.py`) whose functions are added, or the name of one tool
    #[arg(value_name = "FILE|NAME", required_unless_present = "from")]
    pub(crate) name: Option<String>,
    /// Functions of the file to add [default: all public functions]
    #[arg(value_name = "FUNCTION", conflicts_with_all = ["from", "script", "description", "input_schema"])]
    pub(crate) functions: Vec<String>,
    /// Show the entries of a Python file and change nothing
    #[arg(long, conflicts_with_all = ["from", "script", "description", "input_schema"])]
    pub(crate) preview: bool,
    /// Update tools of a Python file that exist already
    #[arg(long, conflicts_with_all = ["from", "script", "description", "input_schema"])]
    pub(crate) replace: bool,
    /// Read the entry from a file with a JSON object, or from stdin with `-`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["script", "description", "input_schema"])]
    pub(crate) from: Option<PathBuf>,
    /// Script, in the folder of tools.json [default: the tool name with `.py`]
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<String>,
    /// Purpose of the tool, when to use it, and what it returns; required with NAME
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// JSON Schema of the arguments: a file, or the schema itself [default: any object]
    #[arg(long, value_name = "FILE|JSON")]
    pub(crate) input_schema: Option<String>,
    /// Set any other key of the entry; the value is parsed as JSON if possible; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NewToolArgs {
    /// Name of the tool and of its file
    pub(crate) name: String,
    /// Language of the tool
    #[arg(long, value_name = "LANGUAGE", default_value = "python")]
    pub(crate) lang: Language,
    /// Checkout or git URL of Toolgate, where toolgate-sdk is; required for Rust
    #[arg(long, value_name = "FOLDER|URL", env = "TOOLGATE_SDK", hide_env_values = true)]
    pub(crate) sdk: Option<String>,
    /// Purpose of the tool, when to use it, and what it returns [default: a placeholder]
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// A function in a Python file, kept loaded between calls
    Python,
    /// A shell script, started for every call
    Sh,
    /// A crate with a typed tool, run as an MCP server
    Rust,
}

#[derive(Debug, Args)]
pub(crate) struct TestToolsArgs {
    /// Name of the tool [default: all your own tools]
    pub(crate) name: Option<String>,
    /// Caller that makes the calls
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    /// Name of the tool or server
    pub(crate) name: String,
    /// Replace the entry with a JSON object from a file, or from stdin with `-`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["set", "unset"], required_unless_present_any = ["set", "unset"])]
    pub(crate) from: Option<PathBuf>,
    /// Set a key; `a.b` is key `b` in `a`; the value is parsed as JSON if possible; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Remove a key; can be repeated
    #[arg(long = "unset", value_name = "KEY")]
    pub(crate) unset: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Name of the tool or server
    pub(crate) name: String,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Name of the server
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// Name of the server
    pub(crate) name: String,
    /// Caller that the login belongs to
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Name of the server
    pub(crate) name: String,
    /// Tools, by the server's names for them [default: all that wait for approval]
    pub(crate) tools: Vec<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}
