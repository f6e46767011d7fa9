//! Arguments for tools, prompts, resources and the search evaluation.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{AddToolArgs, NewToolArgs, RemoveArgs, TestToolsArgs, UpdateArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// List tools
    #[command(after_help = "\
Examples:
  toolgate tools list
  toolgate tools list --server files
  toolgate tools list --category query --tag billing
  toolgate tools list --profile coding       as clients with this profile see them
  toolgate tools list --json | jq -r '.[].name'")]
    List(ListArgs),
    /// Find tools for a task and decide whether to use one
    #[command(after_help = "\
Examples:
  toolgate tools search what is the weather in Oslo
  toolgate tools search --limit 3 'remove a folder'
  toolgate tools search --json 'send an e-mail' | jq -r '.[0].name'
  toolgate tools search --decide --json 'tell me a joke' | jq -r .decision

Nothing is called or downloaded: the search model is built in. See docs/search.md.")]
    Search(SearchArgs),
    /// Show the description and schema of a tool
    #[command(after_help = "Example:\n  toolgate tools show read_file")]
    Show(NameArgs),
    /// Call a tool
    #[command(after_help = "\
Examples:
  toolgate tools call echo message=hello
  toolgate tools call add a=1 b=2
  toolgate tools call files__read_file --args '{\"path\": \"README.md\"}'
  toolgate tools call pay amount=5 --as ci --trace    as another caller, with its pipeline stages")]
    Call(CallArgs),
    /// Add your own tools to tools.json
    #[command(after_help = "\
Examples:
  toolgate tools add tools/cards.py               all public functions of a Python file
  toolgate tools add tools/cards.py draw --preview    one function: show the entry, change nothing
  toolgate tools add tools/cards.py --replace     again, after the file has changed
  toolgate tools add sum --script sum.py --description 'Adds two numbers.' \\
    --input-schema sum.schema.json
  toolgate tools add today --description 'Returns the date.' --set category=query --set timeout=2s
  toolgate tools add --from entry.json     the entry as written in tools.json; `-` is stdin

The entry of a Python function comes from its signature, annotations, defaults and docstring. To read
them, the file is run, with the environment and the limits of a call.

The script is a file in the folder of tools.json. Comments, order and formatting of tools.json are
kept. An existing tool is not changed without `--replace`.

Exit codes: 0 added, 1 rejected, not written or a function left out, 2 wrong usage, 78 invalid configuration.")]
    Add(AddToolArgs),
    /// Create a working tool from a template
    #[command(after_help = "\
Examples:
  toolgate tools new shout
  toolgate tools new disk_free --lang sh --description 'Shows the free space in kilobytes.'
  toolgate tools new create-card --lang rust --sdk ~/src/toolgate

The script or crate is written next to tools.json and added to tools.json or mcp.json. Existing files
are never overwritten. See docs/tools.md for scripts and docs/sdk.md for tools in Rust.

Exit codes: 0 created, 1 rejected, 2 wrong usage, 78 invalid configuration.")]
    New(NewToolArgs),
    /// Run the examples of your own tools and compare results
    #[command(after_help = "\
Examples:
  toolgate tools test              all tools
  toolgate tools test shout        one tool
  toolgate tools test --json | jq '.examples[] | select(.passed | not)'

The tools are really called, with all their effects. An example without `expected_result` passes if
the call succeeds.

Exit codes: 0 all passed, 1 an example failed, 78 invalid configuration.")]
    Test(TestToolsArgs),
    /// Change your own tool in tools.json
    #[command(after_help = "\
Examples:
  toolgate tools update sum --set timeout=2s --set 'tags=[\"math\"]'
  toolgate tools update sum --unset timeout
  toolgate tools update sum --from entry.json     replace the entry

Exit codes: 0 changed, 1 rejected or not written, 2 wrong usage, 78 invalid configuration.")]
    Update(UpdateArgs),
    /// Remove your own tool from tools.json
    #[command(after_help = "\
Examples:
  toolgate tools remove sum
  toolgate tools remove sum --yes    without a question, for scripts

