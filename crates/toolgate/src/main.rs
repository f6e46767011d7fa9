//! The executable: flags, a `match` on the subcommand, exit codes.
//!
//! Each subcommand is a file in `command`. Invariant: the only crate that prints, and the only one
//! that knows exit codes.

mod cli;
mod command;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::output::Output;

/// Done.
const DONE: u8 = 0;
/// What was asked for failed.
const FAILED: u8 = 1;
/// The configuration is refused.
const REFUSED: u8 = 78;

fn main() -> ExitCode {
    // Wrong usage ends here, with exit code 2 and a hint from clap.
    let cli = Cli::parse();
    let output = Output::new(cli.json, cli.color);
    let project = &cli.project;
    let result = match &cli.command {
        Command::Init(args) => command::init::run(args, project, &output),
        Command::Check => command::check::run(project, &output),
        Command::Import(args) => command::import::run(args, project, &output),
        Command::Schema(args) => command::schema::run(args, &output),
        Command::Completions(args) => command::completions::run(args, &output),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output.failure(&error);
            ExitCode::from(FAILED)
        }
    }
}
