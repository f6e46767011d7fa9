//! Runs a command with a live runtime: loads the project, connects to its servers, does the work, stops everything.

use std::error::Error as _;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::timeout;
use toolgate_audit::redact::Redactor;
use toolgate_audit::spans::SpanExporter;
use toolgate_config::{Config, Environment, LoadOutcome, load};
use toolgate_policy::Policy;
use toolgate_runtime::Runtime;
use toolgate_runtime::pins::LockFile;
use toolgate_runtime::questions::{QuestionQueue, Responder};
use toolgate_runtime::results::ResultStore;
use toolgate_runtime::runtime::{RuntimeSetup, ServerStatus, StartError};
use toolgate_server::keys::KeyStore;
use toolgate_types::server::Transport;
use toolgate_types::telemetry::OtlpCollector;
use toolgate_types::{Caller, ServerSpec};
use tracing_subscriber::EnvFilter;

use crate::cli::{AnswerMode, ProjectArgs};
use crate::command::log::{CallVolume, LogSetup};
use crate::command::login;
use crate::command::registry::ProjectFiles;
use crate::command::terminal_prompts::{self, ApprovalInput, TerminalResponder};
use crate::output::{BOLD, DIM, Output};
use crate::{FAILED, INVALID_CONFIG};

/// Delay before a message about servers that are still starting.
const SLOW_START: Duration = Duration::from_secs(2);
/// Exit code of an interrupted command, as used by shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// Loads the project, connects to the servers selected by `wanted`, and runs `work`, which makes no calls. Everything
/// that was started is stopped when this returns.
pub(crate) fn with_runtime<F>(
    project: &ProjectArgs,
    output: &Output,
    answers: AnswerMode,
    wanted: impl Fn(&str) -> bool,
    work: impl FnOnce(Arc<Runtime>, Vec<StartError>) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let work = |runtime, errors, _| work(runtime, errors);
    run_command(project, output, answers, None, wanted, work)
}

/// Like [`with_runtime`], for work that makes calls: they are recorded in the execution log.
pub(crate) fn with_recording_runtime<F>(
    project: &ProjectArgs,
    output: &Output,
    answers: AnswerMode,
    wanted: impl Fn(&str) -> bool,
    work: impl FnOnce(Arc<Runtime>, Vec<StartError>) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let work = |runtime, errors, _| work(runtime, errors);
    run_command(project, output, answers, Some(CallVolume::One), wanted, work)
}

/// Like [`with_runtime`], for work that continues while the files change.
pub(crate) fn with_runtime_and_files<F>(
    project: &ProjectArgs,
    output: &Output,
    answers: AnswerMode,
    wanted: impl Fn(&str) -> bool,
    work: impl FnOnce(Arc<Runtime>, Vec<StartError>, ProjectFiles) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    run_command(project, output, answers, None, wanted, work)
}

fn run_command<F>(
    project: &ProjectArgs,
    output: &Output,
    answers: AnswerMode,
    calls: Option<CallVolume>,
    wanted: impl Fn(&str) -> bool,
    work: impl FnOnce(Arc<Runtime>, Vec<StartError>, ProjectFiles) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let Some((config, files)) = load_config(project, output)? else { return Ok(INVALID_CONFIG) };
    let downloading = downloading_servers(&config);
    let log_setup = LogSetup::of(&config)?;
    let collector = config.telemetry.clone();
    let mut setup = runtime_setup(config, answers, wanted);
    if let Some(calls) = calls {
        setup.history = log_setup.history();
        setup.log = Some(log_setup.open(calls)?);
    }
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        setup.spans = span_exporter(collector)?;
        let runtime = Arc::new(Runtime::new(setup));
        let job = async {
            match discover(&runtime, &downloading, output).await {
                Ok(errors) => work(Arc::clone(&runtime), errors, files).await,
                Err(code) => Ok(code),
            }
        };
        let outcome = tokio::select! {
            outcome = job => outcome,
            _ = tokio::signal::ctrl_c() => {
                output.message("interrupted: stopping what was started\n");
                Ok(INTERRUPTED)
            }
        };
        runtime.stop().await;
        outcome
    })
}

/// Starts the exporter of the spans of calls, if a collector is configured.
pub(crate) fn span_exporter(collector: Option<OtlpCollector>) -> anyhow::Result<Option<SpanExporter>> {
    collector.map(SpanExporter::start).transpose().context("cannot export traces")
}

