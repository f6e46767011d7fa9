//! Runs the agent of a project for one command: its model, its tools, and the answers to questions.
//!
//! Invariant: everything that was started is stopped when [`with_agent`] returns, however the command ends.

use std::path::Path;
use std::sync::Arc;

use toolgate_agent::{Agent, Recording, RunError};
use toolgate_app::replay_agent;
use toolgate_types::Caller;

use crate::cli::{AgentArgs, ProjectArgs};
use crate::command::app::{self, INTERRUPTED};
use crate::command::run;
use crate::command::terminal_prompts::{ApprovalInput, TerminalResponder};
use crate::output::{Output, error_with_hint};
use crate::{FAILED, INVALID_CONFIG};

pub(crate) mod keys;
pub(crate) mod markdown;
pub(crate) mod printer;

/// An agent, and the caller that it acts as.
pub(crate) struct ReadyAgent {
    pub(crate) agent: Agent,
    pub(crate) caller: Caller,
}

/// Builds the agent, runs `work`, and stops everything that was started.
pub(crate) fn with_agent(
    args: &AgentArgs,
    project: &ProjectArgs,
    output: &Output,
    work: impl AsyncFnOnce(ReadyAgent) -> anyhow::Result<u8>,
) -> anyhow::Result<u8> {
    if let Some(host) = &project.host {
        let person = Arc::new(host.responder(args.answers, ApprovalInput::Key));
        let record = args.record.as_deref().map(|file| host.client_path(file));
        return host.run_to_end(async |app| {
            app::report_errors(&app.runtime().required_outages(|_| true), output);
            let agent = app.build_run_agent(person, record).map_err(app::app_error)?;
            let caller = app::find_caller(app, &args.caller)?;
            work(ReadyAgent { agent, caller }).await
        });
    }
    let Some(loaded) = app::load_project(project, output)? else { return Ok(INVALID_CONFIG) };
    let responder = Arc::new(TerminalResponder::new(args.answers, ApprovalInput::Key));
    let builder = app::builder(loaded, output).responder(responder);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        let (app, agent) = builder.build_agent(args.record.clone()).map_err(app::app_error)?;
        app.run(async |app| {
            match app.discover().await {
                // A failed server is reported; the agent works with the others.
                Ok(errors) => app::report_errors(&errors, output),
                Err(failure) => return Ok(app::report_failure(&failure, output)),
            };
            let caller = app::find_caller(app, &args.caller)?;
            app.keep_current(work(ReadyAgent { agent, caller })).await
        })
        .await
    })
}

/// Waits for Ctrl-C at the terminal of the run.
pub(crate) async fn stopped(project: &ProjectArgs) {
    match &project.host {
        Some(host) => host.interrupted().await,
        None => run::ctrl_c().await,
    }
}

/// Replays a recording, without model, tools or project.
pub(crate) fn replay(
    recording: &Path,
    work: impl AsyncFnOnce(ReadyAgent, Arc<Recording>) -> anyhow::Result<u8>,
) -> anyhow::Result<u8> {
    let recording = Recording::read(recording)?;
    let agent = replay_agent(&recording);
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio.block_on(work(ReadyAgent { agent, caller: Caller::owner() }, recording))
}

/// Adds a hint to an error of opening a run.
pub(crate) fn run_error(error: RunError) -> anyhow::Error {
    let hint = match &error {
        RunError::NotFound(_) | RunError::Ambiguous(_) => "list runs with `toolgate runs`".to_owned(),
        RunError::AlreadyEnded(id) => {
            format!(
                "continue it with `toolgate chat --resume {id}`, or see it with `toolgate runs show {id}`"
            )
        }
        RunError::OtherCaller { caller, .. } => format!("use `--as {caller}`"),
        RunError::Busy(_) | RunError::Unreadable { .. } | RunError::Io(_) => return error.into(),
    };
    error_with_hint(error.to_string(), hint)
}

/// Returns the exit code for a run.
pub(crate) fn exit_code(ended: &toolgate_agent::RunOutcome) -> u8 {
    use toolgate_agent::EndReason;
    match ended.reason {
        EndReason::Done => crate::DONE,
        EndReason::Interrupted => INTERRUPTED,
        _ => FAILED,
    }
}
