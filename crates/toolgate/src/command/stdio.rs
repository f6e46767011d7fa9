//! `toolgate stdio`: the gateway on stdin and stdout, for clients that start their MCP servers as child processes.
//!
//! Invariant: only protocol messages go to stdout.

use tokio::io::{stdin, stdout};
use toolgate_app::ServeError;
use toolgate_app::socket::{self, JoinError};

use super::serve::StopSignals;
use crate::cli::{ProjectArgs, StdioArgs};
use crate::command::{app, profiles};
use crate::output::{Output, error_or_hint, error_with_hint};
use crate::{DONE, INVALID_CONFIG};

pub(crate) const HELP: &str = "\
Examples:
  toolgate connect claude-code        add an entry that runs this command
  toolgate -C my-project stdio        the command of such an entry
  toolgate stdio --as assistant       with the permissions of that caller
  toolgate stdio --profile coding     with the tools of a profile of toolgate.yaml

Supports every MCP revision, one message per line. Ends when stdin ends. Messages for people go to
stderr. Calls are recorded in the execution log of the project.

If `toolgate serve` runs on the folder, the session joins it: no server is started twice, and people
answer its questions. With --standalone, or with --file, the servers are started here.

Exit codes: 0 the client disconnected, 1 failed, 78 invalid configuration.";

pub(crate) fn run(args: &StdioArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = tokio.block_on(async {
        let mut signals = StopSignals::new()?;
        // Before the gateway is joined: it may be the one that started this process.
        if let Err(nested) = toolgate_app::enter_project(&project.folder) {
            let hint = nested.hint();
            output.error(&error_with_hint(nested.to_string(), hint));
            return Ok(INVALID_CONFIG);
        }
        if !project.standalone && project.file.is_none() {
            let profile = args.profile.as_deref();
            let joined = socket::join(&project.state_folder(), &args.caller, profile).await;
            if let Some(session) = joined.map_err(join_error)? {
                session.relay(stdin(), stdout(), signals.next()).await?;
                return Ok(DONE);
            }
        }
        let Some(loaded) = app::load_project(project, output)? else { return Ok(INVALID_CONFIG) };
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

fn join_error(error: JoinError) -> anyhow::Error {
    let hint = match &error {
        JoinError::Refused { hint, .. } => hint.clone(),
        JoinError::Socket(_) => {
            Some("stop the gateway of this folder, or start the servers here with `--standalone`".to_owned())
        }
    };
    error_or_hint(error, hint)
}
