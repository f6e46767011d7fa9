//! The command line: every command, option and argument, with its help text. Arguments are grouped by topic in the
//! files below.

mod access;
mod agent;
mod clients;
mod cluster;
mod credentials;
mod help;
mod records;
mod registry;
mod tools;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use toolgate_app::{InvalidProject, Project, StateFolder};
use toolgate_config::Environment;

use crate::command::remote::GatewayHost;
use crate::command::{chat, connect, run, serve, stdio};

pub(crate) use access::{
    AddCallerArgs, AddKeyArgs, CallerArgs, CallersCommand, KeysCommand, PlanArgs, PolicyCommand,
    PolicyTestArgs, RevokeKeyArgs, RotateKeyArgs, UpdateCallerArgs, WhyArgs,
};
pub(crate) use agent::{AgentArgs, ChatArgs, RunArgs, RunsArgs, RunsCommand};
pub(crate) use clients::{ConnectArgs, ConnectClient, ConnectScope, ImportArgs};
pub(crate) use cluster::ClusterCommand;
pub(crate) use credentials::{CredentialArgs, CredentialsCommand, ListCredentialsArgs, RekeyArgs};
pub(crate) use help::grouped_command;
pub(crate) use records::{
    LogArgs, LogCommand, LogFilter, LogSelection, QuestionAnswerArgs, QuestionsArgs, QuestionsCommand,
};
pub(crate) use registry::{
    AddServerArgs, AddToolArgs, ApproveArgs, ChangeArgs, Language, LoginArgs, NewToolArgs, RemoveArgs,
    ServersArgs, ServersCommand, TestToolsArgs, UpdateArgs,
};
pub(crate) use tools::{
    AnswerMode, CallArgs, EvalArgs, ListArgs, PromptArgs, PromptsCommand, ResourceArgs, ResourcesCommand,
    SearchArgs, ToolsCommand,
};

/// A gateway between AI agents and their tools
#[derive(Debug, Parser)]
#[command(
    name = "toolgate",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Examples:
  toolgate init my-project        create a small project
  toolgate -C my-project check    check its configuration
  toolgate -C my-project serve    run the gateway
  toolgate import vscode          import the MCP servers of an editor

Exit codes: 0 done, 1 failed, 2 wrong usage, 69 a server is down, 78 invalid configuration."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
    /// Print one JSON document on stdout; messages go to stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Use of colours: auto (on terminals, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: ColorMode,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that select the project.
#[derive(Debug, Args)]
pub(crate) struct ProjectArgs {
    /// Project folder
    #[arg(short = 'C', long = "project", global = true, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Project file, in any supported format [default: found in DIR by its name]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Start the servers for this command, even if `toolgate serve` runs for the project
    #[arg(long, global = true)]
    pub(crate) standalone: bool,
    /// The gateway that runs the command, if it runs in one.
    #[arg(skip)]
    pub(crate) host: Option<GatewayHost>,
}

impl ProjectArgs {
    /// Loads the project.
    pub(crate) fn load(&self, environment: Environment) -> Result<Project, InvalidProject> {
        Project::load(&self.folder, self.file.as_deref(), environment)
    }

