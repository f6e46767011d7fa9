//! Runs a command with an app: loads the project, builds the app, does the work, stops everything.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use toolgate_app::{App, AppBuilder, AppError, AppEvent, LogMode, Project, StartFailure};
use toolgate_redact::printable;
use toolgate_runtime::CallOutcome;
use toolgate_runtime::questions::Responder;
use toolgate_runtime::runtime::{DiscoveryGrace, ServerStatus, StartError};
use toolgate_types::Caller;
use tracing_subscriber::EnvFilter;

use crate::cli::{AnswerMode, ProjectArgs};
use crate::command::terminal_prompts::{ApprovalInput, TerminalResponder};
use crate::command::{login, terminal_prompts};
use crate::output::{BOLD, DIM, Output, error_or_hint, error_with_hint};
use crate::owner_key;
use crate::{FAILED, INVALID_CONFIG};

/// Exit code of an interrupted command, as used by shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// Wait for optional servers in a command that can do without them. A package may be downloading, and that may take long.
pub(crate) const SHORT_WAIT: DiscoveryGrace =
    DiscoveryGrace { usual: Duration::from_secs(5), downloads: Duration::MAX };

/// Like [`with_app_within`], and waits for every server.
pub(crate) fn with_app<'a>(
    project: &ProjectArgs,
    output: &Output,
    answers: AnswerMode,
    choose: impl FnOnce(AppBuilder<'a>) -> AppBuilder<'a>,
    work: impl AsyncFnOnce(&App, Vec<StartError>) -> anyhow::Result<u8>,
) -> anyhow::Result<u8> {
    with_app_within(DiscoveryGrace::UNLIMITED, project, output, answers, choose, work)
}

/// Loads the project, builds an app, connects to its servers, and runs `work` with their errors. The app has no log
/// unless `choose` sets one. Everything that was started is stopped when this returns.
pub(crate) fn with_app_within<'a>(
    grace: DiscoveryGrace,
    project: &ProjectArgs,
    output: &Output,
    answers: AnswerMode,
    choose: impl FnOnce(AppBuilder<'a>) -> AppBuilder<'a>,
    work: impl AsyncFnOnce(&App, Vec<StartError>) -> anyhow::Result<u8>,
) -> anyhow::Result<u8> {
    let Some(loaded) = load_project(project, output)? else { return Ok(INVALID_CONFIG) };
    let builder = builder(loaded, output).responder(terminal(answers)).log(LogMode::Off);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        let app = choose(builder).build().map_err(app_error)?;
        app.run(async |app| {
            let job = async {
                match app.discover_within(grace).await {
                    Ok(errors) => work(app, errors).await,
                    Err(failure) => Ok(report_failure(&failure, output)),
                }
            };
            tokio::select! {
                outcome = job => outcome,
                _ = tokio::signal::ctrl_c() => {
                    output.message("interrupted: stopping what was started\n");
                    Ok(INTERRUPTED)
                }
            }
        })
        .await
    })
}

/// Starts to build an app that reports its events on stderr.
pub(crate) fn builder<'a>(loaded: Project, output: &Output) -> AppBuilder<'a> {
    let output = output.clone();
    App::builder(loaded).token_folder(login::token_folder()).on_event(move |event| match event {
        AppEvent::NewSecrets(secrets) => output.mask_more_secrets(secrets),
        AppEvent::Server(status) => output.message(&status_line(status)),
        event => output.message(&format!("{event}\n")),
    })
}

/// Like [`builder`], for a gateway: the terminal shows the URLs of logins, and answers nothing else.
pub(crate) fn gateway_builder<'a>(loaded: Project, output: &Output) -> AppBuilder<'a> {
    builder(loaded, output).responder(terminal(AnswerMode::Decline))
}

/// Returns the responder of a command at the terminal.
pub(crate) fn terminal(answers: AnswerMode) -> Arc<dyn Responder> {
    Arc::new(TerminalResponder::new(answers, ApprovalInput::Line))
}

