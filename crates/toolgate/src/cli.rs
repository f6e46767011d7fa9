//! The command line: every flag and argument, with its help.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use toolgate_config::Client;
use toolgate_types::profile::ProfileName;

use crate::command::{chat, connect, run, serve, stdio};

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

/// What `run` and `chat` have in common.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// As whom the agent acts: a caller that toolgate.yaml names
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// What to do when the agent, a rule or a server asks something
    #[arg(long, value_name = "HOW", default_value = "ask")]
    pub(crate) answers: Answers,
    /// Keep what the model and the tools say in FILE, without secrets
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The task; `-` reads it from stdin
    #[arg(value_name = "TEXT", required_unless_present_any = ["resume", "replay"])]
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// A picture (png, jpg, gif, webp), a sound (wav, mp3) or a text to give along
    #[arg(long, visible_alias = "image", value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Go on with a run that was stopped, by its id or the beginning of it
    #[arg(long, value_name = "ID", conflicts_with_all = ["replay", "record"])]
    pub(crate) resume: Option<String>,
    /// Play a record again, without model and tools
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "text", "attach"])]
    pub(crate) replay: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Go on with a chat, by its id or the beginning of it
    #[arg(long, value_name = "ID", conflicts_with = "record")]
    pub(crate) resume: Option<String>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    /// At most so many, the newest
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// What was asked, said and called in a run
    #[command(
        after_help = "Examples:\n  toolgate runs show 019a8f0c\n  toolgate runs show 019a8f0c --json\n\nExit codes: 0 done, 1 there is no such run, 78 configuration refused."
    )]
    Show(RunShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunShowArgs {
    /// Its id, or the beginning of it
    pub(crate) id: String,
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

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List all tools
    #[command(after_help = "\
Examples:
  toolgate tools list
  toolgate tools list --server files
  toolgate tools list --category query --tag billing
  toolgate tools list --profile coding       as clients of a profile see them
  toolgate tools list --json | jq -r '.[].name'")]
    List(ListArgs),
    /// Say which tools fit some words, and whether to use one
    #[command(after_help = "\
Examples:
  toolgate tools search what is the weather in Oslo
  toolgate tools search --limit 3 'remove a folder'
  toolgate tools search --json 'send an e-mail' | jq -r '.[0].name'
  toolgate tools search --decide --json 'tell me a joke' | jq -r .decision

Nothing is called, and nothing is fetched: the model is in the program. docs/search.md says how it decides.")]
    Search(SearchArgs),
    /// Show one tool: what it does, what it takes
    #[command(after_help = "Example:\n  toolgate tools show read_file")]
    Show(NameArgs),
    /// Call a tool
    #[command(after_help = "\
Examples:
  toolgate tools call echo message=hello
  toolgate tools call add a=1 b=2
  toolgate tools call files__read_file --args '{\"path\": \"README.md\"}'
  toolgate tools call pay amount=5 --as ci --trace    as another caller, with the road it takes")]
    Call(CallArgs),
    /// Add a tool of your own to tools.json
    #[command(after_help = "\
Examples:
  toolgate tools add sum --script sum.py --description 'Adds two numbers.' --input-schema sum.schema.json
  toolgate tools add today --description 'The date of today.' --set category=query --set timeout=2s
  toolgate tools add --from entry.json     its entry as tools.json has it; `-` is stdin

The script is a file in the folder of tools.json. Comments, order and formatting of the file stay. A tool
that is already there is left alone.

Exit codes: 0 added, 1 refused or not kept, 2 wrong usage, 78 configuration refused.")]
    Add(AddToolArgs),
    /// Write a new tool of your own: one that works, and its entry in tools.json or mcp.json
    #[command(after_help = "\
Examples:
  toolgate tools new shout
  toolgate tools new disk_free --lang sh --description 'Says how much space is left. Returns kilobytes.'
  toolgate tools new create-card --lang rust --sdk ~/src/toolgate

The script, or the crate, is written beside tools.json, and never over one that is there. docs/tools.md says what
a script gets and may answer, docs/sdk.md what a tool in Rust is.

Exit codes: 0 written, 1 refused, 2 wrong usage, 78 configuration refused.")]
    New(NewToolArgs),
    /// Run the examples of your own tools, and compare with the results they expect
    #[command(after_help = "\
Examples:
  toolgate tools test              all of them
  toolgate tools test shout        those of one tool
  toolgate tools test --json | jq '.examples[] | select(.passed | not)'

The tools are really called, with all that they do. An example without `expected_result` has to succeed.

Exit codes: 0 all passed, 1 one did not, 78 configuration refused.")]
    Test(TestToolsArgs),
    /// Change a tool of your own in tools.json
    #[command(after_help = "\
Examples:
  toolgate tools update sum --set timeout=2s --set 'tags=[\"math\"]'
  toolgate tools update sum --unset timeout
  toolgate tools update sum --from entry.json     write its entry anew

Exit codes: 0 changed, 1 refused or not kept, 2 wrong usage, 78 configuration refused.")]
    Update(UpdateArgs),
    /// Take a tool of your own out of tools.json
    #[command(after_help = "\
Examples:
  toolgate tools remove sum
  toolgate tools remove sum --yes    without asking, for scripts

Its script stays where it is.

Exit codes: 0 removed, 1 not removed, 2 wrong usage, 78 configuration refused.")]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those of this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Only those of this category: query, mutation, analysis or generation
    #[arg(long, value_parser = ["query", "mutation", "analysis", "generation"])]
    pub(crate) category: Option<String>,
    /// Only those with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Only those that this caller may know of
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// As clients of this profile see them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["server", "category", "tag"])]
    pub(crate) profile: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// What is wanted, in any words
    #[arg(required = true)]
    pub(crate) words: Vec<String>,
    /// So many tools at most
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) limit: usize,
    /// With --json: an object that says what to do (tool, none or ask) and how sure that is, beside the tools
    #[arg(long)]
    pub(crate) decide: bool,
    /// Only those that this caller may know of
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// Queries and what is right for each, one JSON object on a line
    pub(crate) gold: PathBuf,
    /// The tools that are asked of, in place of the project's own: a list, or catalogs by name
    #[arg(long, value_name = "TOOLS.json")]
    pub(crate) tools: Option<PathBuf>,
    /// Only the lines of this suite
    #[arg(long)]
    pub(crate) suite: Option<String>,
    /// Ask of small catalogs: the right tools of each line and others, so many in all
    #[arg(long, value_name = "NUMBER")]
    pub(crate) catalog_size: Option<NonZeroUsize>,
    /// What decides which others
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Show the lines that went wrong, too
    #[arg(long)]
    pub(crate) wrong: bool,
    /// Fail when less is right over all lines, from 0 to 1
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_top1: Option<f64>,
    /// Fail when fewer of the lines that need tools have a right one among the first five
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_recall5: Option<f64>,
    /// Fail when the right tool is chosen for less of the lines that need one
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_tool_top1: Option<f64>,
    /// Fail when fewer of the lines that need no tool are told
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_none_recall: Option<f64>,
    /// Fail when fewer of the lines for which a person should be asked are told
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_ask_recall: Option<f64>,
    /// Only tools that this caller may know of, of the project's own
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PromptsCommand {
    /// List all prompts
    #[command(after_help = "Example:\n  toolgate prompts list --json")]
    List,
    /// Get one, filled in
    #[command(after_help = "Example:\n  toolgate prompts get files review path=src/main.rs")]
    Get(PromptArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourcesCommand {
    /// List all resources and templates
    #[command(after_help = "Example:\n  toolgate resources list")]
    List,
    /// Read one
    #[command(after_help = "Example:\n  toolgate resources read files file:///etc/hosts")]
    Read(ResourceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Its name; `{server}__{tool}` always works
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Its name; `{server}__{tool}` always works and starts that server only
    pub(crate) name: String,
    /// The arguments as one JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
    pub(crate) args: Option<String>,
    /// The arguments one by one
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// What to do when the server asks something before it answers
    #[arg(long, value_name = "HOW", default_value = "ask")]
    pub(crate) answers: Answers,
    /// The id that joins this call with others, for the log of the server [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// The caller, of those that toolgate.yaml names
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// Show every stage that the call passed, with its time and what was decided there
    #[arg(long)]
    pub(crate) trace: bool,
    /// Show the whole result, also where `results.max_inline` is less
    #[arg(long)]
    pub(crate) whole: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LogCommand>,
    #[command(flatten)]
    pub(crate) filter: LogFilter,
    /// At most so many, the newest
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Stay, and tell of calls as they end
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct QuestionsArgs {
    /// Stay, and tell of new ones, one on a line with --json
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(subcommand)]
    pub(crate) command: Option<QuestionsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuestionsCommand {
    /// Answer one of them
    #[command(after_help = "Example:\n  toolgate questions answer 019a8f0c blue")]
    Answer(QuestionAnswerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuestionAnswerArgs {
    /// Its id, or the beginning of it
    pub(crate) id: String,
    /// The answer: a text, a choice by its name or number, JSON for a schema, yes or no for an approval
    #[arg(required_unless_present = "decline", conflicts_with = "decline")]
    pub(crate) answer: Option<String>,
    /// Do not answer
    #[arg(long)]
    pub(crate) decline: bool,
    /// Why not
    #[arg(long, value_name = "TEXT", requires = "decline")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct LogFilter {
    /// Of this tool; `github__*` stands for all that begin so
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Of this caller
    #[arg(long)]
    pub(crate) caller: Option<String>,
    /// That ended so: success, error, abandoned, open, or the code of an error
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// From this time on: 2026-11-15T08:00:00Z, 2026-11-15, or how long ago, such as 2h
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// With this text anywhere in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) grep: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show one call, whole
    #[command(after_help = "Example:\n  toolgate log show 019a8f0c2d4eb1c27f0a9d31")]
    Show(LogShowArgs),
    /// Say how tools fared: calls, errors, percentiles of their time
    #[command(after_help = "Example:\n  toolgate log stats --since 24h")]
    Stats(LogFilter),
    /// Say whether nothing is missing or changed; exit code 1 where something is
    #[command(after_help = "Example:\n  toolgate log verify --json")]
    Verify,
    /// Write records out, as lines of JSON or as CSV
    #[command(after_help = "Example:\n  toolgate log export --csv --since 24h > calls.csv")]
    Export(LogExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LogShowArgs {
    /// The id of the call
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct LogExportArgs {
    #[command(flatten)]
    pub(crate) filter: LogFilter,
    /// As CSV
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CallersCommand {
    /// List who may call: those in toolgate.yaml, and those that were made
    #[command(after_help = "\
Examples:
  toolgate callers list --json | jq -r '.callers[].id'
  toolgate -C my-project callers list

Exit codes: 0 done, 1 failed, 78 configuration refused.")]
    List,
    /// Make a caller, and the key by which the door knows it
    #[command(after_help = "\
Examples:
  toolgate callers add ci --permission 'tickets:*' --permission mail:read
  toolgate callers add ci --description 'the nightly build' --json | jq -r .key

The key is shown this once; only its hash is kept, in .toolgate/keys.json. A server that runs for the
project takes it at once.

Exit codes: 0 made, 1 not made, 78 configuration refused.")]
    Add(AddCallerArgs),
    /// Take a caller away that was made: its key counts no more
    #[command(after_help = "\
Examples:
  toolgate callers remove ci
  toolgate -C my-project callers remove ci --json

Who is in toolgate.yaml is removed there. A server that runs for the project lets nobody in by that key
from then on.

Exit codes: 0 removed, 1 not removed, 78 configuration refused.")]
    Remove(CallerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddCallerArgs {
    /// Who it is: letters, digits and `. _ - @ : /`
    pub(crate) id: String,
    /// What it may do, as `resource:action`; may be given more than once
    #[arg(long = "permission", value_name = "PERMISSION")]
    pub(crate) permissions: Vec<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CallerArgs {
    /// Who it is
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Say which recorded calls other rules would decide otherwise, and for whom
    #[command(after_help = "\
Examples:
  toolgate policy test candidate.cedar
  toolgate policy test candidate.cedar --since 7d --tool 'mail__*' --json

Nothing is called and nobody is asked. Exit codes: 0 nothing flips, 1 something does, 78 the rules are wrong.")]
    Test(PolicyTestArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// The file with the rules
    #[arg(value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// Calls from this time on: 2026-11-15T08:00:00Z, 2026-11-15, or how long ago, such as 7d
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Of this caller
    #[arg(long)]
    pub(crate) caller: Option<String>,
    /// Of this tool; `github__*` stands for all that begin so
    #[arg(long)]
    pub(crate) tool: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The caller, of those that toolgate.yaml names
    pub(crate) caller: String,
    /// The tool
    pub(crate) tool: String,
    /// The arguments as one JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Answers {
    /// Ask the person at the terminal; decline where there is none
    Ask,
    /// Take the defaults that the server gives
    Defaults,
    /// Decline
    Decline,
}

#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// The server
    pub(crate) server: String,
    /// The prompt
    pub(crate) name: String,
    /// Its arguments
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResourceArgs {
    /// The server; `toolgate` for `toolgate://results/…`
    pub(crate) server: String,
    /// The resource
    pub(crate) uri: String,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The folder; made where it does not exist [default: the project folder]
    #[arg(value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

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
