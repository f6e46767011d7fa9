//! Runs a command with an app: loads the project, builds the app, does the work, stops everything.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use toolgate_app::{App, AppBuilder, AppError, AppEvent, LogMode, Project, StartFailure};
use toolgate_redact::printable;
use toolgate_runtime::questions::Responder;
use toolgate_runtime::runtime::{DiscoveryGrace, ServerStatus, StartError};
use toolgate_runtime::{CallApprover, CallOrigin, CallOutcome, SessionId, TraceContext};
use toolgate_types::Caller;
use toolgate_upstream::{DownstreamClient, Forwarded};
use tracing_subscriber::EnvFilter;

use crate::cli::{AnswerMode, ProjectArgs};
use crate::command::terminal_client::{ProgressGuard, TerminalClient};
use crate::command::terminal_prompts::{ApprovalInput, TerminalResponder};
use crate::command::{login, terminal_prompts};
use crate::output::{BOLD, DIM, Output, error_or_hint, error_with_hint};
use crate::owner_key;
use crate::{FAILED, INVALID_CONFIG, SERVER_DOWN};

/// Exit code of an interrupted command, as used by shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// Wait for optional servers in a command that can do without them. A package may be downloading, and that may take long.
pub(crate) const SHORT_WAIT: DiscoveryGrace =
    DiscoveryGrace { usual: Duration::from_secs(5), downloads: Duration::MAX };

/// Choices of a command for the app that it uses.
pub(crate) struct AppChoice<'a> {
    answers: AnswerMode,
    grace: DiscoveryGrace,
    log: LogMode,
    servers: Box<dyn Fn(&str) -> bool + 'a>,
}

impl<'a> AppChoice<'a> {
    /// Waits for every server, and records nothing.
    pub(crate) fn new(answers: AnswerMode) -> Self {
        Self { answers, grace: DiscoveryGrace::UNLIMITED, log: LogMode::Off, servers: Box::new(|_| true) }
    }

    /// Waits a short time for servers that are not required.
    pub(crate) fn with_short_wait(self) -> Self {
        Self { grace: SHORT_WAIT, ..self }
    }

    /// Records the call of the command.
    pub(crate) fn with_log(self) -> Self {
        Self { log: LogMode::OneCall, ..self }
    }

    /// Leaves out servers and APIs that the filter rejects by name.
    pub(crate) fn with_servers(self, filter: impl Fn(&str) -> bool + 'a) -> Self {
        Self { servers: Box::new(filter), ..self }
    }
}

/// Runs `work` with an app, and with the errors of its servers: the app of the gateway that hosts the command, or one of
/// its own. Everything that was started for it is stopped when this returns.
pub(crate) fn with_app(
    project: &ProjectArgs,
    output: &Output,
    choice: AppChoice<'_>,
    work: impl AsyncFnOnce(&App, Vec<StartError>) -> anyhow::Result<u8>,
) -> anyhow::Result<u8> {
    let AppChoice { answers, grace, log, servers } = choice;
    if let Some(host) = &project.host {
        return host.run(output, async |app| {
            wait_for_servers(app, grace.usual, &servers).await;
            work(app, app.runtime().required_outages(servers)).await
        });
    }
    let Some(loaded) = load_project(project, output)? else { return Ok(INVALID_CONFIG) };
    let builder = builder(loaded, output).responder(terminal(answers)).log(log).servers(servers);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        let app = builder.build().map_err(app_error)?;
        app.run(async |app| {
            let job = async {
                match app.discover_within(grace).await {
                    Ok(errors) => work(app, errors).await,
                    Err(failure) => Ok(report_failure(&failure, output)),
                }
            };
            tokio::select! {
                outcome = job => outcome,
                _ = tokio::signal::ctrl_c() => Ok(report_interrupt(output)),
            }
        })
        .await
    })
}

/// Reports that the command was interrupted. Returns the exit code.
pub(crate) fn report_interrupt(output: &Output) -> u8 {
    output.message("interrupted: stopping what was started\n");
    INTERRUPTED
}

