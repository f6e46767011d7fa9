//! Flags of what a model does: one run, a conversation, and the runs there were.

use std::path::PathBuf;

use super::Answers;
use clap::{Args, Subcommand};

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
#[command(override_usage = "\
toolgate run [OPTIONS] <TEXT>
       toolgate run [OPTIONS] --resume <ID> [TEXT]
       toolgate run [OPTIONS] --replay <FILE>")]
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
