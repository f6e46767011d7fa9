//! A runtime for the length of one command: load, connect, work, stop.

use std::error::Error as _;
use std::future::Future;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::timeout;
use toolgate_audit::redact::Redactor;
use toolgate_audit::spans::Exporter;
use toolgate_config::{Config, Environment, Loaded, load};
use toolgate_policy::Policy;
use toolgate_runtime::Runtime;
use toolgate_runtime::desk::Desk;
use toolgate_runtime::pins::LockFile;
use toolgate_runtime::results::Results;
use toolgate_runtime::runtime::{ServerStatus, Setup, StartError};
use toolgate_server::keys::KeyStore;
use toolgate_types::server::Transport;
use toolgate_types::telemetry::Collector;
use toolgate_types::{Caller, ServerSpec};
use tracing_subscriber::EnvFilter;

use crate::cli::{Answers, Project};
use crate::command::log::Keeping;
use crate::command::registry::Files;
use crate::command::{desk, login, questions};
use crate::output::{BOLD, DIM, Output};
use crate::{FAILED, REFUSED};

/// How long servers may take before a word is said about it.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a shell says of a command that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// What a command works with.
pub(crate) struct Live {
    runtime: Arc<Runtime>,
    /// How calls are written down.
    pub(crate) keeping: Keeping,
}

impl Deref for Live {
    type Target = Arc<Runtime>;

    fn deref(&self) -> &Arc<Runtime> {
        &self.runtime
    }
}

/// Loads the project, connects to its servers (to those that `wanted` says) and does the work.
/// Whatever was started is gone when this returns.
pub(crate) fn with<F>(
    project: &Project,
    output: &Output,
    answers: Answers,
    wanted: impl Fn(&str) -> bool,
    work: impl FnOnce(Live, Vec<StartError>) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    with_files(project, output, answers, wanted, |runtime, errors, _| work(runtime, errors))
}