The script is kept.

Exit codes: 0 removed, 1 not removed, 2 wrong usage, 78 invalid configuration.")]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only tools of this server [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    /// Only tools of this category [default: all]
    #[arg(long, value_parser = ["query", "mutation", "analysis", "generation"])]
    pub(crate) category: Option<String>,
    /// Only tools with this tag [default: all]
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Only tools that this caller may see
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// Show the tools as clients with this profile see them [default: no profile]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["server", "category", "tag"])]
    pub(crate) profile: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// The task, in your own words
    #[arg(required = true)]
    pub(crate) words: Vec<String>,
    /// Number of tools to show at most
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) limit: usize,
    /// With --json: also print the decision (tool, none or ask) and its confidence
    #[arg(long)]
    pub(crate) decide: bool,
    /// Only tools that this caller may see
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// File with labelled queries, one JSON object per line
    pub(crate) gold: PathBuf,
    /// File with tools or named catalogs [default: the tools of the project]
    #[arg(long, value_name = "TOOLS.json")]
    pub(crate) tools: Option<PathBuf>,
    /// Only queries of this suite [default: all]
    #[arg(long)]
    pub(crate) suite: Option<String>,
    /// Sample a catalog of this size for each query: its right tools and random others [default: all]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) catalog_size: Option<NonZeroUsize>,
    /// Seed of the random sample
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also print the queries with a wrong answer
    #[arg(long)]
    pub(crate) wrong: bool,
    /// Fail if the share of right answers is lower, from 0 to 1 [default: no minimum]
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_top1: Option<f64>,
    /// Fail if fewer queries have a right tool among the first five [default: no minimum]
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_recall5: Option<f64>,
    /// Fail if the right tool is chosen for fewer of the queries that need one [default: no minimum]
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_tool_top1: Option<f64>,
    /// Fail if fewer of the queries that need no tool are recognised [default: no minimum]
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_none_recall: Option<f64>,
    /// Fail if fewer of the queries that need a question are recognised [default: no minimum]
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_ask_recall: Option<f64>,
    /// Only tools of the project that this caller may see
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PromptsCommand {
    /// List prompts
    #[command(after_help = "Example:\n  toolgate prompts list --json")]
    List,
    /// Get a prompt with its arguments filled in
    #[command(after_help = "Example:\n  toolgate prompts get files review path=src/main.rs")]
    Get(PromptArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourcesCommand {
    /// List resources and resource templates
    #[command(after_help = "Example:\n  toolgate resources list")]
    List,
    /// Read a resource
    #[command(after_help = "Example:\n  toolgate resources read files file:///etc/hosts")]
    Read(ResourceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name of the tool; `{server}__{tool}` always works
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Name of the tool; `{server}__{tool}` always works and starts only that server
    pub(crate) name: String,
    /// Arguments as one JSON object [default: {}]
    #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
    pub(crate) args: Option<String>,
    /// Arguments one by one
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// Answer to questions that the server asks during the call
    #[arg(long, value_name = "HOW", default_value = "ask")]
    pub(crate) answers: AnswerMode,
    /// Correlation id that links this call to others in the logs [default: a new id]
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Caller that makes the call, as named in toolgate.yaml
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// Print every pipeline stage with its duration and decision
    #[arg(long)]
    pub(crate) trace: bool,
    /// Print the whole result, even if it exceeds `results.max_inline`
    #[arg(long)]
    pub(crate) whole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerMode {
    /// Ask at the terminal; decline if there is none
    Ask,
    /// Accept the defaults that the server suggests
    Defaults,
    /// Decline every question
    Decline,
}

#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    /// Name of the server
    pub(crate) server: String,
    /// Name of the prompt
    pub(crate) name: String,
    /// Arguments of the prompt
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,
    /// Caller that gets the prompt
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}

#[derive(Debug, Args)]
pub(crate) struct ResourceArgs {
    /// Name of the server; `toolgate` for `toolgate://results/…`
    pub(crate) server: String,
    /// URI of the resource
    pub(crate) uri: String,
    /// Caller that reads the resource
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
}
