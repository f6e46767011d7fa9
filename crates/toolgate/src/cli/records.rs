//! Flags of what happened, and of what waits for a person: the log, and questions.

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::command::log;

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
    /// From this time on: 2026-11-15T08:00:00Z, 2026-11-15, yesterday, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = log::time)]
    pub(crate) since: Option<Timestamp>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = log::time)]
    pub(crate) until: Option<Timestamp>,
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