/// The same for work that goes on while the files change.
pub(crate) fn with_files<F>(
    project: &Project,
    output: &Output,
    answers: Answers,
    wanted: impl Fn(&str) -> bool,
    work: impl FnOnce(Live, Vec<StartError>, Files) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let Some((config, files)) = config(project, output)? else { return Ok(REFUSED) };
    let downloading = downloading(&config);
    let keeping = Keeping::of(&config)?;
    let collector = config.telemetry.clone();
    let setup = setup(config, answers, wanted);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        let runtime = Arc::new(Runtime::new(setup));
        trace_to(&runtime, collector)?;
        let job = async {
            match discover(&runtime, &downloading, output).await {
                Ok(errors) => work(Live { runtime: Arc::clone(&runtime), keeping }, errors, files).await,
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

/// Sends spans of calls to a collector, where there is one.
pub(crate) fn trace_to(runtime: &Runtime, collector: Option<Collector>) -> anyhow::Result<()> {
    if let Some(collector) = collector {
        runtime.trace_to(Exporter::start(collector).context("no traces can be sent")?);
    }
    Ok(())
}

/// The configuration, with what a person was asked for, and where it may change; nothing where it is refused, which is
/// told.
pub(crate) fn config(project: &Project, output: &Output) -> anyhow::Result<Option<(Config, Files)>> {
    let mut environment = Environment::of_process();
    let load = |environment: &Environment| load(&project.folder, project.file.as_deref(), environment);
    let mut loaded = load(&environment);
    let inputs =
        loaded.config.as_ref().map(|config| questions::inputs(&config.inputs, output)).transpose()?;
    if let Some(answers) = inputs.filter(|answers| !answers.is_empty()) {
        environment = questions::answered(&environment, answers);
        loaded = load(&environment);
    }
    let Loaded { config, report } = loaded;
    match &config {
        None => {
            output.message(&report.render());
            output.next("`toolgate check` shows what is wrong; nothing was started");
        }
        Some(config) => {
            output.hide(&config.secrets, &config.audit.redact);
            log_to_stderr(output);
        }
    }
    Ok(config.map(|config| {
        let files = Files::new(project, environment, config.registries.clone());
        (config, files)
    }))
}

/// The servers whose first start may take a while.
pub(crate) fn downloading(config: &Config) -> Vec<String> {
    let may_download =
        |server: &&ServerSpec| matches!(&server.transport, Transport::Stdio(stdio) if stdio.downloads());
    config.servers.iter().filter(may_download).map(|server| server.name.to_string()).collect()
}

/// What a runtime is made of, with those servers that are wanted.
pub(crate) fn setup(config: Config, answers: Answers, wanted: impl Fn(&str) -> bool) -> Setup {
    let ways = desk::ways(answers);
    let desk = config.builtins.human_input.map(|rules| Desk::new(rules.timeout, false, ways));
    setup_at(config, answers, desk.as_ref(), wanted)
}

/// The same with a desk where questions to people wait.
pub(crate) fn setup_at(
    config: Config,
    answers: Answers,
    desk: Option<&Arc<Desk>>,
    wanted: impl Fn(&str) -> bool,
) -> Setup {
    let results = config.results.map(|limits| {
        let redactor = Redactor::new(config.secrets.clone(), config.audit.redact.clone());
        Results::of(&config.project, limits, redactor)
    });
    Setup {
        builtins: toolgate_runtime::builtins::all(config.builtins, &config.project, desk, results.as_ref()),
        own: config.tools,
        settings: config.tool_settings,
        servers: config.servers.into_iter().filter(|server| wanted(server.name.as_str())).collect(),
        apis: config.apis.into_iter().filter(|api| wanted(api.name.as_str())).collect(),
        read_document: toolgate_config::document,
        limits: config.limits,
        logins: login::logins(),
        questions: questions::of_servers(answers),
        lock: Some(LockFile::of(&config.project)),
        secrets: config.secrets.clone(),
        callers: with_those_made(config.callers, &config.project),
        policy: Policy::new(config.policy.map(|policy| policy.rules)),
        approver: questions::approver(answers),
        egress: config.egress,
        results,
        profiles: config.profiles,
    }
}

/// The callers of the configuration, and those that were made.
fn with_those_made(mut callers: Vec<Caller>, project: &Path) -> Vec<Caller> {
    // What is wrong with the file is told where it is needed.
    let made = KeyStore::new(&project.join(".toolgate")).callers().unwrap_or_default();
    for kept in made {
        if callers.iter().all(|caller| caller.id != kept.id) {
            callers.push(kept.caller());
        }
    }
    callers
}

/// Connects to the servers. What went wrong is for who needs them; what cannot be used by anyone is told here,
/// with the code to end with.
pub(crate) async fn discover(
    runtime: &Runtime,
    downloading: &[String],
    output: &Output,
) -> Result<Vec<StartError>, u8> {
    let discovery = runtime.discover(|status| progress(status, output));
    tokio::pin!(discovery);
    let outcome = match timeout(PATIENCE, &mut discovery).await {
        Ok(outcome) => outcome,
        Err(_) => {
            still_starting(runtime, downloading, output);
            discovery.await
        }
    };
    let errors = outcome.err().unwrap_or_default();
    if errors.iter().any(|error| matches!(error, StartError::Catalog(_) | StartError::Lock(_))) {
        tell(&errors, output);
        return Err(REFUSED);
    }
    Ok(errors)
}

/// What is logged where nothing else is said: our warnings, and errors of the libraries.
const OURS: &str = "error,toolgate=warn,toolgate_server=warn,toolgate_runtime=warn,toolgate_upstream=warn,\
                    toolgate_mcp=warn";

/// Log lines go to stderr: warnings, or what `TOOLGATE_LOG` says.
fn log_to_stderr(output: &Output) {
    let filter = EnvFilter::try_from_env("TOOLGATE_LOG").unwrap_or_else(|_| EnvFilter::new(OURS));
    // It would show codes and tokens; what goes wrong there is told by its errors.
    let quiet = "rmcp::transport::auth=off".parse().expect("it is a directive");
    let filter = filter.add_directive(quiet);
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(output.masked_stderr())
        .with_ansi(output.colours_stderr())
        .with_target(false)
        .try_init();
}

/// The errors of the start, each with its way out.
pub(crate) fn tell(errors: &[StartError], output: &Output) -> u8 {
    for error in errors {
        output.message(&format!("{BOLD}error{BOLD:#}: {error}\n"));
        if let Some(cause) = error.source() {
            output.message(&format!("  because: {cause}\n"));
        }
        match error {
            StartError::Server { hint: Some(hint), .. } => output.message(&format!("hint: {hint}\n")),
            StartError::Lock(_) => output.message(
                "hint: take an older version of the file, or move it away: tools are then trusted as they are now\n",
            ),
            _ => {}
        }
    }
    if errors.is_empty() { crate::DONE } else { FAILED }
}

/// Says of the servers that people would take for stuck why they may take so long.
fn still_starting(runtime: &Runtime, downloading: &[String], output: &Output) {
    for ServerStatus { name, state, .. } in runtime.servers() {
        if state == "connecting" && downloading.contains(&name) {
            output.message(&format!("{name} is still starting; the first start of a package downloads it\n"));
        }
    }
}

/// A line per server as it gets there.
fn progress(status: &ServerStatus, output: &Output) {
    output.message(&line(status));
}

/// A server on one line.
pub(crate) fn line(status: &ServerStatus) -> String {
    let ServerStatus { name, transport, state, protocol_version, tools, .. } = status;
    match protocol_version {
        Some(version) => format!("{DIM}{state} {name} · {transport} · {version} · {tools} tools{DIM:#}\n"),
        // An API speaks no protocol of ours, and is there once its document is.
        None if *tools > 0 => format!("{DIM}{state} {name} · {transport} · {tools} tools{DIM:#}\n"),
        None => format!("{state} {name} · {transport}\n"),
    }
}
