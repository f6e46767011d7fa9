//! Arguments for the agent: tasks, chats and past runs.

use std::path::PathBuf;

use super::AnswerMode;
use clap::{Args, Subcommand};

/// Options that `run` and `chat` share.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Caller that the agent acts as, as named in toolgate.yaml
    #[arg(long = "as", value_name = "CALLER", default_value = "owner")]
    pub(crate) caller: String,
    /// Answer to questions of the agent, the policy or a server
    #[arg(long, value_name = "HOW", default_value = "ask")]
    pub(crate) answers: AnswerMode,
    /// Record the model's replies and the tool results to FILE, without secrets [default: no recording]
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(override_usage = "\
toolgate run [OPTIONS] <TEXT>
       toolgate run [OPTIONS] --resume <ID> [TEXT]
       toolgate run [OPTIONS] --replay <FILE>")]
pub(crate) struct RunArgs {
    /// Task of the agent; `-` reads it from stdin
    #[arg(value_name = "TEXT", required_unless_present_any = ["resume", "replay"])]
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Image (png, jpg, gif, webp), audio (wav, mp3) or text file to attach; can be repeated
    #[arg(long, visible_alias = "image", value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Continue a stopped run, by its id or a unique prefix [default: a new run]
    #[arg(long, value_name = "ID", conflicts_with_all = ["replay", "record"])]
    pub(crate) resume: Option<String>,
    /// Replay a recording, without model and tools
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "text", "attach"])]
    pub(crate) replay: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Continue a chat, by its id or a unique prefix [default: a new chat]
    #[arg(long, value_name = "ID", conflicts_with = "record")]
    pub(crate) resume: Option<String>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    /// Number of runs to show at most, newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Show the messages, calls and results of a run
    #[command(
        after_help = "Examples:\n  toolgate runs show 019a8f0c\n  toolgate runs show 019a8f0c --json\n\nExit codes: 0 done, 1 no such run, 78 invalid configuration."
    )]
    Show(RunShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunShowArgs {
    /// Id of the run, or a unique prefix
    pub(crate) id: String,
}
