//! Flags of what changes tools and servers: adding, changing, approving, removing.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServersArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServersCommand>,
    /// Stay connected and tell what changes, until Ctrl-C; with `--json` an object on each line
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Show one server: what it offers, what it last wrote to stderr
    #[command(after_help = "Example:\n  toolgate servers show files")]
    Show(ServerArgs),
    /// Let through what a server has changed or added since it was approved or first seen
    #[command(after_help = "\
Examples:
  toolgate servers approve tickets                 show what waits, and ask
  toolgate servers approve tickets close_ticket    one tool of it
  toolgate servers approve tickets --yes           without asking, for scripts

What is approved is written to toolgate.lock, which belongs to the project. Definitions that are of
no use to anyone (hidden characters, unsafe schemas) cannot be approved.

Exit codes: 0 approved or nothing to approve, 1 not approved, 78 configuration refused.")]
    Approve(ApproveArgs),
    /// Log in to a server that wants it, with a browser
    #[command(after_help = "\
Examples:
  toolgate servers login tickets
  BROWSER=firefox toolgate servers login tickets

The address of the login is printed, too, for a browser of your choice on this machine; it waits
for five minutes. Tokens are kept for you alone, under $XDG_STATE_HOME or ~/.local/state, and are
renewed by themselves as long as the server lets them.

Exit codes: 0 logged in, 1 failed, 78 configuration refused, 130 interrupted.")]
    Login(ServerArgs),
    /// Forget the tokens of a server
    #[command(after_help = "Example:\n  toolgate servers logout tickets")]
    Logout(ServerArgs),
    /// Add a server to mcp.json
    #[command(after_help = "\
Examples:
  toolgate servers add files -- npx -y @modelcontextprotocol/server-filesystem .
  toolgate servers add tickets --url https://tickets.example.com/mcp --header 'Authorization=Bearer ${TOKEN}'
  toolgate servers add web --env 'API_KEY=${API_KEY}' --mode dynamic -- uvx web-server
  toolgate servers add web --from entry.json     its entry as mcp.json has it; `-` is stdin

`${VAR}` stays as it is written, so keys and tokens stay out of the file. Comments, order and formatting
of the file stay, too. A server that is already there is left alone.

Exit codes: 0 added, 1 refused or not kept, 2 wrong usage, 78 configuration refused.")]
    Add(AddServerArgs),
    /// Change a server in mcp.json
    #[command(after_help = "\
Examples:
  toolgate servers update web --set request_timeout=10s
  toolgate servers update web --set 'env.API_KEY=${API_KEY}' --unset env.OLD_KEY
  toolgate servers update web --from entry.json     write its entry anew

Exit codes: 0 changed, 1 refused or not kept, 2 wrong usage, 78 configuration refused.")]
    Update(UpdateArgs),
    /// Take a server out of mcp.json
    #[command(after_help = "\
Examples:
  toolgate servers remove web
  toolgate servers remove web --yes    without asking, for scripts

Exit codes: 0 removed, 1 not removed, 2 wrong usage, 78 configuration refused.")]
    Remove(RemoveArgs),
}

/// What holds for every change.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Only if the registry is still at this revision, as an earlier change has printed it
    #[arg(long, value_name = "REVISION")]
    pub(crate) if_revision: Option<toolgate_store::store::Rev>,
}

#[derive(Debug, Args)]
pub(crate) struct AddServerArgs {
    /// Its name
    pub(crate) name: String,
    /// Its entry: a file with a JSON object, or `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "command"])]
    pub(crate) from: Option<PathBuf>,
    /// Where it is
    #[arg(long, conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// A header for every request to it
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "url")]
    pub(crate) headers: Vec<String>,
    /// A variable for its process
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Whether tools that are not configured may be used
    #[arg(long, value_parser = ["dynamic", "strict"])]
    pub(crate) mode: Option<String>,
    /// Any other key of its entry; a value that reads as JSON is JSON
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The program that it is, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AddToolArgs {
    /// Its name; with `--from` the one in the entry will do
    #[arg(required_unless_present = "from")]
    pub(crate) name: Option<String>,
    /// Its entry: a file with a JSON object, or `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["script", "description", "input_schema"])]
    pub(crate) from: Option<PathBuf>,
    /// Its script, in the folder of tools.json [default: its name with `.py`]
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<String>,
    /// What it does, when to use it, what it returns
    #[arg(long, value_name = "TEXT", required_unless_present = "from")]
    pub(crate) description: Option<String>,
    /// The JSON Schema of its arguments: a file, or the schema itself [default: an object]
    #[arg(long, value_name = "FILE|JSON")]
    pub(crate) input_schema: Option<String>,
    /// Any other key of its entry; a value that reads as JSON is JSON
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NewToolArgs {
    /// Its name, and that of its file
    pub(crate) name: String,
    /// What its script is written in
    #[arg(long, value_name = "LANGUAGE", default_value = "python")]
    pub(crate) lang: Language,
    /// For Rust: where toolgate-sdk is, a checkout of Toolgate or the URL of its git repository
    #[arg(long, value_name = "FOLDER|URL", env = "TOOLGATE_SDK", hide_env_values = true)]
    pub(crate) sdk: Option<String>,
    /// What it does, when to use it, what it returns
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// A function in a file that stays loaded
    Python,
    /// A shell script, started for every call
    Sh,
    /// A crate with a typed tool, served as an MCP server
    Rust,
}

#[derive(Debug, Args)]
pub(crate) struct TestToolsArgs {
    /// A tool of your own; all of them where none is named
    pub(crate) name: Option<String>,
    /// Who calls
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    /// Its name
    pub(crate) name: String,
    /// Write its entry anew: a file with a JSON object, or `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["set", "unset"], required_unless_present_any = ["set", "unset"])]
    pub(crate) from: Option<PathBuf>,
    /// Give a key a value; `a.b` is the key `b` in `a`, and a value that reads as JSON is JSON
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Take a key away
    #[arg(long = "unset", value_name = "KEY")]
    pub(crate) unset: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Its name
    pub(crate) name: String,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// The server
    pub(crate) name: String,
    /// Its tools, by the names it gives them; all that wait where none is named
    pub(crate) tools: Vec<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}
