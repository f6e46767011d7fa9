//! Flags of what is there to be used: tools, prompts and resources.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{AddToolArgs, NewToolArgs, RemoveArgs, TestToolsArgs, UpdateArgs};

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
