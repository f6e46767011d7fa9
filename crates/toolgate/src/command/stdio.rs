//! `toolgate stdio`: the gateway on stdin and stdout, for clients that start their MCP servers as child processes.
//!
//! Invariant: only protocol messages go to stdout.

use tokio::io::{stdin, stdout};
use toolgate_app::ServeError;

use super::serve::StopSignals;
use crate::cli::{ProjectArgs, StdioArgs};
use crate::command::{app, profiles};
use crate::output::Output;
use crate::{DONE, INVALID_CONFIG};

pub(crate) const HELP: &str = "\
Examples:
  toolgate connect claude-code        add an entry that runs this command
  toolgate -C my-project stdio        the command of such an entry
  toolgate stdio --as assistant       with the permissions of that caller
  toolgate stdio --profile coding     with the tools of a profile of toolgate.yaml

Supports every MCP revision, one message per line. Ends when stdin ends. Messages for people go to
stderr. Calls are recorded in the execution log of the project.

Exit codes: 0 the client disconnected, 1 failed, 78 invalid configuration.";

pub(crate) fn run(args: &StdioArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let Some(loaded) = app::load_project(project, output)? else { return Ok(INVALID_CONFIG) };
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = tokio.block_on(async {
        let mut signals = StopSignals::new()?;
        let pipe = app::gateway_builder(loaded, output).build_pipe().await.map_err(app::app_error)?;
        let caller = app::find_caller(pipe.app(), &args.caller)?;
        let profile = args.profile.as_deref();
        let profile = profile.map(|name| profiles::find_profile(pipe.app(), &caller.id, name)).transpose()?;
        let profile = profile.map(|profile| profile.name.clone());
        match pipe.serve((caller, profile), stdin(), stdout(), signals.next()).await {
            Ok(()) => Ok(DONE),
            Err(ServeError::Start(failure)) => Ok(app::report_failure(&failure, output)),
            Err(error @ ServeError::Io(_)) => Err(error.into()),
        }
    });
    // A blocking read of stdin may never return, so the runtime is not awaited.
    tokio.shutdown_background();
    code
}
