//! `toolgate completions SHELL`.

use clap::CommandFactory;

use crate::DONE;
use crate::cli::{Cli, CompletionsArgs};
use crate::output::Output;

pub(crate) fn run(args: &CompletionsArgs, output: &Output) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "toolgate", &mut script);
    output.result(&String::from_utf8(script)?);
    Ok(DONE)
}
