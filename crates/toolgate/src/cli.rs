//! The command line: every flag and argument, with its help. Those of one concern are in a file below.

mod access;
mod agent;
mod clients;
mod records;
mod registry;
mod tools;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::command::{chat, connect, run, serve, stdio};

pub(crate) use access::{AddCallerArgs, CallerArgs, CallersCommand, PolicyCommand, PolicyTestArgs, WhyArgs};
pub(crate) use agent::{AgentArgs, ChatArgs, RunArgs, RunsArgs, RunsCommand};
pub(crate) use clients::{ConnectArgs, ConnectScope, ImportArgs};
pub(crate) use records::{
    LogArgs, LogCommand, LogFilter, QuestionAnswerArgs, QuestionsArgs, QuestionsCommand,
};
pub(crate) use registry::{
    AddServerArgs, AddToolArgs, ApproveArgs, ChangeArgs, Language, NewToolArgs, RemoveArgs, ServersArgs,
    ServersCommand, TestToolsArgs, UpdateArgs,
};
pub(crate) use tools::{
    Answers, CallArgs, EvalArgs, ListArgs, PromptArgs, PromptsCommand, ResourceArgs, ResourcesCommand,
    SearchArgs, ToolsCommand,
};

/// The gate between AI agents and their tools.
#[derive(Debug, Parser)]
#[command(
    name = "toolgate",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Examples:
  toolgate init my-project        write a small project to start from
  toolgate -C my-project check    say whether it is good, and what it means
  toolgate import vscode          take over the MCP servers of an editor

Exit codes: 0 done, 1 failed, 2 wrong usage, 78 configuration refused."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) project: Project,
    /// Print one JSON document on stdout; messages go to stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours; `NO_COLOR` is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorWhen,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which project to work on.
#[derive(Debug, Args)]
pub(crate) struct Project {
    /// Work on the project in DIR
    #[arg(short = 'C', long = "project", global = true, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// The project file, where it has an unusual name; any known shape will do
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a small working project, with comments
    #[command(after_help = "\
Examples:
  toolgate init               here
  toolgate init my-project    in a new folder

No file is ever overwritten.")]
    Init(InitArgs),
    /// Say whether a project is good, what it means, and where each value came from
    #[command(after_help = "\
Examples:
  toolgate check                           the project in this folder
  toolgate -C my-project check             another one
  toolgate --file .vscode/mcp.json check   a file of another program
  toolgate check --json | jq .servers      for programs
  toolgate check --contract full           the checklist of the tool contract, for your own tools

Nothing is started and nothing is written. Every problem in every file is reported.

Exit codes: 0 good, 1 a rule of the contract is not met, 78 configuration refused.")]
    Check(CheckArgs),
    /// Show the MCP servers: whether they can be reached, what they speak, what they offer
    #[command(after_help = "\
Examples:
  toolgate servers             connect to all and say how they are
  toolgate servers show files  one of them, with what it offers and what it wrote to stderr
  toolgate servers approve web let through what it has changed or added
  toolgate servers login web   log in to one that wants it
  toolgate servers add web -- uvx web-server    add one to mcp.json; `update` and `remove` change it
  toolgate servers --watch     stay, and tell what changes
  toolgate servers --json

What servers say of their tools is remembered in toolgate.lock when it is first seen. A tool that
changes in a way that could hurt is held back until `toolgate servers approve`.")]
    Servers(ServersArgs),
    /// List, search, show and call tools, and change your own
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate tools list\n  toolgate tools call echo message=hello\n  toolgate tools add sum --script sum.py --description 'Adds two numbers.'"
    )]
    Tools(ToolsCommand),
    /// Measure how often the right tool is found, on queries of which it is known
    #[command(after_help = "\
Examples:
  toolgate eval eval/gold.jsonl --tools eval/tools.json --suite core
  toolgate eval gold.jsonl --tools tools.json --catalog-size 20 --seed 1
  toolgate eval gold.jsonl --json --min-top1 0.85      the project's own tools; fails below the bar

A line of GOLD is {\"query\", \"tools\": [those that are right], \"kind\": tool|none|ask|multi, \"suite\", \"catalog\"};
docs/search.md says what the figures mean.

Exit codes: 0 measured, 1 failed or below a bar, 2 wrong usage, 78 configuration refused.")]
    Eval(EvalArgs),
    /// Say whether a caller may use a tool, and why
    #[command(after_help = "\
Examples:
  toolgate why owner read_file
  toolgate why ci pay '{\"amount\": 500}'
  toolgate why ci pay --json | jq .decision

Nothing is called and nobody is asked. Exit codes: 0 allowed, 1 denied or to be asked about.")]
    Why(WhyArgs),
    /// List callers, make one with a key of its own, and take one away
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate callers list\n  toolgate callers add ci --permission 'tickets:*'\n  toolgate callers remove ci"
    )]
    Callers(CallersCommand),
    /// Try rules before they count
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate policy test candidate.cedar\n  toolgate policy test candidate.cedar --since 7d --caller ci"
    )]
    Policy(PolicyCommand),
    /// Show what was called, by whom, and how it ended
    #[command(after_help = "\
