//! Runs the agent of a project for one command: its model, its tools, and the answers to questions.
//!
//! Invariant: everything that was started is stopped when [`with`] returns, however the command ends.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::anyhow;
use toolgate_agent::model::{Model, ModelError, RemoteModel};
use toolgate_agent::planner::Planner;
use toolgate_agent::recording::RecordedModel;
use toolgate_agent::run::{Agent, Executor};
use toolgate_agent::server_requests::client_capabilities;
use toolgate_agent::{Recording, RunError, RunStore, SkillSet};
use toolgate_audit::redact::Redactor;
use toolgate_config::Config;
use toolgate_runtime::Runtime;
use toolgate_runtime::questions::{NoResponder, QuestionQueue, Responder};
use toolgate_search::values::CalendarDate;
use toolgate_types::agent::AgentConfig;
use toolgate_types::builtins::HumanInputConfig;
use toolgate_types::limits::ResultLimits;
use toolgate_types::{ByteSize, Caller, HumanDuration};

use crate::cli::{AgentArgs, ProjectArgs};
use crate::command::log::{self, LogSetup};
use crate::command::terminal_prompts::{ApprovalInput, TerminalResponder};
use crate::command::{project_runtime, tools};
use crate::output::{Output, error_with_hint};
use crate::{FAILED, INVALID_CONFIG};

pub(crate) mod keys;
pub(crate) mod markdown;
pub(crate) mod printer;
pub(crate) mod service;

/// Time a person has to answer, if the project does not configure it.
pub(crate) const QUESTION_TIMEOUT: HumanDuration = HumanDuration::from_secs(600);

/// An agent, and the caller that it acts as.
pub(crate) struct ReadyAgent {
    pub(crate) agent: Agent,
    pub(crate) caller: Caller,
}

/// Opens the run store of a project.
pub(crate) fn run_store(config: &Config) -> RunStore {
    RunStore::new(&config.project, Redactor::new(config.secrets.clone(), config.audit.redact.clone()))
}

/// Builds the agent, runs `work`, and stops everything that was started.
pub(crate) fn with_agent<F>(
    args: &AgentArgs,
    project: &ProjectArgs,
    output: &Output,
    work: impl FnOnce(ReadyAgent) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let Some((mut config, files)) = project_runtime::load_config(project, output)? else {
        return Ok(INVALID_CONFIG);
    };
    let agent_config = std::mem::take(&mut config.agent);
    let (skills, wrong) = SkillSet::read(&agent_config.skills);
    for error in wrong {
        output.message(&format!("skill ignored: {error}\n"));
    }
    let model = build_model(&agent_config)?;
    enable_questions_and_results(&mut config, model.max_result_bytes());
    let (downloading, log_setup) = (project_runtime::downloading_servers(&config), LogSetup::of(&config)?);
    let (collector, runs, name) = (config.telemetry.clone(), run_store(&config), config.name.clone());
    let terminal: Arc<dyn Responder> = Arc::new(TerminalResponder::new(args.answers, ApprovalInput::Key));
    let question_queue = config
        .builtins
        .human_input
        .map(|human_input| QuestionQueue::new(human_input.timeout, false, vec![Arc::clone(&terminal)]));
    let mut setup = project_runtime::runtime_setup_with(config, terminal, question_queue.as_ref(), |_| true);
    setup.history = log_setup.history();
    setup.log = Some(log_setup.open(log::CallVolume::Many)?);
    setup.forwarded_features = Some(client_capabilities(&agent_config));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        setup.spans = project_runtime::span_exporter(collector)?;
        let runtime = Arc::new(Runtime::new(setup));
        let job = async {
            let errors = match project_runtime::discover(&runtime, &downloading, output).await {
                Ok(errors) => errors,
                Err(code) => return Ok(code),
            };
            // A failed server is reported; the agent works with the others.
            project_runtime::report_errors(&errors, output);
            let caller = tools::find_caller(&runtime, &args.caller)?;
            let executor = Executor::Runtime(Arc::clone(&runtime));
            let record = args.record.clone();
            let agent = Agent {
                executor,
                model,
                config: agent_config,
                name,
                skills,
                runs,
                responder: agent_responder(question_queue.as_ref()),
                record,
            };
            // Concurrent with the work, which need not wait until the files are read again.
            let changes = async {
                if let Some((_, actor)) = files.open_for(&runtime, output).await {
                    actor.run().await;
                }
                std::future::pending::<std::convert::Infallible>().await
            };
            tokio::select! {
                outcome = work(ReadyAgent { agent, caller }) => outcome,
                never = runtime.watch_servers() => match never {},
                never = changes => match never {},
            }
        };
        let outcome = job.await;
        runtime.stop().await;
        outcome
    })
}