/// Poll interval of connecting servers.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until the servers of a running app have answered or failed, for at most `grace`.
async fn wait_for_servers(app: &App, grace: Duration, filter: &impl Fn(&str) -> bool) {
    let answered = async {
        while app.runtime().awaited_servers().iter().any(|name| filter(name)) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let _ = tokio::time::timeout(grace, answered).await;
}

/// Waits for the servers that have not answered yet. Returns the exit code and prints the reason if there is no catalog.
pub(crate) async fn wait_for_late_servers(
    app: &App,
    project: &ProjectArgs,
    output: &Output,
) -> Result<Vec<StartError>, u8> {
    if project.host.is_some() {
        wait_for_servers(app, Duration::MAX, &|_: &str| true).await;
        return Ok(Vec::new());
    }
    app.discover_late().await.map_err(|failure| report_failure(&failure, output))
}

/// Returns the origin of an operation of this command: the person at the terminal approves it and answers questions of
/// the server. Progress is shown until the guard is dropped.
pub(crate) fn call_origin(
    project: &ProjectArgs,
    answers: AnswerMode,
    asks: &str,
    output: &Output,
) -> (CallOrigin, ProgressGuard) {
    let person: Arc<dyn Responder> = match &project.host {
        Some(host) => Arc::new(host.responder(answers, ApprovalInput::Line)),
        None => terminal(answers),
    };
    let client = TerminalClient::new(asks, Arc::clone(&person), output);
    let guard = client.progress_guard();
    // Without progress to show, an app at the terminal answers questions of servers itself.
    let is_client = project.host.is_some() || client.shows_progress();
    let client = is_client.then(|| Arc::new(client) as Arc<dyn DownstreamClient>);
    let forwarded = Forwarded { client, ..Forwarded::default() };
    let origin = CallOrigin { forwarded, ..CallOrigin::default() };
    if project.host.is_none() {
        return (origin, guard);
    }
    // A command is a session of its own: its results taint no other call of the caller.
    let session = SessionId::Issued(TraceContext::generate().correlation_id().to_owned());
    (CallOrigin { session: Some(session), approver: Some(CallApprover(person)), ..origin }, guard)
}

/// Starts to build an app for a command. It reports its events on stderr, but servers only if they are slow or not ready.
pub(crate) fn builder<'a>(loaded: Project, output: &Output) -> AppBuilder<'a> {
    let output = output.clone();
    builder_with_events(loaded, move |event| match event {
        AppEvent::Server(status) if is_ready(status) => {}
        event => report_event(event, &output),
    })
}

/// Starts to build an app for a gateway. It reports every server, and its terminal shows the URLs of logins and answers
/// nothing else.
pub(crate) fn gateway_builder<'a>(loaded: Project, output: &Output) -> AppBuilder<'a> {
    let output = output.clone();
    let builder = builder_with_events(loaded, move |event| match event {
        AppEvent::Waiting(_) => {}
        event => report_event(event, &output),
    });
    builder.responder(terminal(AnswerMode::Decline))
}

fn builder_with_events<'a>(
    loaded: Project,
    on_event: impl Fn(AppEvent<'_>) + Send + Sync + 'static,
) -> AppBuilder<'a> {
    App::builder(loaded).user_state(login::user_state()).on_event(on_event)
}

fn report_event(event: AppEvent<'_>, output: &Output) {
    match event {
        AppEvent::NewSecrets(secrets) => output.mask_more_secrets(secrets),
        AppEvent::Server(status) => output.message(&status_line(status)),
        event => output.message(&format!("{event}\n")),
    }
}

/// Returns true if a server answered. An API has no protocol version; it has tools once its document is loaded.
fn is_ready(status: &ServerStatus) -> bool {
    status.protocol_version.is_some() || status.tools > 0
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
    report_errors(&failure.0, output);
    if failure.is_invalid_config() { INVALID_CONFIG } else { FAILED }
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
    match errors {
        [] => crate::DONE,
        _ if errors.iter().all(|error| matches!(error, StartError::Server { .. })) => SERVER_DOWN,
        _ => FAILED,
    }
}

/// Returns the exit code of a command that shows the servers accepted by the filter, or their tools.
pub(crate) fn outage_code(app: &App, filter: impl Fn(&str) -> bool) -> u8 {
    let runtime = app.runtime();
    let is_down = |server: &ServerStatus| server.retry_in_ms.is_some() && filter(&server.name);
    // A server that is retried has no answer either.
    let is_awaited = runtime.awaited_servers().iter().any(|name| filter(name));
    if is_awaited || runtime.servers().iter().any(is_down) { SERVER_DOWN } else { crate::DONE }
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
    if is_ready(status) { format!("{DIM}{line}{DIM:#}\n") } else { format!("{line}\n") }
}
