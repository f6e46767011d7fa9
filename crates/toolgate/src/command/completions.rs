//! `toolgate completions SHELL`.

use clap::CommandFactory;

use crate::DONE;
use crate::cli::{Cli, CompletionsArgs};
use crate::output::Output;

pub(crate) fn run(args: &CompletionsArgs, output: &Output) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    // clap_complete would offer hidden commands, too.
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut shown = clap::Command::new("toolgate")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(shown);
    clap_complete::generate(args.shell, &mut shown, "toolgate", &mut script);
    output.result(&String::from_utf8(script)?);
    Ok(DONE)
}
