//! Arguments for the execution log and for questions.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use toolgate_types::HumanDuration;
use toolgate_types::call::OperationKind;

use crate::command::log;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LogCommand>,
    #[command(flatten)]
    pub(crate) filter: LogFilter,
    #[command(flatten)]
    pub(crate) selection: LogSelection,
    /// Number of calls to show at most, newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Print calls as they end, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct QuestionsArgs {
    /// Print new questions until Ctrl-C; with `--json` one object per line
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(subcommand)]
    pub(crate) command: Option<QuestionsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QuestionsCommand {
    /// Answer a question
    #[command(after_help = "Example:\n  toolgate questions answer 019a8f0c blue")]
    Answer(QuestionAnswerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct QuestionAnswerArgs {
    /// Id of the question, or a unique prefix
    pub(crate) id: String,
    /// Text; a choice by name or number; JSON for a schema; yes or no for an approval
    #[arg(required_unless_present = "decline", conflicts_with = "decline")]
    pub(crate) answer: Option<String>,
    /// Decline to answer
    #[arg(long)]
    pub(crate) decline: bool,
    /// Reason for declining [default: none]
    #[arg(long, value_name = "TEXT", requires = "decline")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct LogFilter {
    /// Only calls of this tool; `github__*` matches all with this prefix [default: all]
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only operations of this kind [default: all but `list`]
    #[arg(long, value_parser = log::kind_argument())]
    pub(crate) kind: Option<OperationKind>,
    /// Only calls of this caller [default: all]
    #[arg(long)]
    pub(crate) caller: Option<String>,
    /// Only calls with this status: success, error, abandoned, open, or an error code [default: all]
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only calls from this time on: 2026-11-15T08:00:00Z, 2026-11-15, yesterday, or an age such as 2h [default: all]
    #[arg(long, value_name = "TIME", value_parser = log::time_argument)]
    pub(crate) since: Option<Timestamp>,
    /// Only calls before this time, in the same formats [default: all]
    #[arg(long, value_name = "TIME", value_parser = log::time_argument)]
    pub(crate) until: Option<Timestamp>,
    /// Only calls that contain this text [default: all]
    #[arg(long, value_name = "TEXT")]
    pub(crate) grep: Option<String>,
}

/// Filters by members of the begin record, and by the duration.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogSelection {
    /// Only calls of tools of this MCP server [default: all]
    #[arg(long)]
    pub(crate) server: Option<String>,
    /// Only calls that failed with this error code [default: all]
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// Only calls with this decision [default: all]
    #[arg(long, value_parser = ["allow", "deny", "undecided"])]
    pub(crate) decision: Option<String>,
    /// Only calls that this policy rule decided [default: all]
    #[arg(long)]
    pub(crate) rule: Option<String>,
    /// Only calls of this session [default: all]
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only calls of this trace [default: all]
    #[arg(long, value_name = "ID")]
    pub(crate) trace: Option<String>,
    /// Only calls with this correlation id [default: all]
    #[arg(long, value_name = "ID")]
    pub(crate) correlation: Option<String>,
    /// Only calls that took at least this long, such as 500ms [default: all]
    #[arg(long, value_name = "TIME")]
    pub(crate) slower: Option<HumanDuration>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show one call, complete
    #[command(
        after_help = "Example:\n  toolgate log show 019a8f0c2d4e\n\nExit codes: 0 shown, 1 no such call, or several."
    )]
    Show(LogShowArgs),
    /// Show calls, errors and latency percentiles per tool
    #[command(after_help = "Example:\n  toolgate log stats --since 24h")]
    Stats(LogFilter),
    /// Check that no record is missing or changed
    #[command(after_help = "Example:\n  toolgate log verify --json")]
    Verify,
    /// Write records to stdout as JSON lines or CSV
    #[command(after_help = "Example:\n  toolgate log export --csv --since 24h > calls.csv")]
    Export(LogExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LogShowArgs {
    /// Id of the call, or a unique prefix
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct LogExportArgs {
    #[command(flatten)]
    pub(crate) filter: LogFilter,
    /// Write CSV [default: JSON lines]
    #[arg(long)]
    pub(crate) csv: bool,
}