/// Loads the configuration, prompts for its inputs, and returns it with its files. If it is invalid, prints the
/// problems and returns `None`.
pub(crate) fn load_config(
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<Option<(Config, ProjectFiles)>> {
    let mut environment = Environment::from_process();
    let load = |environment: &Environment| load(&project.folder, project.file.as_deref(), environment);
    let mut loaded = load(&environment);
    let inputs = loaded
        .config
        .as_ref()
        .map(|config| terminal_prompts::ask_inputs(&config.inputs, output))
        .transpose()?;
    if let Some(answers) = inputs.filter(|answers| !answers.is_empty()) {
        environment = terminal_prompts::with_answers(&environment, answers);
        loaded = load(&environment);
    }
    let LoadOutcome { config, report } = loaded;
    match &config {
        None => {
            output.message(&report.render());
            output.next_step("run `toolgate check` to see the problems; nothing was started");
        }
        Some(config) => {
            output.mask_secrets(&config.secrets, &config.audit.redact);
            log_to_stderr(output);
        }
    }
    Ok(config.map(|config| {
        let files = ProjectFiles::new(project, environment, config.registries.clone());
        (config, files)
    }))
}

/// Returns the servers whose first start may download a package.
pub(crate) fn downloading_servers(config: &Config) -> Vec<String> {
    let may_download =
        |server: &&ServerSpec| matches!(&server.transport, Transport::Stdio(stdio) if stdio.may_download());
    config.servers.iter().filter(may_download).map(|server| server.name.to_string()).collect()
}

/// Builds the runtime setup with the selected servers.
pub(crate) fn runtime_setup(
    config: Config,
    answers: AnswerMode,
    wanted: impl Fn(&str) -> bool,
) -> RuntimeSetup {
    let responder: Arc<dyn Responder> = Arc::new(TerminalResponder::new(answers, ApprovalInput::Line));
    let question_queue = config
        .builtins
        .human_input
        .map(|human_input| QuestionQueue::new(human_input.timeout, false, vec![Arc::clone(&responder)]));
    runtime_setup_with(config, responder, question_queue.as_ref(), wanted)
}

/// Like [`runtime_setup`], with a given responder and question queue.
pub(crate) fn runtime_setup_with(
    config: Config,
    responder: Arc<dyn Responder>,
    question_queue: Option<&Arc<QuestionQueue>>,
    wanted: impl Fn(&str) -> bool,
) -> RuntimeSetup {
    let results = config.results.map(|limits| {
        let redactor = Redactor::new(config.secrets.clone(), config.audit.redact.clone());
        ResultStore::in_project(&config.project, limits, redactor)
    });
    RuntimeSetup {
        builtins: toolgate_runtime::builtins::enabled(
            config.builtins,
            &config.project,
            question_queue,
            results.as_ref(),
        ),
        own: config.tools,
        settings: config.tool_settings,
        servers: config.servers.into_iter().filter(|server| wanted(server.name.as_str())).collect(),
        apis: config.apis.into_iter().filter(|api| wanted(api.name.as_str())).collect(),
        read_document: toolgate_config::parse_document,
        limits: config.limits,
        token_folder: login::token_folder(),
        responder,
        lock: Some(LockFile::in_project(&config.project)),
        secrets: config.secrets.clone(),
        callers: all_callers(config.callers, &config.project),
        policy: Policy::new(config.policy.map(|policy| policy.rules)),
        egress: config.egress,
        results,
        profiles: config.profiles,
        ..RuntimeSetup::default()
    }
}

/// Returns configured callers and callers with a created key.
fn all_callers(mut callers: Vec<Caller>, project: &Path) -> Vec<Caller> {
    // Errors of the key file are reported by the commands that need it.
    let created = KeyStore::new(&project.join(".toolgate")).callers().unwrap_or_default();
    for stored in created {
        if callers.iter().all(|caller| caller.id != stored.id) {
            callers.push(stored.caller());
        }
    }
    callers
}

/// Connects to the servers. Returns their errors, for the command to judge. An error of the catalog or the lock file is
/// printed and ends the command with the returned exit code.
pub(crate) async fn discover(
    runtime: &Runtime,
    downloading: &[String],
    output: &Output,
) -> Result<Vec<StartError>, u8> {
    let discovery = runtime.discover(|status| progress(status, output));
    tokio::pin!(discovery);
    let outcome = match timeout(SLOW_START, &mut discovery).await {
        Ok(outcome) => outcome,
        Err(_) => {
            report_slow_starts(runtime, downloading, output);
            discovery.await
        }
    };
    let errors = outcome.err().unwrap_or_default();
    if errors.iter().any(|error| matches!(error, StartError::Catalog(_) | StartError::Lock(_))) {
        report_errors(&errors, output);
        return Err(INVALID_CONFIG);
    }
    Ok(errors)
}

/// Default log filter: warnings of our crates, errors of libraries.
const DEFAULT_LOG_FILTER: &str = "error,toolgate=warn,toolgate_server=warn,toolgate_runtime=warn,toolgate_upstream=warn,\
                    toolgate_mcp=warn";

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

/// Prints the errors of the start, each with its hint. Returns the exit code.
pub(crate) fn report_errors(errors: &[StartError], output: &Output) -> u8 {
    for error in errors {
        output.message(&format!("{BOLD}error{BOLD:#}: {error}\n"));
        if let Some(cause) = error.source() {
            output.message(&format!("  because: {cause}\n"));
        }
        match error {
            StartError::Server { hint: Some(hint), .. } => output.message(&format!("hint: {hint}\n")),
            StartError::Lock(_) => output.message(
                "hint: restore an older version of the file, or delete it to trust the current tools\n",
            ),
            _ => {}
        }
    }
    if errors.is_empty() { crate::DONE } else { FAILED }
}

/// Explains slow starts of servers that may be downloading a package.
fn report_slow_starts(runtime: &Runtime, downloading: &[String], output: &Output) {
    for ServerStatus { name, state, .. } in runtime.servers() {
        if state == "connecting" && downloading.contains(&name) {
            output.message(&format!("{name} is still starting; the first start of a package downloads it\n"));
        }
    }
}

/// Prints a line for each server as it connects.
fn progress(status: &ServerStatus, output: &Output) {
    output.message(&status_line(status));
}

/// Formats a server on one line.
pub(crate) fn status_line(status: &ServerStatus) -> String {
    let ServerStatus { name, transport, state, protocol_version, tools, .. } = status;
    match protocol_version {
        Some(version) => format!("{DIM}{state} {name} · {transport} · {version} · {tools} tools{DIM:#}\n"),
        // An API has no protocol version; it has tools once its document is loaded.
        None if *tools > 0 => format!("{DIM}{state} {name} · {transport} · {tools} tools{DIM:#}\n"),
        None => format!("{state} {name} · {transport}\n"),
    }
}