Examples:
  toolgate log                               the newest calls
  toolgate log --tool pay --status error --since 2h
  toolgate log -f --json                     calls as they end, one on a line
  toolgate log show 019a8f0c2d4eb1c27f0a9d31 one call, whole
  toolgate log verify                        whether nothing is missing or changed

The log is in .toolgate/log of the project, in files by day, for 30 days; docs/log.md says what is in it.")]
    Log(LogArgs),
    /// List prompts of MCP servers, and get one
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate prompts list\n  toolgate prompts get files review path=src/main.rs"
    )]
    Prompts(PromptsCommand),
    /// List resources of MCP servers, and read one
    #[command(
        subcommand,
        after_help = "Examples:\n  toolgate resources list\n  toolgate resources read files file:///etc/hosts"
    )]
    Resources(ResourcesCommand),
    /// Show the questions that wait for a person, and answer them
    #[command(after_help = "\
Examples:
  toolgate questions                            those that wait in the running `toolgate serve`
  toolgate questions --watch                    stay, and tell of new ones
  toolgate questions answer 019a8f0c blue       one of the choices, by its name or its number
  toolgate questions answer 019a8f0c '{\"n\": 1}'  where a schema is asked for
  toolgate questions answer 019a8f0c yes        where a rule asks for an approval
  toolgate questions answer 019a8f0c --decline --reason 'ask Ann'

The beginning of an id is enough. `human_input` in toolgate.yaml says that people may be asked; docs/builtins.md.

Exit codes: 0 done, 1 no server runs for this project, there is no such question, or the answer does not fit.")]
    Questions(QuestionsArgs),
    /// Give the agent a task
    #[command(after_help = run::HELP)]
    Run(RunArgs),
    /// Talk with the agent
    #[command(after_help = chat::HELP)]
    Chat(ChatArgs),
    /// List the runs of the agent, and show what happened in one
    #[command(after_help = "\
Examples:
  toolgate runs                     the newest, with what each used
  toolgate runs show 019a8f0c       what was asked, said and called
  toolgate runs --json

The beginning of an id is enough. Runs are in .toolgate/runs of the project, without secrets, for 30 days.

Exit codes: 0 done, 1 there is no such run, 78 configuration refused.")]
    Runs(RunsArgs),
    /// Open the door: MCP and REST over HTTP, for whoever has a key
    #[command(after_help = serve::HELP)]
    Serve(ServeArgs),
    /// Serve one MCP client over stdin and stdout
    #[command(after_help = stdio::HELP)]
    Stdio(StdioArgs),
    /// Take over the MCP servers of another program
    #[command(after_help = "\
Examples:
  toolgate import vscode                     what VS Code has, for this folder and for you
  toolgate import ~/.codex/config.toml       one file
  toolgate import claude-desktop --dry-run   show what would be written

Servers go to `mcp.json`, as they are written: `${VAR}` stays `${VAR}`. Passwords and tokens that
stand there in plain text go to `.env`, which should not be committed.")]
    Import(ImportArgs),
    /// Put Toolgate among the MCP servers of an editor or agent, or take it out
    #[command(after_help = connect::HELP)]
    Connect(ConnectArgs),
    /// Print the JSON Schema of a file, for editors
    #[command(after_help = "\
Examples:
  toolgate schema > toolgate.schema.json
  toolgate schema tools
  toolgate schema --reference             the page in docs/configuration.md

In VS Code, this first line of toolgate.yaml turns on completion and checks:
  # yaml-language-server: $schema=./toolgate.schema.json")]
    Schema(SchemaArgs),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  toolgate completions bash > ~/.local/share/bash-completion/completions/toolgate
  toolgate completions zsh  > ~/.zfunc/_toolgate
  toolgate completions fish > ~/.config/fish/completions/toolgate.fish")]
    Completions(CompletionsArgs),
    /// Run a program under a parent that ends all it starts
    #[command(hide = true)]
    Shim(ShimArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen [default: `serve.listen` of the project, else 127.0.0.1:7332]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct StdioArgs {
    /// Who calls
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// What of the project is shown, and how: a profile of toolgate.yaml
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// How much is asked of your own tools
    #[arg(long, value_name = "LEVEL", default_value = "standard")]
    pub(crate) contract: ContractLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContractLevel {
    /// A name, a description and the schema of the arguments
    Standard,
    /// All of the tool contract, as a checklist for each tool
    Full,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The folder; made where it does not exist [default: the project folder]
    #[arg(value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// `project` for toolgate.yaml, `tools` for tools.json, `mcp` for mcp.json
    #[arg(value_name = "FILE", default_value = "project", hide_possible_values = true)]
    pub(crate) of: SchemaName,
    /// Print the reference page instead, as Markdown
    #[arg(long, conflicts_with = "of")]
    pub(crate) reference: bool,
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
    /// The shell
    pub(crate) shell: Shell,
}

/// What `toolgate_upstream` reads itself: it is on the way of every server, where clap would take longer
/// than all the rest.
#[derive(Debug, Args)]
pub(crate) struct ShimArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) line: Vec<OsString>,
}
