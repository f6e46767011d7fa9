//! The executable: parses the command line, dispatches on the subcommand, and returns the exit code.
//!
//! Each subcommand is a file in `command`. Invariant: no other crate prints, and no other crate knows exit codes.

// The futures of commands nest those of the agent loop, the pipeline and the client of a server.
#![recursion_limit = "256"]

mod cli;
mod command;
mod output;
mod owner_key;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::output::Output;

/// Allocations of a call are short-lived and on one thread. This allocator serves them from a list of that thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code of a successful command.
const DONE: u8 = 0;
/// Exit code of a failed command.
const FAILED: u8 = 1;
/// Exit code of a command that needs a server that is down (`EX_UNAVAILABLE` of sysexits.h).
const SERVER_DOWN: u8 = 69;
/// Exit code of an invalid configuration (`EX_CONFIG` of sysexits.h).
const INVALID_CONFIG: u8 = 78;

/// Hides the memory of this process, including its environment with the owner's key, from other processes of the same
/// user: `/proc/PID/environ` and `/proc/PID/mem` then belong to root, debuggers cannot attach, and a crash
/// writes no core dump. Child processes are not affected, since `exec` starts them with new memory.
///
/// Lowering either setting cannot fail, and without them the program still works.
fn hide_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{
            DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
        };
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        // Only the soft limit: a child process may still raise it.
        let maximum = getrlimit(Resource::Core).maximum;
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    }
}

fn main() -> ExitCode {
    // Checked before clap: every server starts through the shim and waits for it.
    if let Some(code) = toolgate_app::run_shim() {
        return code;
    }
    // Before the memory is hidden: the key comes from a file in `/proc/self`.
    owner_key::clear_variable();
    hide_memory();
    toolgate_app::adopt_orphans();
    command::completions::complete();
    // On wrong usage, clap exits with code 2 and a hint.
    let cli = Cli::from_args();
    let output = Output::new(cli.json, cli.color);
    let project = &cli.project;
    match command::remote::run(&cli, &output) {
        Ok(Some(code)) => return ExitCode::from(code),
        Ok(None) => {}
        Err(error) => {
            output.error(&error);
            return ExitCode::from(FAILED);
        }
    }
    let result = match &cli.command {
        Command::Init(args) => command::init::run(args, project, &output),
        Command::Check(args) => command::check::run(args, project, &output),
        Command::Doctor => command::doctor::run(project, &output),
        Command::Servers(args) => command::servers::run(args, project, &output),
        Command::Tools(command) => command::tools::run(command, project, &output),
        Command::Eval(args) => command::eval::run(args, project, &output),
        Command::Why(args) => command::why::run(args, project, &output),
        Command::Cluster(command) => command::cluster::run(command, project, &output),
        Command::Callers(command) => command::callers::run(command, project, &output),
        Command::Plan(args) => command::plan::run(args, project, &output),
        Command::Credentials(command) => command::credentials::run(command, project, &output),
        Command::Policy(command) => command::policy::run(command, project, &output),
        Command::Log(args) => command::log::run(args, project, &output),
        Command::Prompts(command) => command::prompts::run(command, project, &output),
        Command::Resources(command) => command::resources::run(command, project, &output),
        Command::Questions(args) => command::questions::run(args, project, &output),
        Command::Run(args) => command::run::run(args, project, &output),
        Command::Chat(args) => command::chat::run(args, project, &output),
        Command::Runs(args) => command::runs::run(args, project, &output),
        Command::Serve(args) => command::serve::run(args, project, &output),
        Command::Stdio(args) => command::stdio::run(args, project, &output),
        Command::Import(args) => command::import::run(args, project, &output),
        Command::Connect(args) => command::connect::run(args, project, &output),
        Command::Schema(args) => command::schema::run(args, &output),
        Command::Completions(args) => command::completions::run(args, &output),
        Command::Man(args) => command::man::run(args, &output),
        // Declared in clap to reserve the name. Reached only if global flags come first.
        Command::Shim(args) => return toolgate_app::shim_main(args.line.iter().cloned()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            output.error(&error);
            ExitCode::from(FAILED)
        }
    }
}