    /// Returns the folder for the state of the project.
    pub(crate) fn state_folder(&self) -> StateFolder {
        StateFolder::of(&self.folder)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ColorMode {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a small working project
    #[command(after_help = "\
Examples:
  toolgate init               in the current folder
  toolgate init my-project    in a new folder

The project is named after its folder. Existing files are never overwritten; lines are added to an
existing .gitignore.")]
    Init(InitArgs),
    /// Check the configuration and explain it
    #[command(after_help = "\
Examples:
  toolgate check                           the project in this folder
  toolgate -C my-project check             another project
  toolgate --file .vscode/mcp.json check   a config file of another program
  toolgate check --json | jq .servers      for scripts
  toolgate check --contract full           the full tool contract, as a checklist per tool
  toolgate check --all                     every value, the defaults too
  toolgate check --running                 the configuration that the running gateway uses

Shows the values that differ from the defaults, and the files they come from. Reports all problems in
all files. Starts and writes nothing.

Exit codes: 0 valid, 1 contract not met or no gateway runs, 78 invalid configuration.")]
    Check(CheckArgs),
    /// Find out why something does not work
    #[command(after_help = "\
Examples:
  toolgate doctor
  toolgate -C my-project doctor --json | jq '.checks[] | select(.status != \"good\")'

Checks versions, the configuration, the programs of servers and tools, the network, keys, ports and
permissions, and says what to do. Starts and writes nothing.

Exit codes: 0 no problem, 1 a problem, 78 invalid configuration.")]
    Doctor,
    /// Show, approve and change MCP servers
    #[command(after_help = "\
Examples:
  toolgate servers                              connect to all servers and show their state
  toolgate servers show files                   one server, its tools and its stderr
  toolgate servers approve web                  approve changed and new tools
  toolgate servers login web                    log in with a browser
  toolgate servers add web -- uvx web-server    add a server to mcp.json
  toolgate servers --watch                      follow changes until Ctrl-C
  toolgate servers --json

Tool definitions are pinned in toolgate.lock when they are first seen. A tool whose definition changes
in a risky way is quarantined until `toolgate servers approve`.")]
    Servers(ServersArgs),
    /// List, search, call and change tools
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate tools list\n  toolgate tools call echo message=hello\n  toolgate tools add sum --script sum.py --description 'Adds two numbers.'"
    )]
    Tools(ToolsCommand),
    /// Measure tool-search accuracy on labelled queries
    #[command(after_help = "\
Examples:
  toolgate eval eval/gold.jsonl --tools eval/tools.json --suite core
  toolgate eval gold.jsonl --tools tools.json --catalog-size 20 --seed 1
  toolgate eval gold.jsonl --json --min-top1 0.85    tools of the project; fail below 0.85

A line of GOLD is {\"query\", \"tools\": [the right ones], \"kind\": tool|none|ask|multi, \"suite\",
\"catalog\"}. The metrics are described in docs/search.md.

Exit codes: 0 measured, 1 failed or below a minimum, 2 wrong usage, 78 invalid configuration.")]
    Eval(EvalArgs),
    /// Explain whether a caller may use a tool
    #[command(after_help = "\
Examples:
  toolgate why owner read_file
  toolgate why ci pay '{\"amount\": 500}'
  toolgate why ci pay --json | jq .decision

Calls nothing and asks no one. Exit codes: 0 allowed, 1 denied or needs approval.")]
    Why(WhyArgs),
    /// Show and manage the replicas of a cluster
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate cluster status\n  toolgate cluster push\n  toolgate cluster drain gateway-2\n\nSee docs/cluster.md."
    )]
    Cluster(ClusterCommand),
    /// List, add and remove callers and their keys
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate callers list\n  toolgate callers add ci --permission 'tickets:*'\n  toolgate callers remove ci\n  toolgate callers keys rotate ci laptop --overlap 24h"
    )]
    Callers(CallersCommand),
    /// Show the effect of changed files before they are used
    #[command(after_help = "\
Examples:
  toolgate plan candidate.cedar                  other rules
  toolgate plan candidate.yaml new.cedar         another project file and other rules
  toolgate plan candidate.yaml --since 7d --json | jq .access

Lists the tools that callers, and members of groups, gain or lose, and the recorded calls that would be
decided differently. A running gateway uses an edit within a second, so plan it first. Calls nothing and
asks no one.

Exit codes: 0 no access changes, 1 some changes, 78 invalid configuration.")]
    Plan(PlanArgs),
    /// List, set and remove credentials that servers get
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate credentials list\n  toolgate credentials set github --as ann\n  toolgate credentials rekey"
    )]
    Credentials(CredentialsCommand),
    /// Test policy rules before you use them
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate policy test candidate.cedar\n  toolgate policy test candidate.cedar --since 7d --caller ci"
    )]
    Policy(PolicyCommand),
    /// Show the execution log
    #[command(after_help = "\
Examples:
  toolgate log                                the newest calls
  toolgate log --tool pay --status error --since 2h
  toolgate log -f --json                      follow calls as they end, one JSON object per line
  toolgate log show 019a8f0c2d4eb1c27f0a9d31  one call, complete
  toolgate log verify                         check that no record is missing or changed

The log is in .toolgate/log of the project, one file per day, kept for 30 days. See docs/log.md.")]
    Log(Box<LogArgs>),
    /// List and get prompts of MCP servers
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate prompts list\n  toolgate prompts get files review path=src/main.rs"
    )]
    Prompts(PromptsCommand),
    /// List and read resources of MCP servers
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate resources list\n  toolgate resources read files file:///etc/hosts"
    )]
    Resources(ResourcesCommand),
    /// Show and answer open questions
    #[command(after_help = "\
Examples:
  toolgate questions                            open questions of the running `toolgate serve`
  toolgate questions --watch                    follow new questions until Ctrl-C
  toolgate questions answer 019a8f0c blue       a choice, by name or number
  toolgate questions answer 019a8f0c '{\"n\": 1}'  JSON, if the question has a schema
  toolgate questions answer 019a8f0c yes        approve a call
  toolgate questions answer 019a8f0c --decline --reason 'ask Ann'

A unique prefix of an id is enough. `human_input` in toolgate.yaml allows questions to people; see
docs/builtins.md.

Exit codes: 0 done, 1 no gateway is running, no such question, or the answer is invalid.")]
    Questions(QuestionsArgs),
    /// Run a task with the agent
    #[command(after_help = run::HELP)]
    Run(RunArgs),
    /// Chat with the agent
    #[command(after_help = chat::HELP)]
    Chat(ChatArgs),
    /// Show past runs of the agent
    #[command(after_help = "\
Examples:
  toolgate runs                     the newest runs and their usage
  toolgate runs show 019a8f0c       messages, calls and results of a run
  toolgate runs --json