/// Loads the project and prompts for its inputs. If it is invalid, prints the problems and returns `None`.
pub(crate) fn load_project(project: &ProjectArgs, output: &Output) -> anyhow::Result<Option<Project>> {
    let environment = owner_key::environment();
    let mut loaded = project.load(environment.clone());
    if let Ok(Project { config, .. }) = &loaded {
        let answers = terminal_prompts::ask_inputs(&config.inputs, output)?;
        if !answers.is_empty() {
            loaded = project.load(terminal_prompts::with_answers(&environment, answers));
        }
    }
    match loaded {
        Ok(loaded) => {
            output.mask_secrets(&loaded.config.secrets, &loaded.config.audit.redact);
            log_to_stderr(output);
            Ok(Some(loaded))
        }
        Err(invalid) => {
            output.message(&invalid.report.render());
            output.next_step("run `toolgate check` to see the problems; nothing was started");
            Ok(None)
        }
    }
}

/// Returns the caller of a flag.
pub(crate) fn find_caller(app: &App, id: &str) -> anyhow::Result<Caller> {
    app.caller(id).map_err(|error| {
        let hint = error.hint.clone();
        error_or_hint(error, Some(hint))
    })
}

/// The reply of an operation that is not a tool call, or its error with the hint.
pub(crate) fn operation_reply(outcome: CallOutcome) -> anyhow::Result<Json> {
    match (outcome.result.error, outcome.reply) {
        (Some(error), _) => Err(match &error.hint {
            Some(hint) => error_with_hint(error.to_string(), hint),
            None => error.into(),
        }),
        (None, Some(reply)) => Ok(reply.parse()?),
        (None, None) => Ok(Json::Null),
    }
}

/// Adds the hint of an error.
pub(crate) fn app_error(error: AppError) -> anyhow::Error {
    let hint = error.hint();
    error_or_hint(error, hint)
}

/// Default log filter: warnings of our crates, errors of libraries.
const DEFAULT_LOG_FILTER: &str = "error,toolgate=warn,toolgate_app=warn,toolgate_server=warn,toolgate_runtime=warn,\
                    toolgate_upstream=warn,toolgate_mcp=warn";

/// Sends log lines to stderr, filtered by `TOOLGATE_LOG`.
fn log_to_stderr(output: &Output) {
    let filter =
        EnvFilter::try_from_env("TOOLGATE_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG_FILTER));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(output.masked_stderr())
        .with_ansi(output.has_coloured_stderr())
        .with_target(false)
        .try_init();
}

/// Prints the errors of a failed start. Returns the exit code.
pub(crate) fn report_failure(failure: &StartFailure, output: &Output) -> u8 {
    let code = report_errors(&failure.0, output);
    if failure.is_invalid_config() { INVALID_CONFIG } else { code }
}

/// Prints the errors of the start, each with its hint. Returns the exit code.
pub(crate) fn report_errors(errors: &[StartError], output: &Output) -> u8 {
    for error in errors {
        // Some messages have several lines. Their parts from outside have one.
        output.message(&format!("{BOLD}error{BOLD:#}: {error}\n"));
        if let Some(cause) = error.source() {
            output.message(&format!("  because: {}\n", printable(&cause.to_string())));
        }
        match error {
            StartError::Server { hint: Some(hint), .. } => {
                output.message(&format!("hint: {}\n", printable(hint)));
            }
            StartError::Lock(_) => output.message(
                "hint: restore an older version of the file, or delete it to trust the current tools\n",
            ),
            _ => {}
        }
    }
    if errors.is_empty() { crate::DONE } else { FAILED }
}

/// Prints a note about servers that have not listed their tools within the wait.
pub(crate) fn report_awaited(app: &App, output: &Output) {
    let awaited = app.runtime().awaited_servers();
    if !awaited.is_empty() {
        let names = printable(&awaited.join(", "));
        let seconds = SHORT_WAIT.usual.as_secs();
        output.message(&format!("note: no answer within {seconds} s, so tools are missing: {names}\n"));
    }
}

/// Formats a server on one line.
pub(crate) fn status_line(status: &ServerStatus) -> String {
    let line = AppEvent::Server(status);
    // A server that is not ready stands out.
    if status.protocol_version.is_some() || status.tools > 0 {
        format!("{DIM}{line}{DIM:#}\n")
    } else {
        format!("{line}\n")
    }
}