/// Builds the agent of the gateway, for all callers. If its model cannot be used, prints a message and returns `None`.
pub(crate) fn agent_service(
    agent_config: AgentConfig,
    name: Option<String>,
    runs: RunStore,
    (runtime, question_queue): (&Arc<Runtime>, Option<&Arc<QuestionQueue>>),
    output: &Output,
) -> Option<Arc<dyn toolgate_server::runs::RunService>> {
    let (skills, wrong) = SkillSet::read(&agent_config.skills);
    for error in wrong {
        output.message(&format!("skill ignored: {error}\n"));
    }
    let model = match build_model(&agent_config) {
        Ok(model) => model,
        Err(error) => {
            output.message(&format!("no agent at /v1/runs: {error}\n"));
            return None;
        }
    };
    let executor = Executor::Runtime(Arc::clone(runtime));
    let agent = Agent {
        executor,
        model,
        config: agent_config,
        name,
        skills,
        runs,
        responder: agent_responder(question_queue),
        record: None,
    };
    Some(Arc::new(service::AgentService(Arc::new(agent))))
}

/// Returns the responder for questions of servers: the queue, so that people can answer over HTTP as well.
fn agent_responder(question_queue: Option<&Arc<QuestionQueue>>) -> Arc<dyn Responder> {
    match question_queue {
        Some(queue) => Arc::clone(queue) as Arc<dyn Responder>,
        None => Arc::new(NoResponder),
    }
}

/// Replays a recording, without model, tools or project.
pub(crate) fn replay<F>(
    recording: &Path,
    work: impl FnOnce(ReadyAgent, Arc<Recording>) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let recording = Recording::read(recording)?;
    let agent = Agent {
        executor: Executor::Recording(Arc::clone(&recording)),
        model: Arc::new(RecordedModel(Arc::clone(&recording))),
        config: AgentConfig::default(),
        name: None,
        skills: SkillSet::default(),
        runs: RunStore::new(Path::new("."), Redactor::new(Vec::new(), Vec::new())),
        responder: Arc::new(NoResponder),
        record: None,
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio.block_on(work(ReadyAgent { agent, caller: Caller::owner() }, recording))
}

/// Creates the configured model, or the planner if there is none.
fn build_model(agent_config: &AgentConfig) -> anyhow::Result<Arc<dyn Model>> {
    let Some(spec) = &agent_config.model else { return Ok(Arc::new(Planner::new(today))) };
    let to_error = |ModelError { message, hint, .. }: ModelError| match hint {
        Some(hint) => error_with_hint(message, hint),
        None => anyhow!(message),
    };
    Ok(Arc::new(RemoteModel::new(spec.clone()).map_err(to_error)?))
}

/// Returns the current date, UTC.
fn today() -> Option<CalendarDate> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(CalendarDate::from_day_number(i64::try_from(since.as_secs() / (24 * 60 * 60)).ok()?))
}

/// Enables questions to a person, and stores results that are too large for the model.
fn enable_questions_and_results(config: &mut Config, most: usize) {
    config.builtins.human_input.get_or_insert(HumanInputConfig { timeout: QUESTION_TIMEOUT });
    let usual = ResultLimits {
        max_inline: ByteSize::from_mib(1),
        keep: HumanDuration::from_secs(24 * 60 * 60),
        max_disk: ByteSize::from_mib(256),
    };
    let results = config.results.get_or_insert(usual);
    if results.max_inline.as_usize() > most
        && let Ok(most) = most.to_string().parse()
    {
        results.max_inline = most;
    }
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
        EndReason::Interrupted => project_runtime::INTERRUPTED,
        _ => FAILED,
    }
}