A unique prefix of an id is enough. Runs are in .toolgate/runs of the project, without secrets, and are
kept for 30 days.

Exit codes: 0 done, 1 no such run, 78 invalid configuration.")]
    Runs(RunsArgs),
    /// Run the gateway: MCP and REST over HTTP
    #[command(after_help = serve::HELP)]
    Serve(ServeArgs),
    /// Run the gateway for one MCP client on stdin and stdout
    #[command(after_help = stdio::HELP)]
    Stdio(StdioArgs),
    /// Import MCP servers from another program
    #[command(after_help = "\
Examples:
  toolgate import vscode                     servers of VS Code, for this folder and for you
  toolgate import ~/.codex/config.toml       servers of one file
  toolgate import claude-desktop --dry-run   show the result, write nothing
  toolgate import --all                      servers of every client that is configured here
  toolgate import cursor --take-over         also remove them from Cursor, and add Toolgate there

Servers are added to `mcp.json` as they are written: `${VAR}` stays `${VAR}`. Passwords and tokens in
plain text go to `.env`; do not commit that file. Config files of clients are looked for in the
project, in the current folder and in your home. `toolgate connect CLIENT --undo` undoes `--take-over`.")]
    Import(ImportArgs),
    /// Add Toolgate to the MCP servers of an editor or agent
    #[command(after_help = connect::HELP)]
    Connect(ConnectArgs),
    /// Print the JSON Schema of a config file
    #[command(after_help = "\
Examples:
  toolgate schema > toolgate.schema.json
  toolgate schema tools
  toolgate schema --reference             the page docs/configuration.md
  toolgate schema --reference=commands    the page docs/reference/commands.md

In VS Code, this first line of toolgate.yaml turns on completion and validation:
  # yaml-language-server: $schema=./toolgate.schema.json")]
    Schema(SchemaArgs),
    /// Print or install shell completions
    #[command(after_help = "\
Examples:
  toolgate completions bash --install      write the script to the place where bash looks for it
  toolgate completions fish --uninstall    remove it
  toolgate completions zsh > _toolgate     print it, for packages

The scripts also complete the names of tools, servers, callers and profiles. They come from the
files of the project, toolgate.lock and API documents; no server is started.")]
    Completions(CompletionsArgs),
    /// Print or write the manual pages
    #[command(after_help = "\
Examples:
  toolgate man | man -l -                         read toolgate(1)
  toolgate man --output ~/.local/share/man/man1   install all pages for `man toolgate-serve`

There is one page per command. The folder is created, and existing pages are overwritten.")]
    Man(ManArgs),
    /// Run a program under a parent that kills all its descendants
    #[command(hide = true)]
    Shim(ShimArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on [default: `serve.listen` of the project, otherwise 127.0.0.1:7332]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// File for the owner key if one is created, readable by you alone [default: the key is printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StdioArgs {
    /// Caller that the client acts as
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// Profile of toolgate.yaml that selects the tools [default: the caller's profile, or all tools]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Requirements for your own tools
    #[arg(long, value_name = "LEVEL", default_value = "standard")]
    pub(crate) contract: ContractLevel,
    /// Show values that no file sets, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Show if the running gateway uses the files, and why not
    #[arg(long, conflicts_with = "contract")]
    pub(crate) running: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContractLevel {
    /// Name, description and input schema
    Standard,
    /// The full tool contract, as a checklist per tool
    Full,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Folder, created if it does not exist [default: the project folder]
    #[arg(value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// `project` for toolgate.yaml, `tools` for tools.json, `mcp` for mcp.json, `agent` for agent.yaml
    #[arg(value_name = "FILE", default_value = "project", hide_possible_values = true)]
    pub(crate) of: SchemaName,
    /// Print a reference page as Markdown instead: configuration (if none is named), commands, rest, permissions,
    /// metrics, records or errors
    #[arg(
        long,
        conflicts_with = "of",
        value_name = "PAGE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "configuration",
        hide_possible_values = true
    )]
    pub(crate) reference: Option<ReferencePage>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ReferencePage {
    Configuration,
    Commands,
    Rest,
    Permissions,
    Metrics,
    Records,
    Errors,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaName {
    /// toolgate.yaml
    Project,
    /// tools.json
    Tools,
    /// mcp.json
    Mcp,
    /// agent.yaml
    Agent,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    pub(crate) shell: Shell,
    /// Write the script to the folder of your user that the shell reads: for bash, fish and zsh
    #[arg(long)]
    pub(crate) install: bool,
    /// Remove the script from that folder
    #[arg(long, conflicts_with = "install")]
    pub(crate) uninstall: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder to write all pages to [default: print toolgate(1)]
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

/// Arguments of the process supervisor. `toolgate_upstream` parses them itself: every server starts through it, and
/// clap would take longer than the rest of the start.
#[derive(Debug, Args)]
pub(crate) struct ShimArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) line: Vec<OsString>,
}
