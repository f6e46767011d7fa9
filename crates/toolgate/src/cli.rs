//! The command line: every flag and argument, with its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

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

Nothing is started and nothing is written. Every problem in every file is reported.")]
    Check,
    /// Take over the MCP servers of another program
    #[command(after_help = "\
Examples:
  toolgate import vscode                     what VS Code has, for this folder and for you
  toolgate import ~/.codex/config.toml       one file
  toolgate import claude-desktop --dry-run   show what would be written

Servers go to `mcp.json`, as they are written: `${VAR}` stays `${VAR}`. Passwords and tokens that
stand there in plain text go to `.env`, which should not be committed.")]
    Import(ImportArgs),
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
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The folder; made where it does not exist [default: the project folder]
    #[arg(value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
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
    /// The file to describe
    #[arg(value_name = "FILE", default_value = "project")]
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
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}
